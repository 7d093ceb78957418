"""Waiting until mirrored disks are in step.

Only disks which we mirror are looked at; all others are in step by nature. The progress goes to
whoever watches the job, with the time that is left as the mirror estimates it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import why
from ganeti.constants.disk import INT_MIRRORED
from ganeti.wire.calls import BLOCKDEV_GETMIRRORSTATUS

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit
    from ganeti.objects import BlockDevStatus, Disk, Instance

#: Between two looks when nothing says how long it will take.
POLL_S = 1.0
#: However long it will take, so often somebody is told about it. The pause doubles until then: what
#: a mirror estimates in its first seconds is often ten times too long.
POLL_MAX_S = 15.0
#: A primary which does not answer for so many looks in a row is given up.
UNANSWERED_POLLS = 10
#: A disk may be degraded for a moment between the end of the transfer and the news of it.
DEGRADED_POLLS = 10


def wait_for_sync(
    unit: LogicalUnit,
    instance: Instance,
    disks: Sequence[Disk] | None = None,
    *,
    once: bool = False,
    cancelable: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until the mirrored disks of an instance are in step.

    :param disks: these of its disks; all by default.
    :param once: look once and go on, as long as none of them is broken.
    :param cancelable: the caller can undo everything, so the job may be canceled meanwhile.
    :returns: whether none of them is degraded now.
    :raises errors.OpExecError: the primary node does not answer.
    :raises errors.JobCanceled: somebody canceled the job.
    """
    chosen = unit.config.instance_disks(instance) if disks is None else disks
    mirrored = [disk for disk in chosen if disk.dev_type in INT_MIRRORED]
    if not mirrored:
        return True
    unit.info(f"Waiting for instance {instance.name} to sync disks")
    node = unit.config.node(instance.primary_node)
    silent, degraded_left, pause_s = 0, DEGRADED_POLLS, POLL_S
    while True:
        if cancelable:
            unit.ctx.callbacks.check_cancel()
        answer = unit.rpc.call(BLOCKDEV_GETMIRRORSTATUS, node.uuid, disks=(mirrored, instance))
        if answer.failure is not None:
            silent += 1
            if silent >= UNANSWERED_POLLS:
                raise errors.OpExecError(
                    f"node {node.name} does not tell about the disks of instance {instance.name}:"
                    f" {why(answer.failure)}"
                ) from answer.failure
            unit.warn(f"node {node.name} does not tell about its disks: {why(answer.failure)}")
            sleep(POLL_S)
            continue
        silent = 0
        states: list[BlockDevStatus] = answer.data
        wait_s, busy = _report(unit, mirrored, states)
        # Degraded and not being synchronised: broken, or just before or after the transfer.
        broken = any(state.is_degraded and state.sync_percent is None for state in states)
        if broken and not busy and degraded_left:
            degraded_left -= 1
            sleep(POLL_S)
            continue
        if not busy or once:
            if not busy and not broken:
                unit.info(f"Instance {instance.name}'s disks are in sync")
            return not broken
        sleep(min(max(wait_s, POLL_S), pause_s))
        pause_s = min(2 * pause_s, POLL_MAX_S)


def _report(
    unit: LogicalUnit, disks: Sequence[Disk], states: Sequence[BlockDevStatus]
) -> tuple[float, bool]:
    """Tell how far each disk is. Returns the longest estimate, and whether one is not done."""
    longest_s, busy = 0.0, False
    for disk, state in zip(disks, states, strict=False):
        if state.sync_percent is None:
            continue
        busy = True
        if state.estimated_time is not None:
            longest_s = max(longest_s, state.estimated_time)
            left = f"{int(state.estimated_time)}s remaining (estimated)"
        else:
            left = "no time estimate"
        unit.info(f"- device {disk.iv_name}: {state.sync_percent:5.2f}% done, {left}")
    return longest_s, busy


def require_in_step(unit: LogicalUnit, instance: Instance, disks: Sequence[Disk]) -> None:
    """As :func:`wait_for_sync`.

    :raises errors.OpExecError: some of the disks are degraded.
    """
    if not wait_for_sync(unit, instance, disks):
        raise errors.OpExecError(
            f"disks of instance {instance.name} are degraded after all was sent. Look at them with"
            f" 'gnt-instance info {instance.name}'."
        )
