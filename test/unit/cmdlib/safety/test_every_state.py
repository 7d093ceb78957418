"""Every operation which destroys or promotes a replica, in every state of the replicas.

The guest of :mod:`fakes.confirmed` writes numbered blocks; :mod:`fakes.replica_states` brings the
replicas into a state; then one of :mod:`fakes.replica_operations` is run, with the instance running
and stopped. Whether it works, or why it is refused, is in ``every_state.txt``, so that an operation
which is refused without need is noticed, too. Whatever it does, no confirmed block is lost, see
:mod:`fakes.replica_trial`; only an operation with an option which accepts a loss loses some, where
the table says so (``!``).

``make check`` tries every second state with each operation, and the others with the next one;
``make check-long`` tries all. ``test_operations.py`` shows that the operations are complete. With
the environment variable GANETI_WRITE_TABLE, the table is written anew, to be judged with ``git
diff``.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from fakes import confirmed, mirror
from fakes.confirmed import Lab
from fakes.replica_operations import OPERATIONS
from fakes.replica_states import STATES, STOPPED_ONLY
from fakes.replica_trial import LOSES, NOT_POSSIBLE, WORKS, tried

#: As the outcomes stand in the table.
LETTERS = {
    "+": WORKS,
    "!": LOSES,
    ".": NOT_POSSIBLE,
    "S": "is to be stopped",
    "R": "runs there",
    "N": "does not run",
    "G": "no growth",
    "E": "exists",
    "O": "offline",
    "U": "unreachable",
    "C": "no comparison",
    "I": "incomplete",
    "Y": "synchronising",
    "P": "no proof",
    "A": "not active",
    "W": "in use",
}
#: Operations which do nearly the same as another one, or what two others do together.
SIMILAR = {
    "evacuate",  # migrate --allow-failover
    "evacuate --secondary-only",  # replace-disks -n
    "failover to any, it stays --ignore-consistency",
    "recreate-disks elsewhere",
    "reboot full --ignore-secondaries",
    "activate-disks --wait-for-sync",
    "shutdown --ignore-offline",
    "reboot soft",
    "reboot hard",
    "replace-disks -n --early-release",
    "remove --ignore-failures",
    "export --noshutdown",
    "snapshot, remove it",
    "detach disk, attach it",
    "repair-disk-sizes",
}
#: Operations which refuse a running instance.
STOPPED = {
    "convert to plain",
    "convert to file",
    "recreate-disks",
    "recreate-disks elsewhere",
    "reinstall",
    "rename",
}

LONG = bool(os.environ.get("GANETI_LONG"))
WRITE_TABLE = bool(os.environ.get("GANETI_WRITE_TABLE"))
TABLE = Path(__file__).with_name("every_state.txt")
_WIDTH = max(map(len, OPERATIONS)) + 2


# -- the table -------------------------------------------------------------------------


def how(running: bool) -> str:
    return "running" if running else "stopped"


def heading() -> list[str]:
    """Under each bar stands the column of a state."""
    start = " " * (_WIDTH + len("stopped "))
    return [f"{start}{'| ' * number}{state}" for number, state in enumerate(STATES)]


def expected() -> dict[tuple[str, str], list[str]]:
    """Operation and running or stopped to the outcomes in all states."""
    found = {}
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    for line in lines[len(STATES) :]:
        words = line[_WIDTH:].split()
        found[line[:_WIDTH].strip(), words[0]] = [
            LETTERS.get(letter, letter) for letter in words[1:]
        ]
    return found


def row(name: str, running: bool, outcomes: list[str]) -> str:
    letters = {outcome: letter for letter, outcome in LETTERS.items()}
    columns = " ".join(letters.get(outcome, "?") for outcome in outcomes)
    return f"{name:{_WIDTH}}{how(running)} {columns}"


def test_the_table_is_about_these_operations_and_states() -> None:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    assert lines[: len(STATES)] == heading()
    assert list(expected()) == [(name, how(running)) for name in OPERATIONS for running in (0, 1)]


def test_in_a_good_state_everything_works_which_can() -> None:
    """What cannot needs replicas which are active, or lost, or an instance which is stopped."""
    wrong = {}
    for (name, when), outcomes in expected().items():
        allowed = {
            ("migrate", "stopped"): "does not run",
            ("migrate to any", "stopped"): "does not run",
            ("replace-disks -a", "stopped"): "not active",
            ("recreate-disks", "stopped"): "exists",
            ("recreate-disks elsewhere", "stopped"): "exists",
            ("repair-storage of the primary", "stopped"): "no proof",
            ("repair-storage of the secondary", "stopped"): "no proof",
            ("deactivate-disks --force", "running"): "in use",
            ("mark the primary offline", "running"): "runs there",
        }.get((name, when), "is to be stopped" if when == "running" else WORKS)
        if outcomes[0] not in (WORKS, allowed):
            wrong[name, when] = outcomes[0]
    assert not wrong


# -- the cells -------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmed.install(monkeypatch)


def rows() -> list[Any]:
    """What is tried each time, and what is so similar to that that it is not."""
    return [
        pytest.param(
            name,
            running,
            id=f"{name}, {how(running)}",
            marks=[pytest.mark.long] if name in SIMILAR or (running and name in STOPPED) else [],
        )
        for name in OPERATIONS
        for running in (False, True)
    ]


@pytest.mark.larger
@pytest.mark.parametrize(("name", "running"), rows())
def test_no_confirmed_block_is_lost(tmp_path: Path, name: str, running: bool) -> None:
    wanted = expected().get((name, how(running)), [])
    found, wrong = [], []
    first = list(OPERATIONS).index(name) % 2
    for place, (state, outcome) in enumerate(itertools.zip_longest(STATES, wanted)):
        if not (LONG or WRITE_TABLE) and place % 2 != first:
            continue
        if running and state in STOPPED_ONLY:
            found.append(NOT_POSSIBLE)
            continue
        lab = Lab(tmp_path / state)
        result = tried(lab, OPERATIONS[name], STATES[state], running)
        shutil.rmtree(lab.directory)  # thousands of them are many gigabytes
        found.append(result.outcome)
        wrong += [f"{state}: {problem}" for problem in result.problems]
        if result.outcome != outcome:
            wrong.append(f"{state}: expected '{outcome}', not '{result.outcome}' ({result.text})")
    if WRITE_TABLE:
        write(name, running, found)
    assert not wrong, f"{name}, {how(running)}:\n" + "\n".join(wrong)


def write(name: str, running: bool, outcomes: list[str]) -> None:
    """Write a row of the table; no other process does it at the same time."""
    rows = expected()
    rows[name, how(running)] = outcomes
    lines = [
        row(one, when, rows[one, how(when)])
        for one in OPERATIONS
        for when in (False, True)
        if (one, how(when)) in rows
    ]
    TABLE.write_text("\n".join([*heading(), *lines, ""]), encoding="utf-8")


def test_a_driver_which_promotes_any_replica_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These tests can fail: without its rule the driver promotes the stale replica."""

    def without_the_rule(lab: Lab, running: bool) -> None:
        STATES["unknown_local"](lab, running)
        monkeypatch.setattr(mirror.Replica, "doubt", lambda self: None)

    result = tried(Lab(tmp_path / "lab"), OPERATIONS["startup"], without_the_rule, False)
    assert result.outcome == WORKS
    assert "the guest lacks 3 of 6 blocks" in result.problems


def test_a_lost_copy_is_noticed(tmp_path: Path) -> None:
    """Likewise for what destroys the only good replica."""
    lab = Lab(tmp_path / "lab")
    STATES["remote_stale_cut"](lab, False)
    assert len(lab.best()) == 6
    for path in lab.nodes.root("node2.example.com").rglob("*"):
        if path.is_file() and confirmed.blocks(path):
            path.unlink()
    assert len(lab.best()) == 3
