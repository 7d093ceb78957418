"""Search a configuration for contradictions.

:func:`check` is a pure function of one state: ``gnt-cluster verify`` shows the problems,
:meth:`ganeti.config.api.Config.open` logs them, ``gnt-cluster init`` refuses a first configuration
which has one. Each problem is one line which names the object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from ganeti import errors
from ganeti.config import access_records, damaged, documents, index
from ganeti.constants import cluster as cluster_const
from ganeti.constants import disk as disk_const
from ganeti.constants import hv as hv_const
from ganeti.constants import instance as instance_const
from ganeti.constants import job as job_const
from ganeti.constants import net as net_const
from ganeti.constants import node as node_const
from ganeti.constants import node_watchdog as node_watchdog_c
from ganeti.objects import (
    ConfigData,
    Disk,
    Instance,
    Network,
    cluster_rules,
    disk_templates,
    fill,
    hvparams,
    ipolicy,
)
from ganeti.objects import addresses as ip_owners
from ganeti.objects.address_pool import AddressPool, Ipv6Range
from ganeti.query import job_rules
from ganeti.query.view import prefixes
from ganeti.utils import net, text

T = TypeVar("T")
_Problems = Iterator[str]


def auto_failover_problem(data: ConfigData, *, witness: bool) -> str | None:
    """Return why the role of a lost master could not move by itself; None if it could.

    :param witness: the cluster has a witness.
    """
    online = [node for node in data.nodes.values() if node.master_candidate and not node.offline]
    if len(online) > (1 if witness else 2):
        return None
    return (
        f"the role of a lost master cannot move by itself: that needs a majority of the master"
        f" candidates without the master, so at least three of them, or two and a witness, and"
        f" {len(online)} {'is' if len(online) == 1 else 'are'} online"
    )


def watchdog_problems(data: ConfigData) -> Iterator[str]:
    """Yield why the hardware watchdogs of the nodes would not be armed."""
    online = sum(node.master_candidate and not node.offline for node in data.nodes.values())
    if online < node_watchdog_c.LEAST_CANDIDATES:
        yield (
            f"the watchdogs of nodes are armed only with {node_watchdog_c.LEAST_CANDIDATES} master"
            f" candidates or more, because with fewer the loss of one would restart all nodes;"
            f" {online} {'is' if online == 1 else 'are'} online"
        )


def similar_names(data: ConfigData) -> Iterator[str]:
    """Yield which instances have a name that is the short form of another one's."""
    names = {instance.name for instance in data.instances.values()}
    for name in sorted(names, key=text.natural_key):
        for short in prefixes(name)[:-1]:
            if short in names:
                yield (
                    f"the name of instance {short} is the short form of {name}, so a command for"
                    f" one could reach the other; rename one with 'gnt-instance rename'"
                )


def auto_instance_failover_problems(data: ConfigData, *, watchdogs: bool) -> Iterator[str]:
    """Yield why instances of some dead nodes would not be started elsewhere.

    :param watchdogs: the cluster uses the hardware watchdogs of its nodes.
    """
    helpless = [
        node.name
        for node in data.nodes.values()
        if not fill.fill_nd(data.cluster, data.nodegroups.get(node.group), node)["oob_program"]
    ]
    if helpless and not watchdogs:
        yield (
            f"nodes without an out-of-band helper cannot be fenced, so their instances are not"
            f" started elsewhere ({text.comma_join(sorted(helpless))}). Set the node parameter"
            " oob_program, or use 'gnt-cluster modify --node-watchdog=yes'"
        )
    helper = data.cluster.drbd_usermode_helper
    if helper not in (None, disk_const.DRBD_NEUTRAL_HELPER):
        yield (
            f"with the usermode helper {helper}, disks of type drbd may be written to on one node"
            " only, so their instances are not started elsewhere. Use 'gnt-cluster modify"
            f" --drbd-usermode-helper={disk_const.DRBD_NEUTRAL_HELPER}'"
        )


