"""Helper guests, as the master drives them: start, wait, judge, clean up.

A helper guest does a piece of work on the disks of a stopped instance and switches itself off
(:mod:`ganeti.backend.instance.helper` is the node's side). The disks must be active, the caller
holds the locks of instance and node. Whatever happens, cancelling the job included, the guest and
what was made for it are gone afterwards. When the master dies meanwhile, the next start, stop,
removal or helper of the instance removes them.

Two times bound the work: how long until the guest has asked for its task, and how long from then on
until it is off.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.nics import communication, specs
from ganeti.cmdlib.undo import Undo
from ganeti.constants import metad as const
from ganeti.wire.calls import HELPER_START, HELPER_STATUS, HELPER_STOP

if TYPE_CHECKING:
    from ganeti.objects import Instance, Nic, Node

#: Between two looks: short at first, because small images need a second only.
POLL_S = 0.1
POLL_MAX_S = 2.0
_POLL_GROWTH = 1.2
#: A node which does not answer for so long is given up, and with it the guest.
SILENT_S = 120.0


class Work(NamedTuple):
    """What a helper guest is for.

    :ivar what: the same in words, such as "install OS debian".
    :ivar nic: a communication interface, when the instance has none of its own.
    :ivar parameters: OS parameter -> [value, visibility].
    :ivar says_how: whether the guest must tell how it went; else its end is all that is wanted.
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
    says_how: bool = True


def plan_nic(
    unit: AnyUnit,
    instance_name: str,
    node: Node,
    present: list[specs.PlannedNic] | tuple[Nic, ...],
) -> Nic | None:
    """The communication interface that a helper guest needs in addition; None if there is one.

    Its address is taken from the pool only as long as this job runs.

    :raises errors.OpPrereqError: the cluster has no network for it.
    """
    names = [one.nic.name if isinstance(one, specs.PlannedNic) else one.name for one in present]
    if any((name or "").startswith(const.NIC_PREFIX) for name in names):
        return None
    (planned,) = specs.plan_nics(unit, [communication.nic_spec(unit, instance_name)], None)
    what = "the interface of the helper guest"
    return specs.settled(unit, what, planned, node, conflicts_check=False).nic


def require_stopped(unit: AnyUnit, instance: Instance, action: str) -> bool:
    """As :func:`prereq.require_stopped`, but a helper guest that was left behind may run.

    :returns: whether there is one; :func:`end_left` ends it.
    """
    try:
        prereq.require_stopped(unit, instance, action)
        return False
    except errors.OpPrereqError:
        prereq.require_admin_state(instance, (prereq.ADMIN_DOWN, prereq.ADMIN_OFFLINE), action)
        answer = unit.rpc.call(HELPER_STATUS, instance.primary_node, instance=instance)
        if answer.failure is not None or not answer.data["running"]:
            raise
        return True


def end_left(unit: AnyUnit, instance: Instance) -> None:
    """End the helper guest of a job that was interrupted."""
    unit.info(f"ending the helper guest that an interrupted job has left of {instance.name}")
    unit.rpc.call(
        HELPER_STOP, instance.primary_node, instance=instance, task=const.TASK_INSTALL
    ).payload()


