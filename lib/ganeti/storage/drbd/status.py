"""The state of the DRBD kernel module of this machine, read from its files; runs no program."""

from __future__ import annotations

from ganeti import errors
from ganeti.storage.drbd import parse
from ganeti.storage.drbd.parse import MinorState
from ganeti.utils import fs

STATUS_FILE = "/proc/drbd"
HELPER_FILE = "/sys/module/drbd/parameters/usermode_helper"


def _read() -> str:
    try:
        return fs.read_file(STATUS_FILE)
    except FileNotFoundError as err:
        raise errors.BlockDeviceError(
            f"there is no {STATUS_FILE}: the DRBD kernel module is not loaded. Load it with"
            " 'modprobe drbd minor_count=255 usermode_helper=/bin/true'."
        ) from err
    except OSError as err:
        raise errors.BlockDeviceError(f"cannot read {STATUS_FILE}: {err.strerror}") from err


def _parsed(text: str) -> tuple[tuple[int, int, int], dict[int, MinorState]]:
    try:
        return parse.parse_version(text), parse.parse_proc(text)
    except errors.ParseError as err:
        raise errors.BlockDeviceError(f"cannot understand {STATUS_FILE}: {err}") from err


def loaded() -> bool:
    """Whether the module is loaded; without it no minor is in use.

    :raises BlockDeviceError: its state cannot be read.
    """
    try:
        _read()
    except errors.BlockDeviceError as err:
        if isinstance(err.__cause__, FileNotFoundError):
            return False
        raise
    return True


def version() -> tuple[int, int, int]:
    """The version of the module.

    :raises BlockDeviceError: it is not loaded, or its state cannot be read.
    """
    return _parsed(_read())[0]


def minors() -> dict[int, MinorState]:
    """All minors which have local storage or a peer.

    :raises BlockDeviceError: the module is not loaded, or its state cannot be read.
    """
    return {number: state for number, state in _parsed(_read())[1].items() if state.configured}


def minor(number: int) -> MinorState | None:
    """One minor; None while it has neither local storage nor a peer.

    :raises BlockDeviceError: the module is not loaded, or its state cannot be read.
    """
    return minors().get(number)


def usermode_helper() -> str:
    """The program which the module calls after events.

    :raises BlockDeviceError: the module is not loaded.
    """
    try:
        return fs.read_file(HELPER_FILE).strip()
    except OSError as err:
        raise errors.BlockDeviceError(
            f"cannot read {HELPER_FILE}: {err.strerror}. Is the DRBD kernel module loaded?"
        ) from err
