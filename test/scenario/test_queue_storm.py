"""Twenty clients, jobs of every kind, and a master daemon that is killed again and again.

The clients do what real ones do: they submit many jobs at once, with priorities and dependencies,
cancel some, wait for some, and when the connection breaks they connect anew and repeat what was not
answered. Executions are counted in the master's log, where each opcode leaves a line when it
begins, and, for the jobs which set a tag, in the history of the configuration.

Five nodes, 10,000 jobs and forty kills.
"""

from __future__ import annotations

import json
import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import IN_PROCESSES, Cluster, alive, wait_until
from luxi_client import Luxi

NODES, JOBS, KILLS = 5, 10000, 40
CLIENTS = 20
TOGETHER = 10

FINAL = {"success", "error", "canceled"}
BEGAN = re.compile(r"INFO job (\d+) begins with .+ \((\d+) of \d+\)$", re.MULTILINE)
# The daemon was killed before the process of the job heard that it may begin.
GOES_ON = re.compile(
    r"INFO job (\d+) goes on in its process with .+ \((\d+) of \d+\)$", re.MULTILINE
)


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    made = Cluster(cluster_directory, NODES, "--hypervisor", "fake")
    made.create.ok()
    try:
        yield made
    finally:
        made.destroy()


class Client(threading.Thread):
    """Submits its share of the jobs.

    :ivar acknowledged: jobs whose submission was answered, with what was asked for.
    :ivar canceled: jobs of which the master said that they were canceled.
    :ivar ended: jobs whose end was told, and which it was.
    """

    def __init__(self, cluster: Cluster, master: str, number: int, total: list[int]) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[int, dict[str, Any]] = {}
        self.canceled: set[int] = set()
        self.ended: dict[int, str] = {}
        self.error: BaseException | None = None
        self._cluster = cluster
        self._master = master
        self._number = number
        self._total = total
        self._rng = random.Random(number)
        self._connection: Luxi | None = None
        self._repeat = threading.Event()

    def run(self) -> None:
        try:
            while len(self.acknowledged) < JOBS // CLIENTS:
                self._some_jobs()
            for job in list(self.acknowledged)[-3:]:
                self._wait(job)
        except BaseException as err:  # noqa: BLE001 - the test reports what a client died of
            self.error = err
        finally:
            if self._connection is not None:
                self._connection.close()

    def _persistently(self, method: str, *args: Any) -> Any:
        """Call, and again when the master has gone meanwhile."""
        while True:
            try:
                if self._connection is None:
                    self._connection = Luxi(self._cluster, self._master)
                self._connection.send(method, *args)
                answer = self._connection.receive_any()
            except OSError:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                self._repeat.wait(0.05)
                continue
            if answer["success"]:
                return answer["result"]
            # The master was about to end; it says so.
            assert "master daemon is ending" in str(answer) or "is stopped" in str(answer), answer
            self._repeat.wait(0.05)

    def _some_jobs(self) -> None:
        rng = self._rng
        wanted = []
        earlier = sorted(self.acknowledged)
        for place in range(TOGETHER):
            depends: list[list[Any]] = []
            if place and rng.random() < 0.4:
                depends.append(
                    [
                        -rng.randint(1, place),
                        rng.choice(([], ["success"], ["success", "error", "canceled"])),
                    ]
                )
            if earlier and rng.random() < 0.2:
                depends.append([rng.choice(earlier), ["success", "error", "canceled"]])
            wanted.append(self._job(depends, f"{self._number}.{len(earlier)}.{place}"))
        answers = self._persistently("SubmitManyJobs", wanted)
        for job, (accepted, job_id) in zip(wanted, answers, strict=True):
            assert accepted, job_id
            assert job_id not in self.acknowledged
            self.acknowledged[job_id] = job[0]
        self._total[self._number] = len(self.acknowledged)
        ids = [job_id for _accepted, job_id in answers]
        if rng.random() < 0.5:
            success, message = self._persistently("CancelJob", rng.choice(ids))
            if success and "was canceled" in message:
                self.canceled.add(int(re.findall(r"job (\d+)", message)[0]))
        if rng.random() < 0.5:
            self._persistently("ChangeJobPriority", rng.choice(ids), rng.randint(-20, 19))
        if rng.random() < 0.3:
            self._wait(rng.choice(ids))

    def _job(self, depends: list[list[Any]], name: str) -> list[dict[str, Any]]:
        rng = self._rng
        common = {"priority": rng.choice((-10, 0, 10)), "depends": depends, "comment": name}
        if rng.random() < 0.03:
            return [
                {
                    "OP_ID": "OP_TAGS_SET",
                    "kind": "cluster",
                    "name": None,
                    "tags": [f"storm:{name}"],
                    **common,
                }
            ]
        op = {
            "OP_ID": "OP_TEST_DELAY",
            "duration": rng.choice((0.0, 0.0, 0.01)),
            "on_master": rng.random() < 0.1,
            **common,
        }
        return [op, {**op, "depends": None}] if rng.random() < 0.1 else [op]

    def _wait(self, job_id: int) -> None:
        info: list[str] | None = None
        while info is None or info[0] not in FINAL:
            answer = self._persistently("WaitForJobChange", job_id, ["status"], info, 1 << 30, 60)
            info = info if answer == "nochange" else answer[0]
        self.ended[job_id] = info[0]


