"""The configuration of a job process: reading, changing, reserving, and a restart in between."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import pytest

from fakes.config import disk_of, instance_of
from ganeti import errors
from ganeti.config import api
from ganeti.config.history import Author
from ganeti.config.reservations import MAC, UUID
from ganeti.objects import updated

from .wire_lab import Job, Master


def web(**changes: Any) -> Any:
    return dataclasses.replace(instance_of("web"), **changes)


def test_it_reads_what_others_commit(master: Master, job: Job) -> None:
    assert job.config.snapshot() == master.config.snapshot()
    first = job.config.snapshot()
    with master.config.transaction() as change:
        change.instances.add(web(), (), "other")
    assert job.config.snapshot() == master.config.snapshot()
    assert job.config.expand_instance("web").name == "web.example.com"
    # What did not change is the same object.
    assert job.config.snapshot().nodes is first.nodes
    asked = job.link.connections
    assert job.config.snapshot() is job.config.snapshot()
    assert job.link.connections == asked


def test_it_changes_with_its_author(master: Master, job: Job) -> None:
    config = job.config.acting_for(Author(7, "OP_INSTANCE_CREATE", "gnt:client", "why"))
    with config.transaction() as change:
        port = change.ports.allocate()
        change.instances.add(web(), disks=(), ec_id="job-7-run-1")
        assert change.data.instances.keys() == {web().uuid}
        assert not config.snapshot().instances
        change.instances.mark(web().uuid, "up")
    assert config.snapshot() == master.config.snapshot()
    assert master.config.cluster().highest_used_port == port
    (commit, *_rest) = master.config.commits()
    assert commit.author == Author(7, "OP_INSTANCE_CREATE", "gnt:client", "why")


def test_an_error_of_an_operation_is_raised_in_the_block(master: Master, job: Job) -> None:
    before = master.config.snapshot()
    with pytest.raises(errors.ConfigurationError), job.config.transaction() as change:
        change.ports.allocate()
        change.instances.update(web())
    with pytest.raises(ZeroDivisionError), job.config.transaction() as change:
        change.ports.allocate()
        1 / 0  # noqa: B018
    assert master.config.snapshot() is before
    # The next one is possible, also when the block has caught the error.
    with job.config.transaction() as change:
        with pytest.raises(errors.ConfigurationError):
            change.instances.update(web())
        change.instances.add(web(), (), "x")
    assert master.config.snapshot().instances.keys() == {web().uuid}


def test_reservations_are_in_the_record(master: Master, job: Job) -> None:
    job.config.reserving_for("job-7-run-1").reserve_instance_name("new")
    mac = job.config.reserving_for("job-7-run-1").generate_mac()
    uuid = job.config.reserving_for("job-7-run-1").new_uuid()
    nodes = list(master.config.snapshot().nodes)
    minors = job.config.reserving_for("job-7-run-1").allocate_minors([nodes[0], nodes[0], nodes[1]])
    assert minors == (0, 1, 0)
    with pytest.raises(errors.ReservationError):
        master.config.reserving_for("job-8-run-1").reserve_mac(mac)
    assert job.config.reserved_minors(nodes[0]) == {0, 1}
    kinds = [(kind, value) for kind, value, _ec_id in job.held.reservations]
    assert (MAC, mac) in kinds and (UUID, uuid) in kinds and len(kinds) == 6
    # A new master daemon takes them from there.
    master.open()
    for reservation in job.held.reservations:
        master.config.reserved.restore(*reservation)
    with pytest.raises(errors.ReservationError):
        master.config.reserving_for("job-8-run-1").reserve_mac(mac)
    job.link.close()
    job.link.connect()
    job.config.reserving_for("job-7-run-1").release_reservations()
    assert job.held.reservations == []
    master.config.reserving_for("job-8-run-1").reserve_mac(mac)


@pytest.mark.parametrize("committed", [True, False])
def test_a_restart_while_the_answer_to_a_commit_is_lost(
    master: Master, job: Job, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """It is made once, whether or not the old master daemon had carried it out."""
    ask, lost = job.link.ask_once, []

    def cut(request: str, args: list[Any]) -> Any:
        if request == "transaction.commit" and not lost:
            lost.append(request)
            if committed:
                ask(request, args)
            job.link.cut()
        return ask(request, args)

    monkeypatch.setattr(job.link, "ask_once", cut)
    job.link.on_connect = master.open
    serial = master.config.snapshot().serial_no
    config = job.config.acting_for(Author(7, "OP_X", "", ""))
    with config.transaction() as change:
        change.instances.add(web(), (), "job-7-run-1")
    assert lost and job.link.connections == 2
    assert master.config.snapshot().serial_no == serial + 1
    assert master.config.snapshot().instances.keys() == {web().uuid}
    assert job.config.snapshot() == master.config.snapshot()


def test_a_restart_in_the_middle_of_a_transaction(master: Master, job: Job) -> None:
    job.link.on_connect = master.open
    with job.config.transaction() as change:
        change.instances.add(web(), (), "job-7-run-1")
        job.link.cut()
        change.instances.mark(web().uuid, "up")
    assert master.config.snapshot().instances[web().uuid].admin_state == "up"
    assert job.link.connections == 2


def test_a_transaction_which_would_be_another_one_after_a_restart(master: Master, job: Job) -> None:
    def restart() -> None:
        master.open()
        with master.config.transaction() as other:
            other.ports.allocate()

    job.link.on_connect = restart
    with (
        pytest.raises(errors.ConfigurationError, match="would not be the same"),
        job.config.transaction() as change,
    ):
        change.ports.allocate()
        job.link.cut()
        change.instances.add(web(), (), "job-7-run-1")
    assert not master.config.snapshot().instances
    with job.config.transaction() as change:
        change.instances.add(web(), (), "job-7-run-1")


@pytest.mark.parametrize("read_before", [True, False])
def test_a_change_of_what_another_one_changed_during_a_restart(
    master: Master, job: Job, read_before: bool
) -> None:
    """What was read before the restart is not written over what is there now."""

    def restart() -> None:
        master.open()
        with master.config.transaction() as other:
            other.cluster.update(updated(other.data.cluster, tags=("theirs",)))

    job.link.on_connect = restart
    with (
        pytest.raises(errors.ConfigurationError, match="would not be the same"),
        job.config.transaction() as change,
    ):
        cluster = change.data.cluster
        if read_before:
            job.link.cut()
        change.cluster.update(updated(cluster, tags=("mine",)))
        if not read_before:
            job.link.cut()
    assert master.config.cluster().tags == ("theirs",)
    # The transaction does not stay open.
    with job.config.transaction() as change:
        change.instances.add(web(), (), "job-7-run-1")


def test_a_change_of_a_state_which_was_lost_in_a_restart(master: Master, job: Job) -> None:
    """The next state with that serial number is another one, and none of its tags is lost."""
    path = master.directory / "config.data"
    before = path.read_bytes()

    def tag(name: str) -> None:
        with master.config.transaction() as change:
            cluster = change.data.cluster
            change.cluster.update(updated(cluster, tags=(*cluster.tags, name)))

    def restart() -> None:
        path.write_bytes(before)
        master.open()
        tag("theirs")

    tag("lost")
    serial_no = master.config.snapshot().serial_no
    job.link.on_connect = restart
    with (
        pytest.raises(errors.ConfigurationError, match="would not be the same"),
        job.config.transaction() as change,
    ):
        cluster = change.data.cluster
        job.link.cut()
        change.cluster.update(updated(cluster, tags=(*cluster.tags, "mine")))
    assert master.config.snapshot().serial_no == serial_no
    assert master.config.cluster().tags == ("theirs",)


def test_a_change_goes_on_when_what_it_read_is_still_there(master: Master, job: Job) -> None:
    job.link.on_connect = master.open
    with job.config.transaction() as change:
        cluster = change.data.cluster
        job.link.cut()
        change.cluster.update(updated(cluster, tags=("mine",)))
        assert change.data.cluster.tags == ("mine",)
        job.link.cut()
    assert master.config.cluster().tags == ("mine",)


def test_objects_with_disks(master: Master, job: Job) -> None:
    disk = disk_of("web")
    with job.config.transaction() as change:
        change.instances.add(web(disks=(disk.uuid,)), [disk], "x")
    with job.config.transaction() as change:
        present = change.data.instances[web().uuid]
        change.instances.update(updated(present, now=1.0, name="other.example.com"))
    (instance,) = master.config.instances()
    assert instance.name == "other.example.com"
    assert master.config.instance_disks(instance)[0].uuid == disk.uuid


def test_the_log_is_sent_again_to_a_new_master_daemon(master: Master, job: Job) -> None:
    callbacks = job.callbacks
    callbacks.begin()
    for text in ("one", "two", "two"):
        callbacks.feedback(text)
    callbacks.check_cancel()  # An answer: all lines before have arrived.
    # The new daemon has read a file without the last line.
    job.queue.log = job.queue.log[:2]
    job.link.cut()
    callbacks.check_cancel()
    callbacks.feedback("three")
    callbacks.check_cancel()
    assert [line[-1] for line in job.queue.log] == ["one", "two", "two", "three"]


def test_jobs_whose_submission_is_uncertain(
    master: Master, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job.callbacks.submit_jobs([[], []]) == [[True, 100], [True, 101]]
    job.link.cut()
    with pytest.raises(errors.OpExecError, match="not known which of them"):
        job.callbacks.submit_jobs([[]])
    assert job.callbacks.submit_jobs([[]]) == [[True, 100]]


def test_everything_which_logical_units_ask_of_the_store_is_there(job: Job) -> None:
    """All but what the master daemon does at its start, or for itself."""
    source = inspect.getsource(api)
    used = set(re.findall(r"self\._store\.(\w+)", source))
    daemons = {"adopt_copies", "changed_since", "on_commit", "on_judged"}
    assert not [name for name in used - daemons if not hasattr(job.store, name)]
    used = set(re.findall(r"self\._store\.copies\.(\w+)", source))
    daemons = {
        *("expect_lagging", "note_incomplete", "try_again", "unresponsive"),
        *("use_distribution", "use_witness"),
    }
    assert used > daemons
    assert not [name for name in used - daemons if not hasattr(job.store.copies, name)]
    used = set(re.findall(r"self\._store\.reservations\.(\w+)", source))
    assert {"first_free", "next_free"} < used
    assert not [name for name in used if not hasattr(job.store.reservations, name)]


def test_what_is_free_is_asked_for_without_a_reservation(job: Job) -> None:
    """More than one request can offer."""
    found = job.config.next_minors("uuid-node1", 100)
    assert found == tuple(range(100)) == job.config.next_minors("uuid-node1", 100)
    job.config.require_ports(3)
    with pytest.raises(errors.OpPrereqError, match="port"):
        job.config.require_ports(1 << 20)


def test_nodes_which_lack_the_names_are_informed(master: Master, job: Job) -> None:
    job.config.inform_others()
