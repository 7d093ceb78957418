"""The part of the main function which all daemons share.

Each daemon is a :class:`Daemon`, which consists of three functions. They are called in this order:

``check(options)``
    runs in the starting process, before anything is changed; raises an error when the daemon cannot
    run on this machine.
``prepare(options) -> state``
    runs in the daemon, with the log file open, the pid file locked, and still with all privileges;
    opens sockets and reads the configuration.
``run(options, state, signals) -> exit code or None``
    is the main loop, after the daemon has dropped its privileges and reported *ready* to the
    starting process.

A signal handler only writes a byte into a pipe; the loop reads it with :meth:`Signals.take`.
SIGTERM and SIGINT ask the daemon to stop. SIGHUP makes ``take`` open the log file again.

A daemon which a service manager started (:mod:`ganeti.utils.notify`) reports that it serves, ends
or refuses. Its signs of life come from the loop itself: an alarm writes into the same pipe, and
``take`` reports. The manager restarts a daemon whose loop no longer reads the pipe.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import grp
import logging
import os
import pwd
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from ganeti import FULL_VERSION, __version__, errors
from ganeti.constants import cli as exit_codes
from ganeti.constants.cli import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.platform import machine, paths
from ganeti.utils import daemonize, fs, log, net, notify

_T = TypeVar("_T")

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
_CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_UNNEEDED = (exit_codes.EXIT_NOTMASTER, exit_codes.EXIT_NOTCLUSTER)


class StartRefused(errors.GenericError):
    """The daemon must not run on this machine; raised by ``check`` and ``prepare``.

    :ivar exit_code: of the starting process.
    """

    def __init__(self, message: str, exit_code: int = EXIT_FAILURE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def require_member(path: str) -> None:
    """Refuse to start on a machine that is not a node.

    :param path: a file which every node has, and which the daemon needs.
    :raises StartRefused: the file is missing.
    """
    if not os.path.exists(path):
        raise StartRefused(
            f"this machine belongs to no cluster: {path} is missing. "
            "Make a cluster with gnt-cluster init, or add this machine with gnt-node add."
        )


class Signals:
    """The signals of a daemon, for which its loop can wait; one object, in the main thread."""

    def __init__(self) -> None:
        self._receive, self._send = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old_fd = signal.set_wakeup_fd(self._send, warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _note) for number in _CAUGHT}
        self._notifier = notify.Notifier()

    def report_to(self, notifier: notify.Notifier) -> None:
        """Send reports of the daemon there: its signs of life, if it expects some, and its end."""
        self._notifier = notifier
        interval_s = notifier.beat_interval_s
        if interval_s is not None:
            # The manager ends an unresponsive daemon with SIGABRT: where it hangs is worth knowing.
            faulthandler.enable()
            self._old[signal.SIGALRM] = signal.signal(signal.SIGALRM, _note)
            signal.setitimer(signal.ITIMER_REAL, interval_s, interval_s)
            notifier.beat()

    def end_reports(self) -> None:
        """Send no more signs of life: after the loop, an alarm would end the process."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def status(self, text: str) -> None:
        """Report what the daemon does, in one line for people."""
        self._notifier.status(text)

    def fileno(self) -> int:
        """Return the file descriptor; it is readable when a signal has arrived."""
        return self._receive

    def take(self) -> list[signal.Signals]:
        """Return the signals since the last call, oldest first; never waits.

        The log files are opened again if SIGHUP is among them. An alarm is not returned: a sign of
        life is sent for it.
        """
        try:
            data = os.read(self._receive, 4096)
        except BlockingIOError:
            return []
        found = [signal.Signals(number) for number in data if number != signal.SIGALRM]
        if len(found) < len(data):
            self._notifier.beat()
        if not STOP_SIGNALS.isdisjoint(found):
            self._notifier.stopping()
        if signal.SIGHUP in found:
            log.reopen()
            _follow_log()
        return found

    def wait(self, timeout_s: float | None = None) -> list[signal.Signals]:
        """Wait for a signal, and return the signals since the last call; see :meth:`take`.

        :param timeout_s: seconds after which the result is empty; None waits without limit.
        """
        net.wait_readable([self._receive], timeout_s)
        return self.take()

    def take_stop(self) -> bool:
        """Take the signals, and tell whether one of them asks the daemon to stop."""
        return not STOP_SIGNALS.isdisjoint(self.take())

    def wait_for_stop(self) -> signal.Signals:
        """Wait for a signal which asks the daemon to stop, and return it."""
        while True:
            for number in self.wait():
                if number in STOP_SIGNALS:
                    return number

    def raise_stop(self) -> None:
        """Make the loop of this daemon stop; may be called from any thread."""
        os.write(self._send, bytes([signal.SIGTERM]))

    def close(self) -> None:
        """Restore the signal handlers of before; a forked child calls this first.

        A child has no timers, so an alarm of the parent does not reach it.
        """
        signal.set_wakeup_fd(self._old_fd)
        for number, old in self._old.items():
            signal.signal(number, old)
        os.close(self._receive)
        os.close(self._send)


