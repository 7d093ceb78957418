"""What the driver says about a guest follows from what QEMU says about itself."""

from __future__ import annotations

import os

import pytest

from ganeti import errors
from ganeti.hypervisor import base
from ganeti.hypervisor.kvm import driver, parse


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
