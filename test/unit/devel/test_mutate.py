"""The lists of known faults fit the program, and a fault is found or survives."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devel import mutate, mutation_record, mutation_server
from devel.mutate import Fault, ListError, Series
from devel.mutation_record import HANGS, KILLED, SURVIVED, Entry, RecordError


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
        (_fault(new="a = "), "the new text is not Python"),
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


def test_faults_of_one_file_are_compiled_together_and_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "lib/ganeti").mkdir(parents=True)
    (tmp_path / "lib/ganeti/one.py").write_text("def f():\n    a = 1\n    b = 2\n")
    (tmp_path / "test").mkdir()
    bad = _fault(what="bad", old="b = 2", new="b = ")
    # Each of the first two is right, and both together leave a function without a body.
    right = [
        _fault(what="x", old="    a = 1\n", new=""),
        _fault(what="y", old="    b = 2\n", new=""),
        _fault(what="z", old="a = 1\n    b", new="c"),
    ]
    assert mutate.problems(right, tmp_path) == []
    (found,) = mutate.problems([*right, bad], tmp_path)
    assert found.startswith("p: bad: the new text is not Python")


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


def test_a_part_begins_at_another_place_the_next_time() -> None:
    """A run which ends early after a quarter of its part has tried all of it after four turns."""
    faults = [_fault(what=str(number)) for number in range(56)]
    turns = [mutate.part_of(faults, "today/7", day) for day in range(3, 3 + 4 * 7, 7)]
    assert len({frozenset(fault.what for fault in turn) for turn in turns}) == 1
    assert {fault.what for turn in turns for fault in turn[:2]} == {f.what for f in turns[0]}


def test_the_table() -> None:
    outcomes = [("p", KILLED), ("p", SURVIVED), ("q", HANGS)]
    assert mutation_record.table(outcomes).splitlines()[3:6] == [
        "p                2     1  50 %",
        "q                1     1 100 %",
        "all              3     2  66 %",
    ]


def _entry(name: str, outcome: str = KILLED, **changes: str) -> Entry:
    values = {"fault": name, "digest": "d", "outcome": outcome, "by": "", "date": "2026-01-02"}
    return Entry(**{**values, **changes})


def test_the_record_keeps_what_others_wrote(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    assert mutation_record.read(path) == {}
    mutation_record.add(path, [_entry("p: b"), _entry("p: a")])
    mutation_record.add(path, [_entry("p: b", SURVIVED)])
    assert list(mutation_record.read(path)) == ["p: a", "p: b"]
    assert mutation_record.read(path)["p: b"].outcome == SURVIVED
    mutation_record.keep(path, ["p: b", "p: c"])
    assert list(mutation_record.read(path)) == ["p: b"]
    assert [one.name for one in tmp_path.iterdir()] == ["outcomes.jsonl"]


@pytest.mark.parametrize("line", ["{", "[]", '{"fault": "p: a"}', "1"])
def test_a_malformed_record_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "outcomes.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(RecordError, match=r"outcomes\.jsonl, line 1: "):
        mutation_record.read(path)


def test_the_page_gets_the_scores(tmp_path: Path) -> None:
    page = tmp_path / "page.rst"
    page.write_text(f"Text\n\n{mutation_record.MARK}old\n")
    entries = [_entry("p: b", SURVIVED), _entry("p: a", date="2026-01-01")]
    mutation_record.write_page(page, entries)
    text = page.read_text()
    assert text.startswith(
        f"Text\n\n{mutation_record.MARK}\nThe faults were tried between 2026-01-01"
    )
    assert "\np                2     1  50 %\n" in text
    assert text.endswith("\nThese survived:\n\n* p: b\n")
    page.write_text("Text\n")
    with pytest.raises(RecordError, match="has no line"):
        mutation_record.write_page(page, entries)


def test_the_page_agrees_with_the_record() -> None:
    """Both are written by ``devel/mutate.py --record``."""
    _, _, written = mutate.PAGE.read_text().partition(mutation_record.MARK)
    entries = mutation_record.read(mutate.RECORD)
    assert written == mutation_record.scores(entries.values())


def test_the_recorded_tests_exist() -> None:
    """A test which was renamed is renamed in the record: it is tried first, the next time."""
    missing = []
    for entry in mutation_record.read(mutate.RECORD).values():
        file, _, name = entry.by.partition("::")
        function = name.partition("[")[0].rpartition("::")[2]
        path = mutate.TOP / file
        if entry.by and (not path.is_file() or f"def {function}(" not in path.read_text()):
            missing.append(f"{entry.fault}: {entry.by}")
    assert missing == []


def test_what_is_recorded_of_another_fault_does_not_count() -> None:
    fault = _fault()
    entry = _entry("p: w", digest=fault.digest)
    assert mutate.recorded(fault, {"p: w": entry}) == entry
    for changed in (_fault(new="a = 4"), _fault(old="b = 2"), _fault(file="two.py")):
        assert mutate.recorded(changed, {"p: w": entry}) is None
    assert mutate.recorded(_fault(what="v"), {"p: w": entry}) is None


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[mutate.Workplace]:
    top = tmp_path / "top"
    (top / "lib/ganeti").mkdir(parents=True)
    (top / "lib/ganeti/__init__.py").write_text("")
    (top / "lib/ganeti/one.py").write_text("a = 1\nb = 2\n\n\ndef c():\n    return 3\n")
    (top / "test").mkdir()
    (top / "test/test_one.py").write_text(
        "import pytest\nfrom ganeti import one\n\n"
        "def test_other():\n    pass\n\n"
        "@pytest.mark.parametrize('x', ['y - z'])\n"
        "def test_a(x):\n    assert one.a == 1\n\n"
        "def test_c():\n    assert one.c() == 3\n"
    )
    monkeypatch.setattr(mutate, "TOP", top)
    # These tests need no plugin, and to import all takes long.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "copy").mkdir()
    with mutate.Workplace(tmp_path / "copy", mutate.sys.executable) as made:
        yield made


@pytest.mark.programs
def test_faults_are_tried(tmp_path: Path, workplace: mutate.Workplace) -> None:
    tests = ("test/test_one.py",)
    here = _fault(tests=tests, old="return 3", new="return 4")
    assert workplace.healthy(tests)
    assert workplace.outcome(_fault(), tests) == (KILLED, "test/test_one.py::test_a")
    assert workplace.outcome(_fault(old="b = 2", new="b = 3"), tests) == (SURVIVED, "")
    assert workplace.nearest(_fault(tests=tests)) == ()
    assert workplace.nearest(here) == ("test/test_one.py::test_c",)
    found = workplace.outcome(here, tests, some_of=workplace.nearest(here))
    assert found == (KILLED, "test/test_one.py::test_c")
    # A fault which uses up the memory ends the test, and no other program.
    greedy = _fault(old="b = 2", new="b = bytearray(8 << 30)")
    assert workplace.outcome(greedy, tests) == (KILLED, "test/test_one.py")
    # A test which cannot be run has not found the fault.
    assert workplace.outcome(here, tests, some_of=("test/test_one.py::gone",)) == (SURVIVED, "")
    assert not workplace.healthy(("test/test_gone.py",))
    assert "return 3" in (tmp_path / "copy/lib/ganeti/one.py").read_text()


def test_a_test_which_does_not_end_is_named() -> None:
    ended, end = os.pipe()
    reader, writer = os.pipe()
    os.write(writer, b"t::a\nt::b\n")
    assert mutation_server._watch(ended, reader, 0.0) == (False, "t::b")
    os.write(writer, b"t::c\nt::")
    os.write(end, b"x")
    assert mutation_server._watch(ended, reader, 60.0) == (True, "t::c")
    os.close(writer)
    assert mutation_server._watch(ended, reader, 60.0) == (True, "")
    for pipe in (ended, end, reader):
        os.close(pipe)


_BAD, _HUNG, _GOOD = (1, "t::x"), (None, "t::y"), (0, "")


@pytest.mark.parametrize(
    ("runs", "outcome"),
    [
        ([_GOOD], (SURVIVED, "")),
        ([(5, "")], (SURVIVED, "")),
        ([_BAD, _BAD], (KILLED, "t::x")),
        ([_HUNG, _HUNG], (HANGS, "t::y")),
        ([_HUNG, (1, "t::y")], (KILLED, "t::y")),
        # The test alone does not fail: the machine was busy, or only all tests together find it.
        ([_HUNG, _GOOD, _GOOD], (SURVIVED, "")),
        ([_BAD, (4, ""), _HUNG], (HANGS, "t::y")),
        # The tests cannot even be collected.
        ([(2, ""), (2, "")], (KILLED, "")),
    ],
)
def test_a_fault_is_found_when_a_test_fails_twice(
    runs: list[tuple[int | None, str]], outcome: tuple[str, str], workplace_without_tests: Any
) -> None:
    workplace_without_tests._run = lambda *_arguments: mutate._Run(*runs.pop(0))
    assert workplace_without_tests._judged(("t",)) == outcome
    assert runs == []


@pytest.fixture
def workplace_without_tests() -> mutate.Workplace:
    return mutate.Workplace.__new__(mutate.Workplace)


_MODULE = """\
import x

