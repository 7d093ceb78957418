"""Each node gets its own part of a disk, the parameters of its group, and the master's epoch."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from fakes.config import GROUP, cluster_of, instance_of, uuid_of
from fakes.disks import drbd_of, plain_of
from ganeti import RELEASE, errors
from ganeti.http import client
from ganeti.platform import master_epoch, paths
from ganeti.rpc import RpcRunner
from ganeti.wire import calls, json

NODES = [uuid_of("node1"), uuid_of("node2")]
DISK = drbd_of("web")
WEB = instance_of("web", disks=(DISK.uuid,))
#: Minors on both nodes, so that a part of the other node is another one.
MINORS = {NODES[0]: 3, NODES[1]: 7}
RELEASE_LINE = f"X-Ganeti-Release: {RELEASE}"


class Wire:
    """Keeps the requests; gives the same answer to each."""

    def __init__(self) -> None:
        self.requests: list[client.OutgoingRequest] = []
        self.answer: client.Outcome = client.Reply(200, b"[true, null]", "")

    def perform(self, requests: list[client.OutgoingRequest]) -> list[client.Outcome]:
        self.requests += requests
        return [self.answer for _ in requests]

    def first_arguments(self) -> list[Any]:
        return [json.loads(request.body)[0] for request in self.requests]


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def runner(wire: Wire) -> RpcRunner:
    first, second, port, _, _, secret = DISK.logical_id
    disk = dataclasses.replace(
        DISK, logical_id=(first, second, port, MINORS[first], MINORS[second], secret)
    )
    config = cluster_of(2, (WEB, instance_of("db")), (disk,))
    group = dataclasses.replace(
        config.nodegroups[GROUP], diskparams={"drbd": {"metavg": "group-vg", "resync-rate": 4711}}
    )
    config = dataclasses.replace(config, nodegroups={GROUP: group})
    return RpcRunner(lambda: config, wire, 1811)  # type: ignore[arg-type]


def disk_of_web(runner: RpcRunner) -> Any:
    return runner._snapshot().disks[DISK.uuid]


def local_minors(disks: list[dict[str, Any]]) -> list[int]:
    return [disk["dynamic_params"]["local-minor"] for disk in disks]


def test_each_node_gets_its_part_of_a_mirrored_disk(runner: RpcRunner, wire: Wire) -> None:
    runner.call_many(calls.BLOCKDEV_FIND, NODES, disk=(disk_of_web(runner), WEB))
    assert local_minors(wire.first_arguments()) == list(MINORS.values())


def test_the_order_of_the_nodes_is_no_matter(runner: RpcRunner, wire: Wire) -> None:
    runner.call_many(calls.BLOCKDEV_FIND, NODES[::-1], disk=(disk_of_web(runner), WEB))
    assert local_minors(wire.first_arguments()) == list(MINORS.values())[::-1]


def test_each_node_gets_its_part_of_the_disks_of_an_instance(runner: RpcRunner, wire: Wire) -> None:
    runner.call_many(calls.INSTANCE_START, NODES, instance=WEB, startup_paused=False, reason=[])
    disks = [one["disks_info"][0] for one in wire.first_arguments()]
    assert local_minors(disks) == list(MINORS.values())


def test_a_disk_below_another_one_has_its_part(runner: RpcRunner, wire: Wire) -> None:
    """What is written for one node does not depend on where in the tree the mirror is."""
    above = dataclasses.replace(plain_of("web"), children=(disk_of_web(runner),))
    runner.call_many(calls.BLOCKDEV_FIND, NODES, disk=(above, WEB))
    below = [one["children"][0] for one in wire.first_arguments()]
    assert local_minors(below) == list(MINORS.values())


def test_the_parameters_of_the_group_count(runner: RpcRunner, wire: Wire) -> None:
    runner.call(calls.BLOCKDEV_FIND, NODES[0], disk=(disk_of_web(runner), WEB))
    assert wire.first_arguments()[0]["params"]["resync-rate"] == 4711


def test_calls_carry_the_epoch_of_this_node(runner: RpcRunner, wire: Wire, tmp_path: Path) -> None:
    """It is read for each call, because a failover may have changed it."""
    with paths.override(paths.Paths(str(tmp_path))) as here:
        for directory in (here.data_dir, here.lock_dir):
            os.makedirs(directory)
        for epoch in (master_epoch.Epoch(41, "a"), master_epoch.Epoch(42, "b")):
            master_epoch.admit(epoch)
            runner.call(calls.VERSION, NODES[0])
    assert [one.headers for one in wire.requests] == [
        ("X-Ganeti-Epoch: 41 a", RELEASE_LINE),
        ("X-Ganeti-Epoch: 42 b", RELEASE_LINE),
    ]


def test_calls_carry_the_epoch_which_was_won(runner: RpcRunner, wire: Wire) -> None:
    """What the files of the node say then is of no importance."""
    runner.use_epoch(master_epoch.Epoch(43, "c"))
    runner.call(calls.VERSION, NODES[0])
    assert wire.requests[0].headers == ("X-Ganeti-Epoch: 43 c", RELEASE_LINE)


def test_a_newer_master_is_noticed(runner: RpcRunner, wire: Wire) -> None:
    """The daemon ends itself then: a node which obeys another master never obeys it again."""
    seen: list[tuple[str, str]] = []
    runner.use_epoch(master_epoch.Epoch(43, "c"), lambda name, known: seen.append((name, known)))
    wire.answer = client.Reply(403, b"master epoch 43 is over", "", "44 d")
    failure = runner.call(calls.TEST_DELAY, NODES[0], duration_s=0).failure
    assert isinstance(failure, errors.NodeRefused)
    assert seen == [("node1.example.com", "44 d")]


def test_what_any_caller_may_ask_says_nothing_about_the_master(
    runner: RpcRunner, wire: Wire
) -> None:
    seen: list[tuple[str, str]] = []
    runner.use_epoch(master_epoch.Epoch(43, "c"), lambda name, known: seen.append((name, known)))
    wire.answer = client.Reply(403, b"no", "", "44 d")
    runner.call(calls.VERSION, NODES[0])
    assert seen == []


def test_what_a_node_of_another_release_ignores_is_told_once(runner: RpcRunner, wire: Wire) -> None:
    """Each job says it, and the log of the daemon once."""
    wire.answer = client.Reply(
        200, b"[true, 17]", "", release="0.1.0", ignored='["instance/color"]'
    )
    for told in ([], []):
        job = runner.for_job(5, told.append)
        for _ in range(2):
            assert job.call(calls.VERSION, NODES[0]).payload() == 17
        assert told == [
            "node node1.example.com has release 0.1.0 and ignores what it does not know:"
            " instance/color"
        ]
