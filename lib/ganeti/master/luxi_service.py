"""The service of LUXI: one function for each method (Ganeti design 2.0, *The LUXI protocol*).

:mod:`ganeti.luxi.methods` says what each method takes, and who may use it. Arguments and rights are
checked before the function is called, so a wrong request is refused with a message and never
reaches the queue. The work itself is done by the job queue, the configuration and the queries.
"""

from __future__ import annotations

import inspect
import logging
import os
import pwd
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors, opcodes
from ganeti.cmdlib import locks as cmdlib_locks
from ganeti.config.history import Author
from ganeti.constants import luxi as const
from ganeti.constants import query as query_const
from ganeti.jqueue import explain, facts, overview
from ganeti.luxi import methods
from ganeti.luxi import protocol as wire
from ganeti.luxi.methods import Method, Right
from ganeti.master import access_records, audit_search, documents, history, metrics
from ganeti.master.events import EventLog
from ganeti.master.luxi_server import LuxiHandler, LuxiRequest
from ganeti.master.queries import cluster, guests, images, pages, past, service, without_job
from ganeti.objects import FilterRule
from ganeti.opcodes.base import OpCode
from ganeti.platform import paths
from ganeti.query import engine, job_rules
from ganeti.rpc import failover_status
from ganeti.utils import clock, text
from ganeti.utils.effort import Effort
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

_Function = Callable[..., None]

_functions: dict[str, _Function] = {}


def _serves(method: Method) -> Callable[[_Function], _Function]:
    """Return a decorator which makes a function of :class:`LuxiService` the server of a method.

    :raises ProgrammerError: the method has a server already, or the parameters are not its
        arguments.
    """

    def register(function: _Function) -> _Function:
        if method.name in _functions:
            raise errors.ProgrammerError(f"LUXI method {method.name} has two servers")
        parameters = list(inspect.signature(function).parameters)
        wanted = ["self", "request", *(arg.name for arg in method.args)]
        if parameters != wanted:
            raise errors.ProgrammerError(
                f"the server of LUXI method {method.name} has parameters {parameters}, not {wanted}"
            )
        _functions[method.name] = function
        return function

    return register


