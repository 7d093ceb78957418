"""``gnt-cluster``: disks that are not usable, and their recorded sizes."""

from __future__ import annotations

from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ganeti.opcodes.base import OpCode


def verify_disks(values: Values, arguments: list[str]) -> int:
    """``verify-disks``: look, and activate what can be; a dry run looks, too, and then stops."""
    from ganeti.client.gnt_cluster import disk_check

    client = jobs.connect()
    common = jobs.common_params(values)
    looking = {**common, "dry_run": False}

    def run(opcode: OpCode) -> Any:
        return jobs.run_opcode(opcode, values, client=client)

    def await_jobs(rows: Sequence[Sequence[Any]]) -> Iterable[list[Any] | None]:
        job_set = jobs.JobSet(client, values, quiet=True)
        job_set.add_submitted(rows)
        return [outcome.result if outcome.success else None for outcome in job_set.wait()]

    report = disk_check.check(
        run, await_jobs, group=values.nodegroup, strict=not values.no_strict, **looking
    )
    code = failures.EXIT_SUCCESS if not report.failed else failures.EXIT_FAILURE
    for node, reason in sorted(report.silent.items()):
        code = failures.EXIT_FAILURE
        terminal.out(f"Error gathering data on node {node}: {reason}")
    if report.inactive:
        job_set = jobs.JobSet(client, values, verbose=False)
        doing = "A dry run activates no" if values.dry_run else "Activating"
        for name in report.inactive:
            terminal.out(f"{doing} disks for instance '{name}'")
            job_set.add(name, disk_check.activation(name, **common))
        if not all(outcome.success for outcome in job_set.wait()):
            code = failures.EXIT_FAILURE
    for name, devices in sorted(report.missing.items()):
        code = failures.EXIT_FAILURE
        terminal.out(f"Instance {name} has missing logical volumes or files:")
        for node, device in devices:
            terminal.out(f"  {node} {device}")
    if report.missing:
        terminal.out(
            "Disks that are gone are made again with 'gnt-instance recreate-disks' or"
            " 'gnt-instance replace-disks'; what was on them is lost or comes from their"
            " other half."
        )
    return code


def repair_disk_sizes(values: Values, arguments: list[str]) -> int:
    """``repair-disk-sizes``."""
    from ganeti.opcodes.cluster import OpClusterRepairDiskSizes

    jobs.run_opcode(
        OpClusterRepairDiskSizes(instances=arguments, **jobs.common_params(values)), values
    )
    return failures.EXIT_SUCCESS


#: Rows of the table of ``gnt-cluster``.
COMMANDS = (
    Command(
        "verify-disks",
        verify_disks,
        [],
        [
            opt.NODE_GROUP,
            opt.flag("--no-strict", help="leave nodes out that cannot be asked"),
            opt.DRY_RUN,
            opt.PRIORITY,
        ],
        "Activate the disks of instances that should be usable and are not",
    ),
    Command(
        "repair-disk-sizes",
        repair_disk_sizes,
        [Argument("instance")],
        [opt.DRY_RUN, opt.PRIORITY],
        "Correct the recorded sizes of disks by what the nodes have",
    ),
)
