"""The average load of the processors, from ``/proc/stat``.

The counters are read at intervals and kept for ten minutes. The load is the share of the time
between the first and the last reading in which a processor was busy, so 1.0 means fully busy.

Source: proc(5); hbal(1), which reads ``cpu_total``: the sum over all processors.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti.mond import report
from ganeti.mond.report import Collector, CollectorError, Questions
from ganeti.utils import clock, fs

PATH: Final = "/proc/stat"
WINDOW_S: Final = 600.0
BUFFER: Final = 150

#: user, nice, system, irq, softirq, steal: not idle and not waiting for disks. The time of guests
#: is in user and nice already.
_BUSY: Final = (0, 1, 2, 5, 6, 7)


def parse(text: str) -> dict[str, int]:
    """Read the busy time of all processors (``cpu``) and of each (``cpu0``), in clock ticks.

    :raises CollectorError: the text is not such a file.
    """
    found = {}
    for line in text.splitlines():
        if not line.startswith("cpu"):
            continue
        name, *words = line.split()
        if len(words) < 4 or not all(map(report.is_counter, words)):
            raise CollectorError(f"expected counters of a processor in {PATH}, found {line!r:.100}")
        found[name] = sum(int(words[index]) for index in _BUSY if index < len(words))
    if "cpu" not in found:
        raise CollectorError(f"{PATH} has no line for all processors")
    return found


class LoadOverTime:
    """Keeps readings, and returns the averages over them.

    :param read: returns the text of the counters.
    :param monotonic: seconds of a clock which is never set.
    """

    def __init__(
        self,
        read: Callable[[], str] = lambda: fs.read_file(PATH),
        *,
        monotonic: Callable[[], float] = clock.monotonic,
        ticks_per_s: int | None = None,
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._readings: collections.deque[tuple[float, Mapping[str, int]]] = collections.deque(
            maxlen=BUFFER
        )

    def take(self) -> None:
        """Add a reading.

        :raises CollectorError: the counters cannot be read.
        """
        try:
            reading = parse(self._read())
        except OSError as err:
            raise CollectorError(f"cannot read {PATH}: {err.strerror}") from err
        now = self._monotonic()
        self._readings.append((now, reading))
        while now - self._readings[0][0] > WINDOW_S:
            self._readings.popleft()

    def collect(self, _questions: Questions) -> dict[str, Any]:
        """Return the averages over the readings, after one more when there are too few.

        A processor which was added or removed meanwhile counts since it has counters in all.
        """
        if len(self._readings) < 2:
            self.take()
        (begin, first), (end, last) = self._readings[0], self._readings[-1]
        if end <= begin:
            raise CollectorError("the load is known after the second reading")
        scale = (end - begin) * self._ticks_per_s
        loads = {
            name: max(0, busy - first[name]) / scale for name, busy in last.items() if name in first
        }
        each = {name: load for name, load in loads.items() if name != "cpu"}
        ordered = [each[name] for name in sorted(each, key=lambda name: int(name[3:]))]
        return {"cpu_number": len(ordered), "cpus": ordered, "cpu_total": loads["cpu"]}


def collector(load: LoadOverTime) -> Collector:
    """Return the collector of these readings."""
    return Collector("cpu-avg-load", None, report.PERFORMANCE, load.collect, always=True)
