"""The metrics of what the guests of a node use."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser

from ganeti import errors
from ganeti.hypervisor.base import Usage
from ganeti.hypervisor.kvm import layout as layouts
from ganeti.mond import guests, openmetrics
from ganeti.mond.guests import GuestMetrics
from ganeti.platform import paths
from ganeti.server import mond

WEB = Usage(cpu_s=12.5, memory=512, vcpus=2, disk_read=4096, disk_written=8192, net_in=70,
            net_out=30)  # fmt: skip


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Node:
    """The guests of a node, by hypervisor."""

    def __init__(self, **found: dict[str, Usage]) -> None:
        self.found: dict[str, dict[str, Usage]] = dict(found)
        self.error: Exception | None = None
        self.measured: list[str] = []
        self.before: dict[str, Callable[[], object]] = {}

    def hypervisors(self) -> list[str]:
        return list(self.found)

    def measure(self, name: str) -> Mapping[str, Usage]:
        self.measured.append(name)
        self.before.get(name, lambda: None)()
        if self.error is not None:
            raise self.error
        return self.found[name]

    def metrics(self, clock: Clock, wait_s: float = 60.0) -> GuestMetrics:
        return GuestMetrics(self.hypervisors, self.measure, monotonic=clock, wait_s=wait_s)


def samples(known: GuestMetrics) -> dict[tuple[str, ...], float]:
    """The page as another program reads it: name and values of the labels -> value."""
    text = openmetrics.render(known.families())
    found = [
        ((sample.name, *sample.labels.values()), sample.value)
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(dict(found)) == len(found), "a sample is there twice"
    return dict(found)


def test_what_a_guest_uses(clock: Clock) -> None:
    found = samples(Node(one={"web1.example.com": WEB}).metrics(clock))
    of_guest = {name: value for (name, *labels), value in found.items()
                if labels == ["web1.example.com"]}  # fmt: skip
    assert of_guest == {
        "ganeti_node_guest_cpu_seconds_total": 12.5,
        "ganeti_node_guest_vcpus": 2,
        "ganeti_node_guest_memory_bytes": 512 << 20,
        "ganeti_node_guest_disk_read_bytes_total": 4096,
        "ganeti_node_guest_disk_written_bytes_total": 8192,
        "ganeti_node_guest_network_received_bytes_total": 70,
        "ganeti_node_guest_network_sent_bytes_total": 30,
    }
    assert found["ganeti_node_guests_measured", "one"] == 1


def test_what_is_not_known_is_not_zero(clock: Clock) -> None:
    found = samples(Node(one={"web1": Usage(cpu_s=1.0)}).metrics(clock))
    assert [name for name, *labels in found if labels == ["web1"]] == [
        "ganeti_node_guest_cpu_seconds_total"
    ]


def test_many_readers_cost_as_much_as_one(clock: Clock) -> None:
    node = Node(one={"web1": WEB})
    known = node.metrics(clock)
    assert samples(known) == samples(known)
    assert node.measured == ["one"]
    clock.now += guests.KEEP_S
    samples(known)
    assert node.measured == ["one", "one"]


def test_a_guest_which_has_left_has_no_samples(clock: Clock) -> None:
    """Otherwise its last values would stay beside those of the node to which it has moved."""
    node = Node(one={"web1": WEB, "web2": WEB})
    known = node.metrics(clock)
    samples(known)
    del node.found["one"]["web1"]
    clock.now += guests.KEEP_S
    assert {labels[0] for name, *labels in samples(known) if "_guest_" in name} == {"web2"}


def test_a_guest_which_two_hypervisors_name_is_there_once(clock: Clock) -> None:
    """A domain of Xen without a record; two equal samples would spoil the whole page."""
    found = samples(Node(one={"web1": WEB}, two={"web1": WEB, "web2": WEB}).metrics(clock))
    assert found["ganeti_node_guest_memory_bytes", "web1"] == 512 << 20
    assert found["ganeti_node_guest_memory_bytes", "web2"] == 512 << 20


def test_a_hypervisor_which_does_not_answer_hides_no_other(clock: Clock) -> None:
    node = Node(one={"web1": WEB}, two={"web2": WEB})

    def fail() -> None:
        raise errors.HypervisorError("xl ended with 1")

    node.before["one"] = fail
    known = node.metrics(clock)
    found = samples(known)
    assert found["ganeti_node_guests_measured", "one"] == 0
    assert found["ganeti_node_guests_measured", "two"] == 1
    assert {labels[0] for name, *labels in found if "_guest_" in name} == {"web2"}
    del node.before["one"]
    clock.now += guests.KEEP_S
    assert samples(known)["ganeti_node_guests_measured", "one"] == 1


def test_a_hypervisor_which_hangs_delays_no_reader(clock: Clock) -> None:
    """The last values count for a while; no second thread is started for it."""
    node = Node(one={"web1": WEB}, two={"web2": WEB})
    known = node.metrics(clock)
    samples(known)
    goes_on = threading.Event()
    node.before["one"] = goes_on.wait
    known._wait_s = 0.05
    clock.now += guests.KEEP_S
    found = samples(known)
    assert found["ganeti_node_guests_measured", "one"] == 0
    assert found["ganeti_node_guest_memory_bytes", "web1"] == 512 << 20
    clock.now += guests.OLD_S
    for _ in range(3):
        found = samples(known)
    assert ("ganeti_node_guest_memory_bytes", "web1") not in found
    assert node.measured.count("one") == 2
    waiting = known._measuring["one"]
    goes_on.set()
    waiting.join()
    found = samples(known)
    assert found["ganeti_node_guest_memory_bytes", "web1"] == 512 << 20
    assert found["ganeti_node_guests_measured", "one"] == 1


def test_a_machine_without_threads(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured, and the page is still there."""
    monkeypatch.setattr(guests.shortage, "start_thread", lambda *_args, **_named: None)
    assert samples(Node(one={"web1": WEB}).metrics(clock)) == {
        ("ganeti_node_guests_measured", "one"): 0
    }


