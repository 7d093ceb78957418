"""The run of ``burnin`` from the first check to the removal of the instances."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from ganeti import errors
from ganeti.burnin import cluster, options, report, steps
from ganeti.burnin.jobs import BurninError, JobsFailed, Runner, text_of
from ganeti.burnin.options import Options
from ganeti.burnin.steps import Step
from ganeti.burnin.work import Run, check_running
from ganeti.cli import failures, jobs, terminal
from ganeti.luxi import client as luxi
from ganeti.objects import disk_templates
from ganeti.opcodes import backup as op_backup
from ganeti.opcodes import instance as op
from ganeti.platform import paths
from ganeti.utils import fs
from ganeti.utils import log as logsetup
from ganeti.wire import json

log = logging.getLogger("burnin")

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

_REMOVE: Final = Step("remove", "Removing the instances", lambda run: remove(run))


def prepare(chosen: Options, client: luxi.Client, say: Callable[[str], None]) -> Run:
    """Ask the master about the cluster, and check whether the run can begin.

    :raises GenericError: it cannot; says what to do.
    """
    info = client.query_cluster_info()
    hypervisor = chosen.hypervisor or info["default_hypervisor"]
    if hypervisor not in info["enabled_hypervisors"]:
        raise cluster.CheckFailed(
            f"hypervisor {hypervisor} is not enabled in this cluster; enabled:"
            f" {', '.join(info['enabled_hypervisors'])}"
        )
    if chosen.template not in info["enabled_disk_templates"]:
        raise cluster.CheckFailed(
            f"disk template {chosen.template} is not enabled in this cluster; choose another one"
            f" with --disk-template: {', '.join(info['enabled_disk_templates'])}"
        )
    known = cluster.nodes(client, chosen.nodes)
    if chosen.template in disk_templates.INT_MIRRORED and len(known) < 2:
        raise cluster.CheckFailed(
            f"disk template {chosen.template} needs two nodes, and only {known[0].name} can be"
            " used; choose another one with --disk-template"
        )
    names = [*chosen.instances, *([chosen.rename] if chosen.rename else [])]
    there = cluster.existing(client, names)
    if there:
        raise cluster.CheckFailed(
            f"these instances exist already: {', '.join(there)}. The program works only on"
            " instances that it creates; give other names."
        )
    there = cluster.exports(client, names)
    if there:
        raise cluster.CheckFailed(
            f"there are exports with these names: {', '.join(there)}. The program would"
            " overwrite them; give other names, or remove the exports with 'gnt-backup remove'."
        )
    runner = Runner(
        client,
        parallel=chosen.parallel,
        retries=chosen.retries,
        say=say,
        show=(lambda line: say(f"   {line}")) if chosen.verbose else None,
    )
    return Run(chosen, client, runner, info, known, hypervisor, say)


def carry_out(run: Run, step: Step, summary: report.Report) -> None:
    """Carry out one step, and record it.

    :raises GenericError: it failed.
    :raises KeyboardInterrupt: the user interrupted it.
    """
    record = report.StepRecord(step.name, step.title, report.DONE)
    summary.steps.append(record)
    obstacle = step.obstacle(run)
    if obstacle:
        record.result, record.why = report.SKIPPED, obstacle
        run.say(f"-  {step.title}: skipped, because {obstacle}")
        return
    run.say(f"-  {step.title}")
    run.runner.begin(step.name)
    started = time.monotonic()
    try:
        step.do(run)
        if step is not _REMOVE:
            check_running(run)
    except KeyboardInterrupt:
        record.result, record.why = report.INTERRUPTED, "the user interrupted the program"
        raise
    except errors.GenericError as err:
        record.result, record.why = report.FAILED, text_of(err)
        raise
    finally:
        record.seconds = round(time.monotonic() - started, 3)
        record.jobs = run.runner.records
    run.say(f"   done in {record.seconds:.1f} s")


def remove(run: Run) -> None:
    """Remove those of the instances which exist, and their exports.

    :raises JobsFailed: an instance could not be removed.
    """
    there = created(run)
    try:
        run.runner.run({name: [op.OpInstanceRemove(instance_name=name)] for name in there})
    except JobsFailed as err:
        run.say(f"   {err}")
        run.say("   trying again, and leaving what cannot be removed from a node")
        run.runner.run(
            {
                name: [op.OpInstanceRemove(instance_name=name, ignore_failures=True)]
                for name in created(run)
            },
            repeatable=False,
        )
    run.runner.run(
        {
            name: [op_backup.OpBackupRemove(instance_name=name)]
            for name in cluster.exports(run.client, possible_names(run))
        }
    )


def possible_names(run: Run) -> list[str]:
    """Return all names which the instances of this run may have."""
    chosen = run.options
    return sorted({*chosen.instances, *run.names, *([chosen.rename] if chosen.rename else [])})


def created(run: Run) -> list[str]:
    """Return the names of this run's instances which exist now."""
    return cluster.existing(run.client, possible_names(run))


