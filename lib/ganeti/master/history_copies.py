"""Bringing the history of the configuration on other candidates up to date.

The candidates get the records of each change together with the change. A node which did not get
one, or has just become a candidate, lacks records; so may every candidate when a master starts. A
thread compares the files of such a node with those of the master and sends what is different. It
sleeps while no candidate lacks anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ganeti import errors
from ganeti.config import Config
from ganeti.configfile import history_files
from ganeti.rpc import RpcRunner
from ganeti.utils import fs
from ganeti.wire.calls import CONFIG_HISTORY_DIGESTS, CONFIG_HISTORY_WRITE

_log = logging.getLogger(__name__)

#: Seconds until a candidate is tried again: the first pause, and the longest.
PAUSE_S: Final = (1.0, 60.0)
# A message has whole records, and not much more bytes than this.
_PART_BYTES: Final = 1 << 20
# A change may arrive at any moment; its record makes another comparison necessary.
_ROUNDS: Final = 5


class HistoryCopies:
    """Sends what the histories of the other candidates lack.

    :param directory: the history of the master.
    """

    def __init__(self, config: Config, rpc: RpcRunner, directory: str) -> None:
        self._config = config
        self._rpc = rpc
        self._directory = directory
        self._changed = threading.Condition()
        self._incomplete: set[str] = set()
        self._ended = False

    def start(self) -> None:
        """Compare all candidates in a thread, now, and later those which lack something."""
        self.note_incomplete(node.uuid for node in self._config.online_nodes())
        self._config.call_when_incomplete(self.note_incomplete)
        threading.Thread(target=self._run, name="history-copies", daemon=True).start()

    def stop(self) -> None:
        """End the thread of :meth:`start`."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def note_incomplete(self, uuids: Iterable[str]) -> None:
        """Note that nodes lack records."""
        with self._changed:
            self._incomplete.update(uuids)
            self._changed.notify_all()

    def _run(self) -> None:
        pause_s, longest_s = PAUSE_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._incomplete)
            # Others which lack the same change are noted meanwhile.
            failed = set() if self._ended else self.send()
            with self._changed:
                if failed:
                    self._changed.wait_for(lambda: self._ended, pause_s)
                if self._ended:
                    return
            pause_s = min(2 * pause_s, longest_s) if failed else PAUSE_S[0]

    def send(self) -> set[str]:
        """Send to the candidates which lack something what they lack.

        :returns: those which still do; they are tried again.
        """
        with self._changed:
            targets, self._incomplete = self._incomplete, set()
        master = self._config.master_node().uuid
        candidates = {node.uuid for node in self._config.online_nodes() if node.master_candidate}
        failed = set()
        for uuid in sorted(targets & candidates - {master}):
            try:
                current = self._bring_up_to_date(uuid)
            except (errors.GenericError, OSError, ValueError) as err:
                # ValueError: a damaged file of the master is no text. The thread goes on.
                _log.warning("the history of the configuration cannot be sent: %s", err)
                current = False
            if not current:
                failed.add(uuid)
        self.note_incomplete(failed)
        return failed

    def _bring_up_to_date(self, uuid: str) -> bool:
        """Send what one node lacks; return whether it has everything then."""
        for _round in range(_ROUNDS):
            theirs = self._rpc.call(CONFIG_HISTORY_DIGESTS, uuid).payload()
            complete = True
            own = history_files.names(self._directory)
            remove = sorted(set(theirs) - set(own))
            for message in self._messages(own, theirs):
                complete = False
                self._rpc.call(CONFIG_HISTORY_WRITE, uuid, **message, remove=remove).payload()
                remove = []
            if complete:
                if remove and own:
                    self._rpc.call(
                        CONFIG_HISTORY_WRITE,
                        uuid,
                        name=own[-1],
                        offset=0,
                        content="",
                        remove=remove,
                    ).payload()
                return True
        return False

    def _messages(
        self, own: Iterable[str], theirs: Mapping[str, tuple[int, str]]
    ) -> Iterator[dict[str, object]]:
        """Return the arguments of the calls which make the files of a node equal to the own."""
        for name in own:
            try:
                content = fs.read_bytes(f"{self._directory}/{name}")
            except FileNotFoundError:
                continue  # It was the oldest one, and has just been removed.
            size, digest = theirs.get(name, (0, ""))
            same = size <= len(content) and digest == history_files.digest(content[:size])
            if same and size == len(content):
                continue
            place = size if same else 0
            while place < len(content):
                end = content.find(b"\n", min(place + _PART_BYTES, len(content) - 1)) + 1
                end = end or len(content)
                yield {
                    "name": name,
                    "offset": place,
                    "content": content[place:end].decode("utf-8"),
                }
                place = end
