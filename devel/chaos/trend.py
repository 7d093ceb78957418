"""The trend over a run: files, memory and descriptors which only grow.

After each round, when everything is mended and the users rest, a sample is taken. A value grows for
certain when its middle is higher in the second third of the run than in the first one, and in the
last one than in the second, by more than a step each time: one long job, or one large list, makes
one step and no second one.

The files of jobs grow with the jobs, by intention, so they are not counted.
"""

from __future__ import annotations

import os
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from devel.chaos.checker import Violation
from devel.chaos.lab import Lab

TREND: Final = "nothing grows without end"
#: Fewer samples than these show no trend.
LEAST_SAMPLES: Final = 9
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
    for node in lab.nodes:
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
        low, middle, high = map(statistics.median, values)
        if middle - low > STEPS[unit] and high - middle > STEPS[unit]:
            text = f"{name} has {low:g}, {middle:g} and then {high:g} {unit}"
            found.append(Violation(TREND, text))
    return found
