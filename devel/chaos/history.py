"""The history of a run: what users asked for, and which answers they got.

A line of JSON for each operation, in a file outside of the cluster, written when its answer has
come. There are three outcomes, as in Jepsen:

* ``ok``: the cluster has acknowledged it, so it must hold for ever;
* ``failed``: the cluster has said that it was not done, or not completely;
* ``unknown``: no answer came; it may have been done, or not.

Before a removal a line with ``begun`` is written, because from then on both may be found.

Times are seconds of the machine's monotonic clock, which no fault changes.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Final

OK: Final = "ok"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
BEGUN: Final = "begun"

#: Kinds of operations. The object of each is the tagged object, the instance, or the token.
ADD_TAG: Final = "add tag"
REMOVE_TAG: Final = "remove tag"
SUBMIT: Final = "submit job"
END: Final = "see the end of a job"
CREATE: Final = "create instance"
REMOVE: Final = "remove instance"
REINSTALL: Final = "reinstall instance"
CHANGE: Final = "change instance"
READ: Final = "read"
REMOVALS: Final = (REMOVE_TAG, REMOVE)


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation of a user.

    :ivar user: who asked.
    :ivar via: ``luxi``, ``rest`` or ``command``.
    :ivar kind: one of the constants of this module.
    :ivar subject: the object; for jobs the token in the comment of its opcodes.
    :ivar value: the tag, or the status in which the end of the job was seen.
    :ivar job: number of the job, when it is known.
    :ivar node: the node which was asked.
    :ivar error: the answer which the user got instead.
    """

    user: str
    via: str
    kind: str
    subject: str
    value: str
    began: float
    ended: float
    outcome: str
    job: int | None = None
    node: str = ""
    error: str = ""


class History:
    """The history of a run. Thread-safe.

    :param path: the file; it is created, or continued.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._operations: list[Operation] = list(read(path)) if path.exists() else []
        self._stream = path.open("a", encoding="utf-8")

    def add(self, operation: Operation) -> None:
        """Write an operation."""
        with self._lock:
            self._operations.append(operation)
            self._stream.write(json.dumps(dataclasses.asdict(operation)) + "\n")
            self._stream.flush()

    def operations(self) -> list[Operation]:
        """Return all operations until now."""
        with self._lock:
            return list(self._operations)

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the number of operations by kind and outcome."""
        return Counter((one.kind, one.outcome) for one in self.operations() if one.outcome != BEGUN)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._stream.close()


def read(path: Path) -> list[Operation]:
    """Read the file of a history.

    :raises ValueError: it is damaged.
    """
    with path.open(encoding="utf-8") as stream:
        try:
            return [Operation(**json.loads(line)) for line in stream]
        except TypeError as err:
            raise ValueError(f"{path} is not a history: {err}") from err


def now() -> float:
    """Return the seconds of the clock of the history."""
    return time.monotonic()
