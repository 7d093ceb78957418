"""Fields of backups on the nodes; a node which did not answer has a row with marks."""

from __future__ import annotations

from ganeti.constants import query as query_c
from ganeti.constants.query import KIND_TEXT
from ganeti.query.field import HOSTNAME, Resource
from ganeti.query.resources.rows import null_field, row_field, rows

RESOURCE = Resource(
    query_c.EXPORT,
    [
        row_field(
            "node", "Node", KIND_TEXT, "Node which has the backup", compare=HOSTNAME, names="nodes"
        ),
        null_field("export", "Export", KIND_TEXT, "Name of the backup"),
    ],
    rows,
    name_field="export",
)
