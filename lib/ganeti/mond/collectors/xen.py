"""The guests of Xen on this node: their load, and whether they are as they should be.

The list of domains comes from the caller, which knows how to run ``xl``; this module is below the
hypervisors in the layers.

Source: Ganeti monitoring agent, *Instance status*, *CPU load*; xl(1).
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.constants import instance as instance_const
from ganeti.mond import report
from ganeti.mond.report import Collector, CollectorError, Questions
from ganeti.objects.hypervisors.xen import XEN_HVM, XEN_PVM
from ganeti.platform import paths
from ganeti.utils import clock, fs
from ganeti.wire import json

HYPERVISORS: Final = frozenset((XEN_PVM.name, XEN_HVM.name))
WINDOW_S: Final = 600.0
BUFFER: Final = 150

RUNNING, BLOCKED, PAUSED = "running", "blocked", "paused"
SHUTDOWN, CRASHED, DYING = "shutdown", "crashed", "dying"
#: Letters in the list of ``xl``, the most important first.
_STATES: Final = (
    ("c", CRASHED), ("d", DYING), ("s", SHUTDOWN), ("p", PAUSED), ("r", RUNNING), ("b", BLOCKED),
)  # fmt: skip
_ALIVE: Final = frozenset((RUNNING, BLOCKED, PAUSED))


class XenGuest(NamedTuple):
    """A domain.

    :ivar state: the letters of ``xl list``.
    :ivar cpu_s: processor time which it has used, in seconds.
    :ivar uptime: as ``xl uptime`` prints it; None if that was not asked for.
    """

    name: str
    state: str
    cpu_s: float
    uptime: str | None = None


#: Returns all domains; the argument says whether their uptime is wanted.
#: :raises errors.HypervisorError: Xen does not answer.
Guests = Callable[[bool], Sequence[XenGuest]]


class XenLoad:
    """Keeps readings of the processor time of all domains, and returns the averages over them.

    :param monotonic: seconds of a clock which is never set.
    """

    def __init__(self, guests: Guests, *, monotonic: Callable[[], float] = clock.monotonic) -> None:
        self._guests = guests
        self._monotonic = monotonic
        self._readings: collections.deque[tuple[float, Mapping[str, float]]] = collections.deque(
            maxlen=BUFFER
        )

    def take(self) -> None:
        """Add a reading.

        :raises errors.HypervisorError: Xen does not answer.
        """
        reading = {guest.name: guest.cpu_s for guest in self._guests(False)}
        now = self._monotonic()
        self._readings.append((now, reading))
        while now - self._readings[0][0] > WINDOW_S:
            self._readings.popleft()

    def collect(self, _questions: Questions) -> dict[str, float]:
        """Return the load of each domain: 1.0 is one processor which is fully busy.

        A domain counts from the first reading in which it is; one which was started again has used
        less time than before, and counts from then on.

        :raises CollectorError: there are not two readings yet.
        """
        if len(self._readings) < 2:
            self.take()
        if len(self._readings) < 2:
            raise CollectorError("the load is known after the second reading")
        end, last = self._readings[-1]
        found = {}
        for name, cpu_s in last.items():
            begin, before = end, cpu_s
            for time_s, reading in reversed(self._readings):
                if name not in reading or reading[name] > before:
                    break
                begin, before = time_s, reading[name]
            found[name] = (cpu_s - before) / (end - begin) if end > begin else 0.0
        return found


def status(guests: Guests) -> Callable[[Questions], dict[str, Any]]:
    """Return the function which collects the status of the instances of this node."""

    def collect(questions: Questions) -> dict[str, Any]:
        present = {guest.name: guest for guest in guests(True)}
        instances = [
            _instance(one, present.get(str(one["name"])))
            for one in questions.instances()
            if one.get("hypervisor") in HYPERVISORS
        ]
        worst = max((one["status"]["code"] for one in instances), default=report.OK)
        messages = [
            f"{one['name']}: {one['status']['message'].strip()}"
            for one in instances
            if one["status"]["code"] != report.OK
        ]
        return {"instances": instances, "status": report.status(worst, messages)}

    return collect


def _instance(config: Mapping[str, Any], guest: XenGuest | None) -> dict[str, Any]:
    wanted = str(config.get("admin_state", ""))
    actual = SHUTDOWN if guest is None else state_of(guest.state)
    alive = actual in _ALIVE
    if wanted == instance_const.ADMIN_UP and (not alive or actual == PAUSED):
        judged = report.status(report.TEMPORARY, [f"it should run, and is {actual}"])
    elif wanted != instance_const.ADMIN_UP and alive:
        judged = report.status(report.BAD, [f"it should not run, and is {actual}"])
    else:
        judged = report.status(report.OK)
    reason, changed_ns = _reason(str(config["name"]))
    return {
        "name": config["name"],
        "uuid": config.get("uuid", ""),
        "adminState": wanted,
        "actualState": actual,
        "uptime": None if guest is None else guest.uptime,
        "mtime": changed_ns,
        "state_reason": reason,
        "status": judged,
    }


def state_of(letters: str) -> str:
    """Return the state for the letters of ``xl list``; without any, it waits for a processor."""
    return next((state for letter, state in _STATES if letter in letters), RUNNING)


def _reason(name: str) -> tuple[list[Any], int | None]:
    """Return the reason trail of the last change of state, and its time in nanoseconds."""
    path = f"{paths.current().instance_reason_dir}/{os.path.basename(name)}"
    try:
        trail = json.loads(fs.read_file(path))
        return (trail if isinstance(trail, list) else []), os.stat(path).st_mtime_ns
    except (OSError, errors.ParseError):
        return [], None


def collectors(guests: Guests, load: XenLoad) -> tuple[Collector, ...]:
    """Return both collectors; they are active where Xen is enabled."""
    return (
        Collector("inst-status-xen", report.INSTANCE, report.STATUS, status(guests), HYPERVISORS),
        Collector(
            "xen-cpu-avg-load", None, report.PERFORMANCE, load.collect, HYPERVISORS, always=True
        ),
    )
