"""Reservations: names and addresses of jobs which are not yet written into the configuration.

Between the check that a name is free and the commit that uses it, another job must not use it. A
reservation belongs to an execution (``ec_id``, a text) and ends with it: the processor calls
:meth:`Reservations.release` when the opcode has ended; then the name is in the configuration or
free again. At every moment in between a value is reserved, or in the newest state, or both;
therefore reservations are checked first and the newest state afterwards.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, TypeVar

from ganeti import errors
from ganeti.config.index_keys import INSTANCE_NAME, IP, LV, MAC, MINOR, PORT
from ganeti.objects import ConfigData
from ganeti.utils import text

__all__ = ["DEVICE", "INSTANCE_NAME", "IP", "LV", "MAC", "MINOR", "PORT", "UUID", "Reservations"]

ValueT = TypeVar("ValueT")

UUID: Final = "uuid"
#: A name of a device, see :mod:`ganeti.objects.device_names`; no index of the configuration has it.
DEVICE: Final = "device"

_MAC_TRIES: Final = 64


class Reservations:
    """The reserved values by kind, each with its execution. Thread-safe.

    :param holds: tells whether the newest state has a value, by kind and value.
    :param snapshot: returns the present state.
    """

    def __init__(
        self, holds: Callable[[str, Any], bool], snapshot: Callable[[], ConfigData]
    ) -> None:
        self._holds = holds
        self._snapshot = snapshot
        self._mutex = threading.Lock()
        self._taken: dict[tuple[str, Any], str] = {}

    def release(self, ec_id: str) -> None:
        """Release all reservations of an execution."""
        with self._mutex:
            for key in [key for key, holder in self._taken.items() if holder == ec_id]:
                del self._taken[key]

    def release_all(self, beginning: str) -> None:
        """Release all reservations of the executions whose names begin like this."""
        with self._mutex:
            for key in [key for key, holder in self._taken.items() if holder.startswith(beginning)]:
                del self._taken[key]

    def restore(self, kind: str, value: Any, ec_id: str) -> None:
        """Reserve what an execution had reserved before a restart of the master daemon.

        The value may be in the configuration meanwhile.
        """
        with self._mutex:
            self._taken.setdefault((kind, value), ec_id)

    def reserve(self, kind: str, value: Any, ec_id: str) -> None:
        """Reserve a value for an execution; to reserve it again has no effect.

        :raises ReservationError: the value is in the configuration, or another execution has
            reserved it.
        """
        with self._mutex:
            holder = self._taken.get((kind, value))
            if holder == ec_id:
                return
            if holder is not None:
                raise errors.ReservationError(
                    f"{kind} {_shown(value)} is reserved by another operation"
                )
            if self._holds(kind, value):
                raise errors.ReservationError(f"{kind} {_shown(value)} is already in use")
            self._taken[kind, value] = ec_id

    def first_free(self, kind: str, values: Iterable[ValueT], ec_id: str) -> ValueT | None:
        """Reserve the first value which is neither reserved nor in the configuration.

        :returns: the value, or None when all are in use.
        """
        with self._mutex:
            for value in self._free(kind, values):
                self._taken[kind, value] = ec_id
                return value
        return None

    def next_free(self, kind: str, values: Iterable[ValueT], count: int) -> list[ValueT]:
        """Return the first values, at most so many, which are free now; reserve none of them."""
        with self._mutex:
            return list(itertools.islice(self._free(kind, values), count))

    def _free(self, kind: str, values: Iterable[ValueT]) -> Iterator[ValueT]:
        return (
            value
            for value in values
            if (kind, value) not in self._taken and not self._holds(kind, value)
        )

    def held_by_others(self, kind: str, value: Any, ec_id: str | None) -> bool:
        """Tell whether another execution has reserved a value."""
        with self._mutex:
            return self._taken.get((kind, value), ec_id) != ec_id

    def taken(self, kind: str) -> frozenset[Any]:
        """Return all reserved values of a kind."""
        with self._mutex:
            return frozenset(value for known, value in self._taken if known == kind)

    def new_uuid(self, ec_id: str) -> str:
        """Reserve a new UUID and return it."""
        while True:
            uuid = text.new_uuid()
            data = self._snapshot()
            tables: tuple[Collection[str], ...] = (
                data.nodes,
                data.nodegroups,
                data.instances,
                data.networks,
                data.disks,
                data.filters,
                data.documents,
                data.access_records,
            )
            if not any(uuid in table for table in tables):
                found = self.first_free(UUID, [uuid], ec_id)
                if found is not None:
                    return found

    def new_mac(self, prefix: str, ec_id: str) -> str:
        """Reserve a random free MAC address and return it.

        :param prefix: the first three bytes, as in ``aa:00:00``.
        :raises ReservationError: no free address was found.
        """
        found = self.first_free(MAC, (_random_mac(prefix) for _ in range(_MAC_TRIES)), ec_id)
        if found is None:
            raise errors.ReservationError(f"no free MAC address with prefix {prefix} was found")
        return found


def _random_mac(prefix: str) -> str:
    low = secrets.token_bytes(3)
    return f"{prefix.lower()}:{low[0]:02x}:{low[1]:02x}:{low[2]:02x}"


def _shown(value: Any) -> str:
    # The second part of a pair is the address, or the number.
    return str(value[1] if isinstance(value, tuple) else value)
