"""The command ``gnt-node maintenance``: empty a node for work on its machine, and refill it."""

from __future__ import annotations

import copy
from functools import partial

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.client.gnt_node.options import NEW_SECONDARY
from ganeti.constants import node as node_c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode

_ACTIONS = ("start", "end")


def maintenance(values: Values, arguments: list[str]) -> int:
    """Start or end the maintenance of nodes, one after another (``maintenance``)."""
    from ganeti.cli import many

    action, *words = arguments
    if action not in _ACTIONS:
        terminal.err(
            f"maintenance subcommand '{action}' not supported. Known are: {', '.join(_ACTIONS)}."
        )
        return failures.EXIT_FAILURE
    client = jobs.connect()
    run = _start if action == "start" else _end
    names = many.several("node", values, words, client)
    if names is None:
        return run(client, values, words[0])
    plan = {
        "start": "will be emptied, one after another: their instances move to other nodes",
        "end": "will get back what they had, one after another",
    }[action]
    if values.stop:
        plan += ", or are stopped"
    work = many.Plan("node", plan=plan, done="ready")
    # The plan of all nodes is the question.
    agreed = Values(**{**values.__dict__, "force": True})
    return many.one_after_another(names, values, work, lambda name: run(client, agreed, name))


def _start(client: luxi.Client, values: Values, name: str) -> int:
    from ganeti.cli import confirmation
    from ganeti.opcodes.node import OpNodeMaintenanceStart

    if not values.move_back:
        raise errors.OpPrereqError("--no-move-back is an option of 'end'", errors.ECODE_INVAL)
    ((name, pinst),) = client.query_nodes([name], ["name", "pinst_list"], False)
    opcode = OpNodeMaintenanceStart(
        node_name=name,
        evacuate=values.evacuate,
        stop=values.stop,
        remote_node=values.dst_node,
        iallocator=values.iallocator,
        **jobs.common_params(values),
    )
    if pinst and not values.force and not values.dry_run:
        # A refusal comes before the question, and so does what would go where.
        _show_plan(client, opcode)
        code = confirmation.ask(
            values, f"Move or stop the instances of node {name}: {', '.join(sorted(pinst))}?"
        )
        if code is not None:
            return code
    return _run(
        client,
        values,
        opcode,
        f"Node {name} is ready: no guest runs there, and it is safe to switch it off.\n"
        f"Bring back what it had with: gnt-node maintenance end {name}",
        f"Node {name} is not ready; do not switch it off.",
    )


def _show_plan(client: luxi.Client, opcode: OpCode) -> None:
    """Let the master check an operation without carrying it out, and print what it says.

    :raises errors.GenericError: the operation is refused.
    """
    plan = copy.copy(opcode)
    plan.dry_run = True
    with jobs.submission():
        job_id = client.submit_job([plan])
    jobs.wait_for_job(client, job_id, terminal.err, _plan_line)


def _plan_line(timestamp: Sequence[int], kind: str, message: Any) -> str:
    """Return a line of the log of the dry run, without what only a user who wanted one expects."""
    text = str(message)
    if "dry run:" in text.partition("\n")[0]:
        return ""
    if not text.startswith("Plan of "):
        return jobs.format_log_entry(timestamp, kind, message)
    everything = text.partition("\n")[2]
    steps = everything.partition("  steps:\n")[2]
    return f"What will be done:\n{steps or everything}"


def _end(client: luxi.Client, values: Values, name: str) -> int:
    from ganeti.opcodes.node import OpNodeMaintenanceEnd

    for given, option in (
        (values.evacuate, "--evacuate"),
        (values.stop, "--stop"),
        (values.dst_node, "--new-secondary"),
        (values.iallocator, "--iallocator"),
    ):
        if given:
            raise errors.OpPrereqError(f"{option} is an option of 'start'", errors.ECODE_INVAL)
    ((name, state),) = client.query_nodes([name], ["name", "maintenance"], False)
    done = f"The maintenance of node {name} has ended."
    not_done = f"Node {name} is still in maintenance."
    reached = partial(_has_ended, client, name)
    if state == node_c.MAINTENANCE_RETURNING and values.move_back and not values.dry_run:
        present = _checks(client, name)
        if present:
            terminal.out(
                f"The end of the maintenance of node {name} was asked for before, and goes on until"
                f" job {present[-1]} has ended. Nothing was submitted."
            )
            if values.submit_only:
                return failures.EXIT_SUCCESS
            rows = [(True, job_id) for job_id in present]
            return _wait(client, values, rows, done, not_done, reached)
    opcode = OpNodeMaintenanceEnd(
        node_name=name, move_back=values.move_back, **jobs.common_params(values)
    )
    return _run(client, values, opcode, done, not_done, reached)


def _has_ended(client: luxi.Client, name: str) -> bool:
    """Tell whether a node is in maintenance no more, also if others have ended it."""
    ((state,),) = client.query_nodes([name], ["maintenance"], False)
    return state is None


def _checks(client: luxi.Client, name: str) -> list[int]:
    """Return the jobs which have not ended, and end the maintenance of a node."""
    unfinished = [["==", "status", one] for one in ("queued", "waiting", "running")]
    summary = f"NODE_MAINTENANCE_CHECK({name})"
    chosen = ["&", ["|", *unfinished], ["=[]", "summary", summary]]
    return [int(row[0][1]) for row in client.query("job", ["id"], chosen)["data"]]


def _run(
    client: luxi.Client,
    values: Values,
    opcode: OpCode,
    done: str,
    not_done: str,
    reached: Callable[[], bool] = lambda: False,
) -> int:
    """Run the opcode, then wait for the jobs which it has submitted."""
    result = jobs.run_opcode(opcode, values, client=client)
    if values.dry_run:
        return failures.EXIT_SUCCESS
    return _wait(client, values, result["jobs"], done, not_done, reached)


def _wait(
    client: luxi.Client,
    values: Values,
    rows: Iterable[Sequence[Any]],
    done: str,
    not_done: str,
    reached: Callable[[], bool],
) -> int:
    """Wait for jobs.

    The last of them is the check, whose result counts; a failed move is a part of it.

    :param reached: tells after a failure whether others have done it.
    """
    job_set = jobs.JobSet(client, values)
    job_set.add_submitted(rows, named=True)
    if all(outcome.success for outcome in job_set.wait()) or reached():
        terminal.out(done)
        return failures.EXIT_SUCCESS
    terminal.err(not_done)
    return failures.EXIT_FAILURE


MAINTENANCE = Command(
    "maintenance",
    maintenance,
    [Argument("choice", 1, 1, _ACTIONS), Argument("node", 1)],
    [
        *selector.CHANGE_NODES,
        opt.FORCE,
        opt.flag(
            "--evacuate",
            help="start: move all instances and all replicas away, also stopped ones",
        ),
        opt.flag("--stop", help="start: stop the instances which cannot be moved"),
        opt.IALLOCATOR,
        NEW_SECONDARY,
        opt.negative(
            "--no-move-back", dest="move_back", help="end: leave what was moved where it is"
        ),
        opt.DRY_RUN,
        *opt.SUBMIT_OPTIONS,
        opt.PRIORITY,
    ],
    "Empty nodes for work on their machines, or bring back what they had",
    usage="[<options>] start|end <node>...",
)
