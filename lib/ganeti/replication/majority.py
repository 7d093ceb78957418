"""How many members must have a change, and when the witness is one of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

#: Name of the witness among the members; no node has it, because it is not a host name.
WITNESS: Final = "the witness"
_WITNESS_SERVES: Final = 2


def majority(count: int) -> int:
    """Return the smallest number which is more than half of ``count``."""
    return count // 2 + 1


def has_quorum(present: Collection[str], members: Collection[str]) -> bool:
    """Tell whether a majority of the members is present.

    A change is committed when a majority of the online master candidates has it.
    """
    return len(set(present) & set(members)) >= majority(len(members))


def with_witness(members: Collection[str], *, witness: bool) -> frozenset[str]:
    """Return the members of which a majority is needed.

    A witness is one of them while there are at most two others; more need none.

    :param members: nodes or master candidates, by name or by UUID.
    :param witness: the cluster has a witness.
    """
    found = frozenset(members)
    return found | {WITNESS} if witness and len(found) <= _WITNESS_SERVES else found


class Tally(NamedTuple):
    """How many members have a commit, the master among them, and how many may still get it."""

    members: int
    have: int
    coming: int = 0

    @property
    def reached(self) -> bool:
        """A majority has the commit."""
        return self.have >= majority(self.members)

    @property
    def decided(self) -> bool:
        """Whether a majority has it does not depend on those which may still get it."""
        return self.reached or self.have + self.coming < majority(self.members)
