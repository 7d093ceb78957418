"""A node knows what it does for which job, and refuses what another job wants meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.objects import Disk, FilledInstance
from ganeti.objects.transfer import NodeWork
from ganeti.platform import paths
from ganeti.storage import busy, node_work

WEB, DB = "uuid-web", "uuid-db"
OLD, NEW = "3 uuid-node1", "4 uuid-node2"

#: The process of another call, until its input ends. With ``program``, a program has its files.
CALL = """
import subprocess, sys
from ganeti.storage import node_work
job, epoch, instance, program = sys.argv[1:]
what = node_work.describe(
    "instance_os_add", "script 'create' of the OS", {}, job=int(job), epoch=epoch, token="aa"
)
import dataclasses
node_work.Serving(dataclasses.replace(what, instances=(instance,))).__enter__()
if program:
    subprocess.Popen(["sleep", "1000"], pass_fds=node_work.inherited_fds())
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[paths.Paths]:
    with paths.override(paths.Paths(str(tmp_path / "node1"))) as found:
        os.makedirs(found.run_dir)
        yield found


@pytest.fixture
def call(here: paths.Paths) -> Iterator[Any]:
    """Start the process of another call; returns it."""
    running: list[subprocess.Popen[bytes]] = []

    def start(job: int, epoch: str, instance: str, program: str = "") -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-c", CALL, str(job), epoch, instance, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={
                **os.environ,
                paths.ENV_ROOT: here.root,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
        )
        running.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return child

    yield start
    for child in running:
        child.kill()
        for work in node_work.running():
            for process in work.processes:
                os.kill(int(process.split(" ", 1)[0]), 9)
        child.wait()


def work(job: int | None = 7, epoch: str = OLD, **changes: Any) -> NodeWork:
    values: dict[str, Any] = {
        "job": job,
        "epoch": epoch,
        "token": "bb",
        "call": "instance_start",
        "doing": "start of the instance",
        "instances": (WEB,),
        "disks": (),
        "since": 1.0,
    }
    return NodeWork(**{**values, **changes})


def test_a_call_has_a_record_until_it_ends() -> None:
    with node_work.Serving(work()):
        assert [(one.job, one.epoch, one.instances) for one in node_work.running()] == [
            (7, OLD, (WEB,))
        ]
    assert node_work.running() == []


def test_nothing_is_left(here: paths.Paths) -> None:
    with node_work.Serving(work()):
        pass
    assert os.listdir(here.node_work_dir) == []


def test_another_job_is_refused_and_the_work_is_named(call: Any, here: paths.Paths) -> None:
    child = call(12, OLD, WEB)
    with pytest.raises(node_work.WorkInProgressError) as refused, node_work.Serving(work(13)):
        pytest.fail("both worked")
    text = str(refused.value)
    assert "job 12 is running on this instance or disk: script 'create' of the OS" in text
    assert f"kill {child.pid}" in text
    # The refused call leaves nothing behind.
    assert [one.job for one in node_work.running()] == [12]


@pytest.mark.parametrize(
    ("job", "epoch", "instance", "ok"),
    [
        (12, OLD, WEB, True),
        (12, NEW, WEB, False),
        (13, NEW, WEB, False),
        (None, OLD, WEB, False),
        (13, OLD, DB, True),
    ],
)
def test_who_may_work_beside(
    call: Any, job: int | None, epoch: str, instance: str, ok: bool
) -> None:
    """The same job may, under the same master; and anybody on other instances."""
    call(12, OLD, WEB)
    mine = work(job, epoch, instances=(instance,))
    if ok:
        with node_work.Serving(mine):
            assert len(node_work.running()) == 2
        return
    with pytest.raises(node_work.WorkInProgressError), node_work.Serving(mine):
        pass


def test_a_killed_call_leaves_no_lock(call: Any) -> None:
    child = call(12, OLD, WEB)
    child.kill()
    child.wait()
    with node_work.Serving(work(13)):
        assert [one.job for one in node_work.running()] == [13]


def test_its_program_keeps_the_record(call: Any, here: paths.Paths) -> None:
    child = call(12, OLD, WEB, "sleep")
    child.kill()
    child.wait()
    (left,) = node_work.running()
    assert left.job == 12
    assert [process.split(" ", 1)[1] for process in left.processes] == ["(sleep)"]
    with pytest.raises(node_work.WorkInProgressError, match="job 12"):
        node_work.Serving(work(13)).__enter__()
    os.kill(int(left.processes[0].split(" ", 1)[0]), 9)


def test_programs_which_have_locks_of_disks_have_the_record_too() -> None:
    disk = Disk(dev_type="file", logical_id=("loop", "/srv/a"), size=1, uuid="d")
    with node_work.Serving(work()), busy.working_on(disk, doing="being wiped") as disks:
        assert set(node_work.inherited_fds()) < set(disks.fds)


def test_a_transfer_can_be_named() -> None:
    with node_work.Serving(work()):
        node_work.started_transfer("export-web-1")
        assert [one.transfer for one in node_work.running()] == ["export-web-1"]
    node_work.started_transfer("nothing is running")


def test_a_revoked_call_is_refused_when_it_arrives() -> None:
    node_work.revoke(["cc"])
    with pytest.raises(node_work.WorkInProgressError, match="given this call up"):
        node_work.Serving(work(token="cc")).__enter__()
    with node_work.Serving(work(token="dd")):
        pass
    assert node_work.running() == []


@pytest.mark.parametrize("token", ["", "../x", "XX", "a" * 65])
def test_a_malformed_token_is_no_path(token: str) -> None:
    with pytest.raises(errors.ParseError):
        node_work.revoke([token])


def test_old_revocations_are_removed(here: paths.Paths) -> None:
    node_work.revoke(["cc"])
    os.utime(f"{here.node_work_dir}/revoked/cc", (0, 0))
    node_work.revoke(["dd"])
    assert os.listdir(f"{here.node_work_dir}/revoked") == ["dd"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"job": "x"}', b"\xff\x00"])
def test_a_damaged_record_stops_nothing(here: paths.Paths, content: bytes) -> None:
    os.makedirs(here.node_work_dir, exist_ok=True)
    Path(here.node_work_dir, "1-1-aa").write_bytes(content)
    with node_work.Serving(work()):
        assert len(node_work.running()) == 1
    assert node_work.running() == []


def test_everything_in_the_arguments_is_found() -> None:
    disk = Disk(dev_type="plain", logical_id=("vg", "a"), size=1, uuid="disk-a")
    other = Disk(dev_type="plain", logical_id=("vg", "b"), size=1, uuid="disk-b")
    values: dict[str, Any] = {name: None for name in FilledInstance.__dataclass_fields__}
    web = FilledInstance(**{**values, "uuid": WEB, "name": "web", "disks_info": (disk,)})
    args = {"instance": web, "source": ("raw", other), "renames": [(other, ("vg", "c"))], "n": 1}
    found = node_work.describe("x", "y", args, job=None, epoch="0", token="")
    assert (found.instances, found.disks) == ((WEB,), ("disk-a", "disk-b"))
