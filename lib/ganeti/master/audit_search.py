"""Searches in the audit log of this node (``FindAuditLines``).

The files of the log are read, also those which were rotated, from the newest line backwards. One
search reads no more than :data:`MOST_EXAMINED` lines, and says where the next one goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.jobstore import audit
from ganeti.luxi.answers import AuditEntry, AuditPage
from ganeti.utils import author
from ganeti.utils.text import may_be_same

#: Number of lines which one search looks at. It may be asked to go on.
MOST_EXAMINED: Final = 20_000
# What a line must have; the others are lines of other programs, or damaged.
_NEEDED: Final = ("time", "event", "job", "status", "ops")
# The objects in the summary of an opcode: INSTANCE_STARTUP(web1), NODE_ADD(node4,group1).
_OBJECTS: Final = re.compile(r"\((.*)\)\Z")


def find(path: str, chosen: Mapping[str, Any], limit: int, before: int | None = None) -> AuditPage:
    """Return the newest lines which have what is chosen.

    :param path: the audit log.
    :param chosen: what a line must have (:data:`ganeti.luxi.methods.CHOSEN_LINES`).
    :param limit: largest number of lines.
    :param before: only lines with smaller numbers.
    :raises OpPrereqError: this node has no audit log (wrong_state), or it cannot be read
        (environment_error).
    """
    found: list[AuditEntry] = []
    unreadable = 0
    try:
        if not audit.files(path):
            raise errors.OpPrereqError(
                f"the master has no audit log yet: there is no file {path}", errors.ECODE_STATE
            )
        for count, (number, line) in enumerate(audit.newest_lines(path, before), start=1):
            entry = _entry(number, line)
            if entry is None:
                unreadable += 1
            elif _is_chosen(entry, chosen):
                found.append(entry)
            if len(found) == limit or count == MOST_EXAMINED:
                return {"entries": found, "next": number, "unreadable": unreadable}
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read the audit log {err.filename}: {err.strerror}", errors.ECODE_ENVIRON
        ) from err
    return {"entries": found, "next": None, "unreadable": unreadable}


def _entry(number: int, line: Mapping[str, Any]) -> AuditEntry | None:
    """Return the entry of a line; None for one which cannot be read."""
    if not all(name in line for name in _NEEDED):
        return None
    trail = line.get("reason")
    try:
        return {
            "line": number,
            "time": float(line["time"]),
            "event": str(line["event"]),
            "job": int(line["job"]),
            "status": str(line["status"]),
            "ops": [str(op) for op in line["ops"]],
            "person": author.person(trail),
            "program": author.program(trail),
            "reason": [[str(one[0]), str(one[1])] for one in author.entries(trail)],
            "lost": int(line.get("lost", 0)),
            "late": None if line.get("late") is None else float(line["late"]),
        }
    except (TypeError, ValueError):
        return None


def _is_chosen(entry: AuditEntry, chosen: Mapping[str, Any]) -> bool:
    has = {name: entry[name] for name in ("job", "person", "event", "status")}
    if any(has[name] != chosen[name] for name in has if chosen.get(name) is not None):
        return False
    since, until = chosen.get("since"), chosen.get("until")
    if since is not None and entry["time"] < since or until is not None and entry["time"] > until:
        return False
    name = chosen.get("object")
    return name is None or _names(entry["ops"], name)


def _names(ops: Sequence[str], name: str) -> bool:
    """Tell whether the summaries of opcodes name an object."""
    for op in ops:
        match = _OBJECTS.search(op)
        if match is not None and any(may_be_same(name, one) for one in match[1].split(",")):
            return True
    return False
