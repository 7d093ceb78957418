"""Opcodes for tags."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param


@opcode()
class OpTagsDel(OpCode):
    """Remove tags. Result: None."""

    kind: str = param(types.TagKind, "Kind of object")
    tags: list[str] = param(ht.ListOf(ht.Str), "Tags to remove")
    name: str | None = param(
        ht.Maybe(ht.Str), "Name of the object; not given for the cluster", default=None
    )
    RESULT = ht.NoneType


@opcode(summary="name", kind=QUERY)
class OpTagsGet(OpCode):
    """Read tags. Result: the tags."""

    kind: str = param(types.TagKind, "Kind of object")
    use_locking: bool = param(ht.Bool, "Wait for the locks of the objects first", default=False)
    name: str | None = param(
        ht.Maybe(ht.Str), "Name of the object; not given for the cluster", default=None
    )
    RESULT = types.Strings


@opcode(summary="pattern", kind=QUERY)
class OpTagsSearch(OpCode):
    """Search tags. Result: list of [path, tag]."""

    pattern: str = param(ht.NonEmptyString, "Regular expression")
    RESULT = ht.ListOf(ht.Tuple(ht.NonEmptyString, ht.NonEmptyString))


@opcode()
class OpTagsSet(OpCode):
    """Add tags. Result: None."""

    kind: str = param(types.TagKind, "Kind of object")
    tags: list[str] = param(ht.ListOf(ht.Str), "Tags to add")
    name: str | None = param(
        ht.Maybe(ht.Str), "Name of the object; not given for the cluster", default=None
    )
    RESULT = ht.NoneType
