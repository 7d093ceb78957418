"""Simulated nodes: real requests, the state behind the answers, and everything they can be told."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from devel.simnodes import control, program
from devel.simnodes import server as simserver
from devel.simnodes.cluster import Size, filled
from devel.simnodes.server import SimServer
from devel.simnodes.state import Fleet, SimNode
from ganeti import errors
from ganeti.cmdlib.ops.disks import same_directory
from ganeti.config import ssconf
from ganeti.config.text import ConfigText
from ganeti.config.verify import check
from ganeti.http import client as http_client
from ganeti.objects import ConfigData
from ganeti.platform import master_epoch
from ganeti.rpc import RpcRunner, runner
from ganeti.rpc.results import Result
from ganeti.utils import x509
from ganeti.wire import calls

sys.path.insert(0, str(Path(__file__).parent.parent / "config"))
from samples import small_cluster  # noqa: E402

SIZE = Size(6, 30, 2, 3)


class Running:
    """Six nodes of a cluster of seven, and a client which may call them."""

    def __init__(self, directory: Path, data: ConfigData) -> None:
        self.pem = directory / "server.pem"
        self.pem.write_text(x509.create_self_signed("cluster.example.com"))
        self.digest = x509.digest_file(str(self.pem))
        (master,) = data.nodes.values()
        self.data = filled(data, SIZE, self.digest)
        self.master = master
        text = b"".join(ConfigText(self.data).render(self.data, ()))
        self.fleet = Fleet(self.digest, clock=lambda: self.now)
        self.now = 1000.0
        for node in self.data.nodes.values():
            if node.uuid != master.uuid:
                self.fleet.nodes[node.uuid] = SimNode(
                    self.fleet, node.uuid, node.name, node.primary_ip
                )
        self.fleet.fill(self.data, text, ssconf.values(self.data))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.server = SimServer(self.fleet, x509.server_context(str(self.pem)), self.port)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.run(self.server.start())
        self.rpc = RpcRunner(
            lambda: self.data, http_client.Client(str(self.pem), str(self.pem)), self.port
        )
        self.rpc.use_epoch(master_epoch.Epoch(7, master.uuid), lambda _node, _known: None)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def tell(self, what: str, *nodes: SimNode, **more: Any) -> Any:
        names = [node.name for node in nodes]
        return self.run(control.carry_out(self.server, {"do": what, "nodes": names, **more}))

    def close(self) -> None:
        async def end() -> None:
            await self.server.stop()
            await asyncio.sleep(0)

        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path, small_cluster(nodes=1))
    try:
        yield running
    finally:
        running.close()


def first(running: Running) -> SimNode:
    return next(iter(running.fleet.nodes.values()))


def test_the_made_configuration_has_no_contradiction(nodes: Running) -> None:
    assert check(nodes.data) == []
    assert len(nodes.data.instances) == SIZE.instances
    assert sum(node.master_candidate for node in nodes.data.nodes.values()) == 4
    for disk in nodes.data.disks.values():
        groups = {nodes.data.nodes[uuid].group for uuid in disk.all_node_uuids()}
        assert len(set(disk.all_node_uuids())) == 2 and len(groups) == 1


def test_all_nodes_answer_at_once_with_what_the_configuration_says(nodes: Running) -> None:
    answers = nodes.rpc.call_many(
        calls.ALL_INSTANCES_INFO, nodes.fleet.nodes, hypervisors=["fake"], hvparams={}, apart=False
    )
    guests = [name for answer in answers.values() for name in answer.payload()]
    assert sorted(guests) == sorted(one.name for one in nodes.data.instances.values())
    facts = nodes.rpc.call(
        calls.NODE_INFO,
        first(nodes).uuid,
        storage_units=[["lvm-vg", "xenvg", []]],
        hv_specs=[["fake", {}]],
    ).payload()
    assert facts[2][0]["memory_free"] == first(nodes).free_memory_mib()


def test_a_certificate_of_no_candidate_is_refused(nodes: Running, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text(x509.create_signed("other", nodes.pem.read_text()))
    client = http_client.Client(str(nodes.pem), str(other))
    caller = RpcRunner(lambda: nodes.data, client, nodes.port)
    caller.use_epoch(master_epoch.Epoch(7, nodes.master.uuid), lambda _node, _known: None)
    answer = caller.call(calls.NODE_WORK, first(nodes).uuid, revoke=[])
    assert isinstance(answer.failure, errors.NodeRefused)


def test_a_node_told_to_fail_fails_only_these_calls(nodes: Running) -> None:
    node = first(nodes)
    nodes.tell("fail", node, calls="node_*")
    assert isinstance(
        nodes.rpc.call(calls.NODE_WORK, node.uuid, revoke=[]).failure, errors.NodeCallFailed
    )
    assert nodes.rpc.call(calls.VERSION, node.uuid).failure is None
    nodes.tell("well", node)
    assert nodes.rpc.call(calls.NODE_WORK, node.uuid, revoke=[]).failure is None


def test_a_node_without_power_is_unreachable_and_loses_its_guests(nodes: Running) -> None:
    node = first(nodes)
    assert node.guests and node.replicas
    nodes.tell("off", node)
    assert isinstance(nodes.rpc.call(calls.VERSION, node.uuid).failure, errors.NodeUnreachable)
    boots = node.boots
    nodes.tell("well", node)
    assert nodes.rpc.call(calls.VERSION, node.uuid).failure is None
    assert not node.guests and not node.replicas and boots == 2


def test_a_stalled_node_answers_when_it_is_well_again(nodes: Running) -> None:
    node = first(nodes)
    nodes.tell("stall", node)
    found: list[Any] = []
    asking = threading.Thread(
        target=lambda: found.append(nodes.rpc.call(calls.NODE_WORK, node.uuid, revoke=[]))
    )
    asking.start()
    while not any(one._stalled for one in nodes.server._connections.get(node.uuid, ())):
        nodes.run(asyncio.sleep(0.01))
    assert not found
    nodes.tell("well", node)
    asking.join()
    assert found[0].failure is None


def test_a_node_which_lies_answers_in_the_right_form(nodes: Running) -> None:
    node = first(nodes)
    nodes.tell("lie", node)
    guests = nodes.rpc.call(
        calls.ALL_INSTANCES_INFO, node.uuid, hypervisors=["fake"], hvparams={}, apart=False
    )
    assert guests.payload() == {} and node.guests


def test_a_node_refuses_the_epoch_and_keeps_the_highest_one(nodes: Running) -> None:
    node = first(nodes)
    assert nodes.rpc.call(calls.NODE_WORK, node.uuid, revoke=[]).failure is None
    assert node.copies.epoch.number == 7
    nodes.rpc.use_epoch(master_epoch.Epoch(6, nodes.master.uuid), lambda _node, _known: None)
    answer = nodes.rpc.call(calls.NODE_WORK, node.uuid, revoke=[])
    assert isinstance(answer.failure, errors.NodeRefused) and answer.failure.known_epoch
    nodes.rpc.use_epoch(master_epoch.Epoch(8, nodes.master.uuid), lambda _node, _known: None)
    nodes.tell("refuse-epoch", node)
    answer = nodes.rpc.call(calls.NODE_WORK, node.uuid, revoke=[])
    assert isinstance(answer.failure, errors.NodeRefused)
    nodes.tell("well", node)
    assert nodes.rpc.call(calls.NODE_WORK, node.uuid, revoke=[]).failure is None


def test_old_data_comes_back_with_epoch_and_configuration(nodes: Running) -> None:
    node = first(nodes)
    assert node.copies.config
    with pytest.raises(errors.ParameterError, match="has no old data"):
        nodes.tell("old-data", node)
    nodes.tell("keep-old", node)
    before = node.copies.config
    end = before[-40:].decode()
    assert nodes.rpc.call(
        calls.CONFIG_REWRITE,
        node.uuid,
        base_bytes=len(before),
        base_end=end,
        parts=["x", [0, len(before)]],
        new_bytes=len(before) + 1,
        ssconf=None,
        history=None,
    ).payload()
    assert node.copies.config == b"x" + before and node.copies.epoch.number == 7
    nodes.tell("old-data", node)
    assert node.copies.config == before and node.copies.epoch == master_epoch.NONE


def test_a_mirrored_disk_synchronises_with_time_and_suffers_a_lost_disk(nodes: Running) -> None:
    instance = next(iter(nodes.data.instances.values()))
    disk = nodes.data.disks[instance.disks[0]]
    node = nodes.fleet.nodes[instance.primary_node]

    def status() -> Any:
        return nodes.rpc.call(calls.BLOCKDEV_FIND, node.uuid, disk=(disk, instance)).payload()

    assert not status().is_degraded
    nodes.tell("lose-disk", node)
    assert status().is_degraded and status().ldisk_status == 4
    assert (
        nodes.rpc.call(
            calls.BLOCKDEV_ADDCHILDREN,
            node.uuid,
            disk=(disk, instance),
            children=(disk.children, instance),
        ).failure
        is None
    )
    nodes.now += disk.size / nodes.fleet.sync_mib_s / 2
    assert 49 <= status().sync_percent <= 51
    nodes.now += disk.size
    assert not status().is_degraded


def test_two_primaries_of_one_disk_are_refused(nodes: Running) -> None:
    instance = next(iter(nodes.data.instances.values()))
    disk = nodes.data.disks[instance.disks[0]]
    (secondary,) = disk.secondary_nodes(instance.primary_node)
    answer = nodes.rpc.call(
        calls.BLOCKDEV_OPEN,
        secondary,
        instance_name=instance.name,
        disks=([disk], instance),
        exclusive=True,
    )
    assert "is writable on" in str(answer.failure)


def test_each_node_has_directories_of_its_own(nodes: Running) -> None:
    uuids = [node.uuid for node in nodes.fleet.nodes.values()][:3]
    views = same_directory.compare(nodes.rpc, ["/srv/ganeti/file-storage"], uuids)
    assert views == {"/srv/ganeti/file-storage": same_directory.Views(tuple((u,) for u in uuids))}


def test_what_is_not_simulated_says_so(nodes: Running) -> None:
    answer = nodes.rpc.call(calls.RESTRICTED_COMMAND, first(nodes).uuid, cmd="uptime")
    assert "is not simulated" in str(answer.failure)
    known, others = simserver.call_names()
    assert "restricted_command" in others and len(known) > 90


def test_the_control_socket_answers_and_refuses(nodes: Running, tmp_path: Path) -> None:
    path = str(tmp_path / "control")
    serving = nodes.run(control.serve(nodes.server, path))
    try:
        node = first(nodes)
        assert control.ask(path, {"do": "fail", "nodes": [node.name.partition(".")[0]]}) == {
            "ok": True,
            "nodes": [node.name],
        }
        shown = control.ask(path, {"do": "show", "nodes": []})["nodes"]
        assert shown[node.name]["fault"] == "fail" and len(shown) == SIZE.nodes
        with pytest.raises(errors.ParameterError, match="no simulated node matches 'sim99'"):
            control.ask(path, {"do": "fail", "nodes": ["sim99"]})
        with pytest.raises(errors.ParameterError, match="unknown command 'dance'"):
            control.ask(path, {"do": "dance"})
        assert program.main(["well", "--control", path]) == 0
        assert program.main(["well", "--control", path, "sim99"]) == 1
    finally:
        nodes.loop.call_soon_threadsafe(serving.close)


def test_a_list_gives_up_the_few_nodes_which_hang(
    nodes: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "IMPATIENT_FROM", 4)
    monkeypatch.setattr(runner, "IMPATIENT_S", 0.0)
    slow = first(nodes)
    nodes.tell("stall", slow)
    asked = {"hypervisors": ["fake"], "hvparams": {}, "apart": False}
    answers = nodes.rpc.call_many(
        calls.ALL_INSTANCES_INFO, nodes.fleet.nodes, patient=False, **asked
    )
    failed = {uuid: answer.failure for uuid, answer in answers.items() if answer.failure}
    assert list(failed) == [slow.uuid]
    assert isinstance(failed[slow.uuid], errors.NodeUnreachable)
    assert "before enough others had answered" in str(failed[slow.uuid])


def test_slow_nodes_get_three_times_what_three_of_four_needed() -> None:
    now = 100.0
    impatience = runner.Impatience(8, clock=lambda: now)

    def answered() -> None:
        impatience.note(calls.VERSION, "uuid", Result("node"))

    for _ in range(5):
        answered()
    assert impatience() is None
    now = 103.0
    answered()
    assert impatience() == 109.0
    now = 108.0
    answered()
    assert impatience() == 109.0
    quick = runner.Impatience(4, clock=lambda: 50.0)
    for _ in range(3):
        quick.note(calls.VERSION, "uuid", Result("node"))
    assert quick() == 50.0 + runner.IMPATIENT_S
