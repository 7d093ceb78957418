"""The states in which QEMU lives and its guest does not run, and which of them can go on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import base
from ganeti.hypervisor.kvm import layout as layouts
from ganeti.hypervisor.kvm import parse, start, states
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.platform import paths

#: All states of the QMP reference -> what can be done about a guest in it; None for one which runs,
#: or which does not run here.
STATES = {
    "colo": None,
    "debug": hv.HALT_PAUSED,
    "finish-migrate": hv.HALT_MIGRATES,
    "guest-panicked": hv.HALT_ENDED,
    "inmigrate": None,
    "internal-error": hv.HALT_ENDED,
    "io-error": hv.HALT_CONTINUES,
    "paused": hv.HALT_PAUSED,
    "postmigrate": hv.HALT_MIGRATES,
    "prelaunch": hv.HALT_CONTINUES,
    "restore-vm": hv.HALT_PAUSED,
    "running": None,
    "save-vm": hv.HALT_PAUSED,
    "shutdown": None,
    "suspended": hv.HALT_PAUSED,
    "watchdog": hv.HALT_ENDED,
    "of-a-later-qemu": hv.HALT_PAUSED,
}
RUN = ("running", "colo")
ELSEWHERE = ("inmigrate", "shutdown")


class Qemu:
    """A control socket which answers from a state, and remembers commands."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.migration: dict[str, Any] = {}
        self.done: list[str] = []
        self.after = "running"

    def __call__(self, *_args: object, **_options: object) -> Qemu:
        return self

    def __enter__(self) -> Qemu:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, command: str, _arguments: object = None) -> Any:
        if command == "query-status":
            return {"status": self.state, "running": self.state in RUN}
        if command == "query-migrate":
            return self.migration
        if command == "query-balloon":
            return {"actual": 64 << 20}
        self.done.append(command)
        self.state = self.after
        return {}


@pytest.fixture(autouse=True)
def root(tmp_path: Path) -> Iterator[Path]:
    with paths.override(paths.Paths(str(tmp_path))):
        yield tmp_path


def driver(qemu: Qemu, monkeypatch: pytest.MonkeyPatch) -> KvmHypervisor:
    made = KvmHypervisor()
    found = (os.getpid(), parse.CommandLine("web", 128, 2))
    monkeypatch.setattr(made.guests, "qemu", lambda layout: found)
    monkeypatch.setattr(made.guests, "connect", qemu)
    return made


@pytest.mark.parametrize(("state", "kind"), sorted(STATES.items()))
def test_each_state_says_whether_the_guest_runs(
    state: str, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = driver(Qemu(state), monkeypatch).instance_info("web")
    assert info is not None
    assert info.state == (base.SHUTDOWN if state in ELSEWHERE else base.RUNNING)
    assert (info.halt and (info.halt.state, info.halt.kind)) == (kind and (state, kind))


@pytest.mark.parametrize(("state", "kind"), sorted(STATES.items()))
def test_only_what_can_go_on_is_continued(
    state: str, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu = Qemu(state)
    kvm = driver(qemu, monkeypatch)
    monkeypatch.setattr(start.runtime, "load", lambda *_: None)
    monkeypatch.setattr(start.Starter, "_prepare", lambda *_: qemu.done.append("prepared"))
    monkeypatch.setattr(start, "_NEW_HALT_S", 0.0)
    if kind in (hv.HALT_CONTINUES, hv.HALT_PAUSED):
        kvm.resume("web")
        wanted = {"prelaunch": ["prepared", "cont"], "suspended": ["system_wakeup"]}
        assert qemu.done == wanted.get(state, ["cont"])
        return
    if state in RUN:
        kvm.resume("web")
    else:
        words = "was sent|cannot run on|is not running|cleanup"
        with pytest.raises(errors.HypervisorError, match=words):
            kvm.resume("web")
    assert qemu.done == []


def test_a_paused_guest_which_was_sent_is_not_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    qemu = Qemu("paused")
    qemu.migration = {"status": "completed", "ram": {}}
    with pytest.raises(errors.HypervisorError, match="was, or may have been, sent"):
        driver(qemu, monkeypatch).resume("web")
    assert qemu.done == []


def test_a_guest_which_halts_again_is_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    qemu = Qemu("io-error")
    qemu.after = "io-error"
    kvm = driver(qemu, monkeypatch)
    # Without the new state it would wait for ever.
    monkeypatch.setattr(start, "_NEW_HALT_S", float("inf"))
    kvm.resume("web")
    info = kvm.instance_info("web")
    assert info is not None and info.halt is not None and info.halt.state == "io-error"


def test_a_start_which_was_asked_to_pause_is_no_interrupted_one() -> None:
    layout = layouts.of("web")
    answer = {"status": "prelaunch", "running": False}
    found = states.of(answer, layout)
    assert found is not None and found.kind == hv.HALT_CONTINUES
    Path(layout.paused_file).parent.mkdir(parents=True)
    Path(layout.paused_file).touch()
    found = states.of(answer, layout)
    assert found is not None and found.kind == hv.HALT_PAUSED


@pytest.mark.parametrize("state", sorted(states.NO_POWER_BUTTON))
def test_nobody_waits_for_the_shutdown_of_a_guest_which_cannot_react(
    state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    qemu = Qemu(state)
    driver(qemu, monkeypatch).stop("web", {"acpi": True})
    assert qemu.done == ["quit"]
