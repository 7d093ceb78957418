"""What a user is told when the master is not there, and what an interrupt does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.cli import jobs
from ganeti.platform import paths

from .conftest import Gnt

TOP = Path(__file__).parents[3]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for a master that is just starting."""
    monkeypatch.setattr(jobs, "_CONNECT_TIMEOUT_S", 0.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "line",
    [
        "instance list",
        "job list",
        "node info",
        "debug delay 1",
        "cluster info",
        "instance remove -f web1",
    ],
)
def test_no_cluster(line: str, gnt: Gnt, here: paths.Paths) -> None:
    Path(here.ssconf_file("master_node")).unlink()
    ended = gnt(line)
    assert (ended.code, ended.out) == (5, "")
    assert "no cluster here" in ended.err
    assert "gnt-cluster init" in ended.err


@pytest.mark.usefixtures("impatient")
def test_not_the_master(gnt: Gnt, here: paths.Paths) -> None:
    Path(here.ssconf_file("master_node")).write_text("node9.example.com\n", encoding="utf-8")
    ended = gnt("instance list")
    assert ended.code == 11
    assert "(node1.example.com) is not the master" in ended.err
    assert "Run the command on node9.example.com" in ended.err


@pytest.mark.usefixtures("impatient")
def test_the_daemon_does_not_run(gnt: Gnt, here: paths.Paths) -> None:
    ended = gnt("instance list")
    assert ended.code == 1
    assert "the master daemon does not run" in ended.err
    assert "vcluster start" in ended.err


def test_the_daemon_dies(gnt: Gnt, master: FakeMaster) -> None:
    master.errors["WaitForJobChange"] = ConnectionResetError()
    ended = gnt("debug delay 1")
    assert ended.code == 1
    assert "the master daemon closed the connection" in ended.err


def test_the_queue_is_full_or_drained(gnt: Gnt, master: FakeMaster) -> None:
    master.errors["SubmitJob"] = errors.JobQueueFull()
    assert "the job queue is full" in gnt("debug delay 1").err
    master.errors["SubmitJob"] = errors.JobQueueDrainError("queue drained")
    assert "queue drained" in gnt("debug delay 1").err


# -- the real script ------------------------------------------------------------------------------


def script(name: str, *words: str) -> list[str]:
    return [sys.executable, str(TOP / "scripts" / name), *words]


@pytest.mark.parametrize(
    "name", ["gnt-cluster", "gnt-debug", "gnt-instance", "gnt-job", "gnt-node", "gnt-os"]
)
def test_scripts_start(name: str, tmp_path: Path) -> None:
    # From elsewhere, with nothing in the environment that helps.
    done = subprocess.run(
        script(name, "--version"),
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{name} (ganeti ")


def test_a_script_against_the_simulated_master(here: paths.Paths, master: FakeMaster) -> None:
    master.logs["OP_TEST_DELAY"] = ["grün"]
    done = subprocess.run(
        script("gnt-debug", "delay", "1"),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == "Fri Nov 20 22:16:50 2026 grün\n"


def test_interrupt_leaves_the_job_running(here: paths.Paths, master: FakeMaster) -> None:
    master.hold = "waiting"
    waiting = subprocess.Popen(
        script("gnt-debug", "delay", "1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert waiting.stderr is not None
    # It says so once it has waited for a while; then it is surely waiting.
    assert waiting.stderr.readline() == "Job 1 is waiting for locks\n"
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate()
    assert waiting.returncode == 1
    assert out == ""
    assert err.strip() == (
        "Interrupted; job 1 continues. Watch it with 'gnt-job watch 1', cancel it"
        " with 'gnt-job cancel 1'."
    )
    assert master.jobs[1].status == "waiting"
    assert "CancelJob" not in master.methods()


def test_a_reader_that_has_seen_enough(here: paths.Paths, master: FakeMaster) -> None:
    master.fields["instance"] = [{"name": "name", "title": "Instance", "kind": "text", "doc": "n"}]
    master.rows["instance"] = [{"name": f"web{number:05}"} for number in range(20000)]
    listing = subprocess.Popen(
        script("gnt-instance", "list", "-o", "name"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Without buffers Python takes a half written line for written.
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert listing.stdout is not None and listing.stderr is not None
    assert listing.stdout.readline() == "Instance\n"
    listing.stdout.close()
    assert listing.stderr.read() == ""
    assert listing.wait() == 1
    listing.stderr.close()
