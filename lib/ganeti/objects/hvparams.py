"""Parameters of the hypervisors: names, types, defaults and checks.

Both wings need to know what a legal parameter is: the master before it stores one, a node before it
starts a guest. The master calls :func:`force_types` and :func:`check_parameter_syntax`; whether a
file exists is known only on a node, which asks :func:`paths_to_check` for what to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.utils import suggest, text

# Types, as they are named to users and in constants of other subjects.
STRING = "string"
MAYBE_STRING = "maybe-string"
BOOL = "bool"
INT = "int"
FLOAT = "float"
SIZE = "size"

# What a node has to find at a path.
FILE = "file"
DIRECTORY = "directory"
FILE_OR_URL = "file or URL"

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
MAX_VIRTIO_NET_QUEUES = 32
QEMU_PCI_SLOTS = 32

# A mask which pins nothing.
CPU_ALL = "all"
CPU_ALL_VALUE = -1

Check = Callable[[Any], str]


class HvParam:
    """One parameter. `check` returns what is wrong, or an empty text."""

    __slots__ = ("check", "default", "name", "node_check", "one_of", "required", "type")

    def __init__(
        self,
        name: str,
        type_: str,
        default: Any,
        *,
        one_of: Collection[Any] = (),
        check: Check | None = None,
        node_check: str = "",
        required: bool = False,
    ) -> None:
        self.name = name
        self.type = type_
        self.default = default
        self.one_of = one_of
        self.check = check
        self.node_check = node_check
        self.required = required

    def problem(self, value: Any) -> str:
        """What is wrong with a value of the right type; empty when nothing is."""
        if value is None or value == "":
            return "must not be empty" if self.required else ""
        if self.one_of and value not in self.one_of:
            return f"must be one of {', '.join(map(str, self.one_of))}"
        if self.node_check and not (self.node_check == FILE_OR_URL and is_url(value)):
            return _path(value)
        return self.check(value) if self.check is not None else ""


def is_url(value: str) -> bool:
    """Whether an image is to be fetched rather than opened."""
    return value.startswith(("http://", "https://", "ftp://", "ftps://"))


def _path(value: str) -> str:
    if not value.startswith("/") or "//" in value or "\0" in value:
        return "must be an absolute path without doubled slashes"
    if any(part in (".", "..") for part in value.split("/")) or (
        value != "/" and value.endswith("/")
    ):
        return "must be a normalised path"
    return ""


def _between(low: int, high: int) -> Check:
    return lambda value: "" if low <= value <= high else f"must be from {low} to {high}"


def _non_negative(value: int) -> str:
    return "" if value >= 0 else "must not be negative"


_port = _between(1, 65534)
_weight_hvm = _between(1, 65534)
_weight_pvm = _between(1, 65535)
_pci_slots = _between(0, QEMU_PCI_SLOTS)
_net_queues = _between(1, MAX_VIRTIO_NET_QUEUES)


def _ip_version(value: int) -> str:
    return "" if value in (0, 4, 6) else "must be 4 or 6, or 0 for either"


def _boot_letters(value: str) -> str:
    return "" if value and not set(value) - set("acdn") else "may hold the letters a, c, d, n only"


def _ipv4(value: str) -> str:
    parts = value.split(".")
    good = len(parts) == 4 and all(
        part.isascii() and part.isdigit() and len(part) <= 3 and int(part) <= 255 for part in parts
    )
    return "" if good else "must be an IPv4 address"


def _address_or_path(value: str) -> str:
    if value.startswith("/"):
        return _path(value)
    import ipaddress  # only where somebody names an address: commands start without it

    try:
        ipaddress.ip_address(value)
    except ValueError:
        return "must be an IP address or the path of a directory"
    return ""


def _shell_words(value: str) -> str:
    import shlex  # as above

    try:
        shlex.split(value)
    except ValueError as err:
        return f"must be words as a shell reads them ({str(err).lower()})"
    return ""


def _cpu_mask(value: str) -> str:
    try:
        parse_cpu_mask(value)
    except errors.ParseError as err:
        return str(err)
    return ""


def _cpu_masks(value: str) -> str:
    try:
        parse_cpu_masks(value)
    except errors.ParseError as err:
        return str(err)
    return ""


def parse_cpu_mask(mask: str) -> list[int]:
    """``"0-2,5"`` -> ``[0, 1, 2, 5]``; empty -> ``[]``.

    :raises errors.ParseError: not a list of numbers and ranges.
    """
    cpus: list[int] = []
    if not mask:
        return cpus
    for word in mask.split(","):
        low, dash, high = word.strip().partition("-")
        try:
            first = int(low)
            last = int(high) if dash else first
        except ValueError as err:
            raise errors.ParseError(f"cpu mask {mask!r}: {word!r} is no cpu and no range") from err
        if not 0 <= first <= last <= 65535:
            raise errors.ParseError(f"cpu mask {mask!r}: range {word!r} is not possible")
        cpus.extend(range(first, last + 1))
    return cpus


def parse_cpu_masks(masks: str) -> list[list[int]]:
    """``"0-1:all:5"`` -> ``[[0, 1], [-1], [5]]``: one list for each virtual processor.

    :raises errors.ParseError: one of them is no mask.
    """
    if not masks:
        return []
    pinned = []
    for mask in masks.split(":"):
        if mask == CPU_ALL:
            pinned.append([CPU_ALL_VALUE])
            continue
        cpus = parse_cpu_mask(mask)
        if not cpus:
            raise errors.ParseError(f"cpu masks {masks!r}: one of them is empty")
        pinned.append(cpus)
    return pinned


_KVM = (
    HvParam("acpi", BOOL, True),
    HvParam("boot_order", STRING, "disk", one_of=hv.KVM_BOOT_ORDERS, required=True),
    HvParam("cdrom2_image_path", STRING, "", node_check=FILE_OR_URL),
    HvParam("cdrom_disk_type", STRING, "", one_of=hv.KVM_DISK_TYPES),
    HvParam("cdrom_image_path", STRING, "", node_check=FILE_OR_URL),
    HvParam("cpu_cores", INT, 0, check=_non_negative),
    HvParam("cpu_mask", STRING, "all", check=_cpu_masks),
    HvParam("cpu_sockets", INT, 0, check=_non_negative),
    HvParam("cpu_threads", INT, 0, check=_non_negative),
    HvParam("cpu_type", STRING, ""),
    HvParam("disk_aio", STRING, "threads", one_of=hv.KVM_AIO_TYPES),
    HvParam("disk_cache", STRING, "default", one_of=hv.KVM_CACHE_TYPES, required=True),
    HvParam("disk_discard", STRING, "ignore", one_of=hv.KVM_DISCARD_TYPES),
    HvParam("disk_type", STRING, "paravirtual", one_of=hv.KVM_DISK_TYPES, required=True),
    HvParam("firmware", STRING, "", one_of=hv.KVM_FIRMWARES),
    HvParam("firmware_path", STRING, "", node_check=FILE),
    HvParam("firmware_vars_path", STRING, "", node_check=FILE),
    HvParam("floppy_image_path", STRING, "", node_check=FILE),
    HvParam("initrd_path", STRING, "", node_check=FILE),
    HvParam("kernel_args", STRING, "ro"),
    HvParam("kernel_path", STRING, "/boot/vmlinuz-3-kvmU", node_check=FILE),
    HvParam("keymap", STRING, ""),
    HvParam("kvm_extra", STRING, "", check=_shell_words),
    HvParam("kvm_flag", STRING, "", one_of=hv.KVM_FLAG_VALUES),
    HvParam("kvm_path", STRING, "/usr/bin/kvm", node_check=FILE, required=True),
    HvParam("kvm_pci_reservations", INT, 12, check=_pci_slots),
    HvParam("machine_version", STRING, ""),
    HvParam("mem_path", STRING, "", node_check=DIRECTORY),
    HvParam("migration_bandwidth", INT, 32, check=_non_negative, required=True),
    HvParam("migration_caps", STRING, ""),
    HvParam("migration_downtime", INT, 30, check=_non_negative, required=True),
    HvParam("migration_mode", STRING, "live", one_of=hv.MIGRATION_MODES, required=True),
    HvParam("migration_port", INT, 8102, check=_port, required=True),
    HvParam("nic_type", STRING, "paravirtual", one_of=hv.KVM_NIC_TYPES, required=True),
    HvParam("reboot_behavior", STRING, "reboot", one_of=hv.REBOOT_BEHAVIORS, required=True),
    HvParam("root_path", MAYBE_STRING, "/dev/vda1"),
    HvParam(
        "scsi_controller_type", STRING, "lsi", one_of=hv.KVM_SCSI_CONTROLLER_TYPES, required=True
    ),
    HvParam("security_domain", STRING, ""),
    HvParam("security_model", STRING, "none", one_of=hv.KVM_SECURITY_MODELS, required=True),
    HvParam("serial_console", BOOL, True),
    HvParam("serial_speed", INT, 38400),
    HvParam("soundhw", STRING, ""),
    HvParam("spice_bind", STRING, ""),
    HvParam("spice_image_compression", STRING, "", one_of=hv.KVM_SPICE_IMAGE_COMPRESSION),
    HvParam("spice_ip_version", INT, 0, check=_ip_version),
    HvParam("spice_jpeg_wan_compression", STRING, "", one_of=hv.KVM_SPICE_WAN_COMPRESSION),
    HvParam("spice_password_file", STRING, "", node_check=FILE),
    HvParam("spice_playback_compression", BOOL, True),
    HvParam("spice_streaming_video", STRING, "", one_of=hv.KVM_SPICE_STREAMING_VIDEO),
    HvParam("spice_tls_ciphers", STRING, "HIGH:-DES:-3DES:-EXPORT:-DH"),
    HvParam("spice_use_tls", BOOL, False),
    HvParam("spice_use_vdagent", BOOL, True),
    HvParam("spice_zlib_glz_wan_compression", STRING, "", one_of=hv.KVM_SPICE_WAN_COMPRESSION),
    HvParam("tpm_version", STRING, "", one_of=hv.KVM_TPM_VERSIONS),
    HvParam("usb_devices", STRING, ""),
    HvParam("usb_mouse", STRING, "", one_of=hv.KVM_MOUSE_TYPES),
    HvParam("use_chroot", BOOL, False),
    HvParam("use_guest_agent", BOOL, False),
    HvParam("use_localtime", BOOL, False),
    HvParam("user_shutdown", BOOL, False),
    HvParam("vga", STRING, ""),
    HvParam("vhost_net", BOOL, True),
    HvParam("virtio_net_queues", INT, 1, check=_net_queues),
    HvParam("vnc_bind_address", STRING, "", check=_address_or_path),
    HvParam("vnc_password_file", STRING, "", node_check=FILE),
    HvParam("vnc_tls", BOOL, False),
    HvParam("vnc_x509_path", STRING, "", node_check=DIRECTORY),
    HvParam("vnc_x509_verify", BOOL, False),
    HvParam("vnet_hdr", BOOL, True),
)
_XEN_PVM = (
    HvParam("blockdev_prefix", STRING, "sd"),
    HvParam("bootloader_args", STRING, ""),
    HvParam("bootloader_path", STRING, "", node_check=FILE),
    HvParam("cpu_cap", INT, 0, check=_non_negative),
    HvParam("cpu_mask", STRING, "all", check=_cpu_masks),
    HvParam("cpu_weight", INT, 256, check=_weight_pvm),
    HvParam("cpuid", STRING, ""),
    HvParam("initrd_path", STRING, "", node_check=FILE),
    HvParam("kernel_args", STRING, "ro"),
    HvParam("kernel_path", STRING, "/boot/vmlinuz-3-xenU", node_check=FILE, required=True),
    HvParam("migration_mode", STRING, "live", one_of=hv.MIGRATION_MODES, required=True),
    HvParam("migration_port", INT, 8002, check=_port, required=True),
    HvParam("reboot_behavior", STRING, "reboot", one_of=hv.REBOOT_BEHAVIORS, required=True),
    HvParam("root_path", MAYBE_STRING, "/dev/xvda1"),
    HvParam("soundhw", STRING, ""),
    HvParam("use_bootloader", BOOL, False),
    HvParam("vif_script", STRING, "", node_check=FILE),
)
_XEN_HVM = (
    HvParam("acpi", BOOL, True),
    HvParam("blockdev_prefix", STRING, "hd"),
    HvParam("boot_order", STRING, "cd", check=_boot_letters, required=True),
    HvParam("cdrom_image_path", STRING, "", node_check=FILE),
    HvParam("cpu_cap", INT, 0),
    HvParam("cpu_mask", STRING, "all", check=_cpu_masks),
    HvParam("cpu_weight", INT, 256, check=_weight_hvm),
    HvParam("cpuid", STRING, ""),
    HvParam("device_model", STRING, "/usr/lib/xen/bin/qemu-dm", node_check=FILE, required=True),
    HvParam("disk_type", STRING, "paravirtual", one_of=hv.HVM_DISK_TYPES, required=True),
    HvParam("kernel_path", STRING, "/usr/lib/xen/boot/hvmloader", node_check=FILE, required=True),
    HvParam("migration_mode", STRING, "non-live", one_of=hv.MIGRATION_MODES, required=True),
    HvParam("migration_port", INT, 8002, check=_port, required=True),
    HvParam("nic_type", STRING, "rtl8139", one_of=hv.HVM_NIC_TYPES, required=True),
    HvParam("pae", BOOL, True),
    HvParam("pci_pass", STRING, ""),
    HvParam("reboot_behavior", STRING, "reboot", one_of=hv.REBOOT_BEHAVIORS, required=True),
    HvParam("soundhw", STRING, ""),
    HvParam("use_localtime", BOOL, False),
    HvParam("vif_script", STRING, "", node_check=FILE),
    HvParam("vif_type", STRING, "ioemu", one_of=hv.HVM_VIF_TYPES),
    HvParam("viridian", BOOL, False),
    HvParam("vnc_bind_address", STRING, "0.0.0.0", check=_ipv4),
    HvParam(
        "vnc_password_file",
        STRING,
        "/etc/ganeti/vnc-cluster-password",
        node_check=FILE,
        required=True,
    ),
)
_LXC = (
    HvParam("cpu_mask", STRING, "", check=_cpu_mask),
    HvParam(
        "devices",
        STRING,
        "c 1:3 rw,c 1:5 rw,c 1:7 rw,c 1:8 rw,c 1:9 rw,c 1:10 rw,"
        "c 5:0 rw,c 5:1 rw,c 5:2 rw,c 136:* rw",
    ),
    HvParam("drop_capabilities", STRING, "mac_override,sys_boot,sys_module,sys_time,sys_admin"),
    HvParam("extra_cgroups", STRING, ""),
    HvParam("extra_config", STRING, ""),
    HvParam("num_ttys", INT, 6, check=_non_negative, required=True),
    HvParam("startup_timeout", INT, 30, check=_non_negative),
)
_CHROOT = (HvParam("init_script", STRING, "/ganeti-chroot", check=_path, required=True),)
_FAKE = (HvParam("migration_mode", STRING, "live", one_of=hv.MIGRATION_MODES, required=True),)


TABLES: dict[str, dict[str, HvParam]] = {
    name: {parameter.name: parameter for parameter in table}
    for name, table in (
        (hv.CHROOT, _CHROOT),
        (hv.FAKE, _FAKE),
        (hv.KVM, _KVM),
        (hv.LXC, _LXC),
        (hv.XEN_HVM, _XEN_HVM),
        (hv.XEN_PVM, _XEN_PVM),
    )
}
# Name -> type over all hypervisors; one name has one type everywhere.
TYPES: dict[str, str] = {
    parameter.name: parameter.type for table in TABLES.values() for parameter in table.values()
}


def defaults(hypervisor: str) -> dict[str, Any]:
    """Every parameter of a hypervisor with its default."""
    return {name: parameter.default for name, parameter in _table(hypervisor).items()}


def _table(hypervisor: str) -> dict[str, HvParam]:
    table = TABLES.get(hypervisor)
    if table is None:
        raise errors.HypervisorError(f"there is no hypervisor {hypervisor!r}")
    return table


def check_parameter_syntax(hypervisor: str, params: Mapping[str, Any]) -> None:
    """Check filled parameters as far as that needs no node.

    :param params: all parameters of something under this hypervisor, of the right types.
    :raises errors.HypervisorError: names hypervisor and parameter.
    """
    table = _table(hypervisor)
    for name, value in params.items():
        parameter = table.get(name)
        if parameter is None:
            hint = suggest.did_you_mean(name, table)
            raise errors.HypervisorError(
                f"hypervisor {hypervisor} has no parameter {name!r}{'.' if hint else ''}{hint}"
            )
        problem = parameter.problem(value)
        if problem:
            raise errors.HypervisorError(f"hypervisor parameter {name}: {problem}, not {value!r}")
    for name, parameter in table.items():
        if parameter.required and name not in params:
            raise errors.HypervisorError(f"hypervisor parameter {name} is missing")
    if hypervisor == hv.KVM:
        _check_kvm_combinations(params)


def _check_kvm_combinations(params: Mapping[str, Any]) -> None:
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
            "hypervisor parameter cdrom_image_path: must be set to boot from it"
        )
    if get("security_model") == "user" and not get("security_domain"):
        raise errors.HypervisorError(
            "hypervisor parameter security_domain: must name a user for security_model user"
        )
    if get("security_model") in ("none", "pool") and get("security_domain"):
        raise errors.HypervisorError(
            "hypervisor parameter security_domain: means nothing without security_model user"
        )
    if bool(get("firmware_path")) != bool(get("firmware_vars_path")):
        raise errors.HypervisorError(
            "hypervisor parameters firmware_path and firmware_vars_path: set both or none"
        )
    if get("vnc_bind_address") and get("spice_bind"):
        raise errors.HypervisorError(
            "hypervisor parameters vnc_bind_address and spice_bind: only one of them can be set"
        )


def firmware_disks(hypervisor: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Names of the disks which the firmware of a guest with these parameters needs for itself; with
    what wants each of them, for messages."""
    wanted = {}
    if hypervisor == hv.KVM:
        if params.get("firmware") == hv.KVM_FIRMWARE_UEFI:
            wanted[hv.KVM_UEFI_DISK] = "firmware=uefi"
        if params.get("tpm_version"):
            wanted[hv.KVM_TPM_DISK] = f"tpm_version={params['tpm_version']}"
    return wanted


