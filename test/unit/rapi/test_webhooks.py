"""Webhooks: a receiver that is slow, down, hostile or gone, and a daemon that is restarted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.http import web
from ganeti.rapi.events import Hub
from ganeti.rapi.webhooks import addresses, courier, rules
from ganeti.rapi.webhooks.courier import NEW, Courier, Outcome, Poster, Report, Times, judge
from ganeti.rapi.webhooks.message import Message, signature
from ganeti.rapi.webhooks.rules import Rule
from ganeti.rapi.webhooks.sender import Pace, Webhooks
from ganeti.wire import json
from test.fakes.web_server import Answer, Hangup, Request, WebServer, web_server

from .test_events import EventMaster, run

FAST = Times(request_s=20.0, first_s=0.001, longest_s=0.01)
PACE = Pace(refresh_s=0.01, save_s=0.0)


class RuleMaster(EventMaster):
    """Also has access records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[tuple[str, str], dict[str, Any]] = {}
        self.serial = 1
        self.commits = 0

    async def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        if self.fail:
            raise errors.NoMasterError("gone")
        if method == "QueryAccessRecords":
            kind, since = args
            found = [one for one in self.records.values() if one["kind"] == kind]
            return {"serial": self.serial, "records": None if since == self.serial else found}
        if method == "ChangeAccessRecords":
            for what, *rest in args[0]:
                if what == "put":
                    self.records[rest[0]["kind"], rest[0]["key"]] = rest[0]
                else:
                    self.records.pop((rest[0], rest[1]), None)
            self.serial += 1
            self.commits += 1
            return {}
        return await super().call(method, *args, timeout_s=timeout_s)

    def restart(self) -> None:
        """Lose the events, as a new process of the master does."""
        self.epoch += "x"
        self.events = []
        self.changed.set()


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[WebServer]:
    with web_server(tmp_path, lambda _request: Answer(204)) as server:
        yield server


def rule_for(url: str, **given: Any) -> Rule:
    return rules.make("chat", url, given, owner="root", made=5.0)


def poster(receiver: WebServer, **options: Any) -> Poster:
    return Poster(lambda: "c1", lambda _address: True, ca_file=receiver.ca_file, **options)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def ids(receiver: WebServer) -> list[str]:
    return [request.headers["webhook-id"] for request in receiver.requests]


def types(receiver: WebServer) -> list[str]:
    return [json.loads(request.body)["type"] for request in receiver.requests]


async def begun(
    master: EventMaster, receiver: WebServer, report: Report = NEW, times: Times = FAST
) -> Courier:
    hub = Hub(master)
    found = Courier(
        rule_for(f"{receiver.url}/hook"), hub, poster(receiver).post, report, times=times
    )
    found.start()
    await until(lambda: hub._listeners == 1)
    return found


def test_events_are_sent_in_order_with_signatures(receiver: WebServer) -> None:
    async def body() -> None:
        master = EventMaster()
        master.add(id=0, status="success")
        one = await begun(master, receiver)
        for number in range(1, 4):
            master.add(id=number, status="error")
        await until(lambda: len(receiver.requests) == 3)
        assert ids(receiver) == ["evt_e1-2", "evt_e1-3", "evt_e1-4"]
        for number, request in enumerate(receiver.requests, 1):
            assert (request.method, request.path) == ("POST", "/hook")
            content = json.loads(request.body)
            assert content["data"] == {"id": number, "status": "error"}
            assert content["severity"] == "error" and content["cluster"] == "c1"
            sent = request.headers
            assert sent["webhook-signature"] == signature(
                one.rule.secret, sent["webhook-id"], int(sent["webhook-timestamp"]), request.body
            )
        await until(lambda: one.report.position == ("e1", 4))
        await one.stop()

    run(body)


