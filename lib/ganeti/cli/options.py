"""The options which several commands share.

Names, destinations, types and defaults of options are published; the help texts are not. An option
of only one command is declared in the module of that command.
"""

from __future__ import annotations

from ganeti.cli.command import Option, Values


def flag(*names: str, help: str, dest: str | None = None, default: bool | None = False) -> Option:
    """Make an option without a value that sets its destination to True."""
    return Option(*names, help=help, dest=dest, action="store_true", default=default)


def negative(*names: str, dest: str, help: str) -> Option:
    """Make an option without a value that sets its destination, which is True, to False."""
    return Option(*names, help=help, dest=dest, action="store_false", default=True)


def no_effect(name: str) -> Option:
    """Make an option which requests the default, and does nothing."""
    return Option(
        name,
        action="call",
        callback=lambda _values, _text: None,
        dest="_no_effect",
        help="no effect, this is the default; for old scripts",
    )


def yes_no(*names: str, help: str, dest: str | None = None) -> Option:
    """Make an option with the value ``yes`` or ``no``; None when it is not given."""
    return Option(*names, kind="bool", metavar="yes|no", help=help, dest=dest)


def text(*names: str, metavar: str, help: str, dest: str | None = None) -> Option:
    """Make an option whose value is a text."""
    return Option(*names, kind="string", dest=dest, metavar=metavar, help=help)


def number(
    *names: str, metavar: str, help: str, dest: str | None = None, default: int | None = None
) -> Option:
    """Make an option whose value is a number without a fraction."""
    return Option(*names, kind="int", dest=dest, default=default, metavar=metavar, help=help)


def key_values(
    *names: str, dest: str, help: str, kind: str = "keyval", metavar: str = "KEY=VALUE,..."
) -> Option:
    """Make an option whose value is a dictionary, by default an empty one."""
    return Option(*names, kind=kind, dest=dest, default={}, metavar=metavar, help=help)


def keyed_values(*names: str, dest: str, metavar: str, help: str) -> Option:
    """Make an option ``NAME:KEY=VALUE,...`` which may be given once for each name."""
    return Option(
        *names, kind="identkeyval", action="append", dest=dest, metavar=metavar, help=help
    )


def node(*names: str, help: str, dest: str | None = None, action: str | None = None) -> Option:
    """Make an option whose value is a node."""
    return Option(
        *names,
        kind="string",
        action=action,
        dest=dest,
        metavar="<node>",
        completion="node",
        help=help,
    )


def new_nodes(help: str) -> Option:
    """Make the option ``--node`` whose value is a primary node, and maybe a secondary node."""
    return Option(
        "-n",
        "--node",
        kind="string",
        metavar="<pnode>[:<snode>]",
        completion="pnode:snode",
        help=help,
    )


def new_secondary(help: str) -> Option:
    """Make the option ``--new-secondary`` of a command."""
    return node("-n", "--new-secondary", dest="dst_node", help=help)


def limit(help: str) -> Option:
    """Make the option ``--limit`` for the number of lines, 50 by default and 0 for all."""
    return number("-n", "--limit", default=50, metavar="N", help=help)


def hypervisor_defaults(help: str) -> Option:
    """Make the option ``--hypervisor-parameters`` for defaults of several hypervisors."""
    return keyed_values(
        "-H",
        "--hypervisor-parameters",
        dest="hvparams",
        metavar="HYPERVISOR:KEY=VALUE,...",
        help=f"{help}; may be given several times",
    )


def disk_parameters(help: str) -> Option:
    """Make the option ``--disk-parameters`` of a command."""
    return keyed_values(
        "-D",
        "--disk-parameters",
        dest="diskparams",
        metavar="TEMPLATE:KEY=VALUE,...",
        help=f"{help}; may be given several times",
    )


def os_type(help: str) -> Option:
    """Make the option ``--os-type`` of a command."""
    return Option(
        "-o", "--os-type", kind="string", dest="os", metavar="<os>", completion="os", help=help
    )


def disk_template_names() -> list[str]:
    """Return the names of all disk templates, for the choices of an option."""
    # Imported when first needed: no other part of a command line is about objects.
    from ganeti.objects import disk_templates

    return sorted(disk_templates.ALL)


PRIORITIES = {"low": 10, "normal": 0, "high": -10}


def _set_priority(values: Values, text: str) -> None:
    values.__dict__["priority"] = PRIORITIES[text]


