"""Fields of backups on the nodes; a node which did not answer has a row with marks."""

from __future__ import annotations

from ganeti.constants import query as query_c
from ganeti.constants.query import KIND_TEXT, KIND_TIMESTAMP, KIND_UNIT
from ganeti.query.field import HOSTNAME, Resource
from ganeti.query.resources.rows import null_field, row_field, rows

#: Fields whose values are in the descriptions of the backups.
DETAILS = ("ctime", "size", "instance", "source")
#: Fields which nodes are asked for.
OF_NODES = ("export", *DETAILS)

RESOURCE = Resource(
    query_c.EXPORT,
    [
        row_field(
            "node", "Node", KIND_TEXT, "Node which has the backup", compare=HOSTNAME, names="nodes"
        ),
        null_field("export", "Export", KIND_TEXT, "Name of the backup"),
        null_field("ctime", "CTime", KIND_TIMESTAMP, "When the backup was made"),
        null_field("size", "Size", KIND_UNIT, "Size of all files of the backup"),
        null_field("instance", "Instance", KIND_TEXT, "Instance of which it is a backup"),
        null_field("source", "From", KIND_TEXT, "Primary node of the instance at that time"),
    ],
    rows,
    name_field="export",
)