def check(data: ConfigData) -> list[str]:
    """Return all problems of a configuration, one line each, in a fixed order."""
    problems: list[str] = []
    for part in (
        damaged.problems,
        _root,
        _identity,
        _cluster,
        _nodes,
        _groups,
        _networks,
        _instances,
        _nics,
        _addresses,
        _disks,
        _ports,
        _filters,
        _documents,
        _access_records,
    ):
        try:
            problems.extend(part(data))
        except (TypeError, ValueError, AttributeError, KeyError) as err:
            # One odd entry must not hide the problems of all others.
            problems.append(f"the check of {part.__name__.strip('_')} failed: {err!r:.200}")
    return problems


def _root(data: ConfigData) -> _Problems:
    if data.version != cluster_const.CONFIG_VERSION:
        yield f"version is {data.version}, not {cluster_const.CONFIG_VERSION}"
    if data.serial_no < 1:
        yield f"serial number is {data.serial_no}"


def _identity(data: ConfigData) -> _Problems:
    """Check keys, UUIDs, serial numbers and names of all objects."""
    seen: dict[str, str] = {}
    for label, table in _tables(data):
        for key, obj in table.items():
            what = f"{label} {getattr(obj, 'name', None) or key}"
            if obj.uuid != key:
                yield f"{what}: stored under {key}, but its uuid is {obj.uuid or 'empty'}"
            if not text.is_uuid(key):
                yield f"{what}: '{key}' is not a uuid"
            if key in seen:
                yield f"{what}: {seen[key]} has the same uuid {key}"
            seen[key] = what
            if getattr(obj, "serial_no", 1) < 1 and not getattr(obj, "forthcoming", False):
                yield f"{what}: serial number is {obj.serial_no}"
        if label not in ("disk", "filter rule", "access record"):
            for name in _more_than_once(obj.name for obj in table.values()):
                yield f"{label} name {name} is used more than once"
            if any(not obj.name for obj in table.values()):
                yield f"a {label} has no name"


def _tables(data: ConfigData) -> list[tuple[str, Mapping[str, Any]]]:
    return [
        ("node", data.nodes),
        ("node group", data.nodegroups),
        ("instance", data.instances),
        ("network", data.networks),
        ("disk", data.disks),
        ("filter rule", data.filters),
        ("document", data.documents),
        ("access record", data.access_records),
    ]


def _more_than_once(values: Iterable[T]) -> list[T]:
    return [value for value, number in Counter(values).items() if number > 1]


def _cluster(data: ConfigData) -> _Problems:
    cluster = data.cluster
    if not text.is_uuid(cluster.uuid):
        yield f"cluster: '{cluster.uuid}' is not a uuid"
    if cluster.serial_no < 1:
        yield f"cluster: serial number is {cluster.serial_no}"
    if cluster.witness is not None:
        yield from _raised("cluster", cluster_rules.witness, cluster.witness)
    if cluster.auto_failover is not None:
        yield from _raised("cluster", cluster_rules.auto_failover, cluster.auto_failover)
    if cluster.job_execution not in job_const.EXECUTIONS:
        yield f"cluster: jobs cannot be executed in {cluster.job_execution}"
    if cluster.node_watchdog is not None:
        yield from _raised("cluster", cluster_rules.node_watchdog, cluster.node_watchdog)
    if not cluster.enabled_hypervisors:
        yield "cluster: no hypervisor is enabled"
    for name in cluster.enabled_hypervisors:
        if name not in hv_const.ALL:
            yield f"cluster: there is no hypervisor {name}"
        elif name not in cluster.hvparams:
            yield f"cluster: enabled hypervisor {name} has no parameters"
        else:
            yield from _raised(
                "cluster", hvparams.check_parameter_syntax, name, cluster.hvparams[name]
            )
    if not cluster.enabled_disk_templates:
        yield "cluster: no disk template is enabled"
    for template in cluster.enabled_disk_templates:
        if template not in disk_templates.ALL:
            yield f"cluster: there is no disk template {template}"
    yield from _raised("cluster", cluster_rules.volume_patterns, cluster.reserved_lvs)
    yield from _raised("cluster", partial(ipolicy.check_syntax, filled=True), cluster.ipolicy)
    yield from _complete(
        "cluster: beparams", cluster.beparams.get("default"), instance_const.BE_PARAM_TYPES
    )
    yield from _complete(
        "cluster: nicparams", cluster.nicparams.get("default"), net_const.NIC_PARAM_TYPES
    )
    yield from _complete("cluster: ndparams", cluster.ndparams, node_const.ND_PARAM_TYPES)
    if cluster.candidate_pool_size < 1:
        yield f"cluster: candidate pool size is {cluster.candidate_pool_size}"
    if cluster.primary_ip_family not in (net_const.IP4_FAMILY, net_const.IP6_FAMILY):
        yield f"cluster: there is no address family {cluster.primary_ip_family}"
    for key in cluster.candidate_certs:
        uuid = key.removesuffix(cluster_const.CERT_RENEWAL_SUFFIX)
        if uuid not in data.nodes:
            yield f"cluster: candidate certificate of node {uuid}, which does not exist"
        elif not data.nodes[uuid].master_candidate:
            yield (
                f"cluster: candidate certificate of node {data.nodes[uuid].name}, which is no "
                "master candidate"
            )


