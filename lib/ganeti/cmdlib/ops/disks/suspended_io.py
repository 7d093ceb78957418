"""Suspend the I/O of mirrored disks without a peer, so that the death of a node loses no write.

When the link between two replicas breaks, DRBD normally continues to write to the primary one, and
nobody can tell later whether it did before its node died. Here DRBD suspends the I/O instead
(``fencing resource-and-stonith``), and the neutral usermode helper keeps it suspended until the
peer returns, or until the master resumes it (:mod:`ganeti.master.suspended_disks`). The master does
so only after it has recorded that the replica of the peer misses writes (``Disk.outdated_node``).
While a disk has the record ``Disk.never_alone``, each confirmed write is on both nodes.

The record is removed before anything is done by which the device might write alone: before it is
activated, connected or given storage again. It is made again when the replicas are equal.

Source: ``doc/design-instance-failover.rst``, *A primary which stops*; drbd.conf(5), *fencing*.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.ops.disks import replicas
from ganeti.constants.disk import LDS_OKAY
from ganeti.constants.instance_failover import ALONE_TAG
from ganeti.objects import fill
from ganeti.utils import retry
from ganeti.wire.calls import (
    BLOCKDEV_GETMIRRORSTATUS_MULTI,
    DRBD_WAIT_FOR_PEER,
    DRBD_WRITE_ALONE,
)

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import BlockDevStatus, Disk, Instance
    from ganeti.rpc import RpcRunner

_log = logging.getLogger(__name__)

#: DRBD notices after up to 10.5 s that its peer has lost its power.
_NOTICE_S = 20.0


def protect(config: Config, rpc: RpcRunner, instance: Instance, disks: Sequence[Disk]) -> None:
    """Let writable mirrored disks confirm no write alone from now on, and record that.

    This is done where instances are failed over automatically, except with the tag
    :data:`ganeti.constants.instance_failover.ALONE_TAG`. Only disks whose replicas are equal now
    get the record. A failure is only logged: then an administrator decides after the death of the
    node, as without this.

    :param disks: of this instance, active on its primary node.
    """
    if not is_wanted(config, instance):
        return
    stored = config.snapshot().disks
    chosen = [
        disk
        for disk in replicas.mirrored(disks)
        if disk.uuid in stored
        and stored[disk.uuid].never_alone is None
        and stored[disk.uuid].outdated_node is None
    ]
    if chosen:
        synchronous = _synchronous(config, instance)
        chosen = [disk for disk in chosen if disk.uuid in synchronous]
    if not chosen:
        return
    primary = instance.primary_node
    answer = rpc.call(DRBD_WAIT_FOR_PEER, primary, disks=(chosen, instance))
    if answer.failure is not None:
        _log.warning("disks of instance %s may write alone: %s", instance.name, answer.failure)
        return
    with config.transaction() as change:
        for uuid in answer.data:
            # When the master has resumed its I/O meanwhile, it has another serial number.
            change.disks.mark_never_alone(uuid, primary, stored[uuid].serial_no)


def is_wanted(config: Config, instance: Instance) -> bool:
    """Tell whether the mirrored disks of an instance are to confirm no write alone.

    It would have no use where the primary node cannot be fenced.
    """
    data = config.snapshot()
    node = data.nodes[instance.primary_node]
    group = data.nodegroups[node.group]
    return (
        bool(data.cluster.auto_instance_failover)
        and (bool(fill.fill_nd(data.cluster, group, node)["oob_program"]) or node.restarts_itself())
        and not any(ALONE_TAG in one.tags for one in (data.cluster, group, instance))
    )


def _synchronous(config: Config, instance: Instance) -> set[str]:
    """Return the UUIDs of the disks which confirm a write after both nodes have it."""
    return {
        disk.uuid
        for disk in config.filled(instance).disks_info
        if (disk.params or {}).get("protocol", replicas.SYNCHRONOUS) == replicas.SYNCHRONOUS
    }


def forget(config: Config, disks: Iterable[Disk]) -> None:
    """Remove the record, before something is done by which the disks might write alone."""
    chosen = replicas.mirrored(disks)
    known = _protected(config, chosen)
    if known:
        with config.transaction() as change:
            for disk in known:
                change.disks.forget_never_alone(disk.uuid)
    elif chosen and config.cluster().auto_instance_failover:
        # An earlier attempt may have removed it on this node only.
        config.require_committed()


def unprotect(config: Config, rpc: RpcRunner, instance: Instance, disks: Iterable[Disk]) -> None:
    """Let disks write alone again, before their replicas are separated on purpose.

    A failure is only logged: the master resumes suspended I/O nevertheless.
    """
    known = _protected(config, disks)
    if known:
        forget(config, known)
        _write_alone(rpc, instance, known)


def release(config: Config, rpc: RpcRunner, instance: Instance) -> None:
    """Let the disks of an instance write alone again, if they are protected and need not be."""
    known = _protected(config, config.instance_disks(instance))
    if not known or is_wanted(config, instance):
        return
    if config.cluster().auto_instance_failover:
        unprotect(config, rpc, instance, known)
    elif _write_alone(rpc, instance, known):
        # Until then the master resumes suspended I/O. It relies on no record meanwhile, and
        # what switches the parameter on removes all of them.
        forget(config, known)


def _protected(config: Config, disks: Iterable[Disk]) -> list[Disk]:
    stored = config.snapshot().disks
    return [
        disk for disk in disks if disk.uuid in stored and stored[disk.uuid].never_alone is not None
    ]


def _write_alone(rpc: RpcRunner, instance: Instance, disks: Sequence[Disk]) -> bool:
    answer = rpc.call(DRBD_WRITE_ALONE, instance.primary_node, disks=(disks, instance))
    if answer.failure is not None:
        _log.warning(
            "the I/O of instance %s may be suspended as before: %s", instance.name, answer.failure
        )
    return answer.failure is None


def conclude(
    config: Config,
    rpc: RpcRunner,
    pairs: Iterable[tuple[Disk, Instance]],
    source_uuid: str,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Record that the replicas on a dead node are outdated, where the others have all writes.

    :func:`complete_without` describes the parameters.
    """
    found = complete_without(config, rpc, pairs, source_uuid, sleep)
    if found:
        with config.transaction() as change:
            for uuid in found:
                change.disks.conclude_outdated(uuid, source_uuid)


