"""The log of what a guest writes to its console, on the node where it runs.

The file is named after the UUID of the instance, so that an instance never shows the log of another
one which had its name, and keeps its log when it is renamed. A link with the name of the instance
leads to it: LOG_DIR/kvm/<instance>.console.log -> console/<uuid>.log. The logs of containers are in
the same directory, and their links in LOG_DIR/lxc.

The hypervisor appends to the file as long as the guest runs, and does not know of a limit. The
node daemon looks at the sizes every few seconds (:func:`is_overgrown`) and, in a child process,
moves the content of a file above :data:`MAX_BYTES` to ``<uuid>.log.1`` (:func:`rotate`). So one
guest can use twice this size, and what it writes in the time between two checks. The file is
emptied and not replaced, because the hypervisor keeps it open; it must append (``O_APPEND``).

A log remains on each node where the guest has run, until the instance is removed or, on the other
nodes, ``ganeti-cleaner`` removes it.
"""

from __future__ import annotations

import codecs
import contextlib
import logging
import os
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ganeti import errors
from ganeti.platform import paths
from ganeti.utils import fs

MAX_BYTES = 4 << 20
#: Largest part of a log which one request returns.
READ_MAX_BYTES = 1 << 20
_COPY_BYTES = 1 << 20
_SUFFIX = ".log"
_OLDER = ".1"
_LINK_SUFFIX = ".console.log"


class Piece(NamedTuple):
    """A part of a log.

    :ivar position: where the next part begins; has a meaning for :func:`read` only.
    :ivar lost: whether output between the asked position and this part is not kept any more.
    """

    text: str
    position: str
    lost: bool


def _directory() -> str:
    return f"{paths.current().log_kvm_dir}/console"


def path_of(uuid: str) -> str:
    """Return the log of an instance on this node.

    :raises HypervisorError: the text cannot be the name of a file.
    """
    if "/" in uuid or uuid.startswith(".") or not uuid:
        raise errors.HypervisorError(f"'{uuid}' is not the UUID of an instance")
    return f"{_directory()}/{uuid}{_SUFFIX}"


def prepare(name: str, uuid: str, link: str) -> None:
    """Make the log before the guest starts, readable for the user of the node daemon only.

    :param name: of the instance, for messages.
    :param link: path of the link with the name of the instance.
    :raises HypervisorError: the file cannot be made.
    """
    path = path_of(uuid)
    try:
        fs.make_dirs(_directory(), 0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path, flags, 0o600))
        target = os.path.relpath(path, os.path.dirname(link))
        if not os.path.islink(link) or os.readlink(link) != target:
            new = f"{link}.new"
            fs.remove_file(new)
            os.symlink(target, new)
            os.replace(new, link)
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot prepare the console log of instance {name}: {err.strerror}: {err.filename}"
        ) from err


def remove(name: str, uuid: str) -> None:
    """Remove the log of an instance from this node; a missing one is not an error.

    :raises OSError: it cannot be removed.
    """
    path = path_of(uuid)
    for one in (path, f"{path}{_OLDER}"):
        fs.remove_file(one)
    for link in _links_of(name):
        with contextlib.suppress(OSError):
            if os.path.basename(os.readlink(link)) == os.path.basename(path):
                fs.remove_file(link)


def link_directories() -> tuple[str, ...]:
    """Return the directories which hold the links with the names of instances."""
    here = paths.current()
    return here.log_kvm_dir, here.log_lxc_dir


def link_in(directory: str, name: str) -> str:
    """Return the link with the name of an instance."""
    return f"{directory}/{name}{_LINK_SUFFIX}"


def _links_of(name: str) -> list[str]:
    return [link_in(directory, name) for directory in link_directories()]


# The size


def _logs() -> Iterator[str]:
    """Yield the paths of all logs of this node, without the older parts."""
    directory = _directory()
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            if name.endswith(_SUFFIX):
                yield f"{directory}/{name}"


def _overgrown() -> Iterator[str]:
    for path in _logs():
        with contextlib.suppress(OSError):
            if os.stat(path, follow_symlinks=False).st_size > MAX_BYTES:
                yield path


def is_overgrown() -> bool:
    """Return True if a log of this node is larger than :data:`MAX_BYTES`."""
    return any(True for _ in _overgrown())


