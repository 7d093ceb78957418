"""Halves of mirrored disks which nobody knows any more, found by the volumes below them.

An operation that was broken off may leave a minor in use whose number was never written down; the
volumes below it are on record, with a mark that says that they may be destroyed. They cannot be as
long as the minor holds them.
"""

from __future__ import annotations

from ganeti import errors
from ganeti.storage.drbd import argv, parse, status
from ganeti.utils import process

_TIMEOUT_S = 60.0


def take_down(path: str) -> bool:
    """Take down the minor above a device; whether there was one.

    The kernel refuses while somebody has it open.

    :raises BlockDeviceError: it cannot be taken down, or DRBD does not tell what it is.
    """
    if not status.loaded():
        return False
    for number in status.minors():
        commands = argv.commands(status.version(), number)
        try:
            present = parse.parse_show(process.run(commands.show(), timeout_s=_TIMEOUT_S).stdout)
            if path in (present.data_device, present.meta_device):
                process.run(commands.down(present.resource), timeout_s=_TIMEOUT_S)
                return True
        except (errors.CommandError, errors.ParseError) as err:
            raise errors.BlockDeviceError(
                f"minor {number}, which may be above {path}, cannot be taken down: {err}"
            ) from err
    return False
