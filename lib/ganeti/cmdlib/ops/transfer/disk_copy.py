"""Copying disks between nodes and clusters: starts the processes, watches them, cleans up.

A disk is sent by an *export* process on one node and received by an *import* process on another
(node calls in :mod:`ganeti.wire.calls.backup`). Each of them is one *end* of the transfer. Inside a
cluster this module starts both ends: the import first, and the export as soon as the import
listens. Both nodes get a key for the operation, by which the ends know each other
(:mod:`.keys`). Between two clusters each cluster has one end.

The nodes are polled for the state of their ends, with one call for all ends of a node. When
:func:`run` returns, with or without an error, its ends have been stopped and removed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import JobLog, why
from ganeti.cmdlib.ops.transfer.keys import LOCAL_VALIDITY_S, TransferKey, keys_of
from ganeti.constants import net as net_c
from ganeti.objects.transfer import ImportExportOptions, ImportExportStatus
from ganeti.utils.text import format_unit
from ganeti.wire.calls import backup as calls

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Instance, Node
    from ganeti.rpc import RpcRunner

EXPORT, IMPORT = "export", "import"

#: Pause between two polls: short at first, for small disks and fast nodes.
POLL_MIN_S = 0.05
POLL_MAX_S = 2.0
POLL_FACTOR = 1.3
#: Pause between two progress messages.
REPORT_EVERY_S = 30.0
#: After so long without an answer, the transfers of a node count as failed.
UNRESPONSIVE_S = 120.0
#: Between clusters: so long an import waits for the export of the other cluster to connect.
REMOTE_CONNECT_S = 180


@dataclass(eq=False, slots=True)
class TransferEnd:
    """One end of the transfer of one disk.

    :ivar mode: :data:`EXPORT` or :data:`IMPORT`.
    :ivar label: name of the disk for messages: ``disk/0``.
    :ivar io: what is read or written: kind and arguments, see :mod:`ganeti.wire.calls.backup`.
    :ivar host: of an export: address at which the import listens.
    :ivar port: of an export: TCP port at which the import listens.
    :ivar partner: the other end, when it is in this cluster.
    :ivar name: name of the transfer on its node; empty until it has started.
    :ivar problem: why it failed; None as long as it did not.
    :ivar unknown: the node did not say how it ended, so the other end may have succeeded.
    :ivar answered_at: time of the last answer about it, in seconds of the monotonic clock.
    :ivar progress_at: time of the last progress message.
    :ivar reported: events of which the job log has a message.
    """

    mode: str
    node: Node
    instance: Instance
    label: str
    io: tuple[str, Any]
    options: ImportExportOptions
    host: str = ""
    port: int = 0
    partner: TransferEnd | None = None
    name: str = ""
    status: ImportExportStatus | None = None
    problem: str | None = None
    done: bool = False
    unknown: bool = False
    answered_at: float = 0.0
    progress_at: float = 0.0
    reported: set[str] = field(default_factory=set)

    @property
    def ok(self) -> bool:
        """True if the transfer ended without a failure."""
        return self.done and self.problem is None


def new_magic() -> str:
    """Make the word with which the two ends of a transfer recognise each other."""
    return secrets.token_hex(16)


def pair(
    config: Config,
    instance: Instance,
    index: int,
    *,
    source: tuple[Node, tuple[str, Any]],
    target: tuple[Node, tuple[str, Any]],
    compress: str,
) -> tuple[TransferEnd, TransferEnd]:
    """Make both ends of a transfer inside the cluster: the import and its export.

    :param index: number of the disk in the instance.
    :param source: node, and what is read there.
    :param target: node, and what is written there.
    """
    options = ImportExportOptions(
        compress=compress, magic=new_magic(), ipv6=uses_ipv6(config), connect_timeout=None
    )
    label = f"disk/{index}"
    receiver = TransferEnd(IMPORT, target[0], instance, label, target[1], options)
    sender = TransferEnd(
        EXPORT,
        source[0],
        instance,
        label,
        source[1],
        options,
        host=target[0].secondary_ip,
        partner=receiver,
    )
    receiver.partner = sender
    return receiver, sender


def uses_ipv6(config: Config) -> bool:
    """Tell whether the primary addresses of the cluster are IPv6 addresses."""
    return config.cluster().primary_ip_family == net_c.IP6_FAMILY


def copy_disks(
    rpc: RpcRunner, log: JobLog, pairs: Sequence[tuple[TransferEnd, TransferEnd]]
) -> list[bool]:
    """Copy disks inside the cluster; failures of a transfer are warnings.

    :returns: for each pair whether the disk was copied completely.
    :raises errors.OpExecError: a node cannot make a key; nothing was copied.
    """
    ends = [end for both in pairs for end in both]
    with keys_of(rpc, log, [end.node for end in ends], LOCAL_VALIDITY_S) as keys:
        for receiver, sender in pairs:
            _introduce(receiver, sender, keys)
        return _copy(rpc, log, pairs)


def _introduce(receiver: TransferEnd, sender: TransferEnd, keys: Mapping[str, TransferKey]) -> None:
    """Give both ends the key of their node and the certificate of the other end."""
    for end, other in ((receiver, sender), (sender, receiver)):
        end.options = replace(
            end.options,
            key_name=keys[end.node.uuid].name,
            ca_pem=keys[other.node.uuid].certificate,
        )


def _copy(
    rpc: RpcRunner, log: JobLog, pairs: Sequence[tuple[TransferEnd, TransferEnd]]
) -> list[bool]:
    for receiver, sender in pairs:
        log.feedback(f"Exporting {receiver.label} from {sender.node.name} to {receiver.node.name}")

    def listening(receiver: TransferEnd) -> list[TransferEnd]:
        assert receiver.partner is not None and receiver.status is not None
        log.feedback(f"{receiver.label} is now listening, starting export")
        receiver.partner.port = receiver.status.listen_port or 0
        return [receiver.partner]

    run(rpc, log, [receiver for receiver, _sender in pairs], on_listening=listening)
    return [_complete(log, receiver, sender) for receiver, sender in pairs]


def _complete(log: JobLog, receiver: TransferEnd, sender: TransferEnd) -> bool:
    """Return True if both ends succeeded, and have counted the same number of bytes."""
    if not (receiver.ok and sender.ok):
        return False
    sent, received = (
        end.status.progress_mbytes if end.status is not None else None for end in (sender, receiver)
    )
    if sent != received:
        log.warn(f"{receiver.label}: {sent} MiB were sent, but {received} MiB were received")
    return sent == received


def run(
    rpc: RpcRunner,
    log: JobLog,
    ends: Sequence[TransferEnd],
    *,
    on_listening: Callable[[TransferEnd], list[TransferEnd]] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Start ends of transfers and watch them until all have ended or failed.

    :param on_listening: called with each import when it begins to listen; returns further ends to
        start.
    """
    started: list[TransferEnd] = []
    try:
        _start(rpc, log, ends, started, now())
        delay_s = POLL_MIN_S
        while any(not end.done for end in started):
            sleep(delay_s)
            delay_s = min(delay_s * POLL_FACTOR, POLL_MAX_S)
            _poll(rpc, log, started, now())
            for end in list(started):
                if _newly(end, "listening", _listens(end)) and on_listening is not None:
                    _start(rpc, log, on_listening(end), started, now())
                    delay_s = POLL_MIN_S
                _report(rpc, log, end, now())
    finally:
        _forget(rpc, log, started)


