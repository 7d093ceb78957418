"""Specs of new disks: from the dictionaries which users give to disk objects.

:func:`choose_template` chooses the disk template, :func:`plan_disks` checks and completes the
specs, :func:`make_disks` makes the disk objects with names of volumes, ports and minors. The first
two change nothing; the third reserves names, ports and minors for the run of a logical unit.
"""

from __future__ import annotations

import dataclasses
import posixpath
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from ganeti import errors
from ganeti.cmdlib.ops.params import devices, os
from ganeti.constants import disk as disk_c
from ganeti.constants.disk import (
    ACCESS_MODES,
    DISK_ACCESS_MODES,
    DISKLESS,
    DRBD8,
    DRBD_SECRET_LENGTH,
    FILE_DRIVER_LOOP,
    MAX_DISKS,
    PLAIN,
    RDONLY,
    RDWR,
)
from ganeti.constants.net import VALUE_AUTO
from ganeti.objects import Disk, disk_templates, fill
from ganeti.objects.disk_templates import (
    HAVE_ACCESS,
    HAVE_METAVG,
    HAVE_PROVIDER,
    LVM_BASED,
    MAY_ADOPT,
    MIRRORED,
    MUST_ADOPT,
)
from ganeti.objects.disk_templates.descriptor import IdRequest
from ganeti.utils import clock, suggest, text

if TYPE_CHECKING:
    from ganeti.config import Config

#: Letters of the older spelling of the access mode, ``access=r`` and ``access=w``.
_MODE_LETTERS = {"r": RDONLY, "w": RDWR}

#: Keys of a spec which only some disk templates have.
_FOREIGN = {
    "adopt": MAY_ADOPT,
    "vg": LVM_BASED,
    "metavg": HAVE_METAVG,
    "provider": HAVE_PROVIDER,
    "spindles": disk_templates.EXCLUSIVE_STORAGE,
    "access": HAVE_ACCESS,
}
_KNOWN = frozenset((*disk_c.IDISK_PARAMS, "snapshot_name"))


class DiskSpec(TypedDict):
    """The checked and completed spec of a disk, as :func:`plan_disk` returns it.

    ``size`` is in MiB, and 0 for a device to be adopted until it has been measured. The other
    keys are those which the disk template has and the user gave.
    """

    size: int
    mode: str
    name: str | None
    vg: NotRequired[str]
    metavg: NotRequired[str]
    adopt: NotRequired[str]
    access: NotRequired[str]
    spindles: NotRequired[int]
    provider: NotRequired[str]
    params: NotRequired[dict[str, Any]]


def choose_template(
    config: Config, template: str | None, given: Sequence[Mapping[str, Any]]
) -> str:
    """Choose the disk template of a new instance.

    :param template: the template in the request; None to derive it from the disks.
    :param given: specs of the disks, as the user gave them.
    :raises errors.OpPrereqError: the templates contradict each other, or one is not enabled.
    """
    kinds = {str(spec["dev_type"]) for spec in given if spec.get("dev_type")}
    if template is None:
        if len(kinds) > 1:
            raise errors.OpPrereqError(
                f"disks of different templates ({', '.join(sorted(kinds))}) need one disk template",
                errors.ECODE_INVAL,
            )
        if not given:
            template = DISKLESS
        elif kinds:
            template = kinds.pop()
        else:
            template = str(config.cluster().enabled_disk_templates[0])
    elif kinds - {template}:
        raise errors.OpPrereqError(
            f"disks of template {', '.join(sorted(kinds))} contradict disk template {template}",
            errors.ECODE_INVAL,
        )
    require_enabled(config, template)
    return template


def require_enabled(config: Config, template: str) -> None:
    """Check that the cluster allows a disk template.

    :raises errors.OpPrereqError: the template is not enabled.
    """
    enabled = config.cluster().enabled_disk_templates
    if template not in enabled:
        raise errors.OpPrereqError(
            f"disk template {template} is not enabled in this cluster, only"
            f" {', '.join(sorted(enabled))}",
            errors.ECODE_INVAL,
        )


# -- specs -----------------------------------------------------------------------


