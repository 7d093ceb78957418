"""Placement: asking an instance allocator where instances should go.

An allocator is a program outside of Ganeti (manual page **ganeti-iallocator**). It is told the
cluster as it is now and one request, and answers with nodes, or with jobs that would move
instances. This room owns both texts: :mod:`~ganeti.allocator.describe` writes the cluster,
:mod:`~ganeti.allocator.live` asks the nodes for what only they know,
:mod:`~ganeti.allocator.requests` has a class for each mode, which writes its part and checks the
result, :mod:`~ganeti.allocator.answers` reads what every answer has in common, and :func:`ask`
puts them together.

Logical units call it. It takes no locks and changes nothing: which nodes may be chosen, and that
the facts about them stay true until the instance is there, is the business of the caller. Nothing
that an allocator prints is believed unchecked: names must exist, numbers must fit, a node must be
able to take an instance.

All errors are :class:`~ganeti.errors.AllocatorError`;
:class:`~ganeti.errors.NoPlacement` when the allocator did its work and found no place.
"""

from __future__ import annotations

from ganeti.allocator.answers import Answer
from ganeti.allocator.ask import ask, prepare, run
from ganeti.allocator.describe import nic_dict
from ganeti.allocator.requests import (
    Allocate,
    AllocateSecondary,
    ChangeGroup,
    Moves,
    MultiAllocate,
    NodeEvacuate,
    Placements,
    Relocate,
    Request,
    allocate_nic,
    instance_space_mib,
    required_nodes,
)

__all__ = [
    "Allocate",
    "AllocateSecondary",
    "Answer",
    "ChangeGroup",
    "Moves",
    "MultiAllocate",
    "NodeEvacuate",
    "Placements",
    "Relocate",
    "Request",
    "allocate_nic",
    "ask",
    "instance_space_mib",
    "nic_dict",
    "prepare",
    "required_nodes",
    "run",
]