# QEMU


@pytest.fixture
def qemu(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose pid files say that it is any number of guests: see :func:`run`."""
    with paths.override(paths.Paths(root=str(tmp_path))):
        running = subprocess.Popen(
            [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()",
             "-name", "guest0", "-m", "64", "-smp", "2"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline() == b"\n"
        yield running
        with running:
            running.kill()


def run(name: str, pid: int) -> None:
    """Write the pid file and the file of a NIC of a guest."""
    pid_file = Path(layouts.of(name).pid_file)
    pid_file.parent.mkdir(parents=True, exist_ok=True)
    pid_file.write_text(f"{pid}\n")
    nic = Path(paths.current().kvm_root) / "nic" / name / "0"
    nic.parent.mkdir(parents=True)
    nic.write_text("lo")


def test_a_guest_of_qemu(qemu: subprocess.Popen[bytes]) -> None:
    """It receives what its interface on the host sends."""
    run("guest0", qemu.pid)
    found = mond.measure_guests("kvm")["guest0"]
    assert found.memory and found.vcpus == 2 and found.cpu_s is not None
    counters = Path("/sys/class/net/lo/statistics")
    assert found.net_in is not None and found.net_in <= int((counters / "tx_bytes").read_text())


def test_one_guest_which_cannot_be_read_hides_no_other(qemu: subprocess.Popen[bytes]) -> None:
    run("guest0", qemu.pid)
    Path(layouts.of("damaged").pid_file).mkdir()
    found = mond.measure_guests("kvm")
    assert found["guest0"].memory
    assert found["damaged"] == Usage()


def test_a_guest_which_has_ended_is_not_measured_as_zero(qemu: subprocess.Popen[bytes]) -> None:
    """A counter which falls to zero looks like a start of the guest."""
    run("guest0", qemu.pid)
    qemu.kill()
    qemu.wait()
    assert mond.measure_guests("kvm") == {}


def test_the_cost_of_300_guests(qemu: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch,
                                clock: Clock) -> None:  # fmt: skip
    """300 guests open so many files as 300 times one guest, and no program is run."""
    names = [f"guest{number}" for number in range(300)]
    for name in names:
        run(name, qemu.pid)
    monkeypatch.setattr(
        "ganeti.hypervisor.kvm.parse.CommandLine.name", property(lambda _self: next(asked))
    )
    opened: list[str] = []
    forks: list[str] = []
    watching = True

    def watch(event: str, args: tuple[object, ...]) -> None:
        if watching and event == "open":
            opened.append(str(args[0]))
        elif watching and event in ("os.fork", "os.posix_spawn", "subprocess.Popen", "os.exec"):
            forks.append(event)

    sys.addaudithook(watch)
    counts = []
    for names_now in (names, names[:1]):
        for name in names[len(names_now) :]:
            os.unlink(layouts.of(name).pid_file)
        asked = itertools.cycle(sorted(names_now))
        opened.clear()
        assert len(mond.measure_guests("kvm")) == len(names_now)
        counts.append(len(opened))
    watching = False
    assert not forks
    of_all, of_one = counts
    assert of_one <= 9, opened
    assert of_all <= 300 * of_one


def test_300_guests_have_a_page_of_a_bounded_size(clock: Clock) -> None:
    """Seven samples for each guest, whatever disks and interfaces it has."""
    node = Node(one={f"guest{number:03}.example.com": WEB for number in range(300)})
    text = openmetrics.render(node.metrics(clock).families())
    assert len([line for line in text.splitlines() if "guest=" in line]) == 7 * 300
    assert len(text) < 180 * 1024
