"""The state of the mirrored devices, from ``/proc/drbd``.

Source: Ganeti daemons design, *Monitoring daemon*; the DRBD users' guide, *Checking DRBD status*.
The keys are published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ganeti.mond import report
from ganeti.mond.report import Collector, CollectorError, Questions
from ganeti.utils import fs

PATH: Final = "/proc/drbd"

_VERSION: Final = re.compile(r"^version: (\S+) \(api:([^/)]+)/proto:([^)]+)\)", re.MULTILINE)
_GIT: Final = re.compile(r"^GIT-hash: (\S+) build by (.+)$", re.MULTILINE)
_SOURCE: Final = re.compile(r"^srcversion: (\S+)", re.MULTILINE)
_DEVICE: Final = re.compile(r"^\s*(\d{1,20}): cs:(\w+)(.*)$")
_STATES: Final = re.compile(r"\s(?:ro|st):(\w+)/(\w+) ds:(\w+)/(\w+) (.) ([\w-]+)")
_COUNTER: Final = re.compile(r"\b(ns|nr|dw|dr|al|bm|lo|pe|ua|ap|ep|oos):(\d{1,20})")
_WRITE_ORDER: Final = re.compile(r"\bwo:(\w)")
_SYNC: Final = re.compile(r"sync'ed:\s*(\d{1,3}(?:\.\d+)?)%\s*\((\d{1,20})/(\d{1,20})\)([KM])")
_FINISH: Final = re.compile(
    r"finish: (\d{1,6}):(\d{1,2}):(\d{1,2}) speed: (\d[\d,]{0,19}) \([\d, -]+\)"
    r"(?: want: (\d[\d,]{0,19}))?"
)

_COUNTERS: Final = {
    "ns": "networkSend",
    "nr": "networkReceive",
    "dw": "diskWrite",
    "dr": "diskRead",
    "al": "activityLog",
    "bm": "bitMap",
    "lo": "localCount",
    "pe": "pending",
    "ua": "unacknowledged",
    "ap": "applicationPending",
    "ep": "epochs",
    "oos": "outOfSync",
}
_STATE_KEYS: Final = (
    "localRole", "remoteRole", "localState", "remoteState", "replicationProtocol", "ioFlags",
)  # fmt: skip
_UNITS: Final = {"K": "KiloByte", "M": "MegaByte"}

#: State of the connection -> code and message of the status; the others are well.
_PROBLEMS: Final = {
    "StandAlone": (report.BAD, "No network config available"),
    "TearDown": (report.BAD, "The peer is closing the connection"),
    "Disconnecting": (report.BAD, "The peer is closing the connection"),
    **dict.fromkeys(
        ("Unconnected", "WFConnection", "WFReportParams"),
        (report.TEMPORARY, "Trying to establish a network connection"),
    ),
    **dict.fromkeys(
        ("Timeout", "BrokenPipe", "NetworkFailure", "ProtocolError"),
        (report.TEMPORARY, "Communication problems between the peers"),
    ),
}


def parse(text: str, instances: Mapping[int, str]) -> dict[str, Any]:
    """Read the file of the kernel.

    :param instances: minor -> name of its instance.
    :raises CollectorError: the text is not such a file.
    """
    blocks: list[tuple[re.Match[str], list[str]]] = []
    for line in text.splitlines():
        match = _DEVICE.match(line)
        if match:
            blocks.append((match, [line]))
        elif blocks:
            blocks[-1][1].append(line)
    versions = _versions(text)
    if not versions:
        raise CollectorError(f"expected the state of DRBD, found {text[:100]!r}")
    devices = [_device(match, "\n".join(lines), instances) for match, lines in blocks]
    return {"status": _status(devices), "versionInfo": versions, "deviceInfos": devices}


def _versions(text: str) -> dict[str, str]:
    """Return the parts of the version which the text has."""
    found: dict[str, str] = {}
    for pattern, keys in (
        (_VERSION, ("version", "api", "proto")),
        (_SOURCE, ("srcversion",)),
        (_GIT, ("gitHash", "buildBy")),
    ):
        match = pattern.search(text)
        if match:
            found.update(zip(keys, match.groups(), strict=True))
    return found


def _device(match: re.Match[str], text: str, instances: Mapping[int, str]) -> dict[str, Any]:
    """Return one device; `text` has all of its lines."""
    minor, connection = int(match[1]), match[2]
    found: dict[str, Any] = {"minor": minor, "connectionState": connection}
    states = _STATES.search(match[3])
    if states is None:
        return found
    found.update(zip(_STATE_KEYS, states.groups(), strict=True))
    found["perfIndicators"] = _indicators(text)
    sync = _sync(text)
    if sync:
        found["syncStatus"] = sync
    found["instance"] = instances.get(minor)
    return found


def _indicators(text: str) -> dict[str, Any]:
    counters = dict(_COUNTER.findall(text))
    found: dict[str, Any] = {}
    for short, key in _COUNTERS.items():
        order = _WRITE_ORDER.search(text) if short == "oos" else None
        if order:
            found["writeOrder"] = order[1]
        if short in counters:
            found[key] = int(counters[short])
    return found


def _sync(text: str) -> dict[str, Any]:
    """Return the progress of a synchronisation; empty without one."""
    done, finish = _SYNC.search(text), _FINISH.search(text)
    if done is None:
        return {}
    found: dict[str, Any] = {
        "percentage": float(done[1]),
        "progress": f"{done[2]}/{done[3]}",
        "progressUnit": _UNITS[done[4]],
    }
    if finish:
        hours, minutes, seconds = (int(part) for part in finish.groups()[:3])
        found["timeToFinish"] = f"{hours:02}:{minutes:02}:{seconds:02}"
        found["speed"] = _number(finish[4])
        if finish[5]:
            found["want"] = _number(finish[5])
        found["speedUnit"] = "KiloByte/Second"
    return found


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _status(devices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the status of all devices; the messages are in the reverse order of the devices."""
    problems = [
        (device["minor"], *_PROBLEMS[device["connectionState"]])
        for device in reversed(devices)
        if device["connectionState"] in _PROBLEMS
    ]
    return report.status(
        max((code for _, code, _ in problems), default=report.OK),
        [f"{minor}: {message}" for minor, _, message in problems],
    )


def collect(questions: Questions) -> dict[str, Any]:
    """Read the state of this node's devices."""
    try:
        text = fs.read_file(PATH)
    except FileNotFoundError as err:
        raise CollectorError("DRBD is not loaded on this node") from err
    except OSError as err:
        raise CollectorError(f"cannot read {PATH}: {err.strerror}") from err
    return parse(text, questions.drbd_minors())


COLLECTOR: Final = Collector("drbd", report.STORAGE, report.STATUS, collect)
