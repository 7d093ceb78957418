"""What the watcher remembers about a node group from one run to the next.

The file is JSON: ``{"node": {NAME: {"bootid": TEXT}}, "instance": {NAME: {"restart_count": NUMBER,
"restart_when": SECONDS, "unconfirmed": [NANOSECONDS, NUMBER, SECONDS]}}}``. ``unconfirmed`` is a
restart which was counted before its job was submitted: the time in the reason of that job, and
count and time without this restart. The next run looks whether there is such a job. The file is
on the node which was the master; a new master begins without
it, which costs at most one more activation of disks. A damaged file counts as an empty one, so that
it never stops the watcher.

Source: ganeti-watcher(8), *FILES*.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.utils import fs
from ganeti.wire import json

_log = logging.getLogger(__name__)


class Unconfirmed(NamedTuple):
    """A restart which was counted before its job was submitted.

    :ivar stamp_ns: the time in the reason of the job, in nanoseconds since 1970.
    :ivar number: how many restarts there were without this one.
    :ivar last: the time of the last one of these.
    """

    stamp_ns: int
    number: int
    last: float


@dataclass(slots=True)
class Memory:
    """The memory of one node group.

    :ivar boot_ids: name of a node -> its boot ID when its disks were activated last.
    :ivar restarts: name of an instance -> number of restarts, and the time of the last one in
        seconds since 1970.
    :ivar unconfirmed: name of an instance -> a restart of which it is not known whether its job was
        submitted.
    """

    boot_ids: dict[str, str] = field(default_factory=dict)
    restarts: dict[str, tuple[int, float]] = field(default_factory=dict)
    unconfirmed: dict[str, Unconfirmed] = field(default_factory=dict)

    def restarts_of(self, instance: str, now: float) -> tuple[int, float]:
        """Return how often an instance was restarted, and when last.

        A time in the future means that the clock was set back; it counts as now.
        """
        count, last = self.restarts.get(instance, (0, 0.0))
        return count, min(last, now)

    def note_restart(self, instance: str, now: float, stamp_ns: int) -> None:
        """Remember that an instance is restarted now; its job is submitted next.

        :param stamp_ns: the time in the reason of the job.
        """
        count, last = self.restarts_of(instance, now)
        self.restarts[instance] = (count + 1, now)
        self.unconfirmed[instance] = Unconfirmed(stamp_ns, count, last)

    def confirm(self, instance: str) -> None:
        """Remember that the job of a restart was submitted."""
        self.unconfirmed.pop(instance, None)

    def take_back(self, instance: str) -> None:
        """Forget a restart whose job was not submitted."""
        before = self.unconfirmed.pop(instance, None)
        if before is not None:
            self.restarts.pop(instance, None)
            if before.number:
                self.restarts[instance] = (before.number, before.last)

    def forget(
        self, nodes: Iterable[str], instances: Iterable[str], now: float, forget_s: float
    ) -> None:
        """Forget what does not exist any more, and restarts which are older than `forget_s`.

        :param nodes: names of the nodes which exist.
        :param instances: names of the instances which exist.
        """
        known_nodes, known = set(nodes), set(instances)
        self.boot_ids = {name: one for name, one in self.boot_ids.items() if name in known_nodes}
        self.restarts = {
            name: (count, min(last, now))
            for name, (count, last) in self.restarts.items()
            if name in known and min(last, now) + forget_s > now
        }
        self.unconfirmed = {
            name: one for name, one in self.unconfirmed.items() if name in self.restarts
        }


def load(path: str) -> Memory:
    """Read the memory from a file; a missing or damaged one counts as empty.

    :raises OSError: the file exists, but cannot be read.
    """
    try:
        data = json.loads(fs.read_file(path))
    except FileNotFoundError:
        return Memory()
    except (errors.ParseError, UnicodeDecodeError) as err:
        _log.warning("%s is damaged and is made again: %s", path, err)
        return Memory()
    return Memory(
        {
            name: entry["bootid"]
            for name, entry in _entries(data, "node")
            if isinstance(entry.get("bootid"), str)
        },
        {
            name: (entry["restart_count"], float(entry["restart_when"]))
            for name, entry in _entries(data, "instance")
            if isinstance(entry.get("restart_count"), int)
            and _is_number(entry["restart_count"])
            and _is_number(entry.get("restart_when"))
        },
        {
            name: found
            for name, entry in _entries(data, "instance")
            if (found := _unconfirmed(entry.get("unconfirmed"))) is not None
        },
    )


def _unconfirmed(value: Any) -> Unconfirmed | None:
    if not isinstance(value, list) or len(value) != 3:
        return None
    stamp_ns, count, last = value
    if not isinstance(stamp_ns, int) or not isinstance(count, int) or isinstance(stamp_ns, bool):
        return None
    return (
        Unconfirmed(stamp_ns, count, float(last))
        if _is_number(count) and _is_number(last)
        else None
    )


def _entries(data: Any, kind: str) -> Iterable[tuple[str, dict[str, Any]]]:
    part = data.get(kind) if isinstance(data, dict) else None
    if not isinstance(part, dict):
        return []
    return [(name, entry) for name, entry in part.items() if isinstance(entry, dict)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53


def store(path: str, memory: Memory) -> None:
    """Write the memory to a file.

    :raises OSError: it cannot be written; the old file stays.
    """
    data = {
        "node": {name: {"bootid": boot_id} for name, boot_id in memory.boot_ids.items()},
        "instance": {
            name: {
                "restart_count": count,
                "restart_when": last,
                **({"unconfirmed": list(found)} if (found := memory.unconfirmed.get(name)) else {}),
            }
            for name, (count, last) in memory.restarts.items()
        },
    }
    fs.write_file(path, json.dumps(data) + "\n", mode=0o600)
