"""The command line of QEMU; pure functions.

:func:`base_argv` builds the part which the runtime file keeps. :func:`full_argv` adds the devices
(:mod:`ganeti.hypervisor.kvm.devices`) and the options of one start. The order of the options is the
published one, so that running guests of other versions look the same in a process list.

Source: qemu(1), versions 5.2 to 11; :class:`QemuFacts` says which options a version has.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor.kvm import buses, devices, display
from ganeti.hypervisor.kvm.accelerator import KVM, TCG
from ganeti.hypervisor.kvm.facts import QemuFacts
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.kvm.runtime import Runtime, RuntimeDisk
from ganeti.objects.hvparams import lacks_firmware_disk
from ganeti.objects.hypervisors.kvm import KVM as KVM_DESCRIPTOR
from ganeti.objects.instance import FilledInstance

SOCKET_PATH_MAX_BYTES = 107
#: In the place of the image of a drive whose medium the configuration does not have any more.
EMPTY_MEDIUM = "null-co://"
_CDROM_DRIVERS = {"paravirtual": "virtio-blk-pci", "scsi": "scsi-cd", "scsi-cd": "scsi-cd"}
# The interface which operating systems expect for a version.
_TPM_DRIVERS = {"1.2": "tpm-tis", hv.KVM_TPM_2: "tpm-crb"}


class Ovmf(NamedTuple):
    """The files of the UEFI firmware on a node."""

    code: str
    variables: str  # the template of the variables
    variables_size: int  # bytes


def special_disk(
    disks: Sequence[RuntimeDisk], hvparams: Mapping[str, Any], name: str
) -> RuntimeDisk | None:
    """Return the disk of this name, if the parameters make it a disk of the firmware; else None.

    :param name: :data:`~ganeti.constants.hv.KVM_UEFI_DISK` or ``KVM_TPM_DISK``.
    :raises HypervisorError: the firmware needs the disk, and the guest has none of this name.
    """
    needed = KVM_DESCRIPTOR.firmware_disks(hvparams)
    if name not in needed:
        return None
    for disk in disks:
        if disk.disk.get("name") == name:
            return disk
    raise errors.HypervisorError(lacks_firmware_disk(name, needed[name]))


def _firmware(runtime: Runtime, layout: Layout, host: HostSide) -> list[str]:
    argv: list[str] = []
    variables = special_disk(runtime.disks, runtime.hvparams, hv.KVM_UEFI_DISK)
    if variables is not None and host.ovmf is not None:
        code = [
            ("driver", "raw"),
            ("node-name", "uefi-code"),
            ("read-only", "on"),
            ("file.driver", "file"),
            ("file.filename", host.ovmf.code),
        ]
        is_block = host.block_devices[runtime.disks.index(variables)]
        node = [
            ("driver", "raw"),
            ("node-name", variables.hvinfo["id"]),
            ("offset", 0),
            # The disk is larger, but the variables must end right below the code in memory.
            ("size", host.ovmf.variables_size),
            *devices.file_options(variables, runtime.hvparams, is_block=is_block),
        ]
        argv += [
            "-blockdev",
            devices.join(code),
            "-blockdev",
            devices.join(node),
            "-machine",
            f"pflash0=uefi-code,pflash1={variables.hvinfo['id']}",
        ]
    if special_disk(runtime.disks, runtime.hvparams, hv.KVM_TPM_DISK) is not None:
        argv += [
            "-chardev",
            f"socket,id=tpm0,path={devices.escape(layout.tpm_socket)}",
            "-tpmdev",
            "emulator,id=tpm0,chardev=tpm0",
            "-device",
            _TPM_DRIVERS[runtime.hvparams["tpm_version"]] + ",tpmdev=tpm0",
        ]
    return argv


def accelerator(hvparams: Mapping[str, Any], facts: QemuFacts) -> str:
    """Return the accelerator of a guest: by ``kvm_flag``, or the best one which works on this
    node.
    """
    flag = hvparams.get("kvm_flag")
    if flag == "enabled":
        return KVM
    return TCG if flag == "disabled" else facts.accelerator


def machine_type(hvparams: Mapping[str, Any], facts: QemuFacts) -> str:
    """Return the machine type of a guest: ``machine_version``, or QEMU's default."""
    return hvparams.get("machine_version") or facts.default_machine


