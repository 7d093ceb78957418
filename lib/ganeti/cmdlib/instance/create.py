"""Create an instance.

What this shares with the copy of an instance is in :mod:`ganeti.cmdlib.ops.creation.unit`. An
instance may only be reserved, and be made later, see :mod:`~ganeti.cmdlib.ops.install.forthcoming`.
"""

from __future__ import annotations

from ganeti.cmdlib.base import executes
from ganeti.cmdlib.ops.creation.unit import CreationUnit
from ganeti.opcodes.instance import OpInstanceCreate


@executes(OpInstanceCreate)
class LUInstanceCreate(CreationUnit):
    """Create an instance on a node that is given, or chosen by an allocator."""