A = 1


def first():
    one
    two


class Thing:
    kind = 1

    @decorated
    def second(self):
        def inner():
            three

        four
"""


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("    two", "    other", [6]),
        ("    two\n", "", [6]),
        ("    one\n", "    one\n    more\n", [6]),
        ("three", "other", [16]),
        ("four", "other", [14]),
        ("A = 1", "A = 2", []),
        ("kind = 1", "kind = 2", []),
        ("    two\n\n\nclass Thing:\n    kind = 1\n\n    @decorated", "    @other", [6, 14]),
    ],
)
def test_the_functions_of_a_fault(old: str, new: str, lines: list[int]) -> None:
    assert mutate.functions_of(_MODULE, _MODULE.replace(old, new)) == lines


def test_tests_which_call_few_functions_come_first() -> None:
    calls = {"t::all": ["a:1", "b:1", "c:1"], "t::one": ["a:1"], "t::two": ["a:1", "b:1"]}
    assert mutate.callers(calls) == {
        "a:1": ["t::one", "t::two", "t::all"],
        "b:1": ["t::two", "t::all"],
        "c:1": ["t::all"],
    }


class _Workplace:
    """Has tests which find a fault, or none, and records which tests ran.

    :ivar finds: the test which fails for each set of tests that finds the fault.
    """

    def __init__(self, finds: dict[tuple[str, ...], str], unhealthy: tuple[str, ...] = ()) -> None:
        self.finds = finds
        self.unhealthy = unhealthy
        self.ran: list[tuple[str, ...]] = []

    def healthy(self, tests: tuple[str, ...]) -> bool:
        return not set(tests) & set(self.unhealthy)

    def nearest(self, fault: Fault) -> tuple[str, ...]:
        return ("t::near",)

    def outcome(
        self, fault: Fault, tests: tuple[str, ...], *, some_of: tuple[str, ...] = ()
    ) -> tuple[str, str]:
        ran = some_of or tests
        self.ran.append(ran)
        return (KILLED, self.finds[ran]) if ran in self.finds else (SURVIVED, "")


_LAST, _NEAR, _ALL = ("t::x",), ("t::near",), ("t",)


@pytest.mark.parametrize(
    ("finds", "unhealthy", "ran", "code"),
    [
        ({_LAST: "t::x"}, (), [_LAST], 0),
        ({_NEAR: "t::near"}, (), [_LAST, _NEAR], 0),
        ({_ALL: "t::y"}, (), [_LAST, _NEAR, _ALL], 0),
        ({_ALL: "t::y"}, _LAST, [_NEAR, _ALL], 0),
        ({}, (), [_LAST, _NEAR, _ALL], 1),
        ({}, _ALL, [_LAST], 2),
    ],
)
def test_the_nearest_tests_run_first(
    finds: dict[tuple[str, ...], str],
    unhealthy: tuple[str, ...],
    ran: list[tuple[str, ...]],
    code: int,
) -> None:
    fault = _fault(tests=_ALL)
    workplace = _Workplace(finds, unhealthy)
    entries = {"p: w": _entry("p: w", digest=fault.digest, by="t::x")}
    series = Series(workplace, entries)  # type: ignore[arg-type]
    series.run([fault], None, None)
    assert workplace.ran == ran
    assert series.report() == code


@pytest.mark.parametrize(("outcome", "code"), [(KILLED, 1), (HANGS, 1), (SURVIVED, 0), (None, 0)])
def test_a_fault_which_was_found_before_is_a_regression(outcome: str | None, code: int) -> None:
    fault = _fault(tests=("t",))
    entries = {} if outcome is None else {"p: w": _entry("p: w", outcome, digest=fault.digest)}
    series = Series(_Workplace({}), entries)  # type: ignore[arg-type]
    series.run([fault], None, None)
    assert series.report(regressions=True) == code
    assert series.report() == 1
    # Other parts of the check report tests which always fail.
    series = Series(_Workplace({}, ("t",)), entries)  # type: ignore[arg-type]
    series.run([fault], None, None)
    assert (series.report(regressions=True), series.report()) == (0, 2)


def test_each_outcome_is_recorded_at_once(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    workplace = _Workplace({("t::near",): "t::x"})
    series = Series(workplace, {})  # type: ignore[arg-type]
    first, second = _fault(tests=("t",)), _fault(what="v", tests=("u",), open="known")
    series.run([first], None, path)
    assert mutation_record.read(path)["p: w"].by == "t::x"
    workplace.finds.clear()
    series.run([second], None, path)
    assert [one.outcome for one in mutation_record.read(path).values()] == [SURVIVED, KILLED]
    assert series.report() == 0


def test_the_choice_of_untried_faults_and_of_survivors() -> None:
    faults = [_fault(what=what) for what in "abc"]
    digest = faults[0].digest
    entries = {
        "p: a": _entry("p: a", digest=digest),
        "p: b": _entry("p: b", SURVIVED, digest=digest),
    }

    def chosen(**options: bool) -> str:
        values = {"lists": [], "only": None, "part": None, "untried": False, "survivors": False}
        args = argparse.Namespace(**{**values, **options})
        return "".join(fault.what for fault in mutate.choose(args, faults, entries))

    assert chosen() == "abc"
    assert chosen(untried=True) == "c"
    assert chosen(survivors=True) == "b"
