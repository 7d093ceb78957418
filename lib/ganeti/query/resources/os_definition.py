"""Fields of OS definitions; the rows come from the nodes."""

from __future__ import annotations

from ganeti.constants import query as query_c
from ganeti.constants.query import KIND_BOOL, KIND_OTHER, KIND_TEXT
from ganeti.query.field import Resource
from ganeti.query.resources.rows import row_field, rows

RESOURCE = Resource(
    query_c.OS,
    [
        row_field("name", "Name", KIND_TEXT, "Name of the definition"),
        row_field("valid", "Valid", KIND_BOOL, "Whether the definition is valid on all nodes"),
        row_field("hidden", "Hidden", KIND_BOOL, "Whether lists do not show the definition"),
        row_field("blacklisted", "Blacklisted", KIND_BOOL, "Whether nobody may use the definition"),
        row_field("variants", "Variants", KIND_OTHER, "Variants which are supported on all nodes"),
        row_field(
            "parameters", "Parameters", KIND_OTHER, "Parameters which are supported on all nodes"
        ),
        row_field(
            "api_versions",
            "ApiVersions",
            KIND_OTHER,
            "Versions of the OS interface which are supported on all nodes",
        ),
        row_field(
            "trusted",
            "Trusted",
            KIND_BOOL,
            "Whether its scripts may run on the node, outside of a helper guest",
        ),
        row_field("node_status", "NodeStatus", KIND_OTHER, "State on each node"),
        row_field(
            "os_hvp", "OsHypervisorParams", KIND_OTHER, "Hypervisor parameters for this system"
        ),
        row_field("osparams", "OsParameters", KIND_OTHER, "Default OS parameters in the cluster"),
    ],
    rows,
)
