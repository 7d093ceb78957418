"""Asking an instance allocator to choose nodes for instances.

An allocator is ``hail``, which the master daemon has inside, or a program outside of Ganeti (manual
page **ganeti-iallocator**). Its input describes the present state of the cluster and one request;
its answer has nodes, or jobs that would move instances. This package makes the input and reads the
answer:

================ =====================================================================
:mod:`.describe` describes the cluster
:mod:`.live`     asks the nodes for their memory, processors, disk space and guests
:mod:`.requests` a class for each mode, which writes the request and checks its result
:mod:`.builtin`  the allocator ``hail``
:mod:`.answers`  reads the part which all answers of programs share
:mod:`.ask`      calls them: from a request to its checked answer
================ =====================================================================

Logical units call this package. It takes no locks and changes nothing: the caller decides which
nodes may be chosen and holds the locks which keep the description true. Every answer is checked:
the names must exist, the number of nodes must be right, and the nodes must be able to run
instances.

All errors are :class:`~ganeti.errors.AllocatorError`, and :class:`~ganeti.errors.NoPlacement` when
the allocator found no nodes.
"""

from __future__ import annotations

from ganeti.allocator.answers import Answer
from ganeti.allocator.ask import ask, explain, prepare, run
from ganeti.allocator.builtin import is_builtin
from ganeti.allocator.describe import nic_dict
from ganeti.allocator.live import LiveData
from ganeti.allocator.requests import (
    Allocate,
    AllocateSecondary,
    AllocationRequest,
    ChangeGroup,
    Moves,
    MultiAllocate,
    NodeEvacuate,
    Placements,
    Relocate,
    allocate_nic,
    instance_space_mib,
    required_nodes,
)

__all__ = [
    "AllocationRequest",
    "Allocate",
    "AllocateSecondary",
    "Answer",
    "ChangeGroup",
    "LiveData",
    "Moves",
    "MultiAllocate",
    "NodeEvacuate",
    "Placements",
    "Relocate",
    "allocate_nic",
    "ask",
    "explain",
    "instance_space_mib",
    "is_builtin",
    "nic_dict",
    "prepare",
    "required_nodes",
    "run",
]
