"""Commands run on nodes: out-of-band helper, restricted commands."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import OpCode, opcode, param


@opcode()
class OpOobCommand(OpCode):
    """Run the out-of-band helper for nodes. Result: rows of node and answer."""

    node_names: list[str] = param(types.Strings, "Nodes; none means all", default=[])
    node_uuids: list[str] | None = param(
        types.MaybeStrings, "UUIDs of these nodes; filled in by the master", default=None
    )
    command: str = param(types.OobCommand, "What to do")
    timeout: int = param(ht.Int, "Seconds the helper may take", default=60)
    ignore_status: bool = param(
        ht.Bool, "Also for a node which is not marked offline", default=False
    )
    power_delay: float = param(ht.Float, "Seconds between switching on two nodes", default=2.0)
    RESULT = types.QueryRows


@opcode()
class OpRestrictedCommand(OpCode):
    """Run one of the prepared commands on nodes. Result: [success, output] per node."""

    use_locking: bool = param(ht.Bool, "Hold the nodes while the command runs", default=False)
    nodes: list[str] = param(types.Strings, "Nodes to run on")
    node_uuids: list[str] | None = param(
        types.MaybeStrings, "UUIDs of these nodes; filled in by the master", default=None
    )
    command: str = param(ht.NonEmptyString, "Name of the command")
    RESULT = ht.ListOf(ht.Tuple(ht.Bool, ht.Str))
