"""``gnt-job explain`` and ``gnt-job top``."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.luxi import explain_text as job_explain
from ganeti.platform import paths
from ganeti.utils.net import wait_readable

from ..conftest import Gnt

SCRIPT = Path(__file__).resolve().parents[4] / "scripts" / "gnt-job"
PATIENCE_S = 60.0
NOW = 1_000_000.0
QUEUE = {
    "at_work": 2,
    "limit": 20,
    "in_line": 0,
    "unfinished": 3,
    "ended_per_s": 1.25,
    "drained": False,
    "ending": False,
}


def job(job_id: int, status: str = "waiting", **facts: Any) -> dict[str, Any]:
    return {
        "id": job_id,
        "status": status,
        "summary": [f"TEST({job_id})"],
        "priority": 0,
        "opcode": f"TEST({job_id})",
        "opcode_number": 1,
        "opcodes": 1,
        "since": None,
        "message": None,
        "message_time": None,
        **facts,
    }


def reason(kind: str, text: str, *jobs: int, **facts: Any) -> dict[str, Any]:
    return {"kind": kind, "text": text, "jobs": list(jobs), **facts}


LOCK = reason("lock", "lock node/n1 (shared), held by job 25", 25, since=NOW - 12)
FOUND = {
    "job": job(26, since=NOW - 12),
    "reasons": [LOCK],
    "chain": [
        {
            "depth": 1,
            "job": job(25, "waiting", since=NOW - 200, opcodes=3, opcode_number=2),
            "reasons": [reason("dependency", "the end of job 24 (running), as success", 24)],
        },
        {
            "depth": 2,
            "job": job(24, "running", message="half way", message_time=NOW - 5),
            "reasons": [],
        },
    ],
    "holds": [{"lock": "cluster/BGL", "name": "cluster/BGL", "mode": "shared"}],
    "more": False,
    "notes": ["the queue is drained"],
}


def test_text() -> None:
    assert job_explain.describe(FOUND, NOW) == [
        "Job 26: waiting for 12 s, TEST(26)",
        "It waits for:",
        "  lock node/n1 (shared), held by job 25, for 12 s",
        "Jobs it waits for, and their reasons:",
        "  job 25: waiting for 3 min, TEST(25) (2 of 3)",
        "    waits for the end of job 24 (running), as success",
        "    job 24: running, TEST(24)",
        "      last log entry, 5 s ago: half way",
        "Locks it holds:",
        "  lock cluster/BGL (shared)",
        "Note: the queue is drained",
    ]


def test_text_of_jobs_that_wait_for_nothing() -> None:
    found = {**FOUND, "reasons": [], "chain": [], "holds": [], "notes": []}
    assert job_explain.describe({**found, "job": job(1, "running", since=NOW)}, NOW) == [
        "Job 1: running for 0 s, TEST(1)",
        "It waits for nothing: it is running.",
        "It holds no lock.",
    ]
    ended = job(1, "success", since=NOW - 90000 * 3, opcode=None, summary=["A", "B"])
    assert job_explain.describe({**found, "job": ended}, NOW)[:2] == [
        "Job 1: success 3 d ago, A,B",
        "It waits for nothing: it has ended.",
    ]


def test_text_of_a_filter_is_a_sentence() -> None:
    found = {**FOUND, "reasons": [reason("filter", "filter rule r pauses it")], "more": True}
    lines = job_explain.describe(found, NOW)
    assert lines[1:3] == ["Why:", "  filter rule r pauses it"]
    assert "  and further jobs" in lines


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0.9, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (200000, "2 d"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert job_explain.format_span(seconds) == text


def test_explain(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["ExplainJob"] = lambda job_id: {**FOUND, "job": job(job_id)}
    ended = gnt("job explain 26 27")
    assert ended.code == 0
    assert ended.out.startswith("Job 26: waiting, TEST(26)\nIt waits for:\n")
    assert "\n\nJob 27: " in ended.out
    assert master.requests == [("ExplainJob", [26]), ("ExplainJob", [27])]
    assert json.loads(gnt("job explain --output json 26").out) == [{**FOUND, "job": job(26)}]
    assert "kind: lock" in gnt("job explain --output yaml 26").out


def test_explain_mistakes(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("job explain").code == 1
    assert "'x' is not a job id" in gnt("job explain x").err
    assert master.requests == []
    master.errors["ExplainJob"] = errors.JobLost("job 5 does not exist")
    ended = gnt("job explain 5")
    assert ended.code == 1
    assert "job 5 does not exist" in ended.err


# -- top -----------------------------------------------------------------------------------------


@pytest.fixture
def busy(master: FakeMaster) -> FakeMaster:
    """A queue with four jobs."""
    master.fields["job"] = [
        {"name": name, "title": name, "kind": "number", "doc": name}
        for name in ("id", "status", "priority")
    ]
    master.answers["Query"] = lambda what, fields, qfilter: {
        "fields": [],
        "data": [
            [[0, job_id], [0, status], [0, priority]]
            for job_id, status, priority in (
                (7, "queued", 10),
                (8, "queued", -10),
                (5, "waiting", 0),
                (4, "running", 0),
            )
        ],
    }
    entries = {
        4: {
            "job": job(4, "running", message="copying\nblocks", since=time.time() - 600),
            "reasons": [],
        },
        5: {"job": job(5, since=time.time() - 500), "reasons": [LOCK]},
        7: {
            "job": job(7, "queued", priority=10),
            "reasons": [reason("filter", "filter rule r pauses it")],
        },
    }

    def explain(asked: Any) -> Any:
        # Job 8 is gone between the two requests.
        return QUEUE if asked is None else [entries.get(job_id) for job_id in asked]

    master.answers["ExplainJob"] = explain
    return master


def test_top_once(gnt: Gnt, busy: FakeMaster) -> None:
    ended = gnt("job top --once")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        "1 running, 1 waiting, 2 queued; 2 of 20 workers busy, 0 jobs wait for one; 1.2 jobs/s in the"
        " last minute\n"
        "ID Status   Since Prio Job     Why it waits, or last line of log\n"
        " 4 running 10 min    0 TEST(4) copying blocks\n"
        " 5 waiting  8 min    0 TEST(5) lock node/n1 (shared), held by job 25\n"
        " 7 queued       -   10 TEST(7) filter rule r pauses it\n"
    )
    (query,) = [args for method, args in busy.requests if method == "Query"]
    assert query == [
        "job",
        ["id", "status", "priority"],
        [
            "|",
            *(["==", "status", state] for state in ("running", "canceling", "waiting", "queued")),
        ],
    ]
    # The most urgent of a state first.
    assert ("ExplainJob", [[4, 5, 8, 7]]) in busy.requests


def test_top_without_a_terminal_shows_once(gnt: Gnt, busy: FakeMaster) -> None:
    assert gnt("job top").out == gnt("job top --once").out


def test_top_for_programs(gnt: Gnt, busy: FakeMaster) -> None:
    rows = gnt("job top --no-headers --separator=|").out.splitlines()
    assert [row.split("|")[0] for row in rows] == ["4", "5", "7"]
    assert 599 <= int(rows[0].split("|")[2]) < 700
    data = json.loads(gnt("job top --output json").out)
    assert data["queue"] == QUEUE
    assert data["counts"] == {"running": 1, "canceling": 0, "waiting": 1, "queued": 2}
    assert [entry["job"]["id"] for entry in data["jobs"]] == [4, 5, 7]


def test_top_of_some(gnt: Gnt, busy: FakeMaster) -> None:
    gnt("job top --once -n 2")
    assert ("ExplainJob", [[4, 5]]) in busy.requests
    assert gnt("job top --once -n 0").out.count("\n") == 2


def test_top_tells_what_is_unusual(gnt: Gnt, busy: FakeMaster) -> None:
    before = busy.answers["ExplainJob"]
    busy.answers["ExplainJob"] = lambda asked: (
        {**QUEUE, "drained": True, "ending": True} if asked is None else before(asked)
    )
    assert "; DRAINED; THE MASTER DAEMON IS ENDING\n" in gnt("job top").out


def test_top_mistakes(gnt: Gnt, master: FakeMaster) -> None:
    assert "interval must be at least 1 second" in gnt("job top --interval 0").err
    assert "must be 0 or more" in gnt("job top --number=-1").err
    assert gnt("job top 5").code == 1
    assert master.requests == []


class Terminal:
    """The real command on a terminal of its own."""

    def __init__(self, *words: str, rows: int = 24, columns: int = 80, **environ: str) -> None:
        import fcntl
        import termios

        self.main, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.modes = termios.tcgetattr(inner)
        self.inner = inner
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *words],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "TERM": "xterm", **environ},
            start_new_session=True,
            preexec_fn=self._control,
        )
        self.text = ""

    def _control(self) -> None:
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def until(self, condition: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition(self.text):
            assert time.monotonic() < deadline, self.text
            if wait_readable([self.main], 0.1):
                self.text += os.read(self.main, 65536).decode()

    def end(self) -> int:
        """Exit code; the terminal must be as it was."""
        import termios

        try:
            code = self.process.wait(PATIENCE_S)
            assert termios.tcgetattr(self.inner) == self.modes
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            os.close(self.main)
            os.close(self.inner)
        return code


def test_top_on_a_terminal_until_q(busy: FakeMaster) -> None:
    seen = Terminal("top", "--interval", "3600")
    seen.until(lambda text: "TEST(7)" in text)
    assert "\033[32mrunning\033[0m" in seen.text
    first = len([method for method, _ in busy.requests if method == "Query"])
    os.write(seen.main, b"x ")
    seen.until(lambda text: text.count("TEST(7)") == 2)
    assert len([method for method, _ in busy.requests if method == "Query"]) == first + 1
    os.write(seen.main, b"q")
    assert seen.end() == 0


def test_top_fits_into_a_small_terminal(busy: FakeMaster) -> None:
    seen = Terminal("top", "--interval", "3600", rows=6, columns=30, NO_COLOR="1")
    seen.until(lambda text: "... and 3 more" in text)
    lines = [line.split("\033")[0] for line in seen.text.split("\r\n")]
    assert max(len(line.removeprefix("[H")) for line in lines) < 30
    assert "TEST(5)" not in seen.text
    os.kill(seen.process.pid, signal.SIGINT)
    assert seen.end() == 0


def test_the_screen_begins_with_cluster_time_and_keys(busy: FakeMaster, here: paths.Paths) -> None:
    """Names of the cluster's domain are short where the table is too wide, and nothing is wrapped."""
    ssconf = Path(here.ssconf_file("cluster_name"))
    ssconf.parent.mkdir(parents=True, exist_ok=True)
    ssconf.write_text("cluster.example.com\n")
    before = busy.answers["ExplainJob"]
    reasons = [reason("lock", "lock instance/web1.example.com, held by job 25, and others wait")]
    work = "INSTANCE_CREATE(web1.example.com)"
    busy.answers["ExplainJob"] = lambda asked: (
        before(asked)
        if asked is None
        else [{"job": {**job(job_id), "opcode": work}, "reasons": reasons} for job_id in asked]
    )
    seen = Terminal("top", "--interval", "3600", NO_COLOR="1")
    seen.until(lambda text: text.count("INSTANCE_CREATE") == 4)
    lines = [line.split("\033")[0].removeprefix("[H") for line in seen.text.split("\r\n")]
    lines[0] = seen.text.removeprefix("\033[H").split("\033")[0]
    assert re.fullmatch(
        r"cluster\.example\.com  \d\d:\d\d:\d\d +every 3600 s  space: now  q: quit", lines[0]
    )
    assert len(lines[0]) == 79 and max(map(len, lines)) <= 79
    assert lines[1:4] == [
        "1 running, 1 waiting, 2 queued; 2 of 20 workers busy, 0 jobs wait for one; 1.2",
        "jobs/s in the last minute",
        lines[3],
    ]
    assert "INSTANCE_CREATE(web1) lock instance/web1, held by job 2" in lines[4]
    os.write(seen.main, b"q")
    assert seen.end() == 0


