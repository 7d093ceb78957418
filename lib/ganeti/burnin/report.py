"""What was done and how long it took: a table for people, JSON for programs.

The JSON document is an object. ``version`` is 1 and grows when a key changes its meaning; new keys
may appear. Times are in seconds, and dates in seconds since 1970.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from ganeti.burnin.jobs import JobRecord
from ganeti.cli import table

VERSION: Final = 1

DONE: Final = "done"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
INTERRUPTED: Final = "interrupted"

_TITLES: Final = ("Step", "Result", "Seconds", "Jobs", "Longest job", "Failed attempts")


@dataclasses.dataclass(slots=True)
class StepRecord:
    """One step.

    :ivar result: one of ``done``, ``skipped``, ``failed``, ``interrupted``.
    :ivar why: why it was skipped, or failed; else empty.
    """

    name: str
    title: str
    result: str
    why: str = ""
    seconds: float = 0.0
    jobs: list[JobRecord] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Report:
    """One run of the program.

    :ivar left: names of the instances which exist at the end.
    """

    cluster: str
    instances: Sequence[str]
    started: float
    arguments: Sequence[str]
    steps: list[StepRecord] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    left: list[str] = dataclasses.field(default_factory=list)

    @property
    def result(self) -> str:
        """``done``; or ``failed`` or ``interrupted`` when one of the steps was."""
        results = {step.result for step in self.steps}
        return next((bad for bad in (INTERRUPTED, FAILED) if bad in results), DONE)

    def to_dict(self) -> dict[str, Any]:
        """Return the document for programs."""
        return {
            "version": VERSION,
            "result": self.result,
            **{
                item.name: getattr(self, item.name)
                for item in dataclasses.fields(self)
                if item.name != "steps"
            },
            "steps": [dataclasses.asdict(step) for step in self.steps],
        }

    def table(self) -> str:
        """Return the table for people: a line for each step."""
        columns = [table.Column(title, right=index > 1) for index, title in enumerate(_TITLES)]
        rows = []
        for record in self.steps:
            times = [job.seconds for job in record.jobs if job.seconds is not None]
            rows.append(
                [
                    record.name,
                    record.result,
                    f"{record.seconds:.1f}" if record.result != SKIPPED else "-",
                    str(len(record.jobs)),
                    f"{max(times):.1f}" if times else "-",
                    str(sum(job.error is not None for job in record.jobs)),
                ]
            )
        return "\n".join(table.format_table(columns, rows))
