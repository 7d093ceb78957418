"""What nodes offer: operating systems and external storage providers."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param


@opcode(kind=QUERY)
class OpExtStorageDiagnose(OpCode):
    """Describe external storage providers. Result: rows of the fields asked."""

    output_fields: list[str] = param(types.Strings, "Fields wanted")
    names: list[str] = param(types.Strings, "Names wanted; none means all", default=[])
    RESULT = ht.ListOf(ht.List)


@opcode(kind=QUERY)
class OpOsDiagnose(OpCode):
    """Describe operating systems on the nodes. Result: rows of the fields asked."""

    output_fields: list[str] = param(types.Strings, "Fields wanted")
    names: list[str] = param(types.Strings, "Names wanted; none means all", default=[])
    RESULT = ht.ListOf(ht.List)
