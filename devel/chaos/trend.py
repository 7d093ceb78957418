"""The trend over a run: files, memory and descriptors which only grow.

A sample is taken every few seconds. In each third of the run, a value has been at most so high for
a quarter of the samples: this is what it returns to when there is little to do. A value grows for
certain when that is higher in the second third than in the first one, and in the last one than in
the second, by more than a step each time: one long job, or one large list, makes one step and no
second one. A run with fewer samples than :data:`LEAST_SAMPLES` shows nothing, and says so.

The files of jobs grow with the jobs, by intention, so they are not counted.
"""

from __future__ import annotations

import os
import re
import statistics
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from devel.chaos.checker import Violation
from devel.chaos.lab import Lab

TREND: Final = "nothing grows without end"
#: Seconds between two samples.
EVERY_S: Final = 5.0
#: Fewer samples than these show no trend: each third of the run must have twenty.
LEAST_SAMPLES: Final = 60
#: How much more each third of a run may have, by the unit of a value.
STEPS: Final[Mapping[str, float]] = {"files": 8, "MiB": 12, "descriptors": 6}

Sample = Mapping[tuple[str, str], float]
# Names of jobs, of processes, of copies and of histories differ by their numbers.
_NUMBERS: Final = re.compile(r"\d+")
_OF_JOBS: Final = re.compile(r"(^|/)(queue|audit|log)(/|$)")


def count_files(node: str, top: Path) -> Counter[tuple[str, str]]:
    """Count the files of each directory below a path, but those of jobs."""
    found: Counter[tuple[str, str]] = Counter()
    for directory, _below, files in os.walk(top):
        relative = str(Path(directory).relative_to(top.parent))
        if not _OF_JOBS.search(relative):
            found[f"{node}: {_NUMBERS.sub('N', relative)}", "files"] += len(files)
    return found


def take(lab: Lab, daemons: Iterable[str]) -> dict[tuple[str, str], float]:
    """Take a sample: the name of each value with its unit, and the value."""
    daemons = tuple(daemons)
    found: dict[tuple[str, str], float] = {}
    for node in filter(lab.has_power, lab.nodes):
        for place in (lab.data(node), lab.run_dir(node)):
            found.update(count_files(node, place))
        for daemon in daemons:
            pid = lab.pid(node, daemon)
            if pid is None:
                continue
            try:
                status = Path(f"/proc/{pid}/status").read_text()
                count = len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue
            resident = re.search(r"VmRSS:\s+(\d+) kB", status)
            found[f"{node}: {daemon}", "descriptors"] = count
            if resident:
                found[f"{node}: {daemon}", "MiB"] = int(resident[1]) / 1024
    return found


def _quarter(values: Sequence[float]) -> float:
    """Return the value which a quarter of the values do not exceed."""
    return statistics.quantiles([*values, *values], n=4, method="inclusive")[0]


class Sampler:
    """Takes a sample every few seconds, in a thread of its own.

    :param sample: takes one.
    :ivar samples: those which were taken.
    """

    def __init__(self, sample: Callable[[], Sample]) -> None:
        self.samples: list[Sample] = []
        self._sample = sample
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            self.samples.append(self._sample())

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()


def growing(samples: Sequence[Sample]) -> list[Violation]:
    """Return the values which only grow; none for a short run."""
    if len(samples) < LEAST_SAMPLES:
        return []
    found = []
    third = len(samples) // 3
    parts = samples[-3 * third : -2 * third], samples[-2 * third : -third], samples[-third:]
    for name, unit in sorted({key for one in samples for key in one}):
        # A daemon which does not run at this moment has no value; a directory which is missing, 0.
        missing = [0.0] if unit == "files" else []
        values = [
            [one[name, unit] for one in part if (name, unit) in one] or missing for part in parts
        ]
        if not all(values):
            continue
        low, middle, high = map(_quarter, values)
        if middle - low > STEPS[unit] and high - middle > STEPS[unit]:
            text = f"{name} has {low:.3g}, {middle:.3g} and then {high:.3g} {unit}"
            found.append(Violation(TREND, text))
    return found
