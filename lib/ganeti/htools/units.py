"""Storage units of nodes and of disks: reading, writing, and which unit a disk wants.

A *desired storage unit* is a kind and a key, for example ``("lvm-vg", "xenvg")``; each disk has
exactly one, and a node has at most one storage unit for it. Kinds are those which allocators get:
``drbd8`` and ``lvm-vg`` with the name of a volume group, ``file``, ``sharedfile`` and ``gluster``
with a directory. A mirrored and a plain unit of the same volume group share its space.

Source: *HTools support for multiple storage units per node*.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from ganeti import TYPE_CHECKING, errors
from ganeti.constants import disk as disk_c
from ganeti.htools.instance import Disk, Instance
from ganeti.htools.space import StorageUnit
from ganeti.objects import disk_templates
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    from typing import Any

    from ganeti.htools.cluster import Cluster

Wanted = tuple[str, str]

_FIELDS_MIN = 4


def parse(owner: str, text: str) -> dict[Wanted, StorageUnit] | None:
    """Read the column of a text file: ``free,total,kind,key[,argument...]``, separated by ``;``.

    :param owner: name of the node, for errors.
    :returns: None when the column is empty, which means that units are not known.
    :raises ParseError: the column has another form.
    """
    if not text:
        return None
    found: dict[Wanted, StorageUnit] = {}
    for part in text.split(";"):
        fields = part.split(",")
        if len(fields) < _FIELDS_MIN or not (is_number(fields[0]) and is_number(fields[1])):
            raise errors.ParseError(
                f"{owner}: invalid storage unit '{part}'; expected free,total,type,key"
            )
        # The design writes the kind of mirrored units in both ways.
        kind = disk_c.UNIT_DRBD if fields[2] == disk_c.DRBD8 else fields[2]
        _add(
            owner,
            found,
            (kind, fields[3]),
            StorageUnit(int(fields[1]), int(fields[0]), tuple(fields[4:])),
        )
    return found


def from_description(owner: str, value: Any) -> dict[Wanted, StorageUnit] | None:
    """Read the key ``storage`` of a node in a request or an answer of the master.

    :returns: None when it is absent.
    :raises ParseError: it has another form.
    """
    if value is None:
        return None
    found: dict[Wanted, StorageUnit] = {}
    try:
        for one in value:
            kind, key, arguments = one["sunit"]
            new = StorageUnit(
                int(one["total"]), int(one["free"]), tuple(_argument(arg) for arg in arguments)
            )
            _add(owner, found, (str(kind), str(key)), new)
    except (TypeError, ValueError, KeyError) as err:
        raise errors.ParseError(f"{owner}: invalid storage units: {err}") from err
    return found


def _add(owner: str, found: dict[Wanted, StorageUnit], wanted: Wanted, unit: StorageUnit) -> None:
    if wanted in found:
        raise errors.ParseError(
            f"{owner}: more than one storage unit of type {wanted[0]} and key {wanted[1]}"
        )
    found[wanted] = unit


def _argument(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def serialize(storage: Mapping[Wanted, StorageUnit]) -> str:
    """Write the column of a text file."""
    return ";".join(
        ",".join((str(unit.free), str(unit.total), kind, key, *unit.arguments))
        for (kind, key), unit in storage.items()
    )


def desired(template: str, key: str | None, known: Iterable[Wanted]) -> Wanted | None:
    """Return the desired storage unit of a disk.

    :param key: volume group or directory, when it is given.
    :param known: storage units of nodes which the disk may be on, the preferred one first.
    :returns: None when no unit of its kind is known and no key is given.
    """
    kind = disk_templates.of(template).unit_kind
    if not kind:
        return None
    if key is not None:
        return (kind, key)
    return next((wanted for wanted in known if wanted[0] == kind), None)


def derive(cluster: Cluster) -> None:
    """Give the disks of a cluster without units those which nodes are known to have.

    The first node with a unit of the right kind decides: a node of the instance, another node of
    its groups, and last any node. A node that is lost, even the primary one, has no units here, and
    the disks of its instances lie in units of the same name on the nodes that are left.
    """
    if not any(node.storage for node in cluster.nodes):
        return
    groups: dict[int, dict[Wanted, None]] = {}
    for node in cluster.nodes:
        groups.setdefault(node.group, {}).update(dict.fromkeys(node.storage or ()))
    everywhere = dict.fromkeys(wanted for known in groups.values() for wanted in known)
    for instance in cluster.instances:
        own = [cluster.nodes[index] for index in instance.nodes]
        derive_for(
            instance,
            itertools.chain(
                *(node.storage or () for node in own),
                *(groups[node.group] for node in own),
                everywhere,
            ),
        )


def derive_for(instance: Instance, known: Iterable[Wanted]) -> None:
    """Give the disks of an instance their desired units, where they have none.

    :param known: storage units of nodes which the disks may be on, the preferred one first.
    """
    if all(disk.unit is not None for disk in instance.disks):
        return
    known = list(known)
    instance.disks = tuple(
        disk._replace(unit=desired(instance.template, None, known)) if disk.unit is None else disk
        for disk in instance.disks
    )


__all__ = ["Disk", "Wanted", "derive", "derive_for", "desired", "parse"]
