"""Opcodes of the general query."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.opcodes import params, types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


# Parameters which several opcodes have.
QUERIED_KIND: Any = param(types.QueryResource, "Kind of object")


@opcode(summary="what", kind=QUERY)
class OpQuery(OpCode):
    """Query fields of objects. Result: definitions of the fields, and rows."""

    what: str = QUERIED_KIND
    use_locking: bool = params.USE_LOCKING
    fields: list[str] = params.OUTPUT_FIELDS
    qfilter: list[Any] | None = param(ht.Maybe(ht.List), "Filter, in its JSON form", default=None)
    RESULT = types.QueryResponse


@opcode(summary="what", kind=QUERY)
class OpQueryFields(OpCode):
    """Query which fields there are. Result: definitions of the fields."""

    what: str = QUERIED_KIND
    fields: list[str] | None = param(
        ht.Maybe(ht.FieldNames), "Names of the fields; all if not given", default=None
    )
    RESULT = types.QueryFieldsResponse
