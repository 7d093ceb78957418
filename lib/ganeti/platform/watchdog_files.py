"""The promise of a node to restart by its hardware watchdog, and what its daemon reports.

Three files, which ``ganeti-watchdogd`` and the node daemon share:

* the *promise* survives a restart of the machine. While it exists, guests start only when the
  device is armed; the daemon writes it before it reports the device as armed, and removes it when
  the master has released the node;
* the *report* says what the daemon does, and why not more;
* the *release* is the answer of the master to a report that the node wants to be released.

Source: ``doc/design-instance-failover.rst``, *A machine which restarts itself*.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import NamedTuple

from ganeti import errors
from ganeti.constants import node_watchdog as const
from ganeti.platform import paths
from ganeti.utils import filelock, fs

DAEMON = "ganeti-watchdogd"
_MODE = 0o644
_TOKEN = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_SECONDS = re.compile(r"[0-9]{1,5}")
#: Seconds for which the start of a guest waits until the device is armed.
_WAIT_S = 20.0
_PAUSE_S = 0.2


class Promise(NamedTuple):
    """What the node has promised.

    :ivar token: the UUID of this promise.
    :ivar timeout_s: seconds without feeding after which the device restarts the machine.
    """

    token: str
    timeout_s: int


class Report(NamedTuple):
    """What the daemon does.

    :ivar state: ``armed``, ``release`` or ``none`` (:mod:`ganeti.constants.node_watchdog`).
    :ivar token: the promise; empty for none. `timeout_s` is its timeout.
    :ivar text: the reason of the state.
    """

    state: str = const.NONE
    token: str = ""
    timeout_s: int = 0
    text: str = ""


def parse_promise(text: str) -> Promise:
    """Read the text of a promise.

    :raises ParseError: it is damaged.
    """
    token, _, seconds = text.strip().partition(" ")
    if not _TOKEN.fullmatch(token) or not _SECONDS.fullmatch(seconds) or not int(seconds):
        raise errors.ParseError("the file has no promise")
    return Promise(token, int(seconds))


def read_promise(here: paths.Paths | None = None) -> Promise | None:
    """Return the promise of this node; None if there is none.

    :raises ConfigurationError: the file is damaged, so that it is not known.
    """
    path = (here or paths.current()).watchdog_promise_file
    try:
        return parse_promise(fs.read_file(path))
    except FileNotFoundError:
        return None
    except (OSError, errors.ParseError, ValueError) as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err}") from err


def write_promise(promise: Promise | None, here: paths.Paths | None = None) -> None:
    """Store the promise durably; None removes it.

    :raises OSError: the file cannot be written.
    """
    here = here or paths.current()
    if promise is None:
        fs.remove_file(here.watchdog_promise_file)
        fs.flush_dir(here.data_dir)
        return
    fs.write_file(here.watchdog_promise_file, f"{promise.token} {promise.timeout_s}\n", mode=_MODE)


def parse_report(text: str) -> Report:
    """Read the text of a report.

    :raises ParseError: it is damaged.
    """
    found = dict(line.partition(" ")[::2] for line in text.splitlines())
    state, token = found.get("state", ""), found.get("token", "")
    seconds = found.get("timeout_s", "0")
    if state not in const.STATES or not _SECONDS.fullmatch(seconds):
        raise errors.ParseError("the file has no report")
    if (state != const.NONE) != bool(_TOKEN.fullmatch(token)):
        raise errors.ParseError("the report names no promise")
    return Report(state, token, int(seconds), found.get("text", ""))


def read_report(here: paths.Paths | None = None) -> Report:
    """Return the report of the daemon; when it does not run, one which says so."""
    here = here or paths.current()
    if not filelock.is_locked(here.pid_file(DAEMON)):
        return Report(text=f"{DAEMON} does not run")
    try:
        return parse_report(fs.read_file(here.watchdog_report_file))
    except (OSError, errors.ParseError, ValueError) as err:
        return Report(text=f"cannot read {here.watchdog_report_file}: {err}")


def write_report(report: Report, here: paths.Paths | None = None) -> None:
    """Replace the report. It is not flushed: a restart of the machine makes it worthless.

    :raises OSError: the file cannot be written.
    """
    lines = [
        f"{word} {value}".replace("\n", " ")
        for word, value in zip(Report._fields, report, strict=True)
    ]
    path = (here or paths.current()).watchdog_report_file
    fs.write_file(path, "\n".join(lines) + "\n", mode=_MODE, sync=False)


def read_release(here: paths.Paths | None = None) -> str:
    """Return the token of the promise from which the master has released this node."""
    try:
        return fs.read_file((here or paths.current()).watchdog_release_file).strip()
    except (OSError, ValueError):
        return ""


def write_release(token: str, here: paths.Paths | None = None) -> None:
    """Note that the master has released this node from a promise.

    :raises OSError: the file cannot be written.
    """
    path = (here or paths.current()).watchdog_release_file
    fs.write_file(path, f"{token}\n", mode=_MODE, sync=False)


def require_armed(
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Check that a guest may start here: the device is armed, or nothing is promised.

    After a restart of the machine the daemon needs a moment to arm the device; this waits for it.

    :raises HypervisorError: it is promised, and the device is not armed.
    :raises ConfigurationError: the promise cannot be read.
    """
    end = monotonic() + _WAIT_S
    while True:
        promise = read_promise()
        if promise is None:
            return
        report = read_report()
        if report.state == const.ARMED and report.token == promise.token:
            return
        if monotonic() >= end:
            raise errors.HypervisorError(
                "this node has promised that its hardware watchdog restarts it when it is cut off,"
                f" and the device is not armed: {report.text}. Use 'daemon-util start {DAEMON}'"
                " there; 'gnt-cluster modify --node-watchdog=no' releases all nodes"
            )
        sleep(_PAUSE_S)
