"""Answers about the history of the configuration (``QueryConfigHistory`` and its neighbours).

A serial number, or a time (a list with the seconds since the epoch), identifies a state.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ganeti import errors

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.config.history import Commit, ObjectChange

# Number of changes which the answer lists for each commit.
_NAMED_CHANGES: Final = 20


class CommitReport(TypedDict):
    """A commit in the answer to ``QueryConfigHistory``.

    ``serial`` and ``before`` are the serial numbers of the new and the old state, ``time`` is in
    seconds since the epoch. ``count`` is the number of changes, None when the commit had too many
    to be kept; ``changes`` lists the first ones as ``[kind, name, what, attributes]``. ``person``
    is empty when it is not known.
    """

    serial: int
    time: float
    before: int
    job: int | None
    opcode: str | None
    source: str
    reason: str
    person: str
    count: int | None
    changes: list[list[Any]]


class ChangeReport(TypedDict):
    """A changed object in the answer to ``QueryConfigChanges``.

    ``what`` is ``added``, ``removed`` or ``changed``; ``old`` and ``new`` have the attributes which
    changed.
    """

    kind: str
    uuid: str
    name: str
    what: str
    old: dict[str, Any] | None
    new: dict[str, Any] | None


class Comparison(TypedDict):
    """The answer to ``QueryConfigChanges``, with the serial numbers of both states."""

    first: int
    last: int
    changes: list[ChangeReport]


def point_of(value: int | list[float]) -> int | float:
    """Read a point in the history: a serial number, or seconds since the epoch as a float.

    :raises OpPrereqError: a list which does not contain exactly one time.
    """
    if isinstance(value, list):
        if len(value) != 1:
            raise errors.OpPrereqError("a time is a list of one number", errors.ECODE_INVAL)
        return float(value[0])
    return value


def commits(config: Config, limit: int | None) -> list[CommitReport]:
    """Return the newest commits, the newest first.

    :param limit: largest number of commits; None for all.
    :raises ConfigurationError: the history cannot be read.
    """
    return [_commit(commit) for commit in islice(config.commits(), limit)]


def _commit(commit: Commit) -> CommitReport:
    changes = commit.changes
    return {
        "serial": commit.serial,
        "time": commit.time_s,
        "before": commit.before_serial,
        "job": commit.author.job_id,
        "opcode": commit.author.opcode,
        "source": commit.author.source,
        "reason": commit.author.reason,
        "person": commit.author.person,
        "count": None if changes is None else len(changes),
        "changes": [
            [change.kind, change.name, change.what, change.attributes]
            for change in (changes or ())[:_NAMED_CHANGES]
        ],
    }


def changes(config: Config, first: int | list[float], last: int | list[float]) -> Comparison:
    """Return the differences between two states.

    :raises OpPrereqError: there was no such state, or the history does not reach it.
    """
    old, new, found = config.compare(point_of(first), point_of(last))
    return {"first": old, "last": new, "changes": [_change(change) for change in found]}


# What a report says about an access record: nothing with which somebody could log in.
_OF_ACCESS_RECORDS: Final = ("kind", "owner", "ctime", "expires", "used")


def _change(change: ObjectChange) -> ChangeReport:
    old, new = change.old, change.new
    if change.kind == "access_records":
        old, new = (
            state and {name: state[name] for name in _OF_ACCESS_RECORDS if name in state}
            for state in (old, new)
        )
    return {
        "kind": change.kind,
        "uuid": change.uuid,
        "name": change.name,
        "what": change.what,
        "old": old,
        "new": new,
    }


def at(config: Config, point: int | list[float]) -> dict[str, Any]:
    """Return the configuration at an earlier time, in the form of its file.

    :raises OpPrereqError: there was no such state, or the history does not reach it.
    """
    return config.at(point_of(point)).whole()
