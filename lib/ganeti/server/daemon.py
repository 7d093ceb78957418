"""The common main of every daemon.

A daemon is three functions, called in this order:

``check(options)``
    in the starting process, before anything is changed; raises when the daemon cannot run here.
``prepare(options) -> T``
    in the daemon, with its log open and its pid file locked, still with all privileges: opens
    sockets, reads the configuration.
``run(options, prepared, signals) -> exit code or None``
    the main loop, after privileges were dropped and the starter was told *ready*.

Signals only enqueue: a handler writes a byte into a pipe, the loop reads it with
:meth:`Signals.take`. SIGTERM and SIGINT ask to stop, SIGHUP opens the log file again (done by
``take`` itself, and reported).
"""

from __future__ import annotations

import argparse
import contextlib
import grp
import logging
import os
import pwd
import select
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn, TypeVar

from ganeti import __version__, errors
from ganeti.platform import paths
from ganeti.utils import daemonize, fs, log

EXIT_SUCCESS = 0
EXIT_FAILURE = 1

_T = TypeVar("_T")

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StartRefused(errors.GenericError):
    """Raised by ``check`` or ``prepare``: the daemon must not run here; carries the exit code."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILURE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def require_member(path: str) -> None:
    """A daemon of a node runs only where a file of the cluster is, without which it could nothing.

    :raises StartRefused: it is not there.
    """
    if not os.path.exists(path):
        raise StartRefused(
            f"this machine belongs to no cluster: {path} is missing. "
            "A cluster is made by gnt-cluster init, a node joins by gnt-node add."
        )


class Signals:
    """Signals as something a loop can wait for. Lives in the main thread, one per process."""

    def __init__(self) -> None:
        self._receive, self._send = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old_fd = signal.set_wakeup_fd(self._send, warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _note) for number in _CAUGHT}

    def fileno(self) -> int:
        """Readable when a signal came."""
        return self._receive

    def take(self) -> list[signal.Signals]:
        """The signals since the last call, oldest first; never waits. Reopens logs on SIGHUP."""
        try:
            data = os.read(self._receive, 4096)
        except BlockingIOError:
            return []
        found = [signal.Signals(number) for number in data]
        if signal.SIGHUP in found:
            log.reopen()
            _follow_log()
        return found

    def wait(self, timeout_s: float | None = None) -> list[signal.Signals]:
        """Like :meth:`take`, but waits for a signal; empty when the time is over."""
        select.select([self._receive], [], [], timeout_s)
        return self.take()

    def wait_for_stop(self) -> signal.Signals:
        """Wait until asked to stop."""
        while True:
            for number in self.wait():
                if number in STOP_SIGNALS:
                    return number

    def raise_stop(self) -> None:
        """Ask our own loop to stop, from any thread."""
        os.write(self._send, bytes([signal.SIGTERM]))

    def close(self) -> None:
        """Give the signals back to who had them; a forked child calls this first."""
        signal.set_wakeup_fd(self._old_fd)
        for number, old in self._old.items():
            signal.signal(number, old)
        os.close(self._receive)
        os.close(self._send)


def _note(_number: int, _frame: FrameType | None) -> None:
    """A handler that does nothing: the interpreter has written the number into the pipe."""


_foreground = True
_pid_file: daemonize.PidFile | None = None


def leave_parent(signals: Signals) -> None:
    """In a forked child of a daemon: give up what belongs to the parent alone.

    The parent's handlers would write into the parent's pipe; a share of the pid file's lock would
    keep a new daemon from starting while an old child finishes its work.
    """
    global _pid_file
    signals.close()
    if _pid_file is not None:
        _pid_file.close()
        _pid_file = None


def _follow_log() -> None:
    """Let standard error follow a rotated log file."""
    if not _foreground:
        daemonize.close_output(log.log_fileno())


def build_parser(
    name: str,
    *,
    port: int | None = None,
    bind: str | None = None,
    add_options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> argparse.ArgumentParser:
    """The options every daemon has; ``-p`` and ``-b`` only for one with a port."""
    parser = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"{name} (ganeti) {__version__}")
    add = parser.add_argument
    add("-f", "--foreground", action="store_true", help="stay attached to the terminal")
    add("-d", "--debug", action="count", default=0, help="log everything")
    add("--syslog", choices=log.SYSLOG_CHOICES, default="no", help="log to syslog as well, or only")
    add("--user", help="run as this user after start-up (needs root)")
    add("--group", help="run as this group after start-up (needs root)")
    if port is not None:
        add("-p", "--port", type=_port, default=port, help=f"port to serve (default {port})")
        add("-b", "--bind", metavar="ADDRESS", default=bind, help="address to serve")
    if add_options is not None:
        add_options(parser)
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"not a port number: {text}")
    return int(text)


def ensure_runtime_dirs(here: paths.Paths) -> None:
    """Create what a daemon needs before it can log; ``/var/run`` is empty after a boot.

    :raises OSError: they cannot be created.
    """
    fs.make_dirs(here.data_dir, 0o755)
    fs.make_dirs(here.run_dir, 0o775)
    fs.make_dirs(here.socket_dir, 0o770)
    fs.make_dirs(here.log_dir, 0o770)
    fs.make_dirs(here.lock_dir, 0o755)


def drop_privileges(user: str | None, group: str | None) -> None:
    """Become another user and group, for good.

    :raises ConfigurationError: unknown user or group, or we may not.
    """
    if user is None and group is None:
        return
    try:
        account = pwd.getpwnam(user) if user is not None else None
    except KeyError:
        raise errors.ConfigurationError(f"user '{user}' does not exist") from None
    try:
        gid = grp.getgrnam(group).gr_gid if group is not None else None
    except KeyError:
        raise errors.ConfigurationError(f"group '{group}' does not exist") from None
    if gid is None and account is not None:
        gid = account.pw_gid
    same_user = account is None or account.pw_uid == os.geteuid()
    same_group = gid is None or gid == os.getegid()
    if same_user and same_group:
        return
    try:
        if gid is not None:
            os.setgroups([]) if account is None else os.initgroups(account.pw_name, gid)
            os.setgid(gid)
        if account is not None:
            os.setuid(account.pw_uid)
    except PermissionError as err:
        raise errors.ConfigurationError(
            f"only root can start as user '{user}' and group '{group}'"
        ) from err


def hand_over(files: Sequence[str], user: str | None, group: str | None) -> None:
    """Give the files that were opened as root to the user who will open them again.

    :raises ConfigurationError: unknown user or group.
    """
    if os.geteuid() != 0 or (user is None and group is None):
        return
    try:
        uid = pwd.getpwnam(user).pw_uid if user is not None else -1
        gid = grp.getgrnam(group).gr_gid if group is not None else -1
    except KeyError as err:
        raise errors.ConfigurationError(f"cannot run as '{user}', '{group}': {err}") from None
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            os.chown(path, uid, gid, follow_symlinks=False)


def main(
    name: str,
    argv: Sequence[str],
    *,
    check: Callable[[argparse.Namespace], None],
    prepare: Callable[[argparse.Namespace], _T],
    run: Callable[[argparse.Namespace, _T, Signals], int | None],
    port: int | None = None,
    bind: str | None = None,
    add_options: Callable[[argparse.ArgumentParser], None] | None = None,
    early_drop: bool = False,
) -> NoReturn:
    """Run a daemon and exit.

    :param name: program name, such as ``ganeti-noded``; gives pid and log file their names.
    :param argv: the options, without the program.
    :param early_drop: ``prepare`` needs no privileges, so it gets none: whatever it makes belongs
        to the daemon's user.
    :raises SystemExit: always. 0 after a requested stop, 2 for wrong options, 1 or the code of
        :class:`StartRefused` when it could not run; the starting process exits with the code which
        the daemon has reported.
    """
    parser = build_parser(name, port=port, bind=bind, add_options=add_options)
    options = parser.parse_args(list(argv))
    try:
        here = paths.current()
        check(options)
        ensure_runtime_dirs(here)
    except (errors.GenericError, OSError) as err:
        print(f"{name}: {err}", file=sys.stderr)
        sys.exit(_exit_code(err))
    global _foreground
    _foreground = options.foreground
    ready = daemonize.Ready(None) if options.foreground else daemonize.daemonize(name)
    try:
        code = _serve(name, here, options, ready, prepare, run, early_drop)
    except (errors.GenericError, OSError) as err:
        logging.error("cannot run: %s", err)
        ready.failed(str(err), _exit_code(err))
        if options.foreground:
            print(f"{name}: {err}", file=sys.stderr)
        code = _exit_code(err)
    except BaseException as err:
        if options.foreground or isinstance(err, SystemExit):
            raise
        # The log and the starter are told; nobody else would see a traceback.
        logging.critical("died of an internal error", exc_info=True)
        ready.failed("internal error: " + traceback.format_exc().rstrip())
        code = EXIT_FAILURE
    logging.shutdown()
    sys.exit(code)


def _exit_code(err: BaseException) -> int:
    return err.exit_code if isinstance(err, StartRefused) else EXIT_FAILURE


def _serve(
    name: str,
    here: paths.Paths,
    options: argparse.Namespace,
    ready: daemonize.Ready,
    prepare: Callable[[argparse.Namespace], _T],
    run: Callable[[argparse.Namespace, _T, Signals], int | None],
    early_drop: bool,
) -> int:
    log.setup(
        name,
        logfile=here.log_file(name),
        debug=options.debug,
        stderr=options.foreground,
        syslog=options.syslog,
        threads=bool(options.debug),
    )
    global _pid_file
    pid_file = _pid_file = daemonize.PidFile(here.pid_file(name))
    pid_file.acquire()
    signals = Signals()
    logging.info("%s %s starts", name, __version__)
    try:
        hand_over((here.log_file(name), pid_file.path), options.user, options.group)
        if early_drop:
            drop_privileges(options.user, options.group)
        prepared = prepare(options)
        drop_privileges(options.user, options.group)
        ready.ready()
        if not options.foreground:
            daemonize.close_output(log.log_fileno())
        code = run(options, prepared, signals)
    finally:
        pid_file.release()
    logging.info("%s ends", name)
    return code or EXIT_SUCCESS