def lacks_firmware_disk(name: str, wanted_by: str) -> str:
    """What to tell whose instance lacks one of :func:`firmware_disks`."""
    return (
        f"parameter {wanted_by} needs a small disk named {name}, as made by "
        f"gnt-instance modify --disk add:size=4M,name={name}"
    )


def paths_to_check(hypervisor: str, params: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What a node has to find: ``(parameter, path, FILE or DIRECTORY)`` each."""
    table = _table(hypervisor)
    for name, value in params.items():
        parameter = table.get(name)
        if parameter is None or not parameter.node_check or not value:
            continue
        if parameter.node_check == FILE_OR_URL and is_url(value):
            continue
        yield name, value, DIRECTORY if parameter.node_check == DIRECTORY else FILE


def force_types(
    values: Mapping[str, Any], types: Mapping[str, str], allowed_values: Collection[Any] = ()
) -> dict[str, Any]:
    """A copy with every value turned into its parameter's type, as users write them as text.

    :param types: parameter -> "string", "maybe-string", "bool", "int", "float" or "size" (MiB).
    :param allowed_values: values let through as they are (like "default").
    :raises errors.TypeEnforcementError: an unknown parameter, or a value of another type.
    """
    forced = {}
    for name, value in values.items():
        kind = types.get(name)
        if kind is None:
            hint = suggest.did_you_mean(str(name), types)
            raise errors.TypeEnforcementError(
                f"unknown parameter {name!r}{'.' if hint else ''}{hint}"
            )
        # A dictionary or list has no business here and could not be compared with a set.
        if isinstance(value, (str, int, float)) and value in allowed_values:
            forced[name] = value
        else:
            forced[name] = _forced(name, value, kind)
    return forced


_WORDS_FOR_BOOLS = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
    "": False,
}


def _forced(name: str, value: Any, kind: str) -> Any:
    if kind in (STRING, MAYBE_STRING):
        if isinstance(value, str) or (value is None and kind == MAYBE_STRING):
            return value
        if value is False:
            return ""  # "no-name" on the command line
    elif kind == BOOL:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _WORDS_FOR_BOOLS:
            return _WORDS_FOR_BOOLS[value.lower()]
        if value in (0, 1, None):
            return bool(value)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            if kind == SIZE:
                return text.parse_unit(value)
            if kind == INT and not (isinstance(value, float) and value != int(value)):
                return int(value)
            if kind == FLOAT:
                number = float(value)
                if number - number == 0:
                    return number
        except (ValueError, OverflowError, errors.UnitParseError) as err:
            raise errors.TypeEnforcementError(f"parameter {name}: {value!r} is no {kind}") from err
    raise errors.TypeEnforcementError(f"parameter {name}: {value!r} is no {kind}")
