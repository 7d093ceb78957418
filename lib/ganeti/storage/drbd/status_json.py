"""Reading ``drbdsetup status --json`` of DRBD 9, whose ``/proc/drbd`` has no minors; pure.

The states get the names which DRBD 8 has for them, so that the rest of the node knows one set of
names. A resource may have several peers, which DRBD 8 cannot have; the first one counts then.

Source: drbdsetup(8) of drbd-utils 9.22, *status*; a sample in test/data/drbd.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.storage.drbd.parse import (
    CONNECTED,
    DISKLESS,
    PRIMARY,
    RESYNCING,
    STANDALONE,
    UNCONFIGURED,
    WF_CONNECTION,
    MinorState,
)
from ganeti.wire import json

_CONNECTIONS = {"Connecting": WF_CONNECTION}
_REPLICATIONS = {"Established": CONNECTED, "Off": "WFReportParams"}
_MINOR_MAX = 1 << 20


def parse_status(text: str) -> dict[int, MinorState]:
    """Read the states of all minors.

    :raises ParseError: the text is not such output.
    """
    resources = json.loads(text)
    if not isinstance(resources, list):
        raise errors.ParseError(f"expected a list of DRBD resources, found {text!r:.120}")
    found = {}
    for resource in map(_mapping, resources):
        for device in map(_mapping, _list(resource, "devices")):
            state = _state(resource, device)
            found[state.minor] = state
    return found


def _state(resource: Mapping[str, Any], device: Mapping[str, Any]) -> MinorState:
    minor = device.get("minor")
    if not isinstance(minor, int) or isinstance(minor, bool) or not 0 <= minor < _MINOR_MAX:
        raise errors.ParseError(f"expected the number of a DRBD minor, found {minor!r:.80}")
    connections = _list(resource, "connections")
    peer: Mapping[str, Any] = _mapping(connections[0]) if connections else {}
    volumes = [_mapping(one) for one in _list(peer, "peer_devices")]
    same = [one for one in volumes if one.get("volume") == device.get("volume")]
    replica: Mapping[str, Any] = same[0] if same else {}
    connection = STANDALONE
    if peer:
        connection = _text(peer, "connection-state")
        connection = _CONNECTIONS.get(connection, connection)
        if connection == CONNECTED:
            replication = _text(replica, "replication-state")
            connection = _REPLICATIONS.get(replication, replication)
    resyncing = connection in RESYNCING
    role = _text(resource, "role")
    disk = _text(device, "disk-state")
    if (connection, disk) == (STANDALONE, DISKLESS) and role != PRIMARY:
        # What DRBD 8 calls a minor which has nothing, and is not in use.
        connection = UNCONFIGURED
    return MinorState(
        minor=minor,
        resource=_text(resource, "name"),
        connection=connection,
        local_role=role,
        remote_role=_text(peer, "peer-role") if "peer-role" in peer else "Unknown",
        local_disk=disk,
        remote_disk=_text(replica, "peer-disk-state") if replica else "DUnknown",
        sync_percent=_number(replica.get("percent-in-sync")) if resyncing else None,
        finish_s=_whole(replica.get("estimated-seconds-to-finish")) if resyncing else None,
        out_of_sync_kib=_whole(replica.get("out-of-sync")),
        # Later versions say who suspends: suspended-user, suspended-no-data and others.
        suspended=any(
            value is True for key, value in resource.items() if key.startswith("suspended")
        ),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise errors.ParseError(f"expected an object of drbdsetup status, found {value!r:.120}")
    return value


def _list(holder: Mapping[str, Any], key: str) -> list[Any]:
    value = holder.get(key, [])
    if not isinstance(value, list):
        raise errors.ParseError(f"expected a list {key} of drbdsetup status, found {value!r:.120}")
    return value


def _text(holder: Mapping[str, Any], key: str) -> str:
    value = holder.get(key)
    if not isinstance(value, str):
        raise errors.ParseError(f"expected {key} of drbdsetup status, found {value!r:.120}")
    return value


def _number(value: Any) -> float | None:
    # Neither a boolean, nor "not a number", nor infinite.
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e15:
        return None
    return float(value)


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
