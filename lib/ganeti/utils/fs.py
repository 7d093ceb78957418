"""Files that readers only ever see whole.

Every file of the cluster's state is written here: a temporary name in the same directory, mode and
owner set before the first byte, flushed, renamed, the directory flushed. A reader, also a foreign
program that watches the directory, sees the old content or the new one. When anything fails (a full
disk, say) the old file is untouched and the temporary one is gone.

Errors are the operating system's own :exc:`OSError` with the file's name in them.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

# From this size on it matters when the blocks of a replaced file are freed.
_LARGE_BYTES = 1 << 20

# As many pieces the system takes at once.
_IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024)

_serial = itertools.count()


def write_file(
    path: str,
    data: str | bytes | Sequence[bytes],
    *,
    mode: int = 0o600,
    uid: int = -1,
    gid: int = -1,
    sync: bool = True,
) -> None:
    """Write a whole file, atomically.

    :param data: the content; text is written as UTF-8, pieces one behind the other.
    :param mode: permission bits, whatever the umask.
    :param uid: owner, or -1 to leave it as created; the same for ``gid``.
    :param sync: False only for what may be lost with the power, such as a pid.
    :raises OSError: nothing was changed.
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


def rewrite_file(path: str, parts: Sequence[tuple[int, int] | bytes]) -> None:
    """Make a file's new content of parts of the old one and of new bytes, atomically.

    What is kept is copied inside the kernel, so a small change of a large file is cheap. Mode and
    owner stay.

    :param parts: in order; ``(offset, length)`` of the old content, or bytes.
    :raises OSError: nothing was changed.
    :raises ValueError: a part lies outside of the old content; nothing was changed.
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
                    _copy_range(source, fd, *part)
                else:
                    _write_all(fd, (part,))
            os.fsync(fd)
            # Whoever closes it last has to free its blocks; that should not be us.
            os.close(still_open.pop())

        _replace(path, fill)
    finally:
        for fd in still_open:
            os.close(fd)
    flush_dir(os.path.dirname(path) or ".")


def _copy_range(source: int, target: int, offset: int, length: int) -> None:
    while length:
        try:
            copied = os.copy_file_range(source, target, length, offset)
        except OSError as err:
            if err.errno not in (errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EOPNOTSUPP):
                raise
            # Not every file system can; then it goes through our hands.
            block = os.pread(source, min(length, 1 << 20), offset)
            _write_all(target, (block,))
            copied = len(block)
        if not copied:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        offset += copied
        length -= copied


@contextlib.contextmanager
def _kept_open(path: str) -> Iterator[None]:
    """Keep what a name stands for while it gets another meaning.

    Freeing the blocks of a large file takes milliseconds. It happens when the last who has it open
    closes it: here a thread, for which nobody waits.
    """
    try:
        old = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield  # there is none, or it may not be read
        return
    try:
        yield
    finally:
        import threading  # commands start without it

        threading.Thread(target=os.close, args=(old,), name="close-old", daemon=True).start()


def _replace(path: str, fill: Callable[[int], None]) -> None:
    """Fill a temporary file and give it the name of the real one."""
    # The name tells tools that list visible files to look away, and is unique for this process.
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
        # The caller knows the file by its own name, not by the temporary one.
        raise OSError(err.errno, err.strerror, path) from err
    except BaseException:
        remove_file(temporary)
        raise


def _create(temporary: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(temporary, flags, 0o600)
    except FileExistsError:
        # Left by an earlier process with our pid; ours is the only live claim to this name.
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
    """The content of a text file; bytes that are not UTF-8 are kept as surrogates.

    :raises OSError: it cannot be read.
    """
    return read_bytes(path).decode("utf-8", "surrogateescape")


def read_bytes(path: str) -> bytes:
    """The content of a file.

    :raises OSError: it cannot be read.
    """
    with open(path, "rb") as stream:
        return stream.read()


def make_dirs(path: str, mode: int = 0o755, *, uid: int = -1, gid: int = -1) -> None:
    """Create a directory and those above it that are missing.

    :param mode: for the directory itself when it is new, whatever the umask; those above it get
        0755. A directory that exists keeps its mode.
    :raises OSError: something on the way is not a directory, or may not be created.
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


def remove_file(path: str, missing_ok: bool = True) -> None:
    """Remove a file or symbolic link.

    :raises OSError: it cannot be removed, or is missing and ``missing_ok`` is False.
    """
    if missing_ok:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    else:
        os.unlink(path)


def list_visible(directory: str) -> list[str]:
    """Names in a directory that do not start with a dot, sorted.

    :raises OSError: the directory cannot be read.
    """
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def find_program(name: str, directories: Iterable[str]) -> str | None:
    """The first executable file of this plain name in these directories; None if there is none."""
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
