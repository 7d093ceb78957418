"""One call to a node for several disks, with a result for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti.rpc.results import Result, each

if TYPE_CHECKING:
    from ganeti.objects import Disk, Instance
    from ganeti.rpc import RpcRunner
    from ganeti.wire.calls import Call


def call_for_disks(
    rpc: RpcRunner,
    call: Call,
    disks: Mapping[str, Sequence[Disk]],
    instance: Instance,
    /,
    *,
    per_node: Mapping[str, Mapping[str, Any]] | None = None,
    **args: Any,
) -> dict[str, list[Result]]:
    """Call nodes at the same time, each once for all of its disks.

    :param call: one of the calls ``*_multi``.
    :param disks: UUID of a node -> disks; a node without disks is not called.
    :param per_node: UUID of a node -> further arguments for this node.
    :returns: UUID of a node -> the results, in the order of its disks.
    """
    own = per_node or {}
    answers = rpc.call_many(
        call,
        [uuid for uuid, some in disks.items() if some],
        per_node={
            uuid: {"disks": [(disk, instance) for disk in some], **own.get(uuid, {})}
            for uuid, some in disks.items()
        },
        **args,
    )
    return {
        uuid: each(call, answers[uuid], len(some)) if some else [] for uuid, some in disks.items()
    }
