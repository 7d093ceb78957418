"""The methods of LUXI: one entry for each (Ganeti design 2.0, *The LUXI protocol*).

Each method is a line in a table: the types of its arguments, whether it may wait for nodes, and the
function that begins it. The arguments are checked here, so that a wrong request is refused with a
message and never reaches the queue. The work itself is done by the job queue, the configuration
and the queries.

Some methods are extensions of ours (``ganeti.luxi.protocol.EXTENSIONS``):

======================== =======================================================================
``CheckGuests``          ask all nodes for the state of the guests; changes become events
``ExplainJob``           why a job waits (:mod:`ganeti.jqueue.explain`)
``ReadConsoleLog``       what an instance wrote to its console (:mod:`ganeti.master.queries.guests`)
``QueryGuestsUsage``     processor time, memory and traffic of guests (the same module)
``QueryConfigHistory``   the newest commits of the configuration (:mod:`ganeti.master.history`)
``QueryConfigChanges``   the differences between two states of the configuration
``QueryConfigAt``        the whole configuration at an earlier time
``WaitForEvents``        changes of jobs and instances (:mod:`ganeti.master.events`)
======================== =======================================================================
"""

from __future__ import annotations

import logging
import pwd
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors, ht, opcodes
from ganeti.cmdlib import locks as cmdlib_locks
from ganeti.config.history import Author
from ganeti.constants import luxi as const
from ganeti.constants import query as query_const
from ganeti.jqueue import explain, facts
from ganeti.luxi import protocol as wire
from ganeti.master import documents, history, metrics
from ganeti.master.events import EventLog
from ganeti.master.luxi_server import LuxiHandler, LuxiRequest
from ganeti.master.queries import cluster, guests, service
from ganeti.objects import FilterRule
from ganeti.opcodes.base import OpCode
from ganeti.query import job_rules
from ganeti.utils import clock, text
from ganeti.wire import json
from ganeti.wire.calls import SET_WATCHER_PAUSE

if TYPE_CHECKING:
    from ganeti.cmdlib.base import MasterContext
    from ganeti.config import Config
    from ganeti.jqueue.queue import JobQueue
    from ganeti.jqueue.subscriptions import Subscription

_log = logging.getLogger(__name__)

#: Size of the largest job, as JSON text.
MAX_JOB_BYTES = 4 << 20

_Begin = Callable[..., None]

_NAMES = ht.Maybe(ht.ListOf(ht.Str))
_FIELDS = ht.AtMost(ht.ListOf(ht.Str), ht.MAX_FIELDS)
_OPS = ht.ListOf(ht.Dict)
_NUMBER = ht.Or(ht.Int, ht.Float)
_COUNT = ht.Within(ht.Int, 0, 1 << 62)
_TAG_KINDS = ("cluster", "nodegroup", "node", "instance", "network")


class _Method(NamedTuple):
    """A line of the table of methods.

    :ivar begin: called with the request and its arguments.
    :ivar args: name and type of each argument.
    :ivar required: number of arguments which must be given; None for all.
    :ivar slow: as in :class:`~ganeti.master.luxi_server.LuxiHandler`; `overlaps` likewise.
    """

    begin: _Begin
    args: tuple[tuple[str, ht.Type], ...] = ()
    required: int | None = None
    slow: bool = False
    overlaps: bool = False