def plan_disks(config: Config, template: str, given: Sequence[Mapping[str, Any]]) -> list[DiskSpec]:
    """Check and complete the disk specs of a new instance.

    :returns: for each disk what :func:`plan_disk` returns.
    :raises errors.OpPrereqError: the specs contradict the template or each other.
    """
    if template == DISKLESS:
        if given:
            enabled = [one for one in config.cluster().enabled_disk_templates if one != DISKLESS]
            raise errors.OpPrereqError(
                "a diskless instance cannot have disks, and diskless is what it gets where no disk"
                " template is named and this one is the first of the cluster. "
                + (
                    f"Name another one: -t {' or -t '.join(enabled)}."
                    if enabled
                    else "The cluster has no other one: see 'gnt-cluster modify"
                    " --enabled-disk-templates'."
                ),
                errors.ECODE_INVAL,
            )
        return []
    if not given:
        raise errors.OpPrereqError(
            f"disk template {template} needs at least one disk", errors.ECODE_INVAL
        )
    if len(given) > MAX_DISKS:
        raise errors.OpPrereqError(
            f"an instance has at most {MAX_DISKS} disks, not {len(given)}", errors.ECODE_INVAL
        )
    planned = [
        plan_disk(config, template, f"disk {index}", spec) for index, spec in enumerate(given)
    ]
    require_unique_names([spec["name"] for spec in planned])
    adopted = [bool(spec.get("adopt")) for spec in planned]
    if any(adopted) and not all(adopted):
        raise errors.OpPrereqError(
            "either all disks of an instance are adopted or none", errors.ECODE_INVAL
        )
    return planned


def require_unique_names(names: Sequence[str | None], what: str = "disks") -> None:
    """Check that the names of disks, as far as they have names, differ.

    :param what: the objects, in the plural, for the error message.
    :raises errors.OpPrereqError: two have the same name.
    """
    given = [name for name in names if name]
    for name in given:
        if given.count(name) > 1:
            raise errors.OpPrereqError(f"two {what} are named {name!r}", errors.ECODE_NOTUNIQUE)


def use_group(
    config: Config, planned: Sequence[DiskSpec], given: Sequence[Mapping[str, Any]], node_uuid: str
) -> None:
    """Complete the specs of the DRBD disks of a new instance when its primary node is known.

    :param planned: the result of :func:`plan_disks` for ``given``; is changed.
    """
    for spec, asked in zip(planned, given, strict=True):
        if spec.get("metavg") and not asked.get("metavg"):
            spec["metavg"] = _default_metavg(config, node_uuid) or spec["vg"]


def _default_metavg(config: Config, node_uuid: str | None) -> str | None:
    """Return the volume group for metadata of DRBD: of the group of the node, else of the
    cluster.
    """
    data = config.snapshot()
    if node_uuid is None:
        return fill.own_metavg(data.cluster)
    return fill.metavg(data.cluster, data.nodegroups[data.nodes[node_uuid].group])


def plan_disk(
    config: Config,
    template: str,
    what: str,
    spec: Mapping[str, Any],
    *,
    node_uuid: str | None = None,
) -> DiskSpec:
    """Check and complete the spec of one disk.

    :param what: the disk, for error messages.
    :param node_uuid: the primary node; None if it is not known yet, see :func:`use_group`.
    :raises errors.OpPrereqError: the spec is wrong, or does not fit the template.
    """
    access = spec.get("access")
    if access in _MODE_LETTERS:
        spec = {**{k: v for k, v in spec.items() if k != "access"}, "mode": _MODE_LETTERS[access]}
    _require_known(template, what, spec)
    size = spec.get("size")
    if size == VALUE_AUTO:
        size = config.cluster().ipolicy["std"]["disk-size"]
    planned: DiskSpec = {
        "size": 0 if spec.get("adopt") else checked_size(what, size),
        "mode": checked_mode(what, spec.get("mode") or RDWR),
        "name": devices.checked_name(what, spec.get("name")),
    }
    require_possible(template, what, planned["size"])
    if template in MUST_ADOPT and not spec.get("adopt"):
        raise errors.OpPrereqError(
            f"{what}: disks of template {template} must be adopted. Name the device with adopt=.",
            errors.ECODE_INVAL,
        )
    if spec.get("adopt") is not None:
        planned["adopt"] = spec["adopt"]
    if spec.get("access") is not None:
        planned["access"] = spec["access"]
    if spec.get("spindles") is not None:
        planned["spindles"] = spec["spindles"]
    if planned.get("access") not in (None, *DISK_ACCESS_MODES):
        raise errors.OpPrereqError(
            f"{what}: access {planned['access']!r} is not one of {', '.join(DISK_ACCESS_MODES)}",
            errors.ECODE_INVAL,
        )
    if template in LVM_BASED:
        group = spec.get("vg") or config.cluster().volume_group_name
        if not group:
            raise errors.OpPrereqError(
                f"{what}: the cluster has no volume group for disks of template {template}",
                errors.ECODE_STATE,
            )
        planned["vg"] = group
    if template in HAVE_METAVG:
        default = _default_metavg(config, node_uuid) or planned["vg"]
        planned["metavg"] = spec.get("metavg") or default
    if template in HAVE_PROVIDER:
        if not spec.get("provider"):
            raise errors.OpPrereqError(
                f"{what}: disks of template {template} need a provider", errors.ECODE_INVAL
            )
        planned["provider"] = str(spec["provider"])
        planned["params"] = {k: v for k, v in spec.items() if k not in _KNOWN}
        os.require_variables(planned["params"], f"{what}: parameter")
    return planned