def wanted(chosen: Options) -> list[Step]:
    """Return the steps which the user wants, in their order."""
    return [
        step
        for step in steps.STEPS
        if step.name not in chosen.left_out and (not chosen.only or step.name in chosen.only)
    ]


def execute(run: Run, summary: report.Report) -> int:
    """Carry out all steps, then remove the instances, also after an error or an interrupt.

    :returns: the exit code.
    """
    started = time.monotonic()
    code = 0
    try:
        for step in (steps.CREATE, *wanted(run.options)):
            carry_out(run, step, summary)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
        run.say("   interrupted; the program ends its jobs and removes its instances.")
        run.say("   A second interrupt ends it at once.")
    except errors.GenericError as err:
        code = EXIT_FAILURE
        log.error("%s", err)
        run.say(f"   failed: {text_of(err)}")
    try:
        code = _clean_up(run, summary) or code
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    with _tolerated("list the instances which are left"):
        summary.left = created(run)
    summary.seconds = round(time.monotonic() - started, 3)
    return code


def _clean_up(run: Run, summary: report.Report) -> int:
    """End the jobs and remove the instances; returns 1 when that failed."""
    try:
        run.runner.stop()
        if not run.options.keep_instances:
            carry_out(run, _REMOVE, summary)
    except errors.GenericError as err:
        log.error("cleaning up: %s", err)
        run.say(f"   failed: {text_of(err)}")
        return EXIT_FAILURE
    return 0


@contextlib.contextmanager
def _tolerated(what: str) -> Iterator[None]:
    """Print an error, and go on."""
    try:
        yield
    except errors.GenericError as err:
        terminal.err(f"burnin: cannot {what}: {text_of(err)}")


def finish(run: Run, summary: report.Report) -> None:
    """Print the table and what is left, and write the report for programs."""
    run.say("")
    run.say(summary.table())
    run.say("")
    bad = [step for step in summary.steps if step.result in (report.FAILED, report.INTERRUPTED)]
    for step in bad:
        run.say(f"Step '{step.name}' {_RESULTS[step.result]}: {step.why}")
    if summary.left and run.options.keep_instances:
        run.say(f"These instances were kept: {', '.join(summary.left)}.")
    elif summary.left:
        run.say(
            f"These instances are left: {', '.join(summary.left)}. Remove them with 'gnt-instance"
            f" remove --force {' '.join(summary.left)}'."
        )
    done = sum(step.result == report.DONE for step in summary.steps)
    if not bad:
        run.say(f"All {done} steps were carried out in {summary.seconds:.1f} s.")


_RESULTS: Final[Mapping[str, str]] = {
    report.FAILED: "failed",
    report.INTERRUPTED: "was interrupted",
}


def write_report(where: str, summary: report.Report) -> None:
    """Write the report for programs.

    :param where: a file, or ``-`` for standard output.
    :raises OSError: the file cannot be written.
    """
    text = json.dumps(summary.to_dict()) + "\n"
    if where == "-":
        terminal.out_data(text)
    else:
        fs.write_file(where, text, mode=0o644)


def _report_start(err: errors.GenericError) -> int:
    """Print why the run could not begin; returns the exit code."""
    if isinstance(err, BurninError):
        terminal.err(f"burnin: {err}")
        return EXIT_FAILURE
    if isinstance(err, errors.NoMasterError):
        err = failures.explain_no_master(err)
    code, text = failures.describe(err)
    terminal.err(text)
    return code


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, for the tests of the manual page."""
    return options.parser(steps.NAMES)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        chosen = options.parse(words, steps.NAMES)
    except options.UsageError as err:
        terminal.err(f"burnin: {err}")
        terminal.err("'burnin --help' lists the options.")
        return EXIT_USAGE
    # With the report on standard output, everything for people goes to standard error.
    say: Callable[[str], None] = terminal.err if chosen.report == "-" else terminal.out
    try:
        logsetup.setup("burnin", logfile=paths.current().log_burnin_file, debug=chosen.debug)
        client = jobs.connect()
        run = prepare(chosen, client, say)
    except errors.GenericError as err:
        return _report_start(err)
    summary = report.Report(run.cluster["name"], list(chosen.instances), time.time(), words)
    log.info("started: %s", " ".join(summary.arguments))
    code = execute(run, summary)
    finish(run, summary)
    log.info("ended: %s, %.1f s", summary.result, summary.seconds)
    if chosen.report is not None:
        try:
            write_report(chosen.report, summary)
        except OSError as err:
            terminal.err(f"burnin: cannot write {chosen.report}: {err.strerror}")
            return code or EXIT_FAILURE
    return code
