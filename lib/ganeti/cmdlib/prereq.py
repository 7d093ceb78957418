"""Checks which refuse an operation before anything is changed.

A check raises :class:`~ganeti.errors.OpPrereqError` with the published error code; its text names
the object. A check which passed is noted for the output of a dry run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.node_checks import Answers, NodeCheck
from ganeti.constants import instance as instance_c
from ganeti.constants import tags as tags_c
from ganeti.constants.disk import DISKLESS
from ganeti.constants.hv import STATE_RUNNING
from ganeti.objects import cluster_rules, disk_templates, fill
from ganeti.platform import hosts, machine
from ganeti.rpc import Question
from ganeti.wire.calls import (
    BRIDGES_EXIST,
    HYPERVISOR_VALIDATE_PARAMS,
    NODE_INFO,
    OS_VALIDATE,
)

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.config import Config
    from ganeti.objects import Disk, FilledInstance, Instance, Node
    from ganeti.rpc import Result, RpcRunner

ADMIN_UP = instance_c.ADMIN_UP
ADMIN_DOWN = instance_c.ADMIN_DOWN
ADMIN_OFFLINE = instance_c.ADMIN_OFFLINE

_PASSED: ContextVar[list[str] | None] = ContextVar("passed", default=None)


@contextmanager
def recorded() -> Iterator[list[str]]:
    """Collect the checks which pass on this thread until the block ends, as phrases."""
    passed: list[str] = []
    token = _PASSED.set(passed)
    try:
        yield passed
    finally:
        _PASSED.reset(token)


def note(text: str) -> None:
    """Note a check which passed, if :func:`recorded` collects them.

    :param text: the fact which was checked, such as "node node1 is online".
    """
    passed = _PASSED.get()
    if passed is not None:
        passed.append(text)


_TAG = re.compile(tags_c.PATTERN)
_LABEL = re.compile(r"^(?!-)[a-z0-9_-]{1,63}(?<!-)$")


def valid_host_name(name: str, what: str) -> str:
    """Check the form of a host name and return it in lower case.

    :param what: the kind of name, for errors.
    :raises errors.OpPrereqError: it is not valid.
    """
    lowered = name.lower()
    labels = lowered.rstrip(".").split(".")
    if len(lowered) > 255 or not all(_LABEL.fullmatch(label) for label in labels):
        raise errors.OpPrereqError(f"{what} {name!r} is not a valid host name", errors.ECODE_INVAL)
    return lowered.rstrip(".")


def resolve(name: str, what: str) -> hosts.Hostname:
    """Resolve a name.

    :raises errors.OpPrereqError: no address, code ``resolver_error``.
    """
    try:
        return machine.current().lookup(name)
    except errors.ResolverError as err:
        raise errors.OpPrereqError(
            f"{what} {name} does not resolve: {err.message}", errors.ECODE_RESOLVER
        ) from err


def require_tags(tags: Collection[str], existing: Collection[str] = ()) -> None:
    """Check the form of new tags, and that the object will not have too many."""
    for tag in tags:
        if not tag or len(tag) > tags_c.MAX_LENGTH or not _TAG.fullmatch(tag):
            raise errors.OpPrereqError(
                f"{tag!r} is not a valid tag. Tags have up to {tags_c.MAX_LENGTH} letters, digits"
                " and characters of _.+*/:@-",
                errors.ECODE_INVAL,
            )
    count = len({*tags, *existing})
    if count > tags_c.MAX_PER_OBJECT:
        raise errors.OpPrereqError(
            f"an object has at most {tags_c.MAX_PER_OBJECT} tags, not {count}", errors.ECODE_INVAL
        )


def require_online(node: Node) -> None:
    """Check that the node is not marked offline."""
    if node.offline:
        raise errors.OpPrereqError(f"node {node.name} is marked offline", errors.ECODE_STATE)
    note(f"node {node.name} is online")


def require_online_primary(config: Config, instance: Instance) -> Node:
    """Check that the primary node of an instance is not marked offline; returns the node.

    :raises errors.OpPrereqError: it is; the text says how the instance can run elsewhere.
    """
    node = config.node(instance.primary_node)
    if node.offline:
        template = fill.disk_template(fill.instance_disks(config.snapshot(), instance))
        if template == DISKLESS or template in disk_templates.MIRRORED:
            way = f"Let it run on another node: 'gnt-instance failover {instance.name}'."
        else:
            way = (
                "Its disks are on this node only. When the node is back: 'gnt-node modify"
                f" --offline=no {node.name}'."
            )
        raise errors.OpPrereqError(
            f"node {node.name} is marked offline, and it is the primary node of instance"
            f" {instance.name}. {way}",
            errors.ECODE_STATE,
        )
    note(f"node {node.name} is online")
    return node


def require_not_drained(node: Node) -> None:
    """Check that the node is not drained, so that it may get new instances."""
    if node.drained:
        raise errors.OpPrereqError(f"node {node.name} is drained", errors.ECODE_STATE)
    note(f"node {node.name} is not drained")


def require_vm_capable(node: Node) -> None:
    """Check that the node may run instances (``vm_capable``)."""
    if not node.vm_capable:
        raise errors.OpPrereqError(
            f"node {node.name} may not run instances (vm_capable is off)",
            errors.ECODE_STATE,
        )
    note(f"node {node.name} may run instances")


def require_target(config: Config, node: Node, hypervisor: str | None) -> None:
    """Check that the node may receive an instance: online, not drained, ``vm_capable``.

    :param hypervisor: the hypervisor of the instance, which the group of the node must have; None
        when it is checked elsewhere, because there are several instances.
    """
    require_online(node)
    require_not_drained(node)
    require_vm_capable(node)
    if hypervisor is not None:
        require_hypervisor(config, node, hypervisor)


def require_hypervisor(config: Config, node: Node, hypervisor: str) -> None:
    """Check that the group of a node has a hypervisor."""
    group = config.group(node.group)
    present = fill.group_hypervisors(config.cluster(), group)
    if hypervisor not in present:
        raise errors.OpPrereqError(
            f"node {node.name} is in group {group.name}, whose nodes have no hypervisor"
            f" {hypervisor}, only {', '.join(present) or 'none which is enabled in the cluster'}."
            " Use 'gnt-group modify --enabled-hypervisors' if they have it",
            errors.ECODE_STATE,
        )
    note(f"node {node.name} has hypervisor {hypervisor}")


def require_admin_state(instance: Instance, allowed: Collection[str], action: str) -> None:
    """Check that the instance is marked with one of the allowed states.

    :param action: the operation, for errors.
    """
    if instance.admin_state not in allowed:
        way = ""
        if instance.admin_state == ADMIN_UP and ADMIN_DOWN in allowed:
            way = f". Stop it with 'gnt-instance shutdown {instance.name}'."
        elif instance.admin_state == ADMIN_OFFLINE and ADMIN_DOWN in allowed:
            way = f". Mark it down with 'gnt-instance modify --online {instance.name}'."
        raise errors.OpPrereqError(
            f"cannot {action} instance {instance.name}: it is marked {instance.admin_state!r},"
            f" this needs {' or '.join(repr(state) for state in sorted(allowed))}{way}",
            errors.ECODE_STATE,
        )
    note(f"instance {instance.name} is marked {instance.admin_state!r}")


def disk_by_index(config: Config, instance: Instance, index: int) -> Disk:
    """Find a disk of an instance by its number.

    :raises errors.OpPrereqError: there is no such disk.
    """
    disks = config.instance_disks(instance)
    if not 0 <= index < len(disks):
        has = f"disks 0 to {len(disks) - 1}" if disks else "no disks"
        raise errors.OpPrereqError(
            f"instance {instance.name} has no disk {index}, it has {has}", errors.ECODE_INVAL
        )
    return disks[index]


def require_not_forthcoming(instance: Instance, action: str) -> None:
    """Check that the instance exists and is not only a reservation.

    :param action: the operation, for errors.
    """
    if instance.forthcoming:
        raise errors.OpPrereqError(
            f"cannot {action} instance {instance.name}: it is forthcoming, only its resources are"
            " reserved",
            errors.ECODE_STATE,
        )


def require_whole_disks(config: Config, instance: Instance) -> None:
    """Check that all disks of an instance exist completely, also after an interruption."""
    for index, disk in enumerate(config.instance_disks(instance)):
        if disk.forthcoming:
            raise errors.OpPrereqError(
                f"disk {index} of instance {instance.name} was not created completely. Repeat"
                f" 'gnt-instance recreate-disks {instance.name}'.",
                errors.ECODE_STATE,
            )


def without_forthcoming(unit: AnyUnit, instances: Iterable[Instance], where: str) -> list[Instance]:
    """Leave out forthcoming instances, with a warning for each that it stays reserved.

    :param where: the node or group which the other instances leave, for the text.
    """
    found = []
    for instance in instances:
        if instance.forthcoming:
            unit.log.warn(
                f"forthcoming instance {instance.name} stays reserved on {where}",
                hint="Remove it, or reserve it on another node. 'gnt-instance add --commit' accepts"
                " --node.",
            )
        else:
            found.append(instance)
    return found


def is_running(info: Mapping[str, Any]) -> bool:
    """Return True if a guest runs, by the facts of its hypervisor.

    The guest of an incoming migration does not run.
    """
    return bool(info) and info.get("state", STATE_RUNNING) == STATE_RUNNING


def _hypervisor_question(
    node_uuids: Collection[str], hypervisor: str, hvparams: Mapping[str, Any]
) -> Question:
    """Ask which facts a hypervisor reports: memory in MiB, CPUs, version."""
    return Question(
        NODE_INFO, node_uuids, {"storage_units": [], "hv_specs": [[hypervisor, dict(hvparams)]]}
    )


def _facts_in(answers: Mapping[str, Result], hypervisor: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for uuid, answer in answers.items():
        _boot_id, _storage, facts = answer.payload()
        if not facts or not isinstance(facts[0], dict):
            raise errors.OpPrereqError(
                f"node {answer.node_name} did not report the state of hypervisor {hypervisor}",
                errors.ECODE_ENVIRON,
            )
        if "problem" in facts[0]:
            raise errors.OpPrereqError(
                f"hypervisor {hypervisor} of node {answer.node_name} does not tell its state:"
                f" {facts[0]['problem']}",
                errors.ECODE_ENVIRON,
            )
        found[uuid] = facts[0]
    return found


def facts_of_nodes(
    rpc: RpcRunner, node_uuids: Collection[str], hypervisor: str, hvparams: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Ask several nodes at once which facts a hypervisor reports: memory in MiB, CPUs, version.

    :returns: UUID of the node -> name of the fact -> value.
    :raises errors.OpPrereqError: a node does not know the hypervisor.
    :raises errors.RpcError: a node does not answer.
    """
    question = _hypervisor_question(node_uuids, hypervisor, hvparams)
    return _facts_in(rpc.call_together([question])[0], hypervisor)


