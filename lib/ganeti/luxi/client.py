"""The client of the master's local socket, which commands and daemons use.

A :class:`Client` is one connection to the master. It connects when the first request is sent, waits
for a master that is just starting, and raises the errors which the master reported, by their
classes (:class:`~ganeti.errors.OpPrereqError` and so on). Requests may be pipelined; the master
answers in order. Values are those of JSON: lists and dictionaries.

The import of this module is cheap, because every ``gnt-*`` command imports it before its first
request.

Source: Ganeti design 2.0, *The LUXI protocol*; Ganeti design 2.2, *Master Daemon Scaling*
(``nochange``).
"""

from __future__ import annotations

import errno
import os
import socket
import time

from ganeti import TYPE_CHECKING, errors
from ganeti.constants import luxi as const
from ganeti.luxi import protocol as wire
from ganeti.platform import machine, paths
from ganeti.utils import fs, net, tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Self

    from ganeti.luxi.answers import FailoverReport, ImagesReport
    from ganeti.opcodes.base import OpCode

# Seconds after which the master answers "nochange" to a wait.
WAIT_FOR_CHANGE_S = const.WAIT_FOR_JOB_CHANGE_S

_RECEIVE_BYTES = 1 << 16


def default_address() -> str:
    """Return the path of the master's socket.

    The variable ``FORCE_LUXI_SOCKET`` overrides it: "master", "query" or a path.
    """
    here = paths.current()
    override = os.environ.get(const.OVERRIDE_VARIABLE, "")
    if override in ("", const.OVERRIDE_MASTER):
        return here.master_socket
    return here.query_socket if override == const.OVERRIDE_QUERY else override


