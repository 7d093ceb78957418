"""The record of a takeover, or of the way back: which step is complete on which node.

The master keeps it in one file, which is written after each step. So a run which was interrupted
goes on with the first step that is not complete. Steps may run twice: an interruption
can come between the end of a step and the record of it.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, field

from ganeti import errors
from ganeti.runbook import record
from ganeti.takeover.facts import STATE_DIR
from ganeti.utils import fs

RUN = "run"
BACK = "back"
_BY_HAND = (
    "Do not begin another takeover, because its archives would have what this one has changed:"
    " ganeti-takeover(8) says under FILES which archives have the files of each node"
)


@dataclass
class Progress:
    """The steps which are complete on one node."""

    steps: tuple[str, ...] = ()


@dataclass
class State:
    """What is known about a run.

    :ivar number: distinguishes this run from others on the same nodes: seconds since the epoch.
    :ivar direction: :data:`RUN` or :data:`BACK`.
    :ivar master: name of the node on which the program runs.
    :ivar original: package of the original -> version, as it was or will be installed.
    :ivar config_version: version of the configuration of the original.
    :ivar separate_users: whether the daemons of the original run under users of their own.
    :ivar package: path of our package on each node; empty if apt downloads it.
    :ivar verified: codes of errors which the verification before has found.
    :ivar unverified: nodes which that verification did not reach, because they were left out.
    :ivar cluster: steps which are complete and concern the cluster.
    :ivar nodes: node -> steps which are complete on it.
    :ivar left_out: nodes which were offline or which the administrator has left out.
    :ivar without_daemons: the run begins while no daemon of the cluster runs, because a takeover
        was broken off then.
    :ivar stopped_at: when the first daemon was stopped, in seconds since the epoch; 0 before that.
    :ivar served_at: when the master daemon served again; 0 before that.
    :ivar done: whether all steps are complete.
    """

    number: int
    direction: str
    master: str
    original: dict[str, str] = field(default_factory=dict)
    config_version: int = 0
    separate_users: bool = False
    package: str = ""
    verified: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    nodes: dict[str, Progress] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    without_daemons: bool = False
    stopped_at: float = 0.0
    served_at: float = 0.0
    done: bool = False

    def is_complete(self, step: str, node: str | None = None) -> bool:
        """Return True if a step is complete on a node, or for the cluster."""
        return step in (self.cluster if node is None else self.nodes.get(node, Progress()).steps)

    def complete(self, step: str, node: str | None = None) -> None:
        """Record in memory that a step is complete."""
        if self.is_complete(step, node):
            return
        if node is None:
            self.cluster += (step,)
        else:
            self.nodes.setdefault(node, Progress()).steps += (step,)


class StateFile(record.RecordFile[State]):
    """The file of the record.

    :param directory: where it is, on the master.
    """

    def __init__(self, directory: str = STATE_DIR) -> None:
        super().__init__(f"{directory}/state.json", parse_state, _BY_HAND)

    def takeover_before(self, back: State) -> State:
        """Return the record of the takeover which a way back takes back.

        :raises ConfigurationError: there is none.
        :raises OSError: a file cannot be read.
        """
        directory = os.path.dirname(self.path)
        kept = [
            parse_state(fs.read_file(path), path)
            for path in glob.glob(f"{glob.escape(directory)}/state-*.json")
        ]
        found = [one for one in kept if one.direction == RUN and one.number <= back.number]
        if not found:
            raise errors.ConfigurationError(f"{directory} has no record of a takeover")
        return max(found, key=lambda one: one.number)

    def write(self, state: State) -> None:
        """Replace the record. One of another run is kept, as ``state-NUMBER.json``.

        :raises OSError: the record cannot be written; the one before is unchanged.
        """
        before = self.read()
        directory = os.path.dirname(self.path)
        fs.make_dirs(directory, 0o700)
        if before is not None and before.number != state.number:
            os.replace(self.path, f"{directory}/state-{before.number}.json")
        super().write(state)


def parse_state(text: str, path: str = "the record") -> State:
    """Read the content of the file.

    :raises ConfigurationError: it has another form.
    """
    return record.from_text(State, text, path, "the record of a takeover")
