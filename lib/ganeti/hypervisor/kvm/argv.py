"""Command lines for QEMU; pure functions.

:func:`base_argv` is what the runtime file keeps, :func:`full_argv` adds the devices and what
belongs to one start only. The order of the options is the published one, so that running guests of
other versions look the same in a process list. Values in ``key=value`` lists have their commas
doubled, as QEMU wants.

Source: qemu(1), versions 5.2 to 9; the options a version lacks are chosen by :class:`QemuFacts`.
"""

from __future__ import annotations

import re
import shlex
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import disk as disk_constants
from ganeti.constants import hv, net
from ganeti.hypervisor.kvm import communication
from ganeti.hypervisor.kvm.facts import KVM, TCG, QemuFacts
from ganeti.hypervisor.kvm.runtime import Runtime, RuntimeDisk
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, Nic
from ganeti.wire import json

PCI_SLOTS = 32
SCSI_SLOTS = 16
GLUSTER_PORT = 24007
# A slot has eight functions.
HOTPLUG_PORTS = 8
SOCKET_PATH_MAX_BYTES = 107

_SCSI_TYPES = frozenset(("scsi", *hv.KVM_SCSI_DEVICE_TYPES))
_DISK_DRIVERS = {"paravirtual": "virtio-blk-pci", "ide": "ide-hd", "scsi": "scsi-hd"}
_CDROM_DRIVERS = {"paravirtual": "virtio-blk-pci", "scsi": "scsi-cd", "scsi-cd": "scsi-cd"}
_CDROM_SCSI_TYPES = frozenset(("scsi", "scsi-cd"))
# Controllers of the nineties know eight addresses, one of which is their own.
_SMALL_SCSI_CONTROLLERS = frozenset(("lsi", "dc390"))
_SMALL_SCSI_SLOTS = 7
CDROM_SCSI_IDS = (6, 5)
_CDROMS = ("cdrom_image_path", "cdrom2_image_path")
_NIC_DRIVERS = {"paravirtual": "virtio-net-pci"}
# Flash and memory cards: the machines of virtual servers have no place for them.
UNSUPPORTED_DISK_TYPES = frozenset(("mtd", "pflash", "sd"))

# The interface that the systems of its time know.
_TPM_CARDS = {"1.2": "tpm-tis", hv.KVM_TPM_2: "tpm-crb"}

# hvparam disk_cache -> (write-cache of the device, direct, no-flush).
_CACHE_MODES = {
    "default": ("on", "off", "off"),
    "writeback": ("on", "off", "off"),
    "none": ("on", "on", "off"),
    "writethrough": ("off", "off", "off"),
}


#: Names of disks that belong to the firmware and not to the guest.
UEFI_DISK = "efivars"
TPM_DISK = "tpm"
_PARAMETERS = {UEFI_DISK: "firmware=uefi", TPM_DISK: "tpm_version"}


class Ovmf(NamedTuple):
    """The files of the UEFI firmware on a node."""

    code: str
    variables: str  # the template
    variables_size: int  # bytes


class SpiceFiles(NamedTuple):
    """What SPICE identifies itself with on a node."""

    authority: str = ""
    certificate: str = ""  # with its key


@dataclass(frozen=True, slots=True)
class Layout:
    """Files of one guest on this node."""

    kvm_root: str
    log_dir: str
    name: str
    spice: SpiceFiles = SpiceFiles()

    @property
    def pid_file(self) -> str:
        """Written by QEMU."""
        return f"{self.kvm_root}/pid/{self.name}"

    @property
    def control_dir(self) -> str:
        """Directory of the sockets."""
        return f"{self.kvm_root}/ctrl"

    def socket(self, kind: str) -> str:
        """``monitor``, ``serial``, ``qmp``, ``kvmd`` or ``qga``."""
        return f"{self.control_dir}/{self.name}.{kind}"

    @property
    def runtime_file(self) -> str:
        """See :mod:`ganeti.hypervisor.kvm.runtime`."""
        return f"{self.kvm_root}/conf/{self.name}.runtime"

    @property
    def nic_dir(self) -> str:
        """A file per NIC with the name of its tap interface."""
        return f"{self.kvm_root}/nic/{self.name}"

    @property
    def chroot_dir(self) -> str:
        """Empty directory for ``use_chroot``."""
        return f"{self.kvm_root}/chroot/{self.name}"

    @property
    def uid_file(self) -> str:
        """The user id it runs with, when it was taken from the pool."""
        return f"{self.kvm_root}/uid/{self.name}"

    @property
    def shutdown_file(self) -> str:
        """There when the guest was shut down from inside."""
        return f"{self.control_dir}/{self.name}.shutdown"

    @property
    def tpm_socket(self) -> str:
        """Between QEMU and the TPM."""
        return self.socket("tpm")

    @property
    def tpm_pid_file(self) -> str:
        """Written by the TPM."""
        return f"{self.control_dir}/{self.name}.tpm.pid"

    @property
    def tpm_log_file(self) -> str:
        """The TPM's messages."""
        return f"{self.log_dir}/{self.name}.tpm.log"

    @property
    def log_file(self) -> str:
        """QEMU's own messages."""
        return f"{self.log_dir}/{self.name}.log"

    @property
    def console_log_file(self) -> str:
        """What the guest prints on its serial console (virtual clusters only)."""
        return f"{self.log_dir}/{self.name}.console.log"


