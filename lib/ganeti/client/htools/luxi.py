"""Reading the cluster from the master daemon of this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.cli import failures
from ganeti.constants import query
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import form, rest
from ganeti.luxi import client as luxi

_NODE_FIELDS = (
    "name", "mtotal", "mnode", "mfree", "dtotal", "dfree", "ctotal", "cnos", "offline",
    "drained", "vm_capable", "ndp/spindle_count", "group.uuid", "tags", "ndp/exclusive_storage",
    "sptotal", "spfree", "ndp/cpu_speed", "hv_state", "role", "storage",
)  # fmt: skip
_INSTANCE_FIELDS = (
    "name", "disk_usage", "be/memory", "be/vcpus", "status", "pnode", "snodes", "tags",
    "oper_ram", "be/auto_balance", "disk_template", "be/spindle_use", "disk.sizes",
    "disk.spindles", "forthcoming",
)  # fmt: skip
_GROUP_FIELDS = ("name", "uuid", "alloc_policy", "ipolicy", "tags", "networks")
#: Kind of objects -> the fields to ask for, in the order of :func:`parse_cluster`.
_FIELDS = {
    query.GROUP: _GROUP_FIELDS,
    query.NODE: _NODE_FIELDS,
    query.INSTANCE: _INSTANCE_FIELDS,
}


def connect(socket: str) -> luxi.Client:
    """Connect to the master daemon.

    :param socket: path of its socket; empty for that of this machine.
    :raises NoMasterError: there is no such socket. When it is there and nobody listens, the first
        request says so.
    """
    if socket and not os.path.exists(socket):
        raise errors.NoMasterError(f"there is no socket {socket} of a master daemon")
    return luxi.Client(socket or None, connect_timeout_s=5.0)


def load(socket: str, *, kvm_memory: int = 0) -> Cluster:
    """Read the cluster.

    :param socket: path of the master daemon's socket; empty for that of this machine.
    :raises ParseError: it cannot be read.
    """
    try:
        with connect(socket) as client:
            info = client.query_cluster_info()
            answers = [client.query(what, fields) for what, fields in _FIELDS.items()]
    except errors.NoMasterError as err:
        raise errors.ParseError(str(err)) from err
    except errors.GenericError as err:
        raise errors.ParseError(failures.describe(err)[1]) from err
    return parse_cluster(info, *answers, kvm_memory=kvm_memory)


def parse_cluster(
    info: Any, groups: Any, nodes: Any, instances: Any, *, kvm_memory: int = 0
) -> Cluster:
    """Read a cluster from answers of the master daemon.

    :param info: the answer about the cluster.
    :param groups: the answer to the question for the fields of groups; likewise ``nodes`` and
        ``instances``.
    :param kvm_memory: MiB that replace what nodes with KVM report for themselves; 0 for nothing.
    :raises ParseError: an answer has another form.
    """
    with form.checked("an answer of the master daemon"):
        return rest.make(
            _rows(groups, _GROUP_FIELDS),
            [_node(row) for row in _rows(nodes, _NODE_FIELDS)],
            [_instance(row) for row in _rows(instances, _INSTANCE_FIELDS)],
            info,
            kvm_memory=kvm_memory,
        )


def _rows(found: Any, fields: Sequence[str]) -> list[dict[str, Any]]:
    """One dictionary for each object; a value that is not known is left out."""
    return [
        {
            field: value
            for field, (status, value) in zip(fields, row, strict=True)
            if status == query.RS_NORMAL
        }
        for row in found["data"]
    ]


def parse_job_states(rows: Any, numbers: Sequence[int]) -> list[str | None]:
    """Read the states of jobs from an answer about their field ``status``.

    :returns: a state for each number; None for a job which is not in the queue.
    :raises ParseError: the answer has another form.
    """
    with form.checked("an answer of the master daemon about jobs"):
        return [
            None if row is None else _state(row[0]) for _, row in zip(numbers, rows, strict=True)
        ]


def parse_archived_state(found: Any) -> str | None:
    """Read the state of a job from an answer about the archive; None when it is not there.

    :raises ParseError: the answer has another form.
    """
    with form.checked("an answer of the master daemon about archived jobs"):
        rows = found["data"]
        return _state(rows[0][0][1]) if rows else None


def _state(value: Any) -> str:
    if not isinstance(value, str):
        raise errors.ParseError(f"the state of a job has the wrong value {value!r:.100}")
    return value


def _node(row: dict[str, Any]) -> dict[str, Any]:
    parameters = {
        name: row[f"ndp/{name}"]
        for name in ("spindle_count", "exclusive_storage", "cpu_speed")
        if f"ndp/{name}" in row
    }
    return {**row, "ndparams": parameters}


def _instance(row: dict[str, Any]) -> dict[str, Any]:
    backend = {
        "maxmem": row.get("be/memory", 0),
        "vcpus": row.get("be/vcpus", 0),
        "auto_balance": row.get("be/auto_balance", True),
        "spindle_use": row.get("be/spindle_use", 1),
    }
    return {**row, "beparams": backend, "pnode": row.get("pnode") or ""}
