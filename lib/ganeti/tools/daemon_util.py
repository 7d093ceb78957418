"""The program ``daemon-util``: starts and stops the daemons of this node.

Init systems, ``gnt-cluster init``, the node daemon (when the master role moves) and virtual
clusters call it. Its sub-commands are published. An ordinary user can use it if the directories of
the daemons belong to that user, as in a virtual cluster.

``start`` returns when the daemon serves requests, or prints the error of the daemon and returns its
exit code. ``stop`` returns when the daemon has ended. Both succeed if there is nothing to do.
Whether a daemon runs follows from the lock on its pid file, never from the number in it.

Where systemd has booted the machine and the units are installed, it starts and stops the daemons
(:mod:`ganeti.tools.daemon_units`).

Extra arguments of a daemon come from ``/etc/default/ganeti``, one line for each daemon:
``NODED_ARGS="-d"``.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ganeti import FULL_VERSION, __version__, errors
from ganeti.config.ssconf import SimpleStore
from ganeti.constants import ssconf
from ganeti.constants.cli import EXIT_FAILURE, EXIT_NOTCLUSTER, EXIT_NOTMASTER, EXIT_SUCCESS
from ganeti.platform import machine, paths, users, versions, watchdog_files
from ganeti.tools import daemon_units, ensure_dirs
from ganeti.tools.entry import reports_errors
from ganeti.utils import daemonize, filelock, fs, process, retry, suggest

# The order of starting; stopping uses the reverse order.
START_ORDER = (
    "ganeti-noded",
    "ganeti-confd",
    "ganeti-kvmd",
    "ganeti-metad",
    "ganeti-mond",
    "ganeti-masterd",
    "ganeti-rapi",
    "ganeti-failoverd",
    "ganeti-watchdogd",
)
_NODED = "ganeti-noded"
_MASTER = "ganeti-masterd"
MASTER_DAEMONS = (_MASTER, "ganeti-rapi")

#: How the usage names an argument.
DAEMON = "<daemon>"
VERSION_ARGUMENT = "<version>"
_MANUAL = "man daemon-util explains them."


# The master daemon finishes the present steps of its jobs before it ends.
_STOP_S = 60.0
_KILL_S = 10.0
_FOLD_S = 60.0


def executable(daemon: str) -> str:
    """Return the path of the program of a daemon.

    :raises ConfigurationError: the daemon does not exist, or is not installed.
    """
    if daemon not in START_ORDER:
        raise errors.ConfigurationError(
            f"'{daemon}' is not a daemon. The daemons are {', '.join(START_ORDER)}."
        )
    path = f"{paths.daemon_dir()}/{daemon}"
    if not os.access(path, os.X_OK):
        raise errors.ConfigurationError(f"{daemon} is not installed at {path}")
    return path


def installed() -> list[str]:
    """List the daemons which are installed, in the order of starting."""
    return [name for name in START_ORDER if os.access(f"{paths.daemon_dir()}/{name}", os.X_OK)]


def wanted(daemon: str) -> bool:
    """Check whether this cluster needs a daemon.

    Only some clusters need ganeti-kvmd, or ganeti-failoverd, which is stopped before the daemons of
    the master, so that their end is not a reason for a failover. Before it ganeti-watchdogd is
    stopped, because it needs the master for that.

    The node daemon starts ganeti-metad together with the first guest that can use it. A daemon
    whose unit is masked is not wanted either.
    """
    if daemon == "ganeti-metad" or daemon_units.masked(daemon):
        return False
    if daemon == "ganeti-mond":
        return machine.current().runs_monitoring
    if daemon == "ganeti-failoverd":
        return _ssconf(ssconf.AUTO_FAILOVER).strip() not in ("", "0")
    if daemon == watchdog_files.DAEMON:
        # A promise which is stored is kept until the master has released the node.
        used = _ssconf(ssconf.NODE_WATCHDOG).strip() not in ("", "0")
        return used or os.path.exists(paths.current().watchdog_promise_file)
    from ganeti.objects import hypervisors  # costs milliseconds; most calls need no list of daemons

    served = {name for name, one in hypervisors.ALL.items() if one.shutdown_daemon == daemon}
    if not served:
        return True
    return (
        not served.isdisjoint(_ssconf(ssconf.HYPERVISOR_LIST).split())
        and _ssconf(ssconf.ENABLED_USER_SHUTDOWN).strip() == "True"
    )


def _ssconf(key: str) -> str:
    try:
        return fs.read_file(paths.current().ssconf_file(key))
    except OSError:
        return ""


def parse_defaults(text: str) -> dict[str, list[str]]:
    """Read lines such as ``NODED_ARGS="-d --syslog=yes"``; other lines are ignored.

    :returns: daemon -> arguments.
    :raises ConfigurationError: a quote is not closed.
    """
    found: dict[str, list[str]] = {}
    variables = {f"{name.removeprefix('ganeti-').upper()}_ARGS": name for name in START_ORDER}
    for line in text.splitlines():
        try:
            for word in shlex.split(line, comments=True):
                variable, sign, value = word.partition("=")
                if sign and variable in variables:
                    found[variables[variable]] = shlex.split(value)
        except ValueError as err:
            raise errors.ConfigurationError(
                f"cannot read {paths.current().defaults_file}: {err} in '{line}'"
            ) from err
    return found


def _default_args(daemon: str) -> list[str]:
    try:
        text = fs.read_file(paths.current().defaults_file)
    except FileNotFoundError:
        return []
    return parse_defaults(text).get(daemon, [])


def is_running(daemon: str) -> bool:
    """Check whether a daemon of this node runs."""
    return filelock.is_locked(paths.current().pid_file(daemon))


def start(daemon: str, args: Sequence[str] = ()) -> int:
    """Start a daemon unless it runs.

    :param args: arguments of the daemon, after those of ``/etc/default/ganeti``.
    :returns: the exit code of the daemon's start.
    """
    program = executable(daemon)
    if is_running(daemon):
        return EXIT_SUCCESS
    if machine.current().may_change_owners:
        users.require_accounts(users.current())
        # A daemon that drops privileges needs the right owners and modes of its files.
        ensure_dirs.ensure(paths.current(), users.current())
    if daemon_units.managed(daemon):
        return daemon_units.start(daemon, args)
    argv = [sys.executable, program, *_default_args(daemon), *args]
    # Not process.run: the daemon continues after this program, and its messages go to the terminal.
    # A pipe would be inherited by the daemon, and a reader of the pipe would wait for its end.
    code = subprocess.run(
        argv, stdin=subprocess.DEVNULL, env=_environment(), check=False
    ).returncode
    if code != EXIT_SUCCESS and is_running(daemon):
        # Another process, such as the watcher, has started it in the same moment.
        return EXIT_SUCCESS
    return code


def _environment() -> dict[str, str]:
    env = dict(os.environ)
    lib = os.path.dirname(paths.package_dir())
    known = env.get("PYTHONPATH", "").split(":")
    if lib not in known:
        env["PYTHONPATH"] = ":".join([lib, *filter(None, known)])
    return env


def stop(daemon: str, *, stop_s: float = _STOP_S) -> int:
    """Stop a daemon and wait for its end.

    When the node daemon has ended, the configuration has no journal: a version which does not read
    journals may be started next. When the master daemon has ended, its changes are in the file,
    which an administrator may edit or copy next.

    :param stop_s: seconds after which the daemon is killed.
    """
    code = _end(daemon, stop_s)
    if code != EXIT_SUCCESS or daemon not in (_NODED, _MASTER):
        return code
    return fold_journal(last=daemon == _NODED)


def fold_journal(*, last: bool = False) -> int:
    """Write what the journal of the configuration has into the file.

    A node daemon and a master daemon do that when they end, unless they were killed.

    :param last: no node daemon runs, so that no journal may be left.
    :returns: an exit code: whether the file has what was in the journal.
    """
    path = paths.current().cluster_conf_file
    journal = paths.current().cluster_conf_journal
    if not os.path.exists(journal):
        return EXIT_SUCCESS
    from ganeti.configfile import files  # costs milliseconds; most nodes have no journal
    from ganeti.platform import master_epoch

    try:
        # The node daemon, or a child of it, may be doing the same.
        files.fold_now(path, master_epoch.config_lock, timeout_s=_FOLD_S, last=last)
    except (OSError, errors.LockError) as err:
        print(
            f"the changes in {journal} cannot be written into {path}, which other versions,"
            f" editors and copies read: {err}",
            file=sys.stderr,
        )
        return EXIT_FAILURE
    return EXIT_SUCCESS


def _end(daemon: str, stop_s: float) -> int:
    executable(daemon)
    here = paths.current()
    pid_file = here.pid_file(daemon)
    if daemon == _MASTER and os.path.isdir(here.run_dir):
        # Also if it does not run: then an automatic failover does not start it again.
        uid, gid = users.same_owner(here.data_dir)
        fs.write_file(here.master_stopped_file, "", mode=0o644, uid=uid, gid=gid, sync=False)
    if daemon_units.managed(daemon):
        pid = daemonize.read_pid(pid_file)
        daemon_units.stop(daemon, wait=pid is None or not process.is_paused(pid))
    # A daemon which was started without its unit, too.
    for number, limit_s in ((signal.SIGTERM, stop_s), (signal.SIGKILL, _KILL_S)):
        if daemon == watchdog_files.DAEMON and number == signal.SIGKILL:
            print(
                f"{daemon}: no master has released this node from its promise; without the daemon"
                " the hardware watchdog would restart the machine",
                file=sys.stderr,
            )
            break
        pid = daemonize.read_pid(pid_file)
        if pid is None:
            return EXIT_SUCCESS
        if number == signal.SIGTERM and process.is_paused(pid):
            # A paused daemon does not handle the signal, and a master must not continue after a
            # pause.
            continue
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise errors.ConfigurationError(
                f"{daemon} (process {pid}) belongs to another user and cannot be stopped"
            ) from None

        def gone(pid: int = pid) -> None:
            if process.is_alive(pid):
                raise retry.Again(pid)

        try:
            retry.until(gone, timeout_s=limit_s, delay=(0.01, 1.5, 0.2))
        except errors.RetryTimeout:
            print(
                f"{daemon} (process {pid}) has not ended after signal {number.value}",
                file=sys.stderr,
            )
            continue
        return EXIT_SUCCESS
    print(f"{daemon} cannot be stopped", file=sys.stderr)
    return EXIT_FAILURE


def check_config() -> int:
    """Check whether this node belongs to a cluster; returns 0 if it does, otherwise 5.

    :raises ConfigurationError: users or groups under which its daemons should run do not exist.
    """
    here = paths.current()
    for path in (here.noded_cert_file, here.ssconf_file("master_node")):
        if not os.path.exists(path):
            print(f"not a cluster node: {path} is missing", file=sys.stderr)
            return EXIT_NOTCLUSTER
    users.require_accounts(users.current())
    return EXIT_SUCCESS


def check_exitcode(code: int) -> int:
    """Judge the exit code of a daemon's start: that this node is not the master is a success."""
    return EXIT_SUCCESS if code in (EXIT_SUCCESS, EXIT_NOTMASTER) else EXIT_FAILURE


