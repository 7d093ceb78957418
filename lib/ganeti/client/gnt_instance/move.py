"""The commands ``gnt-instance migrate``, ``failover`` and ``move``: change the node."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import jobs, selector
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values

if TYPE_CHECKING:
    from ganeti.opcodes.base import OpCode


def migrate(values: Values, arguments: list[str]) -> int:
    """Migrate instances (``migrate``)."""
    from ganeti.cli import many
    from ganeti.opcodes.instance import OpInstanceMigrate

    if values.migration_mode and not values.live:
        raise errors.OpPrereqError("give either --non-live or --migration-mode", errors.ECODE_INVAL)

    def make(name: str) -> OpCode:
        return OpInstanceMigrate(
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
        )

    if values.cleanup:
        work = many.Work(
            "instance",
            make,
            plan="will be cleaned up after a failed migration",
            done="cleaned up",
            question="The failed migration of instance {name} will be cleaned up. Continue?",
        )
    else:
        work = many.Work(
            "instance",
            make,
            plan=f"will be migrated to {_where(values)}",
            done="migrated",
            question="Instance {name} will be migrated to another node. Continue?",
        )
    return many.run(values, arguments, work)


def _where(values: Values) -> str:
    return f"node {values.dst_node}" if values.dst_node else "other nodes"


def failover(values: Values, arguments: list[str]) -> int:
    """Stop instances and start them on other nodes (``failover``)."""
    from ganeti.cli import many
    from ganeti.opcodes.instance import OpInstanceFailover

    def make(name: str) -> OpCode:
        return OpInstanceFailover(
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
        )

    plan = f"will be stopped and started on {_where(values)}"
    question = "Instance {name} will be stopped and started on another node. Continue?"
    work = many.Work("instance", make, plan=plan, done="failed over", question=question)
    return many.run(values, arguments, work)


def move(values: Values, arguments: list[str]) -> int:
    """Copy instances to another node (``move``)."""
    from ganeti.cli import many
    from ganeti.opcodes.instance import OpInstanceMove

    if not values.node:
        raise errors.OpPrereqError(
            f"no target node is given for instance {arguments[0]}. Write --node NODE.",
            errors.ECODE_INVAL,
        )

    def make(name: str) -> OpCode:
        return OpInstanceMove(
            instance_name=name,
            target_node=values.node,
            shutdown_timeout=values.shutdown_timeout,
            compress=values.compress,
            ignore_consistency=values.ignore_consistency,
            ignore_ipolicy=values.ignore_ipolicy,
            **jobs.common_params(values),
        )

    plan = f"will be stopped and copied to node {values.node}"
    question = f"Instance {{name}} {plan}. Continue?"
    work = many.Work("instance", make, plan=plan, done="moved", question=question)
    return many.run(values, arguments, work)


_CLEANUP = opt.flag("--cleanup", help="only clean up after an interrupted migration or failover")


_TO_A_NODE = (
    *selector.CHANGE_INSTANCES,
    opt.FORCE,
    opt.TARGET_NODE,
    opt.IALLOCATOR,
    opt.IGNORE_IPOLICY,
)


_JOB = (opt.DRY_RUN, opt.PRIORITY, *opt.SUBMIT_OPTIONS)


MIGRATE = Command(
    "migrate",
    migrate,
    [Argument("instance", 1)],
    [
        *_TO_A_NODE,
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
    "Move running instances to other nodes without stopping them",
)


FAILOVER = Command(
    "failover",
    failover,
    [Argument("instance", 1)],
    [
        *_TO_A_NODE,
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
    "Stop instances and start them on other nodes",
)


MOVE = Command(
    "move",
    move,
    [Argument("instance", 1)],
    [
        *selector.CHANGE_WITH_NODE,
        opt.FORCE,
        opt.node("-n", "--node", help="target node; required"),
        opt.SHUTDOWN_TIMEOUT,
        opt.IGNORE_IPOLICY,
        opt.flag(
            "--ignore-consistency",
            help="continue when the instance cannot be stopped, or its disks cannot be deactivated",
        ),
        opt.COMPRESS,
        *_JOB,
    ],
    "Stop instances and copy them to another node, with disks on one node only",
)
