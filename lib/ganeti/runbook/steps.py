"""The steps of an operation in a table, and the loop which carries them out in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ganeti import errors

CLUSTER, MASTER, NODES = "cluster", "master", "nodes"
#: Whether the master comes before the other nodes, after them, or among them.
FIRST, LAST, AMONG = "first", "last", "among"


class Step(NamedTuple):
    """One step.

    :ivar name: in the record and in errors; also the name of the method which does it.
    :ivar text: what is being done, for people; empty if the step says it itself.
    :ivar place: what does it: :data:`CLUSTER`, :data:`MASTER`, :data:`NODES`, or a name which only
        the operation knows.
    :ivar order: when the master's turn is, in a step on nodes.
    """

    name: str
    text: str = ""
    place: str = CLUSTER
    order: str = AMONG


class Operation(Protocol):
    """An operation of several steps, with its record."""

    def is_complete(self, step: Step) -> bool:
        """Return True if the record says that a step is complete."""

    def begin(self, step: Step, label: str) -> bool:
        """Say and record that a step begins.

        :param label: its number among all steps, for people.
        :returns: False if another program goes on from here.
        """

    def carry_out(self, step: Step) -> None:
        """Do a step, which may have been done in part before, and record that it is complete."""


class StepFailed(errors.GenericError):
    """A step failed on some nodes, or for the cluster; the record has those before it.

    :ivar step: name of the step.
    :ivar failures: node, or empty for the cluster -> reason.
    """

    def __init__(self, step: str, failures: Mapping[str, str]) -> None:
        text = f"step '{step}' failed"
        if set(failures) == {""}:
            text += f": {failures['']}"
        else:
            text = "\n".join([text, *(f"{node}: {reason}" for node, reason in failures.items())])
        super().__init__(text)
        self.step = step
        self.failures = dict(failures)


def execute(plan: Sequence[Step], operation: Operation) -> bool:
    """Carry out the steps of an operation which are not complete.

    :returns: whether all steps are complete; otherwise another program goes on.
    """
    for number, step in enumerate(plan, 1):
        if operation.is_complete(step):
            continue
        if not operation.begin(step, f"[{number}/{len(plan)}]"):
            return False
        operation.carry_out(step)
    return True


def on_cluster(step: str, work: Callable[[], object]) -> None:
    """Do the work of a step that concerns the whole cluster.

    :raises StepFailed: it failed with a known error; other errors pass.
    """
    try:
        work()
    except errors.GenericError as err:
        raise StepFailed(step, {"": str(err)}) from err
