"""What an option is, and the options which several commands share.

Names, destinations, types and defaults are published (``doc/`` and the manual pages list them); the
help texts are ours. An option used by one command only is declared beside that command.

An option's ``action`` is one of

=============== ============================================================================
``store``       the value, read as ``type``
``append``      values in a list
``store_true``  True
``store_false`` False
``store_const`` ``const``
``count``       how often it was given
``call``        ``callback(values, text)`` puts it where it belongs
=============== ============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ganeti.cli.command import Values

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

Callback = Callable[[Values, str], None]


class Option:
    """One option of a command.

    :param names: the spellings, short before long; further ones are other forms of the same.
    :param kind: the name of the type in :data:`ganeti.cli.value_types.PARSERS`; None for an option
        without a value.
    :param completion: what completion offers as value: ``node``, ``nodegroup``, ``os``,
        ``iallocator``, ``pnode:snode``.
    """

    __slots__ = (
        "action",
        "callback",
        "choices",
        "completion",
        "const",
        "default",
        "dest",
        "help",
        "kind",
        "metavar",
        "names",
    )

    def __init__(
        self,
        *names: str,
        help: str,
        dest: str | None = None,
        kind: str | None = None,
        action: str | None = None,
        default: Any = None,
        choices: Sequence[str] = (),
        const: Any = None,
        metavar: str | None = None,
        completion: str | None = None,
        callback: Callback | None = None,
    ) -> None:
        self.names = names
        self.help = help
        self.kind = "choice" if choices and kind is None else kind
        self.action = action or ("store" if self.kind else "store_true")
        self.dest = dest or names[-1].lstrip("-").replace("-", "_")
        if default is None and action == "append":
            default = []
        self.default = default
        self.choices = tuple(choices)
        self.const = const
        self.metavar = metavar
        self.completion = completion
        self.callback = callback

    @property
    def takes_value(self) -> bool:
        """Whether a value follows."""
        return self.kind is not None

    @property
    def long(self) -> str | None:
        """The long spelling, if there is one."""
        return next((name for name in self.names if name.startswith("--")), None)

    @property
    def short(self) -> str | None:
        """The short spelling, if there is one."""
        return next((name for name in self.names if not name.startswith("--")), None)

    def usage(self) -> str:
        """How the help shows it: ``-o FIELDS, --output=FIELDS``."""
        if not self.takes_value:
            return ", ".join(self.names)
        word = self.metavar or (
            "|".join(self.choices) if self.choices and len(self.choices) < 5 else self.dest.upper()
        )
        return ", ".join(
            f"{name}={word}" if name.startswith("--") else f"{name} {word}" for name in self.names
        )


def flag(
    *names: str,
    help: str,
    dest: str | None = None,
    default: bool | None = False,
    value: bool = True,
) -> Option:
    """An option without value that sets its destination to ``value``."""
    return Option(
        *names,
        help=help,
        dest=dest,
        action="store_true" if value else "store_false",
        default=default,
    )


PRIORITIES = {"low": 10, "normal": 0, "high": -10}


def _set_priority(values: Values, text: str) -> None:
    values.__dict__["priority"] = PRIORITIES[text]


# On every command.
DEBUG = Option(
    "-d",
    "--debug",
    action="count",
    default=0,
    dest="debug",
    help="say more about what happens; may be given several times",
)
REASON = Option(
    "--reason", kind="string", dest="reason", help="why this is done; kept with the job"
)
HELP = flag("-h", "--help", dest="help", help="show this help and end")
COMMON = (DEBUG, REASON, HELP)

# On commands that make jobs.
DRY_RUN = flag("--dry-run", help="check whether it could be done and show the plan, change nothing")
PRIORITY = Option(
    "--priority",
    action="call",
    callback=_set_priority,
    dest="priority",
    choices=("low", "normal", "high"),
    metavar="low|normal|high",
    help="how early the job is taken from the queue",
)
SUBMIT = flag("--submit", dest="submit_only", help="submit the job and end, without waiting for it")
PRINT_JOBID = flag("--print-jobid", help="also write the bare job id to standard output")
SUBMIT_OPTIONS = (SUBMIT, PRINT_JOBID)

# On commands that print tables.
NO_HEADERS = flag("--no-headers", help="no line of titles")
SEPARATOR = Option(
    "--separator",
    kind="string",
    metavar="TEXT",
    help="put TEXT between columns instead of aligning them",
)
UNITS = Option(
    "--units",
    choices=("h", "m", "g", "t"),
    help="unit of sizes: h for the one that fits, m, g or t for plain numbers",
)
VERBOSE_LIST = flag("-v", "--verbose", help="write (unavail), (nodata) ... instead of - and ?")
FILTER = flag(
    "-F", "--filter", dest="force_filter", help="the arguments are a filter expression, not names"
)

#: Formats for programs, and the one for people.
DATA_FORMATS = ("json", "yaml", "csv")
FORMATS = (*DATA_FORMATS, "table")


def _set_output(values: Values, text: str) -> None:
    # -o chose fields long before formats existed. No field is called json, yaml, csv or table (a
    # test sees to it), so both live in one option, and both may be given.
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
    help="the columns, comma separated; +a,b adds to the default ones, all means every"
    " one. The words json, yaml, csv and table choose the format instead; give -o"
    " twice for both",
)
OUTPUT_FORMAT = Option(
    "--output",
    dest="output_format",
    choices=FORMATS,
    help="format for programs (json, yaml, csv) or people (table, the default)",
)

LIST_OPTIONS = (NO_HEADERS, SEPARATOR, UNITS, OUTPUT, VERBOSE_LIST, FILTER)
LIST_FIELDS_OPTIONS = (NO_HEADERS, SEPARATOR, OUTPUT_FORMAT)

# Shared by several programs.
VERBOSE = flag("-v", "--verbose", help="say more about what happens")
FORCE = flag("-f", "--force", help="do not ask")
YES_DO_IT = flag(
    "--yes-do-it", "--ya-rly", dest="yes_do_it", default=None, help="yes, this is meant"
)
NODE_GROUP = Option(
    "-g",
    "--node-group",
    kind="string",
    dest="nodegroup",
    metavar="<nodegroup>",
    completion="nodegroup",
    help="node group to work in",
)
SECONDARY_IP = Option(
    "-s",
    "--secondary-ip",
    kind="string",
    metavar="ADDRESS",
    help="address of the node in the replication network",
)
ROMAN = flag("--roman", dest="roman_integers", help="write numbers as the Romans did")
SHUTDOWN_TIMEOUT = Option(
    "--shutdown-timeout",
    kind="int",
    default=120,
    metavar="SECONDS",
    help="how long the guest may take to stop by itself",
)
IGNORE_IPOLICY = flag("--ignore-ipolicy", help="go on when the instance policy is violated")
IALLOCATOR = Option(
    "-I",
    "--iallocator",
    kind="string",
    metavar="<NAME>",
    completion="iallocator",
    help="allocator that chooses the node; . for the cluster's default",
)
BACKEND = Option(
    "-B",
    "--backend-parameters",
    kind="keyval",
    dest="beparams",
    default={},
    metavar="KEY=VALUE,...",
    help="backend parameters, such as memory=1g,vcpus=2",
)
TARGET_NODE = Option(
    "-n",
    "--target-node",
    kind="string",
    dest="dst_node",
    metavar="NODE",
    completion="node",
    help="node to go to",
)
HV_STATE = Option(
    "--hypervisor-state",
    kind="identkeyval",
    action="append",
    dest="hv_state",
    metavar="HYPERVISOR:KEY=VALUE,...",
    help="state the hypervisor is assumed to have",
)
DISK_STATE = Option(
    "--disk-state",
    kind="identkeyval",
    action="append",
    dest="disk_state",
    metavar="TYPE/NAME:KEY=VALUE,...",
    help="state the storage is assumed to have",
)
NODE_PARAMETERS = Option(
    "--node-parameters",
    kind="keyval",
    dest="ndparams",
    metavar="KEY=VALUE,...",
    help="node parameters, such as ssh_port=2222",
)
