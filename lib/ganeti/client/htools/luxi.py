"""Reading the cluster from the master daemon of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.cli import failures
from ganeti.constants import query
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import rest
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


def connect(socket: str) -> luxi.Client:
    """Connect to the master daemon.

    :param socket: path of its socket; empty for that of this machine.
    """
    return luxi.Client(socket or None, connect_timeout_s=5.0)


def load(socket: str, *, kvm_memory: int = 0) -> Cluster:
    """Read the cluster.

    :param socket: path of the master daemon's socket; empty for that of this machine.
    :raises ParseError: it cannot be read.
    """
    try:
        with connect(socket) as client:
            info = client.query_cluster_info()
            groups = _rows(client, query.GROUP, _GROUP_FIELDS)
            nodes = [_node(row) for row in _rows(client, query.NODE, _NODE_FIELDS)]
            instances = [_instance(row) for row in _rows(client, query.INSTANCE, _INSTANCE_FIELDS)]
    except errors.GenericError as err:
        raise errors.ParseError(failures.describe(err)[1]) from err
    return rest.make(groups, nodes, instances, info, kvm_memory=kvm_memory)


def _rows(client: luxi.Client, what: str, fields: Sequence[str]) -> list[dict[str, Any]]:
    """One dictionary for each object; a value that is not known is left out."""
    found = client.query(what, fields)
    return [
        {
            field: value
            for field, (status, value) in zip(fields, row, strict=True)
            if status == query.RS_NORMAL
        }
        for row in found["data"]
    ]


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
