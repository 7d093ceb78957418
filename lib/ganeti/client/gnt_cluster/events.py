"""The command ``gnt-cluster events``: what happened to jobs and objects, also as it happens.

The master keeps its last events in memory (:mod:`ganeti.master.events`), so the command costs no
job and no question to a node.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ganeti import TYPE_CHECKING
from ganeti.cli import failures, jobs, listing, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Option, Values
from ganeti.constants import events as const

if TYPE_CHECKING:
    from typing import Any

_WAIT_S = 60


def events(values: Values, arguments: list[str]) -> int:
    """Show the last events, or with ``--follow`` the next ones until Ctrl-C (``events``)."""
    client = jobs.connect()
    wanted = None
    if values.kind and not const.DEFAULT_KINDS.issuperset(values.kind):
        wanted = sorted(set(values.kind))
    # Instances which start or stop by themselves are noticed when the master looks at them.
    answer = client.wait_for_events(None, 0, wanted)
    place = [answer["epoch"], answer["last"]]
    if not values.follow:
        for event in client.wait_for_events([place[0], 0], 0, wanted)["events"]:
            _show(event, values)
        return failures.EXIT_SUCCESS
    try:
        while True:
            answer = client.wait_for_events(place, _WAIT_S, wanted)
            if answer["lost"]:
                terminal.err(
                    "Warning: events are missing here: the master daemon was restarted, or there"
                    " were too many of them at once"
                )
            for event in answer["events"]:
                _show(event, values)
            place = [answer["epoch"], answer["last"]]
    except KeyboardInterrupt:
        return failures.EXIT_SUCCESS


def _show(event: Sequence[Any], values: Values) -> None:
    number, kind, data, *about = event
    if values.kind and kind not in values.kind:
        return
    if values.output_format == "json":
        from ganeti.wire import json

        # One line for each event, so that a program can read while the command goes on.
        terminal.out_data(
            json.dumps({"number": number, "kind": kind, **data, **(about[0] if about else {})})
        )
    else:
        terminal.out(
            f"{listing.format_time(data.get('timestamp', time.time()))}"
            f" {line(kind, data, about[0] if about else {})}"
        )


def line(kind: str, data: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """Describe an event for people.

    :param about: what the master knows about it besides, if it was asked.
    """
    if kind == const.JOB:
        return f"job {data['id']} {data['status']}: {', '.join(data['summary'])}"
    if kind == const.LOG:
        text = data["message"] if isinstance(data["message"], str) else f"({data['type']})"
        return f"job {data['id']}: {text}"
    if kind == const.PROGRESS:
        percent = "" if data["percent"] is None else f", {data['percent']:g} %"
        now = f": {data['operation']}" if data["operation"] else ""
        return f"job {data['id']}: {data['done']} of {data['total']} steps{now}{percent}"
    if kind == const.FINDING:
        what = " ".join(word for word in (data["object"], data["name"]) if word)
        return f"finding {data['change']}: {data['severity']}: {what}: {data['text']}"
    name = f"{kind} {data['name']}"
    if data["change"] == "removed":
        return f"{name} removed"
    if kind != const.INSTANCE:
        members = ", ".join(about.get("members", ()))
        return f"{name} {data['change']}{': ' if members else ''}{members}"
    where = f" on {data['primary_node']}" if data["primary_node"] else ""
    if data["change"] == "state":
        return f"{name} is {data['status']}{where}"
    return f"{name} {data['change']}: wanted state {data['admin_state']}{where}"


EVENTS = Command(
    "events",
    events,
    [],
    [
        opt.flag("-f", "--follow", help="show events as they happen, until Ctrl-C"),
        Option(
            "--kind",
            action="append",
            choices=const.KINDS,
            help="only events of this kind; may be given several times; without it, events of jobs"
            " and of instances",
        ),
        Option(
            "--output",
            dest="output_format",
            choices=("json", "table"),
            help="json: an object in each line, for programs; table: lines for users (the default)",
        ),
    ],
    "Show what happened to jobs, instances and other objects, also as it happens",
)
