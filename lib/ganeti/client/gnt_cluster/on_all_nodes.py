"""The commands ``gnt-cluster copyfile`` and ``gnt-cluster command``: work on all nodes."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values

if TYPE_CHECKING:
    from ganeti.cli.remote import RemoteNode
    from ganeti.utils.process import Completed

RULER = "-" * 48


def _nodes(values: Values, field: str = "pip") -> tuple[list[RemoteNode], list[RemoteNode]]:
    """Return the selected online nodes: a list without the master, and a list with the master."""
    from ganeti.cli import online_nodes
    from ganeti.cli.remote import RemoteNode

    found = online_nodes.online_nodes(jobs.connect(), values.nodes, values.nodegroup, field)
    return (
        [RemoteNode(name, address) for name, address, is_master in found if not is_master],
        [RemoteNode(name, address) for name, address, is_master in found if is_master],
    )


def copyfile(values: Values, arguments: list[str]) -> int:
    """Copy a file of this node to the other nodes (``copyfile``)."""
    from ganeti.cli import remote

    path = remote.local_file(arguments[0])
    field = "sip" if values.use_replication_network else "pip"
    others, masters = _nodes(values, field)
    targets = [node for node in [*others, *masters] if not node.here]

    def copy(node: RemoteNode) -> str:
        try:
            node.copy(path)
        except errors.CommandError as err:
            return str(err)
        return ""

    code = failures.EXIT_SUCCESS
    for node, problem in remote.on_each(targets, copy):
        if problem:
            code = failures.EXIT_FAILURE
            terminal.err(f"Copy of file {arguments[0]} to node {node.name} failed: {problem}")
    return code


def command(values: Values, arguments: list[str]) -> int:
    """Run a command on all nodes (``command``); on the master last, in case it stops the node.

    :returns: 0 if the command succeeded on all nodes, else 1.
    """
    from ganeti.cli import remote

    line = " ".join(arguments)
    others, masters = _nodes(values)

    def run(node: RemoteNode) -> Completed | str:
        try:
            return node.run(line)
        except errors.CommandError as err:
            return str(err)

    code = failures.EXIT_SUCCESS
    for group in (others, masters):
        for node, done in remote.on_each(group, run):
            if isinstance(done, str) or done.exit_code != 0:
                code = failures.EXIT_FAILURE
            _show(node.name, done, values)
    return code


def _show(name: str, done: Completed | str, values: Values) -> None:
    failed = isinstance(done, str) or done.exit_code != 0
    if values.failure_only and not failed:
        return
    text = done if isinstance(done, str) else done.output
    terminal.out(RULER)
    if values.show_machine_names:
        for line in text.splitlines():
            terminal.out(f"{name}: {line}")
    else:
        terminal.out(f"node: {name}")
        terminal.out(text)
    if not isinstance(done, str):
        # The exit code of a shell for a program that was ended by a signal.
        code = done.exit_code if done.signal is None else 128 + done.signal
        terminal.out(f"return code = {code}")


#: The commands of this module.
COMMANDS = (
    Command(
        "copyfile",
        copyfile,
        [Argument("file", 1, 1)],
        [
            opt.NODES,
            opt.NODE_GROUP,
            opt.flag(
                "--use-replication-network",
                help="send the file over the secondary addresses of the nodes",
            ),
        ],
        "Copy a file of this node to the same path on the other nodes",
    ),
    Command(
        "command",
        command,
        [Argument("command", 1)],
        [
            opt.NODES,
            opt.NODE_GROUP,
            opt.flag(
                "-M", "--show-machine-names", help="put the name of the node before each line"
            ),
            opt.flag("--failure-only", help="show only the nodes on which the command failed"),
        ],
        "Run a shell command on all nodes as root",
        usage="[<options>] <command>...",
    ),
)
