"""Disks which are files: ``file`` on one node, ``sharedfile`` in a directory which all nodes share.

Files are raw and sparse. The administrator allows directories in the file ``file-storage-paths`` of
the configuration directory, one on each line. Without that file only the default directories
(:data:`DEFAULT_TOPS`) are allowed. Paths come from the configuration and are the same on all nodes;
in a virtual cluster they are below the root directory of the node.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.objects import snapshots
from ganeti.objects.disk import Disk
from ganeti.platform import paths
from ganeti.storage import base, content
from ganeti.storage.base import BlockDevice
from ganeti.utils import free_space, fs, retry, shared_dir

_MIB = 1 << 20
# The usual file systems have no larger sparse files.
_SIZE_MAX_MIB = 1 << 43

# The end of the name of an incomplete snapshot. No name of a snapshot ends with it.
_INCOMPLETE = "~"

_PROGRAM_DIRS = ("bin", "lib", "lib32", "lib64", "sbin")
#: The directories below which disks may be while the administrator has made no list.
DEFAULT_TOPS = ("/srv/ganeti", "/var/run/ganeti/gluster")
#: Directories of the system: no disk is in them or below them.
FORBIDDEN = frozenset(
    ["/", "/boot", "/dev", "/etc", "/home", "/proc", "/root", "/run", "/sys"]
    + [f"{prefix}/{name}" for prefix in ("", "/usr", "/usr/local") for name in _PROGRAM_DIRS]
)


# Allowed directories


def parse_storage_paths(text: str) -> list[str]:
    """Read a ``file-storage-paths`` file.

    :returns: the absolute directories, normalised, without comments (``#``) and empty lines.
    """
    found = []
    for line in text.splitlines():
        directory = line.strip()
        if directory and not directory.startswith("#") and os.path.isabs(directory):
            found.append(os.path.normpath(directory))
    return found


def wrong_storage_dir(path: str) -> str | None:
    """Return the reason why a (virtual) directory can never hold disks, or None."""
    # normpath keeps two slashes at the beginning, which mean the same as one.
    if (
        not os.path.isabs(path)
        or path.startswith("//")
        or os.path.normpath(path) != path.rstrip("/")
        or not path.isprintable()
    ):
        return f"path {path!r} is not absolute and normalised"
    for forbidden in FORBIDDEN:
        if path == forbidden or (forbidden != "/" and paths.is_below(forbidden, path)):
            return f"path {path} is in the system directory {forbidden}"
    return None


def check_acceptable(virtual_path: str) -> None:
    """Check that a file or directory may be used for disks on this node.

    :raises FileStoragePathError: it may not; says why.
    """
    wrong = wrong_storage_dir(virtual_path)
    if wrong:
        raise errors.FileStoragePathError(wrong)
    here = paths.current()
    list_file = here.file_storage_paths_file
    try:
        allowed = parse_storage_paths(fs.read_edited_file(list_file))
    except FileNotFoundError:
        allowed = list(DEFAULT_TOPS)
    except OSError as err:
        raise errors.FileStoragePathError(f"cannot read {list_file}: {err.strerror}") from err
    # The administrator may write a path with or without the root directory of the node.
    for directory in (here.to_virtual(entry) for entry in allowed):
        if wrong_storage_dir(directory) is None and paths.is_below(directory, virtual_path):
            return
    raise errors.FileStoragePathError(
        f"path {virtual_path} is not below a directory listed in {list_file}; without that file,"
        f" only directories below {DEFAULT_TOPS[0]} are allowed"
    )


def _local(virtual_path: str) -> str:
    here = paths.current()
    virtual = here.to_virtual(virtual_path) if os.path.isabs(virtual_path) else virtual_path
    check_acceptable(virtual)
    return here.to_local(virtual)


def create_dir(virtual_path: str) -> None:
    """Create a directory for the disks of an instance; one which exists is not an error.

    :raises FileStoragePathError: the path is not allowed, or the directory cannot be created.
    """
    path = _local(virtual_path)
    try:
        fs.make_dirs(path, 0o750)
    except OSError as err:
        raise errors.FileStoragePathError(
            f"cannot create the directory {path}: {err.strerror}"
        ) from err


def remove_dir(virtual_path: str) -> None:
    """Remove an empty directory; one which does not exist is not an error.

    Marks of interrupted comparisons (:mod:`ganeti.utils.shared_dir`) are removed with it.

    :raises FileStoragePathError: the path is not allowed, the directory is not empty, or it cannot
        be removed.
    """
    path = _local(virtual_path)

    def removed() -> None:
        try:
            _remove_dir_and_marks(path)
        except FileNotFoundError:
            return
        except OSError as err:
            if err.errno == errno.ENOTEMPTY and all(map(_is_open_elsewhere, os.listdir(path))):
                raise retry.Again(err) from err
            raise

    try:
        retry.until(removed, timeout_s=base.BUSY_S)
    except (OSError, errors.RetryTimeout) as failure:
        err = failure if isinstance(failure, OSError) else failure.args[0]
        raise errors.FileStoragePathError(
            f"cannot remove the directory {path}: {err.strerror}"
        ) from err


def _remove_dir_and_marks(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError as err:
        if err.errno != errno.ENOTEMPTY:
            raise
        names = os.listdir(path)
        marks = [name for name in names if name.startswith(shared_dir.PREFIX)]
        if not all(name in marks or _is_open_elsewhere(name) for name in names):
            raise
        for name in marks:
            fs.remove_file(f"{path}/{name}")
        os.rmdir(path)


def _is_open_elsewhere(name: str) -> bool:
    """Return True for what NFS leaves of a removed file until the last program closes it."""
    return name.startswith(".nfs")


def rename_dir(old_virtual: str, new_virtual: str) -> None:
    """Rename a directory; one which has been renamed already is not an error.

    :raises FileStoragePathError: a path is not allowed, the new one exists, or the directory cannot
        be renamed.
    """
    old, new = _local(old_virtual), _local(new_virtual)
    if os.path.lexists(new):
        # An interrupted operation which runs again may have renamed it.
        if os.path.lexists(old):
            raise errors.FileStoragePathError(f"cannot rename {old}: {new} exists")
        return
    try:
        os.rename(old, new)
    except OSError as err:
        raise errors.FileStoragePathError(
            f"cannot rename the directory {old} to {new}: {err.strerror}"
        ) from err


def space(virtual_path: str) -> dict[str, int]:
    """Return the size and free space of the file system under a storage directory, in MiB.

    :returns: ``{"storage_size": ..., "storage_free": ...}``.
    :raises FileStoragePathError: the directory does not exist.
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
        # Without the reserve of root.
        "storage_free": info.f_frsize * info.f_bavail // _MIB,
    }


