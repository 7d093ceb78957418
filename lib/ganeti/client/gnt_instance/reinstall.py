"""The command ``gnt-instance reinstall``: install the operating system again."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import confirmation, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.client.gnt_instance import selection

if TYPE_CHECKING:
    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode


def _choose_os(client: luxi.Client) -> str:
    """Let the user choose one of the operating systems which all nodes have.

    :raises OpPrereqError: there is none, there is no terminal, or the user chose nothing.
    """
    from ganeti.opcodes.os import OpOsDiagnose

    rows = jobs.run_opcode(
        OpOsDiagnose(output_fields=["name", "variants"], names=[]), Values(), client=client
    )
    names = [
        f"{name}+{variant}" if variant else name
        for name, variants in rows
        for variant in (variants or [""])
    ]
    if not names:
        raise errors.OpPrereqError(
            "no operating system is installed on all nodes", errors.ECODE_ENVIRON
        )
    terminal.out("Available operating systems:")
    for number, name in enumerate(names):
        terminal.out(f"{number:3d}: {name}")
    answer = terminal.ask_line("Number of the operating system (empty to cancel): ")
    if answer is None:
        raise errors.OpPrereqError(
            "there is no terminal to choose the operating system. Name it with --os-type.",
            errors.ECODE_INVAL,
        )
    if not answer:
        raise errors.OpPrereqError("no operating system was chosen", errors.ECODE_INVAL)
    if not (answer.isdecimal() and int(answer) < len(names)):
        raise errors.OpPrereqError(
            f"{answer!r} is not the number of an operating system in the list", errors.ECODE_INVAL
        )
    return names[int(answer)]


_PLAN = "will be reinstalled, and the content of their disks will be destroyed"


def reinstall(values: Values, arguments: list[str]) -> int:
    """Install the operating system of stopped instances again (``reinstall``)."""
    from ganeti.opcodes.instance import OpInstanceReinstall

    client = jobs.connect()
    mode = values.multi_mode or selection.BY_INSTANCES
    names = selection.select_instances(mode, arguments, client)
    several = mode != selection.BY_INSTANCES or len(names) > 1
    if values.select_os and values.dry_run:
        raise errors.OpPrereqError(
            "a dry run asks no questions. Name the operating system with --os-type instead of"
            " --select-os.",
            errors.ECODE_INVAL,
        )
    os_name = _choose_os(client) if values.select_os else values.os
    code = _confirmed(values, names, several=several)
    if code is not None:
        return code

    def make(name: str, values: Values) -> OpCode:
        return OpInstanceReinstall(
            instance_name=name,
            os_type=os_name,
            force_variant=values.force_variant,
            osparams=values.osparams or None,
            osparams_private=values.osparams_private or None,
            osparams_secret=values.osparams_secret or None,
            **jobs.common_params(values),
        )

    work = selection.plan_of(_PLAN, "reinstalled") if several else None
    return selection.submit(names, values, make, client, work)


def _confirmed(values: Values, names: list[str], *, several: bool) -> int | None:
    """Ask; return None to continue, else the exit code."""
    if several:
        from ganeti.cli import many

        return many.accepted(names, values, selection.plan_of(_PLAN, "reinstalled"))
    question = f"The content of the disks of instance {names[0]} will be destroyed. Continue?"
    return None if values.force else confirmation.ask(values, question)


REINSTALL = Command(
    "reinstall",
    reinstall,
    [Argument("instance")],
    [
        opt.os_type("install this operating system and record it for the instance"),
        opt.flag("--select-os", help="choose the operating system from a list"),
        opt.FORCE,
        *selection.SELECTION,
        opt.flag("--force-variant", help="accept a variant which the OS definition does not list"),
        opt.key_values(
            "-O",
            "--os-parameters",
            dest="osparams",
            help="parameters for this installation; they are not stored",
        ),
        opt.key_values(
            "--os-parameters-private",
            dest="osparams_private",
            help="parameters for this installation which do not appear in logs",
            kind="keyprivateval",
        ),
        opt.OS_PARAMETERS_PRIVATE_FILE,
        opt.key_values(
            "--os-parameters-secret",
            dest="osparams_secret",
            help="parameters for this installation which do not appear in logs",
            kind="keyprivateval",
        ),
        opt.OS_PARAMETERS_SECRET_FILE,
        opt.DRY_RUN,
        opt.PRIORITY,
        *opt.SUBMIT_OPTIONS,
    ],
    "Install the operating system of stopped instances again",
)
