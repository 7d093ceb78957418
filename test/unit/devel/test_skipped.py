"""The list of skipped tests: what is noted, and what is allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devel import skipped
from devel.skipped import Skipped

TOP = Path(__file__).resolve().parents[3]


def test_the_list_of_this_project_can_be_read() -> None:
    patterns = skipped.read_expected(skipped.EXPECTED.read_text())
    for pattern in patterns:
        file = TOP / pattern.partition("::")[0]
        assert "*" in str(file) or file.exists(), pattern


def test_an_entry_needs_a_reason() -> None:
    assert skipped.read_expected("# a comment\n\na.py::*  no kernel\n") == ["a.py::*"]
    with pytest.raises(ValueError, match="line 2 has no reason"):
        skipped.read_expected("a.py  why\nb.py\n")


@pytest.mark.parametrize(
    ("test", "allowed"),
    [
        ("a.py::test_one", True),
        ("a.py::test_two[x-1]", True),
        ("a.py::test_two[y]", False),
        ("a.py::test_three", False),
        ("b.py", True),
        ("c.py::test_one", False),
    ],
)
def test_what_may_be_skipped(test: str, allowed: bool) -> None:
    patterns = ["a.py::test_one", "a.py::test_two[x*", "b.py*"]
    assert skipped.unexpected([Skipped(test, "because")], patterns) == (
        [] if allowed else [Skipped(test, "because")]
    )


def _run(report: Path, expected: Path) -> int:
    return skipped.main([str(report), "--expected", str(expected)])


@pytest.mark.programs
def test_a_run_notes_what_it_skips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests = tmp_path / "test"
    tests.mkdir()
    (tests / "conftest.py").write_text((TOP / "test/conftest.py").read_text())
    (tests / "test_some.py").write_text(
        "import pytest\n"
        "def test_runs(): pass\n"
        "@pytest.mark.skip(reason='no kernel')\n"
        "def test_marked(): pass\n"
        "def test_inside(): pytest.skip('no disk')\n"
        "@pytest.mark.xfail\n"
        "def test_expected_to_fail(): assert False\n"
    )
    (tests / "test_none.py").write_text(
        "import pytest\npytest.skip('no module', allow_module_level=True)\n"
    )
    report = tmp_path / "report"
    # A worker of a parallel run leaves the notes to another process.
    outside = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    # The other plugins take seconds to start and are not needed.
    outside["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for workers in ("0", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "xdist", "-q", "-n", workers, "test"],
            cwd=tmp_path,
            env={**outside, "SKIPPED_TESTS": str(report)},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    expected = tmp_path / "expected"
    expected.write_text("test/test_some.py::*  this machine\n")
    assert _run(report, expected) == 1
    assert capsys.readouterr().out.splitlines() == [
        "3 tests were skipped",
        "  test/test_none.py: no module",
        "  test/test_some.py::test_inside: no disk",
        "  test/test_some.py::test_marked: no kernel",
        f"1 of them ran before, or are not in {expected}:",
        "  test/test_none.py: no module",
    ]
    expected.write_text("test/*  this machine\n")
    assert _run(report, expected) == 0
    assert _run(tmp_path / "nothing was skipped", expected) == 0
    assert _run(report, tmp_path / "gone") == 2
