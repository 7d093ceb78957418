"""DRBD minors left over from interrupted operations, found by the volumes below them.

An interrupted operation may leave a minor in use whose number is not in the configuration. The
volumes below it are recorded, with a mark which says that they may be removed; but they cannot be
removed while the minor uses them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ganeti import errors
from ganeti.storage.drbd import argv, parse, status
from ganeti.utils import process

_TIMEOUT_S = 60.0


def _shown(commands: argv.Commands, state: parse.MinorState) -> str:
    return process.run(commands.show(state.resource), timeout_s=_TIMEOUT_S).stdout


def take_down_all() -> Iterator[tuple[int, str | None]]:
    """Take down each minor of this node.

    :returns: number of each minor, and why it could not be taken down; None when it was.
    """
    if not status.loaded():
        return
    for number, state in status.minors().items():
        commands = argv.commands(status.version(), number)
        try:
            present = parse.parse_show(_shown(commands, state))
            process.run(commands.down(present.resource), timeout_s=_TIMEOUT_S)
        except (errors.CommandError, errors.ParseError) as err:
            yield number, str(err)
        else:
            yield number, None


def take_down(path: str) -> bool:
    """Take down the minor which uses a device.

    :param path: of the data or metadata device.
    :returns: whether there was such a minor.
    :raises BlockDeviceError: it cannot be taken down, because a program has it open, or its
        configuration cannot be read.
    """
    if not status.loaded():
        return False
    for number, state in status.minors().items():
        commands = argv.commands(status.version(), number)
        try:
            present = parse.parse_show(_shown(commands, state))
            if path in (present.data_device, present.meta_device):
                process.run(commands.down(present.resource), timeout_s=_TIMEOUT_S)
                return True
        except (errors.CommandError, errors.ParseError) as err:
            raise errors.BlockDeviceError(
                f"DRBD minor {number}, which may use {path}, cannot be taken down: {err}"
            ) from err
    return False
