"""Pages of long lists, for the REST interface; :mod:`ganeti.query.page` says what a page is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti.constants import query as query_c
from ganeti.master.queries import service
from ganeti.query import engine, page, resources
from ganeti.query import filter as query_filter
from ganeti.query.field import Resource
from ganeti.utils.effort import Effort

if TYPE_CHECKING:
    from ganeti.cmdlib.base import MasterContext
    from ganeti.objects import ConfigData
    from ganeti.query.page import PageAnswer


_names = page.NameOrder()


def query_page(
    context: MasterContext,
    what: str,
    fields: Sequence[str],
    qfilter: Any,
    request: Mapping[str, Any],
    effort: Effort | None = None,
) -> PageAnswer:
    """Answer ``QueryPage``.

    :param what: kind of object, one of ``constants.query.RESOURCES``.
    :param fields: names of fields; an unknown one gives cells of status unknown.
    :param qfilter: a filter as text or in the JSON form; None for everything.
    :param request: as of :func:`ganeti.query.page.parse_request`.
    :param effort: the work of the request, which ends when its client has gone.
    :raises errors.OpPrereqError: no such kind of object.
    :raises errors.QueryFilterParseError: the text is not a filter; it has the column.
    :raises errors.ParameterError: the filter or the request is malformed, or takes too much work.
    """
    resource = resources.lookup(what)
    wanted = page.parse_request(request)
    order_fields = page.order_fields(resource, wanted)
    if isinstance(qfilter, str):
        qfilter = query_filter.parse(qfilter)
    if wanted.within is not None:
        both = [query_filter.OP_AND, wanted.within, qfilter]
        qfilter = wanted.within if qfilter is None else both
    first = [*fields, *order_fields]
    if resource.name == query_c.JOB:
        # Most values of a job are large; only those of the page are read. A list with this field
        # also has the archived jobs.
        first = [*order_fields, *(name for name in fields if name == "archived")]
    qfilter, view = service.prepare(context, resource, first, qfilter)
    state = _state(resource, view.config, [*fields, *order_fields], qfilter)
    if state is not None and state == wanted.known:
        return {"answer": None, "total": 0, "next": None, "next_offset": None, "state": state}

    def complete(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return service.job_rows(context, fields, [row["id"] for row in rows])

    found = page.run(
        resource,
        view,
        fields,
        qfilter,
        wanted,
        service.LiveData(context),
        effort or Effort(),
        complete if resource.name == query_c.JOB else list,
        _names,
    )
    found["state"] = state
    return found


def _state(
    resource: Resource, config: ConfigData, fields: Sequence[str], qfilter: Any
) -> str | None:
    """Return the name of the present state of the configuration.

    :returns: None if the answer also depends on other things: what nodes answer, or the queue.
    """
    condition = query_filter.compile_filter(qfilter, resource)
    names = [*fields, *(condition.field_names if condition is not None else ())]
    if not resource.table or engine.live_needs(resource, names):
        return None
    cluster = config.cluster
    return f"{cluster.uuid}-{config.serial_no}-{config.mtime!r}"
