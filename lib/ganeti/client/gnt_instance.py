"""``gnt-instance``: make, remove, start, stop, move and look at virtual machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ganeti import errors
from ganeti.cli import failures, jobs, listing, main, terminal
from ganeti.cli import options as opt
from ganeti.cli import values as value_types
from ganeti.cli.command import Argument, Command, Program, Values
from ganeti.cli.options import Option
from ganeti.client import group_moves, tags
from ganeti.constants import disk as disk_const
from ganeti.constants import instance as const

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

    from ganeti import luxi
    from ganeti.opcodes.base import OpCode

LIST_FIELDS = ("name", "hypervisor", "os", "pnode", "status", "oper_ram")
_FORMATTERS = {name: listing.join_list for name in (
    "disk.sizes", "nic.bridges", "nic.ips", "nic.links", "nic.macs", "nic.modes", "nic.networks",
    "snodes", "snodes.group", "snodes.group.uuid", "tags")}


# -- looking --------------------------------------------------------------------------------------

def list_instances(values: Values, arguments: list[str]) -> int:
    """``list``."""
    return listing.run_list("instance", LIST_FIELDS, values, arguments, formatters=_FORMATTERS)


def list_fields(values: Values, arguments: list[str]) -> int:
    """``list-fields``."""
    return listing.run_list_fields("instance", values, arguments)


def show_info(values: Values, arguments: list[str]) -> int:
    """``info``."""
    if not arguments and not values.show_all:
        terminal.err("No instance selected. Please pass in --all if you want to query all"
                     " instances.\nNote that this can take a long time on a big cluster.")
        return failures.EXIT_FAILURE
    if arguments and values.show_all:
        raise errors.OpPrereqError("give either names or --all", errors.ECODE_INVAL)
    from ganeti.cli import output
    from ganeti.opcodes.instance import OpInstanceQueryData
    found = jobs.run_opcode(OpInstanceQueryData(
        instances=arguments, static=values.static, use_locking=not values.static,
        **jobs.common_params(values)), values)
    if values.output_format in opt.DATA_FORMATS:
        output.write_data(list(found.values()), values.output_format)
        return failures.EXIT_SUCCESS
    from ganeti.client import instance_info
    number = output.roman if values.roman_integers else output.plain
    output.write_info([instance_info.describe(info, number) for info in found.values()])
    return failures.EXIT_SUCCESS


# -- making and removing --------------------------------------------------------------------------

def add(values: Values, arguments: list[str]) -> int:
    """``add``."""
    from ganeti.opcodes.instance import OpInstanceCreate
    pnode, _, snode = (values.node or "").partition(":")
    hypervisor, hvparams = _hypervisor(values)
    jobs.run_opcode(OpInstanceCreate(
        instance_name=arguments[0],
        mode=const.CREATE,
        disks=disk_list(values),
        nics=nic_list(values),
        disk_template=values.disk_template,
        pnode=pnode or None,
        snode=snode or None,
        iallocator=values.iallocator,
        group_name=values.nodegroup,
        hypervisor=hypervisor,
        hvparams=hvparams,
        beparams=_backend(values),
        os_type=values.os,
        osparams=values.osparams,
        osparams_private=values.osparams_private,
        osparams_secret=values.osparams_secret,
        force_variant=values.force_variant,
        no_install=values.no_install,
        start=values.start,
        wait_for_sync=values.wait_for_sync,
        name_check=values.name_check,
        ip_check=values.ip_check,
        conflicts_check=values.conflicts_check,
        ignore_ipolicy=values.ignore_ipolicy,
        opportunistic_locking=values.opportunistic_locking,
        file_driver=values.file_driver,
        file_storage_dir=values.file_storage_dir,
        forthcoming=values.forthcoming,
        commit=values.commit,
        tags=[tag for tag in (values.tags or "").split(",") if tag],
        instance_communication=bool(values.instance_communication),
        helper_startup_timeout=values.helper_startup_timeout,
        helper_shutdown_timeout=values.helper_shutdown_timeout,
        **jobs.common_params(values)), values)
    return failures.EXIT_SUCCESS


def _hypervisor(values: Values) -> tuple[str | None, dict[str, Any]]:
    """Hypervisor and its parameters, from ``-H kvm:kernel_path=...``."""
    if values.hypervisor is None:
        return None, {}
    name, params = values.hypervisor
    if not isinstance(params, dict):
        raise errors.ParameterError(name)
    return name, _hypervisor_params(params)


def _hypervisor_params(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters in their types.

    :raises TypeEnforcementError: unknown, or of another type.
    """
    if not params:
        return {}
    from ganeti.objects import hvparams  # a large table; most commands set no parameter
    return value_types.typed_params(params, hvparams.TYPES, allowed=("default",))


