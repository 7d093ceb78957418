"""The command ``gnt-node restricted-command``: run a prepared program on nodes."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values

RULER = "-" * 48


def restricted_command(values: Values, arguments: list[str]) -> int:
    """Run a program which the administrator has prepared on nodes (``restricted-command``)."""
    from ganeti.cli import online_nodes
    from ganeti.opcodes.misc import OpRestrictedCommand

    client = jobs.connect()
    chosen = selector.names("node", values, arguments[1:], client)
    names = [name for name, _, _ in online_nodes.online_nodes(client, chosen, values.nodegroup)]
    if not names:
        raise errors.OpPrereqError(
            f"there is no online node for command '{arguments[0]}'", errors.ECODE_INVAL
        )
    result = jobs.run_opcode(
        OpRestrictedCommand(
            command=arguments[0],
            nodes=names,
            use_locking=values.do_locking,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    if values.dry_run:
        return failures.EXIT_SUCCESS
    code = failures.EXIT_SUCCESS
    for name, (success, text) in zip(names, result, strict=True):
        terminal.out(RULER)
        if not success:
            code = failures.EXIT_FAILURE
            terminal.out(text)
        elif values.show_machine_names:
            for line in text.splitlines():
                terminal.out(f"{name}: {line}")
        else:
            terminal.out(f"Node: {name}")
            terminal.out(text)
    return code


SHOW_NAMES = opt.flag(
    "-M", "--show-machine-names", help="put the name of the node before each line"
)


_JOB = (*opt.SUBMIT_OPTIONS, opt.PRIORITY)


RESTRICTED_COMMAND = Command(
    "restricted-command",
    restricted_command,
    [Argument("unknown", 1, 1), Argument("node")],
    [
        *selector.OPTIONS,
        opt.NODE_GROUP,
        SHOW_NAMES,
        opt.flag(
            "--sync", dest="do_locking", help="hold the locks of the nodes while the program runs"
        ),
        opt.DRY_RUN,
        *_JOB,
    ],
    "Run a program which the administrator has prepared on nodes",
    usage="[<options>] <command> [<node>...]",
)
