"""What events say: changes of objects of the configuration, lines and progress of jobs.

The functions are pure. An event never has the value of a parameter, which may be a secret: of a
changed object it names the fields which are different. Tags are no secrets.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ganeti.config.draft import CLUSTER
from ganeti.constants import events as const
from ganeti.constants.job import LOG_MESSAGE
from ganeti.jqueue.job import FINALIZED, LogEntry, QueuedJob
from ganeti.objects import ConfigData, Instance, Node, NodeGroup
from ganeti.opcodes import subjects
from ganeti.utils import author, clock


class Named(NamedTuple):
    """What is known about an object which a job or a finding names.

    :ivar groups: names of the node groups of its nodes.
    """

    name: str
    tags: Collection[str] = ()
    groups: Collection[str] = ()


#: Returns what is known about the object with a kind and a name, which may be short or a UUID.
Find = Callable[[str, str], Named]


def unknown(_kind: str, name: str) -> Named:
    """Know nothing about an object."""
    return Named(name)


#: The kind of an event, its data, and what only clients get which name the kinds they want.
Made = tuple[str, dict[str, Any], dict[str, Any]]

# Table of the configuration -> kind of event.
_TABLES: Final = {
    "instances": const.INSTANCE,
    "nodes": const.NODE,
    "nodegroups": const.GROUP,
    "networks": const.NETWORK,
    "filters": const.FILTER,
}
_ALWAYS_CHANGE: Final = frozenset({"serial_no", "mtime"})
# The cluster changes with each object that takes a port; the object has an event of its own.
_BOOKKEEPING: Final = _ALWAYS_CHANGE | {"tcpudp_port_pool", "highest_used_port"}
# Dictionaries whose keys are not named: the names of private parameters may say too much.
_HIDDEN_KEYS: Final = frozenset({"osparams_private_cluster", "osparams_private"})
_CREATE: Final = "OP_INSTANCE_CREATE"
# The instance with the new name has the tags of the other one.
_FROM_ANOTHER: Final = ("OP_INSTANCE_COPY", "OP_INSTANCE_RENAME")
_MAX_TEXT: Final = 4000
# Jobs write their progress as lines for people: "- device disk/0: 45.30% done, 2m 10s remaining".
_PERCENT: Final = re.compile(r"\b([0-9]{1,3}(?:\.[0-9]+)?) ?%")


def of_changes(
    before: ConfigData, after: ConfigData, changed: Collection[tuple[str, str]], now: float
) -> Iterator[Made]:
    """Return the events for a commit of the configuration.

    :param changed: kind and uuid of each changed object.
    """
    for kind, uuid in changed:
        if kind in _TABLES:
            old, new = getattr(before, kind).get(uuid), getattr(after, kind).get(uuid)
            if old is not new:
                yield _of_object(_TABLES[kind], uuid, old, new, after, now)
    if CLUSTER in changed:
        yield from _of_cluster(before, after, now)


def _of_object(kind: str, uuid: str, old: Any, new: Any, after: ConfigData, now: float) -> Made:
    one = old if new is None else new
    data: dict[str, Any] = {
        "name": getattr(one, "name", uuid),
        "uuid": uuid,
        "change": "added" if old is None else "removed" if new is None else "changed",
    }
    groups = groups_of(after, one)
    if isinstance(one, Instance):
        node = after.nodes.get(one.primary_node)
        data["admin_state"] = None if new is None else new.admin_state
        data["primary_node"] = None if node is None else node.name
    elif isinstance(one, Node):
        data["group"] = groups[0] if groups else None
        for name in ("offline", "drained", "master_candidate"):
            data[name] = getattr(one, name)
    if hasattr(one, "serial_no"):
        data["serial_no"] = one.serial_no
    data["timestamp"] = now
    return kind, data, {**_difference(old, new), "groups": groups}


def groups_of(data: ConfigData, obj: Any) -> list[str]:
    """Return the names of the node groups in which an object is."""
    if isinstance(obj, NodeGroup):
        return [obj.name]
    node = data.nodes.get(obj.primary_node) if isinstance(obj, Instance) else obj
    group = data.nodegroups.get(node.group) if isinstance(node, Node) else None
    return [] if group is None else [group.name]


def _of_cluster(before: ConfigData, after: ConfigData, now: float) -> Iterator[Made]:
    old, new = before.cluster, after.cluster
    about = _difference(old, new)
    if set(about["members"]) - _BOOKKEEPING:
        data = {
            "name": new.cluster_name,
            "uuid": new.uuid,
            "change": "changed",
            "serial_no": new.serial_no,
            "timestamp": now,
        }
        yield const.CLUSTER, data, about


def _difference(old: Any, new: Any) -> dict[str, Any]:
    """Return which fields differ, by name; of a dictionary also its keys, as ``FIELD/KEY``."""
    about: dict[str, Any] = {"members": [], "tags": sorted(getattr(new or old, "tags", ()))}
    if old is None or new is None:
        return about
    for field in dataclasses.fields(old):
        name = field.name
        was, now = getattr(old, name), getattr(new, name)
        if was is now or was == now or name in _ALWAYS_CHANGE:
            continue
        if isinstance(was, dict) and isinstance(now, dict) and name not in _HIDDEN_KEYS:
            about["members"] += [
                f"{name}/{key}"
                for key in sorted(was.keys() | now.keys())
                if _differs(was, now, key)
            ]
        else:
            about["members"].append(name)
    about["members"].sort()
    if getattr(old, "name", None) != getattr(new, "name", None):
        about["old_name"] = old.name
    if "tags" in about["members"]:
        about["tags_added"] = sorted(set(new.tags) - set(old.tags))
        about["tags_removed"] = sorted(set(old.tags) - set(new.tags))
    return about


def _differs(was: Mapping[Any, Any], now: Mapping[Any, Any], key: Any) -> bool:
    return key not in was or key not in now or was[key] != now[key]


def of_job(job: QueuedJob, find: Find) -> dict[str, Any]:
    """Return who submitted a job, which objects it names, and their tags and groups.

    The tags of an instance which a job makes are among them. For the rights of users, name, tags
    and groups of each instance are also together.
    """
    inputs = job.inputs
    found = {(kind, name): find(kind, name) for kind, name in subjects.named_objects(inputs)}
    for given in inputs:
        _add_new_instance(given, found)
    return {
        "objects": [
            list(one) for one in dict.fromkeys((k, one.name) for (k, _), one in found.items())
        ],
        "tags": sorted({tag for one in found.values() for tag in one.tags}),
        "groups": sorted({group for one in found.values() for group in one.groups}),
        "user": next(filter(None, (author.person(one.get("reason")) for one in inputs)), ""),
        const.INSTANCES: [
            [one.name, sorted(one.tags), sorted(one.groups)]
            for (kind, _), one in found.items()
            if kind == subjects.INSTANCE
        ],
    }


def _add_new_instance(given: Mapping[str, Any], found: dict[tuple[str, str], Named]) -> None:
    """Note the tags of an instance which an opcode makes, and what a new name stands for."""
    old = subjects.INSTANCE, str(given.get("instance_name"))
    new = subjects.INSTANCE, str(given.get("new_name"))
    tags = given.get("tags")
    if given.get("OP_ID") == _CREATE and old in found and isinstance(tags, (list, tuple)):
        added = {tag for tag in tags if isinstance(tag, str)}
        found[old] = found[old]._replace(tags={*found[old].tags, *added})
    elif given.get("OP_ID") in _FROM_ANOTHER and old in found and found.get(new) == Named(new[1]):
        found[new] = found[old]._replace(name=new[1])


def of_line(job_id: int, entry: LogEntry) -> dict[str, Any]:
    """Return the data of the event for a line in the log of a job."""
    serial, when, kind, message = entry
    shown = message
    if kind == LOG_MESSAGE:
        shown = str(message)
        if len(shown) > _MAX_TEXT:
            shown = shown[:_MAX_TEXT] + "..."
    return {
        "id": job_id,
        "serial": serial,
        "type": kind,
        "message": shown,
        "timestamp": clock.merge(when),
    }


def progress_of(job: QueuedJob, lines: Iterable[LogEntry]) -> dict[str, Any]:
    """Return how far a job is.

    :param lines: the last lines of its log.
    :returns: ``done`` and ``total`` number of opcodes, the ``operation`` which runs now (None at
        the end), and its ``percent``; None when its last line names none.
    """
    done = sum(op.published.status in FINALIZED for op in job.ops)
    current = next((op for op in job.ops if op.published.status not in FINALIZED), None)
    percent = None
    for _serial, _when, kind, message in lines:
        match = _PERCENT.search(message) if kind == LOG_MESSAGE else None
        percent = min(100.0, float(match[1])) if match else None
    return {
        "id": job.id,
        "done": done,
        "total": len(job.ops),
        "operation": None if current is None else current.summary(),
        "percent": percent,
    }
