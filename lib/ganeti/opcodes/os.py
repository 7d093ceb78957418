"""Opcodes which describe operating systems and providers of external storage."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param


@opcode(kind=QUERY)
class OpExtStorageDiagnose(OpCode):
    """Describe providers of external storage. Result: rows of the requested fields."""

    output_fields: list[str] = param(ht.FieldNames, "Names of the fields")
    names: list[str] = param(types.Strings, "Names; all if the list is empty", default=[])
    RESULT = ht.ListOf(ht.List)


@opcode(kind=QUERY)
class OpOsDiagnose(OpCode):
    """Describe operating systems on the nodes. Result: rows of the requested fields."""

    output_fields: list[str] = param(ht.FieldNames, "Names of the fields")
    names: list[str] = param(types.Strings, "Names; all if the list is empty", default=[])
    RESULT = ht.ListOf(ht.List)
