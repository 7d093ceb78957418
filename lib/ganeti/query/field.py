"""Fields of queries, and the kinds of objects which have them.

A field has a published name, title and kind, a line of documentation, and a function which reads it
from an object. If there is no value, that function returns one of three marks, which become the
status of the value in the answer:

* :data:`UNAVAIL`: the object has no such value (the fourth disk of an instance with two disks);
* :data:`NODATA`: the value could not be collected, because a node failed or its answer lacks it;
* :data:`OFFLINE`: the node which has the value is marked as offline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ganeti.constants import query as query_c


class Mark:
    """Stands for a missing value."""

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

# How filters compare the values of a field.
PLAIN = ""
HOSTNAME = "hostname"  # "web1" stands for "web1.example.com"
TIMESTAMP = "timestamp"  # [seconds, microseconds] against seconds
JOB_ID = "job id"  # 12 or "12"
STRICT = "strict"  # a regular expression searches in text, not in lists (filter rules for jobs)

Getter = Callable[[Any, Any], Any]


class Field:
    """One field.

    :ivar get: called with a view and an object; returns the value or a :class:`Mark`.
    :ivar live: name of the live data which the field needs; empty if it needs none.
    :ivar compare: how filters compare its values.
    :ivar names: the table of the configuration whose names a field of host names has; empty if its
        values are names of other things.
    """

    __slots__ = ("compare", "doc", "get", "kind", "live", "name", "names", "title")

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
        names: str = "",
    ) -> None:
        self.name = name
        self.title = title
        self.kind = kind
        self.doc = doc
        self.get = get
        self.live = live
        self.compare = compare
        self.names = names

    def definition(self) -> dict[str, str]:
        """Return the definition which clients get."""
        return {"name": self.name, "title": self.title, "kind": self.kind, "doc": self.doc}

    def __repr__(self) -> str:
        return f"<Field {self.name}>"


def unknown_definition(name: str) -> dict[str, str]:
    """Return the definition which clients get for a field which does not exist."""
    return {
        "name": name,
        "title": name,
        "kind": query_c.KIND_UNKNOWN,
        "doc": f"There is no field '{name}'",
    }


class Resource:
    """A kind of object: its fields, and how to find its objects.

    :ivar items: returns all objects of a view; those of a table in any order, because to sort all
        takes longer than to find a few, and all others in the order of the answer.
    :ivar name_field: the field with the name of an object.
    :ivar table: name of the table of the configuration which has the objects; empty if they are not
        in the configuration.
    :ivar aliases: older beginnings of names of fields -> the beginnings of today. Fields are found
        by both; lists of fields name only those of today.
    """

    __slots__ = ("aliases", "fields", "items", "name", "name_field", "table")

    def __init__(
        self,
        name: str,
        fields: Iterable[Field],
        items: Callable[[Any], list[Any]] | None = None,
        name_field: str = "name",
        table: str = "",
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.aliases = aliases or {}
        self.name = name
        self.fields = {field.name: field for field in fields}
        self.items = items or (lambda view: list(getattr(view.config, table).values()))
        self.name_field = name_field
        self.table = table

    def field(self, name: str) -> Field | None:
        """Return the field with this name, or an older name; None if there is none."""
        found = self.fields.get(name)
        if found is None:
            for old, new in self.aliases.items():
                if name.startswith(old):
                    return self.fields.get(new + name.removeprefix(old))
        return found


class Source(Protocol):
    """Collects live data for a query."""

    def collect(self, view: Any, kinds: frozenset[str], items: list[Any]) -> None:
        """Collect live data of these kinds for these objects and store it in ``view.live``."""


def attribute(name: str) -> Getter:
    """Return a function which reads an attribute; None becomes :data:`UNAVAIL`."""

    def get(view: Any, item: Any) -> Any:
        value = getattr(item, name)
        return UNAVAIL if value is None else value

    return get


def maybe(value: Any) -> Any:
    """Return the value, or :data:`UNAVAIL` for None."""
    return UNAVAIL if value is None else value


def tags(view: Any, item: Any) -> list[str]:
    """Return the sorted tags of an object."""
    return sorted(item.tags)


def common_fields(what: str) -> list[Field]:
    """Return the fields which every object of the configuration has."""
    return [
        Field("uuid", "UUID", query_c.KIND_TEXT, f"UUID of the {what}", attribute("uuid")),
        Field(
            "serial_no",
            "SerialNo",
            query_c.KIND_NUMBER,
            f"Serial number of the {what}, which increases with each change",
            attribute("serial_no"),
        ),
        Field(
            "ctime",
            "CTime",
            query_c.KIND_TIMESTAMP,
            f"Time when the {what} was created",
            attribute("ctime"),
        ),
        Field(
            "mtime",
            "MTime",
            query_c.KIND_TIMESTAMP,
            f"Time of the last change of the {what}",
            attribute("mtime"),
        ),
        Field("tags", "Tags", query_c.KIND_OTHER, f"Tags of the {what}", tags),
    ]
