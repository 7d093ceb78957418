"""Find out where an instance runs, before anything is done with its guest or its disks.

An instance must never run twice: two guests which write to one disk destroy its content. The
configuration names one node, but an interrupted migration, manual work, or a living node which was
marked as offline may have left a guest on another node. So every unit which starts or stops a
guest, or reads, changes or destroys its disks, asks here, and this is the only module of the units
which asks hypervisors about one guest (``test_location.py`` compares that with the code).

*Who is asked.* All nodes which can run the instance (:func:`possible_nodes`); the disks decide: any
node of the group when several nodes can reach them, both nodes of a mirror, else only the primary
node. A node which is marked as offline is asked, too, with a short time limit: the mark is a
statement of the administrator, not a proof. The limit is shorter for a node which an automatic
failover has fenced, because that is a proof.

*What an answer means.*

============================== ===================================================================
answer of a node               meaning
============================== ===================================================================
it runs, not the primary node  every operation is refused, also with a force option
none, marked as offline        the node is off; before a failover away from it the machine and
                               its out-of-band helper must not show the contrary
                               (:func:`require_failover`)
none, not marked as offline    unknown. What destroys or replaces data is refused, unless the
                               primary node answers that the instance runs there. What starts,
                               stops or reads goes on with a warning, otherwise one dead node would
                               keep all instances of its group down; a mirrored disk is protected by
                               itself, because its device is not opened on two nodes
============================== ===================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, JobLog, why
from ganeti.cmdlib.node_checks import NodeCheck
from ganeti.cmdlib.ops.liveness import oob
from ganeti.objects.disk_templates import EXT_MIRRORED
from ganeti.platform import machine
from ganeti.rpc import Question
from ganeti.wire.calls import INSTANCE_INFO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ganeti.config import Config
    from ganeti.objects import Instance, Node
    from ganeti.rpc import Result, RpcRunner


#: A fenced machine usually does not answer, and each of its instances would wait for that.
_FENCED_INFO = dataclasses.replace(INSTANCE_INFO, timeout_s=2)


def possible_nodes(config: Config, instance: Instance) -> list[Node]:
    """Return the nodes which can run the instance, the primary first.

    Some may be marked as offline.
    """
    own = config.instance_nodes(instance)
    nodes = [config.node(uuid) for uuid in own]
    if config.disk_template(instance) in EXT_MIRRORED:
        group = config.node(instance.primary_node).group
        nodes += [
            node
            for node in config.nodes()
            if node.group == group and node.vm_capable and node.uuid not in own
        ]
    return nodes


@dataclass(frozen=True, slots=True)
class _Whereabouts:
    """What the nodes answered.

    :ivar info: the facts of the primary's hypervisor; empty when it does not run there, None when
        the primary node did not answer, or was not asked.
    :ivar failure: why the primary node did not answer.
    :ivar elsewhere: other nodes which run it.
    :ivar unresponsive: other nodes which did not answer and are not marked as offline, and why.
    """

    info: Mapping[str, Any] | None
    failure: Exception | None
    elsewhere: list[Node]
    unresponsive: list[tuple[Node, Exception]]


def _questions(config: Config, instance: Instance, nodes: Sequence[Node]) -> list[Question]:
    """Return the questions whether these nodes run the instance, even those marked as offline."""
    args = _question(config, instance)
    fenced = [node.uuid for node in nodes if _is_fenced(node)]
    others = [node.uuid for node in nodes if not _is_fenced(node)]
    return [
        Question(call, uuids, args, even_offline=True)
        for call, uuids in ((INSTANCE_INFO, others), (_FENCED_INFO, fenced))
        if uuids
    ]


def _joined(answers: Iterable[Mapping[str, Result]]) -> dict[str, Result]:
    return {uuid: answer for one in answers for uuid, answer in one.items()}


def _is_fenced(node: Node) -> bool:
    """Return whether an automatic failover has made certain that no guest of it goes on."""
    return node.offline and node.auto_failover is not None and node.auto_failover.fenced


def _question(config: Config, instance: Instance) -> dict[str, Any]:
    return {
        "instance_name": instance.name,
        "hypervisor": instance.hypervisor,
        "hvparams": config.filled(instance).hvparams,
    }


def _find(
    config: Config, rpc: RpcRunner, instance: Instance, *, others_only: bool = False
) -> _Whereabouts:
    nodes = possible_nodes(config, instance)
    if others_only:
        nodes = [node for node in nodes if node.uuid != instance.primary_node]
    questions = _questions(config, instance, nodes)
    return _whereabouts(instance, nodes, _joined(rpc.call_together(questions)))


def _whereabouts(
    instance: Instance, nodes: Sequence[Node], answers: Mapping[str, Result]
) -> _Whereabouts:
    primary = instance.primary_node
    own = answers.get(primary)
    elsewhere: list[Node] = []
    unresponsive: list[tuple[Node, Exception]] = []
    for node in nodes:
        answer = answers[node.uuid]
        if node.uuid == primary:
            continue
        if answer.failure is None:
            if prereq.is_running(answer.data):
                elsewhere.append(node)
        elif not node.offline:
            unresponsive.append((node, answer.failure))
    return _Whereabouts(
        own.data if own is not None and own.failure is None else None,
        None if own is None else own.failure,
        elsewhere,
        unresponsive,
    )


def only_on_primary_check(
    config: Config, log: JobLog, instance: Instance, *, certain_to: str = ""
) -> NodeCheck[Mapping[str, Any]]:
    """Check that the instance runs on no other node than its primary.

    It finds the facts of the primary's hypervisor about the instance; empty when it does not run.

    :param certain_to: the name of an operation which destroys, replaces or copies data, for errors.
        All nodes must answer then, unless the instance runs on its primary node.
    """
    nodes = possible_nodes(config, instance)

    def judge(answers: Sequence[Mapping[str, Result]]) -> Mapping[str, Any]:
        found = _whereabouts(instance, nodes, _joined(answers))
        _refuse_elsewhere(config, instance, found)
        if found.failure is not None:
            raise found.failure
        if certain_to and not prereq.is_running(found.info or {}):
            _refuse_unresponsive(instance, found, certain_to)
        else:
            _warn_unresponsive(log.warn, instance, found.unresponsive)
        prereq.note(f"instance {instance.name} runs on no other node than its primary node")
        return found.info or {}

    return NodeCheck(_questions(config, instance, nodes), judge)


def require_only_on_primary(
    ctx: Context, instance: Instance, *, certain_to: str = ""
) -> Mapping[str, Any]:
    """Make the check :func:`only_on_primary_check`.

    :returns: the facts of the primary's hypervisor about it; empty when it does not run.
    :raises errors.OpPrereqError: it runs elsewhere, or it is not known whether it does.
    :raises errors.RpcError: the primary does not answer.
    """
    return only_on_primary_check(ctx.config, ctx.log, instance, certain_to=certain_to).make(ctx.rpc)


def require_not_elsewhere(ctx: Context, instance: Instance, *, certain_to: str = "") -> None:
    """Check that the instance does not run on another node.

    For operations which stop the guest on its primary node themselves. That node is asked only when
    it is marked as offline, because nobody stops a guest there.

    :param certain_to: as in :func:`require_only_on_primary`.
    :raises errors.OpPrereqError: it runs elsewhere, or it is not known whether it does.
    """
    primary = _primary(ctx.config, instance)
    found = _find(ctx.config, ctx.rpc, instance, others_only=not primary.offline)
    _refuse_elsewhere(ctx.config, instance, found)
    _refuse_on_offline_primary(ctx.config, instance, found)
    if certain_to:
        _refuse_unresponsive(instance, found, certain_to)
    else:
        _warn_unresponsive(ctx.log.warn, instance, found.unresponsive)
    prereq.note(f"instance {instance.name} runs on no other node than its primary node")


def require_not_on_offline_node(config: Config, rpc: RpcRunner, instance: Instance) -> None:
    """Check that the instance does not run on a living node which is marked as offline.

    For the repair after a migration, which itself asks the nodes that are not marked.

    :raises errors.OpPrereqError: it runs there.
    """
    marked = [node for node in possible_nodes(config, instance) if node.offline]
    answers = _joined(rpc.call_together(_questions(config, instance, marked)))
    elsewhere = [
        node
        for node in marked
        if answers[node.uuid].failure is None and prereq.is_running(answers[node.uuid].data)
    ]
    _refuse_elsewhere(config, instance, _Whereabouts(None, None, elsewhere, []))


def require_stopped(
    ctx: Context, instance: Instance, action: str, *, primary_may_be_off: bool = False
) -> None:
    """Check that the instance is marked down or offline, and that it runs nowhere.

    :param action: the operation, for errors.
    :param primary_may_be_off: the primary node may be marked as offline; then the machine must be
        off.
    :raises errors.OpPrereqError: it is marked up, it runs, or a node which can run it does not
        answer and is not marked as offline.
    :raises errors.RpcError: the primary node did not answer.
    """
    prereq.require_admin_state(instance, (prereq.ADMIN_DOWN, prereq.ADMIN_OFFLINE), action)
    primary = _primary(ctx.config, instance)
    if primary_may_be_off and primary.offline:
        found = _find(ctx.config, ctx.rpc, instance)
        _refuse_elsewhere(ctx.config, instance, found)
        _refuse_unresponsive(instance, found, action)
        _require_dead(ctx, instance, primary, found)
    elif prereq.is_running(require_only_on_primary(ctx, instance, certain_to=action)):
        raise still_runs(ctx.config, instance, action)
    prereq.note(f"instance {instance.name} does not run")


def still_runs(config: Config, instance: Instance, action: str) -> errors.OpPrereqError:
    """Return the refusal of an operation because the instance runs on its primary node."""
    return errors.OpPrereqError(
        f"cannot {action} instance {instance.name}: it runs on node"
        f" {_primary(config, instance).name} although it is marked {instance.admin_state!r}."
        f" Stop it with 'gnt-instance shutdown {instance.name}'.",
        errors.ECODE_STATE,
    )


def info_on_primary(config: Config, rpc: RpcRunner, instance: Instance) -> Mapping[str, Any]:
    """Ask the hypervisor of the primary node about the instance, only to show or compare facts.

    :returns: name of a fact -> value; empty when the instance does not run there.
    :raises errors.RpcError: the node did not answer, or is marked as offline.
    """
    answer = rpc.call(INSTANCE_INFO, instance.primary_node, **_question(config, instance))
    info: Mapping[str, Any] = answer.payload()
    return info


def require_failover(
    ctx: Context, instance: Instance, *, force: bool, option: str = ""
) -> Mapping[str, Any]:
    """Check before a failover that the instance runs at most on its primary node.

    The primary node may be unresponsive, which causes a warning. When it is marked as offline, it
    must be off, because nobody stops the guest there.

    :param force: go on, with a warning, when it is only possible that the instance runs on the node
        which is marked as offline; not when the node says so.
    :param option: the way to set ``force``, for errors.
    :returns: the facts of the primary's hypervisor about it; empty when it does not run, or when
        the primary node does not answer.
    :raises errors.OpPrereqError: it runs elsewhere, or the primary node is marked as offline and
        may run it.
    """
    found = _find(ctx.config, ctx.rpc, instance)
    _refuse_elsewhere(ctx.config, instance, found)
    _warn_unresponsive(ctx.log.warn, instance, found.unresponsive)
    node = _primary(ctx.config, instance)
    if node.offline:
        option = option or f"'gnt-instance failover --ignore-consistency {instance.name}'"
        _require_dead(ctx, instance, node, found, force=force, option=option)
        return {}
    if found.failure is not None:
        _warn_unresponsive(ctx.log.warn, instance, [(node, found.failure)])
    return found.info or {}


def _require_dead(
    ctx: Context,
    instance: Instance,
    node: Node,
    found: _Whereabouts,
    *,
    force: bool = False,
    option: str = "",
) -> None:
    """Check that the primary node, which is marked as offline, is off.

    :param option: the way to set ``force``, for errors.
    """
    _refuse_on_offline_primary(ctx.config, instance, found)
    problem = _sign_of_life(ctx, node, found.failure)
    if not problem:
        prereq.note(f"node {node.name}, which is marked offline, does not answer")
        return
    text = f"node {node.name} is marked offline, but {problem}"
    lost = (
        f"If instance {instance.name} runs there, two guests will write to its disks, or to"
        " different replicas of them, and the writes of one guest will be lost"
    )
    if force:
        ctx.log.warn(text, hint=f"{lost}. Switch the machine off.")
        return
    way = option and f" If it is certain that the instance does not run there, use {option}."
    raise errors.OpPrereqError(
        f"{text}. {lost}. {_way_out(node)}{way}",
        errors.ECODE_STATE,
    )


def _refuse_on_offline_primary(config: Config, instance: Instance, found: _Whereabouts) -> None:
    node = _primary(config, instance)
    if node.offline and prereq.is_running(found.info or {}):
        raise errors.OpPrereqError(
            f"node {node.name} is marked offline, but it answers, and instance {instance.name} runs"
            f" there. {_way_out(node)}",
            errors.ECODE_STATE,
        )


def _way_out(node: Node) -> str:
    return (
        f"Mark the node online with 'gnt-node modify --offline=no {node.name}', or switch the"
        " machine off, and repeat the command."
    )


def _sign_of_life(ctx: Context, node: Node, failure: Exception | None) -> str:
    """Return what shows that a machine is on; empty when nothing does.

    :param failure: why the node did not answer; None when it answered.
    """
    if failure is None:
        return "it answers"
    if not isinstance(failure, errors.NodeUnreachable):
        return f"it answers, although not this question ({why(failure)})"
    if failure.machine_is_on and machine.current().has_own_system:
        return f"its machine is on, only its node daemon does not answer ({why(failure)})"
    if oob.is_powered(ctx, node):
        return (
            "its out-of-band helper reports that the machine is switched on, although it does not"
            f" answer ({why(failure)})"
        )
    return ""


def _primary(config: Config, instance: Instance) -> Node:
    node: Node = config.node(instance.primary_node)
    return node


def _refuse_elsewhere(config: Config, instance: Instance, found: _Whereabouts) -> None:
    if not found.elsewhere:
        return
    names = ", ".join(node.name for node in found.elsewhere)
    offline = [node.name for node in found.elsewhere if node.offline]
    way = f"'gnt-instance migrate --cleanup {instance.name}' makes both agree."
    if offline:
        way = (
            f"Node {', '.join(offline)} is marked offline, but answers. Stop the guest there by"
            " hand, or switch the machine off."
        )
    raise errors.OpPrereqError(
        f"instance {instance.name} runs on node {names}, its primary node is"
        f" {_primary(config, instance).name}. {way}",
        errors.ECODE_STATE,
    )


def _refuse_unresponsive(instance: Instance, found: _Whereabouts, action: str) -> None:
    for node, failure in found.unresponsive:
        raise errors.OpPrereqError(
            f"cannot {action} instance {instance.name}: node {node.name} did not report whether it"
            f" runs it: {why(failure)}. If that machine is certainly off, mark it offline with"
            f" 'gnt-node modify --offline=yes {node.name}'.",
            errors.ECODE_STATE,
        )


def _warn_unresponsive(
    warn: Callable[[str], None],
    instance: Instance,
    unresponsive: Sequence[tuple[Node, Exception]],
) -> None:
    for node, failure in unresponsive:
        warn(
            f"node {node.name} did not report whether it runs instance {instance.name}:"
            f" {why(failure)}"
        )
