"""The number of master candidates is kept; who leaves them is told to give up his copies."""

from __future__ import annotations

import dataclasses

from fakes.config import FakeConfig, cluster_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.base import LuContext
from ganeti.cmdlib.ops.node import candidates
from ganeti.opcodes.cluster import OpClusterActivateMasterIp, OpClusterDeactivateMasterIp
from ganeti.opcodes.node import OpNodeSetParams


def context_of(master: Master) -> LuContext:
    return LuContext(master.context, master.new_job())


def master_with(count: int, pool: int, **changes: dict[int, dict[str, object]]) -> Master:
    data = cluster_of(count, **changes)
    return Master(
        dataclasses.replace(
            data, cluster=dataclasses.replace(data.cluster, candidate_pool_size=pool)
        )
    )


def candidate_names(config: FakeConfig) -> list[str]:
    return [node.name.split(".")[0] for node in config.nodes() if node.master_candidate]


def test_a_smaller_pool() -> None:
    master = master_with(4, 2)
    candidates.keep_pool_size(context_of(master))
    assert candidate_names(master.config) == ["node1", "node2"]
    assert [node for node, _ in master.rpc.of("node_demote_from_mc")] == [
        "node4.example.com",
        "node3.example.com",
    ]


def test_the_master_stays() -> None:
    master = master_with(3, 1)
    data = master.config.snapshot()
    assert data.cluster.master_node == uuid_of("node1")
    candidates.keep_pool_size(context_of(master))
    assert candidate_names(master.config) == ["node1"]


def test_a_larger_pool() -> None:
    master = master_with(
        4,
        3,
        node_changes={
            2: {"master_candidate": False},
            3: {"master_candidate": False, "offline": True},
            4: {"master_candidate": False},
        },
    )
    candidates.keep_pool_size(context_of(master))
    assert candidate_names(master.config) == ["node1", "node2", "node4"]
    assert master.rpc.of("node_demote_from_mc") == []


def test_a_node_that_cannot_be_told() -> None:
    master = master_with(2, 1)
    master.rpc.errors["node_demote_from_mc"] = errors.NodeUnreachable(
        "node2.example.com", "node_demote_from_mc", "no connection"
    )
    candidates.keep_pool_size(context_of(master))
    assert candidate_names(master.config) == ["node1"]
    assert master.job.said("node2.example.com keeps old copies")


def test_a_drained_node_gives_up_its_copies() -> None:
    master = master_with(3, 2)
    master.run(OpNodeSetParams(node_name="node3.example.com", drained=True))
    assert [node for node, _ in master.rpc.of("node_demote_from_mc")] == ["node3.example.com"]
    assert candidate_names(master.config) == ["node1", "node2"]


def test_an_offline_node_is_not_asked() -> None:
    master = master_with(3, 2)
    master.run(OpNodeSetParams(node_name="node3.example.com", offline=True))
    assert master.rpc.of("node_demote_from_mc") == []


def test_the_address_of_the_master() -> None:
    master = master_with(2, 2)
    master.run(OpClusterActivateMasterIp())
    master.run(OpClusterDeactivateMasterIp())
    ((node, up),) = master.rpc.of("node_activate_master_ip")
    assert node == "node1.example.com"
    assert up["master_params"].ip == master.config.cluster().master_ip
    assert len(master.rpc.of("node_deactivate_master_ip")) == 1
    master.rpc.errors["node_activate_master_ip"] = "it is in use on another machine"
    assert "in use on another machine" in master.failed(OpClusterActivateMasterIp())
