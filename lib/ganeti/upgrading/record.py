"""The record of an upgrade: which step it has reached. Source: Ganeti's *intent to upgrade* file.

The master keeps it in ``/var/lib/ganeti/intent-to-upgrade``. It is on the disk before each step
begins and is removed at the end. Steps can be repeated, because an interruption can come between
the end of a step and the record of it. Two versions read the file
(:mod:`ganeti.runbook.record`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from ganeti.platform import paths
from ganeti.runbook import record

# All steps but those which let the queue and the watcher work again.
_ALL_BUT_QUEUE: tuple[str, ...] = (
    *("inspect", "drain", "stop", "backup", "convert", "convert_back", "switch", "start", "verify"),
)

_BY_HAND = (
    "Bring all nodes to one version by hand: the manual has a section for that, 'The record is"
    " damaged' in 'Upgrade'"
)


@dataclass
class Record:
    """What is known about an upgrade, or about a way back.

    :ivar number: distinguishes it from others: seconds since the epoch.
    :ivar origin: the version from which the cluster goes, such as ``0.9``.
    :ivar target: the version to which it goes.
    :ivar master: name of the node on which the command runs.
    :ivar nodes: name -> IP address of each node which is switched, the master among them.
    :ivar left_out: nodes which are offline and keep their version.
    :ivar done: names of the steps which are complete.
    :ivar step: name of the step which has begun last.
    :ivar verified: codes of errors which the verification before has found.
    :ivar was_drained: whether the queue was drained before.
    :ivar paused_until: end of a pause of the watcher, in seconds since the epoch; 0 for no pause.
    :ivar stopped_at: when the daemons were stopped, in seconds since the epoch; 0 before that.
    """

    number: int
    origin: str
    target: str
    master: str
    nodes: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    step: str = ""
    verified: tuple[str, ...] = ()
    was_drained: bool = False
    paused_until: float = 0.0
    stopped_at: float = 0.0

    def turned(self, number: int) -> Record:
        """Return the record of the way back from here, whichever step this one has reached."""
        if self.stopped_at:
            kept: tuple[str, ...] = ("inspect", "drain")
            done = tuple(name for name in kept if name in self.done)
        else:
            # The daemons of the version before still run: only queue and watcher were changed.
            done = _ALL_BUT_QUEUE
        return dataclasses.replace(
            self,
            number=number,
            origin=self.target,
            target=self.origin,
            done=done,
            step="",
        )


def record_file(path: str | None = None) -> record.RecordFile[Record]:
    """Return the file of the record.

    :param path: None for the one of this node.
    """
    return record.RecordFile(path or paths.current().intent_to_upgrade_file, parse_record, _BY_HAND)


def parse_record(text: str, path: str = "the record") -> Record:
    """Read the content of the file.

    :raises ConfigurationError: it has another form.
    """
    return record.from_text(Record, text, path, "the record of an upgrade")