def _backend(values: Values) -> dict[str, Any]:
    return value_types.typed_params(values.beparams, const.BE_PARAM_TYPES_WITH_MEMORY,
                                   allowed=("default",))


def _index(text: str, what: str) -> int:
    if not (text.isdecimal() and text.isascii()):
        raise errors.OpPrereqError(
            f"'{text}' is not the number of a {what}. Write it as 0:key=value,...",
            errors.ECODE_INVAL)
    return int(text)


def _numbered(given: Sequence[tuple[str, Any]], what: str, limit: int) -> list[dict[str, Any]]:
    """Options such as ``0:a=b`` as a list; a number left out gets no parameters.

    :raises OpPrereqError: a number twice, too high, or a removal.
    """
    found: dict[int, dict[str, Any]] = {}
    for ident, params in given:
        number = _index(ident, what)
        if not isinstance(params, dict):
            raise errors.OpPrereqError(f"{what} {ident} cannot be removed here",
                                       errors.ECODE_INVAL)
        if number in found:
            raise errors.OpPrereqError(f"{what} {number} is given twice", errors.ECODE_INVAL)
        if number >= limit:
            raise errors.OpPrereqError(f"{what} {number}: an instance has at most {limit}",
                                       errors.ECODE_INVAL)
        found[number] = params
    return [found.get(number, {}) for number in range(max(found, default=-1) + 1)]


_MAX_DISKS = 16
_MAX_NICS = 8
_NIC_KEYS = frozenset(("bridge", "ip", "link", "mac", "mode", "name", "network", "vlan"))


def nic_list(values: Values) -> list[dict[str, Any]]:
    """Network interfaces of a new instance: as given, none, or one with the cluster's defaults.

    :raises OpPrereqError: interfaces and ``--no-nics``, or an unknown key.
    """
    if values.no_nics:
        if values.nics:
            raise errors.OpPrereqError("give either --net or --no-nics", errors.ECODE_INVAL)
        return []
    if not values.nics:
        return [{}]
    nics = _numbered(values.nics, "network interface", _MAX_NICS)
    for number, nic in enumerate(nics):
        unknown = sorted(set(nic) - _NIC_KEYS)
        if unknown:
            raise errors.TypeEnforcementError(
                f"unknown parameter '{unknown[0]}' of network interface {number}. Known are:"
                f" {', '.join(sorted(_NIC_KEYS))}.")
    return nics


def disk_list(values: Values) -> list[dict[str, Any]]:
    """Disks of a new instance, from ``--disk`` or ``-s``.

    :raises OpPrereqError: disks for a diskless instance, no disks for another, or both forms.
    """
    given = bool(values.disks) or values.sd_size is not None
    if values.disk_template == disk_const.DISKLESS:
        if given:
            raise errors.OpPrereqError("Diskless instance but disk information passed",
                                       errors.ECODE_INVAL)
        return []
    if not given:
        raise errors.OpPrereqError(
            "no disk given. Use -s SIZE for one disk, or --disk 0:size=SIZE for each; or"
            " -t diskless for none.", errors.ECODE_INVAL)
    if values.disks and values.sd_size is not None:
        raise errors.OpPrereqError("give either --disk or -s", errors.ECODE_INVAL)
    if values.sd_size is not None:
        return [{"size": values.sd_size}]
    disks = _numbered(values.disks, "disk", _MAX_DISKS)
    return [_disk(number, params) for number, params in enumerate(disks)]


