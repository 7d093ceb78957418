"""Handlers which look at running guests: the log of a console, and what guests use."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from ganeti import hypervisor as drivers
from ganeti.backend.registry import serves
from ganeti.hypervisor import console_log
from ganeti.wire import calls


@serves(calls.CONSOLE_LOG_READ)
def read_console_log(instance_uuid: str, lines: int, position: str) -> dict[str, Any]:
    """Return a part of a console log; empty when this node has none.

    :raises HypervisorError: the log cannot be read, or the position is none.
    """
    piece = console_log.read(instance_uuid, lines, position)
    return {} if piece is None else piece._asdict()


@serves(calls.GUEST_DETAILS)
def details(
    instance_name: str,
    hypervisor: str,  # the call's name for the argument
    macs: list[str],
) -> dict[str, Any]:
    """Return since when a guest runs, and its addresses, see ``wire.calls.GUEST_DETAILS``."""
    from ganeti.hypervisor.net import neighbours  # only this call needs it

    driver = drivers.of(hypervisor)
    found = {address: "guest agent" for address in driver.agent_addresses(instance_name)}
    for address in neighbours.leased(macs):
        found.setdefault(address, "lease")
    for address in neighbours.seen(macs):
        found.setdefault(address, "seen by the node")
    return {
        "started": driver.started_at(instance_name),
        "addresses": [list(item) for item in found.items()],
    }


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