def complete_without(
    config: Config,
    rpc: RpcRunner,
    pairs: Iterable[tuple[Disk, Instance]],
    source_uuid: str,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Return the UUIDs of the disks whose other replica has all writes which a dead node confirmed.

    That is so for a disk with the record ``never_alone``, if the other replica was active all the
    time: one which lost its storage or was activated again since then may have missed writes which
    the connected primary confirmed. Disks of which nothing is known stay as they are.

    The node is off, or marked offline, so that the master does not resume its I/O any more.

    :param pairs: disks with their instances.
    :param source_uuid: the dead node, on which the disks were writable.
    """
    if not config.cluster().auto_instance_failover:
        return []
    stored = config.snapshot().disks
    asked: dict[str, list[tuple[Disk, Instance]]] = {}
    for disk, instance in pairs:
        if disk.uuid in stored and stored[disk.uuid].never_alone == source_uuid:
            asked.setdefault(replicas.other_node(disk, source_uuid), []).append((disk, instance))
    if not asked:
        return []

    def noticed() -> dict[str, BlockDevStatus]:
        states = _states(rpc, asked)
        if any(not state.is_degraded for state in states.values()):
            raise retry.Again("a replica still seems to be connected to the dead node")
        return states

    try:
        states = retry.until(noticed, timeout_s=_NOTICE_S, sleep=sleep)
    except errors.RetryTimeout as err:
        _log.warning("%s", err)
        states = {uuid: one for uuid, one in _states(rpc, asked).items() if one.is_degraded}
    return [
        uuid
        for uuid, state in states.items()
        if state.ldisk_status == LDS_OKAY and state.sync_percent is None
    ]


def _states(
    rpc: RpcRunner, asked: dict[str, list[tuple[Disk, Instance]]]
) -> dict[str, BlockDevStatus]:
    answers = rpc.call_many(
        BLOCKDEV_GETMIRRORSTATUS_MULTI,
        asked,
        per_node={uuid: {"disks": disks} for uuid, disks in asked.items()},
    )
    return {
        disk.uuid: state
        for uuid, answer in answers.items()
        if answer.failure is None
        for (disk, _instance), (known, state) in zip(asked[uuid], answer.data, strict=True)
        if known
    }
