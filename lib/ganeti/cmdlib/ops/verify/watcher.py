"""Verification of the watcher: whether a run of it hangs on a node.

A watcher which hangs ends all watching of its node without a word, and on the master that of the
instances: the next runs find its lock, and do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ganeti.constants import node_verify as nv
from ganeti.utils import clock

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.objects import ConfigData, Node

# A watcher which ran once runs every five minutes, unless it is paused or was switched off.
_LATE_S: Final = 2 * nv.WATCHER_HANGS_S


def node(data: ConfigData, findings: Findings, one: Node, answer: Mapping[str, Any]) -> None:
    """Check what a node says of its watcher; a node which says nothing is not reported."""
    runs, since_s = answer.get(nv.WATCHER) or ([], None)
    hanging = [(group, pid, age_s) for group, pid, age_s in runs if age_s >= nv.WATCHER_HANGS_S]
    for group, pid, age_s in hanging:
        known = data.nodegroups.get(group)
        part = f" for node group {known.name if known else group}" if group else ""
        findings.report(
            "ENODESETUP",
            one.name,
            f"the watcher{part} (process {pid}) has been running for {clock.format_span(age_s)} and"
            " probably hangs; until it ends, no other one works there. Look at watcher.log of that"
            f" node, and end it there with 'kill {pid}'",
        )
    if not hanging and since_s is not None and since_s >= _LATE_S:
        findings.report(
            "ENODESETUP",
            one.name,
            f"the last complete run of the watcher was {clock.format_span(since_s)} ago. Look at"
            " watcher.log of that node, and at its timer ganeti-watcher.timer or cron",
            warning=True,
        )
