"""Tags which mean something to placement, and what they change in a cluster.

Tags of the cluster name prefixes; tags of nodes and instances with these prefixes take part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ganeti import TYPE_CHECKING
from ganeti.htools.instance import NO_NODE

if TYPE_CHECKING:
    from ganeti.htools.instance import Instance
    from ganeti.htools.node import Node

EXCLUSION = "htools:iextags:"
MIGRATION = "htools:migration:"
ALLOW_MIGRATION = "htools:allowmigration:"
LOCATION = "htools:nlocation:"
DESIRED_LOCATION = "htools:desiredlocation:"
STANDBY = "htools:standby:"
STANDBY_AUTO = "htools:standby:auto"


def values(prefix: str, tags: Iterable[str]) -> list[str]:
    """Return what follows a prefix, in the tags which have it."""
    return [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]


def matching(names: Iterable[str], tags: Iterable[str]) -> list[str]:
    """Return the tags which begin with one of the names and a colon."""
    starts = tuple(f"{name}:" for name in names)
    return [tag for tag in tags if tag.startswith(starts)] if starts else []


def accepted_migrations(cluster_tags: Iterable[str], own: frozenset[str]) -> frozenset[str]:
    """Return the migration tags a node accepts: its own, and those from which the cluster allows
    it.
    """
    accepted = set(own)
    for rule in values(ALLOW_MIGRATION, cluster_tags):
        source, separator, target = rule.partition("::")
        if separator and target in own:
            accepted.add(source)
    return frozenset(accepted)


def apply_to_nodes(nodes: Iterable[Node], cluster_tags: Sequence[str]) -> None:
    """Give the nodes their migration and location tags.

    Nothing migrates from a node that is lost: its instances fail over, which no tag forbids.
    """
    migration = values(MIGRATION, cluster_tags)
    location = values(LOCATION, cluster_tags)
    for node in nodes:
        own = frozenset(matching(migration, node.tags))
        node.migration_tags = frozenset() if node.lost else own
        node.accepted_tags = accepted_migrations(cluster_tags, own)
        node.location_tags = frozenset(matching(location, node.tags))


def apply_to_instances(
    instances: Iterable[Instance], cluster_tags: Sequence[str], more_exclusion: Iterable[str] = ()
) -> None:
    """Give instances their exclusion tags and desired locations.

    :param more_exclusion: names of exclusion tags besides those of the cluster.
    """
    exclusion = [*more_exclusion, *values(EXCLUSION, cluster_tags)]
    desired = values(DESIRED_LOCATION, cluster_tags)
    nothing: frozenset[str] = frozenset()
    for instance in instances:
        tags = instance.tags
        instance.exclusion_tags = tuple(matching(exclusion, tags)) if tags else ()
        instance.desired_locations = frozenset(matching(desired, tags)) if tags else nothing


def location_score(instance: Instance, primary: Node, secondary: Node | None) -> int:
    """Return how many location tags its nodes share, plus the desired ones its primary node
    lacks.
    """
    desired = instance.desired_locations
    score = len(desired - primary.location_tags) if desired else 0
    if secondary is not None and primary.location_tags:
        score += len(primary.location_tags & secondary.location_tags)
    return score


def secondary_of(instance: Instance, nodes: Sequence[Node]) -> Node | None:
    """Return the secondary node of an instance, if it has one."""
    return None if instance.secondary == NO_NODE else nodes[instance.secondary]
