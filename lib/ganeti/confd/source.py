"""The files from which a configuration query daemon answers, read again when they change.

The daemon calls :meth:`ConfdSource.refresh` in its loop. A change which inotify reports
is read at most every quarter of a second, any other change after 17 seconds at the latest. While a
large configuration is read, requests wait in the socket; so the pause before the next check is at
least four times as long as the last reading took.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from ganeti import errors
from ganeti.confd.queries import ConfigFacts
from ganeti.confd.responder import Responder
from ganeti.constants import confd as const
from ganeti.constants import ssconf
from ganeti.objects import ConfigData
from ganeti.platform import machine, paths
from ganeti.utils import fs, shortage

#: Seconds after a renewal of the key during which requests signed with the old key are answered.
OLD_KEY_S = 60.0
# A pause between two readings is this number of times longer than a reading.
_BUSY_SHARE = 4

_Stamp = tuple[int, int, int]


class ConfdSource:
    """Keeps the key and the configuration of a responder equal to this node's files.

    :param here: the paths of the node.
    :param responder: gets the key and the configuration.
    :param load: reads and checks a configuration file; raises OSError or ConfigurationError.
    :param monotonic: a clock in seconds which never jumps.
    """

    def __init__(
        self,
        here: paths.Paths,
        responder: Responder,
        load: Callable[[str], ConfigData],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._here = here
        self._responder = responder
        self._load = load
        self._monotonic = monotonic
        self._stamps: dict[str, _Stamp | None] = {}
        self._next_check = 0.0
        self._earliest = 0.0
        self._dirty = True
        self._current_at = float("-inf")
        responder.age_s = self.age_s

    def note(self) -> None:
        """Note that a file in the directory has changed."""
        self._dirty = True

    def wait_s(self) -> float:
        """Return the seconds until :meth:`refresh` has work to do."""
        due = self._earliest if self._dirty else self._next_check
        return max(0.0, due - self._monotonic())

    def refresh(self) -> None:
        """Read the files which have changed, if it is time for a check."""
        if self.wait_s() > 0:
            return
        started = self._monotonic()
        self._dirty = False
        self._read_key()
        self._read_config()
        took_s = self._monotonic() - started
        self._earliest = self._monotonic() + max(const.RELOAD_LEAST_S, _BUSY_SHARE * took_s)
        self._next_check = self._monotonic() + const.RELOAD_MOST_S

    def age_s(self) -> float:
        """Return the seconds for which the configuration here may have been replaced already.

        That is 0 when the files are those which were read.
        """
        now = self._monotonic()
        path = self._here.cluster_conf_file
        journal = self._here.cluster_conf_journal
        listing = self._here.ssconf_file(ssconf.MASTER_CANDIDATES)
        if all(
            self._stamps.get(name) == _stamp(name) is not None for name in (path, listing)
        ) and self._stamps.get(journal) == _stamp(journal):
            self._current_at = now
        return now - self._current_at

    def _changed(self, *names: str) -> bool:
        stamps = {name: _stamp(name) for name in names}
        if all(name in self._stamps and self._stamps[name] == stamps[name] for name in names):
            return False
        self._stamps.update(stamps)
        return True

    def _is_short(self, err: BaseException, *names: str) -> bool:
        """Tell whether files could not be read only because this machine lacks something.

        What was read before stays then, its age grows, and the files are read again soon: other
        nodes may restart when too few candidates answer.
        """
        lacking = shortage.described(err) or shortage.described(err.__cause__)
        if lacking:
            logging.warning("cannot read %s yet: %s", names[0], lacking)
            for name in names:
                self._stamps.pop(name, None)
            self._dirty = True
        return bool(lacking)

    def _read_key(self) -> None:
        path = self._here.hmac_key
        if not self._changed(path):
            return
        key: bytes | None = None
        try:
            key = fs.read_bytes(path)
        except OSError as err:
            if self._is_short(err, path):
                return
            logging.error("cannot read %s, no request is answered: %s", path, err.strerror)
        self._responder.use_key(key, self._monotonic(), keep_old_s=OLD_KEY_S)

    def _read_config(self) -> None:
        path = self._here.cluster_conf_file
        listing = self._here.ssconf_file(ssconf.MASTER_CANDIDATES)
        now = self._monotonic()
        # The last changes of a large configuration are in its journal.
        names = (self._here.cluster_conf_journal, path, listing)
        if not self._changed(*names):
            self._current_at = now
            return
        try:
            candidates = fs.read_file(listing).split()
            if machine.current().hostname() not in candidates:
                # The file may be left from a time when this node was a candidate.
                raise errors.ConfigurationError("this node is not a master candidate")
            data = self._load(path)
        except (OSError, MemoryError, errors.ConfigurationError) as err:
            if self._is_short(err, *names):
                return
            if self._responder.facts is not None or self._stamps[path] is not None:
                logging.warning("there is no configuration to answer from: %s", err)
            self._responder.facts = None
            self._current_at = now
            return
        self._current_at = now
        self._responder.facts = ConfigFacts(data)
        logging.info("answering from configuration %d", data.serial_no)


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
