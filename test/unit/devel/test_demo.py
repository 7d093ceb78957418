"""How the demonstration reads the console of the guest, and when it reports a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from devel import demo
from ganeti import errors, vcluster

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


class Stopped(Exception):
    """The demonstration has come to the creation of its cluster."""


def prepared(monkeypatch: pytest.MonkeyPatch, hypervisor: str | None) -> tuple[vcluster.Plan, int]:
    """Run the demonstration up to its cluster; returns the plan, and how many images were built."""
    plans: list[vcluster.Plan] = []
    built: list[demo.Demo] = []

    def create(directory: str, plan: vcluster.Plan, **_: object) -> None:
        plans.append(plan)
        raise Stopped

    monkeypatch.setattr(vcluster, "create", create)
    monkeypatch.setattr(demo, "_build_image", lambda one: not built.append(one))
    with pytest.raises(Stopped):
        demo._run(demo.Demo("/nonexistent/demo"), hypervisor)
    return plans[0], len(built)


@pytest.mark.parametrize("wanted", ["fake", None])
def test_without_qemu_no_kernel_is_downloaded(
    wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vcluster, "qemu_path", lambda: None)
    monkeypatch.setattr(demo.paths, "project_dir", lambda: None)
    plan, built = prepared(monkeypatch, wanted)
    assert (plan.hypervisor, plan.tiny, built) == ("fake", False, 0)


def test_with_qemu_the_guest_boots_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vcluster, "qemu_path", lambda: "/usr/bin/qemu-system-x86_64")
    plan, built = prepared(monkeypatch, None)
    assert (plan.hypervisor, plan.tiny, built) == ("kvm", True, 1)


def test_only_a_guest_with_a_console_is_offered_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for with_console in (True, False):
        monkeypatch.setattr(demo, "_run", lambda *_, shown=with_console: shown)
        assert demo.main([str(tmp_path / "demo")]) == 0
        assert ("gnt-instance console" in capsys.readouterr().out) is with_console
