"""The record of a guest which another program has started, such as the original Ganeti.

A cluster which is taken over has guests whose domains run, and of which this node has no record; or
it has one of an earlier time, when the guest was started here. A record is valid for the domain
with its UUID. Where there is none, it is made from the configuration of the instance, and from what
Xen says of the domain: which disks and NICs the guest has, their names in it, memory and
processors.

A domain is adopted only if it has a device of the instance, and none which the instance does not
have: its disks are those of the instance on this node, and its NICs have the same MAC addresses.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace

from ganeti import errors, storage
from ganeti.constants import hv
from ganeti.hypervisor import guest_errors
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.xen import record, xl
from ganeti.hypervisor.xen.parse import Domain, LongDomain
from ganeti.hypervisor.xen.record import Record, RecordedDisk, RecordedNic
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths

_TYPES = {hv.XEN_PVM: ("pv", "pvh"), hv.XEN_HVM: ("hvm",)}


def record_of(instance: FilledInstance, domain: Domain) -> Record:
    """Return the record of a guest which runs as a domain; one that was made for it is written.

    The caller holds the lock of the guest.

    :raises HypervisorError: there is none, and the domain is not that of the instance, or has a
        device which the instance does not have any more; or Xen does not tell.
    """
    found = xl.long_domains().get(domain.id)
    known = record.find(instance.name)
    if found is None:
        raise guest_errors.not_running(instance.name)
    if known is not None and known.uuid == instance.uuid:
        if found.uuid in ("", known.domain_uuid or known.uuid):
            return known
    adopted = of_domain(instance, found, domain)
    record.save(adopted)
    logging.info(
        "instance %s: domain %d was not started by this program, and is managed by it now",
        instance.name,
        domain.id,
    )
    return adopted


def of_domain(instance: FilledInstance, found: LongDomain, domain: Domain) -> Record:
    """Make the record of a domain which another program has started.

    :raises HypervisorError: the domain is not that of the instance, or has a device which the
        instance does not have any more.
    """
    own = record.of_instance(instance, list(_attached(instance)), state=record.COMPLETE)
    by_device = {os.path.realpath(one.path): one for one in own.disks}
    by_mac = {str(one.nic.get("mac")).lower(): one for one in own.nics}
    disks, nics, strange = [], [], []
    for disk in found.disks:
        mine = by_device.get(os.path.realpath(disk.path))
        if mine is not None:
            disks.append(replace(mine, vdev=disk.vdev))
        elif not disk.is_cdrom:
            strange.append(f"disk {disk.path}")
    for nic in found.nics:
        same = by_mac.get(nic.mac.lower())
        if same is not None:
            nics.append(replace(same, devid=nic.devid))
        else:
            strange.append(f"a NIC with the address {nic.mac}")
    _require_same(instance, found, disks, nics, strange)
    hvparams = dict(own.hvparams)
    if instance.hypervisor == hv.XEN_PVM:
        hvparams["type"] = found.type
    return replace(
        own,
        domain_uuid=found.uuid,
        hvparams=hvparams,
        memory_mib=max(-(-found.max_memory_kib // 1024), domain.memory_mib),
        vcpus=domain.vcpus,
        disks=tuple(disks),
        nics=tuple(nics),
    )


def _attached(instance: FilledInstance) -> Iterator[AttachedDisk]:
    """Yield the disks of the instance with their devices on this node.

    :raises HypervisorError: the device of a disk is not known.
    """
    for index, disk in enumerate(instance.disks_info):
        link = paths.current().instance_disk_link(instance.name, index)
        try:
            path = storage.device(disk).path
        except errors.BlockDeviceError as err:
            raise errors.HypervisorError(f"instance {instance.name}: {err}") from err
        yield AttachedDisk(disk, link if os.path.realpath(link) == os.path.realpath(path) else path)


def _require_same(
    instance: FilledInstance,
    found: LongDomain,
    disks: list[RecordedDisk],
    nics: list[RecordedNic],
    strange: list[str],
) -> None:
    """Check that a domain is that of the instance.

    :param strange: the devices of the domain which the instance does not have.
    :raises HypervisorError: it is not.
    """
    what = f"domain {found.id} has the name of instance {instance.name}"
    if found.type not in _TYPES[instance.hypervisor]:
        raise errors.HypervisorError(
            f"{what}, which has the hypervisor {instance.hypervisor}, and has the type"
            f" '{found.type}'"
        )
    if not disks and not nics:
        raise errors.HypervisorError(
            f"{what}, and is not this instance: it has none of its disks and NICs (its UUID is"
            f" {found.uuid}). If it is not needed, end it with 'xl destroy {found.id}'."
        )
    if strange:
        raise errors.HypervisorError(
            f"instance {instance.name} was not started by this program, and runs with"
            f" {' and '.join(strange)}, which it does not have in the configuration. Stop it and"
            " start it again."
        )
