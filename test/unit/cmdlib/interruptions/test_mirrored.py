"""Operations on logical volumes and mirrored disks are broken at every node call, in four ways, and
set right again, like those of :mod:`.test_instance`.

The driver of mirrored disks is the real one; the kernel below it and the volumes are made up
(:mod:`fakes.mirror`). Besides what holds there, no interruption leads to a split brain, loses
content, or leaves a minor in use.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes import mirror
from fakes.breaking import (
    WEB,
    Recover,
    again,
    again_unless_done,
    clean_up_move,
    contents,
    create,
    empty,
    everywhere,
    known,
    remove_disk_again,
    remove_then_again,
    web,
)
from fakes.config import uuid_of
from fakes.node_side import BREAKS, Cluster
from ganeti import errors
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.opcodes import instance as ops
from ganeti.opcodes.base import OpCode

LONG = bool(os.environ.get("GANETI_LONG"))
CONTENT = bytes(range(256)) * 4096  # one MiB


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.install(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for name in ("POLL_MIN_S", "POLL_MAX_S"):
        monkeypatch.setattr(disk_copy, name, 0.0)


def fresh(
    directory: Path,
    template: str = "drbd",
    *,
    up: bool = False,
    exists: bool = True,
    disks: int = 1,
    before: Callable[[Cluster], None] | None = None,
) -> Cluster:
    """Three nodes, an instance with disks that have content."""
    cluster = empty(directory)
    if exists:
        cluster.run(create(template, disks=[{"size": 1}] * disks))
        for path in contents(cluster):
            path.write_bytes(CONTENT)
    if up:
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    if before is not None:
        before(cluster)
    cluster.rpc.restart()
    return cluster


def check(cluster: Cluster) -> None:
    """What must hold at every moment."""
    cluster.check()
    assert cluster.rpc.kernel.split == []


def check_clean(cluster: Cluster, *, content: bool = True) -> None:
    """What must hold when all is over."""
    cluster.check_clean()
    check(cluster)
    kernel = cluster.rpc.kernel
    kernel.settle()
    kernel.replicate()
    wanted = set()
    names = {node.uuid: node.name.split(".")[0] for node in cluster.config.nodes()}
    for instance in cluster.config.instances():
        for disk in cluster.config.instance_disks(instance):
            if disk.dev_type == "drbd" and instance.disks_active:
                node_a, node_b, _port, minor_a, minor_b = disk.logical_id[:5]
                wanted |= {(names[node_a], minor_a), (names[node_b], minor_b)}
    assert cluster.rpc.active() == wanted, f"{cluster.rpc.active()} in use, not {wanted}"
    for key in kernel.minors:
        state = kernel.state(key)
        assert state.connected and state.up_to_date, state
        where = os.path.basename(key[0]).split(".")[0]
        assert state.primary == (where == names[web(cluster).primary_node]), (where, state)
    if content and known(cluster):
        only = contents(cluster, primary_only=True)
        for path in contents(cluster) if wanted or not only else only:
            assert path.read_bytes()[: len(CONTENT)] == CONTENT, f"content of {path.name} is lost"
    assert not cluster.config._store.reservations._taken, "reservations are left behind"


# -- setting right ---------------------------------------------------------------------------


def then_deactivated(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """What was activated for a moment may have stayed so."""
    again_unless_done(cluster, op)
    cluster.run(ops.OpInstanceDeactivateDisks(instance_name=web(cluster).name))


made_anew = remove_then_again(check_clean)


def commit_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """A commit that was taken back is repeated; half an instance is removed and made anew."""
    if web(cluster).forthcoming:
        cluster.run(op())
    else:
        cluster.run(ops.OpInstanceRemove(instance_name=WEB))
        cluster.run(create())


def adopt_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """What was adopted is the instance's as soon as it is on record; it has its name or the old."""
    if not known(cluster):
        cluster.run(op())
        return
    (disk,) = cluster.config.instance_disks(web(cluster))
    path = contents(cluster)[0]
    if not path.exists():
        os.rename(path.with_name("mine"), path)  # as the administrator would
    assert disk.dev_type == "plain"


def fail_over_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """There again unless it is there; then it is only started."""
    if web(cluster).primary_node == uuid_of("node1"):
        cluster.run(op())
    elif web(cluster).admin_state == "up":
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
        cluster.run(ops.OpInstanceActivateDisks(instance_name=WEB))


