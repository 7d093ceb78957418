"""Do something to one object, or to each of several: the plan, the question, the jobs, the results.

One object which the arguments name is handled as ever: a question where the command destroys or
stops something, one job, its result. When there are several, or when one of the options of
:mod:`ganeti.cli.selector` selects them, the command

1. looks up all names, so that a wrong one is reported before anything happens;
2. shows the plan: how many objects there are, which ones, and what happens to them;
3. asks, unless ``--yes`` is given, or ``--force`` where that option means no more than this;
4. submits a job for each object in one request. The job queue starts as many of them together as
   its limit ``--max-running-jobs`` (**gnt-cluster**\\(8)) and their locks allow;
5. waits for all jobs, and writes a line for each object, and how many succeeded.

The exit code is 1 when one of the jobs failed or could not be submitted. The jobs of the other
objects go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import confirmation, failures, jobs, selector, terminal
from ganeti.cli.command import Values

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode


class Plan:
    """What happens to several objects.

    :param resource: kind of the objects: ``instance`` or ``node``.
    :param plan: what happens to them; the plan is "3 instances will be removed".
    :param done: what has happened to one: "removed".
    :param option: the option which makes the question unnecessary, besides ``--yes`` and
        ``--force-multiple``.
    """

    __slots__ = ("done", "option", "plan", "resource")

    def __init__(self, resource: str, *, plan: str, done: str, option: str = "--force") -> None:
        self.resource = resource
        self.plan = plan
        self.done = done
        self.option = option

    def needs_question(self, values: Values) -> bool:
        """Return True unless an option says that nobody is to be asked."""
        agreed = values.get("force_multi") or values.get("confirm")
        return not (agreed or (self.option == "--force" and values.force))


class Work(Plan):
    """What a command does to each of its objects, with one opcode.

    :param make: returns the opcode for the object of a name.
    :param question: what the user is asked before it happens to one object, with ``{name}`` where
        its name belongs; empty when a command on one object does not ask.
    :param report: called with the name and the result of each opcode which succeeded, and whether
        there are several objects; returns whether the result is a success. None to write nothing.
    """

    __slots__ = ("make", "question", "report")

    def __init__(
        self,
        resource: str,
        make: Callable[[str], OpCode],
        *,
        plan: str,
        done: str,
        question: str = "",
        option: str = "--force",
        report: Callable[[str, Any, bool], bool] | None = None,
    ) -> None:
        super().__init__(resource, plan=plan, done=done, option=option if question else "--yes")
        self.make = make
        self.question = question
        self.report = report


def run(values: Values, arguments: Sequence[str], work: Work) -> int:
    """Do the work to the object which the argument names, or to all which are selected.

    :returns: the exit code.
    :raises OpPrereqError: nothing is selected, or a name is wrong.
    """
    client = jobs.connect()
    names = several(work.resource, values, arguments, client)
    if names is not None:
        return on_each(names, values, work, client)
    name = arguments[0]
    if work.question and work.needs_question(values):
        # A wrong name is reported before the question.
        (full,) = known_names(work.resource, [name], client)
        code = confirmation.ask(values, work.question.replace("{name}", full), work.option)
        if code is not None:
            return code
    result = jobs.run_opcode(work.make(name), values, client=client)
    good = work.report is None or values.get("dry_run") or work.report(name, result, False)
    return failures.EXIT_SUCCESS if good else failures.EXIT_FAILURE


def several(
    resource: str, values: Values, arguments: Sequence[str], client: luxi.Client
) -> list[str] | None:
    """Return the full names of the selected objects; None when the arguments are one name.

    A forthcoming instance is selected only by its name. Each object is there once.

    :raises OpPrereqError: nothing is selected, or a name is wrong.
    """
    if not selector.given(values):
        if len(arguments) == 1:
            return None
        return list(dict.fromkeys(known_names(resource, arguments, client)))
    names = selector.names(resource, values, arguments, client)
    if resource != "instance":
        return names
    rows = client.query_instances(names, ["name", "forthcoming"], False)
    found = [name for name, forthcoming in rows if not forthcoming]
    if not found:
        raise errors.OpPrereqError(
            "only forthcoming instances are selected. Name them to include them.",
            errors.ECODE_INVAL,
        )
    return found


def known_names(resource: str, names: Sequence[str], client: luxi.Client) -> list[str]:
    """Return the full names of objects.

    :raises OpPrereqError: a name is wrong.
    """
    query = client.query_instances if resource == "instance" else client.query_nodes
    return [row[0] for row in query(list(names), ["name"], False)]


def accepted(names: Sequence[str], values: Values, work: Plan) -> int | None:
    """Show what will happen to which objects, and ask.

    :returns: None to continue, else the exit code.
    """
    if not work.needs_question(values):
        return None
    terminal.out(f"{count(names, work.resource)} {work.plan}:")
    for name in names:
        terminal.out(f"  {name}")
    return confirmation.ask(values, "Continue?", work.option)


def count(names: Sequence[str], resource: str) -> str:
    """Return how many objects there are: ``1 node``, ``3 instances``."""
    return f"{len(names)} {resource}{'' if len(names) == 1 else 's'}"


def on_each(names: Sequence[str], values: Values, work: Work, client: luxi.Client) -> int:
    """Show the plan and ask, then do the work to each object in a job of its own.

    :returns: the exit code.
    """
    code = accepted(names, values, work)
    if code is not None:
        return code
    job_set = jobs.JobSet(client, values)
    for name in names:
        job_set.add(name, work.make(name))
    if values.get("submit_only"):
        return failures.EXIT_SUCCESS if job_set.run() else failures.EXIT_FAILURE
    good: list[str] = []
    bad: list[str] = []
    for outcome in job_set.wait():
        (good if _is_good(outcome, values, work) else bad).append(outcome.name)
    return summary(good, bad, values, work)


def _is_good(outcome: jobs.JobOutcome, values: Values, work: Work) -> bool:
    if not outcome.success or values.get("dry_run"):
        return outcome.success
    if work.report is not None:
        return work.report(outcome.name, outcome.result[0], True)
    if not jobs.has_closing_line(values):
        terminal.out(f"{outcome.name}: {work.done}")
    return True


def one_after_another(
    names: Sequence[str], values: Values, work: Plan, do: Callable[[str], int]
) -> int:
    """Do the work to each object when the object before is ready; the plan comes first.

    This is for work which submits jobs of its own: where an object would go depends on what
    happened to the ones before.

    :param do: does the work to the object of a name without a question; returns the exit code.
    :returns: the exit code.
    """
    code = accepted(names, values, work)
    if code is not None:
        return code
    good: list[str] = []
    bad: list[str] = []
    for number, name in enumerate(names, 1):
        terminal.out(f"{name} ({number} of {len(names)})")
        try:
            code = do(name)
        except errors.JobSubmittedException as err:
            terminal.out(f"{err.job_id}: {name}")
            continue
        except (errors.LuxiError, errors.ConfigurationError):
            raise
        except errors.GenericError as err:
            terminal.err(f"{name}: {failures.describe(err)[1]}")
            code = failures.EXIT_FAILURE
        (bad if code else good).append(name)
    if values.get("submit_only"):
        return failures.EXIT_FAILURE if bad else failures.EXIT_SUCCESS
    return summary(good, bad, values, work)


def summary(good: Sequence[str], bad: Sequence[str], values: Values, work: Plan) -> int:
    """Write how many objects are ready, and which are not; return the exit code."""
    total = [*good, *bad]
    done = f"could be {work.done}" if values.get("dry_run") else work.done
    if not bad:
        terminal.out(f"{count(total, work.resource)} {done}.")
        return failures.EXIT_SUCCESS
    terminal.err(f"{len(good)} of {count(total, work.resource)} {done}; failed: {', '.join(bad)}.")
    return failures.EXIT_FAILURE
