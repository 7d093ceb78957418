"""Instances: their list, their creation, and the instance itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ganeti import ht
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.opcodes import types
from ganeti.opcodes.instance import (
    OpInstanceCopy,
    OpInstanceCreate,
    OpInstanceMultiAlloc,
    OpInstanceQueryData,
    OpInstanceRemove,
    OpInstanceRename,
    OpInstanceSetParams,
)
from ganeti.rapi import declare
from ganeti.rapi.call import Call
from ganeti.rapi.checks import build_opcode, fixed_params
from ganeti.rapi.declare import (
    DELETE,
    DRY_RUN,
    GET,
    POST,
    PUT,
    READERS,
    Field,
    Job,
    Query,
    Read,
    Resource,
    Result,
)
from ganeti.rapi.resources.common import Table, tags_resource
from ganeti.wire import json

_FIELDS: Final = (
    "name",
    "admin_state",
    "os",
    "pnode",
    "snodes",
    "disk_template",
    "nic.ips",
    "nic.macs",
    "nic.modes",
    "nic.uuids",
    "nic.names",
    "nic.links",
    "nic.networks",
    "nic.networks.names",
    "nic.bridges",
    "network_port",
    "disk.sizes",
    "disk.spindles",
    "disk_usage",
    "disk.uuids",
    "disk.names",
    "beparams",
    "hvparams",
    "oper_state",
    "oper_ram",
    "oper_vcpus",
    "status",
    "custom_hvparams",
    "custom_beparams",
    "custom_nicparams",
    "custom_osparams",
    "ctime",
    "mtime",
    "uuid",
    "serial_no",
    "tags",
)
_VERSION: Final = "__version__"
PATH: Final = "/2/instances/{instance_name}"


def _with_memory(instance: dict[str, Any]) -> None:
    """Convert the single memory size of older clients."""
    beparams = instance.get("beparams")
    if beparams is not None and "maxmem" in beparams:
        beparams["memory"] = beparams["maxmem"]


TABLE: Final = Table(
    query_const.INSTANCE,
    "QueryInstances",
    "/2/instances",
    _FIELDS,
    id_name="id",
    adjust=_with_memory,
)


def _usb_devices(body: dict[str, Any]) -> None:
    """Convert blanks between devices, as programs write them, to commas."""
    hvparams = body.get("hvparams")
    if isinstance(hvparams, dict) and isinstance(hvparams.get("usb_devices"), str):
        body["hvparams"] = {**hvparams, "usb_devices": hvparams["usb_devices"].replace(" ", ",")}


_CREATE: Final = Job(
    OpInstanceCreate,
    "",
    (DRY_RUN,),
    body=True,
    adjust=_usb_devices,
    rename={"os": "os_type", "name": "instance_name"},
)


def _create(call: Call, body: Mapping[str, Any]) -> list[Any]:
    values = dict(body)
    version = values.pop(_VERSION, 0)
    if isinstance(version, bool) or not isinstance(version, int):
        raise Refused(400, f"'{_VERSION}' must be a number")
    if version == 0:
        raise Refused(
            400,
            f"instance creation request version 0 is no longer supported. Send '{_VERSION}': 1.",
        )
    if version != 1:
        raise Refused(400, f"instance creation request version {version} is not supported")
    return [build_opcode(_CREATE, values, fixed_params(call, _CREATE))]


def _multi_alloc(call: Call, body: Mapping[str, Any]) -> list[Any]:
    instances = []
    for number, one in enumerate(body["instances"]):
        if not isinstance(one, dict):
            raise Refused(400, f"instance {number} is not a JSON object")
        values = dict(one)
        values.pop(_VERSION, None)
        values.pop("OP_ID", None)
        instances.append(build_opcode(_CREATE, values, {}).validate().to_dict())
    return [
        OpInstanceMultiAlloc(
            instances=instances,
            iallocator=body["iallocator"],
            opportunistic_locking=body["opportunistic_locking"],
            dry_run=call.query["dry-run"],
        )
    ]


async def _console(call: Call) -> Any:
    answer = await call.master.call(
        "Query",
        query_const.INSTANCE,
        ["console", "oper_state"],
        ["=", "name", call.uri["instance_name"]],
    )
    if not answer["data"]:
        raise Refused(404, f"instance {call.uri['instance_name']} does not exist")
    (console_status, console), (_state_status, running) = answer["data"][0]
    if console_status != query_const.RS_NORMAL or not running:
        raise Refused(503, "the instance is not running, so it has no console")
    if isinstance(console, str):
        console = json.loads(console)
    return {name: value for name, value in console.items() if value is not None}


def _info(call: Call, _body: Mapping[str, Any]) -> list[Any]:
    return [OpInstanceQueryData(instances=[call.uri["instance_name"]], static=call.query["static"])]


def _details(result: Any, _warnings: list[str]) -> Any:
    """Return the details of the only instance; what no node has reported is null in them."""
    (found,) = result.values()
    return found


RESOURCES: Final = (
    Resource(
        "/2/instances",
        "instances",
        {
            GET: TABLE.read_list("List the instances.", declare.LOCK),
            # The members are the parameters of the opcode, and the version.
            POST: _CREATE._replace(
                doc="Create an instance.",
                build=_create,
                extra={
                    _VERSION: Field(
                        ht.OneOf("version of the request", (1,)),
                        "version of the request: 1",
                        required=True,
                    )
                },
            ),
        },
    ),
    Resource(
        "/2/instances-multi-alloc",
        "instances_multi_alloc",
        {
            POST: Job(
                OpInstanceMultiAlloc,
                "Create several instances, placed together.",
                (DRY_RUN,),
                build=_multi_alloc,
                fields={
                    "instances": Field(
                        ht.ListOf(ht.Dict),
                        "the instances, each like the body of POST /2/instances",
                        required=True,
                    ),
                    "iallocator": Field(types.MaybeString, "allocator which chooses the nodes"),
                    "opportunistic_locking": Field(
                        ht.Bool,
                        "use the nodes which are not locked now, instead of waiting for all",
                        default=False,
                    ),
                },
            ),
        },
    ),
    Resource(
        PATH,
        "instances_name",
        {
            GET: TABLE.read_object("Show an instance."),
            DELETE: Job(
                OpInstanceRemove,
                "Remove an instance.",
                (DRY_RUN,),
                body=True,
                fixed={"ignore_failures": False},
            ),
        },
        tagged=query_const.INSTANCE,
    ),
    Resource(
        f"{PATH}/info",
        "instances_name_info",
        {
            GET: Job(
                OpInstanceQueryData,
                "Describe an instance with all details.",
                (
                    Query("static", "1: from the configuration only", default=False),
                    Query(
                        declare.JOB,
                        "0: answer with the details at once, without a job",
                        default=True,
                    ),
                ),
                fields={},
                build=_info,
                access=declare.USERS,
                result=Result(
                    ht.Or(ht.NonNegInt, ht.Dict), "number of the job, or with job=0 the details"
                ),
                at_once=_details,
            ),
        },
    ),
    Resource(
        f"{PATH}/console",
        "instances_name_console",
        {
            GET: Read(
                _console,
                "The console of an instance; 503 when the instance is not running.",
                Result(ht.Dict, "kind, and host, port, user, command or message"),
                access=READERS,
            ),
        },
    ),
    Resource(
        f"{PATH}/modify",
        "instances_name_modify",
        {
            PUT: Job(
                OpInstanceSetParams,
                "Change the parameters of an instance.",
                body=True,
                adjust=_usb_devices,
                rename={"custom_beparams": "beparams", "custom_hvparams": "hvparams"},
            ),
        },
        tagged=query_const.INSTANCE,
    ),
    Resource(
        f"{PATH}/copy",
        "instances_name_copy",
        {
            POST: Job(
                OpInstanceCopy,
                "Make a new instance from a stopped one, or from a snapshot.",
                (DRY_RUN,),
                body=True,
            )
        },
        tagged=query_const.INSTANCE,
    ),
    Resource(
        f"{PATH}/rename",
        "instances_name_rename",
        {
            PUT: Job(OpInstanceRename, "Rename an instance.", body=True),
        },
        tagged=query_const.INSTANCE,
    ),
    tags_resource(f"{PATH}/tags", "instances_name_tags", "instance", query_const.INSTANCE),
)