def third_node_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """The same; or, when it is there, another new secondary, which destroys what is left."""
    if web(cluster).primary_node != uuid_of("node3"):
        cluster.run(op())
        return
    if web(cluster).admin_state == "up":
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
        cluster.run(ops.OpInstanceActivateDisks(instance_name=WEB))
    (secondary,) = cluster.config.secondary_nodes(web(cluster))
    other = "node1" if secondary == uuid_of("node2") else "node2"
    cluster.run(replace("replace_new_secondary", remote_node=other)())


def migrate_to_third_node_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """Find out where it runs; then the same, or another new secondary, which destroys what is
    left."""
    clean_up_move(cluster, op)
    cluster.run(ops.OpInstanceActivateDisks(instance_name=WEB, wait_for_sync=True))
    if web(cluster).primary_node != uuid_of("node3"):
        cluster.run(op())
    third_node_again(cluster, op)


def new_secondary_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """The same; when node3 has it already, back, which destroys what was left."""
    arrived = uuid_of("node3") in cluster.config.instance_nodes(web(cluster))
    cluster.run(replace("replace_new_secondary", remote_node="node2" if arrived else "node3")())


def convert_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    wanted = op().disk_template
    if cluster.config.disk_template(web(cluster)) == wanted:
        back = "plain" if wanted == "drbd" else "drbd"
        cluster.run(
            ops.OpInstanceSetParams(
                instance_name=WEB,
                disk_template=back,
                remote_node="node2" if back == "drbd" else None,
            )
        )
    cluster.run(op())


