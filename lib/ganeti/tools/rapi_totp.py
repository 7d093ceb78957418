"""The commands ``rapi-passwd totp``: give one-time codes to users, list and remove them.

The secret is shown on the terminal of the administrator, who gives it to the user, or runs the
command with him. See :mod:`ganeti.rapi.totp`.
"""

from __future__ import annotations

import argparse
import io
from typing import Final

from ganeti import errors
from ganeti.cli import live
from ganeti.cli.table import Column, format_table
from ganeti.luxi import client as luxi
from ganeti.platform import paths
from ganeti.rapi import credentials, sealed, totp
from ganeti.tools import rapi_credentials, rapi_passwd
from ganeti.utils import clock

_TRIES: Final = 3
_COLUMNS: Final = ("User", "Since", "LastUse", "RecoveryCodes")


def make_parser() -> argparse.ArgumentParser:
    """Describe the commands and their options."""
    parser = argparse.ArgumentParser(
        prog="rapi-passwd totp",
        allow_abbrev=False,
        description="Give users of the REST interface one-time codes (TOTP) as a second factor,"
        " list and remove them.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    adding = commands.add_parser(
        "add",
        allow_abbrev=False,
        help="make a secret, show it, and demand one-time codes when a code is entered",
    )
    adding.add_argument("user", help="name of the user")
    listing = commands.add_parser(
        "list", allow_abbrev=False, help="list the users who have one-time codes"
    )
    listing.add_argument("user", nargs="?", help="only this user")
    removing = commands.add_parser(
        "remove", allow_abbrev=False, help="let a user log in with his password alone"
    )
    removing.add_argument("user", help="name of the user")
    return parser


def run(options: argparse.Namespace) -> int:
    """Run a command; returns the exit code.

    :raises errors.GenericError: the command is not possible.
    """
    with luxi.Client(connect_timeout_s=rapi_passwd.CONNECT_S) as master:
        if options.command == "add":
            _add(master, options.user)
        elif options.command == "list":
            _list(master, options.user)
        else:
            _remove(master, options.user)
    return 0


def _add(master: luxi.Client, user: str) -> None:
    rapi_credentials.check_user(paths.current().rapi_users_file, user)
    if rapi_credentials.found(master, totp.KIND, user):
        raise errors.ParameterError(
            f"user '{user}' has one-time codes already; 'rapi-passwd totp remove {user}' removes"
            " them"
        )
    seal = sealed.of_cluster()
    secret = totp.new_secret()
    uri = totp.uri(secret, user, live.cluster_name())
    qr_code = _qr_code(uri)
    if qr_code:
        print(qr_code)
    print(f"Give this address to the app of user '{user}', or the secret in it:\n{uri}")
    step = _ask(secret)
    record, codes = totp.make(user, secret, step, seal, clock.now())
    master.change_access_records([["put", credentials.as_change(record)]])
    print(
        f"User '{user}' needs a one-time code at each login from now on. A password in every"
        " request is refused; programs use tokens.\n"
        "Each of these recovery codes is for one login without the app. They are shown only now:"
    )
    for code in codes:
        print(f"  {code}")


def _ask(secret: str) -> int:
    """Ask for a code until it is right; returns its step.

    :raises ParameterError: too many were wrong.
    """
    for left in reversed(range(_TRIES)):
        code = input("The code which the app shows now: ")
        step = totp.step_of(secret, totp.plain(code), clock.now())
        if step is not None:
            return step
        if left:
            print("This code is wrong; wait for the next one, and enter it.")
    raise errors.ParameterError(
        "no code was right, so nothing was changed; compare the clocks of the app and this node"
    )


def _list(master: luxi.Client, user: str | None) -> None:
    found = rapi_credentials.found(master, totp.KIND, user)
    if not found:
        print("no user has one-time codes" if user is None else f"user '{user}' has none")
        return
    rows = [
        [
            one.owner,
            clock.format_time(one.ctime),
            "never" if one.used is None else clock.format_time(one.used),
            str(totp.recovery_left(one)),
        ]
        for one in found
    ]
    for line in format_table([Column(title) for title in _COLUMNS], rows):
        print(line)


def _remove(master: luxi.Client, user: str) -> None:
    found = rapi_credentials.found(master, totp.KIND, user)
    if not found:
        raise errors.ParameterError(
            f"user '{user}' has no one-time codes; 'rapi-passwd totp list' shows who has some"
        )
    master.change_access_records([["remove", one.kind, one.key] for one in found])
    print(f"user '{user}' has no one-time codes any more; the password alone is sufficient")


def _qr_code(text: str) -> str:
    """Return a QR code for a terminal; empty without the package *segno*, which is optional."""
    try:
        import segno
    except ImportError:
        return ""
    out = io.StringIO()
    segno.make(text).terminal(out, compact=True)
    return out.getvalue()