def _listens(end: TransferEnd) -> bool:
    return end.mode == IMPORT and end.status is not None and end.status.listen_port is not None


def _newly(end: TransferEnd, event: str, happened: bool) -> bool:
    """Return True if there is an event which was not reported before."""
    if not happened or event in end.reported:
        return False
    end.reported.add(event)
    return True


def _start(
    rpc: RpcRunner,
    log: JobLog,
    ends: Sequence[TransferEnd],
    started: list[TransferEnd],
    now_s: float,
) -> None:
    for end in ends:
        end.answered_at = end.progress_at = now_s
        common = {"options": end.options, "instance": end.instance, "component": end.label}
        if end.mode == IMPORT:
            answer = rpc.call(calls.IMPORT_START, end.node.uuid, target=end.io, **common)
        else:
            answer = rpc.call(
                calls.EXPORT_START,
                end.node.uuid,
                host=end.host,
                port=end.port,
                source=end.io,
                **common,
            )
        started.append(end)
        if answer.failure is not None:
            _fail(rpc, log, end, f"cannot be started: {why(answer.failure)}")
        else:
            end.name = answer.data


def _poll(rpc: RpcRunner, log: JobLog, ends: Sequence[TransferEnd], now_s: float) -> None:
    """Ask the nodes for the state of the ends which are not done."""
    by_node: dict[str, list[TransferEnd]] = {}
    for end in ends:
        if not end.done:
            by_node.setdefault(end.node.uuid, []).append(end)
    for uuid, mine in by_node.items():
        answer = rpc.call(calls.IMPEXP_STATUS, uuid, names=[end.name for end in mine])
        if answer.failure is not None:
            for end in mine:
                if now_s - end.answered_at > UNRESPONSIVE_S:
                    end.unknown = True
                    _fail(rpc, log, end, f"the node does not answer: {why(answer.failure)}")
            continue
        for end, status in zip(mine, answer.data, strict=True):
            if status is not None:
                end.answered_at, end.status = now_s, status
            elif now_s - end.answered_at > UNRESPONSIVE_S:
                end.unknown = True
                _fail(rpc, log, end, "the node does not know the transfer any more")


