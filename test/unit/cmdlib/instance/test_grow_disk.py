"""A growth which is broken at any node call shows no data of others, and overwrites none of the
guest; and copies of disks are as large as the disks really are.

The volumes and the kernel below the real driver of mirrored disks are made up
(:mod:`fakes.mirror`). What is added to a volume has data of a former owner.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes import mirror
from fakes.breaking import WEB, contents, create, empty, web
from fakes.config import cluster_of, instance_of, uuid_of
from fakes.master import Master
from fakes.node_side import Cluster
from ganeti import errors
from ganeti.backend.instance import lifecycle
from ganeti.backend.storage import disk_content
from ganeti.cmdlib.base import LuContext
from ganeti.cmdlib.ops.disks import wipe
from ganeti.cmdlib.ops.transfer import disk_copy, handshake
from ganeti.objects import Disk
from ganeti.opcodes import instance as ops
from ganeti.opcodes.backup import OpBackupPrepare
from ganeti.platform import paths
from ganeti.storage.lvm import device as volumes
from ganeti.utils import x509

MIB = 1 << 20
GUEST, LATER, FORMER = b"guest", b"later", b"other"
OLD_MIB, NEW_MIB, META_MIB = 4, 8, 128
LONG = bool(os.environ.get("GANETI_LONG"))
#: What a growth left which an older version broke off.
LEFT_MIB = 12


@functools.lru_cache(maxsize=8)
def filled(word: bytes, size: int) -> bytes:
    return (word * (size // len(word) + 1))[:size]


class UsedVolume(mirror.Volume):
    """A volume in a group whose extents belonged to others, and have ``EXTENT_MIB``."""

    EXTENT_MIB = 4

    def _fill(self, size: int) -> None:
        size = -(-size // (self.EXTENT_MIB * MIB)) * self.EXTENT_MIB * MIB
        with open(self.path, "ab") as stream:
            stream.write(filled(FORMER, size - stream.tell()))

    def create(self, size_mib: int, **options: Any) -> None:
        super().create(0, **options)
        if size_mib < META_MIB:
            self._fill(size_mib * MIB)
        else:
            os.truncate(self.path, size_mib * MIB)

    def grow(self, amount_mib: int, *, dry_run: bool, backing_store: bool, **options: Any) -> None:
        if backing_store and not dry_run:
            self._fill(self.size_bytes() + amount_mib * MIB)


def _overwrite(_work: Any, _device: Any, argv: list[str], *_rest: Any) -> None:
    words = dict(word.partition("=")[::2] for word in argv[1:])
    if os.path.getsize(words["of"]) >= META_MIB * MIB:
        return  # metadata: a hole, which is empty already
    with open(words["of"], "r+b") as stream:
        stream.seek(int(words["seek"]) * MIB)
        stream.write(bytes(int(words["count"])))


@pytest.fixture(autouse=True)
def _devices(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.install(monkeypatch)
    monkeypatch.setattr(volumes, "LogicalVolumeDevice", UsedVolume)
    monkeypatch.setattr(disk_content, "_run", _overwrite)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for name in ("POLL_MIN_S", "POLL_MAX_S"):
        monkeypatch.setattr(disk_copy, name, 0.0)


def fresh(directory: Path, template: str, *, up: bool = False, size_mib: int = OLD_MIB) -> Cluster:
    """An instance whose guest has written to its whole disk, in a cluster which wipes."""
    cluster = empty(directory)
    with cluster.config.transaction() as change:
        change.cluster.update(dataclasses.replace(change.data.cluster, prealloc_wipe_disks=True))
    cluster.run(create(template, disks=[{"size": size_mib}]))
    for path in contents(cluster):
        write(path, GUEST, path.stat().st_size)
    if up:
        cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    cluster.rpc.restart()
    return cluster


def write(path: Path, word: bytes, end: int, start: int = 0) -> None:
    with path.open("r+b") as stream:
        stream.seek(start)
        stream.write(filled(word, end - start))


def grow(size_mib: int = NEW_MIB) -> ops.OpInstanceGrowDisk:
    return ops.OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=size_mib, absolute=True)


def disk_of(cluster: Cluster) -> Disk:
    (disk,) = cluster.config.instance_disks(web(cluster))
    return disk


def reach(cluster: Cluster) -> int:
    """How many bytes a guest can read which is started now."""
    disk = disk_of(cluster)
    if disk.dev_type != "drbd":
        return contents(cluster)[0].stat().st_size
    (meta,) = {
        minor.meta
        for key, minor in cluster.rpc.kernel.minors.items()
        if minor.primary and minor.meta
    }
    return mirror.agreed_sectors(meta) * 512


def start(cluster: Cluster) -> None:
    """What the watcher does after the master died, or the administrator."""
    cluster.run(ops.OpInstanceStartup(instance_name=WEB))


def check(cluster: Cluster, written: int = OLD_MIB * MIB, word: bytes = GUEST) -> None:
    """The guest finds what it has written, and nothing of others."""
    assert cluster.rpc.kernel.truncated == []
    for path in contents(cluster):
        content = path.read_bytes()
        assert content[:written] == filled(word, written), f"{path.name} has lost content"
        rest = content[written : max(reach(cluster), written)]
        assert rest == bytes(len(rest)), f"{path.name} has data of others"


def hows(template: str) -> tuple[str, ...]:
    """How a growth is broken; when an answer is lost, the node has done what it was told to do."""
    return ("kill", "lost") if LONG or template != "drbd" else ("lost",)


def calls_of(directory: Path, template: str, up: bool) -> list[int]:
    """The numbers of the calls at which a growth is broken."""
    whole = fresh(directory, template, up=up)
    whole.run(grow())
    calls = list(whole.rpc.calls)
    if not web(whole).disks_active:
        start(whole)
    assert reach(whole) == NEW_MIB * MIB
    assert disk_of(whole).unwiped_from is None
    check(whole)
    if LONG:
        return list(range(len(calls)))
    growth = [at for at, (name, _node) in enumerate(calls) if name.startswith("blockdev_")]
    # A mirrored disk has many, of which some are shown by the others.
    return growth[int(up) :: 2] if template == "drbd" else growth


@pytest.mark.parametrize("template", ["plain", "drbd", "file"])
def test_a_growth_is_repeated_at_once(tmp_path: Path, template: str) -> None:
    for at in calls_of(tmp_path / "whole", template, True):
        for how in hows(template):
            cluster = fresh(tmp_path / f"{at}{how}", template, up=True)
            cluster.broken(grow(), at, how)
            cluster.run(grow())
            assert disk_of(cluster).size == NEW_MIB
            start(cluster)
            assert reach(cluster) == NEW_MIB * MIB, (at, how)
            check(cluster)
            shutil.rmtree(tmp_path / f"{at}{how}")


@pytest.mark.parametrize("template", ["plain", "drbd", "file"])
def test_a_guest_runs_before_the_growth_is_repeated(tmp_path: Path, template: str) -> None:
    for at in calls_of(tmp_path / "whole", template, False):
        for how in hows(template):
            cluster = fresh(tmp_path / f"{at}{how}", template)
            cluster.broken(grow(), at, how)
            start(cluster)
            check(cluster)
            end = reach(cluster)
            for path in contents(cluster):
                write(path, LATER, end)
            cluster.run(grow())
            assert disk_of(cluster).size == NEW_MIB
            start(cluster)
            check(cluster, end, LATER)
            cluster.run(ops.OpInstanceShutdown(instance_name=WEB))
            start(cluster)
            assert reach(cluster) == NEW_MIB * MIB, (at, how)
            check(cluster, end, LATER)
            shutil.rmtree(tmp_path / f"{at}{how}")


def broken_before_its_wipe(directory: Path, *, up: bool = False) -> Cluster:
    """A plain volume which is larger, with data of others at its end."""
    cluster = fresh(directory, "plain", up=up)
    whole = fresh(directory.with_name("sample"), "plain", up=up)
    whole.run(grow())
    at = [name for name, _node in whole.rpc.calls].index("blockdev_wipe")
    cluster.broken(grow(), at, "kill")
    assert disk_of(cluster).unwiped_from == OLD_MIB
    assert contents(cluster)[0].read_bytes().endswith(filled(FORMER, 4 * MIB))
    return cluster


def test_no_node_starts_a_guest_which_could_read_data_of_others(tmp_path: Path) -> None:
    cluster = broken_before_its_wipe(tmp_path / "cluster")
    filled_instance = cluster.config.filled_instance(web(cluster))
    root = cluster.rpc.root("node1.example.com")
    with (
        paths.override(paths.Paths(str(root))),
        pytest.raises(errors.BlockDeviceError, match="first 4 MiB .*gnt-instance activate-disks"),
    ):
        lifecycle.attach_disks(filled_instance)
    with pytest.raises(errors.OpPrereqError, match="growth of disk 0 .* was not completed"):
        cluster.run(
            ops.OpInstanceSetParams(instance_name=WEB, disk_template="drbd", remote_node="node2")
        )


def test_it_is_overwritten_once(tmp_path: Path) -> None:
    cluster = broken_before_its_wipe(tmp_path / "cluster")
    marked = disk_of(cluster)
    start(cluster)
    write(contents(cluster)[0], LATER, NEW_MIB * MIB)
    ctx = LuContext(cluster.context, cluster.new_job())
    # Somebody has an object which is older than the wipe.
    wipe.finish(ctx, web(cluster), marked)
    check(cluster, NEW_MIB * MIB, LATER)


@pytest.mark.parametrize("kind", ["hard", "soft", "full"])
def test_a_reboot_overwrites_them_first(tmp_path: Path, kind: str) -> None:
    cluster = broken_before_its_wipe(tmp_path / "cluster", up=True)
    cluster.run(ops.OpInstanceReboot(instance_name=WEB, reboot_type=kind))
    assert disk_of(cluster).unwiped_from is None
    check(cluster)


def test_a_wipe_which_fails_leaves_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = broken_before_its_wipe(tmp_path / "cluster")

    def broken(*_args: Any) -> None:
        raise errors.BlockDeviceError("disk is broken")

    monkeypatch.setattr(disk_content, "_run", broken)
    with pytest.raises(
        errors.OpExecError, match="data of others after its first 4 MiB.*disk is broken"
    ):
        start(cluster)
    assert disk_of(cluster).unwiped_from == OLD_MIB
    assert not cluster.rpc.running()


# -- mirrors which are larger than the configuration says ----------------------------


def test_a_growth_which_was_not_recorded_never_shrinks_a_mirror(tmp_path: Path) -> None:
    """As older versions left it: the device grew, and the master died before the commit."""
    cluster = fresh(tmp_path / "cluster", "drbd", up=True)
    for minor in cluster.rpc.kernel.minors.values():
        assert minor.meta is not None
        mirror.agree_on(minor.meta, LEFT_MIB * 2048)
    for path in contents(cluster):
        os.truncate(path, LEFT_MIB * MIB)
        write(path, GUEST, LEFT_MIB * MIB)
    cluster.run(ops.OpInstanceShutdown(instance_name=WEB))
    start(cluster)
    assert reach(cluster) == LEFT_MIB * MIB
    check(cluster, LEFT_MIB * MIB)
    with pytest.raises(errors.OpExecError, match="has 12 MiB already.*repair-disk-sizes"):
        cluster.run(grow())
    cluster.run(grow(LEFT_MIB))
    assert disk_of(cluster).size == LEFT_MIB
    check(cluster, LEFT_MIB * MIB)


def test_without_its_peer_a_mirror_says_how_the_growth_is_completed(tmp_path: Path) -> None:
    cluster = fresh(tmp_path / "cluster", "drbd", up=True)
    kernel = cluster.rpc.kernel
    resize = kernel.resize
    kernel.resize = lambda key, sectors: None
    with pytest.raises(errors.OpExecError, match="grow-disk --absolute web.example.com 0 8'"):
        cluster.run(grow())
    kernel.resize = resize
    cluster.run(grow())
    assert reach(cluster) == NEW_MIB * MIB
    check(cluster)


# -- sizes which LVM rounds up -------------------------------------------------------


def extents(monkeypatch: pytest.MonkeyPatch, size_mib: int) -> None:
    monkeypatch.setattr(UsedVolume, "EXTENT_MIB", size_mib)


def move() -> ops.OpInstanceMove:
    return ops.OpInstanceMove(instance_name=WEB, target_node="node2")


def convert(template: str, **options: Any) -> Callable[[], ops.OpInstanceSetParams]:
    return lambda: ops.OpInstanceSetParams(instance_name=WEB, disk_template=template, **options)


@pytest.mark.parametrize(
    "op",
    [move, convert("file"), convert("drbd", remote_node="node2")],
    ids=["move", "file", "drbd"],
)
@pytest.mark.parametrize("target_mib", [4, 12, 16])
def test_what_is_behind_the_configured_size_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: Callable[[], Any], target_mib: int
) -> None:
    extents(monkeypatch, 12)
    cluster = fresh(tmp_path / "cluster", "plain", size_mib=8)
    assert (disk_of(cluster).size, contents(cluster)[0].stat().st_size) == (8, 12 * MIB)
    extents(monkeypatch, target_mib)
    cluster.run(op())
    assert disk_of(cluster).size == 12
    start(cluster)
    check(cluster, 12 * MIB)


def test_another_cluster_gets_disks_of_the_real_size(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = Disk(
        dev_type="plain",
        logical_id=("xenvg", "lv"),
        iv_name="disk/0",
        size=1001,
        nodes=(uuid_of("node1"),),
        uuid=uuid_of("web-disk0"),
        serial_no=1,
    )
    instance = instance_of("web", disks=(volume.uuid,))
    master = Master(cluster_of(2, (instance,), (volume,), enabled_disk_templates=("plain",)))
    monkeypatch.setattr(handshake, "domain_secret", lambda: "secret")
    master.rpc.answers["blockdev_getdimensions"] = [[1024 * MIB, 1]]
    master.rpc.answers["x509_cert_create"] = ["key-1", x509.create_self_signed(validity_days=1)]
    master.run(OpBackupPrepare(instance_name="web", mode="local"))
    assert master.config.disk(volume.uuid).size == 1001
    master.run(OpBackupPrepare(instance_name="web", mode="remote"))
    assert master.config.disk(volume.uuid).size == 1024


def test_new_volumes_are_wiped_up_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extents(monkeypatch, 12)
    cluster = empty(tmp_path / "cluster")
    with cluster.config.transaction() as change:
        change.cluster.update(dataclasses.replace(change.data.cluster, prealloc_wipe_disks=True))
    cluster.run(create("plain", disks=[{"size": 8}]))
    assert contents(cluster)[0].read_bytes() == bytes(12 * MIB)


@pytest.mark.parametrize(
    ("size", "mib"), [(1001, 1004), (1004, 1004), ("1000.5", 1004), ("1.5g", 1536), ("0.1", 4)]
)
def test_every_way_to_give_a_size_makes_the_same_disk(tmp_path: Path, size: Any, mib: int) -> None:
    from ganeti.cli import value_types

    cluster = empty(tmp_path / "cluster")
    cluster.run(create("sharedfile", disks=[{"size": size}]))
    assert disk_of(cluster).size == mib == value_types.parse_size(str(size))


@pytest.mark.parametrize(("amount", "size"), [(10, 16), (12, 16)])
def test_every_way_to_give_an_amount_grows_by_the_same(
    tmp_path: Path, amount: int, size: int
) -> None:
    cluster = fresh(tmp_path / "cluster", "plain")
    cluster.run(ops.OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=amount))
    assert disk_of(cluster).size == size


@pytest.mark.parametrize("size", [0, -4, "4x", "none"])
def test_a_size_which_is_none(tmp_path: Path, size: Any) -> None:
    cluster = empty(tmp_path / "cluster")
    with pytest.raises(errors.OpPrereqError, match="disk 0: "):
        cluster.run(create("sharedfile", disks=[{"size": size}]))
