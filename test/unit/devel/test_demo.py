"""How the demonstration reads the console of the guest, and when it reports a failure."""

from __future__ import annotations

import pytest

from devel import demo
from ganeti import errors

CONSOLE = (
    "[    0.1] Linux\r\n"
    "tiny: web1.example.com boot 1-5d0c2f1e uptime 3 s\r\n"
    "tiny: web1.example.com boot 1-5d0c2f1e uptime 4 s\r\n"
)


def test_last_line() -> None:
    assert demo.last_line(CONSOLE) == demo.GuestLine("1-5d0c2f1e", 4, 2)
    # A line that is still being written does not count: "5" may become "57".
    assert demo.last_line(
        CONSOLE + "tiny: web1.example.com boot 1-5d uptime 5 s"
    ) == demo.GuestLine("1-5d0c2f1e", 4, 2)
    assert demo.last_line("") is None
    assert demo.last_line("no newline") is None


def test_verdict() -> None:
    before = demo.GuestLine("1-a", 10, 5)
    assert "was not restarted" in demo.verdict(before, demo.GuestLine("1-a", 12, 1))
    with pytest.raises(errors.OpExecError, match="restarted"):
        demo.verdict(before, demo.GuestLine("2-b", 12, 1))
    with pytest.raises(errors.OpExecError, match="back to 9 s"):
        demo.verdict(before, demo.GuestLine("1-a", 9, 1))


def test_the_pause_under_emulation_is_explained() -> None:
    text = demo.pause("x (1.7 s, the instance was paused for 1712 ms)\n", 30)
    assert text.startswith("the guest stood still for 1712 ms, the whole time of the transfer")
    assert "no KVM" in text
    assert "at most 30 ms (hypervisor parameter migration_downtime)" in text


def test_the_pause_under_kvm_is_shown() -> None:
    text = demo.pause("x (1.7 s, the instance was paused for 12 ms)\n", 30)
    assert text.startswith("the guest stood still for 12 of 1700 ms: under KVM it runs")
    assert "no KVM" not in text
    assert "30 ms" in text


def test_a_hypervisor_which_reports_no_times() -> None:
    assert demo.pause("done", 30) == ""
