"""Measures the job queue: latency, acceptance, sustained rate, and a long queue with a restart.

Part of ``make bench`` (:mod:`devel.bench`). Each function takes a running virtual cluster and
returns samples; :mod:`devel.bench.program` has the titles and budgets. The jobs do nothing
(``OP_TEST_DELAY`` with no duration), so the figures show the queue itself: submitting jobs, storing
them, sending them to the candidates, executing them, and informing the clients.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ganeti import errors, vcluster
from ganeti.constants import job as job_const
from ganeti.luxi import client as luxi
from ganeti.opcodes.test import OpTestDelay
from ganeti.utils import fs, process

_FINAL = ("success", "error", "canceled")
# Number of jobs in one request, and number of clients, for the sustained rate.
_CHUNK = 50
_CLIENTS = 4
_STEP_S = 600.0


def small_job() -> OpTestDelay:
    """Return an opcode which does nothing."""
    return OpTestDelay(duration=0.0, on_master=False, on_nodes=[])


def wait(client: luxi.Client, job_id: int) -> None:
    """Wait for a job as the commands do.

    :raises OpExecError: the job did not succeed.
    """
    previous: list[Any] | None = None
    serial = 0
    while previous is None or previous[0] not in _FINAL:
        change = client.wait_for_job_change(job_id, ["status"], previous, serial)
        if change is None:
            continue
        previous, log = change
        # Lines of the log which the client does not acknowledge would be sent again at once.
        serial = max([serial, *(int(line[0]) for line in log)])
    if previous[0] != "success":
        raise errors.OpExecError(f"job {job_id} ended with status {previous[0]}")


def submit_many(client: luxi.Client, count: int) -> list[int]:
    """Submit small jobs in one request; returns their numbers.

    :raises OpExecError: a job was refused.
    """
    ids = []
    for accepted, answer in client.submit_many_jobs([[small_job()] for _ in range(count)]):
        if not accepted:
            raise errors.OpExecError(f"a job was refused: {answer}")
        ids.append(int(answer))
    return ids


def wait_for_all(client: luxi.Client, ids: Sequence[int]) -> None:
    """Wait for many jobs: for the last one, then for those which have not ended yet.

    :raises OpExecError: a job did not succeed.
    """
    wait(client, ids[-1])
    rows = client.query_jobs(ids, ["status"])
    for job_id, row in zip(ids, rows, strict=True):
        if row is None or row[0] != "success":
            wait(client, job_id)


def latencies_ms(socket: str, rounds: int) -> list[float]:
    """Measure small jobs, one at a time: from the submission until the end is known."""
    with luxi.Client(socket) as client:
        wait(client, client.submit_job([small_job()]))  # the first job includes lazy imports
        return [
            _timed_ms(lambda: wait(client, client.submit_job([small_job()]))) for _ in range(rounds)
        ]


def acceptance_ms(socket: str, rounds: int, jobs: int = 200) -> list[float]:
    """Measure ``SubmitManyJobs`` with many jobs, until they are accepted."""
    samples = []
    with luxi.Client(socket) as client:
        for _ in range(rounds):
            begun = time.perf_counter()
            ids = submit_many(client, jobs)
            samples.append((time.perf_counter() - begun) * 1000)
            wait_for_all(client, ids)
    return samples


class Load(NamedTuple):
    """Rate of a busy queue; CPU time of the master daemon and of all node daemons per job."""

    jobs_per_s: float
    master_ms_per_job: float
    nodes_ms_per_job: float


def sustained(cluster: vcluster.VirtualCluster, seconds: float) -> Load:
    """Measure the rate with several clients, each of which always has jobs in the queue."""
    here = cluster.paths(cluster.nodes[0])
    context = multiprocessing.get_context("fork")
    results: Any = context.SimpleQueue()
    before = cpu_s(cluster)
    begun = time.monotonic()
    clients = [
        context.Process(
            target=_client, daemon=True, args=(here.master_socket, begun + seconds, results.put)
        )
        for _ in range(_CLIENTS)
    ]
    for one in clients:
        one.start()
    # Each client sends a result, even one that failed, in the order in which they end.
    counts = [results.get() for _ in clients]
    took_s = time.monotonic() - begun
    for one in clients:
        one.join()
    after = cpu_s(cluster)
    for count in counts:
        if not isinstance(count, int):
            raise errors.OpExecError(f"a client failed: {count}")
    jobs = sum(counts)
    return Load(
        jobs / took_s, (after[0] - before[0]) * 1000 / jobs, (after[1] - before[1]) * 1000 / jobs
    )


def _client(socket: str, until: float, report: Callable[[int | str], None]) -> None:
    """Submit jobs until a point in time; the main function of a client process.

    :param until: value of the monotonic clock.
    :param report: gets the number of jobs, or the text of an error.
    """
    done = 0
    try:
        with luxi.Client(socket) as client:
            ahead = submit_many(client, _CHUNK)
            while time.monotonic() < until:
                ids, ahead = ahead, submit_many(client, _CHUNK)
                wait_for_all(client, ids)
                done += len(ids)
            wait_for_all(client, ahead)
            done += len(ahead)
    except errors.GenericError as err:
        report(str(err))
    else:
        report(done)


def cpu_s(cluster: vcluster.VirtualCluster) -> tuple[float, float]:
    """Read the CPU seconds of the master daemon, and of the node daemons with their children."""
    daemons = {
        int(fs.read_file(cluster.paths(node).pid_file("ganeti-noded"))) for node in cluster.nodes
    }
    master = int(fs.read_file(cluster.paths(cluster.nodes[0]).pid_file("ganeti-masterd")))
    nodes_ticks = master_ticks = 0
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            fields = fs.read_file(f"/proc/{name}/stat").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # Fields 4 (parent) and 14 to 17 (own time, that of children which have ended) of proc(5).
        if int(name) == master:
            master_ticks = int(fields[11]) + int(fields[12])
        elif int(name) in daemons:
            nodes_ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) in daemons:
            nodes_ticks += int(fields[11]) + int(fields[12])
    per_s = os.sysconf("SC_CLK_TCK")
    return master_ticks / per_s, nodes_ticks / per_s


class Backlog(NamedTuple):
    """Figures of a long queue. ``list_ms``: list of all jobs; ``some_ms``: list of 20 jobs."""

    list_ms: list[float]
    some_ms: list[float]
    kib_per_job: float
    restart_ms: list[float]


def backlog(
    cluster: vcluster.VirtualCluster, *, queued: int, archived: int, rounds: int
) -> Backlog:
    """Fill the queue with jobs which may not start, list them, and restart the master daemon.

    The files of the jobs are written while the daemon is stopped, because it accepts fewer jobs.

    :param queued: number of jobs which wait.
    :param archived: number of jobs in the archive.
    """
    here = cluster.paths(cluster.nodes[0])
    pid_file = here.pid_file("ganeti-masterd")
    with luxi.Client(here.master_socket) as client:
        client.replace_filter(None, 0, [["jobid", [">", "id", 0]]], "PAUSE", [])
        first = client.submit_job([small_job()])
    _stop(cluster)
    _start_and_ask(cluster, here.master_socket)
    before_kib = _resident_kib(pid_file)
    _stop(cluster)
    example = fs.read_file(f"{here.queue_dir}/job-{first}")
    _write_jobs(example, first, range(first + 1, first + queued), lambda _job_id: here.queue_dir)
    _write_jobs(
        example,
        first,
        range(first + queued, first + queued + archived),
        lambda job_id: f"{here.queue_archive_dir}/{job_id // job_const.JOBS_PER_ARCHIVE_DIR}",
    )
    fs.write_file(
        here.queue_serial_file, f"{first + queued + archived}\n", mode=job_const.QUEUE_FILE_MODE
    )
    restart_ms = []
    for _ in range(3):
        restart_ms.append(_timed_ms(lambda: _start_and_ask(cluster, here.master_socket)))
        used_kib = _resident_kib(pid_file) - before_kib
        if len(restart_ms) < 3:
            _stop(cluster)
    fields = ["id", "status", "summary"]
    with luxi.Client(here.master_socket) as client:
        rows = client.query("job", fields)["data"]
        found = sum(row[1][1] == "queued" for row in rows)
        if found != queued:
            raise errors.OpExecError(f"{found} jobs are queued, not {queued}")
        list_ms = [_timed_ms(lambda: client.query("job", fields)) for _ in range(rounds)]
        some_ms = [
            _timed_ms(
                lambda: client.query(
                    "job", fields, ["|", *(["=", "id", first + place] for place in range(20))]
                )
            )
            for _ in range(rounds)
        ]
    return Backlog(list_ms, some_ms, used_kib / queued, restart_ms)


def _stop(cluster: vcluster.VirtualCluster) -> None:
    process.run(
        [f"{cluster.directory}/bin/daemon-util", "stop", "ganeti-masterd"],
        timeout_s=_STEP_S,
        env=vcluster.environment(cluster, cluster.nodes[0]),
        log=False,
    )


def _write_jobs(
    example: str, example_id: int, ids: Iterable[int], place: Callable[[int], str]
) -> None:
    """Write files of jobs, each one like an example."""
    for job_id in ids:
        directory = place(job_id)
        os.makedirs(directory, exist_ok=True)
        with open(f"{directory}/job-{job_id}", "w") as stream:
            stream.write(example.replace(f'{{"id":{example_id},', f'{{"id":{job_id},', 1))


def _start_and_ask(cluster: vcluster.VirtualCluster, socket: str) -> None:
    process.run(
        [f"{cluster.directory}/bin/ganeti-masterd"],
        timeout_s=_STEP_S,
        env=vcluster.environment(cluster, cluster.nodes[0]),
        log=False,
    )
    with luxi.Client(socket) as client:
        client.query_config_values(["drain_flag"])


def _resident_kib(pid_file: str) -> int:
    pid = int(fs.read_file(pid_file))
    for line in fs.read_file(f"/proc/{pid}/status").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise errors.OpExecError(f"the memory use of process {pid} is not known")


def _timed_ms(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1000


def percentile(samples: Iterable[float], percent: float) -> float:
    """Return the value which this percentage of the samples does not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
