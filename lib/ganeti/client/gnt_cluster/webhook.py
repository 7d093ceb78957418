"""The command ``gnt-cluster webhook``: the rules by which events are sent to servers."""

from __future__ import annotations

import time

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, listing, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Values
from ganeti.constants import events as const

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ganeti.luxi.client import Client

_OWNER = "root"
_USAGE = {
    "add": "'webhook add' needs a name and the URL of the receiver",
    "list": "'webhook list' takes no name",
    "remove": "'webhook remove' needs the name of a webhook",
}
_NUMBERS = {"add": 3, "list": 1, "remove": 2}


def webhook(values: Values, arguments: list[str]) -> int:
    """Add, list or remove webhooks (``webhook``).

    :raises OpPrereqError: unknown or missing argument, or the rule is not possible.
    """
    word = arguments[0]
    if word not in _NUMBERS:
        raise errors.OpPrereqError(
            f"unknown argument '{word}'. Known are: {', '.join(_NUMBERS)}.", errors.ECODE_INVAL
        )
    if len(arguments) != _NUMBERS[word]:
        raise errors.OpPrereqError(_USAGE[word], errors.ECODE_INVAL)
    chosen = values.kind or values.match or values.tag or values.severity
    if chosen and word != "add":
        raise errors.OpPrereqError(
            f"'webhook {word}' takes no choice of events", errors.ECODE_INVAL
        )
    run: Callable[[Client, Values, list[str]], None] = {
        "add": _add, "list": _list, "remove": _remove
    }[word]  # fmt: skip
    run(jobs.connect(), values, arguments[1:])
    return failures.EXIT_SUCCESS


def _add(client: Client, values: Values, arguments: list[str]) -> None:
    from ganeti.rapi.webhooks import rules

    name, url = arguments
    given = {
        "kind": values.kind,
        "match": values.match,
        "tag": values.tag,
        "severity": values.severity,
    }
    try:
        rule = rules.make(name, url, given, owner=_OWNER, made=time.time())
    except errors.ParameterError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
    rules.check_new(set(_records(client, rules.KIND)), name)
    client.change_access_records([["put", rule.record()]])
    terminal.out(f"Webhook {name} was added. The receiver checks signatures with this secret,")
    terminal.out("which is not shown again:")
    terminal.out_data(rule.secret)


def _remove(client: Client, _values: Values, arguments: list[str]) -> None:
    from ganeti.rapi.webhooks import rules

    (name,) = arguments
    if name not in _records(client, rules.KIND):
        raise rules.unknown(name)
    client.change_access_records([["remove", rules.KIND, name], ["remove", rules.STATE_KIND, name]])
    terminal.out(f"Webhook {name} was removed; what waits for it is not sent.")


def _list(client: Client, values: Values, _arguments: list[str]) -> None:
    from ganeti.rapi.webhooks import rules

    states = _records(client, rules.STATE_KIND)
    found = []
    for name, record in sorted(_records(client, rules.KIND).items()):
        rule = rules.of_record(record)
        data = states.get(name, {}).get("data", {})
        state = data if data.get("made") == rule.made else {}
        found.append(
            {
                **rule.shown(),
                **{key: state.get(key) for key in ("sent", "failing_since")},
                **{key: state.get(key) or "" for key in ("problem", "disabled")},
                "lost": state.get("lost") or 0,
            }
        )
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(found, values.output_format)
        return
    if not found:
        terminal.out("There are no webhooks.")
    for one in found:
        terminal.out(_line(one))


def _line(one: Mapping[str, Any]) -> str:
    """Describe a webhook for people."""
    if one["disabled"]:
        how = f"nothing is sent any more: {one['disabled']}"
    elif one["failing_since"]:
        how = f"fails since {listing.format_time(one['failing_since'])}: {one['problem']}"
    elif one["sent"]:
        how = f"last message {listing.format_time(one['sent'])}"
    else:
        how = "no message yet"
    lost = f", {one['lost']} events were given up" if one["lost"] else ""
    return f"{one['name']} to {one['receiver']}: {how}{lost}"


def _records(client: Client, kind: str) -> dict[str, Any]:
    return {one["key"]: one for one in client.query_access_records(kind)["records"]}


WEBHOOK = Command(
    "webhook",
    webhook,
    [
        Argument("choice", 1, 1, ("add", "list", "remove")),
        Argument("unknown", 0, 2),
    ],
    [
        Option(
            "--kind",
            action="append",
            choices=(*const.KINDS, "*"),
            help="send events of this kind; may be given several times; without it, all but log and"
            " progress",
        ),
        Option(
            "--match",
            kind="string",
            action="append",
            metavar="NAME",
            help="only events of objects with this name, which may have * and ?; may be given"
            " several times",
        ),
        Option(
            "--tag",
            kind="string",
            action="append",
            metavar="TAG",
            help="only events of objects with this tag; may be given several times",
        ),
        Option(
            "--severity",
            choices=("info", "warning", "error"),
            help="only events which are at least so severe",
        ),
        opt.OUTPUT_FORMAT,
    ],
    "Send events of the cluster to servers: add, list or remove the rules",
    usage="{[<options>] add <name> <url>|[<options>] list|remove <name>}",
)
