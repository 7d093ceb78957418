"""The order of the long tests, which have too little time: every file comes first once a week."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
CONFTEST = TOP / "test/conftest.py"


def test_every_file_comes_first_once_a_week() -> None:
    """A run which has time for a seventh of the files each day has run all of them after a week."""
    spec = importlib.util.spec_from_file_location("conftest_of_all_tests", CONFTEST)
    assert spec is not None and spec.loader is not None
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    for count in (1, 6, 7, 15, 43):
        files = [str(number) for number in range(count)]
        orders = [conftest.in_turn(files, day) for day in range(1000, 1007)]
        assert all(sorted(order) == sorted(files) for order in orders)
        first = {file for order in orders for file in order[: -(-count // 7)]}
        assert first == set(files)


@pytest.mark.programs
def test_a_run_which_is_stopped_names_what_is_left(tmp_path: Path) -> None:
    tests = tmp_path / "test"
    tests.mkdir()
    (tests / "conftest.py").write_text(CONFTEST.read_text())
    for letter in "abcdefghi":
        stop = "raise KeyboardInterrupt" if letter == "i" else "pass"
        (tests / f"test_{letter}.py").write_text(f"def test_one(): pass\ndef test_two(): {stop}\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--turn", "708", "test"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "SKIPPED_TESTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout + done.stderr
    ran = [line.split()[0] for line in done.stdout.splitlines() if "PASSED" in line]
    assert ran == [
        "test/test_b.py::test_one",
        "test/test_b.py::test_two",
        "test/test_i.py::test_one",
    ]
    left = " ".join(f"test/test_{letter}.py" for letter in "icdefgah")
    assert "turn: 1 of 9 files were run; these were not, or not completely: " + left in done.stdout
