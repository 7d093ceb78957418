"""The command ``gnt-cluster verify``: check the cluster, show the findings and a verdict.

With ``--error-codes`` the output is for programs: the log of each job, as it is written. Otherwise
it is for people: each finding once, errors first, and a last line which says how the cluster is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ganeti import TYPE_CHECKING
from ganeti.cli import failures, filters, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Option, Values
from ganeti.constants import verify as const

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi
    from ganeti.query.findings import Finding

_ORDER = (const.ERROR, const.WARNING, const.NOTICE)
_COLOURS = {const.ERROR: terminal.RED, const.WARNING: terminal.YELLOW}


def run(values: Values, arguments: list[str]) -> int:
    """Check the configuration and each node group, with a job for each (``verify``)."""
    from ganeti.opcodes.cluster import OpClusterVerify

    skip = []
    if values.skip_nplusone_mem:
        skip.append(const.CHECK_NPLUSONE_MEM)
    if values.skip_hvparam_assessment:
        skip.append(const.CHECK_HVPARAM_ASSESSMENT)
    client = jobs.connect()
    (pause,) = client.query_config_values(["queue_pause"])
    if pause:
        terminal.out(f"ERROR: {jobs.pause_text(pause)} This check waits, too.")
    result = jobs.run_opcode(
        OpClusterVerify(
            verbose=values.verbose,
            # The report for people has the codes, too.
            error_codes=True,
            debug_simulate_errors=values.simulate_errors,
            skip_checks=skip,
            ignore_errors=values.ignore_errors,
            group_name=values.nodegroup,
            verify_clutter=values.verify_clutter,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    if result is None:
        # --dry-run: nothing was checked.
        return failures.EXIT_SUCCESS
    report = None if values.error_codes else Report(steps=bool(values.verbose))
    outcomes = (
        jobs.await_submitted(result["jobs"], values, client)
        if report is None
        else report.collect(result["jobs"], values, client)
    )
    broken = sum(not outcome.success for outcome in outcomes)
    unsound = sum(outcome.success and not all(outcome.result) for outcome in outcomes)
    if report is not None:
        report.show(_checked(values.nodegroup, client), complete=not broken)
    if broken:
        terminal.out(f"{broken} job(s) failed while verifying the cluster.")
    return failures.EXIT_FAILURE if broken or unsound else failures.EXIT_SUCCESS


class Report:
    """The findings of a verification, for people.

    :param steps: show the steps of the jobs while they run.
    """

    def __init__(self, *, steps: bool) -> None:
        self._steps = steps
        self._found: list[Finding] = []

    def collect(
        self, rows: Sequence[Sequence[Any]], values: Values, client: luxi.Client
    ) -> list[jobs.JobOutcome]:
        """Wait for the jobs, and keep their findings.

        :param rows: as of :meth:`ganeti.cli.jobs.JobSet.add_submitted`.
        """
        job_set = jobs.JobSet(client, values, quiet=not self._steps, line_of=self._take)
        job_set.add_submitted(rows)
        return job_set.wait()

    def _take(self, stamp: Sequence[int], kind: str, message: Any) -> str:
        """Keep a finding; return the line of a step, or an empty text."""
        from ganeti.query.findings import parse_finding

        text = str(message)
        finding = parse_finding(text)
        if finding is None:
            if text.startswith("*"):
                return jobs.format_log_entry(stamp, kind, message) if self._steps else ""
            if self._found and text.strip():
                # What a hook printed belongs to the finding about this hook.
                self._found[-1].text += "\n" + text
            return ""
        if self._steps and finding.severity == const.NOTICE:
            return jobs.format_log_entry(stamp, kind, message)
        self._found.append(finding)
        return ""

    def show(self, checked: str, *, complete: bool) -> None:
        """Write the findings and the verdict.

        :param checked: what was checked, such as ``3 nodes, 4 instances``.
        :param complete: whether no job failed.
        """
        findings = list({finding.key(): finding for finding in self._found}.values())
        findings.sort(key=_place)
        colour = terminal.wants_colour(sys.stdout)
        for finding in findings:
            terminal.out(_line(finding, colour=colour))
        counts = {one: sum(found.severity == one for found in findings) for one in _ORDER}
        verdict = (
            f"{checked}: {_count(counts[const.ERROR], 'error')},"
            f" {_count(counts[const.WARNING], 'warning')}"
        )
        if not complete:
            verdict += "; not everything was checked"
        if colour:
            sound = complete and not counts[const.ERROR]
            verdict = terminal.paint(verdict, terminal.GREEN if sound else terminal.RED)
        terminal.out(verdict)


def _place(finding: Finding) -> tuple[Any, ...]:
    from ganeti.utils import text

    order = _ORDER.index(finding.severity)
    return (order, finding.kind, text.natural_key(finding.name), finding.code, finding.text)


def _line(finding: Finding, *, colour: bool) -> str:
    """Return a finding as lines which fit the terminal."""
    about = " ".join(word for word in (finding.kind, finding.name) if word)
    first, *more = finding.text.split("\n")
    code = f" [{finding.code}]" if finding.code else ""
    text = ": ".join(word for word in (finding.severity, about, first + code) if word)
    text = terminal.wrapped("\n".join([text, *more]), sys.stdout, "    ")
    paint = _COLOURS.get(finding.severity)
    if not colour or paint is None:
        return text
    return terminal.paint(finding.severity, paint) + text[len(finding.severity) :]


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"


def _checked(group: str | None, client: luxi.Client) -> str:
    """Return what was checked, such as ``3 nodes (1 offline), 4 instances``.

    :param group: name or UUID of the only group; None for all groups.
    """
    wanted = None
    if group is not None:
        names = [row[0] for row in client.query_groups([group], ["name"], False)]
        wanted = filters.simple_filter("group", names)
    rows = client.query("node", ["pinst_cnt", "offline"], wanted)["data"]
    nodes = _count(len(rows), "node")
    offline = sum(bool(row[1][1]) for row in rows)
    if offline:
        nodes += f" ({offline} offline, not checked)"
    return f"{nodes}, {_count(sum(row[0][1] or 0 for row in rows), 'instance')}"


COMMAND = Command(
    "verify",
    run,
    [],
    [
        opt.VERBOSE,
        opt.flag(
            "--error-codes",
            help="write findings as ERROR:CODE:kind:name:text, for programs",
        ),
        opt.flag(
            "--debug-simulate-errors",
            dest="simulate_errors",
            help="report every check as failed, to test programs which read the output",
        ),
        Option(
            "-I",
            "--ignore-errors",
            action="append",
            choices=sorted(const.ALL_CODES),
            metavar="CODE",
            help="count findings with this code as warnings; may be given several times",
        ),
        opt.flag(
            "--no-nplus1-mem",
            dest="skip_nplusone_mem",
            help="do not check whether the memory suffices when a node fails",
        ),
        opt.flag(
            "--no-hv-param-assessment",
            dest="skip_hvparam_assessment",
            help="do not assess hypervisor parameters",
        ),
        opt.NODE_GROUP,
        opt.flag(
            "--verify-ssh-clutter",
            dest="verify_clutter",
            help="look for SSH keys that belong to no node",
        ),
        opt.DRY_RUN,
        opt.PRIORITY,
    ],
    "Check the configuration, the nodes and the instances",
)
