"""Making up a cluster without instances from a few numbers for each group."""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import errors
from ganeti.htools.cluster import Cluster, Group
from ganeti.htools.node import Node, Resources
from ganeti.utils.digits import is_number

_POLICIES = {"p": "preferred", "a": "last_resort", "u": "unallocable"}
_FIELDS = (6, 7)

_BINARY = {"": 1, "m": 1, "g": 1024, "t": 1024**2}
_DECIMAL = {"M": 1000**2, "G": 1000**3, "T": 1000**4}
_MIB = 1024**2


def make(specs: Sequence[str]) -> Cluster:
    """Make a cluster; the last description is that of the first group.

    :param specs: ``policy,nodes,disk,memory,cpus[,spindles[,exclusive]]`` of each group.
    :raises ParseError: a description is not valid.
    """
    cluster = Cluster()
    for number, spec in enumerate(reversed(specs), 1):
        _add_group(cluster, spec, number)
    if cluster.nodes:
        cluster.nodes[0].master = True
    return cluster


def _add_group(cluster: Cluster, spec: str, number: int) -> None:
    fields = spec.split(",")
    spindles, exclusive = "1", "False"
    if len(fields) == 7:
        exclusive = fields.pop()
    if len(fields) == 6:
        spindles = fields.pop()
    if len(fields) != 5:
        raise errors.ParseError(
            "Invalid cluster specification, expected 6 comma-separated sections (allocation"
            " policy, node count, disk size, memory size, number of CPUs, spindles) but got"
            f" {len(spec.split(','))}: '{spec}'"
        )
    policy = _policy(fields[0])
    count, cpus = _count("node count", fields[1]), _count("cpu count", fields[4])
    if exclusive not in ("True", "False"):
        raise errors.ParseError(f"cannot parse exclusive storage '{exclusive}' of '{spec}'")
    disk, memory = amount("disk size", fields[2]), amount("memory size", fields[3])
    resources = Resources(
        total_memory=float(memory),
        free_memory=memory,
        total_disk=float(disk),
        free_disk=disk,
        total_cpus=float(cpus),
        spindles=_count("spindles", spindles),
    )
    for position in range(1, count + 1):
        cluster.nodes.append(
            Node(
                f"node-{number:02d}-{position:03d}",
                resources,
                group=len(cluster.groups),
                exclusive_storage=exclusive == "True",
            )
        )
    cluster.groups.append(Group(f"group-{number:02d}", f"fake-uuid-{number:02d}", policy))


def _policy(text: str) -> str:
    found = _POLICIES.get(text, text)
    if found not in _POLICIES.values():
        raise errors.ParseError(
            f'Invalid string value for type AllocPolicy: "{text}"; Cannot parse AllocPolicy'
            f" abbreviation '{text}'"
        )
    return found


def _count(what: str, text: str) -> int:
    if not is_number(text):
        raise errors.ParseError(f"{what}: cannot parse string '{text}'")
    return int(text)


def amount(what: str, text: str) -> int:
    """Read an amount in MiB; ``m``, ``g`` and ``t`` are binary units, ``M``, ``G``, ``T`` decimal.

    :raises ParseError: it is not one.
    """
    digits = text.rstrip("mgtMGTBb ")
    unit = text[len(digits) :].strip()
    if not digits.isdecimal():
        raise errors.ParseError(f"{what}: cannot parse string '{text}'")
    number = int(digits)
    if unit.lower() in _BINARY and unit == unit.lower():
        return number * _BINARY[unit]
    decimal = _DECIMAL.get(unit.removesuffix("B").removesuffix("b"))
    if decimal is None:
        raise errors.ParseError(f"{what}: unknown unit '{unit}' of '{text}'")
    return number * decimal // _MIB


__all__ = ["amount", "make"]
