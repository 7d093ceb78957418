"""The program ``gnt-job``: show jobs, wait for them, cancel them, archive them."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, filters, jobs, listing, main, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Program, Values
from ganeti.constants import job as const
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi

LIST_FIELDS = ("id", "status", "summary")
_INFO_FIELDS = (
    "id",
    "status",
    "ops",
    "opresult",
    "opstatus",
    "oplog",
    "opstart",
    "opexec",
    "opend",
    "received_ts",
    "start_ts",
    "end_ts",
)


def _format_lists(value: Any) -> str:
    """Write a list with a value for each opcode; times in the values are not converted."""
    return listing.join_list(value) if isinstance(value, list) else str(value)


_FORMATTERS = {
    "summary": listing.join_list,
    "opstatus": listing.join_list,
    "oppriority": listing.join_list,
    "received_ts": listing.format_stamp,
    "start_ts": listing.format_stamp,
    "end_ts": listing.format_stamp,
    "opstart": lambda value: ",".join(listing.format_stamp(stamp) for stamp in value),
    "opexec": lambda value: ",".join(listing.format_stamp(stamp) for stamp in value),
    "opend": lambda value: ",".join(listing.format_stamp(stamp) for stamp in value),
    "opresult": _format_lists,
    "oplog": _format_lists,
}


_LISTING = listing.Listing("job", LIST_FIELDS, _FORMATTERS, name_field="id", numeric=True)


def list_jobs(values: Values, arguments: list[str]) -> int:
    """List jobs (``list``): the last ones for people, all for programs, or those of an object."""
    states = filters.simple_filter("status", values.status_filter or ())
    extra_fields = ("archived",) if values.archived else ()
    client = jobs.connect()
    people = listing.for_people(values)
    if people or not all(map(is_number, arguments)):
        from ganeti.client.gnt_job import recent

        by_object = not values.force_filter and any(map(recent.is_object, arguments))
        if people:
            listing.require_watch(values)
            qfilter = None if by_object else _LISTING.condition(values, arguments, client)
            # Jobs which are given by number or by a filter are all listed.
            every = (
                values.all or not by_object and bool(arguments) or any(map(is_number, arguments))
            )
            choice = recent.Choice(arguments if by_object else (), qfilter, states, every=every)
            return recent.show(values, client, choice, extra_fields)
        if by_object:
            arguments = [str(one) for one in recent.numbers(client, arguments, extra_fields)]
    return _LISTING.run(
        values, arguments, extra_filter=states, extra_fields=extra_fields, client=client
    )


def _job_ids(values: Values, arguments: Sequence[str], client: luxi.Client) -> list[int]:
    """Return the numbers of the jobs which are given by number or by a filter.

    :raises OpPrereqError: not a number, or no job is selected.
    """
    return [filters.job_id(text) for text in selector.names("job", values, arguments, client)]


def show_info(values: Values, arguments: list[str]) -> int:
    """Show all properties of jobs (``info``); the exit code is 1 when one does not exist."""
    client = jobs.connect()
    wanted = _job_ids(values, arguments, client)
    response = client.query("job", list(_INFO_FIELDS), filters.simple_filter("id", wanted))
    rows = {row[0][1]: row for row in response["data"] if row[0][0] == 0}
    found = [(job_id, rows.get(job_id)) for job_id in wanted]
    from ganeti.cli import output

    if values.output_format in opt.DATA_FORMATS:
        shown = {"fields": response["fields"], "data": [row for _, row in found if row]}
        output.write_data(listing.as_objects(shown), values.output_format)
    else:
        output.write_info(
            [_describe(row) if row else f"Job ID {job_id} not found" for job_id, row in found]
        )
    return failures.EXIT_SUCCESS if all(row for _, row in found) else failures.EXIT_FAILURE


def _describe(row: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the properties of one job as keys and values."""
    # An archived or damaged job may lack a field, which is then treated as empty.
    value = {name: cell[1] for name, cell in zip(_INFO_FIELDS, row, strict=True)}
    received, start, end = value["received_ts"], value["start_ts"], value["end_ts"]
    total = f"{_seconds_between(received, end):.6f} seconds" if received and end else "N/A"
    return [
        ("Job ID", value["id"]),
        ("Status", value["status"]),
        *_submitter(value["ops"] or ()),
        ("Received", f"        {_stamp(received)}"),
        ("Processing start", _stamp_and_delta(start, received)),
        ("Processing end", f"  {_stamp_and_delta(end, start)}"),
        ("Total processing time", total),
        (
            "Opcodes",
            [
                _describe_opcode(*parts)
                for parts in zip(
                    value["ops"] or [],
                    value["opstatus"] or [],
                    value["opresult"] or [],
                    value["oplog"] or [],
                    value["opstart"] or [],
                    value["opexec"] or [],
                    value["opend"] or [],
                    strict=False,
                )
            ],
        ),
    ]


