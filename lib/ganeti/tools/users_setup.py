"""The program ``users-setup``: makes the users and groups under which daemons may run.

The package of Debian and ``make install`` let systemd-sysusers make them. This program is for
machines without it. What exists is left as it is, so that it can run again and again.

Source: groupadd(8), useradd(8), usermod(8).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ganeti.constants.cli import EXIT_SUCCESS, EXIT_USAGE
from ganeti.tools.entry import reports_errors
from ganeti.utils import fs, process

PROGRAM = "users-setup"
_HOME = "/var/lib/ganeti"
_SHELL = "/usr/sbin/nologin"
_TIMEOUT_S = 60.0

Runner = Callable[..., process.Completed]


class User(NamedTuple):
    """A user with a group of the same name, and the other groups which it is in."""

    name: str
    comment: str
    groups: tuple[str, ...]


#: Groups without a user of the same name.
GROUPS = ("gnt-daemons", "gnt-admin")
#: As in ``packaging/sysusers.d/ganeti.conf``.
USERS = (
    User("gnt-masterd", "Ganeti master daemon", ("gnt-daemons", "gnt-confd")),
    User("gnt-rapi", "Ganeti REST daemon", ("gnt-daemons",)),
    User("gnt-confd", "Ganeti configuration query daemon", ("gnt-daemons",)),
    User("gnt-metad", "Ganeti metadata daemon", ()),
)


class Existing(NamedTuple):
    """Users, and groups with their members."""

    users: frozenset[str]
    groups: dict[str, frozenset[str]]


def parse_accounts(passwd: str, group: str) -> Existing:
    """Read the texts of ``/etc/passwd`` and ``/etc/group``; lines of another form are ignored."""
    users = {fields[0] for line in passwd.splitlines() if len(fields := line.split(":")) >= 7}
    groups = {
        fields[0]: frozenset(name for name in fields[3].split(",") if name)
        for line in group.splitlines()
        if len(fields := line.split(":")) >= 4
    }
    return Existing(frozenset(users), groups)


def plan(existing: Existing, prefix: str = "") -> list[list[str]]:
    """Return the commands which make what is missing.

    :param prefix: directory which stands for ``/``; empty for this machine.
    """
    where = ["--prefix", prefix] if prefix else []
    names = [*GROUPS, *(user.name for user in USERS)]
    found = [
        ["groupadd", *where, "--system", name] for name in names if name not in existing.groups
    ]
    for user in USERS:
        if user.name not in existing.users:
            found.append(
                ["useradd", *where, "--system", "--gid", user.name, "--home-dir", _HOME,
                 "--no-create-home", "--shell", _SHELL, "--comment", user.comment, user.name]
            )  # fmt: skip
        missing = [
            name for name in user.groups if user.name not in existing.groups.get(name, frozenset())
        ]
        if missing:
            found.append(["usermod", *where, "--append", "--groups", ",".join(missing), user.name])
    return found


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Make the users and groups under which daemons may run.",
    )
    add = parser.add_argument
    add("--yes-do-it", action="store_true", help="really do it; without this, show the commands")
    add("--prefix", metavar="DIRECTORY", default="",
        help="directory which stands for /, such as that of an image")  # fmt: skip
    return parser


def run(options: argparse.Namespace, runner: Runner = process.run) -> int:
    """Make what is missing, or show the commands.

    :returns: the exit code.
    :raises OSError: the files of the users cannot be read.
    :raises CommandError: a program failed; what was made before it stays.
    """
    prefix = os.path.abspath(options.prefix) if options.prefix else ""
    wanted = plan(
        parse_accounts(fs.read_file(f"{prefix}/etc/passwd"), fs.read_file(f"{prefix}/etc/group")),
        prefix,
    )
    if not wanted:
        print(f"{PROGRAM}: all users and groups exist")
        return EXIT_SUCCESS
    for words in wanted:
        print(process.show(words))
        if options.yes_do_it:
            runner(words, timeout_s=_TIMEOUT_S)
    if not options.yes_do_it:
        print(
            f"{PROGRAM}: nothing was changed. With --yes-do-it these commands run.",
            file=sys.stderr,
        )
        return EXIT_USAGE
    return EXIT_SUCCESS


@reports_errors(PROGRAM)
def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    return run(make_parser().parse_args(argv))
