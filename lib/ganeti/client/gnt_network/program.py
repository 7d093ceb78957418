"""The program ``gnt-network``: pools of addresses which node groups connect to."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, listing, main, selector, tags, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Program, Values
from ganeti.constants import query as query_const

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ganeti.luxi import client as luxi

LIST_FIELDS = ("name", "network", "gateway", "mac_prefix", "group_list", "tags")
NO_CHANGE = "Please give at least one of the parameters."


def _groups_text(groups: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{group} ({mode}, {link}, {vlan})" for group, mode, link, vlan in groups)


_FORMATTERS = {
    "group_list": _groups_text,
    "external_reservations6": listing.join_list,
    "inst_list": listing.join_list,
    "tags": listing.join_list,
}


# -- info -----------------------------------------------------------------------------------------

_INFO_FIELDS = (*query_const.NETWORK_FIELDS, "serial_no", "uuid", "external_reservations6")
_MAP_WIDTH = 64


def show_info(values: Values, arguments: list[str]) -> int:
    """Show all properties of networks (``info``)."""
    client = jobs.connect()
    names = selector.names("network", values, arguments, client)
    rows = client.query_networks(names, _INFO_FIELDS)

    def show(networks: list[dict[str, Any]]) -> None:
        for network in networks:
            addresses = _addresses(network, client) if network["inst_list"] else {}
            terminal.out("\n".join(_describe(network, addresses)))

    return listing.show_objects(values, _INFO_FIELDS, rows, show)


def _addresses(network: Mapping[str, Any], client: luxi.Client) -> dict[str, list[str]]:
    """Return ``NUMBER:ADDRESS`` of the interfaces in a network, by name of instance."""
    rows = client.query_instances(network["inst_list"], ["name", "nic.ips", "nic.networks"], False)
    return {
        name: [
            f"{index}:{ip}"
            for index, (ip, uuid) in enumerate(zip(ips, uuids, strict=True))
            if uuid == network["uuid"]
        ]
        for name, ips, uuids in rows
    }


def _describe(network: Mapping[str, Any], addresses: Mapping[str, Sequence[str]]) -> list[str]:
    free, used = network["free_count"], network["reserved_count"]
    size = free + used
    lines = [
        f"Network name: {network['name']}",
        f"UUID: {network['uuid']}",
        f"Serial number: {network['serial_no']}",
        f"  Subnet: {network['network']}",
        f"  Gateway: {network['gateway']}",
        f"  IPv6 Subnet: {network['network6']}",
        f"  IPv6 Gateway: {network['gateway6']}",
        f"  Mac Prefix: {network['mac_prefix']}",
        f"  Size: {size}",
        f"  Free: {free} ({100 * free / max(size, 1):.2f}%)",
        "  Usage map:",
    ]
    for start in range(0, len(network["map"]), _MAP_WIDTH):
        part = network["map"][start : start + _MAP_WIDTH]
        lines.append(f"{start:>9} {part:<{_MAP_WIDTH}} {start + _MAP_WIDTH - 1}")
    lines.append("         (X) used    (.) free")
    if network["external_reservations"]:
        lines += ["  externally reserved IPs:", f"    {network['external_reservations']}"]
    if network["external_reservations6"]:
        reserved6 = ", ".join(network["external_reservations6"])
        lines += ["  externally reserved IPv6 addresses:", f"    {reserved6}"]
    if network["group_list"]:
        lines.append("  connected to node groups:")
        lines += [
            f"    {group} (mode:{mode} link:{link} vlan:{vlan})"
            for group, mode, link, vlan in network["group_list"]
        ]
    else:
        lines.append("  not connected to any node group")
    if addresses:
        lines.append(f"  used by {len(addresses)} instances:")
        lines += [f"    {name}: {', '.join(found)}" for name, found in addresses.items()]
    else:
        lines.append("  not used by any instances")
    return lines


# -- changing -------------------------------------------------------------------------------------


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _reserved(name: str, text: str | None) -> dict[str, list[str]]:
    """Return addresses as parameters of an opcode, which has one for each version of IP.

    :param name: of the parameter with IPv4 addresses.
    """
    names = _names(text) or []
    found = {
        name: [one for one in names if ":" not in one],
        f"{name}6": [one for one in names if ":" in one],
    }
    return {key: value for key, value in found.items() if value}


def add(values: Values, arguments: list[str]) -> int:
    """Add a network (``add``)."""
    from ganeti.opcodes.network import OpNetworkAdd

    if values.network is None:
        raise errors.OpPrereqError(
            f"no range of addresses is given for network {arguments[0]}. Write --network"
            " ADDRESS/BITS.",
            errors.ECODE_INVAL,
        )
    jobs.run_opcode(
        OpNetworkAdd(
            network_name=arguments[0],
            network=values.network,
            gateway=values.gateway,
            network6=values.network6,
            gateway6=values.gateway6,
            mac_prefix=values.mac_prefix,
            **_reserved("add_reserved_ips", values.add_reserved_ips),
            conflicts_check=values.conflicts_check,
            tags=_names(values.tags) or [],
            **jobs.common_params(values),
        ),
        values,
    )
    return failures.EXIT_SUCCESS


def modify(values: Values, arguments: list[str]) -> int:
    """Change a network (``modify``)."""
    from ganeti.opcodes.network import OpNetworkSetParams

    parameters = {
        "gateway": values.gateway,
        "network6": values.network6,
        "gateway6": values.gateway6,
        "mac_prefix": values.mac_prefix,
        **_reserved("add_reserved_ips", values.add_reserved_ips),
        **_reserved("remove_reserved_ips", values.remove_reserved_ips),
        "conflicts_check": values.conflicts_check,
    }
    if all(value is None for value in parameters.values()):
        terminal.err(NO_CHANGE)
        return failures.EXIT_FAILURE
    jobs.run_opcode(
        OpNetworkSetParams(network_name=arguments[0], **parameters, **jobs.common_params(values)),
        values,
    )
    return failures.EXIT_SUCCESS


def remove(values: Values, arguments: list[str]) -> int:
    """Remove a network (``remove``)."""
    from ganeti.opcodes.network import OpNetworkRemove

    jobs.run_opcode(
        OpNetworkRemove(
            network_name=arguments[0], force=values.force, **jobs.common_params(values)
        ),
        values,
    )
    return failures.EXIT_SUCCESS


def rename(values: Values, arguments: list[str]) -> int:
    """Give a network another name (``rename``)."""
    from ganeti.opcodes.network import OpNetworkRename

    jobs.run_opcode(
        OpNetworkRename(
            network_name=arguments[0], new_name=arguments[1], **jobs.common_params(values)
        ),
        values,
    )
    return failures.EXIT_SUCCESS


def _groups(names: list[str], client: luxi.Client) -> dict[str, Any]:
    """Return the named groups as parameters of an opcode; all groups when none is named."""
    first, *more = names or [row[0] for row in client.query_groups([], ["name"], False)]
    return {"group_name": first, **({"more_groups": more} if more else {})}


def connect(values: Values, arguments: list[str]) -> int:
    """Connect a network to node groups: to all of them, or to none (``connect``)."""
    from ganeti.cli import value_types
    from ganeti.constants import net
    from ganeti.opcodes.network import OpNetworkConnect

    client = jobs.connect()
    given = value_types.typed_params(values.nicparams, net.NIC_PARAM_TYPES)
    if not {"mode", "link"} <= set(given):
        given = {**client.query_cluster_info()["nicparams"]["default"], **given}
        if given["mode"] not in net.NIC_MODES and "mode" not in values.nicparams:
            raise errors.OpPrereqError(
                f"network {arguments[0]} cannot be connected in mode {given['mode']}, which is the"
                " default of the cluster. Write -N mode=bridged,link=BRIDGE.",
                errors.ECODE_INVAL,
            )
    jobs.run_opcode(
        OpNetworkConnect(
            **_groups(selector.names("group", values, arguments[1:], client), client),
            network_name=arguments[0],
            network_mode=given["mode"],
            network_link=given["link"],
            network_vlan=given.get("vlan", ""),
            conflicts_check=values.conflicts_check,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


def disconnect(values: Values, arguments: list[str]) -> int:
    """Disconnect a network from node groups: from all of them, or from none (``disconnect``)."""
    from ganeti.opcodes.network import OpNetworkDisconnect

    client = jobs.connect()
    jobs.run_opcode(
        OpNetworkDisconnect(
            **_groups(selector.names("group", values, arguments[1:], client), client),
            network_name=arguments[0],
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


# -- the table ------------------------------------------------------------------------------------

_JOB = (*opt.SUBMIT_OPTIONS, opt.PRIORITY)
_NETWORK = Argument("network", 1, 1)
_GROUP_SELECTOR = (selector.FILTER, selector.TAGS)


def _text(name: str, metavar: str, text: str, short: str | None = None) -> Option:
    names = (short, name) if short else (name,)
    return Option(*names, kind="string", metavar=metavar, help=text)


NO_CONFLICTS_CHECK = opt.negative(
    "--no-conflicts-check",
    dest="conflicts_check",
    help="do not check whether nodes or other instances use addresses of the network",
)
_SETTABLE = (
    _text("--gateway", "ADDRESS", "IPv4 gateway"),
    _text("--network6", "ADDRESS/BITS", "IPv6 network"),
    _text("--gateway6", "ADDRESS", "IPv6 gateway"),
    _text(
        "--mac-prefix",
        "PREFIX",
        "first three bytes of MAC addresses which are generated in this network, such as aa:00:01",
        "-m",
    ),
    _text(
        "--add-reserved-ips",
        "ADDRESS,...",
        "addresses that are not given to instances; of IPv6 also ranges, as ADDRESS/BITS",
    ),
)

PROGRAM = Program(
    "gnt-network",
    "Pools of addresses which node groups connect to.",
    [
        Command(
            "add",
            add,
            [_NETWORK],
            [
                _text(
                    "--network",
                    "ADDRESS/BITS",
                    "range of IPv4 addresses, such as 192.0.2.0/24; required",
                ),
                *_SETTABLE,
                NO_CONFLICTS_CHECK,
                _text("--tags", "TAG,...", "tags of the network"),
                opt.DRY_RUN,
                *_JOB,
            ],
            "Add a network",
        ),
        Command(
            "connect",
            connect,
            [_NETWORK, Argument("group")],
            [
                opt.key_values(
                    "-N",
                    "--nic-parameters",
                    dest="nicparams",
                    help="how interfaces are attached: mode, link, vlan; by default the"
                    " parameters of the cluster",
                ),
                NO_CONFLICTS_CHECK,
                *_GROUP_SELECTOR,
                opt.DRY_RUN,
                opt.PRIORITY,
            ],
            "Connect a network to node groups; to all groups when none is named",
            usage="[<options>] <network> [<group>...]",
        ),
        Command(
            "disconnect",
            disconnect,
            [_NETWORK, Argument("group")],
            [*_GROUP_SELECTOR, opt.DRY_RUN, opt.PRIORITY],
            "Disconnect a network from node groups; from all groups when none is named",
            usage="[<options>] <network> [<group>...]",
        ),
        *listing.commands(
            listing.Listing("network", LIST_FIELDS, _FORMATTERS),
            "List networks",
            [*opt.LIST_OPTIONS, selector.TAGS],
        ),
        Command(
            "info",
            show_info,
            [Argument("network")],
            [selector.FILTER, selector.TAGS, opt.OUTPUT_FORMAT],
            "Show all properties of networks",
        ),
        Command(
            "modify",
            modify,
            [_NETWORK],
            [
                *_SETTABLE,
                _text(
                    "--remove-reserved-ips",
                    "ADDRESS,...",
                    "addresses that may be given to instances again",
                ),
                opt.yes_no(
                    "--conflicts-check",
                    help="no: the network has nothing in common with the network of the nodes, so"
                    " that instances may have the same addresses",
                ),
                opt.DRY_RUN,
                *_JOB,
            ],
            "Change a network",
        ),
        Command(
            "remove",
            remove,
            [_NETWORK],
            [
                opt.flag(
                    "-f",
                    "--force",
                    help="remove the network even if it is connected to node groups",
                ),
                opt.DRY_RUN,
                *_JOB,
            ],
            "Remove a network that no instance uses",
        ),
        Command(
            "rename",
            rename,
            [Argument("group", 2, 2)],
            [opt.DRY_RUN, *_JOB],
            "Give a network another name",
            usage="[<options>] <network> <new name>",
        ),
        *tags.commands("network", "network", "a network"),
    ],
    examples={
        "add": "--network=192.0.2.0/24 --gateway=192.0.2.1 net1",
        "connect": "-N mode=bridged,link=br1 net1 rack2",
        "disconnect": "net1 rack2",
        "list": "-o name,network,free_count",
        "list-fields": "",
        "info": "net1",
        "modify": "--add-reserved-ips=192.0.2.10,192.0.2.11,2001:db8::100/120 net1",
        "remove": "net1",
        "rename": "net1 office",
        **tags.examples("net1"),
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
