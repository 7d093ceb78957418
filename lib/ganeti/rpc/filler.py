"""Fill in the parameters of instances and disks which are sent to nodes.

A filler is used for one fan-out. Most arguments are the same for all nodes, except mirrored disks:
each node gets the parameters of its own replica.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ganeti import errors
from ganeti.objects import fill
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, Instance
from ganeti.wire.calls.base import Filler

if TYPE_CHECKING:
    from ganeti.objects.cluster import ConfigData


class NodeFiller(Filler, Protocol):
    """Fills in parameters for one node after the other.

    :ivar differs: what was encoded is not the same for all nodes.
    """

    differs: bool

    def select_node(self, node_uuid: str) -> None:
        """Fill in the parameters for this node from now on."""


class WithoutConfig:
    """Refuses to encode instances and disks, because there is no configuration."""

    differs = False

    def select_node(self, node_uuid: str) -> None:
        """Do nothing."""

    def filled_instance(self, instance: Instance, **_overrides: Any) -> FilledInstance:
        raise errors.ProgrammerError(
            f"instance {instance.name} cannot be sent to a node without the configuration"
        )

    def annotated_disk(self, disk: Disk, instance: Instance | FilledInstance) -> Disk:
        raise errors.ProgrammerError(
            f"disk {disk.uuid} cannot be sent to a node without the configuration"
        )


class FromConfig:
    """Fills in parameters from one snapshot of the configuration."""

    def __init__(self, config: ConfigData) -> None:
        self._config = config
        self._diskparams: dict[str, dict[str, Any]] = {}
        self._node_uuid: str | None = None
        self.differs = False

    def select_node(self, node_uuid: str) -> None:
        self._node_uuid = node_uuid

    def filled_instance(self, instance: Instance, **overrides: Any) -> FilledInstance:
        filled = fill.filled_instance(self._config, instance, **overrides)
        return replace(filled, disks_info=tuple(map(self._dynamic, filled.disks_info)))

    def _dynamic(self, disk: Disk) -> Disk:
        if any(device.has_replicas for device in disk.walk()):
            self.differs = True
            if self._node_uuid is not None:
                return fill.for_node(disk, self._node_uuid, self._config)
        return disk

    def annotated_disk(self, disk: Disk, instance: Instance | FilledInstance) -> Disk:
        node = self._config.nodes.get(instance.primary_node)
        if node is None:
            raise errors.ConfigurationError(
                f"instance {instance.name}: node {instance.primary_node} is not in the "
                "configuration"
            )
        found = fill.annotated_disk(disk, self._params(node.group))
        called = self._config.nodes.get(self._node_uuid or "")
        if called is not None and called.group != node.group:
            # Both ends of a mirror need the same parameters, but volumes are the matter of their
            # node: a new one is made with those of the group in which it is.
            self.differs = True
            own = fill.annotated_disk(disk, self._params(called.group))
            found = replace(found, children=own.children) if disk.has_replicas else own
        return self._dynamic(found)

    def _params(self, group_uuid: str) -> dict[str, Any]:
        """Return the parameters of all templates in a node group."""
        params = self._diskparams.get(group_uuid)
        if params is None:
            group = self._config.nodegroups.get(group_uuid)
            params = self._diskparams[group_uuid] = fill.fill_diskparams(
                self._config.cluster.diskparams, group.diskparams if group else None
            )
        return params
