"""Several operations in one request."""

from __future__ import annotations

from typing import Any, Final

from ganeti.rapi import batch, declare
from ganeti.rapi.call import Call
from ganeti.rapi.declare import POST, DirectChange, Resource, Result


async def _run(call: Call) -> Any:
    return await call.state.batch(call)


RESOURCES: Final = (
    Resource(
        "/2/batch",
        "batch",
        {
            POST: DirectChange(
                _run,
                "Carry out several operations, of which some may run after others. Each needs"
                " the right which its own request needs.",
                Result(batch.ANSWERS, "the answer to each operation: id, status, body"),
                (declare.REASON,),
                fields=batch.FIELDS,
                access=declare.USERS,
                most_body_bytes=batch.MOST_BODY_BYTES,
                # One of the operations may have one.
                secret=True,
            ),
        },
    ),
)
