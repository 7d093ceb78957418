"""Counters and histograms of this process, for programs which monitor it.

A metric is made once, in the module which measures, and belongs to the process: other programs get
all of them as one snapshot (:func:`snapshot`). A measurement takes a lock and an addition, about a
microsecond. Labels have few values, such as names of opcodes or node calls; a metric which gets
more than :data:`MAX_SERIES` of them ignores the rest, so that an error here cannot use up memory.

Source: OpenMetrics 1.0.0 (counter, histogram); naming conventions of Prometheus.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence
from typing import Any, Final

#: Series of one metric.
MAX_SERIES: Final = 1000
#: The bounds of the classes of histograms in seconds: from a node call to a synchronisation.
BOUNDS_S: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 600.0, 3600.0)

COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"


class Counter:
    """A number which only grows.

    :param name: begins with ``ganeti_``; in the text of OpenMetrics it ends in ``_total``.
    :param help: what is counted, as a sentence without a full stop.
    :param labels: names of the labels.
    """

    kind = COUNTER

    def __init__(self, name: str, help: str, labels: tuple[str, ...] = ()) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._lock = threading.Lock()
        # A series which begins with 1 has not grown, as Prometheus sees it: the first event of a
        # counter without labels would be missed.
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}
        _ALL.append(self)

    def add(self, *values: str, amount: float = 1) -> None:
        """Count something.

        :param values: the value of each label.
        """
        with self._lock:
            if values in self._values or len(self._values) < MAX_SERIES:
                self._values[values] = self._values.get(values, 0) + amount

    def series(self) -> list[list[Any]]:
        """Return ``[values of the labels, number]`` of each series."""
        with self._lock:
            return [[list(values), number] for values, number in self._values.items()]

    def take(self) -> list[list[Any]]:
        """Return the series which have counted something, and begin again."""
        with self._lock:
            found = [[list(values), number] for values, number in self._values.items() if number]
            self._values = {} if self.labels else {(): 0}
            return found

    def merge(self, series: Sequence[Sequence[Any]]) -> None:
        """Add series of the same counter of another process."""
        for values, number in series:
            self.add(*values, amount=number)


class Histogram:
    """Durations in seconds, counted by classes with the bounds :data:`BOUNDS_S`.

    :param name: begins with ``ganeti_`` and ends in ``_seconds``.
    """

    kind = HISTOGRAM

    def __init__(self, name: str, help: str, labels: tuple[str, ...] = ()) -> None:
        self.name = name
        self.help = help
        self.labels = labels
        self._lock = threading.Lock()
        # The number of durations in each class and above the last bound, and their sum.
        self._values: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}
        _ALL.append(self)

    def observe(self, seconds: float, *values: str) -> None:
        """Count a duration; a negative one, after the clock was set back, counts as 0."""
        seconds = max(0.0, seconds)
        place = bisect.bisect_left(BOUNDS_S, seconds)
        with self._lock:
            found = self._values.get(values)
            if found is None:
                if len(self._values) >= MAX_SERIES:
                    return
                found = self._values[values] = ([0] * (len(BOUNDS_S) + 1), [0.0])
            found[0][place] += 1
            found[1][0] += seconds

    def series(self) -> list[list[Any]]:
        """Return ``[values of the labels, numbers by class, sum in seconds]`` of each series."""
        with self._lock:
            return [
                [list(values), list(counts), total[0]]
                for values, (counts, total) in self._values.items()
            ]

    def take(self) -> list[list[Any]]:
        """Return the series, and begin again."""
        with self._lock:
            before, self._values = self._values, {}
        return [[list(values), counts, total[0]] for values, (counts, total) in before.items()]

    def merge(self, series: Sequence[Sequence[Any]]) -> None:
        """Add series of the same histogram of another process."""
        with self._lock:
            for labels, counts, total_s in series:
                values = tuple(labels)
                if values not in self._values and len(self._values) >= MAX_SERIES:
                    continue
                found = self._values.setdefault(values, ([0] * (len(BOUNDS_S) + 1), [0.0]))
                for place, count in enumerate(counts):
                    found[0][place] += count
                found[1][0] += total_s


_ALL: list[Counter | Histogram] = []


def snapshot() -> list[dict[str, Any]]:
    """Return all metrics of this process which were measured, as JSON values.

    :returns: for each ``name``, ``kind``, ``help``, ``labels``, ``series`` (see the classes), and
        for histograms ``bounds`` in seconds.
    """
    found = []
    for metric in _ALL:
        series = metric.series()
        if series:
            found.append(
                {
                    "name": metric.name,
                    "kind": metric.kind,
                    "help": metric.help,
                    "labels": list(metric.labels),
                    "series": series,
                    **({"bounds": list(BOUNDS_S)} if metric.kind == HISTOGRAM else {}),
                }
            )
    return found


def take() -> list[list[Any]]:
    """Return what this process has measured since the last call, as JSON values, and begin again.

    :returns: ``[name, series]`` of each metric; another process adds them with :func:`merge`.
    """
    return [[metric.name, series] for metric in _ALL if (series := metric.take())]


def merge(taken: Sequence[Sequence[Any]]) -> None:
    """Add what another process has measured to the metrics of this one.

    :param taken: the result of :func:`take`; metrics which this process does not have are left out.
    """
    known = {metric.name: metric for metric in _ALL}
    for name, series in taken:
        if name in known:
            known[name].merge(series)
