"""Fields of providers of external storage; the rows come from the nodes."""

from __future__ import annotations

from ganeti.constants import query as query_c
from ganeti.constants.query import KIND_OTHER, KIND_TEXT
from ganeti.query.field import Resource
from ganeti.query.resources.rows import row_field, rows

RESOURCE = Resource(
    query_c.EXTSTORAGE,
    [
        row_field("name", "Name", KIND_TEXT, "Name of the provider"),
        row_field("node_status", "NodeStatus", KIND_OTHER, "State on each node"),
        row_field(
            "nodegroup_status",
            "NodegroupStatus",
            KIND_OTHER,
            "For each node group, whether all nodes have the provider",
        ),
        row_field("parameters", "Parameters", KIND_OTHER, "Parameters of the provider"),
    ],
    rows,
)