def run(
    unit: AnyUnit,
    instance: Instance,
    work: Work,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Let a helper guest do its work.

    :raises errors.OpExecError: it did not start, did not end, or failed; with the last it wrote.
    :raises errors.JobCanceled: somebody cancelled the job.
    """
    own = [*instance.nics, work.nic] if work.nic is not None else list(instance.nics)
    guest = (
        dataclasses.replace(instance, nics=tuple(own)),
        None,
        None,
        {name: pair[0] for name, pair in work.parameters.items()},
    )
    node = unit.config.node(instance.primary_node)
    unit.feedback(f"* starting a helper guest on node {node.name} to {work.what}")
    with Undo(unit.warn) as undo:
        undo.add(
            f"the helper guest of instance {instance.name} on node {node.name}",
            _stop,
            unit,
            instance,
            work,
        )
        answer = unit.rpc.call(
            HELPER_START,
            node.uuid,
            instance=guest,
            task=work.task,
            image=work.image,
            own_nic=work.nic is not None,
            parameters=dict(work.parameters),
            reinstall=work.reinstall,
            debug_level=work.debug_level,
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"could not start a helper guest for instance {instance.name} on node {node.name}:"
                f" {why(answer.failure)}"
            ) from answer.failure
        problem = _wait(unit, instance, work, sleep, now)
        told = _stop(unit, instance, work)
        undo.commit()
    if problem:
        raise errors.OpExecError(
            f"could not {work.what} in a helper guest for instance {instance.name} on node"
            f" {node.name}: {problem}{_words(told)}"
        )
    if told.get("log_file"):
        unit.feedback(
            f"* the helper guest is done; its output is in {told['log_file']} on node {node.name}"
        )


def _stop(unit: AnyUnit, instance: Instance, work: Work) -> dict[str, Any]:
    told: dict[str, Any] = unit.rpc.call(
        HELPER_STOP, instance.primary_node, instance=instance, task=work.task
    ).payload()
    return told


def _words(told: Mapping[str, Any]) -> str:
    lines = [str(line) for line in told.get("lines") or ()]
    if not lines:
        return ""
    place = f" of {told['log_file']}" if told.get("log_file") else " of its console"
    return f". Last lines{place}:\n" + "\n".join(lines)


def _wait(
    unit: AnyUnit,
    instance: Instance,
    work: Work,
    sleep: Callable[[float], None],
    now: Callable[[], float],
) -> str | None:
    """Follow the guest to its end; what went wrong, or None."""
    heard = begun = now()
    contact = False
    pause_s = POLL_S
    while True:
        unit.ctx.callbacks.check_cancel()
        answer = unit.rpc.call(HELPER_STATUS, instance.primary_node, instance=instance)
        if answer.failure is not None:
            if now() - heard > SILENT_S or isinstance(answer.failure, errors.NodeOffline):
                raise errors.OpExecError(
                    f"node {answer.node_name} does not tell about the helper guest of instance"
                    f" {instance.name}: {why(answer.failure)}"
                ) from answer.failure
            sleep(POLL_MAX_S)
            continue
        heard = now()
        state = answer.data
        if not contact and state["contact"]:
            contact, begun, pause_s = True, heard, POLL_S
            unit.feedback("* the helper guest is up")
        if not state["running"]:
            return _judge(work, state)
        if work.says_how and not state["known"]:
            return "the metadata daemon of the node was ended meanwhile, and knows nothing of it"
        # One that cannot tell that it is up has all the time.
        limit_s = work.shutdown_s if contact or not work.says_how else work.startup_s
        if heard - begun > limit_s:
            return _too_late(
                work,
                contact=contact or not work.says_how,
                limit_s=limit_s,
                exit_code=state["exit_code"],
            )
        sleep(pause_s)
        pause_s = min(pause_s * _POLL_GROWTH, POLL_MAX_S)


def _judge(work: Work, state: Mapping[str, Any]) -> str | None:
    exit_code = state["exit_code"]
    if exit_code is None:
        if not work.says_how:
            return None
        if not state["contact"]:
            return "it ended without having asked for its task. Is the image right?"
        return "it ended without saying how it went"
    return None if exit_code == 0 else f"it failed with exit code {exit_code}"


def _too_late(work: Work, *, contact: bool, limit_s: float, exit_code: int | None) -> str:
    installs = work.task == const.TASK_INSTALL
    if not contact:
        option = "--helper-startup-timeout" if installs else "--zeroing-timeout-fixed"
        return f"it did not ask for its task within {limit_s:g} s ({option}). Is the image right?"
    done = "" if exit_code is None else f", although it had ended with exit code {exit_code}"
    option = "--helper-shutdown-timeout" if installs else "--zeroing-timeout-fixed"
    return f"it did not switch itself off within {limit_s:g} s ({option}){done}"
