"""The sizes which disks really have on their nodes.

The size in the configuration may be smaller: LVM rounds the sizes of volumes up to whole extents,
the device of an administrator may end within a MiB, and a growth may have ended before its result
was recorded. A guest sees the real size, and may have
written up to it. So an operation which copies the content of disks makes the new ones as large as
the old ones are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import why
from ganeti.cmdlib.ops.disks.specs import resized
from ganeti.objects.disk_templates import HAVE_PROVIDER, MEASURABLE
from ganeti.rpc.results import whole
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS

if TYPE_CHECKING:
    from ganeti.objects import Disk, Instance
    from ganeti.rpc import RpcRunner

_MIB = 1 << 20


def present_bytes(
    rpc: RpcRunner, instance: Instance, device: Disk, node_uuids: Iterable[str]
) -> dict[str, int | None]:
    """Measure a device on nodes.

    :returns: UUID of a node -> size; None when it is not active there, or its storage cannot be
        measured.
    """
    answers = rpc.call_many(BLOCKDEV_GETDIMENSIONS, node_uuids, disks=[(device, instance)])
    return {
        uuid: None
        if answer.failure is not None or answer.data[0] is None
        else int(answer.data[0][0])
        for uuid, answer in ((uuid, whole(answer)) for uuid, answer in answers.items())
    }


def rounded_up_mib(size_bytes: int) -> int:
    """Return a size in MiB, in which the last one may be incomplete."""
    return -(-size_bytes // _MIB)


def real(rpc: RpcRunner, instance: Instance, disks: Iterable[Disk]) -> tuple[Disk, ...]:
    """Return the disks of an instance with the sizes which they have on its primary node.

    A disk of a storage provider which only hypervisors can open keeps its size, because the node
    cannot measure it.

    :raises errors.OpPrereqError: the node did not report the size of a disk.
    """
    disks = tuple(disks)
    own = [disk for disk in disks if disk.dev_type in MEASURABLE - HAVE_PROVIDER]
    present = _measured(rpc, instance, own) if own else {}
    for disk in disks:
        if disk.dev_type in HAVE_PROVIDER:
            present |= _measured(rpc, instance, [disk], may_be_unknown=True)
    return tuple(resized(disk, max(disk.size, present.get(disk.uuid, 0))) for disk in disks)


def _measured(
    rpc: RpcRunner, instance: Instance, disks: Sequence[Disk], *, may_be_unknown: bool = False
) -> dict[str, int]:
    """Measure disks on the primary node: UUID -> MiB; without those which are not there.

    :param may_be_unknown: the node may say that it cannot measure them; the result is empty then.
    :raises errors.OpPrereqError: the node did not report the sizes.
    """
    answer = whole(
        rpc.call(
            BLOCKDEV_GETDIMENSIONS,
            instance.primary_node,
            disks=[(disk, instance) for disk in disks],
        )
    )
    if may_be_unknown and isinstance(answer.failure, errors.NodeCallFailed):
        return {}
    if answer.failure is not None:
        raise errors.OpPrereqError(
            f"node {answer.node_name} did not report the size of"
            f" {', '.join(disk.iv_name for disk in disks)} of instance {instance.name}:"
            f" {why(answer.failure)}",
            errors.ECODE_ENVIRON,
        ) from answer.failure
    return {
        disk.uuid: rounded_up_mib(int(dimensions[0]))
        for disk, dimensions in zip(disks, answer.data, strict=True)
        if dimensions is not None
    }
