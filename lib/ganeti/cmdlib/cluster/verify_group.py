"""Verifying a node group: asks its nodes and compares their answers with the configuration.

The unit collects the answers of the nodes (:class:`Gathered`), then a function for each subject
checks them and reports problems to :class:`~ganeti.cmdlib.ops.verify.findings.Findings`. Offline
nodes are not asked. Nothing is reported about them, except instances which should run there. A node
in maintenance which may be switched off, and does not answer, is a notice, and no problem.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ganeti import FULL_VERSION, errors
from ganeti.cmdlib import locks, prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import FAILED, ClusterHooks, HookResults
from ganeti.cmdlib.ops.cluster import ssh_keys
from ganeti.cmdlib.ops.node import roles
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.cmdlib.ops.policy import ratios
from ganeti.cmdlib.ops.verify import (
    devices,
    directories,
    files,
    guest_users,
    layout,
    maintenance,
    os_definitions,
    programs,
    queue,
    watcher,
)
from ganeti.cmdlib.ops.verify import storage as verify_storage
from ganeti.cmdlib.ops.verify.answers import understood
from ganeti.cmdlib.ops.verify.findings import Findings
from ganeti.config import damaged
from ganeti.config.index_keys import INSTANCE_NAME
from ganeti.constants import hv
from ganeti.constants import node_verify as nv
from ganeti.constants.disk import FILE
from ganeti.constants.instance import ADMIN_UP
from ganeti.constants.net import NIC_MODE_BRIDGED
from ganeti.constants.rpc import PROTOCOL_VERSION
from ganeti.constants.verify import CHECK_HVPARAM_ASSESSMENT, CHECK_NPLUSONE_MEM, WARNING
from ganeti.htools.instance import memory_to_keep
from ganeti.locking import Level
from ganeti.objects import Instance, Node, NodeGroup, disk_templates, fill
from ganeti.objects import halt as halts
from ganeti.objects.disk_templates import MIRRORED
from ganeti.objects.halt import Halt
from ganeti.opcodes.cluster import OpClusterVerifyGroup
from ganeti.utils import clock
from ganeti.utils.text import comma_join
from ganeti.wire.calls import ALL_INSTANCES_INFO, NODE_INFO, NODE_VERIFY, Guests

if TYPE_CHECKING:
    from ganeti.rpc import Result

MAX_CLOCK_SKEW_S = 150


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """The objects to verify, as they were when all locks were held."""

    group: NodeGroup
    nodes: tuple[Node, ...]
    instances: tuple[Instance, ...]


@dataclass(slots=True)
class Gathered:
    """Answers of the nodes, by UUID; a node which did not answer a call is missing in its table.

    :ivar verify: results of ``node_verify``.
    :ivar running: results of ``all_instances_info``: the guests which hypervisors know.
    :ivar places: name of an instance -> UUIDs of the nodes whose hypervisors know it.
    :ivar unresponsive: UUID and name of each node which could not be reached. One error is reported
        for each, and none for what follows from it.
    :ivar free_mib: free memory.
    :ivar asked_at: time before ``node_verify``, in seconds since 1970.
    :ivar answered_at: time after ``node_verify``.
    :ivar mistaken: UUIDs of those of them at whose addresses another machine answers.
    :ivar off: UUIDs of those of them which are in maintenance and may be switched off.
    """

    verify: dict[str, dict[str, Any]] = field(default_factory=dict)
    running: dict[str, Guests] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    unresponsive: dict[str, str] = field(default_factory=dict)
    mistaken: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    free_mib: dict[str, int] = field(default_factory=dict)
    asked_at: float = 0.0
    answered_at: float = 0.0

    def tells(self, instance: Instance) -> bool:
        """Whether it is known if the guest of an instance runs on its primary node."""
        guests = self.running.get(instance.primary_node)
        return guests is not None and instance.hypervisor not in guests.problems


@executes(OpClusterVerifyGroup)
class LUClusterVerifyGroup(LogicalUnit[OpClusterVerifyGroup, VerifyPlan]):
    """Check the nodes and instances of a group. Result: whether no error was found."""

    HOOKS = ClusterHooks("cluster-verify")

    # -- locks -----------------------------------------------------------------

    def expand_names(self) -> None:
        self.group = self.config.expand_group(self.op.group_name)
        instances = locks.instances_of_group(self, self.group.uuid)
        self.need(Level.INSTANCE, instances, shared=True)
        self.need(Level.NODEGROUP, [self.group.uuid], shared=True)

    def declare_locks(self, level: Level) -> None:
        if level is Level.NODE:
            nodes = locks.nodes_of_group(self, self.group.uuid)
            self.need(level, nodes, shared=True)

    def check_prereq(self) -> VerifyPlan:
        locks.require_still_same(
            self.owned(Level.INSTANCE),
            locks.instances_of_group(self, self.group.uuid),
            f"the set of instances in group {self.group.name}",
        )
        locks.require_still_same(
            self.owned(Level.NODE),
            locks.nodes_of_group(self, self.group.uuid),
            f"the set of nodes in group {self.group.name}",
        )
        data = self.config.snapshot()
        nodes = tuple(n for n in self.config.nodes() if n.group == self.group.uuid)
        uuids = {node.uuid for node in nodes}
        instances = tuple(i for i in self.config.instances() if i.primary_node in uuids)
        return VerifyPlan(data.nodegroups[self.group.uuid], nodes, instances)

    # -- hooks -----------------------------------------------------------------

    def hook_env(self, plan: VerifyPlan) -> dict[str, object]:
        env: dict[str, object] = {"CLUSTER_TAGS": " ".join(sorted(self.config.cluster().tags))}
        for node in plan.nodes:
            env[f"NODE_TAGS_{node.name}"] = " ".join(sorted(node.tags))
        return env

    def hook_nodes(self, plan: VerifyPlan) -> tuple[list[str], list[str]]:
        return [], [node.uuid for node in plan.nodes]

    def post_hooks_done(self, results: HookResults, result: bool) -> bool:
        findings = self.findings
        findings.section("Results of the hooks")
        for answer in results.values():
            if answer.offline:
                continue
            if answer.failure is not None:
                text = f"its hooks could not be run: {answer.failure}"
                findings.report("ENODEHOOKS", answer.node_name, text)
            for script in answer.scripts:
                if script.status != FAILED:
                    continue
                findings.report("ENODEHOOKS", answer.node_name, f"hook {script.script} failed")
                for line in script.output.splitlines():
                    self.log.feedback(f"      {line}")
        return result and not findings.failed

    # -- act -------------------------------------------------------------------

    def exec(self, plan: VerifyPlan) -> bool:
        findings = self.findings = Findings(self.log.feedback, self.op)
        self.ssh_problems: list[tuple[str, str]] = []
        findings.section(f"Checking group '{plan.group.name}'")
        if not plan.nodes:
            findings.section("The group has no nodes, nothing to check")
            return True
        online = [node for node in plan.nodes if not node.offline]
        findings.section(f"Asking {len(online)} node(s)")
        gathered = self._gather(plan, online)
        online = [node for node in online if node.uuid not in gathered.off]
        findings.section("Comparing files")
        files.FileCheck(self.config, self.rpc, findings, online, gathered.verify).run()
        findings.section("Comparing the copies of the job queue")
        answering = [node for node in online if node.uuid in gathered.verify]
        queue.compare_copies(self.config, self.rpc, findings, answering)
        findings.section("Checking nodes")
        master = self.config.cluster().master_node
        for node in plan.nodes:
            # Ganeti design 2.0, *Interaction between flags*.
            findings.detail(f"node {node.name}: {roles.role_of(node, master).label}")
        for uuid, problem in self.ssh_problems:
            if uuid not in gathered.unresponsive:
                findings.report("ENODESSH", "", problem)
        for node in online:
            self._node(findings, node, gathered)
        self._reached_by_others(findings, gathered)
        guest_users.check(findings, self.config.cluster(), plan.instances, online, gathered.verify)
        layout.exclusion_tags(self.config, findings, plan.nodes)
        storage = verify_storage.StorageCheck(
            self.config, self.rpc, findings, online, gathered.verify, gathered.unresponsive
        )
        storage.nodes()
        storage.versions()
        storage.physical_sizes(plan.group)
        os_definitions.compare(findings, online, gathered.verify)
        directories.compare(findings, self.config, self.rpc, online, gathered.verify)
        findings.section("Checking instances")
        for instance in plan.instances:
            self._instance(findings, instance, gathered)
        self._unknown_instances(findings, plan, gathered)
        layout.instances(self.config, findings, plan.instances)
        storage.disks(plan.instances)
        devices.check(self.config.snapshot(), findings, plan.instances, online, gathered.verify)
        findings.section("Looking for unknown volumes")
        storage.volumes()
        storage.left_disks(plan.group)
        findings.section("Looking for unknown instances")
        self._orphans(findings, online, gathered)
        if CHECK_NPLUSONE_MEM not in self.op.skip_checks:
            findings.section("Checking memory for the failure of a node")
            self._nplusone(findings, online, gathered)
        findings.section("Other notes")
        self._notes(findings, plan)
        maintenance.notes(self.config, findings, plan.nodes, gathered.off)
        findings.summary()
        # Their hooks could not be run either; one error for each of these nodes is enough.
        assert self.hooks is not None
        self.hooks.leave_out(gathered.unresponsive)
        return not findings.failed

    # -- asking ----------------------------------------------------------------

    def _checks(self, plan: VerifyPlan, nodes: list[Node]) -> dict[str, Any]:
        cluster = self.config.cluster()
        checks: dict[str, Any] = {
            nv.CLIENT_CERT: None,
            nv.CONFIG_JOURNAL: None,
            nv.DAEMON_USER: None,
            nv.FILELIST: files.listed(self.config),
            nv.HYPERVISOR: list(fill.group_hypervisors(cluster, plan.group)),
            nv.NODENETTEST: [[node.name, node.primary_ip, node.secondary_ip] for node in nodes],
            nv.NODESETUP: None,
            nv.OSLIST: None,
            nv.TIME: None,
            nv.VERSION: None,
            nv.WATCHER: None,
        }
        if ssh_keys.is_managed(cluster):
            argument, self.ssh_problems = ssh_keys.verification(self.config, self.rpc)
            if argument is not None:
                checks[nv.SSH_SETUP] = argument
            if self.op.verify_clutter:
                checks[nv.SSH_CLUTTER] = [node.name for node in self.config.nodes()]
        exclusive = bool(fill.fill_nd(cluster, plan.group)["exclusive_storage"])
        checks.update(verify_storage.node_checks(self.config.snapshot(), exclusive))
        checks.update(programs.node_checks(self.config))
        checks.update(devices.node_checks(self.config.snapshot(), nodes))
        bridges = self._bridges()
        if bridges:
            checks[nv.BRIDGES] = bridges
        switches = self._switches(plan.group, nodes)
        if switches:
            checks[nv.OPENVSWITCH] = switches
        incapable = [node.name for node in nodes if not node.vm_capable]
        if incapable:
            checks[nv.NONVMNODES] = incapable
        if CHECK_HVPARAM_ASSESSMENT not in self.op.skip_checks:
            checks[nv.HVPARAMS] = [
                [
                    f"instance {instance.name}",
                    instance.hypervisor,
                    fill.instance_hv(cluster, instance),
                ]
                for instance in plan.instances
            ]
        if FILE in cluster.enabled_disk_templates:
            checks[nv.ACCEPTED_STORAGE_PATHS] = self.config.master_node().name
        return checks

    def _bridges(self) -> list[str]:
        """Bridges to which NICs of instances are attached."""
        cluster = self.config.cluster()
        found = set()
        for instance in self.config.instances():
            for nic in instance.nics:
                params = fill.fill_nic(cluster, nic.nicparams)
                if params.get("mode") == NIC_MODE_BRIDGED:
                    found.add(str(params["link"]))
        return sorted(found)

    def _switches(self, group: NodeGroup, nodes: list[Node]) -> dict[str, list[str | None]]:
        """Return the name of each node with the parameter ``ovs`` -> its switch and the interface
        of that.
        """
        cluster = self.config.cluster()
        filled = {node.name: fill.fill_nd(cluster, group, node) for node in nodes}
        return {
            name: [params["ovs_name"], params["ovs_link"] or None]
            for name, params in filled.items()
            if params["ovs"]
        }

    def _gather(self, plan: VerifyPlan, online: list[Node]) -> Gathered:
        cluster = self.config.cluster()
        hvparams = {
            name: cluster.hvparams.get(name, {})
            for name in fill.group_hypervisors(cluster, plan.group)
        }
        gathered = Gathered(asked_at=clock.now())
        answers = self.rpc.call_many(
            NODE_VERIFY,
            [node.uuid for node in online],
            checks=self._checks(plan, online),
            cluster_name=cluster.cluster_name,
            all_hvparams=hvparams,
        )
        gathered.answered_at = clock.now()
        self._sort_nodes(answers, gathered)
        capable = [node.uuid for node in online if node.vm_capable and node.uuid in gathered.verify]
        gathered.running = self._data(
            self.rpc.call_many(
                ALL_INSTANCES_INFO,
                capable,
                hypervisors=list(hvparams),
                hvparams=hvparams,
                apart=True,
            )
        )
        for uuid, guests in gathered.running.items():
            for hypervisor, problem in guests.problems.items():
                text = f"hypervisor {hypervisor} does not tell its guests: {problem}"
                self.findings.report("ENODEHV", self.config.node(uuid).name, text)
            for name in guests:
                gathered.places.setdefault(name, []).append(uuid)
        self._gather_memory(capable, hvparams, gathered)
        return gathered

    def _sort_nodes(self, answers: dict[str, Result], gathered: Gathered) -> None:
        """Sort the nodes by whether they answered ``node_verify``, and why not."""
        gathered.off = frozenset(
            uuid
            for uuid, answer in answers.items()
            if isinstance(answer.failure, errors.NodeUnreachable)
            and self.config.node(uuid).may_be_off()
        )
        gathered.verify = {
            uuid: understood(self.findings, answers[uuid].node_name, answer)
            for uuid, answer in self._data(answers, gathered.off).items()
        }
        gathered.unresponsive = {
            uuid: answer.node_name
            for uuid, answer in answers.items()
            if isinstance(answer.failure, errors.NodeUnreachable | errors.NodeKeyMismatch)
        }
        gathered.mistaken = frozenset(
            uuid
            for uuid, answer in answers.items()
            if isinstance(answer.failure, errors.NodeKeyMismatch)
        )

    def _gather_memory(
        self, capable: list[str], hvparams: dict[str, Any], gathered: Gathered
    ) -> None:
        """Ask the first hypervisor of each node for its free memory, and check the ratios."""
        facts = self._data(
            self.rpc.call_many(
                NODE_INFO,
                capable,
                storage_units=[],
                hv_specs=[list(spec) for spec in hvparams.items()][:1],
            )
        )
        uses = ratios.present_uses(self.config.snapshot(), facts)
        for uuid, (_boot_id, _storage, hypervisors) in facts.items():
            node = self.config.node(uuid)
            free_mib = hypervisors[0].get("memory_free") if hypervisors else None
            self._ratios(self.findings, node, uses, hypervisors)
            if isinstance(free_mib, int):
                gathered.free_mib[uuid] = free_mib
            else:
                why_not = hypervisors[0].get("problem") if hypervisors else None
                text = "did not report its free memory" + (f": {why_not}" if why_not else "")
                self.findings.report("ENODERPC", node.name, text)

    def _ratios(
        self,
        findings: Findings,
        node: Node,
        uses: Mapping[str, ratios.Use],
        hypervisors: list[Any] | None,
    ) -> None:
        """Compare what the instances of a node use with the ratios of the policy."""
        data = self.config.snapshot()
        facts = hypervisors[0] if hypervisors else None
        for problem in ratios.problems(data, node, uses.get(node.uuid, ratios.Use()), facts):
            text = f"policy of group {data.nodegroups[node.group].name}: {problem}"
            findings.report("ECLUSTERCFG", "", text.replace(" would have ", " has "), warning=True)

    def _data(self, answers: dict[str, Result], expected: Collection[str] = ()) -> dict[str, Any]:
        """Return the answers by UUID of the node; report failures.

        :param expected: UUIDs of the nodes whose failure is not a problem.
        """
        found = {}
        for uuid, answer in answers.items():
            failure = answer.failure
            if uuid in expected:
                continue
            self.findings.check(
                failure is not None,
                "ENODERPC",
                answer.node_name,
                f"could not be asked: {why(failure)}",
            )
            if failure is None:
                found[uuid] = answer.data
        return found

    # -- nodes -----------------------------------------------------------------

    def _node(self, findings: Findings, node: Node, gathered: Gathered) -> None:
        answer = gathered.verify.get(node.uuid)
        if answer is None:
            return
        version, release = answer.get(nv.VERSION) or (None, None)
        findings.check(
            version != PROTOCOL_VERSION,
            "ENODEVERSION",
            node.name,
            f"uses protocol {version}, the master {PROTOCOL_VERSION}",
        )
        findings.check(
            version == PROTOCOL_VERSION and release != FULL_VERSION,
            "ENODEVERSION",
            node.name,
            f"runs version {release}, the master {FULL_VERSION}",
            warning=True,
        )
        self._time(findings, node, answer.get(nv.TIME), gathered)
        for check in (nv.SSH_SETUP, nv.SSH_CLUTTER):
            for problem in answer.get(check) or ():
                findings.report("ENODESSH", node.name, problem)
        for problem in answer.get(nv.NODESETUP) or ():
            findings.report("ENODESETUP", node.name, f"is not set up correctly: {problem}")
        if node.vm_capable:
            for name, problem in (answer.get(nv.HYPERVISOR) or {}).items():
                text = f"hypervisor {name} is not usable: {problem}"
                findings.check(bool(problem), "ENODEHV", node.name, text)
            for source, name, problem in answer.get(nv.HVPARAMS) or ():
                text = f"parameters of hypervisor {name} of {source} do not work: {problem}"
                findings.report("ENODEHV", node.name, text)
            self._storage_paths(findings, node, answer)
        for other, problem in (answer.get(nv.NODENETTEST) or {}).items():
            if other in gathered.unresponsive.values():
                continue
            text = f"cannot reach node {other}: {problem}"
            findings.check(bool(problem), "ENODENET", node.name, text)
        missing = answer.get(nv.BRIDGES) or []
        text = f"does not have the bridges {', '.join(missing)}"
        findings.check(bool(missing), "ENODENET", node.name, text)
        lacking = answer.get(nv.OPENVSWITCH)
        text = f"{lacking}. Make the switch with 'gnt-node add --readd {node.name}', or by hand"
        findings.check(bool(lacking), "ENODENET", node.name, text)
        programs.node(self.config, findings, node, answer)
        watcher.node(self.config.snapshot(), findings, node, answer)
        files.journal(findings, node, answer)
        self._client_certificate(findings, node, answer.get(nv.CLIENT_CERT))
        findings.check(
            not node.key_pins and any(one.key_pins for one in self.config.nodes()),
            "ECLUSTERCLIENTCERT",
            "",
            f"the key of node {node.name} is not known, so another node could answer at its"
            " address."
            " Its node daemon shows the key of the cluster: it is of an older version, or its"
            " certificate cannot be used, as its log says. After a repair the master learns the key"
            " within minutes",
            warning=True,
        )

    @staticmethod
    def _time(findings: Findings, node: Node, answer: Any, gathered: Gathered) -> None:
        if not isinstance(answer, (list, tuple)) or len(answer) != 2:
            findings.report("ENODETIME", node.name, "did not report its time")
            return
        seconds = answer[0] + answer[1] / 1e6
        early = gathered.asked_at - seconds
        late = seconds - gathered.answered_at
        skew = max(early, late)
        findings.check(
            skew > MAX_CLOCK_SKEW_S,
            "ENODETIME",
            node.name,
            f"its clock is {'behind' if early > late else 'ahead'} by {skew:.1f} s or more",
        )

    @staticmethod
    def _storage_paths(findings: Findings, node: Node, answer: dict[str, Any]) -> None:
        for check in disk_templates.directory_checks().values():
            problem = answer.get(check.name)
            text = f"its directory for {check.content} is not usable: {problem}"
            findings.check(bool(problem), check.finding, node.name, text)
        wrong = answer.get(nv.ACCEPTED_STORAGE_PATHS) or []
        text = f"its list of file storage directories has forbidden ones: {', '.join(wrong)}"
        findings.check(bool(wrong), "ENODEFILESTORAGEPATHS", node.name, text)

    def _client_certificate(self, findings: Findings, node: Node, answer: Any) -> None:
        if not isinstance(answer, (list, tuple)) or len(answer) != 2:
            findings.report(
                "ECLUSTERCLIENTCERT", "", f"node {node.name} did not report its client certificate"
            )
            return
        problem, digest = answer
        if problem:
            text = f"node {node.name}: {digest}"
            findings.report("ECLUSTERCLIENTCERT", "", text, warning=problem == WARNING)
            return
        listed = self.config.cluster().candidate_certs.get(node.uuid)
        if not node.master_candidate:
            text = f"node {node.name} is not a master candidate, but its certificate is listed"
            findings.check(listed is not None, "ECLUSTERCLIENTCERT", "", text)
        elif listed is None:
            text = f"the certificate of master candidate {node.name} is not listed"
            findings.report("ECLUSTERCLIENTCERT", "", text)
        else:
            text = f"master candidate {node.name} has another certificate than the one listed"
            findings.check(listed != digest, "ECLUSTERCLIENTCERT", "", text)

    # -- instances -------------------------------------------------------------

    def _instance(self, findings: Findings, instance: Instance, gathered: Gathered) -> None:
        if instance.forthcoming:
            return
        node = self.config.node(instance.primary_node)
        # Filling all parameters of the instance is slow, and the policy uses only a few of them.
        for problem in policy.violations(
            self.config,
            node,
            beparams=fill.fill_be(self.config.cluster(), instance.beparams),
            disk_sizes_mib=policy.counted_sizes(
                instance.hypervisor,
                lambda: self.config.filled(instance).hvparams,
                ((disk.name, disk.size) for disk in self.config.instance_disks(instance)),
            ),
            nic_count=len(instance.nics),
            disk_template=self.config.disk_template(instance),
        ):
            findings.report("EINSTANCEPOLICY", instance.name, problem, warning=True)
        wanted = instance.admin_state == ADMIN_UP
        if node.offline:
            text = f"should run, but its node {node.name} is offline"
            findings.check(wanted, "EINSTANCEBADNODE", instance.name, text)
        elif not node.vm_capable:
            text = f"its node {node.name} is not vm_capable"
            findings.report("EINSTANCEBADNODE", instance.name, text)
        elif gathered.tells(instance):
            facts = gathered.running[node.uuid].get(instance.name, {})
            runs = prereq.is_running(facts)
            text = f"should run, but does not run on its node {node.name}"
            halt = halts.of_facts(facts)
            if halt is not None:
                self._halted(findings, instance, halt)
            missing = wanted and not (runs or halt) and not maintenance.is_stopped(instance, node)
            findings.check(missing, "EINSTANCEDOWN", instance.name, text)
            text = f"is marked {instance.admin_state}, but runs on its node {node.name}"
            findings.check(runs and not wanted, "EINSTANCEDOWN", instance.name, text, warning=True)
        for uuid in gathered.places.get(instance.name, ()):
            if uuid != node.uuid:
                other = self.config.node(uuid).name
                text = (
                    f"runs on node {other}, but its primary node is {node.name}."
                    f" {self._way_back(instance, node)}"
                )
                findings.report("EINSTANCEWRONGNODE", instance.name, text)

    def _way_back(self, instance: Instance, node: Node) -> str:
        """Say what to do when an instance runs elsewhere than on its primary node."""
        if self.config.disk_template(instance) not in MIRRORED:
            return (
                f"Its disks are on node {node.name} only. Look on both nodes which guest has the"
                " disks, and end the other one by hand; never start it a second time before that"
            )
        return (
            f"Use 'gnt-instance migrate --cleanup {instance.name}', which finds out where it runs,"
            " and makes both nodes and the configuration agree"
        )

    @staticmethod
    def _halted(findings: Findings, instance: Instance, halt: Halt) -> None:
        """Report a guest which lives, or has left something, and does not run."""
        findings.report(
            "EINSTANCEDOWN",
            instance.name,
            f"does not run, although it was started: {halt.text()}. {halt.remedy(instance.name)}",
            warning=instance.admin_state != ADMIN_UP or halt.kind == hv.HALT_PAUSED,
        )

    def _unknown_instances(self, findings: Findings, plan: VerifyPlan, gathered: Gathered) -> None:
        """Name the instances of nodes which did not report their guests, in a line per node."""
        unknown: dict[str, list[str]] = {}
        for instance in plan.instances:
            node = self.config.node(instance.primary_node)
            if instance.forthcoming or node.offline or not node.vm_capable:
                continue
            if not gathered.tells(instance) and node.uuid not in gathered.off:
                unknown.setdefault(node.name, []).append(instance.name)
        for name, instances in unknown.items():
            findings.note(
                f"it is unknown whether these instances run on node {name}, which is their primary"
                f" node: {comma_join(instances)}"
            )

    @staticmethod
    def _reached_by_others(findings: Findings, gathered: Gathered) -> None:
        """Name the nodes which reach a node that the master cannot reach."""
        for uuid, name in gathered.unresponsive.items():
            if uuid in gathered.mistaken or uuid in gathered.off:
                continue
            tests = [answer.get(nv.NODENETTEST) for answer in gathered.verify.values()]
            reaching = sum(isinstance(test, dict) and name not in test for test in tests)
            if reaching:
                findings.note(
                    f"{reaching} of {len(tests)} nodes which answer can reach node {name}, which"
                    " the master cannot"
                )

    def _orphans(self, findings: Findings, online: list[Node], gathered: Gathered) -> None:
        data = self.config.snapshot()
        known = {instance.name for instance in data.instances.values()}
        known |= damaged.values_in_use(data, INSTANCE_NAME)
        for node in online:
            for name in sorted(gathered.running.get(node.uuid, {})):
                text = f"runs instance {name}, which is not in the configuration"
                findings.check(name not in known, "ENODEORPHANINSTANCE", node.name, text)

    def _nplusone(self, findings: Findings, online: list[Node], gathered: Gathered) -> None:
        """Check that each node has the memory to take over the instances of another failed node."""
        cluster = self.config.cluster()
        for node in online:
            if node.uuid not in gathered.free_mib:
                continue
            moved: list[tuple[str, int]] = []
            for instance in self.config.node_instances(node.uuid)[1]:
                if instance.forthcoming or instance.admin_state != ADMIN_UP:
                    continue
                beparams = fill.fill_be(cluster, instance.beparams)
                if beparams["auto_balance"]:
                    moved.append((instance.primary_node, beparams["minmem"]))
            free_mib = gathered.free_mib[node.uuid]
            for primary, needed_mib in memory_to_keep(moved).items():
                text = (
                    "cannot take over the instances of node"
                    f" {self.config.node(primary).name}: {needed_mib} MiB needed, {free_mib} MiB"
                    " free"
                )
                findings.check(needed_mib > free_mib, "ENODEN1", node.name, text)

    def _notes(self, findings: Findings, plan: VerifyPlan) -> None:
        reserved = [i for i in plan.instances if i.forthcoming]
        single = [
            i
            for i in plan.instances
            if not i.forthcoming and self.config.disk_template(i) not in MIRRORED
        ]
        for count, text in (
            (len(reserved), "instance(s) are forthcoming, only their resources are reserved"),
            (len(single), "instance(s) have their disks on one node only"),
            (sum(1 for node in plan.nodes if node.offline), "node(s) are offline"),
            (sum(1 for node in plan.nodes if node.drained), "node(s) are drained"),
        ):
            if count:
                findings.note(f"{count} {text}")
