"""Opcodes which run commands on nodes: out-of-band program, restricted commands."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.opcodes import types
from ganeti.opcodes.base import OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


# Parameters which several opcodes have.
NODE_UUIDS: Any = param(
    types.MaybeStrings,
    "UUIDs of the nodes; with names, the node of each name must have the UUID at its place",
    default=None,
)


@opcode()
class OpOobCommand(OpCode):
    """Run the out-of-band program for nodes. Result: rows of node and answer."""

    node_names: list[str] = param(
        types.Strings, "Names of the nodes; all if the list is empty", default=[]
    )
    node_uuids: list[str] | None = NODE_UUIDS
    command: str = param(types.OobCommand, "Command of the out-of-band program")
    timeout: int = param(ht.Int, "Time limit of the out-of-band program in seconds", default=60)
    ignore_status: bool = param(
        ht.Bool, "Switch off nodes even if they are not marked as offline", default=False
    )
    power_delay: float = param(
        ht.Seconds, "Seconds between two nodes which are switched on", default=2.0
    )
    RESULT = types.QueryRows


@opcode()
class OpRestrictedCommand(OpCode):
    """Run a restricted command on nodes. Result: [success, output] of each node."""

    use_locking: bool = param(
        ht.Bool, "Hold the locks of the nodes while the command runs", default=False
    )
    nodes: list[str] = param(types.Strings, "Names of the nodes")
    node_uuids: list[str] | None = NODE_UUIDS
    command: str = param(ht.NonEmptyString, "Name of the command")
    RESULT = ht.ListOf(ht.Tuple(ht.Bool, ht.Str))
