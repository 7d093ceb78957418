"""The closing line of a command: one sentence for each object which a finished job has changed.

On a terminal, a command which has waited for a job ends with what is so now, and how long it took::

    web1.example.com runs on node2, console: gnt-instance console web1 (3.1 s)
    web2.example.com was stopped already (0.2 s)

The sentences are made from the opcodes of the job, their results and its log. Other outputs do not
have these lines, so what programs read is as published (``doc/output.rst``). An opcode without a
sentence in :data:`SENTENCES` changes nothing, or its command says itself what happened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import terminal
from ganeti.constants import job as const

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode

_JOB_FIELDS = ("received_ts", "opstart", "opend", "oplog")


class Done:
    """An opcode which was carried out, and what the master knows of its object now.

    :ivar result: the result of the opcode.
    :ivar already: the object was in the wanted state before.
    """

    def __init__(self, client: luxi.Client, op: OpCode, result: Any, *, already: bool) -> None:
        self._client = client
        self.op = op
        self.result = result
        self.already = already

    def text(self) -> str:
        """Return the sentence without its full stop; empty when there is none for the opcode."""
        sentence = SENTENCES.get(self.op.OP_ID, "")
        return sentence(self) if callable(sentence) else sentence.format(**vars(self.op))

    def instance(self, name: str = "") -> tuple[str, str, str]:
        """Return name, primary node and hypervisor of the instance.

        :param name: its name, if the opcode does not have it.
        """
        given = name or str(self.op.instance_name)  # type: ignore[attr-defined]
        ((found, node, hypervisor),) = self._client.query_instances(
            [given], ["name", "pnode", "hypervisor"], False
        )
        return found, self.shortest(node, self._client.query_nodes), hypervisor

    def is_marked_up(self) -> bool:
        """Return whether the instance of the opcode should run."""
        name = self.op.instance_name  # type: ignore[attr-defined]
        return bool(self._client.query_instances([name], ["admin_state"], False) == [["up"]])

    def pending(self, name: str) -> list[str]:
        """Return the changes of an instance which wait for a restart of its guest."""
        ((found,),) = self._client.query_instances([name], ["pending_changes"], False)
        return list(found or ())

    def shortest(self, name: str, query: Callable[[list[str], list[str], bool], Any]) -> str:
        """Return the first part of a host name if it names no other object."""
        short = name.partition(".")[0]
        try:
            return short if query([short], ["name"], False) == [[name]] else name
        except errors.OpPrereqError:  # several objects
            return name

    def short_instance(self, name: str) -> str:
        """Return the shortest name of an instance."""
        return self.shortest(name, self._client.query_instances)


def show(
    client: luxi.Client, job_id: int, opcodes: Sequence[OpCode] | None, results: Sequence[Any]
) -> None:
    """Write the closing lines of a job which has succeeded.

    :param opcodes: None for a job which another job has submitted: the master is asked.
    :param results: a result for each opcode.
    """
    if opcodes is not None and not any(op.OP_ID in SENTENCES for op in opcodes):
        return
    try:
        (row,) = client.query_jobs([job_id], [*_JOB_FIELDS, *(["ops"] if opcodes is None else [])])
        if row is None:
            return
        if opcodes is None:
            from ganeti import opcodes as known

            opcodes = [known.from_dict(op) for op in row.pop()]
        lines = _lines(client, opcodes, results, row)
    except errors.GenericError:
        # The job has succeeded. That the master does not answer any more is no failure of it.
        return
    for line in lines:
        terminal.out(terminal.wrapped(line, sys.stdout))


def _lines(
    client: luxi.Client, opcodes: Sequence[OpCode], results: Sequence[Any], row: Sequence[Any]
) -> list[str]:
    received, starts, ends, logs = row
    lines = []
    for index, (op, result) in enumerate(zip(opcodes, results, strict=False)):
        already = any(entry[2] == const.LOG_ALREADY for entry in logs[index])
        text = Done(client, op, result, already=already).text()
        if text:
            begin = received if index == 0 else starts[index]
            lines.append(f"{text} ({duration(begin, ends[index])})")
    return lines


def duration(begin: Sequence[int], end: Sequence[int]) -> str:
    """Return the time between two time stamps ``[seconds, microseconds]`` for users."""
    seconds = max(end[0] - begin[0] + (end[1] - begin[1]) / 1e6, 0.0)
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _runs(done: Done, verb: str = "runs", name: str = "") -> str:
    # Only a started instance needs the descriptors.
    from ganeti.objects import hypervisors

    name, node, hypervisor = done.instance(name)
    console = f", console: gnt-instance console {done.short_instance(name)}"
    return f"{name} {verb} on {node}{console if hypervisors.of(hypervisor).runs_guests else ''}"


def _started(done: Done) -> str:
    return _runs(done, "was started already, and runs" if done.already else "runs")


def _stopped(done: Done) -> str:
    return f"{done.instance()[0]} {'was stopped already' if done.already else 'is stopped'}"


def _created(done: Done) -> str:
    op: Any = done.op
    # Without an operating system it is not started.
    if op.start and not op.forthcoming and done.is_marked_up():
        return _runs(done)
    name, node, _ = done.instance()
    state = "is reserved" if op.forthcoming else "is made, and stopped,"
    return f"{name} {state} on {node}"


def _copied(done: Done) -> str:
    op: Any = done.op
    if op.start:
        return _runs(done, f"is a copy of {op.instance_name}, and runs", op.new_name)
    name, node, _ = done.instance(op.new_name)
    start = f"start it: gnt-instance startup {done.short_instance(name)}"
    return f"{name} is a copy of {op.instance_name}, stopped, on {node}; {start}"


def _moved(done: Done) -> str:
    name, node, _ = done.instance()
    return f"{name} is on {node} now"


def _renamed(done: Done) -> str:
    return f"{done.op.instance_name} is {done.result} now"  # type: ignore[attr-defined]


def _of_instance(sentence: str) -> Callable[[Done], str]:
    """Return a function that makes a sentence with the whole name of the instance."""

    def make(done: Done) -> str:
        name, node, _ = done.instance()
        words = {**vars(done.op), "instance": name, "node": node, "result": done.result}
        return sentence.format(**words)

    return make


def _grown(done: Done) -> str:
    from ganeti.utils import text

    op: Any = done.op
    size = text.format_unit(op.amount)
    how = f"has {size}" if op.absolute else f"is {size} larger"
    return f"disk {op.disk} of {done.instance()[0]} {how}"


def _modified(done: Done) -> str:
    """Return the sentence for a modified instance, with what waits for a restart."""
    text = _changed("{instance_name}")(done)
    name = done.op.instance_name  # type: ignore[attr-defined]
    waiting = done.pending(name)
    return (
        f"{text}; in effect after a restart with gnt-instance: {', '.join(waiting)}"
        if waiting
        else text
    )


def _changed(what: str) -> Callable[[Done], str]:
    """Return a function for an opcode whose result is a list of changes."""

    def make(done: Done) -> str:
        name = what.format(**vars(done.op))
        if what == "{instance_name}":
            name = done.instance()[0]
        changes = ", ".join(f"{what} is {value}" for what, value in done.result or ())
        return f"{name} is changed{f': {changes}' if changes else ''}"

    return make


def _tags(verb: str) -> Callable[[Done], str]:
    def make(done: Done) -> str:
        op: Any = done.op
        owner = "the cluster" if op.kind == "cluster" else f"{op.kind} {op.name}"
        if op.kind == "instance":
            owner = done.instance(op.name)[0]
        some = f"the tag{'s' if len(op.tags) > 1 else ''} {', '.join(op.tags)}"
        return f"{owner} {verb} {some}"

    return make


def _nodes_assigned(done: Done) -> str:
    op: Any = done.op
    several = len(op.nodes) > 1
    return (
        f"node{'s' if several else ''} {', '.join(op.nodes)} {'are' if several else 'is'} in group"
        f" {op.group_name}"
    )


def _exported(done: Done) -> str:
    op: Any = done.op
    if op.remove_instance:
        return f"{op.instance_name} is exported to {op.target_node} and removed"
    return f"{done.instance()[0]} is exported to {op.target_node}"


#: ID of an opcode -> its sentence: a text with fields of the opcode, or a function which makes it.
SENTENCES: dict[str, str | Callable[[Done], str]] = {
    "OP_BACKUP_EXPORT": _exported,
    "OP_BACKUP_REMOVE": "the export of {instance_name} is removed",
    "OP_CLUSTER_ACTIVATE_MASTER_IP": "the address of the cluster is active on the master",
    "OP_CLUSTER_DEACTIVATE_MASTER_IP": "the address of the cluster is not active any more",
    "OP_CLUSTER_REDIST_CONF": "all nodes have the files of the cluster",
    "OP_CLUSTER_SET_PARAMS": "the cluster is changed",
    "OP_GROUP_ADD": "group {group_name} is added",
    "OP_GROUP_ASSIGN_NODES": _nodes_assigned,
    "OP_GROUP_REMOVE": "group {group_name} is removed",
    "OP_GROUP_RENAME": "group {group_name} is {new_name} now",
    "OP_GROUP_SET_PARAMS": _changed("group {group_name}"),
    "OP_INSTANCE_ACTIVATE_DISKS": _of_instance("the disks of {instance} are active on {node}"),
    "OP_INSTANCE_COPY": _copied,
    "OP_INSTANCE_CREATE": _created,
    "OP_INSTANCE_DEACTIVATE_DISKS": _of_instance("the disks of {instance} are not active"),
    "OP_INSTANCE_FAILOVER": _moved,
    "OP_INSTANCE_GROW_DISK": _grown,
    "OP_INSTANCE_MIGRATE": _moved,
    "OP_INSTANCE_MOVE": _moved,
    "OP_INSTANCE_REBOOT": lambda done: _runs(done, "was restarted, and runs"),
    "OP_INSTANCE_RECREATE_DISKS": _of_instance("the disks of {instance} are made again"),
    "OP_INSTANCE_REINSTALL": _of_instance("{instance} is installed again, and stopped"),
    "OP_INSTANCE_REMOVE": "{instance_name} is removed",
    "OP_INSTANCE_RENAME": _renamed,
    "OP_INSTANCE_REPLACE_DISKS": _of_instance("the disks of {instance} are replaced"),
    "OP_INSTANCE_SET_PARAMS": _modified,
    "OP_INSTANCE_SHUTDOWN": _stopped,
    "OP_INSTANCE_SNAPSHOT": _of_instance("{instance} has the snapshot {result}"),
    "OP_INSTANCE_SNAPSHOT_REMOVE": _of_instance(
        "snapshot {snapshot_name} of {instance} is removed"
    ),
    "OP_INSTANCE_SNAPSHOT_RESTORE": _of_instance(
        "{instance} has its disks of snapshot {snapshot_name}"
    ),
    "OP_INSTANCE_STARTUP": _started,
    "OP_NETWORK_ADD": "network {network_name} is added",
    "OP_NETWORK_CONNECT": "network {network_name} is connected",
    "OP_NETWORK_DISCONNECT": "network {network_name} is disconnected",
    "OP_NETWORK_REMOVE": "network {network_name} is removed",
    "OP_NETWORK_RENAME": "network {network_name} is {new_name} now",
    "OP_NETWORK_SET_PARAMS": "network {network_name} is changed",
    "OP_NODE_ADD": "node {node_name} is in the cluster",
    "OP_NODE_MODIFY_STORAGE": "storage {name} of node {node_name} is changed",
    "OP_NODE_POWERCYCLE": "node {node_name} restarts",
    "OP_NODE_REMOVE": "node {node_name} is removed",
    "OP_NODE_SET_PARAMS": _changed("node {node_name}"),
    "OP_REPAIR_NODE_STORAGE": "storage {name} of node {node_name} is repaired",
    "OP_TAGS_DEL": _tags("does not have"),
    "OP_TAGS_SET": _tags("has"),
}
