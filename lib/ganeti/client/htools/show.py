"""Writing requests and clusters for users who want to see everything (``hail -v -v``)."""

from __future__ import annotations

from collections.abc import Iterable

from ganeti.htools import formats
from ganeti.htools.cluster import Cluster, Group
from ganeti.htools.instance import RUNNING, Disk, Instance, Load, Nic
from ganeti.htools.loading import request as req
from ganeti.htools.node import Node

_STATES = {
    RUNNING: "Running",
    "ADMIN_down": "StatusDown",
    "ADMIN_offline": "StatusOffline",
    "ERROR_down": "ErrorDown",
    "ERROR_up": "ErrorUp",
    "ERROR_nodedown": "NodeDown",
    "ERROR_nodeoffline": "NodeOffline",
    "ERROR_wrongnode": "WrongNode",
    "USER_down": "UserDown",
}

_MODES = {
    "primary-only": "ChangePrimary",
    "secondary-only": "ChangeSecondary",
    "all": "ChangeAll",
}

_POLICIES = {
    "preferred": "AllocPreferred",
    "last_resort": "AllocLastResort",
    "unallocable": "AllocUnallocable",
}

_HYPERVISORS = {
    "kvm": "Kvm",
    "xen-pvm": "XenPvm",
    "xen-hvm": "XenHvm",
    "chroot": "Chroot",
    "lxc": "Lxc",
    "fake": "Fake",
}


def _text(value: str | None) -> str:
    return "Nothing" if value is None else f'Just "{value}"'


def _record(name: str, fields: Iterable[tuple[str, object]]) -> str:
    return f"{name} {{{', '.join(f'{key} = {value}' for key, value in fields)}}}"


def _load(load: Load) -> str:
    names = ("cpuWeight", "memWeight", "dskWeight", "netWeight")
    return _record("DynUtil", zip(names, (formats.number(value) for value in load), strict=True))


def _disk(disk: Disk) -> str:
    spindles = "Nothing" if disk.spindles is None else f"Just {disk.spindles}"
    return _record("Disk", (("dskSize", disk.size), ("dskSpindles", spindles)))


def _nic(nic: Nic) -> str:
    mode = "Nothing" if nic.mode is None else f"Just {nic.mode.capitalize()}"
    shown = [("mac", _text(nic.mac)), ("ip", _text(nic.ip)), ("mode", mode)]
    shown += [(key, _text(getattr(nic, key))) for key in ("link", "bridge", "network")]
    return _record("Nic", shown)


def _template(value: str) -> str:
    return formats.template_name(value)


def show_instance(one: Instance, *, new: bool = False) -> str:
    """Write all facts of an instance."""
    desired = ",".join(f'"{tag}"' for tag in sorted(one.desired_locations))
    return _record(
        "Instance",
        (
            ("name", f'"{one.name}"'),
            ("alias", f'"{one.alias}"'),
            ("mem", one.memory),
            ("dsk", one.disk),
            ("disks", f"[{','.join(_disk(disk) for disk in one.disks)}]"),
            ("vcpus", one.vcpus),
            ("runSt", _STATES[one.status]),
            ("pNode", 0 if new else one.primary),
            ("sNode", 0 if new else one.secondary),
            ("idx", one.index),
            ("util", _load(one.load)),
            ("movable", one.mirrored or one.shared_storage),
            ("autoBalance", one.auto_balance),
            ("diskTemplate", _template(one.template)),
            ("spindleUse", one.spindle_use),
            ("allTags", formats.texts(one.tags)),
            ("exclTags", formats.texts(one.exclusion_tags)),
            ("dsrdLocTags", f"fromList [{desired}]"),
            ("locationScore", one.location_score),
            ("arPolicy", "ArNotEnabled"),
            ("nics", f"[{','.join(_nic(nic) for nic in one.nics)}]"),
            ("forthcoming", one.forthcoming),
        ),
    )


def _new(one: req.New) -> str:
    group = "Nothing" if one.group is None else f'(Just "{one.group}")'
    return f"AllocDetails {one.required} {group}"


def show_request(request: req.Request) -> str:
    """Write a request."""
    cluster = request.cluster
    found = [cluster.find_instance(name) for name in request.names]
    indices = [one.index for one in found if one is not None]
    listed = f"[{','.join(str(index) for index in indices)}]"
    if request.kind == req.ALLOCATE:
        one = request.new[0]
        only = "Nothing" if one.restrict_to is None else f"(Just {formats.texts(one.restrict_to)})"
        return f"Allocate ({show_instance(one.instance, new=True)}) ({_new(one)}) {only}"
    if request.kind == req.MULTI_ALLOCATE:
        pairs = (f"({show_instance(one.instance, new=True)},{_new(one)})" for one in request.new)
        return f"MultiAllocate [{','.join(pairs)}]"
    if request.kind == req.ALLOCATE_SECONDARY:
        return f"AllocateSecondary {indices[0]}"
    if request.kind == req.RELOCATE:
        nodes = [cluster.find_node(name) for name in request.nodes]
        numbers = ",".join(str(node.index) for node in nodes if node is not None)
        return f"Relocate {indices[0]} 1 [{numbers}]"
    if request.kind == req.NODE_EVACUATE:
        return f"NodeEvacuate {listed} {_MODES[request.evacuation_mode]}"
    groups = [cluster.find_group(uuid) for uuid in request.groups]
    numbers = ",".join(str(group.index) for group in groups if group is not None)
    return f"ChangeGroup {listed} [{numbers}]"


