"""The commands ``gnt-instance migrate``, ``failover`` and ``move``: change the node."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Values
from ganeti.client.gnt_instance import selection
from ganeti.constants import instance as const


def migrate(values: Values, arguments: list[str]) -> int:
    """Migrate an instance (``migrate``)."""
    from ganeti.opcodes.instance import OpInstanceMigrate

    name = arguments[0]
    if values.migration_mode and not values.live:
        raise errors.OpPrereqError("give either --non-live or --migration-mode", errors.ECODE_INVAL)
    client = jobs.connect()
    what = (
        "The failed migration of instance {instance} will be cleaned up"
        if values.cleanup
        else "Instance {instance} will be migrated to another node"
    )
    code = selection.confirmed(values, name, f"{what}. Continue?", client)
    if code is not None:
        return code
    jobs.run_opcode(
        OpInstanceMigrate(
            instance_name=name,
            mode=values.migration_mode or (None if values.live else "non-live"),
            target_node=values.dst_node,
            iallocator=values.iallocator,
            cleanup=values.cleanup,
            allow_runtime_changes=values.allow_runtime_chgs,
            allow_failover=values.allow_failover,
            ignore_ipolicy=values.ignore_ipolicy,
            ignore_hvversions=values.ignore_hvversions,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


def failover(values: Values, arguments: list[str]) -> int:
    """Stop an instance and start it on another node (``failover``)."""
    from ganeti.opcodes.instance import OpInstanceFailover

    name = arguments[0]
    client = jobs.connect()
    code = selection.confirmed(
        values,
        name,
        "Instance {instance} will be stopped and started on another node. Continue?",
        client,
    )
    if code is not None:
        return code
    jobs.run_opcode(
        OpInstanceFailover(
            instance_name=name,
            target_node=values.dst_node,
            iallocator=values.iallocator,
            cleanup=values.cleanup,
            ignore_consistency=values.ignore_consistency,
            ignore_ipolicy=values.ignore_ipolicy,
            shutdown_timeout=values.shutdown_timeout,
            **({"new_secondary": values.new_secondary} if values.new_secondary else {}),
            **({"wait_for_sync": True} if values.wait_for_sync else {}),
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


def move(values: Values, arguments: list[str]) -> int:
    """Copy an instance to another node (``move``)."""
    from ganeti.opcodes.instance import OpInstanceMove

    name = arguments[0]
    if not values.node:
        raise errors.OpPrereqError(
            f"no target node is given for instance {name}. Write --node NODE.", errors.ECODE_INVAL
        )
    client = jobs.connect()
    code = selection.confirmed(
        values,
        name,
        f"Instance {{instance}} will be stopped and copied to node {values.node}. Continue?",
        client,
    )
    if code is not None:
        return code
    jobs.run_opcode(
        OpInstanceMove(
            instance_name=name,
            target_node=values.node,
            shutdown_timeout=values.shutdown_timeout,
            compress=values.compress,
            ignore_consistency=values.ignore_consistency,
            ignore_ipolicy=values.ignore_ipolicy,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


_CLEANUP = opt.flag("--cleanup", help="only clean up after an interrupted migration or failover")


_JOB = (opt.DRY_RUN, opt.PRIORITY, *opt.SUBMIT_OPTIONS)


MIGRATE = Command(
    "migrate",
    migrate,
    [Argument("instance", 1, 1)],
    [
        opt.FORCE,
        opt.TARGET_NODE,
        opt.IALLOCATOR,
        opt.IGNORE_IPOLICY,
        opt.NON_LIVE,
        opt.MIGRATION_MODE,
        opt.flag("--allow-failover", help="fail over when the instance cannot be migrated"),
        opt.negative(
            "--no-runtime-changes",
            dest="allow_runtime_chgs",
            help="do not reduce the memory of the guest to fit the target node",
        ),
        opt.flag(
            "--ignore-hvversions",
            help="continue when the hypervisors of the nodes have different versions",
        ),
        _CLEANUP,
        *_JOB,
    ],
    "Move a running instance to another node without stopping it",
)


FAILOVER = Command(
    "failover",
    failover,
    [Argument("instance", 1, 1)],
    [
        opt.FORCE,
        opt.TARGET_NODE,
        opt.IALLOCATOR,
        opt.IGNORE_IPOLICY,
        opt.flag(
            "--ignore-consistency",
            help="continue when the disks are not in sync, or the primary node does not answer",
        ),
        opt.node(
            "--new-secondary",
            help="which of the present nodes of mirrored disks keeps its replica, when the target"
            " node has none; by default the secondary node",
        ),
        opt.flag(
            "--wait-for-sync",
            help="when the target node has no replica of mirrored disks, start the instance only"
            " after its new replica is in sync",
        ),
        opt.SHUTDOWN_TIMEOUT,
        _CLEANUP,
        *_JOB,
    ],
    "Stop an instance and start it on another node",
)


MOVE = Command(
    "move",
    move,
    [Argument("instance", 1, 1)],
    [
        opt.FORCE,
        opt.node("-n", "--node", help="target node; required"),
        opt.SHUTDOWN_TIMEOUT,
        opt.IGNORE_IPOLICY,
        opt.flag(
            "--ignore-consistency",
            help="continue when the instance cannot be stopped, or its disks cannot be deactivated",
        ),
        Option(
            "--compress",
            kind="string",
            default=const.COMPRESS_NONE,
            metavar="TOOL",
            help="compress the data during the transfer with this tool of the cluster; none"
            " by default",
        ),
        *_JOB,
    ],
    "Stop an instance and copy it to another node, with disks on one node only",
)
