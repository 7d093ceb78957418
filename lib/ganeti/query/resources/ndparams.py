"""Fields of node parameters, which nodes and groups have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganeti.constants import query as query_c
from ganeti.constants.node import ND_PARAM_TYPES
from ganeti.query.field import UNAVAIL, Field

_TITLES = {
    "exclusive_storage": "ExclusiveStorage",
    "oob_program": "OutOfBandProgram",
    "ovs": "OpenvSwitch",
    "ovs_link": "OpenvSwitchLink",
    "ovs_name": "OpenvSwitchName",
    "spindle_count": "SpindleCount",
}
KINDS = {
    "bool": query_c.KIND_BOOL,
    "float": query_c.KIND_FLOAT,
    "int": query_c.KIND_NUMBER,
    "size": query_c.KIND_UNIT,
    "string": query_c.KIND_OTHER,
    "maybe-string": query_c.KIND_OTHER,
}


def fields(filled: Callable[[Any, Any], dict[str, Any]]) -> list[Field]:
    """Return a field ``ndp/<name>`` for each node parameter.

    :param filled: called with view and object; returns all parameters.
    """

    def reader(name: str) -> Callable[[Any, Any], Any]:
        return lambda view, item: filled(view, item).get(name, UNAVAIL)

    return [
        Field(
            f"ndp/{name}",
            _TITLES.get(name, f"ndp/{name}"),
            KINDS[kind],
            f"Node parameter {name}",
            reader(name),
        )
        for name, kind in ND_PARAM_TYPES.items()
    ]
