"""Answer queries.

:func:`run` works in passes: first the filter is applied to the configuration alone. If a requested
field or the filter needs live data, the ``source`` collects it for the remaining objects, all at
the same time; then the filter is applied again with all data, and the rows are made.

All of this is counted as the effort of the query, which is limited, and which ends when the client
has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from ganeti import errors
from ganeti.query import filter as query_filter
from ganeti.query.field import HOSTNAME, UNKNOWN, Field, Mark, Resource, Source, unknown_definition
from ganeti.query.filter import Condition
from ganeti.query.view import by_name, prefixes
from ganeti.utils.effort import Effort
from ganeti.utils.text import natural_key

#: Largest number of values of a query: all fields of a very large cluster. Each takes 100 bytes.
MAX_CELLS = 5_000_000


class FieldsAnswer(TypedDict):
    """The answer to ``QueryFields``: for each field its name, title, kind and doc."""

    fields: list[dict[str, str]]


class QueryAnswer(FieldsAnswer):
    """The answer to ``Query``: the fields, and a row of ``[status, value]`` for each object."""

    data: list[list[list[Any]]]


def definitions(resource: Resource, names: Sequence[str] | None) -> FieldsAnswer:
    """Return the answer to ``QueryFields``: the named fields, or all fields sorted by name."""
    wanted = names or sorted(resource.fields, key=natural_key)
    return {"fields": [_definition(resource, name) for name in wanted]}


def _definition(resource: Resource, name: str) -> dict[str, str]:
    field = resource.field(name)
    return unknown_definition(name) if field is None else {**field.definition(), "name": name}


def live_needs(resource: Resource, names: Sequence[str]) -> frozenset[str]:
    """Return the names of the live data which fields need."""
    found = (resource.field(name) for name in names)
    return frozenset(field.live for field in found if field is not None and field.live)


def run(
    resource: Resource,
    view: Any,
    names: Sequence[str],
    qfilter: Any,
    source: Source,
    effort: Effort | None = None,
) -> QueryAnswer:
    """Return the answer to ``Query``.

    :param names: the requested fields; for a field which does not exist, all values are unknown.
    :param qfilter: the JSON form of a filter, or None for all objects.
    :param source: collects live data.
    :param effort: the work of the request; None for one of its own.
    :raises errors.ParameterError: the filter is malformed, names an unknown field, or compares
        values of different types, or the query has too many conditions, objects or fields.
    :raises errors.NoMasterError: the client has gone, or the daemon stops.
    """
    effort = effort or Effort()
    items, _columns = select(resource, view, names, qfilter, source, effort)
    return answer(resource, view, names, items, source, effort)


def answer(
    resource: Resource,
    view: Any,
    names: Sequence[str],
    items: Sequence[Any],
    source: Source,
    effort: Effort,
) -> QueryAnswer:
    """Make the rows of objects; collect the live data which the view does not have yet.

    :raises errors.ParameterError: there are too many values.
    :raises errors.NoMasterError: the client has gone, or the daemon stops.
    """
    check_cells(len(items), len(names))
    needs = live_needs(resource, names)
    if needs and items:
        missing = needs.difference(view.live)
        if missing:
            source.collect(view, missing, list(items))
    columns = [resource.field(name) for name in names]
    getters = [column.get if column is not None else _unknown for column in columns]
    data = []
    # The values have a limit of their own.
    effort.renew()
    for item in items:
        effort.spend(len(getters))
        row = []
        for get in getters:
            value = get(view, item)
            row.append(value.cell if value.__class__ is Mark else [0, value])
        data.append(row)
    return {"fields": [_definition(resource, name) for name in names], "data": data}


def check_cells(objects: int, fields: int) -> None:
    """Check the number of values of an answer.

    :raises errors.ParameterError: it is above :data:`MAX_CELLS`.
    """
    if objects * fields > MAX_CELLS:
        raise errors.ParameterError(
            f"{fields} fields of {objects} objects are more than {MAX_CELLS} values. Ask for fewer"
            " fields, or for some of the objects."
        )


def select(
    resource: Resource,
    view: Any,
    names: Sequence[str],
    qfilter: Any,
    source: Source,
    effort: Effort,
    *,
    in_order: bool = True,
) -> tuple[list[Any], list[Field | None]]:
    """Return the objects which match the filter; collect the live data for ``names``.

    Objects which the filter names are in the order in which it names them, all others in natural
    order.

    :param in_order: False where the caller sorts the objects.

    :raises errors.ParameterError: as for :func:`run`.
    """
    compiled = query_filter.compile_filter(qfilter, resource, effort)
    columns = [resource.field(name) for name in names]
    items = _candidates(resource, view, qfilter)
    if compiled is not None:
        items = _matching(items, compiled, lambda item: compiled.may_match(view, item), effort)
    if in_order:
        if resource.table:
            items = by_name(items)
        items = _in_requested_order(resource, view, items, qfilter)
    filter_fields = compiled.field_names if compiled is not None else frozenset()
    needs = live_needs(resource, [*names, *filter_fields])
    if needs and items:
        source.collect(view, needs, items)
        if compiled is not None and live_needs(resource, tuple(filter_fields)):
            items = _matching(items, compiled, lambda item: compiled.matches(view, item), effort)
    return items, columns


def _matching(
    items: list[Any], condition: Condition, test: Callable[[Any], bool], effort: Effort
) -> list[Any]:
    """Return the objects which pass a test of a filter.

    :raises errors.ParameterError: the conditions times the objects are more than is allowed.
    """
    if len(items) * condition.comparisons > effort.left:
        raise errors.ParameterError(
            f"{condition.comparisons} conditions for each of {len(items)} objects take too much"
            " work. Ask for some of the objects by name, or with fewer conditions."
        )
    found = []
    for item in items:
        effort.spend(condition.comparisons)
        if test(item):
            found.append(item)
    return found


def _candidates(resource: Resource, view: Any, qfilter: Any) -> list[Any]:
    """Return all objects, or the few which can match the filter."""
    wanted = query_filter.pinned(qfilter, resource) if resource.table else None
    if wanted is None:
        return resource.items(view)
    name, values = wanted
    found: list[Any] = view.pick(
        resource.table, name, values, components=resource.fields[name].compare == HOSTNAME
    )
    return found


def _in_requested_order(resource: Resource, view: Any, items: list[Any], qfilter: Any) -> list[Any]:
    """Put objects which the filter names into the order in which it names them."""
    parts = [qfilter]
    if isinstance(qfilter, (list, tuple)) and qfilter and qfilter[0] == query_filter.OP_AND:
        parts = list(qfilter[1:])
    for part in parts:
        requested = query_filter.requested_names(part, resource.name_field)
        if requested is not None:
            break
    else:
        return items
    if len(requested) < 2:
        return items
    field = resource.fields[resource.name_field]
    place: dict[str, int] = {}
    for number, name in enumerate(requested):
        place.setdefault(str(name), number)

    def requested_place(item: Any) -> int:
        value = str(field.get(view, item))
        spellings = [value, *(reversed(prefixes(value)) if field.compare == HOSTNAME else ())]
        return next((place[one] for one in spellings if one in place), len(place))

    return sorted(items, key=requested_place)


def _unknown(view: Any, item: Any) -> Mark:
    return UNKNOWN
