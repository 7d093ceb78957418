"""Files on a Gluster volume (disk template ``gluster``).

The ``logical_id`` is ``(driver, path)`` with a path relative to the volume; host, port and volume
are disk parameters. Each volume is mounted on a directory below the cluster's directory for Gluster
volumes. With ``access=userspace`` the hypervisor connects to the servers itself, and only OS
scripts use the mount. A volume stays mounted, because other disks may be on it.

The functions which build commands are pure. Source: mount.glusterfs(8).
"""

from __future__ import annotations

import ipaddress
import os
import posixpath
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.constants import ssconf
from ganeti.objects import hypervisors
from ganeti.objects.disk import Disk
from ganeti.objects.transfer import BlockDevStatus
from ganeti.platform import machine, paths
from ganeti.storage.base import BlockDevice
from ganeti.storage.file import FileDevice
from ganeti.utils import fs, net, process

_TIMEOUT_S = 120.0
_VOLUME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")


def mount_argv(address: str, port: int, volume: str, mount_point: str) -> list[str]:
    """Mount a volume."""
    return [
        "mount",
        "-t",
        "glusterfs",
        "-o",
        f"server-port={port}",
        f"{address}:/{volume}",
        mount_point,
    ]


def uri(address: str, port: int, volume: str, path: str) -> str:
    """Return the URI by which QEMU opens a file on a volume."""
    host = f"[{address}]" if ":" in address else address
    return f"gluster://{host}:{port}/{volume}/{path}"


class Volume:
    """A Gluster volume, which this node mounts.

    :param base: local directory below which volumes are mounted.
    :param host: a server, by name or by address.
    :raises BlockDeviceError: the name of the volume is not valid, or the server has no address.
    """

    def __init__(self, host: str, port: int, volume: str, base: str) -> None:
        if not _VOLUME.fullmatch(volume):
            raise errors.BlockDeviceError(f"{volume!r:.80} is not the name of a Gluster volume")
        self.port = port
        self.name = volume
        try:
            addresses = machine.current().addresses(host)
        except errors.ResolverError as err:
            raise errors.BlockDeviceError(
                f"Gluster volume {volume}: server {host} has no address now: {err}"
            ) from err
        self.address = self._mounted_by(addresses, base) or addresses[0]
        self.mount_point = self._place(base, self.address)

    def _place(self, base: str, address: str) -> str:
        return f"{base}/{address}:{self.port}.{self.name}"

    def _mounted_by(self, addresses: Sequence[str], base: str) -> str | None:
        """Return the address below which the volume is mounted already.

        A name may have several addresses in turns, and an address several spellings. A second mount
        of the same volume would give the disks of running guests other paths.
        """
        same = {ipaddress.ip_address(address) for address in addresses}
        end = f":{self.port}.{self.name}"
        for name in fs.list_visible(base) if os.path.isdir(base) else ():
            address = name.removesuffix(end)
            if address == name or not net.is_ip(address):
                continue
            if ipaddress.ip_address(address) in same and os.path.ismount(f"{base}/{name}"):
                return address
        return None

    def mounted(self) -> bool:
        """Return True if the volume is mounted."""
        return os.path.ismount(self.mount_point)

    def mount(self) -> None:
        """Mount the volume, if it is not mounted.

        :raises BlockDeviceError: it cannot be mounted.
        """
        if self.mounted():
            return
        try:
            fs.make_dirs(self.mount_point, 0o750)
            process.run(
                mount_argv(self.address, self.port, self.name, self.mount_point),
                timeout_s=_TIMEOUT_S,
            )
        except (OSError, errors.CommandError) as err:
            raise errors.BlockDeviceError(
                f"Gluster volume {self.name} of {self.address} cannot be mounted: {err}"
            ) from err
        if not self.mounted():
            raise errors.BlockDeviceError(
                f"Gluster volume {self.name} of {self.address} was mounted on {self.mount_point},"
                " but nothing is mounted there"
            )


