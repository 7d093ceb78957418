"""Sets of locks that several logical units need.

The units ask for the locks; the processor acquires them. Instances come before groups, groups
before nodes, nodes before their resources. So a unit computes the set of a higher level in
``declare_locks`` from the locks which are held. When it had to compute the set from the
configuration before it held them, :func:`require_still_same` compares it afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.locking import Level

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.objects import ConfigData


def instances_of_group(unit: AnyUnit, group_uuid: str) -> frozenset[str]:
    """Return the UUIDs of the instances with their primary node in a group, as configured now."""
    data = unit.config.snapshot()
    # An instance whose node does not exist is in no group; verification reports that.
    nodes = {node.uuid for node in data.nodes.values() if node.group == group_uuid}
    return frozenset(
        instance.uuid for instance in data.instances.values() if instance.primary_node in nodes
    )


def nodes_of_group(unit: AnyUnit, group_uuid: str) -> frozenset[str]:
    """Return the UUIDs of the nodes of a group, as configured now."""
    return frozenset(n.uuid for n in unit.config.snapshot().nodes.values() if n.group == group_uuid)


def require_still_same(held: Collection[str], now: Collection[str], what: str) -> None:
    """Compare the locked objects with those which the configuration names now.

    :raises errors.OpPrereqError: they differ; the user can submit the job again.
    """
    if set(held) != set(now):
        raise errors.OpPrereqError(
            f"{what} changed while the job waited for its locks. Please retry.", errors.ECODE_STATE
        )


def lock_label(config: ConfigData, name: str) -> str:
    """Return a lock's name for users: ``node/node1.example.com`` for ``node/<uuid>``.

    The lock of an object which does not exist any more keeps the UUID.
    """
    level, _, key = name.partition("/")
    tables: dict[str, Mapping[str, Any]] = {
        Level.INSTANCE.label: config.instances,
        Level.NODEGROUP.label: config.nodegroups,
        Level.NODE.label: config.nodes,
        Level.NODE_RES.label: config.nodes,
        Level.NETWORK.label: config.networks,
    }
    found = tables.get(level, {}).get(key)
    return name if found is None else f"{level}/{found.name}"
