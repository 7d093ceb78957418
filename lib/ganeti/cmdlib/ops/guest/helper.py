"""Helper guests on the master side: start, wait, evaluate the result, clean up.

A helper guest carries out a task on the disks of a stopped instance and switches itself off
(:mod:`ganeti.backend.instance.helper` is the node side). The disks must be active, the caller holds
the locks of instance and node. The guest and its files are always removed afterwards, also when the
job is canceled. When the master dies meanwhile, the next start, stop, removal or helper guest of
the instance removes them.

Two time limits bound the task: until the guest has asked for its task, and from then on until it is
off.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, JobLog, LuContext, why
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.nics import communication, specs
from ganeti.constants import metad as const
from ganeti.utils.undo import UndoStack
from ganeti.wire.calls import HELPER_START, HELPER_STATUS, HELPER_STOP

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Instance, Nic, Node
    from ganeti.rpc import RpcRunner

#: Seconds between two questions: few at first, because small images need a second only.
POLL_S = 0.1
POLL_MAX_S = 2.0
_POLL_GROWTH = 1.2
#: Seconds after which an unresponsive node is given up, and with it the guest.
UNRESPONSIVE_S = 120.0


class HelperTask(NamedTuple):
    """The task of a helper guest, and the guest which it needs.

    :ivar task: one of ``TASK_*``.
    :ivar what: the task in words, such as "install OS debian".
    :ivar nic: a NIC for communication, when the instance has none of its own.
    :ivar startup_s: seconds until the guest must have asked for its task.
    :ivar shutdown_s: seconds from then on until it must be off.
    :ivar parameters: OS parameter -> [value, visibility].
    :ivar reports_result: whether the guest must report an exit code; else only its end counts.
    """

    task: str
    what: str
    image: str
    nic: Nic | None
    startup_s: float
    shutdown_s: float
    parameters: Mapping[str, list[str]] = {}
    reinstall: bool = False
    debug_level: int = 0
    reports_result: bool = True


def plan_nic(
    config: Config,
    instance_name: str,
    node: Node,
    present: list[specs.PlannedNic] | tuple[Nic, ...],
) -> Nic | None:
    """Plan the NIC for communication that a helper guest needs in addition; None if there is one.

    Its address is reserved in the pool only as long as this job runs.

    :raises errors.OpPrereqError: the cluster has no network for it.
    """
    names = [one.nic.name if isinstance(one, specs.PlannedNic) else one.name for one in present]
    if any((name or "").startswith(const.NIC_PREFIX) for name in names):
        return None
    (planned,) = specs.plan_nics(config, [communication.nic_spec(config, instance_name)], None)
    what = "the NIC of the helper guest"
    return specs.settled(config, what, planned, node, conflicts_check=False).nic


def require_stopped(ctx: Context, instance: Instance, action: str) -> bool:
    """Check that the instance is stopped; a helper guest of an interrupted job may still run.

    :returns: whether there is such a helper guest; :func:`end_left` ends it.
    :raises errors.OpPrereqError: the instance is not marked down, or it runs.
    """
    prereq.require_admin_state(instance, (prereq.ADMIN_DOWN, prereq.ADMIN_OFFLINE), action)
    info = location.require_only_on_primary(ctx, instance, certain_to=action)
    if not prereq.is_running(info):
        return False
    answer = ctx.rpc.call(HELPER_STATUS, instance.primary_node, instance=instance)
    if answer.failure is not None or not answer.data["running"]:
        raise location.still_runs(ctx.config, instance, action)
    return True


def end_left(rpc: RpcRunner, log: JobLog, instance: Instance) -> None:
    """End the helper guest of an interrupted job.

    :raises errors.RpcError: the node could not end it.
    """
    log.info(f"ending the helper guest of an interrupted job of instance {instance.name}")
    rpc.call(
        HELPER_STOP, instance.primary_node, instance=instance, task=const.TASK_INSTALL
    ).payload()


def run(
    ctx: LuContext,
    instance: Instance,
    task: HelperTask,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Run a helper guest to its end.

    :raises errors.OpExecError: it did not start, did not end, or failed; the text has its last
        lines of output.
    :raises errors.JobCanceled: the job was canceled.
    """
    own = [*instance.nics, task.nic] if task.nic is not None else list(instance.nics)
    guest = (
        dataclasses.replace(instance, nics=tuple(own)),
        None,
        None,
        {name: pair[0] for name, pair in task.parameters.items()},
    )
    node = ctx.config.node(instance.primary_node)
    ctx.log.feedback(f"* starting a helper guest on node {node.name} to {task.what}")
    with UndoStack(ctx.log.warn) as undo:
        undo.add(
            f"the helper guest of instance {instance.name} on node {node.name}",
            _stop,
            ctx.rpc,
            instance,
            task,
        )
        answer = ctx.rpc.call(
            HELPER_START,
            node.uuid,
            instance=guest,
            task=task.task,
            image=task.image,
            own_nic=task.nic is not None,
            parameters=dict(task.parameters),
            reinstall=task.reinstall,
            debug_level=task.debug_level,
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"could not start a helper guest for instance {instance.name} on node {node.name}:"
                f" {why(answer.failure)}"
            ) from answer.failure
        problem = _wait(ctx, instance, task, sleep, now)
        result = _stop(ctx.rpc, instance, task)
        undo.commit()
    if problem:
        raise errors.OpExecError(
            f"could not {task.what} in a helper guest for instance {instance.name} on node"
            f" {node.name}: {problem}{_last_lines(result)}"
        )
    if result.get("log_file"):
        ctx.log.feedback(
            f"* the helper guest is done; its output is in {result['log_file']} on node {node.name}"
        )