def node_facts(
    rpc: RpcRunner, node_uuid: str, hypervisor: str, hvparams: Mapping[str, Any]
) -> dict[str, Any]:
    """Ask one node which facts a hypervisor reports: memory in MiB, CPUs, version.

    :raises errors.OpPrereqError: the node does not know the hypervisor.
    :raises errors.RpcError: the node does not answer.
    """
    return facts_of_nodes(rpc, [node_uuid], hypervisor, hvparams)[node_uuid]


def memory_check(
    node: Node,
    reason: str,
    needed_mib: int,
    hypervisor: str,
    hvparams: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
) -> NodeCheck[int]:
    """Check that the node has enough free memory; finds the free memory in MiB.

    :param reason: the purpose of the memory, for errors.
    :param facts: what the hypervisor has just reported; None asks the node.
    """
    if facts is not None:
        return NodeCheck((), lambda _answers: _enough_memory(node.name, reason, needed_mib, facts))
    return NodeCheck(
        [_hypervisor_question([node.uuid], hypervisor, hvparams)],
        lambda answers: _enough_memory(
            node.name, reason, needed_mib, _facts_in(answers[0], hypervisor)[node.uuid]
        ),
    )


def _enough_memory(node_name: str, reason: str, needed_mib: int, facts: Mapping[str, Any]) -> int:
    free_mib = facts.get("memory_free")
    if not isinstance(free_mib, int):
        raise errors.OpPrereqError(
            f"node {node_name} did not report its free memory, it answered {free_mib!r}",
            errors.ECODE_ENVIRON,
        )
    if needed_mib > free_mib:
        # Only a refusal needs the sentences.
        from ganeti.htools.reasons import amounts

        needed, free = amounts(needed_mib, free_mib)
        raise errors.OpPrereqError(
            f"not enough memory on node {node_name} for {reason}: {needed} needed,"
            f" {free} free. Choose another node, use less memory (-B memory=SIZE), or"
            " stop or move other instances [FailMem]",
            errors.ECODE_NORES,
        )
    note(
        f"node {node_name} has {free_mib} MiB of memory free, {needed_mib} MiB are needed for"
        f" {reason}"
    )
    return free_mib