@pytest.mark.parametrize("status", [500, 302, 404, 429])
def test_a_message_is_sent_again_until_it_is_accepted(receiver: WebServer, status: int) -> None:
    answers = iter([Answer(status), Answer(status, b"", (("Retry-After", "0"),)), Answer(200)])
    receiver.respond = lambda _request: next(answers)

    async def body() -> None:
        master = EventMaster()
        one = await begun(master, receiver)
        master.add(id=1, status="success")
        await until(lambda: one.report.sent)
        assert ids(receiver) == ["evt_e1-1"] * 3
        assert one.report.failing_since is None and one.report.problem == ""
        await one.stop()

    run(body)


def test_the_next_events_wait_for_the_first_one(receiver: WebServer) -> None:
    works = threading.Event()
    receiver.respond = lambda _request: Answer(200 if works.is_set() else 500)

    async def body() -> None:
        master = EventMaster()
        one = await begun(master, receiver)
        for number in (1, 2):
            master.add(id=number, status="success")
        await until(lambda: len(receiver.requests) >= 3 and one.waiting == 2)
        assert set(ids(receiver)) == {"evt_e1-1"}
        assert "status 500" in one.report.problem and one.report.failing_since
        works.set()
        await until(lambda: one.report.position == ("e1", 2))
        assert ids(receiver)[-2:] == ["evt_e1-1", "evt_e1-2"]
        await one.stop()

    run(body)


def test_no_answer_at_all(receiver: WebServer) -> None:
    def hang_up(_request: Request) -> Answer:
        raise Hangup

    receiver.respond = hang_up

    async def body() -> None:
        master = EventMaster()
        one = await begun(master, receiver)
        master.add(id=1, status="success")
        await until(lambda: one.report.problem)
        assert one.report.problem.startswith(receiver.url)
        receiver.respond = lambda _request: Answer(200)
        await until(lambda: one.report.sent)
        await one.stop()

    run(body)


def test_a_receiver_that_has_gone_gets_nothing_more(receiver: WebServer) -> None:
    receiver.respond = lambda _request: Answer(410)

    async def body() -> None:
        master = EventMaster()
        one = await begun(master, receiver)
        for number in (1, 2):
            master.add(id=number, status="success")
        await until(lambda: one.report.disabled)
        assert "410" in one.report.disabled and len(receiver.requests) == 1
        await until(lambda: all(task.done() for task in one._tasks))
        assert one.failure() is None
        again = Courier(one.rule, Hub(master), poster(receiver).post, one.report)
        again.start()
        assert not again._tasks
        await one.stop()

    run(body)


def test_a_rejected_event_does_not_stop_the_others(receiver: WebServer) -> None:
    receiver.respond = lambda request: Answer(422 if b'"id":1' in request.body else 200)

    async def body() -> None:
        master = EventMaster()
        one = await begun(master, receiver)
        for number in (1, 2):
            master.add(id=number, status="success")
        await until(lambda: one.report.position == ("e1", 2))
        assert ids(receiver) == ["evt_e1-1"] * 5 + ["reset_chat_e1-1", "evt_e1-2"]
        assert json.loads(receiver.requests[5].body)["data"]["count"] == 1
        assert one.report.lost == 1
        await one.stop()

    run(body)


def test_a_receiver_that_rejects_everything_gets_the_next_event(receiver: WebServer) -> None:
    receiver.respond = lambda _request: Answer(400)

    async def body() -> None:
        master = EventMaster()
        one = await begun(master, receiver)
        for number in (1, 2):
            master.add(id=number, status="success")
        await until(lambda: one.report.position == ("e1", 2))
        assert one.report.lost == 2 and one.report.sent is None
        await one.stop()

    run(body)


