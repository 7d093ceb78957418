"""Write files from elsewhere so that they never fill the file system.

A small file can become a large one: a packed or sparse image, an archive, an answer without a
length. So a program that writes such a file asks for the space before (:func:`require`), counts
what is really written (:class:`SparseFile`, :class:`Allowance`), and stops when it is too much. A
part of each file system is kept free (:func:`kept_free`), because the configuration of the cluster
may be in the same one.

Blocks of zeros are not written: they become holes of the file.
"""

from __future__ import annotations

import os
from typing import IO, Final, Protocol

from ganeti import errors

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
#: What is kept free: a twentieth of the file system within these limits, and never more than a
#: quarter of it.
_KEPT_LEAST: Final = 256 * _MIB
_KEPT_MOST: Final = 4 * _GIB
# How much is written until the free space is measured again.
_MEASURE_BYTES: Final = 64 * _MIB
# Smallest hole.
_PIECE: Final = 1 << 16
_ZEROS: Final = bytes(_PIECE)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return at most this number of bytes; none at the end."""


class NoSpace(errors.GenericError):
    """A file is larger than the free space, or than it may be."""


def kept_free(size: int) -> int:
    """Return how many bytes of a file system of this size are kept free."""
    return min(_KEPT_MOST, max(size // 20, _KEPT_LEAST), size // 4)


def measured(directory: str, *, removed: int = 0) -> int:
    """Return how many bytes may be written in a directory.

    :param removed: bytes there which count as free, because they are removed before.
    :raises OSError: it cannot be measured.
    """
    found = os.statvfs(directory or ".")
    # Without the reserve of root.
    free = found.f_bavail * found.f_frsize + removed
    return max(0, free - kept_free(found.f_blocks * found.f_frsize))


def available(directory: str) -> int | None:
    """Return how many bytes may be written in a directory; None if it cannot be measured."""
    try:
        return measured(directory)
    except OSError:
        return None


def at_most(directory: str, size: int) -> int:
    """Return how large a file may become that should not be larger than this, in bytes."""
    left = available(directory)
    return size if left is None else min(size, left)


def require(directory: str, size: int, what: str) -> None:
    """Refuse a file for which there is no space.

    :param size: how many bytes it will take.
    :param what: names it at the beginning of the message.
    :raises NoSpace: there is less.
    """
    left = available(directory)
    if left is not None and size > left:
        raise _no_space(directory, _shown(size), left, what)


def _no_space(directory: str, size: str, left: int, what: str) -> NoSpace:
    return NoSpace(
        f"{what} needs {size}, but only {_shown(left)} may be written in"
        f" {directory or 'this directory'} (a part of the file system is kept free). Free some"
        " space there, or mount a larger file system."
    )


def _shown(size: int) -> str:
    return f"{-(-size // _MIB)} MiB"


class Allowance:
    """How much may be written to a file.

    :param directory: where it is.
    :param what: names it at the beginning of messages.
    """

    def __init__(self, directory: str, what: str) -> None:
        self._directory = directory
        self._what = what
        self._written = 0
        self._unmeasured = 0
        self._left = available(directory)

    def take(self, size: int) -> None:
        """Count bytes that are about to be written.

        :raises NoSpace: they are too many.
        """
        self._unmeasured += size
        if self._left is not None and self._unmeasured > min(self._left, _MEASURE_BYTES):
            # Others write, too.
            self._left = available(self._directory)
            if self._left is not None and size > self._left:
                most = self._written + self._left
                raise _no_space(self._directory, f"more than {_shown(most)}", most, self._what)
            self._unmeasured = size
        self._written += size


class SparseFile:
    """A new file, which is written from its beginning to its end, with holes for zeros.

    :param stream: the file, open for writing; without content.
    :param what: names it at the beginning of messages.
    :param most: largest size that it may have; None if it is not known.
    """

    def __init__(self, stream: IO[bytes], what: str, *, most: int | None = None) -> None:
        self._fd = stream.fileno()
        self._what = what
        self._most = most
        self._allowance = Allowance(os.path.dirname(stream.name), what)
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add data.

        :raises NoSpace: the file becomes larger than it may be, or than the free space.
        :raises OSError: they cannot be written.
        """
        self._require_allowed(len(data))
        view = memoryview(data)
        for start in range(0, len(view), _PIECE):
            piece = view[start : start + _PIECE]
            if piece != _ZEROS[: len(piece)]:
                self._allowance.take(len(piece))
                self._write_piece(piece, self.size + start)
        self.size += len(data)

    def copy(self, source: _Readable) -> None:
        """Add the rest of a stream; the errors are those of :meth:`write`."""
        while data := source.read(_MIB):
            self.write(data)

    def skip(self, size: int) -> None:
        """Add a hole.

        :raises NoSpace: the file becomes larger than it may be.
        """
        self._require_allowed(size)
        self.size += size

    def finish(self) -> None:
        """Give the file its size, also when it ends with a hole."""
        os.ftruncate(self._fd, self.size)

    def _require_allowed(self, size: int) -> None:
        if self._most is not None and self.size + size > self._most:
            raise NoSpace(f"{self._what} is larger than {_shown(self._most)}, which it may have")

    def _write_piece(self, piece: memoryview, place: int) -> None:
        while piece:
            done = os.pwrite(self._fd, piece, place)
            piece, place = piece[done:], place + done