def rotate_logs(daemon: str) -> int:
    """Make a daemon open its log files again."""
    executable(daemon)
    pid = daemonize.read_pid(paths.current().pid_file(daemon))
    if pid is None:
        return EXIT_SUCCESS
    os.kill(pid, signal.SIGHUP)
    return EXIT_SUCCESS


def _start_many(daemons: Sequence[str]) -> int:
    """Start daemons; those which need the master daemon only if that runs."""
    worst = EXIT_SUCCESS
    master = EXIT_SUCCESS
    for daemon in daemons:
        if daemon in MASTER_DAEMONS and master != EXIT_SUCCESS:
            if check_exitcode(master) != EXIT_SUCCESS:
                print(f"{daemon} is not started, because {_MASTER} does not run", file=sys.stderr)
            continue
        code = start(daemon)
        if daemon == _MASTER:
            master = code
        if check_exitcode(code) != EXIT_SUCCESS:
            worst = code
    return worst


def _needed_here() -> list[str]:
    """Return the daemons which this node needs: those of the master only if it may be the
    master.
    """
    try:
        master = SimpleStore(paths.current()).master_node()
    except errors.ConfigurationError:
        # The master daemon says what is wrong with the file.
        master = machine.current().hostname()
    elsewhere = master.lower() != machine.current().hostname()
    return [
        name for name in installed() if wanted(name) and not (elsewhere and name in MASTER_DAEMONS)
    ]


