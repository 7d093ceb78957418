"""A page of a query: the objects which pass a filter in an order, and of them only some.

A client which shows or reads a long list asks for one page after the other. The place between two
pages is named by the values and the name of the last object of the page before, and not by a
number: when objects come and go in between, no other object is left out or given twice, also when
the last object itself has gone. :func:`run` answers a request, and computes what a page needs:

* the filter and the order see all objects, and nodes are asked about all of them only if a field of
  the filter or of the order needs it;
* values are computed, and nodes asked for them, for the objects of the page alone.

Objects without a value in a field of the order follow those which have one, in both directions, and
equal ones are in the order of their names.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from ganeti import errors
from ganeti.query import engine, order
from ganeti.query.engine import QueryAnswer
from ganeti.query.field import Field, Mark, Resource, Source
from ganeti.utils.effort import Effort
from ganeti.utils.text import brief
from ganeti.wire import json

#: The largest size of a place as JSON text; it is sent in a URL.
MAX_PLACE: Final = 2000
#: The largest number of objects which may be left out by their number.
MAX_OFFSET: Final = 1 << 40
# Lists in a place are lists of names, or pairs such as a time.
_MAX_DEPTH: Final = 4
_MEMBERS: Final = ("after", "known", "limit", "offset", "order", "within")


class PageAnswer(TypedDict):
    """The answer to ``QueryPage``.

    :ivar answer: fields and rows, as of ``Query``; None if nothing has changed since the state
        which the client knows.
    :ivar total: number of all objects which pass the filter.
    :ivar next: the place after this page, for ``after``; None if it is the last one.
    :ivar next_offset: for an order whose values are too long for a place, the number of objects
        before the next page; None otherwise.
    :ivar state: names the state of the configuration from which the answer was made; None if other
        things than the configuration decide what it is.
    """

    answer: QueryAnswer | None
    total: int
    next: list[Any] | None
    next_offset: int | None
    state: str | None


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which part of the list is wanted.

    :ivar order: pairs of a field and whether its order is reversed; the name decides between equal
        objects, and orders all of them if no field is given.
    :ivar limit: number of objects; None for all, and 0 to learn their number alone.
    :ivar after: the place after which the page begins: a value for each field of the order, the
        name, and, where several objects have the same name, how many of them were in earlier pages.
    :ivar offset: number of objects before the page; with `after` counted from there.
    :ivar known: the state which the client knows.
    :ivar within: a second filter, in list form, which the objects must pass, too: that of what the
        user may see; None for none.
    """

    order: tuple[tuple[str, bool], ...] = ()
    limit: int | None = None
    after: tuple[Any, ...] | None = None
    offset: int = 0
    known: str | None = None
    within: list[Any] | None = None


def parse_request(values: Mapping[str, Any]) -> PageRequest:
    """Read a request in the form of LUXI: ``order`` is a text such as ``pnode,-be/maxmem``.

    :raises errors.ParameterError: a member is unknown or wrong.
    """
    unknown = sorted(set(values) - set(_MEMBERS))
    if unknown:
        raise errors.ParameterError(
            f"there is no member {brief(unknown[0])} of a page. Known are {', '.join(_MEMBERS)}."
        )
    text = values.get("order") or ""
    known = values.get("known")
    if not isinstance(text, str) or not isinstance(known, str | None):
        raise errors.ParameterError("members 'order' and 'known' of a page must be text")
    within = values.get("within")
    if not isinstance(within, list | None):
        raise errors.ParameterError("member 'within' of a page must be a filter in list form")
    found = tuple(order.parse_order(text, "the order")) if text else ()
    return PageRequest(
        found,
        _count("limit", values.get("limit")),
        _place(values.get("after"), len(found)),
        _count("offset", values.get("offset")) or 0,
        known,
        within,
    )


