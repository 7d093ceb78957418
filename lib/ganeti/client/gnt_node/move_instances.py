"""The commands ``gnt-node evacuate``, ``migrate`` and ``failover``, for all its instances."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.client.gnt_node.options import NEW_SECONDARY
from ganeti.constants import node as const

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ganeti.luxi import client as luxi


def _on_nodes(
    values: Values,
    arguments: list[str],
    one: Callable[[luxi.Client, Values, str], int],
    plan: str,
    done: str,
) -> int:
    """Do something with the instances of one node, or of several, one node after another.

    :param one: does it for one node, with a question unless ``--force`` is given.
    :param plan: what happens to several nodes; the plan is "2 nodes ...".
    :param done: what has happened to one, such as "evacuated".
    """
    from ganeti.cli import many

    client = jobs.connect()
    names = many.several("node", values, arguments, client)
    if names is None:
        return one(client, values, arguments[0])
    work = many.Plan("node", plan=plan, done=done)
    open_nodes = [
        name
        for name, drained, offline in client.query_nodes(names, ["name", "drained", "offline"])
        if not (drained or offline)
    ]
    if len(names) > 1 and open_nodes and not values.dst_node:
        terminal.err(
            f"These nodes are not drained: {', '.join(open_nodes)}. Instances of one of them may be"
            " moved to another one and have to be moved twice. To avoid this, first use 'gnt-node"
            f" modify --drained=yes {' '.join(open_nodes)}'."
        )
    # The plan of all nodes is the question.
    agreed = Values(**{**values.__dict__, "force": True, "several": True})
    return many.one_after_another(names, values, work, lambda name: one(client, agreed, name))


def evacuate(values: Values, arguments: list[str]) -> int:
    """Move instances away from nodes, each in a job of its own (``evacuate``)."""
    if values.primary_only and values.secondary_only:
        raise errors.OpPrereqError(
            "give either --primary-only or --secondary-only", errors.ECODE_INVAL
        )
    return _on_nodes(
        values,
        arguments,
        _evacuate,
        "will be emptied, one after another: their instances move to other nodes",
        "evacuated",
    )


def _evacuate(client: luxi.Client, values: Values, node: str) -> int:
    from ganeti.cli import confirmation
    from ganeti.opcodes.node import OpNodeEvacuate

    mode = const.EVAC_ALL
    if values.primary_only:
        mode = const.EVAC_PRIMARY
    elif values.secondary_only:
        mode = const.EVAC_SECONDARY
    ((name, pinst, sinst),) = client.query_nodes(
        [node], ["name", "pinst_list", "sinst_list"], False
    )
    found = sorted(
        {*([] if values.secondary_only else pinst), *([] if values.primary_only else sinst)}
    )
    if not found:
        terminal.err(f"No instances to evacuate from node(s) {name}, exiting.")
        return failures.EXIT_SUCCESS
    if not values.force:
        question = f"Move instance(s) {', '.join(found)} away from node {name}?"
        code = confirmation.ask(values, question)
        if code is not None:
            return code
    result = jobs.run_opcode(
        OpNodeEvacuate(
            node_name=name,
            mode=mode,
            remote_node=values.dst_node,
            iallocator=values.iallocator,
            early_release=values.early_release,
            ignore_soft_errors=values.ignore_soft_errors,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return _finish(client, values, result, "the evacuation", "evacuated")


def migrate(values: Values, arguments: list[str]) -> int:
    """Migrate all primary instances of nodes (``migrate``)."""
    if not values.live and values.migration_mode:
        raise errors.OpPrereqError("give either --non-live or --migration-mode", errors.ECODE_INVAL)
    return _on_nodes(
        values,
        arguments,
        _migrate,
        "will be emptied, one after another: their primary instances are migrated",
        "emptied",
    )


def _migrate(client: luxi.Client, values: Values, node: str) -> int:
    from ganeti.cli import confirmation
    from ganeti.opcodes.node import OpNodeMigrate

    ((name, pinst),) = client.query_nodes([node], ["name", "pinst_list"], False)
    if not pinst:
        terminal.out(f"No primary instances on node {name}, exiting.")
        return failures.EXIT_SUCCESS
    if not values.force:
        code = confirmation.ask(values, f"Migrate instance(s) {', '.join(sorted(pinst))}?")
        if code is not None:
            return code
    result = jobs.run_opcode(
        OpNodeMigrate(
            node_name=name,
            mode=values.migration_mode or (None if values.live else "non-live"),
            target_node=values.dst_node,
            iallocator=values.iallocator,
            allow_runtime_changes=values.allow_runtime_chgs,
            ignore_ipolicy=values.ignore_ipolicy,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return _finish(client, values, result, "the node migration", "migrated")


def failover(values: Values, arguments: list[str]) -> int:
    """Stop all primary instances of nodes and start them on other nodes (``failover``)."""
    if values.dst_node and values.iallocator:
        raise errors.OpPrereqError("give either --target-node or --iallocator", errors.ECODE_INVAL)
    return _on_nodes(
        values,
        arguments,
        _failover,
        "will be emptied, one after another: their primary instances are stopped and started on"
        " other nodes",
        "emptied",
    )


def _failover(client: luxi.Client, values: Values, node: str) -> int:
    from ganeti.cli import confirmation
    from ganeti.objects.disk_templates import EXT_MIRRORED
    from ganeti.opcodes.instance import OpInstanceFailover

    ((name, pinst),) = client.query_nodes([node], ["name", "pinst_list"], False)
    if not pinst:
        terminal.err(f"No primary instances on node {name}, exiting.")
        return failures.EXIT_SUCCESS
    target = None
    if values.dst_node:
        # A wrong name is reported before the question.
        ((target,),) = client.query_nodes([values.dst_node], ["name"], False)
        if target == name:
            raise errors.OpPrereqError(
                f"the instances of node {name} cannot be failed over to itself", errors.ECODE_INVAL
            )
    if not values.force:
        code = confirmation.ask(values, f"Fail over instance(s) {', '.join(sorted(pinst))}?")
        if code is not None:
            return code
    rows = client.query_instances(pinst, ["name", "disk_template", "forthcoming"], False)
    # A forthcoming instance cannot be started.
    pinst = [instance for instance, _template, forthcoming in rows if not forthcoming]
    # Only instances with shared disks need an allocator; others have only one possible node.
    shared = {instance for instance, template, _forthcoming in rows if template in EXT_MIRRORED}
    job_set = jobs.JobSet(client, values)
    for instance in sorted(pinst):
        job_set.add(
            instance,
            OpInstanceFailover(
                instance_name=instance,
                ignore_consistency=values.ignore_consistency,
                target_node=target,
                iallocator=values.iallocator if instance in shared else None,
                **jobs.common_params(values),
            ),
        )
    failed = sum(not outcome.success for outcome in job_set.wait())
    if failed:
        terminal.out(
            "There were errors during the failover:\n"
            f"{failed} error(s) out of {len(pinst)} instance(s)."
        )
    elif not values.dry_run:
        terminal.out(f"All {len(pinst)} instance(s) failed over successfully.")
    # For one node the exit code is published: it is 0 even if instances failed.
    return failures.EXIT_FAILURE if failed and values.get("several") else failures.EXIT_SUCCESS


def _finish(client: luxi.Client, values: Values, result: Any, what: str, done: str) -> int:
    """Wait for the jobs which a job has submitted, and report; return the exit code.

    :param what: the operation, for example ``the evacuation``.
    :param done: what happened to the instances, for example ``evacuated``.
    """
    if values.dry_run:
        return failures.EXIT_SUCCESS
    outcomes = jobs.await_submitted(result["jobs"], values, client)
    errors_seen = sum(not outcome.success for outcome in outcomes)
    if errors_seen:
        terminal.out(f"There were {errors_seen} errors during {what}.")
        return failures.EXIT_FAILURE
    terminal.out(f"All instances {done} successfully.")
    return failures.EXIT_SUCCESS


_JOB = (opt.DRY_RUN, *opt.SUBMIT_OPTIONS, opt.PRIORITY)

COMMANDS = [
    Command(
        "evacuate",
        evacuate,
        [Argument("node", 1)],
        [
            *selector.CHANGE_NODES,
            opt.FORCE,
            opt.IALLOCATOR,
            NEW_SECONDARY,
            opt.flag(
                "-p", "--primary-only", help="move only the instances whose primary node it is"
            ),
            opt.flag(
                "-s", "--secondary-only", help="move only the instances whose secondary node it is"
            ),
            opt.flag(
                "--early-release",
                help="remove the old replica of mirrored disks before the new one is in sync",
            ),
            opt.flag(
                "--ignore-soft-errors",
                help="allow the allocator to violate its soft rules when there is no other node",
            ),
            *_JOB,
        ],
        "Move all instances away from nodes, each in a job of its own",
    ),
    Command(
        "migrate",
        migrate,
        [Argument("node", 1)],
        [
            *selector.CHANGE_NODES,
            opt.FORCE,
            opt.IALLOCATOR,
            opt.TARGET_NODE,
            opt.IGNORE_IPOLICY,
            opt.NON_LIVE,
            opt.MIGRATION_MODE,
            opt.negative(
                "--no-runtime-changes",
                dest="allow_runtime_chgs",
                help="do not reduce the memory of an instance that is too large for the"
                " target node",
            ),
            *_JOB,
        ],
        "Migrate all primary instances of nodes",
    ),
    Command(
        "failover",
        failover,
        [Argument("node", 1)],
        [
            *selector.CHANGE_NODES,
            opt.FORCE,
            opt.IALLOCATOR,
            opt.TARGET_NODE,
            opt.flag("--ignore-consistency", help="continue although the disks are not in order"),
            opt.DRY_RUN,
            opt.PRIORITY,
        ],
        "Stop all primary instances of nodes and start them on other nodes",
    ),
]
