"""What the cluster knows about its work: queue, events, history, audit log, earlier states.

Answers with a member ``next`` are sent page by page: give it as ``before`` to get the next page; it
is None at the end.
"""

# ruff: noqa: N802 - named like the published methods

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .transport import Transport, options

_COMMON = ("object", "user", "job", "since", "until")


def _checked(chosen: Mapping[str, Any], more: Sequence[str]) -> Mapping[str, Any]:
    """Return what a caller has chosen; the server ignores an argument which it does not know."""
    for name in chosen:
        if name not in (*_COMMON, *more):
            raise TypeError(f"there is no argument '{name}'")
    return chosen


class Records(Transport):
    """What the cluster knows about its work."""

    def ExplainJob(self, job_id: int | str) -> dict[str, Any]:
        """Return why a job waits: ``reasons``, the ``chain`` of jobs, and ``lines`` of text."""
        return dict(self._get(self._path("jobs", job_id, "explain")))

    def ExplainJobs(self, job_ids: Sequence[int | str]) -> list[dict[str, Any] | None]:
        """Return why each of these jobs waits, without chains; None for an unknown job."""
        ids = ",".join(str(job_id) for job_id in job_ids)
        return list(self._get(self._path("jobs", "explain"), options(ids=ids)))

    def GetQueue(self, limit: int | None = None) -> dict[str, Any]:
        """Return the ``jobs`` that have not ended in their predicted order, and the ``locks``."""
        return dict(self._get(self._path("queue"), options(limit=limit)))

    def GetEvents(
        self,
        after: str | None = None,
        wait: int | None = None,
        *,
        kinds: Sequence[str] = (),
        kind: Sequence[str] = (),
        name: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return ``events`` after a position, ``last``, the position of the newest, and ``lost``.

        :param after: ``last`` of the answer before, or ``oldest`` for all that the master has; None
            for the present position.
        :param wait: seconds to wait for the first one, at most 60.
        :param kinds: ``job`` and ``instance``, in their short form.
        :param kind: kinds with what is known about each event; ``*`` for all.
        :param name: names of objects, or patterns.
        """
        short, complete, names = (",".join(words) or None for words in (kinds, kind, name))
        query = options(after=after, wait=wait, kinds=short, kind=complete, name=names)
        return dict(self._get(self._path("events", "log"), query))

    def GetFailoverStatus(self) -> dict[str, Any]:
        """Return the ``master``, and what the ``nodes`` and the ``witness`` know about it."""
        return dict(self._get(self._path("failover-status")))

    def GetFindings(
        self,
        severity: str | None = None,
        *,
        object: str | None = None,  # noqa: A002 - the name of the argument
        name: str | None = None,
        group: str | None = None,
    ) -> dict[str, Any]:
        """Return the last ``findings`` of verifications, and when each of the ``parts`` was one.

        :param severity: only ``error`` or ``warning``.
        :param object: only findings about objects of this kind, such as ``node``.
        :param name: only those about the object with this name.
        :param group: only those of the verification of this node group.
        """
        query = options(severity=severity, object=object, name=name, group=group)
        return dict(self._get(self._path("verify"), query))

    def GetHistory(
        self, limit: int | None = None, before: int | None = None, **chosen: Any
    ) -> dict[str, Any]:
        """Return ``commits`` of the configuration, the newest first, and ``next``.

        :param chosen: only some of them: ``object`` (name or UUID), ``kind``, ``opcode``, ``user``,
            ``job``, ``since`` and ``until`` (seconds since 1970).
        """
        return self._page("history", limit, before, _checked(chosen, ("kind", "opcode")))

    def GetAudit(
        self, limit: int | None = None, before: int | None = None, **chosen: Any
    ) -> dict[str, Any]:
        """Return ``entries`` of the audit log, the newest first, and ``next``.

        :param chosen: only some of them: ``object`` (name), ``event``, ``status``, ``user``,
            ``job``, ``since`` and ``until`` (seconds since 1970).
        """
        return self._page("audit", limit, before, _checked(chosen, ("event", "status")))

    def _page(
        self, kind: str, limit: int | None, before: int | None, chosen: Mapping[str, Any]
    ) -> dict[str, Any]:
        return dict(self._get(self._path(kind), options(limit=limit, before=before, **chosen)))

    # -- earlier states of the configuration -----------------------------------------------------

    def GetInfoAt(self, serial: int) -> dict[str, Any]:
        """Return the description of the cluster in the state with this serial number."""
        return dict(self._get(self._path("at", serial, "info")))

    def GetInstancesAt(self, serial: int, bulk: bool = False) -> list[Any]:
        """Return the names of the instances in that state, or whole objects."""
        return list(self._list(f"at/{serial}/instances", "id", bulk, None))

    def GetInstanceAt(self, serial: int, instance: str) -> dict[str, Any]:
        """Return an instance as it was in that state."""
        return dict(self._get(self._path("at", serial, "instances", instance)))

    def GetNodesAt(self, serial: int, bulk: bool = False) -> list[Any]:
        """Return the names of the nodes in that state, or whole objects."""
        return list(self._list(f"at/{serial}/nodes", "id", bulk, None))

    def GetNodeAt(self, serial: int, node: str) -> dict[str, Any]:
        """Return a node as it was in that state."""
        return dict(self._get(self._path("at", serial, "nodes", node)))

    def GetGroupsAt(self, serial: int, bulk: bool = False) -> list[Any]:
        """Return the names of the node groups in that state, or whole objects."""
        return list(self._list(f"at/{serial}/groups", "name", bulk, None))

    def GetGroupAt(self, serial: int, group: str) -> dict[str, Any]:
        """Return a node group as it was in that state."""
        return dict(self._get(self._path("at", serial, "groups", group)))

    def GetNetworksAt(self, serial: int, bulk: bool = False) -> list[Any]:
        """Return the names of the networks in that state, or whole objects."""
        return list(self._list(f"at/{serial}/networks", "name", bulk, None))

    def GetNetworkAt(self, serial: int, network: str) -> dict[str, Any]:
        """Return a network as it was in that state."""
        return dict(self._get(self._path("at", serial, "networks", network)))
