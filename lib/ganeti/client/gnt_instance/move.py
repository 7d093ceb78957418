"""``gnt-instance migrate``, ``failover`` and ``move``: bring an instance to another node."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.cli.options import Option
from ganeti.client.gnt_instance import selection
from ganeti.constants import instance as const


def migrate(values: Values, arguments: list[str]) -> int:
    """``migrate``."""
    from ganeti.opcodes.instance import OpInstanceMigrate

    name = arguments[0]
    if values.migration_mode and not values.live:
        raise errors.OpPrereqError("give either --non-live or --migration-mode", errors.ECODE_INVAL)
    client = jobs.connect()
    what = (
        f"This cleans up after a failed migration of instance {name}"
        if values.cleanup
        else f"Instance {name} will be migrated to another node"
    )
    code = selection.confirmed(values, name, f"{what}. Go on?", client)
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
    """``failover``."""
    from ganeti.opcodes.instance import OpInstanceFailover

    name = arguments[0]
    client = jobs.connect()
    code = selection.confirmed(
        values, name, f"Instance {name} will be stopped and started on another node. Go on?", client
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
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


def move(values: Values, arguments: list[str]) -> int:
    """``move``."""
    from ganeti.opcodes.instance import OpInstanceMove

    name = arguments[0]
    if not values.node:
        raise errors.OpPrereqError("no node is given. Name it with --node.", errors.ECODE_INVAL)
    client = jobs.connect()
    code = selection.confirmed(
        values,
        name,
        f"Instance {name} will be stopped, and copied to node {values.node}. Go on?",
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


_CLEANUP = opt.flag("--cleanup", help="only clean up after a move that was broken off")


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
        opt.flag(
            "--non-live",
            dest="live",
            default=True,
            value=False,
            help="freeze the guest while it moves",
        ),
        Option(
            "--migration-mode",
            choices=("live", "non-live"),
            default=None,
            help="let the guest run while it moves, or freeze it",
        ),
        opt.flag("--allow-failover", help="fail over when it cannot be migrated"),
        opt.flag(
            "--no-runtime-changes",
            dest="allow_runtime_chgs",
            default=True,
            value=False,
            help="do not shrink its memory to make it fit",
        ),
        opt.flag("--ignore-hvversions", help="go on when the hypervisors differ"),
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
            help="go on when the disks are not in sync, or the primary node cannot be asked",
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
        Option(
            "-n", "--node", kind="string", metavar="<node>", completion="node", help="node to go to"
        ),
        opt.SHUTDOWN_TIMEOUT,
        opt.IGNORE_IPOLICY,
        opt.flag(
            "--ignore-consistency",
            help="go on when the instance cannot be stopped, or its disks not be deactivated",
        ),
        Option(
            "--compress",
            kind="string",
            default=const.COMPRESS_NONE,
            metavar="TOOL",
            help="how to compress what is sent: none, or a tool such as gzip",
        ),
        *_JOB,
    ],
    "Copy a stopped instance to another node, and leave the old one",
)
