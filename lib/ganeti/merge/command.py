"""The program ``cluster-merge``: merges other clusters into the one of this master."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from ganeti import errors
from ganeti.constants.cli import EXIT_SUCCESS
from ganeti.merge import conflicts, other_cluster, steps
from ganeti.merge.record import Record, record_file
from ganeti.platform import paths
from ganeti.tools import config_files
from ganeti.tools.entry import reports_errors
from ganeti.utils import filelock, log, process, ssh

PROGRAM = "cluster-merge"


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Merge other clusters into the cluster of this master.",
    )
    add = parser.add_argument
    add("clusters", nargs="+", metavar="CLUSTER", help="name of another cluster, or of its master")
    add(
        "--ssh-port",
        type=_port,
        metavar="PORT",
        help=f"TCP port of SSH on the masters of the other clusters (default: {ssh.PORT});"
        " the ports of their other nodes are known there",
    )
    add("-d", "--debug", action="count", default=0, help="print debug messages")
    add("-v", "--verbose", action="store_true", help="print each command before it runs")
    _add_choices(parser)
    add("--dry-run", action="store_true", help="only check, and say what would happen")
    return parser


def _add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options which become :class:`steps.Choices`."""
    add = parser.add_argument
    defaults = steps.Choices()
    add(
        "-p",
        "--watcher-pause-period",
        dest="pause_s",
        type=int,
        default=defaults.pause_s,
        metavar="SECONDS",
        help="for how long the watchers pause (default: %(default)s)",
    )
    add(
        "--groups",
        choices=conflicts.GROUPS,
        metavar="STRATEGY",
        help="node groups with the same name: merge or rename; without it they are refused",
    )
    add(
        "--restart",
        choices=steps.RESTARTS,
        default=defaults.restart,
        metavar="STRATEGY",
        help="which instances of the other clusters start at the end: all, up or none"
        " (default: %(default)s)",
    )
    add(
        "--parameter-conflicts",
        dest="parameters",
        choices=conflicts.PARAMETERS,
        default=defaults.parameters,
        metavar="STRATEGY",
        help="parameters which differ: strict or warn (default: %(default)s)",
    )
    stopping = parser.add_mutually_exclusive_group()
    stopping.add_argument(
        "--skip-stop-instances",
        dest="stop_instances",
        action="store_false",
        help="stop no instances of the other clusters; check that none of them runs",
    )
    stopping.add_argument(
        "--keep-running",
        action="store_true",
        help="let the instances of the other clusters run, except those of which a port changes",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"'{text}' is not a TCP port, a number from 1 to 65535")
    return int(text)


@reports_errors(PROGRAM)
def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    :returns: the exit code: 0 if all clusters were merged, 1 after an error.
    """
    options = make_parser().parse_args(argv)
    log.setup(
        PROGRAM, debug=options.debug + options.verbose, stderr=options.verbose or options.debug
    )
    names = list(steps.Choices.__dataclass_fields__)
    choices = steps.Choices(**{name: getattr(options, name) for name in names})
    data_dir = paths.current().data_dir
    config_files.refuse_elsewhere(data_dir)
    with filelock.FileLock(f"{data_dir}/cluster-merge.lock") as lock:
        _acquire(lock)
        # A command keeps the lock when this program is killed: the next run waits for it.
        keep = (lock.fileno(),)
        for name in _resumed(data_dir, options.clusters, keep, dry_run=options.dry_run):
            cluster = other_cluster.find(name, keep, options.ssh_port)
            _merge(cluster, choices, keep, asked=name).execute()
    return EXIT_SUCCESS


def _acquire(lock: filelock.FileLock) -> None:
    try:
        lock.acquire(timeout_s=0)
    except errors.LockError:
        print(
            f"Waiting for another {PROGRAM}, or for the last command of one which was killed",
            flush=True,
        )
        lock.acquire()


def _merge(
    cluster: other_cluster.OtherCluster,
    choices: steps.Choices,
    keep_fds: Sequence[int],
    *,
    asked: str = "",
    record: Record | None = None,
) -> steps.Merge:
    run = partial(process.run, keep_fds=keep_fds)
    # Who writes the output to a file or through "tee" sees each step when it begins, too.
    say = partial(print, flush=True)
    return steps.Merge(cluster, choices, asked=asked, record=record, run=run, say=say)


def _resumed(
    data_dir: str, names: Sequence[str], keep_fds: Sequence[int], *, dry_run: bool
) -> Sequence[str]:
    """Take back or complete a merge which was interrupted, if there is one.

    :param names: the clusters to be merged.
    :returns: those which are left. The clusters before an interrupted one are merged.
    :raises OpPrereqError: the interrupted one is not among them.
    """
    record = record_file(data_dir).read()
    if record is None:
        return names
    known = (record.asked, record.name, record.master)
    place = next((place for place, name in enumerate(names) if name in known), None)
    if place is None:
        raise errors.OpPrereqError(
            f"the merge of {record.name} was interrupted. Run '{PROGRAM} {record.asked}' first: it"
            f" {_next_step(record)}.",
            errors.ECODE_STATE,
        )
    if dry_run:
        print(
            f"The merge of {record.name} was interrupted. Without --dry-run, the same command"
            f" {_next_step(record)}."
        )
        return ()
    interrupted = _merge(
        other_cluster.recorded(record, keep_fds),
        steps.Choices(**record.choices),
        keep_fds,
        record=record,
    )
    return names[place + 1 :] if interrupted.resume() else names[place:]


def _next_step(record: Record) -> str:
    return "completes the merge" if record.merged else "takes back what has begun, and begins again"


if __name__ == "__main__":
    sys.exit(main())
