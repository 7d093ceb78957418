"""The pages of the monitoring daemon.

=================================== ================================================================
``/``                               the supported versions of this interface
``/1/``                             null
``/1/list/collectors``              name, category and kind of each active collector
``/1/report/all``                   all reports
``/1/report/CATEGORY/COLLECTOR``    one report; ``default`` is the category of those without one
``/metrics``                        the same for OpenMetrics
=================================== ================================================================

All but the last one are published. Every page is for GET; other paths give status 404.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ganeti.http import messages
from ganeti.http.event_server import Accepted, Incoming
from ganeti.http.messages import Refused, Response
from ganeti.mond import openmetrics
from ganeti.mond.registry import Registry
from ganeti.mond.report import CollectorError
from ganeti.wire import json

API_VERSIONS: Final = [1]
_DEFAULT: Final = "default"
_TEXT: Final = "text/plain; charset=utf-8"
_PREFIX: Final = "/1/report/"


class MonitoringApplication:
    """Answers requests; the data are collected in threads.

    :param allowed: says whether the machine with an address may read.
    :param extra: returns families of metrics besides those of the collectors.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        allowed: Callable[[str], bool] = lambda _address: True,
        extra: Callable[[], list[openmetrics.Family]] = list,
    ) -> None:
        self._registry = registry
        self._allowed = allowed
        self._extra = extra

    async def begin(self, incoming: Incoming) -> Accepted | Response:
        """Find the page of a request.

        :raises Refused: 403 for a machine that may not read, 404 for an unknown path, 405 for
            another method than GET.
        """
        head = incoming.head
        if not self._allowed(incoming.peer):
            raise Refused(403, "this address may not read the monitoring data of this node")
        if head.method not in ("GET", "HEAD"):
            raise Refused(405, "every page is for GET", headers=[("Allow", "GET")])
        page = self._page(messages.decode_path(head.path))

        async def answer(_body: bytes) -> Response:
            return await asyncio.to_thread(page)

        return Accepted("", answer, most_body_bytes=0)

    def refusal(self, refused: Refused) -> Response:
        """Return the answer to a refused request, with the reason."""
        return Response(
            refused.status, f"{refused}\n".encode(), [("Content-Type", _TEXT), *refused.headers]
        )

    def _page(self, path: str) -> Callable[[], Response]:
        """Return the function which makes a page.

        :raises Refused: 404 for an unknown path.
        """
        if path == "/metrics":
            return self._metrics
        fixed: dict[str, Callable[[], Any]] = {
            "/": lambda: API_VERSIONS,
            "/1": lambda: None,
            "/1/": lambda: None,
            "/1/list/collectors": self._list,
            "/1/report/all": self._registry.reports,
        }
        if path in fixed:
            return lambda: _json(fixed[path]())
        category, slash, name = path.removeprefix(_PREFIX).partition("/")
        if path.startswith(_PREFIX) and slash:
            return lambda: self._report(category, name)
        raise Refused(404, "there is no such page")

    def _list(self) -> list[list[Any]]:
        return [[one.name, one.category or _DEFAULT, one.kind] for one in self._registry.active()]

    def _report(self, category: str, name: str) -> Response:
        collector = self._registry.find(None if category == _DEFAULT else category, name)
        if collector is None:
            raise Refused(404, "there is no such collector, or it is not active")
        try:
            return _json(self._registry.report(collector))
        except CollectorError as err:
            raise Refused(404, f"collector {name} has no data: {err}") from err

    def _metrics(self) -> Response:
        families = openmetrics.of_reports(self._registry.reports())
        families += openmetrics.of_durations(self._registry.durations_s())
        families += self._extra()
        return Response(
            200, openmetrics.render(families).encode(), [("Content-Type", openmetrics.CONTENT_TYPE)]
        )


def _json(value: Any) -> Response:
    return Response(200, json.dumps(value).encode(), [("Content-Type", messages.JSON)])