def require_possible(template: str, what: str, size_mib: int) -> None:
    """Check that a new disk is not larger than the disks of its template can be.

    :param what: the disk, for error messages.
    :raises errors.OpPrereqError: it is larger.
    """
    largest = disk_templates.of(template).largest_mib
    if largest is not None and size_mib > largest:
        raise errors.OpPrereqError(
            f"{what}: a disk of template {template} has at most {text.format_unit(largest)}, not"
            f" {text.format_unit(size_mib)}",
            errors.ECODE_INVAL,
        )


def _require_known(template: str, what: str, spec: Mapping[str, Any]) -> None:
    unknown = [] if template in HAVE_PROVIDER else sorted(set(spec) - _KNOWN)
    if unknown:
        raise errors.OpPrereqError(
            f"{what}: unknown parameter {', '.join(unknown)}.{suggest.hint(unknown[0], _KNOWN)}",
            errors.ECODE_INVAL,
        )
    foreign = [
        key
        for key, kinds in _FOREIGN.items()
        if spec.get(key) is not None and template not in kinds
    ]
    if foreign:
        raise errors.OpPrereqError(
            f"{what}: disks of template {template} have no parameter {', '.join(foreign)}",
            errors.ECODE_INVAL,
        )


def checked_size(what: str, size: Any) -> int:
    """Check the size which a user asks for: a number of MiB, or a text with a unit.

    It is rounded up as the commands round it, so that every way leads to the same disk.

    :returns: MiB, a multiple of 4.
    :raises errors.OpPrereqError: the size is something else, or less than 1 MiB.
    """
    try:
        size_mib = text.parse_unit(size)
    except errors.UnitParseError:
        raise errors.OpPrereqError(
            f"{what}: {size!r} is not a size in MiB", errors.ECODE_INVAL
        ) from None
    if size_mib < 1:
        raise errors.OpPrereqError(
            f"{what}: the size must be at least 1 MiB, not {size_mib}", errors.ECODE_INVAL
        )
    return size_mib


def checked_mode(what: str, mode: Any) -> str:
    """Check the access mode of a disk: ``ro`` or ``rw``.

    :raises errors.OpPrereqError: the mode is something else.
    """
    if mode not in ACCESS_MODES:
        raise errors.OpPrereqError(
            f"{what}: access mode {mode!r} is not one of {', '.join(ACCESS_MODES)}",
            errors.ECODE_INVAL,
        )
    return str(mode)


def file_directory(config: Config, template: str, below: str | None, instance_name: str) -> str:
    """Return the directory for the disk files of an instance.

    :param below: directory between the cluster's directory and the one of the instance.
    :raises errors.OpPrereqError: the cluster has no such directory, or ``below`` leaves it.
    """
    cluster = config.cluster()
    base = cluster.disk_directory(template)
    if not base:
        raise errors.OpPrereqError(
            f"the cluster has no directory for disks of template {template}", errors.ECODE_INVAL
        )
    if below is not None:
        joined = posixpath.normpath(posixpath.join(base, below))
        if posixpath.isabs(below) or not joined.startswith(base.rstrip("/") + "/"):
            raise errors.OpPrereqError(
                f"file storage directory {below!r} is not a relative path below {base}",
                errors.ECODE_INVAL,
            )
        base = joined
    return posixpath.join(base, instance_name)


