"""Facts of a Linux node."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.hypervisor import base, host
from ganeti.hypervisor.fake.driver import FakeHypervisor

MEMINFO = """\
MemTotal:       16384000 kB
MemFree:         1024000 kB
Buffers:          512000 kB
Cached:          4096000 kB
HugePages_Total:       0
DirectMap4k:      102400 kB
Nonsense
"""


def test_node_info() -> None:
    assert host.linux_node_info(MEMINFO, 8, 2, 1) == {
        "memory_total": 16000,
        "memory_free": 5500,
        "memory_dom0": 10500,
        "cpu_total": 8,
        "cpu_nodes": 2,
        "cpu_sockets": 1,
        "cpu_dom0": 1,
    }


def test_strange_meminfo() -> None:
    with pytest.raises(errors.HypervisorError, match="no line MemTotal"):
        host.linux_node_info("", 1, 1, 1)


def test_this_machine() -> None:
    info = host.read_linux_node_info()
    assert 0 < info["memory_free"] <= info["memory_total"]
    assert info["cpu_sockets"] >= 1 and info["cpu_nodes"] >= 1


@pytest.mark.parametrize("name", ["", ".", "..", "../web1", ".web1", "/web1", "web1/.."])
def test_a_name_which_leads_to_another_directory_is_refused(name: str) -> None:
    with pytest.raises(errors.HypervisorError, match="is not an instance name"):
        base.require_file_name(name)


def test_a_name_of_an_instance_is_the_name_of_its_file() -> None:
    assert base.require_file_name("web1.example.com") == "web1.example.com"


def test_wire_form() -> None:
    assert base.InstanceInfo("web1", 7, 128, 2, base.RUNNING, 1.5).to_wire() == {
        "memory": 128,
        "vcpus": 2,
        "state": 0,
        "time": 1.5,
    }


def test_the_end_of_a_guest_is_noticed_before_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(base.time, "sleep", slept.append)
    answers = iter((True, True, False))
    driver = FakeHypervisor()
    monkeypatch.setattr(driver, "is_running", lambda name: next(answers))
    driver.wait_end("web1", 3600)
    assert slept == pytest.approx([0.002, 0.003, 0.0045])


def test_the_wait_for_a_guest_which_does_not_end_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(base.time, "sleep", sleep)
    monkeypatch.setattr(base.time, "monotonic", lambda: now[0])
    driver = FakeHypervisor()
    monkeypatch.setattr(driver, "is_running", lambda name: True)
    driver.wait_end("web1", 3)
    assert now[0] == pytest.approx(103)
    driver.wait_end("web1", 0)
    assert now[0] == pytest.approx(103)
