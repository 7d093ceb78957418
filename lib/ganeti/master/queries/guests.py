"""What nodes know of running guests: the log of a console, and what guests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import why
from ganeti.objects import fill, hypervisors
from ganeti.utils import clock
from ganeti.utils.text import natural_key
from ganeti.wire.calls import CONSOLE_LOG_READ, GUESTS_USAGE

if TYPE_CHECKING:
    from ganeti.cmdlib.base import MasterContext
    from ganeti.objects import Instance


def read_console_log(
    context: MasterContext, instance_name: str, lines: int, position: str
) -> dict[str, Any]:
    """Answer ``ReadConsoleLog``: a part of the log on the primary node of an instance.

    :param lines: how many lines of the end; used without a position only.
    :param position: of the part before; empty for the end of the log.
    :returns: ``text``; ``position``, for the next part; ``lost``, whether output before this part
        is not kept any more; ``node``, the name of the node.
    :raises errors.OpPrereqError: no such instance (unknown_entity), or there is no log
        (wrong_state).
    :raises errors.OpExecError: the node cannot be asked, or refuses.
    """
    instance = context.config.expand_instance(instance_name)
    node = context.config.node(instance.primary_node)
    _require_log(context, instance)
    answer = context.rpc.call(
        CONSOLE_LOG_READ,
        node.uuid,
        instance_uuid=instance.uuid,
        lines=lines,
        position=position,
    )
    if answer.failure is not None:
        raise errors.OpExecError(
            f"cannot read the console log of instance {instance.name} on node {node.name}:"
            f" {why(answer.failure)}"
        ) from answer.failure
    if not answer.data:
        raise errors.OpPrereqError(
            f"node {node.name} has no console log of instance {instance.name}. It is kept from the"
            " next start of the instance on this node on.",
            errors.ECODE_STATE,
        )
    return {**answer.data, "node": node.name}


def _require_log(context: MasterContext, instance: Instance) -> None:
    if instance.forthcoming:
        raise errors.OpPrereqError(
            f"instance {instance.name} is forthcoming, so it has no console log", errors.ECODE_STATE
        )
    descriptor = hypervisors.of(instance.hypervisor)
    if not descriptor.keeps_console_log:
        raise errors.OpPrereqError(
            f"hypervisor {instance.hypervisor} of instance {instance.name} keeps no console log",
            errors.ECODE_STATE,
        )
    parameter = descriptor.console_log_parameter
    if parameter and not fill.instance_hv(context.config.cluster(), instance).get(parameter):
        raise errors.OpPrereqError(
            f"instance {instance.name} has no serial console, so it has no console log. Set its"
            f" hypervisor parameter {parameter} to yes and restart it.",
            errors.ECODE_STATE,
        )


def usage(context: MasterContext) -> dict[str, Any]:
    """Answer ``QueryGuestsUsage``: ask all nodes at once what their guests use.

    :returns: ``time`` in seconds since 1970; ``guests``, a dictionary for each with ``name``,
        ``node``, ``clock`` (of the node, in seconds) and the members of
        ``wire.calls.instance.USAGE``; ``failures``, name of a node -> why it did not answer.
    """
    data = context.config.snapshot()
    asked = [node for node in context.config.nodes() if node.vm_capable and not node.offline]
    answers = context.rpc.call_many(
        GUESTS_USAGE,
        [node.uuid for node in asked],
        per_node={
            node.uuid: {"hypervisors": list(fill.node_hypervisors(data, node.uuid))}
            for node in asked
        },
    )
    guests = []
    failures = {}
    for node in sorted(asked, key=lambda node: natural_key(node.name)):
        answer = answers[node.uuid]
        if answer.failure is not None:
            failures[node.name] = why(answer.failure)
            continue
        measured = answer.data["clock"]
        guests += [
            {"name": name, "node": node.name, "clock": measured, **used}
            for name, used in sorted(answer.data["guests"].items())
        ]
    return {"time": clock.now(), "guests": guests, "failures": failures}
