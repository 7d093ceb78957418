"""The program ``ganeti-join``: makes this machine a node, with a one-time token of the master.

It reads the token from the terminal or a file, never from the command line, where other users of
the machine could see it.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Sequence

from ganeti.bootstrap import join, join_protocol
from ganeti.constants.cli import EXIT_SUCCESS
from ganeti.platform import machine, paths
from ganeti.tools.entry import reports_errors
from ganeti.utils import fs


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog="ganeti-join",
        description="Make this machine a node of the cluster whose master printed the token.",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="read the token from this file instead of asking for it; - means standard input",
    )
    return parser


def read_token(path: str | None) -> join_protocol.Token:
    """Read the token.

    :param path: a file, ``-`` for standard input, or None for the terminal.
    :raises JoinError: the token cannot be read, or is not a token.
    """
    try:
        if path is None:
            text = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()
        elif path == "-":
            text = sys.stdin.readline()
        else:
            text = fs.read_file(path)
    except (OSError, EOFError) as err:
        raise join_protocol.JoinError(f"cannot read the token: {err}") from err
    return join_protocol.decode_token(text)


@reports_errors("ganeti-join")
def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = make_parser().parse_args(argv)
    try:
        token = read_token(options.token_file)
        here = paths.current()
        if os.geteuid() != 0 and machine.current().needs_root_to_join:
            raise join_protocol.JoinError("only root can make this machine a node")
        join.join(token, here, address=machine.current().outgoing_address())
    except KeyboardInterrupt:
        print("ganeti-join: interrupted", file=sys.stderr)
        return 130
    print(f"{token.node_name} is a node of the cluster now")
    return EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
