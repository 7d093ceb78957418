"""The lists of known faults fit the program, and a fault is found or survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from devel import mutate
from devel.mutate import HANGS, KILLED, SURVIVED, Fault, ListError


def test_every_old_text_is_in_the_program() -> None:
    """Who changes a line which a fault names adapts the fault, too."""
    faults = mutate.read_lists()
    assert mutate.problems(faults) == []
    assert len({fault.package for fault in faults}) == len(list(mutate.FAULTS.glob("*.toml")))


def _fault(**changes: object) -> Fault:
    values = {
        "package": "p",
        "what": "w",
        "file": "one.py",
        "old": "a = 1",
        "new": "a = 2",
        "tests": ("test",),
    }
    return Fault(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (_fault(old="b = 1"), "the old text occurs 0 times in lib/ganeti/one.py"),
        (_fault(old="="), "the old text occurs 2 times in lib/ganeti/one.py"),
        (_fault(new="a = 1"), "the new text is the old one"),
        (_fault(new="a = "), "the new text is no Python"),
        (_fault(tests=("gone",)), "there is no gone"),
        (_fault(tests=()), "no tests are named"),
        (_fault(file="two.py"), "two.py"),
    ],
)
def test_an_error_in_a_list_is_named(tmp_path: Path, fault: Fault, problem: str) -> None:
    (tmp_path / "lib/ganeti").mkdir(parents=True)
    (tmp_path / "lib/ganeti/one.py").write_text("a = 1\nb = 2\n")
    (tmp_path / "test").mkdir()
    assert mutate.problems([_fault()], tmp_path) == []
    (found,) = mutate.problems([fault], tmp_path)
    assert problem in found


@pytest.mark.parametrize(
    "text",
    [
        "fault = 1",
        "[[fault]]\nwhat = 'x'",
        "[[fault]]\nwhat='x'\nfile='f'\nold='a'\nnew='b'\ntest=['t']",
        "[[fault]]\nwhat='x'\nfile='f'\nold='a'\nnew='b'\n" * 2,
        "no list",
    ],
)
def test_a_malformed_list(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(ListError):
        mutate.read_lists(tmp_path)


def test_parts_have_every_fault_once() -> None:
    faults = [_fault(what=str(number)) for number in range(10)]
    parts = [mutate.part_of(faults, f"{number}/3", 0) for number in (1, 2, 3)]
    assert sorted(fault.what for part in parts for fault in part) == sorted(map(str, range(10)))
    days = [mutate.part_of(faults, "today/3", day) for day in (7, 8, 9)]
    assert sorted(map(len, days)) == [3, 3, 4]
    with pytest.raises(ValueError, match="no part 4/3"):
        mutate.part_of(faults, "4/3", 0)


def test_the_table() -> None:
    results = [(_fault(), KILLED), (_fault(), SURVIVED), (_fault(package="q"), HANGS)]
    assert mutate.table(results).splitlines()[3:6] == [
        "p                             2     1  50 %",
        "q                             1     1 100 %",
        "all                           3     2  66 %",
    ]


@pytest.mark.programs
def test_faults_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "top"
    (top / "lib/ganeti").mkdir(parents=True)
    (top / "lib/ganeti/__init__.py").write_text("")
    (top / "lib/ganeti/one.py").write_text("a = 1\nb = 2\n")
    (top / "test").mkdir()
    (top / "test/test_one.py").write_text(
        "from ganeti import one\n\n"
        "def test_a():\n    while one.a == 3: pass\n    assert one.a == 1\n"
    )
    monkeypatch.setattr(mutate, "TOP", top)
    monkeypatch.setattr(mutate, "_LEAST_S", 0.1)
    monkeypatch.setattr(mutate, "_PATIENCE", 3)
    (tmp_path / "copy").mkdir()
    workplace = mutate.Workplace(tmp_path / "copy", mutate.sys.executable)
    tests = ("test/test_one.py",)
    assert workplace.healthy(tests)
    assert workplace.outcome(_fault(tests=tests)) == KILLED
    assert workplace.outcome(_fault(tests=tests, old="b = 2", new="b = 3")) == SURVIVED
    assert workplace.outcome(_fault(tests=tests, new="a = 3")) == HANGS
    assert not workplace.healthy(("test/test_gone.py",))
    assert (tmp_path / "copy/lib/ganeti/one.py").read_text() == "a = 1\nb = 2\n"