def _disk(number: int, params: dict[str, Any]) -> dict[str, Any]:
    """One disk; sizes in MiB. Keys nobody knows are parameters of an external provider."""
    disk = dict(params)
    if "size" in disk and "adopt" in disk:
        raise errors.OpPrereqError(
            f"disk {number}: a disk that is adopted has its size already", errors.ECODE_INVAL)
    if "adopt" in disk:
        disk["size"] = 0
    elif "size" not in disk:
        raise errors.OpPrereqError(f"disk {number} has no size. Write {number}:size=10g.",
                                   errors.ECODE_INVAL)
    else:
        try:
            disk["size"] = value_types.parse_size(str(disk["size"]))
        except errors.ParameterError as err:
            raise errors.OpPrereqError(f"disk {number}: {err}", errors.ECODE_INVAL) from err
    if "spindles" in disk:
        try:
            disk["spindles"] = value_types.parse_int(str(disk["spindles"]))
        except errors.ParameterError as err:
            raise errors.OpPrereqError(f"disk {number}: spindles: {err}",
                                       errors.ECODE_INVAL) from err
    return disk


def _confirmed(values: Values, name: str, question: str, client: luxi.Client) -> int | None:
    """Ask before something happens to an instance.

    :returns: None to go on, or the exit code.
    """
    if values.force:
        return None
    # A wrong name is said before the question, not after it.
    client.query_instances([name], ["name"], False)
    return _ask(question, "--force")


def _ask(question: str, option: str) -> int | None:
    if not terminal.can_ask():
        terminal.err(f"There is no terminal to ask on. Add {option} to go on.")
        return failures.EXIT_FAILURE
    return None if terminal.confirm(question) else failures.EXIT_CONFIRMATION


def remove(values: Values, arguments: list[str]) -> int:
    """``remove``."""
    from ganeti.opcodes.instance import OpInstanceRemove
    name = arguments[0]
    client = jobs.connect()
    code = _confirmed(values, name, f"This removes instance {name} and destroys its disks. Go on?",
                      client)
    if code is not None:
        return code
    jobs.run_opcode(OpInstanceRemove(
        instance_name=name, ignore_failures=values.ignore_failures,
        shutdown_timeout=values.shutdown_timeout, **jobs.common_params(values)),
        values, client=client)
    return failures.EXIT_SUCCESS


# -- several at once ------------------------------------------------------------------------------

_BY_INSTANCES = "instances"
_BY_CLUSTER = "cluster"


def select_instances(mode: str, names: Sequence[str], client: luxi.Client) -> list[str]:
    """Names of the instances meant by the arguments.

    :param mode: what the arguments name: instances, nodes, tags ...
    :raises OpPrereqError: nothing named, or nothing found.
    """
    if mode == _BY_CLUSTER:
        if names:
            raise errors.OpPrereqError("--all takes no names", errors.ECODE_INVAL)
        found = [row[0] for row in client.query_instances([], ["name"], False)]
    elif not names:
        raise errors.OpPrereqError(
            "no instance given. Name some, or use --all.", errors.ECODE_INVAL)
    elif mode == _BY_INSTANCES:
        return [row[0] for row in client.query_instances(names, ["name"], False)]
    elif mode == "instances-by-tags":
        rows = client.query_instances([], ["name", "tags"], False)
        found = [name for name, tags in rows if set(names) & set(tags)]
    else:
        found = _instances_of_nodes(mode, names, client)
    if not found:
        raise errors.OpPrereqError("no instance is selected by this", errors.ECODE_INVAL)
    return found


