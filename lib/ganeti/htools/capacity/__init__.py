"""Capacity: how many more instances fit a cluster, of one size or of sizes which become smaller.

:func:`fill` places equal instances, one after the other, until there is no place for another one.
:func:`tiered` begins with the largest size of a policy; when it does not fit any more, it shrinks
the resource which most nodes lack, until instances fit again.

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
