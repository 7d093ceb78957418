"""The program ``cluster-merge``: merges other clusters into the one of this master."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ganeti import errors
from ganeti.merge import conflicts, other, steps
from ganeti.platform import paths
from ganeti.tools import config_files
from ganeti.utils import log

PROGRAM = "cluster-merge"
EXIT_SUCCESS, EXIT_FAILURE = 0, 1


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Merge other clusters into the cluster of this master.",
    )
    add = parser.add_argument
    defaults = steps.Choices()
    add("clusters", nargs="+", metavar="CLUSTER", help="name of another cluster, or of its master")
    add("-d", "--debug", action="count", default=0, help="print debug messages")
    add("-v", "--verbose", action="store_true", help="print each command before it runs")
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
    add("--dry-run", action="store_true", help="only check, and say what would happen")
    return parser


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
    try:
        config_files.refuse_elsewhere(paths.current().data_dir)
        for name in options.clusters:
            steps.Merge(other.find(name), choices).execute()
    except (errors.GenericError, OSError) as err:
        print(f"{PROGRAM}: {err}", file=sys.stderr)
        return EXIT_FAILURE
    return EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
