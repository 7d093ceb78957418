"""Migration over QMP, and what the driver says about a guest which waits for its memory."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import replace

import pytest

from fakes.kvm_variants import instance
from ganeti import errors
from ganeti.hypervisor import base
from ganeti.hypervisor.kvm import (
    driver,
    hardware,
    incoming,
    migration,
    migration_channel,
    migration_connection,
    parse,
    qmp,
    runtime,
)
from ganeti.hypervisor.kvm import layout as layouts
from ganeti.hypervisor.kvm.guests import Guests
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.kvm.status import Status
from ganeti.objects.disk import Disk
from ganeti.utils.net import wait_readable

PLACE = base.Place("192.0.2.1", 8200)
GETFD = ("getfd", {"fdname": "migration"})


@pytest.fixture(autouse=True)
def connection(monkeypatch):
    """The target answers at once."""
    one, other = socket.socketpair()
    with one, other:
        connected = lambda layout, place: contextlib.nullcontext(one)  # noqa: E731
        monkeypatch.setattr(migration_connection, "connected", connected)
        yield other


class FakeQmp:
    """Answers from a table; a missing answer is a failure."""

    answers: dict[str, dict] = {}

    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        pass

    def execute(self, command):
        if command not in self.answers:
            raise errors.HypervisorError(f"no answer to {command}")
        return self.answers[command]


class IncomingQmp(FakeQmp):
    """A guest which is continued before it has arrived stays as it was sent: stopped."""

    states: list[str] = []

    def execute(self, command):
        if command == "query-status":
            return {"status": self.states.pop(0) if len(self.states) > 1 else self.states[0]}
        if command in ("migrate_cancel", "query-migrate"):
            return {}
        assert command == "cont"
        if self.states[0] == "paused":
            self.states[:] = ["running"]
        return {}


BALLOON = {"query-balloon": {"actual": 64 << 20}}


@pytest.mark.parametrize(
    ("answers", "state", "memory_mib"),
    [
        ({"query-status": {"status": "running"}, **BALLOON}, base.RUNNING, 64),
        ({"query-status": {"status": "paused"}, **BALLOON}, base.RUNNING, 64),
        ({"query-status": {"status": "inmigrate"}}, base.SHUTDOWN, 128),
        ({}, base.RUNNING, 128),
    ],
)
def test_a_guest_that_waits_for_its_memory_does_not_run(monkeypatch, answers, state, memory_mib):
    monkeypatch.setattr(FakeQmp, "answers", answers)
    found = (os.getpid(), parse.CommandLine("web", 128, 2))
    guests = Guests(connect=FakeQmp)
    monkeypatch.setattr(guests, "qemu", lambda layout: found)
    info = Status(guests).instance_info("web")
    assert (info.state, info.memory_mib, info.vcpus) == (state, memory_mib, 2)


def test_a_guest_that_was_sent_stopped_runs_on_although_it_arrives_late(monkeypatch):
    kvm = driver.KvmHypervisor()
    monkeypatch.setattr(IncomingQmp, "states", ["inmigrate"] * 3 + ["paused"])
    monkeypatch.setattr(kvm.guests, "connect", IncomingQmp)
    monkeypatch.setattr(kvm.guests, "require_running", lambda layout: None)
    monkeypatch.setattr(migration.runtime, "load", lambda *args: runtime.Runtime((), (), {}, ()))
    kvm.migration.finalize_target(instance("default", "/dir"), None, success=True)
    assert IncomingQmp.states == ["running"]


def test_a_guest_that_never_arrives_is_an_error(monkeypatch):
    kvm = driver.KvmHypervisor()
    monkeypatch.setattr(IncomingQmp, "states", ["inmigrate"])
    monkeypatch.setattr(kvm.guests, "connect", IncomingQmp)
    monkeypatch.setattr(incoming, "INCOMING_TIMEOUT_S", 0.01)
    monkeypatch.setattr(kvm.guests, "require_running", lambda layout: None)
    with pytest.raises(errors.HypervisorError, match="web1 was sent, but has not arrived"):
        kvm.migration.finalize_target(instance("default", "/dir"), None, success=True)


def test_a_stopped_guest_that_was_not_sent_runs_on_although_it_is_late(monkeypatch):
    kvm = driver.KvmHypervisor()
    monkeypatch.setattr(IncomingQmp, "states", ["finish-migrate"] * 3 + ["paused"])
    monkeypatch.setattr(kvm.guests, "connect", IncomingQmp)
    monkeypatch.setattr(kvm.guests, "require_running", lambda layout: None)
    kvm.migration.finalize_source(instance("default", "/dir"), success=False, live=True)
    assert IncomingQmp.states == ["running"]


class CancelingQmp(FakeQmp):
    """A guest whose migration is canceled; it may run before the source has stopped to send."""

    states = ["cancelling", "cancelling", "cancelled"]

    def execute(self, command):
        if command == "query-status":
            return {"status": "running"}
        assert command == "query-migrate"
        return {"status": self.states.pop(0)}


def test_the_end_of_a_canceled_migration_is_waited_for(monkeypatch):
    monkeypatch.setattr(CancelingQmp, "states", list(CancelingQmp.states))
    monkeypatch.setattr(incoming, "_PAUSES", 0.0)
    incoming.wait_canceled(CancelingQmp(), "web1")
    assert CancelingQmp.states == []


class SendingQmp(FakeQmp):
    """Records the commands; a migration has a state."""

    status = ""
    sent: list[str] = []

    def execute(self, command, arguments=None, *, fds=()):
        if command == "query-migrate":
            return {"status": self.status} if self.status else {}
        if command == "query-status":
            return {"status": "running"}
        self.sent.append(command)
        return {}


@pytest.mark.parametrize(
    ("status", "begins"),
    [
        ("", True),
        ("completed", True),
        ("failed", True),
        ("setup", False),
        ("active", False),
        ("postcopy-active", False),
        ("postcopy-recover", False),
    ],
)
def test_a_guest_is_not_sent_twice(monkeypatch, status, begins):
    """The call may come again when the process which served it first has died."""
    kvm = driver.KvmHypervisor()
    monkeypatch.setattr(SendingQmp, "status", status)
    monkeypatch.setattr(SendingQmp, "sent", [])
    monkeypatch.setattr(kvm.guests, "connect", SendingQmp)
    monkeypatch.setattr(migration, "set_migration_capabilities", lambda control, hvp: None)
    monkeypatch.setattr(migration, "_is_emulated", lambda layout: False)
    monkeypatch.setattr(kvm.guests, "require_running", lambda layout: None)
    kvm.migration.send("cluster", instance("default", "/dir"), PLACE, live=True)
    assert ("migrate" in SendingQmp.sent) == begins


class RecordingQmp(FakeQmp):
    """Records the commands."""

    sent: list[tuple[str, dict]] = []

    def execute(self, command, arguments=None, *, fds=()):
        if not command.startswith("query-"):
            self.sent.append((command, arguments or {}))
        return {}


@pytest.mark.parametrize(
    ("accelerator", "live", "stops"),
    [("kvm", True, False), ("kvm", False, True), ("tcg", True, True)],
)
def test_what_qemu_gets_for_a_migration(monkeypatch, accelerator, live, stops):
    kvm = driver.KvmHypervisor()
    record = runtime.Runtime(("qemu", "-machine", f"pc,accel={accelerator}"), (), {}, ())
    monkeypatch.setattr(RecordingQmp, "sent", [])
    monkeypatch.setattr(kvm.guests, "connect", RecordingQmp)
    monkeypatch.setattr(migration.runtime, "load", lambda *args: record)
    monkeypatch.setattr(kvm.guests, "require_running", lambda layout: None)
    guest = instance(
        "default",
        "/dir",
        migration_bandwidth=100,
        migration_downtime=250,
        migration_port=8200,
        migration_caps="xbzrle",
    )
    kvm.migration.send("cluster", guest, PLACE, live=live)
    assert RecordingQmp.sent == [
        (
            "migrate-set-parameters",
            {
                "max-bandwidth": 100 << 20,
                "downtime-limit": 250,
                "tls-creds": "migration-key",
                "tls-hostname": "migration-key",
            },
        ),
        ("migrate-set-capabilities", {"capabilities": [{"capability": "xbzrle", "state": True}]}),
        *([("stop", {})] if stops else []),
        ("getfd", {"fdname": "migration"}),
        ("migrate", {"uri": "fd:migration"}),
    ]


def test_a_migration_which_is_not_encrypted_uses_no_key_of_an_earlier_one(monkeypatch):
    kvm = driver.KvmHypervisor()
    monkeypatch.setattr(RecordingQmp, "sent", [])
    monkeypatch.setattr(kvm.guests, "connect", RecordingQmp)
    monkeypatch.setattr(migration, "_is_emulated", lambda layout: False)
    monkeypatch.setattr(kvm.guests, "require_running", lambda layout: None)
    guest = instance("default", "/dir", migration_tls=False)
    kvm.migration.send("cluster", guest, PLACE, live=True)
    assert RecordingQmp.sent[0][1]["tls-creds"] == ""


class KeyQmp(RecordingQmp):
    """It has the key of an earlier migration, and reads the new one when its file is named."""

    status = ""
    seen: list[str] = []

    def execute(self, command, arguments=None, *, fds=()):
        if command == "query-migrate":
            return {"status": self.status}
        if command == "qom-list":
            return [{"name": "type"}, {"name": "migration-key"}]
        if command == "object-add":
            with open(f"{arguments['dir']}/keys.psk") as stream:
                assert os.fstat(stream.fileno()).st_mode & 0o777 == 0o400
                self.seen.append(stream.read())
        return super().execute(command, arguments, fds=fds)


@pytest.fixture
def keyed(monkeypatch, tmp_path):
    made = driver.KvmHypervisor()
    monkeypatch.setattr(made.guests, "connect", KeyQmp)
    for name, value in (("status", ""), ("sent", []), ("seen", [])):
        monkeypatch.setattr(KeyQmp, name, value)
    layout = Layout(str(tmp_path / "run"), str(tmp_path / "log"), "web1")
    monkeypatch.setattr(migration.layouts, "of", lambda name: layout)
    os.makedirs(layout.control_dir)
    monkeypatch.setattr(made.guests, "require_running", lambda layout: None)
    record = runtime.Runtime(("qemu",), (), {"security_model": "none"}, ())
    monkeypatch.setattr(migration.runtime, "load", lambda *args: record)
    return made, layout


def test_each_migration_has_a_key_which_leaves_no_file_on_the_source(keyed):
    kvm, layout = keyed
    first, second = (kvm.migration.info(GUEST) for _ in range(2))
    assert first["key"] != second["key"] and len(first["key"]) == 64
    assert first["certificate"] != second["certificate"]
    assert [f"qemu:{one['key']}\n" for one in (first, second)] == KeyQmp.seen
    assert [command for command, _ in KeyQmp.sent] == ["object-del", "object-add"] * 2
    assert KeyQmp.sent[1][1]["endpoint"] == "client"
    assert os.listdir(layout.chroot_dir) == []
    assert migration._read_info(first, GUEST) == tuple(
        first[name] for name in ("runtime", "certificate", "key")
    )
    with open(layout.migration_certificate_file) as stream:
        assert stream.read() == second["certificate"]
        assert os.fstat(stream.fileno()).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("status", ["active", "setup", "postcopy-active", "postcopy-paused"])
def test_a_migration_which_has_begun_keeps_its_key(keyed, monkeypatch, status):
    monkeypatch.setattr(KeyQmp, "status", status)
    assert isinstance(keyed[0].migration.info(GUEST), str)
    assert KeyQmp.sent == []


def test_the_target_keeps_the_key_until_the_guest_has_arrived(keyed):
    _, layout = keyed
    key = migration_channel.new_key()
    migration_channel.expect_key(KeyQmp(), key, layout, {"security_model": "none"})
    assert KeyQmp.sent[1:] == [
        (
            "object-add",
            {
                "qom-type": "tls-creds-psk",
                "id": "migration-key",
                "endpoint": "server",
                "dir": f"{layout.chroot_dir}/key",
            },
        ),
        ("migrate-set-parameters", {"tls-creds": "migration-key"}),
    ]
    assert os.listdir(layout.chroot_dir) == ["key"]
    # QEMU would look for primes, for up to half a minute.
    with open(f"{layout.chroot_dir}/key/dh-params.pem") as stream:
        assert "BEGIN DH PARAMETERS" in stream.read()
    migration_channel.forget_key(layout)
    assert os.listdir(layout.chroot_dir) == []


def test_a_qemu_which_cannot_encrypt_does_not_send_unencrypted(keyed, monkeypatch):
    class Refusing(KeyQmp):
        def execute(self, command, arguments=None, *, fds=()):
            if command == "object-add":
                raise qmp.QmpError("no GnuTLS")
            return super().execute(command, arguments, fds=fds)

    kvm, layout = keyed
    monkeypatch.setattr(kvm.guests, "connect", Refusing)
    with pytest.raises(errors.HypervisorError, match="no GnuTLS.*web1.*migration_tls=False"):
        kvm.migration.info(GUEST)
    assert os.listdir(layout.chroot_dir) == []
    plain = instance("default", "/dir", migration_tls=False)
    assert set(kvm.migration.info(plain)) == {"runtime", "certificate"}


@pytest.mark.parametrize(
    "change",
    [
        {"runtime": 5},
        {"key": "0" * 63},
        {"key": "0" * 63 + "\n"},
        {"key": "G" * 64},
        {"key": None},
        {"certificate": None},
        {"certificate": 5},
    ],
)
def test_damaged_migration_data(change):
    whole = {"runtime": "[]", "key": "0" * 64, "certificate": "PEM"}
    assert migration._read_info(whole, GUEST) == ("[]", "PEM", "0" * 64)
    with pytest.raises(errors.HypervisorError, match="web1 is damaged"):
        migration._read_info({**whole, **change}, GUEST)


@pytest.mark.parametrize("info", [{}, {"certificate": "PEM"}, [], None, ""])
def test_other_things_than_migration_data(info):
    with pytest.raises(errors.HypervisorError, match="web1 is damaged"):
        migration._read_info(info, GUEST)


@pytest.mark.parametrize("info", ["[]", {"runtime": "[]", "key": "0" * 64}])
@pytest.mark.parametrize("encrypted", [True, False])
def test_a_source_of_the_release_before_is_refused(info, encrypted):
    guest = instance("default", "/dir", migration_tls=encrypted)
    with pytest.raises(errors.HypervisorError, match=r"no certificate .* same release on both"):
        migration._read_info(info, guest)


def test_a_guest_which_is_not_encrypted_needs_the_certificate_only():
    plain = instance("default", "/dir", migration_tls=False)
    info = {"runtime": "[]", "certificate": "PEM", "key": "0" * 64}
    assert migration._read_info(info, plain) == ("[]", "PEM", None)


class StateQmp(FakeQmp):
    """A QEMU in one state; it records what it is asked to do, and refuses or loses one command."""

    run_state = "running"
    migration: dict = {}
    fails: tuple[str, errors.GenericError] | None = None
    done: list[tuple[str, dict]] = []

    def execute(self, command, arguments=None, *, fds=()):
        if command == "query-status":
            return {"status": self.run_state}
        if command == "query-migrate":
            return self.migration
        self.done.append((command, arguments or {}))
        if self.fails and self.fails[0] == command:
            raise self.fails[1]
        return {}


@pytest.fixture
def kvm(monkeypatch):
    """A driver whose guests are emulated and have the process 1."""
    made = driver.KvmHypervisor()
    monkeypatch.setattr(made.guests, "connect", StateQmp)
    for name, value in (("run_state", "running"), ("migration", {}), ("fails", None), ("done", [])):
        monkeypatch.setattr(StateQmp, name, value)
    monkeypatch.setattr(migration, "_is_emulated", lambda layout: True)
    monkeypatch.setattr(made.guests, "qemu", lambda layout: (1, None))
    monkeypatch.setattr(made.guests, "remove_files", lambda layout: StateQmp.done.append("removed"))
    monkeypatch.setattr(made.guests, "end_process", lambda layout: StateQmp.done.append("ended"))
    monkeypatch.setattr(
        made.guests, "locked", lambda name: contextlib.nullcontext(layouts.of(name))
    )
    return made


GUEST = instance(
    "default", "/dir", migration_bandwidth=1, migration_downtime=1, migration_port=8200
)
SENT = [
    ("postmigrate", {"status": "completed", "ram": {}}),
    ("finish-migrate", {"status": "completed", "ram": {}}),
    ("postmigrate", {"status": "failed", "ram": {}}),
    ("postmigrate", {"status": "postcopy-paused", "ram": {}}),
    ("finish-migrate", {"status": "postcopy-active", "ram": {}}),
]


@pytest.mark.parametrize(("run_state", "answer"), SENT)
def test_a_guest_that_was_sent_never_runs_on_at_the_source(kvm, monkeypatch, run_state, answer):
    monkeypatch.setattr(incoming, "CANCEL_TIMEOUT_S", 0.01)
    monkeypatch.setattr(StateQmp, "run_state", run_state)
    monkeypatch.setattr(StateQmp, "migration", answer)
    with pytest.raises(errors.HypervisorError, match="cannot run on here|has not ended"):
        kvm.migration.finalize_source(GUEST, success=False, live=True)
    assert ("cont", {}) not in StateQmp.done
    # A canceled post-copy migration would destroy the guest.
    assert (("migrate_cancel", {}) in StateQmp.done) == (not answer["status"].startswith("post"))
    StateQmp.done.clear()
    if not answer["status"].startswith("post"):
        with pytest.raises(errors.HypervisorError, match="cannot run on here"):
            kvm.migration.send("cluster", GUEST, PLACE, live=True)
        assert StateQmp.done == []
    with pytest.raises(errors.HypervisorError, match="cannot run on here"):
        kvm.migration.finalize_target(GUEST, None, success=True)
    assert StateQmp.done == []


@pytest.mark.parametrize("status", ["none", "cancelled", "failed"])
def test_a_guest_that_was_not_sent_runs_on_at_the_source(kvm, monkeypatch, status):
    monkeypatch.setattr(StateQmp, "run_state", "paused")
    monkeypatch.setattr(StateQmp, "migration", {"status": status, "ram": {}})
    kvm.migration.finalize_source(GUEST, success=False, live=True)
    assert StateQmp.done == [("migrate_cancel", {}), ("cont", {})]


def test_a_guest_that_qemu_refuses_to_send_runs_on_at_once(kvm, monkeypatch):
    monkeypatch.setattr(StateQmp, "fails", ("migrate", qmp.QmpError("refused")))
    with pytest.raises(qmp.QmpError):
        kvm.migration.send("cluster", GUEST, PLACE, live=True)
    assert [command for command, _ in StateQmp.done[-4:]] == ["stop", "getfd", "migrate", "cont"]


@pytest.mark.parametrize("error", [qmp.NoAnswer("late"), qmp.ConnectionLost("gone")])
def test_a_guest_that_may_be_on_its_way_stays_paused(kvm, monkeypatch, error):
    monkeypatch.setattr(StateQmp, "fails", ("migrate", error))
    with pytest.raises(errors.HypervisorError):
        kvm.migration.send("cluster", GUEST, PLACE, live=True)
    assert StateQmp.done[-1][0] == "migrate"


@pytest.mark.parametrize(
    ("run_state", "answer"),
    [
        ("paused", {"status": "completed"}),
        ("running", {"status": "completed"}),
        ("inmigrate", {"status": "completed"}),
        ("paused", {"status": "postcopy-active"}),
        ("paused", {"status": "postcopy-paused"}),
        ("inmigrate", {"status": "postcopy-active"}),
        ("running", {}),
    ],
)
def test_a_guest_that_has_arrived_is_not_ended(kvm, monkeypatch, run_state, answer):
    monkeypatch.setattr(StateQmp, "run_state", run_state)
    monkeypatch.setattr(StateQmp, "migration", answer)
    with pytest.raises(errors.HypervisorError, match="has arrived on this node"):
        kvm.migration.finalize_target(GUEST, None, success=False)
    assert StateQmp.done == []


def test_a_target_that_waits_is_ended(kvm, monkeypatch):
    monkeypatch.setattr(StateQmp, "run_state", "inmigrate")
    monkeypatch.setattr(StateQmp, "migration", {"status": "active"})
    kvm.migration.finalize_target(GUEST, None, success=False)
    assert StateQmp.done == ["ended", "removed"]


def test_a_target_that_does_not_answer_is_ended(kvm, monkeypatch):
    monkeypatch.setattr(kvm.guests, "connect", FakeQmp)
    kvm.migration.finalize_target(GUEST, None, success=False)
    assert StateQmp.done == ["ended", "removed"]


def test_a_target_that_does_not_end_keeps_its_files(kvm, monkeypatch):
    def endless(layout):
        raise errors.HypervisorError("does not end")

    monkeypatch.setattr(kvm.guests, "connect", FakeQmp)
    monkeypatch.setattr(kvm.guests, "end_process", endless)
    with pytest.raises(errors.HypervisorError, match="does not end"):
        kvm.migration.finalize_target(GUEST, None, success=False)
    assert StateQmp.done == []


def test_a_postcopy_migration_whose_connection_broke_is_resumed(kvm, monkeypatch):
    """QEMU shows the old break until it has connected again; the caller never sees that."""
    states = ["postcopy-paused", "postcopy-paused", "postcopy-recover"]

    class Resuming(StateQmp):
        def execute(self, command, arguments=None, *, fds=()):
            resumed = ("migrate", {"uri": "fd:migration", "resume": True}) in self.done
            if command == "query-migrate" and resumed:
                return {"status": states.pop(0)}
            return super().execute(command, arguments, fds=fds)

    def start_receiver(layout, place, command):
        assert (place, command) == (PLACE, "migrate-recover")
        StateQmp.done.append("waits to recover")
        return 8207

    monkeypatch.setattr(migration_connection, "start_receiver", start_receiver)
    monkeypatch.setattr(kvm.guests, "connect", Resuming)
    monkeypatch.setattr(StateQmp, "run_state", "paused")
    monkeypatch.setattr(StateQmp, "migration", {"status": "postcopy-paused"})
    record = runtime.Runtime(("qemu",), (), {}, ()).dumps()
    assert kvm.migration.accept(GUEST, record, PLACE, []) == 8207
    kvm.migration.send("cluster", GUEST, PLACE, live=True)
    assert states == []
    assert StateQmp.done == [
        "waits to recover",
        ("getfd", {"fdname": "migration"}),
        ("migrate", {"uri": "fd:migration", "resume": True}),
    ]


class SilentQmp(StateQmp):
    """A QEMU which waits for the answer of its peer; it goes on when the connection has ended."""

    states = ["setup", "setup"]
    peer: socket.socket

    def execute(self, command, arguments=None, *, fds=()):
        if command == "query-migrate" and self.states:
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            ended = state == "cancelling" and wait_readable([self.peer], 0)
            return {"status": "cancelled" if ended else state, "ram": {"transferred": 0}}
        if command == "query-status":
            return {"status": "paused"}
        if command == "migrate_cancel":
            self.states[:] = ["cancelling"]
        return super().execute(command, arguments, fds=fds)


@pytest.mark.parametrize("state", ["setup", "active"])
@pytest.mark.parametrize("live", [True, False])
def test_when_nothing_is_sent_the_guest_runs_on(kvm, monkeypatch, connection, state, live):
    monkeypatch.setattr(kvm.guests, "connect", SilentQmp)
    monkeypatch.setattr(SilentQmp, "states", [state])
    monkeypatch.setattr(SilentQmp, "peer", connection, raising=False)
    monkeypatch.setattr(incoming, "BEGIN_TIMEOUT_S", 0.02)
    monkeypatch.setattr(migration, "_SENDING", frozenset())
    with pytest.raises(errors.HypervisorError, match=r"runs on: nothing was sent within 0\.02 s"):
        kvm.migration.send("cluster", GUEST, PLACE, live=live)
    assert [command for command, _ in StateQmp.done[-3:]] == ["migrate", "migrate_cancel", "cont"]


def test_a_target_which_does_not_answer_costs_the_guest_nothing(kvm, monkeypatch):
    @contextlib.contextmanager
    def refused(layout, place):
        raise errors.HypervisorError(f"nobody at {place}")
        yield

    monkeypatch.setattr(migration_connection, "connected", refused)
    with pytest.raises(errors.HypervisorError, match=r"nobody at 192\.0\.2\.1 port 8200"):
        kvm.migration.send("cluster", GUEST, PLACE, live=False)
    assert {command for command, _ in StateQmp.done} <= {
        "migrate-set-parameters",
        "migrate-set-capabilities",
    }


def test_capabilities_with_several_connections_are_left_out(kvm):
    guest = instance("default", "/dir", migration_caps="multifd:xbzrle:postcopy-preempt")
    kvm.migration.send("cluster", guest, PLACE, live=True)
    (wanted,) = [values for command, values in StateQmp.done if command.endswith("capabilities")]
    assert wanted == {"capabilities": [{"capability": "xbzrle", "state": True}]}


def test_a_resumption_which_fails_is_left_to_the_next_look(kvm, monkeypatch):
    monkeypatch.setattr(StateQmp, "migration", {"status": "postcopy-paused"})
    monkeypatch.setattr(migration, "_RESUME_S", 0.0)
    kvm.migration.send("cluster", GUEST, PLACE, live=True)
    assert StateQmp.done == [GETFD, ("migrate", {"uri": "fd:migration", "resume": True})]


def test_with_postcopy_the_guest_runs_when_it_has_all_of_its_memory(kvm, monkeypatch):
    states = ["postcopy-active", "postcopy-active", "completed"]

    class Arriving(StateQmp):
        def execute(self, command, arguments=None, *, fds=()):
            if command == "query-migrate":
                return {"status": states.pop(0) if len(states) > 1 else states[0]}
            assert command != "cont" or states == ["completed"]
            return super().execute(command, arguments, fds=fds)

    monkeypatch.setattr(kvm.guests, "connect", Arriving)
    monkeypatch.setattr(StateQmp, "run_state", "paused")
    monkeypatch.setattr(migration.runtime, "load", lambda *args: runtime.Runtime((), (), {}, ()))
    kvm.migration.finalize_target(GUEST, None, success=True)
    assert StateQmp.done == [("cont", {})]
    monkeypatch.setattr(incoming, "INCOMING_TIMEOUT_S", 0.01)
    states[:] = ["postcopy-paused"]
    with pytest.raises(errors.HypervisorError, match="has not arrived"):
        kvm.migration.finalize_target(GUEST, None, success=True)
    assert StateQmp.done == [("cont", {})]


# -- disks -----------------------------------------------------------------------------------


def plugged(*numbers):
    return runtime.Runtime(
        ("qemu",),
        (),
        {},
        tuple(
            runtime.RuntimeDisk(
                {"uuid": f"uuid-{number}", "hvinfo": {"id": f"disk-{number}"}}, "/old", None
            )
            for number in numbers
        ),
    )


def attached(*numbers):
    return [
        base.AttachedDisk(
            Disk(dev_type="file", logical_id=("loop", "/d"), size=1, uuid=f"uuid-{number}"),
            f"/links/{index}",
        )
        for index, number in enumerate(numbers)
    ]


def test_disks_are_matched_by_uuid():
    """The configuration says another order than the guest was started with."""
    found = runtime.matching_disks(plugged(1, 2, 3), "web", attached(3, 1, 2))
    assert [(disk.hvinfo["id"], disk.path) for disk in found] == [
        ("disk-1", "/links/1"),
        ("disk-2", "/links/2"),
        ("disk-3", "/links/0"),
    ]


def test_a_disk_that_the_instance_does_not_have_is_never_replaced_by_another():
    with pytest.raises(errors.HypervisorError, match="web runs with disk uuid-1, .*Stop"):
        runtime.matching_disks(plugged(1, 2), "web", attached(2, 3))
    record = replace(plugged(1), argv=("qemu", "-m", "64", "-smp", "1", "-machine", "pc"))
    with pytest.raises(errors.HypervisorError, match="web1 runs with disk uuid-1"):
        hardware.adopt(record, GUEST, attached(2))
    with pytest.raises(errors.HypervisorError, match="runs with 1 disks, but has 2"):
        hardware.adopt(record, GUEST, attached(1, 2))
