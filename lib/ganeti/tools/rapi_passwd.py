"""Users of the REST interface and their passwords; the program ``rapi-passwd``.

Changes one line of the users file and leaves the others, with their comments, as they are. The
password is asked for, or read from standard input, never taken from the command line, where others
could see it. It is stored as a hash (scrypt), so the file does not tell it.

The REST daemon notices the change by itself. The file is copied to the other nodes by ``gnt-cluster
redist-conf``, so that it is there after a failover.
"""

from __future__ import annotations

import argparse
import fcntl
import getpass
import os
import re
import stat
import sys
from collections.abc import Callable, Sequence
from typing import Final

from ganeti import errors
from ganeti.platform import paths, users
from ganeti.rapi import users as rapi_users
from ganeti.rapi.passwords import hashed
from ganeti.rapi.resources import RESOURCES
from ganeti.utils import fs

_NAME: Final = re.compile(r"[^\s:#,][^\s:]*")
_MODE: Final = 0o640


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        return _run(parser, options)
    except (errors.GenericError, OSError) as err:
        print(f"rapi-passwd: {err}", file=sys.stderr)
    except (KeyboardInterrupt, EOFError):
        print("rapi-passwd: nothing was changed", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rapi-passwd",
        allow_abbrev=False,
        description="Give a user of the REST interface a password, and rights.",
    )
    add = parser.add_argument
    add("user", nargs="?", help="name of the user")
    add(
        "-r",
        "--rights",
        metavar="RIGHT,...",
        help="what the user may: write, read, @admin, @operator, @readonly, or names of resources;"
        " as before when not given",
    )
    add("--stdin", action="store_true", help="read the password from standard input, one line")
    add("--delete", action="store_true", help="remove the user")
    add("--list", action="store_true", help="show the users, without their passwords")
    add("--file", metavar="FILE", help="another file than the cluster's")
    return parser


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    path = options.file or paths.current().rapi_users_file
    if options.list:
        if options.user or options.delete or options.rights is not None:
            parser.error("--list goes with nothing but --file")
        return _list(path)
    if not options.user:
        parser.error("the name of a user is missing")
    if not _NAME.fullmatch(options.user):
        raise errors.ParameterError(
            f"'{options.user}' cannot be the name of a user: no blanks, no colon, no leading #"
        )
    if options.delete:
        if options.rights is not None or options.stdin:
            parser.error("--delete goes with nothing but --file")
        _change(path, lambda text: remove(text, options.user))
        print(f"user '{options.user}' was removed{_elsewhere(options.file)}")
        return 0
    if options.rights is not None:
        check_rights(options.rights)
    password = hashed(_ask(options.user, stdin=options.stdin))
    _change(path, lambda text: put(text, options.user, password, options.rights))
    print(f"user '{options.user}' has a new password{_elsewhere(options.file)}")
    return 0


def _elsewhere(given: str | None) -> str:
    """What is left to do where there are other nodes."""
    if given is not None:
        return ""
    try:
        nodes = fs.read_file(paths.current().ssconf_file("node_list")).split()
    except OSError:
        return ""
    return " here. 'gnt-cluster redist-conf' gives it to the other nodes." if nodes[1:] else ""


def check_rights(rights: str) -> None:
    """Refuse a list with a word that is no right.

    :raises ParameterError: names the word.
    """
    handlers = {resource.handler for resource in RESOURCES}
    _users, problems = rapi_users.parse(f"user password {rights}", handlers)
    if problems:
        raise errors.ParameterError(
            problems[0].partition(": ")[2]
            or f"'{rights}' is no list of rights. They are separated by commas, without blanks."
        )


def put(text: str, user: str, password: str, rights: str | None) -> str:
    """The file's text with a user in it.

    :param password: as it stands in the file.
    :param rights: None leaves those the user had.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        words = line.split()
        if words[:1] == [user]:
            kept = words[2] if rights is None and len(words) == 3 else rights
            lines[number] = _line(user, password, kept)
            break
    else:
        lines.append(_line(user, password, rights))
    return "\n".join(lines) + "\n"


def _line(user: str, password: str, rights: str | None) -> str:
    return " ".join(filter(None, (user, password, rights)))


def remove(text: str, user: str) -> str:
    """The file's text without a user.

    :raises ParameterError: there is no such user.
    """
    lines = text.splitlines()
    kept = [line for line in lines if line.split()[:1] != [user]]
    if len(kept) == len(lines):
        raise errors.ParameterError(f"there is no user '{user}'")
    return "".join(f"{line}\n" for line in kept)


def _list(path: str) -> int:
    handlers = {resource.handler for resource in RESOURCES}
    found, problems = rapi_users.parse(_read(path), handlers)
    for user in found.values():
        print(f"{user.name} {user.password.form} {','.join(sorted(user.rights)) or '-'}")
    for problem in problems:
        print(f"{path}: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _ask(user: str, *, stdin: bool) -> str:
    if stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = getpass.getpass(f"New password for {user}: ")
        if password != getpass.getpass("Once more: "):
            raise errors.ParameterError("the passwords differ; nothing was changed")
    if not password:
        raise errors.ParameterError("an empty password is not accepted")
    return password


def _read(path: str) -> str:
    try:
        return fs.read_file(path)
    except FileNotFoundError:
        return ""


def _change(path: str, change: Callable[[str], str]) -> None:
    """Replace the file, keeping its owner, while nobody else does."""
    directory = os.path.dirname(path) or "."
    fs.make_dirs(directory, 0o750)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        text = change(_read(path))
        try:
            found = os.stat(path)
            mode, uid, gid = stat.S_IMODE(found.st_mode) & ~0o007, found.st_uid, found.st_gid
        except FileNotFoundError:
            who = users.current()
            mode = _MODE
            uid, gid = users.ids(who.roles[users.RAPI].user, who.group(users.MASTERD))
        fs.write_file(path, text, mode=mode, uid=uid, gid=gid)
    finally:
        os.close(lock)


if __name__ == "__main__":
    sys.exit(main())
