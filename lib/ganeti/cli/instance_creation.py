"""Options and opcode of a new instance, for ``gnt-instance add`` and ``gnt-backup import``."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, instance_options, jobs
from ganeti.cli import options as opt
from ganeti.cli.command import Values
from ganeti.cli.options import Option
from ganeti.constants import disk as disk_const
from ganeti.constants import instance as const

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any


def create(values: Values, name: str, **others: Any) -> int:
    """Make an instance; also from an export (``gnt-backup import``).

    :param others: fields of the opcode which not both commands have.
    """
    from ganeti.opcodes.instance import OpInstanceCreate

    pnode, _, snode = (values.node or "").partition(":")
    hypervisor, hvparams = instance_options.hypervisor(values)
    # What is not said of an import is as in the export, and of a commit as it was reserved.
    commit = others.get("commit", False)
    anew = others["mode"] == const.CREATE and not commit
    if commit and values.no_nics:
        raise errors.OpPrereqError(
            "an instance is committed with the interfaces it was reserved with. Name others with"
            " --net, or remove them afterwards.",
            errors.ECODE_INVAL,
        )
    jobs.run_opcode(
        OpInstanceCreate(
            instance_name=name,
            disks=instance_options.disk_list(values)
            if anew or values.disks or values.sd_size
            else [],
            nics=instance_options.nic_list(values) if anew or values.nics else [],
            disk_template=values.disk_template,
            pnode=pnode or None,
            snode=snode or None,
            iallocator=values.iallocator,
            group_name=values.nodegroup,
            hypervisor=hypervisor,
            hvparams=hvparams,
            beparams=instance_options.backend(values),
            osparams=values.osparams,
            osparams_private=values.osparams_private,
            osparams_secret=values.osparams_secret,
            wait_for_sync=values.wait_for_sync,
            name_check=values.name_check,
            ip_check=values.ip_check,
            conflicts_check=values.conflicts_check,
            ignore_ipolicy=values.ignore_ipolicy,
            opportunistic_locking=values.opportunistic_locking,
            file_driver=values.file_driver,
            file_storage_dir=values.file_storage_dir,
            tags=[tag for tag in (values.tags or "").split(",") if tag],
            helper_startup_timeout=values.helper_startup_timeout,
            helper_shutdown_timeout=values.helper_shutdown_timeout,
            **others,
            **jobs.common_params(values),
        ),
        values,
    )
    return failures.EXIT_SUCCESS


def _ignored(values: Values, text: str) -> None:
    """An option which asks for what is the default now."""


#: Options of every command that makes an instance.
OPTIONS = (
    Option(
        "-t",
        "--disk-template",
        choices=sorted(disk_const.TEMPLATES),
        metavar="TEMPL",
        help="how the disks are stored",
    ),
    Option(
        "--disk",
        kind="identkeyval",
        action="append",
        dest="disks",
        metavar="N:size=SIZE[,...]",
        help="one disk: size, mode, name, vg and others",
    ),
    Option(
        "-s",
        "--os-size",
        kind="unit",
        dest="sd_size",
        metavar="<size>",
        help="one disk of this size, instead of --disk",
    ),
    Option(
        "--net",
        kind="identkeyval",
        action="append",
        dest="nics",
        metavar="N[:KEY=VALUE,...]",
        help="one network interface: mac, ip, mode, link, network, name, vlan",
    ),
    opt.flag("--no-nics", help="no network interface"),
    Option(
        "-O",
        "--os-parameters",
        kind="keyval",
        dest="osparams",
        default={},
        metavar="KEY=VALUE,...",
        help="parameters of the operating system",
    ),
    Option(
        "--os-parameters-private",
        kind="keyprivateval",
        dest="osparams_private",
        default={},
        metavar="KEY=VALUE,...",
        help="parameters kept out of logs and listings",
    ),
    Option(
        "--os-parameters-secret",
        kind="keyprivateval",
        dest="osparams_secret",
        default={},
        metavar="KEY=VALUE,...",
        help="parameters used once and never stored",
    ),
    opt.flag(
        "--no-wait-for-sync",
        dest="wait_for_sync",
        default=True,
        value=False,
        help="do not wait until mirrored disks are in sync",
    ),
    Option(
        "-n",
        "--node",
        kind="string",
        metavar="<pnode>[:<snode>]",
        completion="pnode:snode",
        help="node to put it on, and the one that mirrors its disks",
    ),
    opt.IALLOCATOR,
    opt.NODE_GROUP,
    opt.flag(
        "--opportunistic-locking",
        help="let the allocator choose among nodes that are free at the moment",
    ),
    opt.BACKEND,
    Option(
        "-H",
        "--hypervisor-parameters",
        kind="identkeyval",
        dest="hypervisor",
        metavar="HYPERVISOR[:KEY=VALUE,...]",
        help="hypervisor and its parameters",
    ),
    Option(
        "--file-storage-dir",
        kind="string",
        metavar="<DIR>",
        help="directory below the cluster's for file disks",
    ),
    Option(
        "--file-driver",
        choices=("blktap", "blktap2", "loop"),
        metavar="<DRIVER>",
        help="how Xen attaches file disks",
    ),
    opt.flag("--name-check", help="the name must resolve"),
    opt.flag("--ip-check", help="nobody may answer on the instance's address (needs --name-check)"),
    Option(
        "--no-name-check",
        action="call",
        callback=_ignored,
        dest="_ignored",
        help="as it is without; kept for old scripts",
    ),
    Option(
        "--no-ip-check",
        action="call",
        callback=_ignored,
        dest="_ignored",
        help="as it is without; kept for old scripts",
    ),
    opt.flag(
        "--no-conflicts-check",
        dest="conflicts_check",
        default=True,
        value=False,
        help="let an address be in a network it does not belong to",
    ),
    opt.IGNORE_IPOLICY,
    Option("--tags", kind="string", metavar="TAG,...", help="tags to put on it"),
    Option(
        "--helper-startup-timeout",
        kind="int",
        metavar="SECONDS",
        help="how long the helper guest may take to start",
    ),
    Option(
        "--helper-shutdown-timeout",
        kind="int",
        metavar="SECONDS",
        help="how long the helper guest may take to stop",
    ),
    opt.DRY_RUN,
    opt.PRIORITY,
    *opt.SUBMIT_OPTIONS,
)
