"""The duties for one node group, against a simulated master on a real socket."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.luxi.client import Client
from ganeti.opcodes.instance import OpInstanceStartup
from ganeti.platform import paths
from ganeti.watcher import decisions, memory, restarting
from ganeti.watcher.group import GroupRun, Options, settle

from .conftest import GROUP, add_instance, add_node

NOW = 1_800_000_000.0


@pytest.fixture
def client(master: FakeMaster) -> Iterator[Client]:
    with Client() as made:
        yield made


def run(client: Client, *, now: float = NOW, **options: bool) -> None:
    GroupRun(client, GROUP, Options(**options, name="default"), now=lambda: now).run()


def done(master: FakeMaster) -> list[tuple[str, Any]]:
    return [
        (op["OP_ID"], op.get("instance_name") or op.get("group_name")) for op in master.opcodes()
    ]


VERIFY = ("OP_GROUP_VERIFY_DISKS", GROUP)


def test_what_is_down_starts_and_the_reason_is_in_the_job(
    master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    add_instance(master)
    add_instance(master, "up.example.com", "running")
    run(client)
    assert done(master) == [("OP_INSTANCE_STARTUP", "web1.example.com"), VERIFY]
    ((source, why, _when),) = master.opcodes()[0]["reason"]
    assert source == "gnt:watcher"
    assert "restart 1 of at most 5" in why
    assert memory.load(here.watcher_state_file(GROUP)).restarts == {"web1.example.com": (1, NOW)}


def test_the_status_file(master: FakeMaster, client: Client, here: paths.Paths) -> None:
    add_instance(master, "b", "running")
    add_instance(master, "a", "ADMIN_down")
    run(client)
    text = Path(here.watcher_status_file(GROUP)).read_text(encoding="ascii")
    assert text == "a ADMIN_down\nb running\n"


def test_the_count_is_written_before_the_job_is_submitted(
    master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    add_instance(master)

    master.errors["SubmitJob"] = ConnectionError()
    with pytest.raises(errors.LuxiError):
        run(client)
    assert memory.load(here.watcher_state_file(GROUP)).restarts == {"web1.example.com": (1, NOW)}
    assert master.jobs == {}


def test_without_a_memory_nothing_is_restarted(
    master: FakeMaster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_instance(master)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(memory, "store", full)
    with pytest.raises(OSError, match="No space"):
        run(client)
    assert master.jobs == {}


@pytest.mark.parametrize(
    "given", ["web1", "web1.example.com", "WEB1.example", "uuid-of-web1.example.com"]
)
@pytest.mark.parametrize("key", ["instance_name", "instances"])
def test_a_job_of_somebody_else_keeps_the_watcher_away(
    given: str, key: str, master: FakeMaster, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    add_instance(master)
    value: Any = given if key == "instance_name" else ["other", given]
    job_id = master.add_job({"OP_ID": "OP_INSTANCE_SHUTDOWN", key: value})
    with caplog.at_level(logging.INFO):
        run(client, verify_disks=False)
    assert len(master.jobs) == 1
    assert f"job {job_id} is running" in caplog.text


def test_odd_opcodes_in_the_queue_stop_nothing(master: FakeMaster, client: Client) -> None:
    add_instance(master)
    master.add_job({"OP_ID": "OP_X", "instance_name": 5, "instances": "web1"})
    run(client, verify_disks=False)
    assert ("OP_INSTANCE_STARTUP", "web1.example.com") in done(master)


def test_a_failed_start_does_not_stop_the_others(
    master: FakeMaster, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    add_instance(master, "a")
    add_instance(master, "b")
    master.results["OP_INSTANCE_STARTUP"] = lambda op: (
        errors.OpPrereqError("no memory", "insufficient_resources")
        if op["instance_name"] == "a"
        else None
    )
    run(client)
    assert ("OP_INSTANCE_STARTUP", "b") in done(master)
    assert "instance a: job 1 has failed; see 'gnt-job info 1'" in caplog.text


def test_many_instances_start_a_few_at_a_time(
    master: FakeMaster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        add_instance(master, f"web{number:02}")
    most = 0
    plain = master._do_SubmitJob

    def submit(ops: list[dict[str, Any]]) -> int:
        nonlocal most
        job_id = plain(ops)
        running = [one for one in master.jobs.values() if one.status != "success"]
        most = max(most, len(running))
        return job_id

    master.answers["SubmitJob"] = submit
    run(client, verify_disks=False)
    assert [name for _, name in done(master)] == [f"web{number:02}" for number in range(30)]
    assert most == restarting.MAX_JOBS


def test_a_drained_queue_is_no_error_of_the_watcher(
    master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    add_instance(master)
    master.errors["SubmitJob"] = errors.JobQueueDrainError("the queue is drained")
    with pytest.raises(errors.JobQueueDrainError):
        run(client)
    assert Path(here.watcher_status_file(GROUP)).exists()


@pytest.mark.parametrize("error", [errors.JobQueueDrainError, errors.JobQueueFull])
def test_a_refused_job_is_no_restart(
    error: type[errors.GenericError], master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    """Otherwise nothing would start for hours after a queue was drained for a while."""
    add_instance(master, "web1")
    memory.store(here.watcher_state_file(GROUP), memory.Memory(restarts={"web1": (1, NOW - 900)}))
    master.errors["SubmitJob"] = error("no")
    for _ in range(10):
        with pytest.raises(errors.JobQueueError):
            run(client)
    assert memory.load(here.watcher_state_file(GROUP)).restarts == {"web1": (1, NOW - 900)}
    del master.errors["SubmitJob"]
    run(client)
    assert ("OP_INSTANCE_STARTUP", "web1") in done(master)


def test_disks_are_activated_after_a_machine_has_started_again(
    master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    add_node(master, "node1", "b1")
    add_node(master, "node2", "b2")
    add_instance(master, "web1", "running")
    memory.store(here.watcher_state_file(GROUP), memory.Memory({"node1": "b1", "node2": "before"}))
    run(client, verify_disks=False)
    assert done(master) == [("OP_INSTANCE_ACTIVATE_DISKS", "web1")]
    assert memory.load(here.watcher_state_file(GROUP)).boot_ids == {"node1": "b1", "node2": "b2"}
    run(client, verify_disks=False)
    assert len(master.jobs) == 1


def test_a_failed_activation_is_tried_again(
    master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    add_node(master, "node1", "b1")
    add_instance(master, "web1", "running")
    master.results["OP_INSTANCE_ACTIVATE_DISKS"] = errors.OpExecError("a disk is missing")
    run(client, verify_disks=False)
    assert memory.load(here.watcher_state_file(GROUP)).boot_ids == {}
    master.results["OP_INSTANCE_ACTIVATE_DISKS"] = []
    run(client, verify_disks=False)
    assert len(master.jobs) == 2
    assert memory.load(here.watcher_state_file(GROUP)).boot_ids == {"node1": "b1"}


def test_the_first_run_activates_only_what_the_verification_finds(
    master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    add_node(master, "node1", "b1")
    for name in ("web1", "web2", "web3"):
        add_instance(master, name, "running")
    master.results["OP_GROUP_VERIFY_DISKS"] = errors.OpExecError("no")
    run(client)
    assert done(master) == [VERIFY]
    assert memory.load(here.watcher_state_file(GROUP)).boot_ids == {}
    master.results["OP_GROUP_VERIFY_DISKS"] = [{}, ["web2"], {}]
    run(client)
    assert done(master) == [VERIFY, VERIFY, ("OP_INSTANCE_ACTIVATE_DISKS", "web2")]
    assert memory.load(here.watcher_state_file(GROUP)).boot_ids == {"node1": "b1"}


def test_disks_which_the_verification_finds_inactive(
    master: FakeMaster, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    add_instance(master, "web1", "running")
    add_instance(master, "lost", "running")
    master.results["OP_GROUP_VERIFY_DISKS"] = [
        {"node9": "does not answer"},
        ["web1", "lost"],
        {"lost": [["node1", "xenvg/disk0"]]},
    ]
    run(client)
    assert done(master) == [VERIFY, ("OP_INSTANCE_ACTIVATE_DISKS", "web1")]
    assert "disks on node node9 cannot be verified" in caplog.text
    assert "instance lost: disks are missing: xenvg/disk0 on node1" in caplog.text


def test_what_was_just_started_is_not_activated_again(master: FakeMaster, client: Client) -> None:
    add_node(master, "node1", "b1")
    add_instance(master, "web1")
    master.results["OP_GROUP_VERIFY_DISKS"] = [{}, ["web1"], {}]
    run(client)
    assert done(master) == [("OP_INSTANCE_STARTUP", "web1"), VERIFY]


@pytest.mark.parametrize("strict", [True, False])
def test_strict(strict: bool, master: FakeMaster, client: Client) -> None:
    run(client, strict=strict)
    assert master.opcode()["is_strict"] is strict


def test_a_failed_verification_is_reported(
    master: FakeMaster, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    master.results["OP_GROUP_VERIFY_DISKS"] = errors.OpExecError("no")
    run(client)
    assert "job 1 has failed; see 'gnt-job info 1'" in caplog.text


def test_a_job_that_hangs_does_not_keep_the_watcher(
    master: FakeMaster, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    add_instance(master, "web1")
    add_instance(master, "web2")
    master.hold = "running"
    times = iter(range(1000))
    work = [(name, OpInstanceStartup(instance_name=name)) for name in ("web1", "web2")]
    assert (
        restarting.run(client, work, max_jobs=1, max_wait_s=5, monotonic=lambda: next(times)) == []
    )
    assert "instance web1: job 1 still runs" in caplog.text
    assert "instance web2: there was no time for it" in caplog.text


def test_a_dry_run_prints_and_changes_nothing(
    master: FakeMaster, client: Client, here: paths.Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.store(here.watcher_state_file(GROUP), memory.Memory({"node1": "before"}))
    add_node(master, "node1", "b1")
    add_instance(master, "web1")
    add_instance(master, "web2", "running")
    before = sorted(Path(here.data_dir).iterdir())
    run(client, dry_run=True)
    assert capsys.readouterr().out.splitlines() == [
        "instance web1: start it, because it should run, but is down (restart 1 of at most 5)",
        "instance web2: activate its disks, because node node1 has started again",
        "The disks of node group default would be verified.",
    ]
    assert master.jobs == {}
    assert sorted(Path(here.data_dir).iterdir()) == before


def test_an_instance_without_disks_has_none_to_activate(master: FakeMaster, client: Client) -> None:
    add_node(master, "node1", "b1")
    add_instance(master, "web1", "running", **{"disk.count": 0})
    run(client, verify_disks=False)
    assert master.jobs == {}


def test_a_node_which_does_not_answer_has_no_boot_id(
    master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    add_node(master, "node1", None)
    add_instance(master, "web1", "running")
    run(client, verify_disks=False)
    assert master.jobs == {}


def test_an_instance_which_always_crashes_is_left_in_the_end(
    master: FakeMaster, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    add_instance(master, "web1")
    for minutes in range(0, 240, 5):
        run(client, now=NOW + minutes * 60, verify_disks=False)
    assert len(master.jobs) == decisions.MAX_RESTARTS


def test_a_batch_of_restarts_takes_one_flush(
    master: FakeMaster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(restarting.MAX_JOBS):
        add_instance(master, f"web{number}")
    flushes: list[int] = []
    plain = memory.store

    def store(path: str, what: memory.Memory) -> None:
        flushes.append(len(what.restarts))
        plain(path, what)

    monkeypatch.setattr(memory, "store", store)
    run(client, verify_disks=False)
    # One at the beginning, one before the whole batch, one after it.
    assert flushes == [0, restarting.MAX_JOBS, restarting.MAX_JOBS]


@pytest.mark.parametrize("submitted", [0, 1, 2])
def test_a_restart_without_a_job_is_no_restart(
    master: FakeMaster,
    client: Client,
    here: paths.Paths,
    monkeypatch: pytest.MonkeyPatch,
    submitted: int,
) -> None:
    """A run which is killed has counted more restarts than it has submitted jobs."""
    state = here.watcher_state_file(GROUP)
    memory.store(state, memory.Memory(restarts={"b": (3, NOW - 900)}))
    for name in ("a", "b"):
        add_instance(master, name)
    plain, left = Client.submit_job, iter(range(submitted))

    def submit(self: Client, ops: Any) -> int:
        if next(left, None) is None:
            raise Killed
        return plain(self, ops)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "submit_job", submit)
        if submitted < 2:
            with pytest.raises(Killed):
                run(client, verify_disks=False)
        else:
            run(client, verify_disks=False)
    assert set(memory.load(state).restarts) == {"a", "b"}
    master.rows["instance"].clear()
    for name in ("a", "b"):
        add_instance(master, name, "running")
    run(client, now=NOW + 300, verify_disks=False)
    found = memory.load(state)
    assert found.restarts.get("a") == ((1, NOW) if submitted > 0 else None)
    assert found.restarts["b"] == ((4, NOW) if submitted > 1 else (3, NOW - 900))
    assert found.unconfirmed == {}


def test_a_job_which_may_be_in_the_archive_was_submitted(
    master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    known = memory.Memory()
    known.note_restart("web1", NOW, int(NOW * 1e9))
    for job_age_s, later_s, counts in ((90, 300, True), (21600, 300, False), (-1, 9999, False)):
        again = memory.Memory(dict(known.boot_ids), dict(known.restarts), dict(known.unconfirmed))
        settle(client, again, NOW + later_s, job_age_s)
        assert ("web1" in again.restarts, again.unconfirmed) == (counts, {})


def test_a_start_leaves_the_last_word_to_the_user(master: FakeMaster, client: Client) -> None:
    add_instance(master)
    run(client, verify_disks=False)
    (job,) = master.jobs.values()
    assert job.ops[0]["wanted_only"] is True


def test_a_master_which_ends_in_a_batch_costs_one_count(
    master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    for name in ("a", "b", "c"):
        add_instance(master, name)
    plain = master._do_SubmitJob

    def submit(ops: list[dict[str, Any]]) -> int:
        if ops[0]["instance_name"] == "b":
            master.errors["SubmitJob"] = ConnectionError()
            raise errors.JobQueueError("the queue is closed")
        return plain(ops)

    master.answers["SubmitJob"] = submit
    with pytest.raises(errors.GenericError):
        run(client, verify_disks=False)
    assert memory.load(here.watcher_state_file(GROUP)).restarts == {"a": (1, NOW)}


class Killed(BaseException):
    """The process ends here."""


def test_it_may_be_killed_at_each_step(
    master: FakeMaster, client: Client, here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next runs start what is down; no restart is forgotten, and none takes place uncounted."""
    add_node(master, "node1", "b1")
    for name in ("a", "b"):
        add_instance(master, name)
    state = here.watcher_state_file(GROUP)
    steps = [(memory, "store"), (memory, "load"), (type(client), "submit_job")]
    steps += [(type(client), name) for name in ("query", "query_jobs", "wait_for_job_change")]
    left = 0

    def counting(plain: Any, *, after: bool) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and not after:
                raise Killed
            result = plain(*args, **kwargs)
            if left == 0:
                raise Killed
            return result

        return step

    for after in (False, True):
        kill_at = 0
        while True:
            kill_at += 1
            master.jobs.clear()
            Path(state).unlink(missing_ok=True)
            with monkeypatch.context() as patch:
                for owner, name in steps:
                    patch.setattr(owner, name, counting(getattr(owner, name), after=after))
                left = kill_at
                try:
                    run(client, verify_disks=False)
                    break
                except Killed:
                    pass
            before = [one for one in done(master) if one[0] == "OP_INSTANCE_STARTUP"]
            noted = memory.load(state).restarts
            assert {name for _, name in before} <= set(noted), "a restart was forgotten"
            run(client, now=NOW + 1, verify_disks=False)
            counted = Counter(name for op, name in done(master) if op == "OP_INSTANCE_STARTUP")
            noted = memory.load(state).restarts
            assert {name: number for name, (number, _when) in noted.items()} == counted
            run(client, now=NOW + 1000, verify_disks=False)
            assert {name for op, name in done(master) if op == "OP_INSTANCE_STARTUP"} == {"a", "b"}
        assert kill_at > 6


@pytest.mark.parametrize("jump_s", [10 * 365 * 86400.0, -10 * 365 * 86400.0])
def test_the_clock_jumps_and_comes_back(
    jump_s: float, master: FakeMaster, client: Client, here: paths.Paths
) -> None:
    """Neither are there more restarts than allowed, nor does an instance wait for years."""
    add_instance(master, "web1")

    def count() -> int:
        return len([one for one in done(master) if one[0] == "OP_INSTANCE_STARTUP"])

    run(client, verify_disks=False)
    run(client, now=NOW + jump_s, verify_disks=False)
    run(client, now=NOW + 10, verify_disks=False)
    assert count() <= 3
    before = count()
    run(client, now=NOW + 2000, verify_disks=False)
    assert count() == before + 1


def test_what_is_left_of_an_import_is_removed(master: FakeMaster, client: Client) -> None:
    add_instance(master, "web1", "ADMIN_down", importing_since=NOW - decisions.IMPORT_S)
    run(client, verify_disks=False)
    (job,) = master.jobs.values()
    (op,) = job.ops
    assert (op["OP_ID"], op["instance_name"]) == ("OP_INSTANCE_REMOVE", "web1")
    # Whether nobody has started it is looked at again under its lock.
    assert op["unfinished_import"] is True
