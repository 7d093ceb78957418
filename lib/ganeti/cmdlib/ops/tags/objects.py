"""Finding and changing the objects which have tags."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.constants import tags as tags_c
from ganeti.locking import Level
from ganeti.objects import Cluster, Instance, Network, Node, NodeGroup, updated

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.config import Config

Tagged: TypeAlias = Cluster | NodeGroup | Node | Instance | Network
"""An object which can have tags."""

#: Level of the lock which protects an object of a type.
LEVELS = {
    tags_c.INSTANCE: Level.INSTANCE,
    tags_c.NODEGROUP: Level.NODEGROUP,
    tags_c.NODE: Level.NODE,
    tags_c.NETWORK: Level.NETWORK,
}


def find(config: Config, kind: str, name: str | None) -> Tagged:
    """Find an object by its type and name; the cluster needs no name.

    :raises errors.OpPrereqError: there is no such object.
    """
    if kind == tags_c.CLUSTER:
        return config.cluster()
    if not name:
        raise errors.OpPrereqError(f"the name of the {kind} is missing", errors.ECODE_INVAL)
    expand: dict[str, Callable[[str], Tagged]] = {
        tags_c.INSTANCE: config.expand_instance,
        tags_c.NODEGROUP: config.expand_group,
        tags_c.NODE: config.expand_node,
        tags_c.NETWORK: config.expand_network,
    }
    if kind not in expand:
        raise errors.OpPrereqError(f"objects of type {kind!r} have no tags", errors.ECODE_INVAL)
    return expand[kind](name)


def lock(unit: AnyUnit, kind: str, obj: Tagged, *, shared: bool) -> None:
    """Ask for the lock of an object; the cluster has no lock except the cluster lock."""
    if kind in LEVELS:
        unit.need(LEVELS[kind], [obj.uuid], shared=shared)


def fresh(config: Config, kind: str, obj: Tagged) -> Tagged:
    """Return the present state of an object."""
    return config.cluster() if kind == tags_c.CLUSTER else find(config, kind, obj.uuid)


def change(
    config: Config,
    kind: str,
    obj: Tagged,
    *,
    add: Collection[str] = (),
    remove: Collection[str] = (),
) -> None:
    """Add and remove tags of an object whose lock the caller holds, or of the cluster."""
    if kind == tags_c.CLUSTER:
        # No lock protects the tags of the cluster, so they are read inside the transaction.
        with config.transaction() as transaction:
            prereq.require_tags(add, transaction.data.cluster.tags)
            transaction.cluster.update(_changed(transaction.data.cluster, add, remove))
        return
    with config.transaction() as transaction:
        write: dict[str, Callable[[Any], None]] = {
            tags_c.INSTANCE: transaction.instances.update,
            tags_c.NODEGROUP: transaction.groups.update,
            tags_c.NODE: transaction.nodes.update,
            tags_c.NETWORK: transaction.networks.update,
        }
        write[kind](_changed(obj, add, remove))


def _changed(obj: Any, add: Iterable[str], remove: Iterable[str]) -> Any:
    tags = {*obj.tags, *add}.difference(remove)
    return updated(obj, tags=tuple(sorted(tags)))


def every_path(config: Config) -> list[tuple[str, Tagged]]:
    """Return path and object for all objects which can have tags."""
    data = config.snapshot()
    found: list[tuple[str, Tagged]] = [("/cluster", data.cluster)]
    for label, objects in (
        ("instances", data.instances),
        ("nodes", data.nodes),
        ("nodegroup", data.nodegroups),
        ("network", data.networks),
    ):
        found.extend((f"/{label}/{obj.name}", obj) for obj in objects.values())
    return found
