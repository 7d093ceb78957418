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


def lacking(ctx: Context, template: str, node_uuids: Iterable[str]) -> Reach:
    """Find out which nodes have not the shared directory in which the disks of a new instance go.

    It is the directory of the node which has most instances there, in each node group by itself;
    where there is none, the one which most nodes see, at least two. When there is no such
    directory, nothing is known against a node.
    """
    found = Reach({}, {})
    directory = ctx.config.cluster().disk_directory(template) if template == SHARED_FILE else None
    if not directory:
        return found
    data = ctx.config.snapshot()
    wanted = [uuid for uuid in dict.fromkeys(node_uuids) if not data.nodes[uuid].offline]
    groups = {data.nodes[uuid].group: _Peers([], []) for uuid in wanted}
    in_use = _users(data)
    for uuid, peers in groups.items():
        peers.asked.extend(one for one in wanted if data.nodes[one].group == uuid)
        others = [
            node.uuid
            for node in data.nodes.values()
            if node.group == uuid and node.vm_capable and not node.offline
        ]
        best = max(others, key=lambda one: in_use.get(one, 0), default=None)
        peers.marking.extend([best] if best is not None and in_use.get(best) else others)
    marking = [uuid for peers in groups.values() for uuid in peers.marking]
    views = same_directory.compare(ctx.rpc, [directory], marking, wanted)[directory]
    for peers in groups.values():
        _note_lacking(ctx, found, directory, peers, views)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Peers:
    """Nodes of one group: those of which it is asked, and those which make a mark."""

    asked: list[str]
    marking: list[str]


def _users(data: ConfigData) -> dict[str, int]:
    """Count the instances with shared files on each node: UUID of the node -> number."""
    found: dict[str, int] = {}
    for instance in data.instances.values():
        if not instance.forthcoming and any(
            data.disks[uuid].dev_type == SHARED_FILE for uuid in instance.disks
        ):
            found[instance.primary_node] = found.get(instance.primary_node, 0) + 1
    return found


def _note_lacking(
    ctx: Context, found: Reach, directory: str, peers: _Peers, views: same_directory.Views
) -> None:
    here = {*peers.asked, *peers.marking}
    seen = sorted(
        ([uuid for uuid in one if uuid in here] for one in views.groups), key=len, reverse=True
    )
    if len(peers.marking) == 1:
        # The directory which is in use.
        seen = [one for one in seen if peers.marking[0] in one]
        if not seen:
            problem = views.unknown.get(peers.marking[0], "it does not see its own directory")
            name = ctx.config.node(peers.marking[0]).name
            others = [uuid for uuid in peers.asked if uuid != peers.marking[0]]
            found.unknown.update(dict.fromkeys(others, f"node {name}: {problem}"))
            return
    elif len(seen) == 0 or len(seen[0]) < 2 or (len(seen) > 1 and len(seen[0]) == len(seen[1])):
        return
    names = comma_join(ctx.config.node(uuid).name for uuid in seen[0][:3])
    for uuid in peers.asked:
        if uuid in seen[0]:
            continue
        if uuid in views.blind or any(uuid in one for one in views.groups):
            found.unusable[uuid] = (
                f"its directory {directory} is not the one of {names}: a file which was made there"
                " is missing. Mount its file system"
            )
        else:
            found.unknown[uuid] = views.unknown.get(uuid, "no answer")


def require_directory(ctx: Context, template: str, nodes: Iterable[Node]) -> None:
    """Check that named nodes have the shared directory for the disks of a new instance.

    :raises errors.OpPrereqError: one has not.
    """
    names = {node.uuid: node.name for node in nodes}
    found = lacking(ctx, template, names)
    for uuid, problem in found.unusable.items():
        raise errors.OpPrereqError(
            f"node {names[uuid]} cannot get disks of template {template}: {problem}",
            errors.ECODE_ENVIRON,
        )
    _warn_unknown(ctx, template, found)


def with_directory(ctx: Context, template: str, node_uuids: Iterable[str]) -> frozenset[str] | None:
    """Return the nodes among which an allocator may choose for disks of a template.

    The job log says why others are left out.

    :returns: None when all of them have the shared directory, or the template needs none.
    """
    uuids = frozenset(node_uuids)
    found = lacking(ctx, template, uuids)
    _warn_unknown(ctx, template, found)
    if not found.unusable:
        return None
    reasons = comma_join(
        f"{ctx.config.node(uuid).name} ({problem})" for uuid, problem in found.unusable.items()
    )
    ctx.log.warn(
        f"nodes which cannot get disks of template {template} will not be chosen: {reasons}"
    )
    return uuids - found.unusable.keys()


def _warn_unknown(ctx: Context, template: str, found: Reach) -> None:
    for uuid, problem in found.unknown.items():
        ctx.log.warn(
            f"it is not known whether node {ctx.config.node(uuid).name} has the directory for disks"
            f" of template {template}: {problem}"
        )


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
