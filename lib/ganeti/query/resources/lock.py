"""Fields of locks in use; the rows come from the lock manager."""

from __future__ import annotations

from ganeti.constants import query as query_c
from ganeti.constants.query import KIND_OTHER
from ganeti.query.field import Resource
from ganeti.query.resources.rows import null_field, rows

RESOURCE = Resource(
    query_c.LOCK,
    [
        null_field("name", "Name", KIND_OTHER, "Name of the lock"),
        null_field(
            "mode", "Mode", KIND_OTHER, "Mode in which the lock is held: exclusive or shared"
        ),
        null_field("owner", "Owner", KIND_OTHER, "Jobs which hold the lock"),
        null_field(
            "pending", "Pending", KIND_OTHER, "Jobs which wait for the lock, by requested mode"
        ),
    ],
    rows,
)
