"""The steps which concern the cluster: commands of its present daemons, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ganeti import errors
from ganeti.takeover import cluster
from ganeti.takeover.state import RUN, State
from ganeti.utils import process

VERIFY = """Submitted jobs 41, 42
Thu Nov 26 02:09:11 2026 * Verifying node status
Thu Nov 26 02:09:11 2026   - ERROR:ENODESETUP:node:node1.example.com:no /proc: really
Thu Nov 26 02:09:11 2026   - ERROR:ENODESETUP:node:node1.example.com:another text
Thu Nov 26 02:09:11 2026   - WARNING:ENODEORPHANLV:node:node1.example.com:volume x
Thu Nov 26 02:09:11 2026   - ERROR:ECLUSTERCFG:cluster::entry missing
Thu Nov 26 02:09:11 2026   - NOTICE: 4 non-redundant instance(s) found.
"""


class Commands:
    """Answers commands from lists, the last answer again and again."""

    def __init__(self, answers: dict[str, list[tuple[int, str]]]) -> None:
        self.answers = answers
        self.seen: list[str] = []

    def __call__(self, argv: tuple[str, ...], **_options: Any) -> process.Completed:
        line = " ".join(argv)
        self.seen.append(line)
        for start, answers in self.answers.items():
            if line.startswith(start):
                code, text = answers.pop(0) if len(answers) > 1 else answers[0]
                return process.Completed(tuple(argv), code, text, "", None)
        return process.Completed(tuple(argv), 0, "", "", None)


def make(
    answers: dict[str, list[tuple[int, str]]], say: Callable[[str], object] = lambda _line: None
) -> tuple[cluster.Cluster, Commands]:
    commands = Commands(answers)
    one = cluster.Cluster(
        run=commands, say=say, pause=lambda _s: None, clock=lambda: 1042.0,
        is_drained=lambda: "gnt-cluster queue undrain" not in commands.seen,
    )  # fmt: skip
    return one, commands


def state() -> State:
    return State(number=1, direction=RUN, master="node1", stopped_at=1000.0)


def test_errors_of_a_verification() -> None:
    found = cluster.parse_verify(VERIFY)
    assert list(found) == ["ENODESETUP node node1.example.com", "ECLUSTERCFG cluster"]
    assert found["ECLUSTERCFG cluster"] == "entry missing"


def test_only_new_errors_are_a_failure() -> None:
    said: list[str] = []
    one, _commands = make({"gnt-cluster verify --error-codes": [(1, VERIFY)]}, said.append)
    now = state()
    one.inspect(now)
    assert [line.partition(": ")[2].partition(": ")[0] for line in said] == [*now.verified]
    assert said[1] == "  found: ECLUSTERCFG cluster: entry missing"
    one.verify(now)
    now.verified = now.verified[:1]
    with pytest.raises(errors.OpExecError, match="before: ECLUSTERCFG cluster: entry missing"):
        one.verify(now)


def test_what_is_found_on_a_node_which_was_left_out_before_is_said() -> None:
    said: list[str] = []
    quiet = "".join(line for line in VERIFY.splitlines(keepends=True) if "node1" not in line)
    one, _commands = make(
        {"gnt-cluster verify --error-codes": [(1, quiet), (1, VERIFY)]}, said.append
    )
    now = state()
    now.left_out = ("node1.example.com",)
    one.inspect(now)
    # It was taken over later.
    now.left_out = ()
    assert now.unverified == ("node1.example.com",)
    one.verify(now)
    assert said[-1] == (
        "  found on a node which was not verified before: ENODESETUP node node1.example.com:"
        " no /proc: really"
    )
    now.unverified = ("node2.example.com",)
    with pytest.raises(errors.OpExecError, match="ENODESETUP node node1"):
        one.verify(now)


def test_drain_waits_for_all_jobs() -> None:
    said: list[str] = []
    one, commands = make(
        {
            "gnt-job list": [
                (0, "1|success\n2|running\n3|queued\n"),
                (0, "1|success\n2|waiting\n3|error"),
                (0, "1|success\n2|canceled\n3|error"),
            ]
        },
        said.append,
    )
    one.drain(state())
    assert commands.seen[:2] == ["gnt-cluster watcher pause 24h", "gnt-cluster queue drain"]
    assert len(commands.seen) == 5
    assert said == ["  waiting for 2 jobs: 2, 3", "  waiting for 1 jobs: 2"]


def test_a_command_which_fails_ends_the_step() -> None:
    one, _commands = make({"gnt-cluster queue drain": [(1, "Cannot communicate")]})
    with pytest.raises(errors.OpExecError, match="exit code 1: Cannot communicate"):
        one.drain(state())


def test_open_waits_for_the_master() -> None:
    said: list[str] = []
    one, commands = make({"gnt-cluster queue info": [(1, ""), (1, ""), (0, "")]}, said.append)
    now = state()
    one.open(now)
    assert commands.seen == ["gnt-cluster queue info"] * 3 + [
        "gnt-cluster queue undrain", "gnt-cluster redist-conf",
    ]  # fmt: skip
    assert now.served_at == 1042.0
    assert said == ["  the cluster was without daemons for 42 s"]
    # An open queue is not opened again.
    one.open(now)
    assert commands.seen[5:] == ["gnt-cluster queue info", "gnt-cluster redist-conf"]
    assert len(said) == 1


def test_open_gives_up() -> None:
    one, commands = make({"gnt-cluster queue info": [(1, "no answer")]})
    with pytest.raises(errors.OpExecError, match="no answer"):
        one.open(state())
    assert "gnt-cluster redist-conf" not in commands.seen


def test_finish_lets_the_watcher_work() -> None:
    one, commands = make({})
    one.finish(state())
    assert commands.seen == ["gnt-cluster watcher continue"]
