"""Records what the nodes promise about their hardware watchdogs, and releases them.

The thread which watches the nodes asks those which may have promised something. A promise is
recorded when the node reports its device as armed. When the node asks for its release, the record
is removed first, on a majority of the candidates, and then the node is informed. One thread does
both, one after the other, so an older report never follows a release.

Source: ``doc/design-instance-failover.rst``, *A machine which restarts itself*.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ganeti import errors
from ganeti.config import Config
from ganeti.constants import node_watchdog as const
from ganeti.objects import Node, WatchdogPromise, updated
from ganeti.objects.transfer import WatchdogStatus
from ganeti.rpc import RpcRunner
from ganeti.wire.calls import WATCHDOG_RELEASE, WATCHDOG_STATUS

_log = logging.getLogger(__name__)


def poll(config: Config, rpc: RpcRunner, without: Collection[str] = ()) -> None:
    """Ask the nodes once, and record what has changed.

    :param without: UUIDs of nodes which are not asked: they do not answer, or an automatic failover
        is running for them.
    """
    data = config.snapshot()
    asked = [
        uuid
        for uuid, node in data.nodes.items()
        if uuid not in without
        and not node.offline
        and (data.cluster.node_watchdog or node.watchdog is not None)
    ]
    if not asked:
        return
    for uuid, answer in rpc.call_many(WATCHDOG_STATUS, asked).items():
        if answer.failure is not None:
            continue
        try:
            _take(config, rpc, uuid, answer.data)
        except errors.GenericError as err:
            _log.error("watchdog of node %s: %s", answer.node_name, err)


def wanted(known: WatchdogPromise | None, status: WatchdogStatus) -> WatchdogPromise | None:
    """Return the record which a report of a node leads to; it is pure.

    A node which answers is not left behind any more: its failover has been given up.
    """
    if status.state == const.ARMED:
        return WatchdogPromise(token=status.token, timeout_s=status.timeout_s)
    if status.state == const.NONE and known is not None and known.token:
        if known.token == status.promised:
            # The daemon restarts: until the device is armed again, the node starts no guest.
            return WatchdogPromise(token=known.token, timeout_s=known.timeout_s)
    return WatchdogPromise(reason=status.text) if status.text else None


def _take(config: Config, rpc: RpcRunner, uuid: str, status: WatchdogStatus) -> None:
    node = config.snapshot().nodes[uuid]
    record = wanted(node.watchdog, status)
    if config.cluster().node_watchdog is None and record is not None and not record.token:
        record = None
    if record != node.watchdog:
        _store(config, node, record)
    if status.state == const.RELEASE:
        # The record may be that of an earlier attempt, which reached too few candidates.
        config.require_committed()
        rpc.call(WATCHDOG_RELEASE, uuid, token=status.token).payload()
        _log.info("node %s is released from its promise: %s", node.name, status.text)


def _store(config: Config, node: Node, record: WatchdogPromise | None) -> None:
    with config.transaction() as change:
        present = change.data.nodes.get(node.uuid)
        if present is None or present.watchdog != node.watchdog:
            raise errors.ConfigurationError("its record has changed meanwhile")
        change.nodes.update(updated(present, watchdog=record))
    if record is not None and record.token:
        _log.info("node %s restarts itself when it is cut off", node.name)
