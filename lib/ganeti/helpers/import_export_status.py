"""The status file of one end of a transfer of a disk.

:mod:`ganeti.helpers.import_export` writes it, and the node daemon reads it.
"""

from __future__ import annotations

import collections
import os
import threading
import time
from typing import Any, Final

from ganeti.objects import codec
from ganeti.objects.transfer import ImportExportStatus
from ganeti.utils import clock, fs, shortage
from ganeti.wire import json

_MIB: Final = 1 << 20
_STATUS_EVERY_S: Final = 1.0
# Seconds for which a change of the status waits when there is no space for the file.
_FULL_S: Final = 60.0
_OUTPUT_LINES: Final = 20
_LOG_TAIL_BYTES: Final = 16 * 1024


class Status:
    """Collects the progress of a transfer, and writes the status file.

    :param expected_mib: expected size of the data in MiB, if known.
    :param log: file with the messages of the script, if there is a script.
    """

    def __init__(self, path: str, expected_mib: float | None, log: str | None) -> None:
        self._path = path
        self._log = log
        self._values: dict[str, Any] = {"ctime": clock.now(), "connected": False}
        self._mutex = threading.Lock()
        self._written = 0.0
        self._begun = 0.0
        self._bytes = 0
        self._notes: collections.deque[str] = collections.deque(maxlen=_OUTPUT_LINES)
        self.expected_mib = expected_mib

    def note(self, line: str) -> None:
        """Add a line of output for the administrator."""
        with self._mutex:
            self._notes.append(line)

    def update(self, **values: Any) -> None:
        """Change members of :class:`ImportExportStatus`, and write the file."""
        with self._mutex:
            self._values.update(values)
            # A directory which is full is no fault of the transfer.
            shortage.outlast(self._write, timeout_s=_FULL_S, what=f"writing {self._path}")

    def moved(self, count: int) -> None:
        """Count bytes which were read or written; writes the file at most once a second."""
        with self._mutex:
            if not self._bytes:
                self._begun = time.monotonic()
            self._bytes += count
            if time.monotonic() - self._written >= _STATUS_EVERY_S:
                try:
                    self._write()
                except OSError as err:
                    if not shortage.described(err):
                        raise

    def _write(self) -> None:
        self._written = time.monotonic()
        values = {
            **self._values,
            **self._progress(),
            "mtime": clock.now(),
            "recent_output": (*self._notes, *self._tail())[-_OUTPUT_LINES:],
        }
        status = ImportExportStatus(**values)
        fs.write_file(self._path, json.dumps(codec.to_dict(status)), mode=0o600, sync=False)

    def _progress(self) -> dict[str, float]:
        if not self._bytes:
            return {}
        done_mib = self._bytes / _MIB
        elapsed_s = max(time.monotonic() - self._begun, 0.001)
        found = {"progress_mbytes": done_mib, "progress_throughput": done_mib / elapsed_s}
        if self.expected_mib:
            found["progress_percent"] = min(100.0, 100 * done_mib / self.expected_mib)
            left_mib = max(0.0, self.expected_mib - done_mib)
            found["progress_eta"] = left_mib / max(found["progress_throughput"], 0.001)
        return found

    def _tail(self) -> tuple[str, ...]:
        """Return the last lines of the messages of the script."""
        if self._log is None:
            return ()
        try:
            with open(self._log, "rb") as stream:
                stream.seek(0, os.SEEK_END)
                stream.seek(max(0, stream.tell() - _LOG_TAIL_BYTES))
                lines = stream.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ()
        return tuple(lines[-_OUTPUT_LINES:])
