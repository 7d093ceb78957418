"""The command ``gnt-instance modify``."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, instance_options, jobs, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Values

if TYPE_CHECKING:
    from typing import Any

    from ganeti.opcodes.instance import OpInstanceSetParams

#: Prefixes of changes which may take effect only at the next start.
_LATER = ("be/", "disk", "hv/", "nic")


def modify(values: Values, arguments: list[str]) -> int:
    """Change instances (``modify``)."""
    from ganeti.cli import many

    if values.offline_inst and values.online_inst:
        raise errors.OpPrereqError("give either --offline or --online", errors.ECODE_INVAL)
    if not _asks_for_change(values):
        terminal.err("Please give at least one of the parameters.")
        return failures.EXIT_FAILURE
    _require_secondary(values)

    def report(name: str, result: list[list[str]], several: bool) -> bool:
        if result and not jobs.has_closing_line(values):
            _report(name, result)
        return True

    return many.run(
        values,
        arguments,
        many.Work(
            "instance",
            lambda name: _opcode(values, name),
            plan="will be changed",
            done="modified",
            report=report,
        ),
    )


def _asks_for_change(values: Values) -> bool:
    return any(
        (
            values.nics,
            values.disks,
            values.disk_template,
            values.hvparams,
            values.beparams,
            values.osparams,
            values.osparams_private,
            values.os,
            values.offline_inst,
            values.online_inst,
            values.runtime_mem,
            values.new_primary_node,
            values.instance_communication is not None,
        )
    )


def _require_secondary(values: Values) -> None:
    """Refuse a conversion to mirrored disks for which no node is given."""
    from ganeti.objects import disk_templates

    if values.disk_template in disk_templates.INT_MIRRORED and not (
        values.node or values.iallocator
    ):
        raise errors.OpPrereqError(
            f"disks of template {values.disk_template} need a secondary node. Name one with"
            " --node, or"
            " an allocator with --iallocator.",
            errors.ECODE_INVAL,
        )


def _opcode(values: Values, name: str) -> OpInstanceSetParams:
    from ganeti.opcodes.instance import OpInstanceSetParams

    hypervisor, hvparams = _chosen_hypervisor(values.hvparams)
    return OpInstanceSetParams(
        instance_name=name,
        nics=instance_options.nic_changes(values.nics),
        disks=instance_options.disk_changes(values.disks),
        disk_template=values.disk_template,
        ext_params=values.ext_params,
        file_driver=values.file_driver,
        file_storage_dir=values.file_storage_dir,
        remote_node=values.node,
        iallocator=values.iallocator,
        pnode=values.new_primary_node,
        hypervisor=hypervisor,
        hvparams=instance_options.hypervisor_params(hvparams),
        beparams=instance_options.backend(values),
        runtime_mem=values.runtime_mem,
        os_name=values.os,
        osparams=values.osparams,
        osparams_private=values.osparams_private or None,
        force=values.force,
        force_variant=values.force_variant,
        ignore_ipolicy=values.ignore_ipolicy,
        conflicts_check=values.conflicts_check,
        wait_for_sync=values.wait_for_sync,
        hotplug=values.hotplug,
        offline=True if values.offline_inst else False if values.online_inst else None,
        instance_communication=values.instance_communication,
        **jobs.common_params(values),
    )


def _report(name: str, result: list[list[str]]) -> None:
    """Print the changes which the job made."""
    terminal.out(f"Modified instance {name}")
    for what, value in result:
        terminal.out(f" - {what} -> {value}")
    if any(what.lower().startswith(_LATER) for what, _value in result):
        terminal.out(
            "Changes that the running guest did not get at once take effect at its next"
            " start by the cluster; a restart from inside is not enough."
        )


def _chosen_hypervisor(given: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Split ``NAME:KEY=VALUE,...`` into the hypervisor and its parameters.

    :returns: None as hypervisor when only parameters are given.
    """
    from ganeti.constants import hv

    first, *others = given or [""]
    name, colon, key = first.partition(":")
    if name not in hv.ALL or not (colon or given[first] is True):
        return None, given
    params = {key: given[first]} if key else {}
    return name, {**params, **{other: given[other] for other in others}}


MODIFY = Command(
    "modify",
    modify,
    [Argument("instance", 1)],
    [
        *selector.CHANGE_WITH_NODE,
        opt.BACKEND,
        opt.key_values(
            "-H",
            "--hypervisor-parameters",
            dest="hvparams",
            help="hypervisor parameters; the value default means the value of the cluster; with the"
            " name of another hypervisor, the stopped instance changes to it",
            metavar="[HYPERVISOR:]KEY=VALUE,...",
        ),
        opt.key_values(
            "--hypervisor", dest="hvparams", help="older spelling of --hypervisor-parameters"
        ),
        opt.key_values(
            "-O",
            "--os-parameters",
            dest="osparams",
            help="parameters of the operating system, for the next installation",
        ),
        opt.OS_PARAMETERS_PRIVATE,
        opt.OS_PARAMETERS_PRIVATE_FILE,
        opt.os_type("recorded operating system; nothing is installed"),
        opt.flag("--force-variant", help="accept a variant which the OS definition does not list"),
        opt.keyed_values(
            "--disk",
            dest="disks",
            metavar="add:size=SIZE|N:remove|N:KEY=VALUE|...",
            help="change disks: add, attach:uuid=UUID, N:detach, N:remove, N:mode=ro,name=NAME;"
            " N is a number, a name or a UUID",
        ),
        opt.keyed_values(
            "--net",
            dest="nics",
            metavar="add[:KEY=VALUE,...]|N:remove|N:KEY=VALUE,...",
            help="change network interfaces: mac, ip, mode, link, network, name, vlan",
        ),
        opt.negative(
            "--no-hotplug",
            dest="hotplug",
            help="do not change the devices of the running guest before its next start",
        ),
        opt.no_effect("--hotplug"),
        opt.no_effect("--hotplug-if-possible"),
        Option(
            "-t",
            "--disk-template",
            choices=opt.disk_template_names,
            metavar="TEMPL",
            help="convert all disks of the stopped instance to this template",
        ),
        opt.node("-n", "--node", help="secondary node for disks that become mirrored"),
        opt.IALLOCATOR,
        opt.key_values(
            "-e",
            "--ext-params",
            dest="ext_params",
            help="provider and parameters of external storage",
        ),
        opt.FILE_DRIVER,
        opt.FILE_STORAGE_DIR,
        opt.NO_WAIT_FOR_SYNC,
        opt.node(
            "--new-primary",
            dest="new_primary_node",
            help="make this node the primary node of the stopped instance; nothing is moved",
        ),
        Option(
            "-m",
            "--runtime-memory",
            kind="unit",
            dest="runtime_mem",
            metavar="<size>",
            help="memory of the running guest from now on (MiB, or with a unit)",
        ),
        opt.flag(
            "--offline",
            dest="offline_inst",
            help="mark the stopped instance so that it cannot be started",
        ),
        opt.flag("--online", dest="online_inst", help="remove the mark of --offline"),
        opt.COMMUNICATION,
        opt.NO_CONFLICTS_CHECK,
        opt.IGNORE_IPOLICY,
        opt.flag("-f", "--force", help="continue although a check fails"),
        opt.DRY_RUN,
        opt.PRIORITY,
        *opt.SUBMIT_OPTIONS,
    ],
    "Change instances",
)
