"""The command ``gnt-instance rename``: give an instance another name."""

from __future__ import annotations

from ganeti.cli import failures, instance_creation, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values


def rename(values: Values, arguments: list[str]) -> int:
    """Give a stopped instance another name (``rename``)."""
    from ganeti.opcodes.instance import OpInstanceRename

    old, wanted = arguments
    client = jobs.connect()
    name = jobs.run_opcode(
        OpInstanceRename(
            instance_name=old,
            new_name=instance_creation.full_name(values, wanted, client, old),
            name_check=values.name_check,
            exact_name=values.exact_name or None,
            ip_check=values.ip_check,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    if name and not values.dry_run and not jobs.has_closing_line(values):
        terminal.out(f"Instance '{old}' renamed to '{name}'")
    return failures.EXIT_SUCCESS


_JOB = (opt.DRY_RUN, opt.PRIORITY, *opt.SUBMIT_OPTIONS)


RENAME = Command(
    "rename",
    rename,
    [Argument("instance", 1, 1), Argument("host", 1, 1)],
    [
        opt.EXACT_NAME,
        opt.flag("--name-check", help="require that the new name resolves"),
        opt.flag(
            "--ip-check",
            help="require that no machine answers on the new address; needs --name-check",
        ),
        *_JOB,
    ],
    "Give a stopped instance another name",
)
