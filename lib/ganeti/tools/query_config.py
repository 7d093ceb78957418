"""The program ``query-config``: prints a value of the configuration, which confd knows.

The value is named by a JSON pointer (RFC 6901), such as ``/cluster/cluster_name``. The daemon
leaves out what is secret.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ganeti.constants import confd as const
from ganeti.constants.cli import EXIT_FAILURE, EXIT_SUCCESS
from ganeti.tools import confd_client
from ganeti.tools.entry import reports_errors
from ganeti.wire import json

PROGRAM = "query-config"


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Print a value of the configuration, as a configuration query daemon knows it.",
    )
    confd_client.add_address_options(parser, default="127.0.0.1")
    parser.add_argument(
        "pointer",
        nargs="?",
        default="",
        metavar="POINTER",
        help="JSON pointer to the value, such as /cluster/cluster_name; everything by default",
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Ask the daemon and print the value.

    :returns: the exit code.
    :raises ConfdClientError: the daemon does not answer, or the key cannot be read.
    """
    answer = confd_client.client(options).query(const.REQ_CONFIG, options.pointer)
    if not answer.ok:
        print(
            f"{PROGRAM}: the configuration has no value {options.pointer!r}, or this node is no"
            f" master candidate (error {answer.answer})",
            file=sys.stderr,
        )
        return EXIT_FAILURE
    print(json.dumps(answer.answer))
    return EXIT_SUCCESS


@reports_errors(PROGRAM)
def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    return run(make_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
