"""The rules by which events are sent to servers that wait for them."""

from __future__ import annotations

import time
from typing import Any, Final, TypedDict

from ganeti import ht
from ganeti.rapi import declare, typed
from ganeti.rapi.call import Call
from ganeti.rapi.declare import DELETE, GET, POST, DirectChange, Field, Read, Resource, Result
from ganeti.rapi.webhooks import rules
from ganeti.rapi.webhooks.courier import Report
from ganeti.rapi.webhooks.rules import Rule

_PATH: Final = "/2/webhooks"
_SEVERITY: Final = ht.OneOf("severity", rules.SEVERITIES)
_WORDS: Final = ht.ListOf(ht.NonEmptyString)


class _Webhook(TypedDict):
    name: str
    receiver: str
    kind: list[str]
    match: list[str]
    tag: list[str]
    severity: str
    owner: str
    ctime: float
    sent: float | None
    failing_since: float | None
    problem: str
    disabled: str
    lost: int
    waiting: int


class _Added(TypedDict):
    name: str
    secret: str


class _Tested(TypedDict):
    accepted: bool
    status: int | None
    problem: str
    duration: float


async def _list(call: Call) -> Any:
    return [_shown(*one) for one in await call.state.webhooks.listed()]


def _shown(rule: Rule, report: Report, waiting: int) -> dict[str, Any]:
    found = {**rule.shown(), **report._asdict(), "waiting": waiting}
    del found["position"]
    return found


async def _add(call: Call) -> Any:
    given = call.body
    rule = rules.make(
        given["name"],
        given["url"],
        given,
        owner=call.user or "-",
        made=time.time(),
        secret=given.get("secret") or "",
    )
    await call.state.webhooks.add(rule)
    return {"name": rule.name, "secret": rule.secret}


async def _remove(call: Call) -> None:
    await call.state.webhooks.remove(call.uri["webhook_name"])


async def _test(call: Call) -> Any:
    begin = time.monotonic()
    outcome = await call.state.webhooks.test(call.uri["webhook_name"])
    return {
        "accepted": not outcome.problem,
        "status": outcome.status,
        "problem": outcome.problem,
        "duration": round(time.monotonic() - begin, 3),
    }


RESOURCES: Final = (
    Resource(
        _PATH,
        "webhooks",
        {
            GET: Read(
                _list,
                "List the webhooks, and how their deliveries are. The path of a URL is not shown,"
                " because it may be a secret.",
                Result(ht.ListOf(typed.of(_Webhook)), "the webhooks"),
                access=declare.READERS,
            ),
            POST: DirectChange(
                _add,
                "Add a webhook: send the chosen events to a URL, from now on.",
                Result(
                    typed.of(_Added),
                    "the secret with which the receiver checks the signatures; it is shown once",
                ),
                fields={
                    "name": Field(
                        ht.NonEmptyString, "name: letters, digits, '-' and '_'", required=True
                    ),
                    "url": Field(ht.NonEmptyString, "URL of the receiver, https", required=True),
                    "kind": Field(
                        _WORDS,
                        "kinds of events, or * for all; all but log and progress without it",
                    ),
                    "match": Field(
                        _WORDS,
                        "only events of objects with these names, and of jobs which name such an"
                        " object; with * and ?",
                    ),
                    "tag": Field(_WORDS, "only events of objects with one of these tags"),
                    "severity": Field(
                        _SEVERITY,
                        "only events which are at least so severe",
                    ),
                    "secret": Field(
                        ht.NonEmptyString,
                        "secret for the signatures, in the form of Standard Webhooks; a new one"
                        " without it",
                    ),
                },
                secret=True,
            ),
        },
    ),
    Resource(
        f"{_PATH}/{{webhook_name}}",
        "webhooks_name",
        {
            DELETE: DirectChange(
                _remove,
                "Remove a webhook. What waits is not sent any more.",
                Result(ht.NoneType, "null"),
            ),
        },
    ),
    Resource(
        f"{_PATH}/{{webhook_name}}/test",
        "webhooks_name_test",
        {
            POST: DirectChange(
                _test,
                "Send a message of the type test to the receiver of a webhook, now and once.",
                Result(typed.of(_Tested), "what the receiver answered, and after how many seconds"),
                waits=True,
            ),
        },
    ),
)
