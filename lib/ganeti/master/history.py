"""Answers about the history of the configuration (``QueryConfigHistory`` and its neighbours).

A serial number, or a time (a list with the seconds since the epoch), identifies a state.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ganeti import errors
from ganeti.luxi.answers import ChangeReport, CommitPage, CommitReport, Comparison
from ganeti.utils.text import may_be_same

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.config.history import Commit, ObjectChange

# Number of changes which the answer lists for each commit.
_NAMED_CHANGES: Final = 20
#: Number of commits which one search looks at. It may be asked to go on.
MOST_EXAMINED: Final = 2000


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


def find(
    config: Config, chosen: Mapping[str, Any], limit: int, before: int | None = None
) -> CommitPage:
    """Answer ``FindCommits``: return the newest commits which have what is chosen.

    :param chosen: what a commit must have (:data:`ganeti.luxi.methods.CHOSEN_COMMITS`). Which
        objects a commit changed that was too large to be kept is not known, so it has each of them.
    :param limit: largest number of commits.
    :param before: only commits with smaller serial numbers.
    :raises ConfigurationError: the history cannot be read.
    """
    newest = config.snapshot().serial_no
    found: list[CommitReport] = []
    for count, commit in enumerate(config.commits(before), start=1):
        if _is_chosen(commit, chosen):
            found.append(_commit(commit))
        if len(found) == limit or count == MOST_EXAMINED:
            return {"commits": found, "next": commit.serial, "newest": newest}
    return {"commits": found, "next": None, "newest": newest}


def _is_chosen(commit: Commit, chosen: Mapping[str, Any]) -> bool:
    author = commit.author
    has = {
        "job": author.job_id,
        "opcode": author.opcode,
        "person": author.person,
    }
    if any(has[key] != chosen[key] for key in has if chosen.get(key) is not None):
        return False
    since, until = chosen.get("since"), chosen.get("until")
    if since is not None and commit.time_s < since or until is not None and commit.time_s > until:
        return False
    kind, name = chosen.get("kind"), chosen.get("object")
    if commit.changes is None or kind is None and name is None:
        return True
    return any(
        (kind is None or change.kind == kind)
        and (name is None or name == change.uuid or may_be_same(name, change.name))
        for change in commit.changes
    )


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
