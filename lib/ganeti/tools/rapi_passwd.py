"""The program ``rapi-passwd``: sets passwords and rights of users of the REST interface.

It changes one line of the users file, and leaves the other lines and the comments unchanged. It
asks for the password, or reads it from standard input; a password is never given on the command
line, where other users of the machine could see it. The file contains a hash (scrypt), from which
the password cannot be read.

The REST daemon notices the change by itself. ``gnt-cluster redist-conf`` copies the file to the
other nodes, so that it exists there after a failover of the master.
"""

from __future__ import annotations

import argparse
import fcntl
import getpass
import importlib
import os
import re
import stat
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Final

from ganeti import errors
from ganeti.luxi import client as luxi
from ganeti.platform import paths, users
from ganeti.rapi import pam, passwords, rights, roles
from ganeti.rapi import users as rapi_users
from ganeti.rapi.passwords import hashed
from ganeti.rapi.resources import RESOURCES
from ganeti.tools import rapi_check
from ganeti.tools.entry import reports_errors
from ganeti.utils import fs, x509

_NAME: Final = re.compile(r"[^\s:#,][^\s:]*")
_MODE: Final = 0o640
# Kinds of access records which prove no identity: they stay when their user is removed.
_STAYING: Final = ("webhook", "webhook-state")
#: Seconds to wait for a master daemon that starts.
CONNECT_S: Final = 5.0
#: What else the program manages: its first word -> the module with the commands
#: (``make_parser()`` and ``run(options)``), which needs the master.
SUBJECTS: Final = {
    "certificate": "ganeti.tools.rapi_certificates",
    "passkey": "ganeti.tools.rapi_passkeys",
    "session": "ganeti.tools.rapi_sessions",
    "token": "ganeti.tools.rapi_tokens",
    "totp": "ganeti.tools.rapi_totp",
}


@reports_errors("rapi-passwd")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    subject = subject_of(words)
    if words[:1] == ["check"]:
        words[0] = "--check"
    try:
        if subject is not None:
            return int(subject.run(subject.make_parser().parse_args(words[1:])))
        parser = make_parser()
        return _run(parser, parser.parse_args(words))
    except (KeyboardInterrupt, EOFError):
        print("rapi-passwd: nothing was changed", file=sys.stderr)
        return 1


def subject_of(words: Sequence[str]) -> ModuleType | None:
    """Return the module of :data:`SUBJECTS` for a command line; None for the users themselves.

    ``rapi-passwd token`` alone, or with an option, is about a user of this name.
    """
    if len(words) < 2 or words[0] not in SUBJECTS:
        return None
    if words[1].startswith("-") and words[1] not in ("-h", "--help"):
        return None
    return importlib.import_module(SUBJECTS[words[0]])


def make_parser() -> argparse.ArgumentParser:
    """Describe the options of the program."""
    parser = argparse.ArgumentParser(
        prog="rapi-passwd",
        allow_abbrev=False,
        description="Set the password and the rights of a user of the REST interface.",
        epilog="'rapi-passwd token --help' and 'rapi-passwd certificate --help' explain how"
        " programs identify themselves, 'rapi-passwd totp --help' and 'rapi-passwd passkey --help'"
        " what users have besides passwords.",
    )
    add = parser.add_argument
    add("user", nargs="?", help="name of the user")
    add(
        "-r",
        "--rights",
        metavar="RIGHT,...",
        help="rights of the user: write, read, view, console, @operator, roles of the roles file,"
        " or names of resources, each also for some instances, such as write@tag:web (default: the"
        " user keeps the present rights)",
    )
    add(
        "--stdin",
        action="store_true",
        help="read the password from standard input, one line, instead of asking",
    )
    add(
        "--pam",
        action="store_true",
        help="PAM checks the password of the user, which is not asked for and not stored",
    )
    add(
        "--pam-service",
        metavar="NAME",
        help=f"as --pam, by this service of PAM (default: {passwords.PAM_SERVICE})",
    )
    add("--delete", action="store_true", help="remove the user")
    add(
        "--list",
        action="store_true",
        help="list the users, the forms of their passwords, and their rights",
    )
    add(
        "--pin",
        action="store_true",
        help="print the hash of the daemon's key, for GANETI_RAPI_PIN of commands elsewhere",
    )
    add(
        "--check",
        action="store_true",
        help="check the users file and the roles file; also as the word 'check'",
    )
    add("--user", dest="checked", metavar="NAME", help="with --check: what this user may do")
    add(
        "--operation",
        metavar="METHOD PATH",
        help="with --check and --user: whether the user may do this, and the right that decides",
    )
    add("--file", metavar="FILE", help="use this file instead of the users file of the cluster")
    return parser


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    path = options.file or paths.current().rapi_users_file
    if options.pin:
        others = (options.user, options.delete, options.list, _by_pam(options))
        if any(others) or options.rights is not None:
            parser.error("--pin is the only option")
        return _show_pin()
    if options.list:
        if options.user or options.delete or options.rights is not None or _by_pam(options):
            parser.error("--list can be combined with --file only")
        return _list(path)
    if options.check:
        if options.user or options.delete or options.rights is not None or options.stdin:
            parser.error("--check can be combined with --user, --operation and --file only")
        if options.operation is not None and options.checked is None:
            parser.error("--operation needs --user")
        return rapi_check.run(path, roles_path(path), options.checked, options.operation)
    if options.checked is not None or options.operation is not None:
        parser.error("--user and --operation need --check")
    if not options.user:
        parser.error("the name of a user is missing")
    if not _NAME.fullmatch(options.user):
        raise errors.ParameterError(
            f"'{options.user}' cannot be the name of a user. A name contains no blanks and no"
            " colons, and does not begin with # or a comma."
        )
    if options.delete:
        if options.rights is not None or options.stdin or _by_pam(options):
            parser.error("--delete can be combined with --file only")
        _change(path, lambda text: remove(text, options.user))
        print(f"user '{options.user}' was removed{_elsewhere(options.file)}")
        if options.file is None:
            _remove_records(options.user)
        return 0
    if options.rights is not None:
        check_rights(options.rights, present_roles(path))
    if _by_pam(options):
        if options.stdin:
            parser.error("--stdin and --pam exclude each other")
        password = _pam_word(options.pam_service)
        done = "has the password that PAM checks"
    else:
        password = hashed(_ask(options.user, stdin=options.stdin))
        done = "has a new password"
    _change(path, lambda text: put(text, options.user, password, options.rights))
    print(f"user '{options.user}' {done}{_elsewhere(options.file)}")
    for problem in pam.missing([passwords.parse(password)]):
        print(f"rapi-passwd: {problem}", file=sys.stderr)
    return 0