# -- objects ---------------------------------------------------------------------


def make_disks(
    config: Config,
    template: str,
    planned: Sequence[Mapping[str, Any]],
    *,
    primary_node: str,
    secondary_node: str | None = None,
    directory: str | None = None,
    driver: str | None = None,
    first_index: int = 0,
) -> list[Disk]:
    """Make the objects of new disks; reserves names, allocates ports and minors.

    :param planned: specs as :func:`plan_disk` returns them.
    :param primary_node: UUID of the primary node.
    :param secondary_node: UUID of the node with the second replica of DRBD disks.
    :param directory: directory of disk files, see :func:`file_directory`.
    :param driver: file driver of disk files; None for ``loop``.
    :param first_index: number of the first disk in the instance.
    :raises errors.OpPrereqError: the name of a logical volume is in use.
    """
    now = clock.now()
    disks = []
    for index, spec in enumerate(planned, first_index):
        values: dict[str, Any] = {
            "dev_type": template,
            "iv_name": f"disk/{index}",
            "size": spec["size"],
            "mode": spec["mode"],
            "name": spec["name"],
            "spindles": spec.get("spindles"),
            "uuid": config.new_uuid(),
            "ctime": now,
            "mtime": now,
            "serial_no": 1,
        }
        if template == DRBD8:
            assert secondary_node is not None
            values |= _mirror(config, spec, index, primary_node, secondary_node)
        else:
            values["logical_id"] = _identity(config, template, spec, index, directory, driver)
            # Shared storage belongs to no node.
            values["nodes"] = () if template in MIRRORED else (primary_node,)
        params = dict(spec.get("params") or {})
        if spec.get("access"):
            params["access"] = spec["access"]
        if params:
            values["params"] = params
        disks.append(Disk(**values))
    return disks


def renewed(config: Config, disk: Disk, index: int, nodes: tuple[str, ...]) -> Disk:
    """Return a lost disk under new names, which has nothing in common with its old storage.

    If the old storage comes back, nothing of it is taken for the new disk: a mirrored disk has a
    new secret, too. Its port stays, and on the same nodes its minors.

    :param nodes: UUIDs of its new nodes, the primary node first; empty when it stays on its nodes.
    """
    values: dict[str, Any] = {"outdated_node": None, "outdated_since": None, "in_sync_at": None}
    values |= {"never_alone": None, "unwiped_from": None}
    if disk.has_replicas:
        data, meta = disk.children
        present = disk.drbd_id
        minors = tuple(present.minors.values())
        if nodes:
            minors = tuple(config.allocate_minors(nodes))
        where = nodes or present.nodes
        groups = data.volume_id.group, meta.volume_id.group
        spec = {"vg": groups[0], "metavg": groups[1], "size": disk.size}
        values |= {
            "logical_id": (*where, present.port, *minors, new_secret()),
            "children": mirror_children(config, spec, index, where),
            "nodes": where,
        }
        return dataclasses.replace(disk, **values)
    first, second = disk.logical_id
    spec = {"vg": first, "provider": first}
    directory = posixpath.dirname(str(second))
    values["logical_id"] = _identity(config, disk.dev_type, spec, index, directory, str(first))
    if disk.nodes and nodes:
        values["nodes"] = nodes[:1]
    return dataclasses.replace(disk, **values)


def _identity(
    config: Config,
    template: str,
    spec: Mapping[str, Any],
    index: int,
    directory: str | None,
    driver: str | None,
) -> tuple[Any, ...]:
    """Return the ``logical_id`` of a device which is not a DRBD device."""
    request = IdRequest(
        template,
        lambda: config.new_uuid(),
        index,
        spec,
        directory,
        driver or FILE_DRIVER_LOOP,
    )
    made = disk_templates.of(template).new_id(request)
    if template in LVM_BASED:
        reserve_volume(config, *made)
    return made


def reserve_volume(config: Config, group: str, volume: str) -> None:
    """Reserve the name of a logical volume for this run of the unit.

    :raises errors.OpPrereqError: another disk has the name.
    """
    try:
        config.reserve_lv(f"{group}/{volume}")
    except errors.ReservationError as err:
        raise errors.OpPrereqError(
            f"logical volume {group}/{volume} is already in use by an instance",
            errors.ECODE_NOTUNIQUE,
        ) from err


