"""A master that only pretends: a real socket, the real wire format, scripted answers.

Commands are tested against it through their real entry point. It keeps what it was asked
(:attr:`FakeMaster.requests`) and can fail on request (:attr:`FakeMaster.errors`)::

    master.results["OP_NODE_REMOVE"] = OpPrereqError("node unknown", "unknown_entity")
    master.logs["OP_INSTANCE_CREATE"] = ["* creating disks"]
    master.rows["node"] = [{"name": "node1", "mfree": 512}]

A job walks one state further with each WaitForJobChange; a *held* one stays where it is. When jobs
are *polled*, a job walks with each query of jobs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ganeti import errors
from ganeti.platform import paths
from ganeti.utils import net
from ganeti.wire import errors as wire_errors
from ganeti.wire import json

_ETX = b"\x03"
_PATH = ("queued", "waiting", "running")


class FakeJob:
    """One job: its opcodes, and how far it has come."""

    def __init__(self, job_id: int, ops: list[dict[str, Any]]) -> None:
        self.job_id = job_id
        self.ops = ops
        self.status = "queued"
        self.results: list[Any] = [None] * len(ops)
        self.states = ["queued"] * len(ops)
        self.log: list[list[Any]] = []
        self.held: str | None = None
        self.priority = 0

    @property
    def summary(self) -> list[str]:
        return [op["OP_ID"][3:] for op in self.ops]


class FakeMaster:
    """Answers LUXI requests on the master's socket of a directory."""

    #: [sec, usec] of every job's stamps and log lines.
    STAMP = (1795213010, 684568)

    def __init__(self) -> None:
        self.requests: list[tuple[str, list[Any]]] = []
        self.errors: dict[str, Exception] = {}
        self.results: dict[str, Any] = {}
        self.logs: dict[str, list[str]] = {}
        self.log_type = "message"
        self.hold: str | None = None
        self.polled = False
        self.jobs: dict[int, FakeJob] = {}
        self.next_job_id = 1
        self.submit_errors: dict[int, str] = {}
        self.short_names = False  # whether the first part of a host name is enough
        self.fields: dict[str, list[dict[str, str]]] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.statuses: dict[tuple[str, str], int] = {}
        self.cluster_info: dict[str, Any] = {}
        self.answers: dict[str, Callable[..., Any]] = {}
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []

    # -- what tests read --------------------------------------------------------------------------

    def methods(self) -> list[str]:
        """Names of the requests so far."""
        return [method for method, _ in self.requests]

    def opcodes(self) -> list[dict[str, Any]]:
        """Every opcode that was submitted."""
        return [op for job in self.jobs.values() for op in job.ops]

    def opcode(self) -> dict[str, Any]:
        """The only opcode that was submitted."""
        (op,) = self.opcodes()
        return op

    def release(self) -> None:
        """Let held jobs go on."""
        with self._lock:
            self.hold = None
            for job in self.jobs.values():
                job.held = None

    # -- the socket -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def serve(self, here: paths.Paths) -> Iterator[FakeMaster]:
        """Answer on the master socket below a root until the block ends."""
        os.makedirs(here.socket_dir, exist_ok=True)
        self._listener = net.unix_listen(here.master_socket)
        thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            thread.join(30)
            for worker in self._threads:
                worker.join(30)
            os.unlink(here.master_socket)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            worker = threading.Thread(target=self._talk, args=(connection,), daemon=True)
            self._threads.append(worker)
            worker.start()

    def _talk(self, connection: socket.socket) -> None:
        data = b""
        with connection:
            while True:
                try:
                    chunk = connection.recv(65536)
                except OSError:
                    return
                if not chunk:
                    return
                data += chunk
                while _ETX in data:
                    message, _, data = data.partition(_ETX)
                    answer = self._answer(json.loads(message))
                    if answer is None:
                        return
                    with contextlib.suppress(OSError):
                        connection.sendall(json.dumps(answer).encode() + _ETX)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        method, args = request["method"], request["args"]
        with self._lock:
            self.requests.append((method, args))
            error = self.errors.get(method)
            if isinstance(error, ConnectionError):
                return None  # the daemon dies
            try:
                if error is not None:
                    raise error
                own = self.answers.get(method)
                result = own(*args) if own is not None else getattr(self, f"_do_{method}")(*args)
            except Exception as err:  # noqa: BLE001  as the real door does
                return {"success": False, "result": wire_errors.encode(err)}
        return {"success": True, "result": result}

    # -- jobs -------------------------------------------------------------------------------------

    def _submit(self, ops: list[dict[str, Any]]) -> int:
        job = FakeJob(self.next_job_id, ops)
        job.held = self.hold
        self.next_job_id += 1
        self.jobs[job.job_id] = job
        return job.job_id

    def _do_SubmitJob(self, ops: list[dict[str, Any]]) -> int:
        return self._submit(ops)

    def _do_SubmitManyJobs(self, jobs: list[list[dict[str, Any]]]) -> list[list[Any]]:
        return [
            [False, self.submit_errors[index]]
            if index in self.submit_errors
            else [True, self._submit(ops)]
            for index, ops in enumerate(jobs)
        ]

    def _do_WaitForJobChange(
        self,
        job_id: int,
        fields: Sequence[str],
        info: list[Any] | None,
        serial: int | None,
        timeout_s: int,
    ) -> Any:
        job = self.jobs.get(job_id)
        if job is None:
            raise errors.JobLost(f"job {job_id} does not exist")
        if info is not None and job.status == info[0]:
            if job.status == job.held:
                # Not for long, so that a test does not wait; clients ask again.
                return "nochange"
            self._advance(job)
        entries = [entry for entry in job.log if entry[0] > (serial or 0)]
        return [[self._job_field(job, field) for field in fields], entries]

    def _advance(self, job: FakeJob) -> None:
        if job.status in ("success", "error", "canceled"):
            return
        place = _PATH.index(job.status) + 1
        if place < len(_PATH):
            job.status = _PATH[place]
            return
        self._finish(job)

    def _finish(self, job: FakeJob) -> None:
        for index, op in enumerate(job.ops):
            for text in self.logs.get(op["OP_ID"], ()):
                job.log.append([len(job.log) + 1, list(self.STAMP), self.log_type, text])
            result = self.results.get(op["OP_ID"])
            if callable(result) and not isinstance(result, Exception):
                result = result(op)
            if isinstance(result, Exception):
                job.results[index] = wire_errors.encode(result)
                job.states[index] = "error"
                job.status = "canceled" if isinstance(result, errors.JobCanceled) else "error"
                return
            job.results[index] = result
            job.states[index] = "success"
        job.status = "success"

    def finish(self, job_id: int) -> None:
        """Run a job to its end at once."""
        with self._lock:
            self._finish(self.jobs[job_id])

    def add_job(self, *ops: dict[str, Any]) -> int:
        """A job that was submitted by somebody else."""
        with self._lock:
            return self._submit(list(ops))

    def follow_up(self, *ops: dict[str, Any]) -> int:
        """A job that an opcode submits: for functions in ``results``, which have the lock."""
        return self._submit(list(ops))

    def _job_field(self, job: FakeJob, field: str) -> Any:
        stamp = list(self.STAMP)
        ended = job.status in ("success", "error", "canceled")
        return {
            "id": job.job_id,
            "status": job.status,
            "ops": job.ops,
            "opresult": job.results,
            "opstatus": job.states,
            "oplog": [job.log] * len(job.ops),
            "summary": job.summary,
            "opstart": [stamp] * len(job.ops),
            "opexec": [stamp] * len(job.ops),
            "opend": [stamp if ended else None] * len(job.ops),
            "received_ts": stamp,
            "start_ts": stamp,
            "end_ts": [stamp[0] + 1, 0] if ended else None,
            "priority": job.priority,
            "archived": False,
        }.get(field)

    def _do_QueryJobs(self, job_ids: Sequence[int], fields: Sequence[str]) -> list[Any]:
        return [
            [self._job_field(self.jobs[job_id], field) for field in fields]
            if job_id in self.jobs
            else None
            for job_id in job_ids
        ]

    def _do_CancelJob(self, job_id: int, kill: bool = False) -> list[Any]:
        job = self.jobs.get(job_id)
        if job is None or job.status in ("success", "error", "canceled"):
            return [False, f"Job {job_id} not found in queue"]
        job.status = "canceled"
        return [True, f"Job {job_id} canceled"]

    def _do_ChangeJobPriority(self, job_id: int, priority: int) -> list[Any]:
        if job_id not in self.jobs:
            return [False, f"Job {job_id} not found in queue"]
        self.jobs[job_id].priority = priority
        return [True, f"Priority of job {job_id} is now {priority}"]

    def _do_ArchiveJob(self, job_id: int) -> bool:
        job = self.jobs.get(job_id)
        return job is not None and job.status in ("success", "error", "canceled")

    def _do_AutoArchiveJobs(self, age_s: int, timeout_s: int) -> list[int]:
        return [len(self.jobs), 0]

    # -- queries ----------------------------------------------------------------------------------

    def _definitions(self, what: str, names: Sequence[str]) -> list[dict[str, str]]:
        known = {field["name"]: field for field in self.fields.get(what, [])}
        return [
            known.get(
                name,
                {"name": name, "title": name, "kind": "unknown", "doc": f"Unknown field '{name}'"},
            )
            for name in names
        ]

    def _do_Query(self, what: str, names: Sequence[str], qfilter: Any) -> dict[str, Any]:
        fields = self._definitions(what, names)
        rows = self.rows.get(what, [])
        if what == "job" and self.polled:
            for job in self.jobs.values():
                self._advance(job)
        if what == "job" and not rows:
            rows = [
                {name: self._job_field(job, name) for name in names} for job in self.jobs.values()
            ]
        name_field = "id" if what == "job" else "name"
        wanted = _named(qfilter, name_field)
        data = [
            [self._cell(what, row, field) for field in fields]
            for row in rows
            if wanted is None or row.get(name_field) in wanted
        ]
        return {"fields": fields, "data": data}

    def _cell(self, what: str, row: dict[str, Any], field: dict[str, str]) -> list[Any]:
        if field["kind"] == "unknown":
            return [1, None]
        status = self.statuses.get((str(row.get("name")), field["name"]), 0)
        return [status, None if status else row.get(field["name"])]

    def _do_QueryFields(self, what: str, names: Sequence[str] | None) -> dict[str, Any]:
        return {"fields": self._definitions(what, names) if names else self.fields[what]}

    def _old_query(
        self, what: str, names: Sequence[str], fields: Sequence[str], use_locking: bool
    ) -> list[list[Any]]:
        found = {row["name"]: row for row in self.rows.get(what, [])}
        if self.short_names:
            full = {name.partition(".")[0]: name for name in found}
            names = [full.get(name, name) for name in names]
        for name in names:
            if name not in found:
                raise errors.OpPrereqError(
                    f"{what.capitalize()} '{name}' not known", errors.ECODE_NOENT
                )
        return [[found[name].get(field) for field in fields] for name in names or found]

    def _do_QueryInstances(self, *args: Any) -> list[list[Any]]:
        return self._old_query("instance", *args)

    def _do_QueryNodes(self, *args: Any) -> list[list[Any]]:
        return self._old_query("node", *args)

    def _do_QueryGroups(self, *args: Any) -> list[list[Any]]:
        return self._old_query("group", *args)

    def _do_QueryNetworks(self, *args: Any) -> list[list[Any]]:
        return self._old_query("network", *args)

    def _do_QueryClusterInfo(self) -> dict[str, Any]:
        return self.cluster_info

    def _do_QueryConfigValues(self, names: Sequence[str]) -> list[Any]:
        return [
            {"cluster_name": "cluster.example.com", "master_node": "node1.example.com"}.get(name)
            for name in names
        ]


def _named(qfilter: Any, name_field: str) -> set[Any] | None:
    """Names in a filter of the form ``["|", ["==", name, x], ...]``; None for another."""
    if not isinstance(qfilter, list) or qfilter[:1] != ["|"]:
        return None
    if not all(part[:2] == ["==", name_field] for part in qfilter[1:]):
        return None
    return {part[2] for part in qfilter[1:]}