def try_file(directory: str, size: int) -> None:
    """Check that a directory can have a file of a size (bytes), with one which has no name.

    :raises OSError: it cannot; ext4 has files of at most 16 TiB, FAT of 4 GiB.
    """
    import tempfile

    with tempfile.TemporaryFile(dir=directory, buffering=0) as stream:
        os.truncate(stream.fileno(), size)


def space_for(
    directory: str, size: int, removed: Iterable[str] = (), *, sparse: bool = False
) -> int:
    """Return how many bytes may be written to files in a directory, also in one that will be made.

    A part of the file system is kept free (:mod:`ganeti.utils.free_space`).

    :param size: of its largest file, in bytes.
    :param removed: local paths; the space of what begins so counts as free, because it is removed
        before the files are made.
    :param sparse: the files have holes, so they may be larger than the free space.
    :raises OSError: a file of this size cannot be made there.
    """
    there = directory
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    going = 0
    for path in removed:
        top, begin = os.path.split(path)
        if os.path.isdir(top):
            going += sum(_taken(f"{top}/{one}") for one in os.listdir(top) if one.startswith(begin))
    free = free_space.measured(there, removed=going)
    # A file for which there is no space fails for that reason first.
    try_file(there, size if sparse or size <= free else 0)
    return free


def _taken(path: str) -> int:
    """Return the bytes which a file, or the files of a directory, take; what goes takes none."""
    found = 0
    for one in (path, *(f"{top}/{name}" for top, _, names in os.walk(path) for name in names)):
        try:
            found += os.lstat(one).st_blocks * 512
        except FileNotFoundError:
            continue
    return found


# The device


