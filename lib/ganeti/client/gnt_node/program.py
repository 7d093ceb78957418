"""The program ``gnt-node``: add, remove and show the nodes of a cluster."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, listing, main, selector, tags, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Program, Values
from ganeti.client.gnt_node import (
    maintenance,
    modify,
    move_instances,
    power,
    restricted_command,
    storage,
)
from ganeti.platform import machine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ganeti.cli.output import Pairs
    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode
    from ganeti.opcodes.node import OpNodeAdd

    #: Name, secondary address, and whether it is the master.
    Known = tuple[str, str, bool]

LIST_FIELDS = ("name", "dtotal", "dfree", "mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt")
_FORMATTERS = {name: listing.join_list for name in ("pinst_list", "sinst_list", "tags")}

_INFO_FIELDS = (
    "name",
    "pip",
    "sip",
    "pinst_list",
    "sinst_list",
    "master_candidate",
    "drained",
    "offline",
    "master_capable",
    "vm_capable",
    "maintenance",
    "maintenance.record",
    "auto_failover",
    "auto_failover.record",
    "watchdog",
    "powered",
    "ndparams",
    "custom_ndparams",
    "hv_state",
    "disk_state",
)


_ROLES = {"M": "master", "C": "candidate", "R": "regular", "D": "drained", "O": "offline"}


def _with_states(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the list of nodes for people: the state of each beside its name, in words."""
    rows = []
    for name, *numbers, role, mark in response["data"]:
        words = [_ROLES.get(role[1], str(role[1]))]
        if mark[0] == 0:
            words.append("maintenance")
        rows.append([name, [0, ", ".join(words)], *numbers])
    first, *others = response["fields"][: len(LIST_FIELDS)]
    state = {"name": "status", "title": "State", "kind": "text", "doc": "role and maintenance"}
    return {"fields": [first, state, *others], "data": rows}


def show_info(values: Values, arguments: list[str]) -> int:
    """Show addresses, marks, instances and parameters of nodes (``info``)."""
    from ganeti.cli import output

    client = jobs.connect()
    names = selector.names("node", values, arguments, client)
    rows = client.query_nodes(names, _INFO_FIELDS)
    return listing.show_objects(
        values, _INFO_FIELDS, rows, lambda nodes: output.write_info(list(map(_describe, nodes)))
    )


def _describe(node: Mapping[str, Any]) -> Pairs:
    from ganeti.cli import output

    pairs: Pairs = [
        ("Node name", node["name"]),
        ("primary ip", node["pip"]),
        ("secondary ip", node["sip"]),
        ("master candidate", node["master_candidate"]),
        ("drained", node["drained"]),
        ("offline", node["offline"]),
    ]
    if node["maintenance"] is not None:
        pairs.append(("maintenance", node["maintenance"]))
        pairs.append(("the end of the maintenance brings back", _record(node)))
    if node["auto_failover"] is not None:
        pairs.append(("automatic failover of its instances", _failover_report(node)))
    if node["watchdog"] is not None:
        pairs.append(("watchdog", node["watchdog"]))
    if node["powered"] is not None:
        pairs.append(("powered", node["powered"]))
    pairs += [("master_capable", node["master_capable"]), ("vm_capable", node["vm_capable"])]
    if node["vm_capable"]:
        pairs += [
            ("primary for instances", list(node["pinst_list"])),
            ("secondary for instances", list(node["sinst_list"])),
        ]
    pairs.append(
        ("node parameters", output.params_with_defaults(node["custom_ndparams"], node["ndparams"]))
    )
    for title, state in (
        ("hypervisor state", node["hv_state"]),
        ("disk state", node["disk_state"]),
    ):
        if state is not None:
            pairs.append((title, state))
    return pairs


def _record(node: Mapping[str, Any]) -> Pairs:
    from ganeti.utils import clock

    record = node["maintenance.record"]
    flags = [flag for flag in ("master_candidate", "drained") if record[flag]]
    return [
        ("since", clock.format_time(record["since"])),
        ("flags", flags),
        ("primary for instances", record["primaries"]),
        ("replicas of instances", record["secondaries"]),
        ("stopped instances", record["stopped"]),
    ]


def _failover_report(node: Mapping[str, Any]) -> Pairs:
    from ganeti.utils import clock

    record = node["auto_failover.record"]
    pairs: Pairs = [("at", clock.format_time(record["at"])), ("fenced", record["fenced"])]
    if record["reason"]:
        pairs.append(("why it is not fenced", record["reason"]))
    if record["fenced"]:
        pairs.append(("started elsewhere", record["started"]))
        pairs.append(("left", [f"{name}: {why}" for name, why in sorted(record["left"].items())]))
    return pairs