def _stop_many(daemons: Sequence[str]) -> int:
    return max([stop(daemon) for daemon in daemons], default=EXIT_SUCCESS)


def _reload_ssh_keys() -> int:
    if not machine.current().has_ssh:
        print("a virtual cluster has no SSH server to reload", file=sys.stderr)
        return EXIT_SUCCESS
    process.run(["service", "ssh", "reload"], timeout_s=60)
    return EXIT_SUCCESS


def _say(text: str) -> int:
    print(text)
    return EXIT_SUCCESS


def _check_needed(daemon: str) -> int:
    """Check whether a daemon should run on this node; the units of some daemons ask that.

    :returns: 0; 11 for a daemon of the master on another node; 5 without a cluster; otherwise 1.
    """
    executable(daemon)
    if daemon not in MASTER_DAEMONS:
        return EXIT_SUCCESS if wanted(daemon) else EXIT_FAILURE
    master = _ssconf(ssconf.MASTER_NODE).strip().lower()
    if not master:
        return EXIT_NOTCLUSTER
    return EXIT_SUCCESS if master == machine.current().hostname() else EXIT_NOTMASTER


def _use_systemctl() -> int:
    return EXIT_SUCCESS if any(map(daemon_units.managed, installed())) else EXIT_FAILURE


def _is_daemon_name(name: str) -> int:
    return EXIT_SUCCESS if name in START_ORDER else EXIT_FAILURE


