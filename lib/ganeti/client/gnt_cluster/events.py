"""The command ``gnt-cluster events``: what happened to jobs and instances, also as it happens.

The master keeps its last events in memory (:mod:`ganeti.master.events`), so the command costs no
job and no question to a node.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from ganeti import TYPE_CHECKING
from ganeti.cli import failures, jobs, listing, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Option, Values

if TYPE_CHECKING:
    from typing import Any

_WAIT_S = 60
_KINDS = ("job", "instance")


def events(values: Values, arguments: list[str]) -> int:
    """Show the last events, or with ``--follow`` the next ones until Ctrl-C (``events``)."""
    client = jobs.connect()
    # Instances which start or stop by themselves are noticed when the master looks at them.
    answer = client.wait_for_events(None, 0)
    place = [answer["epoch"], answer["last"]]
    if not values.follow:
        for event in client.wait_for_events([place[0], 0], 0)["events"]:
            _show(event, values)
        return failures.EXIT_SUCCESS
    try:
        while True:
            answer = client.wait_for_events(place, _WAIT_S)
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


def _show(event: tuple[int, str, Mapping[str, Any]], values: Values) -> None:
    number, kind, data = event
    if values.kind is not None and kind != values.kind:
        return
    if values.output_format == "json":
        from ganeti.wire import json

        # One line for each event, so that a program can read while the command goes on.
        terminal.out_data(json.dumps({"number": number, "kind": kind, **data}))
    else:
        terminal.out(
            f"{listing.format_time(data.get('timestamp', time.time()))} {line(kind, data)}"
        )


def line(kind: str, data: Mapping[str, Any]) -> str:
    """Describe an event for people."""
    if kind == "job":
        return f"job {data['id']} {data['status']}: {', '.join(data['summary'])}"
    name = f"instance {data['name']}"
    if data["change"] == "removed":
        return f"{name} removed"
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
        Option("--kind", choices=_KINDS, help="only events of jobs, or of instances"),
        Option(
            "--output",
            dest="output_format",
            choices=("json", "table"),
            help="json: an object in each line, for programs; table: lines for users (the default)",
        ),
    ],
    "Show what happened to jobs and instances, also as it happens",
)