def test_old_events_are_given_up_with_a_reset(receiver: WebServer) -> None:
    receiver.respond = lambda _request: Answer(500)

    async def body() -> None:
        master = EventMaster()
        one = await begun(master, receiver, times=FAST._replace(age_s=0.3))
        for number in range(1, 4):
            master.add(id=number, status="success")
        await until(lambda: one.report.lost == 3)
        receiver.respond = lambda _request: Answer(200)
        await until(lambda: one.report.position == ("e1", 3))
        last = json.loads(receiver.requests[-1].body)
        assert last["type"] == "reset" and last["data"]["count"] == 3
        assert "not accepted" in last["data"]["reason"]
        await one.stop()

    run(body)


def test_what_the_master_has_lost_is_said(receiver: WebServer) -> None:
    works = threading.Event()
    receiver.respond = lambda _request: Answer(200 if works.is_set() else 500)

    async def body() -> None:
        master = RuleMaster()
        one = await begun(master, receiver)
        master.add(id=1, status="success")
        await until(lambda: one.waiting == 1)
        master.restart()
        master.add(id=2, status="success")
        await until(lambda: one.waiting >= 2)
        works.set()
        await until(lambda: (one.report.position or ("",))[0] == "e1x")
        # What waits survives the restart of the master, and the gap has its place.
        assert list(dict.fromkeys(ids(receiver))) == ["evt_e1-1", "reset_chat_e1x-1"]
        await one.stop()

    run(body)


def test_a_new_daemon_goes_on_where_the_old_one_was(receiver: WebServer) -> None:
    async def body() -> None:
        master = EventMaster()
        for number in range(1, 6):
            master.add(id=number, status="success")
        one = await begun(master, receiver, Report(position=("e1", 3)))
        await until(lambda: one.report.position == ("e1", 5))
        assert ids(receiver) == ["evt_e1-4", "evt_e1-5"]
        await one.stop()
        receiver.requests.clear()
        other = await begun(master, receiver, Report(position=("e0", 3), sent=7.0))
        await until(lambda: receiver.requests)
        content = json.loads(receiver.requests[0].body)
        assert content["type"] == "reset" and content["data"]["since"] == 7.0
        await other.stop()

    run(body)


def test_too_many_events_wait_in_the_hub(
    receiver: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier, "MOST_WAITING", 3)
    works = threading.Event()
    receiver.respond = lambda _request: Answer(200 if works.is_set() else 500)

    async def body() -> None:
        master = EventMaster()
        one = await begun(master, receiver)
        for number in range(1, 11):
            master.add(id=number, status="success")
            await asyncio.sleep(0)
        await until(lambda: one.waiting >= 3)
        works.set()
        await until(lambda: one.report.position == ("e1", 10))
        assert list(dict.fromkeys(ids(receiver))) == [f"evt_e1-{n}" for n in range(1, 11)]
        await one.stop()

    run(body)


def test_ten_thousand_events_cost_a_bounded_memory() -> None:
    accepted: list[str] = []
    most = 0

    async def post(_rule: Rule, message: Message) -> Outcome:
        accepted.append(message.id)
        await asyncio.sleep(0)
        return Outcome(200)

    async def body() -> None:
        nonlocal most
        master = EventMaster()
        hub = Hub(master)
        one = Courier(rule_for("https://r.example.com/"), hub, post, times=FAST)
        one.start()
        await until(lambda: hub._listeners == 1)
        for number in range(1, 10_001):
            master.add(id=number, status="success")
            if number % 500 == 0:
                most = max(most, one.waiting)
                await until(lambda: hub._last == len(master.events))
        await until(lambda: one.report.position == ("e1", 10_000))
        assert most < 2 * courier.MOST_WAITING
        # Each event arrived, in order.
        assert accepted == [f"evt_e1-{number}" for number in range(1, 10_001)]
        await one.stop()

    run(body)