@pytest.mark.long
def test_nothing_is_lost_and_nothing_runs_twice(cluster: Cluster) -> None:
    master = cluster.master
    total = [0] * CLIENTS
    clients = [Client(cluster, master, number, total) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for kill in range(1, KILLS + 1):
        goal = JOBS * kill // (KILLS + 1)
        wait_until(
            lambda goal=goal: (
                sum(total) >= goal
                or not any(  # type: ignore[misc]
                    client.is_alive() for client in clients
                )
            ),
            "jobs are accepted",
        )
        pid = cluster.kill(master, "ganeti-masterd", signal.SIGKILL)
        wait_until(lambda pid=pid: not alive(pid), "masterd is gone")  # type: ignore[misc]
        cluster.on(master, "ganeti-masterd").ok()
    for client in clients:
        client.join()
        if client.error is not None:
            raise client.error
    luxi = Luxi(cluster, master)
    wait_until(
        lambda: all(row[0] in FINAL for row in luxi.call("QueryJobs", None, ["status"])),
        "all jobs have ended",
    )

    acknowledged = {job_id: op for client in clients for job_id, op in client.acknowledged.items()}
    assert len(acknowledged) == sum(len(client.acknowledged) for client in clients), (
        "two clients were given the same id"
    )
    assert len(acknowledged) >= JOBS
    rows = _jobs(luxi)
    assert acknowledged.keys() <= rows.keys(), "a job was lost"
    _check_executions(cluster, master, rows)
    _check_ends(clients, acknowledged, rows)
    _check_tags(luxi, rows)
    _check_files(cluster, master, rows.keys())
    assert luxi.call("Query", "lock", ["name", "owner", "pending"], None)["data"] == []
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text
    assert luxi.call("SubmitJob", [{"OP_ID": "OP_TEST_DELAY", "duration": 0.0}]) > max(rows)
    luxi.close()


def _jobs(luxi: Luxi) -> dict[int, dict[str, Any]]:
    fields = ["id", "status", "ops", "opstatus", "opresult", "opexec", "end_ts"]
    return {
        row[0]: dict(zip(fields, row, strict=True)) for row in luxi.call("QueryJobs", None, fields)
    }


def _check_executions(cluster: Cluster, master: str, rows: dict[int, dict[str, Any]]) -> None:
    log = cluster.path(master, "var/log/ganeti/master-daemon.log").read_text(errors="replace")
    began = Counter((int(job), int(op)) for job, op in BEGAN.findall(log))
    assert set(began.values()) == {1}, [key for key, count in began.items() if count > 1]
    went_on = {(int(job), int(op)) for job, op in GOES_ON.findall(log)}
    assert IN_PROCESSES or not went_on
    for job_id, row in rows.items():
        for place, status in enumerate(row["opstatus"], 1):
            if status == "success":
                assert (job_id, place) in began.keys() | went_on, (
                    f"job {job_id} did not run, but has succeeded"
                )
            if row["opexec"][place - 1] is None:
                assert (job_id, place) not in began, f"job {job_id} ran, and does not say so"


def _check_ends(
    clients: list[Client], acknowledged: dict[int, dict[str, Any]], rows: dict[int, dict[str, Any]]
) -> None:
    statuses: Counter[str] = Counter()
    for job_id in acknowledged:
        row = rows[job_id]
        statuses[row["status"]] += 1
        reason = str([result for result in row["opresult"] if result is not None])
        if row["status"] == "error":
            assert (
                "master daemon ended" in reason
                or "depends on job" in reason
                or (IN_PROCESSES and "the master daemon was restarted during this change" in reason)
            ), reason
        if row["status"] == "canceled":
            assert "canceled" in reason, reason
        for awaited, states in row["ops"][0]["depends"] or ():
            assert awaited > 0, "a relative id was stored"
            if row["status"] == "success":
                assert rows[awaited]["status"] in (states or ["success"])
                assert row["opexec"][0] >= rows[awaited]["end_ts"], "began too early"
    for client in clients:
        for job_id in client.canceled:
            assert rows[job_id]["status"] == "canceled"
        for job_id, status in client.ended.items():
            assert rows[job_id]["status"] == status, "another end than was told"
    assert statuses["success"] > len(acknowledged) // 2, statuses
    assert statuses["canceled"] > 0, statuses


def _check_tags(luxi: Luxi, rows: dict[int, dict[str, Any]]) -> None:
    """The effects of jobs, counted where each of them is one commit of the configuration."""
    commits = Counter(commit["job"] for commit in luxi.call("QueryConfigHistory", None))
    tags = luxi.call("QueryTags", "cluster", "")
    # A submission that was repeated, because its answer was lost, may have been made twice.
    setters: dict[str, dict[int, dict[str, Any]]] = {}
    for job_id, row in rows.items():
        if row["ops"][0]["OP_ID"] == "OP_TAGS_SET":
            setters.setdefault(row["ops"][0]["tags"][0], {})[job_id] = row
    assert setters
    for tag, jobs in setters.items():
        if any(row["status"] == "success" for row in jobs.values()):
            assert tag in tags
        if all(row["opexec"][0] is None for row in jobs.values()):
            assert tag not in tags, "the effect of a job that never ran"
        for job_id, row in jobs.items():
            assert commits[job_id] <= (row["opexec"][0] is not None), "ran twice, or did not run"
            if row["status"] == "success" and len(jobs) == 1:
                assert commits[job_id] == 1, "its commit is missing in the history"


def _check_files(cluster: Cluster, master: str, ids: Any) -> None:
    def files(node: str) -> dict[str, str]:
        queue = cluster.path(node, "var/lib/ganeti/queue")
        return {
            path.name: path.read_text()
            for path in queue.iterdir()
            if path.name.startswith("job-") or path.name in ("serial", "version")
        }

    def same(node: str) -> Callable[[], bool]:
        return lambda: files(node) == files(master)

    names = cluster.node_names
    assert len(names) == NODES
    for node in names:
        wait_until(same(node), f"{node} has the same jobs")
    here = files(master)
    assert {f"job-{job_id}" for job_id in ids} <= here.keys()
    for name, text in here.items():
        if name.startswith("job-"):
            assert json.loads(text)["id"] == int(name[4:])