def _instances_of_nodes(mode: str, names: Sequence[str], client: luxi.Client) -> list[str]:
    by_tags = mode.endswith("-by-tags")
    fields = ["name", "pinst_list", "sinst_list", *(["tags"] if by_tags else [])]
    rows = client.query_nodes([] if by_tags else names, fields, False)
    found: dict[str, None] = {}  # keeps the order, once each
    for row in rows:
        if by_tags and not set(names) & set(row[3]):
            continue
        if "-sec" not in mode:
            found.update(dict.fromkeys(row[1]))
        if "-pri" not in mode:
            found.update(dict.fromkeys(row[2]))
    return list(found)


def _for_each(verb: str, make: Callable[[str, Values], OpCode]
              ) -> Callable[[Values, list[str]], int]:
    """A command that does the same to every selected instance, a job for each."""
    def run(values: Values, arguments: list[str]) -> int:
        client = jobs.connect()
        mode = values.multi_mode or _BY_INSTANCES
        names = select_instances(mode, arguments, client)
        several = mode != _BY_INSTANCES or len(names) > 1
        if several and not values.force_multi:
            terminal.out(f"{verb} will be done to {len(names)} instances:")
            for name in names:
                terminal.out(f"  {name}")
            code = _ask(f"Go on with {verb}?", "--force-multiple")
            if code is not None:
                return code
        job_set = jobs.JobSet(client, values, verbose=several)
        for name in names:
            job_set.add(name, make(name, values))
        return failures.EXIT_SUCCESS if job_set.run() else failures.EXIT_FAILURE
    return run


def _startup_opcode(name: str, values: Values) -> OpCode:
    from ganeti.opcodes.instance import OpInstanceStartup
    return OpInstanceStartup(
        instance_name=name, force=values.force, ignore_offline_nodes=values.ignore_offline,
        no_remember=values.no_remember, startup_paused=values.startup_paused,
        hvparams=_hypervisor_params(values.hvparams), beparams=_backend(values),
        **jobs.common_params(values))


def _shutdown_opcode(name: str, values: Values) -> OpCode:
    from ganeti.opcodes.instance import OpInstanceShutdown
    return OpInstanceShutdown(
        instance_name=name, force=values.force, timeout=values.timeout,
        ignore_offline_nodes=values.ignore_offline, no_remember=values.no_remember,
        **jobs.common_params(values))


def _reboot_opcode(name: str, values: Values) -> OpCode:
    from ganeti.opcodes.instance import OpInstanceReboot
    return OpInstanceReboot(
        instance_name=name, reboot_type=values.reboot_type,
        ignore_secondaries=values.ignore_secondaries, shutdown_timeout=values.shutdown_timeout,
        **jobs.common_params(values))


startup = _for_each("startup", _startup_opcode)
shutdown = _for_each("shutdown", _shutdown_opcode)
reboot = _for_each("reboot", _reboot_opcode)


# -- moving ---------------------------------------------------------------------------------------

def migrate(values: Values, arguments: list[str]) -> int:
    """``migrate``."""
    from ganeti.opcodes.instance import OpInstanceMigrate
    name = arguments[0]
    if values.migration_mode and not values.live:
        raise errors.OpPrereqError("give either --non-live or --migration-mode",
                                   errors.ECODE_INVAL)
    client = jobs.connect()
    what = f"This cleans up after a failed migration of instance {name}" if values.cleanup \
        else f"Instance {name} will be migrated to another node"
    code = _confirmed(values, name, f"{what}. Go on?", client)
    if code is not None:
        return code
    jobs.run_opcode(OpInstanceMigrate(
        instance_name=name, mode=values.migration_mode or (None if values.live else "non-live"),
        target_node=values.dst_node, iallocator=values.iallocator, cleanup=values.cleanup,
        allow_runtime_changes=values.allow_runtime_chgs, allow_failover=values.allow_failover,
        ignore_ipolicy=values.ignore_ipolicy, ignore_hvversions=values.ignore_hvversions,
        **jobs.common_params(values)), values, client=client)
    return failures.EXIT_SUCCESS


