"""Undo the steps of an operation when a later step fails.

An operation of several steps registers how to undo each step: right after the step, or right before
it when a partly executed step must be undone, too. Leaving the block without
:meth:`UndoStack.commit` runs the registered functions in reverse order. The error names each step
which cannot be undone, together with a hint for the administrator: an operation either leaves
nothing, or its error names what it left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from ganeti import errors

P = ParamSpec("P")


class UndoStack:
    """Functions which undo steps after a failure; use it as a context manager.

    :param report: called with one line for each step which could not be undone.
    :param hint: a sentence on how to clean up by hand, added to the error when something is left.
    """

    def __init__(self, report: Callable[[str], None] | None = None, *, hint: str = "") -> None:
        self._report = report
        self._hint = hint
        #: What could not be undone until now, in words; a later step of the undo may ask for it.
        self.left: list[str] = []
        self._steps: list[tuple[str, Callable[[], object]]] = []

    def add(self, what: str, step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Register a function which undoes a step.

        :param what: the thing which is left when that function fails.
        """
        self._steps.append((what, lambda: step(*args, **kwargs)))

    def commit(self) -> None:
        """The operation is complete: nothing will be undone."""
        self._steps.clear()

    def __enter__(self) -> UndoStack:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        left = self.take_back()
        if not left:
            return
        if self._report is not None:
            for line in left:
                self._report(f"could not be removed or undone: {line}")
        cause = str(error) if error is not None else "operation abandoned"
        text = f"{cause}; left behind: {', '.join(left)}"
        raise errors.OpExecError(f"{text}. {self._hint}" if self._hint else text) from error

    def take_back(self) -> list[str]:
        """Undo all steps now, the last one first; return what is left, each with the reason."""
        # The recursion with try/finally runs the other functions after an unexpected error, too.
        if self._steps:
            what, step = self._steps.pop()
            try:
                step()
            except (OSError, errors.GenericError) as err:
                self.left.append(f"{what} ({err})")
            finally:
                self.take_back()
        return self.left
