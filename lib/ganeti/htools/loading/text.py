"""The text format of the placement programs: reading and writing.

Sections are separated by empty lines: groups, nodes, instances, tags of the cluster, and instance
policies. Columns are separated by ``|``. The manual page **htools** describes all of them. A node
may have a last column with its storage units (*HTools support for multiple storage units per
node*, section *Text protocol extension*).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ganeti import errors
from ganeti.htools import units
from ganeti.htools.cluster import ALLOC_POLICIES, Cluster, Group
from ganeti.htools.formats import fixed, number, texts
from ganeti.htools.instance import NO_NODE, STATUSES, Disk, Instance, Size
from ganeti.htools.node import Node, Resources
from ganeti.htools.policy import Policy, Range, Spec
from ganeti.objects import disk_templates

_SECTIONS = 4
_GROUP_MIN, _GROUP_MAX = 4, 5
_NODE_MIN, _NODE_MAX = 9, 16
_INSTANCE_MIN, _INSTANCE_MAX = 11, 13
_SPEC_FIELDS = 6
_POLICY_FIELDS = 6


def parse(text: str) -> Cluster:
    """Read a cluster.

    :raises ParseError: the text is not in this format, or names something that does not exist.
    """
    sections = _sections(text)
    if len(sections) < _SECTIONS:
        raise errors.ParseError(
            f"Invalid format of the input file: {len(sections)} sections instead of"
            f" {_SECTIONS} or more"
        )
    cluster = Cluster()
    groups: dict[str, int] = {}
    for line in sections[0]:
        group = _group(line.split("|"))
        groups[group.uuid] = len(cluster.groups)
        cluster.groups.append(group)
    nodes: dict[str, int] = {}
    for line in sections[1]:
        node = _node(line.split("|"), groups)
        nodes[node.name] = len(cluster.nodes)
        cluster.nodes.append(node)
    cluster.instances = [_instance(line.split("|"), nodes) for line in sections[2]]
    cluster.tags = tuple(sections[3])
    if len(sections) > _SECTIONS:
        _policies(cluster, sections[4])
    units.derive(cluster)
    return cluster


def _sections(text: str) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if line:
            found[-1].append(line)
        else:
            found.append([])
    while found and not found[-1] and len(found) > _SECTIONS:
        found.pop()
    return found


def parse_number(owner: str, text: str, kind: type[int] | type[float] = int) -> float:
    """Read a number of an object.

    :raises ParseError: it is none; names the object.
    """
    try:
        if kind is float and math.isfinite(value := float(text)):
            return value
        if kind is int and text.lstrip("-").isdecimal():
            return int(text)
    except ValueError:
        pass
    digits = text[: len(text) - len(text.lstrip("-0123456789"))]
    rest = text[len(digits) :]
    if digits.lstrip("-") and not rest.startswith("."):
        raise errors.ParseError(f"{owner}: leftover characters when parsing '{text}': '{rest}'")
    raise errors.ParseError(f"{owner}: cannot parse string '{text}'")


_QUICK_DIGITS = 18


def _int(owner: str, text: str) -> int:
    # Python refuses numbers of thousands of digits.
    quick = len(text) <= _QUICK_DIGITS and text.isdecimal()
    return int(text) if quick else int(parse_number(owner, text))


def _float(owner: str, text: str) -> float:
    return float(parse_number(owner, text, float))


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


def _flag(owner: str, what: str, text: str) -> bool:
    if text not in ("Y", "N"):
        raise errors.ParseError(f"Invalid {what} value '{text}' for {owner}")
    return text == "Y"


def _group(columns: list[str]) -> Group:
    if not _GROUP_MIN <= len(columns) <= _GROUP_MAX:
        raise errors.ParseError(f"Invalid/incomplete group data: '{texts(columns)}'")
    name, uuid, policy, tags = columns[:_GROUP_MIN]
    if policy not in ALLOC_POLICIES:
        raise errors.ParseError(f'Invalid string value for type AllocPolicy: "{policy}"')
    networks = _list(columns[4]) if len(columns) > _GROUP_MIN else ()
    return Group(name, uuid, policy, tags=_list(tags), networks=networks)


def _node(columns: list[str], groups: dict[str, int]) -> Node:
    if not _NODE_MIN <= len(columns) <= _NODE_MAX:
        raise errors.ParseError(f"Invalid/incomplete node data: '{texts(columns)}'")
    defaults = ["1", "", "N", "0", "1", "1.0", ""]
    filled = columns + defaults[len(columns) - _NODE_MIN :]
    name, flag, group_uuid = columns[0], columns[7], columns[8]
    if group_uuid not in groups:
        raise errors.ParseError(f"Unknown group '{group_uuid}' for node {name}")
    tags = _list(filled[10])
    group = groups[group_uuid]
    if "?" in columns[1:7]:
        # Like the original, this reads no tags of such a node.
        return unknown_node(name, group)
    return Node(
        name,
        Resources(
            total_memory=_float(name, columns[1]),
            own_memory=_int(name, columns[2]),
            free_memory=_int(name, columns[3]),
            total_disk=_float(name, columns[4]),
            free_disk=_int(name, columns[5]),
            total_cpus=_float(name, columns[6]),
            own_cpus=_int(name, filled[13]),
            spindles=_int(name, filled[9]),
            free_spindles=_int(name, filled[12]),
            cpu_speed=_float(name, filled[14]),
            storage=units.parse(name, filled[15]),
        ),
        group=group,
        offline=flag == "Y",
        master=flag == "M",
        exclusive_storage=filled[11] == "Y",
        tags=tags,
    )


def unknown_node(name: str, group: int, tags: Sequence[str] = ()) -> Node:
    """Make a node without resources, for one whose state is not known; it counts as offline."""
    nothing = Resources(own_cpus=0, spindles=0)
    node = Node(name, nothing, group=group, offline=True, tags=tuple(tags))
    node.lost = True
    return node


def _instance(columns: list[str], nodes: dict[str, int]) -> Instance:
    if not _INSTANCE_MIN - 1 <= len(columns) <= _INSTANCE_MAX:
        raise errors.ParseError(f"Invalid/incomplete instance data: '{texts(columns)}'")
    name, primary, secondary = columns[0], columns[6], columns[7]
    filled = columns + ["1", "-", "N"][len(columns) - (_INSTANCE_MIN - 1) :]
    members = (primary, *filter(None, [secondary]))
    for node in members:
        if node not in nodes:
            raise errors.ParseError(f"Unknown node '{node}' for instance {name}")
    memory, disk, vcpus = (_int(name, text) for text in columns[1:4])
    if columns[4] not in STATUSES:
        raise errors.ParseError(f'Invalid string value for type InstanceStatus: "{columns[4]}"')
    auto_balance = _flag(f"instance {name}", "auto_balance", columns[5])
    template = columns[8]
    if template not in disk_templates.ALL:
        raise errors.ParseError(
            f'Instance {name}: Invalid string value for type DiskTemplate: "{template}"'
        )
    if primary == secondary:
        raise errors.ParseError(f"Instance {name} has same primary and secondary node - {primary}")
    spindles = None if filled[11] == "-" else _int(name, filled[11])
    return Instance(
        name,
        Size(memory, disk, vcpus, (Disk(disk, spindles),), _int(name, filled[10])),
        template,
        [nodes[node] for node in members],
        status=columns[4],
        auto_balance=auto_balance,
        tags=_list(columns[9]),
        forthcoming=_flag(f"instance {name}", "forthcoming", filled[12]),
    )


def _spec(owner: str, text: str) -> Spec:
    numbers = text.split(",")
    if len(numbers) != _SPEC_FIELDS:
        raise errors.ParseError(f"Invalid ispec data: '{text}'")
    memory, cpus, size, disks, nics, spindles = (_int(owner, one) for one in numbers)
    return Spec(memory, cpus, size, disks, nics, spindles)


def _policies(cluster: Cluster, lines: Sequence[str]) -> None:
    groups = {group.name: group for group in cluster.groups}
    for line in lines:
        columns = line.split("|")
        if len(columns) != _POLICY_FIELDS:
            raise errors.ParseError(f"Invalid ipolicy data: '{texts(columns)}'")
        owner = columns[0]
        ends = [_spec(owner, one) for one in columns[2].split(";")]
        if len(ends) % 2:
            raise errors.ParseError(f"Invalid minmax specs: '{texts(columns[2].split(';'))}'")
        templates = _list(columns[3])
        for template in templates:
            if template not in disk_templates.ALL:
                raise errors.ParseError(f'Invalid string value for type DiskTemplate: "{template}"')
        policy = Policy(
            ranges=tuple(Range(low, high) for low, high in zip(ends[::2], ends[1::2], strict=True)),
            standard=_spec(owner, columns[1]),
            templates=templates,
            vcpu_ratio=_float(owner, columns[4]),
            spindle_ratio=_float(owner, columns[5]),
        )
        if not owner:
            cluster.policy = policy
        elif owner in groups:
            groups[owner].policy = policy
        else:
            raise errors.ParseError(f"Unknown group '{owner}'")


# -- writing --------------------------------------------------------------------------------------


def serialize(cluster: Cluster) -> str:
    """Write a cluster in this format."""
    uuids = [group.uuid for group in cluster.groups]
    groups = [
        "|".join((one.name, one.uuid, one.alloc_policy, ",".join(one.tags), ",".join(one.networks)))
        for one in cluster.groups
    ]
    nodes = [_node_line(node, uuids[node.group]) for node in cluster.nodes]
    instances = [_instance_line(one, cluster.nodes) for one in cluster.instances]
    policies = [
        _policy_line("", cluster.policy),
        *(_policy_line(one.name, one.policy) for one in cluster.groups),
    ]
    parts = (groups, nodes, instances, list(cluster.tags), policies)
    return "\n".join("".join(f"{line}\n" for line in part) for part in parts)


def _node_line(node: Node, group_uuid: str) -> str:
    flag = "Y" if node.offline else "M" if node.master else "N"
    columns = [
        node.name,
        fixed(node.total_memory, 0),
        str(node.own_memory),
        str(node.free_memory),
        fixed(node.total_disk, 0),
        str(node.real.free_disk),
        fixed(node.total_cpus, 0),
        flag,
        group_uuid,
        str(node.total_spindles),
        ",".join(node.tags),
        "Y" if node.exclusive_storage else "N",
        str(node.real.free_spindles),
        str(node.own_cpus),
        number(node.cpu_speed),
    ]
    if node.storage is not None:
        columns.append(units.serialize(node.storage))
    return "|".join(columns)


def _instance_line(one: Instance, nodes: Sequence[Node]) -> str:
    return "|".join(
        (
            one.name,
            str(one.memory),
            str(one.disk),
            str(one.vcpus),
            one.status,
            "Y" if one.auto_balance else "N",
            nodes[one.primary].name,
            "" if one.secondary == NO_NODE else nodes[one.secondary].name,
            one.template,
            ",".join(one.tags),
            str(one.spindle_use),
            "-" if one.spindles is None else str(one.spindles),
            "Y" if one.forthcoming else "N",
        )
    )


def _spec_text(spec: Spec) -> str:
    return (
        f"{spec.memory},{spec.cpus},{spec.disk_size},{spec.disk_count},{spec.nics},"
        f"{spec.spindle_use}"
    )


def _policy_line(owner: str, policy: Policy) -> str:
    ends = ";".join(
        f"{_spec_text(one.smallest)};{_spec_text(one.largest)}" for one in policy.ranges
    )
    return "|".join(
        (
            owner,
            _spec_text(policy.standard),
            ends,
            ",".join(policy.templates),
            number(policy.vcpu_ratio),
            number(policy.spindle_ratio),
        )
    )


__all__ = ["parse", "parse_number", "serialize", "unknown_node"]
