"""The parts of a plan which undoes a change of the configuration.

A *change* is an entry of ``changes`` in the answer to ``QueryConfigChanges``
(``ganeti.master.history.ChangeReport``): kind, UUID and name of an object, and the old and new
values of the attributes which changed. Its :class:`Opposite` has the opcodes which bring the old
values back, and the reasons why some of them do not come back.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.cli import jobs
from ganeti.cli.command import Values
from ganeti.constants.net import VALUE_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode

    Change = Mapping[str, Any]

# Attributes which the cluster itself keeps up to date, or which follow from others.
_FOLLOWS = frozenset(
    (
        *("serial_no", "mtime", "ctime", "uuid"),
        *("disks_active", "admin_state_source", "network_port", "importing_since"),
        *("pending_changes", "forthcoming"),
        *("iv_name", "outdated_node", "outdated_since", "in_sync_at", "never_alone"),
        *("unwiped_from", "reservations", "members", "key_pins", "watchdog"),
        *("candidate_certs", "tcpudp_port_pool", "highest_used_port"),
    )
)
#: Kind of objects in the configuration -> how texts for users name one.
LABELS = {
    "instances": "instance",
    "nodes": "node",
    "nodegroups": "node group",
    "networks": "network",
    "filters": "job filter",
    "documents": "document",
    "access_records": "access record",
    "disks": "disk",
    "cluster": "cluster",
}
_TAG_KINDS = {
    "instances": "instance",
    "nodes": "node",
    "nodegroups": "nodegroup",
    "networks": "network",
    "cluster": "cluster",
}
# The old value of these is a secret.
_SECRET = frozenset({"witness"})


class Opposite:
    """The opposite of the change of one object.

    :ivar name: the name of the object; empty for the cluster.
    :ivar label: what texts for users call it.
    :ivar wanted: the changed attributes for which nothing is planned yet.
    :ivar opcodes: the opcodes of its job, in order.
    :ivar steps: a text for each of them.
    :ivar left: what is not undone, and why.
    :ivar since: a remark about newer changes, for the removal of an object.
    """

    def __init__(self, change: Change, values: Values, later: set[str]) -> None:
        kind = change["kind"]
        self.kind = kind
        self.name = "" if kind == "cluster" else change["name"]
        self.label = f"{LABELS.get(kind, kind)} {self.name}".rstrip()
        self.old: Mapping[str, Any] = change["old"] or {}
        self.new: Mapping[str, Any] = change["new"] or {}
        self.common = jobs.common_params(values)
        self.opcodes: list[OpCode] = []
        self.steps: list[str] = []
        self.left: list[str] = []
        changed = attributes(change)
        self.wanted = changed - later
        self.since = ""
        if change["what"] == "added":
            self.since = f" (it was changed since: {', '.join(sorted(later))})" if later else ""
            return
        for name in sorted(changed & later):
            self.left.append(f"{name} was changed again since")

    def add(self, text: str, opcode: OpCode) -> None:
        """Add an opcode, with a text for users."""
        self.steps.append(text)
        self.opcodes.append(opcode)

    def take(self, name: str) -> bool:
        """Tell whether an attribute is to get its old value, and count it as planned."""
        found = name in self.wanted
        self.wanted.discard(name)
        return found

    def leave_the_rest(self, hints: Mapping[str, str]) -> None:
        """Say of the remaining attributes that no job brings their old values back.

        :param hints: what to do instead, by attribute.
        """
        for name in sorted(self.wanted):
            text = "'gnt-cluster history --diff' shows the old value"
            self.left.append(hints.get(name, f"no job brings {name} back; {text}"))
        self.wanted.clear()


class Known:
    """The names of the objects which exist now, by UUID; each kind is asked for once.

    :param client: for the questions.
    """

    def __init__(self, client: luxi.Client) -> None:
        self._client = client
        self._names: dict[str, dict[str, str]] = {}

    def name(self, kind: str, uuid: str) -> str | None:
        """Return the name of an object; None when it is gone."""
        if kind not in self._names:
            query = {
                "nodes": self._client.query_nodes,
                "nodegroups": self._client.query_groups,
                "networks": self._client.query_networks,
            }[kind]
            self._names[kind] = dict(query([], ["uuid", "name"], False))
        return self._names[kind].get(uuid)

    def instance(self, name: str) -> tuple[str, str, list[str]]:
        """Return disk template, marked state, and the UUIDs of the disks of an instance."""
        ((template, state, disks),) = self._client.query_instances(
            [name], ["disk_template", "admin_state", "disk.uuids"], False
        )
        return template, state, list(disks or ())

    def network(self, name: str) -> str:
        """Return the IPv4 network, as ADDRESS/BITS, of a network."""
        ((found,),) = self._client.query_networks([name], ["network"], False)
        return str(found)


def attributes(change: Change) -> set[str]:
    """Return the names of the changed attributes which a user can have changed."""
    ignored = _FOLLOWS | ({"auto_failover"} if change["kind"] == "nodes" else set())
    return {*(change["old"] or ()), *(change["new"] or ())} - ignored


def back(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters which turn a table of parameters into the old one.

    What the old one did not have gets its default.
    """
    old, new = old or {}, new or {}
    return {
        key: old.get(key, VALUE_DEFAULT)
        for key in sorted({*old, *new})
        if key not in old or key not in new or old[key] != new[key]
    }


def tables_back(
    old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """Return what :func:`back` does, for tables inside a table."""
    old, new = old or {}, new or {}
    found = {key: back(old.get(key), new.get(key)) for key in sorted({*old, *new})}
    return {key: params for key, params in found.items() if params}


def tags_back(one: Opposite) -> None:
    """Plan to bring the former tags of an object back."""
    from ganeti.opcodes.tags import OpTagsDel, OpTagsSet

    if not one.take("tags"):
        return
    old, new = set(one.old.get("tags") or ()), set(one.new.get("tags") or ())
    target = {"kind": _TAG_KINDS[one.kind], "name": one.name or None, **one.common}
    if old - new:
        names = sorted(old - new)
        one.add(f"add the tags {', '.join(names)}", OpTagsSet(tags=names, **target))
    if new - old:
        names = sorted(new - old)
        one.add(f"remove the tags {', '.join(names)}", OpTagsDel(tags=names, **target))


def describe(changes: Mapping[str, Any]) -> str:
    """Return a text for users about parameters which get their old values."""
    parts = []
    for key, value in changes.items():
        if key in _SECRET:
            parts.append(f"{key}=(the former one)")
        else:
            parts += _texts(key, value)
    return f"set {', '.join(parts)}"


def _texts(key: str, value: Any) -> list[str]:
    if not isinstance(value, dict) or not value:
        return [f"{key}={_word(value)}"]
    return [f"{key}/{text}" for name, one in value.items() for text in _texts(name, one)]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        words = (" ".join(one) if isinstance(one, tuple) else str(one) for one in value)
        return ",".join(words) or "(none)"
    return str(value) if value not in (None, "", {}) else "(none)"
