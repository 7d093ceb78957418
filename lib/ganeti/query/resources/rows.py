"""Fields of objects which are rows: dictionaries from names of fields to values."""

from __future__ import annotations

from typing import Any

from ganeti.query.field import Field, maybe


def row_field(
    name: str, title: str, kind: str, doc: str, *, compare: str = "", names: str = ""
) -> Field:
    """Return a field of rows; None becomes ``UNAVAIL``."""
    return Field(
        name, title, kind, doc, lambda view, row: maybe(row[name]), compare=compare, names=names
    )


def null_field(name: str, title: str, kind: str, doc: str) -> Field:
    """Return a field of rows whose value may be None."""
    return Field(name, title, kind, doc, lambda view, row: row[name])


def rows(view: Any) -> list[dict[str, Any]]:
    """Return the rows which the collector has stored in the view."""
    found: list[dict[str, Any]] = view.facts["rows"]
    return found
