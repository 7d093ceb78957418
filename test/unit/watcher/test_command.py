"""The program ganeti-watcher: which parts run, locks, pause, exit codes."""

from __future__ import annotations

import functools
import os
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.platform import paths, watcher_files
from ganeti.rapi import client as rapi
from ganeti.tools import daemon_util
from ganeti.utils.filelock import FileLock
from ganeti.watcher import cluster, command, group, node

from .conftest import GROUP, add_instance

Parts = list[str]


@pytest.fixture
def parts(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """The parts which run, by name; none of them does anything."""
    called: Parts = []

    def replace(module: object, name: str, result: object = None) -> None:
        def note(*_: object, **__: object) -> object:
            called.append(name)
            return result

        monkeypatch.setattr(module, name, note)

    for name in ("run_hooks", "start_daemons", "maintain_health"):
        replace(node, name)
    monkeypatch.setattr(cluster, "start_daemons", lambda *_, **__: called.append("master") or True)
    replace(cluster, "archive_jobs")
    replace(cluster, "start_groups", [])
    replace(cluster, "merge_status")
    return called


NODE = ["run_hooks", "start_daemons", "maintain_health"]
MASTER = ["master", "archive_jobs", "start_groups", "merge_status"]


def test_on_the_master(parts: Parts, master: FakeMaster) -> None:
    assert command.main([]) == 0
    assert parts == NODE + MASTER


def test_on_another_node(parts: Parts, here: paths.Paths) -> None:
    Path(here.ssconf_file("master_node")).write_text("node2.example.com\n", encoding="ascii")
    assert command.main([]) == 0
    assert parts == NODE


def test_without_a_cluster(parts: Parts, here: paths.Paths) -> None:
    Path(here.noded_cert_file).unlink()
    assert command.main([]) == 0
    assert parts == []


def test_the_master_daemon_does_not_answer(
    parts: Parts, here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        command.luxi,
        "Client",
        lambda: _Broken(),
    )
    assert command.main([]) == 1
    assert parts == [*NODE, "master"]
    assert "the master daemon does not answer" in Path(here.log_watcher_file).read_text("ascii")


@pytest.mark.parametrize("change", ["no node", "another master"])
def test_what_ends_in_the_middle_is_no_failure(
    parts: Parts, here: paths.Paths, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    def leave() -> None:
        if change == "no node":
            Path(here.noded_cert_file).unlink()
            Path(here.ssconf_file("master_node")).unlink()
        else:
            Path(here.ssconf_file("master_node")).write_text("node2.example.com\n", "ascii")

    monkeypatch.setattr(command.luxi, "Client", lambda: _Broken(leave))
    assert command.main([]) == 0
    expected = {"no node": "not a node of a cluster", "another master": "role of the master"}
    assert expected[change] in Path(here.log_watcher_file).read_text("ascii")


class _Broken:
    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self._before = before

    def query_config_values(self, _: list[str]) -> None:
        self._before()
        raise errors.NoMasterError("nobody listens")

    def close(self) -> None:
        pass


def test_never_two_at_once(
    parts: Parts, here: paths.Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    with FileLock(here.watcher_lock_file) as lock:
        lock.acquire()
        assert command.main(["--dry-run"]) == 0
    assert parts == []
    assert "another watcher is running" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("age_s", "text", "code"),
    [
        (30.0, "has been running for 30 s; nothing was done", 0),
        (3599.0, "has been running for 59 min 59 s; nothing was done", 0),
        (2 * 3600 + 300.0, "has been running for 2 h 5 min, and probably hangs", 1),
        (90000.0, "has been running for 1 d 1 h, and probably hangs", 1),
    ],
)
def test_a_run_which_hangs_is_reported(
    age_s: float,
    text: str,
    code: int,
    parts: Parts,
    here: paths.Paths,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = functools.partial(watcher_files.holder, monotonic=lambda: 1000.0 + age_s)
    monkeypatch.setattr(watcher_files, "holder", now)
    with FileLock(here.watcher_lock_file) as lock:
        lock.acquire()
        with watcher_files.noted(lock, monotonic=lambda: 1000.0):
            assert command.main([]) == code
            assert command.main(["--dry-run"]) == code
    assert parts == []
    shown = capsys.readouterr().err
    assert f"another watcher (process {os.getpid()}) {text}" in shown
    log = Path(here.log_watcher_file).read_text("ascii")
    assert log.count(f"another watcher (process {os.getpid()}) {text}") == 2
    assert (f"kill {os.getpid()}" in shown) == bool(code)
    assert watcher_files.running(here) == {}


def test_a_group_of_which_a_run_hangs(here: paths.Paths, master: FakeMaster) -> None:
    with FileLock(here.watcher_group_lock_file(GROUP)) as lock:
        lock.acquire()
        with watcher_files.noted(lock, monotonic=lambda: time.monotonic() - 4000):
            assert command.main(["--node-group", GROUP]) == 1
            assert list(watcher_files.running(here)) == [GROUP]
    assert "probably hangs" in Path(here.log_watcher_file).read_text("ascii")


def test_a_run_notes_who_works_and_since_when(
    parts: Parts, here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(here.ssconf_file("master_node")).write_text("node2.example.com\n", encoding="ascii")
    Path(here.watcher_lock_file).write_text("99999 1.0\nsomething longer\n", encoding="ascii")
    seen: list[dict[str, watcher_files.Holder]] = []
    monkeypatch.setattr(node, "run_hooks", lambda **_: seen.append(watcher_files.running(here)))
    assert command.main([]) == 0
    ((pid, age_s),) = seen[0].values()
    assert pid == os.getpid() and 0 <= age_s < 600
    assert watcher_files.running(here) == {}


def test_the_time_of_the_last_complete_run(
    parts: Parts, here: paths.Paths, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, of_group = here.watcher_complete_file, here.watcher_group_complete_file(GROUP)
    assert watcher_files.completed_at(complete) is None
    assert command.main(["--dry-run"]) == 0
    monkeypatch.setattr(cluster, "start_daemons", lambda *_, **__: False)
    assert command.main([]) == 1
    assert watcher_files.completed_at(complete) is None
    monkeypatch.setattr(cluster, "start_daemons", lambda *_, **__: True)
    assert command.main([]) == 0
    assert (watcher_files.completed_at(complete) or 0) > time.time() - 600
    assert watcher_files.since_complete_s(complete, now=lambda: time.time() + 100) >= 100  # type: ignore[operator]
    assert watcher_files.completed_at(of_group) is None
    assert command.main(["--node-group", GROUP, "--dry-run"]) == 0
    monkeypatch.setattr(group.GroupRun, "run", lambda _: master.jobs.clear())
    assert watcher_files.completed_at(of_group) is None
    assert command.main(["--node-group", GROUP]) == 0
    assert (watcher_files.completed_at(of_group) or 0) > time.time() - 600
    assert Path(complete).stat().st_mode & 0o777 == 0o644


def test_a_full_disk_for_locks_does_not_stop_the_work(
    parts: Parts, here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    Path(here.ssconf_file("master_node")).write_text("node2.example.com\n", encoding="ascii")
    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(watcher_files.fs, "write_file", full)
    assert command.main([]) == 0
    assert parts == NODE
    log = Path(here.log_watcher_file).read_text("ascii")
    assert "cannot write since when this run works" in log
    assert "cannot remember that this run is complete" in log


@pytest.mark.parametrize(
    ("text", "words", "works"),
    [
        (str(time.time() + 3600), [], False),
        (str(time.time() + 3600), ["--ignore-pause"], True),
        (str(time.time() - 1), [], True),
        ("junk", [], True),
    ],
    # The times would make names which differ between the processes of a parallel run.
    ids=["pause", "ignored pause", "over", "junk"],
)
def test_pause(
    text: str, words: list[str], works: bool, parts: Parts, here: paths.Paths, master: FakeMaster
) -> None:
    Path(here.watcher_pausefile).write_text(text, encoding="ascii")
    assert command.main(words) == 0
    assert bool(parts) is works


def test_a_group(here: paths.Paths, master: FakeMaster) -> None:
    add_instance(master)
    assert command.main(["--node-group", GROUP, "--no-verify-disks"]) == 0
    assert master.opcode()["OP_ID"] == "OP_INSTANCE_STARTUP"


def test_an_unknown_group(here: paths.Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--node-group", "other"]) == 1
    assert "there is no node group 'other'; there are: default" in capsys.readouterr().err


def test_a_group_by_its_name(
    here: paths.Paths, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    add_instance(master)
    assert command.main(["--node-group", "default", "--dry-run"]) == 0
    assert "The disks of node group default would be verified.\n" in capsys.readouterr().out
    with FileLock(here.watcher_group_lock_file(GROUP)) as lock:
        lock.acquire()
        assert command.main(["--node-group", "default"]) == 0
    assert "another watcher is running" in Path(here.log_watcher_file).read_text("ascii")


def test_a_dry_run_says_why_nothing_would_be_done(
    parts: Parts, here: paths.Paths, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    master.answers["QueryConfigValues"] = lambda names: [
        {"drain_flag": True, "master_node": "node1.example.com", "queue_pause": ""}[name]
        for name in names
    ]
    for words in (["--dry-run"], ["--dry-run", "--node-group", GROUP]):
        assert command.main(words) == 0
        assert "the job queue is drained" in capsys.readouterr().err
    Path(here.watcher_pausefile).write_text(str(time.time() + 3600), encoding="ascii")
    assert command.main(["--dry-run"]) == 0
    assert "paused until" in capsys.readouterr().err


def test_a_pause_of_the_queue_is_an_error_of_the_run(
    parts: Parts, here: paths.Paths, master: FakeMaster
) -> None:
    master.answers["QueryConfigValues"] = lambda names: [
        {"queue_pause": "no process"}.get(name, "") for name in names
    ]
    assert command.main([]) == 1
    written = Path(here.log_watcher_file).read_text("ascii")
    assert "jobs cannot be executed, so nothing is done: no process" in written


def test_a_dry_run_without_a_master_daemon(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "start_daemons", lambda *_, **__: False)
    assert command.main(["--dry-run"]) == 0
    assert "when the master daemon runs" in capsys.readouterr().out
    assert command.main([]) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.JobQueueDrainError("drained"), 0),
        (errors.NoMasterError("moved"), 1),
        (OSError(28, "No space left on device"), 1),
    ],
)
def test_exit_codes(
    error: Exception,
    code: int,
    here: paths.Paths,
    master: FakeMaster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(group.GroupRun, "run", fail)
    assert command.main(["--node-group", GROUP]) == code


@pytest.mark.parametrize(
    ("words", "age_s"),
    [([], 21600), (["-A", "90"], 90), (["--job-age=2d"], 172800), (["-A-1"], -1)],
)
def test_job_age(
    words: list[str],
    age_s: int,
    parts: Parts,
    master: FakeMaster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[int] = []
    monkeypatch.setattr(cluster, "archive_jobs", lambda _, age, dry_run: given.append(age))
    assert command.main(words) == 0
    assert given == [age_s]


@pytest.mark.parametrize("words", [["-A", "soon"], ["--job-age=1y"], ["--unknown"], ["extra"]])
def test_wrong_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert "ganeti-watcher: error:" in capsys.readouterr().err


def test_the_options_reach_the_groups(
    parts: Parts, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(cluster, "start_groups", lambda words: seen.extend(words) or [])
    command.main(["--ignore-pause", "--no-strict", "--no-verify-disks", "-n"])
    assert sorted(seen) == [
        *("--dry-run", "--ignore-pause", "--job-age=21600", "--no-strict", "--no-verify-disks")
    ]


@pytest.mark.parametrize(("codes", "code"), [((0, 0), 0), ((0, 1), 1), ((0, -9), 1)])
def test_a_node_group_that_failed_or_was_killed_is_told(
    codes: tuple[int, ...],
    code: int,
    parts: Parts,
    master: FakeMaster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    children = [types.SimpleNamespace(wait=lambda end=end: end) for end in codes]
    monkeypatch.setattr(cluster, "start_groups", lambda words: children)
    assert command.main([]) == code
    # What the others have found is published all the same.
    assert parts[-1] == "merge_status"


@pytest.mark.parametrize("age_s", [100, -1])
def test_old_jobs(age_s: int, master: FakeMaster) -> None:
    client = cluster.connect(command.luxi.Client)
    assert client is not None
    with client:
        cluster.archive_jobs(client, age_s, dry_run=False)
    assert ("AutoArchiveJobs" in master.methods()) is (age_s > 0)


def test_a_dry_run_counts_the_old_jobs(
    master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = [[int(time.time()) - age_s, 0] for age_s in (30, 200, 300)]
    found = [[[0, end]] for end in (*ends, None)]
    master.answers["Query"] = lambda what, names, qfilter: {"fields": [], "data": found}
    client = cluster.connect(command.luxi.Client)
    assert client is not None
    with client:
        cluster.archive_jobs(client, 100, dry_run=True)
    assert capsys.readouterr().out == (
        "2 jobs which ended more than 100 seconds ago would be archived.\n"
    )
    assert "AutoArchiveJobs" not in master.methods()


def test_the_states_of_all_groups_are_put_together(here: paths.Paths) -> None:
    other = "5a6f0000-0000-4000-8000-000000000002"
    third = "5a6f0000-0000-4000-8000-000000000003"
    Path(here.ssconf_file("nodegroups")).write_text(
        f"{GROUP} default\n{other} other\n{third} new\n", encoding="ascii"
    )
    Path(here.watcher_status_file(GROUP)).write_text("b running\n", encoding="ascii")
    Path(here.watcher_status_file(other)).write_text("a ADMIN_down\n", encoding="ascii")
    cluster.merge_status()
    text = Path(here.instance_status_file).read_text(encoding="ascii")
    assert text == "a ADMIN_down\nb running\n"


@pytest.fixture
def rest(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Replace the daemons; the result lists what was stopped and started."""

    def replace(running: set[str], answer: Exception | None = None) -> list[str]:
        done: list[str] = []

        def version(_: object) -> int:
            done.append("ask")
            if answer is not None:
                raise answer
            return 2

        def stop(name: str) -> int:
            running.discard(name)
            done.append(f"stop {name}")
            return 0

        monkeypatch.setattr(daemon_util, "installed", lambda: list(daemon_util.START_ORDER))
        monkeypatch.setattr(daemon_util, "is_running", lambda name: name in running)
        monkeypatch.setattr(daemon_util, "stop", stop)
        monkeypatch.setattr(daemon_util, "start", lambda name: done.append(f"start {name}") or 0)
        monkeypatch.setattr(rapi.GanetiRapiClient, "GetVersion", version)
        return done

    return replace


BOTH = {"ganeti-masterd", "ganeti-rapi"}


def test_a_dead_master_daemon_is_started(rest: Callable[..., list[str]]) -> None:
    done = rest({"ganeti-rapi"})
    assert cluster.start_daemons(None, dry_run=False)
    assert done == ["start ganeti-masterd", "ask"]


def test_a_rest_daemon_which_answers_is_left_alone(rest: Callable[..., list[str]]) -> None:
    done = rest(set(BOTH))
    cluster.start_daemons(None, dry_run=False)
    assert done == ["ask"]


def test_a_demanded_password_is_an_answer(rest: Callable[..., list[str]]) -> None:
    done = rest(set(BOTH), rapi.GanetiApiError("401 Unauthorized", code=401))
    cluster.start_daemons(None, dry_run=False)
    assert done == ["ask"]


def test_a_silent_rest_daemon_is_restarted(rest: Callable[..., list[str]]) -> None:
    done = rest(set(BOTH), rapi.GanetiApiError("time is over"))
    cluster.start_daemons(None, dry_run=False)
    assert done == ["ask", "stop ganeti-rapi", "start ganeti-rapi"]


def test_a_dry_run_starts_nothing(
    rest: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    done = rest(set())
    assert not cluster.start_daemons(None, dry_run=True)
    assert done == []
    assert "The daemon ganeti-masterd would be started." in capsys.readouterr().out
