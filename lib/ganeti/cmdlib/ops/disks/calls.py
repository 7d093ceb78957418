"""One call to a node for several disks, with a result for each of them.

A node of a release without these calls is asked with the published call, once for each disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.rpc.results import Result, each
from ganeti.wire.calls.storage import FOR_ONE_DISK

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
    found: dict[str, list[Result]] = {}
    for uuid, some in disks.items():
        if not some:
            found[uuid] = []
        elif call.name in FOR_ONE_DISK and isinstance(answers[uuid].failure, errors.NodeLacksCall):
            found[uuid] = _one_by_one(
                rpc, call, uuid, [(disk, instance) for disk in some], {**args, **own.get(uuid, {})}
            )
        else:
            found[uuid] = each(call, answers[uuid], len(some))
    return found


def _one_by_one(
    rpc: RpcRunner,
    call: Call,
    node_uuid: str,
    disks: Sequence[tuple[Disk, Instance]],
    args: Mapping[str, Any],
) -> list[Result]:
    """Make a call for several disks of a node which has only the call for one disk."""
    single = FOR_ONE_DISK[call.name]
    indexes = args.get("indexes", range(len(disks)))
    results = []
    for index, (disk, instance) in zip(indexes, disks, strict=True):
        own = {**args, "disk": (disk, instance), "index": index, "size_mib": disk.size}
        results.append(
            rpc.call(single, node_uuid, **{arg.name: own[arg.name] for arg in single.args})
        )
    return results
