"""The command ``gnt-cluster rename``: give the cluster another name and address."""

from __future__ import annotations

from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values


def rename(values: Values, arguments: list[str]) -> int:
    """Give the cluster another name and the address to which it resolves (``rename``)."""
    from ganeti.cli import confirmation
    from ganeti.opcodes.cluster import OpClusterRename

    client = jobs.connect()
    (old,) = client.query_config_values(["cluster_name"])
    if not values.force:
        code = confirmation.ask(
            values,
            f"Cluster {old} will get the name {arguments[0]}, and the address to which this name"
            f" resolves. Programs that use the old address will not reach it any more. Continue?",
        )
        if code is not None:
            return code
    name = jobs.run_opcode(
        OpClusterRename(name=arguments[0], **jobs.common_params(values)), values, client=client
    )
    if name:
        terminal.out(f"Cluster renamed from '{old}' to '{name}'")
    return failures.EXIT_SUCCESS


RENAME = Command(
    "rename",
    rename,
    [Argument("host", 1, 1)],
    [opt.FORCE, opt.DRY_RUN],
    "Give the cluster another name, and the address to which it resolves",
    usage="[<options>] <new-name>",
)
