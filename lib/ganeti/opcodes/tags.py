"""Opcodes for tags."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.opcodes import params, types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


# Parameters which several opcodes have.
TAGGED_KIND: Any = param(types.TagKind, "Kind of object")
TAGGED_NAME: Any = param(
    ht.Maybe(ht.Str), "Name of the object; not given for the cluster", default=None
)


@opcode()
class OpTagsDel(OpCode):
    """Remove tags. Result: None."""

    kind: str = TAGGED_KIND
    tags: list[str] = param(ht.ListOf(ht.Str), "Tags to remove")
    name: str | None = TAGGED_NAME
    RESULT = ht.NoneType


@opcode(summary="name", kind=QUERY)
class OpTagsGet(OpCode):
    """Read tags. Result: the tags."""

    kind: str = TAGGED_KIND
    use_locking: bool = params.USE_LOCKING
    name: str | None = TAGGED_NAME
    RESULT = types.Strings


@opcode(summary="pattern", kind=QUERY)
class OpTagsSearch(OpCode):
    """Search tags. Result: list of [path, tag]."""

    pattern: str = param(ht.NonEmptyString, "Regular expression")
    RESULT = ht.ListOf(ht.Tuple(ht.NonEmptyString, ht.NonEmptyString))


@opcode()
class OpTagsSet(OpCode):
    """Add tags. Result: None."""

    kind: str = TAGGED_KIND
    tags: list[str] = param(ht.ListOf(ht.Str), "Tags to add")
    name: str | None = TAGGED_NAME
    RESULT = ht.NoneType
