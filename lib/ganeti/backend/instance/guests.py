"""Handlers which look at running guests: the log of a console, and what guests use."""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ganeti import hypervisor as drivers
from ganeti.backend.registry import serves
from ganeti.hypervisor import console_log
from ganeti.wire import calls

# Agents which do not answer take a second each; a list of all guests waits this long for all.
_AGENTS_S = 3.0
_AGENTS_AT_ONCE = 16


@serves(calls.CONSOLE_LOG_READ)
def read_console_log(instance_uuid: str, lines: int, position: str) -> dict[str, Any]:
    """Return a part of a console log; empty when this node has none.

    :raises HypervisorError: the log cannot be read, or the position is none.
    """
    piece = console_log.read(instance_uuid, lines, position)
    return {} if piece is None else piece._asdict()


@serves(calls.GUEST_DETAILS)
def details(guests: dict[str, list[Any]]) -> dict[str, Any]:
    """Return since when guests run, and their addresses, see ``wire.calls.GUEST_DETAILS``.

    :raises HypervisorError: a hypervisor does not tell which guests run.
    """
    from ganeti.hypervisor.net import neighbours  # only this call needs it

    running = {
        kind: drivers.of(kind).list_instances() for kind in {facts[0] for facts in guests.values()}
    }
    guests = {name: facts for name, facts in guests.items() if name in running[facts[0]]}
    leases, seen = neighbours.leased(), neighbours.seen()
    found = {}
    for (name, (hypervisor, macs)), reported in zip(
        guests.items(), _agent_addresses(guests), strict=True
    ):
        addresses = {address: "guest agent" for address in reported}
        for known, source in ((leases, "lease"), (seen, "seen by the node")):
            for mac in macs:
                for address in known.get(mac.lower(), ()):
                    addresses.setdefault(address, source)
        found[name] = {
            "started": drivers.of(hypervisor).started_at(name),
            "addresses": [list(item) for item in addresses.items()],
        }
    return found


def _agent_addresses(guests: dict[str, list[Any]]) -> list[list[str]]:
    """Ask the agents of guests for addresses; those which do not answer in time have none."""
    deadline = time.monotonic() + _AGENTS_S

    def ask(name: str) -> list[str]:
        if time.monotonic() > deadline:
            return []
        return drivers.of(guests[name][0]).agent_addresses(name)

    if not guests:
        return []
    with ThreadPoolExecutor(min(_AGENTS_AT_ONCE, len(guests))) as pool:
        return list(pool.map(ask, guests))


@serves(calls.CONSOLE_LOG_REMOVE)
def remove_console_log(instance_name: str, instance_uuid: str) -> None:
    """Remove the log of an instance which is removed itself.

    :raises OSError: it cannot be removed.
    """
    console_log.remove(instance_name, instance_uuid)


@serves(calls.GUESTS_USAGE)
def usage(hypervisors: list[str]) -> dict[str, Any]:
    """Measure what the guests of this node use, see ``wire.calls.GUESTS_USAGE``."""
    return {
        "clock": time.monotonic(),
        "guests": {
            name: dataclasses.asdict(found)
            for one in hypervisors
            for name, found in drivers.of(one).usage().items()
        },
    }
