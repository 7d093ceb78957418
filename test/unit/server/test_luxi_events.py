"""The master's last events: what is told, in which order, and what is missing."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fakes.config import cluster_of, instance_of
from ganeti.server.luxi_events import EventLog


def job(number: int, status: str) -> Any:
    return SimpleNamespace(id=number, shown_status=status,
                           ops=[SimpleNamespace(summary=lambda: "TEST_DELAY")])


def kinds(answer: dict[str, Any]) -> list[Any]:
    return [data.get("status") or data["change"] for _number, _kind, data in answer["events"]]


def test_news_of_jobs_only() -> None:
    log = EventLog()
    log.jobs_shown([job(1, "queued")])
    log.jobs_shown([job(1, "queued"), job(2, "queued")])
    log.jobs_shown([job(1, "running")])
    log.jobs_shown([job(1, "success")])
    found = log.after(None)
    assert [(number, data["id"], data["status"]) for number, _kind, data in found["events"]] == [
        (1, 1, "queued"), (2, 2, "queued"), (3, 1, "running"), (4, 1, "success")]
    assert found["last"] == 4 and not found["lost"]
    assert found["events"][0][2]["summary"] == ["TEST_DELAY"]


def test_a_place() -> None:
    log = EventLog(kept=3)
    for number in range(1, 6):
        log.jobs_shown([job(number, "queued")])
    assert [event[0] for event in log.after((log.epoch, 3))["events"]] == [4, 5]
    assert log.after((log.epoch, 2))["lost"] is False
    assert log.after((log.epoch, 1))["lost"] is True
    assert log.after((log.epoch, 6))["lost"] is True
    assert log.after(("other", 5))["lost"] is True
    assert log.after((log.epoch, 5))["events"] == []


def test_waiting() -> None:
    log = EventLog()
    told: list[dict[str, Any]] = []
    assert log.wait((log.epoch, 0), told.append) is True
    assert not told
    log.jobs_shown([job(1, "queued")])
    assert kinds(told[0]) == ["queued"]
    log.jobs_shown([job(1, "running")])
    assert len(told) == 1
    assert log.wait((log.epoch, 1), told.append) is False
    assert kinds(told[1]) == ["running"]
    assert log.wait((log.epoch, 2), told.append) is True
    assert log.stop_waiting(told.append) is True
    assert log.stop_waiting(told.append) is False
    log.jobs_shown([job(1, "success")])
    assert len(told) == 2


def test_instances() -> None:
    log = EventLog()
    before = cluster_of(2, (instance_of("web1"), instance_of("web2")))
    uuid, instance = next(iter(before.instances.items()))
    stopped = replace(instance, admin_state="down", serial_no=instance.serial_no + 1)
    after = replace(before, instances={**before.instances, uuid: stopped})
    gone = replace(before, instances={key: value for key, value in before.instances.items()
                                      if key != uuid})
    log.config_changed(before, after, {("instances", uuid), ("nodes", "x")})
    log.config_changed(after, gone, {("instances", uuid)})
    log.config_changed(gone, before, {("instances", uuid)})
    log.config_changed(before, before, {("instances", uuid), ("", "")})
    found = log.after(None)
    assert kinds(found) == ["changed", "removed", "added"]
    first = found["events"][0][2]
    assert first["name"] == instance.name and first["admin_state"] == "down"
    assert first["primary_node"] == before.nodes[instance.primary_node].name
    assert found["events"][1][2]["admin_state"] is None


def test_many_at_once() -> None:
    """Numbers have no gaps, whoever adds."""
    log = EventLog(kept=10_000)
    threads = [threading.Thread(target=lambda start=start: [
        log.jobs_shown([job(start + number, "queued")]) for number in range(500)])
        for start in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event[0] for event in log.after(None)["events"]] == list(range(1, 1501))
