"""Taking back what was made, when a later step fails.

An operation which makes several things registers, right after (or right before, when half a thing
counts too) each step, how to take that step back. Leaving the block without
:meth:`UndoStack.commit` runs the registered steps in reverse order. A step which cannot be taken
back is named in the error, together with what the administrator can do: an operation either leaves
nothing behind or says what it left.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec

from ganeti import errors

P = ParamSpec("P")


class UndoStack:
    """Steps to take back on failure; use as a context manager.

    :param report: told one line per step which could not be taken back.
    :param hint: a sentence on how to clean up by hand, added to the error when something is left.
    """

    def __init__(self, report: Callable[[str], None] | None = None, *, hint: str = "") -> None:
        self._report = report
        self._hint = hint
        self._steps: list[tuple[str, Callable[[], object]]] = []

    def add(self, what: str, step: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Register a step; ``what`` names the thing which stays behind when the step fails."""
        self._steps.append((what, lambda: step(*args, **kwargs)))

    def commit(self) -> None:
        """Everything is done: nothing will be taken back."""
        self._steps.clear()

    def __enter__(self) -> UndoStack:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        left: list[str] = []
        self._unwind(left)
        if not left:
            return
        if self._report is not None:
            for line in left:
                self._report(f"could not be cleaned up: {line}")
        cause = str(exc) if exc is not None else "operation abandoned"
        text = f"{cause}; left behind: {', '.join(left)}"
        raise errors.OpExecError(f"{text}. {self._hint}" if self._hint else text) from exc

    def _unwind(self, left: list[str]) -> None:
        # Recursion with try/finally: an unexpected error in one step does not stop the others.
        if not self._steps:
            return
        what, step = self._steps.pop()
        try:
            step()
        except errors.GenericError as err:
            left.append(f"{what} ({err})")
        finally:
            self._unwind(left)
