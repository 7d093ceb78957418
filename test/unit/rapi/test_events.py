"""The stream of events: places, gaps, silence, a master that goes and comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from ganeti import errors
from ganeti.rapi import events
from ganeti.rapi.events import Hub
from ganeti.rapi.master import Master


class EventMaster(Master):
    """Has events; answers when there are new ones."""

    def __init__(self) -> None:
        super().__init__("/nonexistent")
        self.epoch = "e1"
        self.events: list[list[Any]] = []
        self.first = 0
        self.changed = asyncio.Event()
        self.fail = False
        self.asked = 0
        self.checks = 0
        self.checked = asyncio.Event()

    def add(self, kind: str = "job", **data: Any) -> None:
        self.events.append([len(self.events) + self.first + 1, kind, data])
        self.changed.set()

    async def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        if self.fail:
            raise errors.NoMasterError("gone")
        if method == "CheckGuests":
            self.checks += 1
            self.checked.set()
            return None
        self.asked += 1
        place, timeout = args
        last = len(self.events) + self.first
        if timeout and place == [self.epoch, last]:
            self.changed.clear()
            await self.changed.wait()
            if self.fail:
                raise errors.ConnectionClosedError("gone")
        last = len(self.events) + self.first
        if place is None or place[0] != self.epoch:
            return {
                "epoch": self.epoch,
                "last": last,
                "events": list(self.events),
                "lost": place is not None,
            }
        return {
            "epoch": self.epoch,
            "last": last,
            "lost": False,
            "events": [one for one in self.events if one[0] > place[1]],
        }


async def follow(hub: Hub, last: str | None = None, *kinds: str) -> AsyncIterator[bytes]:
    return await events.stream(hub, frozenset(kinds or events.KINDS), last)


async def step(stream: AsyncIterator[bytes]) -> str:
    return (await asyncio.wait_for(anext(stream), 60)).decode()


async def finish(stream: AsyncIterator[bytes]) -> None:
    assert isinstance(stream, AsyncGenerator)
    await stream.aclose()


def run(body: Any) -> None:
    asyncio.run(body())


def test_from_now_on() -> None:
    async def body() -> None:
        master = EventMaster()
        master.add(id=1)
        hub = Hub(master)
        stream = await follow(hub)
        assert await step(stream) == "retry: 1000\n\n"
        master.add(id=2)
        assert await step(stream) == 'id: e1-2\nevent: job\ndata: {"id": 2}\n\n'
        await finish(stream)
        assert hub._task is None

    run(body)


def test_from_a_place_and_only_some() -> None:
    async def body() -> None:
        master = EventMaster()
        for kind in ("job", "instance", "job"):
            master.add(kind)
        hub = Hub(master)
        stream = await follow(hub, "e1-1")
        await step(stream)
        assert [line for line in (await step(stream)).splitlines() if line.startswith("id")] == [
            "id: e1-2",
            "id: e1-3",
        ]
        other = await follow(hub, "e1-0", "instance")
        await step(other)
        assert (await step(other)).count("event: instance") == 1
        await finish(stream)
        await finish(other)

    run(body)


@pytest.mark.parametrize("last", ["e0-3", "e1-99", "e1-1"])
def test_what_is_missing_is_said(last: str) -> None:
    async def body() -> None:
        master = EventMaster()
        master.first = 5
        master.add(id=1)
        stream = await follow(Hub(master), last)
        await step(stream)
        text = await step(stream)
        assert text.startswith("id: e1-6\nevent: reset\n")
        await finish(stream)

    run(body)


@pytest.mark.parametrize("last", ["", "nonsense", "e1-x", "-", "e1-" + "9" * 50])
def test_an_id_that_is_none(last: str) -> None:
    async def body() -> None:
        master = EventMaster()
        master.add(id=1)
        hub = Hub(master, heartbeat_s=0.01)
        stream = await follow(hub, last)
        await step(stream)
        assert await step(stream) == ": still here\n\n"
        await finish(stream)

    run(body)


def test_one_question_for_all() -> None:
    async def body() -> None:
        master = EventMaster()
        hub = Hub(master)
        streams = [await follow(hub) for _ in range(100)]
        for stream in streams:
            await step(stream)
        asked = master.asked
        master.add(id=1)
        for stream in streams:
            assert "id: e1-1" in await step(stream)
        assert master.asked <= asked + 3
        await hub.close()
        for stream in streams:
            with pytest.raises(StopAsyncIteration):
                await step(stream)
                await step(stream)

    run(body)


def test_a_master_that_goes_and_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_RETRY_S", 0.01)

    async def body() -> None:
        master = EventMaster()
        hub = Hub(master)
        master.fail = True
        with pytest.raises(errors.NoMasterError):
            await follow(hub)
        master.fail = False
        stream = await follow(hub)
        await step(stream)
        master.fail = True
        master.changed.set()
        await asyncio.sleep(0)
        master.epoch, master.events, master.fail = "e2", [], False
        master.add(id=1)
        assert "id: e2-1\nevent: reset" in await step(stream)
        master.add(id=2)
        assert "id: e2-2\nevent: job" in await step(stream)
        await finish(stream)

    run(body)


def test_guests_are_looked_at_while_somebody_wants_to_know() -> None:
    async def body() -> None:
        master = EventMaster()
        hub = Hub(master, heartbeat_s=0.01, poll_s=0.01)
        jobs = await follow(hub, None, "job")
        await step(jobs)
        await step(jobs)
        assert master.checks == 0
        both = [await follow(hub), await follow(hub, None, "instance")]
        for stream in both:
            await step(stream)
        while master.checks < 3:
            master.checked.clear()
            await asyncio.wait_for(master.checked.wait(), 60)
        # Nobody to ask: it goes on when there is.
        master.fail = True
        await step(both[0])
        master.fail = False
        master.checked.clear()
        await asyncio.wait_for(master.checked.wait(), 60)
        await finish(both[0])
        assert hub._watch_task is not None
        await finish(both[1])
        assert hub._watch_task is None
        await finish(jobs)

    run(body)
