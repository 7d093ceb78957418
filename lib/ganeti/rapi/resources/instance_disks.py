"""The disks of an instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ganeti import ht
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.opcodes.instance import (
    OpInstanceActivateDisks,
    OpInstanceDeactivateDisks,
    OpInstanceGrowDisk,
    OpInstanceRecreateDisks,
    OpInstanceReplaceDisks,
    OpInstanceSnapshot,
    OpInstanceSnapshotList,
    OpInstanceSnapshotRemove,
    OpInstanceSnapshotRestore,
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
    Resource,
    Result,
)
from ganeti.rapi.resources.instances import PATH


def _grow(call: Call, body: Mapping[str, Any]) -> list[Any]:
    text = call.uri["disk_index"]
    # A number with many digits is passed on; the opcode refuses it.
    fixed = {**fixed_params(call, _GROW), "disk": int(text[:9])}
    if "disk" in body:
        raise Refused(400, "parameter 'disk' cannot be given in the body")
    return [build_opcode(_GROW, dict(body), fixed)]


def _numbers(disks: Any) -> Any:
    """Convert ``"0,1"`` and ``["0", 1]`` to numbers; other values are refused by the opcode.

    :raises Refused: a text which is not a list of numbers.
    """
    if not isinstance(disks, str):
        return disks
    words = [word.strip() for word in disks.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        raise Refused(400, f"'disks' must be numbers separated by commas, not '{disks[:100]}'")
    return [int(word) for word in words]


def _replace(call: Call, body: Mapping[str, Any]) -> list[Any]:
    values = dict(body)
    if not values:
        values = {
            name: call.query[name]
            for name in ("remote_node", "mode", "disks", "iallocator")
            if name in call.given
        }
    if "disks" in values:
        values["disks"] = _numbers(values["disks"])
        if values["disks"] is None:
            del values["disks"]
    return [build_opcode(_REPLACE, values, fixed_params(call, _REPLACE))]


_GROW: Final = Job(
    OpInstanceGrowDisk, "Grow a disk.", body=True, uri={"disk_index": "disk"}, build=_grow
)
_REPLACE: Final = Job(
    OpInstanceReplaceDisks,
    "Replace the storage of mirrored disks.",
    (
        Query("disks", "older form of the parameter in the body: 0,1", declare.TEXT),
        Query("mode", "older form of the parameter in the body", declare.TEXT),
        Query("remote_node", "older form of the parameter in the body", declare.TEXT),
        Query("iallocator", "older form of the parameter in the body", declare.TEXT),
    ),
    body=True,
    build=_replace,
)


def _list_snapshots(call: Call, _body: Mapping[str, Any]) -> list[Any]:
    return [OpInstanceSnapshotList(instances=[call.uri["instance_name"]])]


def _snapshots(result: Any, warnings: list[str]) -> Any:
    return {"snapshots": result, "warnings": warnings}


_SNAPSHOT: Final = f"{PATH}/snapshots/{{snapshot_name}}"

RESOURCES: Final = (
    Resource(
        f"{PATH}/activate-disks",
        "instances_name_activate_disks",
        {
            PUT: Job(
                OpInstanceActivateDisks,
                "Activate the disks on the nodes of the instance.",
                (
                    Query(
                        "ignore_size",
                        "1: ignore the recorded sizes of the disks",
                        default=False,
                        param="ignore_size",
                    ),
                ),
            ),
        },
        tagged=query_const.INSTANCE,
    ),
    Resource(
        f"{PATH}/deactivate-disks",
        "instances_name_deactivate_disks",
        {
            PUT: Job(OpInstanceDeactivateDisks, "Deactivate the disks.", (FORCE,)),
        },
        tagged=query_const.INSTANCE,
    ),
    Resource(
        f"{PATH}/recreate-disks",
        "instances_name_recreate_disks",
        {
            POST: Job(OpInstanceRecreateDisks, "Recreate lost disks, empty.", body=True),
        },
        tagged=query_const.INSTANCE,
    ),
    Resource(
        f"{PATH}/replace-disks",
        "instances_name_replace_disks",
        {POST: _REPLACE},
        tagged=query_const.INSTANCE,
    ),
    Resource(
        f"{PATH}/snapshots",
        "instances_name_snapshots",
        {
            GET: Job(
                OpInstanceSnapshotList,
                "List the snapshots of the disks of an instance.",
                (Query(declare.JOB, "1: submit a job, whose result is the list", default=False),),
                fields={},
                build=_list_snapshots,
                access=declare.USERS,
                result=Result(
                    ht.Or(ht.Dict, ht.NonNegInt),
                    "the snapshots, and warnings about nodes that did not report theirs; or with"
                    " job=1 the number of the job",
                    ("snapshots", "warnings"),
                ),
                at_once=_snapshots,
            ),
            POST: Job(
                OpInstanceSnapshot,
                "Make a snapshot of disks.",
                (DRY_RUN,),
                body=True,
            ),
        },
        tagged=query_const.INSTANCE,
    ),
    Resource(
        _SNAPSHOT,
        "instances_name_snapshots_name",
        {
            DELETE: Job(OpInstanceSnapshotRemove, "Remove a snapshot.", (DRY_RUN,)),
        },
        tagged=query_const.INSTANCE,
    ),
    Resource(
        f"{_SNAPSHOT}/restore",
        "instances_name_snapshots_name_restore",
        {
            POST: Job(
                OpInstanceSnapshotRestore,
                "Restore the disks of a stopped instance from a snapshot.",
                (DRY_RUN,),
            ),
        },
        tagged=query_const.INSTANCE,
    ),
    Resource(
        f"{PATH}/disk/{{disk_index}}/grow",
        "instances_name_disk_grow",
        {POST: _GROW},
        tagged=query_const.INSTANCE,
    ),
)
