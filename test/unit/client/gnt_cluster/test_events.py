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

    def wait(place: list[Any] | None, timeout_s: float) -> dict[str, Any]:
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

    def call(self: client.Client, method: str, place: Any, timeout_s: float) -> Any:
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
