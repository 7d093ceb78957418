"""The commands ``rapi-passwd session``: list and end sessions of browsers.

See :mod:`ganeti.rapi.sessions`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from ganeti import errors
from ganeti.cli.table import Column, format_table
from ganeti.luxi import client as luxi
from ganeti.objects import AccessRecord
from ganeti.rapi import sessions
from ganeti.tools import rapi_credentials, rapi_passwd
from ganeti.utils import clock

_COLUMNS: Final = ("ID", "User", "By", "Address", "Since", "LastUse", "Ends", "Browser")


def make_parser() -> argparse.ArgumentParser:
    """Describe the commands and their options."""
    parser = argparse.ArgumentParser(
        prog="rapi-passwd session",
        allow_abbrev=False,
        description="List and end the sessions of browsers.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", allow_abbrev=False, help="list sessions")
    listing.add_argument("user", nargs="?", help="only the sessions of this user")
    ending = commands.add_parser(
        "end", allow_abbrev=False, help="end sessions; their users have to log in again"
    )
    ending.add_argument("id", nargs="*", help="id of a session, as the list shows it")
    ending.add_argument("--user", metavar="USER", help="end all sessions of this user")
    ending.add_argument("--all", action="store_true", help="end all sessions")
    return parser


def run(options: argparse.Namespace) -> int:
    """Run a command; returns the exit code.

    :raises errors.GenericError: the command is not possible.
    """
    with luxi.Client(connect_timeout_s=rapi_passwd.CONNECT_S) as master:
        chosen = _present(master, options.user)
        if options.command == "list":
            _list(chosen)
        else:
            _end(master, chosen, options)
    return 0


def _present(master: luxi.Client, user: str | None) -> list[AccessRecord]:
    now = clock.now()
    return [
        one
        for one in rapi_credentials.found(master, sessions.KIND, user)
        if sessions.end_of(one) > now
    ]


def _list(present: Sequence[AccessRecord]) -> None:
    if not present:
        print("there are no sessions")
        return
    for line in format_table([Column(title) for title in _COLUMNS], [_row(one) for one in present]):
        print(line)


def _row(one: AccessRecord) -> list[str]:
    return [
        sessions.public_id(one),
        one.owner,
        str(one.data.get("by", "")) or "-",
        str(one.data.get("address", "")) or "-",
        clock.format_time(one.ctime),
        clock.format_time(sessions.last_use(one)),
        clock.format_time(sessions.end_of(one)),
        str(one.data.get("agent", "")) or "-",
    ]


def _end(master: luxi.Client, chosen: Sequence[AccessRecord], options: argparse.Namespace) -> None:
    if sum((bool(options.id), options.user is not None, options.all)) != 1:
        raise errors.ParameterError(
            "give the ids of the sessions to end, or --user, or --all; 'rapi-passwd session list'"
            " shows them"
        )
    if options.id:
        by_id = {sessions.public_id(one): one for one in chosen}
        missing = [one for one in options.id if one not in by_id]
        if missing:
            raise errors.ParameterError(
                f"there is no session {', '.join(missing)}; none was ended. 'rapi-passwd session"
                " list' shows the sessions."
            )
        chosen = [by_id[one] for one in dict.fromkeys(options.id)]
    if chosen:
        master.change_access_records([["remove", one.kind, one.key] for one in chosen])
    for one in chosen:
        print(f"session {sessions.public_id(one)} of user '{one.owner}' was ended")
    if not chosen:
        print("there are no such sessions")
