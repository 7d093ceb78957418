"""Logical volumes and mirrored disks for :mod:`fakes.node_side`, without LVM and without DRBD.

Volumes are files below ``<node>/lvm``. For mirrored disks the real driver
(:mod:`ganeti.storage.drbd.device`) gives its commands to a made-up kernel, which knows the minors
of all nodes and behaves like the real one where it matters here: replicas connect when both look
for each other with the same secret; data are copied from the newer replica; a replica which was
written to while it was alone is newer; two of these are a split brain and leave each other, which
:attr:`Kernel.split` remembers. Copying takes no time.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fakes import node_side
from ganeti import errors, storage
from ganeti.constants import disk as disk_c
from ganeti.objects import Disk, FilledInstance, Instance, fill, snapshots
from ganeti.objects.transfer import BlockDevStatus
from ganeti.platform import paths
from ganeti.storage.base import BlockDevice
from ganeti.storage.drbd import device, leftover, parse, status
from ganeti.storage.drbd.argv import Endpoint, NetOptions
from ganeti.storage.drbd.parse import MinorConfig, MinorState
from ganeti.utils.process import Completed

LVM = "lvm"
_MIB = 1 << 20


def _root() -> str:
    return paths.current().root


class Volume(BlockDevice):
    """A logical volume that is a file."""

    @property
    def path(self) -> str:
        return "/".join((_root(), LVM, *map(str, self.disk.logical_id)))

    @property
    def unique_id(self) -> str:
        return "/".join(map(str, self.disk.logical_id))

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        try:
            with open(self.path, "xb") as stream:
                stream.truncate(size_mib * _MIB)
        except FileExistsError as err:
            raise self.fail("the volume exists already") from err

    def remove(self) -> None:
        for minor in Replica.kernel.minors.values():
            if self.path in (minor.data, minor.meta):
                raise self.fail("is in use")
        for path in (*self._snapshots(), Path(self.path)):
            path.unlink(missing_ok=True)

    def _snapshots(self) -> list[Path]:
        own = Path(self.path)
        return sorted(own.parent.glob(f"{own.name}{snapshots.SEPARATOR}*"))

    def kept_snapshots(self) -> list[snapshots.SnapshotInfo]:
        start = len(Path(self.path).name + snapshots.SEPARATOR)
        return [
            snapshots.SnapshotInfo(path.name[start:], path.stat().st_size, None, True)
            for path in self._snapshots()
        ]

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def assemble(self) -> None:
        if not self.exists():
            raise self.fail("does not exist")

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        if self._snapshots():
            raise self.fail("cannot grow while it has snapshots")
        if backing_store and not dry_run:
            os.truncate(self.path, self.size_bytes() + amount_mib * _MIB)

    def rename(self, new_id: tuple[object, ...]) -> None:
        new = Volume(dataclasses.replace(self.disk, logical_id=new_id))
        if new.exists():
            if self.exists():
                raise self.fail(f"cannot be renamed to {new.unique_id}, which exists")
            return  # it was renamed already, as the driver of LVM finds out, too
        self.assemble()
        os.rename(self.path, new.path)
        self.disk = new.disk

    def size_bytes(self) -> int:
        self.assemble()
        return os.stat(self.path).st_size

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        new = (self.disk.logical_id[0], name)
        shutil.copyfile(self.path, Volume(dataclasses.replace(self.disk, logical_id=new)).path)
        return new

    def sync_status(self) -> BlockDevStatus:
        return BlockDevStatus(dev_path=self.path, is_degraded=False, ldisk_status=disk_c.LDS_OKAY)


@dataclasses.dataclass
class Minor:
    """One replica, as the kernel of its node has it."""

    data: str | None = None
    meta: str | None = None
    local: Endpoint | None = None
    remote: Endpoint | None = None
    net: NetOptions | None = None
    primary: bool = False


class Kernel:
    """The minors of all nodes, by root directory and number.

    What is valid is written in the metadata: the generations of the data, newest first; none means
    that they are not valid.
    """

    def __init__(self) -> None:
        self.minors: dict[tuple[str, int], Minor] = {}
        self.split: list[str] = []
        #: Minors which guests have open.
        self.held: set[tuple[str, int]] = set()

    # -- looking -------------------------------------------------------------------

    def peer(self, key: tuple[str, int]) -> tuple[tuple[str, int], Minor] | None:
        """The replica with which one is connected."""
        own = self.minors[key]
        if own.local is None or own.net is None:
            return None
        for other, minor in self.minors.items():
            if (
                other != key
                and (minor.local, minor.remote) == (own.remote, own.local)
                and minor.net is not None
                and minor.net.secret == own.net.secret
            ):
                return other, minor
        return None

    def _disk(self, minor: Minor) -> str:
        if minor.meta is None:
            return parse.DISKLESS
        return parse.UP_TO_DATE if self._known(minor.meta) else "Inconsistent"

    def _known(self, meta: str) -> list[str]:
        with open(meta, "rb") as stream:
            return stream.read(4096).rstrip(b"\0").decode().split()

    def state(self, key: tuple[str, int]) -> MinorState | None:
        own = self.minors.get(key)
        if own is None:
            return None
        found = self.peer(key)
        connection = (
            parse.STANDALONE
            if own.local is None
            else ("WFConnection" if found is None else parse.CONNECTED)
        )
        return MinorState(
            minor=key[1],
            connection=connection,
            local_role=parse.PRIMARY if own.primary else "Secondary",
            remote_role=""
            if found is None
            else (parse.PRIMARY if found[1].primary else "Secondary"),
            local_disk=self._disk(own),
            remote_disk="" if found is None else self._disk(found[1]),
        )

    # -- commands ------------------------------------------------------------------

    def connect_replicas(self, key: tuple[str, int]) -> None:
        """What happens when two replicas are connected, or one of them gets storage."""
        found = self.peer(key)
        if found is None:
            return
        own, other = self.minors[key], found[1]
        assert own.net is not None and other.net is not None
        if own.net.dual_primary != other.net.dual_primary:
            self._part(own, other)
            return
        if own.primary and other.primary and not own.net.dual_primary:
            self.split.append(f"minor {key[1]} of {os.path.basename(key[0])}")
            self._part(own, other)
            return
        if own.meta is None or other.meta is None:
            return
        mine, theirs = self._known(own.meta), self._known(other.meta)
        if mine == theirs:
            return
        if not theirs or (mine and theirs[0] in mine):
            self._copy(own, other)
        elif not mine or mine[0] in theirs:
            self._copy(other, own)
        else:
            self.split.append(f"minor {key[1]} of {os.path.basename(key[0])}")
            self._part(own, other)

    def _part(self, *replicas: Minor) -> None:
        for replica in replicas:
            replica.local = replica.remote = replica.net = None
            self._alone(replica)

    def _alone(self, replica: Minor) -> None:
        """What a replica writes now, the other will not have."""
        if replica.primary and replica.meta is not None and self._known(replica.meta):
            note(replica.meta, [str(uuid.uuid4()), *self._known(replica.meta)])

    def _copy(self, source: Minor, target: Minor) -> None:
        assert source.data and source.meta and target.data and target.meta
        _copied(source.data, target.data)
        note(target.meta, self._known(source.meta))

    def replicate(self) -> None:
        """Let what was written since arrive at the other replicas."""
        for key, minor in self.minors.items():
            found = self.peer(key)
            if found and minor.primary and not found[1].primary and minor.meta and found[1].meta:
                self.connect_replicas(key)
                if self.peer(key) and self._known(minor.meta):
                    assert minor.data and found[1].data
                    _copied(minor.data, found[1].data)

    def connect(
        self, key: tuple[str, int], local: Endpoint, remote: Endpoint, net: NetOptions
    ) -> None:
        minor = self.minors.setdefault(key, Minor())
        minor.local, minor.remote, minor.net = local, remote, net
        self.connect_replicas(key)

    def attach(self, key: tuple[str, int], data: str, meta: str) -> None:
        minor = self.minors.setdefault(key, Minor())
        minor.data, minor.meta = data, meta
        self.connect_replicas(key)

    def disconnect(self, key: tuple[str, int]) -> None:
        found = self.peer(key)
        own = self.minors[key]
        own.local = own.remote = own.net = None
        self._alone(own)
        if found is not None:
            self._alone(found[1])

    def open(self, key: tuple[str, int], *, force: bool) -> None:
        own, found = self.minors[key], self.peer(key)
        if found and found[1].primary and not (own.net and own.net.dual_primary):
            raise errors.BlockDeviceError("the other replica is writable")
        if own.meta is not None and not self._known(own.meta) and force:
            note(own.meta, [str(uuid.uuid4())])
        valid = [
            replica
            for replica in (own, *([found[1]] if found else []))
            if replica.meta is not None and self._known(replica.meta)
        ]
        if not valid:
            raise errors.BlockDeviceError("there are no valid data")
        own.primary = True
        if found is None:
            self._alone(own)
        self.connect_replicas(key)

    def detach(self, key: tuple[str, int]) -> None:
        self.minors[key].data = self.minors[key].meta = None

    def close(self, key: tuple[str, int]) -> None:
        self._require_free(key)
        self.minors[key].primary = False

    def down(self, key: tuple[str, int]) -> None:
        if key in self.minors:
            self._require_free(key)
            self.minors[key].primary = False
            self.disconnect(key)
            del self.minors[key]

    def take_down(self, path: str) -> bool:
        """As :func:`ganeti.storage.drbd.leftover.take_down`."""
        for key, minor in list(self.minors.items()):
            if path in (minor.data, minor.meta):
                self.down(key)
                return True
        return False

    def _require_free(self, key: tuple[str, int]) -> None:
        if key in self.held:
            raise errors.BlockDeviceError("it is held open by somebody")


def note(meta: str, generations: Sequence[str]) -> None:
    """Write down of which generations the data are, as many as a small file holds."""
    with open(meta, "r+b") as stream:
        stream.write("\n".join(generations[:100]).encode().ljust(4096, b"\0"))


def _copied(source: str, target: str) -> None:
    content = Path(source).read_bytes()
    if Path(target).read_bytes()[: len(content)] != content:
        with open(target, "r+b") as stream:
            stream.write(content)


class _Commands:
    """Commands as the kernel above takes them: a list with its method and its arguments."""

    resource = None

    def make(self) -> list[list[Any]]:
        return []

    def attach(self, data: str, meta: str, size_mib: int | None, params: Any) -> list[list[Any]]:
        return [["attach", data, meta]]

    def connect(self, local: Endpoint, remote: Endpoint, net: NetOptions) -> list[list[Any]]:
        return [["connect", local, remote, net]]

    def disconnect(self, local: Endpoint, remote: Endpoint) -> list[Any]:
        return ["disconnect"]

    def primary(self, *, force: bool) -> list[Any]:
        return ["open", force]

    def secondary(self) -> list[Any]:
        return ["close"]

    def down(self, resource: str | None = None) -> list[Any]:
        return ["down"]

    def detach(self) -> list[Any]:
        return ["detach"]

    def nothing(self, *_args: Any) -> list[Any]:
        return ["nothing"]

    #: What makes no difference here.
    sync_options = pause_sync = resume_sync = resize = nothing


class Replica(device.DrbdDevice):
    """The real driver above the made-up kernel."""

    kernel: Kernel

    @property
    def path(self) -> str:
        return f"{_root()}/drbd{self.minor}"

    @property
    def _key(self) -> tuple[str, int]:
        return _root(), self.minor

    def _commands(self) -> Any:
        return _Commands()

    def _write_metadata(self, meta_path: str) -> None:
        note(meta_path, [])

    def remove(self) -> None:
        super().remove()
        Path(self.path).unlink(missing_ok=True)

    def shutdown(self) -> None:
        super().shutdown()
        Path(self.path).unlink(missing_ok=True)

    def _configuration(self) -> MinorConfig:
        own = self.kernel.minors[self._key]
        return MinorConfig(
            minor=self.minor,
            data_device=own.data,
            meta_device=own.meta,
            local_address=None if own.local is None else (own.local.address, own.local.port),
            remote_address=None if own.remote is None else (own.remote.address, own.remote.port),
            secret=None if own.net is None else own.net.secret,
            dual_primary=bool(own.net and own.net.dual_primary),
        )

    def _run(self, words: Sequence[Any], problem: str, *, check: bool = True) -> Completed:
        verb, *args = words
        self.kernel.replicate()
        try:
            if verb == "open":
                self.kernel.open(self._key, force=args[0])
            elif verb != "nothing":
                getattr(self.kernel, verb)(self._key, *args)
        except errors.BlockDeviceError as err:
            if check:
                raise self.fail(f"{problem}: {err}") from err
        own = self.kernel.minors.get(self._key)
        if own is not None and own.data is not None:
            # Who opens the device finds the data.
            Path(self.path).unlink(missing_ok=True)
            os.symlink(own.data, self.path)
        return Completed((), 0, "", "", None)


class MirrorConfig(node_side.MortalConfig):
    """Fills in what each node has of a mirrored disk."""

    aim: str | None = None

    def annotated_disk(self, disk: Disk, instance: Instance | FilledInstance) -> Disk:
        return self._aimed(super().annotated_disk(disk, instance))

    def filled_instance(self, instance: Instance, **overrides: Any) -> FilledInstance:
        filled = super().filled_instance(instance, **overrides)
        return dataclasses.replace(
            filled, disks_info=tuple(self._aimed(disk) for disk in filled.disks_info)
        )

    def _aimed(self, disk: Disk) -> Disk:
        if disk.dev_type != disk_c.DRBD8 or self.aim is None:
            return disk
        return fill.for_node(disk, self.aim, self.snapshot())


class MirrorNodeSide(node_side.NodeSide):
    """Nodes with volumes and mirrored disks."""

    def __init__(self, config: MirrorConfig, directory: Path) -> None:
        super().__init__(config, directory)
        self.kernel = Kernel()
        for node in config.nodes():
            (self.root(node.name) / LVM / "xenvg").mkdir(parents=True)

    def _one(self, call: Any, uuid: str, args: dict[str, Any]) -> Any:
        self.config.aim = uuid  # type: ignore[attr-defined]
        Replica.kernel = self.kernel
        return super()._one(call, uuid, args)

    def _answer(self, call: Any, node_name: str, args: dict[str, Any]) -> Any:
        result = super()._answer(call, node_name, args)
        if result.failure is None:
            self._hold(call.name, str(self.root(node_name)), args)
        return result

    def _hold(self, call: str, root: str, args: dict[str, Any]) -> None:
        """Guests have their disks open while they run."""
        held = self.kernel.held
        instance = args.get("instance")
        disks = getattr(instance, "disks_info", ())
        if call == "hotplug_device" and args["dev_type"] == "disk":
            disks = [args["device"]]
        mine = {(root, (disk.dynamic_params or {}).get(device.LOCAL_MINOR)) for disk in disks}
        if call in ("instance_start", "instance_finalize_migration_dst") and args.get(
            "success", True
        ):
            held |= mine
        elif call == "hotplug_device":
            held.update(mine) if args["action"] == "hotadd" else held.difference_update(mine)
        elif call in ("instance_shutdown", "instance_finalize_migration_src"):
            held -= mine

    def _node_info(self, storage_units: Any, hv_specs: Any) -> list[Any]:
        boot, _units, facts = super()._node_info(storage_units, hv_specs)
        return [
            boot,
            [
                {"type": unit[0], "name": unit[1], "storage_free": 9999, "storage_size": 9999}
                for unit in storage_units or ()
            ],
            facts,
        ]

    def stored(self) -> set[str]:
        found = super().stored()
        for node in self.config.nodes():
            top = self.root(node.name) / LVM
            found |= {
                f"{node.name.split('.')[0]}:{path.relative_to(top)}"
                for path in top.rglob("*")
                if path.is_file()
            }
        return found

    def recorded(self) -> set[str]:
        names = {node.uuid: node.name.split(".")[0] for node in self.config.nodes()}
        found = set(
            self.recorded_files(
                disk
                for disk in self.config.snapshot().disks.values()
                if disk.dev_type not in (disk_c.PLAIN, disk_c.DRBD8)
            )
        )
        for disk in self.config.snapshot().disks.values():
            found |= {
                f"{names[node]}:{'/'.join(map(str, part.logical_id))}"
                for part in disk.walk()
                if part.dev_type == disk_c.PLAIN
                for node in part.nodes
            }
        return found

    def active(self) -> set[tuple[str, int]]:
        """Node and number of all minors which are in use."""
        return {
            (os.path.basename(root).split(".")[0], number) for root, number in self.kernel.minors
        }


def install(monkeypatch: Any) -> None:
    """Let nodes of this test have these devices."""
    monkeypatch.setattr(node_side, "NodeSide", MirrorNodeSide)
    monkeypatch.setattr(node_side, "MortalConfig", MirrorConfig)
    monkeypatch.setitem(storage._CLASSES, disk_c.PLAIN, ("fakes.mirror", "Volume"))
    monkeypatch.setattr(device, "DrbdDevice", Replica)
    monkeypatch.setattr(status, "loaded", lambda: True)
    monkeypatch.setattr(status, "minor", lambda number: Replica.kernel.state((_root(), number)))
    monkeypatch.setattr(leftover, "take_down", lambda path: Replica.kernel.take_down(path))
    # Nothing here gets better by waiting.
    for name in ("_CONNECT_S", "_DISCONNECT_S"):
        monkeypatch.setattr(device, name, 0.0)
    from ganeti.backend.storage import drbd

    monkeypatch.setattr(drbd, "_CONNECT_S", 0.0)