class LuxiService:
    """Answers LUXI requests.

    :param context: configuration, node calls and queue.
    :param events: the event log; its maker lets the queue and the configuration add events to it.
    """

    def __init__(self, context: MasterContext, events: EventLog | None = None) -> None:
        self._context = context
        self._events = events or EventLog()
        self._past = past.PastStates(context.config)
        # Changes of rules reach configuration and queue in the same order.
        self._filter_lock = threading.Lock()
        self._access_records = access_records.AccessRecords()
        self._handlers = {name: self._handler(method) for name, method in methods.TABLE.items()}

    @property
    def _queue(self) -> JobQueue:
        queue: JobQueue = self._context.queue
        return queue

    def handler(self, method: str) -> LuxiHandler | None:
        """Return the handler of a method; None when there is no such method."""
        return self._handlers.get(method)

    def _handler(self, method: Method) -> LuxiHandler:
        serve = _functions[method.name]

        def begin(request: LuxiRequest) -> None:
            try:
                args = method.check_args(request.args)
            except errors.ParseError as err:
                request.refuse(str(err))
                return
            _check_right(request, method)
            serve(self, request, *args)

        return LuxiHandler(begin, method.slow, method.overlaps)

    # -- jobs ------------------------------------------------------------------------------------

    @_serves(methods.SUBMIT_JOB)
    def _submit_job(self, request: LuxiRequest, ops: list[dict[str, Any]]) -> None:
        _check_size(request, ops)
        self._queue.submit_async(_opcodes(ops), request.done)

    @_serves(methods.SUBMIT_JOB_TO_DRAINED_QUEUE)
    def _submit_to_drained(self, request: LuxiRequest, ops: list[dict[str, Any]]) -> None:
        _check_size(request, ops)
        self._queue.submit_async(_opcodes(ops), request.done, drained_ok=True)

    @_serves(methods.SUBMIT_MANY_JOBS)
    def _submit_many(self, request: LuxiRequest, jobs: list[list[dict[str, Any]]]) -> None:
        given: list[list[OpCode] | errors.GenericError] = []
        for ops in jobs:
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

    @_serves(methods.PICKUP_JOB)
    def _pickup(self, request: LuxiRequest, job: Any) -> None:
        raise errors.GenericError("method PickupJob is for the master's own use")

    @_serves(methods.WAIT_FOR_JOB_CHANGE)
    def _wait_for_change(
        self,
        request: LuxiRequest,
        job: Any,
        fields: list[str],
        prev_job_info: list[Any] | None,
        prev_log_serial: int | None,
        timeout: float,
    ) -> None:
        subscriptions: list[Subscription] = []

        def nothing_changed() -> None:
            if not subscriptions or self._queue.operations.unsubscribe(subscriptions[0]):
                request.answer(wire.NO_CHANGE)

        subscription = self._queue.operations.subscribe(
            int(job), fields, prev_job_info, prev_log_serial, request.answer
        )
        if subscription is not None:
            subscriptions.append(subscription)
            request.wait(max(0.0, min(timeout, const.WAIT_FOR_JOB_CHANGE_S)), nothing_changed)

    @_serves(methods.WAIT_FOR_EVENTS)
    def _wait_for_events(
        self,
        request: LuxiRequest,
        place: list[Any] | None,
        timeout: float,
        kinds: list[str] | None,
    ) -> None:
        wanted = None if kinds is None else frozenset(kinds)
        if place is None:
            request.answer(self._events.after(None, wanted))
            return
        epoch, number = place

        def nothing_happened() -> None:
            if self._events.stop_waiting(request.answer):
                request.answer(self._events.after((epoch, number), wanted))

        if self._events.wait((epoch, number), request.answer, wanted):
            request.wait(max(0.0, min(timeout, const.WAIT_FOR_JOB_CHANGE_S)), nothing_happened)

    @_serves(methods.CHECK_GUESTS)
    def _check_guests(self, request: LuxiRequest) -> None:
        service.check_guests(self._context)
        request.answer(None)

    @_serves(methods.CANCEL_JOB)
    def _cancel(self, request: LuxiRequest, job: Any, kill: bool) -> None:
        if kill:
            self._queue.operations.kill_async(int(job), _name_of(request.peer_uid()), request.done)
        else:
            self._queue.operations.cancel_async(int(job), request.done)

    @_serves(methods.CHANGE_JOB_PRIORITY)
    def _change_priority(self, request: LuxiRequest, job: Any, priority: int) -> None:
        self._queue.operations.change_priority_async(int(job), priority, request.done)

    @_serves(methods.ARCHIVE_JOB)
    def _archive(self, request: LuxiRequest, job: Any) -> None:
        def done(count: Any, error: Exception | None) -> None:
            request.done(bool(count), error)

        self._queue.operations.archive_async([int(job)], done)

    @_serves(methods.AUTO_ARCHIVE_JOBS)
    def _auto_archive(self, request: LuxiRequest, age: float, timeout: float) -> None:
        if age < -1:
            raise errors.OpPrereqError(f"age must be -1 or more, not {age:g}", errors.ECODE_INVAL)
        request.answer(self._queue.operations.auto_archive(age, timeout))

    @_serves(methods.QUERY_JOBS)
    def _query_jobs(self, request: LuxiRequest, ids: list[Any] | None, fields: list[str]) -> None:
        wanted = [int(job) for job in ids] if ids else None
        if wanted is not None:
            engine.check_cells(len(wanted), len(fields))
        request.answer(self._queue.query(wanted, fields, effort=_effort(request)))

    @_serves(methods.EXPLAIN_JOB)
    def _explain_job(self, request: LuxiRequest, job: Any) -> None:
        # None means the queue, an id one job with its chain, a list several jobs without.
        context = self._explain_context()
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

    def _explain_context(self) -> explain.ExplainContext:
        data = self._context.config.snapshot()
        return facts.explain_context(
            self._queue, self._context.locks, lambda name: cmdlib_locks.lock_label(data, name)
        )

    @_serves(methods.QUERY_QUEUE)
    def _query_queue(self, request: LuxiRequest, limit: int) -> None:
        job_ids = facts.unfinished(self._queue)
        locks = self._context.locks.table()
        request.answer(overview.overview(self._explain_context(), job_ids, locks, limit))

    @_serves(methods.QUERY_IMAGES)
    def _query_images(self, request: LuxiRequest) -> None:
        request.answer(images.images(paths.current().images_dir))

    @_serves(methods.QUERY_FAILOVER_STATUS)
    def _failover_status(self, request: LuxiRequest) -> None:
        request.answer(failover_status.report(failover_status.ask()))

    @_serves(methods.QUERY_FINDINGS)
    def _query_findings(self, request: LuxiRequest) -> None:
        groups = self._context.config.snapshot().nodegroups.values()
        request.answer(self._events.verified([group.name for group in groups]))

    @_serves(methods.READ_CONSOLE_LOG)
    def _read_console_log(
        self, request: LuxiRequest, instance: str, lines: int, position: str
    ) -> None:
        request.answer(guests.read_console_log(self._context, instance, lines, position))

    @_serves(methods.QUERY_METRICS)
    def _query_metrics(self, request: LuxiRequest) -> None:
        request.answer(metrics.measured(self._context))

    @_serves(methods.QUERY_GUESTS_USAGE)
    def _guests_usage(self, request: LuxiRequest) -> None:
        request.answer(guests.usage(self._context))

    # -- queries ---------------------------------------------------------------------------------

    @_serves(methods.QUERY)
    def _query(self, request: LuxiRequest, what: str, fields: list[str], qfilter: Any) -> None:
        request.answer(service.query(self._context, what, fields, qfilter, _effort(request)))

    @_serves(methods.QUERY_PAGE)
    def _query_page(
        self,
        request: LuxiRequest,
        what: str,
        fields: list[str],
        qfilter: Any,
        page: dict[str, Any],
    ) -> None:
        request.answer(
            pages.query_page(self._context, what, fields, qfilter, page, _effort(request))
        )

    @_serves(methods.RUN_QUERY)
    def _run_query(self, request: LuxiRequest, op: dict[str, Any]) -> None:
        _check_size(request, [op])
        request.answer(without_job.run(self._context, opcodes.from_dict(op)))

    @_serves(methods.QUERY_FIELDS)
    def _query_fields(self, request: LuxiRequest, what: str, fields: list[str] | None) -> None:
        request.answer(service.query_fields(what, fields or None))

    @_serves(methods.QUERY_INSTANCES)
    def _query_instances(
        self, request: LuxiRequest, names: list[str] | None, fields: list[str], use_locking: bool
    ) -> None:
        self._answer_values(request, query_const.INSTANCE, names, fields, use_locking)

    @_serves(methods.QUERY_NODES)
    def _query_nodes(
        self, request: LuxiRequest, names: list[str] | None, fields: list[str], use_locking: bool
    ) -> None:
        self._answer_values(request, query_const.NODE, names, fields, use_locking)

    @_serves(methods.QUERY_GROUPS)
    def _query_groups(
        self, request: LuxiRequest, names: list[str] | None, fields: list[str], use_locking: bool
    ) -> None:
        self._answer_values(request, query_const.GROUP, names, fields, use_locking)

    @_serves(methods.QUERY_NETWORKS)
    def _query_networks(
        self, request: LuxiRequest, names: list[str] | None, fields: list[str], use_locking: bool
    ) -> None:
        self._answer_values(request, query_const.NETWORK, names, fields, use_locking)

    def _answer_values(
        self,
        request: LuxiRequest,
        what: str,
        names: list[str] | None,
        fields: list[str],
        use_locking: bool,
    ) -> None:
        _refuse_locking(use_locking)
        request.answer(service.query_values(self._context, what, names, fields, _effort(request)))

    @_serves(methods.QUERY_EXPORTS)
    def _query_exports(
        self, request: LuxiRequest, nodes: list[str] | None, use_locking: bool
    ) -> None:
        _refuse_locking(use_locking)
        rows = service.query_values(
            self._context, query_const.EXPORT, None, ["node", "export"], _effort(request)
        )
        wanted = {self._context.config.expand_node(name).name for name in nodes or ()}
        request.answer([row for row in rows if not wanted or row[0] in wanted])

    @_serves(methods.QUERY_FILTERS)
    def _query_filters(
        self, request: LuxiRequest, uuids: list[str] | None, fields: list[str]
    ) -> None:
        request.answer(
            service.query_values(self._context, query_const.FILTER, uuids, fields, _effort(request))
        )

    @_serves(methods.REPLACE_FILTER)
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
            self._check_size_of_rules(uuid, predicates)
            rule = FilterRule(
                uuid=uuid or text.new_uuid(),
                priority=priority,
                watermark=self._queue.table.serial,
                predicates=tuple(job_rules.normalised(predicates)),
                action=action,
                reason_trail=(*reason, ["luxid", "", clock.now_ns()]),
            )
            with self._config_of("ReplaceFilter", reason).transaction() as change:
                change.filters.put(rule)
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

    def _check_size_of_rules(self, uuid: str | None, predicates: list[Any]) -> None:
        """Refuse a rule with which all rules together would be too large."""
        others = [rule for rule in self._context.config.filters() if rule.uuid != uuid]
        try:
            job_rules.check_rules([*(rule.predicates for rule in others), predicates])
        except errors.ParameterError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err

    @_serves(methods.DELETE_FILTER)
    def _delete_filter(self, request: LuxiRequest, uuid: str) -> None:
        with self._filter_lock:
            if uuid not in self._context.config.snapshot().filters:
                raise errors.OpPrereqError(f"filter rule {uuid} does not exist", errors.ECODE_NOENT)
            with self._config_of("DeleteFilter", []).transaction() as change:
                change.filters.remove(uuid)
            self._queue.scheduler.set_filters(self._context.config.filters())
        request.answer(None)

    # -- documents -------------------------------------------------------------------------------

    @_serves(methods.QUERY_DOCUMENTS)
    def _query_documents(self, request: LuxiRequest, names: list[str] | None) -> None:
        request.answer(documents.listed(self._context.config, names))

    @_serves(methods.REPLACE_DOCUMENT)
    def _replace_document(
        self, request: LuxiRequest, name: str, tags: list[str] | None, text: str
    ) -> None:
        config = self._config_of("ReplaceDocument", [])
        request.answer(documents.replaced(config, name, tags, text))

    @_serves(methods.DELETE_DOCUMENT)
    def _delete_document(self, request: LuxiRequest, name: str, tags: list[str]) -> None:
        documents.removed(self._config_of("DeleteDocument", []), name, tags)
        request.answer(None)

    # -- access records --------------------------------------------------------------------------

    @_serves(methods.QUERY_ACCESS_RECORDS)
    def _query_access_records(
        self, request: LuxiRequest, kind: str | None, since: int | None
    ) -> None:
        request.answer(self._access_records.listed(self._context.config, kind, since))

    @_serves(methods.CHANGE_ACCESS_RECORDS)
    def _change_access_records(self, request: LuxiRequest, changes: list[list[Any]]) -> None:
        config = self._config_of("ChangeAccessRecords", [])
        request.answer(self._access_records.changed(config, changes))

    # -- the cluster -----------------------------------------------------------------------------

    @_serves(methods.QUERY_CLUSTER_INFO)
    def _cluster_info(self, request: LuxiRequest) -> None:
        request.answer(cluster.cluster_info(self._context))

    @_serves(methods.QUERY_CONFIG_VALUES)
    def _config_values(self, request: LuxiRequest, fields: list[str]) -> None:
        request.answer(cluster.config_values(self._context, fields))

    @_serves(methods.QUERY_CONFIG_HISTORY)
    def _config_history(self, request: LuxiRequest, limit: int | None) -> None:
        request.answer(history.commits(self._context.config, limit))

    @_serves(methods.FIND_COMMITS)
    def _find_commits(
        self, request: LuxiRequest, chosen: dict[str, Any], limit: int, before: int | None
    ) -> None:
        request.answer(history.find(self._context.config, chosen, limit, before))

    @_serves(methods.FIND_AUDIT_LINES)
    def _find_audit_lines(
        self, request: LuxiRequest, chosen: dict[str, Any], limit: int, before: int | None
    ) -> None:
        path = paths.current().log_audit_file
        request.answer(audit_search.find(path, chosen, limit, before))

    @_serves(methods.QUERY_OBJECTS_AT)
    def _objects_at(
        self,
        request: LuxiRequest,
        serial: int,
        what: str,
        names: list[str] | None,
        fields: list[str],
    ) -> None:
        request.answer(self._past.query(serial, what, names or (), fields, _effort(request)))

    @_serves(methods.QUERY_CONFIG_CHANGES)
    def _config_changes(self, request: LuxiRequest, first: Any, last: Any) -> None:
        request.answer(history.changes(self._context.config, first, last))

    @_serves(methods.QUERY_CONFIG_AT)
    def _config_at(self, request: LuxiRequest, point: Any) -> None:
        request.answer(history.at(self._context.config, point))

    @_serves(methods.QUERY_TAGS)
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

    @_serves(methods.SET_DRAIN_FLAG)
    def _set_drain(self, request: LuxiRequest, flag: bool) -> None:
        self._queue.set_drain(flag)
        request.answer(True)

    @_serves(methods.SET_WATCHER_PAUSE)
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


