"""Node groups."""

from __future__ import annotations

from typing import Final

from ganeti.constants import query as query_const
from ganeti.opcodes.group import (
    OpGroupAdd,
    OpGroupAssignNodes,
    OpGroupRemove,
    OpGroupRename,
    OpGroupSetParams,
)
from ganeti.rapi.declare import DELETE, DRY_RUN, FORCE, GET, POST, PUT, Job, Resource
from ganeti.rapi.resources.common import Table, tags_resource

_FIELDS: Final = (
    "alloc_policy",
    "name",
    "node_cnt",
    "node_list",
    "ipolicy",
    "custom_ipolicy",
    "diskparams",
    "custom_diskparams",
    "ndparams",
    "custom_ndparams",
    "ctime",
    "mtime",
    "uuid",
    "serial_no",
    "tags",
)
_PATH: Final = "/2/groups/{group_name}"

TABLE: Final = Table(query_const.GROUP, "QueryGroups", "/2/groups", _FIELDS)

RESOURCES: Final = (
    Resource(
        "/2/groups",
        "groups",
        {
            GET: TABLE.read_list("List the node groups."),
            POST: Job(
                OpGroupAdd,
                "Create a node group.",
                (DRY_RUN,),
                body=True,
                rename={"name": "group_name"},
            ),
        },
    ),
    Resource(
        _PATH,
        "groups_name",
        {
            GET: TABLE.read_object("Show a node group."),
            DELETE: Job(OpGroupRemove, "Remove an empty node group.", (DRY_RUN,)),
        },
        tagged=query_const.GROUP,
    ),
    Resource(
        f"{_PATH}/modify",
        "groups_name_modify",
        {
            PUT: Job(
                OpGroupSetParams,
                "Change the parameters of a node group.",
                body=True,
                rename={
                    "custom_ndparams": "ndparams",
                    "custom_ipolicy": "ipolicy",
                    "custom_diskparams": "diskparams",
                },
            ),
        },
        tagged=query_const.GROUP,
    ),
    Resource(
        f"{_PATH}/rename",
        "groups_name_rename",
        {
            PUT: Job(OpGroupRename, "Rename a node group.", (DRY_RUN,), body=True),
        },
        tagged=query_const.GROUP,
    ),
    Resource(
        f"{_PATH}/assign-nodes",
        "groups_name_assign_nodes",
        {
            PUT: Job(
                OpGroupAssignNodes, "Move nodes into this group.", (DRY_RUN, FORCE), body=True
            ),
        },
        tagged=query_const.GROUP,
    ),
    tags_resource(f"{_PATH}/tags", "groups_name_tags", "nodegroup", "nodegroup")._replace(
        tagged=query_const.GROUP
    ),
)
