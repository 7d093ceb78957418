"""Hooks: scripts of the administrator around an operation.

A logical unit names its hooks with a class attribute, ``HOOKS = InstanceHooks("instance-start")``,
and adds its own variables and nodes in ``hook_env`` and ``hook_nodes``. The processor makes a
:class:`HookRunner` for the run, which builds the environment, sends it to the nodes (call
``hooks_runner``) and evaluates the answers:

* pre phase: a failing script vetoes the operation (:class:`~ganeti.errors.HooksAbort` with node,
  script and output of every failure); unreachable nodes cause a warning, offline ones are ignored;
  if no node answers, the error is :class:`~ganeti.errors.HooksFailure`.
* post phase: failures are warnings, because the operation is complete. The environment has the
  values from before as ``GANETI_*`` and those from after as ``GANETI_POST_*``.
* after an operation which wrote the configuration, ``config-update`` runs on the master.

Environment, directories and nodes are an interface to the scripts of users: see the table in
*ganeti-hooks*(7).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from ganeti import errors
from ganeti.platform import paths
from ganeti.wire.calls import HOOKS_PRESENT, HOOKS_RUNNER

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Disk, FilledInstance, Instance, Nic
    from ganeti.rpc import Result, RpcRunner

log = logging.getLogger(__name__)

VERSION = 2
PATH = "/sbin:/bin:/usr/sbin:/usr/bin"
PRE = "pre"
POST = "post"
CONFIG_UPDATE = "config-update"

SKIPPED, FAILED, SUCCEEDED = 0, 1, 2

#: Seconds for which a node's answer that it has no scripts is valid. A short operation asks once.
IDLE_S = 5.0


class ScriptResult(NamedTuple):
    """Result of one script: path relative to the hooks directory, status, output."""

    script: str
    status: int
    output: str


class NodeHookResult(NamedTuple):
    """Results of one node; ``failure`` is set when the node could not be asked."""

    node_name: str
    offline: bool
    failure: str | None
    scripts: tuple[ScriptResult, ...]


HookResults = dict[str, NodeHookResult]
"""UUID of the node -> its results."""


class HookedUnit(Protocol):
    """What hooks need of a logical unit; :class:`~ganeti.cmdlib.base.LogicalUnit` describes it."""

    HOOKS: ClassVar[Hooks | None]
    asked: Any
    config: Config
    rpc: RpcRunner
    last_seen: FilledInstance | None

    def hook_env(self, plan: Any, /) -> dict[str, object]: ...

    def hook_instance(self, plan: Any, /) -> Instance | None: ...

    def hook_env_of_node(self, plan: Any, node_uuid: str, /) -> Mapping[str, object]: ...

    def hook_nodes(self, plan: Any, /) -> tuple[Sequence[str], Sequence[str]]: ...

    def post_hooks_done(self, results: HookResults, result: Any, /) -> object: ...


class Hooks:
    """The hooks of one kind of operation.

    :param directory: name of the hook directories, without phase.
    :param object_type: kind of the object of the operation, for the scripts.
    """

    def __init__(self, directory: str, object_type: str) -> None:
        self.directory = directory
        self.object_type = object_type

    def environment(self, unit: HookedUnit, plan: object) -> dict[str, object]:
        """Return all variables of the operation, without prefix."""
        return unit.hook_env(plan)

    def nodes(self, unit: HookedUnit, plan: object) -> tuple[Sequence[str], Sequence[str]]:
        """Return the UUIDs of the nodes of the pre and of the post phase."""
        return unit.hook_nodes(plan)


class ClusterHooks(Hooks):
    """Hooks of an operation on the cluster as a whole."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, "CLUSTER")


