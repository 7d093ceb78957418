"""The exports on nodes: finding and removing them, and the space for a new one.

An export is known by its identity, and never by the name of the node which has it: several nodes
may have one export directory, on a network file system.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.disks import same_directory
from ganeti.platform import paths
from ganeti.rpc.results import each
from ganeti.wire.calls import DIRECTORY_SPACE
from ganeti.wire.calls import backup as calls

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Disk, Instance, Node
    from ganeti.rpc import Result, RpcRunner


@dataclass(frozen=True, slots=True)
class Found:
    """The exports of one name.

    :ivar identities: UUID of each node which has a complete export -> its identity; empty on a node
        of a release without identities.
    :ivar left: UUID of each node which has more -> names of what interrupted exports have left.
    :ivar unresponsive: name of each node which did not answer -> why.
    :ivar former: UUIDs of the nodes of a release without identities.
    """

    identities: Mapping[str, str]
    left: Mapping[str, list[str]]
    unresponsive: Mapping[str, str]
    former: frozenset[str] = frozenset()


def nodes_with_export(config: Config, rpc: RpcRunner, name: str) -> tuple[list[str], list[str]]:
    """Find the nodes which have an export; nodes which are marked offline are not asked.

    :param name: name of the export, which is the name of its instance.
    :returns: UUIDs of the nodes which have it, and names of the nodes which did not answer.
    """
    nodes = [node.uuid for node in config.nodes() if not node.offline]
    answers = rpc.call_many(calls.EXPORT_LIST, nodes)
    having = [
        uuid for uuid, answer in answers.items() if answer.failure is None and name in answer.data
    ]
    unresponsive = [answer.node_name for answer in answers.values() if answer.failure is not None]
    return having, unresponsive


def find(config: Config, rpc: RpcRunner, name: str) -> Found:
    """Find exports with their identities; nodes which are marked offline are not asked.

    :param name: name of the export, which is the name of its instance.
    """
    nodes = [node.uuid for node in config.nodes() if not node.offline]
    answers = rpc.call_many(calls.EXPORT_FIND, nodes, export=name)
    former = frozenset(
        uuid for uuid, answer in answers.items() if isinstance(answer.failure, errors.NodeLacksCall)
    )
    if former:
        answers.update(_found_by_former(rpc, name, former))
    good = {uuid: answer.data for uuid, answer in answers.items() if answer.failure is None}
    return Found(
        {uuid: identity for uuid, (identity, _left) in good.items() if identity is not None},
        {uuid: list(left) for uuid, (_identity, left) in good.items() if left},
        {
            answer.node_name: why(answer.failure)
            for answer in answers.values()
            if answer.failure is not None
        },
        former,
    )


def _found_by_former(rpc: RpcRunner, name: str, nodes: Iterable[str]) -> dict[str, Result]:
    """Return what nodes of a release without identities have, in the form of EXPORT_FIND."""
    listed = rpc.call_many(calls.EXPORT_LIST, nodes)
    for answer in listed.values():
        if answer.failure is None:
            answer.data = ("" if name in answer.data else None, [calls.unfinished(name, "")])
    return listed


def remove_unfinished(ctx: Context, name: str, found: Found) -> None:
    """Remove what interrupted exports have left, from all nodes which are not marked offline.

    The names of what is removed were asked for before; so a node which carries out a call late
    removes nothing of a later export. A node which does not answer is asked again by the next
    export.

    :param name: name of the export, which is the name of its instance.
    :param found: what :func:`find` has found.
    """
    problems = dict(found.unresponsive)
    for uuid, left in found.left.items():
        for directory in left:
            answer = ctx.rpc.call(calls.EXPORT_REMOVE, uuid, export=directory, identity="")
            if answer.failure is not None:
                problems[answer.node_name] = why(answer.failure)
    for node, problem in problems.items():
        ctx.log.warn(
            f"what an interrupted export of {name} may have left on node {node} could not be"
            f" removed: {problem}"
        )


def remove(rpc: RpcRunner, name: str, identities: Mapping[str, str]) -> dict[str, str]:
    """Remove complete exports, each from all nodes which see it.

    :param identities: UUID of a node -> the identity of its export.
    :returns: name of each node which may still have its export -> why.
    """
    problems = {}
    for uuid, identity in identities.items():
        # A node whose directory is the one of a node before it answers that there is none any more.
        answer = rpc.call(calls.EXPORT_REMOVE, uuid, export=name, identity=identity)
        if answer.failure is not None:
            problems[answer.node_name] = why(answer.failure)
    return problems


def remove_older(ctx: Context, name: str, target_uuid: str, identity: str) -> None:
    """Remove older exports of an instance from other nodes than the one with the new export.

    A node which sees the export directory of that one has no other copy, and nothing is removed
    there; neither from a node of which that is not known. A failure is a warning.

    :param identity: of the new export.
    """
    found = find(ctx.config, ctx.rpc, name)
    others = {uuid: one for uuid, one in found.identities.items() if uuid != target_uuid}
    for node, problem in found.unresponsive.items():
        ctx.log.warn(f"node {node} may have an older export of {name}: {problem}")
    older = {uuid: one for uuid, one in others.items() if one != identity or not one}
    same = [uuid for uuid in others if uuid not in older]
    if older:
        views = _views(ctx.rpc, target_uuid, older)
        same += [uuid for uuid in views.shared_with(target_uuid) if uuid in older]
        # Without the mark of the target, the others have nothing to look for.
        not_known = list(older) if target_uuid in views.unknown else list(views.unknown)
        for uuid in not_known:
            problem = views.unknown.get(target_uuid) or views.unknown[uuid]
            ctx.log.warn(
                f"an older export of {name} on node {ctx.config.node(uuid).name} was not removed,"
                " because it is not known whether it is in the same directory as the new one:"
                f" {problem}"
            )
        older = {u: one for u, one in older.items() if u not in same and u not in not_known}
    if same:
        names = ", ".join(ctx.config.node(uuid).name for uuid in same)
        ctx.log.feedback(
            f"The export of {name} is also seen by node {names}, which has the same directory as"
            f" node {ctx.config.node(target_uuid).name}"
        )
    if older:
        ctx.log.feedback(f"Removing old exports for instance {name}")
        for node, problem in remove(ctx.rpc, name, older).items():
            ctx.log.warn(f"an older export on node {node} could not be removed: {problem}")


def _views(rpc: RpcRunner, target_uuid: str, others: Iterable[str]) -> same_directory.Views:
    directory = paths.Paths().export_dir
    return same_directory.compare(rpc, [directory], [target_uuid], others)[directory]


def require_space(
    ctx: Context, instance: Instance, source: Node, target: Node, disks: Sequence[Disk]
) -> None:
    """Check that the target has the space for an export, before the guest is stopped for it.

    What a script of the operating system writes may need less than its disk; a lack of space for
    all of it is a warning.

    :raises errors.OpPrereqError: its directory cannot be written, or has too little space.
    """
    what = f"the export of instance {instance.name}"
    sent = [(disk, instance) for disk in disks]
    answer = ctx.rpc.call(calls.EXPORT_SIZES, source.uuid, instance=instance, disks=sent)
    sizes = _answered(ctx, answer, f"node {source.name} cannot make {what}")
    if sizes is None:
        return
    known = [one.payload() for one in each(calls.EXPORT_SIZES, answer, len(disks))]
    raw = [size for size in known if size is not None]
    directory = paths.Paths().export_dir
    answer = ctx.rpc.call(
        DIRECTORY_SPACE,
        target.uuid,
        files={directory: max(raw, default=0)},
        removed=[posixpath.join(directory, instance.name + calls.UNFINISHED)],
        sparse=False,
    )
    found = _answered(ctx, answer, f"node {target.name} cannot take {what}")
    if found is None:
        return
    free = found.get(directory, "no answer")
    if isinstance(free, str):
        raise errors.OpPrereqError(
            f"node {target.name} cannot take {what} in {directory}: {free}", errors.ECODE_ENVIRON
        )
    scripts = sum(disk.size for disk, size in zip(disks, known, strict=True) if size is None) << 20
    # A script writes something, too.
    least = sum(raw) + bool(scripts)
    if free < least:
        raise errors.OpPrereqError(
            f"not enough space on node {target.name} for {what}: {_mib(least)} MiB needed in"
            f" {directory}, {free >> 20} MiB may be written (a part of the file system is kept"
            " free). Free some space there, or choose another target.",
            errors.ECODE_NORES,
        )
    if free < sum(raw) + scripts:
        ctx.log.warn(
            f"node {target.name} may write {free >> 20} MiB in {directory}; {what} may need up to"
            f" {_mib(sum(raw) + scripts)} MiB, as its operating system writes it"
        )


def _answered(ctx: Context, answer: Result, problem: str) -> Any:
    """Return the data of a check; None, with a warning, when the node does not know it yet.

    :raises errors.OpPrereqError: the node failed.
    """
    if isinstance(answer.failure, errors.NodeLacksCall):
        ctx.log.warn(f"the space for the export was not checked: {why(answer.failure)}")
        return None
    if answer.failure is not None:
        raise errors.OpPrereqError(f"{problem}: {why(answer.failure)}", errors.ECODE_ENVIRON)
    return answer.data


def _mib(size: int) -> int:
    return -(-size >> 20)
