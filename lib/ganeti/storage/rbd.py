"""Images in a Ceph cluster (disk template ``rbd``).

The ``logical_id`` is ``("rbd", name)``; the pool is a disk parameter. With ``access=kernelspace``
the node maps the image to a block device; with ``access=userspace`` the hypervisor connects to Ceph
itself, and the node still maps the image, for OS scripts.

The functions which build commands and read output are pure. Source: rbd(8).
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.objects import hypervisors
from ganeti.objects.disk import Disk
from ganeti.objects.transfer import BlockDevStatus
from ganeti.storage.base import BlockDevice
from ganeti.utils import fs, process
from ganeti.wire import json

_TIMEOUT_S = 300.0
# Exit codes of rbd are numbers of errors. A missing pool and a missing key are ENOENT, too.
_ABSENT, _PRESENT = errno.ENOENT, errno.EEXIST
_MIB = 1 << 20
_NAME = re.compile(r"^[A-Za-z0-9_.][A-Za-z0-9_.+-]*$")
#: The kernel has a directory for each mapped image here, named by the number of its device.
DEVICES_DIR = "/sys/bus/rbd/devices"
# What rbd prints in place of a snapshot for a mapped image.
_NO_SNAPSHOT = (None, "", "-")
_PLAIN_COLUMNS = 5


def image_argv(verb: Sequence[str], pool: str, name: str, user: str) -> list[str]:
    """Return a command for one image.

    :param verb: ``map``, ``rm`` or the like.
    """
    return ["rbd", *verb, "-p", pool, name, *_user(user)]


def create_argv(pool: str, name: str, size_mib: int, user: str) -> list[str]:
    """Create an image."""
    return ["rbd", "create", "-p", pool, name, "--size", str(size_mib), *_user(user)]


def resize_argv(pool: str, name: str, size_mib: int, user: str) -> list[str]:
    """Change the size of an image."""
    return ["rbd", "resize", "-p", pool, name, "--size", str(size_mib), *_user(user)]


def info_argv(pool: str, name: str, user: str) -> list[str]:
    """Print the size and the features of an image."""
    return ["rbd", "info", "-p", pool, name, "--format", "json", *_user(user)]


def list_argv(pool: str, user: str) -> list[str]:
    """Print the names of all images in a pool."""
    return ["rbd", "ls", "-p", pool, "--format", "json", *_user(user)]


def snapshot_argv(pool: str, name: str, snapshot: str, user: str) -> list[str]:
    """Take a snapshot of an image."""
    return ["rbd", "snap", "create", "-p", pool, name, "--snap", snapshot, *_user(user)]


def unmap_argv(device: str, user: str) -> list[str]:
    """Unmap a device."""
    return ["rbd", "unmap", device, *_user(user)]


def mapped_argv() -> list[str]:
    """Print the mapped images of all pools, as JSON."""
    return ["rbd", "showmapped", "--format", "json"]


def mapped_plain_argv(pool: str) -> list[str]:
    """Print the mapped images of a pool, for versions of the program without JSON."""
    return ["rbd", "showmapped", "-p", pool]


def _user(user: str) -> list[str]:
    return ["--id", user] if user else []


def parse_mapped(text: str, pool: str, name: str) -> str | None:
    """Find the device of an image in the output of :func:`mapped_argv`.

    Old versions print an object with a member for each device, newer ones a list. A snapshot of the
    image, and an image of that name in a namespace of the pool, are other images.

    :returns: None when the image is not mapped.
    :raises SeveralDevices: the image is mapped more than once.
    :raises ParseError: the text is not such output.
    """
    found = json.loads(text)
    rows = list(found.values()) if isinstance(found, dict) else found
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise errors.ParseError(f"expected a list of mapped images, found {text[:80]!r}")
    devices = []
    for row in rows:
        is_whole = row.get("snap") in _NO_SNAPSHOT and not row.get("namespace")
        if not is_whole or (row.get("pool"), row.get("name")) != (pool, name):
            continue
        device = row.get("device")
        if not isinstance(device, str) or not device:
            raise errors.ParseError(f"image {name} is mapped, but its device is not named")
        devices.append(device)
    return _only(devices, name)


def parse_mapped_plain(text: str, pool: str, name: str) -> str | None:
    """Find the device of an image in the output of :func:`mapped_plain_argv`.

    The columns are ``id pool image snap device``, in newer versions with a namespace after the
    pool, which is empty for most images. See :func:`parse_mapped` for what counts.

    :returns: None when the image is not mapped.
    :raises SeveralDevices: the image is mapped more than once.
    :raises ParseError: the text is not such output.
    """
    devices = []
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if lines and lines[0][0] == "id":
        lines = lines[1:]
    for row in lines:
        if len(row) < _PLAIN_COLUMNS or (len(row) > _PLAIN_COLUMNS + 1 and name in row):
            raise errors.ParseError(f"expected a mapped image, found {' '.join(row)!r:.80}")
        if [*row[1:-3], *row[-3:-1]] == [pool, name, "-"]:
            devices.append(row[-1])
    return _only(devices, name)


def _only(devices: list[str], name: str) -> str | None:
    if len(devices) > 1:
        raise SeveralDevices(name, devices)
    return devices[0] if devices else None


def uri(pool: str, name: str, user: str) -> str:
    """Return the URI by which QEMU opens an image."""
    return f"rbd:{pool}/{name}{f':id={user}' if user else ''}"


class SeveralDevices(errors.ParseError):
    """An image is mapped more than once, so that its device is not clear."""

    def __init__(self, name: str, devices: Sequence[str]) -> None:
        super().__init__(f"image {name} has several devices: {', '.join(devices)}")
        self.devices = tuple(devices)


class RbdDevice(BlockDevice):
    """A disk which is an image in a pool of a Ceph cluster."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        fields: tuple[Any, ...] = tuple(disk.logical_id)
        params = disk.params or {}
        self.name = str(fields[-1]) if fields else ""
        self._pool = str(params.get("pool", "rbd"))
        self._user = str(params.get("user-id", "") or "")
        for value in (self.name, self._pool):
            if len(fields) != 2 or not _NAME.fullmatch(value):
                raise self.wrong(
                    f"id {list(fields)} in pool {self._pool!r} is not the name of an image"
                )

    @property
    def path(self) -> str:
        """The block device to which the image is mapped; empty while it is not mapped."""
        return self._mapped() or ""

    @property
    def unique_id(self) -> str:
        """Pool and name."""
        return f"{self._pool}/{self.name}"

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Create the image; Ceph refuses this for an image which exists."""
        command = create_argv(self._pool, self.name, size_mib, self._user)
        try:
            done = process.run(command, timeout_s=_TIMEOUT_S, check=False)
        except errors.CommandError as err:
            problem = str(err)
        else:
            if not done.failed:
                return
            problem = done.problem
            if done.exit_code == _PRESENT:
                raise self.fail("the image exists already, and will not be overwritten")
        # Whether the command made an image before it failed is not known.
        raise errors.DeviceCreationError(
            f"device {self.unique_id}: cannot be created: {problem}", [self.unique_id]
        )

    def remove(self) -> None:
        """Unmap and destroy the image; one which is surely absent is not an error."""
        self.shutdown()
        if self._exists_in_pool():
            command = image_argv(["rm"], self._pool, self.name, self._user)
            self.until_free(lambda: self._try(command, "cannot be removed"))

    def exists(self) -> bool:
        """Return True if the image exists or is mapped; absent is only what Ceph does not list.

        :raises BlockDeviceError: Ceph cannot be asked, has no such pool, or lists an image which
            cannot be opened.
        """
        return self._mapped() is not None or self._exists_in_pool()

    def _exists_in_pool(self) -> bool:
        if self._info() is not None:
            return True
        # Only a list of the images shows that Ceph was asked, and that the pool is there.
        done = self._run(
            list_argv(self._pool, self._user), "it is not known whether it exists: its pool"
        )
        try:
            names = json.loads(done.stdout)
        except errors.ParseError as err:
            raise self.fail(f"the output of rbd ls is not JSON: {err}") from err
        if not isinstance(names, list):
            raise self.fail(f"the output of rbd ls is not a list: {done.stdout[:80]!r}")
        if self.name in names:
            raise self.fail("cannot be opened, but its pool lists it")
        return False

    def assemble(self) -> None:
        """Map the image, if it is not mapped.

        :raises BlockDeviceError: it cannot be mapped, or another image of that name is mapped.
        """
        device = self._mapped()
        if device is not None:
            self._require_this_image(device)
            return
        self._run(image_argv(["map"], self._pool, self.name, self._user), "cannot be mapped")
        if self._mapped() is None:
            raise self.fail("was mapped, but has no device")

    def _require_this_image(self, device: str) -> None:
        """Check that a device which was mapped before is this image.

        An image of another Ceph cluster, and one that is no longer there, may have the same name.

        :raises BlockDeviceError: the kernel has another image.
        """
        number = os.path.basename(device).removeprefix("rbd")
        try:
            mapped_id = fs.read_file(f"{DEVICES_DIR}/{number}/image_id")
        except OSError:
            return  # Kernels before 3.9 do not say it.
        info = self._info()
        wanted_id = info.get("id") if info is not None else None
        # Images of format 1 have no ID.
        if wanted_id and mapped_id.strip() not in ("", wanted_id):
            raise self.fail(
                f"another image of that name is mapped to {device}, of another Ceph cluster or one"
                f" that was removed. Find out who uses it, then use 'rbd unmap {device}'."
            )

    def shutdown(self) -> None:
        """Unmap the image."""
        device = self._mapped()
        if device is not None:
            command = unmap_argv(device, self._user)
            self.until_free(lambda: self._try(command, "cannot be unmapped"))

    def _try(self, command: list[str], problem: str) -> errors.BlockDeviceError | None:
        """Run a command which something may hinder that has the image open.

        :returns: the error while the image has watchers, or its device is open.
        :raises BlockDeviceError: it fails for another reason.
        """
        try:
            done = process.run(command, timeout_s=_TIMEOUT_S, check=False)
        except errors.CommandError as err:
            raise self.fail(f"{problem}: {err}") from err
        if not done.failed:
            return None
        failure = self.fail(f"{problem}: {done.problem}")
        if done.exit_code != errno.EBUSY:
            raise failure
        return failure

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Resize the image."""
        if backing_store and not dry_run:
            size_mib = -(-self.size_bytes() // _MIB) + amount_mib
            self._run(
                resize_argv(self._pool, self.name, size_mib, self._user),
                f"cannot grow by {amount_mib} MiB",
            )

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Refuse: images keep their names.

        :raises BlockDeviceError: always.
        """
        raise self.fail(f"disks of type '{disk_constants.RBD}' cannot be renamed")

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        """Take a snapshot, which Ceph keeps with the image."""
        self._run(snapshot_argv(self._pool, self.name, name, self._user), "cannot take a snapshot")
        return (disk_constants.RBD, f"{self.name}@{name}")

    def size_bytes(self) -> int:
        """Return the size of the image in bytes."""
        info = self._info()
        if info is None:
            raise self.fail("does not exist")
        return int(info["size"])

    def sync_status(self) -> BlockDevStatus:
        """Always in sync: Ceph synchronises its copies itself."""
        device = self.path
        number = os.stat(device).st_rdev if device and os.path.exists(device) else None
        return self.in_sync(device, number)

    def uri(self, hypervisor: str) -> str | None:
        """Return the URI by which the hypervisor opens the disk itself.

        The result is None for a device of the kernel.

        :raises BlockDeviceError: the hypervisor cannot do that.
        """
        if (self.disk.params or {}).get("access") != disk_constants.USERSPACE:
            return None
        if not hypervisors.of(hypervisor).opens_disk_uris:
            raise self.fail(f"hypervisor {hypervisor} cannot reach it without the kernel")
        return uri(self._pool, self.name, self._user)

    def _mapped(self) -> str | None:
        try:
            done = process.run(mapped_argv(), timeout_s=_TIMEOUT_S, check=False)
            if not done.failed:
                try:
                    return parse_mapped(done.stdout or "{}", self._pool, self.name)
                except SeveralDevices:
                    raise
                except errors.ParseError as err:
                    logging.debug("rbd showmapped without JSON: %s", err)
            plain = process.run(mapped_plain_argv(self._pool), timeout_s=_TIMEOUT_S)
            return parse_mapped_plain(plain.stdout, self._pool, self.name)
        except (errors.CommandError, errors.ParseError) as err:
            raise self.fail(f"cannot find out whether it is mapped: {err}") from err

    def _info(self) -> dict[str, Any] | None:
        """Return the facts about the image.

        The result is None when the program reports that something does not exist.
        """
        done = self._run(info_argv(self._pool, self.name, self._user), "", check=False)
        if done.failed:
            if done.exit_code == _ABSENT:
                return None
            raise self.fail(f"cannot be examined: {done.problem}")
        try:
            found = json.loads(done.stdout)
        except errors.ParseError as err:
            raise self.fail(f"the output of rbd info is not JSON: {err}") from err
        if not isinstance(found, dict) or not isinstance(found.get("size"), int):
            raise self.fail(f"the output of rbd info has no size: {done.stdout[:80]!r}")
        return found

    def _run(self, argv: list[str], problem: str, *, check: bool = True) -> process.Completed:
        try:
            return process.run(argv, timeout_s=_TIMEOUT_S, check=check)
        except errors.CommandError as err:
            raise self.fail(f"{problem}: {err}") from err