def test_certificates_and_addresses_are_checked(receiver: WebServer) -> None:
    message = Message("test_1", "test", {}, "info", 1.0)

    async def body() -> None:
        rule = rule_for(f"{receiver.url}/very-secret")
        untrusted = await Poster(lambda: "", lambda _address: True).post(rule, message)
        assert untrusted.status is None and "certificate" in untrusted.problem
        refused = await Poster(lambda: "", addresses.allowed, ca_file=receiver.ca_file).post(
            rule, message
        )
        assert "not allowed" in refused.problem and not receiver.requests
        assert "very-secret" not in untrusted.problem + refused.problem

    run(body)


def test_a_slow_receiver_is_not_waited_for(receiver: WebServer) -> None:
    released = threading.Event()

    def wait(_request: Request) -> Answer:
        released.wait(60)
        return Answer(200)

    receiver.respond = wait

    async def body() -> None:
        outcome = await poster(receiver, request_s=0.3).post(
            rule_for(receiver.url), Message("test_1", "test", {}, "info", 1.0)
        )
        assert outcome.status is None and outcome.problem
        released.set()

    run(body)


@pytest.mark.parametrize(
    ("value", "pause_s"),
    [("7", 7.0), ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0), ("soon", 0.0), ("", 0.0), ("-1", 0.0)],
)
def test_the_receiver_may_ask_for_a_pause(value: str, pause_s: float) -> None:
    answer = web.Answer(503, (("retry-after", value),), b"")
    assert judge(answer, 10.0).pause_s == pause_s


# -- all rules -------------------------------------------------------------------------------------


def test_rules_come_and_go_while_the_daemon_runs(receiver: WebServer) -> None:
    async def body() -> None:
        master = RuleMaster()
        hub = Hub(master)
        all_rules = Webhooks(master, hub, poster(receiver).post, times=FAST, pace=PACE)
        all_rules.start()
        rule = rule_for(receiver.url)
        await all_rules.add(rule)
        with pytest.raises(errors.OpPrereqError, match="there is a webhook chat"):
            await all_rules.add(rule)
        await until(lambda: hub._listeners == 1)
        master.add(id=1, status="success")
        await until(lambda: all_rules._couriers["chat"].report.sent)
        await until(lambda: (rules.STATE_KIND, "chat") in master.records)
        ((listed, report, waiting),) = await all_rules.listed()
        assert listed == rule and waiting == 0 and report.sent
        assert (await all_rules.test("chat")).status == 204
        assert types(receiver)[-1] == "test"
        await all_rules.remove("chat")
        await until(lambda: hub._listeners == 0)
        assert not master.records
        with pytest.raises(errors.OpPrereqError, match="no webhook chat"):
            await all_rules.remove("chat")
        await all_rules.stop()

    run(body)


def test_positions_survive_the_daemon(receiver: WebServer) -> None:
    async def body() -> None:
        master = RuleMaster()
        record = rule_for(receiver.url).record()
        master.records[rules.KIND, "chat"] = record
        pace = PACE._replace(save_s=3600.0)
        hub = Hub(master)
        first = Webhooks(master, hub, poster(receiver).post, times=FAST, pace=pace)
        first.start()
        await until(lambda: hub._listeners == 1)
        # Where a new rule begins is noted at once.
        await until(lambda: master.commits == 1)
        master.add(id=1, status="success")
        await until(lambda: first._couriers["chat"].report.sent)
        assert master.commits == 1
        await first.stop()
        assert master.commits == 2
        master.add(id=2, status="success")
        other = Webhooks(master, Hub(master), poster(receiver).post, times=FAST, pace=pace)
        other.start()
        await until(lambda: "evt_e1-2" in ids(receiver))
        # Nothing is said to be missing, and at most the last event is repeated.
        assert set(types(receiver)) == {"job"}
        # A killed daemon repeats what it had no time to note, with the same ids.
        assert other._task is not None
        other._task.cancel()
        await other._stop_couriers()
        receiver.requests.clear()
        third = Webhooks(master, Hub(master), poster(receiver).post, times=FAST, pace=pace)
        third.start()
        await until(lambda: "evt_e1-2" in ids(receiver))
        assert set(types(receiver)) == {"job"}
        await third.stop()

    run(body)