def _count(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_OFFSET:
        raise errors.ParameterError(
            f"'{name}' must be a number from 0 to {MAX_OFFSET}, not {brief(value)}"
        )
    return value


def _place(value: Any, fields: int) -> tuple[Any, ...] | None:
    if value is None:
        return None
    wanted = f"{fields} values and a name" if fields else "a name"
    if (
        not isinstance(value, list)
        or len(value) not in (fields + 1, fields + 2)
        or not all(_is_value(one, 0) for one in value)
        or not isinstance(value[fields], str | int)
    ):
        raise errors.ParameterError(
            f"a place after which a page of this order begins has {wanted}, not {brief(value)}."
            " Take it from the page before."
        )
    if len(value) == fields + 2:
        _count("number of equal objects", value[-1] if value[-1] is not None else -1)
    return tuple(value)


def _is_value(value: Any, depth: int) -> bool:
    if isinstance(value, list):
        return depth < _MAX_DEPTH and all(_is_value(one, depth + 1) for one in value)
    return value is None or isinstance(value, str | int | float)


def order_fields(resource: Resource, request: PageRequest) -> list[str]:
    """Return the names of the fields by which a page is ordered.

    :raises errors.ParameterError: there is no such field.
    """
    names = [name for name, _ in request.order]
    for name in names:
        if resource.field(name) is None:
            raise errors.ParameterError(order.cannot_sort_by(name, resource.fields))
    return names


def run(
    resource: Resource,
    view: Any,
    names: Sequence[str],
    qfilter: Any,
    request: PageRequest,
    source: Source,
    effort: Effort,
    complete: Callable[[list[Any]], list[Any]] = list,
    names_kept: NameOrder | None = None,
) -> PageAnswer:
    """Return a page.

    :param names: the requested fields, as of :func:`ganeti.query.engine.run`.
    :param source: collects live data.
    :param complete: returns the objects of the page with all values, where those which were ordered
        have only some; it may leave out those which have gone.
    :param names_kept: the orders of names which are kept between requests.
    :raises errors.ParameterError: as of :func:`ganeti.query.engine.run`, and for a field of the
        order which does not exist.
    :raises errors.NoMasterError: the client has gone, or the daemon stops.
    """
    fields = order_fields(resource, request)
    items, _columns = engine.select(resource, view, fields, qfilter, source, effort, in_order=False)
    sorter = _Sorter(resource, view, request.order)
    effort.spend(len(items) * (len(fields) + 1))
    if request.limit != 0:
        ranks = (names_kept or NameOrder()).ranks(resource, view)
        items = sorter.ordered(items, ranks)
    start = request.offset
    if request.after is not None and request.limit != 0:
        start += sorter.place(items, request.after)
    end = len(items) if request.limit is None else min(len(items), start + request.limit)
    shown = items[start:end]
    rest = bool(request.limit) and end < len(items)
    following = sorter.after(items, end) if rest else None
    answer = engine.answer(resource, view, names, complete(shown), source, effort)
    return {
        "answer": answer,
        "total": len(items),
        "next": following,
        # The number of objects before the page counts from the beginning.
        "next_offset": end if rest and following is None else None,
        "state": None,
    }


def _name_key(name: Any) -> tuple[Any, ...]:
    """Return the key of a name; no two names have the same, as ``web1`` and ``web01`` would."""
    return (order.sort_key(name), str(name))


class NameOrder:
    """The order of the names of all objects of a kind, kept from one request to the next.

    To compare names in natural order takes longer than everything else for a page of a long list,
    and names seldom change. May be used by several threads.
    """

    def __init__(self) -> None:
        # Table -> UUID -> name, and UUID -> place.
        self._kept: dict[str, tuple[dict[str, str], dict[str, int]]] = {}

    def ranks(self, resource: Resource, view: Any) -> Mapping[str, int] | None:
        """Return the place of each object of a table of the configuration, by its UUID.

        :returns: None for objects which are not in the configuration, or have no names there.
        """
        if not resource.table or resource.name_field != "name":
            return None
        objects = getattr(view.config, resource.table)
        kept = self._kept.get(resource.table)
        names = {uuid: one.name for uuid, one in objects.items()}
        if kept is None or kept[0] != names:
            ordered = sorted(names, key=lambda uuid: _name_key(names[uuid]))
            kept = names, {uuid: place for place, uuid in enumerate(ordered)}
            self._kept[resource.table] = kept
        return kept[1]


class _Sorter:
    """The order of a page."""

    def __init__(self, resource: Resource, view: Any, wanted: order.Order) -> None:
        self._view = view
        self._order = wanted
        self._name = resource.fields[resource.name_field]
        self._getters = {name: _require(resource, name).get for name, _ in wanted}

    def ordered(self, items: list[Any], ranks: Mapping[str, int] | None) -> list[Any]:
        """Return objects in the order, and those which are equal in it by name.

        :param ranks: as of :meth:`NameOrder.ranks`.
        """
        if ranks is None:
            by_name = sorted(items, key=lambda item: _name_key(self._name_of(item)))
        else:
            by_name = sorted(items, key=lambda item: ranks[item.uuid])
        return order.ordered(by_name, self._order, self._value)

    def _value(self, item: Any, name: str) -> Any:
        value = self._getters[name](self._view, item)
        return order.MISSING if value.__class__ is Mark else value

    def _name_of(self, item: Any) -> Any:
        return self._name.get(self._view, item)

    def _key(self, item: Any) -> tuple[Any, ...]:
        values = [self._value(item, name) for name, _ in self._order]
        return self._key_of(values, self._name_of(item))

    def _key_of(self, values: Sequence[Any], name: Any) -> tuple[Any, ...]:
        """Return a key by which objects are compared in the order."""
        found: list[tuple[int, Any]] = []
        for value, (_field, reverse) in zip(values, self._order, strict=True):
            if value is order.MISSING:
                found.append((1, ()))
            else:
                key = order.sort_key(value)
                found.append((0, _Reversed(key) if reverse else key))
        return (found, _name_key(name))

    def place(self, items: list[Any], after: Sequence[Any]) -> int:
        """Return the number of objects up to a place."""
        count = len(self._order)
        values = [order.MISSING if value is None else value for value in after[:count]]
        key = self._key_of(values, after[count])
        right = bisect.bisect_right(items, key, key=self._key)
        if len(after) == count + 1:
            return right
        return min(right, bisect.bisect_left(items, key, key=self._key) + int(after[count + 1]))

    def after(self, items: list[Any], end: int) -> list[Any] | None:
        """Return the place after the object before `end`; None if its values are too long."""
        last = items[end - 1]
        key = self._key(last)
        values = [self._value(last, name) for name, _ in self._order]
        found = [None if value is order.MISSING else _plain(value) for value in values]
        found.append(_plain(self._name_of(last)))
        if self._key(items[end]) == key:
            # Backups of one instance on several nodes have the same name.
            found.append(end - bisect.bisect_left(items, key, key=self._key))
        return found if len(json.dumps(found)) <= MAX_PLACE else None


class _Reversed:
    """A key which compares the other way round."""

    __slots__ = ("_key",)

    def __init__(self, key: Any) -> None:
        self._key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self._key == other._key)

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other._key < self._key)

    __hash__ = None  # type: ignore[assignment]


def _require(resource: Resource, name: str) -> Field:
    found = resource.field(name)
    assert found is not None, name
    return found


def _plain(value: Any) -> Any:
    """Return a value of a place, which has the same key and no dictionary in it."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
