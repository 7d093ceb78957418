"""The steps of an upgrade and of the way back, and how the master goes through them.

The first steps are done by the version from which the cluster goes, the others by the one to which
it goes, because each knows its own files best: a later version converts the configuration, to the
later form as to the earlier one. Between them the program starts itself again, as the other
version. Each step can be repeated.

The record says what was done, and not what machines and people have done since: a machine which
starts again starts its daemons, too. So they are stopped again after each interruption until
"start" has begun, "start" replaces those which run, and "verify" asks each node for daemons which
are older than its change of the version.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ganeti.platform import versions
from ganeti.runbook.steps import Step, execute, on_cluster
from ganeti.upgrading.record import Record

#: The version which does a step: the place of the step.
ORIGIN, TARGET = "origin", "target"


_BEFORE = (
    Step("inspect", "Verifying the cluster as it is", ORIGIN),
    Step("drain", "Pausing the watcher, draining the queue and waiting for its jobs", ORIGIN),
    Step("stop", "Stopping the daemons on all nodes; guests go on", ORIGIN),
    Step("backup", "Archiving the configuration, the keys and the queue", ORIGIN),
)
_SWITCH = Step("switch", "Switching all nodes to version {target}", ORIGIN)
_AFTER = (
    Step("start", "Starting the daemons on all nodes", TARGET),
    Step("serve", "Opening the queue, and distributing the configuration", TARGET),
    Step("verify", "Verifying the cluster", TARGET),
    Step("finish", "Letting the watcher work again", TARGET),
)
FORWARD = (
    *_BEFORE,
    _SWITCH,
    Step("convert", "Converting the configuration to version {target}", TARGET),
    *_AFTER,
)
BACK = (
    *_BEFORE,
    Step("convert_back", "Converting the configuration back to version {target}", ORIGIN),
    _SWITCH,
    *_AFTER,
)


def plan(record: Record) -> tuple[Step, ...]:
    """Return the steps of an upgrade, or of a way back."""
    goes_back = versions.number_of(record.target) < versions.number_of(record.origin)
    return BACK if goes_back else FORWARD


class Work(Protocol):
    """What the steps do; each raises GenericError when it fails."""

    def inspect(self, record: Record) -> None:
        """Record what verification finds before anything is changed."""

    def drain(self, record: Record) -> None:
        """Pause the watcher and drain the queue; return when no job is left."""

    def stop(self, record: Record) -> None:
        """Stop the daemons on all nodes."""

    def backup(self, record: Record) -> None:
        """Archive the data of the master."""

    def convert_back(self, record: Record) -> None:
        """Give the configuration the form of the earlier version."""

    def switch(self, record: Record) -> None:
        """Let all nodes use the other version."""

    def convert(self, record: Record) -> None:
        """Give the configuration the form of the later version."""

    def start(self, record: Record) -> None:
        """Start the daemons on all nodes, on the master last; those which run are replaced."""

    def serve(self, record: Record) -> None:
        """Open the queue, and distribute the configuration."""

    def verify(self, record: Record) -> None:
        """Check that all daemons have the version, and that verification finds nothing new."""

    def finish(self, record: Record) -> None:
        """Let the queue and the watcher be as they were before."""


class Upgrade:
    """An upgrade or a way back, as far as this version does it.

    :param record: it is changed.
    :param save: writes the record.
    :param hand_over: starts the program of another version, which goes on; on a real machine it
        does not return.
    :param own: the version of this program.
    :param interrupted: whether time has passed since the last step that the record has, in which
        machines may have started again.
    """

    def __init__(
        self,
        record: Record,
        work: Work,
        *,
        save: Callable[[Record], object],
        hand_over: Callable[[str], None],
        own: str = versions.OWN,
        say: Callable[[str], object] = print,
        clock: Callable[[], float] = time.time,
        interrupted: bool = False,
    ) -> None:
        self._interrupted = interrupted
        self._record = record
        self._work = work
        self._save = save
        self._hand_over = hand_over
        self._own = own
        self._say = say
        self._clock = clock

    def execute(self) -> bool:
        """Do all steps which are not complete and belong to this version.

        :returns: whether all steps are complete.
        :raises StepFailed: a step failed.
        :raises OSError: the record cannot be written.
        """
        record = self._record
        begun = (*record.done, record.step)
        if self._interrupted and "stop" in record.done and "start" not in begun:
            self._say("Stopping daemons which have been started since the interruption")
            on_cluster("stop", partial(self._work.stop, record))
        return execute(plan(record), self)

    def is_complete(self, step: Step) -> bool:
        """Return True if the record says that a step is complete."""
        return step.name in self._record.done

    def begin(self, step: Step, label: str) -> bool:
        """Say and record that a step begins; return False if the other version does it."""
        record = self._record
        owner = record.origin if step.place == ORIGIN else record.target
        if owner != self._own:
            # The other program reads the record, which may just have been made or turned round.
            self._save(record)
            self._hand_over(owner)
            return False
        record.step = step.name
        if step.name == "stop" and not record.stopped_at:
            record.stopped_at = self._clock()
        self._save(record)
        self._say(f"{label} {step.text.format(target=record.target)}")
        return True

    def carry_out(self, step: Step) -> None:
        """Do a step, and record that it is complete.

        :raises StepFailed: it failed.
        """
        on_cluster(step.name, partial(getattr(self._work, step.name), self._record))
        self._record.done += (step.name,)
        self._save(self._record)
