"""The courier of one rule: takes events from the hub, and sends them in order.

An event which the receiver does not accept is sent again, after pauses that grow, and the events
after it wait. What waits is limited: :data:`MOST_WAITING` events here, the last ones in the hub,
and for each of them a time. When events could not be sent, the receiver gets a message ``reset``,
which says why and how many, in their place: it has to look at the objects again.

The position of a courier is the last event which the receiver has accepted. A courier that begins
there sends what the hub has after it; the master daemon has lost its events when it was restarted,
and the receiver gets a ``reset``. An event may be sent twice, with the same id; it is never left
out without a ``reset``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.http import web
from ganeti.rapi.events import Hub, Place, ident, parse_ident
from ganeti.rapi.webhooks import rules
from ganeti.rapi.webhooks.message import RESET, TEST, Message, headers
from ganeti.rapi.webhooks.rules import Rule
from ganeti.utils import text

_log = logging.getLogger(__name__)

#: Events of a rule which wait here at most; further ones wait in the hub.
MOST_WAITING: Final = 1000
_MOST_ANSWER_BYTES: Final = 64 * 1024
_WAIT_S: Final = 60.0
_GONE: Final = 410
_TRY_LATER: Final = (429, 503)
# The receiver says that it will never accept this body.
_REJECTED: Final = (400, 413, 422)
_MOST_REJECTIONS: Final = 5
_GAP: Final = (
    "events are missing, because the master daemon was restarted or there were too many of them;"
    " look at the objects again"
)


class Times(NamedTuple):
    """Limits, in seconds.

    :ivar request_s: for one attempt.
    :ivar first_s: the pause after the first failed attempt; it doubles with each further one.
    :ivar longest_s: the longest pause, also when the receiver asks for a longer one.
    :ivar age_s: after this time, an event is not sent any more.
    """

    request_s: float = 15.0
    first_s: float = 2.0
    longest_s: float = 300.0
    age_s: float = 86_400.0


class Outcome(NamedTuple):
    """What became of one attempt.

    :ivar status: of the answer; None when there was none.
    :ivar problem: why it counts as failed; empty for success.
    :ivar pause_s: the receiver wants no request for so long.
    """

    status: int | None
    problem: str = ""
    pause_s: float = 0.0


TIMES: Final = Times()

#: Sends one message to the receiver of a rule.
Post = Callable[[Rule, Message], Awaitable[Outcome]]


class Poster:
    """Sends messages.

    :param cluster: returns the name of the cluster.
    :param at_once: messages which are sent at the same time; other servers are asked by threads of
        the same pool.
    """

    def __init__(
        self,
        cluster: Callable[[], str],
        address_allowed: web.AddressAllowed,
        *,
        ca_file: str = "",
        request_s: float = TIMES.request_s,
        at_once: int = web.AT_ONCE // 2,
    ) -> None:
        self._cluster = cluster
        self._allowed = address_allowed
        self._ca_file = ca_file
        self._request_s = request_s
        self._slots = asyncio.Semaphore(at_once)

    async def post(self, rule: Rule, message: Message) -> Outcome:
        """Send a message once."""
        body = message.body(self._cluster())
        async with self._slots:
            try:
                answer = await web.request(
                    "POST",
                    rule.url,
                    headers=headers(rule.secret, message.id, time.time(), body),
                    body=body,
                    timeout_s=self._request_s,
                    most_bytes=_MOST_ANSWER_BYTES,
                    ca_file=self._ca_file,
                    address_allowed=self._allowed,
                )
            except web.WebError as err:
                return Outcome(None, str(err))
        return judge(answer, time.time())


def judge(answer: web.Answer, now: float) -> Outcome:
    """Return what the answer of a receiver means."""
    status = answer.status
    if 200 <= status < 300:
        return Outcome(status)
    problem = f"the receiver answered with status {status}"
    if 300 <= status < 400:
        problem += "; redirections are not followed, so give its final URL"
    pause_s = _retry_after(answer.header("retry-after"), now) if status in _TRY_LATER else 0.0
    return Outcome(status, problem, pause_s)


def _retry_after(value: str, now: float) -> float:
    if value.isascii() and value.isdigit():
        return float(value[:9])
    # The package is large, and nearly no receiver sends a date.
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        # No date, or one that is too far away.
        return 0.0


class Report(NamedTuple):
    """How the deliveries of a rule are.

    :ivar position: the last event which the receiver has accepted; None for none yet.
    :ivar sent: time of the last success.
    :ivar failing_since: time of the first failed attempt after it; None when all is well.
    :ivar problem: of the last failed attempt.
    :ivar disabled: why nothing is sent any more; empty if it is.
    :ivar lost: number of events which were not sent, as far as they could be counted.
    """

    position: Place | None = None
    sent: float | None = None
    failing_since: float | None = None
    problem: str = ""
    disabled: str = ""
    lost: int = 0


#: Nothing is known yet.
NEW: Final = Report()


class _Item(NamedTuple):
    message: Message
    place: Place


class Courier:
    """Sends the events of one rule.

    :param report: what is known from an earlier courier of this rule.
    :param changed: is called when something has changed that administrators want to know.
    :ivar report: how the deliveries are.
    """

    def __init__(
        self,
        rule: Rule,
        hub: Hub,
        post: Post,
        report: Report = NEW,
        *,
        times: Times = TIMES,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.rule = rule
        self.report = report
        self._hub = hub
        self._post = post
        self._times = times
        self._changed = changed
        self._waiting: deque[_Item] = deque()
        self._news = asyncio.Event()
        self._space = asyncio.Event()
        self._attempts = 0
        # Up to where all that the rule wants waits here, or was sent.
        self._seen = report.position
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to send."""
        if not self.report.disabled:
            self._tasks = [asyncio.create_task(work) for work in (self._collect(), self._deliver())]

    async def stop(self) -> None:
        """End at once; what was not accepted is sent by the next courier."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def waiting(self) -> int:
        """The number of messages which wait here."""
        return len(self._waiting)

    async def test(self) -> Outcome:
        """Send a message which says that it is a test, now and once."""
        data = {"webhook": self.rule.name}
        now = time.time()
        return await self._post(
            self.rule, Message(f"test_{text.new_uuid()}", TEST, data, rules.INFO, now)
        )

    # -- taking events -----------------------------------------------------------------------------

    async def _collect(self) -> None:
        wanted = self.rule.filter()
        begin = "" if self.report.position is None else ident(self.report.position)
        while not self._hub.closed:
            try:
                await self._hub.poll(wanted.kinds)
                break
            except errors.GenericError:
                # The master daemon is being restarted, for instance.
                await asyncio.sleep(self._times.first_s)
        place = self._seen = self._hub.join(begin, wanted.kinds)
        if self.report.position is None:
            self.report = self.report._replace(position=place)
            self._changed()
        try:
            while not self._hub.closed:
                found, place, is_gap = await self._hub.events(place, wanted, _WAIT_S)
                if is_gap:
                    self._add_reset(_GAP, place)
                for event in found:
                    at = (place[0], event.number)
                    severity = rules.severity_of(event)
                    when = event.data.get("timestamp") or time.time()
                    message = Message(
                        f"evt_{ident(at)}", event.kind, wanted.data(event), severity, when
                    )
                    self._waiting.append(_Item(message, at))
                self._seen = place
                if not self._waiting:
                    self.report = self.report._replace(position=place)
                self._news.set()
                while len(self._waiting) >= MOST_WAITING:
                    self._space.clear()
                    await self._space.wait()
        finally:
            self._hub.leave(wanted.kinds)

    def _add_reset(self, reason: str, place: Place, *, count: int | None = None) -> None:
        """Say in place of events that they are missing.

        :param count: how many; None for an unknown number, of events after all that wait here.
        """
        data = {"reason": reason, "count": count, "since": self.report.sent}
        message = Message(
            f"reset_{self.rule.name}_{ident(place)}", RESET, data, rules.WARNING, time.time()
        )
        _log.warning("webhook %s: %s", self.rule.name, reason)
        if count is None:
            self._waiting.append(_Item(message, place))
        else:
            self._waiting.appendleft(_Item(message, place))

    # -- sending -----------------------------------------------------------------------------------

    async def _deliver(self) -> None:
        while True:
            self._give_up_old()
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
                continue
            item = self._waiting[0]
            outcome = await self._post(self.rule, item.message)
            if not outcome.problem:
                self._accepted(item)
            elif outcome.status == _GONE:
                self._disable("the receiver answered with status 410 (gone)")
                return
            else:
                await self._failed(outcome)

    def _accepted(self, item: _Item) -> None:
        self._waiting.popleft()
        self._space.set()
        self._attempts = 0
        was_failing = self.report.failing_since is not None
        position = item.place if self._waiting else self._seen
        self.report = self.report._replace(
            position=position, sent=time.time(), failing_since=None, problem=""
        )
        if was_failing:
            _log.info("webhook %s: the receiver accepts messages again", self.rule.name)
            self._changed()

    async def _failed(self, outcome: Outcome) -> None:
        self._attempts += 1
        if self.report.failing_since is None:
            self.report = self.report._replace(failing_since=time.time(), problem=outcome.problem)
            _log.warning(
                "webhook %s: a message was not accepted, and will be sent again: %s",
                self.rule.name,
                outcome.problem,
            )
            self._changed()
        self.report = self.report._replace(problem=outcome.problem)
        if outcome.status in _REJECTED and self._attempts >= _MOST_REJECTIONS:
            if self._waiting[0].message.kind == RESET:
                # It would reject the next one, too.
                self._skip()
            else:
                self._give_up(1, f"the receiver has rejected an event: {outcome.problem}")
            return
        times = self._times
        pause_s = min(times.longest_s, times.first_s * 2.0 ** min(self._attempts - 1, 30))
        pause_s *= random.uniform(0.5, 1.0)  # noqa: S311 -- spreads the load, is no secret
        await asyncio.sleep(max(pause_s, min(outcome.pause_s, times.longest_s)))

    def _skip(self) -> None:
        item = self._waiting.popleft()
        self._space.set()
        self._attempts = 0
        self.report = self.report._replace(position=item.place)

    def _give_up_old(self) -> None:
        """Give up the events which have waited for too long."""
        limit = time.time() - self._times.age_s
        count = 0
        for item in self._waiting:
            if item.message.at > limit:
                break
            count += 1
        if count:
            hours = self._times.age_s / 3600
            self._give_up(count, f"the receiver has not accepted events for {hours:g} hours")

    def _give_up(self, count: int, why: str) -> None:
        """Put a ``reset`` in place of the first messages that wait."""
        given_up = [self._waiting.popleft() for _ in range(count)]
        self._space.set()
        self._attempts = 0
        lost = sum(
            item.message.data["count"] or 1 if item.message.kind == RESET else 1
            for item in given_up
        )
        events_lost = sum(item.message.kind != RESET for item in given_up)
        self.report = self.report._replace(lost=self.report.lost + events_lost)
        self._add_reset(f"{why}; events are missing", given_up[-1].place, count=lost)
        self._changed()

    def failure(self) -> BaseException | None:
        """Return the error which has ended a task; None while all work."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return next((err for task in ended if (err := task.exception()) is not None), None)

    def _disable(self, why: str) -> None:
        self.report = self.report._replace(disabled=why, problem=why)
        self._waiting.clear()
        _log.warning("webhook %s: nothing is sent any more: %s", self.rule.name, why)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._changed()


def report_of(data: dict[str, Any]) -> Report:
    """Read a report from the data of an access record; what is damaged counts as unknown."""
    try:
        return Report(
            parse_ident(data.get("position") or ""),
            data.get("sent"),
            data.get("failing_since"),
            str(data.get("problem") or ""),
            str(data.get("disabled") or ""),
            int(data.get("lost") or 0),
        )
    except (TypeError, ValueError, AttributeError):
        return NEW


def report_data(report: Report) -> dict[str, Any]:
    """Return the data of the access record for a report."""
    position = "" if report.position is None else ident(report.position)
    return {**report._asdict(), "position": position, "problem": report.problem[:500]}
