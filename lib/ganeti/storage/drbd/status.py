"""The state of the DRBD kernel module of this machine.

It is read from the files of the module, which runs no program. DRBD 9 has no minors in them; its
minors are asked of ``drbdsetup``.
"""

from __future__ import annotations

from ganeti import errors
from ganeti.constants.disk import DRBD_NEUTRAL_HELPER
from ganeti.storage.drbd import parse, status_json
from ganeti.storage.drbd.parse import MinorState
from ganeti.utils import fs, process

STATUS_FILE = "/proc/drbd"
# From this version on, /proc/drbd has no minors.
_WITHOUT_MINORS = 9
# From this version on, the module makes each minor when it is needed.
_WITHOUT_LIMIT = (8, 4, 0)
_TIMEOUT_S = 60.0
LIMIT_FILE = "/sys/module/drbd/parameters/minor_count"
HELPER_FILE = "/sys/module/drbd/parameters/usermode_helper"


def _read() -> str:
    try:
        return fs.read_file(STATUS_FILE)
    except FileNotFoundError as err:
        raise errors.BlockDeviceError(
            f"there is no {STATUS_FILE}: the DRBD kernel module is not loaded. Load it with"
            f" 'modprobe drbd minor_count=255 usermode_helper={DRBD_NEUTRAL_HELPER}'."
        ) from err
    except OSError as err:
        raise errors.BlockDeviceError(f"cannot read {STATUS_FILE}: {err.strerror}") from err


def _parsed(text: str) -> tuple[tuple[int, int, int], dict[int, MinorState]]:
    try:
        found = parse.parse_version(text)
        return found, _asked() if found[0] >= _WITHOUT_MINORS else parse.parse_proc(text)
    except errors.ParseError as err:
        raise errors.BlockDeviceError(f"cannot understand {STATUS_FILE}: {err}") from err


def _asked() -> dict[int, MinorState]:
    try:
        done = process.run(["drbdsetup", "status", "all", "--json"], timeout_s=_TIMEOUT_S)
        return status_json.parse_status(done.stdout)
    except (errors.CommandError, errors.ParseError) as err:
        raise errors.BlockDeviceError(
            f"the minors of DRBD 9 are not known: {err}. It needs drbd-utils of version 9."
        ) from err


def loaded() -> bool:
    """Return True if the module is loaded; without it no minor is in use.

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
    """Return the version of the module.

    :raises BlockDeviceError: it is not loaded, or its state cannot be read.
    """
    try:
        return parse.parse_version(_read())
    except errors.ParseError as err:
        raise errors.BlockDeviceError(f"cannot understand {STATUS_FILE}: {err}") from err


def minors() -> dict[int, MinorState]:
    """Return all minors which have local storage or a peer.

    :raises BlockDeviceError: the module is not loaded, or its state cannot be read.
    """
    return {number: state for number, state in _parsed(_read())[1].items() if state.configured}


def minor(number: int) -> MinorState | None:
    """One minor; None while it has neither local storage nor a peer.

    :raises BlockDeviceError: the module is not loaded, or its state cannot be read.
    """
    return minors().get(number)


def minor_limit() -> int | None:
    """Return how many minors the module can have; None when it has no limit, or none is known.

    A module before 8.4 makes its minors when it is loaded: as many as its parameter
    ``minor_count`` says. A module which is not loaded has no limit yet.
    """
    try:
        if version() >= _WITHOUT_LIMIT:
            return None
        return int(fs.read_file(LIMIT_FILE))
    except (errors.BlockDeviceError, OSError, ValueError):
        return None


def usermode_helper() -> str:
    """Return the program which the module calls after events.

    :raises BlockDeviceError: the module is not loaded.
    """
    try:
        return fs.read_file(HELPER_FILE).strip()
    except OSError as err:
        raise errors.BlockDeviceError(
            f"cannot read {HELPER_FILE}: {err.strerror}. Is the DRBD kernel module loaded?"
        ) from err
