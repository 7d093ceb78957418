"""Whether other nodes can use the disks of an instance, which are on storage that nodes share.

It is asked before a guest is stopped or sent: the target of a failover may not have the storage
mounted. For files that is not sufficient. A directory below which nothing is mounted may have a
file of the same name, as after a start with the wrong storage; so the target must also see the
directory of the node which has the instance (:mod:`.same_directory`).

A node of which it is not known is warned about, and not excluded: the mirror of the storage may be
the only way on.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.disks import same_directory
from ganeti.constants.disk import FILE, SHARED_FILE
from ganeti.objects.disk_templates import EXT_MIRRORED
from ganeti.rpc.results import each
from ganeti.utils.text import comma_join
from ganeti.wire.calls import BLOCKDEV_REACHABLE_MULTI

if TYPE_CHECKING:
    from ganeti.objects import ConfigData, Disk, Instance, Node
    from ganeti.rpc import Result


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """What nodes say about the disks.

    :ivar unusable: UUID of each node which cannot use a disk -> why.
    :ivar unknown: UUID of each node which did not say it -> why.
    """

    unusable: dict[str, str]
    unknown: dict[str, str]


def ask(ctx: Context, instances: Iterable[Instance], node_uuids: Iterable[str]) -> Reach:
    """Ask nodes whether they can use all disks of instances which are on shared storage.

    :param node_uuids: the nodes to ask; those which are marked offline are left out.
    """
    config = ctx.config
    disks = [
        (disk, instance)
        for instance in instances
        for disk in config.instance_disks(instance)
        if disk.dev_type in EXT_MIRRORED and not disk.forthcoming
    ]
    nodes = [uuid for uuid in dict.fromkeys(node_uuids) if not config.node(uuid).offline]
    found = Reach({}, {})
    if not disks or not nodes:
        return found
    answers = ctx.rpc.call_many(BLOCKDEV_REACHABLE_MULTI, nodes, disks=disks)
    for uuid, answer in answers.items():
        _note_answer(found, uuid, answer, disks)
    by_source: dict[str, set[str]] = {}
    for disk, instance in disks:
        if disk.dev_type == SHARED_FILE and not config.node(instance.primary_node).offline:
            # The directory of the instance is below the one which may be mounted.
            top = posixpath.dirname(posixpath.dirname(str(disk.logical_id[1])))
            by_source.setdefault(instance.primary_node, set()).add(top)
    for source, directories in by_source.items():
        left = [uuid for uuid in nodes if uuid != source and uuid not in found.unusable]
        _compare(ctx, found, source, left, sorted(directories))
    return found


def _note_answer(
    found: Reach, uuid: str, answer: Result, disks: Sequence[tuple[Disk, Instance]]
) -> None:
    if answer.failure is not None:
        found.unknown[uuid] = why(answer.failure)
        return
    problems = []
    for (disk, instance), one in zip(
        disks, each(BLOCKDEV_REACHABLE_MULTI, answer, len(disks)), strict=True
    ):
        name = f"{disk.iv_name or disk.uuid} of instance {instance.name}"
        if one.failure is not None:
            problems.append(f"{name}: {why(one.failure)}")
        elif one.data is False:
            problems.append(f"{name} does not exist there")
    if problems:
        found.unusable[uuid] = "; ".join(problems)


def _compare(
    ctx: Context, found: Reach, source: str, others: Sequence[str], directories: Sequence[str]
) -> None:
    """Note the nodes which have another directory than the node of the instances."""
    if not others:
        return
    name = ctx.config.node(source).name
    for path, views in same_directory.compare(ctx.rpc, directories, [source], others).items():
        same = views.shared_with(source)
        for uuid in others:
            if uuid in same:
                continue
            problem = views.unknown.get(uuid) or views.unknown.get(source)
            if problem is not None:
                found.unknown[uuid] = problem
            else:
                found.unusable[uuid] = (
                    f"its directory {path} is not the one of node {name}: a file which was made"
                    " there is missing"
                )


def require(ctx: Context, instance: Instance, target: Node) -> None:
    """Check that a node can use all disks of an instance, if nodes share their storage.

    :raises errors.OpPrereqError: it cannot.
    """
    found = ask(ctx, [instance], [target.uuid])
    for problem in found.unusable.values():
        raise errors.OpPrereqError(
            f"node {target.name} cannot use the disks of instance {instance.name}, which stays"
            f" where it is: {problem}",
            errors.ECODE_ENVIRON,
        )
    for problem in found.unknown.values():
        ctx.log.warn(
            f"it is not known whether node {target.name} can use the disks of instance"
            f" {instance.name}: {problem}"
        )


def config_without(
    ctx: Context, instances: Iterable[Instance], node_uuids: Collection[str]
) -> ConfigData:
    """Return the configuration for an allocator, which is not to choose nodes without the storage.

    These nodes are marked as drained in it.

    :param node_uuids: the nodes among which the allocator will choose.
    """
    data = ctx.config.snapshot()
    found = ask(ctx, instances, node_uuids)
    if not found.unusable:
        return data
    names = comma_join(
        f"{ctx.config.node(uuid).name} ({problem})" for uuid, problem in found.unusable.items()
    )
    ctx.log.warn(f"nodes which cannot use the disks will not be chosen: {names}")
    nodes = {
        uuid: dataclasses.replace(node, drained=True) if uuid in found.unusable else node
        for uuid, node in data.nodes.items()
    }
    return dataclasses.replace(data, nodes=nodes)


def require_separate(ctx: Context, disks: Iterable[Disk], source: Node, target: Node) -> None:
    """Check that files of a node can be copied to the same paths on another node.

    :raises errors.OpPrereqError: the two nodes have one directory, so the copy would be the file
        itself; or it is not known.
    """
    directories = sorted(
        {posixpath.dirname(str(disk.logical_id[1])) for disk in disks if disk.dev_type == FILE}
    )
    for path, views in same_directory.compare(
        ctx.rpc, directories, [source.uuid], [target.uuid]
    ).items():
        if target.uuid in views.shared_with(source.uuid):
            raise errors.OpPrereqError(
                f"nodes {source.name} and {target.name} have the same directory {path}, so there"
                " is nothing to copy, and the copy would be removed with the original. Disks in a"
                " directory which nodes share have the template sharedfile.",
                errors.ECODE_STATE,
            )
        for uuid, problem in views.unknown.items():
            raise errors.OpPrereqError(
                f"it is not known whether nodes {source.name} and {target.name} have the same"
                f" directory {path}: node {ctx.config.node(uuid).name}: {problem}",
                errors.ECODE_ENVIRON,
            )
