"""Whether the cluster demands a password for every request to the REST interface.

The master writes this parameter into a file on every node (``ssconf_rapi_require_authentication``).
The daemon reads it again when it has changed, at most every :data:`POLL_S` seconds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Final

from ganeti.utils import fs

_log = logging.getLogger(__name__)

POLL_S: Final = 2.0


class Demand:
    """The choice of the cluster.

    :param path: the file. A cluster of an older version has none; it demands no password.
    :param always: the daemon itself demands a password.
    """

    def __init__(
        self, path: str, *, always: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._always = always
        self._clock = clock
        self._stamp: tuple[int, int, int] | None = None
        self._polled_at: float | None = None
        self._chosen = False

    def __bool__(self) -> bool:
        """Return True if a request needs a password now."""
        if not self._always and (
            self._polled_at is None or self._clock() - self._polled_at > POLL_S
        ):
            self._polled_at = self._clock()
            self._poll()
        return self._always or self._chosen

    def _poll(self) -> None:
        try:
            found = os.stat(self._path)
            stamp = found.st_ino, found.st_mtime_ns, found.st_size
            if stamp != self._stamp:
                self._chosen = fs.read_file(self._path).strip() != "False"
                self._stamp = stamp
        except FileNotFoundError:
            self._chosen, self._stamp = False, None
        except (OSError, UnicodeDecodeError) as err:
            if not self._chosen:
                _log.error("cannot read %s, so every request needs a password: %s", self._path, err)
            self._chosen, self._stamp = True, None