def failover(values: Values, arguments: list[str]) -> int:
    """``failover``."""
    from ganeti.opcodes.instance import OpInstanceFailover
    name = arguments[0]
    client = jobs.connect()
    code = _confirmed(values, name, f"Instance {name} will be stopped and started on another node."
                      " Go on?", client)
    if code is not None:
        return code
    jobs.run_opcode(OpInstanceFailover(
        instance_name=name, target_node=values.dst_node, iallocator=values.iallocator,
        cleanup=values.cleanup, ignore_consistency=values.ignore_consistency,
        ignore_ipolicy=values.ignore_ipolicy, shutdown_timeout=values.shutdown_timeout,
        **jobs.common_params(values)), values, client=client)
    return failures.EXIT_SUCCESS


# -- console --------------------------------------------------------------------------------------

def console(values: Values, arguments: list[str]) -> int:
    """``console``."""
    from ganeti.client import instance_console
    from ganeti.opcodes.instance import OpInstanceConsole
    client = jobs.connect()
    where = jobs.run_opcode(OpInstanceConsole(
        instance_name=arguments[0], **jobs.common_params(values)), values, client=client)
    return instance_console.open_console(where, client, show_command=values.show_command)


# -- the table ------------------------------------------------------------------------------------

def _mode(name: str, mode: str, help_text: str) -> Option:
    return Option(name, action="store_const", const=mode, dest="multi_mode", help=help_text)


_SELECTION = (
    _mode("--all", _BY_CLUSTER, "all instances of the cluster"),
    _mode("--instance", _BY_INSTANCES, "the arguments are instances (the default)"),
    _mode("--node", "nodes", "the arguments are nodes: instances which have them as primary or"
          " secondary"),
    _mode("--primary", "nodes-pri", "the arguments are nodes: instances which have them as"
          " primary"),
    _mode("--secondary", "nodes-sec", "the arguments are nodes: instances which have them as"
          " secondary"),
    _mode("--tags", "instances-by-tags", "the arguments are tags of instances"),
    _mode("--node-tags", "nodes-by-tags", "the arguments are tags of nodes, as --node"),
    _mode("--pri-node-tags", "nodes-pri-by-tags", "the arguments are tags of nodes, as"
          " --primary"),
    _mode("--sec-node-tags", "nodes-sec-by-tags", "the arguments are tags of nodes, as"
          " --secondary"),
    opt.flag("--force-multiple", dest="force_multi", help="do not ask when there are several"),
)
_IGNORE_OFFLINE = opt.flag("--ignore-offline", help="only note the state when the primary node is"
                           " offline")
_NO_REMEMBER = opt.flag("--no-remember", help="do not keep this as the wanted state")
_CLEANUP = opt.flag("--cleanup", help="only clean up after a move that was broken off")
_JOB = (opt.DRY_RUN, opt.PRIORITY, *opt.SUBMIT_OPTIONS)


def _ignored(values: Values, text: str) -> None:
    """An option which asks for what is the default now."""


