"""The command line of ``burnin``, and the checks which need no cluster."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from ganeti import errors
from ganeti.cli import value_types
from ganeti.cli.value_types import for_argparse
from ganeti.constants import disk, instance
from ganeti.objects import disk_templates, hvparams

#: Option which leaves out a step -> name of the step.
LEFT_OUT: Final = {
    "--no-modify": "modify",
    "--no-replace1": "replace1",
    "--no-replace2": "replace2",
    "--no-change-group": "change-group",
    "--no-failover": "failover",
    "--no-migrate": "migrate",
    "--no-move": "move",
    "--no-importexport": "importexport",
    "--no-reinstall": "reinstall",
    "--no-reboot": "reboot",
    "--no-renamesame": "renamesame",
    "--no-tags": "tags",
    "--no-add-disks": "add-disks",
    "--no-add-nics": "add-nics",
    "--no-hotplug": "hotplug",
    "--no-activate-disks": "activate-disks",
    "--no-confd": "confd",
    "--no-startstop": "startstop",
    "--no-evacuate": "evacuate",
}


class UsageError(errors.GenericError):
    """The command line is wrong; the exit code is 2."""


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The command line.

    :ivar instances: names of the instances to create.
    :ivar os: operating system of the instances, with its variant.
    :ivar disks_mib: sizes of the disks in MiB; `growth_mib` has for each what is added to it.
    :ivar nodes: nodes to use, in this order; all suitable nodes if it is empty.
    :ivar left_out: names of the steps which are not carried out.
    :ivar only: names of the steps to carry out; all if it is empty.
    :ivar retries: how often a job that failed is submitted again.
    :ivar report: file for the report in JSON, ``-`` for standard output; None for no report.
    """

    instances: tuple[str, ...]
    os: str
    hypervisor: str | None
    hvparams: dict[str, Any]
    osparams: dict[str, Any]
    template: str
    disks_mib: tuple[int, ...]
    growth_mib: tuple[int, ...]
    min_memory_mib: int
    max_memory_mib: int
    vcpus: int
    nics: tuple[dict[str, Any], ...]
    nodes: tuple[str, ...]
    iallocator: str | None
    rename: str | None
    reboot_types: tuple[str, ...]
    left_out: frozenset[str]
    only: frozenset[str]
    parallel: bool
    early_release: bool
    name_check: bool
    ip_check: bool
    http_check: bool
    net_timeout_s: int
    keep_instances: bool
    retries: int
    report: str | None
    verbose: bool
    debug: int


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(value_types.parse_size(word) for word in _words(text))


