"""Move instances to other node groups: ``gnt-instance change-group`` and ``gnt-group evacuate``.

The module holds the options and the waiting which both commands share, and the first command. It is
here because a program does not import modules of another one.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.cli import failures, jobs, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Values

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode

TO_GROUP = Option(
    "--to",
    kind="string",
    action="append",
    dest="to",
    metavar="<group>",
    completion="nodegroup",
    help="target node group; may be given several times, by default any other group",
)
EARLY_RELEASE = opt.flag("--early-release", help="release locks as soon as new disks are in sync")


def wait_for_moves(
    result: Mapping[str, Any], values: Values, client: luxi.Client, done: str
) -> int:
    """Wait for the jobs which move instances.

    :param result: result of the opcode that submitted these jobs, with the member ``jobs``.
    :param done: text to print when all jobs have succeeded.
    :returns: the exit code: 0 when all instances were moved, else 1.
    """
    if values.dry_run:
        return failures.EXIT_SUCCESS
    outcomes = jobs.await_submitted(result["jobs"], values, client)
    failed = sum(not outcome.success for outcome in outcomes)
    if failed:
        terminal.err(f"There were {failed} errors; instances whose job failed were not moved.")
        return failures.EXIT_FAILURE
    terminal.out(done)
    return failures.EXIT_SUCCESS


def change_group(values: Values, arguments: list[str]) -> int:
    """Move instances to another node group (``change-group``): wait for all jobs of the move."""
    from ganeti.cli import many

    client = jobs.connect()

    def move(name: str) -> int:
        result = jobs.run_opcode(_opcode(values, name), values, client=client)
        return wait_for_moves(
            result, values, client, f"Instance '{name}' changed group successfully."
        )

    names = many.several("instance", values, arguments, client)
    if names is None:
        return move(arguments[0])
    plan = "will be moved to other node groups, one after another"
    work = many.Plan("instance", plan=plan, done="moved", option="--yes")
    return many.one_after_another(names, values, work, move)


def _opcode(values: Values, name: str) -> OpCode:
    from ganeti.opcodes.instance import OpInstanceChangeGroup

    return OpInstanceChangeGroup(
        instance_name=name,
        iallocator=values.iallocator,
        target_groups=values.to or None,
        early_release=values.early_release,
        **jobs.common_params(values),
    )


CHANGE_GROUP = Command(
    "change-group",
    change_group,
    [Argument("instance", 1)],
    [
        *selector.CHANGE_INSTANCES,
        opt.IALLOCATOR,
        TO_GROUP,
        EARLY_RELEASE,
        opt.DRY_RUN,
        *opt.SUBMIT_OPTIONS,
        opt.PRIORITY,
    ],
    "Move instances to other node groups",
)
