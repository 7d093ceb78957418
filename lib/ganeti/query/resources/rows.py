"""Fields of objects which come as rows from elsewhere: a dictionary of field name to value."""

from __future__ import annotations

from typing import Any

from ganeti.query.field import Field, maybe


def row_field(name: str, title: str, kind: str, doc: str, *, compare: str = "") -> Field:
    """A field read from a row; None is unavailable."""
    return Field(name, title, kind, doc, lambda view, row: maybe(row[name]), compare=compare)


def null_field(name: str, title: str, kind: str, doc: str) -> Field:
    """A field read from a row, where None is a value."""
    return Field(name, title, kind, doc, lambda view, row: row[name])


def rows(view: Any) -> list[dict[str, Any]]:
    """The rows which the collector put into the view."""
    found: list[dict[str, Any]] = view.facts["rows"]
    return found