def test_top_on_a_terminal_that_can_do_nothing(busy: FakeMaster) -> None:
    seen = Terminal("top", "--interval", "1", TERM="dumb")
    seen.until(lambda text: text.count("TEST(7)") == 2)
    assert "\033" not in seen.text
    # Ctrl-C, as the terminal sends it.
    os.write(seen.main, b"\x03")
    assert seen.end() == 0


def test_top_outlives_a_restart_of_the_master(busy: FakeMaster) -> None:
    seen = Terminal("top", "--interval", "1")
    seen.until(lambda text: "TEST(7)" in text)
    busy.errors["Query"] = ConnectionError()
    seen.until(lambda text: "this is the state of" in text)
    del busy.errors["Query"]
    shown = seen.text.count("TEST(7)")
    seen.until(lambda text: text.count("TEST(7)") > shown + 2)
    assert "this is the state of" not in seen.text.rsplit("\033[H", 1)[-1]
    os.write(seen.main, b"q")
    assert seen.end() == 0


@pytest.fixture
def listed(busy: FakeMaster) -> FakeMaster:
    """A queue of ten jobs, for ``gnt-job list``."""
    kinds = {"id": "number", "status": "text"}

    def query(_what: str, names: list[str], _filter: Any) -> dict[str, Any]:
        fields = [
            {"name": name, "title": name.upper(), "kind": kinds.get(name, "other"), "doc": ""}
            for name in names
        ]
        rows = [
            [
                [0, {"id": number, "status": "running", "summary": ["TEST"]}.get(name)]
                for name in names
            ]
            for number in range(1, 11)
        ]
        return {"fields": fields, "data": rows}

    busy.answers["Query"] = query
    return busy


def test_a_list_on_a_terminal_is_shown_again_until_q(listed: FakeMaster) -> None:
    seen = Terminal("list", "--watch", "--interval", "3600")
    seen.until(lambda text: text.count("\033[J") == 1)
    asked = len(listed.requests)
    os.write(seen.main, b" ")
    seen.until(lambda text: text.count("\033[J") == 2)
    # Which jobs, and what they do.
    assert [method for method, _ in listed.requests[asked:]] == ["Query", "Query"]
    os.write(seen.main, b"q")
    assert seen.end() == 0


@pytest.mark.usefixtures("listed")
def test_a_long_list_on_a_small_terminal() -> None:
    seen = Terminal("list", "--watch", "--interval", "3600", rows=5, columns=30)
    # The titles, and the newest jobs.
    seen.until(lambda text: "10   -" in text)
    assert seen.text.count("\r\n") == 4
    assert "Status" in seen.text
    assert "\033[32mrunning\033[0m" in seen.text
    os.write(seen.main, b"q")
    assert seen.end() == 0