def escape(value: str) -> str:
    """A value inside a comma separated list of QEMU."""
    return value.replace(",", ",,")


def _join(options: Iterable[tuple[str, Any]]) -> str:
    return ",".join(f"{key}={escape(str(value))}" for key, value in options)


# Devices: where they are in the guest

def device_id(kind: str, uuid: str) -> str:
    """``disk-`` or ``nic-`` and the UUID without its last two groups."""
    return f"{kind}-{'-'.join(uuid.split('-')[:3])}"


def is_q35(machine: str) -> bool:
    """Whether a machine type has PCI Express, where the root bus cannot change while it runs."""
    return "q35" in machine


def hotplug_ports(machine: str, reserved: int) -> list[tuple[str, str]]:
    """Ports for devices that come later: (id, address), all functions of the last reserved slot.

    Empty where none are needed, or where no slot is reserved that could hold them.
    """
    if not is_q35(machine) or reserved < 2:
        return []
    return [(f"hotplug{number}", f"{reserved - 1:#x}.{number:x}")
            for number in range(HOTPLUG_PORTS)]


class Bus:
    """Free places on the guest's buses; hands out each one once.

    Slots below ``reserved`` are left to the devices to which QEMU gives a slot itself.

    :param scsi: addresses for SCSI disks.
    """

    def __init__(self, machine: str, reserved: int, *, scsi: Sequence[int] = range(SCSI_SLOTS)
                 ) -> None:
        # A q35 machine calls its root bus otherwise, and can only change what is behind a port.
        self._ports_free = [port for port, _ in hotplug_ports(machine, reserved)]
        self.pci_name = "pcie.0" if is_q35(machine) else "pci.0"
        self._pci_free = list(range(reserved, PCI_SLOTS - 1))
        self._scsi_free = list(scsi)
        self._running = False

    def claim(self, info: Mapping[str, Any]) -> None:
        """Take the place of a device of a guest that runs; from now on, places can be plugged."""
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
                    "the guest has no free PCI Express port. A restart gives all devices slots.")
            return {"bus": self._ports_free.pop(0), "addr": "0x0"}
        if not self._pci_free:
            raise errors.HypervisorError(
                "the guest has no free PCI slot. A smaller kvm_pci_reservations makes more room.")
        return {"bus": self.pci_name, "addr": hex(self._pci_free.pop(0))}

    def scsi(self) -> dict[str, Any]:
        """Bus and address of a new SCSI device.

        :raises HypervisorError: all are taken.
        """
        if not self._scsi_free:
            raise errors.HypervisorError("the guest has no free SCSI address")
        return {"bus": "scsi.0", "channel": 0, "scsi-id": self._scsi_free.pop(0), "lun": 0}


def bus_of(machine: str, hvparams: Mapping[str, Any]) -> Bus:
    """The bus of a guest, without any device yet."""
    small = hvparams.get("scsi_controller_type") in _SMALL_SCSI_CONTROLLERS
    drives = [number for number, _ in enumerate(_CDROMS) if hvparams.get(_CDROMS[number])]
    taken = {CDROM_SCSI_IDS[number] for number in drives
             if _cdrom_type(hvparams) in _CDROM_SCSI_TYPES}
    return Bus(machine, int(hvparams.get("kvm_pci_reservations") or 0),
               scsi=[slot for slot in range(_SMALL_SCSI_SLOTS if small else SCSI_SLOTS)
                     if slot not in taken])


def _cdrom_type(hvparams: Mapping[str, Any]) -> str:
    return str(hvparams.get("cdrom_disk_type") or hvparams["disk_type"])