# Options of every command.
DEBUG = Option(
    "-d",
    "--debug",
    action="count",
    default=0,
    dest="debug",
    help="print more messages, and show errors with their traceback; may be given several times",
)
REASON = Option(
    "--reason",
    kind="string",
    dest="reason",
    help="reason for the operation; it is stored with the job",
)
HELP = flag("-h", "--help", dest="help", help="show this help and exit")
COMMON = (DEBUG, REASON, HELP)

# Options of commands that submit jobs.
DRY_RUN = flag("--dry-run", help="only check whether the operation is possible and show the plan")
PRIORITY = Option(
    "--priority",
    action="call",
    callback=_set_priority,
    dest="priority",
    choices=("low", "normal", "high"),
    metavar="low|normal|high",
    help="priority of the job in the queue; normal by default",
)
SUBMIT = flag("--submit", dest="submit_only", help="submit the job and do not wait for it")
PRINT_JOBID = flag("--print-jobid", help="also print the bare number of the job on standard output")
SUBMIT_OPTIONS = (SUBMIT, PRINT_JOBID)

# Options of commands that print tables.
NO_HEADERS = flag("--no-headers", help="do not print the line of titles")
SEPARATOR = text(
    "--separator", metavar="TEXT", help="put TEXT between columns instead of aligning them"
)
UNITS = Option(
    "--units",
    choices=("h", "m", "g", "t"),
    help="unit of sizes: h for a suitable one, m, g or t for plain numbers of MiB, GiB or TiB",
)
VERBOSE_LIST = flag(
    "-v",
    "--verbose",
    help="write (unavail), (nodata), (offline) and (unknown) instead of -, ?, * and ??",
)
FILTER = flag(
    "-F", "--filter", dest="force_filter", help="the argument is a filter expression, not a name"
)

#: Formats for programs; all formats.
DATA_FORMATS = ("json", "yaml", "csv")
FORMATS = (*DATA_FORMATS, "table")


def _set_output(values: Values, text: str) -> None:
    # The published option -o selects fields; formats are an extension. No field has the name json,
    # yaml, csv or table (a test checks this), so one option serves both purposes.
    if text in FORMATS:
        values.__dict__["output_format"] = text
    else:
        values.__dict__["output"] = text


OUTPUT = Option(
    "-o",
    "--output",
    kind="string",
    action="call",
    callback=_set_output,
    dest="output",
    metavar="FIELDS",
    completion="fields",
    help="columns, separated by commas; +a,b adds columns to the default ones, all selects every"
    " field, wide the usual ones and more. The words json, yaml, csv and table choose the format"
    " instead; give -o twice to choose both",
)
OUTPUT_FORMAT = Option(
    "--output",
    dest="output_format",
    choices=FORMATS,
    help="output format: json, yaml or csv for programs, table (the default) for users",
)

SORT_BY = Option(
    "--sort-by",
    kind="string",
    metavar="FIELD,...",
    completion="fields",
    help="sort by these fields instead of the name; -FIELD reverses the order, for example"
    " --sort-by=-oper_ram,name",
)
WATCH = flag("--watch", help="show the list again and again until q is pressed")
INTERVAL = number(
    "--interval", metavar="SECONDS", help="seconds between two lists with --watch; 2 by default"
)

LIST_OPTIONS = (
    NO_HEADERS, SEPARATOR, UNITS, OUTPUT, VERBOSE_LIST, FILTER, SORT_BY, WATCH, INTERVAL,
)  # fmt: skip
LIST_FIELDS_OPTIONS = (NO_HEADERS, SEPARATOR, OUTPUT_FORMAT)

