"""Which nodes count as gone, and what is submitted for them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import cluster_of, commit, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.master.node_poll import (
    MAX_RETRY_S,
    MIN_PAUSE_S,
    RETRY_S,
    ROUND_S,
    NodePoll,
    Outages,
)
from ganeti.objects import Disk, Maintenance, updated
from ganeti.opcodes.base import OpCode

ALL = ("a", "b", "c")
LIMIT_S = 15.0


def gone(outages: Outages, alive: tuple[str, ...], times: int, start: float = 100.0) -> list[float]:
    """Observe some rounds; the times at which node ``c`` is due."""
    found = []
    for number in range(times):
        now = start + number * ROUND_S
        if "c" in outages.observe(ALL, alive, now, LIMIT_S):
            found.append(now - start)
    return found


def test_a_node_which_answers_is_never_gone() -> None:
    assert gone(Outages(), ALL, 100) == []


def test_the_whole_time_has_to_pass_and_attempts_become_rare() -> None:
    times = gone(Outages(), ("a", "b"), 3000)
    assert times[0] == 16.0
    gaps = [later - one for one, later in zip(times, times[1:], strict=False)]
    assert gaps[0] == RETRY_S
    assert gaps == sorted(gaps)
    assert gaps[-1] <= MAX_RETRY_S + ROUND_S


@pytest.mark.parametrize("took_s", [0.0, 0.1, 2.0, 4.0])
@pytest.mark.parametrize("limit_s", [5.0, 14.0, 15.0, 15.7, 30.0])
def test_a_round_ends_when_the_time_of_a_node_ends(took_s: float, limit_s: float) -> None:
    """Nobody waits for two rounds more, and there are never many rounds in a second."""
    outages, now, pauses = Outages(), 100.0, [ROUND_S]
    outages.observe(ALL, ALL, now, limit_s)
    while not outages.observe(ALL, ("a", "b"), now := now + pauses[-1] + took_s, limit_s):
        pauses.append(outages.pause_s(limit_s, took_s))
    assert limit_s <= now - 100.0 <= limit_s + took_s + MIN_PAUSE_S
    assert all(MIN_PAUSE_S <= one <= ROUND_S + 1 for one in pauses)
    assert outages.pause_s(limit_s, took_s) == ROUND_S


def test_one_answer_starts_the_time_again() -> None:
    outages = Outages()
    assert gone(outages, ("a", "b"), 7) == []
    outages.observe(ALL, ALL, 114.0, LIMIT_S)
    assert gone(outages, ("a", "b"), 7, 116.0) == []


@pytest.mark.parametrize("alive", [("a",), ()])
def test_a_master_which_hears_few_nodes_suspects_itself(alive: tuple[str, ...]) -> None:
    assert gone(Outages(), alive, 100) == []


def test_of_two_nodes_one_is_enough() -> None:
    outages = Outages()
    found = [outages.observe(("a", "b"), ("a",), 100.0 + n * ROUND_S, LIMIT_S) for n in range(10)]
    assert ["b"] in found


def test_time_in_which_nobody_observed_does_not_count() -> None:
    """The process was stopped, or the machine slept."""
    outages = Outages()
    assert gone(outages, ("a", "b"), 5) == []
    assert outages.observe(ALL, ("a", "b"), 100_000.0, LIMIT_S) == []
    assert outages.observe(ALL, ("a", "b"), 100_002.0, LIMIT_S) == []


class Watched:
    """A watch on three nodes, of which the third is unreachable."""

    def __init__(
        self, limit_s: int | None = 15, disks: tuple[Disk, ...] = (), **changes: Any
    ) -> None:
        instances = (instance_of("web", "node2", disks=tuple(disk.uuid for disk in disks)),)
        self.master = Master(cluster_of(3, instances, disks, node_changes={3: changes}))
        cluster = self.master.config.cluster()
        commit(self.master.config).cluster.update(
            dataclasses.replace(cluster, auto_instance_failover=limit_s)
        )
        self.submitted: list[OpCode] = []
        self.unfinished: set[int] = set()
        #: Minors which wait for their peers, by node.
        self.waiting: dict[str, list[int]] = {}
        self.now = 100.0
        self.fail(errors.NodeUnreachable("node3.example.com", "drbd_waiting", "no route to host"))
        self.watch = NodePoll(
            self.master.config,
            self.master.rpc,  # type: ignore[arg-type]
            self,
            monotonic=lambda: self.now,
        )

    def fail(self, failure: Exception) -> None:
        self.master.rpc.answers["drbd_waiting"] = lambda node, _args: self.waiting.get(node, [])
        self.master.rpc.errors["drbd_waiting", "node3.example.com"] = failure

    def submit(self, ops: Any, *, drained_ok: bool = False) -> int:
        self.submitted += ops
        return len(self.submitted)

    def is_unfinished(self, job_id: int) -> bool:
        return job_id in self.unfinished

    def run(self, rounds: int = 10) -> list[str]:
        for _ in range(rounds):
            self.now += self.watch.round()
        return [op.node_uuid for op in self.submitted]  # type: ignore[attr-defined]


def test_a_job_is_submitted_for_a_node_which_is_gone() -> None:
    watched = Watched()
    assert watched.run() == [uuid_of("node3")]
    (op,) = watched.submitted
    assert op.OP_ID == "OP_NODE_AUTO_FAILOVER"
    assert op.reason[0][:2] == [  # type: ignore[index]
        "gnt:daemon:masterd:node-watch",
        "node node3.example.com has not answered for 15 seconds",
    ]


def test_no_second_job_while_the_first_one_runs() -> None:
    watched = Watched()
    watched.unfinished = {1}
    assert len(watched.run(100)) == 1
    watched.unfinished = set()
    assert len(watched.run(1)) == 2


def test_an_unresponsive_node_delays_no_disk_of_the_others() -> None:
    """It is asked after them, because the answer of a dead machine takes seconds."""
    watched = Watched()
    watched.run(2)
    nodes = [node for node, _args in watched.master.rpc.of("drbd_waiting")]
    assert nodes[-1] == "node3.example.com" and len(nodes) == 6


def test_while_it_is_off_nobody_is_asked() -> None:
    watched = Watched(None)
    assert watched.run() == []
    assert watched.master.rpc.of("drbd_waiting") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"offline": True, "master_candidate": False},
        {"drained": True, "master_candidate": False, "maintenance": Maintenance(since=1.0)},
    ],
)
def test_what_an_administrator_works_on_is_left_alone(changes: dict[str, Any]) -> None:
    assert Watched(15, **changes).run() == []


def test_a_node_in_maintenance_which_returns_is_watched() -> None:
    watched = Watched()
    node = watched.master.config.node(uuid_of("node3"))
    mark = Maintenance(since=1.0, returning=True)
    commit(watched.master.config).nodes.update(updated(node, maintenance=mark))
    assert watched.run() == [uuid_of("node3")]


@pytest.mark.parametrize(
    "failure",
    [
        errors.NodeCallFailed("node3.example.com", "drbd_waiting", "disk full"),
        errors.NodeUnreachable("node3.example.com", "drbd_waiting", "refused", machine_is_on=True),
    ],
)
def test_signs_of_life(failure: Exception) -> None:
    """A node daemon which is stopped for an upgrade is no reason to switch the machine off."""
    watched = Watched()
    watched.fail(failure)
    assert watched.run() == []


def test_disks_which_wait_go_on_also_after_the_parameter_was_switched_off() -> None:
    pair = (uuid_of("node2"), uuid_of("node3"))
    disk = Disk(
        dev_type="drbd",
        logical_id=(*pair, 11000, 4, 0, "secret"),
        size=1024,
        iv_name="disk/0",
        nodes=pair,
        uuid=uuid_of("web-disk0"),
        serial_no=1,
        never_alone=uuid_of("node2"),
    )
    watched = Watched(None, (disk,))
    watched.waiting["node2.example.com"] = [4, 5]
    watched.run(1)
    (stored,) = watched.master.config.snapshot().disks.values()
    assert (stored.outdated_node, stored.never_alone) == (uuid_of("node3"), None)
    ((node, args),) = watched.master.rpc.of("drbd_resume_io")
    assert node == "node2.example.com" and len(args["disks"]) == 1
