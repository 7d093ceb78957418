"""The opcode which creates the copy of an instance: what is as before, and what is new.

Parameters, labels of devices and tags are those of the source. Addresses are new: each NIC gets a
new MAC address, and the first free IP address of its network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.ops.disks import specs
from ganeti.cmdlib.ops.nics import communication
from ganeti.constants.disk import DISKLESS, MIXED
from ganeti.constants.instance import CREATE
from ganeti.constants.net import (
    NIC_IP_POOL,
    NIC_MODE_ROUTED,
    NIC_PARAM_TYPES,
    VALUE_AUTO,
    VALUE_NONE,
)
from ganeti.objects import fill, snapshots
from ganeti.objects.disk_templates import LVM_BASED, MUST_ADOPT
from ganeti.opcodes.base import COMMON_PARAMS
from ganeti.opcodes.instance import OpInstanceCreate

if TYPE_CHECKING:
    from ganeti.cmdlib.base import JobLog
    from ganeti.config import Config
    from ganeti.objects import Disk, Instance, Nic
    from ganeti.opcodes.instance import OpInstanceCopy

#: Parameters which both opcodes have, with the same meaning.
_SAME = (
    "pnode",
    "pnode_uuid",
    "snode",
    "snode_uuid",
    "iallocator",
    "group_name",
    "file_driver",
    "file_storage_dir",
    "wait_for_sync",
    "name_check",
    "exact_name",
    "ip_check",
    "conflicts_check",
    "ignore_ipolicy",
    "compress",
    "start",
    "explain",
    *COMMON_PARAMS,
)


def creation(config: Config, op: OpInstanceCopy, source: Instance) -> OpInstanceCreate:
    """Return the opcode which creates the copy, with the sizes of disks that are recorded.

    :raises errors.OpPrereqError: what is asked for does not fit the source.
    """
    template = _template(config, op, source)
    talks = any(nic.name == communication.nic_name(source.name) for nic in source.nics)
    return OpInstanceCreate(
        instance_name=op.new_name,
        mode=CREATE,
        os_type=source.os or None,
        force_variant=True,
        hypervisor=source.hypervisor,
        hvparams=dict(source.hvparams),
        beparams=dict(source.beparams),
        osparams=dict(source.osparams),
        osparams_private=source.osparams_private,
        tags=[tag for tag in source.tags if not tag.startswith(snapshots.RESTORE_TAG)],
        disk_template=template,
        disks=disk_specs(config, op, template, config.instance_disks(source)),
        nics=_nic_specs(config, op, source),
        instance_communication=talks,
        no_install=False,
        **{name: getattr(op, name) for name in _SAME},
    )


def _template(config: Config, op: OpInstanceCopy, source: Instance) -> str:
    template = config.disk_template(source)
    if op.disk_template is not None:
        if (template == DISKLESS) != (op.disk_template == DISKLESS):
            has = "no disks" if template == DISKLESS else "disks"
            raise errors.OpPrereqError(
                f"instance {source.name} has {has}, so its copy cannot have disk template"
                f" {op.disk_template}",
                errors.ECODE_INVAL,
            )
        return op.disk_template
    if template == MIXED:
        raise errors.OpPrereqError(
            f"the disks of instance {source.name} have different templates. Name the one of the"
            " copy with -t.",
            errors.ECODE_INVAL,
        )
    if template in MUST_ADOPT:
        raise errors.OpPrereqError(
            f"the disks of instance {source.name} have template {template}: the administrator makes"
            " such devices. Name another template for the copy with -t.",
            errors.ECODE_INVAL,
        )
    return template


def disk_specs(
    config: Config, op: OpInstanceCopy, template: str, disks: Sequence[Disk]
) -> list[dict[str, Any]]:
    """Return the specs of the disks of the copy.

    :param template: of the copy.
    :param disks: those of the source, with the sizes of their content.
    :raises errors.OpPrereqError: a disk would be too small, or is not one of the source.
    """
    if len(op.disks) > len(disks):
        raise errors.OpPrereqError(
            f"instance {op.instance_name} has no disk {len(disks)}. Add disks to the copy"
            " afterwards, with 'gnt-instance modify --disk add:size=SIZE'.",
            errors.ECODE_INVAL,
        )
    found = []
    for index, disk in enumerate(disks):
        given = op.disks[index] if index < len(op.disks) else {}
        spec = {**specs.as_given(disk, as_before=disk.dev_type == template), **given}
        if {disk.dev_type, template} <= LVM_BASED:
            spec.setdefault("vg", disk.data_device.volume_id.group)
        size = spec["size"]
        if spec.get("adopt") or (isinstance(size, int) and size < disk.size):
            raise errors.OpPrereqError(
                f"disk {index} of the copy must be a new disk of at least {disk.size} MiB, the size"
                f" of this disk of instance {op.instance_name}",
                errors.ECODE_INVAL,
            )
        found.append(spec)
    return found


def _nic_specs(config: Config, op: OpInstanceCopy, source: Instance) -> list[dict[str, Any]]:
    own = [nic for nic in source.nics if nic.name != communication.nic_name(source.name)]
    count = max(len(own), len(op.nics))
    found = []
    for index in range(count):
        given = op.nics[index] if index < len(op.nics) else {}
        spec = _nic_spec(config, own[index], given) if index < len(own) else {}
        found.append({**spec, **given})
        if index < len(own):
            _require_address(config, source, index, own[index], found[-1])
    return found


def _nic_spec(config: Config, nic: Nic, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a NIC like this one, with new addresses, without those in ``given``."""
    spec: dict[str, Any] = {"mac": VALUE_AUTO}
    if nic.name:
        spec["name"] = nic.name
    if nic.network is None:
        spec |= {key: nic.nicparams[key] for key in NIC_PARAM_TYPES if nic.nicparams.get(key)}
        if "bridge" in given or "network" in given:
            spec = {key: value for key, value in spec.items() if key not in NIC_PARAM_TYPES}
        return spec
    if "network" in given:
        return spec
    spec["network"] = config.network(nic.network).name
    return spec | {key: NIC_IP_POOL for key in ("ip", "ip6") if getattr(nic, key)}


def _require_address(
    config: Config, source: Instance, index: int, nic: Nic, spec: Mapping[str, Any]
) -> None:
    """Check that a routed NIC outside of networks has an address of its own."""
    filled = fill.fill_nic(config.cluster(), nic.nicparams)
    mode = spec.get("mode") or filled["mode"]
    outside = spec.get("network") in (None, "", VALUE_NONE)
    if outside and mode == NIC_MODE_ROUTED and spec.get("ip") in (None, "", VALUE_NONE):
        raise errors.OpPrereqError(
            f"network interface {index} of instance {source.name} is routed and in no network, so"
            f" no address is known for the copy; {nic.ip} stays with {source.name}. Give one with"
            f" --net {index}:ip=ADDRESS.",
            errors.ECODE_INVAL,
        )


def note_addresses(log: JobLog, source: Instance, op: OpInstanceCreate) -> None:
    """Write to the job log which NICs of the copy have no address, although those before had."""
    for index, (nic, spec) in enumerate(zip(source.nics, op.nics, strict=False)):
        if nic.ip and not spec.get("ip"):
            log.info(
                f"network interface {index} of {op.instance_name} gets no address: {nic.ip} is in"
                f" no network of the cluster, and stays with {source.name}"
            )
