"""The addresses of a guest's devices: slots and addresses on its buses, each given out once.

The runtime file keeps them, so that a device has the same address after a migration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.objects.disk import Disk
from ganeti.objects.instance import Nic

PCI_SLOTS = 32
SCSI_SLOTS = hv.KVM_SCSI_SLOTS
#: One for each function of a slot.
HOTPLUG_PORTS = 8
CDROM_SCSI_IDS = (6, 5)
CDROMS = ("cdrom_image_path", "cdrom2_image_path")
SCSI_TYPES = frozenset(("scsi", *hv.KVM_SCSI_DEVICE_TYPES))
CDROM_SCSI_TYPES = frozenset(("scsi", "scsi-cd"))
_DISK_DRIVERS = {"paravirtual": "virtio-blk-pci", "ide": "ide-hd", "scsi": "scsi-hd"}
_NIC_DRIVERS = {"paravirtual": "virtio-net-pci"}
#: The devices which disks and NICs can be; without those which pass SCSI commands to the disk.
DISK_DRIVERS = frozenset((*_DISK_DRIVERS.values(), "scsi-cd"))
NIC_DRIVERS = frozenset((*_NIC_DRIVERS.values(), *hv.KVM_NIC_TYPES)) - set(_NIC_DRIVERS)
#: Flash and SD memory, for which the machine types of virtual servers have no controller.
UNSUPPORTED_DISK_TYPES = frozenset(("mtd", "pflash", "sd"))


def device_id(kind: str, uuid: str) -> str:
    """Return the id of a device in QEMU: the kind, and the UUID without its last two groups.

    :param kind: ``disk`` or ``nic``.
    """
    return f"{kind}-{'-'.join(uuid.split('-')[:3])}"


def is_q35(machine: str) -> bool:
    """Return True if a machine type has PCI Express, whose root bus cannot change while the guest
    runs.
    """
    return "q35" in machine


def hotplug_ports(machine: str, reserved: int) -> list[tuple[str, str]]:
    """Return the ports into which devices can be plugged later, on the last reserved slot.

    :param reserved: number of reserved slots (``kvm_pci_reservations``).
    :returns: (id, address) of each port; none where the machine type needs no ports, or when too
        few slots are reserved.
    """
    if not is_q35(machine) or reserved < 2:
        return []
    return [
        (f"hotplug{number}", f"{reserved - 1:#x}.{number:x}") for number in range(HOTPLUG_PORTS)
    ]


class Bus:
    """The free addresses on the buses of one guest.

    Slots below ``reserved`` are for devices to which QEMU itself gives a slot.

    :param scsi: addresses for SCSI disks.
    """

    def __init__(
        self, machine: str, reserved: int, *, scsi: Sequence[int] = range(SCSI_SLOTS)
    ) -> None:
        # The root bus of a q35 machine has another name, and devices are plugged into ports only.
        self._ports_free = [port for port, _ in hotplug_ports(machine, reserved)]
        self.pci_name = "pcie.0" if is_q35(machine) else "pci.0"
        self._pci_free = list(range(reserved, PCI_SLOTS - 1))
        self._scsi_free = list(scsi)
        self._running = False

    def claim(self, info: Mapping[str, Any]) -> None:
        """Mark the address of a device of a running guest as used.

        From then on, :meth:`pci` gives out only addresses into which a device can be plugged.
        """
        self._running = True
        bus = info.get("bus")
        if bus == self.pci_name and "addr" in info:
            slot = int(str(info["addr"]), 16)
            self._pci_free = [free for free in self._pci_free if free != slot]
        elif bus in self._ports_free:
            self._ports_free.remove(bus)
        elif "scsi-id" in info:
            self._scsi_free = [free for free in self._scsi_free if free != int(info["scsi-id"])]

    def pci(self) -> dict[str, Any]:
        """Bus and address of a new PCI device.

        :raises HypervisorError: all slots are taken.
        """
        if self._running and self.pci_name == "pcie.0":
            if not self._ports_free:
                raise errors.HypervisorError(
                    "the guest has no free PCI Express port. A restart gives all devices slots."
                )
            return {"bus": self._ports_free.pop(0), "addr": "0x0"}
        if not self._pci_free:
            raise errors.HypervisorError(
                "the guest has no free PCI slot. A smaller kvm_pci_reservations leaves more slots."
            )
        return {"bus": self.pci_name, "addr": hex(self._pci_free.pop(0))}

    def scsi(self) -> dict[str, Any]:
        """Bus and address of a new SCSI device.

        :raises HypervisorError: all addresses are taken.
        """
        if not self._scsi_free:
            raise errors.HypervisorError("the guest has no free SCSI address")
        return {"bus": "scsi.0", "channel": 0, "scsi-id": self._scsi_free.pop(0), "lun": 0}


def bus_of(machine: str, hvparams: Mapping[str, Any]) -> Bus:
    """Return the buses of a guest without disks and NICs."""
    small = hvparams.get("scsi_controller_type") in hv.KVM_SMALL_SCSI_CONTROLLERS
    drives = [number for number, _ in enumerate(CDROMS) if hvparams.get(CDROMS[number])]
    taken = {
        CDROM_SCSI_IDS[number] for number in drives if cdrom_type(hvparams) in CDROM_SCSI_TYPES
    }
    return Bus(
        machine,
        int(hvparams.get("kvm_pci_reservations") or 0),
        scsi=[
            slot
            for slot in range(hv.KVM_SMALL_SCSI_SLOTS if small else SCSI_SLOTS)
            if slot not in taken
        ],
    )


def cdrom_type(hvparams: Mapping[str, Any]) -> str:
    """Return the disk type of the CD drives."""
    return str(hvparams.get("cdrom_disk_type") or hvparams["disk_type"])


def disk_hvinfo(disk: Disk, hvparams: Mapping[str, Any], bus: Bus) -> dict[str, Any]:
    """Driver, id and address of a new disk, as the runtime file keeps them (``hvinfo``).

    :raises HypervisorError: the disk type is not supported, or no address is free.
    """
    disk_type = hvparams["disk_type"]
    if disk_type in UNSUPPORTED_DISK_TYPES:
        raise errors.HypervisorError(
            f"disk_type {disk_type}: the machines of guests have no such disks"
        )
    info = {"driver": _DISK_DRIVERS.get(disk_type, disk_type), "id": device_id("disk", disk.uuid)}
    if disk_type in SCSI_TYPES:
        return info | bus.scsi()
    # QEMU itself chooses an address on the IDE controllers.
    return info if disk_type == "ide" else info | bus.pci()


def nic_hvinfo(nic: Nic, hvparams: Mapping[str, Any], bus: Bus) -> dict[str, Any]:
    """Driver, id and address of a new NIC, as the runtime file keeps them (``hvinfo``).

    :raises HypervisorError: no address is free.
    """
    nic_type = hvparams["nic_type"]
    info = {"driver": _NIC_DRIVERS.get(nic_type, nic_type), "id": device_id("nic", nic.uuid)}
    return info if nic_type == "ne2k_isa" else info | bus.pci()
