"""Collects what the cluster of a chaos run has left, for :mod:`.checker`."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from devel.chaos import shim
from devel.chaos.checker import Evidence, Interval, Job, Promise
from devel.chaos.lab import Lab
from devel.chaos.luxi import Luxi

_BEGAN: Final = re.compile(r"INFO job (\d+) begins with .+ \((\d+) of \d+\)$", re.MULTILINE)
_REFUSED: Final = re.compile(r"\bjob (\d+) is running on this instance or disk")
# What a job could not have for itself.
_LACKING: Final = re.compile(
    r"cannot (?:make|start|watch) [^\"]*process[^\"]*|Resource temporarily unavailable"
    r"|Cannot allocate memory|Too many open files|No space left on device"
)
_KINDS: Final = {"instances": "instance", "nodes": "node", "nodegroups": "nodegroup"}


def collect(lab: Lab, master: str) -> Evidence:
    """Collect everything, while the master serves.

    :raises OSError: the master does not answer.
    """
    config = lab.config(master)
    return Evidence(
        tags=tags_of(config),
        instances=frozenset(one["name"] for one in config["instances"].values()),
        jobs=read_jobs(lab, master),
        executions=count_executions(
            path.read_text(errors="replace")
            for node in lab.nodes
            for path in (lab.root(node) / "var/log/ganeti").glob("master-daemon.log*")
        ),
        scripts=parse_scripts(_text(lab.directory / "scripts.log")),
        guests=[_seen_now(lab, one) for one in parse_guests(_text(lab.directory / "guests.log"))],
        promises=parse_promises(_text(lab.directory / "promises.log")),
    )


def _seen_now(lab: Lab, guest: Interval) -> Interval:
    """Return the runs of guests whose files are still there; they have run until now."""
    if guest.ended is not None or not lab.guest_runs(guest.where, guest.subject):
        return guest
    return dataclasses.replace(guest, ended=time.monotonic())


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def tags_of(config: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the tags of each object of a configuration, by ``kind/name``."""
    found = {"cluster/": frozenset(config["cluster"].get("tags", ()))}
    for place, kind in _KINDS.items():
        for one in config[place].values():
            found[f"{kind}/{one['name']}"] = frozenset(one.get("tags", ()))
    return found


def read_jobs(lab: Lab, master: str) -> dict[int, Job]:
    """Ask the master for all jobs, also those in the archive.

    :raises OSError: the master does not answer.
    """
    with Luxi(lab.socket(master)) as luxi:
        answer = luxi.call("Query", "job", ["id", "status", "ops", "opresult", "archived"], None)
    found = {}
    for row in answer["data"]:
        number, status, ops, results, _archived = (value for _state, value in row)
        text = json.dumps(results)
        refused = _REFUSED.search(text)
        token = (ops[0].get("comment") or "") if ops else ""
        lacking = _LACKING.search(text)
        found[number] = Job(
            number, token, status, int(refused[1]) if refused else None,
            lacking[0] if lacking else "",
        )  # fmt: skip
    return found


def count_executions(logs: Iterable[str]) -> Counter[tuple[int, int]]:
    """Count how often each opcode of each job began, by the logs of all master daemons."""
    return Counter((int(job), int(place)) for text in logs for job, place in _BEGAN.findall(text))


def parse_scripts(text: str) -> list[Interval]:
    """Read the log of the OS scripts: ``time instance token begun|ended``."""
    return _intervals(
        (float(words[0]), words[1], words[2], words[3]) for words in map(str.split, _lines(text))
    )


def parse_guests(text: str) -> list[Interval]:
    """Read the log of the guests: ``time node instance begun|ended``."""
    return _intervals(
        (float(words[0]), words[2], words[1], words[3]) for words in map(str.split, _lines(text))
    )


def parse_promises(text: str) -> dict[str, list[Promise | None]]:
    """Read the log of the promises; a line with a node only says that it may have forgotten."""
    found: dict[str, list[Promise | None]] = defaultdict(list)
    for line in _lines(text):
        node, _, rest = line.partition(" ")
        words = [_epoch(one) for one in rest.split(" | ")] if rest else []
        found[node].append(Promise(*words) if len(words) == 3 else None)
    return found


def promise_of(state: str) -> Promise:
    """Read a file ``master_state``."""
    (promise,) = parse_promises(f"node {shim.promise_line(state)}\n")["node"]
    assert promise is not None
    return promise


def _lines(text: str) -> list[str]:
    # A process that was killed while it wrote may have left a part of a line.
    whole = text[: text.rfind("\n") + 1]
    return [line for line in whole.splitlines() if line.strip()]


def _epoch(text: str) -> tuple[int, str]:
    number, _, owner = text.strip().partition(" ")
    return int(number or 0), owner


def _intervals(events: Iterable[tuple[float, str, str, str]]) -> list[Interval]:
    """Pair begins with ends: ``(time, subject, where, what)``."""
    found: list[Interval] = []
    open_since: dict[tuple[str, str], list[float]] = defaultdict(list)
    for when, subject, where, what in sorted(events):
        if what == "begun":
            open_since[subject, where].append(when)
        elif open_since[subject, where]:
            found.append(Interval(subject, where, open_since[subject, where].pop(), when))
    found += [
        Interval(subject, where, begun, None)
        for (subject, where), some in open_since.items()
        for begun in some
    ]
    return sorted(found, key=lambda one: one.begun)
