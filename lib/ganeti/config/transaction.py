"""Transactions: the operations which change the configuration, by kind of object.

A transaction begins with a state, collects changes in a draft (:mod:`.draft`) and ends with a new
state. Readers do not see the states in between; an exception discards all changes. Every operation
checks the references and the values which must be unique, so that no caller can make the
configuration inconsistent.

A caller changes an object by passing a new one, which it made from the present one. If another
transaction has changed the present object meanwhile, which the serial number shows, the operation
is refused instead of overwriting the other change.
"""

from __future__ import annotations

from ganeti.config.cluster_changes import (
    AccessChanges,
    ClusterChanges,
    DocumentChanges,
    FilterChanges,
    GroupChanges,
    NetworkChanges,
    NodeChanges,
    PortChanges,
)
from ganeti.config.disk_changes import DiskChanges
from ganeti.config.draft import Draft
from ganeti.config.instance_changes import InstanceChanges
from ganeti.config.recent_changes import RecentChanges
from ganeti.objects import ConfigData


class Transaction:
    """Changes of one state of the configuration; used by one thread.

    The fields have the operations. The store, which makes the draft, keeps or discards it.
    """

    access: AccessChanges
    cluster: ClusterChanges
    disks: DiskChanges
    documents: DocumentChanges
    filters: FilterChanges
    groups: GroupChanges
    instances: InstanceChanges
    networks: NetworkChanges
    nodes: NodeChanges
    ports: PortChanges

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.access = AccessChanges(draft)
        self.cluster = ClusterChanges(draft)
        self.disks = DiskChanges(draft)
        self.documents = DocumentChanges(draft)
        self.filters = FilterChanges(draft)
        self.groups = GroupChanges(draft)
        self.instances = InstanceChanges(draft)
        self.networks = NetworkChanges(draft)
        self.nodes = NodeChanges(draft, self.cluster)
        self.ports = PortChanges(draft)

    @property
    def now(self) -> float:
        """The time of the transaction, in seconds since 1970."""
        return self._draft.now

    @property
    def data(self) -> ConfigData:
        """The state with all changes made so far."""
        return self._draft.data

    @property
    def recent(self) -> RecentChanges:
        """What the states before this one have changed."""
        return self._draft.recent

    @property
    def base_serial(self) -> int:
        """Serial number of the state with which the transaction begins."""
        return self._draft.base_serial

    def changed_since(self, serial_no: int) -> frozenset[tuple[str, str]] | None:
        """Return what may differ between an earlier state and :attr:`data`, by kind and UUID.

        :returns: None when that is not known.
        """
        return self._draft.changed_since(serial_no)
