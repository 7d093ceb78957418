"""The users and groups under which the daemons of this machine run.

The administrator sets them in ``/etc/default/ganeti``, with the options of the daemons
(``RAPI_ARGS="--user=gnt-rapi --group=gnt-rapi"``) and with the group whose members may connect to
the master daemon (``DAEMONS_GROUP=gnt-daemons``). Programs which write files for these users read
the settings here. Without settings, and in a virtual cluster, all daemons run as the user who
starts them.

Source: Ganeti design 2.2, *Privilege separation*.
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
#: Not a role but the group of all users which may connect to the master daemon.
DAEMONS = "daemons"
ROLES = (MASTERD, CONFD, RAPI, NODED, MOND, METAD)
_GROUP_VARIABLE = "DAEMONS_GROUP"
_ROOT = "root"
_FREE_IDS_FIRST = 1_900_000_000
_FREE_IDS_END = 1_901_000_000


class Account(NamedTuple):
    """The names of a user and a group."""

    user: str
    group: str


class Users(NamedTuple):
    """The account of each daemon.

    :ivar roles: role -> account; all of :data:`ROLES` are in it.
    :ivar daemons_group: name of the group which may connect to the master daemon.
    """

    roles: dict[str, Account]
    daemons_group: str

    def group(self, role: str) -> str:
        """Return the group of a role, or :data:`DAEMONS`."""
        return self.daemons_group if role == DAEMONS else self.roles[role].group

    @property
    def separated(self) -> bool:
        """True if at least one daemon does not run as root."""
        return self.daemons_group != _ROOT or any(
            account != Account(_ROOT, _ROOT) for account in self.roles.values()
        )


def parse(text: str) -> Users:
    """Read the settings from the text of ``/etc/default/ganeti``; other variables are ignored.

    :raises ConfigurationError: a line has a quote without its counterpart.
    """
    found = {role: Account(_ROOT, _ROOT) for role in ROLES}
    daemons_group = _ROOT
    variables = {f"{role.upper()}_ARGS": role for role in ROLES}
    for line in text.splitlines():
        try:
            for word in shlex.split(line, comments=True):
                variable, _, value = word.partition("=")
                if variable == _GROUP_VARIABLE and value:
                    daemons_group = value
                elif variable in variables:
                    found[variables[variable]] = _account(shlex.split(value))
        except ValueError as err:
            raise errors.ConfigurationError(f"{err} in '{line}'") from err
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
    """Read the settings of this machine.

    :raises ConfigurationError: the file cannot be read.
    """
    if not machine.current().has_daemon_users:
        return parse("")
    path = paths.current().defaults_file
    try:
        return parse(fs.read_edited_file(path))
    except FileNotFoundError:
        return parse("")
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    except errors.ConfigurationError as err:
        raise errors.ConfigurationError(f"{path}: {err}") from err


def missing_accounts(settings: Users) -> list[str]:
    """Say what this machine lacks so that its daemons can run under these users, in words.

    Besides the accounts themselves, the user of the master daemon has to be a member of two groups:
    it gives files to them.
    """
    problems = []
    wanted = [settings.daemons_group, *(account.group for account in settings.roles.values())]
    groups: dict[str, grp.struct_group] = {}
    for name in dict.fromkeys(wanted):
        try:
            groups[name] = grp.getgrnam(name)
        except KeyError:
            problems.append(f"group {name} does not exist")
    for name in dict.fromkeys(account.user for account in settings.roles.values()):
        try:
            pwd.getpwnam(name)
        except KeyError:
            problems.append(f"user {name} does not exist")
    master = settings.roles[MASTERD]
    if problems or master.user == _ROOT:
        return problems
    own_gid = pwd.getpwnam(master.user).pw_gid
    return [
        f"user {master.user} of the master daemon is not a member of group {name}"
        for name in dict.fromkeys((settings.group(CONFD), settings.daemons_group))
        if name not in (_ROOT, master.group)
        and groups[name].gr_gid != own_gid
        and master.user not in groups[name].gr_mem
    ]


def require_accounts(settings: Users) -> None:
    """Check that the users and groups of the daemons exist.

    :raises ConfigurationError: some do not; the text names all of them, and says what to do.
    """
    problems = missing_accounts(settings)
    if problems:
        raise errors.ConfigurationError(
            f"{paths.current().defaults_file} names users for the daemons which cannot be used:"
            f" {'; '.join(problems)}. Where 'make install' has installed sysusers.d/ganeti.conf,"
            " 'systemd-sysusers' makes them; otherwise use adduser(8)."
        )


def ids(user: str, group: str) -> tuple[int, int]:
    """Return the numbers of a user and a group, for :func:`os.chown`.

    :returns: -1 and -1 when this process cannot give files to other users.
    :raises ConfigurationError: the user or the group does not exist.
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
    """Return the number of a group that is to have access to files, for :func:`os.chown`.

    :returns: -1 for the group root, and in a virtual cluster.
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


def free_user_ids(count: int) -> tuple[int, int]:
    """Choose user ids for guests, which no account of this machine has.

    They are in the part of the number space which neither distributions nor systemd nor containers
    use (1879048192 to 2147483647; "Users, Groups, UIDs and GIDs on systemd systems").

    :param count: how many successive ids.
    :returns: the first and the last id.
    :raises ConfigurationError: every range has an account.
    """
    used = sorted(
        {account.pw_uid for account in pwd.getpwall()} | {group.gr_gid for group in grp.getgrall()}
    )
    for first in range(_FREE_IDS_FIRST, _FREE_IDS_END - count, count):
        if not any(first <= one < first + count for one in used):
            return first, first + count - 1
    raise errors.ConfigurationError(
        f"there are accounts in every range of {count} user ids from {_FREE_IDS_FIRST} on"
    )


def kept_group(path: str) -> int:
    """Return the group which a file keeps when it is replaced, for :func:`os.chown`.

    :returns: -1 when there is no file, or this process cannot give files to its group.
    """
    try:
        gid = os.stat(path).st_gid
    except OSError:
        return -1
    may = os.geteuid() == 0 or gid in os.getgroups()
    return gid if may and gid != os.getegid() else -1


def owner_inside(directory: str) -> tuple[int, int]:
    """Return the owner and group which a new file in a directory gets, for :func:`os.chown`.

    They are those of the directory. A process without root gives the file the group of the
    directory only, if the process is in it; -1 leaves owner or group unchanged.

    :raises OSError: there is no such directory.
    """
    found = os.stat(directory)
    if os.geteuid() == 0:
        owner = (found.st_uid, found.st_gid)
        return (-1, -1) if owner == (0, os.getegid()) else owner
    return -1, kept_group(directory)


def same_owner(path: str) -> tuple[int, int]:
    """Return the owner and group of a file, to give another file to the same user.

    The result is for :func:`os.chown`.

    :returns: -1 and -1 without root.
    :raises OSError: there is no such file.
    """
    if os.geteuid() != 0:
        return -1, -1
    found = os.stat(path)
    return found.st_uid, found.st_gid