def bridges_check(nicparams: Iterable[Mapping[str, Any]], node: Node) -> NodeCheck[None]:
    """Check that the node has the bridges of the given NICs.

    :param nicparams: the filled parameters of each NIC.
    """
    wanted = sorted({str(p["link"]) for p in nicparams if p.get("mode") == "bridged"})
    if not wanted:
        return NodeCheck((), lambda _answers: None)

    def judge(answers: Sequence[Mapping[str, Result]]) -> None:
        answer = answers[0][node.uuid]
        if isinstance(answer.failure, errors.NodeCallFailed):
            raise errors.OpPrereqError(
                f"node {node.name} cannot attach NICs: {answer.failure.message}",
                errors.ECODE_ENVIRON,
            ) from answer.failure
        answer.payload()
        note(f"node {node.name} has {', '.join(wanted)}")

    return NodeCheck([Question(BRIDGES_EXIST, [node.uuid], {"bridges": wanted})], judge)


def instance_bridges_check(instance: FilledInstance, node: Node) -> NodeCheck[None]:
    """Check that the node has the bridges of all NICs of an existing instance."""
    return bridges_check([nic.nicparams for nic in instance.nics], node)


def require_allowed_os(config: Config, name: str) -> None:
    """Check that the OS is not blacklisted; a blacklist entry concerns all variants.

    Source: Ganeti design 2.2, *New OS states*.
    """
    base = name.partition("+")[0]
    if base in config.cluster().blacklisted_os:
        raise errors.OpPrereqError(
            f"OS {base} is blacklisted: it cannot be installed. Use 'gnt-os modify"
            f" --blacklisted=no {base}'.",
            errors.ECODE_STATE,
        )