def _smp(vcpus: int, hvparams: Mapping[str, Any]) -> str:
    options = [str(vcpus)]
    options += [
        f"{key}={hvparams[f'cpu_{key}']}"
        for key in ("cores", "threads", "sockets")
        if hvparams.get(f"cpu_{key}")
    ]
    return ",".join(options)


def base_argv(instance: FilledInstance, layout: Layout, facts: QemuFacts) -> list[str]:
    """Return the command line without disks, NICs and control over QMP."""
    hvp = instance.hvparams
    boot = hvp["boot_order"]
    argv = [
        facts.program,
        "-name",
        # Nothing behind the name: by it, the original Ganeti in version 3.0 finds the guest.
        instance.name,
        "-m",
        str(instance.beparams["maxmem"]),
        "-smp",
        _smp(instance.beparams["vcpus"], hvp),
        "-pidfile",
        layout.pid_file,
    ]
    if hvp["disk_type"] in buses.SCSI_TYPES or hvp.get("cdrom_disk_type") in buses.SCSI_TYPES:
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
    argv += _serial(hvp, layout)
    argv.append("-usb")
    if hvp.get("usb_mouse"):
        argv += ["-usbdevice", hvp["usb_mouse"]]
    argv += display.display_argv(instance, layout)
    argv += _other_hardware(instance, layout)
    argv += shlex.split(hvp.get("kvm_extra") or "")
    if hvp.get("keymap"):
        argv += ["-k", hvp["keymap"]]
    return argv


def translated(argv: Sequence[str], facts: QemuFacts) -> list[str]:
    """Translate a command line of :func:`base_argv` for another QEMU; the guest stays the same."""
    result, machine = [facts.program, *argv[1:]], 0
    for number, argument in enumerate(argv):
        if argument == "-machine":
            machine = number + 1
    if "-no-acpi" in result and "no-acpi" not in facts.options:
        kind, comma, rest = result[machine].partition(",")
        result[machine] = f"{kind},acpi=off{comma}{rest}"
        result.remove("-no-acpi")
    # Earlier releases wrote more, which QEMU 11 refuses.
    if facts.version[0] >= 11 and result[1:2] == ["-name"]:
        result[2] = result[2].removesuffix(",debug-threads=on")
    return result


def with_spice_address(argv: Sequence[str], address: str) -> list[str]:
    """Return the command line with another address for SPICE."""
    result = list(argv)
    index = result.index("-spice") + 1
    result[index] = re.sub(
        r"^addr=([^,]|,,)*", lambda found: f"addr={devices.escape(address)}", result[index]
    )
    return result


def _hotplug_ports(machine: str, reserved: int) -> list[str]:
    argv = []
    for number, (port, address) in enumerate(buses.hotplug_ports(machine, reserved)):
        options = [("id", port), ("bus", "pcie.0"), ("addr", address), ("chassis", number + 1)]
        if number == 0:
            options.append(("multifunction", "on"))
        argv += ["-device", f"pcie-root-port,{devices.join(options)}"]
    return argv