class NodeHooks(Hooks):
    """Hooks of an operation on a node."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, "NODE")


class InstanceHooks(Hooks):
    """Hooks of an operation on an instance: adds the common instance variables.

    Unless the unit names nodes, both phases run on the master and the instance's nodes.
    """

    def __init__(self, directory: str) -> None:
        super().__init__(directory, "INSTANCE")

    def environment(self, unit: HookedUnit, plan: object) -> dict[str, object]:
        instance = unit.hook_instance(plan)
        env: dict[str, object] = {}
        if instance is not None:
            # A forthcoming instance may have no node yet; it has no variables then.
            if instance.primary_node and instance.uuid in unit.config.snapshot().instances:
                unit.last_seen = unit.config.filled(instance)
            # A removed instance has the variables from before its removal.
            if unit.last_seen is not None:
                env.update(filled_instance_env(unit.config, unit.last_seen))
        env.update(unit.hook_env(plan))
        return env

    def nodes(self, unit: HookedUnit, plan: object) -> tuple[Sequence[str], Sequence[str]]:
        pre, post = unit.hook_nodes(plan)
        if pre or post:
            return pre, post
        instance = unit.hook_instance(plan)
        if instance is None:
            return (), ()
        nodes = [unit.config.master_node().uuid, *unit.config.instance_nodes(instance)]
        return nodes, nodes


def nic_env(
    config: Config, index: int, nic: Nic, nicparams: Mapping[str, Any]
) -> dict[str, object]:
    """Return the variables of one NIC."""
    prefix = f"INSTANCE_NIC{index}_"
    mode, link = nicparams.get("mode", ""), nicparams.get("link", "")
    env: dict[str, object] = {
        prefix + "UUID": nic.uuid or "",
        prefix + "IP": nic.ip or "",
        prefix + "MAC": nic.mac,
        prefix + "MODE": mode,
        prefix + "LINK": link,
        prefix + "VLAN": nicparams.get("vlan", ""),
    }
    if nic.ip6:
        env[prefix + "IP6"] = nic.ip6
    if nic.name:
        env[prefix + "NAME"] = nic.name
    if mode in ("bridged", "openvswitch"):
        env[prefix + "BRIDGE"] = link
    if nic.network:
        network = config.snapshot().networks[nic.network]
        values = {
            "NAME": network.name,
            "UUID": network.uuid,
            "SUBNET": network.network,
            "GATEWAY": network.gateway,
            "SUBNET6": network.network6,
            "GATEWAY6": network.gateway6,
            "MAC_PREFIX": network.mac_prefix,
            "TAGS": " ".join(sorted(network.tags)),
        }
        env.update((f"{prefix}NETWORK_{key}", value) for key, value in values.items() if value)
    return env


def disk_env(index: int, disk: Disk) -> dict[str, object]:
    """Return the variables of one disk.

    It has those of its template only when it already has an identity.
    """
    prefix = f"INSTANCE_DISK{index}_"
    env: dict[str, object] = {
        prefix + "UUID": disk.uuid or "",
        prefix + "SIZE": disk.size,
        prefix + "MODE": disk.mode,
    }
    if disk.name:
        env[prefix + "NAME"] = disk.name
    if not disk.logical_id:
        return env
    env[prefix + "DEV_TYPE"] = disk.dev_type
    first, second = (list(disk.logical_id) + ["", ""])[:2]
    if disk.dev_type == "plain":
        env[prefix + "VG"], env[prefix + "ID"] = first, second
    elif disk.dev_type == "ext":
        env[prefix + "PROVIDER"], env[prefix + "ID"] = first, second
    elif disk.dev_type in ("file", "sharedfile", "gluster", "blockdev", "rbd"):
        env[prefix + "DRIVER"], env[prefix + "ID"] = first, second
    elif disk.dev_type == "drbd":
        # Nodes are UUIDs, as in the configuration. The secret, the last part, stays there.
        names = ("PNODE", "SNODE", "PORT", "PMINOR", "SMINOR")
        env.update(
            (prefix + key, value) for key, value in zip(names, disk.logical_id, strict=False)
        )
        for key, child in zip(("DATA", "META"), disk.children, strict=False):
            env[f"{prefix}{key}_VG"], env[f"{prefix}{key}_ID"] = child.volume_id
    return env


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """What scripts learn about an instance, which may not exist yet.

    :ivar primary: name of its primary node.
    :ivar secondaries: names of its other nodes.
    :ivar nics: each NIC with its filled parameters.
    """

    name: str
    primary: str
    secondaries: Sequence[str]
    os_type: str
    status: object
    beparams: Mapping[str, Any]
    hvparams: Mapping[str, Any]
    hypervisor: str
    disk_template: str
    tags: Sequence[str]
    nics: Sequence[tuple[Nic, Mapping[str, Any]]]
    disks: Sequence[Disk]


def filled_instance_env(config: Config, instance: FilledInstance) -> dict[str, object]:
    """Return the common variables of an instance, from its filled form."""
    nodes = config.snapshot().nodes
    facts = InstanceFacts(
        name=instance.name,
        primary=nodes[instance.primary_node].name,
        secondaries=[nodes[uuid].name for uuid in instance.secondary_nodes],
        os_type=instance.os,
        status=instance.admin_state,
        beparams=instance.beparams,
        hvparams=instance.hvparams,
        hypervisor=instance.hypervisor,
        disk_template=instance.disk_template,
        tags=instance.tags,
        nics=[(nic, nic.nicparams) for nic in instance.nics],
        disks=instance.disks_info,
    )
    return instance_env(config, facts)


def instance_env(config: Config, facts: InstanceFacts) -> dict[str, object]:
    """Return the common variables of an instance."""
    env: dict[str, object] = {
        "OP_TARGET": facts.name,
        "INSTANCE_NAME": facts.name,
        "INSTANCE_PRIMARY": facts.primary,
        "INSTANCE_SECONDARIES": " ".join(facts.secondaries),
        "INSTANCE_OS_TYPE": facts.os_type,
        "INSTANCE_STATUS": facts.status,
        "INSTANCE_MINMEM": facts.beparams["minmem"],
        "INSTANCE_MAXMEM": facts.beparams["maxmem"],
        "INSTANCE_MEMORY": facts.beparams["maxmem"],
        "INSTANCE_VCPUS": facts.beparams["vcpus"],
        "INSTANCE_DISK_TEMPLATE": facts.disk_template,
        "INSTANCE_HYPERVISOR": facts.hypervisor,
        "INSTANCE_NIC_COUNT": len(facts.nics),
        "INSTANCE_DISK_COUNT": len(facts.disks),
        "INSTANCE_TAGS": " ".join(sorted(facts.tags)),
    }
    for index, (nic, nicparams) in enumerate(facts.nics):
        env.update(nic_env(config, index, nic, nicparams))
    for index, disk in enumerate(facts.disks):
        env.update(disk_env(index, disk))
    env.update((f"INSTANCE_BE_{key}", value) for key, value in facts.beparams.items())
    env.update((f"INSTANCE_HV_{key}", value) for key, value in facts.hvparams.items())
    return env


class HookRunner:
    """Runs the hooks of one run of a logical unit.

    The processor makes it after ``check_prereq``, when the plan is known. It keeps the values from
    before the operation.

    :param warn: adds a warning to the log of the job.
    """

    def __init__(self, unit: HookedUnit, plan: object, warn: Callable[[str], None]) -> None:
        self._unit = unit
        self._warn = warn
        self._plan = plan
        self._config = unit.config
        self._before: dict[str, object] = {}
        self._pre_nodes: Sequence[str] = ()
        self._post_nodes: Sequence[str] = ()
        self._names: dict[str, str] = {}
        self._idle_until: dict[tuple[str, str, str], float] = {}
        if unit.HOOKS is not None:
            self._pre_nodes, self._post_nodes = unit.HOOKS.nodes(unit, plan)
            if self._pre_nodes or self._post_nodes:
                self._before = unit.HOOKS.environment(unit, plan)

    @property
    def nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """UUIDs of the nodes of the pre and of the post phase."""
        return self._pre_nodes, self._post_nodes

    def leave_out(self, node_uuids: Collection[str]) -> None:
        """Run no post hooks on these nodes, whose problem has been reported already."""
        self._post_nodes = [uuid for uuid in self._post_nodes if uuid not in node_uuids]

    def pre(self) -> None:
        """Run the pre hooks.

        :raises errors.HooksAbort: a script failed and thereby vetoed the operation.
        :raises errors.HooksFailure: no node could be asked.
        """
        hooks = self._unit.HOOKS
        if hooks is None or not self._pre_nodes:
            return
        results = self._run(
            hooks.directory, PRE, self._pre_nodes, self._environment(PRE, hooks.directory)
        )
        vetoes: list[tuple[str, str, str]] = []
        asked = 0
        for result in results.values():
            if result.offline:
                continue
            if result.failure is not None:
                self._warn(f"pre hooks of node {result.node_name} were not run: {result.failure}")
                continue
            asked += 1
            vetoes.extend(
                (result.node_name, s.script, s.output) for s in result.scripts if s.status == FAILED
            )
        if vetoes:
            raise errors.HooksAbort(vetoes)
        if not asked:
            raise errors.HooksFailure(
                "no node could run its pre hooks; the operation was not started"
            )

    def post(self, result: object) -> object:
        """Run the post hooks; returns the result of the opcode, which the unit may change."""
        hooks = self._unit.HOOKS
        if hooks is None or not self._post_nodes:
            return result
        results = self.post_on(self._post_nodes)
        return self._unit.post_hooks_done(results, result)

    def post_on(self, node_uuids: Sequence[str]) -> HookResults:
        """Run the post phase on chosen nodes now; failures are warnings."""
        hooks = self._unit.HOOKS
        if hooks is None:
            return {}
        env = self._environment(POST, hooks.directory)
        results = self._run(hooks.directory, POST, node_uuids, env)
        self._warn_failures(results)
        return results

    def config_update(self) -> None:
        """Run the master's ``config-update`` hooks after the configuration was written."""
        env = self._environment(POST, CONFIG_UPDATE, values_after=False)
        results = self._run(CONFIG_UPDATE, POST, [self._config.master_node().uuid], env)
        self._warn_failures(results)

    def _warn_failures(self, results: HookResults) -> None:
        for result in results.values():
            if result.offline:
                continue
            if result.failure is not None:
                self._warn(f"post hooks of node {result.node_name} were not run: {result.failure}")
            for script in result.scripts:
                if script.status == FAILED:
                    self._warn(
                        f"hook {script.script} failed on node {result.node_name}: {script.output}"
                    )

    def _environment(
        self, phase: str, directory: str, *, values_after: bool = True
    ) -> dict[str, str]:
        hooks = self._unit.HOOKS
        env: dict[str, object] = {
            "PATH": PATH,
            "GANETI_CLUSTER": self._config.cluster_name,
            "GANETI_DATA_DIR": paths.current().data_dir,
            "GANETI_HOOKS_PATH": directory,
            "GANETI_HOOKS_PHASE": phase,
            "GANETI_HOOKS_VERSION": VERSION,
            "GANETI_MASTER": self._config.master_node().name,
            "GANETI_OP_CODE": self._unit.asked.OP_ID,
        }
        if hooks is not None:
            env["GANETI_OBJECT_TYPE"] = hooks.object_type
        env.update((f"GANETI_{key}", value) for key, value in self._before.items())
        if phase == POST and values_after and hooks is not None:
            after = hooks.environment(self._unit, self._plan)
            env.update((f"GANETI_POST_{key}", value) for key, value in after.items())
        return {key: variable(value) for key, value in env.items()}

    def _run(
        self, directory: str, phase: str, node_uuids: Sequence[str], env: dict[str, str]
    ) -> HookResults:
        wanted = list(dict.fromkeys(node_uuids))
        results: HookResults = {}
        busy = []
        asked = [uuid for uuid in wanted if not self._is_idle(uuid, directory, phase)]
        # The nodes of the post phase are asked at the same time, except for a node which is being
        # added.
        known = self._config.snapshot().nodes
        later = [
            uuid
            for uuid in self._post_nodes
            if phase == PRE and uuid not in wanted and uuid in known
        ]
        for uuid, answer in self._ask_for_hooks(directory, phase, [*asked, *later]).items():
            if uuid in later:
                continue
            if isinstance(answer.failure, errors.NodeRefused):
                busy.append(uuid)  # of another version, without this call: run the hooks anyway
            elif answer.failure is not None:
                results[uuid] = NodeHookResult(
                    answer.node_name, answer.offline, str(answer.failure), ()
                )
            elif answer.data[0]:
                busy.append(uuid)
        if busy:
            answers = self._unit.rpc.call_many(
                HOOKS_RUNNER,
                busy,
                per_node={uuid: {"env": self._env_of_node(uuid, phase, env)} for uuid in busy},
                hpath=directory,
                phase=phase,
            )
            for uuid, answer in answers.items():
                failure = None if answer.failure is None else str(answer.failure)
                scripts = () if failure else tuple(ScriptResult(*row) for row in answer.data)
                results[uuid] = NodeHookResult(answer.node_name, answer.offline, failure, scripts)
        for uuid in wanted:
            if uuid not in results:
                results[uuid] = NodeHookResult(self._names[uuid], False, None, ())
        return {uuid: results[uuid] for uuid in wanted}

    def _env_of_node(self, node_uuid: str, phase: str, env: dict[str, str]) -> dict[str, str]:
        """Add the variables which have other values on this node."""
        if self._unit.HOOKS is None or node_uuid not in self._config.snapshot().nodes:
            return env
        own = self._unit.hook_env_of_node(self._plan, node_uuid)
        prefixes = ("GANETI_", "GANETI_POST_") if phase == POST else ("GANETI_",)
        return {
            **env,
            **{
                f"{prefix}{key}": variable(value)
                for key, value in own.items()
                for prefix in prefixes
            },
        }

    def _ask_for_hooks(
        self, directory: str, phase: str, uuids: Sequence[str]
    ) -> Mapping[str, Result]:
        """Ask nodes whether they have scripts; in the pre phase also for the later phases."""
        if not uuids:
            return {}
        wanted = [(directory, phase)]
        if phase == PRE:
            wanted += [(directory, POST), (CONFIG_UPDATE, POST)]
        answers = self._unit.rpc.call_many(
            HOOKS_PRESENT, uuids, wanted=[list(pair) for pair in wanted]
        )
        now = time.monotonic()
        for uuid, answer in answers.items():
            if answer.failure is None:
                self._names[uuid] = answer.node_name
                for pair, present in zip(wanted, answer.data, strict=True):
                    if not present:
                        self._idle_until[uuid, *pair] = now + IDLE_S
        return answers

    def _is_idle(self, uuid: str, directory: str, phase: str) -> bool:
        """Return True if a node has answered a short time ago that it has no such scripts."""
        return self._idle_until.get((uuid, directory, phase), 0.0) > time.monotonic()


def variable(value: object) -> str:
    """Return a value as the text of a variable; what an environment has no place for becomes ``?``.

    One such parameter would otherwise keep all scripts from running.
    """
    return str(value).replace("\0", "?").encode("utf-8", "replace").decode()
