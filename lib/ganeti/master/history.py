"""Answers about the history of the configuration: methods of ours beside the published ones.

======================== =======================================================================
``QueryConfigHistory``   the newest commits, as many as asked for
``QueryConfigChanges``   what is different between two states
``QueryConfigAt``        the whole configuration as it was
======================== =======================================================================

A state is named by its serial number, or by a time: a list with the seconds since the epoch. The
last two answers hold what the configuration holds, secrets included, so only root (and the user who
runs the master daemon) gets them: others who may use the socket, the REST daemon for one, need to
know no secrets.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ganeti import errors, ht

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.config.history import ObjectChange, Commit
    from ganeti.master.luxi_server import LuxiRequest

POINT: Final = ht.Or(ht.Int, ht.ListOf(ht.Or(ht.Int, ht.Float)))

# A commit with more names a few and the number of the others.
_NAMED_CHANGES: Final = 20


def require_administrator(request: LuxiRequest) -> None:
    """:raises OpPrereqError: the client's user may not know secrets."""
    if request.peer_uid() not in (0, os.geteuid()):
        raise errors.OpPrereqError(
            f"method {request.method} tells secrets, and is for root only", errors.ECODE_INVAL
        )


def point_of(value: int | list[float]) -> int | float:
    """A serial number, or seconds since the epoch as a float.

    :raises OpPrereqError: a list which is not one time.
    """
    if isinstance(value, list):
        if len(value) != 1:
            raise errors.OpPrereqError("a time is a list of one number", errors.ECODE_INVAL)
        return float(value[0])
    return value


def commits(config: Config, limit: int | None) -> list[dict[str, Any]]:
    """The newest commits, the newest first.

    :param limit: at most so many; None for all.
    :raises ConfigurationError: the history cannot be read.
    """
    return [_commit(commit) for commit in islice(config.commits(), limit)]


def _commit(commit: Commit) -> dict[str, Any]:
    changes = commit.changes
    return {
        "serial": commit.serial,
        "time": commit.time_s,
        "before": commit.before_serial,
        "job": commit.author.job_id,
        "opcode": commit.author.opcode,
        "source": commit.author.source,
        "reason": commit.author.reason,
        "count": None if changes is None else len(changes),
        "changes": [
            [change.kind, change.name, change.what, change.attributes]
            for change in (changes or ())[:_NAMED_CHANGES]
        ],
    }


def changes(config: Config, first: int | list[float], last: int | list[float]) -> dict[str, Any]:
    """What is different between two states.

    :raises OpPrereqError: there was no such state, or the history does not reach it.
    """
    old, new, found = config.compare(point_of(first), point_of(last))
    return {"first": old, "last": new, "changes": [_change(change) for change in found]}


def _change(change: ObjectChange) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "uuid": change.uuid,
        "name": change.name,
        "what": change.what,
        "old": change.old,
        "new": change.new,
    }


def at(config: Config, point: int | list[float]) -> dict[str, Any]:
    """The configuration as it was, as in its file.

    :raises OpPrereqError: see :func:`changes`.
    """
    return config.at(point_of(point)).whole()
