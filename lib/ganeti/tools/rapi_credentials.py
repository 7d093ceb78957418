"""What the commands ``rapi-passwd token`` and ``rapi-passwd certificate`` share.

Credentials are in the configuration, so the commands need the master daemon, and every change is
on the candidates when a command ends. See :mod:`ganeti.rapi.credentials`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from ganeti import errors
from ganeti.cli.table import Column, format_table
from ganeti.luxi import client as luxi
from ganeti.objects import AccessRecord
from ganeti.platform import paths
from ganeti.rapi import credentials
from ganeti.rapi import users as rapi_users
from ganeti.tools import rapi_passwd
from ganeti.utils import clock, fs

_COLUMNS: Final = ("ID", "User", "Label", "Rights", "Made", "Ends", "LastUse")

#: Adds a credential: the master, the options.
Add = Callable[[luxi.Client, argparse.Namespace], None]


def make_parser(kind: str, description: str, adding: str) -> argparse.ArgumentParser:
    """Describe the commands and the options which both kinds have.

    :param adding: what the command ``add`` does.
    """
    parser = argparse.ArgumentParser(
        prog=f"rapi-passwd {kind}", allow_abbrev=False, description=description
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = commands.add_parser("add", allow_abbrev=False, help=adding)
    add.add_argument("user", help=f"name of the user to whom the {kind} belongs")
    if kind == "certificate":
        add.add_argument("file", help="file with the certificate (PEM); a key in it is not read")
    add.add_argument(
        "-r",
        "--rights",
        metavar="RIGHT,...",
        default="",
        help=f"rights of the {kind}, in the words for those of a user (default: all rights of the"
        f" user). The {kind} never has more rights than the user",
    )
    add.add_argument(
        "--expires",
        metavar="END",
        default="90d" if kind == "token" else "never",
        help=f"end of the {kind}: a span such as 12h, 30d or 8w, a date such as 2027-01-01, or"
        " never (default: "
        + ("90d)" if kind == "token" else "that of the certificate, which no other end exceeds)"),
    )
    add.add_argument(
        "--label", metavar="TEXT", default="", help=f"says in lists what the {kind} is for"
    )
    add_list_and_remove(commands, kind)
    return parser


def add_list_and_remove(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], kind: str
) -> None:
    """Describe the commands which list and remove records of a kind."""
    listing = commands.add_parser("list", allow_abbrev=False, help=f"list {kind}s")
    listing.add_argument("user", nargs="?", help=f"only the {kind}s of this user")
    removing = commands.add_parser(
        "remove", allow_abbrev=False, help=f"remove {kind}s; nobody can use them any more"
    )
    removing.add_argument("id", nargs="*", help=f"id of a {kind}, as the list shows it")
    removing.add_argument("--user", metavar="USER", help=f"remove all {kind}s of this user")


def run(kind: str, options: argparse.Namespace, add: Add | None = None) -> int:
    """Run a command; returns the exit code.

    :param add: None for a kind which no command adds.
    :raises errors.GenericError: the command is not possible.
    """
    with luxi.Client(connect_timeout_s=rapi_passwd.CONNECT_S) as master:
        if add is not None and options.command == "add":
            path = paths.current().rapi_users_file
            check_user(path, options.user)
            if options.rights:
                rapi_passwd.check_rights(options.rights, rapi_passwd.present_roles(path))
            add(master, options)
        elif options.command == "list":
            _list(master, kind, options.user)
        else:
            _remove(master, kind, options.id, options.user)
    return 0


def wanted(options: argparse.Namespace) -> credentials.Wanted:
    """Return what the options of ``add`` want.

    :raises ParameterError: the end cannot be read.
    """
    now = clock.now()
    expires = credentials.parse_expires(options.expires, now)
    return credentials.Wanted(options.user, now, options.label, options.rights, expires)


def put(master: luxi.Client, record: AccessRecord) -> str:
    """Keep a new credential; returns what to tell about it, as a sentence without its end."""
    master.change_access_records([["put", credentials.as_change(record)]])
    end = "has no end" if record.expires is None else f"ends {clock.format_time(record.expires)}"
    return f"{record.kind} {credentials.public_id(record.key)} of user '{record.owner}' {end}"


def check_user(path: str, name: str) -> None:
    """Check that the users file has a user.

    :raises ParameterError: it has none with this name.
    """
    try:
        text = fs.read_file(path)
    except FileNotFoundError:
        text = ""
    if name not in rapi_users.parse(text)[0]:
        raise errors.ParameterError(
            f"there is no user '{name}' in {path}. 'rapi-passwd {name}' adds one."
        )


def _list(master: luxi.Client, kind: str, user: str | None) -> None:
    records = found(master, kind, user)
    if not records:
        print(_none(kind, user))
        return
    now = clock.now()
    rows = [_row(credentials.shown(record), now) for record in records]
    for line in format_table([Column(title) for title in _COLUMNS], rows):
        print(line)


def _none(kind: str, user: str | None) -> str:
    return f"there are no {kind}s" if user is None else f"user '{user}' has no {kind}s"


def _row(one: credentials.Shown, now: float) -> list[str]:
    end = "never"
    if one["expires"] is not None:
        ended = " (ended)" if one["expires"] <= now else ""
        end = clock.format_time(one["expires"]) + ended
    return [
        one["id"],
        one["owner"],
        one["label"] or "-",
        one["rights"] or "(the user's)",
        clock.format_time(one["created"]),
        end,
        "never" if one["used"] is None else clock.format_time(one["used"]),
    ]


def _remove(master: luxi.Client, kind: str, ids: Sequence[str], user: str | None) -> None:
    if bool(ids) == (user is not None):
        raise errors.ParameterError(
            f"give the ids of the {kind}s to remove, or --user; 'rapi-passwd {kind} list' shows"
            " them"
        )
    chosen = found(master, kind, user)
    if ids:
        by_id = {credentials.public_id(record.key): record for record in chosen}
        missing = [one for one in ids if one not in by_id]
        if missing:
            raise errors.ParameterError(
                f"there is no {kind} {', '.join(missing)}; nothing was removed. 'rapi-passwd"
                f" {kind} list' shows the {kind}s."
            )
        chosen = [by_id[one] for one in dict.fromkeys(ids)]
    master.change_access_records([["remove", one.kind, one.key] for one in chosen])
    for one in chosen:
        print(f"{kind} {credentials.public_id(one.key)} of user '{one.owner}' was removed")
    if not chosen:
        print(_none(kind, user))


def found(master: luxi.Client, kind: str, user: str | None = None) -> list[AccessRecord]:
    """Return the credentials in the order in which they were made."""
    answer = master.query_access_records(kind)
    records = [AccessRecord(uuid="", **one) for one in answer["records"]]
    return sorted(
        (one for one in records if user is None or one.owner == user), key=lambda one: one.ctime
    )
