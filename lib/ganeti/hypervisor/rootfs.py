"""A root file system for the node's own kernel: what is on a disk, and the command which mounts it.

The disk is a block device, a file, or a directory. It holds one file system, or partitions, of
which the first one counts. Nothing here mounts it: a container runs the command as a hook in its
own mount namespace, so that the kernel takes the mount and its loop device away with the container.

Source: mount(8), *loop-device support*; blkid(8); partx(8).
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
import stat
from collections.abc import Sequence
from typing import NamedTuple

from ganeti import errors
from ganeti.hypervisor.base import AttachedDisk
from ganeti.utils import fs, process, retry

_TIMEOUT_S = 60.0
# What blkid(8) says when it finds nothing.
_NOTHING_FOUND = 2
PROGRAMS = ("mount", "blkid", "partx")

_POLL = (0.005, 1.5, 0.2)


class NoFileSystem(errors.HypervisorError):
    """There is no file system on a disk, or none which the kernel could mount."""


class Partition(NamedTuple):
    """A partition; numbers of bytes."""

    start: int
    size: int


def only_disk(instance_name: str, disks: Sequence[AttachedDisk]) -> AttachedDisk:
    """Return the disk with the root file system, which is the only one of an instance.

    :raises HypervisorError: there are more or none, or it has no device on this node.
    """
    if len(disks) != 1:
        raise errors.HypervisorError(
            f"instance {instance_name} has {len(disks)} disks. It must have one, with its root file"
            " system."
        )
    require_devices(instance_name, disks)
    return disks[0]


def require_devices(instance_name: str, disks: Sequence[AttachedDisk]) -> None:
    """Check that the kernel of the node can use all disks.

    :raises HypervisorError: one has no device on this node.
    """
    for disk in disks:
        if disk.uri is not None:
            raise errors.HypervisorError(
                f"instance {instance_name}: the kernel cannot use the disk {disk.uri}. Set the disk"
                " parameter access to kernelspace."
            )


def mount_argv(path: str, target: str) -> list[str]:
    """Return the command which mounts the root file system.

    :param path: of the disk.
    :param target: the directory on which it is to be mounted.
    :raises NoFileSystem: there is none on the disk.
    :raises HypervisorError: the disk cannot be read.
    """
    program = shutil.which("mount", path=process.DEFAULT_PATH)
    if program is None:
        raise errors.HypervisorError("the program mount is missing (package mount)")
    try:
        mode = os.stat(path).st_mode
    except OSError as err:
        raise errors.HypervisorError(f"disk {path} cannot be used: {err.strerror}") from err
    if stat.S_ISDIR(mode):
        return [program, "--bind", "--", path, target]
    found = _probe(path)
    # The node opens no device which is described on the disk; the container has a /dev of its own.
    options = ["nodev"]
    if "TYPE" in found and "PTTYPE" not in found:
        kind = found["TYPE"]
        if stat.S_ISREG(mode):
            options.append("loop")
    elif "PTTYPE" in found:
        first = _first_partition(path)
        kind = _probe(path, first).get("TYPE", "")
        options += ["loop", f"offset={first.start}", f"sizelimit={first.size}"]
    else:
        kind = ""
    if not kind or not kind.replace("_", "").isalnum():
        raise NoFileSystem(
            f"disk {path} has no file system which a container could run on. Install an operating"
            " system with 'gnt-instance reinstall'."
        )
    return [program, "--types", kind, "--options", ",".join(options), "--", path, target]


def _probe(path: str, part: Partition | None = None) -> dict[str, str]:
    argv = ["blkid", "--probe", "--output", "export"]
    if part is not None:
        argv += [f"--offset={part.start}", f"--size={part.size}"]
    done = process.run([*argv, "--", path], timeout_s=_TIMEOUT_S, check=False)
    if done.failed and done.exit_code != _NOTHING_FOUND:
        raise errors.HypervisorError(f"disk {path} cannot be read: {done.output.strip()}")
    return parse_blkid(done.stdout)


def _first_partition(path: str) -> Partition:
    argv = ["partx", "--raw", "--noheadings", "--output", "START,SECTORS", "--", path]
    try:
        found = parse_partx(process.run(argv, timeout_s=_TIMEOUT_S).stdout)
    except (errors.CommandError, errors.ParseError) as err:
        raise errors.HypervisorError(
            f"the partitions of disk {path} cannot be read: {err}"
        ) from err
    if not found:
        raise errors.HypervisorError(f"disk {path} has a partition table without partitions")
    return found[0]


def is_in_use(path: str) -> bool:
    """Return True if the kernel still has the disk mounted, or in a loop device."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    if stat.S_ISDIR(mode):
        return False
    real = os.path.realpath(path)
    for backing in glob.glob("/sys/block/loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if fs.read_file(backing).strip() == real:
                return True
    if not stat.S_ISBLK(mode):
        return False
    try:
        # The kernel refuses this exactly when the device is mounted or is part of another one.
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as err:
        return err.errno == errno.EBUSY
    return False


def await_release(path: str, timeout_s: float) -> None:
    """Wait until the kernel does not use a disk any more, which is a moment after its unmount.

    :raises HypervisorError: it is still in use after this time.
    """

    def released() -> None:
        if is_in_use(path):
            raise retry.Again

    try:
        retry.until(released, timeout_s=timeout_s, delay=_POLL)
    except errors.RetryTimeout as err:
        raise errors.HypervisorError(
            f"disk {path} is still in use. Another program may have mounted it."
        ) from err


def parse_blkid(text: str) -> dict[str, str]:
    """Read the output of ``blkid --probe --output export``: lines ``KEY=VALUE``."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, separator, value in pairs if key and separator}


def parse_partx(text: str) -> list[Partition]:
    """Read the output of ``partx --raw --noheadings --output START,SECTORS``.

    :raises ParseError: a line has another form.
    """
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) != 2 or not all(
            word.isascii() and word.isdecimal() and len(word) <= 18 for word in words
        ):
            raise errors.ParseError(f"no partition in {line!r:.120}")
        # partx counts in sectors of 512 bytes.
        found.append(Partition(int(words[0]) * 512, int(words[1]) * 512))
    return found
