"""Answers about the objects of the cluster: the configuration, and live data where needed.

===================== ===================================================================
:mod:`.service`       the queries, and the live data which they need
:mod:`.guests`        what guests use, and what they wrote to their consoles
:mod:`.images`        the catalogue of disk images
:mod:`.without_job`   opcodes that only read, without a job
:mod:`.cluster`       the cluster as a whole
:mod:`.pages`         lists which are filtered, ordered and divided into pages
:mod:`.past`          objects as an earlier state of the configuration has them
===================== ===================================================================

:class:`QueryService` is what logical units use (:class:`ganeti.cmdlib.base.Queries`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ganeti.master.queries.cluster import cluster_info, config_values
from ganeti.master.queries.service import query, query_fields, query_values, watcher_pause

if TYPE_CHECKING:
    from ganeti.cmdlib.base import FieldValue, MasterContext
    from ganeti.query.engine import FieldsAnswer, QueryAnswer

__all__ = [
    "QueryService",
    "cluster_info",
    "config_values",
    "query",
    "query_fields",
    "query_values",
    "watcher_pause",
]


class QueryService:
    """Answers queries of logical units from the services of one master daemon."""

    def __init__(self, context: MasterContext) -> None:
        self._context = context

    def query(self, what: str, fields: Sequence[str], qfilter: Any = None, /) -> QueryAnswer:
        """Answer the LUXI request ``Query``; see :func:`.service.query`."""
        return query(self._context, what, fields, qfilter)

    def query_fields(self, what: str, names: Sequence[str] | None = None, /) -> FieldsAnswer:
        """Answer the LUXI request ``QueryFields``; see :func:`.service.query_fields`."""
        return query_fields(what, names)

    def query_values(
        self, what: str, names: Sequence[str | int] | None, fields: Sequence[str], /
    ) -> list[list[FieldValue]]:
        """Answer the older queries; see :func:`.service.query_values`."""
        return query_values(self._context, what, names, fields)

    def cluster_info(self) -> dict[str, FieldValue]:
        """Answer ``QueryClusterInfo``: name -> value."""
        return cluster_info(self._context)

    def config_values(self, names: Sequence[str], /) -> list[FieldValue]:
        """Answer ``QueryConfigValues``: the values of the named fields."""
        return config_values(self._context, names)