def _check(daemon: str) -> int:
    executable(daemon)
    return EXIT_SUCCESS if is_running(daemon) else EXIT_FAILURE


def _pid_file(daemon: str) -> int:
    executable(daemon)
    return _say(paths.current().pid_file(daemon))


def _exit_code_argument(text: str) -> int:
    if not text.isdecimal():
        raise errors.ParameterError(f"'{text}' is not an exit code")
    return check_exitcode(int(text))


def _masters() -> list[str]:
    return [name for name in installed() if name in MASTER_DAEMONS]


def _versions() -> int:
    from ganeti.wire import json  # costs milliseconds; the other sub-commands do not need it

    found = {name: one.release for name, one in versions.installed().items()}
    directories = {name: one.directory for name, one in versions.installed().items()}
    return _say(
        json.dumps(
            {
                "active": versions.active(),
                "installed": found,
                "directories": directories,
                "older_daemons": _older_daemons(),
            }
        )
    )


def _older_daemons() -> list[str]:
    """Return the daemons which were started before this node was switched to its version."""
    link = versions.link_path()
    try:
        switched = os.lstat(link).st_mtime_ns if link is not None else 0
    except FileNotFoundError:
        return []
    found = []
    for daemon in installed():
        try:
            # Each daemon writes its pid file when it starts.
            started = os.stat(paths.current().pid_file(daemon)).st_mtime_ns
        except FileNotFoundError:
            continue
        if started < switched and is_running(daemon):
            found.append(daemon)
    return found


def _use_version(series: str) -> int:
    # Of a node daemon which was killed.
    code = EXIT_SUCCESS if is_running(_NODED) else fold_journal(last=True)
    if code == EXIT_SUCCESS:
        versions.switch(series)
    return code


class SubCommand(NamedTuple):
    """A sub-command.

    :ivar minimum: least number of arguments.
    :ivar maximum: greatest number of arguments; None for any number.
    :ivar arguments: the arguments, for the usage.
    :ivar about: what it does, in some words.
    :ivar function: does it, and returns the exit code.
    """

    minimum: int
    maximum: int | None
    arguments: str
    about: str
    function: Callable[..., int]


def _plain(about: str, function: Callable[[], int]) -> SubCommand:
    return SubCommand(0, 0, "", about, function)