def _removable_media(hvp: Mapping[str, Any], boot: str) -> list[str]:
    argv = []
    for number, parameter in enumerate(buses.CDROMS, start=1):
        image = hvp.get(parameter)
        if not image:
            continue
        node_name = f"cdrom{number}"
        node = [
            ("driver", "raw"),
            ("cache.direct", "off"),
            ("cache.no-flush", "on"),
            ("read-only", "on"),
            ("node-name", node_name),
        ]
        node += _medium(image)
        disk_type = buses.cdrom_type(hvp)
        device: list[tuple[str, Any]] = [("drive", node_name)]
        if disk_type in buses.CDROM_SCSI_TYPES:
            device = [
                ("bus", "scsi.0"),
                ("channel", 0),
                ("scsi-id", buses.CDROM_SCSI_IDS[number - 1]),
                ("lun", 0),
                *device,
            ]
        if number == 1 and boot == "cdrom":
            device.append(("bootindex", 1))
        argv += [
            "-blockdev",
            devices.join(node),
            "-device",
            f"{_CDROM_DRIVERS.get(disk_type, 'ide-cd')},{devices.join(device)}",
        ]
    if hvp.get("floppy_image_path"):
        node = [
            ("driver", "raw"),
            ("node-name", "floppy1"),
            *_medium(hvp["floppy_image_path"]),
        ]
        argv += ["-blockdev", devices.join(node), "-device", "floppy,drive=floppy1"]
        if boot == "floppy":
            # The boot order of floppy disks is an option of the machine's controller.
            argv += ["-global", "isa-fdc.bootindexA=1"]
    return argv


def _medium(image: str) -> list[tuple[str, Any]]:
    """Return the options ``file.*`` of the block node of a CD or floppy disk."""
    if image == EMPTY_MEDIUM:
        # Without the last option QEMU would let the guest read its memory.
        return [("file.driver", "null-co"), ("file.size", 1440 << 10), ("file.read-zeroes", "on")]
    scheme = image.partition("://")[0] if "://" in image else "file"
    return [
        ("file.driver", scheme),
        ("file.filename" if scheme == "file" else "file.url", image),
    ]


def _kernel(hvp: Mapping[str, Any]) -> list[str]:
    if not hvp.get("kernel_path"):
        return []
    argv = ["-kernel", hvp["kernel_path"]]
    if hvp.get("initrd_path"):
        argv += ["-initrd", hvp["initrd_path"]]
    arguments = []
    if hvp.get("root_path"):
        arguments.append(f"root={hvp['root_path']}")
    if hvp.get("kernel_args"):
        arguments.append(hvp["kernel_args"])
    if hvp["serial_console"]:
        arguments.append(f"console=ttyS0,{hvp['serial_speed']}")
    return [*argv, "-append", " ".join(arguments)]


def _serial(hvp: Mapping[str, Any], layout: Layout) -> list[str]:
    return _logged_serial(layout) if hvp["serial_console"] else ["-serial", "none"]


def _logged_serial(layout: Layout) -> list[str]:
    """Return the serial console; QEMU also appends its output to a file."""
    chardev = [
        ("id", "serial0"),
        ("path", layout.socket("serial")),
        ("server", "on"),
        ("wait", "off"),
        ("logfile", layout.console_log_file),
        # Without this QEMU would leave a hole of the old size when the file is emptied.
        ("logappend", "on"),
    ]
    return ["-chardev", f"socket,{devices.join(chardev)}", "-serial", "chardev:serial0"]


def with_console_log(argv: Sequence[str], layout: Layout) -> list[str]:
    """Return the command line with a log of the console, which earlier versions did not keep."""
    result = list(argv)
    for number, argument in enumerate(result[:-1]):
        if argument == "-serial" and result[number + 1].startswith("unix:"):
            result[number : number + 2] = _logged_serial(layout)
            break
    return result


def hardware_argv(hvp: Mapping[str, Any], *, sound: str) -> list[str]:
    """Return the options for sound, clock, processor, graphics and USB devices.

    :param sound: QEMU's driver of the sound: ``spice`` or ``none``.
    """
    argv: list[str] = []
    if hvp.get("soundhw"):
        argv += ["-audio", f"driver={sound},model={devices.escape(hvp['soundhw'])},id=soundhw"]
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
        path = devices.escape(layout.socket("qga"))
        argv += [
            "-chardev",
            f"socket,path={path},server=on,wait=off,id=qga0",
            "-device",
            "virtio-serial,id=qga0",
            "-device",
            "virtserialport,chardev=qga0,name=org.qemu.guest_agent.0",
        ]
    return argv


