"""The daemon's copy of the access records: how new it is, and what it does without the master."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fakes.access_master import AccessMaster
from ganeti import errors
from ganeti.http.messages import Refused
from ganeti.objects import AccessRecord
from ganeti.rapi import kept_records
from ganeti.rapi.kept_records import KeptRecords, digest, put, remove, secret

NOW = 1_000_000.0


class Lab:
    """A copy, its master, and a clock which the test moves."""

    def __init__(self) -> None:
        self.time = 100.0
        self.master = AccessMaster()
        self.records = self.daemon()

    def daemon(self) -> KeptRecords:
        return KeptRecords(self.master, lambda: self.time, wall=lambda: NOW + self.time)

    @property
    def questions(self) -> int:
        return sum(method == "QueryAccessRecords" for method, _args in self.master.asked)


def record(key: str, owner: str = "jack", kind: str = "token", **values: Any) -> AccessRecord:
    return AccessRecord(uuid="", kind=kind, key=key, owner=owner, ctime=NOW, **values)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = Lab()
    sleep = asyncio.sleep

    async def moved(seconds: float) -> None:
        if seconds < kept_records.USED_S:
            found.time += seconds
            await sleep(0)
        else:
            await sleep(3600)

    monkeypatch.setattr(kept_records.asyncio, "sleep", moved)
    return found


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(body())


def test_a_secret_has_256_bits_and_its_record_another_text() -> None:
    assert len(secret()) == 43 and secret() != secret()
    assert len(digest("x")) == 64 and digest("x") != digest("y")


def test_one_daemon_sees_the_changes_of_another(lab: Lab) -> None:
    async def body() -> None:
        other = lab.daemon()
        assert await other.get("token", "a") is None
        await lab.records.change(put(record("a", expires=NOW + 500)))
        assert (await lab.records.get("token", "a")) is not None
        lab.time += 0.5
        # The key is not in the copy, so the other daemon asks at once.
        found = await other.get("token", "a")
        assert found is not None and found.owner == "jack"
        await lab.records.change(remove("token", "a"))
        assert await lab.records.get("token", "a") is None
        lab.time += kept_records.FRESH_S
        assert await other.get("token", "a") is None

    run(body)


def test_what_is_removed_is_gone_although_another_daemon_changed_something(lab: Lab) -> None:
    async def body() -> None:
        await lab.records.change(put(record("a")), put(record("b")))
        assert await lab.records.get("token", "a") is not None
        other = lab.daemon()
        await other.change(put(record("c")))
        await lab.records.change(remove("token", "a"))
        # A question is on its way, and others are answered from the copy meanwhile.
        async with lab.records._turn:
            assert await lab.records.every("token") == [record("b")]
        assert {one.key for one in await lab.records.every("token")} == {"b", "c"}

    run(body)


def test_a_copy_that_is_new_enough_asks_nothing(lab: Lab) -> None:
    async def body() -> None:
        await lab.records.change(put(record("a")))
        await lab.records.get("token", "a")
        asked = lab.questions
        for _ in range(10):
            assert await lab.records.get("token", "a") is not None
        assert lab.questions == asked
        # The second question is answered without the records, because nothing has changed.
        lab.time += kept_records.FRESH_S
        assert await lab.records.get("token", "a") is not None
        assert lab.questions == asked + 1
        assert lab.master.asked[-1] == ("QueryAccessRecords", (None, lab.master.serial))

    run(body)


def test_unknown_keys_share_questions(lab: Lab) -> None:
    async def body() -> None:
        await lab.records.get("token", "first")
        asked, since = lab.questions, lab.time
        await asyncio.gather(*(lab.records.get("token", f"k{key}") for key in range(500)))
        allowed = (lab.time - since) / kept_records.UNKNOWN_S + 1
        assert lab.questions - asked <= allowed <= 3

    run(body)


def test_the_first_question_answers_all_who_come_meanwhile(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon which has just begun has no copy, and refuses nobody before it has one."""

    async def body() -> None:
        await lab.records.change(put(record("a")))
        new, begun, answered = lab.daemon(), asyncio.Event(), asyncio.Event()
        ask = lab.master.call

        async def slow(method: str, *args: Any, timeout_s: float | None = None) -> Any:
            begun.set()
            await answered.wait()
            return await ask(method, *args, timeout_s=timeout_s)

        monkeypatch.setattr(lab.master, "call", slow)
        first = asyncio.create_task(new.every("token"))
        await begun.wait()
        others = [asyncio.create_task(new.get("token", "a")) for _ in range(3)]
        await asyncio.sleep(0)
        answered.set()
        assert [one.key for one in await first] == ["a"]
        assert all([await one for one in others])
        assert lab.questions == 1

    run(body)


