"""``devel/lab`` explains itself before it starts machines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab import machines

LAB = Path(__file__).resolve().parents[3] / "devel/lab"


@pytest.mark.programs
@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--help"], 0, ""),
        (["shell", "--help"], 0, ""),
        (["shell", "-h"], 0, ""),
        (["shell", "many"], 2, "lab: 'many' is not a number of machines\n"),
        (["shell", "0"], 2, "lab: '0' is not a number of machines\n"),
    ],
)
def test_usage(words: list[str], code: int, error: str) -> None:
    done = subprocess.run([str(LAB), *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, error)
    assert "devel/lab shell [NODES]" in done.stdout


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("/autogroup-71 nice -15\n", "-15"),
        ("", "before"),  # The process is in no group of its own, as some containers start it.
        (None, "before"),  # The kernel has no such groups.
    ],
)
def test_machines_share_the_priority(tmp_path: Path, text: str | None, given: str) -> None:
    own, other = (tmp_path / name / "autogroup" for name in ("self", "7"))
    for file in (own, other):
        file.parent.mkdir()
    if text is not None:
        own.write_text(text)
    other.write_text("before")
    machines.share_priority(7, tmp_path)
    assert other.read_text() == given