def os_checks(hypervisor: str | None) -> list[str]:
    """Return the checks which a node makes with an OS definition, for ``os_validate``."""
    return ["parameters", *([f"hypervisor:{hypervisor}"] if hypervisor else [])]


@dataclass(frozen=True, slots=True)
class WantedOs:
    """The OS which an instance is to have.

    :ivar params: the parameters of each visibility.
    :ivar force_variant: the definition need not list the variant.
    """

    name: str
    params: Mapping[str, Any]
    force_variant: bool


def validate_os(rpc: RpcRunner, node_uuid: str, wanted: WantedOs, checks: Sequence[str]) -> Result:
    """Let a node check that it has the OS definition, and that this accepts the parameters."""
    return rpc.call_many(
        OS_VALIDATE,
        [node_uuid],
        required=True,
        name=wanted.name,
        checks=checks,
        params=dict(wanted.params),
        force_variant=wanted.force_variant,
    )[node_uuid]


def require_os(
    config: Config,
    rpc: RpcRunner,
    node_uuid: str,
    wanted: WantedOs,
    *,
    hypervisor: str | None = None,
) -> None:
    """Check that the node can use the OS definition.

    The node must have it in the given variant, the definition must support the hypervisor, and its
    script ``verify`` must accept the parameters.
    """
    node_name = config.node(node_uuid).name
    answer = validate_os(rpc, node_uuid, wanted, os_checks(hypervisor))
    if isinstance(answer.failure, errors.NodeCallFailed):
        raise errors.OpPrereqError(
            f"OS {wanted.name} cannot be used on node {node_name}: {answer.failure.message}",
            errors.ECODE_INVAL,
        ) from answer.failure
    answer.payload()
    note(f"node {node_name} can install {wanted.name}")


def hvparams_check(
    config: Config,
    node_uuids: Iterable[str],
    hypervisor: str,
    hvparams: Mapping[str, Any],
    *,
    uid_pool: Collection[Sequence[int]] | None = None,
) -> NodeCheck[None]:
    """Check that all nodes which are online can use the (filled) hypervisor parameters.

    :param uid_pool: user ids for guests, which are not yet in the configuration; None for those of
        the cluster.
    """

    def judge(answers: Sequence[Mapping[str, Result]]) -> None:
        try:
            cluster_rules.require_pool(
                hypervisor, hvparams, config.cluster().uid_pool if uid_pool is None else uid_pool
            )
        except errors.HypervisorError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_STATE) from err
        for answer in answers[0].values():
            if answer.offline:
                continue
            if isinstance(answer.failure, errors.NodeCallFailed):
                raise errors.OpPrereqError(
                    f"parameters of hypervisor {hypervisor} are not valid on node"
                    f" {answer.node_name}: {answer.failure.message}",
                    errors.ECODE_INVAL,
                ) from answer.failure
            answer.payload()
            note(f"node {answer.node_name} accepts the hypervisor parameters")

    args = {"hypervisor": hypervisor, "hvparams": dict(hvparams)}
    return NodeCheck([Question(HYPERVISOR_VALIDATE_PARAMS, list(node_uuids), args)], judge)


def require_can_run(
    config: Config,
    rpc: RpcRunner,
    instance: FilledInstance,
    node: Node,
    facts: Mapping[str, Any] | None,
    *,
    restart: bool,
) -> int:
    """Check that an instance which is marked up can run on another node.

    :param facts: what the hypervisor of the node has just reported; None asks the node.
    :param restart: its guest is stopped, and started there: the node must accept its parameters,
        otherwise it could not be started again.
    :returns: the free memory in MiB.
    """
    attachable = instance_bridges_check(instance, node)
    enough = memory_check(
        node,
        f"running instance {instance.name}",
        instance.beparams["minmem"],
        instance.hypervisor,
        instance.hvparams,
        facts,
    )
    startable = hvparams_check(config, [node.uuid], instance.hypervisor, instance.hvparams)
    answers = Answers(rpc, [attachable, enough, *([startable] if restart else [])])
    answers.judge(attachable)
    free_mib = answers.judge(enough)
    if restart:
        answers.judge(startable)
    return free_mib


#: Seconds within which a machine answers which uses the address of a new instance.
PING_TIMEOUT_S = 2.0