def _stop(rpc: RpcRunner, instance: Instance, task: HelperTask) -> dict[str, Any]:
    result: dict[str, Any] = rpc.call(
        HELPER_STOP, instance.primary_node, instance=instance, task=task.task
    ).payload()
    return result


def _last_lines(result: Mapping[str, Any]) -> str:
    lines = [str(line) for line in result.get("lines") or ()]
    if not lines:
        return ""
    place = f" of {result['log_file']}" if result.get("log_file") else " of its console"
    return f". Last lines{place}:\n" + "\n".join(lines)


def _wait(
    ctx: LuContext,
    instance: Instance,
    task: HelperTask,
    sleep: Callable[[float], None],
    now: Callable[[], float],
) -> str | None:
    """Wait for the end of the guest.

    :returns: the problem in words, or None.
    """
    heard = begun = now()
    contact = False
    pause_s = POLL_S
    while True:
        ctx.callbacks.check_cancel()
        answer = ctx.rpc.call(HELPER_STATUS, instance.primary_node, instance=instance)
        if answer.failure is not None:
            if now() - heard > UNRESPONSIVE_S or isinstance(answer.failure, errors.NodeOffline):
                raise errors.OpExecError(
                    f"node {answer.node_name} did not report the state of the helper guest"
                    f" of instance {instance.name}: {why(answer.failure)}"
                ) from answer.failure
            sleep(POLL_MAX_S)
            continue
        heard = now()
        state = answer.data
        if not contact and state["contact"]:
            contact, begun, pause_s = True, heard, POLL_S
            ctx.log.feedback("* the helper guest is up")
        if not state["running"]:
            return _problem(task, state)
        if task.reports_result and not state["known"]:
            return "the metadata daemon of the node was restarted meanwhile and lost its task"
        # A guest which does not report that it is up gets the second time limit at once.
        limit_s = task.shutdown_s if contact or not task.reports_result else task.startup_s
        if heard - begun > limit_s:
            return _too_late(
                task,
                contact=contact or not task.reports_result,
                limit_s=limit_s,
                exit_code=state["exit_code"],
            )
        sleep(pause_s)
        pause_s = min(pause_s * _POLL_GROWTH, POLL_MAX_S)


def _problem(task: HelperTask, state: Mapping[str, Any]) -> str | None:
    exit_code = state["exit_code"]
    if exit_code is None:
        if not task.reports_result:
            return None
        if not state["contact"]:
            return "it ended before it asked for its task; check that the image is a helper image"
        return "it ended without reporting a result"
    return None if exit_code == 0 else f"it failed with exit code {exit_code}"


def _too_late(task: HelperTask, *, contact: bool, limit_s: float, exit_code: int | None) -> str:
    installs = task.task == const.TASK_INSTALL
    if not contact:
        option = "--helper-startup-timeout" if installs else "--zeroing-timeout-fixed"
        return (
            f"it did not ask for its task within {limit_s:g} s ({option}); check that the image is"
            " a helper image"
        )
    done = "" if exit_code is None else f", although it had ended with exit code {exit_code}"
    option = "--helper-shutdown-timeout" if installs else "--zeroing-timeout-fixed"
    return f"it did not switch itself off within {limit_s:g} s ({option}){done}"