class Client:
    """A connection to the master.

    Not for use by several threads at once. A broken connection is closed, and a later request opens
    a new one. The client never repeats a request, because the master may have received the first
    one.

    :param address: path of the socket; None for :func:`default_address`.
    :param connect_timeout_s: seconds to wait for a master that is starting.
    :param timeout_s: seconds to wait for an answer.
    :param clock: with `sleep`, the time which passes while the client waits for the master.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        connect_timeout_s: float = const.CONNECT_TIMEOUT_S,
        timeout_s: float = const.READ_WRITE_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = default_address() if address is None else address
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._sleep = sleep
        self._socket: socket.socket | None = None
        self._splitter = wire.Splitter(limit_bytes=1 << 40)  # the master is trusted
        self._ready: list[bytes | None] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._splitter = wire.Splitter(limit_bytes=1 << 40)
        self._ready = []

    # -- requests --------------------------------------------------------------------------------

    def call(self, method: str, *args: Any) -> Any:
        """Send one request and return its result.

        :raises errors.NoMasterError: no master runs here.
        :raises errors.LuxiPermissionError: this user may not open the socket.
        :raises errors.LuxiTimeout: no answer in time.
        :raises errors.ConnectionClosedError: the master closed the connection before it answered.
        :raises errors.GenericError: the error which the master reported.
        """
        with tracing.span(f"LUXI {method}", tracing.CLIENT, rpc_method=method) as span:
            (message,) = self._exchange(wire.encode_request(method, args, span.traceparent), 1)
            return wire.parse_answer(message)

    def pipeline(self, requests: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Send several requests at once.

        :returns: the result, or the error, of each request in order.
        :raises errors.LuxiError: the connection failed; the master may have received some requests.
        """
        parent = tracing.current()
        data = b"".join(
            wire.encode_request(method, list(args), parent) for method, args in requests
        )
        results: list[Any] = []
        for message in self._exchange(data, len(requests)):
            try:
                results.append(wire.parse_answer(message))
            except errors.GenericError as err:
                results.append(err)
        return results

    def submit_job(self, ops: Sequence[OpCode], *, drained_ok: bool = False) -> int:
        """Submit a job and return its id; the job is on disk then.

        :param drained_ok: also when the queue is drained (``SubmitJobToDrainedQueue``).
        :raises errors.JobQueueDrainError: the queue takes no jobs now.
        :raises errors.JobQueueFull: too many jobs wait.
        """
        method = "SubmitJobToDrainedQueue" if drained_ok else "SubmitJob"
        return int(self.call(method, [_op_dict(op) for op in ops]))

    def submit_many_jobs(self, jobs: Iterable[Sequence[OpCode]]) -> list[list[Any]]:
        """Submit several jobs in one request.

        :returns: ``[True, id]`` or ``[False, message]`` for each.
        """
        return list(self.call("SubmitManyJobs", [[_op_dict(op) for op in ops] for ops in jobs]))

    def cancel_job(self, job_id: int, *, kill: bool = False) -> tuple[bool, str]:
        """Cancel a job.

        :returns: whether it will end, and a message for the user.
        """
        success, message = self.call("CancelJob", job_id, kill)
        return bool(success), str(message)

    def change_job_priority(self, job_id: int, priority: int) -> tuple[bool, str]:
        """Change the priority of a job's unfinished opcodes (-20 first, 19 last).

        :returns: whether it was changed, and a message for the user.
        """
        success, message = self.call("ChangeJobPriority", job_id, priority)
        return bool(success), str(message)

    def archive_job(self, job_id: int) -> bool:
        """Move a finished job to the archive; False when it is unfinished or unknown."""
        return bool(self.call("ArchiveJob", job_id))

    def auto_archive_jobs(self, age_s: int, timeout_s: int = WAIT_FOR_CHANGE_S) -> tuple[int, int]:
        """Archive jobs which ended more than `age_s` seconds ago (-1: all).

        :returns: number of archived jobs, and number of jobs for which there was no time.
        """
        archived, left = self.call("AutoArchiveJobs", age_s, timeout_s)
        return int(archived), int(left)

    def wait_for_job_change(
        self,
        job_id: int,
        fields: Sequence[str],
        prev_info: list[Any] | None,
        prev_log_serial: int | None,
        timeout_s: int = WAIT_FOR_CHANGE_S,
    ) -> tuple[list[Any], list[list[Any]]] | None:
        """Wait until the job differs from `prev_info`, or has newer log entries.

        :param prev_info: the values of the fields which the caller knows; None for none.
        :param prev_log_serial: serial of the last log entry which the caller knows; None for none.
        :returns: ``(values of the fields, new log entries)``; None after `timeout_s` seconds.
        :raises errors.JobLost: no such job.
        """
        wait_s = max(0, min(int(timeout_s), WAIT_FOR_CHANGE_S))
        result = self.call(
            "WaitForJobChange", job_id, list(fields), prev_info, prev_log_serial, wait_s
        )
        if result == wire.NO_CHANGE:
            return None
        info, entries = result
        return info, entries or []

    # -- queries ---------------------------------------------------------------------------------

    def query(
        self, what: str, fields: Sequence[str], qfilter: list[Any] | None = None
    ) -> dict[str, Any]:
        """Query objects of one kind.

        :param what: kind of object, one of ``constants.query.RESOURCES``.
        :returns: ``{"fields": [definition, ...], "data": [[[status, value], ...], ...]}``.
        """
        return dict(self.call("Query", what, list(fields), qfilter))

    def query_page(
        self, what: str, fields: Sequence[str], qfilter: Any, page: dict[str, Any]
    ) -> dict[str, Any]:
        """Query a part of the objects of one kind, in an order.

        :param qfilter: a filter in list form or as text; None selects everything.
        :param page: which part, as :func:`ganeti.query.page.parse_request` reads it.
        :returns: as of :class:`ganeti.query.page.PageAnswer`.
        """
        return dict(self.call("QueryPage", what, list(fields), qfilter, page))

    def query_fields(self, what: str, fields: Sequence[str] | None = None) -> dict[str, Any]:
        """Return ``{"fields": [definition, ...]}`` of these fields, or of all."""
        return dict(self.call("QueryFields", what, list(fields) if fields else None))

    def query_jobs(self, job_ids: Sequence[int] | None, fields: Sequence[str]) -> list[Any]:
        """Return the values of the fields for each job; None in the place of an unknown job."""
        return list(self.call("QueryJobs", list(job_ids) if job_ids else None, list(fields)))

    def query_instances(
        self, names: Sequence[str], fields: Sequence[str], use_locking: bool = False
    ) -> list[list[Any]]:
        """Return values in the order of the fields; of all objects when none is named."""
        return list(self.call("QueryInstances", list(names), list(fields), use_locking))

    def query_nodes(
        self, names: Sequence[str], fields: Sequence[str], use_locking: bool = False
    ) -> list[list[Any]]:
        """Return values in the order of the fields; of all objects when none is named."""
        return list(self.call("QueryNodes", list(names), list(fields), use_locking))

    def query_groups(
        self, names: Sequence[str], fields: Sequence[str], use_locking: bool = False
    ) -> list[list[Any]]:
        """Return values in the order of the fields; of all objects when none is named."""
        return list(self.call("QueryGroups", list(names), list(fields), use_locking))

    def query_networks(
        self, names: Sequence[str], fields: Sequence[str], use_locking: bool = False
    ) -> list[list[Any]]:
        """Return values in the order of the fields; of all objects when none is named."""
        return list(self.call("QueryNetworks", list(names), list(fields), use_locking))

    def query_exports(self, nodes: Sequence[str], use_locking: bool = False) -> list[list[Any]]:
        """Return ``[node, export]`` for each export on these nodes, or on all nodes."""
        return list(self.call("QueryExports", list(nodes), use_locking))

    def query_filters(self, uuids: Sequence[str] | None, fields: Sequence[str]) -> list[list[Any]]:
        """Return values of the queue's filter rules, in the order of the fields."""
        return list(self.call("QueryFilters", list(uuids) if uuids else None, list(fields)))

    def query_cluster_info(self) -> dict[str, Any]:
        """Return everything about the cluster as a whole, by name."""
        return dict(self.call("QueryClusterInfo"))

    def query_config_values(self, fields: Sequence[str]) -> list[Any]:
        """Return single values of the configuration; None for an unknown name."""
        return list(self.call("QueryConfigValues", list(fields)))

    def query_config_history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the newest commits of the configuration (:mod:`ganeti.master.history`)."""
        return list(self.call("QueryConfigHistory", limit))

    def query_config_changes(
        self,
        first: int | list[float],
        last: int | list[float],
    ) -> dict[str, Any]:
        """Return the differences between two states of the configuration.

        A state is a serial number, or a list with one time in seconds.
        """
        return dict(self.call("QueryConfigChanges", first, last))

    def query_config_at(self, point: int | list[float]) -> dict[str, Any]:
        """Return the whole configuration at an earlier time.

        A state is a serial number, or a list with one time in seconds.
        """
        return dict(self.call("QueryConfigAt", point))

    def check_guests(self) -> None:
        """Let the master ask all nodes for the state of their guests, and wait for the answers.

        Changes follow as events (``WaitForEvents``).
        """
        self.call("CheckGuests")

    def query_images(self) -> ImagesReport:
        """Return the catalogue of disk images of the master.

        :returns: as :class:`ganeti.luxi.answers.ImagesReport`.
        """
        found: ImagesReport = self.call("QueryImages")
        return found

    def query_failover_status(self) -> FailoverReport:
        """Let the master ask all nodes what they know about it (:mod:`ganeti.rpc.failover_status`).

        :returns: as :class:`ganeti.luxi.answers.FailoverReport`.
        """
        found: FailoverReport = self.call("QueryFailoverStatus")
        return found

    def read_console_log(
        self, instance_name: str, lines: int, position: str = ""
    ) -> dict[str, Any]:
        """Return a part of the log of an instance's console (``hypervisor/console_log.py``).

        :param lines: how many lines of the end; used without a position only.
        :param position: of the part before; empty for the end of the log.
        :returns: ``text``, ``position``, ``lost``, and ``node``, the name of the node.
        """
        return dict(self.call("ReadConsoleLog", instance_name, lines, position))

    def run_query(self, op: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an opcode that only reads, without a job.

        :param op: the opcode, as :meth:`ganeti.opcodes.base.OpCode.to_dict` returns it.
        :returns: ``result`` and ``warnings`` (:func:`ganeti.master.queries.without_job.run`).
        """
        return dict(self.call("RunQuery", op))

    def query_guests_usage(self) -> dict[str, Any]:
        """Let the master measure what guests use (:func:`ganeti.master.queries.guests.usage`)."""
        return dict(self.call("QueryGuestsUsage"))

    def query_metrics(self) -> list[dict[str, Any]]:
        """Return what the master daemon has measured (:func:`ganeti.master.metrics.measured`)."""
        return list(self.call("QueryMetrics"))

    def wait_for_events(
        self, place: list[Any] | None, timeout_s: float, kinds: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Return the events after a place (:meth:`ganeti.master.events.EventLog.after`).

        :param place: epoch and number; None for all events which the master has in its log.
        :param timeout_s: how long to wait when there is no event after the place.
        :param kinds: of :data:`ganeti.constants.events.KINDS`; None for those of jobs and
            instances.
        """
        wanted = None if kinds is None else list(kinds)
        return dict(self.call("WaitForEvents", place, timeout_s, wanted))

    def query_tags(self, kind: str, name: str = "") -> list[str]:
        """Return the tags of one object, or of the cluster."""
        return list(self.call("QueryTags", kind, name))

    # -- settings --------------------------------------------------------------------------------

    def set_queue_drain_flag(self, drained: bool) -> bool:
        """Refuse new jobs, or accept them again."""
        return bool(self.call("SetDrainFlag", drained))

    def set_watcher_pause(self, until: float | None) -> float | None:
        """Pause the watcher until a time in seconds since the epoch; None ends the pause."""
        result: float | None = self.call("SetWatcherPause", until)
        return result

    def replace_filter(
        self,
        uuid: str | None,
        priority: int,
        predicates: list[Any],
        action: str | list[Any],
        reason: list[Any],
    ) -> str:
        """Add (with uuid None) or replace a filter rule of the queue; return its uuid."""
        return str(self.call("ReplaceFilter", uuid, priority, predicates, action, reason))

    def query_documents(self, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return the documents which programs keep in the cluster; None for all."""
        return list(self.call("QueryDocuments", None if names is None else list(names)))

    def replace_document(self, name: str, tags: Sequence[str] | None, content: str) -> str:
        """Write a document if it has one of these entity tags (None: if there is none).

        :returns: its new entity tag.
        :raises errors.OpPrereqError: wrong_state: the condition does not hold.
        """
        given = None if tags is None else list(tags)
        return str(self.call("ReplaceDocument", name, given, content))

    def delete_document(self, name: str, tags: Sequence[str]) -> None:
        """Remove a document if it has one of these entity tags."""
        self.call("DeleteDocument", name, list(tags))

    def query_access_records(
        self, kind: str | None = None, since: int | None = None
    ) -> dict[str, Any]:
        """Return ``serial`` and ``records``: sessions, tokens and other access records.

        :param since: the serial number of the last answer; the records are None if it is the same.
        """
        return dict(self.call("QueryAccessRecords", kind, since))

    def change_access_records(self, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Change access records in one commit, all or none (:mod:`ganeti.master.access_records`).

        :returns: ``before`` and ``serial``, the serial numbers before and after the changes.
        :raises errors.OpPrereqError: a change is not allowed, or there are too many records.
        """
        return dict(self.call("ChangeAccessRecords", [list(change) for change in changes]))

    def explain_job(self, job_id: int) -> dict[str, Any]:
        """Return why a job waits, with the chain of jobs (:mod:`ganeti.jqueue.explain`).

        :raises errors.JobLost: there is no such job.
        """
        return dict(self.call("ExplainJob", job_id))

    def explain_jobs(self, job_ids: Sequence[int]) -> list[dict[str, Any] | None]:
        """Return why each of these jobs waits, without chains; None for an unknown job."""
        return list(self.call("ExplainJob", list(job_ids)))

    def explain_queue(self) -> dict[str, Any]:
        """Return the load of the queue (:func:`ganeti.jqueue.explain.explain_queue`)."""
        return dict(self.call("ExplainJob", None))

    def delete_filter(self, uuid: str) -> None:
        """Remove a filter rule of the queue."""
        self.call("DeleteFilter", uuid)

    # -- transport -------------------------------------------------------------------------------

    def _connect(self) -> socket.socket:
        deadline = self._clock() + self._connect_timeout_s
        while True:
            left = max(0.1, deadline - self._clock())
            try:
                sock = net.unix_connect(self.address, left)
            except PermissionError as err:
                raise errors.LuxiPermissionError(
                    f"no permission to talk to the master at {self.address}. Only members of the"
                    " daemon's group may."
                ) from err
            except TimeoutError as err:
                raise errors.LuxiTimeout(
                    f"the master at {self.address} accepts no connection"
                    f" within {self._connect_timeout_s:g} s"
                ) from err
            except OSError as err:
                if err.errno not in (errno.ENOENT, errno.ECONNREFUSED):
                    raise errors.LuxiError(
                        f"cannot connect to the master at {self.address}: {err.strerror}"
                    ) from err
                check_master()
                if self._clock() + const.CONNECT_RETRY_S > deadline:
                    raise errors.NoMasterError(
                        f"the master daemon (ganeti-masterd) does not answer at {self.address}"
                    ) from err
                self._sleep(const.CONNECT_RETRY_S)
            else:
                sock.settimeout(self._timeout_s)
                return sock

    def _exchange(self, data: bytes, count: int) -> list[bytes]:
        """Send requests, and return that number of answers.

        An interrupt (Ctrl-C) may come between any two steps. The answers which are under way then
        belong to no later request, so the connection is closed.
        """
        try:
            self._send(data)
            return [self._receive() for _ in range(count)]
        except BaseException:
            self.close()
            raise

    def _send(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = self._connect()
        try:
            self._socket.sendall(data)
        except TimeoutError as err:
            self.close()
            raise errors.LuxiTimeout(
                f"the master took no request for {self._timeout_s:g} s"
            ) from err
        except OSError as err:
            self.close()
            raise errors.ConnectionClosedError(
                f"the master closed the connection: {err.strerror}"
            ) from err

    def _receive(self) -> bytes:
        sock = self._socket
        if sock is None:
            raise errors.ConnectionClosedError("the connection to the master is closed")
        while not self._ready:
            try:
                data = sock.recv(_RECEIVE_BYTES)
            except TimeoutError as err:
                self.close()
                raise errors.LuxiTimeout(
                    f"no answer from the master for {self._timeout_s:g} s"
                ) from err
            except OSError as err:
                self.close()
                raise errors.ConnectionClosedError(
                    f"the connection to the master broke: {err.strerror}"
                ) from err
            if not data:
                self.close()
                raise errors.ConnectionClosedError(
                    "the master closed the connection before it answered"
                )
            self._ready.extend(self._splitter.feed(data))
        return self._ready.pop(0) or b""


def check_master() -> None:
    """Check that this node is the master node of a cluster.

    :raises errors.NoMasterError: this machine is in no cluster, or not its master.
    """
    try:
        master = fs.read_file(paths.current().ssconf_file("master_node")).strip()
    except FileNotFoundError:
        raise errors.NoMasterError(
            "this machine is not part of a cluster. Create one with 'gnt-cluster init'."
        ) from None
    except OSError as err:
        raise errors.NoMasterError(f"cannot read the name of the master node: {err}") from err
    if master and master.lower() != machine.current().hostname():
        raise errors.NoMasterError(
            f"this is not the master node. Please connect to node '{master}' and run the command"
            " again."
        )


def _op_dict(op: OpCode | dict[str, Any]) -> dict[str, Any]:
    return op if isinstance(op, dict) else op.to_dict()
