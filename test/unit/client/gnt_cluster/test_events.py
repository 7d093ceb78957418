"""``gnt-cluster events``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster

from ..conftest import Gnt

JOB = {"id": 7, "status": "success", "summary": ["INSTANCE_STARTUP(web1)"], "timestamp": 100.0}
WEB = {
    "name": "web1", "uuid": "u", "change": "state", "status": "ERROR_down", "admin_state": "up",
    "primary_node": "node1", "serial_no": 3, "timestamp": 101.0,
}  # fmt: skip
ADDED = {**WEB, "change": "added", "status": None}
GONE = {**WEB, "change": "removed", "admin_state": None, "primary_node": None}
KEPT = [[1, "job", JOB], [2, "instance", WEB], [3, "instance", ADDED], [4, "instance", GONE]]


@pytest.fixture
def asked(master: FakeMaster) -> list[Any]:
    """A master which keeps four events; the places after which it was asked for more."""
    asked: list[Any] = []

    def wait(place: list[Any] | None, timeout_s: float, kinds: None) -> dict[str, Any]:
        asked.append(place)
        found = [] if place is None else [event for event in KEPT if event[0] > place[1]]
        return {"epoch": "e", "last": 4, "events": found, "lost": False}

    master.answers["WaitForEvents"] = wait
    return asked


def test_the_kept_events(gnt: Gnt, asked: list[Any]) -> None:
    ended = gnt("cluster events")
    assert (ended.code, ended.err) == (0, "")
    assert [line.split(" ", 2)[2] for line in ended.out.splitlines()] == [
        "job 7 success: INSTANCE_STARTUP(web1)",
        "instance web1 is ERROR_down on node1",
        "instance web1 added: wanted state up on node1",
        "instance web1 removed",
    ]
    assert asked == [None, ["e", 0]]


@pytest.mark.usefixtures("asked")
def test_one_kind_for_programs(gnt: Gnt) -> None:
    found = [
        json.loads(line)
        for line in gnt("cluster events --kind job --output json").out.split("\n")
        if line
    ]
    assert found == [{"number": 1, "kind": "job", **JOB}]
    assert len(gnt("cluster events --kind=instance").out.splitlines()) == 3


def test_following_until_ctrl_c(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins now, goes on after each answer, and says when events are missing."""
    from ganeti.luxi import client

    places: list[Any] = []
    answers = iter(
        [
            {"epoch": "e", "last": 4, "events": [], "lost": False},
            {"epoch": "e", "last": 5, "events": [[5, "job", JOB]], "lost": False},
            {"epoch": "f", "last": 1, "events": [[1, "instance", WEB]], "lost": True},
        ]
    )

    def call(self: client.Client, method: str, place: Any, timeout_s: float, _kinds: None) -> Any:
        assert method == "WaitForEvents"
        places.append(place)
        try:
            return next(answers)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(client.Client, "call", call)
    ended = gnt("cluster events -f")
    assert ended.code == 0
    assert len(ended.out.splitlines()) == 2
    assert "events are missing here" in ended.err
    assert places == [None, ["e", 4], ["e", 5], ["f", 1]]


def test_all_kinds_for_people(gnt: Gnt, master: FakeMaster) -> None:
    kept = [
        [1, "node", {"name": "node1", "change": "changed"}, {"members": ["offline"]}],
        [2, "group", {"name": "rack1", "change": "removed"}, {"members": []}],
        [3, "finding", {"change": "gone", "severity": "error", "object": "node", "name": "node1",
                        "text": "it is down"}, {}],
        [4, "log", {"id": 7, "type": "message", "message": "* creating disks"}, {}],
        [5, "log", {"id": 7, "type": "delay-test", "message": ["x"]}, {}],
        [6, "progress", {"id": 7, "done": 1, "total": 2, "operation": "TEST_DELAY(1)",
                         "percent": 45.5}, {}],
        [7, "progress", {"id": 7, "done": 2, "total": 2, "operation": None, "percent": None}, {}],
    ]  # fmt: skip
    asked: list[Any] = []

    def wait(place: Any, timeout_s: float, kinds: list[str]) -> dict[str, Any]:
        asked.append(kinds)
        return {"epoch": "e", "last": 7, "events": kept, "lost": False}

    master.answers["WaitForEvents"] = wait
    wanted = ("finding", "group", "log", "node", "progress")
    ended = gnt(" ".join(["cluster events", *(f"--kind={one}" for one in wanted)]))
    assert ended.code == 0
    assert [line.split(" ", 2)[2] for line in ended.out.splitlines()] == [
        "node node1 changed: offline",
        "group rack1 removed",
        "finding gone: error: node node1: it is down",
        "job 7: * creating disks",
        "job 7: (delay-test)",
        "job 7: 1 of 2 steps: TEST_DELAY(1), 45.5 %",
        "job 7: 2 of 2 steps",
    ]
    assert asked == [sorted(wanted)] * 2
    (line,) = gnt("cluster events --kind node --output json").out.split("\n")[:1]
    assert json.loads(line)["members"] == ["offline"]
