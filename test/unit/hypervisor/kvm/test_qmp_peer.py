"""The KVM driver and a QEMU which refuses, is late, or ends in the middle of a command."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.kvm_variants import instance
from fakes.qemu_peer import CLOSES, DIES, HALF, LATE, SILENT, TROUBLES, Node, Qemu
from ganeti import errors
from ganeti.hypervisor.base import AttachedDisk, Place
from ganeti.hypervisor.kvm import (
    accelerator,
    driver,
    facts,
    hotplug,
    incoming,
    migration,
    migration_connection,
    nics,
    parse,
    qmp,
    runtime,
    start,
)
from ganeti.hypervisor.kvm import layout as layouts
from ganeti.objects.instance import FilledNic
from ganeti.platform import paths
from ganeti.utils import fs

NAME = "web1"
PLACE = Place("192.0.2.1", 8200)
#: The time limit of each question. A busy machine must not exceed it where an answer comes.
LIMIT_S = 0.9
FACTS = facts.QemuFacts(
    "/usr/bin/qemu",
    (7, 2, 0),
    frozenset(("no-acpi", "runas", "chroot", "display", "audio")),
    "pc-i440fx-7.2",
    accelerator.TCG,
)


class Lab:
    """A driver on a node of its own."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kvm = driver.KvmHypervisor()
        self.layout = layouts.of(NAME)
        self.node = Node(layouts.of)
        self.disk_file = directory / "disk"
        self.disk_file.write_bytes(b"\0" * 4096)
        self.guest = instance(
            "default",
            str(directory),
            migration_caps="xbzrle",
            migration_bandwidth=1,
            migration_downtime=1,
            migration_port=8200,
        )
        self.disks = [AttachedDisk(self.guest.disks_info[0], str(self.disk_file), None)]
        monkeypatch.setattr(facts, "of", lambda path: FACTS)
        monkeypatch.setattr(start.process, "run", self.node.run)
        monkeypatch.setattr(qmp, "net", SimpleNamespace(unix_connect=self.node.connect))
        monkeypatch.setattr(start.tap, "vhost_works", lambda: False)
        monkeypatch.setattr(self.kvm.guests, "qemu", lambda layout: self._process(layout.name))
        monkeypatch.setattr(
            self.kvm.guests, "end_process", lambda layout: self.node.end(layout.name)
        )

    def _process(self, name: str) -> tuple[int, parse.CommandLine] | None:
        return (os.getpid(), parse.CommandLine(name, 64, 2)) if self.node.is_alive(name) else None

    @property
    def qemu(self) -> Qemu:
        return self.node.qemus[NAME]

    def start(self) -> Qemu:
        self.kvm.start(self.guest, self.disks)
        assert self.qemu.state == "running"
        self.qemu.done.clear()
        return self.qemu

    def left(self) -> list[str]:
        """The files of the guest."""
        return sorted(
            str(path.relative_to(self.layout.kvm_root))
            for path in Path(self.layout.kvm_root).rglob(f"{NAME}*")
            if not path.is_dir()
        )

    def record(self) -> runtime.Runtime:
        return runtime.load(self.layout.runtime_file, NAME)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    # The path of a socket has at most 107 bytes.
    root = Path(f"/tmp/ganeti-qmp-{os.getpid()}-{threading.get_ident()}")
    root.mkdir()
    monkeypatch.setattr(qmp, "TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(start, "FIRST_ANSWERS_S", LIMIT_S)
    monkeypatch.setattr(hotplug, "UNPLUG_TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(incoming, "INCOMING_TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(incoming, "CANCEL_TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(migration, "_STATUS_PAUSE_S", 0.01)
    # The connection between the nodes has tests of its own.
    monkeypatch.setattr(
        migration_connection, "start_receiver", lambda layout, place, command: place.port
    )
    connection = socket.socket()
    monkeypatch.setattr(
        migration_connection,
        "connected",
        lambda layout, place: contextlib.nullcontext(connection),
    )
    try:
        with paths.override(paths.Paths(root=str(root))):
            made = Lab(tmp_path, monkeypatch)
            yield made
            for qemu in made.node.qemus.values():
                qemu.end()
    finally:
        connection.close()
        shutil.rmtree(root)


def spoil(qemu: Qemu, command: str, how: str) -> None:
    if how == "refused":
        qemu.refuses[command] = "it does not want to"
    else:
        qemu.trouble[command] = how


HOW = ("refused", *TROUBLES)


# -- the protocol ----------------------------------------------------------------------------------


@pytest.fixture
def qemu(tmp_path: Path, lab: Lab) -> Qemu:
    return lab.node.begin(NAME, "running")


def test_a_late_answer_is_not_that_of_the_next_command(lab: Lab, qemu: Qemu) -> None:
    qemu.trouble["query-status"] = LATE
    with qmp.Qmp(lab.layout.socket("qmp"), NAME) as control:
        with pytest.raises(qmp.NoAnswer, match=f"query-status within {LIMIT_S} s"):
            control.execute("query-status")
        qemu.answer_now.set()
        assert control.execute("query-balloon") == {"actual": 64 << 20}


def test_events_without_end_do_not_keep_a_client(lab: Lab, qemu: Qemu) -> None:
    with qmp.Qmp(lab.layout.socket("qmp"), NAME) as control:
        qemu.trouble["query-status"] = SILENT
        flood = threading.Thread(target=qemu._make_noise, args=(qemu._connection,), daemon=True)
        flood.start()
        with pytest.raises(qmp.NoAnswer):
            control.execute("query-status")
        assert control.wait_event(lambda event: event["event"] == "NEVER", LIMIT_S) is None


def test_an_answer_behind_too_many_events_is_too_late(
    lab: Lab, qemu: Qemu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time counts for messages which are already there, too."""
    with qmp.Qmp(lab.layout.socket("qmp"), NAME, timeout_s=10.0) as control:
        assert qemu._connection is not None
        qemu._connection.sendall(b'{"event": "RTC_CHANGE"}\n' * 20 + b'{"return": {}}\n')
        # Each message takes a second.
        seconds = itertools.count()
        monkeypatch.setattr(qmp.time, "monotonic", lambda: float(next(seconds)))
        with pytest.raises(qmp.NoAnswer):
            control.execute("qmp_capabilities")


def test_an_event_before_the_answer_is_not_missed(lab: Lab, qemu: Qemu) -> None:
    with qmp.Qmp(lab.layout.socket("qmp"), NAME) as control:
        assert qemu._connection is not None
        qemu._connection.sendall(b'{"event": "STOP"}\n{"event": "RESUME"}\n')
        control.execute("query-status")
        found = control.wait_event(lambda event: event["event"] == "RESUME", 0.0)
        assert found == {"event": "RESUME"}


def test_a_bad_greeting_ends_the_connection(lab: Lab, qemu: Qemu) -> None:
    """QEMU serves one client at a time; the next one must not wait for the failed one."""
    qemu.greeting = b'{"hello": 1}\n'
    with pytest.raises(errors.HypervisorError, match="not the greeting of QMP") as caught:
        qmp.Qmp(lab.layout.socket("qmp"), NAME)
    qemu.greeting = b'{"QMP": {}}\n'
    # The error still holds the failed connection.
    assert caught.value.__traceback__ is not None
    with qmp.Qmp(lab.layout.socket("qmp"), NAME, timeout_s=30.0) as control:
        assert control.execute("query-status") == {"status": "running"}


def test_events_of_the_past_take_no_memory(lab: Lab, qemu: Qemu) -> None:
    with qmp.Qmp(lab.layout.socket("qmp"), NAME) as control:
        event = b'{"event": "RTC_CHANGE", "data": {"offset": 0}}\n'
        assert qemu._connection is not None
        for _ in range(20):
            qemu._connection.sendall(event * 500)
            control.execute("query-status")
        assert len(control.events) <= qmp.EVENTS_MAX


@pytest.mark.parametrize(
    ("greeting", "message"),
    [
        (b'{"hello": 1}\n', "not the greeting of QMP"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[]\n", "expected an object"),
        (b'{"QMP"', "does not answer on its control socket.* Another program may be connected"),
        (b"x" * 2000, "more than 0 MiB"),
        (None, "Another program may be connected"),
    ],
)
def test_a_peer_which_is_no_qemu(
    lab: Lab, qemu: Qemu, monkeypatch: pytest.MonkeyPatch, greeting: bytes | None, message: str
) -> None:
    monkeypatch.setattr(qmp, "_MESSAGE_MAX_BYTES", 1000)
    qemu.greeting = greeting
    with pytest.raises(errors.HypervisorError, match=message):
        qmp.Qmp(lab.layout.socket("qmp"), NAME)


def test_nobody_listens(lab: Lab) -> None:
    with pytest.raises(errors.HypervisorError, match="cannot reach QEMU of instance web1"):
        qmp.Qmp(lab.layout.socket("qmp"), NAME)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("refused", qmp.QmpError),
        (SILENT, qmp.NoAnswer),
        (CLOSES, qmp.ConnectionLost),
        (DIES, qmp.ConnectionLost),
        (HALF, qmp.ConnectionLost),
    ],
)
def test_each_trouble_has_its_error(
    lab: Lab, qemu: Qemu, how: str, error: type[errors.HypervisorError]
) -> None:
    spoil(qemu, "stop", how)
    with qmp.Qmp(lab.layout.socket("qmp"), NAME) as control, pytest.raises(error) as caught:
        control.execute("stop")
    assert type(caught.value) is error


# -- start -----------------------------------------------------------------------------------------


def test_a_start(lab: Lab) -> None:
    qemu = lab.start()
    assert qemu.state == "running"
    assert lab.left() == ["conf/web1.runtime", "ctrl/web1.qmp"]
    assert lab.kvm.list_instances() == []  # this QEMU has no pid file
    assert lab.kvm.is_running(NAME)


def test_a_paused_start(lab: Lab) -> None:
    lab.kvm.start(lab.guest, lab.disks, paused=True)
    assert lab.qemu.state == "prelaunch"


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("command", ["qmp_capabilities", "set_password", "cont"])
def test_a_start_which_fails_leaves_nothing(
    lab: Lab, tmp_path: Path, command: str, how: str
) -> None:
    (tmp_path / "password").write_text("secret\n")
    lab.guest.hvparams.update(
        vnc_bind_address="127.0.0.1", vnc_password_file=str(tmp_path / "password")
    )
    lab.node.prepare = lambda qemu: spoil(qemu, command, how)
    with pytest.raises(errors.HypervisorError):
        lab.kvm.start(lab.guest, lab.disks)
    assert not lab.kvm.is_running(NAME)
    assert lab.left() == []
    lab.node.prepare = lambda qemu: None
    lab.start()


def test_a_program_which_does_not_start_leaves_nothing(lab: Lab) -> None:
    lab.node.fails = errors.CommandError("qemu", 1, "no such machine")
    with pytest.raises(errors.HypervisorError, match="no such machine"):
        lab.kvm.start(lab.guest, lab.disks)
    assert lab.left() == []


def test_a_full_disk_at_the_start_leaves_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, record: runtime.Runtime) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(runtime, "save", full)
    with pytest.raises(errors.HypervisorError, match="No space left"):
        lab.kvm.start(lab.guest, lab.disks)
    assert not lab.kvm.is_running(NAME)
    assert lab.left() == []


def test_files_of_an_earlier_qemu_are_gone_before_the_start(lab: Lab) -> None:
    """It ended unnoticed. QEMU would refuse its process id file, and clients find its sockets."""
    earlier = [
        lab.layout.pid_file,
        lab.layout.runtime_file,
        lab.layout.socket("qmp"),
        lab.layout.socket("monitor"),
    ]
    for path in earlier:
        fs.make_dirs(os.path.dirname(path), 0o700)
        fs.write_file(path, b"9999999\n")
    found: list[str] = []

    def run(command: list[str], **options: Any) -> None:
        found.extend(lab.left())
        for path in earlier:
            fs.remove_file(path)
        lab.node.run(command, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start.process, "run", run)
        lab.start()
    assert found == []


def test_a_second_start_changes_nothing(lab: Lab) -> None:
    qemu = lab.start()
    before = lab.left()
    with pytest.raises(errors.HypervisorError, match="is running already"):
        lab.kvm.start(lab.guest, lab.disks)
    assert (lab.left(), qemu.alive, qemu.done) == (before, True, [])
    assert len(lab.node.commands) == 1


@pytest.mark.parametrize(
    ("state", "sent", "runs", "after"),
    [
        ("running", {}, True, "running"),
        ("prelaunch", {}, True, "running"),
        ("paused", {}, True, "paused"),  # by the administrator
        ("paused", {"status": "completed"}, True, "running"),  # it has arrived
        ("inmigrate", {"status": "active"}, False, None),
        ("postmigrate", {"status": "completed", "ram": {}}, False, None),
        ("paused", {"status": "completed", "ram": {}}, False, None),
        ("paused", {"status": "postcopy-active", "ram": {}}, False, None),
    ],
)
def test_a_start_after_an_interrupted_one(
    lab: Lab, state: str, sent: dict[str, Any], runs: bool, after: str | None
) -> None:
    qemu = lab.start()
    qemu.state, qemu.migration = state, sent
    assert lab.kvm.complete_start(lab.guest) is runs
    if after is None:
        assert not qemu.alive
        assert lab.left() == []
    else:
        assert (qemu.alive, qemu.state) == (True, after)


def test_a_guest_gets_its_passwords_after_an_interrupted_start(lab: Lab, tmp_path: Path) -> None:
    """Without them everybody could use its display."""
    (tmp_path / "password").write_text("secret\n")
    lab.guest.hvparams.update(
        vnc_bind_address="127.0.0.1", vnc_password_file=str(tmp_path / "password")
    )
    qemu = lab.start()
    qemu.state = "prelaunch"
    assert lab.kvm.complete_start(lab.guest)
    assert [one for one in qemu.changed if one in ("set_password", "cont")] == [
        "set_password",
        "cont",
    ]


@pytest.mark.parametrize(
    ("parameter", "content", "message"),
    [
        ("cdrom_image_path", None, "cdrom_image_path: .*/file is not a file on this node"),
        ("vnc_password_file", "", "vnc_password_file: .*/file is empty"),
    ],
)
def test_a_guest_without_its_file_is_not_stopped_for_a_reboot(
    lab: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parameter: str,
    content: str | None,
    message: str,
) -> None:
    file = tmp_path / "file"
    file.write_text("secret\n")
    lab.guest.hvparams.update(
        {"vnc_bind_address": "127.0.0.1", "kernel_path": "", parameter: str(file)}
    )
    qemu = lab.start()
    monkeypatch.setattr(lab.kvm.guests, "qemu", lambda _layout: [1])
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(errors.HypervisorError, match=message):
        lab.kvm.reboot(lab.guest, lab.disks, timeout_s=0)
    assert (qemu.alive, qemu.state) == (True, "running")


@pytest.mark.parametrize(
    ("state", "sent"), [("prelaunch", {}), ("paused", {"status": "completed"})]
)
def test_a_guest_which_shall_be_paused_stays_so(lab: Lab, state: str, sent: dict[str, Any]) -> None:
    qemu = lab.start()
    qemu.state, qemu.migration = state, sent
    assert lab.kvm.complete_start(lab.guest, paused=True)
    assert qemu.state == state


def test_a_start_without_its_runtime_file_is_removed(lab: Lab) -> None:
    qemu = lab.start()
    os.unlink(lab.layout.runtime_file)
    assert not lab.kvm.complete_start(lab.guest)
    assert not qemu.alive
    assert lab.left() == []


# -- stop ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "command"),
    [
        ("running", "system_powerdown"),
        ("paused", "system_powerdown"),
        ("prelaunch", "quit"),
        ("inmigrate", "quit"),
        ("postmigrate", "quit"),
        ("guest-panicked", "quit"),
    ],
)
def test_who_gets_the_power_button(lab: Lab, state: str, command: str) -> None:
    qemu = lab.start()
    qemu.state = state
    lab.kvm.stop(NAME, lab.guest.hvparams)
    assert qemu.changed == [command]


@pytest.mark.parametrize("how", ["refused", SILENT, LATE])
def test_a_stop_which_fails_is_an_error(lab: Lab, how: str) -> None:
    qemu = lab.start()
    spoil(qemu, "system_powerdown", how)
    with pytest.raises(errors.HypervisorError):
        lab.kvm.stop(NAME, lab.guest.hvparams)
    assert qemu.alive
    assert os.path.exists(lab.layout.runtime_file)


@pytest.mark.parametrize("how", [CLOSES, DIES])
def test_a_guest_which_ends_before_it_answers(lab: Lab, how: str) -> None:
    spoil(lab.start(), "system_powerdown", how)
    lab.kvm.stop(NAME, lab.guest.hvparams)


def test_a_hard_stop_removes_everything(lab: Lab) -> None:
    qemu = lab.start()
    qemu.trouble["query-status"] = SILENT
    lab.kvm.stop(NAME, lab.guest.hvparams, force=True)
    assert not qemu.alive
    assert lab.left() == []


def test_files_of_a_running_guest_are_not_cleaned_up(lab: Lab) -> None:
    qemu = lab.start()
    before = lab.left()
    lab.kvm.cleanup(NAME)
    assert lab.left() == before
    qemu.end()
    lab.kvm.cleanup(NAME)
    assert lab.left() == []


# -- migration -------------------------------------------------------------------------------------


def info_of(lab: Lab) -> str | dict[str, str]:
    """What another node sends about the guest."""
    lab.start()
    info = lab.kvm.migration.info(lab.guest)
    lab.kvm.stop(NAME, lab.guest.hvparams, force=True)
    lab.node.commands.clear()
    return info


def test_a_target_waits(lab: Lab) -> None:
    lab.kvm.migration.accept(lab.guest, info_of(lab), PLACE, lab.disks)
    assert lab.qemu.state == "inmigrate"
    assert lab.qemu.changed == [
        "migrate-set-capabilities",
        "object-add",
        "migrate-set-parameters",
    ]
    command = lab.node.commands[-1]
    assert command[command.index("-incoming") + 1] == "defer"
    assert "-S" in command


@pytest.mark.parametrize("state", ["running", "paused", "inmigrate"])
def test_no_migration_is_accepted_beside_a_guest(lab: Lab, state: str) -> None:
    info = info_of(lab)
    qemu = lab.start()
    qemu.state = state
    before, record = lab.left(), lab.record()
    with pytest.raises(errors.HypervisorError, match="is running already"):
        lab.kvm.migration.accept(lab.guest, info, PLACE, lab.disks)
    assert (qemu.alive, qemu.state, qemu.changed) == (True, state, [])
    assert (lab.left(), lab.record()) == (before, record)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "command",
    ["qmp_capabilities", "migrate-set-capabilities", "object-add", "migrate-set-parameters"],
)
def test_a_target_which_fails_leaves_nothing(lab: Lab, command: str, how: str) -> None:
    info = info_of(lab)
    lab.node.prepare = lambda qemu: spoil(qemu, command, how)
    with pytest.raises(errors.HypervisorError):
        lab.kvm.migration.accept(lab.guest, info, PLACE, lab.disks)
    assert not lab.kvm.is_running(NAME)
    assert lab.left() == []


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "command",
    ["migrate-set-parameters", "migrate-set-capabilities", "stop", "getfd", "migrate"],
)
@pytest.mark.parametrize("live", [True, False])
def test_a_guest_is_not_left_stopped(lab: Lab, command: str, how: str, live: bool) -> None:
    """After a refusal it runs on at once; in doubt, when the source is finalized."""
    qemu = lab.start()
    spoil(qemu, command, how)
    with pytest.raises(errors.HypervisorError):
        lab.kvm.migration.send("cluster", lab.guest, PLACE, live=live)
    if how == DIES:
        return
    if how == "refused":
        assert qemu.state == "running"
    qemu.trouble.clear()
    qemu.refuses.clear()
    qemu.answer_now.set()
    lab.kvm.migration.finalize_source(lab.guest, success=False, live=live)
    assert qemu.state == "running"
    assert qemu.migration.get("status") != "active"


def test_what_the_source_is_told(lab: Lab) -> None:
    qemu = lab.start()
    lab.kvm.migration.send("cluster", lab.guest, PLACE, live=False)
    assert qemu.changed == [
        "migrate-set-parameters",
        "migrate-set-capabilities",
        "stop",
        "migrate",
    ]
    # Another call, because the answer to the first one was lost.
    lab.kvm.migration.send("cluster", lab.guest, PLACE, live=False)
    assert qemu.changed.count("migrate") == 1


@pytest.mark.parametrize("command", ["migrate_cancel", "query-migrate", "query-status", "cont"])
@pytest.mark.parametrize("how", ["refused", SILENT, CLOSES, HALF])
def test_a_cancellation_without_an_answer_is_an_error(lab: Lab, command: str, how: str) -> None:
    qemu = lab.start()
    lab.kvm.migration.send("cluster", lab.guest, PLACE, live=False)
    spoil(qemu, command, how)
    with pytest.raises(errors.HypervisorError):
        lab.kvm.migration.finalize_source(lab.guest, success=False, live=False)
    qemu.trouble.clear()
    qemu.refuses.clear()
    qemu.answer_now.set()
    lab.kvm.migration.finalize_source(lab.guest, success=False, live=False)
    assert qemu.state == "running"


def test_a_source_ends_after_a_success(lab: Lab) -> None:
    qemu = lab.start()
    lab.kvm.migration.finalize_source(lab.guest, success=True, live=True)
    assert not qemu.alive
    assert lab.left() == []


@pytest.mark.parametrize("how", ["refused", SILENT, CLOSES])
def test_a_progress_which_cannot_be_read(lab: Lab, how: str) -> None:
    qemu = lab.start()
    spoil(qemu, "query-migrate", how)
    with pytest.raises(errors.HypervisorError, match="cannot follow the migration"):
        lab.kvm.migration.status(lab.guest)


def test_a_progress_which_is_read_in_the_end(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    qemu = lab.start()
    qemu.migration = {"status": "active", "ram": {"transferred": 5, "total": 9}}
    qemu.refuses["query-migrate"] = "not now"
    monkeypatch.setattr(migration.time, "sleep", lambda _s: qemu.refuses.clear())
    status = lab.kvm.migration.status(lab.guest)
    assert (status.status, status.transferred_ram, status.total_ram) == ("active", 5, 9)


@pytest.mark.parametrize(
    ("caps", "rounds", "due"),
    [
        ("postcopy-ram", 2, True),
        ("xbzrle:postcopy-ram", 5, True),
        ("postcopy-ram", 1, False),
        ("postcopy-ram", None, False),
        ("xbzrle", 5, False),
    ],
)
def test_postcopy_begins_after_two_copies_of_the_memory(
    lab: Lab, caps: str, rounds: int | None, due: bool
) -> None:
    lab.guest.hvparams["migration_caps"] = caps
    qemu = lab.start()
    qemu.migration = {"status": "active", "ram": {"total": 9, "dirty-sync-count": rounds}}
    assert lab.kvm.migration.status(lab.guest).status == "active"
    assert qemu.changed == (["migrate-start-postcopy"] if due else [])


def test_a_guest_with_kvm_is_not_accepted_where_kvm_does_not_work(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as source:
        source.setattr(facts, "of", lambda path: replace(FACTS, accelerator=accelerator.KVM))
        info = info_of(lab)
    with pytest.raises(errors.HypervisorError, match="runs with KVM, which does not work on this"):
        lab.kvm.migration.accept(lab.guest, info, PLACE, lab.disks)
    assert lab.left() == []
    assert lab.node.commands == []


def test_a_guest_which_ends_during_its_migration(lab: Lab) -> None:
    lab.start().trouble["query-migrate"] = DIES
    with pytest.raises(errors.HypervisorError, match="ended during its migration"):
        lab.kvm.migration.status(lab.guest)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("command", ["query-status", "query-migrate", "cont"])
def test_a_guest_which_cannot_be_continued_on_the_target(lab: Lab, command: str, how: str) -> None:
    qemu = lab.start()
    qemu.state, qemu.migration = "paused", {"status": "completed"}
    spoil(qemu, command, how)
    with pytest.raises(errors.HypervisorError):
        lab.kvm.migration.finalize_target(lab.guest, None, success=True)
    assert qemu.alive is (how != DIES)


def test_the_network_of_a_guest_which_has_arrived_is_completed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu = lab.start()
    qemu.state, qemu.migration = "paused", {"status": "completed"}
    completed: list[Any] = []
    monkeypatch.setattr(
        migration.interfaces,
        "finish_incoming",
        lambda nics, guest: completed.append((guest.instance_name, qemu.state, nics)),
    )
    lab.kvm.migration.finalize_target(lab.guest, None, success=True)
    assert completed == [(NAME, "running", nics.host_nics(lab.record().nics, NAME))]


# -- devices ---------------------------------------------------------------------------------------


def new_disk(lab: Lab) -> AttachedDisk:
    disk = replace(lab.guest.disks_info[0], uuid="11111111-9b11-4b0e-a3a4-5d3c1f0e9a77")
    return AttachedDisk(disk, str(lab.disk_file))


def new_nic(lab: Lab) -> FilledNic:
    return replace(lab.guest.nics[0], uuid="22222222-9b11-4b0e-a3a4-5d3c1f0e9a77")


def state_of(qemu: Qemu) -> tuple[set[str], set[str], set[str], set[int]]:
    return set(qemu.devices), set(qemu.nodes), set(qemu.netdevs), set(qemu.fdsets)


def test_a_disk_comes_and_goes(lab: Lab) -> None:
    qemu = lab.start()
    before = lab.record()
    attached = new_disk(lab)
    lab.kvm.devices.add_disk(lab.guest, attached, 1)
    assert [known.disk["uuid"] for known in lab.record().disks] == [
        lab.guest.disks_info[0].uuid,
        attached.disk.uuid,
    ]
    assert len(qemu.devices) == len(qemu.nodes) == 1
    assert qemu.fdsets == set()
    with pytest.raises(errors.HotplugError, match="plugged in already"):
        lab.kvm.devices.add_disk(lab.guest, attached, 1)
    lab.kvm.devices.remove_disk(lab.guest, attached.disk)
    assert state_of(qemu) == (set(), set(), set(), set())
    assert [known.disk for known in lab.record().disks] == [known.disk for known in before.disks]


def test_a_disk_gets_the_place_which_was_asked_for(lab: Lab) -> None:
    lab.start()
    attached = new_disk(lab)
    lab.kvm.devices.add_disk(lab.guest, attached, 0)
    assert [known.disk["uuid"] for known in lab.record().disks] == [
        attached.disk.uuid,
        lab.guest.disks_info[0].uuid,
    ]


def test_the_disks_behind_a_plugged_one_move_at_the_next_start(lab: Lab) -> None:
    lab.start()
    attached = new_disk(lab)
    links = [paths.current().instance_disk_link(NAME, number) for number in range(2)]
    lab.kvm.devices.add_disk(lab.guest, attached, 0)
    assert [known.path for known in lab.record().disks] == links
    lab.kvm.devices.remove_disk(lab.guest, attached.disk)
    assert [known.path for known in lab.record().disks] == links[:1]


def test_a_nic_comes_and_goes(lab: Lab) -> None:
    qemu = lab.start()
    before = lab.record()
    nic = new_nic(lab)
    lab.kvm.devices.add_nic(lab.guest, nic, 1)
    assert len(lab.record().nics) == 2
    assert len(qemu.devices) == len(qemu.netdevs) == 1
    with pytest.raises(errors.HotplugError, match="plugged in already"):
        lab.kvm.devices.add_nic(lab.guest, nic, 1)
    lab.kvm.devices.remove_nic(lab.guest, nic)
    assert state_of(qemu) == (set(), set(), set(), set())
    assert lab.record() == before


@pytest.mark.parametrize("command", ["add-fd", "blockdev-add", "device_add"])
def test_a_refused_disk_is_taken_back(lab: Lab, command: str) -> None:
    qemu = lab.start()
    before = lab.record()
    spoil(qemu, command, "refused")
    attached = new_disk(lab)
    with pytest.raises(errors.HotplugError, match="it does not want to"):
        lab.kvm.devices.add_disk(lab.guest, attached, 1)
    assert state_of(qemu) == (set(), set(), set(), set())
    assert lab.record() == before
    qemu.refuses.clear()
    lab.kvm.devices.add_disk(lab.guest, attached, 1)


@pytest.mark.parametrize("command", ["netdev_add", "device_add"])
def test_a_refused_nic_is_taken_back(lab: Lab, command: str) -> None:
    qemu = lab.start()
    before = lab.record()
    spoil(qemu, command, "refused")
    with pytest.raises(errors.HotplugError, match="it does not want to"):
        lab.kvm.devices.add_nic(lab.guest, new_nic(lab), 1)
    assert state_of(qemu) == (set(), set(), set(), set())
    assert lab.record() == before
    qemu.refuses.clear()
    lab.kvm.devices.add_nic(lab.guest, new_nic(lab), 1)


@pytest.mark.parametrize("kind", ["disk", "nic"])
def test_a_late_device_is_plugged_in(lab: Lab, kind: str) -> None:
    """QEMU answers when the client has given up and asks which devices there are."""
    qemu = lab.start()
    qemu.trouble["device_add"] = LATE
    qemu.answers_too_late = True
    if kind == "disk":
        attached = new_disk(lab)
        lab.kvm.devices.add_disk(lab.guest, attached, 1)
        assert (len(lab.record().disks), len(qemu.nodes)) == (2, 1)
    else:
        lab.kvm.devices.add_nic(lab.guest, new_nic(lab), 1)
        assert (len(lab.record().nics), len(qemu.netdevs)) == (2, 1)
    assert len(qemu.devices) == 1


@pytest.mark.parametrize("kind", ["disk", "nic"])
@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("DEVICE_UNPLUG_GUEST_ERROR", "the guest refuses to release"),
        ("DEVICE_UNPLUG_ERROR", "the guest refuses to release"),
        (None, f"did not release .* within {LIMIT_S} s"),
    ],
)
def test_a_guest_which_keeps_its_device(
    lab: Lab, kind: str, event: str | None, message: str
) -> None:
    qemu = lab.start()
    attached, nic = new_disk(lab), new_nic(lab)
    if kind == "disk":
        lab.kvm.devices.add_disk(lab.guest, attached, 1)
    else:
        lab.kvm.devices.add_nic(lab.guest, nic, 1)
    before, record = state_of(qemu), lab.record()
    qemu.on_unplug = event
    with pytest.raises(errors.HotplugError, match=message):
        if kind == "disk":
            lab.kvm.devices.remove_disk(lab.guest, attached.disk)
        else:
            lab.kvm.devices.remove_nic(lab.guest, nic)
    assert state_of(qemu) == before
    assert lab.record() == record


@pytest.mark.parametrize("how", ["refused", SILENT, CLOSES, DIES])
def test_a_device_whose_removal_fails_stays_in_the_record(lab: Lab, how: str) -> None:
    qemu = lab.start()
    attached = new_disk(lab)
    lab.kvm.devices.add_disk(lab.guest, attached, 1)
    record = lab.record()
    spoil(qemu, "device_del", how)
    if how == SILENT:
        qemu.on_unplug = None
    with pytest.raises(errors.HotplugError):
        lab.kvm.devices.remove_disk(lab.guest, attached.disk)
    assert lab.record() == record


def test_a_device_which_was_released_late_is_not_waited_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu = lab.start()
    attached = new_disk(lab)
    lab.kvm.devices.add_disk(lab.guest, attached, 1)
    # The guest did this after the first request had timed out.
    qemu.devices.clear()
    waits: list[float] = []
    monkeypatch.setattr(qmp.Qmp, "wait_event", lambda _qmp, _wanted, limit_s: waits.append(limit_s))
    lab.kvm.devices.remove_disk(lab.guest, attached.disk)
    assert waits == []
    assert len(lab.record().disks) == 1
    assert qemu.nodes == set()


def test_a_removal_which_is_asked_for_again(lab: Lab) -> None:
    qemu = lab.start()
    attached = new_disk(lab)
    lab.kvm.devices.add_disk(lab.guest, attached, 1)
    qemu.refuses["device_del"] = "Device disk is already in the process of unplug"
    threading.Timer(0.1, qemu.devices.clear).start()
    lab.kvm.devices.remove_disk(lab.guest, attached.disk)
    assert len(lab.record().disks) == 1
    assert qemu.nodes == set()


def test_a_changed_nic_keeps_its_place(lab: Lab) -> None:
    qemu = lab.start()
    nic = new_nic(lab)
    lab.kvm.devices.add_nic(lab.guest, nic, 0)
    before = lab.record()
    lab.kvm.devices.modify_nic(lab.guest, replace(nic, mac="aa:00:00:00:00:99"))
    after = lab.record()
    assert after.nics[0]["mac"] == "aa:00:00:00:00:99"
    assert after.nics[0]["hvinfo"] == before.nics[0]["hvinfo"]
    assert after.nics[1] == before.nics[1]
    assert len(qemu.devices) == len(qemu.netdevs) == 1


def test_a_changed_nic_which_is_refused_is_gone_and_known_to_be(lab: Lab) -> None:
    qemu = lab.start()
    nic = new_nic(lab)
    lab.kvm.devices.add_nic(lab.guest, nic, 0)
    spoil(qemu, "device_add", "refused")
    with pytest.raises(errors.HotplugError, match="The guest is left without NIC"):
        lab.kvm.devices.modify_nic(lab.guest, nic)
    assert len(lab.record().nics) == 1
    assert state_of(qemu) == (set(), set(), set(), set())


def test_a_refused_change_of_a_nic_leaves_the_old_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu = lab.start()
    nic = new_nic(lab)
    lab.kvm.devices.add_nic(lab.guest, nic, 0)
    before, plugged, add = lab.record(), state_of(qemu), hotplug.add_nic

    def refuse_the_changed_one(control: Any, record: Any, device: Any, *others: Any) -> Any:
        if device["mac"] == "aa:00:00:00:00:99":
            raise errors.HotplugError("refused")
        return add(control, record, device, *others)

    monkeypatch.setattr(hotplug, "add_nic", refuse_the_changed_one)
    with pytest.raises(errors.HotplugError, match="refused$"):
        lab.kvm.devices.modify_nic(lab.guest, replace(nic, mac="aa:00:00:00:00:99"))
    assert lab.record() == before
    assert state_of(qemu) == plugged


def test_nothing_is_changed_in_a_guest_which_is_being_sent(lab: Lab) -> None:
    qemu = lab.start()
    for state in ("inmigrate", "postmigrate", "finish-migrate"):
        qemu.state = state
        with pytest.raises(errors.HotplugError, match=f"is in state {state}"):
            lab.kvm.devices.check(lab.guest)
    qemu.state = "running"
    lab.kvm.devices.check(lab.guest)
    os.unlink(lab.layout.runtime_file)
    with pytest.raises(errors.HotplugError, match="runtime data"):
        lab.kvm.devices.check(lab.guest)


def test_a_runtime_file_which_cannot_be_written_is_an_error(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.start()
    monkeypatch.setattr(fs, "write_file", _full)
    attached = new_disk(lab)
    with pytest.raises(errors.HotplugError, match="No space left"):
        lab.kvm.devices.add_disk(lab.guest, attached, 1)


def _full(path: str, data: str, **_options: Any) -> None:
    raise OSError(28, "No space left on device", path)
