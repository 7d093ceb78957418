"""The opposites of changes of nodes, node groups, networks and of the cluster.

:data:`CHANGED`, :data:`ADDED` and :data:`REMOVED` have a function for each kind of object.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.cli.undo_steps import Opposite, back, describe, tables_back, tags_back
from ganeti.constants.disk import MOD_ADD, MOD_REMOVE
from ganeti.constants.net import VALUE_NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ganeti.cli.undo_steps import Known

_NODE_ROLES = ("offline", "drained")
_NODE_VALUES = ("master_capable", "vm_capable", "secondary_ip", "powered")
_NODE_HINTS = {
    "maintenance": "a maintenance is ended with 'gnt-node maintenance end', and started with"
    " 'gnt-node maintenance start'",
}
# Attributes of the cluster which an opcode sets as a whole; those with another name of the
# parameter; and what the parameter is when the old value is none.
_CLUSTER_VALUES = (
    *("candidate_pool_size", "max_running_jobs", "max_tracked_jobs", "maintain_node_health"),
    *("prealloc_wipe_disks", "use_external_mip_script", "enabled_user_shutdown"),
    *("rapi_require_authentication", "job_execution", "modify_etc_hosts"),
    *("default_iallocator", "default_iallocator_params", "instance_communication_network"),
    *("auto_instance_failover", "node_watchdog", "auto_failover", "witness", "auto_balance"),
    *("mac_prefix", "master_netdev", "master_netmask", "install_image", "zeroing_image"),
    *("compression_tools", "reserved_lvs", "uid_pool", "enabled_hypervisors"),
    *("enabled_disk_templates", "file_storage_dir", "shared_file_storage_dir"),
    *("gluster_storage_dir", "volume_group_name", "drbd_usermode_helper"),
)
_PARAMETERS = {"volume_group_name": "vg_name", "drbd_usermode_helper": "drbd_helper"}
_WITHOUT = {
    "auto_instance_failover": 0,
    "node_watchdog": 0,
    "auto_failover": 0,
    "witness": "",
    "auto_balance": {},
    "rapi_require_authentication": False,
    "job_execution": "threads",
    "volume_group_name": "",
    "drbd_usermode_helper": "",
    "default_iallocator_params": {},
}
_CLUSTER_HINTS = {
    "cluster_name": "the cluster is renamed with 'gnt-cluster rename'",
    "master_node": "another node becomes the master with 'gnt-cluster master-failover' on it",
    "master_ip": "the address of the master is changed with 'gnt-cluster rename'",
    "rsahostkeypub": "the former SSH keys of the hosts are gone",
}
_GROUP_TABLES = ("ndparams", "ipolicy")
_NETWORK_VALUES = ("gateway", "network6", "gateway6")


def node(one: Opposite, known: Known) -> None:
    """Plan the opposite of a changed node."""
    from ganeti.opcodes.group import OpGroupAssignNodes
    from ganeti.opcodes.node import OpNodeSetParams

    tags_back(one)
    found: dict[str, Any] = {}
    in_maintenance = "maintenance" in one.wanted
    for mark in (*_NODE_ROLES, "master_candidate"):
        # The end of a maintenance restores them.
        if one.take(mark) and not in_maintenance:
            found[mark] = bool(one.old.get(mark))
    if any(found.get(mark) for mark in _NODE_ROLES):
        # Such a node is no candidate anyway.
        found.pop("master_candidate", None)
    for name in _NODE_VALUES:
        if one.take(name):
            found[name] = one.old[name]
    if one.take("ndparams"):
        found["ndparams"] = back(one.old.get("ndparams"), one.new.get("ndparams"))
    if found:
        opcode = OpNodeSetParams(node_name=one.name, auto_promote=True, **found, **one.common)
        one.add(describe(found), opcode)
    if one.take("group"):
        group_name = known.name("nodegroups", one.old["group"])
        if group_name is None:
            one.left.append("its former node group is not there any more")
        else:
            one.add(
                f"assign it to node group {group_name} again",
                OpGroupAssignNodes(group_name=group_name, nodes=[one.name], **one.common),
            )
    one.leave_the_rest(_NODE_HINTS)


def _node_added(one: Opposite, known: Known) -> None:
    from ganeti.opcodes.node import OpNodeRemove

    one.add(
        f"remove it from the cluster{one.since}", OpNodeRemove(node_name=one.name, **one.common)
    )


def _node_removed(one: Opposite, known: Known) -> None:
    one.left.append("it was removed; 'gnt-node add' adds the machine again")


def group(one: Opposite, known: Known) -> None:
    """Plan the opposite of a changed node group."""
    from ganeti.opcodes.group import OpGroupRename, OpGroupSetParams

    tags_back(one)
    found: dict[str, Any] = {}
    if one.take("alloc_policy"):
        found["alloc_policy"] = one.old["alloc_policy"]
    for name in _GROUP_TABLES:
        if one.take(name):
            found[name] = back(one.old.get(name), one.new.get(name))
    if one.take("diskparams"):
        found["diskparams"] = tables_back(one.old.get("diskparams"), one.new.get("diskparams"))
    if one.take("enabled_hypervisors"):
        found["enabled_hypervisors"] = list(one.old.get("enabled_hypervisors") or ())
    if found:
        opcode = OpGroupSetParams(group_name=one.name, **found, **one.common)
        one.add(describe(found), opcode)
    if one.take("networks"):
        _connections(one, known)
    if one.take("name"):
        former = one.old["name"]
        rename = OpGroupRename(group_name=one.name, new_name=former, **one.common)
        one.add(f"rename it to {former}", rename)
    one.leave_the_rest({})


def _connections(one: Opposite, known: Known) -> None:
    """Plan to connect the node group to its former networks, and to disconnect new ones."""
    from ganeti.opcodes.network import OpNetworkConnect, OpNetworkDisconnect

    old: Mapping[str, Any] = one.old.get("networks") or {}
    new: Mapping[str, Any] = one.new.get("networks") or {}
    for uuid in sorted({*old, *new}):
        if old.get(uuid) == new.get(uuid):
            continue
        name = known.name("networks", uuid)
        if name is None:
            one.left.append("a network to which it was connected was removed since")
            continue
        target = {"group_name": one.name, "network_name": name, **one.common}
        if uuid in new:
            one.add(f"disconnect network {name}", OpNetworkDisconnect(**target))
        if uuid in old:
            params = old[uuid]
            one.add(
                f"connect network {name} (mode {params['mode']}, link {params['link']})",
                OpNetworkConnect(
                    **target,
                    network_mode=params["mode"],
                    network_link=params["link"],
                    network_vlan=params.get("vlan") or "",
                ),
            )


def _group_added(one: Opposite, known: Known) -> None:
    from ganeti.opcodes.group import OpGroupRemove

    one.add(f"remove it{one.since}", OpGroupRemove(group_name=one.name, **one.common))


def _group_removed(one: Opposite, known: Known) -> None:
    from ganeti.opcodes.group import OpGroupAdd

    old = one.old
    tables = {key: old[key] for key in (*_GROUP_TABLES, "diskparams") if old.get(key)}
    hypervisors = old.get("enabled_hypervisors")
    one.add(
        "add it again, without nodes",
        OpGroupAdd(
            group_name=one.name,
            alloc_policy=old.get("alloc_policy"),
            enabled_hypervisors=list(hypervisors) if hypervisors else None,
            **tables,
            **one.common,
        ),
    )
    one.wanted = {"tags", "networks"} & set(old)
    tags_back(one)
    _connections(one, known)
    one.wanted.clear()


def network(one: Opposite, known: Known) -> None:
    """Plan the opposite of a changed network."""
    from ganeti.opcodes.network import OpNetworkRename, OpNetworkSetParams

    tags_back(one)
    found: dict[str, Any] = {}
    gateways = {one.old.get("gateway"), one.new.get("gateway")}
    for name in _NETWORK_VALUES:
        if not one.take(name):
            continue
        if one.old.get(name):
            found[name] = one.old[name]
        else:
            one.left.append(f"no job removes the {name} of a network")
    if one.take("mac_prefix"):
        found["mac_prefix"] = one.old.get("mac_prefix") or VALUE_NONE
    if one.take("isolated"):
        found["conflicts_check"] = not one.old.get("isolated")
    if one.take("ext_reservations"):
        before, after = (
            _reserved(table.get("ext_reservations"), known.network(one.name)) - gateways
            for table in (one.old, one.new)
        )
        found["add_reserved_ips"] = sorted(before - after)
        found["remove_reserved_ips"] = sorted(after - before)
    if one.take("ext_reservations6"):
        before6, after6 = (
            set(table.get("ext_reservations6") or ()) for table in (one.old, one.new)
        )
        found["add_reserved_ips6"] = sorted(before6 - after6)
        found["remove_reserved_ips6"] = sorted(after6 - before6)
    # An empty list of addresses is no change.
    found = {name: value for name, value in found.items() if value != []}
    if found:
        opcode = OpNetworkSetParams(network_name=one.name, **found, **one.common)
        one.add(describe(found), opcode)
    if one.take("name"):
        former = one.old["name"]
        rename = OpNetworkRename(network_name=one.name, new_name=former, **one.common)
        one.add(f"rename it to {former}", rename)
    one.leave_the_rest({})


def _reserved(flags: str | None, addresses: str) -> set[str | None]:
    """Return the reserved addresses of a network, whose flags are in the order of addresses."""
    import ipaddress

    pool = ipaddress.IPv4Network(addresses)
    return {str(pool[number]) for number, flag in enumerate(flags or "") if flag == "1"}


def _network_added(one: Opposite, known: Known) -> None:
    from ganeti.opcodes.network import OpNetworkRemove

    one.add(f"remove it{one.since}", OpNetworkRemove(network_name=one.name, **one.common))


def _network_removed(one: Opposite, known: Known) -> None:
    from ganeti.opcodes.network import OpNetworkAdd

    old = one.old
    pool = old["network"]
    own = {old.get("gateway"), *_ends(pool)}
    reserved = _reserved(old.get("ext_reservations"), pool) - own
    one.add(
        "add it again, connected to no node group",
        OpNetworkAdd(
            network_name=one.name,
            network=pool,
            **{key: old[key] for key in (*_NETWORK_VALUES, "mac_prefix") if old.get(key)},
            add_reserved_ips=sorted(address for address in reserved if address),
            add_reserved_ips6=list(old.get("ext_reservations6") or ()) or None,
            conflicts_check=not old.get("isolated"),
            tags=list(old.get("tags") or ()),
            **one.common,
        ),
    )


def _ends(addresses: str) -> tuple[str, str]:
    """Return the addresses of a network which are always reserved: the first and the last one."""
    import ipaddress

    pool = ipaddress.IPv4Network(addresses)
    return str(pool[0]), str(pool[-1])


def cluster(one: Opposite, known: Known) -> None:
    """Plan the opposite of a change of the parameters of the cluster."""
    from ganeti.opcodes.cluster import OpClusterSetParams

    tags_back(one)
    found: dict[str, Any] = {}
    for name in _CLUSTER_VALUES:
        if not one.take(name):
            continue
        value = one.old.get(name)
        if value is None and name not in _WITHOUT:
            one.wanted.add(name)
            continue
        found[_PARAMETERS.get(name, name)] = _WITHOUT[name] if value is None else value
    if found.get("default_iallocator") == "":
        found["default_iallocator"] = "."
    for name in ("hidden_os", "blacklisted_os"):
        if one.take(name):
            old, new = set(one.old.get(name) or ()), set(one.new.get(name) or ())
            found[name] = [(MOD_ADD, os) for os in sorted(old - new)]
            found[name] += [(MOD_REMOVE, os) for os in sorted(new - old)]
    found.update(_tables(one))
    if found:
        one.add(describe(found), OpClusterSetParams(**found, **one.common))
    one.leave_the_rest(_CLUSTER_HINTS)


def _tables(one: Opposite) -> dict[str, Any]:
    """Return the parameters for the tables of the cluster which changed."""
    found: dict[str, Any] = {}
    for name in ("beparams", "nicparams"):
        if one.take(name):
            tables = [(table.get(name) or {}).get("default") for table in (one.old, one.new)]
            found[name] = _present(back(*tables), tables[0])
    for name in ("ndparams", "ipolicy"):
        if one.take(name):
            found[name] = back(one.old.get(name), one.new.get(name))
    for name in ("hvparams", "diskparams", "osparams"):
        if one.take(name):
            old = one.old.get(name) or {}
            found[name] = tables_back(old, one.new.get(name))
            if name != "osparams":
                found[name] = {
                    key: _present(table, old.get(key)) for key, table in found[name].items()
                }
    if one.take("os_hvp"):
        old, new = one.old.get("os_hvp") or {}, one.new.get("os_hvp") or {}
        tables_of = {os: tables_back(old.get(os), new.get(os)) for os in sorted({*old, *new})}
        found["os_hvp"] = {os: tables for os, tables in tables_of.items() if tables}
    return found


def _present(params: Mapping[str, Any], old: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the parameters which had a value: the cluster is the source of the defaults."""
    return {key: value for key, value in params.items() if key in (old or ())}


def _by_its_own_command(one: Opposite, known: Known) -> None:
    one.left.append("no job changes it; 'gnt-cluster history --diff' shows the old state")


#: Kind of objects -> plans the opposite of a changed object.
CHANGED: dict[str, Callable[[Opposite, Known], None]] = {
    "nodes": node,
    "nodegroups": group,
    "networks": network,
    "cluster": cluster,
}
#: Kind of objects -> plans the removal of an object which was added.
ADDED: dict[str, Callable[[Opposite, Known], None]] = {
    "nodes": _node_added,
    "nodegroups": _group_added,
    "networks": _network_added,
}
#: Kind of objects -> plans to add an object which was removed, or says why not.
REMOVED: dict[str, Callable[[Opposite, Known], None]] = {
    "nodes": _node_removed,
    "nodegroups": _group_removed,
    "networks": _network_removed,
}


def plan(one: Opposite, what: str, known: Known) -> None:
    """Plan the opposite of a change of an object which is no instance.

    :param what: ``added``, ``removed`` or ``changed``.
    """
    table = {"added": ADDED, "removed": REMOVED}.get(what, CHANGED)
    if what != "changed" or one.wanted or one.left:
        table.get(one.kind, _by_its_own_command)(one, known)
