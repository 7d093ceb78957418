"""Nodes, their roles and their storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ganeti import ht
from ganeti.constants import disk as disk_const
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.opcodes.node import (
    OpNodeEvacuate,
    OpNodeMaintenanceEnd,
    OpNodeMaintenanceStart,
    OpNodeMigrate,
    OpNodeModifyStorage,
    OpNodePowercycle,
    OpNodeQueryStorage,
    OpNodeSetParams,
    OpRepairNodeStorage,
)
from ganeti.rapi import declare
from ganeti.rapi.call import Call
from ganeti.rapi.checks import build_opcode, fixed_params
from ganeti.rapi.declare import (
    DELETE,
    DRY_RUN,
    FORCE,
    GET,
    POST,
    PUT,
    Job,
    Query,
    Read,
    Resource,
    Result,
)
from ganeti.rapi.resources.common import Table, tags_resource

_FIELDS: Final = (
    "name",
    "offline",
    "master_candidate",
    "drained",
    "dtotal",
    "dfree",
    "sptotal",
    "spfree",
    # Storage units, or null ("HTools support for multiple storage units per node").
    "storage",
    "mtotal",
    "mnode",
    "mfree",
    "pinst_cnt",
    "sinst_cnt",
    "ctotal",
    "cnos",
    "cnodes",
    "csockets",
    "pip",
    "sip",
    "role",
    "pinst_list",
    "sinst_list",
    "master_capable",
    "vm_capable",
    "ndparams",
    "group.uuid",
    "ctime",
    "mtime",
    "uuid",
    "serial_no",
    "tags",
)
_PATH: Final = "/2/nodes/{node_name}"

# Letter of a role in lists -> its name in this interface.
ROLES: Final = {
    "M": "master",
    "C": "master-candidate",
    "R": "regular",
    "D": "drained",
    "O": "offline",
}
_REGULAR, _CANDIDATE, _DRAINED, _OFFLINE = "regular", "master-candidate", "drained", "offline"
_FLAGS: Final[Mapping[str, Mapping[str, bool | None]]] = {
    _REGULAR: {"master_candidate": False, "offline": False, "drained": False},
    _CANDIDATE: {"master_candidate": True, "offline": None, "drained": None},
    _DRAINED: {"master_candidate": None, "offline": None, "drained": True},
    _OFFLINE: {"master_candidate": None, "offline": True, "drained": None},
}
_ROLE: Final = ht.OneOf("role of a node", ROLES.values())

TABLE: Final = Table(query_const.NODE, "QueryNodes", "/2/nodes", _FIELDS, id_name="id")


async def _show(call: Call) -> dict[str, Any]:
    found = await TABLE.show(call)
    # This resource also accepts the name which commands use.
    found["secondary_ip"] = found["sip"]
    return found


async def _role(call: Call) -> str:
    rows = await call.master.call("QueryNodes", [call.uri["node_name"]], ["role"], False)
    if not rows:
        raise Refused(404, f"node {call.uri['node_name']} does not exist")
    return ROLES[rows[0][0]]


async def _maintenance(call: Call) -> dict[str, Any] | None:
    name = call.uri["node_name"]
    fields = ["maintenance", "maintenance.record"]
    rows = await call.master.call("QueryNodes", [name], fields, False)
    if not rows:
        raise Refused(404, f"node {name} does not exist")
    state, record = rows[0]
    return None if state is None else {"state": state, **record}


def _set_role(call: Call, _body: Mapping[str, Any]) -> list[Any]:
    role = call.body
    if role not in _FLAGS:
        raise Refused(
            400, "a node becomes master by 'gnt-cluster master-failover', not by this interface"
        )
    return [
        OpNodeSetParams(
            node_name=call.uri["node_name"],
            force=call.query["force"],
            auto_promote=call.query["auto-promote"],
            **_FLAGS[role],
        )
    ]


def _migrate(call: Call, body: Mapping[str, Any]) -> list[Any]:
    values = dict(body)
    fixed = fixed_params(call, _MIGRATE)
    if call.given & {"live", "mode"}:
        if {"live", "mode"} <= call.given:
            raise Refused(400, "query arguments 'live' and 'mode' exclude each other")
        live = call.query["live"]
        mode = call.query["mode"] if live is None else "live" if live else "non-live"
        values = {"mode": mode}
    if values.get("live") is not None and values.get("mode") is not None:
        raise Refused(400, "parameters 'live' and 'mode' exclude each other")
    return [build_opcode(_MIGRATE, values, fixed)]


_MIGRATE: Final = Job(
    OpNodeMigrate,
    "Migrate all instances which run on a node.",
    (
        Query("live", "older form of the parameter mode in the body: 1 live, 0 non-live"),
        Query("mode", "older form of the parameter in the body", declare.TEXT),
    ),
    body=True,
    build=_migrate,
)

_STORAGE_TYPE: Final = Query(
    "storage_type",
    "kind of storage",
    declare.TEXT,
    param="storage_type",
    required=True,
    choices=tuple(sorted(disk_const.STORAGE_TYPES)),
)
_UNIT: Final = Query("name", "name of the storage unit", declare.TEXT, param="name", required=True)


def _storage(call: Call, _body: Mapping[str, Any]) -> list[Any]:
    return [
        OpNodeQueryStorage(
            nodes=[call.uri["node_name"]],
            storage_type=call.query["storage_type"],
            output_fields=call.query["output_fields"],
        )
    ]


def _modify_storage(call: Call, _body: Mapping[str, Any]) -> list[Any]:
    changes = {}
    if "allocatable" in call.given:
        changes["allocatable"] = call.query["allocatable"]
    return [
        OpNodeModifyStorage(
            node_name=call.uri["node_name"],
            storage_type=call.query["storage_type"],
            name=call.query["name"],
            changes=changes,
        )
    ]


RESOURCES: Final = (
    Resource(
        "/2/nodes",
        "nodes",
        {
            GET: TABLE.read_list("List the nodes."),
        },
    ),
    Resource(
        _PATH,
        "nodes_name",
        {
            GET: Read(
                _show,
                "Show a node.",
                Result(ht.Dict, "the node", (*_FIELDS, "secondary_ip")),
                (declare.LOCK,),
            ),
        },
        tagged=query_const.NODE,
    ),
    Resource(
        f"{_PATH}/evacuate",
        "nodes_name_evacuate",
        {
            POST: Job(
                OpNodeEvacuate,
                "Move the instances of a node to other nodes. The result of the job names"
                " the jobs which move them.",
                (DRY_RUN,),
                body=True,
            ),
        },
        tagged=query_const.NODE,
    ),
    Resource(
        f"{_PATH}/maintenance",
        "nodes_name_maintenance",
        {
            GET: Read(
                _maintenance,
                "The state of the maintenance of a node.",
                Result(
                    ht.Or(ht.NoneType, ht.Dict),
                    "null without a maintenance; otherwise its state (leaving, ready or returning)"
                    " and what its end brings back",
                ),
                (declare.LOCK,),
            ),
            PUT: Job(
                OpNodeMaintenanceStart,
                "Start the maintenance of a node. The result of the job names the jobs which move"
                " its instances; when the last of them has succeeded, no guest runs there.",
                (DRY_RUN,),
                body=True,
            ),
            DELETE: Job(
                OpNodeMaintenanceEnd,
                "End the maintenance of a node. The result of the job names the jobs which bring"
                " back what it had.",
                (DRY_RUN,),
                body=True,
            ),
        },
        tagged=query_const.NODE,
    ),
    Resource(f"{_PATH}/migrate", "nodes_name_migrate", {POST: _MIGRATE}, tagged=query_const.NODE),
    Resource(
        f"{_PATH}/modify",
        "nodes_name_modify",
        {
            POST: Job(OpNodeSetParams, "Change the parameters of a node.", body=True),
        },
        tagged=query_const.NODE,
    ),
    Resource(
        f"{_PATH}/powercycle",
        "nodes_name_powercycle",
        {
            POST: Job(OpNodePowercycle, "Power-cycle a node.", (FORCE,), body=True),
        },
        tagged=query_const.NODE,
    ),
    Resource(
        f"{_PATH}/role",
        "nodes_name_role",
        {
            GET: Read(_role, "The role of a node.", Result(_ROLE, "the role"), (declare.LOCK,)),
            PUT: Job(
                OpNodeSetParams,
                "Change the role of a node.",
                (
                    FORCE,
                    Query(
                        "auto-promote",
                        "1: promote other nodes to candidates instead",
                        default=False,
                    ),
                ),
                fields=_ROLE,
                build=_set_role,
            ),
        },
        tagged=query_const.NODE,
    ),
    Resource(
        f"{_PATH}/storage",
        "nodes_name_storage",
        {
            GET: Job(
                OpNodeQueryStorage,
                "List the storage units of a node.",
                (
                    _STORAGE_TYPE,
                    Query(
                        "output_fields",
                        "fields wanted, separated by commas",
                        declare.WORDS,
                        required=True,
                    ),
                ),
                fields={},
                build=_storage,
            ),
        },
    ),
    Resource(
        f"{_PATH}/storage/modify",
        "nodes_name_storage_modify",
        {
            PUT: Job(
                OpNodeModifyStorage,
                "Change a storage unit.",
                (
                    _STORAGE_TYPE,
                    _UNIT,
                    Query("allocatable", "1: new disks may be created there, 0: not"),
                ),
                fields={},
                build=_modify_storage,
            ),
        },
        tagged=query_const.NODE,
    ),
    Resource(
        f"{_PATH}/storage/repair",
        "nodes_name_storage_repair",
        {
            PUT: Job(OpRepairNodeStorage, "Repair a storage unit.", (_STORAGE_TYPE, _UNIT)),
        },
        tagged=query_const.NODE,
    ),
    tags_resource(f"{_PATH}/tags", "nodes_name_tags", "node", query_const.NODE),
)
