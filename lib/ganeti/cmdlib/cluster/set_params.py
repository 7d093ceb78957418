"""Changing the parameters of the cluster.

:mod:`ganeti.cmdlib.ops.params.cluster` computes the new parameters. This unit asks the nodes
whether they support them, and writes the configuration. Then it changes what depends on the
parameters: the master address, the number of master candidates, the limits of the job queue.

With *force*, an objection of a node is only a warning.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti import allocator, errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes, why
from ganeti.cmdlib.hooks import ClusterHooks
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.cmdlib.ops.cluster.common_files import distribute_files
from ganeti.cmdlib.ops.cluster.communication_network import communication_jobs, require_alike
from ganeti.cmdlib.ops.cluster.master_address import move_address
from ganeti.cmdlib.ops.nics import links
from ganeti.cmdlib.ops.node import candidates
from ganeti.cmdlib.ops.params import cluster as params
from ganeti.cmdlib.ops.params import os as os_params
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.cmdlib.ops.verify import machine_storage
from ganeti.cmdlib.ops.verify.storage import MIN_VG_MIB
from ganeti.constants import disk as disk_c
from ganeti.constants import node_verify as nv
from ganeti.constants.instance import IALLOC_HAIL
from ganeti.locking import ALL, Level
from ganeti.objects import Cluster, disk_templates, fill, hypervisors, updated
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.platform import machine, paths, watchdog_files
from ganeti.utils import fs, suggest
from ganeti.utils.text import comma_join
from ganeti.wire.calls import (
    NODE_CHANGE_MASTER_NETMASK,
    NODE_ENSURE_DAEMON,
    NODE_VERIFY,
    OS_VALIDATE,
)

_SHOWN = 10
# Parameters about which nodes are asked, so that the nodes are locked; those which must fit the
# existing instances; and those which concern node groups.
_NODE_PARAMS = (
    "hvparams",
    "enabled_hypervisors",
    "os_hvp",
    "osparams",
    "osparams_private_cluster",
    "vg_name",
    "drbd_helper",
    *disk_templates.directory_fields().values(),
    "enabled_disk_templates",
    "candidate_pool_size",
    "modify_etc_hosts",
    "nicparams",
    "diskparams",
)
_INSTANCE_PARAMS = (
    "hvparams",
    "enabled_hypervisors",
    "os_hvp",
    "beparams",
    "nicparams",
    "ndparams",
    "ipolicy",
    "enabled_disk_templates",
    "vg_name",
    "drbd_helper",
)
_GROUP_PARAMS = ("ipolicy", "enabled_disk_templates", "instance_communication_network")


@dataclass(frozen=True, slots=True)
class ClusterChangePlan:
    """The cluster before the change, and the change."""

    old: Cluster
    change: params.ClusterChange


@executes(OpClusterSetParams)
class LUClusterSetParams(LogicalUnit[OpClusterSetParams, ClusterChangePlan]):
    """Change parameters of the cluster.

    Result: None, or the jobs which create the instance communication network.
    """

    HOOKS = ClusterHooks("cluster-modify")

    # -- locks and hooks -------------------------------------------------------

    def _given(self, names: Iterable[str]) -> bool:
        return any(getattr(self.op, name) is not None for name in names)

    def expand_names(self) -> None:
        if self._given(_INSTANCE_PARAMS):
            self.need(Level.INSTANCE, ALL, shared=True)
        if self._given(_GROUP_PARAMS):
            self.need(Level.NODEGROUP, ALL, shared=True)
        if self._given(_NODE_PARAMS):
            # A new number of candidates changes the roles of nodes.
            self.need(Level.NODE, ALL, shared=self.op.candidate_pool_size is None)

    def hook_env(self, plan: ClusterChangePlan) -> dict[str, object]:
        return {"OP_TARGET": self.config.cluster_name, "NEW_VG_NAME": self.op.vg_name}

    def hook_nodes(self, plan: ClusterChangePlan) -> tuple[list[str], list[str]]:
        master = [self.config.master_node().uuid]
        return master, master

    # -- checks ----------------------------------------------------------------

    def check_prereq(self) -> ClusterChangePlan:
        data = self.config.snapshot()
        change = params.changed(data, self.op, nic_modes=machine.current().nic_modes())
        for text, is_warning in change.notes:
            (self.log.warn if is_warning else self.log.info)(text)
        new = change.cluster
        self._check_etc_hosts(change)
        self._check_allocator(change)
        self._check_hypervisors(new)
        self._check_systems(new)
        self._check_machines(data.cluster, new)
        if self.op.instance_communication_network:
            require_alike(self.config, self.op.instance_communication_network)
        if "ipolicy" in change.values:
            self._tell_violations(new)
        return ClusterChangePlan(data.cluster, change)

    def _object(self, text: str, ecode: str = errors.ECODE_ENVIRON) -> None:
        """Refuse the change; with *force*, only warn."""
        if not self.op.force:
            raise errors.OpPrereqError(text, ecode)
        self.log.warn(text)

    def _check_etc_hosts(self, change: params.ClusterChange) -> None:
        if change.values.get("modify_etc_hosts") and not machine.current().may_edit_etc_hosts:
            raise errors.OpPrereqError(
                "a virtual cluster cannot manage /etc/hosts, because its nodes share the file of"
                " their machine",
                errors.ECODE_ENVIRON,
            )

    def _check_allocator(self, change: params.ClusterChange) -> None:
        name = change.values.get("default_iallocator")
        searched = paths.current().iallocator_search_path
        if not name or allocator.is_builtin(name):
            return
        if fs.find_program(name, searched) is None:
            similar = suggest.did_you_mean(name, _allocators(searched))
            self._object(
                f"instance allocator {name} is in none of the directories {comma_join(searched)} of"
                f" the master.{similar or f' The built-in allocator is {IALLOC_HAIL}.'}",
                errors.ECODE_NOENT,
            )

    def _capable(self, new: Cluster | None = None, hypervisor: str = "") -> list[str]:
        """Return the UUIDs of the nodes for guests.

        If a hypervisor is given, only those which have it count.
        """
        return [
            node.uuid
            for node in self.config.vm_capable_nodes()
            if not node.offline
            and (
                new is None
                or hypervisor in fill.group_hypervisors(new, self.config.group(node.group))
            )
        ]

    def _check_hypervisors(self, new: Cluster) -> None:
        op = self.op
        asked: list[tuple[str, Mapping[str, Any]]] = [
            (name, new.hvparams[name])
            for name in new.enabled_hypervisors
            if op.enabled_hypervisors is not None or name in (op.hvparams or ())
        ]
        for os_name, by_hv in new.os_hvp.items():
            given = (op.os_hvp or {}).get(os_name, {})
            asked += [
                (name, fill.fill_hv(new, name, os_name))
                for name in by_hv
                if name in given and name in new.enabled_hypervisors
            ]
        for name, filled in asked:
            try:
                prereq.hvparams_check(
                    self.config, self._capable(new, name), name, filled, uid_pool=new.uid_pool
                ).make(self.rpc)
            except errors.OpPrereqError as err:
                self._object(str(err), err.ecode or errors.ECODE_INVAL)

    def _check_systems(self, new: Cluster) -> None:
        """Let the OS definitions on the nodes check their new parameters."""
        names = {*(self.op.osparams or ()), *(self.op.osparams_private_cluster or ())}
        for name in sorted(names):
            values, _image = os_params.for_installation(new, name, {}, {}, {})
            answers = self.rpc.call_many(
                OS_VALIDATE,
                self._capable(),
                required=False,
                name=name,
                checks=["parameters"],
                params=values,
                force_variant=True,
            )
            for answer in answers.values():
                if isinstance(answer.failure, errors.NodeCallFailed):
                    self._object(
                        f"node {answer.node_name}: {answer.failure.message}", errors.ECODE_INVAL
                    )
                elif not answer.offline:
                    answer.payload()
                    if answer.data is False:
                        self.log.info(
                            f"OS {name} is not on node {answer.node_name}, so its parameters"
                            " were not checked there"
                        )

    def _check_machines(self, old: Cluster, new: Cluster) -> None:
        """Ask the nodes whether they have the storage and the links which the change names."""
        checks, groups = self._storage_checks(old, new)
        nodes = self._capable()
        link = new.nicparams["default"]
        if link != old.nicparams.get("default"):
            names = [self.config.node(uuid).name for uuid in nodes]
            checks |= links.node_checks(link, names)
        metadata = self._metadata_groups(old, new, nodes)
        if not (checks or metadata):
            return
        if metadata:
            nodes = nodes if checks else list(metadata)
            checks[nv.VGLIST] = None
        answers = self.rpc.call_many(
            NODE_VERIFY, nodes, checks=checks, cluster_name=new.cluster_name, all_hvparams={}
        )
        for uuid, answer in answers.items():
            if answer.failure is not None:
                self._object(
                    f"node {answer.node_name} could not be asked about its storage and network:"
                    f" {why(answer.failure)}"
                )
                continue
            wanted = {metadata[uuid]: 0, **groups} if uuid in metadata else groups
            found = machine_storage.problems(new, answer.data, wanted) + links.problems(answer.data)
            for problem in found:
                self._object(f"node {answer.node_name}: {problem}")

    def _metadata_groups(self, old: Cluster, new: Cluster, nodes: Sequence[str]) -> dict[str, str]:
        """Return the volume group for metadata of DRBD for each node which gets another one.

        What its node group names counts first; when DRBD is enabled, every node gets one.
        """
        if disk_c.DRBD8 not in new.enabled_disk_templates:
            return {}
        data = self.config.snapshot()
        found = {}
        for uuid in nodes:
            group = data.nodegroups[data.nodes[uuid].group]
            had = fill.metavg(old, group) if disk_c.DRBD8 in old.enabled_disk_templates else None
            wanted = fill.metavg(new, group)
            if wanted and wanted != had:
                found[uuid] = wanted
        return found

    def _storage_checks(
        self, old: Cluster, new: Cluster
    ) -> tuple[dict[str, Any], dict[str | None, int]]:
        """Return the checks of storage, and the volume groups with the sizes in MiB they need."""
        checks: dict[str, Any] = {}
        groups: dict[str | None, int] = {}
        enabled = set(new.enabled_disk_templates)
        fresh = enabled - set(old.enabled_disk_templates)
        for template, check in disk_templates.directory_checks().items():
            directory = new.disk_directory(template)
            changed = template in fresh or directory != old.disk_directory(template)
            if check.must_pass_before and template in enabled and changed:
                checks[check.name] = directory
        if disk_templates.LVM_BASED & enabled and (
            disk_templates.LVM_BASED & fresh or self.op.vg_name is not None
        ):
            groups[new.volume_group_name] = MIN_VG_MIB
        if groups:
            checks[nv.VGLIST] = None
        if new.drbd_usermode_helper and (self.op.drbd_helper is not None or disk_c.DRBD8 in fresh):
            checks[nv.DRBDHELPER] = new.drbd_usermode_helper
        return checks, groups

    def _tell_violations(self, new: Cluster) -> None:
        """Warn about instances which violate the new policy, but not the old one."""
        data = self.config.snapshot()
        found = []
        for instance in self.config.instances():
            if instance.primary_node not in data.nodes:
                continue
            group = data.nodegroups[data.nodes[instance.primary_node].group]
            before, after = (
                fill.fill_ipolicy(cluster.ipolicy, group.ipolicy) for cluster in (data.cluster, new)
            )
            if policy.newly_violates(before, after, self.config.filled(instance)):
                found.append(instance.name)
        if found:
            more = f" and {len(found) - _SHOWN} others" if len(found) > _SHOWN else ""
            self.log.warn(
                f"these instances violate the new policy: {comma_join(found[:_SHOWN])}{more}"
            )

    # -- act -------------------------------------------------------------------

    def steps(self, plan: ClusterChangePlan) -> list[str]:
        values = plan.change.values
        moves = bool({"master_netdev", "use_external_mip_script"} & set(values))
        found = ["take the master address down"] if moves else []
        for name, value in values.items():
            found += _described(name, getattr(plan.old, name), value)
        if moves:
            found.append("bring the master address up; if that fails, undo everything")
        if self.op.witness is not None and plan.change.cluster.witness is not None:
            found.append("check the server of the witness, and write its first document")
        if self.op.candidate_pool_size is not None:
            data = self.config.snapshot()
            wanted = min(
                self.op.candidate_pool_size, sum(map(candidates.eligible, data.nodes.values()))
            )
            present = candidates.present_count(data)
            if wanted != present:
                verb = "promote" if wanted > present else "demote"
                found.append(
                    f"{verb} nodes, so that there are {wanted} instead of {present} master"
                    " candidates"
                )
        if self.op.instance_communication_network:
            jobs = communication_jobs(self.config, self.op.instance_communication_network)
            if jobs:
                found.append(
                    f"submit {len(jobs)} jobs for network {self.op.instance_communication_network}"
                )
        return found

    def exec(self, plan: ClusterChangePlan) -> ResultWithJobs | None:
        values = plan.change.values
        if self.op.witness is not None and plan.change.cluster.witness is not None:
            self._set_up_witness(plan.change.cluster.witness)
        if {"master_netdev", "use_external_mip_script"} & set(values):
            move_address(
                self.ctx,
                lambda: self._commit(plan),
                lambda: self._put_back(plan),
                force=self.op.force,
            )
        elif values:
            self._commit(plan)
        if "master_netmask" in values and "master_netdev" not in values:
            self._change_netmask(plan.old)
        if self.op.candidate_pool_size is not None:
            candidates.keep_pool_size(self.ctx)
        if values.get("modify_etc_hosts"):
            for node in self.config.nodes():
                ssh_keys.name_in_etc_hosts(self.ctx, node, add=True)
            distribute_files(self.ctx)
        if {"enabled_user_shutdown", "enabled_hypervisors"} & set(values):
            self._ensure_shutdown_daemons()
        if "auto_failover" in values:
            self._ensure_failover_daemons()
        if "node_watchdog" in values:
            self._ensure_watchdog_daemons()
        if self.op.instance_communication_network:
            jobs = communication_jobs(self.config, self.op.instance_communication_network)
            return ResultWithJobs(jobs) if jobs else None
        return None

    def _set_up_witness(self, url: str) -> None:
        """Check the server of the witness, and let the other candidates use it.

        :raises OpExecError: it cannot be the witness; the cluster was not changed.
        """
        service = self.ctx.witness
        if service is None:
            return
        try:
            service.set_up(url)
        except errors.GenericError as err:
            raise errors.OpExecError(f"{err}. The cluster was not changed.") from err
        distribute_files(self.ctx)

    def _ensure_shutdown_daemons(self) -> None:
        """Start the daemons which notice shutdowns from inside a guest, or stop them."""
        cluster = self.config.cluster()
        nodes = [node.uuid for node in self.config.vm_capable_nodes() if not node.offline]
        for hypervisor in hypervisors.ALL.values():
            daemon = hypervisor.shutdown_daemon
            if not daemon:
                continue
            enabled = hypervisor.name in cluster.enabled_hypervisors
            self._ensure(daemon, nodes, run=cluster.enabled_user_shutdown and enabled)

    def _ensure_failover_daemons(self) -> None:
        """Start the daemons which watch the master, or stop them."""
        nodes = [node.uuid for node in self.config.online_nodes()]
        self._ensure("ganeti-failoverd", nodes, run=self.config.cluster().auto_failover is not None)

    def _ensure_watchdog_daemons(self) -> None:
        """Start the daemons of the hardware watchdogs.

        None is stopped: each releases its node together with the master, and stays idle.
        """
        if self.config.cluster().node_watchdog is not None:
            nodes = [node.uuid for node in self.config.online_nodes()]
            self._ensure(watchdog_files.DAEMON, nodes, run=True)

    def _ensure(self, daemon: str, nodes: list[str], *, run: bool) -> None:
        answers = self.rpc.call_many(NODE_ENSURE_DAEMON, nodes, daemon=daemon, run=run)
        for answer in answers.values():
            if answer.failure is not None:
                self.log.warn(
                    f"node {answer.node_name}: {daemon} could not be"
                    f" {'started' if run else 'stopped'}: {why(answer.failure)}"
                )

    def _commit(self, plan: ClusterChangePlan) -> None:
        values = plan.change.values
        with self.config.transaction() as change:
            now = change.data.cluster
            if any(getattr(now, name) != getattr(plan.old, name) for name in values):
                # Another job changed the same parameters meanwhile: merge with its changes.
                values = params.changed(
                    change.data, self.op, nic_modes=machine.current().nic_modes()
                ).values
            if values.get("auto_instance_failover") and not now.auto_instance_failover:
                # While it was off, nobody kept these records true.
                for disk in change.data.disks.values():
                    change.disks.forget_never_alone(disk.uuid)
            change.cluster.update(updated(now, **values))

    def _put_back(self, plan: ClusterChangePlan) -> None:
        old = {name: getattr(plan.old, name) for name in plan.change.values}
        with self.config.transaction() as change:
            change.cluster.update(updated(change.data.cluster, **old))

    def _change_netmask(self, old: Cluster) -> None:
        cluster = self.config.cluster()
        answer = self.rpc.call(
            NODE_CHANGE_MASTER_NETMASK,
            cluster.master_node,
            old_netmask=old.master_netmask,
            netmask=cluster.master_netmask,
            master_ip=cluster.master_ip,
            master_netdev=cluster.master_netdev,
        )
        if answer.failure is not None:
            self.log.warn(
                f"the netmask of the master address was not changed: {why(answer.failure)}",
                hint="Use 'gnt-cluster deactivate-master-ip' and 'gnt-cluster activate-master-ip'.",
            )


def _described(name: str, old: Any, new: Any) -> list[str]:
    """Describe a change of a parameter, of a nested one each value which differs."""
    if name == "osparams_private_cluster":
        changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        return [f"change private parameters of OS {comma_join(changed)}"]
    if isinstance(new, dict) and isinstance(old, dict):
        found = []
        for key in sorted({*old, *new}):
            if key not in new:
                found.append(f"remove {name} {key}")
            elif old.get(key) != new[key]:
                found += _described(f"{name} {key}", old.get(key), new[key])
        return found
    shown = comma_join(map(str, new)) if isinstance(new, (list, tuple)) else new
    return [f"set {name} to {shown}" if shown not in ("", None) else f"clear {name}"]


def _allocators(searched: Iterable[str]) -> list[str]:
    """Return the names of all allocators: the built-in one, and the programs in directories."""
    found = {IALLOC_HAIL}
    for directory in searched:
        with contextlib.suppress(OSError):
            found.update(os.listdir(directory))
    return sorted(found)
