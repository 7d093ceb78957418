"""Options of the placement programs: one table, from which each program takes its own.

They are read in the way of ``getopt_long``: long options may be shortened while they stay unique,
options may follow arguments, and an optional argument stands in the same word (``-pname``,
``--print-nodes=name``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.objects import disk_templates
from ganeti.utils.records import field, record

if TYPE_CHECKING:
    from typing import Any

    from ganeti.htools.what_if import Change

NO, OPTIONAL, REQUIRED = "none", "optional", "required"


@record(frozen=True, slots=True)
class Option:
    """An option.

    :ivar argument: :data:`NO`, :data:`OPTIONAL` or :data:`REQUIRED`.
    :ivar convert: how its argument is read: ``text``, ``int``, ``float``, ``list``, ``switch`` (yes
        or no), ``count`` (how often it is given), ``flag`` or ``collect``.
    :ivar constant: the value of a flag.
    :ivar label: what it is called in the error about its value, where that is not its name.
    """

    dest: str
    long: str
    help: str
    short: str = ""
    argument: str = NO
    metavar: str = ""
    convert: str = "flag"
    default: Any = None
    constant: Any = True
    choices: Collection[str] = ()
    completion: str = "none"
    label: str = ""


def _flag(dest: str, long: str, help_text: str, short: str = "", constant: Any = True) -> Option:
    return Option(
        dest, long, help_text, short, default=False if constant is True else None,
        constant=constant,
    )  # fmt: skip


ALL: dict[str, Option] = {
    one.long: one
    for one in (
        Option("print_nodes", "print-nodes", "show the nodes; FIELDS names the columns, with a"
               " leading + they are added to the usual ones", "p", OPTIONAL, "FIELDS", "text"),
        _flag("print_instances", "print-instances", "show the instances"),
        Option("print_commands", "print-commands", "print the commands that make the moves, or"
               " write them as a shell script to FILE", "C", OPTIONAL, "FILE", "text"),
        Option("text_data", "text-data", "read the cluster from a text file", "t", REQUIRED,
               "FILE", "text", completion="file"),
        Option("simulate", "simulate", "make up a cluster: policy,nodes,disk,memory,cpus[,spindles"
               "[,exclusive]] for each group", "", REQUIRED, "SPEC", "collect",
               completion="string"),
        Option("master", "master", "read the cluster from the REST interface at ADDRESS", "m",
               REQUIRED, "ADDRESS", "text", completion="host"),
        Option("luxi", "luxi", "read the cluster from the master daemon, which must run on this"
               " machine", "L", OPTIONAL, "SOCKET", "text", completion="file"),
        Option("ialloc_src", "ialloc-src", "read the cluster from the request of an allocator",
               "I", REQUIRED, "FILE", "text", completion="file"),
        _flag("evac_mode", "evac-mode", "move only instances that are on offline nodes", "E"),
        _flag("restricted_migration", "restricted-migration",
              "never migrate an instance away from an online primary node, except to its"
              " secondary node"),
        _flag("exec", "exec", "make the moves with jobs; needs --luxi", "X"),
        _flag("first_job_group", "first-job-group", "make only the first set of jobs"),
        Option("reason", "reason", "the reason which the jobs give", "", REQUIRED, "REASON",
               "text"),
        Option("group", "group", "the node group, by name or UUID", "G", REQUIRED, "ID", "text",
               completion="onegroup"),
        Option("max_length", "max-length", "the most moves, or instances, of a solution", "l",
               REQUIRED, "N", "int", -1, completion="integer", label="max solution length"),
        Option("verbose", "verbose", "say more; may be repeated", "v", convert="count", default=1),
        _flag("quiet", "quiet", "say less", "q"),
        Option("offline", "offline", "treat this node as offline; may be repeated", "O", REQUIRED,
               "NODE", "collect", completion="onenode"),
        Option("kvm_memory", "static-kvm-node-memory", "MiB of memory which a node with KVM needs"
               " for itself; 0 for what it reports", "", REQUIRED, "N", "int", 4096,
               completion="integer", label="static node memory"),
        Option("min_score", "min-score", "stop when the score is not above EPSILON", "e",
               REQUIRED, "EPSILON", "float", 1e-9, completion="float", label="min score"),
        Option("max_cpu", "max-cpu", "the most virtual CPUs for each real one", "", REQUIRED,
               "RATIO", "float", completion="float", label="parsing max-cpu"),
        Option("min_disk", "min-disk", "the share of its disk space which a node keeps free", "",
               REQUIRED, "RATIO", "float", 0.0, completion="float", label="min free disk space"),
        Option("min_gain", "min-gain", "what one step must gain when the score is small", "g",
               REQUIRED, "DELTA", "float", 1e-2, completion="float", label="min gain"),
        Option("min_gain_limit", "min-gain-limit", "the score up to which --min-gain counts", "",
               REQUIRED, "SCORE", "float", 1e-1, completion="float", label="min gain limit"),
        _flag("no_disk_moves", "no-disk-moves", "never copy disks to another node"),
        _flag("no_instance_moves", "no-instance-moves",
              "never move an instance to another primary node"),
        Option("select_instances", "select-instances", "move only these instances", "", REQUIRED,
               "INSTS", "list", completion="manyinstances"),
        Option("exclude_instances", "exclude-instances", "do not move these instances", "",
               REQUIRED, "INSTS", "list", completion="manyinstances"),
        _flag("ignore_soft_errors", "ignore-soft-errors",
              "allow moves which only violate policies"),
        Option("dynu_file", "dynu-file", "read the load of the instances from FILE", "U",
               REQUIRED, "FILE", "text", completion="file"),
        _flag("ignore_dynu", "ignore-dynu", "ignore the load of the instances"),
        Option("mond", "mond", "ask the monitoring daemons of the nodes for the load", "",
               OPTIONAL, "CHOICE", "switch", False, choices=("yes", "no"), completion="choices"),
        Option("mond_data", "mond-data", "read answers of monitoring daemons from FILE", "",
               REQUIRED, "FILE", "text", completion="file"),
        _flag("exit_missing_mond", "exit-on-missing-mond-data",
              "stop when a monitoring daemon does not answer"),
        _flag("mond_xen", "mond-xen", "ask also for the load which Xen reports"),
        Option("exclusion_tags", "exclusion-tags", "further prefixes of exclusion tags", "",
               REQUIRED, "TAG,...", "list", completion="string"),
        Option("save", "save", "write the cluster before and after to files that begin with FILE",
               "S", REQUIRED, "FILE", "text"),
        Option("priority", "priority", "the priority of the jobs", "", REQUIRED, "PRIO",
               "priority", choices=("low", "normal", "high"), completion="choices"),
        _flag("no_capacity_checks", "no-capacity-checks",
              "do not check that the cluster survives the loss of any node"),
        _flag("explain", "explain", "show for each node why it was or was not chosen for a new"
              " instance"),
        Option("restrict_to", "restrict-allocation-to", "choose among these nodes only", "",
               REQUIRED, "NODE,...", "list", completion="manynodes"),
        Option("machine_readable", "machine-readable", "print the results as shell variables", "",
               OPTIONAL, "CHOICE", "switch", False, choices=("yes", "no"), completion="choices"),
        _flag("no_simulation", "no-simulation", "do not try to rebalance"),
        Option("output_dir", "output-dir", "where the files are written", "d", REQUIRED, "PATH",
               "text", ".", completion="dir"),
        _flag("no_headers", "no-headers", "print no titles"),
        Option("node_tags", "node-tags", "only nodes with one of these tags", "", REQUIRED,
               "TAG,...", "list", completion="string"),
        _flag("offline_maintenance", "offline-maintenance",
              "plan so that no node has to run instances of another one"),
        _flag("print_moves", "print-moves", "print the moves of the instances"),
        _flag("full_evacuation", "full-evacuation", "move also the secondary instances away"),
        _flag("skip_non_redundant", "skip-non-redundant",
              "leave out nodes with instances that cannot fail over"),
        _flag("ignore_non_redundant", "ignore-non-redundant",
              "reboot also under instances that cannot fail over"),
        _flag("force", "force", "go on without a master node", "f"),
        _flag("one_step_only", "one-step-only", "print only the first group"),
        Option("disk_template", "disk-template", "the disk template of the instances", "",
               REQUIRED, "TEMPLATE", "choice", choices=disk_templates.ALL, completion="choices"),
        Option("spindle_use", "spindle-use", "spindles which an instance uses", "", REQUIRED,
               "SPINDLES", "int", completion="float", label="parsing spindle-use"),
        _flag("independent_groups", "independent-groups",
              "check for each group by itself that it survives the loss of a node"),
        _flag("accept_existing", "accept-existing-errors",
              "do not count groups which already cannot survive the loss of a node"),
        Option("standard_alloc", "standard-alloc", "the standard size: disk,memory,cpus[,spindles]",
               "", REQUIRED, "STDSPEC", "text", completion="string"),
        Option("tiered_alloc", "tiered-alloc", "the largest size: disk,memory,cpus[,spindles]", "",
               REQUIRED, "TSPEC", "text", completion="string"),
        Option("minimal_resources", "minimal-resources", "bring nodes back when less than FACTOR"
               " standard instances fit each node", "", REQUIRED, "FACTOR", "float", 2.0,
               completion="float"),
        Option("target_resources", "target-resources", "keep capacity for FACTOR standard"
               " instances on each node", "", REQUIRED, "FACTOR", "float", 2.0, completion="float"),
        Option("job_delay", "job-delay", "seconds before a job may begin", "", REQUIRED,
               "SECONDS", "float", 10.0, completion="float"),
        _flag("dry_run", "dry-run", "only say what would be done"),
        Option("what_if", "what-if", "answer as if this had been changed; may be repeated", "",
               REQUIRED, "CHANGE", "collect", completion="string"),
        Option("output", "output", "print the result as json", "", REQUIRED, "FORMAT", "choice",
               choices=("json",), completion="choices"),
    )
}  # fmt: skip


class OptionError(errors.GenericError):
    """The command line is not valid."""


class WrongValueError(errors.GenericError):
    """The value of an option is not valid; then a program exits with 1 and not with 2."""


@record(slots=True)
class Values:
    """What was given on a command line: a dictionary with the options as attributes.

    :ivar given: the options which were given; a default is not.
    :ivar changes: what became of the changes of ``--what-if`` when the cluster was loaded.
    :ivar detached: the option which may have a value, has none, and stands before the first
        argument; empty when there is none.
    """

    options: dict[str, Any]
    arguments: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)
    changes: list[Change] = field(default_factory=list)
    detached: str = ""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.options[name]
        except KeyError:
            raise AttributeError(name) from None


def parse(names: Sequence[str], words: Sequence[str]) -> Values:
    """Read a command line.

    :param names: long names of the options of the program.
    :returns: the values; the options ``help``, ``version`` and ``help_completion`` are True when
        they were given. ``verbose`` is the level of messages, 1 by default; ``--quiet`` takes one
        from it.
    :raises OptionError: an option is unknown or has a wrong argument.
    """
    table = {name: ALL[name] for name in names} | GENERIC
    values = Values({one.dest: _default(one) for one in table.values()})
    waiting = list(words)
    before = ""
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            values.arguments += waiting
            break
        if word.startswith("--"):
            before = _long(table, word[2:], waiting, values)
        elif word.startswith("-") and len(word) > 1:
            before = _short(table, word[1:], waiting, values)
        else:
            if not values.arguments:
                values.detached = before
            values.arguments.append(word)
    if "quiet" in table and values.quiet:
        values.options["verbose"] -= 1
    return values


GENERIC: dict[str, Option] = {
    one.long: one
    for one in (
        _flag("version", "version", "show the version", "V"),
        _flag("help", "help", "show this text", "h"),
        _flag("help_completion", "help-completion", "list the options for shell completion"),
    )
}


def _default(option: Option) -> Any:
    return [] if option.convert == "collect" else option.default


def _long(table: Mapping[str, Option], word: str, waiting: list[str], values: Values) -> str:
    """Take a long option; returns its name when it may have a value and has none."""
    name, equal, argument = word.partition("=")
    found = [one for one in table if one.startswith(name)]
    if name in table:
        found = [name]
    if not found:
        raise OptionError(f"unrecognized option `--{name}'")
    if len(found) > 1:
        known = ", ".join(f"--{one}" for one in found)
        raise OptionError(f"option `--{name}' is ambiguous; could be one of: {known}")
    option = table[found[0]]
    given = argument if equal else None
    if option.argument == NO and given is not None:
        raise OptionError(f"option `--{option.long}' doesn't allow an argument")
    if option.argument == REQUIRED and given is None:
        given = _next(f"--{option.long}", option, waiting)
    return _set(option, given, values)


def _short(table: Mapping[str, Option], letters: str, waiting: list[str], values: Values) -> str:
    """Take short options; returns the name of the last when it may have a value and has none."""
    shorts = {one.short: one for one in table.values() if one.short}
    while letters:
        letter, letters = letters[0], letters[1:]
        option = shorts.get(letter)
        if option is None:
            raise OptionError(f"unrecognized option `-{letter}'")
        if option.argument == NO:
            _set(option, None, values)
            continue
        given: str | None = letters or None
        if given is None and option.argument == REQUIRED:
            given = _next(f"-{letter}", option, waiting)
        return _set(option, given, values)
    return ""


def _next(name: str, option: Option, waiting: list[str]) -> str:
    if not waiting:
        raise OptionError(f"option `{name}' requires an argument {option.metavar}")
    return waiting.pop(0)


def _set(option: Option, argument: str | None, values: Values) -> str:
    """Set an option; returns its name when it may have a value and has none."""
    options, dest = values.options, option.dest
    values.given.add(dest)
    if option.convert == "count":
        options[dest] += 1
    elif option.argument == NO:
        options[dest] = option.constant
    elif option.convert == "collect":
        options[dest].append(argument)
    else:
        options[dest] = _converted(option, argument)
    return option.long if option.argument == OPTIONAL and argument is None else ""


def _converted(option: Option, argument: str | None) -> Any:
    if argument is None:
        return True if option.convert == "switch" else ""
    if option.convert == "list":
        return argument.split(",") if argument else []
    if option.choices and argument not in option.choices:
        raise WrongValueError(_wrong_choice(option, argument))
    if option.convert == "switch":
        return argument == "yes"
    if option.convert in ("int", "float"):
        return _number(option, argument)
    return argument


def _wrong_choice(option: Option, argument: str) -> str:
    if option.convert == "priority":
        return f"Unknown priority '{argument}'"
    if option.convert == "switch":
        return f"Invalid choice '{argument}', pass one of 'yes' or 'no'"
    if option.dest == "disk_template":
        return f'Invalid string value for type DiskTemplate: "{argument}"'
    return f"'{argument}' is not a value of --{option.long}; it has {', '.join(option.choices)}"


def _number(option: Option, argument: str) -> int | float:
    """Read a number; the texts of the errors are published.

    :raises WrongValueError: it is not a number, not finite, or too small.
    """
    try:
        value = int(argument) if option.convert == "int" else float(argument)
    except ValueError:
        value = math.nan
    if math.isnan(value) or "_" in argument:
        raise WrongValueError(f"{option.label or option.long}: cannot parse string '{argument}'")
    if math.isinf(value):
        raise WrongValueError(f"--{option.long} needs a finite number, not '{argument}'")
    if option.dest == "max_cpu" and value <= 0:
        raise WrongValueError("Invalid value of the max-cpu ratio, expected >0")
    if option.dest == "spindle_use" and value < 0:
        raise WrongValueError("Invalid value of the spindle-use (expected >= 0)")
    return value


def usage(program: str, names: Sequence[str], arguments: str) -> str:
    """Return the help text of a program."""
    lines = [f"Usage: {program} [OPTION...]{arguments}", ""]
    table = [*(ALL[name] for name in names), *GENERIC.values()]
    rows = []
    for one in table:
        metavar = one.metavar
        if one.argument == OPTIONAL:
            metavar = f"[={one.metavar}]"
        elif one.argument == REQUIRED:
            metavar = f"={one.metavar}"
        short = f"-{one.short}, " if one.short else "    "
        rows.append((f"  {short}--{one.long}{metavar}", one.help))
    width = max(len(left) for left, _ in rows)
    lines += [f"{left.ljust(width)}  {text}" for left, text in rows]
    return "\n".join(lines) + "\n"


def completions(names: Sequence[str], arguments: str) -> str:
    """Return the options of a program for shell completion, one a line: names, then kind of
    argument.
    """
    lines = []
    for one in [*(ALL[name] for name in names), *GENERIC.values()]:
        spelled = [f"-{one.short}"] if one.short else []
        kind = "none" if one.argument == NO else one.completion
        if one.argument == OPTIONAL and kind != "none":
            kind = f"optional:{kind}"
        if one.choices:
            kind = f"choices={','.join(one.choices)}"
        lines.append(f"{','.join([*spelled, f'--{one.long}'])} {kind}")
    lines.append(arguments)
    return "\n".join(lines) + "\n"
