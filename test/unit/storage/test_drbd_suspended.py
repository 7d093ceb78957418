"""A mirrored disk which confirms no write alone, until the master resumes its I/O."""

from __future__ import annotations

import pytest

from ganeti.backend.storage import drbd as calls
from ganeti.storage.drbd import device, status

from .drbd_kernel import mirrored


@pytest.fixture
def helper(monkeypatch):
    monkeypatch.setattr(status, "usermode_helper", lambda: "/bin/true")


@pytest.mark.parametrize(
    ("connection", "states", "role", "protected"),
    [
        ("Connected", ("UpToDate", "UpToDate"), True, True),
        ("Connected", ("UpToDate", "UpToDate"), False, False),
        ("Connected", ("UpToDate", "Diskless"), True, False),
        ("SyncSource", ("UpToDate", "Inconsistent"), True, False),
        ("WFConnection", ("UpToDate", "DUnknown"), True, False),
    ],
)
def test_only_io_of_equal_replicas_is_suspended(
    kernel, helper, connection, states, role, protected
):
    kernel.ours()
    kernel.connection, kernel.primary = connection, role
    kernel.local, kernel.remote = states
    assert calls.wait_for_peer([mirrored()]) == (["disk-uuid"] if protected else [])
    assert kernel.waits is protected


def test_a_link_which_breaks_during_the_order_to_suspend(kernel, helper):
    kernel.ours()
    kernel.primary = True
    real = kernel.do_disk_options

    def break_link(words):
        real(words)
        kernel.connection = "WFConnection"

    kernel.do_disk_options = break_link
    assert calls.wait_for_peer([mirrored()]) == []


def test_io_without_the_peer_is_resumed(kernel):
    kernel.ours()
    kernel.primary = kernel.waits = kernel.suspended = True
    kernel.connection = "WFConnection"
    assert calls.suspended() == [0]
    calls.resume_io([mirrored()])
    assert (kernel.waits, kernel.suspended) == (False, False)
    assert calls.suspended() == []


def test_an_order_to_resume_which_comes_late(kernel):
    kernel.ours()
    kernel.primary = kernel.waits = True
    calls.resume_io([mirrored()])
    assert kernel.waits and not kernel.commands
    calls.write_alone([mirrored()])
    assert kernel.verbs() == ["disk-options"]
    assert not kernel.waits


def test_a_device_which_is_closed_suspends_nothing_any_more(kernel):
    kernel.ours()
    kernel.primary = kernel.waits = True
    device.DrbdDevice(mirrored()).close()
    assert kernel.verbs() == ["secondary", "disk-options"]
    assert not kernel.waits
