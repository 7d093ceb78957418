"""Sending the audit log to the other master candidates, so that it follows the role of the master.

A thread sends new lines some seconds after they were written, all of them in one message for each
candidate. It sleeps while there are none. Lines which a dead master has not sent are written by the
next one (:meth:`ganeti.master.audit.JobLog.recover`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from ganeti import errors
from ganeti.config import Config
from ganeti.jobstore import audit
from ganeti.rpc import RpcRunner
from ganeti.wire.calls import AUDIT_EXTEND

_log = logging.getLogger(__name__)

#: Seconds between a line and the message with it, and until a failed message is tried again.
PAUSE_S: Final = 2.0
RETRY_S: Final = 60.0
#: Seconds for which the end of the master daemon waits for the last message.
END_S: Final = 5.0
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
        self._changed = threading.Condition()
        self._written = True
        self._ended = False
        # The last line of each candidate; used by one thread at a time.
        self._ends: dict[str, End] = {}
        self._thread = threading.Thread(target=self._run, name="audit-copies", daemon=True)

    def start(self) -> None:
        """Compare with the candidates now, and send lines later."""
        self._thread.start()

    def note_written(self) -> None:
        """Note that there are new lines."""
        with self._changed:
            self._written = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Send what is left, and end the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join(END_S)

    def _run(self) -> None:
        ended = False
        while not ended:
            with self._changed:
                self._changed.wait_for(lambda: self._written or self._ended)
                # More lines will follow soon.
                self._changed.wait_for(lambda: self._ended, PAUSE_S)
                self._written, ended = False, self._ended
            if not self.send() and not ended:
                with self._changed:
                    self._changed.wait_for(lambda: self._ended, RETRY_S)
                    self._written = True

    def send(self) -> bool:
        """Send to each candidate the lines which it lacks; return whether all have all lines."""
        master = self._config.master_node().uuid
        nodes = [
            node.uuid
            for node in self._config.online_nodes()
            if node.master_candidate and node.uuid != master
        ]
        self._ends = {uuid: end for uuid, end in self._ends.items() if uuid in nodes}
        good = True
        for uuid in nodes:
            try:
                self._send_to(uuid)
            except (errors.GenericError, OSError, ValueError) as err:
                _log.warning("the audit log cannot be sent: %s", err)
                self._ends.pop(uuid, None)
                good = False
        return good

    def _send_to(self, uuid: str) -> None:
        end = self._ends.get(uuid)
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
                self._ends.pop(uuid, None)
                raise OSError(f"line {end[0]} does not fit after what node {uuid} has")
            apart = False
        self._ends[uuid] = end

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
