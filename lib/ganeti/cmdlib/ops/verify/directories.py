"""Verification of directories which nodes share, or do not, by files which other nodes have made.

Files of disks with template ``sharedfile`` must be in one directory on all nodes of a group.
Directories of other files are usually separate; that nodes share one is a notice, because it is
what an administrator must know before he moves a disk, or counts the copies of an export.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti.cmdlib.ops.disks import same_directory
from ganeti.constants.disk import FILE, SHARED_FILE
from ganeti.objects import disk_templates
from ganeti.platform import paths
from ganeti.utils.text import comma_join

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.disks.same_directory import Views
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.config import Config
    from ganeti.objects import Node
    from ganeti.rpc import RpcRunner

#: The published code for a directory of shared files which cannot be used.
_CODE = "ENODESHAREDFILESTORAGEPATHUNUSABLE"


def compare(
    findings: Findings,
    config: Config,
    rpc: RpcRunner,
    nodes: Sequence[Node],
    answers: Mapping[str, Mapping[str, Any]],
) -> None:
    """Compare the directories of the nodes of a group.

    One node of each other group looks for the exports of this one, too.

    :param nodes: the nodes of the group which were asked.
    :param answers: UUID of a node -> its answer to ``node_verify``.
    """
    findings.section("Comparing directories")
    cluster = config.cluster()
    capable = [node.uuid for node in nodes if node.vm_capable and node.uuid in answers]
    checks = disk_templates.directory_checks()
    found = {
        template: directory
        for template in (FILE, SHARED_FILE)
        if template in cluster.enabled_disk_templates
        and (directory := cluster.disk_directory(template))
    }
    exports = paths.Paths().export_dir
    views = same_directory.compare(
        rpc, [exports, *found.values()], capable, _one_of_each_other_group(config, nodes)
    )
    if SHARED_FILE in found:
        name = checks[SHARED_FILE].name
        # What is wrong with one of the others was reported with its own check.
        usable = [uuid for uuid in capable if not answers[uuid].get(name)]
        _shared_files(config, findings, usable, found[SHARED_FILE], views[found[SHARED_FILE]])
    if FILE in found and found[FILE] != found.get(SHARED_FILE):
        _note(
            config,
            findings,
            views[found[FILE]],
            f"have the same directory for disks of template file, {found[FILE]}. Such disks cannot"
            " be moved between them; disks in a shared directory have the template sharedfile.",
        )
    _note(config, findings, views[exports], f"have the same directory for exports, {exports}")


def _one_of_each_other_group(config: Config, nodes: Sequence[Node]) -> list[str]:
    own = {node.group for node in nodes}
    found: dict[str, str] = {}
    for node in config.nodes():
        if node.group not in own and node.vm_capable and not node.offline:
            found.setdefault(node.group, node.uuid)
    return list(found.values())


def _shared_files(
    config: Config, findings: Findings, nodes: Sequence[str], path: str, views: Views
) -> None:
    """Report the nodes which do not see the directory of most others.

    When no directory is the one of most nodes, all are reported.
    """
    groups = sorted(
        (members for one in views.groups if (members := [uuid for uuid in one if uuid in nodes])),
        key=len,
        reverse=True,
    )
    even = len(groups) > 1 and len(groups[0]) == len(groups[1])
    for uuid in nodes:
        own = next((one for one in groups if uuid in one), None)
        name = config.node(uuid).name
        if own is None:
            problem = views.unknown.get(uuid)
            findings.check(
                problem is not None,
                _CODE,
                name,
                f"it is not known whether its directory for shared files, {path}, is the one of"
                f" the other nodes: {problem}",
            )
            continue
        others = comma_join(
            config.node(other).name for one in groups if one is not own for other in one
        )
        findings.check(
            own is not groups[0] or even,
            _CODE,
            name,
            f"its directory for shared files, {path}, is not the one of {others}: a file which was"
            " made there is missing. Mount its file system",
        )


def _note(config: Config, findings: Findings, views: Views, text: str) -> None:
    for group in views.groups:
        if len(group) > 1:
            names = comma_join(sorted(config.node(uuid).name for uuid in group))
            findings.note(f"nodes {names} {text}")
