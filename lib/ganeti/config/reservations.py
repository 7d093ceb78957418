"""Names and addresses which a job has taken but not yet written into the configuration.

Between the check that a name is free and the commit that uses it, another job must not take it. A
reservation belongs to an execution (``ec_id``, any hashable text) and ends with it: the processor
calls :meth:`Reservations.release` when the job's opcode is over, by then the name is in the
configuration or free again. That is also why the present configuration is read *after* a look at
the reservations: who released before that look had committed before.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable

from ganeti import errors
from ganeti.objects import ConfigData
from ganeti.utils import text

INSTANCE_NAME = "instance name"
MAC = "MAC address"
UUID = "uuid"
IP = "IP address"
LV = "logical volume"

_MAC_TRIES = 64


class Reservations:
    """What is taken, by kind and value, and by whom. Thread-safe."""

    def __init__(self, snapshot: Callable[[], ConfigData]) -> None:
        self._snapshot = snapshot
        self._mutex = threading.Lock()
        self._taken: dict[tuple[str, str], str] = {}

    def release(self, ec_id: str) -> None:
        """Forget everything an execution reserved."""
        with self._mutex:
            for key in [key for key, holder in self._taken.items() if holder == ec_id]:
                del self._taken[key]

    def reserve(self, kind: str, value: str, ec_id: str,
                used: Callable[[ConfigData], Iterable[str]]) -> None:
        """Take a value for an execution; taking it twice is no error.

        :param used: the values of this kind in a configuration.
        :raises ReservationError: the configuration has it, or another execution.
        """
        with self._mutex:
            holder = self._taken.get((kind, value))
            if holder == ec_id:
                return
            if holder is not None:
                raise errors.ReservationError(
                    f"{kind} {value} is being taken by another operation")
            if value in used(self._snapshot()):
                raise errors.ReservationError(f"{kind} {value} is already in use")
            self._taken[kind, value] = ec_id

    def reserved(self, kind: str, ec_id: str) -> frozenset[str]:
        """Values which other executions hold."""
        with self._mutex:
            return frozenset(
                value for (taken, value), holder in self._taken.items()
                if taken == kind and holder != ec_id)

    def new_uuid(self, ec_id: str) -> str:
        """A UUID nobody has."""
        while True:
            uuid = text.new_uuid()
            try:
                self.reserve(UUID, uuid, ec_id, _uuids_with(uuid))
            except errors.ReservationError:
                continue
            return uuid

    def new_mac(self, prefix: str, ec_id: str) -> str:
        """A MAC address nobody has.

        :param prefix: the first three bytes, ``aa:00:00``.
        :raises ReservationError: no free address was found.
        """
        used = frozenset(macs(self._snapshot()))
        for _ in range(_MAC_TRIES):
            low = secrets.token_bytes(3)
            mac = f"{prefix}:{low[0]:02x}:{low[1]:02x}:{low[2]:02x}"
            if mac in used:
                continue
            try:
                self.reserve(MAC, mac, ec_id, macs)
            except errors.ReservationError:
                continue
            return mac
        raise errors.ReservationError(f"no free MAC address found below {prefix}")


def macs(data: ConfigData) -> Iterable[str]:
    """MAC addresses of all instances."""
    return (nic.mac.lower() for instance in data.instances.values() for nic in instance.nics)


def instance_names(data: ConfigData) -> Iterable[str]:
    """Names of all instances."""
    return (instance.name for instance in data.instances.values())


def logical_volumes(data: ConfigData) -> Iterable[str]:
    """``vg/lv`` of all logical volumes."""
    return (
        f"{device.logical_id[0]}/{device.logical_id[1]}"
        for disk in data.disks.values() for device in disk.walk() if device.dev_type == "plain")


def _uuids_with(uuid: str) -> Callable[[ConfigData], Iterable[str]]:
    def used(data: ConfigData) -> Iterable[str]:
        tables = (data.nodes, data.nodegroups, data.instances, data.networks, data.disks,
                  data.filters)
        return [uuid] if any(uuid in table for table in tables) else []
    return used