# Shared by several programs.
VERBOSE = flag("-v", "--verbose", help="print more messages")
FORCE = flag("-f", "--force", help="do not ask for confirmation")
YES = flag("--yes", dest="force_multi", help="the same as --force")
YES_DO_IT = flag(
    "--yes-do-it", "--ya-rly", dest="yes_do_it", default=None, help="confirm the operation"
)
NODE_GROUP = Option(
    "-g",
    "--node-group",
    kind="string",
    dest="nodegroup",
    metavar="<nodegroup>",
    completion="nodegroup",
    help="use only nodes of this node group",
)
NODES = node(
    "-n",
    "--node",
    action="append",
    dest="nodes",
    help="use only this node; may be given several times",
)
SECONDARY_IP = text(
    "-s", "--secondary-ip", metavar="ADDRESS", help="address of the node in the replication network"
)
ROMAN = flag("--roman", dest="roman_integers", help="write numbers as the Romans did")
SHUTDOWN_TIMEOUT = number(
    "--shutdown-timeout",
    default=120,
    metavar="SECONDS",
    help="how long the guest may take to stop by itself; 120 by default",
)
IGNORE_IPOLICY = flag("--ignore-ipolicy", help="continue when the instance policy is violated")
IALLOCATOR = Option(
    "-I",
    "--iallocator",
    kind="string",
    metavar="<NAME>",
    completion="iallocator",
    help="let this allocator choose the nodes; . means the default allocator of the cluster",
)
BACKEND = key_values(
    "-B",
    "--backend-parameters",
    dest="beparams",
    help="backend parameters, such as memory=1g,vcpus=2; sizes in MiB or with a unit",
)
TARGET_NODE = node("-n", "--target-node", dest="dst_node", help="target node")
HV_STATE = keyed_values(
    "--hypervisor-state",
    dest="hv_state",
    metavar="HYPERVISOR:KEY=VALUE,...",
    help="assumed sizes of the hypervisor, for planning, such as kvm:mem_total=65536 (MiB)",
)
DISK_STATE = keyed_values(
    "--disk-state",
    dest="disk_state",
    metavar="TYPE/NAME:KEY=VALUE,...",
    help="assumed sizes of the storage, for planning, such as plain/xenvg:disk_total=1048576 (MiB)",
)
NODE_PARAMETERS = Option(
    "--node-parameters",
    kind="keyval",
    dest="ndparams",
    metavar="KEY=VALUE,...",
    help="node parameters, such as ssh_port=2222",
)

# Options of commands which create or change instances.
OS_PARAMETERS_PRIVATE = key_values(
    "--os-parameters-private",
    dest="osparams_private",
    help="parameters of the operating system which do not appear in logs and listings",
    kind="keyprivateval",
)
OS_PARAMETERS_PRIVATE_FILE = Option(
    "--os-parameters-private-file",
    kind="keyvalfile",
    dest="osparams_private",
    default={},
    metavar="FILE",
    completion="file",
    help="file with such parameters, NAME=VALUE in each line; - for standard input",
)
OS_PARAMETERS_SECRET_FILE = Option(
    "--os-parameters-secret-file",
    kind="keyvalfile",
    dest="osparams_secret",
    default={},
    metavar="FILE",
    completion="file",
    help="file with secret parameters, NAME=VALUE in each line, or - for standard input; other"
    " users of this machine do not see them, unlike those of the command line",
)
NO_WAIT_FOR_SYNC = negative(
    "--no-wait-for-sync",
    dest="wait_for_sync",
    help="do not wait until mirrored disks are in sync",
)
FILE_STORAGE_DIR = text(
    "--file-storage-dir",
    metavar="<DIR>",
    help="directory for file disks, below the file storage directory of the cluster",
)
FILE_DRIVER = Option(
    "--file-driver",
    choices=("blktap", "blktap2", "loop"),
    metavar="<DRIVER>",
    help="how Xen attaches file disks",
)
EXACT_NAME = flag(
    "--exact-name",
    help="add no domain to the name, and accept it although it is the short form of another name,"
    " or another name is its short form",
)
COMPRESS = Option(
    "--compress",
    kind="string",
    default="none",
    metavar="TOOL",
    help="compress the data during the transfer with this tool of the cluster; none by default",
)
NO_CONFLICTS_CHECK = negative(
    "--no-conflicts-check",
    dest="conflicts_check",
    help="accept an address of a network even if the interface is not in it",
)
COMMUNICATION = yes_no(
    "-c",
    "--communication",
    dest="instance_communication",
    help="whether the instance has an interface for communication with its node",
)
NON_LIVE = negative("--non-live", dest="live", help="pause the guest during the migration")
MIGRATION_MODE = Option(
    "--migration-mode",
    choices=("live", "non-live"),
    help="let the guest run during the migration (live), or pause it (non-live)",
)


ACCEPT_FROM_DESCRIPTION = text(
    "--accept-from-description",
    metavar="NAME,...",
    help="take these values of the description, although they name things of the node: a hypervisor"
    " parameter, hypervisor, os, os/PARAMETER, nic/link, nic/mode, nic/vlan, nic/network,"
    " disk/NUMBER, tags",
)


def accepted(values: Values) -> list[str]:
    """Return the names of ``--accept-from-description``."""
    return [name for name in (values.accept_from_description or "").split(",") if name]
