"""Bringing the history of the configuration on other candidates up to date.

The candidates get the records of each change together with the change. A node which did not get
one, or has just become a candidate, lacks records; so may every candidate when a master starts. A
thread (:mod:`ganeti.replication.background`) compares the files of such a node with those of the
master and sends what is different. It sleeps while no candidate lacks anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ganeti.config import Config
from ganeti.configfile import history_files
from ganeti.replication.background import BackgroundCopies, Copied
from ganeti.rpc import RpcRunner
from ganeti.utils import fs
from ganeti.wire.calls import CONFIG_HISTORY_DIGESTS, CONFIG_HISTORY_WRITE

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
        self._copies = BackgroundCopies(
            Copied(
                "the history of the configuration",
                config.other_candidates,
                self._bring_up_to_date,
            )
        )
        #: Notes that nodes lack records; the argument has their UUIDs.
        self.note_incomplete = self._copies.note
        #: Sends now; returns the UUIDs of those which still lack records.
        self.send = self._copies.send
        #: Those to which the last message failed; and to send to those which answer again.
        self.unresponsive, self.try_again = self._copies.unresponsive, self._copies.try_again
        self.stop = self._copies.stop

    def start(self) -> None:
        """Compare all candidates in a thread, now, and later those which lack something."""
        self._config.call_when_incomplete(self.note_incomplete)
        self._copies.start()

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
