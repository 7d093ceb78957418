"""Sending the audit log to the other master candidates, so that it follows the role of the master.

A thread (:mod:`ganeti.replication.background`) sends new lines some seconds after they were
written, all of them in one message for each candidate. It sleeps while there are none. Lines which
a dead master has not sent are written by the next one (:meth:`ganeti.master.audit.JobLog.recover`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ganeti.config import Config
from ganeti.jobstore import audit
from ganeti.replication.background import BackgroundCopies, Copied
from ganeti.rpc import RpcRunner
from ganeti.wire.calls import AUDIT_EXTEND

#: Seconds between a line and the message with it.
PAUSE_S: Final = 2.0
_PART_BYTES: Final = 1 << 20

End = tuple[int, str]
_NOTHING: Final[End] = (0, audit.NOTHING)


class AuditCopies:
    """Sends the lines of an audit log.

    :param path: of the audit log of the master.
    """

    def __init__(self, config: Config, rpc: RpcRunner, path: str) -> None:
        self._config = config
        self._rpc = rpc
        self._path = path
        # The last line of each candidate; used by one thread at a time.
        self._ends: dict[str, End] = {}
        copied = Copied("the audit log", self._candidates, self._send_to)
        self._copies = BackgroundCopies(copied, gather_s=PAUSE_S, send_rest=True)
        #: Compares with the candidates now, and sends lines later.
        self.start = self._copies.start
        #: Sends now; returns the UUIDs of those which still lack lines.
        self.send = self._copies.send
        #: Those to which the last message failed; and to send to those which answer again.
        self.unresponsive, self.try_again = self._copies.unresponsive, self._copies.try_again
        #: Sends what is left, and ends the thread.
        self.stop = self._copies.stop

    def note_written(self) -> None:
        """Note that there are new lines."""
        self._copies.note()

    def _candidates(self) -> list[str]:
        found = self._config.other_candidates()
        # One that leaves and comes back is asked what it has.
        self._ends = {uuid: end for uuid, end in self._ends.items() if uuid in found}
        return found

    def _send_to(self, uuid: str) -> bool:
        """Send the lines which a candidate lacks; it has all of them then."""
        # It is asked again after a failure.
        end = self._ends.pop(uuid, None)
        if end is None:
            end = self._extend(uuid, _NOTHING, b"", apart=False)
        lines = audit.lines_after(self._path, end)
        apart = lines is None
        if lines is None:
            # It was the master before, or has just been another one's candidate.
            lines, end = audit.lines_after(self._path, _NOTHING) or [], _NOTHING
        for part in _parts(lines):
            found = self._extend(uuid, end, b"".join(part), apart=apart)
            end = audit.end_of(part[-1])
            if found != end:
                raise OSError(f"line {end[0]} does not fit after what node {uuid} has")
            apart = False
        self._ends[uuid] = end
        return True

    def _extend(self, uuid: str, end: End, lines: bytes, *, apart: bool) -> End:
        number, checksum = self._rpc.call(
            AUDIT_EXTEND, uuid, number=end[0], checksum=end[1], lines=lines, apart=apart
        ).payload()
        return number, checksum


def _parts(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Divide lines into messages, and give them their new lines back."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line + b"\n")
        size += len(line) + 1
        if size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
