"""The stream of events: places, gaps, silence, a master that goes and comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from ganeti import errors
from ganeti.constants.events import KINDS, NOISY
from ganeti.rapi import events
from ganeti.rapi.events import Event, Filter, Hub
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
        self.kinds: list[list[str]] = []
        self.checks = 0
        self.checked = asyncio.Event()

    def add(self, kind: str = "job", about: dict[str, Any] | None = None, **data: Any) -> None:
        self.events.append([len(self.events) + self.first + 1, kind, data, about or {}])
        self.changed.set()

    async def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        if self.fail:
            raise errors.NoMasterError("gone")
        if method == "CheckGuests":
            self.checks += 1
            self.checked.set()
            return None
        self.asked += 1
        place, timeout, kinds = args
        self.kinds.append(kinds)
        last = len(self.events) + self.first
        if timeout and place == [self.epoch, last]:
            self.changed.clear()
            await self.changed.wait()
            if self.fail:
                raise errors.ConnectionClosedError("gone")
        last = len(self.events) + self.first
        is_all = place is None or place[0] != self.epoch or place[1] < self.first
        return {
            "epoch": self.epoch,
            "last": last,
            "events": [
                one for one in self.events if one[1] in kinds and (is_all or one[0] > place[1])
            ],
            "lost": place is not None and is_all,
            "dropped": [self.first, self.first],
        }


async def follow(hub: Hub, last: str | None = None, *kinds: str) -> AsyncIterator[bytes]:
    wanted = Filter(frozenset(kinds)) if kinds else Filter()
    return await events.stream(hub, wanted, last)


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


# -- kinds and names -------------------------------------------------------------------------------

WEB = {"objects": [["instance", "web1.example.com"]], "user": "alice"}


async def full(
    hub: Hub, kinds: list[str] | None, *names: str, last: str | None = None
) -> AsyncIterator[bytes]:
    stream = await events.stream(hub, events.make_filter(kinds, names), last)
    await step(stream)
    return stream


def test_the_complete_form_of_chosen_kinds() -> None:
    async def body() -> None:
        master = EventMaster()
        hub = Hub(master)
        stream = await full(hub, ["node", "job"])
        old = await follow(hub)
        await step(old)
        master.add("network", name="lan")
        master.add("node", about={"members": ["offline"]}, name="node1")
        assert await step(stream) == (
            'id: e1-2\nevent: node\ndata: {"name": "node1", "members": ["offline"]}\n\n'
        )
        master.add("job", about=WEB, id=7)
        assert '"user": "alice"' in await step(stream)
        # The other form and the other kinds stay as they were.
        assert await step(old) == 'id: e1-3\nevent: job\ndata: {"id": 7}\n\n'
        await finish(stream)
        await finish(old)

    run(body)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("web1.example.com",), [1, 2, 4]),
        (("WEB1",), [1, 2, 4]),
        (("web*",), [1, 2, 4]),
        (("web",), []),
        (("*.example.org", "node?"), [3, 5]),
        (("[a-z]*",), []),
    ],
)
def test_names(names: tuple[str, ...], found: list[int]) -> None:
    wanted = events.make_filter(["*"], names)
    one = [
        Event(1, "instance", {"name": "web1.example.com"}, {}),
        Event(2, "job", {"id": 1}, WEB),
        Event(3, "finding", {"name": "node1", "object": "node"}, {}),
        Event(4, "instance", {"name": "new.example.com"}, {"old_name": "web1.example.com"}),
        Event(5, "log", {"id": 1}, {"objects": [["instance", "x.example.org"]]}),
        Event(6, "job", {"id": 2}, {}),
    ]
    assert [event.number for event in one if wanted.passes(event)] == found


def test_a_filter_that_is_none() -> None:
    for kinds, names in ((["nodes"], []), (["job"], ["x"] * 101), (["job"], ["x" * 301])):
        with pytest.raises(errors.ParseError):
            events.make_filter(kinds, [f"{name}{at}" for at, name in enumerate(names)])
    assert events.make_filter(["*"]).kinds == frozenset(KINDS)


def test_a_scope_hides_events() -> None:
    class Mine:
        def sees(self, event: Event) -> bool:
            return event.about.get("user") == "alice"

    async def body() -> None:
        master = EventMaster()
        hub = Hub(master)
        stream = await events.stream(hub, Filter(scope=Mine()), None)
        await step(stream)
        master.add(about={"user": "bob"}, id=1)
        master.add(about=WEB, id=2)
        assert await step(stream) == 'id: e1-2\nevent: job\ndata: {"id": 2}\n\n'
        await finish(stream)

    run(body)


def test_an_odd_event_stops_nobody() -> None:
    """A master of another version sends events with other members."""

    async def body() -> None:
        master = EventMaster()
        hub = Hub(master)
        stream = await full(hub, ["finding", "job"], "x")
        master.add("finding", text="no object")
        master.add("job", about={"objects": [3]})
        master.add("job", about={"objects": [["instance", "x"]]}, id=3)
        assert '"id": 3' in await step(stream)
        await finish(stream)

    run(body)


def test_noisy_events_are_asked_for_while_somebody_wants_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body() -> None:
        master = EventMaster()
        hub = Hub(master)
        stream = await follow(hub)
        await step(stream)
        assert not any(NOISY & set(kinds) for kinds in master.kinds)
        master.add("log", about=WEB, message="before")
        logs = await full(hub, ["log"], last="e1-0")
        # Also the lines which the master still has.
        assert '"message": "before"' in await step(logs)
        monkeypatch.setattr(events, "_NOISE_S", 0.0)
        master.add("log", about=WEB, message="now")
        assert '"message": "now"' in await step(logs)
        await finish(logs)
        for number in (1, 2):
            master.add(id=number)
            assert f'"id": {number}' in await step(stream)
        assert not NOISY & set(master.kinds[-1])
        # What was not collected meanwhile is missing, and that is said.
        again = await full(hub, ["log"], last="e1-2")
        master.add("log", about=WEB, message="later")
        text = await step(again)
        assert "later" in text or "event: reset" in text
        await finish(again)
        await finish(stream)

    run(body)


def test_one_text_for_all_clients_of_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand clients: each event is rendered once, and other work has its turn."""
    made: list[str] = []
    form = events.STREAM

    def render(ident: str, kind: str, data: Any) -> str:
        made.append(ident)
        return form.event(ident, kind, data)

    monkeypatch.setattr(events, "STREAM", form._replace(event=render))

    async def body() -> None:
        master = EventMaster()
        hub = Hub(master)
        streams = [await follow(hub, None, "job") for _ in range(1000)]
        others = [await follow(hub, None, "instance") for _ in range(10)]
        for stream in (*streams, *others):
            await step(stream)
        turns: list[int] = []

        async def receive(stream: AsyncIterator[bytes]) -> bytes:
            text = await anext(stream)
            turns.append(len(turns))
            return text

        tasks = [asyncio.create_task(receive(stream)) for stream in streams]
        idle = [asyncio.create_task(receive(stream)) for stream in others]
        await asyncio.sleep(0)
        master.add(id=1)
        seen = []
        while len(turns) < len(streams):
            seen.append(len(turns))
            await asyncio.sleep(0)
        texts = [await task for task in tasks]
        assert made == ["e1-1"] and len(set(texts)) == 1
        assert len(seen) >= 1000 / events._WOKEN_AT_ONCE, "the clients are not woken all at once"
        assert not any(task.done() for task in idle), "other filters are not woken"
        for task in idle:
            task.cancel()
        await asyncio.gather(*idle, return_exceptions=True)
        for stream in (*streams, *others):
            await finish(stream)

    run(body)


