"""Operations on a guest under Xen are broken at every node call, in four ways, and set right again.

The drivers are the real ones over a fake ``xl`` (:mod:`fakes.xen_side`). Whatever happened, the
guest does not run twice; after the same command, or the clean-up of the migration, no domain, no
file and no lock is left over or missing.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import xen_node
from fakes.breaking import WEB, again, again_unless_done, everywhere, web
from fakes.config import disk_of, instance_of, uuid_of
from fakes.node_side import BREAKS, Cluster
from fakes.xen_side import XenCluster
from ganeti import errors
from ganeti.hypervisor.net import interfaces
from ganeti.objects import ipolicy
from ganeti.opcodes import instance as ops
from ganeti.opcodes.base import OpCode

pytestmark = pytest.mark.programs
LONG = bool(os.environ.get("GANETI_LONG"))


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., XenCluster]]:
    """Makes a cluster with the instance ``web`` on a shared file; with ``up`` it runs."""
    xen_node.plain_disks(monkeypatch)
    monkeypatch.setattr(interfaces, "finish_incoming", lambda nics, guest: None)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    numbers = itertools.count()
    made: list[XenCluster] = []

    def make(*, up: bool = False) -> XenCluster:
        if made:
            made[-1].rpc.end()
        directory = tmp_path / str(next(numbers))
        directory.mkdir()
        disk = replace(disk_of("web"), size=1)
        rules = ipolicy.defaults()
        rules["minmax"][0]["min"]["disk-size"] = 1
        # The kernel must be there before a guest is stopped for a restart.
        kernel = tmp_path / "vmlinuz"
        kernel.touch()
        instance = instance_of(
            "web",
            hypervisor="xen-pvm",
            hvparams={"kernel_path": str(kernel)},
            disks=(disk.uuid,),
        )
        cluster = XenCluster(directory, (instance,), (disk,), ipolicy=rules)
        made.append(cluster)
        path = Path(str(cluster.rpc.root("node1.example.com")) + disk.logical_id[1])
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(1 << 20))
        if up:
            cluster.run(ops.OpInstanceStartup(instance_name=WEB))
            cluster.rpc.restart()
        return cluster

    yield make
    for cluster in made[-1:]:
        cluster.rpc.end()


def clean_up(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """Find out where the guest is; no interruption of the master loses it."""
    if cluster.rpc.running() or cluster.rpc.migrating():
        cluster.run(ops.OpInstanceMigrate(instance_name=WEB, cleanup=True))
    assert cluster.rpc.running(), "the guest was lost"


def fail_over_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """The same command; when the instance is there already, it is only started."""
    again_unless_done(cluster, op)
    cluster.run(ops.OpInstanceStartup(instance_name=WEB))


def remove_second_disk(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """A disk that was not finished is removed, then added anew."""
    if len(web(cluster).disks) > 1:
        cluster.run(ops.OpInstanceSetParams(instance_name=WEB, disks=[["remove", 1, {}]]))
    cluster.check_clean()
    cluster.run(op())


def migrate(mode: str) -> Callable[[], OpCode]:
    return lambda: ops.OpInstanceMigrate(instance_name=WEB, target_node="node2", mode=mode)


def reboot(kind: str) -> Callable[[], OpCode]:
    return lambda: ops.OpInstanceReboot(instance_name=WEB, reboot_type=kind)


CASES = {
    "startup": (lambda: ops.OpInstanceStartup(instance_name=WEB), False, again),
    "shutdown": (lambda: ops.OpInstanceShutdown(instance_name=WEB), True, again),
    "reboot-soft": (reboot("soft"), True, again),
    "reboot-hard": (reboot("hard"), True, again),
    "reboot-full": (reboot("full"), True, again),
    "remove": (lambda: ops.OpInstanceRemove(instance_name=WEB), True, again_unless_done),
    "migrate-live": (migrate("live"), True, clean_up),
    "migrate-stopped": (migrate("non-live"), True, clean_up),
    "failover": (
        lambda: ops.OpInstanceFailover(instance_name=WEB, target_node="node2"),
        True,
        fail_over_again,
    ),
    "plug-disk": (
        lambda: ops.OpInstanceSetParams(
            instance_name=WEB, disks=[["add", -1, {"size": 1}]], hotplug=True
        ),
        True,
        remove_second_disk,
    ),
    "plug-nic": (
        lambda: ops.OpInstanceSetParams(instance_name=WEB, nics=[["add", -1, {}]], hotplug=True),
        True,
        again,
    ),
}


def breaks(count: int) -> list[tuple[str, int]]:
    """How and at which call: two ways in turn; or everywhere in all four."""
    if LONG:
        return [(how, at) for how in BREAKS for at in range(count)]
    return [(("kill", "cut")[at % 2], at) for at in range(count)]


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_every_operation_can_be_set_right(fresh: Callable[..., XenCluster], name: str) -> None:
    """Long, because each attempt runs ``xl`` and the programs of a migration."""
    op, up, recover = CASES[name]
    everywhere(lambda: fresh(up=up), op, lambda cluster: recover(cluster, op), breaks=breaks)


def test_a_migration_whose_master_died_is_set_right(fresh: Callable[..., XenCluster]) -> None:
    """Right after the transfer began: the one of all interruptions which every run tries."""
    whole = fresh(up=True)
    whole.run(migrate("non-live")())
    at = [name for name, _node in whole.rpc.calls].index("instance_migrate")
    assert web(whole).primary_node == uuid_of("node2")
    cluster = fresh(up=True)
    cluster.broken(migrate("non-live")(), at, "lost")
    cluster.check()
    clean_up(cluster, migrate("non-live"))
    cluster.check_clean()


def test_the_job_says_why_a_migration_failed(fresh: Callable[..., XenCluster]) -> None:
    cluster = fresh(up=True)
    cluster.rpc.nodes["node2.example.com"].misbehave("restore")
    with pytest.raises(errors.OpExecError, match="Node node2.*restore was told to fail"):
        cluster.run(migrate("non-live")())
    cluster.check_clean()