def _raised(what: str, check: Callable[..., object], *args: object) -> _Problems:
    """Run a check which raises errors; yield the text of the error."""
    try:
        check(*args)
    except (
        errors.ConfigurationError,
        errors.HypervisorError,
        errors.ParameterError,
        errors.TypeEnforcementError,
    ) as err:
        yield f"{what}: {err}"


def _complete(what: str, params: Any, types: Mapping[str, str]) -> _Problems:
    if not isinstance(params, dict):
        yield f"{what} are missing"
        return
    missing = sorted(set(types) - set(params))
    if missing:
        yield f"{what} lack {', '.join(missing)}"
    yield from _typed(what, params, types)


def _typed(what: str, params: Mapping[str, Any], types: Mapping[str, str]) -> _Problems:
    yield from _raised(what, hvparams.force_types, params, types)


def _nodes(data: ConfigData) -> _Problems:
    cluster = data.cluster
    master = data.nodes.get(cluster.master_node)
    if master is None:
        yield f"cluster: master node {cluster.master_node} does not exist"
    elif not master.master_candidate or master.offline or master.drained:
        yield f"node {master.name} is the master, but not a master candidate in service"
    for node in data.nodes.values():
        what = f"node {node.name}"
        roles = [
            name
            for name, on in (
                ("master candidate", node.master_candidate),
                ("drained", node.drained),
                ("offline", node.offline),
            )
            if on
        ]
        if len(roles) > 1:
            yield f"{what} is {' and '.join(roles)} at the same time"
        if node.master_candidate and not node.master_capable:
            yield f"{what} is a master candidate, but not master capable"
        if node.group not in data.nodegroups:
            yield f"{what}: node group {node.group} does not exist"
        for label, address in (("primary", node.primary_ip), ("secondary", node.secondary_ip)):
            if not net.is_ip(address):
                yield f"{what}: {label} address '{address}' is not an IP address"
        if cluster.master_ip in (node.primary_ip, node.secondary_ip):
            yield f"{what} has the address of the cluster, {cluster.master_ip}"
        for pin in node.key_pins or ():
            from ganeti.utils import x509  # with OpenSSL, which programs spare that only read

            if not x509.is_pin(pin):
                yield f"{what}: {pin!r:.80} is not the pin of a key"
        yield from _typed(f"{what}: ndparams", node.ndparams, node_const.ND_PARAM_TYPES)
        for name in sorted(node_const.ND_GLOBALS.intersection(node.ndparams)):
            yield f"{what}: parameter {name} cannot be set for a single node"
    # In a cluster without a secondary network, both addresses of a node are the same.
    addresses = [
        address for node in data.nodes.values() for address in {node.primary_ip, node.secondary_ip}
    ]
    for address in _more_than_once(addresses):
        yield f"address {address} is used by several nodes"
    for pin in _more_than_once(pin for node in data.nodes.values() for pin in node.key_pins or ()):
        names = [node.name for node in data.nodes.values() if pin in (node.key_pins or ())]
        yield f"nodes {', '.join(names)} have the same key, {pin}"


