"""``gnt-instance info`` on a terminal: one screen."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.cli import terminal
from ganeti.client.gnt_instance import summary

from ..conftest import Gnt
from .test_info import TEXT, WEB1

NOW = 1795213010.0


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(summary.time, "time", lambda: NOW)
    monkeypatch.setattr(terminal, "width", lambda stream, otherwise=80: 80)


def show(master: FakeMaster, **changes: Any) -> None:
    info = {**copy.deepcopy(WEB1), **changes}
    master.results["OP_INSTANCE_QUERY_DATA"] = {info["name"]: info}
    rows = [
        {"instance": "web1", "disk": 0, "snapshot": "before", "node": "node1"},
        {"instance": "web1", "disk": 0, "snapshot": "after", "node": "node1"},
    ]
    master.answers["RunQuery"] = lambda op: {"result": rows, "warnings": []}


GUEST = {
    "memory": 48,
    "vcpus": 4,
    "started": NOW - 3 * 86400 - 4 * 3600,
    "addresses": [["192.0.2.7", "guest agent"], ["2001:db8::7", "guest agent"]],
}


def test_a_running_instance(gnt: Gnt, master: FakeMaster, screen: None) -> None:
    show(master, guest=GUEST)
    ended = gnt("instance info web1")
    assert ended.code == 0
    assert (
        ended.out
        == """\
web1 runs on node1 for 3 d 4 h
  Nodes      node1 (primary), node2 (secondary), group default
  Addresses  192.0.2.7 (guest agent), 2001:db8::7 (guest agent), 203.0.113.3
             (configured)
  Memory     48M now, 64M configured, 4 processors
  System     tiny+plain, hypervisor fake
  Disk 0     root, 1.5G, sharedfile, snapshots before, after
  NIC 0      lan, aa:00:00:38:6f:01, 203.0.113.3, network net1 (bridged br0)
  Made       2026-11-20 22:16:50, changed 2026-11-20 22:16:55

All parameters: gnt-instance info --all-parameters
"""
    )


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"run_state": "down", "config_state": "down"}, "web1 is stopped"),
        ({"run_state": "down"}, "web1 does not run, although it is marked up"),
        ({"run_state": None}, "web1 is marked up; whether it runs is not known"),
        ({"config_state": "down"}, "web1 runs on node1, and is marked down"),
        (
            {"run_state": "offline", "config_state": "offline"},
            "web1 is stopped, and marked offline",
        ),
        ({"forthcoming": True}, "web1 is forthcoming: only its resources are reserved"),
        (
            {"halt": {"state": "paused", "why": "somebody paused it", "remedy": "Do this."}},
            "web1 is halted: paused (somebody paused it). Do this.",
        ),
    ],
)
def test_the_state(
    changes: dict[str, Any], first: str, gnt: Gnt, master: FakeMaster, screen: None
) -> None:
    show(master, **changes)
    assert gnt("instance info web1").out.splitlines()[0] == first


def test_what_a_mirrored_disk_needs(gnt: Gnt, master: FakeMaster, screen: None) -> None:
    (disk,) = copy.deepcopy(WEB1["disks"])
    disk["replicas"] = {"text": "node node2 has missed writes", "hint": "Use activate-disks."}
    show(master, disks=[disk])
    shown = " ".join(gnt("instance info web1").out.split())
    assert "sharedfile, node node2 has missed writes, Use activate-disks." in shown


def test_snapshots_which_a_node_did_not_report_are_not_none(
    gnt: Gnt, master: FakeMaster, screen: None
) -> None:
    show(master)
    master.answers["RunQuery"] = lambda op: {"result": [], "warnings": ["node1 did not answer"]}
    assert "snapshots not known" in gnt("instance info web1").out


def test_everything_by_option_and_without_a_terminal(
    gnt: Gnt, master: FakeMaster, screen: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    show(master, guest=GUEST)
    assert gnt("instance info --all-parameters web1").out == TEXT
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: False)
    assert gnt("instance info web1").out == TEXT
