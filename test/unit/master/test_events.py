"""The master's last events: their content, their order, and gaps."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of, commit, instance_of
from fakes.rpc import FakeRpc
from ganeti import errors
from ganeti.cmdlib.base import MasterContext
from ganeti.jobstore.store import QueueStore
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.queue import JobQueue
from ganeti.locking import Level, LockManager, Owner
from ganeti.luxi import client
from ganeti.master.events import EventLog, GuestChanges
from ganeti.master.luxi_server import LuxiServer
from ganeti.master.luxi_service import LuxiService
from ganeti.opcodes.test import OpTestDelay
from ganeti.platform import paths
from ganeti.query.resources.instance import LiveInstance
from ganeti.query.view import View
from ganeti.utils import net


def job(number: int, status: str) -> Any:
    return SimpleNamespace(
        id=number,
        published_status=status,
        inputs=[],
        ops=[SimpleNamespace(summary=lambda: "TEST_DELAY", input={})],
    )


def kinds(answer: dict[str, Any]) -> list[Any]:
    return [data.get("status") or data["change"] for _number, _kind, data in answer["events"]]


def test_news_of_jobs_only() -> None:
    log = EventLog()
    log.jobs_published([job(1, "queued")])
    log.jobs_published([job(1, "queued"), job(2, "queued")])
    log.jobs_published([job(1, "running")])
    log.jobs_published([job(1, "success")])
    found = log.after(None)
    assert [(number, data["id"], data["status"]) for number, _kind, data in found["events"]] == [
        (1, 1, "queued"),
        (2, 2, "queued"),
        (3, 1, "running"),
        (4, 1, "success"),
    ]
    assert found["last"] == 4 and not found["lost"]
    assert found["events"][0][2]["summary"] == ["TEST_DELAY"]


def test_a_place() -> None:
    log = EventLog(kept=3)
    for number in range(1, 6):
        log.jobs_published([job(number, "queued")])
    assert [event[0] for event in log.after((log.epoch, 3))["events"]] == [4, 5]
    assert log.after((log.epoch, 2))["lost"] is False
    assert log.after((log.epoch, 1))["lost"] is True
    assert log.after((log.epoch, 6))["lost"] is True
    assert log.after(("other", 5))["lost"] is True
    assert log.after((log.epoch, 5))["events"] == []


def test_waiting() -> None:
    log = EventLog()
    received: list[dict[str, Any]] = []
    assert log.wait((log.epoch, 0), received.append) is True
    assert not received
    log.jobs_published([job(1, "queued")])
    assert kinds(received[0]) == ["queued"]
    log.jobs_published([job(1, "running")])
    assert len(received) == 1
    assert log.wait((log.epoch, 1), received.append) is False
    assert kinds(received[1]) == ["running"]
    assert log.wait((log.epoch, 2), received.append) is True
    assert log.stop_waiting(received.append) is True
    assert log.stop_waiting(received.append) is False
    log.jobs_published([job(1, "success")])
    assert len(received) == 2


def test_instances() -> None:
    log = EventLog()
    before = cluster_of(2, (instance_of("web1"), instance_of("web2")))
    uuid, instance = next(iter(before.instances.items()))
    stopped = replace(instance, admin_state="down", serial_no=instance.serial_no + 1)
    after = replace(before, instances={**before.instances, uuid: stopped})
    gone = replace(
        before, instances={key: value for key, value in before.instances.items() if key != uuid}
    )
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


class Looks:
    """What a query sees of the guests of a small cluster, and the events from it."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.config = FakeConfig(
            cluster_of(
                2, (instance_of("web1", admin_state="up"), instance_of("web2", admin_state="up"))
            )
        )
        self.locks = LockManager({Level.INSTANCE: list(self.config.snapshot().instances)})
        context = MasterContext(self.config, self.locks, FakeRpc(self.config))  # type: ignore[arg-type]
        self.guests = GuestChanges(self.log, context)

    def instance(self, name: str) -> Any:
        return next(
            one for one in self.config.snapshot().instances.values() if one.name.startswith(name)
        )

    def look(self, *running: str) -> list[tuple[str, str]]:
        """The events when these run and the others do not."""
        data = self.config.snapshot()
        view = View(data)
        view.live["instances"] = {
            uuid: LiveInstance(info={"memory": 1} if one.name.split(".")[0] in running else None)
            for uuid, one in data.instances.items()
        }
        last = self.log.after(None)["last"]
        self.guests.seen(view, list(data.instances.values()))
        return sorted(
            (data["name"].split(".")[0], data["status"])
            for _n, _kind, data in self.log.after((self.log.epoch, last))["events"]
        )


