"""Operations on a container are broken at every node call, in four ways, and set right again.

The driver is the real one over a fake LXC (:mod:`fakes.lxc_side`). Whatever happened, the container
does not run twice; after the same command no container, no file and no lock is left over or
missing.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import lxc_side
from fakes.breaking import WEB, again, again_unless_done, everywhere, web
from fakes.config import disk_of, instance_of
from fakes.lxc_side import LxcCluster
from fakes.node_side import BREAKS, Cluster
from ganeti.objects import ipolicy
from ganeti.opcodes import instance as ops
from ganeti.opcodes.base import OpCode

LONG = bool(os.environ.get("GANETI_LONG"))


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LxcCluster]]:
    """Makes a cluster with the instance ``web`` on a shared file; with ``up`` it runs."""
    numbers = itertools.count()
    made: list[LxcCluster] = []
    lxc_side.pretend(monkeypatch, lambda: made[-1].rpc)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def make(*, up: bool = False) -> LxcCluster:
        directory = tmp_path / str(next(numbers))
        directory.mkdir()
        disk = replace(disk_of("web"), size=1)
        rules = ipolicy.defaults()
        rules["minmax"][0]["min"]["disk-size"] = 1
        instance = instance_of("web", hypervisor="lxc", disks=(disk.uuid,))
        cluster = LxcCluster(directory, (instance,), (disk,), ipolicy=rules)
        made.append(cluster)
        path = Path(str(cluster.rpc.root("node1.example.com")) + disk.logical_id[1])
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(1 << 20))
        if up:
            cluster.run(ops.OpInstanceStartup(instance_name=WEB))
            cluster.rpc.restart()
        return cluster

    yield make


def fail_over_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """The same command; when the instance is there already, it is only started."""
    again_unless_done(cluster, op)
    cluster.run(ops.OpInstanceStartup(instance_name=WEB))


def modify(**changes: object) -> Callable[[], OpCode]:
    return lambda: ops.OpInstanceSetParams(instance_name=WEB, **changes)


def reboot(kind: str) -> Callable[[], OpCode]:
    return lambda: ops.OpInstanceReboot(instance_name=WEB, reboot_type=kind)


CASES = {
    "startup": (lambda: ops.OpInstanceStartup(instance_name=WEB), False, again),
    "shutdown": (lambda: ops.OpInstanceShutdown(instance_name=WEB), True, again),
    "reboot-soft": (reboot("soft"), True, again),
    "reboot-hard": (reboot("hard"), True, again),
    "reboot-full": (reboot("full"), True, again),
    "remove": (lambda: ops.OpInstanceRemove(instance_name=WEB), True, again_unless_done),
    "failover": (
        lambda: ops.OpInstanceFailover(instance_name=WEB, target_node="node2"),
        True,
        fail_over_again,
    ),
    "memory": (modify(runtime_mem=256, force=True), True, again),
    "processors": (modify(beparams={"vcpus": 2}, hvparams={"cpu_mask": "0"}), True, again),
    "plug-nic": (modify(nics=[["add", -1, {}]], hotplug=True), True, again),
}


def breaks(count: int) -> list[tuple[str, int]]:
    """How and at which call: two ways in turn; or everywhere in all four."""
    if LONG:
        return [(how, at) for how in BREAKS for at in range(count)]
    return [(("kill", "cut")[at % 2], at) for at in range(count)]


@pytest.mark.parametrize("name", CASES)
def test_every_operation_can_be_set_right(fresh: Callable[..., LxcCluster], name: str) -> None:
    op, up, recover = CASES[name]
    count = everywhere(
        lambda: fresh(up=up), op, lambda cluster: recover(cluster, op), breaks=breaks
    )
    assert count >= 3


def test_a_live_migration_is_refused(fresh: Callable[..., LxcCluster]) -> None:
    """Before any node was asked to do something; the container goes on."""
    cluster = fresh(up=True)
    refused = ops.OpInstanceMigrate(instance_name=WEB, target_node="node2", mode="live")
    assert cluster.broken(refused, -1, "kill") is not None
    cluster.check_clean()
    assert web(cluster).admin_state == "up"
