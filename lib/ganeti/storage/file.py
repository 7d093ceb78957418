"""Disks that are files: ``file`` on one node, ``sharedfile`` where several nodes see the same
directory.

Files are raw and sparse. They may be only where an administrator allows it: ``file-storage-paths``
in the configuration directory lists the directories (one each line); without that file any
directory will do, but never one of the system. Paths come from the configuration and are the same
on all nodes; in a virtual cluster they are below the node's root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.objects import snapshots
from ganeti.objects.disk import Disk
from ganeti.platform import paths
from ganeti.storage import content
from ganeti.storage.base import BlockDevice
from ganeti.utils import fs

_MIB = 1 << 20
# A sparse file larger than this does not exist on the usual file systems.
_SIZE_MAX_MIB = 1 << 43

# Behind the name of a snapshot which is not complete; no name ends so.
_UNFINISHED = "~"

_PROGRAM_DIRS = ("bin", "lib", "lib32", "lib64", "sbin")
#: No guest's disk is ever in one of these, nor are they storage directories themselves.
FORBIDDEN = frozenset(
    ["/", "/boot", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys"]
    + [f"{prefix}/{name}" for prefix in ("", "/usr", "/usr/local") for name in _PROGRAM_DIRS]
)


# Where files may be


def parse_storage_paths(text: str) -> list[str]:
    """Read a ``file-storage-paths`` file.

    :returns: the directories, normalised; comments (``#``) and empty lines left out.
    """
    found = []
    for line in text.splitlines():
        directory = line.strip()
        if directory and not directory.startswith("#") and os.path.isabs(directory):
            found.append(os.path.normpath(directory))
    return found


def wrong_storage_dir(path: str) -> str | None:
    """Why a (virtual) directory can never hold guests' disks, or None."""
    if not os.path.isabs(path) or os.path.normpath(path) != path.rstrip("/"):
        return f"path {path} is not absolute and normalised"
    for forbidden in FORBIDDEN:
        if path == forbidden or (forbidden != "/" and paths.is_below(forbidden, path)):
            return f"path {path} is in the system directory {forbidden}"
    return None


def check_acceptable(virtual_path: str) -> None:
    """Check that a file or directory may be used for guests' disks on this node.

    :raises FileStoragePathError: it may not; says why.
    """
    wrong = wrong_storage_dir(virtual_path)
    if wrong:
        raise errors.FileStoragePathError(wrong)
    here = paths.current()
    list_file = here.file_storage_paths_file
    try:
        allowed = parse_storage_paths(fs.read_file(list_file))
    except FileNotFoundError:
        return
    except OSError as err:
        raise errors.FileStoragePathError(f"cannot read {list_file}: {err.strerror}") from err
    # An entry may be written with or without the node's root.
    for directory in (here.to_virtual(entry) for entry in allowed):
        if wrong_storage_dir(directory) is None and paths.is_below(directory, virtual_path):
            return
    raise errors.FileStoragePathError(
        f"path {virtual_path} is not below a directory listed in {list_file}"
    )


def _local(virtual_path: str) -> str:
    here = paths.current()
    virtual = here.to_virtual(virtual_path) if os.path.isabs(virtual_path) else virtual_path
    check_acceptable(virtual)
    return here.to_local(virtual)


def create_dir(virtual_path: str) -> None:
    """Make a directory for an instance's disks; one that exists is no error.

    :raises FileStoragePathError: it may not be there, or cannot be made.
    """
    path = _local(virtual_path)
    try:
        fs.make_dirs(path, 0o750)
    except OSError as err:
        raise errors.FileStoragePathError(
            f"cannot create the directory {path}: {err.strerror}"
        ) from err


def remove_dir(virtual_path: str) -> None:
    """Remove an empty directory; one that is missing is no error.

    :raises FileStoragePathError: it is not empty, or cannot be removed.
    """
    path = _local(virtual_path)
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return
    except OSError as err:
        raise errors.FileStoragePathError(
            f"cannot remove the directory {path}: {err.strerror}"
        ) from err


def rename_dir(old_virtual: str, new_virtual: str) -> None:
    """Rename a directory.

    :raises FileStoragePathError: the new name is taken, or it cannot be done.
    """
    old, new = _local(old_virtual), _local(new_virtual)
    if os.path.lexists(new):
        # Run again after an interruption: the work may be done already.
        if os.path.lexists(old):
            raise errors.FileStoragePathError(f"cannot rename {old}, {new} exists")
        return
    try:
        os.rename(old, new)
    except OSError as err:
        raise errors.FileStoragePathError(
            f"cannot rename the directory {old} to {new}: {err.strerror}"
        ) from err


def space(virtual_path: str) -> dict[str, int]:
    """Size and free space of the file system under a storage directory, in MiB.

    :returns: ``{"storage_size": ..., "storage_free": ...}``.
    :raises FileStoragePathError: the directory is missing.
    """
    path = paths.current().to_local(virtual_path)
    try:
        info = os.statvfs(path)
    except OSError as err:
        raise errors.FileStoragePathError(
            f"cannot measure the file system of {path}: {err.strerror}"
        ) from err
    return {
        "storage_size": info.f_frsize * info.f_blocks // _MIB,
        # What an ordinary user may still take, not the reserve of root.
        "storage_free": info.f_frsize * info.f_bavail // _MIB,
    }


# The device


class FileDevice(BlockDevice):
    """A raw file."""

    #: Whether files beside it which are called so are its snapshots.
    HAS_SNAPSHOTS = True

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        fields: tuple[Any, ...] = tuple(disk.logical_id)
        if len(fields) != 2 or not isinstance(fields[1], str):
            raise errors.BlockDeviceError(
                f"disk {disk.uuid or disk.iv_name}: id {list(fields)} is not [driver, path]"
            )
        if fields[0] not in disk_constants.FILE_DRIVERS:
            raise errors.BlockDeviceError(
                f"disk {disk.uuid or disk.iv_name}: file driver '{fields[0]}' is not known"
            )
        self._path = _local(fields[1])

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    @property
    def unique_id(self) -> str:
        """The file."""
        return self._path

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Make a sparse file."""
        if exclusive:
            raise self.fail("files cannot have a physical disk of their own")
        if not 0 < size_mib <= _SIZE_MAX_MIB:
            raise self.fail(f"a size of {size_mib} MiB is not possible")
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError as err:
            raise self.fail("the file exists already, and will not be overwritten") from err
        except OSError as err:
            raise self.fail("cannot create the file", err) from err
        try:
            try:
                os.fchmod(fd, 0o640)
                os.ftruncate(fd, size_mib * _MIB)
                os.fsync(fd)
            finally:
                os.close(fd)
            fs.flush_dir(os.path.dirname(self._path))
        except OSError as err:
            fs.remove_file(self._path)
            raise self.fail(f"cannot make the file {size_mib} MiB large", err) from err

    def remove(self) -> None:
        """Remove the file, and before it its snapshots, which nobody would find any more."""
        try:
            if self.HAS_SNAPSHOTS and snapshots.split(self._path) is not None:
                # This is one, and may not be complete.
                fs.remove_file(self._path + _UNFINISHED)
            for path in (*self._beside(), self._path):
                fs.remove_file(path)
        except OSError as err:
            raise self.fail("cannot remove the file", err) from err

    def _beside(self) -> Iterator[str]:
        """Its snapshots, complete or not."""
        directory, name = os.path.split(self._path)
        try:
            names = os.listdir(directory) if self.HAS_SNAPSHOTS else []
        except FileNotFoundError:
            return
        for found in names:
            parts = snapshots.split(found.removesuffix(_UNFINISHED))
            if parts is not None and parts[0] == name:
                yield f"{directory}/{found}"

    def exists(self) -> bool:
        """Whether there is a file of that name."""
        return os.path.isfile(self._path)

    def assemble(self) -> None:
        """The file must be there."""
        self._stat()

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Make the file longer."""
        if not backing_store:
            return
        if amount_mib < 0:
            raise self.fail(f"cannot grow by {amount_mib} MiB")
        size = self.size_bytes() + amount_mib * _MIB
        if size > _SIZE_MAX_MIB * _MIB:
            raise self.fail(f"a size of {size // _MIB} MiB is not possible")
        if dry_run:
            return
        try:
            os.truncate(self._path, size)
        except OSError as err:
            raise self.fail(f"cannot grow by {amount_mib} MiB", err) from err

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Rename the file."""
        target = type(self)(replace(self.disk, logical_id=tuple(new_id)))
        if target.path == self._path:
            return
        if target.exists():
            raise self.fail(f"cannot rename to {target.path}, which exists")
        try:
            for path in self._beside():
                os.rename(path, target.path + path.removeprefix(self._path))
            os.rename(self._path, target.path)
            fs.flush_dir(os.path.dirname(target.path))
        except OSError as err:
            raise self.fail(f"cannot rename to {target.path}", err) from err
        self.disk, self._path = target.disk, target.path

    def keep(self, name: str, size_mib: int, *, at_rest: bool) -> None:
        """Let another file have the same content; without the help of the file system that is a
        copy, which must not be made while somebody writes."""
        target = snapshots.volume_name(self._path, name)
        if os.path.lexists(target):
            raise self.fail(f"has a snapshot {name} already")
        partial = target + _UNFINISHED
        try:
            self._copy_to(partial, at_rest=at_rest)
            os.rename(partial, target)
            fs.flush_dir(os.path.dirname(target))
        except OSError as err:
            fs.remove_file(partial)
            raise self.fail("cannot make a snapshot", err) from err
        except errors.BlockDeviceError:
            fs.remove_file(partial)
            raise

    def _copy_to(self, partial: str, *, at_rest: bool) -> None:
        size = self.size_bytes()
        reading = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            writing = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.fchmod(writing, 0o640)
                if not content.share(reading, writing):
                    if not at_rest:
                        raise self.fail(
                            "its file system cannot copy a file while it is written to (XFS and"
                            " Btrfs can). Stop the instance first, or let it be stopped meanwhile"
                            " with --shutdown"
                        )
                    os.ftruncate(writing, size)
                    content.copy_open(reading, writing, size)
                os.fsync(writing)
            except EOFError as err:
                raise self.fail(f"changed while it was copied: it {err}") from err
            finally:
                os.close(writing)
        finally:
            os.close(reading)

    def kept(self) -> list[snapshots.Found]:
        """The files beside this one, with their length and the time of their last change."""
        found: dict[str, snapshots.Found] = {}
        for path in sorted(self._beside(), reverse=True):
            try:
                state = os.stat(path)
            except FileNotFoundError:
                # Somebody removes it at this moment.
                continue
            complete = path.removesuffix(_UNFINISHED)
            name = complete.removeprefix(self._path + snapshots.SEPARATOR)
            found[name] = snapshots.Found(name, state.st_size, state.st_mtime, path == complete)
        return sorted(found.values())

    def size_bytes(self) -> int:
        """Length of the file."""
        return self._stat().st_size

    def _stat(self) -> os.stat_result:
        try:
            result = os.stat(self._path)
        except OSError as err:
            raise self.fail("cannot be used", err) from err
        if not stat.S_ISREG(result.st_mode):
            raise self.fail("is not a regular file")
        return result


class SharedFileDevice(FileDevice):
    """A raw file in a directory which all nodes see; that they do is up to the administrator."""
