"""Which nodes must have a change before it is acknowledged, and when the witness is asked.

A change is committed when a majority of the master candidates which are online has it. In a cluster
with a witness and at most two such candidates, the witness is one more member, without data: it is
informed of the number of a change which the partner does not accept.

There a change of the members counts only with a majority of both, the former members and the new
ones, because two majorities of different members need not have a node in common: when the second
candidate is marked offline, either it or the witness knows that. Afterwards the remaining candidate
needs nobody, because the witness does not let the other one become master. To remove the witness
from the configuration is a statement of the administrator that it is gone, as it is to mark a node
offline; then only the new members count.

Not thread-safe: the caller, :class:`ganeti.config.store.ConfigStore`, has the lock of commits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from ganeti.objects import ConfigData
from ganeti.replication.majority import WITNESS, has_quorum, with_witness

_FORMER: Final = "the former witness"

#: Informs the witness of a configuration; returns the reason why that was not possible, or None.
Record = Callable[[ConfigData], str | None]


def online_candidates(data: ConfigData) -> list[str]:
    """Return the UUIDs of the master candidates which are not marked offline."""
    return [uuid for uuid, node in data.nodes.items() if node.master_candidate and not node.offline]


def other_candidates(data: ConfigData) -> list[str]:
    """Return the UUIDs of the online master candidates without the master, in no order."""
    return [uuid for uuid in online_candidates(data) if uuid != data.cluster.master_node]


def members(data: ConfigData) -> frozenset[str]:
    """Return the members of which a majority is needed: UUIDs of nodes, and the witness."""
    return with_witness(online_candidates(data), witness=bool(data.cluster.witness))


class CommitQuorum:
    """Judges commits one after the other.

    :ivar failure: why the witness was not informed at the last attempt; empty after a success.
    """

    def __init__(self) -> None:
        self._record: Record | None = None
        # The last state which a majority has; None before the first commit of this process.
        self._settled: ConfigData | None = None
        # The state of which the witness was informed last.
        self._informed: ConfigData | None = None
        # The only candidate, and the witness which knows that there is no other one.
        self._alone: tuple[frozenset[str], str] | None = None
        self.failure = ""

    def use_witness(self, record: Record) -> None:
        """Set the function which informs the witness."""
        self._record = record

    def can_ask(self, data: ConfigData) -> bool:
        """Tell whether the witness may stand for a candidate which does not answer."""
        return self._record is not None and WITNESS in members(data)

    def inform(self, data: ConfigData) -> bool:
        """Inform the witness of a state, once; tell whether it is informed.

        A single candidate informs it when it becomes the only one.
        """
        if self._informed is data:
            return True
        if self.is_alone(data):
            return True
        self.failure = "no witness can be asked"
        if self._record is not None:
            self.failure = self._record(data) or ""
        if self.failure:
            return False
        self._informed = data
        self._alone = _alone(data)
        return True

    def is_alone(self, data: ConfigData) -> bool:
        """Tell whether the witness knows that there is only one candidate."""
        return self._alone is not None and self._alone == _alone(data)

    def reached(self, data: ConfigData, have: Collection[str]) -> bool:
        """Tell whether a state is committed; ask the witness if that depends on it.

        :param have: UUIDs of the candidates which have the state.
        """
        needed = self._needed(data)
        found = set(have)
        if not _all(needed, found) and _all(needed, found | {WITNESS}) and self.inform(data):
            found.add(WITNESS)
        if not _all(needed, found):
            return False
        self._settled = data
        if _alone(data) != self._alone:
            self._alone = None
        return True

    def _needed(self, data: ConfigData) -> list[frozenset[str]]:
        needed = [members(data)]
        if data.cluster.witness and self._settled is not None:
            before = members(self._settled)
            if self.is_alone(self._settled):
                before = before - {WITNESS}
            if self._settled.cluster.witness != data.cluster.witness and WITNESS in before:
                before = before - {WITNESS} | {_FORMER}
            needed.append(before)
        return needed


def _all(needed: list[frozenset[str]], have: set[str]) -> bool:
    return all(has_quorum(have, one) for one in needed)


def _alone(data: ConfigData) -> tuple[frozenset[str], str] | None:
    found = frozenset(online_candidates(data))
    return (found, data.cluster.witness or "") if len(found) == 1 else None
