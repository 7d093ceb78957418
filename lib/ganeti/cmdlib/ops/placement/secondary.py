"""Choose a secondary node for an instance which has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti import allocator
from ganeti.cmdlib.ops.placement import allocator as placement

if TYPE_CHECKING:
    from ganeti.cmdlib.base import Context
    from ganeti.objects import Instance, Node


def by_allocator(ctx: Context, instance: Instance, given: str) -> Node:
    """Let an allocator choose a secondary node.

    :param given: the name of the allocator, or ``.`` for the default.
    :raises errors.OpPrereqError: there is no allocator, or it found no node.
    """
    name = placement.choose_allocator(
        ctx.config,
        given,
        what=f"a secondary node of instance {instance.name}",
        node_option="--node",
        node_given=False,
    )
    request = allocator.AllocateSecondary(instance.uuid)
    uuid = placement.ask_allocator(ctx.rpc, ctx.log, name or "", ctx.config.snapshot(), request)
    node = ctx.config.node(uuid)
    ctx.log.info(
        f"Selected secondary node for instance {instance.name} via iallocator {name}: {node.name}"
    )
    return node
