"""How ``daemon-util`` starts and stops the daemons of this node where systemd manages them.

That is so when systemd has booted the machine, and the unit of the daemon is installed and not
masked. Then a daemon is in a control group of its own and outlives the session, the job or the
timer from which it was started.

``systemctl start`` does not pass arguments to a unit. Arguments for one start are in a file which
only root can write, and which the unit reads after ``/etc/default/ganeti``; it is removed when the
daemon serves, and by the unit when the daemon ends.

Source: systemctl(1), systemd.exec(5).
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ganeti import errors
from ganeti.constants import cli as exit_codes
from ganeti.platform import machine, paths, systemd
from ganeti.utils import filelock, fs, process, retry
from ganeti.utils.digits import is_number

#: Directory of the arguments for one start, one file for each daemon. Units name it.
ARGUMENTS_DIR = "/run/ganeti-args"
_VARIABLE = "EXTRA_ARGS"
# A little longer than the units' own limits.
_START_S = 270.0
_STOP_S = 150.0
_QUESTION_S = 30.0
_ACTIVE = ("active", "reloading")
_STARTING = "activating"


class State(NamedTuple):
    """The state of a unit, as ``systemctl show`` prints it.

    :ivar result: ``success``, or how the last start or run failed: ``exit-code``,
        ``exec-condition``, ``timeout``, ``watchdog``.
    :ivar exit_code: of the last process; 0 before the first one.
    :ivar conditions: whether all conditions of the unit held at the last start.
    :ivar status: what the daemon has reported last.
    """

    active: str
    result: str
    exit_code: int
    conditions: bool
    status: str


def unit(daemon: str) -> str:
    """Return the name of the unit of a daemon."""
    return f"{daemon}.service"


def managed(daemon: str) -> bool:
    """Return True if systemd starts and stops this daemon here."""
    return machine.current().runs_systemd and systemd.unit_file(unit(daemon)) is not None


def masked(daemon: str) -> bool:
    """Return True if the administrator has forbidden the unit of a daemon (``systemctl mask``)."""
    return machine.current().runs_systemd and systemd.is_masked(unit(daemon))


def parse_state(text: str) -> State:
    """Read the output of ``systemctl show``: lines such as ``ActiveState=active``."""
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    # CLD_EXITED of waitid(2); after a signal the status is its number.
    code = found.get("ExecMainStatus", "") if found.get("ExecMainCode") == "1" else ""
    return State(
        active=found.get("ActiveState", ""),
        result=found.get("Result", ""),
        exit_code=int(code) if is_number(code) else 0,
        conditions=found.get("ConditionResult") != "no",
        status=found.get("StatusText", ""),
    )


def state(daemon: str) -> State:
    """Ask systemd for the state of the unit of a daemon."""
    names = "ActiveState,Result,ExecMainCode,ExecMainStatus,ConditionResult,StatusText"
    done = process.run(
        ["systemctl", "show", f"--property={names}", unit(daemon)],
        timeout_s=_QUESTION_S,
        check=False,
        log=False,
    )
    return parse_state(done.stdout)


def is_starting(daemon: str) -> bool:
    """Return True if systemd is starting the unit of a daemon, or waits before it starts it
    again.
    """
    return managed(daemon) and state(daemon).active == _STARTING


def arguments_line(args: Sequence[str]) -> str:
    """Return the line of the file with arguments for one start.

    :raises ParameterError: an argument has a line break.
    """
    text = shlex.join(args)
    if "\n" in text:
        raise errors.ParameterError("an argument of a daemon cannot have a line break")
    for character in '\\"`$':
        text = text.replace(character, f"\\{character}")
    return f'{_VARIABLE}="{text}"\n'


@contextlib.contextmanager
def _arguments(daemon: str, args: Sequence[str]) -> Iterator[None]:
    path = f"{ARGUMENTS_DIR}/{daemon}"
    # One of a start that was interrupted.
    fs.remove_file(path)
    if not args:
        yield
        return
    fs.make_dirs(ARGUMENTS_DIR, 0o700)
    fs.write_file(path, arguments_line(args), mode=0o600)
    try:
        yield
    finally:
        fs.remove_file(path)


def start(daemon: str, args: Sequence[str] = ()) -> int:
    """Start the unit of a daemon; returns when the daemon serves, or has refused.

    :param args: arguments for this start only.
    :returns: 0; the exit code of a daemon which refused; 11 for a daemon of the master on another
        node.
    """
    with _arguments(daemon, args):
        # After many failures systemd would refuse to try again.
        _systemctl("reset-failed", daemon)
        done = _systemctl("start", daemon, timeout_s=_START_S)
    found = state(daemon)
    if found.active in _ACTIVE and not done.failed:
        if filelock.is_locked(paths.current().pid_file(daemon)):
            return exit_codes.EXIT_SUCCESS
        # It has found that it is not needed here, and is just ending.
        found = _after_end(daemon)
    if found.result == "exec-condition":
        print(f"{daemon}: not needed on this node", file=sys.stderr)
        return exit_codes.EXIT_NOTMASTER
    if not found.conditions:
        print(
            f"{daemon}: not started, because a condition of {unit(daemon)} does not hold."
            f" 'systemctl status {unit(daemon)}' names it.",
            file=sys.stderr,
        )
        return exit_codes.EXIT_FAILURE
    print(
        f"{daemon}: {found.status or done.output.strip() or 'it has ended'}",
        file=sys.stderr,
    )
    return found.exit_code or exit_codes.EXIT_FAILURE


def _after_end(daemon: str) -> State:
    """Wait until the unit of a daemon which ends is no longer active; returns its state then."""

    def poll() -> State:
        found = state(daemon)
        if found.active in (*_ACTIVE, "deactivating"):
            raise retry.Again(found)
        return found

    try:
        return retry.until(poll, timeout_s=_QUESTION_S, delay=(0.05, 1.5, 1.0))
    except errors.RetryTimeout:
        return state(daemon)


def stop(daemon: str, *, wait: bool = True) -> None:
    """Stop the unit of a daemon, so that systemd does not start it again.

    :param wait: return when the daemon has ended.
    """
    words = () if wait else ("--no-block",)
    _systemctl("stop", daemon, *words, timeout_s=_STOP_S)


def _systemctl(
    verb: str, daemon: str, *words: str, timeout_s: float = _QUESTION_S
) -> process.Completed:
    return process.run(
        ["systemctl", verb, *words, unit(daemon)], timeout_s=timeout_s, check=False, log=False
    )
