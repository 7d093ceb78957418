"""The fakes keep what they promise, so that tests against them mean something."""

from __future__ import annotations

import pytest

from fakes.config import FakeConfig, cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from fakes.rpc import FakeRpc
from ganeti import errors
from ganeti.locking import Level
from ganeti.opcodes.test import OpTestDelay
from ganeti.wire.calls import INSTANCE_START, NODE_INFO, TEST_DELAY

NODE1 = uuid_of("node1")


@pytest.fixture
def config():
    return FakeConfig(cluster_of(2, (instance_of("web"),), node_changes={2: {"offline": True}}))


@pytest.fixture
def rpc(config):
    return FakeRpc(config)


def test_the_configuration_obeys_the_rules_of_the_real_one(config):
    with pytest.raises(errors.ConfigurationError, match="is the master"):
        commit(config).nodes.remove(NODE1)
    assert config.writes == []
    commit(config).instances.mark(uuid_of("web"), "up")
    assert config.writes == ["instances.mark up"]
    assert config.instance(uuid_of("web")).serial_no == 2


def test_an_operation_fails_on_request(config):
    config.errors["cluster.update"] = errors.ConfigurationError("disk full")
    with pytest.raises(errors.ConfigurationError, match="disk full"):
        commit(config).cluster.update(config.cluster())
    commit(config).instances.mark(uuid_of("web"), "up")


def test_wrong_arguments_of_a_call_fail_as_on_the_wire(rpc):
    with pytest.raises(errors.ProgrammerError):
        rpc.call(TEST_DELAY, NODE1)
    with pytest.raises(errors.ParseError):
        rpc.call(TEST_DELAY, NODE1, duration_s="long")


def test_wrong_answers_fail_too(rpc):
    rpc.answers["node_info"] = "nonsense"
    with pytest.raises(errors.ResultValidationError):
        rpc.call(NODE_INFO, NODE1, storage_units=[], hv_specs=[])


def test_calls_fail_on_request_everywhere_or_on_one_node(rpc):
    rpc.errors["test_delay", "node1.example.com"] = "broken"
    answer = rpc.call(TEST_DELAY, NODE1, duration_s=0)
    assert isinstance(answer.failure, errors.NodeCallFailed)
    found = rpc.call_addresses(TEST_DELAY, {"node9.example.com": "192.0.2.9"}, duration_s=0)
    assert found["node9.example.com"].failure is None
    rpc.errors["test_delay"] = errors.NodeUnreachable("any", "test_delay", "timed out")
    found = rpc.call_addresses(TEST_DELAY, {"node9.example.com": "192.0.2.9"}, duration_s=0)
    assert isinstance(found["node9.example.com"].failure, errors.NodeUnreachable)


def test_offline_nodes_are_not_asked(rpc):
    answer = rpc.call(TEST_DELAY, uuid_of("node2"), duration_s=0)
    assert answer.offline
    assert rpc.calls == []


def test_guests_run_where_they_were_started(rpc, config):
    instance = config.instance(uuid_of("web"))
    rpc.call(INSTANCE_START, NODE1, instance=instance, startup_paused=False, reason=[])
    assert rpc.where("web") == ["node1"]


def test_the_cluster_of_the_tests_has_disks_where_it_says():
    disk = disk_of("web", template="file", node="node2")
    assert disk.nodes == (uuid_of("node2"),)
    assert disk_of("web").nodes == ()


def test_a_master_notices_what_is_left_behind():
    master = Master(cluster_of(1))
    master.locks.acquire(master.new_job().owner, Level.INSTANCE, [], shared=True)
    owner = master.jobs[0].owner
    master.locks.acquire(owner, Level.NODE, [NODE1], shared=True)
    with pytest.raises(AssertionError, match="left behind"):
        master.run(OpTestDelay(duration=0.0))
    master.locks.release(owner)