def _groups(data: ConfigData) -> _Problems:
    if not data.nodegroups:
        yield "there is no node group"
    for group in data.nodegroups.values():
        what = f"node group {group.name}"
        if group.alloc_policy not in node_const.ALLOC_POLICIES:
            yield f"{what}: there is no allocation policy {group.alloc_policy}"
        yield from _raised(what, partial(ipolicy.check_syntax, filled=False), group.ipolicy)
        yield from _typed(f"{what}: ndparams", group.ndparams, node_const.ND_PARAM_TYPES)
        for template in group.diskparams:
            if template not in disk_templates.ALL:
                yield f"{what}: there is no disk template {template}"
        for uuid in group.networks:
            if uuid not in data.networks:
                yield f"{what}: network {uuid} does not exist"


def _networks(data: ConfigData) -> _Problems:
    had: dict[str, set[str]] = {}
    for instance in data.instances.values():
        for network_uuid, address in index.addresses(instance):
            had.setdefault(network_uuid, set()).add(address)
    for network in data.networks.values():
        what = f"network {network.name}"
        try:
            pool = AddressPool(network)
        except errors.AddressPoolError as err:
            yield str(err)
            continue
        if network.gateway is not None and network.gateway not in pool:
            yield f"{what}: gateway {network.gateway} is not in {network.network}"
        addresses = {address for address in had.get(network.uuid, ()) if ":" not in address}
        yield from _ipv6(network, had.get(network.uuid, set()) - addresses)
        outside = {address for address in addresses if address not in pool}
        for address in sorted(outside):
            yield f"{what}: an instance has address {address}, which is not in {network.network}"
        marked = set(pool.taken_addresses(external=False))
        for address in sorted(addresses - outside - marked):
            yield f"{what}: an instance has address {address}, but the pool has it as free"
        for address in sorted(marked - addresses):
            yield f"{what}: address {address} is marked as used in the pool, but no instance has it"


def _ipv6(network: Network, had: set[str]) -> _Problems:
    if network.reserved6:
        try:
            pool = Ipv6Range(network)
            for text in network.reserved6:
                pool.block(text)
        except errors.AddressPoolError as err:
            yield f"reserved IPv6 addresses: {err}"
    for address in sorted(had):
        try:
            Ipv6Range(network).checked(address)
        except errors.AddressPoolError as err:
            yield f"network {network.name}: an instance has address {address}: {err}"


def _instances(data: ConfigData) -> _Problems:
    owners: dict[str, str] = {}
    for instance in data.instances.values():
        what = f"instance {instance.name}"
        # The node of a forthcoming instance may be undecided.
        if instance.primary_node or not instance.forthcoming:
            yield from _instance(data, instance, what)
        for place, uuid in enumerate(instance.disks):
            disk = data.disks.get(uuid)
            if disk is None:
                yield f"{what}: disk {uuid} does not exist"
            elif disk.iv_name != f"disk/{place}":
                yield f"{what}: disk {uuid} has index {place}, but its name is {disk.iv_name}"
            if uuid in owners:
                yield f"{what}: disk {uuid} belongs to instance {owners[uuid]} too"
            owners[uuid] = instance.name
    for uuid, disk in data.disks.items():
        # A detached disk has no such name.
        if uuid not in owners and disk.iv_name:
            yield f"disk {uuid} belongs to no instance"


