"""The state which a transaction builds: its tables, its index, and what every operation checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from ganeti import errors
from ganeti.config import ports
from ganeti.config.index import Index, values_of
from ganeti.config.index_keys import NAMES, PORT
from ganeti.config.recent_changes import RecentChanges
from ganeti.config.reservations import Reservations
from ganeti.constants.cluster import OBJECT_KINDS
from ganeti.objects import (
    AccessRecord,
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

KINDS: Final = tuple(OBJECT_KINDS)
#: Kinds which other versions do not have: the file has their table only when there are objects.
OWN_KINDS: Final = frozenset({"access_records", "documents"})
_KIND_OF: Final[dict[type, str]] = {
    Node: "nodes",
    NodeGroup: "nodegroups",
    Instance: "instances",
    Network: "networks",
    Disk: "disks",
    FilterRule: "filters",
    KeptDocument: "documents",
    AccessRecord: "access_records",
}

# Stands in the set of changed keys for the cluster object.
CLUSTER: Final = ("cluster", "")


class Draft:
    """A state of the configuration in the making; used by one thread.

    :param base: the state with which the transaction begins.
    :param index: the index of ``base``; each change updates it.
    :param recent: what the states before this one have changed.
    :param now: returns the time in seconds since 1970.
    """

    def __init__(
        self,
        base: ConfigData,
        index: Index,
        reservations: Reservations,
        recent: RecentChanges,
        now: Callable[[], float],
    ) -> None:
        self._base = base
        self._index = index
        # All updates of the index: kind, UUID, the old and the new object.
        self._indexed: list[tuple[str, str, Any, Any]] = []
        self._tables: dict[str, dict[str, Any]] = {}
        self._cluster = base.cluster
        self._data: ConfigData | None = base
        self.reservations = reservations
        self.recent = recent
        self.now = now()
        self.changed: set[tuple[str, str]] = set()

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

    # -- the cluster --------------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        """The present cluster object."""
        return self._cluster

    def set_cluster(self, cluster: Cluster) -> None:
        """Replace the cluster object."""
        self._cluster = cluster
        self.changed.add(CLUSTER)
        self._data = None

    def take_port(self, port: int) -> None:
        """Note that an object has a TCP port, if the cluster gives it."""
        changed = ports.without(self._cluster, port, lambda one: self.has(PORT, one), self.now)
        if changed is not self._cluster:
            self.set_cluster(changed)

    def release_port(self, port: int) -> None:
        """Return a TCP port to the pool of the cluster."""
        if port not in self._cluster.tcpudp_port_pool:
            pool = tuple(sorted((*self._cluster.tcpudp_port_pool, port)))
            self.set_cluster(updated(self._cluster, now=self.now, tcpudp_port_pool=pool))

    # -- objects ------------------------------------------------------------------------------

    def table(self, kind: str) -> dict[str, Any]:
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

    def put(self, obj: Any) -> None:
        """Store an object as it is, in place of the one with its UUID; its ports leave the pool."""
        kind = _KIND_OF[type(obj)]
        present = self.table(kind).get(obj.uuid)
        self._note(kind, obj.uuid, present, obj)
        self._writable(kind)[obj.uuid] = obj
        for what, value in values_of(kind, obj):
            if what == PORT and (present is None or (what, value) not in values_of(kind, present)):
                self.take_port(value)

    def amend(self, obj: Any, **values: Any) -> None:
        """Store an object with other values of some fields, its next serial number and the time."""
        self.put(updated(obj, now=self.now, **values))

    def drop(self, kind: str, uuid: str) -> Any:
        """Remove an object and return it."""
        obj = self.get(kind, uuid)
        self._note(kind, uuid, obj, None)
        del self._writable(kind)[uuid]
        return obj

    def _note(self, kind: str, uuid: str, old: Any, new: Any) -> None:
        self._index.replace(kind, uuid, old, new)
        self._indexed.append((kind, uuid, old, new))
        self.changed.add((kind, uuid))
        self._data = None

    def get(self, kind: str, uuid: str) -> Any:
        """Return an object.

        :raises ConfigurationError: there is none with this UUID.
        """
        obj = self.table(kind).get(uuid)
        if obj is None:
            raise errors.ConfigurationError(
                f"{OBJECT_KINDS[kind]} {uuid} is not in the configuration"
            )
        return obj

    def require(self, kind: str, uuid: str, what: str) -> None:
        """Check that there is an object.

        :param what: what refers to it, for the message.
        """
        if uuid not in self.table(kind):
            raise errors.ConfigurationError(
                f"{what}: {OBJECT_KINDS[kind]} {uuid} is not in the configuration"
            )

    def add(self, obj: Any) -> None:
        """Store a new object, with its first serial number and its times."""
        if not obj.uuid:
            raise errors.ConfigurationError(f"{OBJECT_KINDS[_KIND_OF[type(obj)]]} has no uuid")
        for kind in KINDS:
            if obj.uuid in self.table(kind):
                raise errors.ConfigurationError(
                    f"uuid {obj.uuid} is already in use by this kind of object:"
                    f" {OBJECT_KINDS[kind]}"
                )
        self.put(dataclasses.replace(obj, serial_no=1, ctime=obj.ctime or self.now, mtime=self.now))

    def replace(self, present: Any, obj: Any) -> None:
        """Store a changed object, if it was made from the present one."""
        name = getattr(obj, "name", None) or obj.uuid
        self.put(successor(present, obj, f"{OBJECT_KINDS[_KIND_OF[type(obj)]]} {name}", self.now))

    def check_name(self, kind: str, name: str, uuid: str) -> None:
        """Check that an object has a name which no other object of its kind has."""
        if not name:
            raise errors.ConfigurationError(f"{OBJECT_KINDS[kind]} {uuid} has no name")
        # A changed object mostly keeps its name; then no other object can have it.
        present = self.table(kind).get(uuid)
        if present is not None and present.name == name:
            return
        for owner in self._index.owners(NAMES[kind], name):
            if owner != uuid:
                raise errors.ConfigurationError(f"{OBJECT_KINDS[kind]} {name} exists already")

    def has(self, kind: str, value: Any) -> bool:
        """Tell whether an object has a value, of those which must be unique."""
        return self._index.has(kind, value)

    def has_other(self, kind: str, value: Any, uuid: str, ec_id: str | None) -> bool:
        """Tell whether another object or another execution has a value."""
        return any(owner != uuid for owner in self._index.owners(kind, value)) or (
            ec_id is not None and self.reservations.held_by_others(kind, value, ec_id)
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