def _submitter(ops: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return the line about the author of a job, for people; programs read the reason trail."""
    if not ops or not terminal.is_terminal(sys.stdout):
        return []
    from ganeti.utils import author

    who = author.of_trail(ops[0].get("reason"))
    return [("Submitted by", who)] if who else []


def _describe_opcode(
    fields: dict[str, Any],
    status: str,
    result: Any,
    log: Sequence[Any],
    start: Any,
    execution: Any,
    end: Any,
) -> list[tuple[str, Any]]:
    return [
        ("Opcode", fields.get("OP_ID")),
        ("Status", status),
        ("Processing start", _stamp(start)),
        ("Execution start", f" {_stamp(execution)}"),
        ("Processing end", f"  {_stamp(end)}"),
        ("Input fields", fields),
        ("Result", result),
        ("Execution log", [_describe_entry(entry) for entry in log]),
    ]


def _describe_entry(entry: Sequence[Any]) -> list[tuple[str, Any]]:
    serial, stamp, kind, message = entry
    return [("Time", _stamp(stamp)), ("Content", f"[{serial}, {kind}, {message}]")]


def _stamp(stamp: Any) -> str:
    return listing.format_stamp(stamp) if stamp else "N/A"


def _stamp_and_delta(stamp: Any, before: Any) -> str:
    if not stamp:
        return "unknown (None)"
    if not before:
        return _stamp(stamp)
    return f"{_stamp(stamp)} (delta {_seconds_between(before, stamp):.6f}s)"


def _seconds_between(before: Sequence[int], after: Sequence[int]) -> float:
    return (after[0] - before[0]) + (after[1] - before[1]) / 1e6


def explain(values: Values, arguments: list[str]) -> int:
    """Show the reasons why jobs wait (``explain``)."""
    client = jobs.connect()
    wanted = _job_ids(values, arguments, client)
    found = [client.explain_job(job_id) for job_id in wanted]
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(found, values.output_format)
        return failures.EXIT_SUCCESS
    from ganeti.luxi import explain_text

    for number, explanation in enumerate(found):
        if number:
            terminal.out("")
        for line in explain_text.describe(explanation, time.time()):
            terminal.out(line)
    return failures.EXIT_SUCCESS


def top(values: Values, arguments: list[str]) -> int:
    """Show the jobs that have not ended, and update this (``top``)."""
    from ganeti.client.gnt_job import top as job_top

    return job_top.run(values, arguments)


def watch(values: Values, arguments: list[str]) -> int:
    """Show the log of a job until the job ends (``watch``)."""
    job_id = filters.job_id(arguments[0])
    client = jobs.connect()
    # Queried first, so that a wrong number gives an error and no title.
    if client.query_jobs([job_id], ["status"])[0] is None:
        raise errors.JobLost(f"job {job_id} does not exist")
    title = f"Output from job {job_id} follows"
    terminal.out(f"{title}\n{'-' * len(title)}")
    return _await(client, job_id, terminal.out)


def wait(values: Values, arguments: list[str]) -> int:
    """Wait until a job ends (``wait``); the exit code shows whether it succeeded."""
    return _await(jobs.connect(), filters.job_id(arguments[0]), lambda text: None)


def _await(client: luxi.Client, job_id: int, show: Any) -> int:
    try:
        jobs.wait_for_job(client, job_id, show)
    except KeyboardInterrupt as err:
        raise jobs.WaitInterrupted([job_id]) from err
    except errors.LuxiError:
        raise
    except errors.JobLost:
        raise
    except errors.GenericError as err:
        code, text = failures.describe(err)
        terminal.err(
            f"Error: job {job_id} failed: {failures.sentence(err)}"
            if terminal.is_terminal(sys.stderr)
            else f"Job {job_id} failed: {text}"
        )
        return code
    return failures.EXIT_SUCCESS


def cancel(values: Values, arguments: list[str]) -> int:
    """Cancel jobs (``cancel``)."""
    if values.kill and not values.yes_do_it:
        raise errors.OpPrereqError(
            "--kill leaves the work of a running job incomplete. Add --yes-do-it to confirm.",
            errors.ECODE_INVAL,
        )

    client = jobs.connect()
    chosen = _choose(values, arguments, client, "Cancel job(s)?")
    if isinstance(chosen, int):
        return chosen
    if values.kill:
        return _act_on_jobs(chosen, functools.partial(client.cancel_job, kill=True))
    from ganeti.client.gnt_job import cancel as job_cancel

    return job_cancel.cancel(client, chosen, wait=not values.no_wait)


def change_priority(values: Values, arguments: list[str]) -> int:
    """Change the priority of jobs (``change-priority``)."""
    priority = values.priority
    if priority is None:
        raise errors.OpPrereqError(
            "no priority is given. Add --priority low, normal or high.", errors.ECODE_INVAL
        )

    client = jobs.connect()
    chosen = _choose(values, arguments, client, "Change priority of job(s)?")
    if isinstance(chosen, int):
        return chosen
    return _act_on_jobs(chosen, lambda job_id: client.change_job_priority(job_id, priority))


def _choose(
    values: Values, arguments: Sequence[str], client: luxi.Client, question: str
) -> list[int] | int:
    """Return the jobs which are given by number, by a filter or by state.

    :param question: asks for confirmation when the jobs are not given by number.
    :returns: their numbers; or the exit code, when there is nothing to do.
    """
    if bool(arguments) == bool(values.status_filter):
        raise errors.OpPrereqError(
            "give either job ids, or -F and a filter, or one of --pending, --queued and --waiting",
            errors.ECODE_INVAL,
        )
    job_ids = [] if values.status_filter else _job_ids(values, arguments, client)
    if not (values.status_filter or values.multi_mode):
        return job_ids
    chosen = (
        filters.simple_filter("status", values.status_filter)
        if values.status_filter
        else filters.simple_filter("id", job_ids)
    )
    response = client.query("job", ["id", "status", "summary"], chosen)
    job_ids = [row[0][1] for row in response["data"]]
    if not job_ids:
        terminal.out("No job is in this state")
        return failures.EXIT_SUCCESS
    if not values.force:
        for row in response["data"]:
            terminal.out(f"{row[0][1]} {row[1][1]} {listing.join_list(row[2][1])}")
        from ganeti.cli import confirmation

        code = confirmation.ask(values, question)
        if code is not None:
            return code
    return job_ids


def _act_on_jobs(job_ids: Sequence[int], act: Callable[[int], Sequence[Any]]) -> int:
    """Call a function for each job, and show the answers of the master.

    :param act: returns whether it succeeded, and the answer of the master.
    :returns: the exit code.
    """
    code = failures.EXIT_SUCCESS
    for job_id in job_ids:
        success, message = act(job_id)
        terminal.out(str(message))
        if not success:
            code = failures.EXIT_FAILURE
    return code


def archive(values: Values, arguments: list[str]) -> int:
    """Move finished jobs to the archive (``archive``)."""
    client = jobs.connect()
    code = failures.EXIT_SUCCESS
    for job_id in _job_ids(values, arguments, client):
        if not client.archive_job(job_id):
            terminal.err(
                f"Failed to archive job with ID '{job_id}'. The job has not ended, or is not"
                " in the queue."
            )
            code = failures.EXIT_FAILURE
    return code


def auto_archive(values: Values, arguments: list[str]) -> int:
    """Move finished jobs of some age to the archive (``autoarchive``)."""
    if arguments[0] == "all":
        age_s = -1
    else:
        from ganeti.cli import value_types

        try:
            age_s = value_types.parse_time(arguments[0])
        except errors.ParameterError as err:
            raise errors.OpPrereqError(f"{err} Or 'all'.", errors.ECODE_INVAL) from err
    archived, left = jobs.connect().auto_archive_jobs(age_s)
    terminal.out(f"Archived {archived} jobs, {left} unchecked left")
    return failures.EXIT_SUCCESS


def _states(name: str, states: Sequence[str], help_text: str) -> Option:
    return Option(
        name, action="store_const", const=list(states), dest="status_filter", help=help_text
    )


_PENDING = _states("--pending", sorted(const.PENDING), "select jobs that have not begun")
_QUEUED = _states("--queued", [const.STATUS_QUEUED], "select jobs that are still queued")
_WAITING = _states("--waiting", [const.STATUS_WAITING], "select jobs that wait for locks")
_RUNNING = _states("--running", [const.STATUS_RUNNING], "select jobs that are running")
_ERROR = _states("--error", [const.STATUS_ERROR], "select jobs that failed")
_FINISHED = _states(
    "--finished", sorted(const.FINALIZED), "select jobs that have ended, with success or not"
)
_ARCHIVED = opt.flag("--archived", help="also list archived jobs, and show which jobs are archived")
_ALL = opt.flag(
    "--all",
    help="on a terminal, also list older jobs than the last ones, and jobs which only read",
)
_KILL = opt.flag(
    "--kill", help="kill a running job, whose work may stay incomplete; needs --yes-do-it"
)

_NO_WAIT = opt.flag(
    "--no-wait", help="do not wait for the end of jobs which go on after they were canceled"
)

PROGRAM = Program(
    "gnt-job",
    "Show jobs, wait for them, cancel them, archive them.",
    [
        *listing.commands(
            _LISTING,
            "List jobs and their states",
            [*opt.LIST_OPTIONS, _PENDING, _RUNNING, _ERROR, _FINISHED, _ARCHIVED, _ALL],
            run=list_jobs,
            argument="jobid",
            usage="",
        ),
        Command(
            "info",
            show_info,
            [Argument("jobid", 1)],
            [selector.FILTER, opt.OUTPUT_FORMAT],
            "Show all properties of jobs",
        ),
        Command(
            "explain",
            explain,
            [Argument("jobid", 1)],
            [selector.FILTER, opt.OUTPUT_FORMAT],
            "Show the reasons why jobs wait, and the jobs which hold them back",
        ),
        Command(
            "top",
            top,
            [],
            [
                opt.flag("--once", help="show the list once and exit, as without a terminal"),
                opt.number(
                    "--interval",
                    default=2,
                    metavar="SECONDS",
                    help="update the list every SECONDS; 2 by default",
                ),
                opt.number(
                    "-n",
                    "--number",
                    metavar="NUMBER",
                    help="show at most NUMBER jobs; by default as many as fit on the terminal",
                ),
                opt.NO_HEADERS,
                opt.SEPARATOR,
                opt.OUTPUT_FORMAT,
            ],
            "Show the jobs that have not ended, and update this until the user presses q",
        ),
        Command(
            "watch",
            watch,
            [Argument("jobid", 1, 1)],
            [],
            "Show the log of a job until the job ends",
        ),
        Command(
            "wait",
            wait,
            [Argument("jobid", 1, 1)],
            [],
            "Wait until a job ends; the exit code shows whether it succeeded",
        ),
        Command(
            "cancel",
            cancel,
            [Argument("jobid")],
            [
                selector.FILTER,
                opt.FORCE,
                _KILL,
                _NO_WAIT,
                _PENDING,
                _QUEUED,
                _WAITING,
                opt.YES_DO_IT,
            ],
            "Cancel jobs",
        ),
        Command(
            "change-priority",
            change_priority,
            [Argument("jobid")],
            [selector.FILTER, opt.PRIORITY, opt.FORCE, _PENDING, _QUEUED, _WAITING],
            "Change the priority of jobs in the queue",
        ),
        Command(
            "archive",
            archive,
            [Argument("jobid", 1)],
            [selector.FILTER],
            "Move jobs that have ended from the queue to the archive",
        ),
        Command(
            "autoarchive",
            auto_archive,
            [Argument("suggest", 1, 1, choices=("1d", "1w", "4w", "all"))],
            [],
            "Archive jobs that ended at least some time ago, such as 7d",
            usage="{<age>|all}",
        ),
    ],
    aliases={"show": "info"},
    examples={
        "list": "--error -o id,summary,end_ts",
        "list-fields": "",
        "info": "1234",
        "explain": "1234",
        "top": "--interval=5",
        "watch": "1234",
        "wait": "1234",
        "cancel": "1234 1235",
        "change-priority": "--priority=high 1234",
        "archive": "1234 1235",
        "autoarchive": "7d",
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
