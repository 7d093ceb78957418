"""The commands ``gnt-cluster verify-disks`` and ``gnt-cluster repair-disk-sizes``."""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.cli import failures, jobs, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ganeti.opcodes.base import OpCode


def verify_disks(values: Values, arguments: list[str]) -> int:
    """Check disks and activate those which are inactive (``verify-disks``).

    A dry run also checks the disks, but shows the plans of the activations instead of activating.
    """
    from ganeti.client.gnt_cluster import disk_report

    client = jobs.connect()
    common = jobs.common_params(values)
    check_params = {**common, "dry_run": False}

    def run(opcode: OpCode) -> Any:
        return jobs.run_opcode(opcode, values, client=client)

    def await_jobs(rows: Sequence[Sequence[Any]]) -> Iterable[list[Any] | None]:
        job_set = jobs.JobSet(client, values, quiet=True)
        job_set.add_submitted(rows)
        return [outcome.result if outcome.success else None for outcome in job_set.wait()]

    report = disk_report.check(
        run, await_jobs, group=values.nodegroup, strict=not values.no_strict, **check_params
    )
    if report.clean:
        terminal.out("No disks need to be activated.")
    code = failures.EXIT_SUCCESS if not report.failed else failures.EXIT_FAILURE
    for node, reason in sorted(report.unresponsive.items()):
        code = failures.EXIT_FAILURE
        terminal.out(f"Error gathering data on node {node}: {reason}")
    if report.inactive:
        job_set = jobs.JobSet(client, values, verbose=False)
        doing = "A dry run activates no" if values.dry_run else "Activating"
        for name in report.inactive:
            terminal.out(f"{doing} disks for instance '{name}'")
            job_set.add(name, disk_report.activation(name, **common))
        if not all(outcome.success for outcome in job_set.wait()):
            code = failures.EXIT_FAILURE
    for name, devices in sorted(report.missing.items()):
        code = failures.EXIT_FAILURE
        terminal.out(f"Instance {name} has missing logical volumes or files:")
        for node, device in devices:
            terminal.out(f"  {node} {device}")
    if report.missing:
        terminal.out(
            "Create missing disks again: with 'gnt-instance replace-disks' their content is copied"
            " from the other replica, with 'gnt-instance recreate-disks' it is lost."
        )
    return code


def repair_disk_sizes(values: Values, arguments: list[str]) -> int:
    """Correct the recorded sizes of disks by the sizes on the nodes (``repair-disk-sizes``)."""
    from ganeti.opcodes.cluster import OpClusterRepairDiskSizes

    client = jobs.connect()
    names = selector.names("instance", values, arguments, client)
    jobs.run_opcode(
        OpClusterRepairDiskSizes(instances=names, **jobs.common_params(values)),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


#: The commands of this module.
COMMANDS = (
    Command(
        "verify-disks",
        verify_disks,
        [],
        [
            opt.NODE_GROUP,
            opt.flag("--no-strict", help="skip nodes that do not answer, instead of failing"),
            opt.DRY_RUN,
            opt.PRIORITY,
        ],
        "Look for disks which should be usable but are not, and activate them",
    ),
    Command(
        "repair-disk-sizes",
        repair_disk_sizes,
        [Argument("instance")],
        [*selector.INSTANCE_OPTIONS, opt.DRY_RUN, opt.PRIORITY],
        "Compare the recorded sizes of disks with the nodes, and correct the records",
    ),
)
