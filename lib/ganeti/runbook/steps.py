"""Carry out one step of an operation, and say which step failed on which machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ganeti import errors


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


def carry_out(step: str, work: Callable[[], object]) -> None:
    """Carry out a step that concerns the whole cluster.

    :raises StepFailed: it failed with a known error; other errors pass.
    """
    try:
        work()
    except errors.GenericError as err:
        raise StepFailed(step, {"": str(err)}) from err
