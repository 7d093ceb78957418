"""The program ``ganeti-watcher``: options, locks, log and exit codes.

Exit codes: 0 when everything that is missing was tried; 1 when a part of the work could not be
done, for example because the master daemon does not answer, or because another run has been running
for so long that it probably hangs; 2 for wrong options. A run which finds another one running, a
paused cluster, or a machine that is not a node, ends with 0. So does one which fails because the
role of the master moved, or the cluster was destroyed, while it worked.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence

from ganeti import errors
from ganeti.backend.node.info import watcher_pause
from ganeti.cli import value_types
from ganeti.constants.cli import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.constants.node_verify import WATCHER_HANGS_S
from ganeti.luxi import client as luxi
from ganeti.platform import paths, watcher_files
from ganeti.utils import clock, log
from ganeti.utils.filelock import FileLock
from ganeti.watcher import cluster, group, node

NAME = "ganeti-watcher"
DEFAULT_JOB_AGE_S = 6 * 3600
# Who looks whether a watcher is running holds the lock for a moment.
_LOCK_WAIT_S = 0.5

_log = logging.getLogger(__name__)


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Look at the state of this node and, on the master, of the cluster, and do what"
        " is missing: start daemons, restart instances, activate disks, archive jobs.",
        epilog="Example: ganeti-watcher --dry-run",
    )
    parser.add_argument("-d", "--debug", action="count", default=0, help="log more, and also here")
    parser.add_argument(
        "-g",
        "--node-group",
        metavar="<group>",
        help="do only the work for this node group (by its UUID or name)",
    )
    parser.add_argument(
        "-A",
        "--job-age",
        type=value_types.for_argparse(_time),
        default=DEFAULT_JOB_AGE_S,
        metavar="<age>",
        help="archive jobs which ended longer ago: a time such as 6h, or -1 for none (default: 6h)",
    )
    parser.add_argument("--ignore-pause", action="store_true", help="work although it is paused")
    parser.add_argument(
        "--wait-children",
        dest="wait_children",
        action="store_true",
        default=True,
        help="wait until the work for all node groups is done (default)",
    )
    parser.add_argument(
        "--no-wait-children",
        dest="wait_children",
        action="store_false",
        help="end while the work for the node groups goes on",
    )
    parser.add_argument(
        "--no-verify-disks", action="store_true", help="do not let the master verify the disks"
    )
    parser.add_argument(
        "--no-strict",
        action="store_true",
        help="a node which does not answer when disks are verified is not an error",
    )
    parser.add_argument(
        "--rapi-ip",
        metavar="<address>",
        help="ask the REST daemon at this address (default: the one which it serves)",
    )
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="print what would be done, and change nothing"
    )
    return parser


def _time(text: str) -> int:
    if text.startswith("-") and text[1:].isdecimal():
        return -int(text[1:])
    return value_types.parse_time(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    options = make_parser().parse_args(argv)
    here = paths.current()
    try:
        log.setup(
            NAME, logfile=here.log_watcher_file, debug=options.debug, stderr=bool(options.debug)
        )
    except errors.ConfigurationError as err:
        print(f"{NAME}: {err}", file=sys.stderr)
        return EXIT_FAILURE
    if not os.path.exists(here.noded_cert_file):
        _log.debug("this machine is not a node of a cluster")
        return EXIT_SUCCESS
    if not options.ignore_pause and _is_paused(options):
        return EXIT_SUCCESS
    if options.node_group:
        group_uuid = _find_group(options.node_group)
        if group_uuid is None:
            return EXIT_FAILURE
        options.node_group = group_uuid
        lock_file, work = here.watcher_group_lock_file(group_uuid), _group_part
        complete_file = here.watcher_group_complete_file(group_uuid)
    else:
        lock_file, work = here.watcher_lock_file, _node_part
        complete_file = here.watcher_complete_file
    was_master = _is_master()
    code = _run(options, lock_file, complete_file, work)
    if code != EXIT_SUCCESS:
        change = _change_since(was_master)
        if change:
            _say(options, change)
            return EXIT_SUCCESS
    return code


def _is_master() -> bool | None:
    """Return True if this node is the master; None when its files do not say who is."""
    try:
        return cluster.is_master()
    except errors.ConfigurationError:
        return None


def _change_since(was_master: bool | None) -> str:
    """Return why a run could not end well although nothing is wrong.

    The result is empty when there is no such reason.

    :param was_master: what :func:`_is_master` returned when the run began.
    """
    is_master = _is_master()
    if was_master is not None and is_master is None:
        return "this machine is not a node of a cluster any more; nothing is left to do"
    if was_master and not is_master:
        return "the role of the master moved to another node, whose watcher goes on"
    return ""


def _find_group(word: str) -> str | None:
    """Return the UUID of a node group, given by UUID or name; None after a message if there is
    none.
    """
    known = cluster.groups()
    for uuid, name in known.items():
        if word in (uuid, name):
            return uuid
    text = f"there is no node group {word!r}; there are: {', '.join(sorted(known.values()))}"
    _log.error("%s", text)
    print(f"{NAME}: {text}", file=sys.stderr)
    return None


def _run(
    options: argparse.Namespace,
    lock_file: str,
    complete_file: str,
    work: Callable[[argparse.Namespace], int],
) -> int:
    """Do the work, unless another run does it; returns the exit code."""
    try:
        with FileLock(lock_file) as lock:
            try:
                lock.acquire(timeout_s=_LOCK_WAIT_S)
            except errors.LockError:
                return _another_runs(options, lock_file)
            with watcher_files.noted(lock):
                code = work(options)
            if code == EXIT_SUCCESS and not options.dry_run:
                watcher_files.note_complete(complete_file)
            return code
    except errors.JobQueueDrainError:
        _say(
            options,
            "the job queue is drained, so nothing more is done; see 'gnt-cluster queue info'",
        )
        return EXIT_SUCCESS
    except (errors.GenericError, OSError) as err:
        _log.error("the run ends early: %s", err, exc_info=options.debug > 0)
        if options.dry_run or sys.stderr.isatty():
            print(f"{NAME}: {err}", file=sys.stderr)
        return EXIT_FAILURE


def _another_runs(options: argparse.Namespace, lock_file: str) -> int:
    """Say that another run works, and whether it probably hangs; returns the exit code."""
    other = watcher_files.holder(lock_file)
    if other is None:
        _say(options, "another watcher is running; nothing was done")
        return EXIT_SUCCESS
    span = clock.format_span(other.age_s)
    who = f"another watcher (process {other.pid}) has been running for {span}"
    if other.age_s < WATCHER_HANGS_S:
        _say(options, f"{who}; nothing was done")
        return EXIT_SUCCESS
    _say(
        options,
        f"{who}, and probably hangs; until it ends, no watcher does anything here. Look at"
        f" {paths.current().log_watcher_file}, and end it with 'kill {other.pid}'",
        logging.ERROR,
    )
    return EXIT_FAILURE


def _say(options: argparse.Namespace, text: str, level: int = logging.INFO) -> None:
    _log.log(level, "%s", text)
    if options.dry_run or sys.stderr.isatty():
        print(f"{NAME}: {text}", file=sys.stderr)


def _is_paused(options: argparse.Namespace) -> bool:
    try:
        until = watcher_pause()
    except errors.ParseError as err:
        _log.error("%s; the watcher works as if it was not paused", err)
        return False
    if until is None or until <= clock.now():
        return False
    # For the log of a timer this is not news.
    _say(options, f"paused until {clock.format_time(until)}; nothing is done", logging.DEBUG)
    return True


def _node_part(options: argparse.Namespace) -> int:
    node.run_hooks(dry_run=options.dry_run)
    node.start_daemons(dry_run=options.dry_run)
    node.maintain_health(dry_run=options.dry_run)
    node.report_certificates()
    return _master_part(options) if cluster.is_master() else EXIT_SUCCESS


def _master_part(options: argparse.Namespace) -> int:
    if not cluster.start_daemons(options.rapi_ip, dry_run=options.dry_run):
        if options.dry_run:
            print("What else would be done is known when the master daemon runs.")
            return EXIT_SUCCESS
        return EXIT_FAILURE
    client = cluster.connect(luxi.Client)
    if client is None:
        return EXIT_FAILURE
    with client:
        (pause,) = client.query_config_values(["queue_pause"])
        if pause:
            # Jobs of this run would wait, too, and the next run for this one.
            _say(options, f"jobs cannot be executed, so nothing is done: {pause}", logging.ERROR)
            return EXIT_FAILURE
        cluster.archive_jobs(client, options.job_age, dry_run=options.dry_run)
        if options.dry_run:
            _require_open_queue(client)
        _balance(client, options)
    children = cluster.start_groups(_group_options(options))
    if not options.wait_children:
        return EXIT_SUCCESS
    # A process which was killed has a negative code.
    codes = [child.wait() for child in children]
    if not options.dry_run:
        cluster.merge_status()
    return EXIT_FAILURE if any(codes) else EXIT_SUCCESS


def _require_open_queue(client: luxi.Client) -> None:
    """Refuse a dry run where the queue would refuse the first job of an ordinary run.

    :raises errors.JobQueueDrainError: the queue takes no jobs.
    """
    (drained,) = client.query_config_values(["drain_flag"])
    if drained:
        raise errors.JobQueueDrainError("the job queue is drained")


def _balance(client: luxi.Client, options: argparse.Namespace) -> None:
    """Balance the cluster, if that is switched on; a failure must not delay the node groups."""
    # Other nodes and other runs do not need the placement programs.
    from ganeti.watcher import balance

    try:
        balance.run(client, paths.current().watcher_balance_file, dry_run=options.dry_run)
    except (errors.GenericError, OSError) as err:
        _log.error("the cluster is not balanced: %s", err)


def _group_options(options: argparse.Namespace) -> list[str]:
    wanted = {
        "--debug": options.debug > 0,
        "--ignore-pause": options.ignore_pause,
        "--no-verify-disks": options.no_verify_disks,
        "--no-strict": options.no_strict,
        "--dry-run": options.dry_run,
    }
    return [f"--job-age={options.job_age}", *(word for word, given in wanted.items() if given)]


def _group_part(options: argparse.Namespace) -> int:
    with luxi.Client() as client:
        if options.dry_run:
            _require_open_queue(client)
        group.GroupRun(
            client,
            options.node_group,
            group.Options(
                dry_run=options.dry_run,
                verify_disks=not options.no_verify_disks,
                strict=not options.no_strict,
                name=cluster.groups().get(options.node_group, options.node_group),
                job_age_s=options.job_age,
            ),
        ).run()
    return EXIT_SUCCESS
