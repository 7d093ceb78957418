"""A mirrored disk which confirms no write alone, until the master lets it go on."""

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
def test_only_equal_replicas_wait_for_each_other(
    kernel, helper, connection, states, role, protected
):
    kernel.ours()
    kernel.connection, kernel.primary = connection, role
    kernel.local, kernel.remote = states
    assert calls.wait_for_peer([mirrored()]) == (["disk-uuid"] if protected else [])
    assert kernel.waits is protected


def test_a_link_which_breaks_while_it_is_told_to_wait(kernel, helper):
    kernel.ours()
    kernel.primary = True
    real = kernel.do_disk_options

    def break_link(words):
        real(words)
        kernel.connection = "WFConnection"

    kernel.do_disk_options = break_link
    assert calls.wait_for_peer([mirrored()]) == []


def test_going_on_alone(kernel):
    kernel.ours()
    kernel.primary = kernel.waits = kernel.suspended = True
    kernel.connection = "WFConnection"
    assert calls.waiting() == [0]
    calls.resume_io([mirrored()])
    assert (kernel.waits, kernel.suspended) == (False, False)
    assert calls.waiting() == []


def test_an_order_to_go_on_which_comes_late(kernel):
    kernel.ours()
    kernel.primary = kernel.waits = True
    calls.resume_io([mirrored()])
    assert kernel.waits and not kernel.commands
    calls.write_alone([mirrored()])
    assert kernel.verbs() == ["disk-options"]
    assert not kernel.waits


def test_a_device_which_is_closed_does_not_wait_any_more(kernel):
    kernel.ours()
    kernel.primary = kernel.waits = True
    device.DrbdDevice(mirrored()).close()
    assert kernel.verbs() == ["secondary", "disk-options"]
    assert not kernel.waits
