"""Locks of instances on which nodes work for ended jobs."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.locking import Level, Owner
from ganeti.master.left_work import WorkKeeper
from ganeti.objects.transfer import NodeWork
from ganeti.opcodes.instance import OpInstanceStartup
from ganeti.platform.master_epoch import Epoch

NODE1, NODE2 = "node1.example.com", "node2.example.com"
WEB, DB = uuid_of("web"), uuid_of("db")
OLD, NEW = "3 uuid-old", "4 uuid-new"
DISK = disk_of("web")
NEXT = Owner(99, "job 99")


class Lab:
    """A master which has just started."""

    def __init__(self) -> None:
        self.master = Master(
            cluster_of(
                3,
                instances=(
                    instance_of("web", disks=(DISK.uuid,)),
                    instance_of("db", primary="node2"),
                ),
                disks=(DISK,),
            )
        )
        self.works: dict[str, list[NodeWork]] = {}
        self.dead: set[str] = set()
        self.rpc = self.master.rpc
        self.rpc.answers["node_work"] = lambda node, _args: self.works.get(node, [])
        self.keeper = WorkKeeper(
            self.master.config,  # type: ignore[arg-type]
            self.master.locks,
            self.rpc,  # type: ignore[arg-type]
            Epoch(4, "uuid-new"),
        )
        # The tests ask, not a thread.
        self.keeper.stop()

    def silence(self, node: str, silent: bool = True) -> None:
        key = ("node_work", node)
        if silent:
            self.rpc.errors[key] = errors.NodeUnreachable(node, "node_work", "no route to host")
        else:
            del self.rpc.errors[key]

    def owners(self) -> list[str]:
        return [owner.name for owner in self.master.locks.owners()]

    def is_free(self, uuid: str) -> bool:
        got = self.master.locks.acquire(NEXT, Level.INSTANCE, [uuid], shared=False, timeout_s=0)
        self.master.locks.release(NEXT)
        return got is not None


@pytest.fixture
def lab() -> Lab:
    return Lab()


def work(job: int | None = 12, epoch: str = OLD, **changes: Any) -> NodeWork:
    values: dict[str, Any] = {
        "job": job,
        "epoch": epoch,
        "token": "aa",
        "call": "instance_os_add",
        "doing": "script 'create' of the OS",
        "instances": (WEB,),
        "disks": (),
        "since": 1.0,
        "processes": ("4711 (create)",),
    }
    return NodeWork(**{**values, **changes})


def job(number: int = 12, **parameters: Any) -> Any:
    return SimpleNamespace(id=number, ops=[SimpleNamespace(input=parameters)])


def test_a_quiet_cluster(lab: Lab) -> None:
    lab.keeper.survey([])
    assert lab.owners() == []
    assert lab.keeper.left() == []
    assert not lab.keeper.look()


def test_the_instance_is_locked_until_the_work_is_over(lab: Lab) -> None:
    lab.works[NODE1] = [work()]
    lab.keeper.survey([])
    assert lab.owners() == [f"work of job 12 on {NODE1} for instance web.example.com"]
    assert not lab.is_free(WEB)
    assert lab.is_free(DB)
    ((node, text),) = lab.keeper.left()
    assert node == NODE1
    assert "job 12 for instance web.example.com, which has ended: script 'create'" in text
    assert "4711 (create)" in text
    assert lab.keeper.look()
    assert not lab.is_free(WEB)
    lab.works.clear()
    assert not lab.keeper.look()
    assert lab.is_free(WEB)
    assert lab.keeper.left() == []


def test_work_of_this_master_is_not_left(lab: Lab) -> None:
    lab.works[NODE1] = [work(epoch=NEW)]
    lab.keeper.survey([])
    assert lab.owners() == []


def test_a_disk_leads_to_its_instance(lab: Lab) -> None:
    lab.works[NODE1] = [work(instances=(), disks=(DISK.uuid,))]
    lab.keeper.survey([])
    assert not lab.is_free(WEB)


def test_work_which_names_nothing_belongs_to_the_instances_of_its_job(lab: Lab) -> None:
    lab.works[NODE1] = [work(instances=(), call="hooks_runner")]
    lab.keeper.survey([job(instance_name="db.example.com")])
    assert not lab.is_free(DB)
    assert lab.is_free(WEB)
    lab.works.clear()
    assert not lab.keeper.look()


@pytest.mark.parametrize("instances", [(), ("uuid-of-a-removed-instance",)])
def test_work_on_what_is_not_in_the_configuration_is_named(
    lab: Lab, instances: tuple[str, ...]
) -> None:
    lab.works[NODE1] = [work(job=None, instances=instances)]
    lab.keeper.survey([])
    assert lab.owners() == []
    assert "a program without a job" in lab.keeper.left()[0].text
    lab.works.clear()
    assert not lab.keeper.look()


def test_all_nodes_of_a_job_must_be_ready(lab: Lab) -> None:
    lab.works[NODE1], lab.works[NODE2] = [work()], [work(call="hooks_runner")]
    lab.keeper.survey([])
    assert len(lab.owners()) == 1
    del lab.works[NODE1]
    assert lab.keeper.look()
    assert not lab.is_free(WEB)
    del lab.works[NODE2]
    assert not lab.keeper.look()
    assert lab.is_free(WEB)


def test_a_transfer_is_ended(lab: Lab) -> None:
    lab.works[NODE1] = [work(call="export_start", transfer="export-web-1")]
    lab.keeper.survey([])
    assert lab.rpc.of("impexp_cleanup") == [(NODE1, {"name": "export-web-1"})]
    assert not lab.is_free(WEB), "it has not ended yet"


def test_a_node_does_not_answer(lab: Lab) -> None:
    """What an interrupted job names there stays locked, and nothing else."""
    lab.silence(NODE1)
    lab.keeper.survey([job(instance_name="web"), job(13, instance_name="db", priority=0)])
    assert not lab.is_free(WEB)
    assert lab.is_free(DB), "it is on another node"
    ((node, text),) = lab.keeper.left()
    assert node == NODE1
    assert "gnt-node modify --offline=yes" in text
    assert lab.keeper.look()
    lab.silence(NODE1, False)
    assert not lab.keeper.look()
    assert lab.is_free(WEB)


def test_a_node_which_answers_later_names_what_nobody_knew(lab: Lab) -> None:
    lab.silence(NODE2)
    lab.works[NODE2] = [work(instances=(DB,))]
    lab.keeper.survey([])
    assert lab.is_free(DB)
    lab.silence(NODE2, False)
    assert lab.keeper.look()
    assert not lab.is_free(DB)
    lab.works.clear()
    assert not lab.keeper.look()
    assert lab.is_free(DB)


def test_a_node_which_is_marked_as_offline_is_not_waited_for(lab: Lab) -> None:
    lab.silence(NODE1)
    lab.keeper.survey([job(instance_name="web")])
    assert not lab.is_free(WEB)
    node = lab.master.config.node(uuid_of("node1"))
    with lab.master.config.transaction() as change:
        change.update_node(dataclasses.replace(node, offline=True))
    assert not lab.keeper.look()
    assert lab.is_free(WEB)


def test_a_job_hands_over_its_locks_without_a_gap(lab: Lab) -> None:
    """Another job which waits already does not get the lock in between."""
    locks, mine = lab.master.locks, Owner(12, "job 12")
    locks.acquire(mine, Level.INSTANCE, [WEB, DB], shared=False)
    waiting = locks.begin(NEXT, Level.INSTANCE, [WEB], shared=False, priority=-20)
    lab.works[NODE1] = [work(epoch=NEW)]
    lab.keeper.hand_over(12, [uuid_of("node1")], [WEB, DB])
    locks.release(mine)
    assert locks.is_owned(NEXT, Level.INSTANCE, WEB) is False
    assert [owner.name for owner in locks.waiting(NEXT).holders] == [  # type: ignore[union-attr]
        f"work of job 12 on {NODE1} for instance web.example.com"
    ]
    lab.works.clear()
    lab.keeper.look()
    assert locks.is_owned(NEXT, Level.INSTANCE, WEB)
    locks.withdraw(waiting)
    assert lab.is_free(DB)


def test_a_job_whose_nodes_are_ready_keeps_nothing(lab: Lab) -> None:
    lab.works[NODE1] = [work(13, NEW)]
    lab.keeper.hand_over(12, [uuid_of("node1")], [WEB])
    assert lab.owners() == []


def test_the_processor_hands_over(lab: Lab) -> None:
    master = lab.master
    master.context.left_work = lab.keeper
    master.rpc.unsure = {uuid_of("node1")}
    lab.silence(NODE1)
    with pytest.raises(AssertionError, match="locks are left behind"):
        master.run(OpInstanceStartup(instance_name="web"))
    assert lab.owners() == [f"work of job 1 on {NODE1} for instance web.example.com"]
    lab.silence(NODE1, False)
    assert not lab.keeper.look()
    assert lab.owners() == []


def test_a_thread_looks_until_nothing_is_left(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganeti.master.left_work.POLL_S", 0.001)
    keeper = WorkKeeper(
        lab.master.config,  # type: ignore[arg-type]
        lab.master.locks,
        lab.rpc,  # type: ignore[arg-type]
        Epoch(4, "uuid-new"),
    )
    answers = [[work()]] * 3
    lab.rpc.answers["node_work"] = lambda node, _args: (
        answers.pop() if node == NODE1 and answers else []
    )
    keeper.survey([])
    assert lab.master.locks.acquire(NEXT, Level.INSTANCE, [WEB], shared=False, timeout_s=60)