def _report(rpc: RpcRunner, log: JobLog, end: TransferEnd, now_s: float) -> None:
    """Write new events of an end to the job log; note when it is done."""
    status = end.status
    if end.done or status is None:
        return
    verb = "sending" if end.mode == EXPORT else "receiving"
    if status.exit_status is not None:
        if status.exit_status == 0:
            end.done = True
            log.feedback(f"{end.label} finished {verb} data")
        else:
            # The last lines of output mostly name the reason.
            output = "; ".join(line for line in (status.recent_output or ())[-5:] if line.strip())
            details = f" ({output})" if output else ""
            _fail(rpc, log, end, f"{status.error_message or 'no reason given'}{details}")
        return
    if end.mode == EXPORT and _newly(end, "connected", bool(status.connected)):
        log.feedback(f"{end.label} is sending data on {end.node.name}")
        end.progress_at = now_s
    if end.mode == EXPORT or end.partner is None:
        if status.progress_mbytes is not None and now_s - end.progress_at >= REPORT_EVERY_S:
            end.progress_at = now_s
            log.feedback(f"{end.label}: {progress_text(status)}")


def progress_text(status: ImportExportStatus) -> str:
    """Format the progress of a transfer: ``512M, 110.5 MiB/s, 25%, ETA 14 s``."""
    parts = [format_unit(status.progress_mbytes or 0, "h")]
    if status.progress_throughput is not None:
        parts.append(f"{status.progress_throughput:.1f} MiB/s")
    if status.progress_percent is not None:
        parts.append(f"{status.progress_percent:.0f}%")
    if status.progress_eta is not None:
        parts.append(f"ETA {status.progress_eta:.0f} s")
    return ", ".join(parts)


def _fail(rpc: RpcRunner, log: JobLog, end: TransferEnd, problem: str) -> None:
    if end.done:
        return
    end.done, end.problem = True, problem
    verb = "sent" if end.mode == EXPORT else "received"
    log.warn(f"{end.label} could not be {verb} on node {end.node.name}: {problem}")
    partner = end.partner
    if partner is None or partner.done:
        return
    # The partner would wait in vain. If it has not started, there is nothing to stop.
    if partner.name:
        rpc.call(calls.IMPEXP_ABORT, partner.node.uuid, name=partner.name)
    else:
        partner.done, partner.problem = True, "the other end failed"


def _forget(rpc: RpcRunner, log: JobLog, ends: Sequence[TransferEnd]) -> None:
    for end in ends:
        if end.name:
            answer = rpc.call(calls.IMPEXP_CLEANUP, end.node.uuid, name=end.name)
            if answer.failure is not None:
                log.warn(
                    f"transfer {end.name} stays on node {end.node.name}: {why(answer.failure)}"
                )


def require_compression(config: Config, tool: str) -> None:
    """Check that the cluster knows a compression tool.

    :raises errors.OpPrereqError: it does not.
    """
    known = ("none", *config.cluster().compression_tools)
    if tool not in known:
        raise errors.OpPrereqError(
            f"compression tool {tool!r} is not one of those of the cluster: {', '.join(known)}. See"
            " 'gnt-cluster modify --compression-tools'.",
            errors.ECODE_INVAL,
        )