def remove_second_disk(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    if len(web(cluster).disks) > 1:
        cluster.run(ops.OpInstanceSetParams(instance_name=WEB, disks=[["remove", 1, {}]]))
    check_clean(cluster)
    cluster.run(op())


def move_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    arrived = web(cluster).primary_node == uuid_of("node2")
    cluster.run(ops.OpInstanceMove(instance_name=WEB, target_node="node1" if arrived else "node2"))


# -- what is broken ----------------------------------------------------------------------------


def replace(mode: str, **changes) -> Callable[[], OpCode]:
    return lambda: ops.OpInstanceReplaceDisks(instance_name=WEB, mode=mode, disks=[], **changes)


def modify(**changes) -> Callable[[], OpCode]:
    return lambda: ops.OpInstanceSetParams(instance_name=WEB, **changes)


def migrate() -> OpCode:
    return ops.OpInstanceMigrate(instance_name=WEB)


def failover(**changes) -> Callable[[], OpCode]:
    return lambda: ops.OpInstanceFailover(instance_name=WEB, **changes)


def reserved(cluster: Cluster) -> None:
    cluster.run(create(forthcoming=True))


def with_volume(cluster: Cluster) -> None:
    path = cluster.rpc.root("node1.example.com") / mirror.LVM / "xenvg" / "mine"
    path.write_bytes(CONTENT)


def lost(*nodes: str) -> Callable[[Cluster], None]:
    """Volumes on these nodes are gone."""

    def lose(cluster: Cluster) -> None:
        for node in nodes:
            for path in (cluster.rpc.root(f"{node}.example.com") / mirror.LVM).rglob("*"):
                if path.is_file():
                    path.unlink()

    return lose


def broken_storage(cluster: Cluster) -> None:
    """The secondary has lost its volumes while it was active, and goes on without."""
    cluster.run(ops.OpInstanceActivateDisks(instance_name=WEB))
    for key in cluster.rpc.kernel.minors:
        if "node2" in key[0]:
            cluster.rpc.kernel.detach(key)
    lost("node2")(cluster)


def detached(cluster: Cluster) -> None:
    """Disk 1 is in the cluster, but belongs to no instance."""
    cluster.run(modify(disks=[["modify", 1, {"name": "data"}]])())
    cluster.run(modify(disks=[["detach", 1, {}]])())


def attach_again(cluster: Cluster, op: Callable[[], OpCode]) -> None:
    """Attached unless it is; a running guest gets the rest with its next start."""
    if len(web(cluster).disks) < 2:
        cluster.run(op())
    cluster.run(ops.OpInstanceActivateDisks(instance_name=WEB))


#: name: the operation, where it begins, how it is set right, whether the content must survive.
CASES: dict[str, tuple[Callable[[], OpCode], dict, Recover, bool]] = {
    "create-drbd": (lambda: create(start=True), {"exists": False}, made_anew, False),
    "create-plain": (lambda: create("plain"), {"exists": False}, made_anew, False),
    "create-adopt": (
        lambda: create("plain", disks=[{"size": 0, "adopt": "mine"}], no_install=True),
        {"exists": False, "before": with_volume},
        adopt_again,
        True,
    ),
    "commit": (
        lambda: ops.OpInstanceCreate(
            instance_name=WEB, mode="create", disks=[], nics=[], commit=True, start=False
        ),
        {"exists": False, "before": reserved},
        commit_again,
        False,
    ),
    "remove": (
        lambda: ops.OpInstanceRemove(instance_name=WEB),
        {"up": True},
        again_unless_done,
        True,
    ),
    "startup": (lambda: ops.OpInstanceStartup(instance_name=WEB), {}, again, True),
    "shutdown": (lambda: ops.OpInstanceShutdown(instance_name=WEB), {"up": True}, again, True),
    "reboot-full": (
        lambda: ops.OpInstanceReboot(instance_name=WEB, reboot_type="full"),
        {"up": True},
        again,
        True,
    ),
    "reinstall": (
        lambda: ops.OpInstanceReinstall(instance_name=WEB, os_type="other"),
        {},
        again,
        True,
    ),
    "rename": (
        lambda: ops.OpInstanceRename(instance_name=WEB, new_name="www.example.com"),
        {},
        then_deactivated,
        True,
    ),
    "activate-disks": (lambda: ops.OpInstanceActivateDisks(instance_name=WEB), {}, again, True),
    "deactivate-disks": (
        lambda: ops.OpInstanceDeactivateDisks(instance_name=WEB),
        {"before": lambda c: c.run(ops.OpInstanceActivateDisks(instance_name=WEB))},
        again,
        True,
    ),
    "grow-disk": (
        lambda: ops.OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=8, absolute=True),
        {"up": True},
        again,
        True,
    ),
    "grow-disk-stopped": (
        lambda: ops.OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=8, absolute=True),
        {},
        again,
        True,
    ),
    "recreate-disks": (
        lambda: ops.OpInstanceRecreateDisks(instance_name=WEB),
        {"before": lost("node1", "node2")},
        then_deactivated,
        False,
    ),
    "recreate-disks-elsewhere": (
        lambda: ops.OpInstanceRecreateDisks(instance_name=WEB, nodes=["node3", "node1"]),
        {"before": lost("node1", "node2")},
        then_deactivated,
        False,
    ),
    "migrate": (migrate, {"up": True}, clean_up_move, True),
    "failover": (failover(), {"up": True}, fail_over_again, True),
    "failover-stopped": (failover(), {}, fail_over_again, True),
    "failover-third-node": (failover(target_node="node3"), {"up": True}, third_node_again, True),
    "failover-third-node-primary-stays": (
        failover(target_node="node3", new_secondary="node1", wait_for_sync=True),
        {"up": True},
        third_node_again,
        True,
    ),
    "migrate-third-node": (
        lambda: ops.OpInstanceMigrate(instance_name=WEB, target_node="node3"),
        {"up": True},
        migrate_to_third_node_again,
        True,
    ),
    "move": (
        lambda: ops.OpInstanceMove(instance_name=WEB, target_node="node2"),
        {"template": "plain", "up": True},
        move_again,
        True,
    ),
    "replace-on-primary": (replace("replace_on_primary"), {"up": True}, again, True),
    "replace-on-secondary": (replace("replace_on_secondary"), {"up": True}, again, True),
    "replace-new-secondary": (
        replace("replace_new_secondary", remote_node="node3"),
        {"up": True},
        new_secondary_again,
        True,
    ),
    "replace-new-secondary-stopped": (
        replace("replace_new_secondary", remote_node="node3"),
        {},
        new_secondary_again,
        True,
    ),
    "replace-auto": (replace("replace_auto"), {"up": True, "before": broken_storage}, again, True),
    "convert-to-drbd": (
        modify(disk_template="drbd", remote_node="node2"),
        {"template": "plain"},
        convert_again,
        True,
    ),
    "convert-to-plain": (modify(disk_template="plain"), {}, convert_again, True),
    "add-disk": (modify(disks=[["add", -1, {"size": 1}]]), {"up": True}, remove_second_disk, False),
    "attach-disk": (
        modify(disks=[["attach", -1, {"name": "data"}]]),
        {"up": True, "disks": 2, "before": detached},
        attach_again,
        True,
    ),
    "remove-disk": (
        modify(disks=[["remove", 0, {}]]),
        {"up": True, "disks": 2},
        remove_disk_again,
        True,
    ),
}


