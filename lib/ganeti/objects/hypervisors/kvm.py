"""The hypervisor ``kvm``: guests are processes of QEMU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.objects.hypervisors.cpu_masks import cpu_masks
from ganeti.objects.hypervisors.descriptor import (
    ConsoleRequest,
    GuestDevices,
    HypervisorDescriptor,
    UserParameter,
    by_name,
    console_program,
)
from ganeti.objects.hypervisors.parameter import (
    ADDRESS,
    BOOL,
    DEVICE,
    DIRECTORY,
    FILE,
    FILE_OR_URL,
    GUEST,
    INT,
    MAYBE_STRING,
    MODEL,
    NODE_FILE,
    OPTION,
    PRIVILEGE,
    PROGRAM,
    STRING,
    HvParam,
    absolute_path,
    between,
    non_negative,
    port,
)
from ganeti.objects.transfer import CONSOLE_SPICE, InstanceConsole
from ganeti.platform import machine

SERIAL_SPEEDS = (
    75,
    110,
    300,
    600,
    1200,
    1800,
    2400,
    4800,
    9600,
    14400,
    19200,
    28800,
    38400,
    57600,
    115200,
    230400,
    345600,
    460800,
)
_MAX_VIRTIO_NET_QUEUES = 32
_QEMU_PCI_SLOTS = 32
_IDE_UNITS, _SATA_PORTS = 4, 6
_CDROMS = ("cdrom_image_path", "cdrom2_image_path")
#: The kernel takes 107 bytes as the path of a socket, of which ``.monitor`` has eight.
LONGEST_NAME_BYTES = 99

_CONSOLE_PROGRAM = "kvm-console-wrapper"
#: Ctrl-], the escape character of telnet.
_CONSOLE_ESCAPE = "0x1d"

_pci_slots = between(0, _QEMU_PCI_SLOTS)
_net_queues = between(1, _MAX_VIRTIO_NET_QUEUES)


def _ip_version(value: int) -> str:
    return "" if value in (0, 4, 6) else "must be 4 or 6, or 0 for either"


def _address_or_path(value: str) -> str:
    if value.startswith("/"):
        return absolute_path(value)
    import ipaddress  # when an address is given; commands start without it

    try:
        ipaddress.ip_address(value)
    except ValueError:
        return "must be an IP address or the path of a directory"
    return ""


def _shell_words(value: str) -> str:
    import shlex  # when the parameter is given; commands start without it

    try:
        shlex.split(value)
    except ValueError as err:
        return f"must be arguments as a shell reads them ({str(err).lower()})"
    return ""


def _check_combination(params: Mapping[str, Any]) -> None:
    get = params.get
    if get("kernel_path") and not get("root_path"):
        raise errors.HypervisorError(
            "hypervisor parameter root_path: must be set where kernel_path is"
        )
    if get("vnc_x509_verify") and not get("vnc_x509_path"):
        raise errors.HypervisorError(
            "hypervisor parameter vnc_x509_path: must be set where vnc_x509_verify is"
        )
    if get("serial_console") and get("serial_speed") not in SERIAL_SPEEDS:
        raise errors.HypervisorError(
            "hypervisor parameter serial_speed: must be one of "
            f"{', '.join(map(str, SERIAL_SPEEDS))}, not {get('serial_speed')!r}"
        )
    if get("boot_order") == "cdrom" and not get("cdrom_image_path"):
        raise errors.HypervisorError(
            "hypervisor parameter cdrom_image_path: must be set to boot from the CD drive"
        )
    if get("security_model") == "user" and not get("security_domain"):
        raise errors.HypervisorError(
            "hypervisor parameter security_domain: must name a user for security_model user"
        )
    if get("security_model") in ("none", "pool") and get("security_domain"):
        raise errors.HypervisorError(
            "hypervisor parameter security_domain: has no effect without security_model user"
        )
    if bool(get("firmware_path")) != bool(get("firmware_vars_path")):
        raise errors.HypervisorError(
            "hypervisor parameters firmware_path and firmware_vars_path: set both or none"
        )
    if get("vnc_bind_address") and get("spice_bind"):
        raise errors.HypervisorError(
            "hypervisor parameters vnc_bind_address and spice_bind: only one of them can be set"
        )


def _firmware_disks(params: Mapping[str, Any]) -> dict[str, str]:
    needed = {}
    if params.get("firmware") == hv.KVM_FIRMWARE_UEFI:
        needed[hv.KVM_UEFI_DISK] = "firmware=uefi"
    if params.get("tpm_version"):
        needed[hv.KVM_TPM_DISK] = f"tpm_version={params['tpm_version']}"
    return needed


def _impossible(params: Mapping[str, Any], guest: GuestDevices) -> str:
    """Compare the devices of a guest with the addresses on its buses.

    Disks and NICs have the PCI slots from ``kvm_pci_reservations`` on, without the last one.
    """
    if len(guest.name.encode()) > LONGEST_NAME_BYTES:
        return (
            f"the name of the instance has {len(guest.name.encode())} bytes. With more than"
            f" {LONGEST_NAME_BYTES} bytes, the paths of its sockets are too long for the kernel."
        )
    disk_type = params.get("disk_type")
    on_scsi = disk_type == "scsi" or disk_type in hv.KVM_SCSI_DEVICE_TYPES
    cdrom_type = params.get("cdrom_disk_type") or disk_type
    drives = sum(bool(params.get(name)) for name in _CDROMS)
    on_pci = 0 if params.get("nic_type") == "ne2k_isa" else guest.nics
    on_pci += 0 if on_scsi or disk_type == "ide" else guest.disks
    reserved = int(params.get("kvm_pci_reservations") or 0)
    left = _QEMU_PCI_SLOTS - 1 - reserved
    if on_pci > left:
        return (
            f"its disks and NICs need {on_pci} PCI slots, and kvm_pci_reservations={reserved}"
            f" leaves {left}. A smaller value leaves more."
        )
    if disk_type == "ide":
        # SATA, on machines with PCI Express.
        most = _SATA_PORTS if "q35" in str(params.get("machine_version")) else _IDE_UNITS
        used = guest.disks + (drives if cdrom_type == "ide" else 0)
        if used > most:
            return (
                f"it has {used} disks and CD drives, and the IDE controller of its machine has"
                f" {most} places. disk_type=paravirtual allows more disks."
            )
    if on_scsi:
        small = params.get("scsi_controller_type") in hv.KVM_SMALL_SCSI_CONTROLLERS
        used = guest.disks + (drives if cdrom_type in ("scsi", "scsi-cd") else 0)
        most = hv.KVM_SMALL_SCSI_SLOTS if small else hv.KVM_SCSI_SLOTS
        if used > most:
            return (
                f"it has {used} disks and CD drives, and"
                f" scsi_controller_type={params.get('scsi_controller_type')} has {most} addresses"
            )
    return ""


def _console(request: ConsoleRequest) -> InstanceConsole:
    """Return the best console which the guest has: serial, else VNC, else SPICE, else a message."""
    name, port_number = request.instance.name, request.instance.network_port
    hvparams = request.hvparams
    if hvparams.get("serial_console"):
        kvm_root = machine.current().paths_of_node(request.node_name).kvm_root
        return request.by_ssh(
            console_program(_CONSOLE_PROGRAM),
            "socat",
            name,
            f"{kvm_root}/ctrl/{name}.monitor",
            f"STDIO,raw,echo=0,escape={_CONSOLE_ESCAPE}",
            f"UNIX-CONNECT:{kvm_root}/ctrl/{name}.serial",
        )
    vnc = hvparams.get("vnc_bind_address")
    if vnc and port_number and not vnc.startswith("/"):
        return request.by_vnc(vnc, port_number)
    if hvparams.get("spice_bind") and port_number:
        return InstanceConsole(
            instance=name, kind=CONSOLE_SPICE, host=hvparams["spice_bind"], port=port_number
        )
    return request.message(
        f"instance {name} has no console: serial_console, vnc_bind_address and spice_bind are all"
        " off"
    )


def _boot_from_disk(filled: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {} if "kernel_path" in chosen else {"kernel_path": ""}


KVM = HypervisorDescriptor(
    name=hv.KVM,
    boot_from_disk=_boot_from_disk,
    parameters=by_name(
        HvParam("acpi", BOOL, True, GUEST),
        HvParam("boot_order", STRING, "disk", GUEST, one_of=hv.KVM_BOOT_ORDERS, required=True),
        HvParam("cdrom2_image_path", STRING, "", NODE_FILE, node_check=FILE_OR_URL),
        HvParam("cdrom_disk_type", STRING, "", GUEST, one_of=hv.KVM_DISK_TYPES),
        HvParam("cdrom_image_path", STRING, "", NODE_FILE, node_check=FILE_OR_URL),
        HvParam("cpu_cores", INT, 0, GUEST, check=non_negative),
        HvParam("cpu_mask", STRING, "all", DEVICE, check=cpu_masks),
        HvParam("cpu_sockets", INT, 0, GUEST, check=non_negative),
        HvParam("cpu_threads", INT, 0, GUEST, check=non_negative),
        HvParam("cpu_type", STRING, "", GUEST),
        HvParam("disk_aio", STRING, "threads", GUEST, one_of=hv.KVM_AIO_TYPES),
        HvParam("disk_cache", STRING, "default", GUEST, one_of=hv.KVM_CACHE_TYPES, required=True),
        HvParam("disk_discard", STRING, "ignore", GUEST, one_of=hv.KVM_DISCARD_TYPES),
        HvParam("disk_type", STRING, "paravirtual", GUEST, one_of=hv.KVM_DISK_TYPES, required=True),
        HvParam("firmware", STRING, "", GUEST, one_of=hv.KVM_FIRMWARES),
        HvParam("firmware_path", STRING, "", NODE_FILE, node_check=FILE),
        HvParam("firmware_vars_path", STRING, "", NODE_FILE, node_check=FILE),
        HvParam("floppy_image_path", STRING, "", NODE_FILE, node_check=FILE),
        HvParam("initrd_path", STRING, "", NODE_FILE, node_check=FILE),
        HvParam("kernel_args", STRING, "ro", GUEST),
        HvParam("kernel_path", STRING, "/boot/vmlinuz-3-kvmU", NODE_FILE, node_check=FILE),
        HvParam("keymap", STRING, "", MODEL),
        HvParam("kvm_extra", STRING, "", OPTION, check=_shell_words),
        HvParam("kvm_flag", STRING, "", GUEST, one_of=hv.KVM_FLAG_VALUES),
        HvParam("kvm_path", STRING, "/usr/bin/kvm", PROGRAM, node_check=FILE, required=True),
        HvParam("kvm_pci_reservations", INT, 12, GUEST, check=_pci_slots),
        HvParam("machine_version", STRING, "", MODEL),
        HvParam("mem_path", STRING, "", NODE_FILE, node_check=DIRECTORY),
        HvParam("migration_bandwidth", INT, 32, GUEST, check=non_negative, required=True),
        HvParam("migration_caps", STRING, "", OPTION),
        HvParam("migration_downtime", INT, 30, GUEST, check=non_negative, required=True),
        HvParam("migration_mode", STRING, "live", GUEST, one_of=hv.MIGRATION_MODES, required=True),
        HvParam("migration_port", INT, 8102, OPTION, check=port, required=True),
        HvParam("migration_tls", BOOL, True, PRIVILEGE),
        HvParam("nic_type", STRING, "paravirtual", GUEST, one_of=hv.KVM_NIC_TYPES, required=True),
        HvParam(
            "reboot_behavior", STRING, "reboot", GUEST, one_of=hv.REBOOT_BEHAVIORS, required=True
        ),
        HvParam("root_path", MAYBE_STRING, "/dev/vda1", GUEST),
        HvParam(
            "scsi_controller_type",
            STRING,
            "lsi",
            GUEST,
            one_of=hv.KVM_SCSI_CONTROLLER_TYPES,
            required=True,
        ),
        HvParam("security_domain", STRING, "", PRIVILEGE),
        HvParam(
            "security_model",
            STRING,
            "none",
            PRIVILEGE,
            one_of=hv.KVM_SECURITY_MODELS,
            required=True,
        ),
        HvParam("serial_console", BOOL, True, GUEST),
        HvParam("serial_speed", INT, 38400, GUEST),
        HvParam("soundhw", STRING, "", MODEL),
        HvParam("spice_bind", STRING, "", ADDRESS),
        HvParam(
            "spice_image_compression", STRING, "", GUEST, one_of=hv.KVM_SPICE_IMAGE_COMPRESSION
        ),
        HvParam("spice_ip_version", INT, 0, GUEST, check=_ip_version),
        HvParam(
            "spice_jpeg_wan_compression", STRING, "", GUEST, one_of=hv.KVM_SPICE_WAN_COMPRESSION
        ),
        HvParam("spice_password_file", STRING, "", PRIVILEGE, node_check=FILE),
        HvParam("spice_playback_compression", BOOL, True, GUEST),
        HvParam("spice_streaming_video", STRING, "", GUEST, one_of=hv.KVM_SPICE_STREAMING_VIDEO),
        HvParam("spice_tls_ciphers", STRING, "HIGH:-DES:-3DES:-EXPORT:-DH", PRIVILEGE),
        HvParam("spice_use_tls", BOOL, False, PRIVILEGE),
        HvParam("spice_use_vdagent", BOOL, True, GUEST),
        HvParam(
            "spice_zlib_glz_wan_compression", STRING, "", GUEST, one_of=hv.KVM_SPICE_WAN_COMPRESSION
        ),
        HvParam("tpm_version", STRING, "", GUEST, one_of=hv.KVM_TPM_VERSIONS),
        HvParam("usb_devices", STRING, "", DEVICE),
        HvParam("usb_mouse", STRING, "", GUEST, one_of=hv.KVM_MOUSE_TYPES),
        HvParam("use_chroot", BOOL, False, PRIVILEGE),
        HvParam("use_guest_agent", BOOL, False, GUEST),
        HvParam("use_localtime", BOOL, False, GUEST),
        HvParam("user_shutdown", BOOL, False, GUEST),
        HvParam("vga", STRING, "", MODEL),
        HvParam("vhost_net", BOOL, True, GUEST),
        HvParam("virtio_net_queues", INT, 1, GUEST, check=_net_queues),
        HvParam("vnc_bind_address", STRING, "", ADDRESS, check=_address_or_path),
        HvParam("vnc_password_file", STRING, "", PRIVILEGE, node_check=FILE),
        HvParam("vnc_tls", BOOL, False, PRIVILEGE),
        HvParam("vnc_x509_path", STRING, "", PRIVILEGE, node_check=DIRECTORY),
        HvParam("vnc_x509_verify", BOOL, False, PRIVILEGE),
        HvParam("vnet_hdr", BOOL, True, GUEST),
    ),
    check_combination=_check_combination,
    impossible=_impossible,
    can_migrate=True,
    can_hotplug=True,
    needs_port=True,
    opens_disk_uris=True,
    shutdown_daemon="ganeti-kvmd",
    firmware_disks=_firmware_disks,
    firmware_disk_names=frozenset((hv.KVM_UEFI_DISK, hv.KVM_TPM_DISK)),
    user_parameter=UserParameter(
        "security_model", daemon=hv.KVM_SECURITY_NONE, pool=hv.KVM_SECURITY_POOL
    ),
    keeps_console_log=True,
    console_log_parameter="serial_console",
    console=_console,
    guest_programs=("qemu-system-", "kvm"),
)