def test_a_record_ends_with_its_time(lab: Lab) -> None:
    async def body() -> None:
        await lab.records.change(put(record("a", expires=NOW + lab.time + 60)))
        assert len(await lab.records.every("token")) == 1
        lab.time += 60
        assert await lab.records.get("token", "a") is None
        assert await lab.records.every("token") == []

    run(body)


def test_records_of_an_owner(lab: Lab) -> None:
    async def body() -> None:
        await lab.records.change(
            put(record("a")), put(record("b", "jill")), put(record("c", kind="session"))
        )
        assert [one.key for one in await lab.records.of_owner("token", "jack")] == ["a"]
        assert [one.key for one in await lab.records.every("token")] == ["a", "b"]

    run(body)


def test_without_the_master_the_copy_serves_for_some_time(lab: Lab) -> None:
    async def body() -> None:
        await lab.records.change(put(record("a")))
        await lab.records.get("token", "a")
        lab.master.failure = errors.NoMasterError("the master daemon does not run")
        lab.time += kept_records.KEPT_S - 1
        assert await lab.records.get("token", "a") is not None
        lab.time += 10
        with pytest.raises(Refused, match="does not run") as caught:
            await lab.records.get("token", "a")
        assert caught.value.status == 502 and "Retry-After" in dict(caught.value.headers)
        lab.master.failure = None
        lab.time += kept_records.FRESH_S
        assert await lab.records.get("token", "a") is not None

    run(body)


def test_without_a_copy_nothing_is_accepted(lab: Lab) -> None:
    lab.master.failure = errors.NoMasterError("the master daemon does not run")

    async def body() -> None:
        with pytest.raises(Refused) as caught:
            await lab.records.get("token", "a")
        assert caught.value.status == 502

    run(body)


def test_after_a_change_without_an_answer_the_copy_is_read_again(lab: Lab) -> None:
    async def body() -> None:
        await lab.records.change(put(record("a")))
        await lab.records.get("token", "a")
        lab.master.lose_answer = True
        with pytest.raises(errors.LuxiTimeout):
            await lab.records.change(remove("token", "a"))
        assert await lab.records.get("token", "a") is None

    run(body)


def test_what_was_removed_does_not_wait_for_the_next_answer(lab: Lab) -> None:
    """Another daemon has changed something meanwhile, and a slow question is on its way."""

    async def body() -> None:
        other = lab.daemon()
        await lab.records.change(put(record("a")))
        await lab.records.get("token", "a")
        await other.change(put(record("b")))
        await lab.records.change(remove("token", "a"))
        async with lab.records._turn:
            assert not await lab.records.every("token")

    run(body)


def test_uses_are_reported_together_and_at_the_end(lab: Lab) -> None:
    async def body() -> None:
        await lab.records.change(put(record("a")), put(record("b")))
        await lab.records.every("token")
        for key in ("a", "b", "a", "unknown"):
            lab.records.used("token", key)
        assert {one.used for one in await lab.records.every("token")} == {NOW + lab.time}
        # The copy of the master is older, and does not hide the use.
        lab.time += 10
        await lab.records.change(put(record("c")))
        lab.time += kept_records.FRESH_S
        found = await lab.records.get("token", "a")
        assert found is not None and found.used == NOW + lab.time - 10 - kept_records.FRESH_S
        await lab.records.close()
        method, (changes,) = lab.master.asked[-1]
        assert method == "ChangeAccessRecords"
        assert sorted(one[:3] for one in changes) == [
            ["used", "token", "a"],
            ["used", "token", "b"],
        ]

    run(body)