class _MountedFile(FileDevice):
    """A file in a mounted volume, to which the list of allowed directories does not apply."""

    HAS_SNAPSHOTS = False

    def __init__(self, disk: Disk, path: str) -> None:
        BlockDevice.__init__(self, disk)
        self._path = path

    def _require_storage(self, directory: str) -> None:
        """Do nothing: the volume is mounted, and directories on it are made with the first file."""


class GlusterDevice(BlockDevice):
    """A file on a Gluster volume."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        fields: tuple[Any, ...] = tuple(disk.logical_id)
        if len(fields) != 2 or not isinstance(fields[1], str):
            raise self.wrong(f"id {list(fields)} is not [driver, path]")
        self._relative = fields[1]
        if (
            posixpath.isabs(self._relative)
            or posixpath.normpath(self._relative) != self._relative
            or self._relative.startswith("..")
        ):
            raise self.wrong(f"{self._relative!r} is not a path within a volume")
        params = disk.params or {}
        self._volume = Volume(
            str(params.get("host", "127.0.0.1")),
            int(params.get("port", 24007)),
            str(params.get("volume", "gv0")),
            _base_dir(),
        )

    @property
    def path(self) -> str:
        """The file in the mounted volume."""
        return f"{self._volume.mount_point}/{self._relative}"

    @property
    def unique_id(self) -> str:
        """Volume and path."""
        return f"{self._volume.name}/{self._relative}"

    def _file(self) -> FileDevice:
        self._volume.mount()
        return _MountedFile(self.disk, self.path)

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Create a sparse file, and its directory."""
        file = self._file()
        try:
            fs.make_dirs(os.path.dirname(self.path), 0o750)
        except OSError as err:
            raise self.fail("cannot create its directory", err) from err
        file.create(size_mib, exclusive=exclusive)

    def remove(self) -> None:
        """Remove the file."""
        self._file().remove()

    def exists(self) -> bool:
        """Return True if the file exists on the mounted volume.

        :raises BlockDeviceError: the volume cannot be mounted, or the file cannot be examined.
        """
        return self._file().exists()

    def assemble(self) -> None:
        """Mount the volume, and check that the file exists."""
        self._file().assemble()

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Make the file larger."""
        self._file().grow(amount_mib, dry_run=dry_run, backing_store=backing_store)

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Rename the file within its volume."""
        target = GlusterDevice(replace(self.disk, logical_id=tuple(new_id)))
        self._volume.mount()
        if target.path == self.path:
            return
        if os.path.lexists(target.path):
            raise self.fail(f"cannot be renamed to {target.path}, which exists")
        try:
            fs.make_dirs(os.path.dirname(target.path), 0o750)
            os.rename(self.path, target.path)
        except OSError as err:
            raise self.fail(f"cannot be renamed to {target.path}", err) from err
        self.disk, self._relative = target.disk, target._relative  # noqa: SLF001  (same class)

    def size_bytes(self) -> int:
        """Length of the file in bytes."""
        return self._file().size_bytes()

    def sync_status(self) -> BlockDevStatus:
        """In sync when the file exists: Gluster synchronises its copies itself."""
        return self._file().sync_status()

    def uri(self, hypervisor: str) -> str | None:
        """Return the URI by which the hypervisor opens the disk itself; None for a file in a mount.

        :raises BlockDeviceError: the hypervisor cannot do that.
        """
        if (self.disk.params or {}).get("access") != disk_constants.USERSPACE:
            return None
        if not hypervisors.of(hypervisor).opens_disk_uris:
            raise self.fail(f"hypervisor {hypervisor} cannot reach it without the kernel")
        volume = self._volume
        return uri(volume.address, volume.port, volume.name, self._relative)


def _base_dir() -> str:
    """Return the local path of the cluster's directory for Gluster volumes.

    :raises BlockDeviceError: there is none, or it cannot be read.
    """
    here = paths.current()
    try:
        found = fs.read_file(here.ssconf_file(ssconf.GLUSTER_STORAGE_DIR)).strip()
    except OSError as err:
        raise errors.BlockDeviceError(
            f"cannot read the cluster's directory for Gluster volumes: {err.strerror}"
        ) from err
    if not found:
        raise errors.BlockDeviceError("the cluster has no directory for Gluster volumes")
    return here.to_local(found)
