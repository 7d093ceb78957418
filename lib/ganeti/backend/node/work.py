"""Handler of the question which calls this node carries out now."""

from __future__ import annotations

from ganeti.backend.registry import serves
from ganeti.objects.transfer import NodeWork
from ganeti.storage import node_work as records
from ganeti.wire import calls


@serves(calls.NODE_WORK)
def node_work(revoke: list[str]) -> list[NodeWork]:
    """Revoke calls, then return what is running.

    In this order, so that a revoked call either is in the answer or is never carried out.
    """
    records.revoke(revoke)
    return records.running()
