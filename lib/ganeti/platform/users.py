"""Under which users the daemons of this machine run.

Said in one place, ``/etc/default/ganeti``: who runs a daemon under a user of its own gives it the
options for that (``RAPI_ARGS="--user=gnt-rapi --group=gnt-rapi"``), and names the group whose
members may talk to the master daemon (``DAEMONS_GROUP=gnt-daemons``). Everybody else who needs to
know, because files must belong to these users, reads it here. Without such settings, and in a
virtual cluster, everything belongs to whoever runs it.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
from typing import NamedTuple

from ganeti import errors
from ganeti.platform import machine, paths
from ganeti.utils import fs

MASTERD, CONFD, RAPI, NODED, MOND, METAD = ("masterd", "confd", "rapi", "noded", "mond", "metad")
#: Not a user: the group of all who may talk to the master daemon.
DAEMONS = "daemons"
ROLES = (MASTERD, CONFD, RAPI, NODED, MOND, METAD)
_GROUP_VARIABLE = "DAEMONS_GROUP"
_ROOT = "root"


class Account(NamedTuple):
    """Names of a user and a group."""

    user: str
    group: str


class Users(NamedTuple):
    """Who runs what; ``roles`` has every one of :data:`ROLES`."""

    roles: dict[str, Account]
    daemons_group: str

    def group(self, role: str) -> str:
        """The group of a role, or :data:`DAEMONS`."""
        return self.daemons_group if role == DAEMONS else self.roles[role].group

    @property
    def separated(self) -> bool:
        """Whether anything does not run as root."""
        return self.daemons_group != _ROOT or any(
            account != Account(_ROOT, _ROOT) for account in self.roles.values()
        )


def parse(text: str) -> Users:
    """Read the settings; lines about something else are ignored.

    :raises ConfigurationError: quotes that do not match.
    """
    found = {role: Account(_ROOT, _ROOT) for role in ROLES}
    daemons_group = _ROOT
    variables = {f"{role.upper()}_ARGS": role for role in ROLES}
    for line in text.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError as err:
            raise errors.ConfigurationError(f"{err} in '{line}'") from err
        for word in words:
            variable, _, value = word.partition("=")
            if variable == _GROUP_VARIABLE and value:
                daemons_group = value
            elif variable in variables:
                found[variables[variable]] = _account(shlex.split(value))
    return Users(found, daemons_group)


def _account(args: list[str]) -> Account:
    user = group = _ROOT
    for number, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if not equals and number + 1 < len(args):
            value = args[number + 1]
        if name == "--user" and value:
            user = value
        elif name == "--group" and value:
            group = value
    return Account(user, group)


def current() -> Users:
    """The settings of this machine.

    :raises ConfigurationError: they cannot be read.
    """
    if not machine.current().has_daemon_users:
        return parse("")
    path = paths.current().defaults_file
    try:
        return parse(fs.read_file(path))
    except FileNotFoundError:
        return parse("")
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    except errors.ConfigurationError as err:
        raise errors.ConfigurationError(f"{path}: {err}") from err


def ids(user: str, group: str) -> tuple[int, int]:
    """Numbers of a user and a group; -1 and -1 where nothing may be given away.

    :raises ConfigurationError: one does not exist.
    """
    if not machine.current().may_change_owners:
        return -1, -1
    try:
        return pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid
    except KeyError:
        raise errors.ConfigurationError(
            f"user {user} or group {group} of {paths.current().defaults_file} does not exist"
        ) from None


def group_id(group: str) -> int:
    """Number of a group that files are to be shared with; -1 where nobody is to be given anything.

    :raises ConfigurationError: the group does not exist.
    """
    if group == _ROOT or not machine.current().has_daemon_users:
        return -1
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise errors.ConfigurationError(
            f"group {group} of {paths.current().defaults_file} does not exist"
        ) from None


def kept_group(path: str) -> int:
    """The group of a file that is about to be written anew, when we may give that away; else -1."""
    try:
        gid = os.stat(path).st_gid
    except OSError:
        return -1
    may = os.geteuid() == 0 or gid in os.getgroups()
    return gid if may and gid != os.getegid() else -1


def owner_inside(directory: str) -> tuple[int, int]:
    """Owner and group of what is made in a directory: those of the directory, as far as we may.

    Root gives files to whom the directory belongs; others give them the directory's group, when
    they are in it. -1 leaves what the system does by itself.

    :raises OSError: there is no such directory.
    """
    found = os.stat(directory)
    if os.geteuid() == 0:
        owner = (found.st_uid, found.st_gid)
        return (-1, -1) if owner == (0, os.getegid()) else owner
    return -1, kept_group(directory)


def same_owner(path: str) -> tuple[int, int]:
    """Owner and group of a file, for another one that belongs with it; -1 and -1 without root.

    :raises OSError: there is no such file.
    """
    if os.geteuid() != 0:
        return -1, -1
    found = os.stat(path)
    return found.st_uid, found.st_gid