def mirror_children(
    config: Config, spec: Mapping[str, Any], index: int, nodes: tuple[str, ...]
) -> tuple[Disk, ...]:
    """Make the two volumes of a DRBD disk: data and metadata; reserves their names.

    :raises errors.OpPrereqError: the name of a volume is in use.
    """
    stem = config.new_uuid()
    metadata_mib = disk_templates.metadata_mib(DRBD8, spec["size"])
    parts = (
        (spec["vg"], f"{stem}.disk{index}_data", spec["size"]),
        (spec["metavg"], f"{stem}.disk{index}_meta", metadata_mib),
    )
    for group, volume, _size in parts:
        reserve_volume(config, group, volume)
    return tuple(
        Disk(dev_type=PLAIN, logical_id=(group, volume), size=size, nodes=nodes)
        for group, volume, size in parts
    )


def with_other_replica(disk: Disk, nodes: tuple[str, str], new: str, minor: int) -> Disk:
    """Return a mirrored disk one replica of which moves to another node.

    The replica which stays keeps its place: DRBD 9 has written it into the metadata of the replica.
    With a new secret the replica which was left can never connect by mistake.

    :param nodes: UUIDs of the primary and secondary node from now on.
    :param new: the one of them which gets the other replica.
    :param minor: on the new node.
    """
    ident = disk.drbd_id._replace(secret=new_secret())
    if ident.node_a in nodes:
        ident = ident._replace(node_b=new, minor_b=minor)
    else:
        ident = ident._replace(node_a=new, minor_a=minor)
    children = tuple(dataclasses.replace(child, nodes=nodes) for child in disk.children)
    return dataclasses.replace(disk, logical_id=tuple(ident), children=children, nodes=nodes)


def _mirror(
    config: Config, spec: Mapping[str, Any], index: int, primary: str, secondary: str
) -> dict[str, Any]:
    nodes = (primary, secondary)
    minors = config.allocate_minors(nodes)
    port = config.reserve_port()
    return {
        "logical_id": (*nodes, port, *minors, new_secret()),
        "children": mirror_children(config, spec, index, nodes),
        "nodes": nodes,
    }


def with_new_metadata(disk: Disk) -> Disk:
    """Return a disk with metadata as large as they are when its storage is made again."""
    metadata = disk.metadata_device
    if metadata is None:
        return disk
    size_mib = disk_templates.metadata_mib(disk.dev_type, disk.size)
    return dataclasses.replace(
        disk, children=(disk.data_device, dataclasses.replace(metadata, size=size_mib))
    )


def new_secret() -> str:
    """Make the secret with which the two replicas of a DRBD disk authenticate each other."""
    return secrets.token_hex(DRBD_SECRET_LENGTH)


def as_given(disk: Disk, *, as_before: bool) -> dict[str, Any]:
    """Return the spec with which a user would get a disk like this one.

    :param as_before: False when it becomes a disk of another template, which has other parameters.
    """
    spec: dict[str, Any] = {"size": disk.size, "mode": disk.mode, "name": disk.name or "none"}
    if not as_before:
        return spec
    params = dict(disk.params or {})
    access = params.pop("access", None)
    if access and disk.dev_type in HAVE_ACCESS:
        spec["access"] = access
    if disk.spindles is not None:
        spec["spindles"] = disk.spindles
    volumes = [part.volume_id.group for part in disk.walk() if part.is_volume]
    if disk.dev_type in LVM_BASED and volumes:
        spec["vg"] = volumes[0]
    if disk.dev_type in HAVE_METAVG and len(volumes) > 1:
        spec["metavg"] = volumes[1]
    if disk.dev_type in HAVE_PROVIDER:
        spec |= {**params, "provider": disk.ext_id.provider}
    return spec


def resized(disk: Disk, size_mib: int) -> Disk:
    """Return a disk with another size; of a DRBD disk the data volume gets the size, too."""
    children = disk.children
    if disk.has_replicas and children:
        children = (dataclasses.replace(children[0], size=size_mib), *children[1:])
    return dataclasses.replace(disk, size=size_mib, children=children)
