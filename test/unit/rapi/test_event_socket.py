"""Events over a WebSocket: the same events, and a client which changes what it wants."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.constants.events import KINDS
from ganeti.rapi import event_socket
from ganeti.rapi.event_socket import Subscription, parse_subscription
from ganeti.rapi.events import Filter, Hub

from .test_events import EventMaster, run


class Socket:
    """A socket with a client that is part of the test."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.said: asyncio.Queue[str | None] = asyncio.Queue()
        self.writes = 0

    async def send(self, text: str) -> None:
        await self.sent.put(json.loads(text))

    async def send_frame(self, frame: bytes) -> None:
        """Take frames of a server (RFC 6455, section 5.2)."""
        self.writes += 1
        while frame:
            kind, size = frame[0], frame[1]
            start, size = (4, int.from_bytes(frame[2:4], "big")) if size == 126 else (2, size)
            assert kind == 0x81 and size < 0x10000
            await self.send(frame[start : start + size].decode("ascii"))
            frame = frame[start + size :]

    async def receive(self) -> str | None:
        return await self.said.get()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await self.said.put(None)

    async def next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.sent.get(), 60)

    async def say(self, **subscription: Any) -> dict[str, Any]:
        await self.said.put(json.dumps({"subscribe": subscription}))
        return await self.next()


async def served(hub: Hub, wanted: Filter | None = None, after: str = "") -> tuple[Socket, Any]:
    socket = Socket()
    first = Subscription(wanted or Filter(full=True), after)
    task = asyncio.create_task(event_socket.serve(hub, socket, first))  # type: ignore[arg-type]
    while hub._listeners == 0 and not task.done():
        await asyncio.sleep(0)
    return socket, task


async def end(socket: Socket, task: Any) -> None:
    await socket.said.put(None)
    await asyncio.wait_for(task, 60)


def test_events_with_ids_from_a_place() -> None:
    async def body() -> None:
        master = EventMaster()
        master.add(id=1)
        master.add(id=2)
        hub = Hub(master)
        socket, task = await served(hub, after="e1-1")
        assert await socket.next() == {"id": "e1-2", "event": "job", "data": {"id": 2}}
        master.add("instance", about={"tags": ["a"]}, name="web1")
        assert await socket.next() == {
            "id": "e1-3", "event": "instance", "data": {"name": "web1", "tags": ["a"]},
        }  # fmt: skip
        await end(socket, task)
        assert hub._task is None and hub._listeners == 0

    run(body)


def test_a_client_changes_what_it_wants() -> None:
    """Nothing is missed and nothing comes twice between the two subscriptions."""

    async def body() -> None:
        master = EventMaster()
        hub = Hub(master)
        socket, task = await served(hub)
        master.add(id=1)
        assert (await socket.next())["id"] == "e1-1"
        answer = await socket.say(kind=["node", "log"], name=["node1"])
        assert answer == {
            "id": "e1-1", "event": "subscribed",
            "data": {"kind": ["log", "node"], "name": ["node1"]},
        }  # fmt: skip
        master.add(id=2)
        master.add("node", name="node2")
        master.add("node", name="node1")
        assert (await socket.next())["id"] == "e1-4"
        assert (await socket.say(after="e1-0"))["data"]["kind"] == ["instance", "job"]
        assert [(await socket.next())["id"] for _ in range(2)] == ["e1-1", "e1-2"]
        assert (await socket.say(kind="*", after="e0-7"))["event"] == "subscribed"
        assert (await socket.next())["event"] == "reset"
        await end(socket, task)
        assert hub._listeners == 0 and hub._noise_listeners == 0 and hub._watchers == 0

    run(body)


def test_each_of_many_messages_at_once_is_answered() -> None:
    """The place of the first one holds for those after it."""

    async def body() -> None:
        master = EventMaster()
        master.add(id=1)
        hub = Hub(master)
        socket, task = await served(hub, Filter(frozenset({"node"}), full=True))
        for _ in range(30):
            socket.said.put_nowait(json.dumps({"subscribe": {"kind": "node", "after": "e1-0"}}))
        socket.said.put_nowait(json.dumps({"subscribe": {"kind": "job"}}))
        answers = [await socket.next() for _ in range(31)]
        assert {one["event"] for one in answers} == {"subscribed"}
        assert answers[-1]["data"]["kind"] == ["job"]
        assert (await socket.next())["data"] == {"id": 1}
        await end(socket, task)

    run(body)