def test_guests_that_stop_by_themselves() -> None:
    looks = Looks()
    looks.log.after(None)
    assert looks.look("web1", "web2") == [], "the first look is not an event"
    assert looks.look("web1", "web2") == []
    assert looks.look("web1") == [("web2", "ERROR_down")]
    assert looks.look("web1") == []
    assert looks.look("web1", "web2") == [("web2", "running")]
    (event,) = looks.log.after((looks.log.epoch, 1))["events"]
    assert event[2]["change"] == "state" and event[2]["admin_state"] == "up"
    assert event[2]["primary_node"] == "node1.example.com"


def test_what_a_job_does_is_told_when_it_has_ended() -> None:
    looks = Looks()
    looks.log.after(None)
    looks.look("web1", "web2")
    owner = Owner(7, "7", None)
    uuid = looks.instance("web1").uuid
    looks.locks.acquire(owner, Level.INSTANCE, [uuid], shared=False)
    assert looks.look("web2") == []
    looks.locks.release(owner)
    assert looks.look("web2") == [("web1", "ERROR_down")]


def test_a_look_that_was_overtaken_tells_nothing() -> None:
    looks = Looks()
    looks.log.after(None)
    looks.look("web1", "web2")
    before = looks.config.snapshot()
    view = View(before)
    view.live["instances"] = {uuid: LiveInstance() for uuid in before.instances}
    commit(looks.config).instances.mark(looks.instance("web1").uuid, "down")
    last = looks.log.after(None)["last"]
    looks.guests.seen(view, list(before.instances.values()))
    names = [data["name"] for _n, _kind, data in looks.log.after((looks.log.epoch, last))["events"]]
    assert names == ["web2.example.com"]


def test_nobody_listens() -> None:
    looks = Looks()
    assert not looks.log.listened
    view = View(looks.config.snapshot())  # without live data: it is not even looked at
    looks.guests.seen(view, list(looks.config.snapshot().instances.values()))
    assert looks.look("web1", "web2") == []
    assert looks.log.listened, "by asking for events"


class EventMaster:
    """The queue and the configuration of a master with events, and a real socket."""

    def __init__(self, directory: Path) -> None:
        self.log = EventLog()
        self.config = FakeConfig(cluster_of(2, (instance_of("web1"),)))
        self.config.call_on_commit(self.log.config_changed)
        context = MasterContext(self.config, LockManager({}), FakeRpc(self.config))  # type: ignore[arg-type]
        self.queue = context.queue = JobQueue(
            QueueStore(str(directory / "queue")), Execution(lambda *_args: None)
        )
        self.queue.publisher.on_published = self.log.jobs_published
        self.queue.start()
        path = str(directory / "socket")
        self.server = LuxiServer([net.unix_listen(path)], LuxiService(context, self.log))
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()
        self.client = client.Client(path)

    def stop(self) -> None:
        self.client.close()
        self.queue.stop(60.0)
        self.server.stop(grace_s=1.0)
        self.thread.join(60.0)


def test_through_the_socket(tmp_path: Path) -> None:
    with paths.override(paths.Paths(str(tmp_path))):
        master = EventMaster(tmp_path)
        try:
            start = master.client.call("WaitForEvents", None, 0)
            assert (start["events"], start["last"]) == ([], 0)
            place = [start["epoch"], 0]
            # The time is over and nothing has happened.
            assert master.client.call("WaitForEvents", place, 0)["events"] == []
            number = master.client.submit_job([OpTestDelay(duration=0.0)])
            seen: list[tuple[int, str]] = []
            while (number, "success") not in seen:
                found = master.client.call("WaitForEvents", place, 60)
                assert not found["lost"] and found["events"]
                seen += [(data["id"], data["status"]) for _n, _kind, data in found["events"]]
                place = [found["epoch"], found["last"]]
            assert seen[0] == (number, "queued") and len(seen) == len(set(seen))
            uuid = next(iter(master.config.snapshot().instances))
            commit(master.config).instances.mark(uuid, "up")
            (event,) = master.client.call("WaitForEvents", place, 60)["events"]
            assert event[1:2] == ["instance"] and event[2]["admin_state"] == "up"
            assert master.client.call("WaitForEvents", ["other", 1], 60)["lost"]
            for place in (["x"], "x", [1, "x"]):
                with pytest.raises(errors.RequestError, match="place"):
                    master.client.call("WaitForEvents", place, 0)
        finally:
            master.stop()


def test_many_at_once() -> None:
    """Numbers have no gaps when several threads add events."""
    log = EventLog(kept=10_000)
    threads = [
        threading.Thread(
            target=lambda start=start: [
                log.jobs_published([job(start + number, "queued")]) for number in range(500)
            ]
        )
        for start in (0, 1000, 2000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event[0] for event in log.after(None)["events"]] == list(range(1, 1501))
