"""Capacity: how many more instances fit a cluster, of one size or of sizes which become smaller.

:func:`fill` places equal instances, one after the other, until there is no place for another one.
:func:`tiered` begins with the largest size of a policy; when it does not fit any more, it shrinks
the resource which most nodes lack, until instances fit again.

=================== ===============================================================================
:mod:`.places`      which places of a cluster may be filled, and what these are like
:mod:`.roles`       what nodes become with one more instance, and the sums of which scores are made
:mod:`.ranking`     all pairs of nodes for one more mirrored instance, in the order of scores
:mod:`.filler`      places equal instances on a copy of a cluster, and keeps what it has computed
:mod:`.equal_sizes` places equal instances until there is no place for another one
:mod:`.tiers`       places instances which become smaller, until none of any size fits
=================== ===============================================================================

Source: manual page **hspace**.
"""

from __future__ import annotations

from ganeti.htools.capacity.equal_sizes import Filled, fill
from ganeti.htools.capacity.filler import Filler
from ganeti.htools.capacity.places import (
    Options,
    Plan,
    bad_groups,
    new_instance,
    plan,
    required_nodes,
)
from ganeti.htools.capacity.tiers import tiered

__all__ = [
    "Filled", "Filler", "Options", "Plan", "bad_groups", "fill", "new_instance", "plan",
    "required_nodes", "tiered",
]  # fmt: skip