def _of_one(about: str, function: Callable[[str], int], argument: str = DAEMON) -> SubCommand:
    return SubCommand(1, 1, argument, about, function)


#: Name -> sub-command.
COMMANDS: dict[str, SubCommand] = {
    "daemon-pidfile": _of_one("print the file with the number of its process", _pid_file),
    "daemon-executable": _of_one(
        "print the path of its program", lambda name: _say(executable(name))
    ),
    "list-start-daemons": _plain(
        "print what start-all starts", lambda: _say("\n".join(filter(wanted, installed())))
    ),
    "list-stop-daemons": _plain(
        "print what stop-all stops", lambda: _say("\n".join(reversed(installed())))
    ),
    "is-daemon-name": _of_one("whether there is such a daemon", _is_daemon_name, "<name>"),
    "check": _of_one("whether the daemon runs", _check),
    "start": SubCommand(
        *(1, None, f"{DAEMON} [args]", "start a daemon, unless it runs"),
        lambda name, *args: start(name, args),
    ),
    "stop": _of_one("stop a daemon and wait for its end", stop),
    "restart": SubCommand(
        *(1, None, f"{DAEMON} [args]", "stop and start a daemon"),
        lambda name, *args: stop(name) or start(name, args),
    ),
    "check-and-start": _of_one("start a daemon, unless it runs", start),
    "start-master": _plain(
        "start the daemons of the master, on the master", lambda: _start_many(_masters())
    ),
    "stop-master": _plain("stop the daemons of the master", lambda: _stop_many(_masters()[::-1])),
    "start-all": _plain(
        "start the daemons which this node needs",
        lambda: check_config() or _start_many(_needed_here()),
    ),
    "stop-all": _plain("stop all daemons", lambda: _stop_many(installed()[::-1])),
    "fold-journal": _plain(
        "write the journal of the configuration into its file", lambda: fold_journal()
    ),
    "rotate-logs": _of_one("let a daemon open its log files again", rotate_logs),
    "rotate-all-logs": _plain(
        "let all daemons open their log files again",
        lambda: max([rotate_logs(name) for name in installed()]),
    ),
    "reload-ssh-keys": _plain("let the SSH server read its keys again", _reload_ssh_keys),
    "check-config": _plain("whether this node belongs to a cluster", check_config),
    "check-exitcode": _of_one(
        "whether this exit code of a start is a success", _exit_code_argument, "<n>"
    ),
    "use-systemctl": _plain("whether systemd starts the daemons", _use_systemctl),
    "check-needed": _of_one("whether the daemon should run here", _check_needed),
    # Versions which are installed side by side (doc/design-upgrade.rst).
    "versions": _plain("print the installed versions and the one in use, as JSON", _versions),
    "use-version": _of_one(
        "let this node use another installed version", _use_version, VERSION_ARGUMENT
    ),
}


def usage() -> str:
    """Return the usage of the program, with one line for each sub-command."""
    forms = [f"{name} {one.arguments}".rstrip() for name, one in COMMANDS.items()]
    width = max(map(len, forms))
    lines = [
        f"  {form:<{width}}  {one.about}"
        for form, one in zip(forms, COMMANDS.values(), strict=True)
    ]
    return "\n".join(
        ["Usage: daemon-util <command> [arguments]", "", "Commands:", *lines, "", _MANUAL]
    )


@reports_errors("daemon-util")
def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return EXIT_SUCCESS if words else EXIT_FAILURE
    if words[0] == "--version":
        return _say(f"daemon-util (ganeti {FULL_VERSION}) {__version__}")
    command = COMMANDS.get(words[0])
    if command is None:
        hint = suggest.did_you_mean(words[0], COMMANDS) or " 'daemon-util --help' lists them."
        print(f"daemon-util: unknown command '{words[0]}'.{hint}", file=sys.stderr)
        return EXIT_FAILURE
    args, most = words[1:], command.maximum
    if len(args) < command.minimum or (most is not None and len(args) > most):
        form = f"daemon-util {words[0]} {command.arguments}".rstrip()
        print(f"daemon-util: usage: {form}", file=sys.stderr)
        return EXIT_FAILURE
    return command.function(*args)


if __name__ == "__main__":
    sys.exit(main())
