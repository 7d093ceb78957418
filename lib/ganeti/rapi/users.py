"""The users of the REST interface and their rights.

The users file has a line for each user: name, password (:mod:`ganeti.rapi.passwords`), and rights,
separated by commas::

    # comment
    jack    {SCRYPT}...      write
    jill    {HA1}...         @operator,nodes_name_role
    probe   secret           @readonly
    joe     {PAM}            operator@own

:mod:`ganeti.rapi.rights` says what the words for rights mean. A wrong line is reported and defines
no user; the other lines are valid. When the file cannot be read, the users do not change.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.http.event_server import Incoming
from ganeti.http.messages import Refused
from ganeti.rapi import challenge, passwords
from ganeti.rapi import roles as roles_file
from ganeti.rapi.guesses import Guesses, Place, Turns
from ganeti.rapi.pace import TooMany
from ganeti.rapi.pam import FRESH_S, AccountLocked, Pam
from ganeti.rapi.passwords import Password
from ganeti.rapi.rights import ROLES, Rights, Roles
from ganeti.rapi.rights import parse as parse_rights
from ganeti.rapi.selectors import TAG
from ganeti.utils import fs

_log = logging.getLogger(__name__)

#: The answer to a wrong password; it does not tell whether there is such a user.
WRONG: Final = "the user name or the password is wrong"
_NOT_UNDERSTOOD: Final = (
    "the header Authorization is not understood; its form is 'Basic', then the base64 of"
    " USER:PASSWORD"
)
_MOST_KNOWN: Final = 1_000
_POLL_S, _POLL_WATCHED_S = 2.0, 60.0
# Each check takes 32 MiB while it runs.
_CHECKS_AT_ONCE: Final = 2


class User(NamedTuple):
    """Who sends a request, and what he may do.

    :ivar by: how he was identified: ``password``, ``session``, ``token`` or ``certificate``.
    :ivar session: the public id of his session; empty without one.
    :ivar groups: his groups, as the server that identified him names them.
    """

    name: str
    rights: Rights
    by: str = "password"
    session: str = ""
    groups: tuple[str, ...] = ()

    def may(self, needed: Collection[str], handler: str, method: str) -> bool:
        """Return whether the user has one of the sufficient rights for some object."""
        return self.rights.may(needed, handler, method)


class Account(NamedTuple):
    """One line of the file."""

    name: str
    password: Password
    rights: Rights


class _Known(NamedTuple):
    """A password was right.

    :ivar until: on the clock of the users; None while the file does not change.
    """

    account: Account
    until: float | None


def parse(
    text: str, handlers: Collection[str] = (), roles: Roles = ROLES
) -> tuple[dict[str, Account], list[str]]:
    """Read the users file.

    :param handlers: names of resources; other names are reported.
    :param roles: the roles which a line may name, as in :func:`ganeti.rapi.rights.parse`.
    :returns: the users by name, and the problems of the file.
    """
    users: dict[str, Account] = {}
    problems = []
    for number, line in enumerate(text.removeprefix(fs.BYTE_ORDER_MARK).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) not in (2, 3):
            problems.append(f"line {number} is not 'user password [right,...]'")
            continue
        if words[0] in users:
            problems.append(f"line {number}: user '{words[0]}' occurs twice; the first line counts")
            continue
        try:
            password = passwords.parse(words[1])
        except errors.ParseError as err:
            problems.append(f"line {number}: {err}")
            continue
        rights, wrong = parse_rights(words[2] if len(words) == 3 else "", roles, handlers)
        problems += [f"line {number}: {problem}" for problem in wrong]
        users[words[0]] = Account(words[0], password, rights)
    return users, problems


class ChangingFile:
    """A file which is read again when it has changed.

    :param what: what it defines, for the log.
    """

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        self._what = what
        self._stamp: tuple[int, int, int] | None = None
        self._read = False

    def changed_text(self) -> str | None:
        """Return the text of the file, empty if there is none; None if it has not changed.

        When it cannot be read, this is logged, and it counts as not changed.
        """
        try:
            found = os.stat(self.path)
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        except FileNotFoundError:
            stamp = None
        except OSError as err:
            _log.error("the %s are not changed: %s", self._what, err)
            return None
        if self._read and stamp == self._stamp:
            return None
        try:
            text = fs.read_file(self.path) if stamp else ""
        except (OSError, UnicodeDecodeError) as err:
            _log.error("the %s are not changed: cannot read %s: %s", self._what, self.path, err)
            return None
        self._stamp = stamp
        self._read = True
        return text


class Users:
    """The users of the present users file.

    :param path: without the file there are no users.
    :param roles_path: the roles file; without it there are only the roles which always exist.
    :param pam: checks the passwords which the machine checks; None for the usual way.
    :ivar rules: what the roles file says.
    """

    def __init__(
        self,
        path: str,
        handlers: Collection[str] = (),
        *,
        roles_path: str = "",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        pam: Pam | None = None,
    ) -> None:
        self._file = ChangingFile(path, "users")
        self._text = ""
        self._roles_file = ChangingFile(roles_path, "roles")
        self.rules = roles_file.Rules()
        self._handlers = handlers
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        # The different costs of the passwords in the file.
        self._costs: list[passwords.Cost] = []
        self._sleep = sleep
        self._guesses = Guesses(clock)
        # Checks which have not ended; equal requests of a client wait for the same one.
        self._running: dict[bytes, asyncio.Task[Account | None]] = {}
        # A password which was right before needs no second slow check from the same address.
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._key = os.urandom(32)
        self._turns = Turns(_CHECKS_AT_ONCE, self._guesses.counted)
        self._pam = pam or Pam(self._guesses.counted)
        #: Whether :meth:`refresh` is called when the file changes.
        self.watched = False
        self._polled_at = 0.0
        self.refresh()

    def refresh(self) -> None:
        """Read the files again when they have changed."""
        rules = self._roles_file.changed_text() if self._roles_file.path else None
        if rules is not None:
            self.rules, problems = roles_file.parse(rules, self._handlers)
            self._report(self._roles_file, problems)
        text = self._file.changed_text()
        if text is not None:
            self._text = text
        elif rules is None:
            return
        self._accounts, problems = parse(self._text, self._handlers, self.rules.roles)
        costs = (user.password.cost for user in self._accounts.values())
        self._costs = sorted({cost for cost in costs if cost is not None})
        self._known.clear()
        self._report(self._file, problems)
        _log.info("%d users may use the interface", len(self._accounts))

    @staticmethod
    def _report(file: ChangingFile, problems: list[str]) -> None:
        for problem in problems:
            _log.warning("%s: %s", file.path, problem)

    @property
    def tags_with_rights(self) -> frozenset[str]:
        """Return the tags which give a right to a user, or count for a quota."""
        found = set(self.rules.tags_with_rights())
        for account in self._accounts.values():
            for grant in account.rights.grants:
                found.update(one.value for one in grant.where if one.kind == TAG)
        return frozenset(found)

    def account(self, name: str) -> Account | None:
        """Return the line of a user; None if there is no such user."""
        self.refresh_if_due()
        return self._accounts.get(name)

    def rights(self, words: str) -> tuple[Rights, list[str]]:
        """Read words for rights with the present roles, as :func:`ganeti.rapi.rights.parse`."""
        return parse_rights(words, self.rules.roles, self._handlers)

    def refresh_if_due(self) -> None:
        """Check the file from time to time; rarely when :meth:`refresh` is called on changes."""
        if self._clock() - self._polled_at > (_POLL_WATCHED_S if self.watched else _POLL_S):
            self._polled_at = self._clock()
            self.refresh()

    async def identify(self, incoming: Incoming) -> User | None:
        """Return the user of a request with ``Authorization: Basic``; None without that header.

        :raises Refused: 401 for wrong credentials, 429 after too many wrong ones.
        """
        self.refresh_if_due()
        authorization = incoming.head.headers.get("authorization")
        if authorization is None:
            return None
        credentials = _decode(authorization)
        if credentials is None:
            raise challenge.unauthorized(incoming.head, _NOT_UNDERSTOOD)
        user = await self.check(*credentials, incoming.peer)
        if user is None:
            raise challenge.unauthorized(incoming.head, WRONG)
        return user

    async def check(self, name: str, password: str, address: str) -> User | None:
        """Return the user with this name and password; None if one of them is wrong.

        :param address: address of the client, for which wrong passwords are counted.
        :raises Refused: 429 after too many wrong passwords; 403 and 503 as
            :meth:`ganeti.rapi.pam.Pam.check`.
        """
        place = self._guesses.place(name, address)
        key = hmac.digest(
            self._key,
            f"{place[0]}\0{name}\0{password}".encode("utf-8", "surrogatepass"),
            "sha256",
        )
        running = self._running.get(key)
        if running is None:
            try:
                wait_s = self._guesses.take(place)
                if not wait_s:
                    known = self._known_account(key)
                    if known is not None:
                        self._guesses.give_back(place)
                        return _user(known)
                wait_s = max(wait_s, self._guesses.take_of_address(place))
            except TooMany as err:
                raise Refused(
                    429,
                    f"too many wrong passwords {err.of}",
                    headers=[err.retry_after],
                ) from err
            running = asyncio.create_task(self._judge(place, key, wait_s, name, password, address))
            self._running[key] = running
            running.add_done_callback(lambda _task: self._running.pop(key, None))
        # A client which goes away does not stop the check for the others.
        account = await asyncio.shield(running)
        if account is None:
            _log.warning("wrong password for user %r from %s", name[:64], address)
            return None
        return _user(account)

    async def _judge(
        self, place: Place, key: bytes, wait_s: float, name: str, password: str, address: str
    ) -> Account | None:
        """Check a password when it is its turn; return None if it is wrong."""
        if wait_s:
            await self._sleep(wait_s)
        known = self._known_account(key)
        if known is not None:
            # Not forgotten: a program which logs in all the time would free the way for guesses.
            self._guesses.give_back(place)
            self._guesses.give_back_of_address(place)
            return known
        account = self._accounts.get(name)
        try:
            if not await self._check(account, place, name, password, address):
                return None
        except AccountLocked:
            self._guesses.give_back(place)
            self._guesses.give_back_of_address(place)
            raise
        self._guesses.forget(place)
        self._guesses.give_back_of_address(place)
        if account is not None and self._accounts.get(name) is account:
            from_pam = account.password.form == passwords.PAM
            self._known[key] = _Known(account, self._clock() + FRESH_S if from_pam else None)
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return account

    def _known_account(self, key: bytes) -> Account | None:
        known = self._known.get(key)
        if known is None or (known.until is not None and known.until < self._clock()):
            return None
        return known.account

    async def _check(
        self, account: Account | None, place: Place, name: str, password: str, address: str
    ) -> bool:
        stored = None if account is None else account.password
        costs = self._costs
        if not costs:
            right = passwords.check(stored, name, password, costs)
        else:
            async with self._turns.of(place.address):
                right = await asyncio.to_thread(passwords.check, stored, name, password, costs)
        if stored is not None and stored.form == passwords.PAM:
            return await self._pam.check(stored.value, name, password, address)
        if not right and self._pam.wrong_s:
            # PAM takes its time for a wrong password, which would show the names of its users.
            await self._sleep(self._pam.wrong_s)
        return right


def _user(account: Account) -> User:
    return User(account.name, account.rights)


def _decode(authorization: str) -> tuple[str, str] | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        raw = base64.b64decode(encoded.strip(), validate=True)
    except (ValueError, binascii.Error):
        return None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        # Older clients send Latin-1.
        text = raw.decode("latin-1")
    name, colon, password = text.partition(":")
    return (name, password) if colon and name else None
