"""The commands ``rapi-passwd passkey``: list and remove the passkeys of users.

A passkey is made by a browser (``/2/passkeys``). See :mod:`ganeti.rapi.passkeys`.
"""

from __future__ import annotations

import argparse

from ganeti.rapi import passkeys
from ganeti.tools import rapi_credentials


def make_parser() -> argparse.ArgumentParser:
    """Describe the commands and their options."""
    parser = argparse.ArgumentParser(
        prog="rapi-passwd passkey",
        allow_abbrev=False,
        description="List and remove the passkeys of users of the REST interface, which a browser"
        " makes.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    rapi_credentials.add_list_and_remove(commands, passkeys.KIND)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run a command; returns the exit code.

    :raises errors.GenericError: the command is not possible.
    """
    return rapi_credentials.run(passkeys.KIND, options)
