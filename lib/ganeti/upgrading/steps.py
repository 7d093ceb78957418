"""The steps of an upgrade and of the way back, and how the master goes through them.

The first steps are done by the version from which the cluster goes, the others by the one to which
it goes, because each knows its own files best: a later version converts the configuration, to the
later form as to the earlier one. Between them the program starts itself again, as the other
version. Each step can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ganeti.platform import versions
from ganeti.runbook.steps import carry_out
from ganeti.upgrading.record import Record

ORIGIN, TARGET = "origin", "target"


class Step(NamedTuple):
    """One step.

    :ivar name: also the name of the function which does it, in :class:`Work`.
    :ivar owner: the version which does it: :data:`ORIGIN` or :data:`TARGET`.
    :ivar text: what is being done, for people.
    """

    name: str
    owner: str
    text: str


_BEFORE = (
    Step("inspect", ORIGIN, "Verifying the cluster as it is"),
    Step("drain", ORIGIN, "Pausing the watcher, draining the queue and waiting for its jobs"),
    Step("stop", ORIGIN, "Stopping the daemons on all nodes; guests go on"),
    Step("backup", ORIGIN, "Archiving the configuration, the keys and the queue"),
)
_SWITCH = Step("switch", ORIGIN, "Switching all nodes to version {target}")
_AFTER = (
    Step("start", TARGET, "Starting the daemons on all nodes"),
    Step("serve", TARGET, "Opening the queue, and distributing the configuration"),
    Step("verify", TARGET, "Verifying the cluster"),
    Step("finish", TARGET, "Letting the watcher work again"),
)
FORWARD = (
    *_BEFORE,
    _SWITCH,
    Step("convert", TARGET, "Converting the configuration to version {target}"),
    *_AFTER,
)
BACK = (
    *_BEFORE,
    Step("convert_back", ORIGIN, "Converting the configuration back to version {target}"),
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
        """Start the daemons on all nodes, on the master last."""

    def serve(self, record: Record) -> None:
        """Open the queue, and distribute the configuration."""

    def verify(self, record: Record) -> None:
        """Check that verification finds nothing which it has not found before."""

    def finish(self, record: Record) -> None:
        """Let the queue and the watcher be as they were before."""


def execute(
    record: Record,
    work: Work,
    *,
    save: Callable[[Record], object],
    hand_over: Callable[[str], None],
    own: str = versions.OWN,
    say: Callable[[str], object] = print,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Do all steps which are not complete and belong to this version.

    :param save: writes the record.
    :param hand_over: starts the program of another version, which goes on; on a real machine it
        does not return.
    :param own: the version of this program.
    :returns: whether all steps are complete.
    :raises StepFailed: a step failed.
    :raises OSError: the record cannot be written.
    """
    steps: Sequence[Step] = plan(record)
    for number, step in enumerate(steps, 1):
        if step.name in record.done:
            continue
        owner = record.origin if step.owner == ORIGIN else record.target
        if owner != own:
            # The other program reads the record, which may just have been made or turned round.
            save(record)
            hand_over(owner)
            return False
        record.step = step.name
        if step.name == "stop" and not record.stopped_at:
            record.stopped_at = clock()
        save(record)
        text = step.text.format(target=record.target)
        say(f"[{number}/{len(steps)}] {text}")
        carry_out(step.name, partial(getattr(work, step.name), record))
        record.done += (step.name,)
        save(record)
    return True