def disk_hvinfo(disk: Disk, hvparams: Mapping[str, Any], bus: Bus) -> dict[str, Any]:
    """Driver, id and place of a disk.

    :raises HypervisorError: the disk type cannot be used, or there is no place left.
    """
    disk_type = hvparams["disk_type"]
    if disk_type in UNSUPPORTED_DISK_TYPES:
        raise errors.HypervisorError(
            f"disk type {disk_type} is no disk of a machine that guests run on here")
    info = {"driver": _DISK_DRIVERS.get(disk_type, disk_type), "id": device_id("disk", disk.uuid)}
    if disk_type in _SCSI_TYPES:
        return info | bus.scsi()
    # QEMU finds a place on the IDE controllers by itself.
    return info if disk_type == "ide" else info | bus.pci()


def nic_hvinfo(nic: Nic, hvparams: Mapping[str, Any], bus: Bus) -> dict[str, Any]:
    """Driver, id and place of a NIC."""
    nic_type = hvparams["nic_type"]
    info = {"driver": _NIC_DRIVERS.get(nic_type, nic_type), "id": device_id("nic", nic.uuid)}
    return info if nic_type == "ne2k_isa" else info | bus.pci()


# Devices: their options

def _place(info: Mapping[str, Any]) -> list[tuple[str, Any]]:
    keys = ("id", "bus", "addr", "channel", "scsi-id", "lun")
    return [(key, info[key]) for key in keys if key in info]


def cache_mode(hvparams: Mapping[str, Any], dev_type: str, *,
               direct_works: bool = True) -> tuple[str, str, str]:
    """(write-cache, direct, no-flush) for a disk.

    A disk that another node may open after a migration must not sit in this node's page cache, so
    externally mirrored ones get no host cache whatever the parameter says.

    :param direct_works: False when the file system refuses unbuffered access, which is tolerable
        only where all nodes share one kernel.
    """
    mode = hvparams["disk_cache"]
    if dev_type in disk_constants.EXT_MIRRORED - {disk_constants.RBD} and direct_works:
        mode = "none"
    if mode not in _CACHE_MODES:
        raise errors.HypervisorError(f"disk_cache '{mode}' is not known")
    return _CACHE_MODES[mode]


class DiskOptions(NamedTuple):
    """What makes a disk: the card in the guest, and the block node behind it."""

    device: list[tuple[str, Any]]
    node: list[tuple[str, Any]]


def disk_options(disk: RuntimeDisk, hvparams: Mapping[str, Any], *, is_block: bool, bootable: bool,
                 direct_works: bool = True) -> DiskOptions:
    """Options of the card and of the block node of one disk."""
    info = disk.hvinfo
    write_cache, direct, no_flush = cache_mode(hvparams, disk.disk.get("dev_type", ""),
                                               direct_works=direct_works)
    device = [*_place(info), ("drive", info["id"])]
    # scsi-block and scsi-generic pass commands through and have no cache of their own.
    if info["driver"] not in ("scsi-block", "scsi-generic"):
        device.append(("write-cache", write_cache))
    if bootable:
        device.append(("bootindex", 1))
    node = [("driver", "raw"), ("node-name", info["id"]),
            ("discard", hvparams.get("disk_discard") or "ignore"),
            ("cache.direct", direct), ("cache.no-flush", no_flush)]
    node += _file_options(disk, hvparams, is_block=is_block)
    if disk.disk.get("mode") == disk_constants.RDONLY:
        node.append(("read-only", "on"))
    else:
        node.append(("auto-read-only", "off"))
    return DiskOptions(device, node)


def disk_argv(disk: RuntimeDisk, hvparams: Mapping[str, Any], *, is_block: bool, bootable: bool,
              direct_works: bool = True) -> list[str]:
    """``-device`` and ``-blockdev`` of one disk."""
    options = disk_options(disk, hvparams, is_block=is_block, bootable=bootable,
                           direct_works=direct_works)
    return ["-device", f"{disk.hvinfo['driver']},{_join(options.device)}",
            "-blockdev", _join(options.node)]


def special_disk(disks: Sequence[RuntimeDisk], hvparams: Mapping[str, Any],
                 name: str) -> RuntimeDisk | None:
    """The disk that belongs to the firmware when the parameters say so, else None.

    :param name: :data:`UEFI_DISK` or :data:`TPM_DISK`.
    :raises HypervisorError: they ask for it, and the guest has no disk of this name.
    """
    wanted = (hvparams.get("firmware") == hv.KVM_FIRMWARE_UEFI if name == UEFI_DISK
              else bool(hvparams.get("tpm_version")))
    if not wanted:
        return None
    for disk in disks:
        if disk.disk.get("name") == name:
            return disk
    raise errors.HypervisorError(
        f"parameter {_PARAMETERS[name]} needs a small disk named {name}, as made by "
        f"gnt-instance modify --disk add:size=4M,name={name}")