def _count(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = value_types.parse_int(text)
        if number < least:
            raise errors.ParameterError(f"{text} is less than {least}")
        return number

    return read


def creatable_templates() -> list[str]:
    """Return the disk templates whose disks the program can create."""
    return sorted(disk_templates.ALL - disk_templates.MUST_ADOPT)


#: Options which take sizes: name, what reads the value, default, help.
_SIZES: Final[tuple[tuple[str, Callable[[str], object], str | int | None, str], ...]] = (
    ("--disk-size", _sizes, "1G", "sizes of the disks (default: %(default)s)"),
    (
        "--disk-growth",
        _sizes,
        "128m",
        "what is added to each disk; 0 for nothing (default: %(default)s)",
    ),
    (
        "--mem-size",
        value_types.parse_size,
        None,
        "memory, in place of the minimum and the maximum",
    ),
    ("--maxmem-size", value_types.parse_size, 256, "maximum memory (default: %(default)s MiB)"),
    ("--minmem-size", value_types.parse_size, 128, "minimum memory (default: %(default)s MiB)"),
)


def parser(step_names: Sequence[str]) -> argparse.ArgumentParser:
    """Make the parser of the command line.

    :param step_names: names of all steps, for ``--steps``.
    """
    parser = _Parser(
        prog="burnin",
        description="Test a cluster: create instances, carry out every operation on them, and"
        " remove them.",
        usage="%(prog)s -o <OS> [options] <instance>...",
        allow_abbrev=True,
    )
    _add_instance_options(parser)
    _add_step_options(parser, step_names)
    _add_check_options(parser)
    _add_run_options(parser)
    return parser


def _add_instance_options(parser: argparse.ArgumentParser) -> None:
    """Add what describes the instances to create."""
    add = parser.add_argument
    add("instances", nargs="*", metavar="<instance>", help="name of an instance to create")
    add("-o", "--os", metavar="<OS>", help="operating system of the instances")
    add(
        "-O",
        "--os-parameters",
        dest="osparams",
        metavar="KEY=VALUE,...",
        type=for_argparse(value_types.parse_keyval),
        default={},
        help="parameters of the operating system",
    )
    add(
        "-H",
        "--hypervisor-parameters",
        dest="hypervisor",
        metavar="HYPERVISOR:KEY=VALUE,...",
        type=for_argparse(value_types.parse_identkeyval),
        help="hypervisor of the instances, and its parameters",
    )
    add(
        "-t",
        "--disk-template",
        choices=creatable_templates(),
        default=disk.DRBD8,
        metavar="<template>",
        help=f"disk template: {', '.join(creatable_templates())} (default: %(default)s)",
    )
    for name, read, default, text in _SIZES:
        metavar = "<size,size,...>" if read is _sizes else "<size>"
        add(name, type=for_argparse(read), default=default, metavar=metavar, help=text)
    add(
        "--vcpu-count",
        type=for_argparse(_count(1)),
        default=3,
        metavar="<count>",
        help="number of virtual CPUs (default: %(default)s)",
    )
    add("--no-nics", action="store_true", help="create the instances without network interfaces")


def _add_step_options(parser: argparse.ArgumentParser, step_names: Sequence[str]) -> None:
    """Add what chooses the steps, and where and how they are carried out."""
    add = parser.add_argument
    add(
        "-n",
        "--nodes",
        type=_words,
        default=(),
        metavar="<node,node,...>",
        help="nodes to use (default: all nodes which are online and can have instances)",
    )
    add(
        "-I",
        "--iallocator",
        metavar="<name>",
        help="allocator which chooses the nodes, in place of --nodes; '.' is the cluster's own",
    )
    add("-p", "--parallel", action="store_true", help="work on all instances at the same time")
    add(
        "--rename",
        metavar="<instance_name>",
        help="rename the instance to this name and back; for one instance only",
    )
    add(
        "--reboot-types",
        type=_words,
        metavar="<type,type,...>",
        help=f"kinds of reboot: {', '.join(instance.REBOOT_TYPES)} (default: all)",
    )
    for option, step in LEFT_OUT.items():
        add(
            option,
            dest="left_out",
            action="append_const",
            const=step,
            default=[],
            help=f"leave out the step '{step}'",
        )
    add(
        "--steps",
        type=_words,
        default=(),
        metavar="<step,step,...>",
        help=f"carry out these steps only: {', '.join(step_names)}",
    )
    add("--early-release", action="store_true", help="release locks early when replacing disks")


def _add_check_options(parser: argparse.ArgumentParser) -> None:
    """Add what is checked before an instance is created, and in its guest afterwards."""
    add = parser.add_argument
    for check, what in (
        ("name-check", "require that the names resolve"),
        ("ip-check", "require that the addresses are not in use"),
    ):
        add(f"--{check}", action="store_true", help=what)
        # The default; callers which were written for older versions give it.
        dest = check.replace("-", "_")
        add(f"--no-{check}", dest=dest, action="store_false", help=argparse.SUPPRESS)
        parser.set_defaults(**{dest: False})
    add(
        "-C",
        "--http-check",
        action="store_true",
        help="after each step, ask the guest for http://<instance>/hostname.txt, which must contain"
        " the name of the instance",
    )
    add(
        "--net-timeout",
        type=for_argparse(_count(1)),
        default=15,
        metavar="<seconds>",
        help="how long a guest may take to answer (default: %(default)s)",
    )


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add what is about the run itself: its end, its report and its messages."""
    add = parser.add_argument
    add(
        "-K", "--keep-instances", action="store_true", help="do not remove the instances at the end"
    )
    add(
        "--retries",
        type=for_argparse(_count(0)),
        default=0,
        metavar="<number>",
        help="submit a job which failed so many times again (default: %(default)s)",
    )
    add(
        "--report",
        metavar="<file>",
        help="write the report in JSON to this file; '-' is standard output",
    )
    add("-v", "--verbose", action="store_true", help="show the log of every job")
    add("-d", "--debug", action="count", default=0, help="write debug messages to the log file")


def parse(argv: Sequence[str], step_names: Sequence[str]) -> Options:
    """Read and check the command line.

    :param step_names: names of all steps.
    :raises UsageError: it is wrong.
    """
    given = parser(step_names).parse_args(argv)
    if not given.instances:
        raise UsageError("name at least one instance to create")
    if len(set(given.instances)) != len(given.instances):
        raise UsageError("an instance is named twice")
    if not given.os:
        raise UsageError("option -o (--os) is missing: name the operating system of the instances")
    if given.nodes and given.iallocator:
        raise UsageError("--nodes and --iallocator exclude each other")
    if given.rename and len(given.instances) != 1:
        raise UsageError("--rename works with one instance only")
    unknown = [step for step in given.steps if step not in step_names]
    if unknown:
        raise UsageError(
            f"--steps: there is no step '{unknown[0]}'. The steps are {', '.join(step_names)}."
        )
    disks, growth = _disks(given)
    low, high = _memory(given)
    hypervisor, params = given.hypervisor or (None, {})
    if not isinstance(params, dict):
        raise UsageError(f"-H: '{hypervisor}' is not the name of a hypervisor")
    try:
        typed = value_types.typed_params(params, hvparams.TYPES)
    except errors.GenericError as err:
        raise UsageError(f"-H: {err}") from err
    return Options(
        instances=tuple(given.instances),
        os=given.os,
        hypervisor=hypervisor,
        hvparams=typed,
        osparams=given.osparams,
        template=given.disk_template,
        disks_mib=disks,
        growth_mib=growth,
        min_memory_mib=low,
        max_memory_mib=high,
        vcpus=given.vcpu_count,
        nics=() if given.no_nics else ({},),
        nodes=given.nodes,
        iallocator=given.iallocator,
        rename=given.rename,
        reboot_types=_reboot_types(given),
        left_out=frozenset(given.left_out),
        only=frozenset(given.steps),
        parallel=given.parallel,
        early_release=given.early_release,
        name_check=given.name_check,
        ip_check=given.ip_check,
        http_check=given.http_check,
        net_timeout_s=given.net_timeout,
        keep_instances=given.keep_instances,
        retries=given.retries,
        report=given.report,
        verbose=given.verbose,
        debug=given.debug,
    )


def _disks(given: argparse.Namespace) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of the disks and what is added to each."""
    if given.disk_template == disk.DISKLESS:
        return (), ()
    if not given.disk_size or 0 in given.disk_size:
        raise UsageError("--disk-size: give the size of each disk, which must not be 0")
    growth = given.disk_growth
    if growth == (0,):
        growth = (0,) * len(given.disk_size)
    elif len(growth) == 1:
        growth = growth * len(given.disk_size)
    if len(growth) != len(given.disk_size):
        raise UsageError(
            f"--disk-growth has {len(growth)} values, and there are {len(given.disk_size)} disks:"
            " give one value, or one for each disk"
        )
    return given.disk_size, growth


def _memory(given: argparse.Namespace) -> tuple[int, int]:
    """Return the minimum and the maximum of the memory, in MiB."""
    low, high = given.minmem_size, given.maxmem_size
    if given.mem_size is not None:
        low = high = given.mem_size
    if not 0 < low <= high:
        raise UsageError(
            f"the minimum of the memory ({low} MiB) must be above 0 and at most the maximum"
            f" ({high} MiB)"
        )
    return low, high


def _reboot_types(given: argparse.Namespace) -> tuple[str, ...]:
    if given.reboot_types is None:
        return tuple(instance.REBOOT_TYPES)
    for word in given.reboot_types:
        if word not in instance.REBOOT_TYPES:
            raise UsageError(
                f"--reboot-types: '{word}' is not one of {', '.join(instance.REBOOT_TYPES)}"
            )
    return tuple(dict.fromkeys(given.reboot_types))