class LuxiService:
    """Answers LUXI requests.

    :param context: configuration, node calls and queue.
    :param events: the event log; its maker lets the queue and the configuration add events to it.
    """

    def __init__(self, context: MasterContext, events: EventLog | None = None) -> None:
        self._context = context
        self._events = events or EventLog()
        # Changes of rules reach configuration and queue in the same order.
        self._filter_lock = threading.Lock()
        self._handlers = {
            name: self._handler(name, method) for name, method in self._methods().items()
        }

    @property
    def _queue(self) -> JobQueue:
        queue: JobQueue = self._context.queue
        return queue

    def handler(self, method: str) -> LuxiHandler | None:
        """Return the handler of a method; None when there is no such method."""
        return self._handlers.get(method)

    def _methods(self) -> dict[str, _Method]:
        ids = ("job", ht.JobId)
        legacy = (("names", _NAMES), ("fields", _FIELDS), ("use_locking", ht.Bool))
        return {
            "SubmitJob": _Method(self._submit_job, (("ops", _OPS),), overlaps=True),
            "SubmitJobToDrainedQueue": _Method(
                self._submit_to_drained, (("ops", _OPS),), overlaps=True
            ),
            "SubmitManyJobs": _Method(
                self._submit_many, (("jobs", ht.ListOf(_OPS)),), overlaps=True
            ),
            "PickupJob": _Method(self._pickup, (("job", ht.Any),)),
            "WaitForJobChange": _Method(
                self._wait_for_change,
                (
                    ids,
                    ("fields", _FIELDS),
                    ("prev_job_info", ht.Maybe(ht.List)),
                    ("prev_log_serial", ht.Maybe(ht.Int)),
                    ("timeout", _NUMBER),
                ),
            ),
            "WaitForEvents": _Method(
                self._wait_for_events,
                (("place", ht.Maybe(ht.Tuple(ht.Str, ht.Int))), ("timeout", _NUMBER)),
            ),
            "CheckGuests": _Method(self._check_guests, slow=True),
            "CancelJob": _Method(self._cancel, (ids, ("kill", ht.Bool)), required=1),
            "ChangeJobPriority": _Method(self._change_priority, (ids, ("priority", ht.Int))),
            "ArchiveJob": _Method(self._archive, (ids,)),
            "AutoArchiveJobs": _Method(
                self._auto_archive, (("age", _NUMBER), ("timeout", _NUMBER)), slow=True
            ),
            "QueryJobs": _Method(
                self._query_jobs,
                (("ids", ht.Maybe(ht.ListOf(ht.JobId))), ("fields", _FIELDS)),
                slow=True,
            ),
            "Query": _Method(
                self._query, (("what", ht.Str), ("fields", _FIELDS), ("qfilter", ht.Any)), slow=True
            ),
            "QueryFields": _Method(
                self._query_fields, (("what", ht.Str), ("fields", ht.Maybe(_FIELDS)))
            ),
            "QueryInstances": _Method(self._legacy(query_const.INSTANCE), legacy, slow=True),
            "QueryNodes": _Method(self._legacy(query_const.NODE), legacy, slow=True),
            "QueryGroups": _Method(self._legacy(query_const.GROUP), legacy, slow=True),
            "QueryNetworks": _Method(self._legacy(query_const.NETWORK), legacy, slow=True),
            "QueryExports": _Method(
                self._query_exports, (("nodes", _NAMES), ("use_locking", ht.Bool)), slow=True
            ),
            "QueryFilters": _Method(self._query_filters, (("uuids", _NAMES), ("fields", _FIELDS))),
            "ReplaceFilter": _Method(
                self._replace_filter,
                (
                    ("uuid", ht.Maybe(ht.Str)),
                    ("priority", _COUNT),
                    ("predicates", ht.List),
                    ("action", ht.Or(ht.Str, ht.List)),
                    ("reason", ht.List),
                ),
                slow=True,
            ),
            "DeleteFilter": _Method(self._delete_filter, (("uuid", ht.Str),), slow=True),
            "QueryDocuments": _Method(self._query_documents, (("names", _NAMES),)),
            "ReplaceDocument": _Method(
                self._replace_document,
                (("name", ht.Str), ("tags", _NAMES), ("text", ht.Str)),
                slow=True,
            ),
            "DeleteDocument": _Method(
                self._delete_document, (("name", ht.Str), ("tags", ht.ListOf(ht.Str))), slow=True
            ),
            "ExplainJob": _Method(
                self._explain_job,
                (("job", ht.Maybe(ht.Or(ht.JobId, ht.ListOf(ht.JobId)))),),
                slow=True,
            ),
            "ReadConsoleLog": _Method(
                self._read_console_log,
                (("instance", ht.NonEmptyString), ("lines", _COUNT), ("position", ht.Str)),
                slow=True,
            ),
            "QueryMetrics": _Method(self._query_metrics, slow=True),
            "QueryGuestsUsage": _Method(self._guests_usage, slow=True),
            "QueryClusterInfo": _Method(self._cluster_info),
            "QueryConfigValues": _Method(self._config_values, (("fields", _FIELDS),)),
            "QueryConfigHistory": _Method(
                self._config_history, (("limit", ht.Maybe(_COUNT)),), slow=True
            ),
            "QueryConfigChanges": _Method(
                self._config_changes,
                (("first", history.POINT), ("last", history.POINT)),
                slow=True,
            ),
            "QueryConfigAt": _Method(self._config_at, (("point", history.POINT),), slow=True),
            "QueryTags": _Method(
                self._tags, (("kind", ht.OneOf("kind", _TAG_KINDS)), ("name", ht.Str))
            ),
            "SetDrainFlag": _Method(self._set_drain, (("flag", ht.Bool),), slow=True),
            "SetWatcherPause": _Method(
                self._set_watcher_pause,
                (("until", ht.Maybe(ht.Within(_NUMBER, 0, 1 << 40))),),
                slow=True,
            ),
        }

    def _handler(self, name: str, method: _Method) -> LuxiHandler:
        required = len(method.args) if method.required is None else method.required

        def begin(request: LuxiRequest) -> None:
            # Clients may send arguments to a method without parameters.
            given = request.args if method.args else []
            if not required <= len(given) <= len(method.args):
                wanted = ", ".join(arg for arg, _shape in method.args)
                request.refuse(
                    f"{name} takes {len(method.args)} arguments ({wanted}), not {len(given)}"
                )
                return
            for (arg, shape), value in zip(method.args, given, strict=False):
                if not shape.check(value):
                    request.refuse(
                        f"{name}: argument '{arg}' must be {ht.describe(shape)}, not {value!r:.200}"
                    )
                    return
            method.begin(request, *given)

        return LuxiHandler(begin, method.slow, method.overlaps)

    # -- jobs ------------------------------------------------------------------------------------

    def _submit_job(self, request: LuxiRequest, ops: list[dict[str, Any]]) -> None:
        _check_size(request, ops)
        self._queue.submit_async(_opcodes(ops), request.done)

    def _submit_to_drained(self, request: LuxiRequest, ops: list[dict[str, Any]]) -> None:
        _check_size(request, ops)
        self._queue.submit_async(_opcodes(ops), request.done, drained_ok=True)

    def _submit_many(self, request: LuxiRequest, wanted: list[list[dict[str, Any]]]) -> None:
        given: list[list[OpCode] | errors.GenericError] = []
        for ops in wanted:
            try:
                _check_size(request, ops)
                given.append(_opcodes(ops))
            except errors.GenericError as err:
                given.append(err)

        def done(results: Any, error: Exception | None) -> None:
            if error is not None:
                request.fail(error)
            else:
                request.answer(
                    [
                        [False, str(result)] if isinstance(result, Exception) else [True, result]
                        for result in results
                    ]
                )

        self._queue.submit_many_async(given, done)

    def _pickup(self, request: LuxiRequest, _job_id: Any) -> None:
        raise errors.GenericError("method PickupJob is for the master's own use")

    def _wait_for_change(
        self,
        request: LuxiRequest,
        job: Any,
        fields: list[str],
        prev_info: list[Any] | None,
        prev_serial: int | None,
        timeout_s: float,
    ) -> None:
        subscriptions: list[Subscription] = []

        def nothing_changed() -> None:
            if not subscriptions or self._queue.unsubscribe(subscriptions[0]):
                request.answer(wire.NO_CHANGE)

        subscription = self._queue.subscribe(
            int(job), fields, prev_info, prev_serial, request.answer
        )
        if subscription is not None:
            subscriptions.append(subscription)
            request.wait(max(0.0, min(timeout_s, const.WAIT_FOR_JOB_CHANGE_S)), nothing_changed)

    def _wait_for_events(
        self, request: LuxiRequest, place: list[Any] | None, timeout_s: float
    ) -> None:
        if place is None:
            request.answer(self._events.after(None))
            return
        epoch, number = place

        def nothing_happened() -> None:
            if self._events.stop_waiting(request.answer):
                request.answer(self._events.after((epoch, number)))

        if self._events.wait((epoch, number), request.answer):
            request.wait(max(0.0, min(timeout_s, const.WAIT_FOR_JOB_CHANGE_S)), nothing_happened)

    def _check_guests(self, request: LuxiRequest) -> None:
        service.check_guests(self._context)
        request.answer(None)

    def _cancel(self, request: LuxiRequest, job: Any, kill: bool = False) -> None:
        if kill:
            self._queue.kill_async(int(job), _name_of(request.peer_uid()), request.done)
        else:
            self._queue.cancel_async(int(job), request.done)

    def _change_priority(self, request: LuxiRequest, job: Any, priority: int) -> None:
        self._queue.change_priority_async(int(job), priority, request.done)

    def _archive(self, request: LuxiRequest, job: Any) -> None:
        def done(count: Any, error: Exception | None) -> None:
            request.done(bool(count), error)

        self._queue.archive_async([int(job)], done)

    def _auto_archive(self, request: LuxiRequest, age_s: float, timeout_s: float) -> None:
        if age_s < -1:
            raise errors.OpPrereqError(f"age must be -1 or more, not {age_s:g}", errors.ECODE_INVAL)
        request.answer(self._queue.auto_archive(age_s, timeout_s))

    def _query_jobs(self, request: LuxiRequest, ids: list[Any] | None, fields: list[str]) -> None:
        wanted = [int(job) for job in ids] if ids else None
        request.answer(self._queue.query(wanted, fields))

    def _explain_job(self, request: LuxiRequest, job: Any) -> None:
        # None means the queue, an id one job with its chain, a list several jobs without.
        data = self._context.config.snapshot()
        context = facts.explain_context(
            self._queue, self._context.locks, lambda name: cmdlib_locks.lock_label(data, name)
        )
        if job is None:
            request.answer(explain.explain_queue(context.queue))
            return
        if isinstance(job, list):
            request.answer(explain.explain_briefly(context, [int(job_id) for job_id in job]))
            return
        found = explain.explain(context, int(job))
        if found is None:
            raise errors.JobLost(f"job {job} does not exist")
        request.answer(found)

    def _read_console_log(
        self, request: LuxiRequest, instance: str, lines: int, position: str
    ) -> None:
        request.answer(guests.read_console_log(self._context, instance, lines, position))

    def _query_metrics(self, request: LuxiRequest) -> None:
        request.answer(metrics.measured(self._context))

    def _guests_usage(self, request: LuxiRequest) -> None:
        request.answer(guests.usage(self._context))

    # -- queries ---------------------------------------------------------------------------------

    def _query(self, request: LuxiRequest, what: str, fields: list[str], qfilter: Any) -> None:
        request.answer(service.query(self._context, what, fields, qfilter))

    def _query_fields(self, request: LuxiRequest, what: str, fields: list[str] | None) -> None:
        request.answer(service.query_fields(what, fields or None))

    def _legacy(self, what: str) -> _Begin:
        def begin(
            request: LuxiRequest, names: list[str] | None, fields: list[str], use_locking: bool
        ) -> None:
            _refuse_locking(use_locking)
            request.answer(service.query_values(self._context, what, names, fields))

        return begin

    def _query_exports(
        self, request: LuxiRequest, nodes: list[str] | None, use_locking: bool
    ) -> None:
        _refuse_locking(use_locking)
        rows = service.query_values(self._context, query_const.EXPORT, None, ["node", "export"])
        wanted = {self._context.config.expand_node(name).name for name in nodes or ()}
        request.answer([row for row in rows if not wanted or row[0] in wanted])

    def _query_filters(
        self, request: LuxiRequest, uuids: list[str] | None, fields: list[str]
    ) -> None:
        request.answer(service.query_values(self._context, query_const.FILTER, uuids, fields))

    def _replace_filter(
        self,
        request: LuxiRequest,
        uuid: str | None,
        priority: int,
        predicates: list[Any],
        action: str | list[Any],
        reason: list[Any],
    ) -> None:
        try:
            job_rules.check_rule(priority, predicates, action, reason)
        except errors.ParameterError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
        with self._filter_lock:
            self._check_filter_uuid(uuid)
            rule = FilterRule(
                uuid=uuid or text.new_uuid(),
                priority=priority,
                watermark=self._queue.table.serial,
                predicates=tuple(job_rules.normalised(predicates)),
                action=action,
                reason_trail=(*reason, ["luxid", "", clock.now_ns()]),
            )
            with self._config_of("ReplaceFilter", reason).transaction() as change:
                change.put_filter(rule)
            self._queue.scheduler.set_filters(self._context.config.filters())
        request.answer(rule.uuid)

    def _config_of(self, method: str, reason: list[Any]) -> Config:
        """Return the configuration for a change which no job makes."""
        texts = [str(entry[1]) for entry in reason]
        return self._context.config.acting_for(
            Author(None, method, "luxid", next(filter(None, texts), ""))
        )

    def _check_filter_uuid(self, uuid: str | None) -> None:
        """Refuse a uuid which no filter rule may have; a new rule may be made with a given one."""
        if uuid is None:
            return
        if not text.is_uuid(uuid):
            raise errors.OpPrereqError(f"'{uuid}' is not a uuid", errors.ECODE_INVAL)
        data = self._context.config.snapshot()
        if uuid == data.cluster.uuid or any(
            uuid in table
            for table in (data.nodes, data.nodegroups, data.instances, data.networks, data.disks)
        ):
            raise errors.OpPrereqError(
                f"uuid {uuid} belongs to another object, which is not a filter rule",
                errors.ECODE_NOTUNIQUE,
            )

    def _delete_filter(self, request: LuxiRequest, uuid: str) -> None:
        with self._filter_lock:
            if uuid not in self._context.config.snapshot().filters:
                raise errors.OpPrereqError(f"filter rule {uuid} does not exist", errors.ECODE_NOENT)
            with self._config_of("DeleteFilter", []).transaction() as change:
                change.remove_filter(uuid)
            self._queue.scheduler.set_filters(self._context.config.filters())
        request.answer(None)

    # -- documents -------------------------------------------------------------------------------

    def _query_documents(self, request: LuxiRequest, names: list[str] | None) -> None:
        request.answer(documents.listed(self._context.config, names))

    def _replace_document(
        self, request: LuxiRequest, name: str, tags: list[str] | None, content: str
    ) -> None:
        config = self._config_of("ReplaceDocument", [])
        request.answer(documents.replaced(config, name, tags, content))

    def _delete_document(self, request: LuxiRequest, name: str, tags: list[str]) -> None:
        documents.removed(self._config_of("DeleteDocument", []), name, tags)
        request.answer(None)

    # -- the cluster -----------------------------------------------------------------------------

    def _cluster_info(self, request: LuxiRequest) -> None:
        request.answer(cluster.cluster_info(self._context))

    def _config_values(self, request: LuxiRequest, fields: list[str]) -> None:
        request.answer(cluster.config_values(self._context, fields))

    def _config_history(self, request: LuxiRequest, limit: int | None) -> None:
        request.answer(history.commits(self._context.config, limit))

    def _config_changes(self, request: LuxiRequest, first: Any, last: Any) -> None:
        history.require_administrator(request)
        request.answer(history.changes(self._context.config, first, last))

    def _config_at(self, request: LuxiRequest, point: Any) -> None:
        history.require_administrator(request)
        request.answer(history.at(self._context.config, point))

    def _tags(self, request: LuxiRequest, kind: str, name: str) -> None:
        config = self._context.config
        tags: Sequence[str]
        if kind == "cluster":
            tags = config.cluster().tags
        elif kind == "nodegroup":
            tags = config.expand_group(name).tags
        elif kind == "node":
            tags = config.expand_node(name).tags
        elif kind == "instance":
            tags = config.expand_instance(name).tags
        else:
            tags = config.expand_network(name).tags
        request.answer(sorted(tags))

    # -- switches --------------------------------------------------------------------------------

    def _set_drain(self, request: LuxiRequest, drained: bool) -> None:
        self._queue.set_drain(drained)
        request.answer(True)

    def _set_watcher_pause(self, request: LuxiRequest, until: float | None) -> None:
        config = self._context.config
        nodes = [node.uuid for node in config.master_candidates() if not node.offline]
        answers = self._context.rpc.call_many(SET_WATCHER_PAUSE, nodes, until=until)
        # The watcher acts on the master node; the other nodes need the pause after a failover.
        answers[config.cluster().master_node].payload()
        failed = [answer.node_name for answer in answers.values() if answer.failure is not None]
        if failed:
            _log.warning("the watcher's pause was not set on %s", ", ".join(failed))
        request.answer(until)


def _check_size(request: LuxiRequest, ops: Sequence[dict[str, Any]]) -> None:
    """Check that a job is not too large: its file is written and sent many times.

    :raises errors.OpPrereqError: it is.
    """
    # Most requests are short, so nothing has to be measured.
    if request.size > MAX_JOB_BYTES and len(json.dumps(ops)) > MAX_JOB_BYTES:
        raise errors.OpPrereqError(
            f"a job may have {MAX_JOB_BYTES >> 20} MiB; submit several jobs instead",
            errors.ECODE_INVAL,
        )


def _opcodes(ops: Sequence[dict[str, Any]]) -> list[OpCode]:
    """Build opcodes; the queue validates their parameters.

    :raises errors.GenericError: the list is empty, or an opcode or a parameter is unknown.
    """
    if not ops:
        raise errors.GenericError("a job needs at least one opcode")
    return [opcodes.from_dict(values) for values in ops]


def _refuse_locking(use_locking: bool) -> None:
    if use_locking:
        raise errors.OpPrereqError(
            "queries take no locks; use_locking must be false", errors.ECODE_INVAL
        )


def _name_of(uid: int | None) -> str:
    """Return a text which names the user of a client."""
    if uid is None:
        return "a client which has gone"
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