@dataclass(frozen=True, slots=True)
class HostSide:
    """Facts of this node for one start of a guest."""

    taps: Sequence[str | None]  # per NIC: its interface, or None for user networking
    block_devices: Sequence[bool]  # per disk: whether it is a block device, and not a file
    direct_works: Sequence[bool]  # per disk: whether direct access (O_DIRECT) works
    incoming: bool = False  # on the target of a migration
    run_as: str | None = None  # the user to which QEMU changes
    chroot: str | None = None  # the directory to which QEMU changes its root
    vhost_works: bool = True  # see tap.vhost_works
    forward: str = ""  # see user_network.forwarder; empty where NICs have tap devices
    ovmf: Ovmf | None = None  # the firmware of a guest with UEFI


def full_argv(runtime: Runtime, layout: Layout, facts: QemuFacts, host: HostSide) -> list[str]:
    """Return the command line of one start.

    The guest is stopped (``-S``) until QMP continues it.
    """
    hvp = runtime.hvparams
    argv = list(runtime.argv)
    boot = hvp["boot_order"]
    if not runtime.nics:
        argv += ["-net", "none"]
    for number, (nic, tap) in enumerate(zip(runtime.nics, host.taps, strict=True)):
        argv += devices.nic_argv(
            nic,
            hvp,
            tap,
            bootable=boot == "network" and number == 0,
            vhost_works=host.vhost_works,
            forward=host.forward,
        )
    if host.incoming:
        argv += ["-incoming", "defer"]
    argv += [
        "-qmp",
        f"unix:{layout.socket('qmp')},server,nowait",
        "-qmp",
        f"unix:{layout.socket('kvmd')},server,nowait",
    ]
    argv += _firmware(runtime, layout, host)
    special = [
        special_disk(runtime.disks, hvp, name) for name in KVM_DESCRIPTOR.firmware_disks(hvp)
    ]
    bootable = boot == "disk"
    for number, disk in enumerate(runtime.disks):
        if disk in special:
            continue
        argv += devices.disk_argv(
            disk,
            hvp,
            is_block=host.block_devices[number],
            bootable=bootable,
            direct_works=host.direct_works[number],
        )
        bootable = False
    argv.append("-S")
    return argv + _privileges(facts, host)


def _privileges(facts: QemuFacts, host: HostSide) -> list[str]:
    """Return the options which make QEMU drop privileges."""
    if "run-with" in facts.options and facts.version >= (9, 0, 0):
        options = ([f"user={host.run_as}"] if host.run_as else []) + (
            [f"chroot={devices.escape(host.chroot)}"] if host.chroot else []
        )
        return ["-run-with", ",".join(options)] if options else []
    return (["-runas", host.run_as] if host.run_as else []) + (
        ["-chroot", host.chroot] if host.chroot else []
    )


def shorten_sockets(argv: Sequence[str], control_dir: str) -> list[str]:
    """Make paths of sockets relative to their directory, where they are too long for the kernel.

    QEMU binds the sockets before it leaves its first directory, which must be ``control_dir``.

    :raises HypervisorError: the file name alone is too long.
    """
    result = []
    for argument in argv:
        prefix, found, rest = argument.partition(f"{control_dir}/")
        if found and (prefix == "unix:" or prefix.endswith("path=")):
            name = rest.split(",")[0]
            if len(f"{control_dir}/{name}".encode()) > SOCKET_PATH_MAX_BYTES:
                if len(name.encode()) > SOCKET_PATH_MAX_BYTES:
                    raise errors.HypervisorError(
                        f"socket name {name} is longer than {SOCKET_PATH_MAX_BYTES} bytes. "
                        "The instance needs a shorter name."
                    )
                argument = prefix + rest
        result.append(argument)
    return result
