"""The commands ``rapi-passwd token``: make, list and remove access tokens.

See :mod:`ganeti.rapi.tokens`.
"""

from __future__ import annotations

import argparse
import sys

from ganeti.luxi import client as luxi
from ganeti.rapi import tokens
from ganeti.tools import rapi_credentials


def make_parser() -> argparse.ArgumentParser:
    """Describe the commands and their options."""
    return rapi_credentials.make_parser(
        tokens.KIND,
        "Make, list and remove access tokens, with which programs use the REST interface.",
        "make a token, and print it once on standard output",
    )


def run(options: argparse.Namespace) -> int:
    """Run a command; returns the exit code.

    :raises errors.GenericError: the command is not possible.
    """
    return rapi_credentials.run(tokens.KIND, options, _add)


def _add(master: luxi.Client, options: argparse.Namespace) -> None:
    secret, record = tokens.make(rapi_credentials.wanted(options))
    # The standard output has the token alone, so that it can be sent to a file.
    print(f"{rapi_credentials.put(master, record)}. It is shown only now:", file=sys.stderr)
    print(secret)