def test_a_wrong_message_changes_nothing() -> None:
    async def body() -> None:
        master = EventMaster()
        hub = Hub(master)
        socket, task = await served(hub)
        answer = await socket.say(kind=["nodes"])
        assert answer["event"] == "error" and "'nodes'" in answer["data"]["reason"]
        await socket.said.put("{")
        assert (await socket.next())["event"] == "error"
        master.add(id=1)
        assert (await socket.next())["data"] == {"id": 1}
        await end(socket, task)

    run(body)


def test_events_which_come_together_are_sent_together() -> None:
    async def body() -> None:
        master = EventMaster()
        for number in range(20):
            master.add(id=number, text="x" * 200)
        socket, task = await served(Hub(master), after="e1-0")
        assert [(await socket.next())["data"]["id"] for _ in range(20)] == list(range(20))
        assert socket.writes == 1
        await end(socket, task)

    run(body)


def test_a_client_without_events_is_not_woken() -> None:
    """The server has pings, so no heartbeat of the hub costs anything."""

    async def body() -> None:
        master = EventMaster()
        hub = Hub(master, heartbeat_s=0)
        waits = []
        wait = hub._wait

        def count(*arguments: Any) -> Any:
            waits.append(arguments)
            return wait(*arguments)

        hub._wait = count  # type: ignore[method-assign]
        socket, task = await served(hub)
        for number in range(5):
            master.add("node", name=f"node{number}")
        master.add(id=1)
        assert (await socket.next())["id"] == "e1-6"
        assert 1 <= len(waits) <= 2
        await end(socket, task)

    run(body)


def test_the_daemon_ends() -> None:
    async def body() -> None:
        hub = Hub(EventMaster())
        _socket, task = await served(hub)
        await hub.close()
        await asyncio.wait_for(task, 60)

    run(body)


def test_no_master() -> None:
    async def body() -> None:
        master = EventMaster()
        master.fail = True
        _socket, task = await served(Hub(master))
        with pytest.raises(errors.NoMasterError):
            await task

    run(body)


@pytest.mark.parametrize(
    ("text", "kinds", "names", "after"),
    [
        ('{"subscribe": {}}', {"job", "instance"}, (), ""),
        ('{"subscribe": {"kind": "*"}}', set(KINDS), (), ""),
        ('{"subscribe": {"kind": ["node"], "name": "WEB*"}}', {"node"}, ("web*",), ""),
        ('{"subscribe": {"after": "e-1", "kind": null}}', {"job", "instance"}, (), "e-1"),
    ],
)
def test_subscriptions(text: str, kinds: set[str], names: tuple[str, ...], after: str) -> None:
    found = parse_subscription(text)
    assert (found.wanted.kinds, found.wanted.names, found.after) == (kinds, names, after)
    assert found.wanted.full


@pytest.mark.parametrize(
    "text",
    [
        "", "3", "[]", "{}", '{"subscribe": 1}', '{"subscribe": {"kinds": []}}',
        '{"subscribe": {}, "x": 1}', '{"subscribe": {"kind": [1]}}', '{"subscribe": {"name": 3}}',
        '{"subscribe": {"after": 3}}', '{"subscribe": {"kind": ["x"]}}', "\ud800",
        '{"subscribe": {}, "subscribe": {}}', "[" * 10_000,
    ],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(errors.ParseError):
        parse_subscription(text)


@given(st.one_of(st.text(), st.builds(json.dumps, st.dictionaries(st.just("subscribe"), st.one_of(
    st.none(), st.dictionaries(st.sampled_from(["kind", "name", "after", "x"]), st.one_of(
        st.none(), st.text(), st.lists(st.text())
    ))
)))))  # fmt: skip
def test_random_messages(text: str) -> None:
    try:
        parse_subscription(text)
    except errors.ParseError as err:
        assert str(err)
