"""Opcodes that only read are answered without a job."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of, instance_of
from fakes.rpc import FakeRpc
from ganeti import errors
from ganeti.cmdlib.base import MasterContext
from ganeti.locking import LockManager
from ganeti.master.queries import without_job
from ganeti.objects import updated
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.cluster import OpClusterQuery
from ganeti.opcodes.instance import (
    OpInstanceQueryData,
    OpInstanceSnapshotList,
    OpInstanceStartup,
)


@pytest.fixture
def context() -> MasterContext:
    web = instance_of("web", "node1")
    data = updated(cluster_of(2), instances={web.uuid: web})
    config = FakeConfig(data)
    return MasterContext(config, LockManager({}), FakeRpc(config))  # type: ignore[arg-type]


def test_details(context: MasterContext) -> None:
    op = OpInstanceQueryData(instances=["web"], static=True)
    found = without_job.run(context, op)
    assert found["warnings"] == []
    (details,) = found["result"].values()
    assert (details["name"], details["run_state"]) == ("web.example.com", None)
    assert context.rpc.calls == []  # type: ignore[attr-defined]


def test_what_a_node_does_not_tell_is_a_warning(context: MasterContext) -> None:
    rpc: Any = context.rpc
    rpc.errors["instance_info"] = "broken"
    found = without_job.run(context, OpInstanceQueryData(instances=["web"]))
    (details,) = found["result"].values()
    assert details["run_state"] is None
    assert any(
        text.startswith("node node1.example.com did not report instance web.example.com")
        for text in found["warnings"]
    )


def test_snapshots(context: MasterContext) -> None:
    found = without_job.run(context, OpInstanceSnapshotList(instances=["web"]))
    assert found == {"result": [], "warnings": []}


def test_an_unknown_instance(context: MasterContext) -> None:
    with pytest.raises(errors.OpPrereqError, match="nosuch") as caught:
        without_job.run(context, OpInstanceQueryData(instances=["nosuch"]))
    assert caught.value.ecode == errors.ECODE_NOENT


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (OpInstanceStartup(instance_name="web"), "OP_INSTANCE_STARTUP needs a job"),
        (OpClusterQuery(), "OP_CLUSTER_QUERY needs a job"),
        (OpInstanceQueryData(use_locking=True), "because it waits for locks"),
        (OpInstanceQueryData(instances=5), "instances"),
    ],
)
def test_what_needs_a_job(context: MasterContext, op: OpCode, words: str) -> None:
    with pytest.raises(errors.OpPrereqError, match=words):
        without_job.run(context, op)
