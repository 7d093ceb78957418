"""Run the programs of a cluster; an error has what they said."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ganeti import errors
from ganeti.utils import process

# How many characters of the output of a program an error has; the last ones say why it failed.
_SHOWN = 2000

Run = Callable[..., process.Completed]


def run(
    argv: Sequence[str],
    *,
    start: Run = process.run,
    shown: str = "",
    check: bool = True,
    terminal: bool = False,
) -> process.Completed:
    """Run a program on this machine to its end, which may take any time.

    :param start: as :func:`ganeti.utils.process.run`.
    :param shown: its command line in an error; ``argv`` if empty.
    :param check: whether a failure of the program is an error.
    :raises OpExecError: it cannot be started, or failed.
    """
    try:
        done = start(argv, timeout_s=None, check=False, terminal=terminal)
    except errors.CommandError as err:
        raise errors.OpExecError(str(err)) from err
    if check:
        require_success(done, f"'{shown or process.show(argv)}'", done.output)
    return done


def require_success(done: process.Completed, what: str, said: str) -> None:
    """Check that a program has not failed.

    :param what: its command line, and where it ran.
    :param said: the part of its output which tells why it failed.
    :raises OpExecError: it failed.
    """
    if done.failed:
        raise errors.OpExecError(f"{what} {done.fail_reason}: {said.strip()[-_SHOWN:]}")
