"""The hardware of a guest which another node sends: the only facts which its target takes over.

The source of a migration sends its runtime file. Any node may be the source, and the target runs
QEMU as root, so the target obeys no word of that file: it makes the command line from the
parameters, disks and NICs which the master sent, and reads from the file only which hardware the
guest sees. Each of these facts has a strict form, and none names a file, a program or a network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.kvm import accelerator, argv, buses, runtime
from ganeti.objects.hypervisors import parameter
from ganeti.objects.hypervisors.kvm import KVM
from ganeti.objects.instance import FilledInstance

# Parameters which decide what hardware the guest sees. Those with a text of any form have a
# pattern, which excludes paths and further options.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*|")
_NAMES = re.compile(r"[A-Za-z0-9 _.-]*")
_PROCESSOR = re.compile(r"[A-Za-z0-9_.,+=:-]*")
_PARAMETERS: Mapping[str, re.Pattern[str] | None] = {
    "acpi": None,
    "cdrom_disk_type": None,
    "cpu_cores": None,
    "cpu_sockets": None,
    "cpu_threads": None,
    "cpu_type": _PROCESSOR,
    "disk_type": None,
    "firmware": None,
    "kvm_pci_reservations": None,
    "nic_type": None,
    "scsi_controller_type": None,
    "serial_console": None,
    "soundhw": _NAME,
    "spice_use_vdagent": None,
    "tpm_version": None,
    "usb_devices": _NAMES,
    "usb_mouse": None,
    "use_guest_agent": None,
    "vga": _NAME,
    "vhost_net": None,
    "virtio_net_queues": None,
    "vnet_hdr": None,
}
_TYPES: Mapping[str, type] = {parameter.BOOL: bool, parameter.INT: int, parameter.STRING: str}
# Drives whose medium is a file of the node.
_DRIVES = (*buses.CDROMS, "floppy_image_path")
_BUS = re.compile(r"pci\.0|pcie\.0|scsi\.0|hotplug[0-7]")
_ADDRESS = re.compile(r"0x[0-9a-f]{1,2}(\.[0-7])?")
_MAX_MEMORY_MIB = 1 << 30
_MAX_VCPUS = 4096
_MAX_SCSI = 255


@dataclass(frozen=True, slots=True)
class IncomingGuest:
    """A guest as this node runs it: its configuration, with the hardware which it has already.

    :ivar instance: the parameters, with the facts about the hardware of the guest.
    :ivar machine: its machine type.
    :ivar accelerator: ``kvm`` or ``tcg``; None when the source does not say which.
    """

    instance: FilledInstance
    machine: str
    accelerator: str | None
    nics: tuple[dict[str, Any], ...]
    disks: tuple[runtime.RuntimeDisk, ...]

    def runtime(
        self, command_of: Callable[[FilledInstance], Sequence[str]], accelerator_here: str
    ) -> runtime.Runtime:
        """Return the runtime record of the guest on this node.

        :param command_of: makes the command line of an instance.
        :param accelerator_here: what a guest of an unknown accelerator gets.
        """
        used = self.accelerator or accelerator_here
        hardware = {
            "machine_version": self.machine,
            "kvm_flag": "enabled" if used == accelerator.KVM else "disabled",
        }
        params = dict(self.instance.hvparams)
        command = command_of(replace(self.instance, hvparams={**params, **hardware}))
        return runtime.Runtime(tuple(command), self.nics, params, self.disks)


def adopt(
    sent: runtime.Runtime, instance: FilledInstance, disks: Sequence[AttachedDisk]
) -> IncomingGuest:
    """Join the configuration of an instance with the hardware which its guest has.

    :param sent: the runtime file of the source.
    :param instance: the instance as the master sent it.
    :param disks: the disks of the instance, attached on this node.
    :raises HypervisorError: a fact has not the form of a fact about hardware, or the guest has
        hardware which the configuration cannot explain.
    """
    name = instance.name
    if len(disks) != len(sent.disks):
        raise errors.HypervisorError(
            f"instance {name} runs with {len(sent.disks)} disks, but has "
            f"{len(disks)} in the configuration. Reboot it before it is migrated."
        )
    params = {**instance.hvparams, **_hardware_params(sent.hvparams, instance)}
    machine, used = _machine(sent, instance)
    backend = {
        **instance.beparams,
        "maxmem": _count(sent, "-m", name, _MAX_MEMORY_MIB),
        "vcpus": _count(sent, "-smp", name, _MAX_VCPUS),
    }
    return IncomingGuest(
        replace(instance, hvparams=params, beparams=backend),
        machine,
        used,
        _nics(sent, instance),
        _disks(sent, instance, disks),
    )


def _odd(name: str, what: str, value: object) -> errors.HypervisorError:
    return errors.HypervisorError(
        f"the source of the migration of instance {name} reports {what} {value!r:.80}, which is no"
        " fact about hardware. The instance was not accepted."
    )


def _differs(name: str, what: str) -> errors.HypervisorError:
    return errors.HypervisorError(
        f"instance {name} runs with {what} than its configuration says, so this node cannot give"
        " it the same hardware. Restore the configuration, or stop the instance and start it again."
    )


def _hardware_params(sent: Mapping[str, Any], instance: FilledInstance) -> dict[str, Any]:
    """Return the parameters of the hardware with which the guest was started."""
    own = instance.hvparams
    found = {
        # A parameter which the source does not know did not exist when the guest was started.
        key: _checked(key, sent[key], own.get(key), pattern, instance.name)
        for key, pattern in _PARAMETERS.items()
        if key in sent
    }
    if "kvm_extra" in sent and (sent["kvm_extra"] or "") != (own.get("kvm_extra") or ""):
        raise _differs(instance.name, "another value of the parameter kvm_extra")
    for drive in _DRIVES:
        if not sent.get(drive):
            found[drive] = ""
        elif not own.get(drive):
            found[drive] = argv.EMPTY_MEDIUM
    return found | _display(sent, own, found, instance.name)


def _display(
    sent: Mapping[str, Any], own: Mapping[str, Any], found: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """Return the parameters of the display; it decides which pointer device the guest has."""
    result = {}
    has_vnc = bool(sent.get("vnc_bind_address"))
    has_spice = bool(sent.get("spice_bind")) and not has_vnc
    if has_spice and not own.get("spice_bind"):
        raise _differs(name, "another value of the parameter spice_bind")
    if not has_spice:
        result["spice_bind"] = ""
    if not has_vnc:
        result["vnc_bind_address"] = ""
    elif not own.get("vnc_bind_address"):
        result["usb_mouse"] = found.get("usb_mouse", own.get("usb_mouse")) or "tablet"
    return result


def _checked(
    key: str, value: object, own: object, pattern: re.Pattern[str] | None, name: str
) -> object:
    if value is None:
        value = own
    if type(value) is type(own) and value == own:
        return own
    row = KVM.parameters[key]
    if type(value) is not _TYPES[row.type] or row.problem(value):
        raise _odd(name, key, value)
    if pattern is not None and (not isinstance(value, str) or not pattern.fullmatch(value)):
        raise _odd(name, key, value)
    return value


def _machine(sent: runtime.Runtime, instance: FilledInstance) -> tuple[str, str | None]:
    """Return the machine type and the accelerator of the guest; the latter may be unknown."""
    words = next(
        (values[0] for option in ("-machine", "-M") if (values := runtime.values_of(sent, option))),
        "",
    )
    kinds, used = [], None
    for word in words.split(","):
        if word.startswith("accel="):
            used = word.removeprefix("accel=")
        # The parameter acpi says this, too.
        elif word != "acpi=off":
            kinds.append(word)
    machine = ",".join(kinds)
    if used is None and "-enable-kvm" in sent.argv:
        used = accelerator.KVM
    own = instance.hvparams.get("machine_version")
    if not machine or not (machine == own or _NAME.fullmatch(machine)):
        raise _odd(instance.name, "the machine type", words)
    if used not in (None, accelerator.KVM, accelerator.TCG):
        raise _odd(instance.name, "the accelerator", used)
    return machine, used


def _count(sent: runtime.Runtime, option: str, name: str, limit: int) -> int:
    text = next(iter(runtime.values_of(sent, option)), "").partition(",")[0]
    if not (text.isascii() and text.isdigit() and len(text) < 12 and 0 < int(text) <= limit):
        raise _odd(name, option, text)
    return int(text)


def _place(info: Mapping[str, Any], kind: str, uuid: str, name: str) -> dict[str, Any]:
    """Return the ``hvinfo`` of a device: its driver and its address in the guest."""
    result: dict[str, Any] = {"driver": info["driver"], "id": buses.device_id(kind, uuid)}
    for key, pattern in (("bus", _BUS), ("addr", _ADDRESS)):
        if key in info:
            value = info[key]
            if not (isinstance(value, str) and pattern.fullmatch(value)):
                raise _odd(name, f"{key} of {kind} {uuid}:", value)
            result[key] = value
    for key in ("channel", "scsi-id", "lun"):
        if key in info:
            value = info[key]
            if type(value) is not int or not 0 <= value <= _MAX_SCSI:
                raise _odd(name, f"{key} of {kind} {uuid}:", value)
            result[key] = value
    return result


def _nics(sent: runtime.Runtime, instance: FilledInstance) -> tuple[dict[str, Any], ...]:
    """Return the NICs of the guest in its order, connected as the configuration says."""
    own = {nic.uuid: nic for nic in instance.nics}
    found = []
    for sent_nic in sent.nics:
        uuid = sent_nic.get("uuid") or ""
        nic = own.pop(uuid, None)
        if nic is None:
            raise errors.HypervisorError(
                f"instance {instance.name} runs with NIC {uuid or 'without UUID':.80}, which it"
                " does not have in the configuration. Stop it and start it again."
            )
        info = sent_nic["hvinfo"]
        if info["driver"] not in buses.NIC_DRIVERS:
            raise _odd(instance.name, f"driver of NIC {nic.mac}:", info["driver"])
        found.append(runtime.device_dict(nic, _place(info, "nic", nic.uuid, instance.name)))
    return tuple(found)


def _disks(
    sent: runtime.Runtime, instance: FilledInstance, disks: Sequence[AttachedDisk]
) -> tuple[runtime.RuntimeDisk, ...]:
    """Return the disks of the guest in its order, opened as the configuration says."""
    attached = {one.disk.uuid: one.disk for one in disks}
    found = []
    for here in runtime.matching_disks(sent, instance.name, disks):
        disk = attached[here.disk["uuid"]]
        info = here.hvinfo
        driver = info["driver"]
        # Some drivers let the guest send commands to the device itself.
        if driver not in buses.DISK_DRIVERS and driver != instance.hvparams["disk_type"]:
            raise _odd(instance.name, f"driver of {disk.title}:", driver)
        read_only = disk_constants.RDONLY
        if (here.disk.get("mode") == read_only) != (disk.mode == read_only):
            raise _differs(instance.name, f"another access mode of {disk.title}")
        place = _place(info, "disk", disk.uuid, instance.name)
        found.append(replace(here, disk=runtime.device_dict(disk, place)))
    return tuple(found)
