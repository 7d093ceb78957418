"""Moves of instances: the kinds, whether one is legal, and what it changes.

A *failover* stands for a migration of a running instance, too. ``r:T`` in the short form of a move
means that the secondary disk is replaced by one on node T, ``f`` a failover to the secondary node,
and ``fa:T`` a failover to any node T.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ganeti.htools import tags as htags
from ganeti.htools.instance import NO_NODE, Instance
from ganeti.htools.node import Fail, Node
from ganeti.utils.records import NamedTuple


class Kind(enum.IntEnum):
    """The kinds of moves, in the order in which a search tries them."""

    FAILOVER = 0
    REPLACE_SECONDARY = 1
    REPLACE_AND_FAILOVER = 2
    REPLACE_PRIMARY = 3
    FAILOVER_AND_REPLACE = 4
    FAILOVER_TO_ANY = 5


class Move(NamedTuple):
    """A move of one instance.

    :ivar target: the number of the new node; :data:`NO_NODE` for a failover.
    """

    kind: Kind
    target: int = NO_NODE


class Done(NamedTuple):
    """What a move changes: the nodes and the instance after it."""

    nodes: tuple[Node, ...]
    instance: Instance


def short_form(move: Move, nodes: Sequence[Node]) -> str:
    """Return the published short form: ``r:node3 f``."""
    target = "" if move.target == NO_NODE else nodes[move.target].alias
    return {
        Kind.FAILOVER: "f",
        Kind.REPLACE_SECONDARY: f"r:{target}",
        Kind.REPLACE_AND_FAILOVER: f"r:{target} f",
        Kind.REPLACE_PRIMARY: f"f r:{target} f",
        Kind.FAILOVER_AND_REPLACE: f"f r:{target}",
        Kind.FAILOVER_TO_ANY: f"fa:{target}",
    }[move.kind]


def destination(move: Move, primary: int, secondary: int) -> tuple[int, int]:
    """Return the primary and secondary node after a move."""
    target = move.target
    return {
        Kind.FAILOVER: (secondary, primary),
        Kind.REPLACE_SECONDARY: (primary, target),
        Kind.REPLACE_AND_FAILOVER: (target, primary),
        Kind.REPLACE_PRIMARY: (target, secondary),
        Kind.FAILOVER_AND_REPLACE: (secondary, target),
        Kind.FAILOVER_TO_ANY: (target, secondary),
    }[move.kind]


def _migrates(source: Node, *path: Node) -> Fail | None:
    """Check the migrations of an instance along a path of nodes."""
    for target in path:
        if target.rejects_migration_from(source):
            return Fail.MIGRATION
        source = target
    return None


def moved(instance: Instance, nodes: Sequence[Node], primary: int, secondary: int) -> Instance:
    """Make a copy of an instance on other nodes, with its new location score."""
    new = instance.placed(primary, secondary)
    second = None if secondary == NO_NODE else nodes[secondary]
    new.location_score = htags.location_score(new, nodes[primary], second)
    return new


def apply(
    nodes: Sequence[Node], instance: Instance, move: Move, *, force: bool = False
) -> Done | Fail:
    """Apply a move to copies of the nodes.

    :param force: ignore soft errors.
    :returns: the changed nodes and the instance, or why the move is not legal.
    """
    if move.kind == Kind.FAILOVER_TO_ANY:
        return _failover_to_any(nodes, instance, move.target, force=force)
    old_primary, old_secondary = nodes[instance.primary], nodes[instance.secondary]
    target = nodes[move.target] if move.target != NO_NODE else old_secondary
    path: tuple[Node, ...]
    if move.kind == Kind.REPLACE_SECONDARY:
        path = ()
    elif move.kind == Kind.REPLACE_PRIMARY:
        path = (old_secondary, target)
    elif move.kind == Kind.REPLACE_AND_FAILOVER:
        path = (target,)
    else:
        path = (old_secondary,)
    fail = _migrates(old_primary, *path)
    if fail is not None:
        return fail
    force_primary = force or old_primary.offline
    force_secondary = force or old_secondary.offline
    new = moved(instance, nodes, *destination(move, instance.primary, instance.secondary))
    if move.kind == Kind.REPLACE_SECONDARY:
        # The primary node keeps the instance, but the location score of that may change. What
        # only violates a policy there is so already.
        first, second, third = old_primary.copy(), old_secondary.copy(), target.copy()
        first.remove_primary(instance)
        second.remove_secondary(instance)
        fail = third.add_secondary(new, new.primary, force=force_secondary) or first.add_primary(
            new, force=True
        )
        return fail or Done((first, second, third), new)
    first, second = old_primary.copy(), old_secondary.copy()
    first.remove_primary(instance)
    second.remove_secondary(instance)
    if move.kind == Kind.FAILOVER:
        fail = second.add_primary(new, force=force_primary) or first.add_secondary(
            new, new.primary, force=force_primary, unchecked=old_primary.offline
        )
        return fail or Done((first, second), new)
    third = target.copy()
    if move.kind == Kind.REPLACE_AND_FAILOVER:
        fail = third.add_primary(new, force=force) or first.add_secondary(
            new, new.primary, force=force_secondary
        )
    elif move.kind == Kind.REPLACE_PRIMARY:
        # For a moment the instance runs on its secondary node.
        between = second.copy()
        fail = (
            between.add_primary(new, force=force_primary)
            or third.add_primary(new, force=force_primary)
            or second.add_secondary(new, new.primary, force=force_primary)
        )
    else:
        fail = second.add_primary(new, force=force_primary) or third.add_secondary(
            new, new.primary, force=force_primary
        )
    return fail or Done((first, second, third), new)


def _failover_to_any(
    nodes: Sequence[Node], instance: Instance, target: int, *, force: bool
) -> Done | Fail:
    old = nodes[instance.primary]
    fail = _migrates(old, nodes[target])
    if fail is not None:
        return fail
    new = moved(instance, nodes, target, instance.secondary)
    first, third = old.copy(), nodes[target].copy()
    first.remove_primary(instance)
    fail = third.add_primary(new, force=force or old.offline)
    return fail or Done((first, third), new)


def commands(move: Move, instance: Instance, nodes: Sequence[Node]) -> list[str]:
    """Return the ``gnt-instance`` commands of a move, without the name of the program."""
    name = instance.alias
    over = f"migrate -f {name}" if instance.running else f"failover -f {name}"
    replace = (
        "" if move.target == NO_NODE else f"replace-disks -n {nodes[move.target].alias} {name}"
    )
    if move.kind == Kind.FAILOVER_TO_ANY:
        verb = "migrate" if instance.running else "failover"
        return [f"{verb} -f -n {nodes[move.target].alias} {name}"]
    return {
        Kind.FAILOVER: [over],
        Kind.REPLACE_SECONDARY: [replace],
        Kind.REPLACE_AND_FAILOVER: [replace, over],
        Kind.REPLACE_PRIMARY: [over, replace, over],
        Kind.FAILOVER_AND_REPLACE: [over, replace],
    }[move.kind]
