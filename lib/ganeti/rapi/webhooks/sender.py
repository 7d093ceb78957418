"""Follows the rules, and has a courier for each.

It runs in the REST daemon, and works where that daemon reaches the master daemon, so on the master
only. Threads of the master daemon wait for no receiver. How the deliveries are is kept in access
records, in one commit for all rules: at most once in :attr:`Pace.save_s` while events are sent, a
few seconds after a rule begins or ceases to fail, and at the end. After a restart of this daemon,
or on another master, the couriers go on from there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.rapi.events import Hub
from ganeti.rapi.master import Master
from ganeti.rapi.webhooks import courier, rules
from ganeti.rapi.webhooks.courier import Courier, Outcome, Post, Report, Times
from ganeti.rapi.webhooks.message import Message
from ganeti.rapi.webhooks.rules import Rule

_log = logging.getLogger(__name__)

_OWNER: Final = "webhooks"
_STOP_S: Final = 2.0


class Pace(NamedTuple):
    """How often the master is asked, in seconds.

    :ivar refresh_s: for the rules, which commands on the master change without this daemon.
    :ivar save_s: between two commits of positions.
    :ivar without_master_s: the couriers end when the master has not answered for this long; it may
        have moved, and another daemon sends the events.
    """

    refresh_s: float = 5.0
    save_s: float = 60.0
    without_master_s: float = 600.0


_PACE: Final = Pace()


async def _post_nothing(_rule: Rule, _message: Message) -> Outcome:
    return Outcome(None, "this daemon sends no webhooks")


class Webhooks:
    """All rules and their couriers.

    :ivar hub: the source of events.
    """

    def __init__(
        self,
        master: Master,
        hub: Hub,
        post: Post = _post_nothing,
        *,
        times: Times = courier.TIMES,
        pace: Pace = _PACE,
    ) -> None:
        self._master = master
        self.hub = hub
        self._post = post
        self._times = times
        self._pace = pace
        self._couriers: dict[str, Courier] = {}
        self._serial: int | None = None
        self._saved: dict[str, tuple[float, Report]] = {}
        self._wake = asyncio.Event()
        self._urgent = False
        self._saved_at = self._answered_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow the rules."""
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Stop to send, and save the positions if the master answers in time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        reports = await self._stop_couriers()
        try:
            async with asyncio.timeout(_STOP_S):
                await self._save(reports)
        except (errors.GenericError, TimeoutError) as err:
            _log.info("cannot save the positions of webhooks: %s", err)

    async def listed(self) -> list[tuple[Rule, Report, int]]:
        """Return the rules as they are now, with their deliveries and the number that waits."""
        found = []
        for rule in await self._rules():
            sent = self._couriers.get(rule.name)
            if sent is not None and sent.rule.made == rule.made:
                found.append((rule, sent.report, sent.waiting))
            else:
                found.append((rule, courier.NEW, 0))
        return found

    async def add(self, rule: Rule) -> None:
        """Add a rule.

        :raises errors.OpPrereqError: there is one with this name, or there are too many.
        """
        rules.check_new({one.name for one in await self._rules()}, rule.name)
        await self._change(["put", rule.record()])

    async def remove(self, name: str) -> None:
        """Remove a rule.

        :raises errors.OpPrereqError: there is none with this name.
        """
        await self._one(name)
        await self._change(["remove", rules.KIND, name], ["remove", rules.STATE_KIND, name])

    async def test(self, name: str) -> Outcome:
        """Send a test message by a rule.

        :raises errors.OpPrereqError: there is none with this name.
        """
        return await Courier(await self._one(name), self.hub, self._post).test()

    async def _one(self, name: str) -> Rule:
        for rule in await self._rules():
            if rule.name == name:
                return rule
        raise rules.unknown(name)

    # -- following the rules -----------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._refresh()
                due = time.monotonic() >= self._saved_at + self._pace.save_s
                if due or self._urgent:
                    await self._save(self._reports())
            except errors.GenericError as err:
                _log.debug("cannot ask the master for webhooks: %s", err)
                if time.monotonic() > self._answered_at + self._pace.without_master_s:
                    await self._stop_couriers()
                    self._serial = None
            try:
                async with asyncio.timeout(self._pace.refresh_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _refresh(self) -> None:
        answer = await self._master.call("QueryAccessRecords", rules.KIND, self._serial)
        self._answered_at = time.monotonic()
        self._serial = answer["serial"]
        if answer["records"] is not None:
            found = _rules_of(answer)
            present = {rule.name: rule for rule in found}
            for name, sent in list(self._couriers.items()):
                if present.get(name) != sent.rule:
                    del self._couriers[name]
                    await sent.stop()
            new = [rule for rule in found if rule.name not in self._couriers]
            if new:
                await self._begin(new)
        for name, sent in list(self._couriers.items()):
            failure = sent.failure()
            if failure is not None:
                _log.error("webhook %s is begun again after an error", name, exc_info=failure)
                await sent.stop()
                self._start(sent.rule, sent.report)

    async def _begin(self, new: Sequence[Rule]) -> None:
        answer = await self._master.call("QueryAccessRecords", rules.STATE_KIND, None)
        states = {record["key"]: record["data"] for record in answer["records"]}
        for rule in new:
            data = states.get(rule.name, {})
            known = data.get("made") == rule.made
            self._start(rule, courier.report_of(data) if known else courier.NEW)

    def _start(self, rule: Rule, report: Report) -> None:
        self._saved[rule.name] = rule.made, report
        sent = Courier(
            rule, self.hub, self._post, report, times=self._times, changed=self._note_change
        )
        self._couriers[rule.name] = sent
        sent.start()

    def _note_change(self) -> None:
        self._urgent = True

    async def _stop_couriers(self) -> dict[str, tuple[float, Report]]:
        couriers, self._couriers = self._couriers, {}
        for sent in couriers.values():
            await sent.stop()
        return {name: (sent.rule.made, sent.report) for name, sent in couriers.items()}

    async def _rules(self) -> list[Rule]:
        return _rules_of(await self._master.call("QueryAccessRecords", rules.KIND, None))

    # -- keeping states ----------------------------------------------------------------------------

    def _reports(self) -> dict[str, tuple[float, Report]]:
        return {name: (sent.rule.made, sent.report) for name, sent in self._couriers.items()}

    async def _save(self, reports: dict[str, tuple[float, Report]]) -> None:
        self._saved_at = time.monotonic()
        self._urgent = False
        changes = [
            ["put", _state(name, made, report)]
            for name, (made, report) in reports.items()
            if self._saved.get(name) != (made, report)
        ]
        if changes:
            await self._master.call("ChangeAccessRecords", changes)
            self._saved.update(reports)

    async def _change(self, *changes: list[Any]) -> None:
        await self._master.call("ChangeAccessRecords", list(changes))
        self._wake.set()


def _rules_of(answer: dict[str, Any]) -> list[Rule]:
    found = []
    for record in answer["records"]:
        try:
            found.append(rules.of_record(record))
        except errors.ParameterError as err:
            _log.warning("a webhook is left out: %s", err)
    return sorted(found, key=lambda rule: rule.name)


def _state(name: str, made: float, report: Report) -> dict[str, Any]:
    return {
        "kind": rules.STATE_KIND,
        "key": name,
        "owner": _OWNER,
        "ctime": made,
        "data": {"made": made, **courier.report_data(report)},
    }