def _firmware(runtime: Runtime, layout: Layout, host: HostSide) -> list[str]:
    argv: list[str] = []
    variables = special_disk(runtime.disks, runtime.hvparams, UEFI_DISK)
    if variables is not None and host.ovmf is not None:
        code = [("driver", "raw"), ("node-name", "uefi-code"), ("read-only", "on"),
                ("file.driver", "file"), ("file.filename", host.ovmf.code)]
        is_block = host.block_devices[runtime.disks.index(variables)]
        node = [("driver", "raw"), ("node-name", variables.hvinfo["id"]), ("offset", 0),
                # The disk is larger; the firmware looks for its variables right below its code.
                ("size", host.ovmf.variables_size),
                *_file_options(variables, runtime.hvparams, is_block=is_block)]
        argv += ["-blockdev", _join(code), "-blockdev", _join(node),
                 "-machine", f"pflash0=uefi-code,pflash1={variables.hvinfo['id']}"]
    if special_disk(runtime.disks, runtime.hvparams, TPM_DISK) is not None:
        argv += ["-chardev", f"socket,id=tpm0,path={escape(layout.tpm_socket)}",
                 "-tpmdev", "emulator,id=tpm0,chardev=tpm0", "-device", _TPM_CARDS[
                     runtime.hvparams["tpm_version"]] + ",tpmdev=tpm0"]
    return argv


def qmp_arguments(options: Iterable[tuple[str, Any]], *, flat: bool = False) -> dict[str, Any]:
    """Options of a command line as arguments of a QMP command.

    :param flat: for ``device_add``, whose only switch here is ``mq``; else dots open a level and
        every ``on`` and ``off`` is a boolean, as ``blockdev-add`` wants.
    """
    result: dict[str, Any] = {}
    for key, value in options:
        switch = value in ("on", "off") and (not flat or key == "mq")
        target = result
        *levels, last = [key] if flat else key.split(".")
        for level in levels:
            target = target.setdefault(level, {})
        target[last] = value == "on" if switch else value
    return result


def _file_options(disk: RuntimeDisk, hvparams: Mapping[str, Any], *,
                  is_block: bool) -> list[tuple[str, Any]]:
    if disk.uri is not None:
        return [(f"file.{key}", value) for key, value in uri_options(disk.uri)]
    return [("file.driver", "host_device" if is_block else "file"), ("file.filename", disk.path),
            ("file.aio", hvparams.get("disk_aio") or "threads")]


def uri_options(uri: str) -> list[tuple[str, Any]]:
    """How QEMU itself reaches a disk: the options of its driver.

    :param uri: ``rbd:pool/volume[:key=value...]``, ``gluster://server[:port]/volume/path``, or
        ``json:{"driver": ...}`` with the options of any driver.
    :raises HypervisorError: none of these.
    """
    scheme, _, rest = uri.partition(":")
    if scheme == "rbd":
        image, *settings = rest.split(":")
        pool, _, volume = image.partition("/")
        options: list[tuple[str, Any]] = [("driver", "rbd"), ("pool", pool), ("image", volume)]
        names = {"id": "user", "conf": "conf"}
        for setting in settings:
            key, _, value = setting.partition("=")
            if key not in names:
                raise errors.HypervisorError(f"disk {uri}: setting {key} is not known")
            options.append((names[key], value))
        if pool and volume:
            return options
    elif scheme == "json":
        try:
            return list(_flat(json.loads(rest)))
        except (errors.ParseError, TypeError) as err:
            raise errors.HypervisorError(f"disk {uri}: {err}") from err
    elif scheme.partition("+")[0] == "gluster":
        parts = urllib.parse.urlsplit(uri)
        volume, _, path = parts.path.lstrip("/").partition("/")
        if parts.hostname and volume and path:
            return [("driver", "gluster"), ("volume", volume), ("path", path),
                    ("server.0.type", "inet"), ("server.0.host", parts.hostname),
                    ("server.0.port", str(parts.port or GLUSTER_PORT))]
    raise errors.HypervisorError(f"disk access through {uri} is not supported by this hypervisor")