def rotate() -> None:
    """Move the content of each log which is too large to its older part, and empty the log.

    When the older part cannot be written, for example because the disk is full, the content is
    given up: the size of the log must stay limited.
    """
    for path in _overgrown():
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as err:
            logging.warning("cannot open console log %s: %s", path, err.strerror)
            continue
        try:
            _move_content(fd, path)
        finally:
            os.close(fd)


def _move_content(fd: int, path: str) -> None:
    new = f"{path}{_OLDER}.new"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        older = os.open(new, flags, 0o600)
        try:
            # Only the end, when the file could grow for a long time because no daemon ran.
            size = os.fstat(fd).st_size
            start = size - MAX_BYTES if size > 2 * MAX_BYTES else 0
            start = _copy(fd, older, start)
            os.replace(new, f"{path}{_OLDER}")
            # What came meanwhile; what comes between this and the next step is lost.
            _copy(fd, older, start)
        finally:
            os.close(older)
    except OSError as err:
        logging.warning("the older part of console log %s is lost: %s", path, err.strerror)
        fs.remove_file(new)
    os.ftruncate(fd, 0)


def _copy(source: int, target: int, start: int) -> int:
    """Copy everything from a position to the present end; return the end."""
    while data := os.pread(source, _COPY_BYTES, start):
        start += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]
    return start


# Reading


def read(uuid: str, lines: int, position: str) -> Piece | None:
    """Read the end of a log, or what was written after a position.

    :param lines: how many lines of the end; used without a position only.
    :param position: of an earlier piece; empty for the end of the log.
    :returns: at most :data:`READ_MAX_BYTES`, and the rest with the next call; None when this node
        has no log of the instance.
    :raises HypervisorError: the log cannot be read, or the position is none.
    """
    path = path_of(uuid)
    try:
        with open(path, "rb", opener=_no_follow) as stream:
            mark = _rotation(path)
            size = os.fstat(stream.fileno()).st_size
            older, lost = b"", False
            if position:
                known, start = _parsed(position)
                if known != mark:
                    # The log was emptied meanwhile; the part which is missing was moved.
                    older, lost = _older(path, start)
                    start = 0
                elif start > size:
                    start, lost = 0, True
                begin = start
            else:
                begin = max(0, size - READ_MAX_BYTES)
                if begin == 0:
                    older, _ = _older(path, 0)
            stream.seek(begin)
            data = stream.read(READ_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise errors.HypervisorError(f"cannot read console log {path}: {err.strerror}") from err
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    end = begin + len(data) - len(decoder.getstate()[0])
    if older:
        text = older[-READ_MAX_BYTES:].decode("utf-8", "replace") + text
    if not position:
        text = _last_lines(text, lines)
    return Piece(text, f"{mark}:{end}", lost)


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def _rotation(path: str) -> str:
    """Return which older part there is; it changes when the log is emptied."""
    try:
        found = os.stat(f"{path}{_OLDER}", follow_symlinks=False)
    except FileNotFoundError:
        return "0"
    return f"{found.st_ino}.{found.st_ctime_ns}"


def _parsed(position: str) -> tuple[str, int]:
    mark, _, start = position.rpartition(":")
    if not mark or not start.isascii() or not start.isdigit() or len(start) > 18:
        raise errors.HypervisorError(f"'{position:.100}' is not a position in a console log")
    return mark, int(start)


def _older(path: str, start: int) -> tuple[bytes, bool]:
    """Return the older part from a position on, and whether it does not reach back to there."""
    try:
        with open(f"{path}{_OLDER}", "rb", opener=_no_follow) as stream:
            size = os.fstat(stream.fileno()).st_size
            first = max(start, size - READ_MAX_BYTES)
            stream.seek(first)
            return stream.read(), start > size or first > start
    except FileNotFoundError:
        return b"", True


def _last_lines(text: str, lines: int) -> str:
    # A last line without its end counts, too.
    whole = [line for line in re.split(r"(?<=\n)", text) if line]
    return "".join(whole[-lines:]) if lines else ""


# Cleaning


def unused(running: Collection[str]) -> list[str]:
    """Logs, older parts and links of this node which belong to no running guest.

    :param running: names of the guests which run here.
    :returns: paths.
    """
    used = set()
    for name in running:
        for link in _links_of(name):
            with contextlib.suppress(OSError):
                used.add(os.path.basename(os.readlink(link)))
    directory = _directory()
    try:
        names = fs.list_visible(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [f"{directory}/{name}" for name in names if name.removesuffix(_OLDER) not in used]
