"""Waiting until mirrored disks are in sync.

Only DRBD disks are waited for; all others have one replica. The progress goes to the log of the
job, with the remaining time as DRBD estimates it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import Context, JobLog, why
from ganeti.cmdlib.ops.disks import replicas
from ganeti.wire.calls import BLOCKDEV_GETMIRRORSTATUS

if TYPE_CHECKING:
    from ganeti.objects import BlockDevStatus, Disk, Instance

#: Pause between two status calls when there is no estimate of the remaining time.
POLL_S = 1.0
#: Longest pause between two status calls, each of which writes the progress to the log. The pause
#: doubles until then, because the estimate of the first seconds is often ten times too long.
POLL_MAX_S = 15.0
#: Number of unanswered status calls in a row after which waiting for the primary node ends.
UNANSWERED_POLLS = 10
#: Number of status calls which may report a degraded disk without a synchronisation: that is
#: normal for a moment before and after the transfer.
DEGRADED_POLLS = 10


def wait_for_sync(
    ctx: Context,
    instance: Instance,
    disks: Sequence[Disk] | None = None,
    *,
    once: bool = False,
    check_cancel: Callable[[], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until the mirrored disks of an instance are in sync.

    :param disks: disks of the instance to wait for; all by default.
    :param once: return after the first status call which finds no broken disk.
    :param check_cancel: raises when a user canceled the job; given where everything can be undone.
    :returns: whether none of the disks is degraded now.
    :raises errors.OpExecError: the primary node does not answer.
    :raises errors.JobCanceled: a user canceled the job.
    """
    chosen = ctx.config.instance_disks(instance) if disks is None else disks
    mirrored = [disk for disk in chosen if disk.has_replicas]
    if not mirrored:
        return True
    ctx.log.info(f"Waiting for instance {instance.name} to sync disks")
    node = ctx.config.node(instance.primary_node)
    unresponsive, degraded_left, pause_s = 0, DEGRADED_POLLS, POLL_S
    while True:
        if check_cancel is not None:
            check_cancel()
        answer = ctx.rpc.call(BLOCKDEV_GETMIRRORSTATUS, node.uuid, disks=(mirrored, instance))
        if answer.failure is not None:
            unresponsive += 1
            if unresponsive >= UNANSWERED_POLLS:
                raise errors.OpExecError(
                    f"node {node.name} did not report the state of the disks of instance"
                    f" {instance.name}: {why(answer.failure)}"
                ) from answer.failure
            ctx.log.warn(
                f"node {node.name} did not report the state of its disks: {why(answer.failure)}"
            )
            sleep(POLL_S)
            continue
        unresponsive = 0
        states: list[BlockDevStatus] = answer.data
        wait_s, busy = _report(ctx.log, mirrored, states)
        # Degraded and not synchronising: broken, or shortly before or after the transfer.
        broken = any(state.is_degraded and state.sync_percent is None for state in states)
        if broken and not busy and degraded_left:
            degraded_left -= 1
            sleep(POLL_S)
            continue
        if not busy or once:
            if not busy and not broken:
                ctx.log.info(f"Instance {instance.name}'s disks are in sync")
                replicas.forget_outdated(ctx.config, mirrored)
            return not broken
        sleep(min(max(wait_s, POLL_S), pause_s))
        pause_s = min(2 * pause_s, POLL_MAX_S)


def _report(
    log: JobLog, disks: Sequence[Disk], states: Sequence[BlockDevStatus]
) -> tuple[float, bool]:
    """Write the progress of each disk to the log of the job.

    :returns: the longest estimate in seconds, and whether a disk is synchronising.
    """
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
        log.info(f"- device {disk.iv_name}: {state.sync_percent:5.2f}% done, {left}")
    return longest_s, busy


def require_in_sync(ctx: Context, instance: Instance, disks: Sequence[Disk]) -> None:
    """Wait until the mirrored disks of an instance are in sync, and refuse degraded ones.

    :raises errors.OpExecError: a disk is degraded, or the primary node does not answer.
    """
    if not wait_for_sync(ctx, instance, disks):
        raise errors.OpExecError(
            f"disks of instance {instance.name} are degraded after their synchronisation. Look at"
            f" them with 'gnt-instance info {instance.name}'."
        )