def test_nobody_misses_an_event_at_a_heartbeat() -> None:
    """Clients whose heartbeat comes while others are woken get the event all the same."""

    async def body() -> None:
        master = EventMaster()
        hub = Hub(master, heartbeat_s=0.001)
        streams = [await follow(hub) for _ in range(60)]
        got: dict[int, list[str]] = {}

        async def receive(number: int) -> None:
            text = ""
            while '"id": 20}' not in text:
                text += (await anext(streams[number])).decode()
            got[number] = [line for line in text.splitlines() if line.startswith("data")]

        tasks = [asyncio.create_task(receive(number)) for number in range(len(streams))]
        for number in range(1, 21):
            master.add(id=number)
            await asyncio.sleep(0.002)
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        wanted = [f'data: {{"id": {number}}}' for number in range(1, 21)]
        assert all(lines == wanted for lines in got.values())
        for stream in streams:
            await finish(stream)

    run(body)


# -- the log ---------------------------------------------------------------------------------------


def run_log(body: Callable[[EventMaster, Hub], Awaitable[None]]) -> None:
    async def both() -> None:
        master = EventMaster()
        await body(master, Hub(master))

    asyncio.run(both())


def numbers(answer: dict[str, Any]) -> list[str]:
    return [one["id"] for one in answer["events"]]


def test_the_log_begins_with_what_is_kept() -> None:
    async def body(master: EventMaster, hub: Hub) -> None:
        for number in range(3):
            master.add(id=number)
        now = await events.log(hub, Filter(), None, 0)
        assert now == {"last": "e1-3", "lost": False, "events": []}
        kept = await events.log(hub, Filter(), events.OLDEST, 0)
        assert numbers(kept) == ["e1-1", "e1-2", "e1-3"]
        assert kept["events"][0] == {"id": "e1-1", "kind": "job", "data": {"id": 0}}
        later = await events.log(hub, Filter(), "e1-2", 0)
        assert (numbers(later), later["lost"]) == (["e1-3"], False)

    run_log(body)


def test_the_log_of_a_master_which_has_dropped_events() -> None:
    async def body(master: EventMaster, hub: Hub) -> None:
        master.first = 10
        master.add(id=1)
        kept = await events.log(hub, Filter(), events.OLDEST, 0)
        assert (numbers(kept), kept["lost"]) == (["e1-11"], False)
        gap = await events.log(hub, Filter(), "e1-4", 0)
        assert gap == {"last": "e1-11", "lost": True, "events": []}
        assert (await events.log(hub, Filter(), "other-11", 60))["lost"]

    run_log(body)


def test_the_log_waits_for_an_event_that_is_wanted() -> None:
    async def body(master: EventMaster, hub: Hub) -> None:
        wanted = Filter(frozenset({"instance"}))
        asked = asyncio.create_task(events.log(hub, wanted, None, 60))
        while not hub._sleeping:
            await asyncio.sleep(0)
        master.add("job", id=1)
        master.add("instance", name="web1")
        assert numbers(await asked) == ["e1-2"]
        # The hub goes on to follow, so the next request costs the master nothing.
        questions = master.asked
        assert numbers(await events.log(hub, wanted, "e1-1", 60)) == ["e1-2"]
        assert master.asked == questions and hub._listeners == 2

    run_log(body)