def _instance(data: ConfigData, instance: Instance, what: str) -> _Problems:
    cluster = data.cluster
    node = data.nodes.get(instance.primary_node)
    if node is None:
        yield f"{what}: primary node {instance.primary_node} does not exist"
    elif not node.vm_capable:
        yield f"{what}: primary node {node.name} is not capable of running instances"
    if instance.admin_state not in instance_const.ADMIN_STATES:
        yield f"{what}: there is no state {instance.admin_state}"
    if instance.admin_state_source not in instance_const.ADMIN_STATE_SOURCES:
        yield f"{what}: there is no source {instance.admin_state_source} of its state"
    if instance.hypervisor not in cluster.enabled_hypervisors:
        yield f"{what}: hypervisor {instance.hypervisor} is not enabled"
    elif node is not None and instance.hypervisor not in fill.node_hypervisors(data, node.uuid):
        group = data.nodegroups[node.group]
        yield f"{what}: group {group.name} of its node has no hypervisor {instance.hypervisor}"
    if instance.hypervisor in hvparams.TABLES:
        yield from _raised(
            what,
            hvparams.check_parameter_syntax,
            instance.hypervisor,
            fill.instance_hv(cluster, instance),
        )
    yield from _typed(f"{what}: beparams", instance.beparams, instance_const.BE_PARAM_TYPES)
    filled_be = fill.fill_be(cluster, instance.beparams)
    low, high = filled_be.get("minmem"), filled_be.get("maxmem")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        yield f"{what}: minmem {low} is above maxmem {high}"


def _nics(data: ConfigData) -> _Problems:
    found: list[tuple[str, str]] = []
    for instance in data.instances.values():
        for place, nic in enumerate(instance.nics):
            what = f"instance {instance.name}: nic {place}"
            if nic.network is not None and nic.network not in data.networks:
                yield f"{what}: network {nic.network} does not exist"
            filled = fill.fill_nic(data.cluster, nic.nicparams)
            # Mode user is allowed in virtual clusters only; that was checked when it was set.
            if filled.get("mode") not in (*net_const.NIC_MODES, net_const.NIC_MODE_USER):
                yield f"{what}: there is no mode {filled.get('mode')}"
            if nic.ip6 and nic.network is None:
                yield f"{what}: it has an IPv6 address beside the other one, and is in no network"
            if not nic.ip and not nic.ip6 and filled.get("mode") == net_const.NIC_MODE_ROUTED:
                yield f"{what}: mode routed needs an address"
        found += index.addresses(instance)
    for mac in _more_than_once(
        nic.mac.lower() for instance in data.instances.values() for nic in instance.nics
    ):
        yield f"MAC address {mac} is used more than once"
    for uuid, address in _more_than_once(found):
        # Outside of networks, an address may occur several times on purpose.
        if uuid in data.networks:
            yield f"address {address} is used more than once in network {data.networks[uuid].name}"


def _addresses(data: ConfigData) -> _Problems:
    """Yield addresses which a guest has although somebody else of the cluster has them."""
    owners = ip_owners.of_cluster(data)
    in_networks = {
        (network_uuid, ip_owners.same_form(address))
        for instance in data.instances.values()
        for network_uuid, address in index.addresses(instance)
    }
    for address, instance, place, _network in ip_owners.of_guests(data, owners):
        yield f"instance {instance.name}: nic {place} has address {address} of {owners[address]}"
    for network in data.networks.values():
        for address, owner in ip_owners.outside_network(data, network).items():
            if (network.uuid, address) in in_networks:
                yield (
                    f"address {address} of network {network.name} is used by {owner} too, whose"
                    " interface is not in this network"
                )


