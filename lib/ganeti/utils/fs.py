"""Writing files so that readers never see an incomplete one.

All files of the cluster's state are written here: into a temporary file in the same directory,
whose mode and owner are set before the first byte; it is flushed and renamed, and the directory is
flushed. A reader sees the old content or the new one, also a foreign program which watches the
directory. When a step fails, for example because the disk is full, the old file is unchanged and
the temporary one is removed.

Errors are :exc:`OSError` with the name of the file.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

# From this size on, freeing the blocks of a replaced file takes a noticeable time.
_LARGE_BYTES = 1 << 20

# Largest number of pieces which the system accepts in one call.
_IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024)

# From linux/fcntl.h and linux/fs.h; see renameat2(2).
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

#: What some editors write before the first character of a text.
BYTE_ORDER_MARK = "\ufeff"

_serial = itertools.count()
# The names of temporary files: the real name, the process, a number.
_TEMPORARY = re.compile(r"\..+\.([0-9]{1,9})\.[0-9]+\.new", re.ASCII)


def write_file(
    path: str,
    data: str | bytes | Sequence[bytes],
    *,
    mode: int = 0o600,
    uid: int = -1,
    gid: int = -1,
    sync: bool = True,
) -> None:
    """Replace the content of a file atomically, or create the file.

    :param data: the content; text is written as UTF-8, pieces of bytes one after the other.
    :param mode: permission bits; the umask does not change them.
    :param uid: owner, or -1 for the user of this process.
    :param gid: group, or -1 for the group of this process.
    :param sync: False only for files which may be lost when the power fails.
    :raises OSError: the file cannot be written; it is unchanged.
    """
    text = data.encode() if isinstance(data, str) else data
    pieces = (text,) if isinstance(text, bytes) else text

    def fill(fd: int) -> None:
        os.fchmod(fd, mode)
        if uid != -1 or gid != -1:
            os.fchown(fd, uid, gid)
        _write_all(fd, pieces)
        if sync:
            os.fsync(fd)

    _replace(path, fill)
    if sync:
        flush_dir(os.path.dirname(path) or ".")


def unfinished_files(directory: str) -> list[str]:
    """Return the temporary files in a directory whose writers died before the rename.

    They may contain what the file was to contain, such as a key. The caller knows that nothing is
    being written there.

    :returns: paths; none when there is no such directory.
    """
    return sorted(
        path
        for path in glob.glob(f"{glob.escape(directory)}/.*.new")
        if _TEMPORARY.fullmatch(os.path.basename(path))
    )


def abandoned_files(directory: str) -> list[str]:
    """Return the temporary files in a directory which no process writes any more.

    Unlike :func:`unfinished_files`, other files may be written there at the same time. A file stays
    as long as any process has the number of its writer.

    :returns: paths; none when there is no such directory.
    """
    found = []
    for path in unfinished_files(directory):
        writer = _TEMPORARY.fullmatch(os.path.basename(path))
        if writer is None:
            continue
        try:
            os.kill(int(writer[1]), 0)
        except (ProcessLookupError, OverflowError):
            found.append(path)
        except PermissionError:
            continue
    return found


def rewrite_file(
    path: str,
    parts: Sequence[tuple[int, int] | bytes],
    *,
    flush_every: int = 0,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Replace the content of a file atomically by parts of the old content and new bytes.

    The kernel copies the old parts, so a small change of a large file is fast. Mode and owner stay
    as they are.

    :param parts: in their order: ``(offset, length)`` in bytes of the old content, or new bytes.
    :param flush_every: flush after this number of bytes, so that flushes of other files need not
        wait for the whole of this one; 0 flushes once.
    :param ready: called when the new content is durable, before it gets the name of the file; an
        exception leaves the file unchanged.
    :raises OSError: the file cannot be read or written; it is unchanged.
    :raises ValueError: a part is not inside the old content; the file is unchanged.
    """
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    still_open = [source]
    try:
        found = os.fstat(source)
        for part in parts:
            if isinstance(part, tuple) and not 0 <= part[0] <= part[0] + part[1] <= found.st_size:
                raise ValueError(f"{part[1]} bytes at {part[0]} are not in {path}")

        def fill(fd: int) -> None:
            os.fchmod(fd, found.st_mode & 0o7777)
            if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(fd, found.st_uid, found.st_gid)
            for part in parts:
                if isinstance(part, tuple):
                    for offset, length in _slices(*part, flush_every):
                        _copy_range(source, fd, offset, length)
                        if flush_every:
                            os.fdatasync(fd)
                else:
                    _write_all(fd, (part,))
            os.fsync(fd)
            ready()
            # The process which closes the old file last frees its blocks; _kept_open() has it open.
            os.close(still_open.pop())

        _replace(path, fill)
    finally:
        for fd in still_open:
            os.close(fd)
    flush_dir(os.path.dirname(path) or ".")


def _slices(offset: int, length: int, most: int) -> Iterator[tuple[int, int]]:
    """Split a range into pieces of at most `most` bytes; 0 does not split it."""
    end = offset + length
    for start in range(offset, end, most or max(1, length)):
        yield start, min(most or length, end - start)


def _copy_range(source: int, target: int, offset: int, length: int) -> None:
    while length:
        try:
            copied = os.copy_file_range(source, target, length, offset)
        except OSError as err:
            if err.errno not in (errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EOPNOTSUPP):
                raise
            # The file system cannot copy; read and write the data instead.
            block = os.pread(source, min(length, 1 << 20), offset)
            _write_all(target, (block,))
            copied = len(block)
        if not copied:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        offset += copied
        length -= copied


