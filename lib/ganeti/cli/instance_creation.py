"""Options and opcode of a new instance, for ``gnt-instance add`` and ``gnt-backup import``."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, instance_options, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Option, Values
from ganeti.constants import instance as const

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi


def full_name(values: Values, name: str, client: luxi.Client, old_name: str = "") -> str:
    """Return a name without a domain with the domain that the instances of the cluster have.

    It is the domain which the instance has now, if it gets a new name, else the one which all
    instances have. A completed name is shown. Names which shall resolve are completed by the
    resolver, and ``--exact-name`` keeps a name as it is.

    :param old_name: what the user gave for an instance which gets the new name.
    """
    if values.exact_name or values.name_check or "." in name or not name:
        return name
    rows = client.query_instances([old_name] if old_name else [], ["name"], False)
    domains = {row[0].partition(".")[2] for row in rows}
    if len(domains) != 1 or domains == {""}:
        return name
    completed = f"{name}.{domains.pop()}"
    terminal.err(
        f"The instance gets the name {completed}, with the domain of"
        f" {old_name or 'the other instances'}; --exact-name keeps {name}"
    )
    return completed


def common_fields(values: Values) -> dict[str, Any]:
    """Return the opcode fields about nodes, names and files, which a copy has, too."""
    pnode, _, snode = (values.node or "").partition(":")
    return {
        "pnode": pnode or None,
        "snode": snode or None,
        "iallocator": values.iallocator,
        "group_name": values.nodegroup,
        "wait_for_sync": values.wait_for_sync,
        "name_check": values.name_check,
        "exact_name": values.exact_name or None,
        "ip_check": values.ip_check,
        "conflicts_check": values.conflicts_check,
        "ignore_ipolicy": values.ignore_ipolicy,
        "file_driver": values.file_driver,
        "file_storage_dir": values.file_storage_dir,
        **jobs.common_params(values),
    }


def create(values: Values, name: str, **others: Any) -> int:
    """Submit the job which creates an instance, also from an export, and wait for it.

    :param name: name of the new instance.
    :param others: opcode fields which only one of the two commands sets.
    :returns: the exit code.
    :raises OpPrereqError: ``--no-nics`` with ``--commit``, or wrong disks or interfaces.
    """
    from ganeti.opcodes.instance import OpInstanceCreate

    hypervisor, hvparams = instance_options.hypervisor(values)
    # For settings without an option, an import uses the export and a commit uses the reservation.
    commit = others.get("commit", False)
    is_new = others["mode"] == const.CREATE and not commit
    if commit and values.no_nics:
        raise errors.OpPrereqError(
            f"instance {name}: --no-nics cannot be used with --commit, because the instance gets"
            " its"
            " reserved interfaces. Name others with --net, or remove them afterwards.",
            errors.ECODE_INVAL,
        )
    opcode = OpInstanceCreate(
        instance_name=name,
        disks=instance_options.disk_list(values)
        if is_new or values.disks or values.sd_size
        else [],
        nics=instance_options.nic_list(values) if is_new or values.nics else [],
        disk_template=values.disk_template,
        hypervisor=hypervisor,
        hvparams=hvparams,
        beparams=instance_options.backend(values),
        osparams=values.osparams,
        osparams_private=values.osparams_private,
        osparams_secret=values.osparams_secret,
        opportunistic_locking=values.opportunistic_locking,
        tags=[tag for tag in (values.tags or "").split(",") if tag],
        helper_startup_timeout=values.helper_startup_timeout,
        helper_shutdown_timeout=values.helper_shutdown_timeout,
        **others,
        **common_fields(values),
    )
    # Mistakes are found before the master is asked for names.
    opcode.validate()
    client = jobs.connect()
    if not commit:
        opcode.instance_name = full_name(values, name, client)
    jobs.run_opcode(opcode, values, client=client)
    return failures.EXIT_SUCCESS


DISK_TEMPLATE = Option(
    "-t",
    "--disk-template",
    choices=opt.disk_template_names,
    metavar="TEMPL",
    help="how the disks are stored",
)
NAME_OPTIONS = (
    opt.EXACT_NAME,
    opt.flag("--name-check", help="require that the name resolves"),
    opt.flag(
        "--ip-check", help="require that no machine answers on the address; needs --name-check"
    ),
)

#: Options of every command that creates an instance.
OPTIONS = (
    DISK_TEMPLATE,
    opt.keyed_values(
        "--disk",
        dest="disks",
        metavar="N:size=SIZE[,...]",
        help="properties of disk N, from 0: size, mode, name, ...; may be given several times",
    ),
    Option(
        "-s",
        "--os-size",
        kind="unit",
        dest="sd_size",
        metavar="<size>",
        help="create one disk of this size (MiB, or with a unit such as 10g), instead of --disk",
    ),
    opt.keyed_values(
        "--net",
        dest="nics",
        metavar="N[:KEY=VALUE,...]",
        help="network interface N, from 0: mac, ip, mode, link, network, name, vlan, bridge;"
        " by default there is one interface",
    ),
    opt.flag("--no-nics", help="create no network interface"),
    opt.key_values(
        "-O", "--os-parameters", dest="osparams", help="parameters of the operating system"
    ),
    opt.OS_PARAMETERS_PRIVATE,
    opt.OS_PARAMETERS_PRIVATE_FILE,
    opt.key_values(
        "--os-parameters-secret",
        dest="osparams_secret",
        help="parameters which are used for this installation and never stored",
        kind="keyprivateval",
    ),
    opt.OS_PARAMETERS_SECRET_FILE,
    opt.NO_WAIT_FOR_SYNC,
    opt.new_nodes("primary node, and secondary node for mirrored disks"),
    opt.IALLOCATOR,
    opt.NODE_GROUP,
    opt.flag(
        "--opportunistic-locking",
        help="let the allocator choose among nodes that are not locked at the moment",
    ),
    opt.BACKEND,
    Option(
        "-H",
        "--hypervisor-parameters",
        kind="identkeyval",
        dest="hypervisor",
        metavar="HYPERVISOR[:KEY=VALUE,...]",
        help="hypervisor and its parameters; by default the first hypervisor of the cluster",
    ),
    opt.FILE_STORAGE_DIR,
    opt.FILE_DRIVER,
    *NAME_OPTIONS,
    opt.no_effect("--no-name-check"),
    opt.no_effect("--no-ip-check"),
    opt.NO_CONFLICTS_CHECK,
    opt.IGNORE_IPOLICY,
    opt.text("--tags", metavar="TAG,...", help="tags of the instance"),
    opt.number(
        "--helper-startup-timeout",
        metavar="SECONDS",
        help="how long the installing helper guest may take to start; 300 by default",
    ),
    opt.number(
        "--helper-shutdown-timeout",
        metavar="SECONDS",
        help="how long the installing helper guest may take to finish; 7200 by default",
    ),
    opt.DRY_RUN,
    opt.PRIORITY,
    *opt.SUBMIT_OPTIONS,
)
