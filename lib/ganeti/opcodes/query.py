"""The general query."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import words
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@opcode(summary="what", kind=QUERY)
class OpQuery(OpCode):
    """Ask for fields of objects. Result: field definitions and rows."""

    what: str = param(words.QueryResource, "Kind of object")
    use_locking: bool = param(ht.Bool, "Wait for locks before looking", default=False)
    fields: list[str] = param(words.Strings, "Fields wanted")
    qfilter: list[Any] | None = param(ht.Maybe(ht.List), "Filter, in its JSON form", default=None)
    RESULT = words.QueryResponse


@opcode(summary="what", kind=QUERY)
class OpQueryFields(OpCode):
    """Ask which fields there are. Result: field definitions."""

    what: str = param(words.QueryResource, "Kind of object")
    fields: list[str] | None = param(
        words.MaybeStrings, "Fields to describe; none means all", default=None
    )
    RESULT = words.QueryFieldsResponse