def _disks(data: ConfigData) -> _Problems:
    volumes: list[tuple[str, Any]] = []
    minors: list[tuple[str, int]] = []
    for disk in data.disks.values():
        for device in disk.walk():
            yield from _device(data, disk, device)
            if device.has_whole_drbd_id:
                minors += device.drbd_id.minors.items()
            elif device.dev_type in (disk_const.PLAIN, disk_const.FILE) and device.logical_id:
                volumes += [(uuid, device.logical_id) for uuid in device.nodes]
    for uuid, minor in _more_than_once(minors):
        yield f"DRBD minor {minor} is used more than once on node {_node_name(data, uuid)}"
    for uuid, parts in _more_than_once(volumes):
        yield (
            f"volume {'/'.join(map(str, parts))} is used more than once on node "
            f"{_node_name(data, uuid)}"
        )


def _device(data: ConfigData, disk: Disk, device: Disk) -> _Problems:
    what = f"disk {disk.uuid}"
    if device.dev_type not in disk_templates.ALL:
        yield f"{what}: there is no disk template {device.dev_type}"
    if not device.logical_id and not device.forthcoming:
        yield f"{what}: a device of type {device.dev_type} has no logical id"
    if device.has_replicas and len(device.logical_id) < 6:
        if not device.forthcoming:
            yield f"{what}: the logical id of a drbd device has {len(device.logical_id)} parts"
    if device.mode not in disk_const.ACCESS_MODES:
        yield f"{what}: there is no access mode {device.mode}"
    if device.size < 0:
        yield f"{what}: size is {device.size}"
    if device.outdated_node is not None and device.outdated_node not in device.all_node_uuids():
        yield f"{what}: node {device.outdated_node} has no replica of it, which could miss writes"
    if device.never_alone is not None and device.never_alone not in device.all_node_uuids():
        yield f"{what}: node {device.never_alone} has no replica of it, which could be writable"
    for uuid in {
        *device.nodes,
        *(device.drbd_id.nodes if device.has_whole_drbd_id else ()),
    }:
        if uuid not in data.nodes:
            yield f"{what}: node {uuid} does not exist"


def _node_name(data: ConfigData, uuid: str) -> str:
    node = data.nodes.get(uuid)
    return uuid if node is None else node.name


def _ports(data: ConfigData) -> _Problems:
    cluster = data.cluster
    used: list[tuple[int, str]] = [
        (instance.network_port, f"instance {instance.name}")
        for instance in data.instances.values()
        if instance.network_port is not None
    ]
    used += [
        (device.drbd_id.port, f"disk {disk.uuid}")
        for disk in data.disks.values()
        for device in disk.walk()
        if device.has_whole_drbd_id
    ]
    pool = set(cluster.tcpudp_port_pool)
    for port, what in used:
        if port in pool:
            yield f"{what}: port {port} is in the pool of free ports too"
        if (
            isinstance(port, int)
            and net_const.FIRST_PORT <= port <= net_const.LAST_PORT
            and port > cluster.highest_used_port
        ):
            yield f"{what}: port {port} is above the highest used port {cluster.highest_used_port}"
    for port in _more_than_once(port for port, _what in used):
        yield f"port {port} is used more than once"
    for port in sorted(pool):
        if port > cluster.highest_used_port:
            yield f"port {port} of the pool is above the highest used port"


def _filters(data: ConfigData) -> _Problems:
    for rule in data.filters.values():
        try:
            job_rules.check_rule(rule.priority, rule.predicates, rule.action, rule.reason_trail)
        except errors.ParameterError as err:
            yield f"filter rule {rule.uuid}: {err}"


def _documents(data: ConfigData) -> _Problems:
    for kept in data.documents.values():
        try:
            documents.check(kept.name, kept.text)
        except errors.ParameterError as err:
            yield f"document {kept.name}: {err}"


def _access_records(data: ConfigData) -> _Problems:
    for record in data.access_records.values():
        what = f"access record {record.uuid} ({record.kind:.40} of {record.owner:.64})"
        try:
            access_records.check(record)
        except errors.ParameterError as err:
            yield f"{what}: {err}"
            continue
        if record.uuid != access_records.uuid_of(record.kind, record.key):
            yield f"{what}: it is stored under another uuid than that of its kind and key"