def test_another_rule_of_the_same_name_begins_now(receiver: WebServer) -> None:
    async def body() -> None:
        master = RuleMaster()
        master.add(id=1, status="success")
        rule = rule_for(receiver.url)
        master.records[rules.KIND, "chat"] = rule.record()
        master.records[rules.STATE_KIND, "chat"] = {
            "kind": rules.STATE_KIND,
            "key": "chat",
            "data": {"made": 1.0, "position": "e1-0", "disabled": "gone"},
        }
        hub = Hub(master)
        all_rules = Webhooks(master, hub, poster(receiver).post, times=FAST, pace=PACE)
        all_rules.start()
        await until(lambda: hub._listeners == 1)
        master.add(id=2, status="success")
        await until(lambda: receiver.requests)
        assert ids(receiver) == ["evt_e1-2"]
        await all_rules.stop()

    run(body)


def test_a_failure_is_noted_at_once_and_a_master_that_goes_stops_nothing(
    receiver: WebServer,
) -> None:
    receiver.respond = lambda _request: Answer(500)

    async def body() -> None:
        master = RuleMaster()
        master.records[rules.KIND, "chat"] = rule_for(receiver.url).record()
        hub = Hub(master)
        pace = PACE._replace(save_s=3600.0)
        all_rules = Webhooks(master, hub, poster(receiver).post, times=FAST, pace=pace)
        all_rules.start()
        await until(lambda: hub._listeners == 1)
        master.add(id=1, status="success")
        state = (rules.STATE_KIND, "chat")
        await until(lambda: state in master.records and master.records[state]["data"]["problem"])
        data = master.records[state]["data"]
        assert data["failing_since"] and "500" in data["problem"]
        master.fail = True
        master.changed.set()
        receiver.respond = lambda _request: Answer(200)
        await until(lambda: all_rules._couriers["chat"].report.sent)
        await all_rules.stop()

    run(body)


def test_without_a_master_for_long_nothing_is_sent(receiver: WebServer) -> None:
    async def body() -> None:
        master = RuleMaster()
        master.records[rules.KIND, "chat"] = rule_for(receiver.url).record()
        pace = PACE._replace(without_master_s=0.0)
        all_rules = Webhooks(master, Hub(master), poster(receiver).post, times=FAST, pace=pace)
        all_rules.start()
        await until(lambda: all_rules._couriers)
        master.fail = True
        await until(lambda: not all_rules._couriers)
        master.fail = False
        await until(lambda: all_rules._couriers)
        await all_rules.stop()

    run(body)


def test_a_courier_with_an_error_is_begun_again(receiver: WebServer) -> None:
    async def body() -> None:
        master = RuleMaster()
        master.records[rules.KIND, "chat"] = rule_for(receiver.url).record()
        calls = 0
        good = poster(receiver).post

        async def post(rule: Rule, message: Message) -> Outcome:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise RuntimeError("a defect")
            return await good(rule, message)

        hub = Hub(master)
        all_rules = Webhooks(master, hub, post, times=FAST, pace=PACE)
        all_rules.start()
        await until(lambda: hub._listeners == 1)
        master.add(id=1, status="success")
        await until(lambda: receiver.requests)
        assert "evt_e1-1" in ids(receiver)
        await all_rules.stop()

    run(body)


def test_there_is_a_limit_for_rules(receiver: WebServer) -> None:
    async def body() -> None:
        master = RuleMaster()
        for number in range(rules.MOST_RULES):
            rule = rules.make(f"r{number}", receiver.url, {}, owner="root", made=1.0)
            master.records[rules.KIND, rule.name] = rule.record()
        all_rules = Webhooks(master, Hub(master), poster(receiver).post)
        with pytest.raises(errors.OpPrereqError, match="the limit"):
            await all_rules.add(rule_for(receiver.url))

    run(body)
