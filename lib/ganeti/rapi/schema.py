"""JSON Schema (2020-12) of types, as OpenAPI 3.1 uses it.

The types of :mod:`ganeti.ht` know how they were made, so most schemas follow from the type; those
of the basic types are in a table. Fields of objects are described by the tables of queries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from ganeti import errors, ht
from ganeti.constants import query as query_const
from ganeti.query import resources

Schema = dict[str, Any]

_PLAIN: Final[dict[str, Schema]] = {
    "any": {},
    "none": {"type": "null"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "nonempty-str": {"type": "string", "minLength": 1},
    # Generators of clients need "items", even if it says nothing.
    "list(any)": {"type": "array", "items": {}},
    "object(any)": {"type": "object"},
    "job-id": {
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+$"}]
    },
    "disk-index": {"type": "integer", "minimum": 0},
    "ipv4-address": {"type": "string", "format": "ipv4"},
    "ipv6-address": {"type": "string", "format": "ipv6"},
    "ipv4-network": {"type": "string", "description": "address/bits"},
    "ipv6-network": {"type": "string", "description": "address/bits"},
}

# The schema of each kind of query field; every value may be null.
_KINDS: Final[dict[str, Schema]] = {
    query_const.KIND_TEXT: {"type": ["string", "null"]},
    query_const.KIND_BOOL: {"type": ["boolean", "null"]},
    query_const.KIND_NUMBER: {"type": ["integer", "null"]},
    query_const.KIND_FLOAT: {"type": ["number", "null"]},
    query_const.KIND_UNIT: {"type": ["number", "null"]},
    query_const.KIND_TIMESTAMP: {"type": ["number", "null"]},
    query_const.KIND_OTHER: {},
    query_const.KIND_UNKNOWN: {},
}


_JSON_TYPES: Final[dict[type, str]] = {str: "string", int: "integer", bool: "boolean"}


def of(word: ht.Type) -> Schema:
    """Make the schema of a type.

    :raises errors.ProgrammerError: a basic type is not in the table.
    """
    if not word.made_of:
        try:
            return dict(_PLAIN[word.name])
        except KeyError:
            raise errors.ProgrammerError(f"no schema for {word.name}") from None
    form, *parts = word.made_of
    found: Schema = _FORMS[form](*parts)
    return found


def _maybe(inner: ht.Type) -> Schema:
    found = of(inner)
    if not found:
        return found
    kind = found.get("type")
    if isinstance(kind, str) and "enum" not in found:
        return {**found, "type": [kind, "null"]}
    return {"anyOf": [found, {"type": "null"}]}


def _at_most(inner: ht.Type, count: int) -> Schema:
    found = of(inner)
    return {**found, "maxItems" if found.get("type") == "array" else "maxLength": count}


def _or(*inner: ht.Type) -> Schema:
    found = [of(one) for one in inner]
    return {"anyOf": found} if all(found) else {}


def _one_of(values: Collection[Any]) -> Schema:
    # Sorted, because the order of a set differs from run to run.
    found: Schema = {"enum": sorted(values, key=lambda value: (str(type(value)), value))}
    kinds = {_JSON_TYPES.get(type(value)) for value in values}
    kind = kinds.pop()
    return {"type": kind, **found} if not kinds and kind is not None else found


def _object(_key: ht.Type, inner: ht.Type) -> Schema:
    found = of(inner)
    return {"type": "object", **({"additionalProperties": found} if found else {})}


def _tuple(*inner: ht.Type) -> Schema:
    return {
        "type": "array",
        "prefixItems": [of(one) for one in inner],
        "minItems": len(inner),
        "maxItems": len(inner),
    }


def _shape(every: dict[str, ht.Type], required: Sequence[str]) -> Schema:
    found: Schema = {
        "type": "object",
        "properties": {name: of(one) for name, one in every.items()},
        "additionalProperties": False,
    }
    if required:
        found["required"] = list(required)
    return found


_FORMS: Final[dict[str, Any]] = {
    "maybe": _maybe,
    "or": _or,
    "and": lambda *inner: of(inner[0]),
    "one-of": _one_of,
    "list": lambda inner: {"type": "array", "items": of(inner)},
    "object": _object,
    "tuple": _tuple,
    "shape": _shape,
    "named": of,
    "nonneg": lambda inner: {**of(inner), "minimum": 0},
    "pos": lambda inner: {**of(inner), "exclusiveMinimum": 0},
    "neg": lambda inner: {**of(inner), "exclusiveMaximum": 0},
    "at-most": _at_most,
    "within": lambda inner, low, high: {**of(inner), "minimum": low, "maximum": high},
}


def of_object(what: str, fields: Sequence[str]) -> Schema:
    """Make the schema of an object with these fields.

    :param what: kind of the object in queries; empty for other objects.
    """
    table = resources.lookup(what).fields if what else {}
    properties: Schema = {}
    for name in fields:
        field = table.get(name)
        properties[name] = {} if field is None else {**_KINDS[field.kind], "description": field.doc}
    return {"type": "object", "properties": properties}