def _flat(options: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested options in the form of a command line, with dots between the levels."""
    pairs = (options.items() if isinstance(options, dict)
             else ((str(number), value) for number, value in enumerate(options)))
    for key, value in pairs:
        if isinstance(value, (dict, list)):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", ("on" if value else "off") if isinstance(value, bool) else value


def nic_device(nic: Mapping[str, Any], hvparams: Mapping[str, Any], *,
               tap: bool) -> list[tuple[str, Any]]:
    """Options of the card of one NIC.

    :param tap: it is connected to an interface of the host.
    """
    info = nic["hvinfo"]
    device = [*_place(info), ("netdev", info["id"]), ("mac", nic["mac"])]
    queues = nic_queues(hvparams)
    if tap and queues > 1:
        # A pair of vectors per queue, one for control and one for configuration changes.
        device += [("mq", "on"), ("vectors", 2 * queues + 2)]
    return device


def nic_queues(hvparams: Mapping[str, Any]) -> int:
    """Pairs of queues between guest and host; only paravirtual cards have more than one."""
    paravirtual = hvparams["nic_type"] == "paravirtual"
    return int(hvparams.get("virtio_net_queues") or 1) if paravirtual else 1


def wants_vhost(hvparams: Mapping[str, Any]) -> bool:
    """Whether the kernel shall carry the packets itself."""
    return hvparams["nic_type"] == "paravirtual" and bool(hvparams.get("vhost_net"))


def nic_argv(nic: Mapping[str, Any], hvparams: Mapping[str, Any], tap: str | None, *,
             bootable: bool, vhost_works: bool = True, forward: str = "") -> list[str]:
    """``-netdev`` and ``-device`` of one NIC.

    :param tap: the host's interface; None for user networking.
    :param forward: see :func:`ganeti.hypervisor.kvm.communication.forwarder`.
    :param vhost_works: the kernel can carry the packets itself, when ``vhost_net`` asks for it.
    """
    info = nic["hvinfo"]
    device = nic_device(nic, hvparams, tap=tap is not None)
    if tap is None:
        backend = [("type", "user"), ("id", info["id"])]
        if forward and communication.is_communication(nic):
            backend += communication.qemu_network(nic, forward)
    else:
        backend = [("type", "tap"), ("id", info["id"]), ("ifname", tap), ("script", "no"),
                   ("downscript", "no")]
        queues = nic_queues(hvparams)
        if queues > 1:
            backend.append(("queues", queues))
        if wants_vhost(hvparams) and vhost_works:
            backend.append(("vhost", "on"))
    if bootable:
        device.append(("bootindex", 1))
    return ["-netdev", _join(backend), "-device", f"{info['driver']},{_join(device)}"]


# The command line

def accelerator(hvparams: Mapping[str, Any], facts: QemuFacts) -> str:
    """What executes the guest: as ``kvm_flag`` says, or the best that works on this node."""
    flag = hvparams.get("kvm_flag")
    if flag == "enabled":
        return KVM
    return TCG if flag == "disabled" else facts.accelerator


def machine_type(hvparams: Mapping[str, Any], facts: QemuFacts) -> str:
    """The machine that QEMU emulates."""
    return hvparams.get("machine_version") or facts.default_machine


def _smp(vcpus: int, hvparams: Mapping[str, Any]) -> str:
    words = [str(vcpus)]
    words += [f"{key}={hvparams[f'cpu_{key}']}" for key in ("cores", "threads", "sockets")
              if hvparams.get(f"cpu_{key}")]
    return ",".join(words)


def base_argv(instance: FilledInstance, layout: Layout, facts: QemuFacts, *,
              console_log: bool) -> list[str]:
    """The command line without disks, NICs and control over QMP.

    :param console_log: let QEMU write what the guest prints on its serial console to a file.
    """
    hvp = instance.hvparams
    boot = hvp["boot_order"]
    name = instance.name
    if facts.version[0] < 11:
        name += ",debug-threads=on"
    argv = [facts.program, "-name", name,
            "-m", str(instance.beparams["maxmem"]),
            "-smp", _smp(instance.beparams["vcpus"], hvp),
            "-pidfile", layout.pid_file]
    if hvp["disk_type"] in _SCSI_TYPES or hvp.get("cdrom_disk_type") in _SCSI_TYPES:
        argv += ["-device", f"{hvp['scsi_controller_type']},id=scsi"]
    argv += ["-device", "virtio-balloon", "-daemonize", "-D", layout.log_file]
    if hvp["reboot_behavior"] == hv.REBOOT_BEHAVIOR_EXIT:
        argv.append("-no-reboot")
    machine = machine_type(hvp, facts)
    if not hvp["acpi"]:
        if "no-acpi" in facts.options:
            argv.append("-no-acpi")
        else:
            machine += ",acpi=off"
    argv += ["-machine", f"{machine},accel={accelerator(hvp, facts)}"]
    argv += _hotplug_ports(machine, int(hvp.get("kvm_pci_reservations") or 0))
    argv += _removable_media(hvp, boot)
    argv += _kernel(hvp)
    if hvp.get("mem_path"):
        argv += ["-mem-path", hvp["mem_path"], "-mem-prealloc"]
    argv += ["-monitor", f"unix:{layout.socket('monitor')},server,nowait"]
    argv += _serial(hvp, layout, console_log)
    argv.append("-usb")
    if hvp.get("usb_mouse"):
        argv += ["-usbdevice", hvp["usb_mouse"]]
    argv += _display(instance, layout)
    argv += _other_hardware(instance, layout)
    argv += shlex.split(hvp.get("kvm_extra") or "")
    if hvp.get("keymap"):
        argv += ["-k", hvp["keymap"]]
    return argv


def translated(words: Sequence[str], facts: QemuFacts) -> list[str]:
    """A command line of :func:`base_argv` in the words of another QEMU, for the same guest."""
    result, machine = [facts.program, *words[1:]], 0
    for number, word in enumerate(words):
        if word == "-machine":
            machine = number + 1
    if "-no-acpi" in result and "no-acpi" not in facts.options:
        kind, comma, rest = result[machine].partition(",")
        result[machine] = f"{kind},acpi=off{comma}{rest}"
        result.remove("-no-acpi")
    if facts.version[0] >= 11 and result[1:2] == ["-name"]:
        result[2] = result[2].removesuffix(",debug-threads=on")
    return result


def with_spice_address(words: Sequence[str], address: str) -> list[str]:
    """The same command line with another address for SPICE."""
    result = list(words)
    place = result.index("-spice") + 1
    result[place] = re.sub(r"^addr=([^,]|,,)*", lambda found: f"addr={escape(address)}",
                           result[place])
    return result


def _hotplug_ports(machine: str, reserved: int) -> list[str]:
    argv = []
    for number, (port, address) in enumerate(hotplug_ports(machine, reserved)):
        options = [("id", port), ("bus", "pcie.0"), ("addr", address), ("chassis", number + 1)]
        if number == 0:
            options.append(("multifunction", "on"))
        argv += ["-device", f"pcie-root-port,{_join(options)}"]
    return argv


def _removable_media(hvp: Mapping[str, Any], boot: str) -> list[str]:
    argv = []
    for number, parameter in enumerate(_CDROMS, start=1):
        image = hvp.get(parameter)
        if not image:
            continue
        node_name = f"cdrom{number}"
        node = [("driver", "raw"), ("cache.direct", "off"), ("cache.no-flush", "on"),
                ("read-only", "on"), ("node-name", node_name)]
        scheme = image.partition("://")[0] if "://" in image else "file"
        node += [("file.driver", scheme),
                 ("file.filename" if scheme == "file" else "file.url", image)]
        disk_type = _cdrom_type(hvp)
        device: list[tuple[str, Any]] = [("drive", node_name)]
        if disk_type in _CDROM_SCSI_TYPES:
            device = [("bus", "scsi.0"), ("channel", 0), ("scsi-id", CDROM_SCSI_IDS[number - 1]),
                      ("lun", 0), *device]
        if number == 1 and boot == "cdrom":
            device.append(("bootindex", 1))
        argv += ["-blockdev", _join(node),
                 "-device", f"{_CDROM_DRIVERS.get(disk_type, 'ide-cd')},{_join(device)}"]
    if hvp.get("floppy_image_path"):
        node = [("driver", "raw"), ("node-name", "floppy1"), ("file.driver", "file"),
                ("file.filename", hvp["floppy_image_path"])]
        argv += ["-blockdev", _join(node), "-device", "floppy,drive=floppy1"]
        if boot == "floppy":
            # The order is a matter of the controller, which is part of the machine.
            argv += ["-global", "isa-fdc.bootindexA=1"]
    return argv


def _kernel(hvp: Mapping[str, Any]) -> list[str]:
    if not hvp.get("kernel_path"):
        return []
    argv = ["-kernel", hvp["kernel_path"]]
    if hvp.get("initrd_path"):
        argv += ["-initrd", hvp["initrd_path"]]
    words = []
    if hvp.get("root_path"):
        words.append(f"root={hvp['root_path']}")
    if hvp.get("kernel_args"):
        words.append(hvp["kernel_args"])
    if hvp["serial_console"]:
        words.append(f"console=ttyS0,{hvp['serial_speed']}")
    return [*argv, "-append", " ".join(words)]


def _serial(hvp: Mapping[str, Any], layout: Layout, console_log: bool) -> list[str]:
    if not hvp["serial_console"]:
        return ["-serial", "none"]
    path = layout.socket("serial")
    if not console_log:
        return ["-serial", f"unix:{path},server,nowait"]
    chardev = [("id", "serial0"), ("path", path), ("server", "on"), ("wait", "off"),
               ("logfile", layout.console_log_file), ("logappend", "on")]
    return ["-chardev", f"socket,{_join(chardev)}", "-serial", "chardev:serial0"]


def _display(instance: FilledInstance, layout: Layout) -> list[str]:
    hvp = instance.hvparams
    vnc, spice = hvp.get("vnc_bind_address"), hvp.get("spice_bind")
    if vnc:
        return _vnc(instance, vnc, layout)
    if spice:
        return _spice(instance, spice, layout)
    return ["-display", "none"]


def _vnc(instance: FilledInstance, bind: str, layout: Layout) -> list[str]:
    hvp = instance.hvparams
    argv: list[str] = []
    if not hvp.get("usb_mouse"):
        # Without an absolute pointer device the two mouse pointers drift apart.
        argv += ["-usbdevice", "tablet"]
    if hvp.get("vnc_tls"):
        kind = "tls-creds-x509" if hvp.get("vnc_x509_path") else "tls-creds-anon"
        creds: list[tuple[str, Any]] = [("id", "vnctls0"), ("endpoint", "server")]
        if hvp.get("vnc_x509_path"):
            creds += [("dir", hvp["vnc_x509_path"]),
                      ("verify-peer", "yes" if hvp.get("vnc_x509_verify") else "no")]
        argv += ["-object", f"{kind},{_join(creds)}"]
    if bind.startswith("/"):
        # A directory: a socket in it, whose permissions decide who may look.
        address = f"unix:{escape(bind.rstrip('/'))}/{instance.name}.vnc"
    else:
        port = instance.network_port
        if port is None or port < hv.VNC_BASE_PORT:
            raise errors.HypervisorError(
                f"instance {instance.name} has no network port for VNC (found {port})")
        host = "" if bind == "0.0.0.0" else f"[{bind}]" if ":" in bind else bind
        address = f"{host}:{port - hv.VNC_BASE_PORT}"
    if hvp.get("vnc_tls"):
        address += ",tls-creds=vnctls0"
    if hvp.get("vnc_password_file"):
        address += ",password=on"
    return [*argv, "-vnc", address]


def _spice(instance: FilledInstance, bind: str, layout: Layout) -> list[str]:
    hvp = instance.hvparams
    if instance.network_port is None:
        raise errors.HypervisorError(f"instance {instance.name} has no network port for SPICE")
    options: list[tuple[str, Any]] = [("addr", bind)]
    if hvp.get("spice_use_tls"):
        options += [("tls-port", instance.network_port),
                    ("x509-cacert-file", layout.spice.authority),
                    ("x509-key-file", layout.spice.certificate),
                    ("x509-cert-file", layout.spice.certificate)]
        if hvp.get("spice_tls_ciphers"):
            options.append(("tls-ciphers", hvp["spice_tls_ciphers"]))
    else:
        options.append(("port", instance.network_port))
    if not hvp.get("spice_password_file"):
        options.append(("disable-ticketing", "on"))
    if hvp.get("spice_ip_version"):
        options.append((f"ipv{hvp['spice_ip_version']}", "on"))
    for parameter, option in (("spice_image_compression", "image-compression"),
                              ("spice_jpeg_wan_compression", "jpeg-wan-compression"),
                              ("spice_zlib_glz_wan_compression", "zlib-glz-wan-compression"),
                              ("spice_streaming_video", "streaming-video")):
        if hvp.get(parameter):
            options.append((option, hvp[parameter]))
    if not hvp.get("spice_playback_compression"):
        options.append(("playback-compression", "off"))
    if not hvp.get("spice_use_vdagent"):
        options.append(("agent-mouse", "off"))
    argv = ["-spice", _join(options)]
    if hvp.get("spice_use_vdagent"):
        argv += ["-device", "virtio-serial-pci,id=spice",
                 "-device", "virtserialport,chardev=spicechannel0,name=com.redhat.spice.0",
                 "-chardev", "spicevmc,id=spicechannel0,name=vdagent"]
    return argv


def hardware_argv(hvp: Mapping[str, Any], *, sound: str) -> list[str]:
    """Sound, clock, processor, graphics and USB devices.

    :param sound: where the sound goes: ``spice`` or ``none``.
    """
    argv: list[str] = []
    if hvp.get("soundhw"):
        argv += ["-audio", f"driver={sound},model={escape(hvp['soundhw'])},id=soundhw"]
    if hvp.get("use_localtime"):
        argv += ["-rtc", "base=localtime"]
    if hvp.get("cpu_type"):
        argv += ["-cpu", hvp["cpu_type"]]
    vga = hvp.get("vga") or ("qxl" if hvp.get("spice_bind") else "")
    if vga:
        argv += ["-vga", vga]
    for device in (hvp.get("usb_devices") or "").split():
        argv += ["-usbdevice", device]
    return argv


def _other_hardware(instance: FilledInstance, layout: Layout) -> list[str]:
    hvp = instance.hvparams
    argv = hardware_argv(hvp, sound="spice" if hvp.get("spice_bind") else "none")
    argv += ["-uuid", instance.uuid]
    if hvp.get("use_guest_agent"):
        path = escape(layout.socket("qga"))
        argv += ["-chardev", f"socket,path={path},server=on,wait=off,id=qga0",
                 "-device", "virtio-serial,id=qga0",
                 "-device", "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0"]
    return argv


@dataclass(frozen=True, slots=True)
class HostSide:
    """What one start needs to know about this node."""

    taps: Sequence[str | None]  # per NIC: its interface, or None for user networking
    block_devices: Sequence[bool]  # per disk: a block device, or a file
    direct_works: Sequence[bool]  # per disk: whether unbuffered access is possible
    incoming: tuple[str, int] | None = None  # address and port of a migration target
    run_as: str | None = None  # user to become
    chroot: str | None = None
    vhost_works: bool = True
    forward: str = ""  # for the interface to the node, where QEMU's own network carries it
    ovmf: Ovmf | None = None  # the firmware, for guests with UEFI


def full_argv(runtime: Runtime, layout: Layout, facts: QemuFacts, host: HostSide) -> list[str]:
    """The command line of one start: always stopped (``-S``), to be continued over QMP."""
    hvp = runtime.hvparams
    argv = list(runtime.argv)
    boot = hvp["boot_order"]
    if not runtime.nics:
        argv += ["-net", "none"]
    for number, (nic, tap) in enumerate(zip(runtime.nics, host.taps, strict=True)):
        argv += nic_argv(nic, hvp, tap, bootable=boot == "network" and number == 0,
                         vhost_works=host.vhost_works, forward=host.forward)
    if host.incoming is not None:
        argv += ["-incoming", migration_uri(*host.incoming)]
    argv += ["-qmp", f"unix:{layout.socket('qmp')},server,nowait",
             "-qmp", f"unix:{layout.socket('kvmd')},server,nowait"]
    argv += _firmware(runtime, layout, host)
    special = [special_disk(runtime.disks, hvp, name) for name in (UEFI_DISK, TPM_DISK)]
    bootable = boot == "disk"
    for number, disk in enumerate(runtime.disks):
        if disk in special:
            continue
        argv += disk_argv(disk, hvp, is_block=host.block_devices[number], bootable=bootable,
                          direct_works=host.direct_works[number])
        bootable = False
    argv.append("-S")
    return argv + _confinement(facts, host)


def _confinement(facts: QemuFacts, host: HostSide) -> list[str]:
    if "run-with" in facts.options and facts.version >= (9, 0, 0):
        words = ([f"user={host.run_as}"] if host.run_as else []) + (
            [f"chroot={escape(host.chroot)}"] if host.chroot else [])
        return ["-run-with", ",".join(words)] if words else []
    return (["-runas", host.run_as] if host.run_as else []) + (
        ["-chroot", host.chroot] if host.chroot else [])


def migration_uri(address: str, port: int) -> str:
    """``tcp:`` and where to."""
    return f"tcp:[{address}]:{port}" if ":" in address else f"tcp:{address}:{port}"


def shorten_sockets(argv: Sequence[str], control_dir: str) -> list[str]:
    """Name sockets relative to their directory where the kernel would refuse the full path.

    QEMU binds them before it leaves the directory it was started in, which must be ``control_dir``.

    :raises HypervisorError: even the bare name is too long.
    """
    result = []
    for word in argv:
        prefix, found, rest = word.partition(f"{control_dir}/")
        if found and (prefix == "unix:" or prefix.endswith("path=")):
            name = rest.split(",")[0]
            if len(f"{control_dir}/{name}".encode()) > SOCKET_PATH_MAX_BYTES:
                if len(name.encode()) > SOCKET_PATH_MAX_BYTES:
                    raise errors.HypervisorError(
                        f"socket name {name} is longer than {SOCKET_PATH_MAX_BYTES} bytes. "
                        "The instance needs a shorter name.")
                word = prefix + rest
        result.append(word)
    return result


#: NIC modes that need an interface on the host.
TAP_MODES = frozenset((net.NIC_MODE_BRIDGED, net.NIC_MODE_ROUTED, net.NIC_MODE_OVS,
                       net.NIC_MODE_EXT))
