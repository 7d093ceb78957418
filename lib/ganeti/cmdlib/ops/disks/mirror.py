"""The two halves of an instance's mirrored disks: are they good, who may write, are they together?

Normally one half is writable, the *primary*. Only while a running guest goes over to the other node
must both be; :func:`allow_two_writers` and :func:`one_writer` go there and back. To change it, the
halves have to leave each other and meet again; what is written in between is copied when they meet.

A half which missed writes does not know that it did. So before the other half is given up,
:func:`require_good_copy` looks whether the two are together now; when the other node is dead that
question has no answer, and an administrator has to say so (by marking the node offline).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import why
from ganeti.cmdlib.ops.disks.devices import assemble_disks
from ganeti.constants.disk import INT_MIRRORED, LDS_OKAY
from ganeti.wire.calls import (
    BLOCKDEV_CLOSE,
    BLOCKDEV_FIND,
    BLOCKDEV_OPEN,
    DRBD_ATTACH_NET,
    DRBD_DISCONNECT_NET,
    DRBD_WAIT_SYNC,
)

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit
    from ganeti.objects import Disk, Instance, Node
    from ganeti.rpc import Result

POLL_S = 2.0


def mirrored_disks(unit: LogicalUnit, instance: Instance) -> tuple[Disk, ...]:
    """Those of the instance's disks which have a second half on another node."""
    return tuple(
        disk for disk in unit.config.instance_disks(instance) if disk.dev_type in INT_MIRRORED
    )


def require_good_copy(
    unit: LogicalUnit, instance: Instance, target: Node, *, alone: bool, ignore: bool
) -> None:
    """The halves on the target are complete and up to date.

    :param alone: the other node is known to be dead: then only what the target knows itself counts.
    :param ignore: a disk which is not in order is only a warning.
    :raises errors.OpExecError: a disk is not in order, or the target does not tell.
    """
    for disk in mirrored_disks(unit, instance):
        answer = unit.rpc.call(BLOCKDEV_FIND, target.uuid, disk=(disk, instance))
        if answer.failure is not None:
            raise errors.OpExecError(
                f"node {target.name} does not tell about {disk.iv_name} of instance"
                f" {instance.name}: {why(answer.failure)}"
            ) from answer.failure
        status = answer.data
        if status is None:
            problem = "is not active"
        elif status.ldisk_status != LDS_OKAY:
            problem = "has no complete copy of the data"
        elif status.is_degraded and not alone:
            problem = "is not together with its other half, and may have missed writes"
        else:
            if status.is_degraded:
                unit.warn(
                    f"{disk.iv_name} of instance {instance.name} on node {target.name} cannot be"
                    " compared with its other half"
                )
            continue
        text = f"{disk.iv_name} of instance {instance.name} on node {target.name} {problem}"
        if not ignore:
            raise errors.OpExecError(f"{text}. Nothing was changed.")
        unit.warn(text)


def require_good_copy_now(
    unit: LogicalUnit, instance: Instance, target: Node, *, alone: bool, ignore: bool
) -> None:
    """As :func:`require_good_copy`, but a copy which is not in order may become so first.

    An operation which was broken off may have left a half inactive, or alone. When the disks are
    activated again they meet, and the question has another answer.
    """
    if not alone:
        try:
            require_good_copy(unit, instance, target, alone=False, ignore=False)
            return
        except errors.OpExecError as err:
            unit.info(f"{err} Activating the disks")
        try:
            assemble_disks(unit, instance, ignore_secondaries=True)
            unit.rpc.call(
                DRBD_WAIT_SYNC, target.uuid, disks=(mirrored_disks(unit, instance), instance)
            ).payload()
        except (errors.OpExecError, errors.RpcError) as err:
            unit.warn(str(err))
    require_good_copy(unit, instance, target, alone=alone, ignore=ignore)


