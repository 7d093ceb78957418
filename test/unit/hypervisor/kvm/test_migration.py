"""Migration over QMP, and what the driver says about a guest which waits for its memory."""

from __future__ import annotations

import os

import pytest

from fakes.kvm_variants import instance
from ganeti import errors
from ganeti.hypervisor import base
from ganeti.hypervisor.kvm import driver, incoming, migration, parse, runtime


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
    monkeypatch.setattr(driver, "Qmp", FakeQmp)
    kvm = driver.KvmHypervisor()
    command = parse.CommandLine("web", 128, 2)
    info = kvm._info(kvm.layout("web"), os.getpid(), command)
    assert (info.state, info.memory_mib, info.vcpus) == (state, memory_mib, 2)


def test_a_guest_that_was_sent_stopped_runs_on_although_it_arrives_late(monkeypatch):
    kvm = driver.KvmHypervisor()
    monkeypatch.setattr(IncomingQmp, "states", ["inmigrate"] * 3 + ["paused"])
    monkeypatch.setattr(migration, "Qmp", IncomingQmp)
    monkeypatch.setattr(kvm, "_require_running", lambda layout: None)
    monkeypatch.setattr(migration.runtime, "load", lambda *args: runtime.Runtime((), (), {}, ()))
    kvm.finalize_migration_target(instance("default", "/dir"), None, success=True)
    assert IncomingQmp.states == ["running"]


def test_a_guest_that_never_arrives_is_an_error(monkeypatch):
    kvm = driver.KvmHypervisor()
    monkeypatch.setattr(IncomingQmp, "states", ["inmigrate"])
    monkeypatch.setattr(migration, "Qmp", IncomingQmp)
    monkeypatch.setattr(incoming, "INCOMING_TIMEOUT_S", 0.01)
    monkeypatch.setattr(kvm, "_require_running", lambda layout: None)
    with pytest.raises(errors.HypervisorError, match="web1 was sent, but has not arrived"):
        kvm.finalize_migration_target(instance("default", "/dir"), None, success=True)


def test_a_stopped_guest_that_was_not_sent_runs_on_although_it_is_late(monkeypatch):
    kvm = driver.KvmHypervisor()
    monkeypatch.setattr(IncomingQmp, "states", ["finish-migrate"] * 3 + ["paused"])
    monkeypatch.setattr(migration, "Qmp", IncomingQmp)
    monkeypatch.setattr(kvm, "_require_running", lambda layout: None)
    kvm.finalize_migration_source(instance("default", "/dir"), success=False, live=True)
    assert IncomingQmp.states == ["running"]


class SendingQmp(FakeQmp):
    """Records the commands; a migration has a state."""

    status = ""
    sent: list[str] = []

    def execute(self, command, arguments=None):
        if command == "query-migrate":
            return {"status": self.status} if self.status else {}
        self.sent.append(command)
        return {}


@pytest.mark.parametrize(
    ("status", "begins"),
    [("", True), ("completed", True), ("failed", True), ("setup", False), ("active", False)],
)
def test_a_guest_is_not_sent_twice(monkeypatch, status, begins):
    """The call may come again when the process which served it first has died."""
    kvm = driver.KvmHypervisor()
    monkeypatch.setattr(SendingQmp, "status", status)
    monkeypatch.setattr(SendingQmp, "sent", [])
    monkeypatch.setattr(migration, "Qmp", SendingQmp)
    monkeypatch.setattr(migration, "set_migration_capabilities", lambda control, hvp: None)
    monkeypatch.setattr(migration, "_is_emulated", lambda layout: False)
    monkeypatch.setattr(kvm, "_require_running", lambda layout: None)
    kvm.migrate("cluster", instance("default", "/dir"), "192.0.2.1", live=True)
    assert ("migrate" in SendingQmp.sent) == begins


class RecordingQmp(FakeQmp):
    """Records the commands."""

    sent: list[tuple[str, dict]] = []

    def execute(self, command, arguments=None):
        if command != "query-migrate":
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
    monkeypatch.setattr(migration, "Qmp", RecordingQmp)
    monkeypatch.setattr(migration.runtime, "load", lambda *args: record)
    monkeypatch.setattr(kvm, "_require_running", lambda layout: None)
    guest = instance(
        "default",
        "/dir",
        migration_bandwidth=100,
        migration_downtime=250,
        migration_port=8200,
        migration_caps="xbzrle",
    )
    kvm.migrate("cluster", guest, "2001:db8::7", live=live)
    assert RecordingQmp.sent == [
        ("migrate-set-parameters", {"max-bandwidth": 100 << 20, "downtime-limit": 250}),
        ("migrate-set-capabilities", {"capabilities": [{"capability": "xbzrle", "state": True}]}),
        *([("stop", {})] if stops else []),
        ("migrate", {"uri": "tcp:[2001:db8::7]:8200"}),
    ]