def _by_pam(options: argparse.Namespace) -> bool:
    return bool(options.pam or options.pam_service)


def _pam_word(service: str | None) -> str:
    """Return the password of a line whose password PAM checks.

    :raises ParameterError: the name of the service cannot be one.
    """
    word = f"{{PAM}}{service or ''}"
    try:
        passwords.parse(word)
    except errors.ParseError as err:
        raise errors.ParameterError(f"'{service}' is not a service of PAM: {err}") from err
    return word


def _remove_records(user: str) -> None:
    """Remove the tokens and the other access records of a user who was removed.

    They are not valid without his line, but would be those of another person with the same name.
    """
    try:
        with luxi.Client(connect_timeout_s=CONNECT_S) as master:
            found = [
                one
                for one in master.query_access_records()["records"]
                if one["owner"] == user and one["kind"] not in _STAYING
            ]
            if found:
                master.change_access_records([["remove", one["kind"], one["key"]] for one in found])
    except errors.GenericError as err:
        print(
            f"Warning: the tokens and certificates of user '{user}' were not removed: {err}. They"
            " are valid again if you add a user with this name; 'rapi-passwd token remove --user"
            f" {user}' and 'rapi-passwd certificate remove --user {user}' remove them.",
            file=sys.stderr,
        )


def _show_pin() -> int:
    """Print the hash of the key in the daemon's certificate, as libcurl reads it.

    :raises ConfigurationError: the certificate cannot be read.
    :raises X509CertError: it is not a certificate.
    """
    path = paths.current().rapi_cert_file
    try:
        pem = fs.read_file(path)
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    print(f"sha256//{x509.key_pin(pem, path)}")
    return 0


def _elsewhere(given: str | None) -> str:
    """Return a hint for the message, if the cluster has other nodes.

    :param given: the option ``--file``.
    """
    if given is not None:
        return ""
    try:
        nodes = fs.read_file(paths.current().ssconf_file("node_list")).split()
    except OSError:
        return ""
    hint = " on this node. 'gnt-cluster redist-conf' copies the file to the other nodes."
    return hint if nodes[1:] else ""


def present_roles(users_path: str) -> rights.Roles:
    """Return the roles of the roles file beside a users file."""
    return roles.parse(_read(roles_path(users_path)), _handlers())[0].roles


def roles_path(users_path: str) -> str:
    """Return the path of the roles file beside a users file."""
    name = os.path.basename(paths.current().rapi_roles_file)
    return os.path.join(os.path.dirname(users_path), name)


def _handlers() -> set[str]:
    return {resource.handler for resource in RESOURCES}


def check_rights(words: str, known: rights.Roles = rights.ROLES) -> None:
    """Check a list of rights.

    :param known: the roles which it may name.
    :raises ParameterError: an item is not a right; the message has the item.
    """
    _users, problems = rapi_users.parse(f"user password {words}", _handlers(), known)
    if problems:
        raise errors.ParameterError(
            problems[0].partition(": ")[2]
            or f"'{words}' is not a list of rights. Separate the rights by commas, without blanks."
        )


def put(text: str, user: str, password: str, rights: str | None) -> str:
    """Add or change the line of a user in the text of the users file.

    :param password: the password in a form of the file, such as a hash.
    :param rights: None keeps the present rights of the user.
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
    """Remove the line of a user from the text of the users file.

    :raises ParameterError: the user does not exist.
    """
    lines = text.splitlines()
    kept = [line for line in lines if line.split()[:1] != [user]]
    if len(kept) == len(lines):
        raise errors.ParameterError(f"there is no user '{user}'")
    return "".join(f"{line}\n" for line in kept)


def _list(path: str) -> int:
    found, problems = rapi_users.parse(_read(path), _handlers(), present_roles(path))
    for user in found.values():
        print(f"{user.name} {user.password.form} {user.rights}")
    problems += pam.missing(user.password for user in found.values())
    for problem in problems:
        print(f"{path}: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _ask(user: str, *, stdin: bool) -> str:
    if stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = getpass.getpass(f"New password for {user}: ")
        if password != getpass.getpass(f"Repeat the new password for {user}: "):
            raise errors.ParameterError(
                f"the passwords differ; the password of user '{user}' was not changed"
            )
    if not password:
        raise errors.ParameterError(f"the password of user '{user}' must not be empty")
    return password


def _read(path: str) -> str:
    try:
        return fs.read_file(path)
    except FileNotFoundError:
        return ""


def _change(path: str, change: Callable[[str], str]) -> None:
    """Replace the users file under a lock; the new file has the owner of the old one."""
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