def require_own_storage(unit: LogicalUnit, instance: Instance, source: Node) -> None:
    """The halves on the source have storage of their own, so that they can do without the others.

    While the two change from one writer to two, they are separated for a moment.

    :raises errors.OpExecError: one has not, or the source does not tell.
    """
    for disk in mirrored_disks(unit, instance):
        answer = unit.rpc.call(BLOCKDEV_FIND, source.uuid, disk=(disk, instance))
        status = answer.payload()
        if status is None or status.ldisk_status != LDS_OKAY:
            raise errors.OpExecError(
                f"{disk.iv_name} of instance {instance.name} has lost its storage on node"
                f" {source.name}, so the instance cannot be migrated. Nothing was changed. Fail it"
                " over, or replace the disk first."
            )


def allow_two_writers(
    unit: LogicalUnit, instance: Instance, target: Node, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Make both halves of each disk writable: the primary's goes on, the target's is opened too."""
    disks = mirrored_disks(unit, instance)
    if not disks:
        return
    _close(unit, instance, disks, target)
    _meet_again(unit, instance, disks, two_writers=True, sleep=sleep)
    unit.rpc.call(
        BLOCKDEV_OPEN,
        target.uuid,
        instance_name=instance.name,
        disks=(disks, instance),
        exclusive=False,
    ).payload()


def one_writer(
    unit: LogicalUnit, instance: Instance, other: Node, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Let only one half of each disk be writable again.

    :param other: the node which may not write any more.
    """
    disks = mirrored_disks(unit, instance)
    if disks:
        _close(unit, instance, disks, other)
        _meet_again(unit, instance, disks, two_writers=False, sleep=sleep)


def _close(unit: LogicalUnit, instance: Instance, disks: Sequence[Disk], node: Node) -> None:
    unit.rpc.call(
        BLOCKDEV_CLOSE, node.uuid, instance_name=instance.name, disks=(disks, instance)
    ).payload()


def _meet_again(
    unit: LogicalUnit,
    instance: Instance,
    disks: Sequence[Disk],
    *,
    two_writers: bool,
    sleep: Callable[[float], None],
) -> None:
    nodes = list(dict.fromkeys(uuid for disk in disks for uuid in disk.all_node_uuids()))
    which = (disks, instance)
    apart = unit.rpc.call_many(DRBD_DISCONNECT_NET, nodes, disks=which)
    _require_all(instance, apart, "separated")
    together = unit.rpc.call_many(DRBD_ATTACH_NET, nodes, disks=which, multimaster=two_writers)
    _require_all(instance, together, "connected")
    wait_in_step(unit, instance, disks, nodes, sleep)


def _require_all(instance: Instance, answers: Mapping[str, Result], what: str) -> None:
    for answer in answers.values():
        if answer.failure is not None:
            raise errors.OpExecError(
                f"the halves of the disks of instance {instance.name} cannot be {what} on node"
                f" {answer.node_name}: {why(answer.failure)}"
            ) from answer.failure


def wait_in_step(
    unit: LogicalUnit,
    instance: Instance,
    disks: Sequence[Disk],
    nodes: Sequence[str],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until all halves on these nodes are together and the same.

    :raises errors.OpExecError: one does not find its other half.
    """
    told = 100.0
    while True:
        answers = unit.rpc.call_many(DRBD_WAIT_SYNC, nodes, disks=(disks, instance))
        lowest, done = 100.0, True
        for answer in answers.values():
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"disks of instance {instance.name} on node {answer.node_name} are not in step:"
                    f" {why(answer.failure)}"
                ) from answer.failure
            in_step, percent = answer.data
            done, lowest = done and bool(in_step), min(lowest, float(percent))
        if done:
            return
        if lowest != told:
            # A half that does not see the other one cannot say how much is missing.
            unit.feedback(
                f"* disks are in step to {lowest:.1f} %"
                if lowest
                else "* waiting until the halves of its disks have met"
            )
            told = lowest
        sleep(POLL_S)