def show_group(group: Group) -> str:
    """Write all facts of a group."""
    return _record(
        "Group",
        (
            ("name", f'"{group.name}"'),
            ("uuid", f'"{group.uuid}"'),
            ("idx", group.index),
            ("allocPolicy", _POLICIES[group.alloc_policy]),
            ("networks", formats.texts(group.networks)),
            ("iPolicy", formats.policy(group.policy)),
            ("allTags", formats.texts(group.tags)),
        ),
    )


def _names(tags: Iterable[str]) -> str:
    return f"fromList {formats.texts(sorted(tags))}"


def _indices(values: Iterable[int]) -> str:
    return f"[{','.join(str(value) for value in values)}]"


def _resources(node: Node) -> list[tuple[str, object]]:
    number = formats.number
    return [
        ("tMem", number(node.total_memory)),
        ("nMem", node.own_memory),
        ("iMem", node.instance_memory),
        ("fMem", node.free_memory),
        ("fMemForth", node.free_memory_forth),
        ("xMem", node.unaccounted_memory),
        ("tDsk", number(node.total_disk)),
        ("fDsk", node.real.free_disk),
        ("fDskForth", node.forth.free_disk),
        ("tCpu", number(node.total_cpus)),
        ("tCpuSpeed", number(node.cpu_speed)),
        ("nCpu", node.own_cpus),
        ("uCpu", node.real.vcpus),
        ("uCpuForth", node.forth.vcpus),
        ("tSpindles", node.total_spindles),
        ("fSpindles", node.real.free_spindles),
        ("fSpindlesForth", node.forth.free_spindles),
        ("pList", _indices(node.real.primaries)),
        ("pListForth", _indices(node.forth.primaries)),
        ("sList", _indices(node.real.secondaries)),
        ("sListForth", _indices(node.forth.secondaries)),
    ]


def _ratios_and_limits(node: Node) -> list[tuple[str, object]]:
    number = formats.number
    return [
        ("failN1", node.failing),
        # The original never computes these three when it loads a cluster.
        ("failN1Forth", True),
        ("rMem", node.reserved_memory),
        ("rMemForth", 0),
        ("pMem", number(node.memory_ratio)),
        ("pMemForth", number(node.memory_ratio_forth)),
        ("pDsk", number(node.disk_ratio)),
        ("pDskForth", number(node.disk_ratio_forth)),
        ("pRem", number(node.reserved_ratio)),
        ("pRemForth", "0.0"),
        ("pCpu", number(node.vcpu_ratio)),
        ("pCpuForth", number(node.vcpu_ratio_forth)),
        ("mDsk", number(node.min_disk_ratio)),
        ("loDsk", node.min_disk),
        ("hiCpu", node.max_vcpus),
        ("hiSpindles", number(node.max_spindles)),
        ("instSpindles", number(node.real.spindles)),
        ("instSpindlesForth", number(node.forth.spindles)),
    ]


def show_node(node: Node) -> str:
    """Write all facts of a node."""
    tags = ",".join(f'("{tag}",{count})' for tag, count in sorted(node.primary_tags.items()))
    peers = ",".join(f"({peer},{memory})" for peer, memory in node.peers.items())
    pairs = ",".join(
        f'(("{location}","{tag}"),{count})'
        for (location, tag), count in sorted(node.location_pairs.items())
    )
    hypervisor = _HYPERVISORS.get(node.hypervisor or "")
    return _record(
        "Node",
        (
            ("name", f'"{node.name}"'),
            ("alias", f'"{node.alias}"'),
            *_resources(node),
            ("idx", node.index),
            ("peers", f"[{peers}]"),
            *_ratios_and_limits(node),
            ("offline", node.offline),
            ("isMaster", node.master),
            ("nTags", formats.texts(node.tags)),
            ("utilPool", _load(node.pool)),
            ("utilLoad", _load(node.load)),
            ("utilLoadForth", _load(node.load)),
            ("pTags", f"fromList [{tags}]"),
            ("group", node.group),
            ("iPolicy", formats.policy(node.policy) if node.policy else ""),
            ("exclStorage", node.exclusive_storage),
            ("migTags", _names(node.migration_tags)),
            ("rmigTags", _names(node.accepted_tags)),
            ("locationTags", _names(node.location_tags)),
            ("locationScore", node.location_score),
            ("instanceMap", f"fromList [{pairs}]"),
            ("hypervisor", "Nothing" if hypervisor is None else f"Just {hypervisor}"),
        ),
    )


def show_cluster(cluster: Cluster) -> str:
    """Write a whole cluster."""
    groups = ",".join(f"({one.index},{show_group(one)})" for one in cluster.groups)
    nodes = ",".join(f"({one.index},{show_node(one)})" for one in cluster.nodes)
    instances = ",".join(f"({one.index},{show_instance(one)})" for one in cluster.instances)
    return _record(
        "ClusterData",
        (
            ("cdGroups", f"fromList [{groups}]"),
            ("cdNodes", f"fromList [{nodes}]"),
            ("cdInstances", f"fromList [{instances}]"),
            ("cdTags", formats.texts(cluster.tags)),
            ("cdIPolicy", formats.policy(cluster.policy)),
        ),
    )
