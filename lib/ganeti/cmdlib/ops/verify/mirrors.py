"""Verification of mirrored disks: whether their replicas are good, and who may write to them.

The verification of storage calls this module. The locks of the instances are held, so that no
migration, and no replacement of their disks, is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ganeti.cmdlib.ops.disks import replica_report
from ganeti.constants import disk as disk_c
from ganeti.constants import node_verify as nv
from ganeti.objects import Disk, Instance
from ganeti.utils.text import comma_join, secret_digest
from ganeti.wire.calls import BLOCKDEV_GETMIRRORSTATUS_MULTI

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.config import Config
    from ganeti.objects import Node
    from ganeti.wire.calls.base import Call

Answers: TypeAlias = Mapping[str, Mapping[str, Any]]
"""UUID of a node -> its answer to ``node_verify``."""

Asked: TypeAlias = dict[str, list[tuple[Disk, Instance]]]
"""UUID of a node -> the disks about which it is asked, each with its instance."""

#: The role of a minor which may be written to, in ``/proc/drbd``.
_PRIMARY = "Primary"


class MirrorCheck:
    """Checks the mirrored disks of instances.

    :param nodes: the nodes which answered.
    """

    def __init__(
        self, config: Config, findings: Findings, nodes: Sequence[Node], answers: Answers
    ) -> None:
        self._data = config.snapshot()
        self._findings = findings
        self._nodes = nodes
        self._answers = answers

    def replicas(
        self,
        mirrors: Sequence[tuple[Disk, Instance]],
        ask: Callable[[Call, Asked], Mapping[str, Any]],
    ) -> None:
        """Check that both replicas of each disk are known to be good.

        :param ask: asks nodes about disks, and reports which of them did not answer.
        """
        asked: Asked = {}
        for disk, instance in mirrors:
            for uuid in disk.all_node_uuids() if instance.disks_active else ():
                asked.setdefault(uuid, []).append((disk, instance))
        reports: dict[str, dict[str, replica_report.NodeReport]] = {}
        for uuid, states in ask(BLOCKDEV_GETMIRRORSTATUS_MULTI, asked).items():
            for (disk, _instance), (known, state) in zip(asked[uuid], states, strict=True):
                reports.setdefault(disk.uuid, {})[uuid] = state if known else str(state)
        not_compared: list[str] = []
        for disk, instance in mirrors:
            found = replica_report.judge(
                disk, instance, self._data.nodes, reports.get(disk.uuid, {})
            )
            if found.state == replica_report.NOT_COMPARED:
                not_compared.append(instance.name)
                continue
            text = f"replicas of {disk.iv_name}: {found.text}. {found.hint}"
            self._findings.check(
                found.state != replica_report.IN_SYNC,
                "EINSTANCEFAULTYDISK",
                instance.name,
                text.strip(),
                # Nobody has to act: it is being synchronised, or only one node could report.
                warning=not found.hint,
            )
        if not_compared:
            self._findings.note(
                f"{len(not_compared)} mirrored disk(s) were not compared when they were"
                " deactivated, so that a failover needs both nodes to compare them."
                " 'gnt-instance activate-disks' and then 'gnt-instance deactivate-disks' compare"
                f" them: {comma_join(dict.fromkeys(not_compared))}"
            )

    def connections(self, mirrors: Sequence[tuple[Disk, Instance]]) -> None:
        """Check with which peers the minors of disks are connected, and that one node may write."""
        if disk_c.DRBD8 not in self._data.cluster.enabled_disk_templates:
            return
        by_node: dict[str, dict[int, Mapping[str, Any]]] = {}
        for node in self._nodes:
            answer = self._answers[node.uuid].get(nv.DRBDCONNECTIONS)
            if isinstance(answer, list):
                by_node[node.uuid] = {facts["minor"]: facts for facts in answer}
            elif isinstance(self._answers[node.uuid].get(nv.DRBDLIST), list):
                # Without the list of minors the reason is reported already.
                self._findings.report(
                    "ENODEDRBD",
                    node.name,
                    f"did not report how its DRBD minors are connected: {answer}",
                )
        for disk, instance in mirrors:
            here = {
                uuid: by_node[uuid][minor]
                for uuid, minor in disk.drbd_id.minors.items()
                if minor in by_node.get(uuid, {})
            }
            for uuid, facts in here.items():
                problem = self._wrong_connection(disk, instance, uuid, facts)
                self._findings.check(
                    problem is not None,
                    "ENODEDRBD",
                    self._data.nodes[uuid].name,
                    f"DRBD minor {facts['minor']} of {disk.iv_name} of instance {instance.name}"
                    f" {problem}",
                )
            problem = self._wrong_writers(instance, here)
            self._findings.check(
                problem is not None,
                "EINSTANCEFAULTYDISK",
                instance.name,
                f"{disk.iv_name} {problem}",
            )

    def _wrong_connection(
        self, disk: Disk, instance: Instance, node_uuid: str, facts: Mapping[str, Any]
    ) -> str | None:
        """Compare the peer and the storage of a minor with the configuration."""
        if facts.get("problem"):
            return f"did not show its configuration: {facts['problem']}"
        repair = (
            f"Use 'gnt-instance activate-disks {instance.name}', which connects it with the right"
            " one; if that fails, shut the instance down first."
        )
        data = f"/dev/{replica_report.volume_name(disk.children[0])}" if disk.children else None
        if facts["storage"] not in (None, data):
            return f"uses {facts['storage']}, not its own volume {data}. {repair}"
        if facts["remote"] is None:
            return None
        node_a, node_b, port, _minor_a, _minor_b, secret = disk.drbd_id
        own = self._data.nodes[node_uuid]
        other = self._data.nodes[node_b if node_uuid == node_a else node_a]
        peer = [other.secondary_ip, port]
        if [facts["local"], facts["remote"]] != [[own.secondary_ip, port], peer]:
            return (
                f"connects to {_address(facts['remote'])}, not to its peer on node {other.name},"
                f" {_address(peer)}. {repair}"
            )
        if facts["secret"] != (secret_digest(secret) if secret else None):
            return (
                "has another secret than the configuration, so it connects to a replica which does"
                f" not belong to the disk any more. {repair}"
            )
        return None

    def _wrong_writers(
        self, instance: Instance, here: Mapping[str, Mapping[str, Any]]
    ) -> str | None:
        """Tell how another node than the primary node may write to a disk, by its minors."""
        writers = [uuid for uuid, facts in here.items() if facts["role"] == _PRIMARY]
        names = comma_join(self._data.nodes[uuid].name for uuid in writers)
        if writers and writers != [instance.primary_node]:
            return (
                f"is writable on node {names}, but the instance belongs to node"
                f" {self._data.nodes[instance.primary_node].name}, and no migration is under way."
                f" Use 'gnt-instance migrate --cleanup {instance.name}', which finds out where it"
                " runs, and takes the right to write from the other node."
            )
        dual = [self._data.nodes[uuid].name for uuid in here if here[uuid].get("dual_primary")]
        if dual:
            return (
                f"is dual-primary on node {comma_join(dual)}, so that a second node could write,"
                " although no migration is under way. Use 'gnt-instance activate-disks"
                f" {instance.name}', which ends that."
            )
        return None


def _address(endpoint: Sequence[Any]) -> str:
    return f"{endpoint[0]}:{endpoint[1]}"