_ADD_OPTIONS = (
    Option("-t", "--disk-template", choices=sorted(disk_const.TEMPLATES), metavar="TEMPL",
           help="how the disks are stored"),
    Option("--disk", kind="identkeyval", action="append", dest="disks",
           metavar="N:size=SIZE[,...]", help="one disk: size, mode, name, vg and others"),
    Option("-s", "--os-size", kind="unit", dest="sd_size", metavar="<size>",
           help="one disk of this size, instead of --disk"),
    Option("--net", kind="identkeyval", action="append", dest="nics", metavar="N[:KEY=VALUE,...]",
           help="one network interface: mac, ip, mode, link, network, name, vlan"),
    opt.flag("--no-nics", help="no network interface"),
    Option("-o", "--os-type", kind="string", dest="os", metavar="<os>", completion="os",
           help="operating system to install, with its variant: debian+minimal"),
    Option("-O", "--os-parameters", kind="keyval", dest="osparams", default={},
           metavar="KEY=VALUE,...", help="parameters of the operating system"),
    Option("--os-parameters-private", kind="keyprivateval", dest="osparams_private", default={},
           metavar="KEY=VALUE,...", help="parameters kept out of logs and listings"),
    Option("--os-parameters-secret", kind="keyprivateval", dest="osparams_secret", default={},
           metavar="KEY=VALUE,...", help="parameters used once and never stored"),
    opt.flag("--force-variant", help="accept a variant the operating system does not list"),
    opt.flag("--no-install", help="make the disks, install nothing"),
    opt.flag("--no-start", dest="start", default=True, value=False,
             help="do not start it afterwards"),
    opt.flag("--no-wait-for-sync", dest="wait_for_sync", default=True, value=False,
             help="do not wait until mirrored disks are in sync"),
    Option("-n", "--node", kind="string", metavar="<pnode>[:<snode>]", completion="pnode:snode",
           help="node to put it on, and the one that mirrors its disks"),
    opt.IALLOCATOR,
    opt.NODE_GROUP,
    opt.flag("--opportunistic-locking", help="let the allocator choose among nodes that are free"
             " at the moment"),
    opt.BACKEND,
    Option("-H", "--hypervisor-parameters", kind="identkeyval", dest="hypervisor",
           metavar="HYPERVISOR[:KEY=VALUE,...]", help="hypervisor and its parameters"),
    Option("--file-storage-dir", kind="string", metavar="<DIR>",
           help="directory below the cluster's for file disks"),
    Option("--file-driver", choices=("blktap", "blktap2", "loop"), metavar="<DRIVER>",
           help="how Xen attaches file disks"),
    opt.flag("--name-check", help="the name must resolve"),
    opt.flag("--ip-check", help="nobody may answer on the instance's address (needs --name-check)"),
    Option("--no-name-check", action="call", callback=_ignored, dest="_ignored",
           help="as it is without; kept for old scripts"),
    Option("--no-ip-check", action="call", callback=_ignored, dest="_ignored",
           help="as it is without; kept for old scripts"),
    opt.flag("--no-conflicts-check", dest="conflicts_check", default=True, value=False,
             help="let an address be in a network it does not belong to"),
    opt.IGNORE_IPOLICY,
    Option("--tags", kind="string", metavar="TAG,...", help="tags to put on it"),
    opt.flag("--forthcoming", help="only reserve the resources"),
    opt.flag("--commit", help="make the instance that was reserved with --forthcoming"),
    Option("-c", "--communication", kind="bool", dest="instance_communication", metavar="yes|no",
           help="give it an interface to talk to its node"),
    Option("--helper-startup-timeout", kind="int", metavar="SECONDS",
           help="how long the helper guest may take to start"),
    Option("--helper-shutdown-timeout", kind="int", metavar="SECONDS",
           help="how long the helper guest may take to stop"),
    *_JOB,
)

