"""An acknowledged job is never lost and never run twice: killed at every step."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ganeti.utils import process

ROOT = Path(__file__).resolve().parents[3]

# The steps are shared out: the runs wait for each other's disk less than for their own.
SHARES = 4

# Everything a queue does to its disk and says to a candidate.
STEPS = {
    "create-journal",
    "write-journal",
    "flush-journal",
    "remove-journal",
    "write-file",
    "rename-file",
    "flush-file",
    "flush-directory",
    "archive-job",
    "remove-drain",
    "rpc-inventory",
    "rpc-inventory-answered",
    "rpc-update",
    "rpc-update-answered",
    "rpc-archive",
    "rpc-drain",
    "copy-write-journal",
    "copy-flush-journal",
    "copy-write-file",
    "copy-rename-file",
}


@pytest.mark.programs
def test_killed_at_every_step(tmp_path: Path) -> None:
    def run(share: int) -> list[str]:
        place = tmp_path / str(share)
        place.mkdir()
        done = process.run(
            [
                sys.executable,
                str(Path(__file__).with_name("crash_driver.py")),
                str(place),
                str(share),
                str(SHARES),
            ],
            env={"PYTHONPATH": str(ROOT / "lib")},
            timeout_s=600,
            check=False,
        )
        assert done.exit_code == 0, done.stdout + done.stderr
        return done.stdout.split()

    with ThreadPoolExecutor(SHARES) as pool:
        outcomes = list(pool.map(run, range(1, SHARES + 1)))
    killed_at = {step for *steps, _ok, _reached in outcomes for step in steps}
    assert killed_at >= STEPS, STEPS - killed_at
    assert all(int(outcome[-1]) > 150 for outcome in outcomes), (
        "the load got shorter; are all steps still counted?"
    )