def add(values: Values, arguments: list[str]) -> int:
    """Prepare a machine, then let the master add it as a node (``add``)."""
    code = _add(values, arguments)
    if code == failures.EXIT_SUCCESS and not values.dry_run:
        _bring_images(arguments[0])
    return code


def _bring_images(name: str) -> None:
    """Send the catalogue of images to a node which was added; a failure is a warning only."""
    from ganeti.foreign import catalogue

    top = catalogue.directory()
    if not catalogue.read(top)[0]:
        return
    from ganeti.cli import image_copies
    from ganeti.cli.remote import RemoteNode

    host = machine.current().lookup(name)
    try:
        sent = image_copies.bring(RemoteNode(host.name, host.ip), top)
    except (errors.GenericError, OSError) as err:
        terminal.err(
            f"Warning: node {host.name} is added, but does not have the images: {err}. Send them"
            f" with 'gnt-os images share --node={host.name}'."
        )
        return
    if sent:
        terminal.out(f"Sent images {', '.join(sent)} to {host.name}")


def _add(values: Values, arguments: list[str]) -> int:
    """Add a machine, which is prepared here, by a token, or not at all."""
    host = machine.current().lookup(arguments[0])
    client = jobs.connect()
    known = _known_node(client, host.name)
    refusal = _refusal(host.name, known, values.readd)
    if refusal:
        terminal.err(refusal)
        return failures.EXIT_FAILURE
    opcode = _opcode(values, host.name, known)
    if values.dry_run or not (values.token or values.node_setup):
        # The machine is not changed; in a dry run the master shows the plan.
        jobs.run_opcode(opcode, values, client=client)
        return failures.EXIT_SUCCESS
    if values.token:
        from ganeti.client.gnt_node import join

        return join.add(values, host, opcode, client)
    from ganeti import bootstrap
    from ganeti.bootstrap import remote

    if known is None:
        port = _ssh_port_of_new(client, values.nodegroup, opcode.ndparams or {})
    else:
        port = remote.default_port(host.name)
    access = remote.SshAccess(
        port, check_key=values.ssh_key_check, confirm=terminal.confirm, say=terminal.out
    )
    # The preparation is undone when the master does not add the node.
    with bootstrap.node_setup(
        host, access, force_join=values.force_join, pins=_pins(host.name) if values.readd else ()
    ) as prepared:
        opcode.certificate = prepared.certificate
        try:
            jobs.run_opcode(opcode, values, client=client)
        except (jobs.SubmissionInterrupted, jobs.WaitInterrupted, errors.LuxiError):
            prepared.keep()  # the job may continue and needs the preparation
            raise
    return failures.EXIT_SUCCESS


def _refusal(name: str, known: Known | None, readd: bool) -> str:
    """Say why the master would not add the machine; empty when it may."""
    if known is None:
        return f"Node {name} not in the cluster - please retry without '--readd'" if readd else ""
    if not readd:
        return f"Node {name} already in the cluster (as {known[0]}) - please retry with '--readd'"
    return f"Node {name} is the master and cannot be added again" if known[2] else ""


def _opcode(values: Values, name: str, known: Known | None) -> OpNodeAdd:
    from ganeti.cli import node_params
    from ganeti.opcodes.node import OpNodeAdd

    known_name, secondary_ip, _is_master = known or (name, None, False)
    return OpNodeAdd(
        node_name=known_name,
        secondary_ip=values.secondary_ip or secondary_ip,
        readd=values.readd,
        group=values.nodegroup,
        master_capable=values.master_capable,
        vm_capable=values.vm_capable,
        ndparams=None if values.ndparams is None else node_params.node_params(values.ndparams),
        hv_state=node_params.hv_state(values.hv_state) or None,
        disk_state=node_params.disk_state(values.disk_state) or None,
        node_setup=values.node_setup,
        **jobs.common_params(values),
    )


def _ssh_port_of_new(client: luxi.Client, group: str | None, ndparams: Mapping[str, Any]) -> int:
    """Return the TCP port of SSH on a machine, which becomes a node of a group with these
    parameters.

    :param group: its name; None where there is only one.
    """
    from ganeti.utils import ssh

    own = ndparams.get("ssh_port")
    if isinstance(own, int):
        return own
    groups = client.query_groups([] if group is None else [group], ["ndparams"])
    # With several groups the master refuses the node later, because it has no group.
    return int(groups[0][0]["ssh_port"]) if len(groups) == 1 else ssh.PORT


