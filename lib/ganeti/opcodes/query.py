"""The general query."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@opcode(summary="what", kind=QUERY)
class OpQuery(OpCode):
    """Ask for fields of objects. Result: field definitions and rows."""

    what: str = param(types.QueryResource, "Kind of object")
    use_locking: bool = param(ht.Bool, "Wait for locks before looking", default=False)
    fields: list[str] = param(types.Strings, "Fields wanted")
    qfilter: list[Any] | None = param(ht.Maybe(ht.List), "Filter, in its JSON form", default=None)
    RESULT = types.QueryResponse


@opcode(summary="what", kind=QUERY)
class OpQueryFields(OpCode):
    """Ask which fields there are. Result: field definitions."""

    what: str = param(types.QueryResource, "Kind of object")
    fields: list[str] | None = param(
        types.MaybeStrings, "Fields to describe; none means all", default=None
    )
    RESULT = types.QueryFieldsResponse
