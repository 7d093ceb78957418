"""Figures of measurements: their table, and their file for comparisons."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ganeti import __version__, errors
from ganeti.utils import clock, fs
from ganeti.wire import json

_FORMAT = 1


class Figure(NamedTuple):
    """One measured quantity."""

    key: str
    title: str
    unit: str
    value: float
    worst: float
    samples: int
    budget: float | None
    more_is_better: bool
    #: Load average of the machine after the measurement: what others did to it.
    load: float = 0.0

    @property
    def within_budget(self) -> bool | None:
        """True if the value is within the budget; None without a budget."""
        if self.budget is None:
            return None
        return self.value >= self.budget if self.more_is_better else self.value <= self.budget


def figure(
    key: str,
    title: str,
    unit: str,
    samples: Sequence[float],
    *,
    budget: float | None = None,
    more_is_better: bool = False,
) -> Figure:
    """Summarise repeated measurements."""
    worst = min(samples) if more_is_better else max(samples)
    return Figure(
        key, title, unit, statistics.median(samples), worst, len(samples), budget, more_is_better
    )


def ratio(now: Figure, before: Mapping[str, float]) -> float | None:
    """Return the ratio to an earlier run: above 1 is better, below 1 is worse, None is unknown."""
    old = before.get(now.key)
    if not old or not now.value:
        return None
    return now.value / old if now.more_is_better else old / now.value


def _digits(value: float) -> int:
    return 2 if value < 2 else 1


def table(figures: Sequence[Figure], before: Mapping[str, float] | None = None) -> str:
    """Format the figures as a table."""
    rows = [["What", "Median", "Worst", "Budget", "Within", "Load"]]
    if before is not None:
        rows[0].append("Ratio")
    for one in figures:
        within = {True: "yes", False: "no", None: "-"}[one.within_budget]
        budget = "-" if one.budget is None else f"{one.budget:g} {one.unit}"
        row = [
            one.title,
            f"{one.value:.{_digits(one.value)}f} {one.unit}",
            f"{one.worst:.{_digits(one.worst)}f} {one.unit}",
            budget,
            within,
            f"{one.load:.1f}",
        ]
        if before is not None:
            better = ratio(one, before)
            row.append("-" if better is None else f"{better:.2f}")
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [f"{row[0]:<{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def to_data(figures: Sequence[Figure]) -> dict[str, Any]:
    """Return the figures for ``--json``; a later ``--baseline`` reads them."""
    return {
        "format": _FORMAT,
        "version": __version__,
        "when": clock.format_time(clock.now()),
        "cores": os.cpu_count(),
        "figures": {
            one.key: {
                "title": one.title,
                "unit": one.unit,
                "value": one.value,
                "worst": one.worst,
                "samples": one.samples,
                "budget": one.budget,
                "load": one.load,
            }
            for one in figures
        },
    }


def read_baseline(path: str) -> dict[str, float]:
    """Read the figures of an earlier run, which were saved with ``--json``.

    :returns: key of the figure -> value.
    :raises ConfigurationError: the file is not the result of a run.
    """
    try:
        data = json.loads(fs.read_file(path))
        if data["format"] != _FORMAT:
            raise errors.ConfigurationError(f"{path} has format {data['format']}, not {_FORMAT}")
        return {key: float(one["value"]) for key, one in data["figures"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, errors.ParseError) as err:
        raise errors.ConfigurationError(f"{path} is not the result of a bench run") from err
