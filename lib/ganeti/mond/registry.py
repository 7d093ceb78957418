"""All collectors of a node, and their last results."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import cluster as cluster_const
from ganeti.mond import report
from ganeti.mond.collectors import cpu_load, diskstats, drbd, logical_volumes, xen
from ganeti.mond.report import Collector, CollectorError, Questions
from ganeti.utils import clock

_log = logging.getLogger(__name__)

_DEFAULT_INTERVAL_S = cluster_const.DATA_COLLECTOR_INTERVAL_US / 1e6


def no_guests(_with_uptime: bool) -> Sequence[xen.XenGuest]:
    """Say that no guest of Xen is here."""
    return ()


def collectors(
    load: cpu_load.LoadOverTime, xen_load: xen.XenLoad, guests: xen.Guests
) -> tuple[Collector, ...]:
    """Return all collectors, in the published order of their names.

    :param load: the readings of the processors.
    :param xen_load: the readings of the processor time of the guests of Xen.
    """
    known = (
        *xen.collectors(guests, xen_load),
        cpu_load.collector(load),
        diskstats.COLLECTOR,
        drbd.COLLECTOR,
        logical_volumes.COLLECTOR,
    )
    return tuple(sorted(known, key=lambda one: one.name))


class Registry:
    """Collects when it is asked, but each collector at most once in its interval.

    So the cost of many readers is that of one. Requests come from several threads.

    :param load: the readings of the processors, which :meth:`tick` takes.
    :param hypervisors: returns the enabled hypervisors.
    :param xen_guests: returns the guests of Xen; it is called only where Xen is enabled.
    """

    def __init__(
        self,
        questions: Questions,
        load: cpu_load.LoadOverTime,
        *,
        hypervisors: Callable[[], Sequence[str]],
        xen_guests: xen.Guests = no_guests,
        monotonic: Callable[[], float] = clock.monotonic,
    ) -> None:
        self._questions = questions
        xen_load = xen.XenLoad(xen_guests, monotonic=monotonic)
        self._takers = {"cpu-avg-load": load.take, "xen-cpu-avg-load": xen_load.take}
        self._hypervisors = hypervisors
        self._monotonic = monotonic
        self._all = collectors(load, xen_load, xen_guests)
        self._intervals: Mapping[str, float] = {one.name: _DEFAULT_INTERVAL_S for one in self._all}
        self._locks = {one.name: threading.Lock() for one in self._all}
        self._results: dict[str, tuple[float, dict[str, Any] | None, str]] = {}
        self._durations: dict[str, float] = {}
        self._failures: dict[str, str] = {}

    def configure(self, intervals: Mapping[str, float]) -> None:
        """Take over which collectors are active, and their intervals in seconds."""
        if intervals != self._intervals:
            _log.info("active collectors: %s", ", ".join(sorted(intervals)) or "none")
        self._intervals = dict(intervals)

    def active(self) -> list[Collector]:
        """Return the collectors which are active on this node."""
        enabled = set(self._hypervisors())
        return [
            one
            for one in self._all
            if one.name in self._intervals and (not one.hypervisors or one.hypervisors & enabled)
        ]

    def find(self, category: str | None, name: str) -> Collector | None:
        """Return an active collector; None when there is none."""
        for one in self.active():
            if (one.category, one.name) == (category, name):
                return one
        return None

    def tick_s(self) -> float:
        """Return the seconds until the next :meth:`tick`."""
        return min(
            (self._intervals[one.name] for one in self.active() if one.always),
            default=_DEFAULT_INTERVAL_S,
        )

    def tick(self) -> None:
        """Let the collectors of averages take their next reading."""
        for one in self.active():
            if not one.always:
                continue
            try:
                self._takers[one.name]()
            except errors.GenericError as err:
                self._note(one.name, str(err))
            except Exception:  # noqa: BLE001  the next reading may succeed
                _log.exception("a reading of collector %s failed", one.name)

    def report(self, collector: Collector) -> dict[str, Any]:
        """Return the report of a collector, which may be as old as its interval.

        :raises CollectorError: it has no data; the message says why.
        """
        with self._locks[collector.name]:
            now = self._monotonic()
            last = self._results.get(collector.name)
            interval = self._intervals.get(collector.name, _DEFAULT_INTERVAL_S)
            if last is None or now - last[0] >= interval:
                last = (now, *self._collect(collector))
                self._results[collector.name] = last
                self._durations[collector.name] = self._monotonic() - now
        if last[1] is None:
            raise CollectorError(last[2])
        return last[1]

    def _collect(self, collector: Collector) -> tuple[dict[str, Any] | None, str]:
        """Return a new report, or None and the reason."""
        try:
            made = report.build(collector, collector.collect(self._questions))
        except errors.GenericError as err:
            self._note(collector.name, str(err))
            return None, str(err)
        except Exception as err:  # noqa: BLE001  one collector never stops the others
            _log.exception("collector %s failed", collector.name)
            return None, f"collector {collector.name} failed: {err}"
        self._note(collector.name, "")
        return made, ""

    def _note(self, name: str, problem: str) -> None:
        """Log a problem when it is another one than before."""
        if problem != self._failures.get(name, ""):
            if problem:
                _log.warning("collector %s has no data: %s", name, problem)
            else:
                _log.info("collector %s has data again", name)
        self._failures[name] = problem

    def reports(self) -> list[dict[str, Any]]:
        """Return the reports of all active collectors which have data."""
        found = []
        for one in self.active():
            try:
                found.append(self.report(one))
            except CollectorError:
                continue
        return found

    def durations_s(self) -> dict[str, float]:
        """Return how long the last collection of each collector took."""
        return dict(self._durations)
