"""Operations on the instance ``web`` which are broken at their node calls, and set right again.

See :mod:`.node_side` for the ways in which they break. What is to be set right, and what must hold
then, is told by the tests: a *recovery* is what an administrator does after the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fakes import mirror
from fakes.config import cluster_of
from fakes.node_side import Cluster
from ganeti import errors
from ganeti.objects import Instance, ipolicy
from ganeti.opcodes import instance as ops
from ganeti.opcodes.base import OpCode

WEB = "web.example.com"

Op = Callable[[], OpCode]
Check = Callable[[Cluster], None]
Recover = Callable[[Cluster, Op], None]


def everywhere(
    make: Callable[[], Cluster],
    op: Op,
    recover: Check,
    *,
    breaks: Callable[[int], Iterable[tuple[str, int]]],
    check: Check = Cluster.check,
    check_clean: Check = Cluster.check_clean,
) -> int:
    """Break an operation, set it right, check; returns how often.

    :param make: a new cluster, each time the same.
    :param breaks: how and at which call it is broken, of so many.
    :param check: what must hold right after it broke.
    :param check_clean: what must hold when it is set right, and when nothing broke.
    """
    whole = make()
    whole.run(op())
    check_clean(whole)
    calls = whole.rpc.calls
    assert calls
    chosen = list(breaks(len(calls)))
    for how, at in chosen:
        cluster = make()
        try:
            cluster.broken(op(), at, how)
            check(cluster)
            recover(cluster)
            check_clean(cluster)
        except Exception as err:
            raise AssertionError(f"{how} at call {at}, {calls[at]}: {err}") from err
    return len(chosen)


def known(cluster: Cluster, name: str = WEB) -> bool:
    """Whether the configuration has an instance of that name."""
    return any(instance.name == name for instance in cluster.config.instances())


def web(cluster: Cluster) -> Instance:
    """The instance, whatever it is called at the moment."""
    return cluster.config.instances()[0]


# -- recoveries ------------------------------------------------------------------------------


def again(cluster: Cluster, op: Op) -> None:
    """The same command."""
    cluster.run(op())


def again_unless_done(cluster: Cluster, op: Op) -> None:
    """The same command; it may find that it was done."""
    try:
        cluster.run(op())
    except errors.OpPrereqError as err:
        assert err.ecode in (errors.ECODE_NOENT, errors.ECODE_EXISTS, errors.ECODE_STATE), err


def remove_then_again(check_clean: Check = Cluster.check_clean) -> Recover:
    """Half an instance is removed, which must leave nothing, then made anew."""

    def recover(cluster: Cluster, op: Op) -> None:
        if known(cluster):
            cluster.run(ops.OpInstanceRemove(instance_name=WEB))
        check_clean(cluster)
        cluster.run(op())

    return recover


def clean_up_move(cluster: Cluster, op: Op) -> None:
    """Where does it run? Then let it run as it shall.

    A target whose source is gone does not know, on the fakes, that its guest has arrived; so the
    clean-up may say that it runs nowhere, and what to do then.
    """
    if cluster.rpc.running() or cluster.rpc.migrating():
        try:
            cluster.run(ops.OpInstanceMigrate(instance_name=WEB, cleanup=True))
        except errors.OpExecError:
            assert not cluster.rpc.running()
            cluster.run(ops.OpInstanceShutdown(instance_name=WEB))
    cluster.run(ops.OpInstanceStartup(instance_name=WEB))


def remove_disk_again(cluster: Cluster, op: Op) -> None:
    """What is still there is removed."""
    if len(web(cluster).disks) > 1:
        cluster.run(op())


def empty(directory: Path) -> Cluster:
    """Three nodes with all kinds of disks that need no real storage, and no instance."""
    directory.mkdir()
    rules = ipolicy.defaults()
    rules["minmax"][0]["min"]["disk-size"] = 1
    return Cluster(
        cluster_of(
            3,
            ipolicy=rules,
            volume_group_name="xenvg",
            drbd_usermode_helper="/bin/true",
            enabled_disk_templates=("drbd", "plain", "file", "sharedfile", "diskless"),
        ),
        directory,
    )


def create(template: str = "drbd", **changes: Any) -> ops.OpInstanceCreate:
    """The instance ``web``, stopped, with a disk of 1 MiB."""
    values: dict[str, Any] = {
        "instance_name": WEB,
        "mode": "create",
        "disk_template": template,
        "pnode": "node1",
        "snode": "node2" if template == "drbd" else None,
        "os_type": "noop",
        "disks": [{"size": 1}] if template != "diskless" else [],
        "nics": [{}],
        "start": False,
    }
    return ops.OpInstanceCreate(**{**values, **changes})


def contents(cluster: Cluster, *, primary_only: bool = False) -> list[Path]:
    """The files with the content of the disks, on all their nodes."""
    found = []
    for disk in cluster.config.instance_disks(web(cluster)):
        part = disk.children[0] if disk.children else disk
        for node in part.nodes or (web(cluster).primary_node,):
            if primary_only and node != web(cluster).primary_node:
                continue
            root = cluster.rpc.root(cluster.config.node(node).name)
            if part.dev_type == "plain":
                found.append(root / mirror.LVM / "/".join(part.logical_id))
            else:
                found.append(Path(str(root) + part.logical_id[1]))
    return found
