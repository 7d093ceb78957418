"""An acknowledged job is never lost and never run twice: killed at every step."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ganeti.utils import process

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.programs
@pytest.mark.parametrize("first", [1, 2])
def test_killed_at_every_step(tmp_path: Path, first: int) -> None:
    done = process.run(
        [sys.executable, str(Path(__file__).with_name("crash_driver.py")), str(tmp_path),
         str(first), "2"],
        env={"PYTHONPATH": str(ROOT / "lib")}, timeout_s=600, check=False)
    assert done.exit_code == 0, done.stdout + done.stderr
    reached = int(done.stdout.split()[-1])
    assert reached > 60, "the load got shorter; are all steps still counted?"
