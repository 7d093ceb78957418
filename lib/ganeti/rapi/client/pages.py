"""Lists which the server filters, orders and divides into pages."""

# ruff: noqa: N802 - the names of methods are like the published ones

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from .constants import HTTP_GET, HTTP_PUT
from .transport import Transport, options

_NEXT = re.compile(r'<([^>]*)>\s*;\s*rel="?next"?')


class Page(NamedTuple):
    """A part of a list.

    :ivar items: the objects, or their names; for a query its rows of [status, value].
    :ivar total: number of objects on all pages.
    :ivar next: the arguments with which the same function returns the next page, such as
        ``{"after": "web9"}``; None on the last page.
    """

    items: list[Any]
    total: int
    next: dict[str, Any] | None


def _following(link: str) -> dict[str, Any] | None:
    """Return the arguments for the next page, from the header ``Link``."""
    found = _NEXT.search(link)
    if found is None:
        return None
    given = dict(parse_qsl(found[1].partition("?")[2]))
    if "after" in given:
        return {"after": given["after"]}
    return {"offset": int(given["offset"])}


class Pages(Transport):
    """Lists which the server filters, orders and divides into pages."""

    def GetPage(
        self,
        kind: str,
        qfilter: str | None = None,
        sort: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        offset: int | None = None,
        fields: Sequence[str] | None = None,
        reason: str | None = None,
    ) -> Page:
        """Return a page of objects: these fields of each, or their names.

        :param kind: ``instances``, ``nodes``, ``groups``, ``networks`` or ``jobs``.
        :param qfilter: an expression, such as ``status == "running"``.
        :param sort: fields separated by commas; a minus reverses the order of a field.
        :param limit: number of objects; 0 to learn the number of all.
        :param after: the place which the page before gives.
        :param offset: number of objects which are left out before the page.
        """
        query = options(
            reason,
            filter=qfilter,
            sort=sort,
            limit=limit,
            fields=None if fields is None else ",".join(fields),
            **_place(after, offset),
        )
        headers: dict[str, str] = {}
        found = list(self._SendRequest(HTTP_GET, self._path(kind), query, None, headers))
        if fields is None:
            found = [one["id"] if "id" in one else one["name"] for one in found]
        return _page(found, headers)

    def QueryPage(
        self,
        what: str,
        fields: Sequence[str],
        qfilter: Sequence[Any] | None = None,
        sort: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        offset: int | None = None,
        reason: str | None = None,
    ) -> Page:
        """Return a page of a query: for each object a list with [status, value] of each field.

        :param what: kind of the objects, such as ``instance``.
        :param qfilter: a filter in list form; None for all objects.
        """
        body: dict[str, Any] = {"fields": fields}
        if qfilter is not None:
            body["qfilter"] = qfilter
        query = options(reason, sort=sort, limit=limit, **_place(after, offset))
        headers: dict[str, str] = {}
        found = self._SendRequest(HTTP_PUT, self._path("query", what), query, body, headers)
        return _page(list(found["data"]), headers)

    def GetAll(self, kind: str, page_size: int = 500, **arguments: Any) -> Iterator[Any]:
        """Give all objects of a list, one page after the other.

        Objects which come or go meanwhile may be missing or not; all others are given once each.

        :param arguments: as of :meth:`GetPage`, without the place.
        """
        place: dict[str, Any] | None = {}
        while place is not None:
            page = self.GetPage(kind, limit=page_size, **arguments, **place)
            yield from page.items
            place = page.next


def _place(after: str | None, offset: int | None) -> dict[str, Any]:
    if after is None:
        # This asks for a page, also where nothing else does.
        return {"offset": offset or 0}
    return {"after": after, "offset": offset}


def _page(items: list[Any], headers: dict[str, str]) -> Page:
    total = headers.get("x-total-count")
    return Page(
        items, len(items) if total is None else int(total), _following(headers.get("link", ""))
    )
