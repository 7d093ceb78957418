"""The command ``gnt-node modify``: change the role and the parameters of a node."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.client.gnt_node.options import AUTO_PROMOTE

if TYPE_CHECKING:
    from ganeti.opcodes.base import OpCode

NO_CHANGE = "Please give at least one of the parameters."


def modify(values: Values, arguments: list[str]) -> int:
    """Change the role and the parameters of nodes (``modify``)."""
    from ganeti.cli import many, node_params
    from ganeti.opcodes.node import OpNodeSetParams

    hv_state = node_params.hv_state(values.hv_state)
    disk_state = node_params.disk_state(values.disk_state)
    changes_wanted = (
        values.master_candidate,
        values.drained,
        values.offline,
        values.master_capable,
        values.vm_capable,
        values.secondary_ip,
        values.ndparams,
        values.node_powered,
    )
    if all(value is None for value in changes_wanted) and not hv_state and not disk_state:
        terminal.err(NO_CHANGE)
        return failures.EXIT_FAILURE

    def make(name: str) -> OpCode:
        return OpNodeSetParams(
            node_name=name,
            master_candidate=values.master_candidate,
            offline=values.offline,
            drained=values.drained,
            master_capable=values.master_capable,
            vm_capable=values.vm_capable,
            secondary_ip=values.secondary_ip,
            powered=values.node_powered,
            ndparams=None if values.ndparams is None else node_params.node_params(values.ndparams),
            auto_promote=values.auto_promote,
            force=values.force,
            hv_state=hv_state or None,
            disk_state=disk_state or None,
            **jobs.common_params(values),
        )

    if values.secondary_ip and many.several("node", values, arguments, jobs.connect()):
        raise errors.OpPrereqError(
            "a secondary address belongs to one node. Name one node with --secondary-ip.",
            errors.ECODE_INVAL,
        )

    def report(node: str, changes: list[list[str]], several: bool) -> bool:
        if changes and not jobs.has_closing_line(values):
            terminal.out(f"Modified node {node}")
            for name, value in changes:
                terminal.out(f" - {name} -> {value}")
        return True

    work = many.Work("node", make, plan="will be changed", done="modified", report=report)
    return many.run(values, arguments, work)


_JOB = (*opt.SUBMIT_OPTIONS, opt.PRIORITY)


MODIFY = Command(
    "modify",
    modify,
    [Argument("node", 1)],
    [
        *selector.CHANGE_NODES,
        opt.yes_no(
            "-C",
            "--master-candidate",
            help="whether the node is a master candidate: it keeps a copy of the"
            " configuration and can"
            " become the master",
        ),
        opt.yes_no("-D", "--drained", help="whether the instances have to leave the node"),
        opt.yes_no("-O", "--offline", help="whether the node is marked offline"),
        opt.yes_no("--master-capable", help="whether the node may become the master"),
        opt.yes_no("--vm-capable", help="whether the node may have instances"),
        opt.yes_no(
            "--node-powered", help="whether the node is switched on, when it was switched by hand"
        ),
        opt.SECONDARY_IP,
        opt.NODE_PARAMETERS,
        opt.HV_STATE,
        opt.DISK_STATE,
        AUTO_PROMOTE,
        opt.FORCE,
        opt.DRY_RUN,
        *_JOB,
    ],
    "Change the role and the parameters of nodes",
)
