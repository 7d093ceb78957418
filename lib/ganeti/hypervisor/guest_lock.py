"""The lock of one guest on its node, so that operations on it exclude each other.

Without it, the failure of a second start could remove the files of the first one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from collections.abc import Iterator

from ganeti import errors
from ganeti.utils import retry

_TIMEOUT_S = 60.0


@contextlib.contextmanager
def locked(directory: str, instance_name: str) -> Iterator[None]:
    """Exclude other operations on a guest of one hypervisor.

    :param directory: the directory of the hypervisor, which exists; it holds the file ``.lock``.
    :raises HypervisorError: another operation takes more than a minute, or the file cannot be made.
    """
    path = f"{directory}/.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as err:
        raise errors.HypervisorError(f"cannot open {path}: {err.strerror}") from err
    # Each name has a byte, so that no file must be removed later. Two names with the same byte wait
    # for each other, which does no harm.
    offset = zlib.crc32(instance_name.encode())

    def attempt() -> None:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError) as err:
            raise retry.Again from err

    try:
        try:
            retry.until(attempt, timeout_s=_TIMEOUT_S, delay=0.05)
        except errors.RetryTimeout as err:
            raise errors.HypervisorError(
                f"another operation on instance {instance_name} takes more than {_TIMEOUT_S:g} s"
            ) from err
        yield
    finally:
        os.close(fd)
