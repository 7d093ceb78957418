"""Reporting the findings of cluster verification, in the form which programs and people read.

A finding has a published code, the type of its object (which follows from the code), the name of
the object and a text. With error codes a line is
``  - ERROR:ENODERPC:node:node1.example.com:text``, without them
``  - ERROR: node node1.example.com: text``. A code which the user ignores is reported as a warning
and does not make the verification fail.

Source: manual page **gnt-cluster**, *verify*.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from ganeti.constants.verify import ERROR, OBJECT_OF, WARNING


class VerifyOptions(Protocol):
    """The parameters which all opcodes for verification share."""

    error_codes: bool
    debug_simulate_errors: bool
    ignore_errors: list[str]
    verbose: bool


class Findings:
    """Reports and counts the findings of one verification.

    :ivar failed: whether an error was reported.
    """

    def __init__(self, feedback: Callable[[str], None], options: VerifyOptions) -> None:
        self._feedback = feedback
        self._error_codes = options.error_codes
        self._simulate = options.debug_simulate_errors
        self._ignored: Collection[str] = frozenset(options.ignore_errors)
        self._verbose = options.verbose
        # Code -> how many checks were made, and how many failed.
        self._counts: dict[str, list[int]] = {}
        self.failed = False

    def section(self, text: str) -> None:
        """Write the headline of the next checks."""
        self._feedback(f"* {text}")

    def note(self, text: str) -> None:
        """Write a notice, which is not a problem."""
        self._feedback(f"  - NOTICE: {text}")

    def detail(self, text: str) -> None:
        """Write a notice if the user asked for verbose output."""
        if self._verbose:
            self.note(text)

    def report(self, code: str, name: str, text: str, *, warning: bool = False) -> None:
        """Report a problem.

        :param code: published code, such as ``ENODERPC``.
        :param name: name of the object; empty for the cluster.
        """
        self._count(code, bad=True)
        severity = WARNING if warning or code in self._ignored else ERROR
        kind = OBJECT_OF[code]
        if self._error_codes:
            line = f"{severity}:{code}:{kind}:{name}:{text}"
        else:
            about = f"{kind} {name}" if name else kind
            line = f"{severity}: {about}: {text}"
        self._feedback(f"  - {line}")
        if severity == ERROR:
            self.failed = True

    def check(self, bad: bool, code: str, name: str, text: str, *, warning: bool = False) -> bool:
        """Report a problem if ``bad`` is true, or if errors are simulated.

        :returns: ``bad``.
        """
        if bad or self._simulate:
            self.report(code, name, text, warning=warning)
        else:
            self._count(code, bad=False)
        return bad

    def _count(self, code: str, *, bad: bool) -> None:
        counts = self._counts.setdefault(code, [0, 0])
        counts[0] += 1
        counts[1] += bad

    def summary(self) -> None:
        """Write the number of checks for each code, if the user asked for verbose output."""
        for code, (made, failed) in sorted(self._counts.items()):
            result = f"{failed} failed" if failed else "none failed"
            self.detail(f"{code}: {made} check(s), {result}")
