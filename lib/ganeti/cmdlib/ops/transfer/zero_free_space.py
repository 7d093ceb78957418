"""Overwriting the free space of an instance's file systems before its disks are exported.

Blocks which a file system has freed keep their content: it makes the export large, and reveals
deleted data. A helper guest (:mod:`ganeti.cmdlib.ops.guest.helper`) boots from the cluster's
zeroing image while the instance is down, overwrites the free space with zeros and shuts itself
down. With a communication network it reports its result; without one, it only has to shut itself
down in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.ops.guest import helper
from ganeti.constants import metad as const

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Instance, Node
    from ganeti.opcodes.backup import OpBackupExport


def check_arguments(op: OpBackupExport) -> None:
    """Check the parameters about overwriting free space.

    :raises errors.OpPrereqError: they contradict each other, or a time is negative.
    """
    times = (op.zeroing_timeout_fixed, op.zeroing_timeout_per_mib)
    if not op.zero_free_space:
        if times != (None, None):
            raise errors.OpPrereqError(
                "a time for overwriting free space is given without --zero-free-space",
                errors.ECODE_INVAL,
            )
        return
    if any(time is not None and time < 0 for time in times):
        raise errors.OpPrereqError(
            "a time for overwriting free space is negative", errors.ECODE_INVAL
        )


def plan(
    config: Config, op: OpBackupExport, instance: Instance, node: Node, *, running: bool
) -> helper.HelperTask | None:
    """Plan the work of the helper guest; None when no free space is to be overwritten.

    :param node: the primary node of the instance.
    :param running: the instance runs now.
    :raises errors.OpPrereqError: it cannot be done.
    """
    if not op.zero_free_space:
        return None
    if running and not op.shutdown:
        raise errors.OpPrereqError(
            f"free space of instance {instance.name} can only be overwritten while the instance is"
            " shut down",
            errors.ECODE_STATE,
        )
    cluster = config.cluster()
    if not cluster.zeroing_image:
        raise errors.OpPrereqError(
            "the cluster has no helper image for overwriting free space. Name one with 'gnt-cluster"
            " modify --zeroing-image'.",
            errors.ECODE_STATE,
        )
    size_mib = sum(disk.size for disk in config.instance_disks(instance))
    if not size_mib:
        raise errors.OpPrereqError(f"instance {instance.name} has no disks", errors.ECODE_INVAL)
    nic, talks = None, True
    if cluster.instance_communication_network:
        nic = helper.plan_nic(config, instance.name, node, instance.nics)
    else:
        talks = any((nic.name or "").startswith(const.NIC_PREFIX) for nic in instance.nics)
    fixed_s = (
        const.HELPER_STARTUP_S if op.zeroing_timeout_fixed is None else op.zeroing_timeout_fixed
    )
    per_mib_s = (
        const.ZEROING_PER_MIB_S
        if op.zeroing_timeout_per_mib is None
        else op.zeroing_timeout_per_mib
    )
    return helper.HelperTask(
        const.TASK_ZERO,
        "overwrite free space",
        cluster.zeroing_image,
        nic,
        startup_s=fixed_s,
        shutdown_s=fixed_s + per_mib_s * size_mib,
        reports_result=talks,
    )