@contextlib.contextmanager
def _kept_open(path: str) -> Iterator[None]:
    """Keep the old file of a name open while the block gives the name to another file.

    Freeing the blocks of a large file takes milliseconds, and happens when the last process closes
    the file. Here a thread does it, and the caller does not wait.
    """
    try:
        old = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield  # there is no old file, or it may not be read
        return
    try:
        yield
    finally:
        from ganeti.utils import shortage  # it would slow down the start of commands

        if not shortage.start_thread(os.close, old, name="close-old"):
            os.close(old)


def _replace(path: str, fill: Callable[[int], None]) -> None:
    """Fill a temporary file and give it the name of the real one."""
    # The dot hides the name from tools which list visible files; no other process has this name.
    temporary = os.path.join(
        os.path.dirname(path) or ".",
        f".{os.path.basename(path)}.{os.getpid()}.{next(_serial)}.new",
    )
    fd = _create(temporary)
    try:
        try:
            fill(fd)
            large = os.fstat(fd).st_size >= _LARGE_BYTES
        finally:
            os.close(fd)
        with _kept_open(path) if large else contextlib.nullcontext():
            os.rename(temporary, path)
    except OSError as err:
        remove_file(temporary)
        # The caller knows the real name, not the temporary one.
        raise OSError(err.errno, err.strerror, path) from err
    except BaseException:
        remove_file(temporary)
        raise


def _create(temporary: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(temporary, flags, 0o600)
    except FileExistsError:
        # An earlier process with the same number has left it.
        os.unlink(temporary)
        return os.open(temporary, flags, 0o600)


def _write_all(fd: int, pieces: Sequence[bytes]) -> None:
    waiting = [memoryview(piece) for piece in pieces if piece]
    waiting.reverse()
    while waiting:
        if len(waiting) == 1:
            written = os.write(fd, waiting[0])
        else:
            written = os.writev(fd, waiting[: -_IOV_MAX - 1 : -1])
        while waiting and written >= len(waiting[-1]):
            written -= len(waiting.pop())
        if written:
            waiting[-1] = waiting[-1][written:]


def read_file(path: str) -> str:
    """Return the content of a text file; bytes that are not UTF-8 become surrogates.

    :raises OSError: the file cannot be read.
    """
    return read_bytes(path).decode("utf-8", "surrogateescape")


def read_edited_file(path: str) -> str:
    """Return the content of a text file which people edit.

    Some editors write a byte order mark before the first character; it is left out.

    :raises OSError: the file cannot be read.
    """
    return read_file(path).removeprefix(BYTE_ORDER_MARK)


def read_bytes(path: str) -> bytes:
    """Return the content of a file as bytes.

    :raises OSError: the file cannot be read.
    """
    with open(path, "rb") as stream:
        return stream.read()


def open_or_create(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a file, and create it when it is missing; a symbolic link is refused.

    In a sticky directory which a group may write, the kernel refuses to open a file of another user
    with O_CREAT (``fs.protected_regular``), so that is used for new files only.

    :param mode: of a new file.
    :returns: the file descriptor.
    :raises OSError: the file cannot be opened.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)


def make_dirs(path: str, mode: int = 0o755, *, uid: int = -1, gid: int = -1) -> None:
    """Create a directory, and the directories above it that are missing with mode 0755.

    A directory that exists keeps its mode and owner. A new one is durable: what is flushed in it
    later would be lost with it.

    :param mode: permission bits of the new directory; the umask does not change them.
    :param uid: owner of the new directory, or -1 for the user of this process.
    :param gid: group of the new directory, or -1 for the group of this process.
    :raises OSError: a part of the path is not a directory, or cannot be created.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    if parent != path:
        make_dirs(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        return
    os.chmod(path, mode)
    if uid != -1 or gid != -1:
        os.chown(path, uid, gid)
    flush_dir(parent)


def remove_file(path: str, missing_ok: bool = True) -> None:
    """Remove a file or symbolic link.

    :raises OSError: the file cannot be removed, or is missing and ``missing_ok`` is False.
    """
    if missing_ok:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    else:
        os.unlink(path)


def exchange(first: str, second: str) -> bool:
    """Exchange the names of two files or directories in one step.

    :returns: False when the file system cannot do that; nothing was done.
    :raises OSError: one of them is missing, or cannot be renamed.
    """
    # Only node daemons need it; it would cost every command its time to load.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, first.encode(), _AT_FDCWD, second.encode(), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            return False
        raise OSError(number, os.strerror(number), first, None, second)
    return True


def list_visible(directory: str) -> list[str]:
    """Return the names in a directory that do not start with a dot, sorted.

    :raises OSError: the directory cannot be read.
    """
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def free_name(path: str) -> str:
    """Return a path if nothing has it, otherwise the first free one of ``path-2``, ``path-3``..."""
    found, number = path, 1
    while os.path.lexists(found):
        number += 1
        found = f"{path}-{number}"
    return found


def find_program(name: str, directories: Iterable[str]) -> str | None:
    """Return the first executable file of a name in some directories, or None.

    :param name: without a directory; a name with a slash is not looked for.
    :returns: the path of the file.
    """
    if "/" in name or name in ("", ".", ".."):
        return None
    for directory in directories:
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def flush_dir(directory: str) -> None:
    """Make renames and removals in a directory durable.

    :raises OSError: the directory cannot be opened or flushed.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
