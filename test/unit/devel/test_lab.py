"""``devel/lab`` explains itself before it starts machines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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