def _check_right(request: LuxiRequest, method: Method) -> None:
    """Check that the client may use a method.

    :raises errors.OpPrereqError: it may not.
    """
    if method.right is Right.ADMINISTRATOR and request.peer_uid() not in (0, os.geteuid()):
        raise errors.OpPrereqError(
            f"the answer of method {method.name} contains secrets. Only root may use it.",
            errors.ECODE_INVAL,
        )


def _effort(request: LuxiRequest) -> Effort:
    """Return the work of a request, which ends when its client has gone or the daemon stops."""
    return Effort(unwanted=request.unwanted)


def _check_size(request: LuxiRequest, ops: Sequence[dict[str, Any]]) -> None:
    """Check that a job is not too large: its file is written and sent many times.

    :raises errors.OpPrereqError: it is.
    """
    try:
        job_rules.check_parts(ops)
    except errors.ParameterError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
    # Most requests are short, so nothing has to be measured.
    if request.size > MAX_JOB_BYTES and len(json.dumps(ops)) > MAX_JOB_BYTES:
        raise errors.OpPrereqError(
            f"a job may have {MAX_JOB_BYTES >> 20} MiB; submit several jobs instead",
            errors.ECODE_INVAL,
        )


def _opcodes(ops: Sequence[dict[str, Any]]) -> list[OpCode]:
    """Build opcodes; the queue validates their parameters.

    :raises errors.GenericError: an opcode or a parameter is unknown.
    """
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
