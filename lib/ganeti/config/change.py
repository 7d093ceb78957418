"""The state which a transaction builds: its tables, its index, and what every operation checks.

:class:`Change` has what the operations share. They are in :mod:`.instance_changes`, for instances
and disks, and in :mod:`.transaction`, for everything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ganeti import errors
from ganeti.config import ports
from ganeti.config.index import Index, values_of
from ganeti.config.index_keys import NAMES, PORT
from ganeti.config.recent_changes import RecentChanges
from ganeti.config.reservations import Reservations
from ganeti.constants.cluster import OBJECT_KINDS
from ganeti.objects import (
    Cluster,
    ConfigData,
    Disk,
    FilterRule,
    Instance,
    KeptDocument,
    Network,
    Node,
    NodeGroup,
    updated,
)

ObjectT = TypeVar("ObjectT", Node, NodeGroup, Instance, Network, Disk)

KINDS: Final = tuple(OBJECT_KINDS)
#: Kinds which other versions do not have: the file has their table only when there are objects.
OWN_KINDS: Final = frozenset({"documents"})
_KIND_OF: Final[dict[type, str]] = {
    Node: "nodes",
    NodeGroup: "nodegroups",
    Instance: "instances",
    Network: "networks",
    Disk: "disks",
    FilterRule: "filters",
    KeptDocument: "documents",
}

# Stands in the set of changed keys for the cluster object.
CLUSTER: Final = ("cluster", "")


class Change:
    """The changes of one state of the configuration; used by one thread.

    :param base: the state with which the transaction begins.
    :param index: the index of ``base``; each operation updates it.
    :param now: returns the time in seconds since 1970.
    """

    def __init__(
        self, base: ConfigData, index: Index, reservations: Reservations, now: Callable[[], float]
    ) -> None:
        self._base = base
        self._index = index
        # All updates of the index: kind, UUID, the old and the new object.
        self._indexed: list[tuple[str, str, Any, Any]] = []
        self._reservations = reservations
        self.now = now()
        self._tables: dict[str, dict[str, Any]] = {}
        self._cluster = base.cluster
        self._data: ConfigData | None = base
        self.changed: set[tuple[str, str]] = set()
        #: What the states before this one have changed.
        self.recent = RecentChanges()

    @property
    def base_serial(self) -> int:
        """Serial number of the state with which the transaction begins."""
        return self._base.serial_no

    def changed_since(self, serial_no: int) -> frozenset[tuple[str, str]] | None:
        """Return what may differ between an earlier state and :attr:`data`, by kind and UUID.

        :returns: None when that is not known.
        """
        before = self.recent.between(serial_no, self._base.serial_no)
        return None if before is None else before | self.changed

    @property
    def data(self) -> ConfigData:
        """The state with all changes made so far."""
        if self._data is None:
            tables: Any = {kind: dict(table) for kind, table in self._tables.items()}
            self._data = dataclasses.replace(self._base, cluster=self._cluster, **tables)
        return self._data

    def finish(self) -> ConfigData:
        """Return the new state, with the next serial number and the time of the transaction."""
        tables: Any = self._tables
        return dataclasses.replace(
            self._base,
            cluster=self._cluster,
            serial_no=self._base.serial_no + 1,
            mtime=self.now,
            **tables,
        )

    def abandon(self) -> None:
        """Discard the changes: restore the index of the base."""
        for kind, uuid, old, new in reversed(self._indexed):
            self._index.replace(kind, uuid, new, old)
        self._indexed.clear()

    # -- ports --------------------------------------------------------------------------------

    def allocate_port(self) -> int:
        """Take a TCP port from the pool of the cluster and return it.

        :raises ConfigurationError: all ports are in use.
        """
        reserved = self._reservations.taken(PORT)
        for port in ports.free(self._cluster):
            if port not in reserved:
                self._take_port(port)
                return port
        raise ports.none_is_free()

    def _take_port(self, port: int) -> None:
        changed = ports.without(
            self._cluster, port, lambda one: self._index.has(PORT, one), self.now
        )
        if changed is not self._cluster:
            self._set_cluster(changed)

    def release_port(self, port: int) -> None:
        """Return a TCP port to the pool."""
        if port not in self._cluster.tcpudp_port_pool:
            pool = tuple(sorted((*self._cluster.tcpudp_port_pool, port)))
            self._set_cluster(updated(self._cluster, now=self.now, tcpudp_port_pool=pool))

    # -- objects ------------------------------------------------------------------------------

    def _table(self, kind: str) -> dict[str, Any]:
        """Return the present objects of a kind. The caller must not change the dictionary."""
        table = self._tables.get(kind)
        found: dict[str, Any] = getattr(self._base, kind) if table is None else table
        return found

    def _writable(self, kind: str) -> dict[str, Any]:
        table = self._tables.get(kind)
        if table is None:
            # One copy for each transaction and kind, because others read the base.
            table = self._tables[kind] = dict(getattr(self._base, kind))
        return table

    def _put(self, obj: Any) -> None:
        kind = _KIND_OF[type(obj)]
        present = self._table(kind).get(obj.uuid)
        self._note(kind, obj.uuid, present, obj)
        self._writable(kind)[obj.uuid] = obj
        for what, value in values_of(kind, obj):
            if what == PORT and (present is None or (what, value) not in values_of(kind, present)):
                self._take_port(value)

    def _drop(self, kind: str, uuid: str) -> Any:
        obj = self._get(kind, uuid)
        self._note(kind, uuid, obj, None)
        del self._writable(kind)[uuid]
        return obj

    def _note(self, kind: str, uuid: str, old: Any, new: Any) -> None:
        self._index.replace(kind, uuid, old, new)
        self._indexed.append((kind, uuid, old, new))
        self.changed.add((kind, uuid))
        self._data = None

    def _set_cluster(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.changed.add(CLUSTER)
        self._data = None

    def _get(self, kind: str, uuid: str) -> Any:
        obj = self._table(kind).get(uuid)
        if obj is None:
            raise errors.ConfigurationError(
                f"{OBJECT_KINDS[kind]} {uuid} is not in the configuration"
            )
        return obj

    def _require(self, kind: str, uuid: str, what: str) -> None:
        if uuid not in self._table(kind):
            raise errors.ConfigurationError(
                f"{what}: {OBJECT_KINDS[kind]} {uuid} is not in the configuration"
            )

    def _dated(self, obj: ObjectT) -> ObjectT:
        """Return a new object with its first serial number and its times."""
        return dataclasses.replace(obj, serial_no=1, ctime=obj.ctime or self.now, mtime=self.now)

    def _add(self, obj: Any) -> None:
        if not obj.uuid:
            raise errors.ConfigurationError(f"{OBJECT_KINDS[_KIND_OF[type(obj)]]} has no uuid")
        for kind in KINDS:
            if obj.uuid in self._table(kind):
                raise errors.ConfigurationError(
                    f"uuid {obj.uuid} is already in use by this kind of object:"
                    f" {OBJECT_KINDS[kind]}"
                )
        self._put(obj)

    def _replace(self, present: Any, obj: Any) -> None:
        name = getattr(obj, "name", None) or obj.uuid
        self._put(successor(present, obj, f"{OBJECT_KINDS[_KIND_OF[type(obj)]]} {name}", self.now))

    def _check_name(self, kind: str, name: str, uuid: str) -> None:
        if not name:
            raise errors.ConfigurationError(f"{OBJECT_KINDS[kind]} {uuid} has no name")
        # A changed object mostly keeps its name; then no other object can have it.
        present = self._table(kind).get(uuid)
        if present is not None and present.name == name:
            return
        for owner in self._index.owners(NAMES[kind], name):
            if owner != uuid:
                raise errors.ConfigurationError(f"{OBJECT_KINDS[kind]} {name} exists already")

    def _has_other(self, kind: str, value: Any, uuid: str, ec_id: str | None) -> bool:
        """Tell whether another object or another execution has a value."""
        return any(owner != uuid for owner in self._index.owners(kind, value)) or (
            ec_id is not None and self._reservations.held_by_others(kind, value, ec_id)
        )


def successor(present: Any, obj: Any, what: str, now: float) -> Any:
    """Return the changed object as it is stored, if it was made from the present one."""
    if obj.serial_no == present.serial_no:
        return updated(obj, now=now)
    if obj.serial_no == present.serial_no + 1:
        return obj  # the caller has increased the serial number already
    raise errors.ConfigurationError(
        f"{what} was changed meanwhile: it has serial number {present.serial_no}, the change was "
        f"made for {obj.serial_no}"
    )
