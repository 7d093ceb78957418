"""What access tokens and client certificates share: rights, end, label, and what is shown of them.

Both are access records (:mod:`ganeti.config.access_records`) which belong to a user. A credential
never has more rights than its owner has at the time of the request: an owner whose line is removed
from the users file has no valid credentials, and when the rights of an owner change, those of the
credentials do as well.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypedDict

from ganeti import errors
from ganeti.objects import AccessRecord
from ganeti.rapi.rights import Rights
from ganeti.rapi.users import User, Users

#: Lifetime in seconds of a credential for which none is given.
LIFETIME_S: Final = 90 * 86400.0
#: Longest label.
LABEL_LENGTH: Final = 100

_ID_LENGTH: Final = 12
_UNITS_S: Final = {"h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([hdw])", re.ASCII)
_NEVER: Final = "never"
# The members of the data of a record.
_LABEL, _RIGHTS, _OWNER_RIGHTS = "label", "rights", "owner_rights"


class Shown(TypedDict):
    """What is shown of a credential; times in seconds since 1970.

    ``id`` names it in lists and messages; nobody can log in with it. ``rights`` is empty for all
    those of the owner. ``used`` is about when it was last used.
    """

    id: str
    owner: str
    label: str
    rights: str
    created: float
    expires: float | None
    used: float | None


class Wanted(NamedTuple):
    """What somebody wants a new credential to be.

    :ivar rights: the words for the rights; empty for all those of the owner.
    :ivar expires: its end; None for none.
    :ivar owner_rights: the words for the rights of an owner who has no line in the users file.
    """

    owner: str
    now: float
    label: str = ""
    rights: str = ""
    expires: float | None = None
    owner_rights: str | None = None


def make(kind: str, key: str, wanted: Wanted, data: Mapping[str, str] = {}) -> AccessRecord:
    """Make the record of a new credential.

    :param data: what else the kind needs.
    :raises ParameterError: the label or the end is not allowed.
    """
    if len(wanted.label) > LABEL_LENGTH or not wanted.label.isprintable():
        raise errors.ParameterError(
            f"the label has at most {LABEL_LENGTH} characters, which can be printed"
        )
    if wanted.expires is not None and wanted.expires <= wanted.now:
        raise errors.ParameterError("the end is in the past; give a later one")
    found: dict[str, Any] = {**data, _LABEL: wanted.label, _RIGHTS: wanted.rights}
    if wanted.owner_rights is not None:
        found[_OWNER_RIGHTS] = wanted.owner_rights
    return AccessRecord(
        uuid="",
        kind=kind,
        key=key,
        owner=wanted.owner,
        ctime=wanted.now,
        expires=wanted.expires,
        data=found,
    )


def shown(record: AccessRecord) -> Shown:
    """Return what is shown of a record."""
    return Shown(
        id=public_id(record.key),
        owner=record.owner,
        label=str(record.data.get(_LABEL, "")),
        rights=str(record.data.get(_RIGHTS, "")),
        created=record.ctime,
        expires=record.expires,
        used=record.used,
    )


def as_change(record: AccessRecord) -> dict[str, Any]:
    """Return a record as the master takes it."""
    found = dataclasses.asdict(record)
    del found["uuid"]
    return found


def public_id(key: str) -> str:
    """Return the name of a credential in lists and messages."""
    return key[:_ID_LENGTH]


def parse_expires(text: str, now: float) -> float | None:
    """Read the end of a credential.

    :param text: a span (``12h``, ``30d``, ``8w``), a date (``2027-01-01``, which means the
        beginning of that day, local time), or ``never``.
    :returns: seconds since 1970; None for no end.
    :raises ParameterError: it is something else, or in the past.
    """
    if text == _NEVER:
        return None
    span = _SPAN.fullmatch(text)
    if span:
        return now + int(span[1]) * _UNITS_S[span[2]]
    try:
        end = datetime.datetime.strptime(text, "%Y-%m-%d").timestamp()
    except (ValueError, OverflowError, OSError) as err:
        raise errors.ParameterError(
            f"'{text[:40]}' is not an end. Give a span such as 12h, 30d or 8w, a date such as"
            " 2027-01-01, or never."
        ) from err
    if end <= now:
        raise errors.ParameterError(f"{text} is in the past; give a later day")
    return end


class Owners:
    """Finds the users to whom credentials belong.

    :param users: knows the rights of the owners.
    """

    def __init__(self, users: Users) -> None:
        self._users = users

    def user_of(self, record: AccessRecord) -> User | None:
        """Return the owner with the rights of a credential; None if there is no such user."""
        kept = record.data.get(_OWNER_RIGHTS)
        if kept is not None:
            owner = self._users.rights(str(kept))[0]
        else:
            account = self._users.account(record.owner)
            if account is None:
                return None
            owner = account.rights
        words = str(record.data.get(_RIGHTS, ""))
        rights: Rights = self._users.rights(words)[0].within(owner) if words else owner
        return User(record.owner, rights, record.kind)


def without_owner(what: str, record: AccessRecord) -> str:
    """Return the message for a credential whose owner does not exist.

    :param what: the kind of the credential.
    """
    return (
        f"{what} {public_id(record.key)} belongs to user {record.owner}, who does not exist on this"
        " node; 'gnt-cluster redist-conf' copies the users file"
    )
