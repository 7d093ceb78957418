"""Choose a secondary node for an instance which has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti import allocator
from ganeti.cmdlib.ops.placement import allocator as placement

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.objects import Instance, Node


def by_allocator(unit: AnyUnit, instance: Instance, given: str) -> Node:
    """Let an allocator choose a secondary node.

    :param given: the name of the allocator, or ``.`` for the default.
    :raises errors.OpPrereqError: there is no allocator, or it found no node.
    """
    name = placement.choose_allocator(
        unit.config,
        given,
        what=f"a secondary node of instance {instance.name}",
        node_option="--node",
        node_given=False,
    )
    request = allocator.AllocateSecondary(instance.uuid)
    uuid = placement.ask_allocator(unit, name or "", unit.config.snapshot(), request)
    node = unit.config.node(uuid)
    unit.info(
        f"Selected secondary node for instance {instance.name} via iallocator {name}: {node.name}"
    )
    return node
