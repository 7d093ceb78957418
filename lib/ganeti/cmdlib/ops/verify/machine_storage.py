"""Whether the storage of a machine fits the cluster: for nodes before disks are put there.

A node is asked with ``node_verify``; :func:`problems` judges its answer. The checks of a whole
cluster are in :mod:`ganeti.cmdlib.ops.verify.storage`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti.cmdlib.base import why
from ganeti.cmdlib.ops.verify.storage import MIN_VG_MIB, PV_TOLERANCE, lost_volumes, uses_lvm
from ganeti.constants import disk as disk_c
from ganeti.constants import node_verify as nv
from ganeti.objects import disk_templates, fill
from ganeti.utils.text import comma_join
from ganeti.wire.calls import NODE_VERIFY

if TYPE_CHECKING:
    from ganeti.objects import Cluster, Node, NodeGroup
    from ganeti.rpc import RpcRunner


def checks_of_new_node(
    cluster: Cluster, *, exclusive: bool, metavg: str | None = None
) -> dict[str, Any]:
    """Make the checks of ``node_verify`` for a machine which becomes a node.

    Directories of disk files are not among them: an administrator allows them on each node, often
    only after it was added.

    :param exclusive: the node will have exclusive storage.
    :param metavg: volume group for metadata of DRBD in the group of the node.
    :returns: name of a check -> its argument.
    """
    checks: dict[str, Any] = {}
    group = cluster.volume_group_name
    if uses_lvm(cluster) and group:
        checks |= {nv.VGLIST: None, nv.PVLIST: [group]}
        if exclusive:
            checks[nv.EXCLUSIVEPVS] = [group]
    if metavg and disk_c.DRBD8 in cluster.enabled_disk_templates:
        checks[nv.VGLIST] = None
    if disk_c.DRBD8 in cluster.enabled_disk_templates and cluster.drbd_usermode_helper:
        checks[nv.DRBDHELPER] = cluster.drbd_usermode_helper
    return checks


def groups_of_new_node(cluster: Cluster, metavg: str | None) -> dict[str | None, int]:
    """Return the volume groups which :func:`problems` demands of a machine that becomes a node."""
    found: dict[str | None, int] = {}
    if uses_lvm(cluster) and cluster.volume_group_name:
        found[cluster.volume_group_name] = MIN_VG_MIB
    if metavg and disk_c.DRBD8 in cluster.enabled_disk_templates:
        found.setdefault(metavg, 0)
    return found


def of_capable_node(
    cluster: Cluster,
    group: NodeGroup,
    node: Node,
    ask: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> tuple[list[str], list[str]]:
    """Find problems of the storage of a node which gets the right to have instances.

    :param group: the node group of the node.
    :param ask: makes these checks of ``node_verify`` on the node, and returns its answer; it is not
        called when there is nothing to check.
    :returns: what prevents disks there, and what is only a warning.
    """
    ndparams, metavg = fill.fill_nd(cluster, group, node), fill.metavg(cluster, group)
    checks = checks_of_new_node(
        cluster, exclusive=bool(ndparams.get("exclusive_storage")), metavg=metavg
    )
    if not checks:
        return [], []
    facts = dict(ask(checks))
    helper = {name: facts.pop(name) for name in (nv.DRBDHELPER,) if name in facts}
    groups = groups_of_new_node(cluster, metavg)
    return problems(cluster, facts, groups), problems(cluster, helper)


def without_metavg(
    rpc: RpcRunner, cluster: Cluster, nodes: Sequence[str], metavg: str | None
) -> tuple[list[str], list[str]]:
    """Find nodes without the volume group for metadata of DRBD which they are about to use.

    Nobody is asked where none is named, or mirrored disks are not enabled.

    :param nodes: UUIDs of nodes.
    :returns: a message for each of these nodes, and one for each node which could not be asked.
    """
    lacking: list[str] = []
    unknown: list[str] = []
    if not metavg or not nodes or disk_c.DRBD8 not in cluster.enabled_disk_templates:
        return lacking, unknown
    answers = rpc.call_many(
        NODE_VERIFY,
        list(nodes),
        checks={nv.VGLIST: None},
        cluster_name=cluster.cluster_name,
        all_hvparams={},
    )
    for answer in answers.values():
        if answer.failure is not None:
            unknown.append(
                f"node {answer.node_name} could not be asked whether it has volume group"
                f" {metavg}: {why(answer.failure)}"
            )
            continue
        found = problems(cluster, answer.data, {metavg: 0})
        lacking += [f"node {answer.node_name}: {problem}" for problem in found]
    return lacking, unknown


def problems(
    cluster: Cluster, facts: Mapping[str, Any], groups: Mapping[str | None, int] | None = None
) -> list[str]:
    """Find problems of the storage of a node with the parameters of the cluster.

    :param facts: the answer of the node to ``node_verify``; what was not asked has no problem.
    :param groups: volume group -> the size in MiB which it must have; without it, the volume group
        of the cluster.
    :returns: a message for each problem.
    """
    found = []
    for check in disk_templates.directory_checks().values():
        if facts.get(check.name):
            found.append(f"its directory for {check.content} is not usable: {facts[check.name]}")
    if nv.VGLIST in facts:
        wanted = {cluster.volume_group_name: MIN_VG_MIB} if groups is None else groups
        found += _volume_groups(facts[nv.VGLIST], wanted)
    if nv.PVLIST in facts:
        found += _physical(facts[nv.PVLIST], facts.get(nv.EXCLUSIVEPVS))
    if nv.DRBDHELPER in facts:
        known, helper = facts[nv.DRBDHELPER]
        if not known:
            found.append(f"its DRBD usermode helper is unknown: {helper}")
        elif helper != cluster.drbd_usermode_helper:
            found.append(
                f"its DRBD usermode helper is {helper}, not {cluster.drbd_usermode_helper}"
            )
    return found


def _volume_groups(sizes: Any, wanted: Mapping[str | None, int]) -> list[str]:
    """Find problems of volume groups.

    :param sizes: volume group -> size in MiB; a text if they are unknown.
    :param wanted: volume group -> the least size in MiB.
    """
    if not isinstance(sizes, dict):
        return [f"its volume groups are unknown: {sizes}"]
    found = []
    for name, least in wanted.items():
        if name not in sizes:
            found.append(f"it has no volume group {name}")
        elif sizes[name] < least:
            found.append(
                f"volume group {name} has only {sizes[name]:.0f} MiB, at least {least} MiB"
                " are needed"
            )
    return found


def _physical(volumes: Any, shared: Any) -> list[str]:
    """Find problems of physical volumes.

    :param shared: those with several logical volumes; None unless storage is exclusive.
    """
    if not isinstance(volumes, list):
        return [f"its physical volumes are unknown: {volumes}"]
    found = [
        f"volume group {group} lacks physical volumes with {comma_join(lost) or 'no volumes'}"
        for group, lost in sorted(lost_volumes(volumes).items())
    ]
    found += [
        f"physical volume {name} has a colon in its name, so LVM takes the name for a list"
        for name, *_rest in volumes
        if ":" in name
    ]
    if shared is None:
        return found
    if not isinstance(shared, list):
        return [*found, f"its physical volumes are unknown: {shared}"]
    found += [
        f"physical volume {name} holds several logical volumes ({comma_join(held)}), although"
        " storage is exclusive"
        for name, held in shared
    ]
    return found + _unequal([volume[2] for volume in volumes])


def _unequal(sizes: Sequence[float]) -> list[str]:
    if sizes and min(sizes) < max(sizes) * (1 - PV_TOLERANCE):
        return [
            f"its physical volumes have {min(sizes):.0f} to {max(sizes):.0f} MiB, but with"
            " exclusive storage they must be of the same size"
        ]
    return []
