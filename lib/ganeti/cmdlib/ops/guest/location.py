"""Check before a start that an instance runs on no other node than its primary.

An instance must never run twice: two guests which write to one disk destroy its content. The
configuration names one node, but an interrupted migration, or manual work, may have left a guest on
another node. The disks decide which nodes can run it: any node of the group when several nodes can
reach them, else the nodes which have a part of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.constants.disk import EXT_MIRRORED
from ganeti.wire.calls import INSTANCE_INFO

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ganeti.objects import Instance, Node


def possible_nodes(unit: AnyUnit, instance: Instance) -> list[Node]:
    """Nodes which can run the instance, the primary first, without offline ones."""
    config = unit.config
    own = config.instance_nodes(instance)
    nodes = [config.node(uuid) for uuid in own]
    if config.disk_template(instance) in EXT_MIRRORED:
        group = config.node(instance.primary_node).group
        nodes += [
            node
            for node in config.nodes()
            if node.group == group and node.vm_capable and node.uuid not in own
        ]
    return [node for node in nodes if not node.offline]


def require_only_on_primary(
    unit: AnyUnit, instance: Instance, *, primary_may_be_dead: bool = False
) -> Mapping[str, Any]:
    """Check that the instance runs on no other node than its primary.

    An unresponsive node causes a warning only: otherwise one dead node would keep all instances of
    its group down.

    :param primary_may_be_dead: an unresponsive primary node causes a warning, too, and it may be
        marked offline.
    :returns: the facts of the primary's hypervisor about it; empty when it does not run.
    :raises errors.OpPrereqError: it runs elsewhere.
    :raises errors.RpcError: the primary does not answer.
    """
    nodes = possible_nodes(unit, instance)
    answers = unit.rpc.call_many(
        INSTANCE_INFO,
        [node.uuid for node in nodes],
        instance_name=instance.name,
        hypervisor=instance.hypervisor,
        hvparams=unit.config.filled(instance).hvparams,
    )
    elsewhere = []
    for node in nodes:
        answer = answers[node.uuid]
        if node.uuid == instance.primary_node:
            continue
        if answer.failure is not None:
            _warn(unit, instance, node, answer.failure)
        elif prereq.is_running(answer.data):
            elsewhere.append(node.name)
    if elsewhere:
        primary = unit.config.node(instance.primary_node).name
        raise errors.OpPrereqError(
            f"instance {instance.name} runs on node {', '.join(elsewhere)}, its primary node is"
            f" {primary}. 'gnt-instance migrate --cleanup {instance.name}' makes both agree.",
            errors.ECODE_STATE,
        )
    own = answers.get(instance.primary_node)
    if primary_may_be_dead and (own is None or own.failure is not None):
        if own is not None:
            _warn(unit, instance, unit.config.node(instance.primary_node), own.failure)
        return {}
    info: Mapping[str, Any] = answers[instance.primary_node].payload()
    return info


def _warn(unit: AnyUnit, instance: Instance, node: Node, failure: Exception | None) -> None:
    unit.warn(
        f"node {node.name} did not report whether it runs instance {instance.name}: {why(failure)}"
    )