def _note(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the interpreter has written the number of the signal into the pipe."""


_foreground = True
_package: int | None = None
_pid_file: daemonize.PidFile | None = None
_log_settings: dict[str, Any] = {}


def log_settings() -> dict[str, Any]:
    """Return how this daemon logs, for a program of its own which writes into the same log.

    They are the parameters of :func:`ganeti.utils.log.setup`, and can be written as JSON.
    """
    return dict(_log_settings)


def leave_parent(signals: Signals) -> None:
    """Close, in a forked child of a daemon, what belongs to the parent.

    The signal handlers would write into the pipe of the parent. The lock on the pid file would keep
    a new daemon from starting while a child of the old one finishes its work.
    """
    global _pid_file
    signals.close()
    if _pid_file is not None:
        _pid_file.close()
        _pid_file = None


def _follow_log() -> None:
    """Send standard error to the new log file after a rotation."""
    if not _foreground:
        daemonize.close_output(log.log_fileno())


def add_server_options(
    parser: argparse.ArgumentParser, *, default_clients: int, certificate: str
) -> None:
    """Add the options of a daemon which serves HTTPS.

    :param default_clients: how many clients it serves at once without ``--max-clients``.
    :param certificate: name of the file with its certificate and key.
    """
    add = parser.add_argument
    add("-i", "--interface", metavar="NAME", help="serve the address of this interface")
    add(
        "--max-clients",
        type=_positive,
        default=default_clients,
        metavar="NUMBER",
        help=f"number of requests which are served at the same time (default {default_clients})",
    )
    add("--no-ssl", action="store_true", help="serve plain HTTP, without TLS")
    add("-K", "--ssl-key", metavar="FILE", help=f"private key, instead of the one in {certificate}")
    add(
        "-C", "--ssl-cert", metavar="FILE", help=f"certificate, instead of the one in {certificate}"
    )


def check_server_options(options: argparse.Namespace) -> None:
    """Refuse options of :func:`add_server_options` which contradict each other.

    :raises StartRefused: they do.
    """
    if options.interface and options.bind:
        raise StartRefused("options --interface and --bind exclude each other")
    if options.no_ssl and (options.ssl_cert or options.ssl_key):
        raise StartRefused("options --ssl-... and --no-ssl exclude each other")
    if bool(options.ssl_key) != bool(options.ssl_cert):
        raise StartRefused("options --ssl-key and --ssl-cert need each other")


def served_address(options: argparse.Namespace) -> str:
    """Return the address to serve, from the options ``--bind`` and ``--interface``.

    :raises ConfigurationError: the interface has no address.
    """
    if options.bind:
        return str(options.bind)
    if not options.interface:
        return machine.current().default_bind_address()
    try:
        return net.interface_address(options.interface)
    except OSError as err:
        raise errors.ConfigurationError(
            f"interface {options.interface} has no IPv4 address: {err.strerror}"
        ) from err


@contextlib.contextmanager
def serving(address: str, port: int) -> Iterator[None]:
    """Say which address cannot be served when the block cannot open its socket.

    :raises ConfigurationError: the block has raised an OSError.
    """
    try:
        yield
    except OSError as err:
        raise errors.ConfigurationError(
            f"cannot serve {address} port {port}: {err.strerror}"
        ) from err


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"not a number above 0: {text}")
    return int(text)


def limit_or_zero(text: str) -> int:
    """Parse a limit of an option, in which 0 stands for no limit.

    :raises argparse.ArgumentTypeError: it is not such a number.
    """
    if not (text.isascii() and text.isdigit()) or int(text) > 1_000_000:
        raise argparse.ArgumentTypeError(f"not a number from 0 to 1000000: {text}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"not a port number: {text}")
    return int(text)


def ensure_runtime_dirs(here: paths.Paths) -> None:
    """Create the directories which a daemon needs at its start; ``/var/run`` is empty after a boot.

    :raises OSError: a directory cannot be created.
    """
    fs.make_dirs(here.data_dir, 0o755)
    fs.make_dirs(here.run_dir, 0o1775)
    fs.make_dirs(here.socket_dir, 0o1770)
    fs.make_dirs(here.log_dir, 0o1770)
    fs.make_dirs(here.lock_dir, 0o755)


def drop_privileges(user: str | None, group: str | None) -> None:
    """Change to another user and group; this cannot be undone.

    :param user: name of the user; None for the present one.
    :param group: name of the group; None for the group of the user.
    :raises ConfigurationError: the user or group does not exist, or this process is not root.
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
    """Give files which root has opened to the user who will open them again.

    :raises ConfigurationError: the user or group does not exist.
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


class Daemon(NamedTuple, Generic[_T]):
    """A daemon, with the start and the end that all daemons share.

    :ivar name: name of the program, such as ``ganeti-noded``; pid and log file are named after it.
    :ivar check: see the docstring of the module; ``prepare`` and ``run``, too.
    :ivar port: returns the default port; None for a daemon without the options ``-p`` and ``-b``.
    :ivar add_options: adds the options of this daemon.
    :ivar early_drop: drop the privileges before ``prepare``, so that its files belong to the user
        of the daemon.
    """

    name: str
    check: Callable[[argparse.Namespace], None]
    prepare: Callable[[argparse.Namespace], _T]
    run: Callable[[argparse.Namespace, _T, Signals], int | None]
    port: Callable[[], int] | None = None
    add_options: Callable[[argparse.ArgumentParser], None] | None = None
    early_drop: bool = False

    def parser(self) -> argparse.ArgumentParser:
        """Make the parser of the options."""
        parser = argparse.ArgumentParser(prog=self.name, allow_abbrev=False)
        # Programs read the last word, the version of Ganeti with which this project is compatible.
        version = f"{self.name} (ganeti {FULL_VERSION}) {__version__}"
        parser.add_argument("--version", action="version", version=version)
        add = parser.add_argument
        add("-f", "--foreground", action="store_true", help="stay attached to the terminal")
        add("-d", "--debug", action="count", default=0, help="log messages for debugging, too")
        add(
            "--syslog",
            choices=log.SYSLOG_CHOICES,
            default="no",
            help="log to syslog in addition to the file (yes), or instead of it (only)",
        )
        add("--user", help="run as this user after start-up (needs root)")
        add("--group", help="run as this group after start-up (needs root)")
        if self.port is not None:
            port = self.port()
            add("-p", "--port", type=_port, default=port, help=f"port to serve (default {port})")
            add("-b", "--bind", metavar="ADDRESS", help="address to serve")
        if self.add_options is not None:
            self.add_options(parser)
        return parser

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Run the daemon and exit.

        :param argv: the options, without the program; None for those of this process.
        :raises SystemExit: always. 0 after a requested stop, 2 for wrong options, 1 or the code of
            :class:`StartRefused` when it could not run; the starting process exits with the code
            which the daemon has reported.
        """
        options = self.parser().parse_args(argv)
        notifier = notify.take()
        if not options.foreground:
            # The manager follows the process which it started, and that one ends.
            notifier = notify.Notifier()
        try:
            self.check(options)
            ensure_runtime_dirs(paths.current())
        except (errors.GenericError, OSError) as err:
            print(f"{self.name}: {err}", file=sys.stderr)
            _report_failure(notifier, err)
            sys.exit(_exit_code(err))
        global _foreground, _package
        _foreground = options.foreground
        # devel/install-ganeti removes no package which a process has open.
        _package = os.open(os.path.dirname(paths.package_dir()), os.O_PATH | os.O_CLOEXEC)
        ready = daemonize.Ready(None) if options.foreground else daemonize.daemonize(self.name)
        try:
            code = self._serve(options, ready, notifier)
        except (errors.GenericError, OSError) as err:
            logging.error("cannot run: %s", err)
            ready.failed(str(err), _exit_code(err))
            _report_failure(notifier, err)
            if options.foreground:
                print(f"{self.name}: {err}", file=sys.stderr)
            code = _exit_code(err)
        except BaseException as err:
            if options.foreground or isinstance(err, SystemExit):
                raise
            # Standard error may be closed: the log and the starting process get the traceback.
            logging.critical("ended by an internal error", exc_info=True)
            ready.failed("internal error: " + traceback.format_exc().rstrip())
            code = EXIT_FAILURE
        logging.shutdown()
        sys.exit(code)

    def _serve(
        self, options: argparse.Namespace, ready: daemonize.Ready, notifier: notify.Notifier
    ) -> int:
        here = paths.current()
        log_file = here.log_file(self.name)
        _log_settings.update(
            program=self.name,
            logfile=log_file,
            debug=options.debug,
            stderr=options.foreground,
            syslog=options.syslog,
            threads=bool(options.debug),
        )
        log.setup(**_log_settings)
        global _pid_file
        pid_file = _pid_file = daemonize.PidFile(here.pid_file(self.name))
        pid_file.acquire()
        signals = Signals()
        logging.info("%s %s starts", self.name, FULL_VERSION)
        try:
            hand_over((log_file, pid_file.path), options.user, options.group)
            if self.early_drop:
                drop_privileges(options.user, options.group)
            prepared = self.prepare(options)
            drop_privileges(options.user, options.group)
            ready.ready()
            notifier.ready()
            signals.report_to(notifier)
            if not options.foreground:
                daemonize.close_output(log.log_fileno())
            code = self.run(options, prepared, signals)
        finally:
            signals.end_reports()
            pid_file.release()
        logging.info("%s ends", self.name)
        return code or EXIT_SUCCESS


def _exit_code(err: BaseException) -> int:
    return err.exit_code if isinstance(err, StartRefused) else EXIT_FAILURE


def _report_failure(notifier: notify.Notifier, err: BaseException) -> None:
    """Tell the service manager why this daemon does not run, and whether that is a failure."""
    if _exit_code(err) in _UNNEEDED:
        notifier.unneeded(str(err))
    else:
        notifier.failed(str(err))