def breaks(name: str, count: int) -> list[tuple[str, int]]:
    """How and at which call an operation is broken: everywhere in every way, or a selection.

    The selection is every third call, or about ten in all when there are many.
    """
    if LONG:
        return [(how, at) for how in BREAKS for at in range(count)]
    step = max(3, count // 10)
    calls = range(list(CASES).index(name) % step, count, step)
    return [(("kill", "cut")[number % 2], at) for number, at in enumerate(calls)]


@pytest.mark.larger
@pytest.mark.parametrize("name", CASES)
def test_every_operation_can_be_set_right(tmp_path: Path, name: str) -> None:
    op, start, recover, content = CASES[name]
    numbers = itertools.count()
    everywhere(
        lambda: fresh(tmp_path / str(next(numbers)), **start),
        op,
        lambda cluster: recover(cluster, op),
        breaks=functools.partial(breaks, name),
        check=check,
        check_clean=functools.partial(check_clean, content=content),
    )


def test_an_incomplete_disk_is_not_used(tmp_path: Path) -> None:
    """What recreate-disks has begun is on record, until it is complete."""
    whole = fresh(tmp_path / "whole", before=lost("node1", "node2"))
    whole.run(ops.OpInstanceRecreateDisks(instance_name=WEB))
    at = [name for name, _node in whole.rpc.calls].index("blockdev_create_multi")
    cluster = fresh(tmp_path / "cluster", before=lost("node1", "node2"))
    cluster.broken(ops.OpInstanceRecreateDisks(instance_name=WEB), at, "kill")
    with pytest.raises(errors.OpPrereqError, match="disk 0 .*not created completely. Repeat"):
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    with pytest.raises(errors.OpExecError, match="disk 0 .*not created completely. Repeat"):
        cluster.run(ops.OpInstanceActivateDisks(instance_name=WEB))
    cluster.run(ops.OpInstanceRecreateDisks(instance_name=WEB))
    cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    check_clean(cluster, content=False)


def test_the_kernel_of_these_tests_sees_a_split_brain(tmp_path: Path) -> None:
    """Two halves which were both written to while they were alone do not meet again."""
    cluster = fresh(tmp_path / "cluster", up=True)
    kernel = cluster.rpc.kernel
    (one, two) = sorted(kernel.minors)
    ends = {
        key: (kernel.minors[key].local, kernel.minors[key].remote, kernel.minors[key].net)
        for key in (one, two)
    }
    kernel.disconnect(one)
    kernel.minors[two].local = None
    kernel.open(two, force=False)
    for key in (one, two):
        kernel.connect(key, *ends[key])
    kernel.settle()
    assert kernel.split
    assert kernel.state(one).standalone and kernel.state(two).standalone


@pytest.mark.parametrize("how", ["kill", "lost"])
def test_a_connection_left_dual_primary_ends_with_the_next_activation(
    tmp_path: Path, how: str
) -> None:
    """The master dies between the connection and the promotion of the target, or after that."""
    whole = fresh(tmp_path / "whole", up=True)
    whole.run(migrate())
    names = [name for name, _node in whole.rpc.calls]
    cluster = fresh(tmp_path / "cluster", up=True)
    cluster.broken(migrate(), names.index("blockdev_open"), how)
    minors = cluster.rpc.kernel.minors.values()
    assert [minor.net.dual_primary for minor in minors if minor.net] == [True, True]
    both = all(minor.primary for minor in minors)
    assert both == (how == "lost")
    cluster.run(ops.OpInstanceActivateDisks(instance_name=WEB))
    assert [minor.net.dual_primary for minor in minors if minor.net] == [False, False]
    check_clean(cluster)
