"""The report of a chaos run: counts of faults and operations, and what was found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from devel.chaos.availability import AVAILABLE
from devel.chaos.checker import CHECKS, Violation
from devel.chaos.faults import JOINS, UPGRADES
from devel.chaos.history import FAILED, OK, UNKNOWN
from devel.chaos.settle import LEAKS, SETTLES, VERIFY
from devel.chaos.trend import LEAST_SAMPLES, TREND

FENCED = "nodes switched off by the cluster"
RESET = "nodes reset by their watchdogs"

if TYPE_CHECKING:
    from devel.chaos.program import Run


class Report:
    """What a run has done.

    :ivar rounds: how many rounds were made.
    :ivar usage: the most descriptors and memory of each daemon at the end.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rounds = 0
        self.usage: dict[str, Any] = {}
        self._content: dict[str, Any] = {}
        self._violations: Sequence[Violation] = ()

    def finish(self, run: Run, violations: Sequence[Violation], seconds: float) -> None:
        """Take the counts from a run which has ended."""
        self._violations = violations
        operations: dict[str, dict[str, int]] = {}
        for (kind, outcome), count in sorted(run.history.counts().items()):
            operations.setdefault(kind, {})[outcome] = count
        errors = Counter(
            one.error.splitlines()[-1][:120]
            for one in run.history.operations()
            if one.error and "Traceback" in one.error
        )
        self._content = {
            "seed": self.seed,
            "seconds": round(seconds),
            "rounds": self.rounds,
            "faults": dict(sorted(run.faults.made.items())),
            "files lost by power cuts": run.faults.lost_files,
            "operations": operations,
            FENCED: run.fenced(),
            RESET: run.resets(),
            "burnin by exit code": run.burnins(),
            "remedies": dict(run.settled.remedies),
            "usage": self.usage,
            "commits by the run": run.meter.commits,
            "longest without a commit": {
                kind or "no fault": round(seconds, 1)
                for kind, seconds in sorted(run.meter.account.longest.items())
            },
            "slowness of the machine": round(run.meter.pace.slowness(), 2),
            "samples": len(run.sampler.samples),
            "commands with a traceback": dict(errors),
            "violations": [[one.promise, one.text] for one in violations],
        }

    def json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(self._content, indent=1) + "\n"

    def text(self) -> str:
        """Return the report for people."""
        content = self._content
        lines = [
            f"seed {content['seed']}: {content['rounds']} rounds in {content['seconds']} s,"
            f" {sum(content['faults'].values())} faults",
            "",
        ]
        lines += [f"  {count:5}  {kind}" for kind, count in content["faults"].items()]
        lines += [
            "",
            f"  {content['files lost by power cuts']:5}  files lost or older after power cuts",
            f"  {content[FENCED]:5}  {FENCED}",
            f"  {content[RESET]:5}  {RESET}",
            "",
            f"  {'acknowledged':>12} {'refused':>8} {'unknown':>8}  operation",
        ]
        for kind, outcomes in content["operations"].items():
            counts = [outcomes.get(outcome, 0) for outcome in (OK, FAILED, UNKNOWN)]
            lines.append(f"  {counts[0]:12} {counts[1]:8} {counts[2]:8}  {kind}")
        lines.append("")
        for code, count in content["burnin by exit code"].items():
            lines.append(f"  burnin ended {count} times with exit code {code}")
        for command, count in content["remedies"].items():
            lines.append(f"  verify asked {count} times for: {command}")
        for daemon, most in content["usage"].items():
            lines.append(
                f"  {daemon}: at most {most['descriptors']} descriptors, {most['mib']} MiB"
            )
        slow = content["slowness of the machine"]
        lines += [
            "",
            f"  work took {slow} times as long as on a machine which has nothing else to do",
            "  seconds without a commit although a majority was well, at most, with:",
        ]
        for kind, seconds in content["longest without a commit"].items():
            lines.append(f"  {seconds:5}  {kind}")
        lines.append("")
        for error, count in content["commands with a traceback"].items():
            lines.append(f"  {count} commands ended with an internal error: {error}")
        lines.append("")
        for promise in (*CHECKS, VERIFY, LEAKS, SETTLES, AVAILABLE, JOINS, UPGRADES, TREND):
            texts = [one.text for one in self._violations if one.promise == promise]
            few = promise == TREND and content["samples"] < LEAST_SAMPLES
            word = "BROKEN" if texts else "short " if few else "held  "
            lines.append(f"  {word}  {promise}")
            if few:
                lines.append(
                    f"          {content['samples']} of {LEAST_SAMPLES} samples are too few"
                )
            lines += [f"          {text}" for text in texts[:20]]
        return "\n".join(lines)