PROGRAM = Program(
    "gnt-instance", "Make, remove, start, stop, move and look at virtual machines.",
    [
        Command("add", add, [Argument("host", 1, 1)], _ADD_OPTIONS,
                "Make an instance and install an operating system on it",
                usage="[<options>] -t <template> -o <os> <instance>"),
        Command("remove", remove, [Argument("instance", 1, 1)], [
            opt.FORCE,
            opt.flag("--ignore-failures", help="forget the instance even if its disks remain"),
            opt.SHUTDOWN_TIMEOUT, *_JOB],
                "Stop an instance and destroy it with its disks"),
        Command("list", list_instances, [Argument("instance")], opt.LIST_OPTIONS,
                "List instances", usage="[<options>] [<instance>...|<filter>]"),
        Command("list-fields", list_fields, [Argument("unknown")], opt.LIST_FIELDS_OPTIONS,
                "List the fields that list can show", usage="[<options>] [<field>...]"),
        Command("info", show_info, [Argument("instance")], [
            opt.flag("--all", dest="show_all", help="all instances"),
            opt.flag("-s", "--static", help="only what the configuration knows; asks no node"),
            opt.ROMAN, opt.PRIORITY, opt.OUTPUT_FORMAT],
                "Show everything about instances"),
        Command("startup", startup, [Argument("instance")], [
            opt.FORCE, *_SELECTION,
            Option("-H", "--hypervisor-parameters", kind="keyval", dest="hvparams", default={},
                   metavar="KEY=VALUE,...", help="hypervisor parameters for this run only"),
            opt.BACKEND, _IGNORE_OFFLINE, _NO_REMEMBER,
            opt.flag("--paused", dest="startup_paused", help="leave the guest paused"), *_JOB],
                "Start instances"),
        Command("shutdown", shutdown, [Argument("instance")], [
            opt.FORCE, *_SELECTION,
            Option("--timeout", kind="int", default=const.SHUTDOWN_TIMEOUT_S, metavar="SECONDS",
                   help="how long the guest may take to stop by itself"),
            _IGNORE_OFFLINE, _NO_REMEMBER, *_JOB],
                "Stop instances"),
        Command("reboot", reboot, [Argument("instance")], [
            Option("-t", "--type", dest="reboot_type", choices=("soft", "hard", "full"),
                   default="hard", metavar="<REBOOT>",
                   help="soft: let the guest do it; hard: stop and start the guest; full: also"
                   " its disks"),
            *_SELECTION,
            opt.flag("--ignore-secondaries", help="go on when a secondary node fails"),
            opt.SHUTDOWN_TIMEOUT, *_JOB],
                "Restart instances"),
        Command("migrate", migrate, [Argument("instance", 1, 1)], [
            opt.FORCE, opt.TARGET_NODE, opt.IALLOCATOR, opt.IGNORE_IPOLICY,
            opt.flag("--non-live", dest="live", default=True, value=False,
                     help="freeze the guest while it moves"),
            Option("--migration-mode", choices=("live", "non-live"), default=None,
                   help="let the guest run while it moves, or freeze it"),
            opt.flag("--allow-failover", help="fail over when it cannot be migrated"),
            opt.flag("--no-runtime-changes", dest="allow_runtime_chgs", default=True, value=False,
                     help="do not shrink its memory to make it fit"),
            opt.flag("--ignore-hvversions", help="go on when the hypervisors differ"),
            _CLEANUP, *_JOB],
                "Move a running instance to another node without stopping it"),
        Command("failover", failover, [Argument("instance", 1, 1)], [
            opt.FORCE, opt.TARGET_NODE, opt.IALLOCATOR, opt.IGNORE_IPOLICY,
            opt.flag("--ignore-consistency", help="go on when the disks are not in sync, or the"
                     " primary node cannot be asked"),
            opt.SHUTDOWN_TIMEOUT, _CLEANUP, *_JOB],
                "Stop an instance and start it on another node"),
        Command("console", console, [Argument("instance", 1, 1)], [
            opt.flag("--show-cmd", dest="show_command",
                     help="only show the command that opens the console"),
            opt.PRIORITY],
                "Open the console of an instance"),
        group_moves.CHANGE_GROUP,
        *tags.commands("instance", "instance", "an instance"),
    ],
    aliases={"start": "startup", "stop": "shutdown", "show": "info"},
    env_commands=("list",),
)


def run() -> int:
    """Entry point of the script."""
    return main.run(PROGRAM)
