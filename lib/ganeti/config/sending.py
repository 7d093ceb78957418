"""Messages with the configuration to other nodes, and the wait for those who need them.

A commit makes a :class:`Distribution` (:mod:`ganeti.config.copies`), which another thread sends,
and waits until a majority of the candidates has it (:class:`Sending`). What goes on afterwards is
in :class:`UnderWay`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from ganeti.config.text import Pieces, change_between
from ganeti.configfile.content import Change
from ganeti.configfile.history_files import Addition
from ganeti.objects import ConfigData
from ganeti.replication.majority import Tally, has_quorum
from ganeti.replication.quorum import members, online_candidates
from ganeti.utils import shortage

# The two kinds of data which nodes get.
CONFIG: Final = "configuration"
SSCONF: Final = "ssconf"

# Seconds after which a thread without work ends.
_IDLE_S: Final = 10.0


def _ignore(_node_uuid: str, _what: str) -> None:
    """Do nothing: the caller waits for the whole result."""


class Distribution:
    """A message to other nodes.

    The nodes in ``candidates`` get ``text`` as the file :attr:`Paths.cluster_conf_file`. The nodes
    in ``nodes``, which are all online nodes including the master, get ``ssconf``, unless it is
    None: all values, or those which changed. Both are tuples of UUIDs of nodes; ``data`` is the
    state of which ``text`` is the text.

    A node which has the last file can make the new one from it; see :meth:`difference`. It also
    gets ``history``, the records of the commit.

    :ivar incomplete: candidates which have taken the text, but lack records of the history before
        it; the sender fills it.
    """

    def __init__(
        self,
        data: ConfigData,
        pieces: Pieces,
        candidates: tuple[str, ...],
        ssconf: dict[str, str] | None,
        nodes: tuple[str, ...],
        base: Pieces | None = None,
        accepted: Callable[[str, str], None] = _ignore,
        history: Addition | None = None,
    ) -> None:
        """:param base: the text which was sent before this one, or None.
        :param accepted: called as soon as a node has accepted its part, with the UUID of the node
            and :data:`CONFIG` or :data:`SSCONF`.
        """
        self.data = data
        self.candidates = candidates
        self.ssconf = ssconf
        self.nodes = nodes
        self.accepted = accepted
        self.history = history
        self.incomplete: set[str] = set()
        self._pieces = pieces
        self._base = base
        self._text: bytes | None = None

    @property
    def text(self) -> bytes:
        """The whole text; it is joined when it is first needed."""
        if self._text is None:
            self._text = b"".join(self._pieces)
        return self._text

    def difference(self) -> Change | None:
        """Return how to make the file from the one before it; None if there was none."""
        return None if self._base is None else change_between(self._base, self._pieces)


class DistributionFailure(NamedTuple):
    """A node which did not accept :data:`CONFIG` or :data:`SSCONF`."""

    node_uuid: str
    what: str
    message: str


Distribute = Callable[[Distribution], Sequence[DistributionFailure]]


class UnderWay:
    """The nodes to which something is sent in the background. Thread-safe."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._changed = threading.Condition()

    def nodes(self) -> frozenset[str]:
        with self._changed:
            return frozenset(self._nodes)

    def add(self, uuids: Collection[str]) -> None:
        with self._changed:
            self._nodes.update(uuids)

    def remove(self, uuids: Collection[str]) -> None:
        with self._changed:
            self._nodes.difference_update(uuids)
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until there are none."""
        with self._changed:
            self._changed.wait_for(lambda: not self._nodes)


class Sending:
    """A message of a commit, which is sent by another thread. Thread-safe.

    :ivar candidates: UUIDs of the master candidates which get the configuration.
    :ivar nodes: UUIDs of the nodes which get ssconf values.
    """

    def __init__(
        self, data: ConfigData, candidates: tuple[str, ...], nodes: tuple[str, ...]
    ) -> None:
        self.candidates = candidates
        self.nodes = nodes
        self._online = online_candidates(data)
        self._members = members(data)
        self._master = data.cluster.master_node
        self._missing = {(uuid, CONFIG) for uuid in candidates} | {(uuid, SSCONF) for uuid in nodes}
        self._changed = threading.Condition()
        self._ended = False
        self._left = False
        self._missing_before: frozenset[tuple[str, str]] = frozenset()
        self._failures: Sequence[DistributionFailure] = ()
        self._error: BaseException | None = None

    def all_needed(self) -> bool:
        """Tell whether nobody can be left out: each node is needed for the majority."""
        return set(self.nodes) <= {*self.candidates, self._master} and not has_quorum(
            self._members - set(self.candidates[:1]), self._members
        )

    def accepted(self, node_uuid: str, what: str) -> None:
        """Note that a node has accepted its part."""
        with self._changed:
            self._missing.discard((node_uuid, what))
            self._changed.notify_all()

    def end(
        self, failures: Sequence[DistributionFailure], error: BaseException | None
    ) -> frozenset[str] | None:
        """Note the result of the whole message.

        :returns: the nodes for which the commit did not wait; None if it still waits.
        """
        with self._changed:
            if self._left:
                return frozenset(uuid for uuid, _what in self._missing_before)
            self._ended, self._failures, self._error = True, failures, error
            self._changed.notify_all()
            return None

    def wait(
        self, patience_s: float, under_way: UnderWay, instead: Callable[[], bool] | None = None
    ) -> list[DistributionFailure]:
        """Wait for the end, or, after a majority has accepted it, for at most ``patience_s``.

        :param under_way: gets the nodes for which this does not wait.
        :param instead: called when there is no majority after that time; informs the witness, and
            tells whether that is enough.
        """
        enough = False
        if instead is not None:
            with self._changed:
                in_time = self._changed.wait_for(self._is_decided, patience_s)
            enough = not in_time and instead()
        with self._changed:
            self._changed.wait_for(lambda: enough or self._is_decided())
            if not self._ended and not enough:
                self._changed.wait_for(lambda: self._ended, patience_s)
            if self._error is not None:
                raise self._error
            if self._ended:
                return list(self._failures)
            self._left = True
            self._missing_before = frozenset(self._missing)
            under_way.add({uuid for uuid, _what in self._missing_before})
            return [
                DistributionFailure(uuid, what, "it has not answered yet")
                for uuid, what in sorted(self._missing_before)
            ]

    def _is_decided(self) -> bool:
        """Tell whether a majority has it, or all nodes have answered."""
        missing = {uuid for uuid, what in self._missing if what == CONFIG}
        have = {self._master, *self.candidates} - missing
        return self._ended or Tally(len(self._online), len(have & set(self._online))).reached


class Threads:
    """Daemon threads which run functions; those which have ended their work are used again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []

    def run(self, function: Callable[[], None]) -> None:
        """Run a function, which handles its errors itself, in a thread."""
        with self._lock:
            work = self._idle.pop() if self._idle else None
        if work is None:
            work = queue.SimpleQueue()
            if not shortage.start_thread(self._keep_running, work, name=self._name):
                function()
                return
        work.put(function)

    def _keep_running(self, work: queue.SimpleQueue[Callable[[], None]]) -> None:
        while True:
            try:
                function = work.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    # Otherwise somebody has just taken it and is going to use it.
                    if work in self._idle:
                        self._idle.remove(work)
                        return
                continue
            function()
            del function
            with self._lock:
                self._idle.append(work)
