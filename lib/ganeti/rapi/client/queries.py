"""Queries with filters, and the filter rules of the job queue."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .transport import Transport, options


def _rule(
    priority: int, predicates: Sequence[Any], action: Any, reason_trail: Sequence[Any] | None
) -> dict[str, Any]:
    return {
        "priority": priority,
        "predicates": predicates,
        "action": action,
        "reason": reason_trail or [],
    }


class Queries(Transport):
    """Queries with filters, and the filter rules of the job queue."""

    def Query(
        self,
        what: str,
        fields: Sequence[str],
        qfilter: Sequence[Any] | None = None,
        reason: str | None = None,
        names: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Query objects selected by a filter or by names; return ``fields`` and ``data``.

        :param names: the answer has their order; an unknown name is an error.
        """
        body: dict[str, Any] = {"fields": fields}
        if names is not None:
            body["names"] = names
        if qfilter is not None:
            body["qfilter"] = qfilter
        return dict(self._put(self._path("query", what), options(reason), body))

    def QueryFields(
        self, what: str, fields: Sequence[str] | None = None, reason: str | None = None
    ) -> dict[str, Any]:
        """Return the fields of a kind of object."""
        wanted = ",".join(fields) if fields is not None else None
        return dict(self._get(self._path("query", what, "fields"), options(reason, fields=wanted)))

    def GetFilters(self, bulk: bool = False) -> list[Any]:
        """Return the UUIDs of the filter rules, or whole rules."""
        return list(self._list("filters", "uuid", bulk, None))

    def GetFilter(self, filter_uuid: str) -> dict[str, Any]:
        """Return the description of a filter rule."""
        return dict(self._get(self._path("filters", filter_uuid)))

    def AddFilter(
        self,
        priority: int,
        predicates: Sequence[Any],
        action: Any,
        reason_trail: Sequence[Any] | None = None,
    ) -> str:
        """Add a filter rule; return its UUID."""
        rule = _rule(priority, predicates, action, reason_trail)
        return str(self._post(self._path("filters"), None, rule))

    def ReplaceFilter(
        self,
        uuid: str,
        priority: int,
        predicates: Sequence[Any],
        action: Any,
        reason_trail: Sequence[Any] | None = None,
    ) -> str:
        """Replace a filter rule, or add one with this UUID."""
        rule = _rule(priority, predicates, action, reason_trail)
        return str(self._put(self._path("filters", uuid), None, rule))

    def DeleteFilter(self, uuid: str) -> None:
        """Remove a filter rule."""
        self._delete(self._path("filters", uuid))