class FileDevice(BlockDevice):
    """A raw file."""

    #: Whether files in the same directory with names of snapshots are its snapshots.
    HAS_SNAPSHOTS = True

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        fields: tuple[Any, ...] = tuple(disk.logical_id)
        if len(fields) != 2 or not isinstance(fields[1], str):
            raise self.wrong(f"id {list(fields)} is not [driver, path]")
        if fields[0] not in disk_constants.FILE_DRIVERS:
            raise self.wrong(f"file driver '{fields[0]}' is not known")
        self._path = _local(fields[1])

    @property
    def path(self) -> str:
        """The local path of the file."""
        return self._path

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Create a sparse file.

        :raises BlockDeviceError: it exists, or cannot be created; nothing is left behind.
        """
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
            self.clean_up(
                f"cannot set the size of the file to {size_mib} MiB: {err.strerror}",
                lambda: True,
            )

    def remove(self) -> None:
        """Remove the snapshots of the file, which would be orphans, and then the file.

        A removal which was interrupted may have removed the directory of the instance, too; the
        directory above it must be there, or its file system may not be mounted.
        """
        directory = os.path.dirname(self._path)
        if not os.path.isdir(directory):
            self._require_storage(os.path.dirname(directory))
        try:
            if self.HAS_SNAPSHOTS and snapshots.split(self._path) is not None:
                # This file is a snapshot, which may be incomplete.
                fs.remove_file(self._path + _INCOMPLETE)
            for path in (*self._snapshot_files(), self._path):
                fs.remove_file(path)
        except OSError as err:
            raise self.fail("cannot remove the file", err) from err

    def _snapshot_files(self) -> Iterator[str]:
        """Yield the paths of its snapshots, with the incomplete ones."""
        directory, name = os.path.split(self._path)
        try:
            names = os.listdir(directory) if self.HAS_SNAPSHOTS else []
        except FileNotFoundError:
            return
        for found in names:
            parts = snapshots.split(found.removesuffix(_INCOMPLETE))
            if parts is not None and parts[0] == name:
                yield f"{directory}/{found}"

    def exists(self) -> bool:
        """Return True if the file exists; absent is only a file whose directory exists.

        :raises BlockDeviceError: the directory is missing, as it is while its file system is not
            mounted; the path is not a regular file; or it cannot be examined.
        """
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            self._require_storage(os.path.dirname(self._path))
            return False
        except OSError as err:
            raise self.fail(
                "cannot be examined, so it is not known whether it exists", err
            ) from err
        if not stat.S_ISREG(found.st_mode):
            raise self.fail("is not a regular file")
        return True

    def _require_storage(self, directory: str) -> None:
        """Check that the directory is there in or below which the file would be."""
        try:
            there = stat.S_ISDIR(os.stat(directory).st_mode)
        except FileNotFoundError:
            there = False
        except OSError as err:
            raise self.fail(
                "cannot be examined, so it is not known whether it exists", err
            ) from err
        if not there:
            raise self.fail(
                f"it is not known whether it exists: there is no directory {directory}. Mount its"
                " file system. If the file is really lost, make an empty directory there."
            )

    def assemble(self) -> None:
        """Check that the file exists.

        :raises BlockDeviceError: it does not exist, or is not a regular file.
        """
        self._stat()

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Make the file larger; the new part is a hole.

        A file which ended within a MiB has whole ones afterwards, as the configuration says.
        """
        if not backing_store:
            return
        if amount_mib < 0:
            raise self.fail(f"cannot grow by {amount_mib} MiB")
        size = (-(-self.size_bytes() // _MIB) + amount_mib) * _MIB
        if size > _SIZE_MAX_MIB * _MIB:
            raise self.fail(f"a size of {size // _MIB} MiB is not possible")
        if dry_run:
            self._require_possible_size(size)
            return
        try:
            os.truncate(self._path, size)
        except OSError as err:
            raise self.fail(f"cannot grow by {amount_mib} MiB", err) from err

    def _require_possible_size(self, size: int) -> None:
        """Check that its file system can have a file of a size (bytes), with one that is removed.

        :raises BlockDeviceError: it cannot; ext4 has files of at most 16 TiB, FAT of 4 GiB.
        """
        directory = os.path.dirname(self._path)
        try:
            try_file(directory, size)
        except OSError as err:
            raise self.fail(
                f"the file system of {directory} cannot have a file of {size // _MIB} MiB", err
            ) from err

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Rename the file and its snapshots."""
        target = type(self)(replace(self.disk, logical_id=tuple(new_id)))
        if target.path == self._path:
            return
        if target.exists():
            raise self.fail(f"cannot rename to {target.path}, which exists")
        try:
            for path in self._snapshot_files():
                os.rename(path, target.path + path.removeprefix(self._path))
            os.rename(self._path, target.path)
            fs.flush_dir(os.path.dirname(target.path))
        except OSError as err:
            raise self.fail(f"cannot rename to {target.path}", err) from err
        self.disk, self._path = target.disk, target.path

    def keep_snapshot(self, name: str, size_mib: int, *, at_rest: bool) -> None:
        """Copy the content to another file, which shares its blocks where possible.

        :raises BlockDeviceError: the file system has no reflinks, and the file is not at rest, or
            the file cannot be copied; nothing is left behind.
        """
        target = snapshots.volume_name(self._path, name)
        if os.path.lexists(target):
            raise self.fail(f"has a snapshot {name} already")
        partial = target + _INCOMPLETE
        try:
            self._copy_to(partial, at_rest=at_rest)
            os.rename(partial, target)
            fs.flush_dir(os.path.dirname(target))
        except OSError as err:
            fs.remove_file(partial)
            raise self.fail("cannot take a snapshot", err) from err
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
                            "its file system cannot copy a file while a program writes to it (XFS"
                            " and Btrfs can). Stop the instance first, or let the command stop it"
                            " with --shutdown."
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

    def kept_snapshots(self) -> list[snapshots.SnapshotInfo]:
        """Return the files which are snapshots of this one, with their length and time of last
        change.
        """
        found: dict[str, snapshots.SnapshotInfo] = {}
        for path in sorted(self._snapshot_files(), reverse=True):
            try:
                state = os.stat(path)
            except FileNotFoundError:
                # Another operation has just removed it.
                continue
            complete = path.removesuffix(_INCOMPLETE)
            name = complete.removeprefix(self._path + snapshots.SEPARATOR)
            found[name] = snapshots.SnapshotInfo(
                name, state.st_size, state.st_mtime, path == complete
            )
        return sorted(found.values())

    def size_bytes(self) -> int:
        """Length of the file in bytes."""
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
    """A raw file in a directory which all nodes share, which the administrator must ensure."""
