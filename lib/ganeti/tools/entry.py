"""What the entry points of the programs share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

from ganeti import errors
from ganeti.cli import terminal
from ganeti.constants.cli import EXIT_FAILURE

P = ParamSpec("P")


def reports_errors(program: str) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Make the function ``main`` of a program print an error, and return 1.

    :param program: the name before the text of the error; on a terminal ``Error`` stands there, as
        in all programs.
    """

    def decorate(main: Callable[P, int]) -> Callable[P, int]:
        @functools.wraps(main)
        def reporting(*args: P.args, **kwargs: P.kwargs) -> int:
            try:
                return main(*args, **kwargs)
            except (errors.GenericError, OSError) as err:
                if terminal.is_terminal(sys.stderr):
                    terminal.err(f"Error: {err}")
                else:
                    print(f"{program}: {err}", file=sys.stderr)
                return EXIT_FAILURE

        return reporting

    return decorate
