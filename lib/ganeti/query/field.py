"""What a field is.

A field has the published name, title and kind, a line of documentation, and a function which reads
it from an object. Where there is no value, that function returns one of three marks, which become
the status beside a null in the answer:

* :data:`UNAVAIL`: this object has no such thing (the fourth disk of an instance with two);
* :data:`NODATA`: it should have, but nobody could be asked, or the answer lacked it;
* :data:`OFFLINE`: the node which would know is marked offline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ganeti.constants import query as query_c


class Mark:
    """Stands for a value which is not there."""

    __slots__ = ("cell", "status")

    def __init__(self, status: int) -> None:
        self.status = status
        self.cell = [status, None]

    def __repr__(self) -> str:
        return f"<mark {self.status}>"


UNAVAIL = Mark(query_c.RS_UNAVAIL)
NODATA = Mark(query_c.RS_NODATA)
OFFLINE = Mark(query_c.RS_OFFLINE)
UNKNOWN = Mark(query_c.RS_UNKNOWN)

# How a filter compares a field's values.
PLAIN = ""
HOSTNAME = "hostname"  # "web1" stands for "web1.example.com"
TIMESTAMP = "timestamp"  # [seconds, microseconds] against seconds
JOB_ID = "job id"  # 12 or "12"
STRICT = "strict"  # a regular expression searches text and no lists (rules of the queue)

Getter = Callable[[Any, Any], Any]


class Field:
    """One field. `get(view, object)` returns a value or a :class:`Mark`.

    :ivar live: name of the live data which the field needs; empty when the configuration is enough.
    """

    __slots__ = ("compare", "doc", "get", "kind", "live", "name", "title")

    def __init__(
        self,
        name: str,
        title: str,
        kind: str,
        doc: str,
        get: Getter,
        *,
        live: str = "",
        compare: str = PLAIN,
    ) -> None:
        self.name = name
        self.title = title
        self.kind = kind
        self.doc = doc
        self.get = get
        self.live = live
        self.compare = compare

    def definition(self) -> dict[str, str]:
        """As clients get it."""
        return {"name": self.name, "title": self.title, "kind": self.kind, "doc": self.doc}

    def __repr__(self) -> str:
        return f"<Field {self.name}>"


def unknown_definition(name: str) -> dict[str, str]:
    """What clients get for a field which does not exist."""
    return {
        "name": name,
        "title": name,
        "kind": query_c.KIND_UNKNOWN,
        "doc": f"There is no field '{name}'",
    }


class Resource:
    """A kind of object: its fields and where its objects come from.

    :ivar items: all objects, in the order of the answer, from a view.
    :ivar name_field: the field by which objects are named.
    :ivar table: name of the configuration's table which holds the objects; empty when they come
        from elsewhere.
    """

    __slots__ = ("fields", "items", "name", "name_field", "table")

    def __init__(
        self,
        name: str,
        fields: Iterable[Field],
        items: Callable[[Any], list[Any]],
        name_field: str = "name",
        table: str = "",
    ) -> None:
        self.name = name
        self.fields = {field.name: field for field in fields}
        self.items = items
        self.name_field = name_field
        self.table = table


class Source(Protocol):
    """Who collects live data for a query."""

    def collect(self, view: Any, kinds: frozenset[str], items: list[Any]) -> None:
        """Put the live data of `kinds` for `items` into `view.live`."""


def attribute(name: str) -> Getter:
    """Read an attribute; None is unavailable."""

    def get(view: Any, item: Any) -> Any:
        value = getattr(item, name)
        return UNAVAIL if value is None else value

    return get


def maybe(value: Any) -> Any:
    """`value`, or :data:`UNAVAIL` for None."""
    return UNAVAIL if value is None else value


def tags(view: Any, item: Any) -> list[str]:
    """Tags as clients get them."""
    return sorted(item.tags)


def common_fields(what: str) -> list[Field]:
    """The fields which every stored object has."""
    return [
        Field("uuid", "UUID", query_c.KIND_TEXT, f"UUID of the {what}", attribute("uuid")),
        Field(
            "serial_no",
            "SerialNo",
            query_c.KIND_NUMBER,
            f"Serial number of the {what}, one higher with each change",
            attribute("serial_no"),
        ),
        Field(
            "ctime",
            "CTime",
            query_c.KIND_TIMESTAMP,
            f"When the {what} was created",
            attribute("ctime"),
        ),
        Field(
            "mtime",
            "MTime",
            query_c.KIND_TIMESTAMP,
            f"When the {what} was changed last",
            attribute("mtime"),
        ),
        Field("tags", "Tags", query_c.KIND_OTHER, f"Tags of the {what}", tags),
    ]
