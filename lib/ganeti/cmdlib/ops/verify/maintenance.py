"""What the verification says about nodes in maintenance, which an administrator may switch off.

Nothing is wrong while such a node does not answer, and while the instances which were stopped for
its maintenance do not run; but nobody should forget the node either, so there is a notice about
each one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ganeti.cmdlib.ops.node import maintenance
from ganeti.utils import clock
from ganeti.utils.text import comma_join

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.config import Config
    from ganeti.objects import Instance, Node


def is_stopped(instance: Instance, node: Node) -> bool:
    """Tell whether an instance was stopped for the maintenance of its node, which goes on."""
    mark = node.maintenance
    return mark is not None and not mark.returning and instance.uuid in mark.stopped


def notes(config: Config, findings: Findings, nodes: Iterable[Node], off: Collection[str]) -> None:
    """Write a notice about each node in maintenance.

    :param off: UUIDs of those which may be switched off, and do not answer.
    """
    for node in nodes:
        mark = node.maintenance
        if mark is None:
            continue
        text = f"node {node.name} is in maintenance since {clock.format_time(mark.since)}"
        if node.uuid in off:
            text += ", may be switched off, and does not answer"
        elif node.may_be_off():
            text += ", and may be switched off"
        elif mark.returning:
            text += "; its end has begun, and is not complete"
        else:
            text += "; its start is not complete, and the machine is still needed"
        stopped = maintenance.names(config, mark.stopped)
        if stopped:
            text += f"; these instances were stopped until its end: {comma_join(stopped)}"
        findings.note(text)
