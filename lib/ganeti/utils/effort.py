"""The work which one request may cause: limited, and ended when nobody waits for its result.

Code which computes for requests of other people counts its work with :meth:`Effort.spend`, in units
of about 0.5 microseconds: one comparison of one object, one value of a row, one step of a regular
expression. Python code cannot be interrupted from outside, so the work itself asks, every
:data:`LOOK_EVERY` units, whether it is still wanted.
"""

from __future__ import annotations

from collections.abc import Callable

from ganeti import errors

#: The limit for one request; this takes some seconds.
MAX_WORK = 5_000_000
#: Units between two questions whether the work is still wanted.
LOOK_EVERY = 20_000


def _always_wanted() -> str:
    return ""


class Effort:
    """The work of one request.

    :param limit: units which it may take.
    :param unwanted: returns why nobody waits for the result any more, as text; empty while somebody
        does. It is called in the thread which works.
    """

    __slots__ = ("_left", "_limit", "_look_below", "_unwanted")

    def __init__(self, limit: int = MAX_WORK, unwanted: Callable[[], str] = _always_wanted) -> None:
        self._limit = limit
        self._left = limit
        self._look_below = max(0, limit - LOOK_EVERY)
        self._unwanted = unwanted

    @property
    def left(self) -> int:
        """Units which may still be spent."""
        return max(0, self._left)

    def renew(self) -> None:
        """Allow the whole limit again, for the next piece of work of its own."""
        self._left = self._limit
        self._look_below = max(0, self._limit - LOOK_EVERY)

    def spend(self, units: int) -> None:
        """Count work before it is done.

        :raises errors.ParameterError: it is more than the limit.
        :raises errors.NoMasterError: nobody waits for the result any more.
        """
        self._left -= units
        if self._left < self._look_below:
            self._look()

    def _look(self) -> None:
        if self._left < 0:
            raise errors.ParameterError(
                f"the request takes too much work: more than {self._limit} comparisons, values or"
                " steps of regular expressions. Ask for fewer objects, or with fewer conditions."
            )
        reason = self._unwanted()
        if reason:
            raise errors.NoMasterError(reason)
        self._look_below = max(0, self._left - LOOK_EVERY)