def _pins(name: str) -> tuple[str, ...]:
    """Return the keys which the configuration has for a node."""
    from ganeti.config.members import read_members
    from ganeti.platform import paths

    node = read_members(paths.current().cluster_conf_file).nodes.get(name.lower())
    return node.key_pins or () if node is not None else ()


def _known_node(client: luxi.Client, name: str) -> Known | None:
    """Return what the cluster knows of a node; None for an unknown machine."""
    try:
        rows = client.query_nodes([name], ["name", "sip", "master"], False)
    except errors.OpPrereqError as err:
        if err.ecode != errors.ECODE_NOENT:
            raise
        return None
    node_name, secondary_ip, is_master = rows[0]
    return node_name, secondary_ip, bool(is_master)


def remove(values: Values, arguments: list[str]) -> int:
    """Remove nodes from the cluster (``remove``)."""
    from ganeti.cli import many
    from ganeti.opcodes.node import OpNodeRemove

    def make(name: str) -> OpCode:
        return OpNodeRemove(node_name=name, **jobs.common_params(values))

    plan = "will be removed from the cluster"
    return many.run(values, arguments, many.Work("node", make, plan=plan, done="removed"))


PROGRAM = Program(
    "gnt-node",
    "Add, remove and show the nodes of a cluster.",
    [
        Command(
            "add",
            add,
            [Argument("host", 1, 1)],
            [
                opt.SECONDARY_IP,
                opt.flag("--readd", help="add a machine again that is still in the configuration"),
                opt.NODE_GROUP,
                opt.yes_no("--master-capable", help="whether the node may become the master"),
                opt.yes_no("--vm-capable", help="whether the node may have instances"),
                opt.NODE_PARAMETERS,
                opt.HV_STATE,
                opt.DISK_STATE,
                opt.negative(
                    "--no-node-setup",
                    dest="node_setup",
                    help="only add the machine, which was prepared already",
                ),
                opt.negative(
                    "--no-ssh-key-check",
                    dest="ssh_key_check",
                    help="accept an unknown SSH host key without a question",
                ),
                opt.flag(
                    "--force-join",
                    help="if the machine belongs to another cluster, remove it from there first",
                ),
                opt.flag(
                    "--token",
                    help="print a token and wait until ganeti-join runs on the machine with"
                    " this token; SSH is not used",
                ),
                opt.number(
                    "--token-lifetime",
                    default=3600,
                    metavar="SECONDS",
                    help="how long the token is valid; 3600 by default",
                ),
                opt.DRY_RUN,
                opt.PRIORITY,
                opt.VERBOSE,
            ],
            "Add a machine to the cluster",
        ),
        *listing.commands(
            listing.Listing(
                "node",
                LIST_FIELDS,
                _FORMATTERS,
                people=listing.PeopleForm((*LIST_FIELDS, "role", "maintenance"), _with_states),
            ),
            "List nodes",
            [*opt.LIST_OPTIONS, selector.TAGS, selector.GROUP],
        ),
        Command(
            "info",
            show_info,
            [Argument("node")],
            [*selector.OPTIONS, opt.OUTPUT_FORMAT],
            "Show addresses, marks, instances and parameters of nodes",
        ),
        Command(
            "remove",
            remove,
            [Argument("node", 1)],
            [*selector.CHANGE_NODES, opt.DRY_RUN, opt.PRIORITY],
            "Remove nodes from the cluster",
        ),
        modify.MODIFY,
        *power.COMMANDS,
        restricted_command.RESTRICTED_COMMAND,
        *storage.COMMANDS,
        *move_instances.COMMANDS,
        maintenance.MAINTENANCE,
        *tags.commands("node", "node", "a node"),
    ],
    aliases={"show": "info"},
    env_commands=("list",),
    examples={
        "add": "--node-group=rack2 node4.example.com",
        "list": "-F 'not offline and mfree < 4096'",
        "list-fields": "",
        "info": "node3",
        "remove": "node3",
        "modify": "--offline yes --auto-promote node3",
        "power": "status node2 node3",
        "health": "--group rack2",
        "powercycle": "node3",
        "restricted-command": "-M backup-state node2 node3",
        "list-storage": "--storage-type=lvm-pv node3",
        "modify-storage": "--allocatable=no node3 lvm-pv /dev/sdb1",
        "repair-storage": "node3 lvm-vg xenvg",
        "volumes": "node3",
        "list-drbd": "node3",
        "evacuate": "--secondary-only -n node4 node3",
        "migrate": "node3",
        "failover": "-n node3 node1",
        "maintenance": "start --stop node3",
        **tags.examples("node3"),
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
