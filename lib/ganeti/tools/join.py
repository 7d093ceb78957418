"""Makes this machine a node, with a one-time token from the master; the program ``ganeti-join``.

The token is read from the terminal or a file, never taken from the command line, where other users
of the machine could see it.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Sequence

from ganeti import errors
from ganeti.bootstrap import join, join_protocol
from ganeti.platform import machine, paths
from ganeti.utils import fs

EXIT_SUCCESS = 0
EXIT_FAILURE = 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ganeti-join",
        description="Makes this machine a node of the cluster whose master printed the token.",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="read the token from a file, - for standard input; else it is asked for",
    )
    return parser


def read_token(path: str | None) -> join_protocol.Token:
    """Get the token from where it is.

    :raises JoinError: it is not there, or it is none.
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


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        token = read_token(options.token_file)
        here = paths.current()
        if os.geteuid() != 0 and machine.current().needs_root_to_join:
            raise join_protocol.JoinError("only root can make this machine a node")
        join.join(token, here, address=machine.current().outgoing_address())
    except (errors.GenericError, OSError) as err:
        print(f"ganeti-join: {err}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        print("ganeti-join: interrupted", file=sys.stderr)
        return 130
    print(f"{token.node_name} is a node of the cluster now")
    return EXIT_SUCCESS


if __name__ == "__main__":
    sys.exit(main())
