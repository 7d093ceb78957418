"""The master as a limited user sees it: only his instances, his jobs, and names around them.

Operations ask :attr:`ganeti.rapi.call.Call.master`. For a limited user that is a
:class:`LimitedMaster`, which adds his limits to every question. So an operation does not have to
know about limits, and none can forget them: a LUXI method without a rule here is refused.

Source: ``doc/design-rest-identities.rst``, *Rights*.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from ganeti import opcodes
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.rapi import console_field, limited_ops, selectors
from ganeti.rapi.master import Master
from ganeti.rapi.scope import NOT_COVERED, Limits, missing
from ganeti.rapi.selectors import Facts

# Of the cluster, a limited user gets what he needs to make an instance.
_INFO: Final = (
    "name",
    "uuid",
    "mtime",
    "ctime",
    "software_version",
    "protocol_version",
    "config_version",
    "os_api_version",
    "export_version",
    "architecture",
    "enabled_hypervisors",
    "default_hypervisor",
    "enabled_disk_templates",
    "beparams",
    "nicparams",
    "ipolicy",
    "default_iallocator",
)
_NOBODY: Final = ["=", "id", 0]
# A filter may have so many conditions; the newest jobs are shown.
_MOST_JOBS: Final = 15_000
_Rule = Callable[..., Awaitable[Any]]


class LimitedMaster(Master):
    """Asks the master within the limits of a request.

    :param inner: the master.
    """

    def __init__(self, inner: Master, limits: Limits) -> None:
        super().__init__("")
        self._inner = inner
        self._limits = limits
        self._rules: dict[str, _Rule] = {
            "CancelJob": self._cancel_job,
            "Query": self._query,
            "QueryClusterInfo": self._cluster_info,
            "QueryFields": self._pass("QueryFields"),
            "QueryGroups": self._group_names,
            "QueryInstances": self._query_instances,
            "QueryJobs": self._query_jobs,
            "QueryNodes": self._node_names,
            "QueryPage": self._query_page,
            "QueryTags": self._query_tags,
            "ReadConsoleLog": self._console_log,
            "RunQuery": self._run_query,
            "WaitForJobChange": self._wait_for_job,
        }

    async def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Send a request as far as the limits allow; otherwise as :meth:`Master.call`.

        :raises Refused: 403 for a question which nobody with limits may ask, 404 for an object
            which the user does not see.
        """
        rule = self._rules.get(method)
        if rule is None:
            raise Refused(403, NOT_COVERED)
        return await rule(*args)

    def _pass(self, method: str) -> _Rule:
        async def ask(*args: Any) -> Any:
            return await self._inner.call(method, *args)

        return ask

    # -- instances -------------------------------------------------------------------------------

    async def _query_instances(
        self, names: Sequence[str] | None, fields: Sequence[str], locking: bool = False
    ) -> Any:
        limits = self._limits
        self._check_console(fields)
        if names:
            wanted = [(await self._find(name)).name for name in names]
        else:
            wanted = [one.name for one in await limits.instances(limits.seen)]
        # Without names, the master would return all.
        return await self._inner.call("QueryInstances", wanted, fields, locking) if wanted else []

    async def _query_tags(self, kind: str, name: str) -> Any:
        if kind != query_const.INSTANCE:
            raise Refused(403, NOT_COVERED)
        return await self._inner.call("QueryTags", kind, (await self._find(name)).name)

    async def _find(self, name: str) -> Facts:
        """Return an instance that the user sees.

        :raises Refused: 404, as for an instance that does not exist.
        """
        facts = await self._limits.find(name)
        if facts is None:
            raise missing(name)
        return facts

    async def _console_log(self, name: str, lines: int, position: str) -> Any:
        facts = await self._limits.require(name)
        return await self._inner.call("ReadConsoleLog", facts.name, lines, position)

    def _check_console(self, fields: Sequence[str], qfilter: Any = None, order: str = "") -> None:
        """Refuse the field with the console without the right for the consoles of all he sees.

        :raises Refused: 403.
        """
        if self._limits.console not in (None, self._limits.area):
            console_field.require_none(fields, qfilter, order)

    # -- queries ---------------------------------------------------------------------------------

    async def _query(self, what: str, fields: Sequence[str], qfilter: Any) -> Any:
        if what == query_const.INSTANCE:
            self._check_console(fields, qfilter)
        within = await self._within(what, fields)
        both = within if qfilter is None else qfilter if within is None else ["&", within, qfilter]
        answer = await self._inner.call("Query", what, self._with_facts(what, fields), both)
        return self._checked_rows(what, fields, answer)

    async def _query_page(
        self, what: str, fields: Sequence[str], qfilter: Any, page: Mapping[str, Any]
    ) -> Any:
        if what == query_const.INSTANCE:
            self._check_console(fields, qfilter, page.get("order") or "")
        within = await self._within(what, fields)
        # The state of the configuration says nothing about the rights of the user.
        wanted = {**page, "within": within, "known": None}
        found = await self._inner.call(
            "QueryPage", what, self._with_facts(what, fields), qfilter, wanted
        )
        rows = self._checked_rows(what, fields, found["answer"])
        return {**found, "answer": rows, "state": None}

    async def _within(self, what: str, fields: Sequence[str]) -> Any:
        """Return the filter for what the user may see of a kind of objects; None for everything.

        It comes before a filter of the client: an error of a comparison names values.

        :raises Refused: 403 for a kind, or fields, which tell about others.
        """
        limits = self._limits
        if what == query_const.INSTANCE:
            return limits.filter_of(limits.area)
        if what == query_const.JOB:
            ids = sorted(await limits.visible_jobs(None))[-_MOST_JOBS:]
            return ["|", _NOBODY, *(["=", "id", number] for number in ids)]
        if what == query_const.OS:
            return None
        if what in (query_const.NODE, query_const.GROUP) and set(fields) == {"name"}:
            names = await (limits.nodes() if what == query_const.NODE else limits.groups())
            return selectors.any_of(["==", "name", name] for name in sorted(names))
        raise Refused(403, NOT_COVERED)

    @staticmethod
    def _with_facts(what: str, fields: Sequence[str]) -> list[str]:
        return [*fields, *(selectors.FIELDS if what == query_const.INSTANCE else ())]

    def _checked_rows(
        self, what: str, fields: Sequence[str], answer: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return an answer without the facts, and without instances which no right covers.

        A value that is not known passes every filter, and gives no right.
        """
        if what != query_const.INSTANCE:
            return answer
        count = len(fields)
        rows = [
            row[:count] for row in answer["data"] if self._limits.has(Facts.of_row(row[count:]))
        ]
        return {**answer, "fields": answer["fields"][:count], "data": rows}

    async def _node_names(
        self, names: Sequence[str] | None, fields: Sequence[str], _locking: bool = False
    ) -> Any:
        if names or list(fields) != ["name"]:
            raise Refused(403, NOT_COVERED)
        return [[name] for name in sorted(await self._limits.nodes())]

    async def _group_names(
        self, names: Sequence[str] | None, fields: Sequence[str], _locking: bool = False
    ) -> Any:
        if names or list(fields) != ["name"]:
            raise Refused(403, NOT_COVERED)
        return [[name] for name in sorted(await self._limits.groups())]

    async def _cluster_info(self) -> Any:
        info: Mapping[str, Any] = await self._inner.call("QueryClusterInfo")
        return {name: info[name] for name in _INFO if name in info}

    async def _run_query(self, given: Mapping[str, Any]) -> Any:
        op = opcodes.from_dict(dict(given)).validate()
        await limited_ops.check(self._limits, [op])
        return await self._inner.call("RunQuery", op.to_dict())

    # -- jobs ------------------------------------------------------------------------------------

    async def _query_jobs(self, ids: Sequence[int] | None, fields: Sequence[str]) -> Any:
        visible = await self._limits.visible_jobs(ids)
        rows = await self._inner.call("QueryJobs", visible, fields) if visible else []
        if ids is None:
            return rows
        found = dict(zip(visible, rows, strict=True))
        return [found.get(int(number)) for number in ids]

    async def _wait_for_job(self, number: int, *args: Any) -> Any:
        await self._limits.require_job(number)
        return await self._inner.call("WaitForJobChange", number, *args)

    async def _cancel_job(self, number: int) -> Any:
        await self._limits.require_job(number)
        return await self._inner.call("CancelJob", number)
