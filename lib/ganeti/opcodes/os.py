"""Opcodes which describe operating systems and providers of external storage."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.opcodes import params, types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


# Parameters which several opcodes have.
NAMES_OR_ALL: Any = param(types.Strings, "Names; all if the list is empty", default=[])


@opcode(kind=QUERY)
class OpExtStorageDiagnose(OpCode):
    """Describe providers of external storage. Result: rows of the requested fields."""

    output_fields: list[str] = params.OUTPUT_FIELDS
    names: list[str] = NAMES_OR_ALL
    RESULT = ht.ListOf(ht.List)


@opcode(kind=QUERY)
class OpOsDiagnose(OpCode):
    """Describe operating systems on the nodes. Result: rows of the requested fields."""

    output_fields: list[str] = params.OUTPUT_FIELDS
    names: list[str] = NAMES_OR_ALL
    RESULT = ht.ListOf(ht.List)
