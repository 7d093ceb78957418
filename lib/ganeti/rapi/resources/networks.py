"""Networks."""

from __future__ import annotations

from typing import Final

from ganeti.constants import query as query_const
from ganeti.opcodes.network import (
    OpNetworkAdd,
    OpNetworkConnect,
    OpNetworkDisconnect,
    OpNetworkRemove,
    OpNetworkRename,
    OpNetworkSetParams,
)
from ganeti.rapi.declare import DELETE, DRY_RUN, GET, POST, PUT, Job, Resource
from ganeti.rapi.resources.common import Table, tags_resource

_FIELDS: Final = (
    *query_const.NETWORK_FIELDS,
    "ctime",
    "mtime",
    "uuid",
    "serial_no",
    "tags",
)
_PATH: Final = "/2/networks/{network_name}"

TABLE: Final = Table(query_const.NETWORK, "QueryNetworks", "/2/networks", _FIELDS)

RESOURCES: Final = (
    Resource(
        "/2/networks",
        "networks",
        {
            GET: TABLE.read_list("List the networks."),
            POST: Job(
                OpNetworkAdd,
                "Create a network.",
                (DRY_RUN,),
                body=True,
                rename={"name": "network_name"},
            ),
        },
    ),
    Resource(
        _PATH,
        "networks_name",
        {
            GET: TABLE.read_object("Show a network."),
            DELETE: Job(OpNetworkRemove, "Remove a network.", (DRY_RUN,), body=True),
        },
        tagged=query_const.NETWORK,
    ),
    Resource(
        f"{_PATH}/connect",
        "networks_name_connect",
        {
            PUT: Job(OpNetworkConnect, "Connect a network to a node group.", (DRY_RUN,), body=True),
        },
        tagged=query_const.NETWORK,
    ),
    Resource(
        f"{_PATH}/disconnect",
        "networks_name_disconnect",
        {
            PUT: Job(
                OpNetworkDisconnect,
                "Disconnect a network from a node group.",
                (DRY_RUN,),
                body=True,
            ),
        },
        tagged=query_const.NETWORK,
    ),
    Resource(
        f"{_PATH}/modify",
        "networks_name_modify",
        {
            PUT: Job(OpNetworkSetParams, "Change the parameters of a network.", body=True),
        },
        tagged=query_const.NETWORK,
    ),
    Resource(
        f"{_PATH}/rename",
        "networks_name_rename",
        {
            PUT: Job(OpNetworkRename, "Rename a network.", (DRY_RUN,), body=True),
        },
        tagged=query_const.NETWORK,
    ),
    tags_resource(f"{_PATH}/tags", "networks_name_tags", "network", query_const.NETWORK),
)
