"""When the device is armed, fed and disarmed, and what is promised in which order."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.confd import protocol
from ganeti.constants import confd as confd_c
from ganeti.constants import node_watchdog as const
from ganeti.platform import paths, watchdog_files
from ganeti.platform.watchdog_files import Promise, Report
from ganeti.utils.filelock import FileLock
from ganeti.watchdogd import candidate_poll as asking_module
from ganeti.watchdogd.candidate_poll import CandidatePoll
from ganeti.watchdogd.device import Device, Identity, parse_identity, why_unfit
from ganeti.watchdogd.feeder import Facts, Feeder

TOKEN = "12345678-1234-1234-1234-123456789012"
THREE = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
KEY = b"key"


class FakeDevice:
    """Counts feedings, and notes whether it was disarmed."""

    def __init__(self, timeout_s: int) -> None:
        self.timeout_s = timeout_s
        self.fed = 1
        self.armed = True
        self.broken = False

    def feed(self) -> None:
        if self.broken:
            raise errors.HypervisorError("watchdog cannot be fed: input/output error")
        self.fed += 1

    def disarm(self) -> None:
        self.armed = False


class Node:
    """A feeder whose clock and candidates the test moves."""

    def __init__(self, candidates: tuple[str, ...] = THREE) -> None:
        self.now = 1000.0
        self.candidates = candidates
        self.answering: tuple[str, ...] = candidates
        self.left = False
        self.timeout_s = 10
        self.devices: list[FakeDevice] = []
        self.refused = ""
        self.hardware_s = 0
        self.asked: list[str] = []
        self.feeder = self.new()

    def new(self) -> Feeder:
        self.poll = CandidatePoll("node3.example.com", 1814)
        self.poll.ask = self.ask  # type: ignore[method-assign]
        self.feeder = Feeder(self.poll, self.open, self.facts, lambda: self.now)
        return self.feeder

    def facts(self) -> Facts:
        return Facts(self.timeout_s, self.candidates, KEY)

    def open(self, timeout_s: int) -> Device:
        if self.refused:
            raise errors.HypervisorError(self.refused)
        self.devices.append(FakeDevice(self.hardware_s or timeout_s))
        return self.devices[-1]  # type: ignore[return-value]

    def ask(self, key: bytes, peers: Any, now: float) -> None:
        self.asked = list(peers)
        self.poll.asked_at = now
        opinion = asking_module.parse_opinion(
            {"candidates": list(self.candidates), "left": self.left, "age_s": 0}
        )
        self.poll.opinions = {one: opinion for one in self.answering}

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.feeder.poll()
            self.now += 0.5
        self.feeder.poll()

    @property
    def device(self) -> FakeDevice:
        return self.devices[-1]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    here = paths.Paths(str(tmp_path))
    os.makedirs(here.data_dir)
    os.makedirs(here.run_dir)
    with paths.override(here), FileLock(here.pid_file(watchdog_files.DAEMON)) as lock:
        lock.acquire()
        yield Node()


def state() -> str:
    return watchdog_files.read_report().state


def test_it_is_armed_after_a_majority_has_answered(node: Node) -> None:
    node.answering = THREE[:1]
    node.run(5)
    assert node.devices == [] and state() == const.NONE
    assert "only 1 of 3" in watchdog_files.read_report().text
    node.answering = THREE[:2]
    node.run(2)
    promise = watchdog_files.read_promise()
    assert promise is not None and promise.timeout_s == 10
    assert watchdog_files.read_report() == Report(const.ARMED, promise.token, 10, "")
    fed = node.device.fed
    node.run(5)
    assert node.device.fed > fed


@pytest.mark.parametrize("fault", ["cut off", "left behind"])
def test_it_is_not_fed_longer_than_the_lease(node: Node, fault: str) -> None:
    node.run(3)
    node.answering, node.left = ((), False) if fault == "cut off" else (THREE, True)
    node.run(const.LEASE_S + 1)
    fed = node.device.fed
    node.run(60)
    assert node.device.fed == fed and node.device.armed
    assert watchdog_files.read_promise() is not None


def test_the_lease_runs_from_the_question(node: Node) -> None:
    """Old answers give no new lease, when no further question can be asked."""
    node.run(3)
    node.feeder._read_facts = lambda: Facts(node.timeout_s, THREE, b"")
    node.run(const.LEASE_S + 1)
    fed = node.device.fed
    node.run(30)
    assert node.device.fed == fed


def test_a_short_interruption_costs_nothing(node: Node) -> None:
    node.run(3)
    node.left = True
    node.run(const.LEASE_S - 2)
    node.left = False
    node.run(2)
    fed = node.device.fed
    node.run(3)
    assert node.device.fed > fed


def test_it_ends_only_when_the_master_has_released_it(node: Node) -> None:
    node.run(3)
    promise = watchdog_files.read_promise()
    assert promise is not None
    node.feeder.stop()
    node.run(30)
    assert state() == const.RELEASE and not node.feeder.is_done()
    assert node.device.armed
    watchdog_files.write_release(TOKEN)
    node.run(1)
    assert not node.feeder.is_done()
    watchdog_files.write_release(promise.token)
    node.run(1)
    assert node.feeder.is_done() and not node.device.armed
    assert watchdog_files.read_promise() is None and state() == const.NONE


def test_switching_off_releases_and_switching_on_promises_anew(node: Node) -> None:
    node.run(3)
    promise = watchdog_files.read_promise()
    assert promise is not None
    node.timeout_s = 0
    node.run(1)
    assert state() == const.RELEASE
    watchdog_files.write_release(promise.token)
    node.run(1)
    assert not node.device.armed and not node.feeder.is_done()
    node.timeout_s = 20
    node.run(2)
    later = watchdog_files.read_promise()
    assert later is not None and later.token != promise.token and later.timeout_s == 20


def test_another_timeout_needs_a_new_promise(node: Node) -> None:
    node.run(3)
    node.timeout_s = 30
    node.run(1)
    assert state() == const.RELEASE and node.device.armed


def test_two_candidates_are_too_few(node: Node) -> None:
    node.candidates = node.answering = THREE[:2]
    node.run(5)
    assert node.devices == []
    assert "fewer than 3" in watchdog_files.read_report().text


def test_a_restarted_daemon_opens_the_device_only_with_a_lease(node: Node) -> None:
    """To open it is to feed it."""
    node.run(3)
    promise = watchdog_files.read_promise()
    node.answering = ()
    node.new()
    node.run(30)
    assert len(node.devices) == 1
    assert state() == const.NONE
    node.answering = THREE
    node.run(2)
    assert len(node.devices) == 2
    assert watchdog_files.read_promise() == promise and state() == const.ARMED


def test_a_device_which_is_refused_after_a_restart_of_the_machine(node: Node) -> None:
    watchdog_files.write_promise(Promise(TOKEN, 10))
    node.refused = "there is no watchdog"
    node.new()
    node.run(5)
    report = watchdog_files.read_report()
    assert (report.state, report.token, report.text) == (
        const.RELEASE, TOKEN, "there is no watchdog",
    )  # fmt: skip


def test_a_longer_timeout_than_the_promised_one_is_refused(node: Node) -> None:
    watchdog_files.write_promise(Promise(TOKEN, 10))
    node.hardware_s = 15
    node.new()
    node.run(2)
    assert state() == const.RELEASE and not node.device.armed


def test_a_device_which_cannot_be_fed_stays_open(node: Node) -> None:
    node.run(3)
    node.device.broken = True
    node.run(2)
    assert node.device.armed and state() == const.RELEASE


@pytest.mark.parametrize("armed", [True, False])
def test_guests_start_only_when_the_promise_is_kept(node: Node, armed: bool) -> None:
    watchdog_files.write_promise(Promise(TOKEN, 10))
    if armed:
        watchdog_files.write_report(Report(const.ARMED, TOKEN, 10))
    waited: list[float] = []
    if armed:
        watchdog_files.require_armed(waited.append, lambda: sum(waited))
        assert waited == []
        return
    with pytest.raises(errors.HypervisorError, match="daemon-util start ganeti-watchdogd"):
        watchdog_files.require_armed(waited.append, lambda: sum(waited))
    assert sum(waited) > 10


def test_without_a_promise_guests_start(node: Node) -> None:
    watchdog_files.require_armed()


def test_answers_count_only_for_the_present_question(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    salts = iter(("one", "two"))
    monkeypatch.setattr(asking_module.text, "new_uuid", lambda: next(salts))
    poll = CandidatePoll("node3", 1)
    answer = {"candidates": list(THREE), "left": False, "age_s": 0.5}

    def datagram(salt: str, key: bytes = KEY) -> bytes:
        request = protocol.ConfdRequest(confd_c.REQ_NODE_LEFT, "node3", salt)
        return protocol.pack_reply(key, request, protocol.ConfdReply(0, answer, 1))

    poll.ask(KEY, ["192.0.2.1"], 5.0)
    poll.ask(KEY, ["192.0.2.1"], 6.0)
    assert not poll.take_one(datagram("one"))
    assert not poll.take_one(datagram("two", b"other"))
    assert poll.take_one(datagram("two"))
    assert not poll.take_one(datagram("two"))
    assert poll.opinions["192.0.2.1"].age_s == 0.5


# -- the device ------------------------------------------------------------------------------------


def test_the_fifo_of_a_virtual_node(tmp_path: Path) -> None:
    fifo = str(tmp_path / "watchdog")
    with pytest.raises(errors.HypervisorError, match="there is no watchdog"):
        Device.open(fifo, 10)
    os.mkfifo(fifo)
    with pytest.raises(errors.HypervisorError, match="there is no watchdog"):
        Device.open(fifo, 10)
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    device = Device.open(fifo, 10)
    with pytest.raises(errors.HypervisorError, match="used by another program"):
        Device.open(fifo, 10)
    assert stat.S_ISFIFO(os.fstat(fd).st_mode)
    os.read(fd, 100)
    device.feed()
    assert os.read(fd, 100) == b"\0"
    device.disarm()
    assert os.read(fd, 100) == b"V"
    os.close(fd)


def test_another_kind_of_file_is_no_watchdog(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(errors.HypervisorError, match="cannot be used"):
        Device.open(str(path), 10)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("i6300ESB timer", 0x8180, None),
        ("Software Watchdog", 0x8180, "softdog"),
        ("x", 0x8080, "magic close"),
        ("x", 0x8100, "set timeouts"),
    ],
)
def test_which_devices_are_fit(name: str, options: int, reason: str | None) -> None:
    found = why_unfit(Identity(name, options))
    assert found is None if reason is None else reason in (found or "")


def test_the_description_of_a_driver() -> None:
    data = (0x8180).to_bytes(4, "little") + bytes(4) + b"i6300ESB timer".ljust(32, b"\0")
    assert parse_identity(data) == Identity("i6300ESB timer", 0x8180)
    with pytest.raises(errors.ParseError):
        parse_identity(b"short")
