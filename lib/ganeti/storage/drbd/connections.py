"""How the DRBD minors of this machine are connected, for a comparison with the configuration.

DRBD connects any two minors whose addresses, ports and secrets fit. So the master compares these
facts with the configuration: a replica which was given up must not stay the peer of a disk.
"""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.storage.drbd import argv, parse, status
from ganeti.utils import process
from ganeti.utils.text import secret_digest

_TIMEOUT_S = 60.0


def listed() -> list[dict[str, Any]]:
    """Return the state and the connection of each minor in use.

    The keys: ``minor``; ``connection``, ``role``, ``peer_role``, ``disk`` and ``peer_disk`` as in
    ``/proc/drbd``; ``storage`` (path of the data device), ``local`` and ``remote`` (address and
    port), ``secret`` (its digest), each None when the minor has none; ``dual_primary``. A
    minor which does not show its configuration has the key ``problem`` in place of these.

    :raises BlockDeviceError: the module is not loaded, or its state cannot be read.
    """
    version = status.version()
    return [_one(version, number, state) for number, state in sorted(status.minors().items())]


def _one(version: tuple[int, int, int], number: int, state: parse.MinorState) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "minor": number,
        "connection": state.connection,
        "role": state.local_role,
        "peer_role": state.remote_role,
        "disk": state.local_disk,
        "peer_disk": state.remote_disk,
    }
    command = argv.commands(version, number).show(state.resource)
    try:
        shown = parse.parse_show(process.run(command, timeout_s=_TIMEOUT_S).stdout)
    except errors.CommandError as err:
        return {**facts, "problem": str(err)}
    except errors.ParseError:
        # The text of the error may contain the secret.
        return {**facts, "problem": "its configuration cannot be read"}
    return {
        **facts,
        "storage": shown.data_device,
        "local": None if shown.local_address is None else list(shown.local_address),
        "remote": None if shown.remote_address is None else list(shown.remote_address),
        "secret": None if shown.secret is None else secret_digest(shown.secret),
        "dual_primary": shown.dual_primary,
    }
