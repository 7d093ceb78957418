"""Hypervisors: their names, and the possible values of their parameters."""

from __future__ import annotations

XEN_PVM = "xen-pvm"
XEN_HVM = "xen-hvm"
KVM = "kvm"
CHROOT = "chroot"
LXC = "lxc"
FAKE = "fake"
ALL = (CHROOT, FAKE, KVM, LXC, XEN_HVM, XEN_PVM)
DEFAULT_ENABLED = XEN_PVM

# Parameters which may be set for the cluster, but not for one instance.
#: Facts by which a node says how its hypervisor sends and receives guests. Nodes with different
#: protocols cannot send guests to each other; and a target which can choose the port of a migration
#: needs a source which can be given it.
FACT_MIGRATION_PROTOCOL = "migration_protocol"
FACT_MIGRATION_ANY_PORT = "migration_any_port"
#: With KVM: the node authenticates the other end, and QEMU gets the connection.
KVM_MIGRATION_PROTOCOL = 2
GLOBAL_PARAMS = frozenset(("migration_bandwidth", "migration_mode", "migration_port"))

MIGRATION_LIVE = "live"
MIGRATION_NONLIVE = "non-live"
MIGRATION_MODES = (MIGRATION_LIVE, MIGRATION_NONLIVE)

# States of a guest.
STATE_RUNNING = 0
STATE_SHUTDOWN = 1

# Why a guest which lives runs no instruction (objects/halt.py), by what may be done about it.
#: Its hypervisor stopped it for a reason which may be over; a start lets it run on.
HALT_CONTINUES = "continues"
#: It can never run on; a start ends it, and starts it again.
HALT_ENDED = "ended"
#: Somebody, or the guest itself, wanted it; it runs on only when that is asked for.
HALT_PAUSED = "paused"
#: A migration has, or may have, taken it to another node.
HALT_MIGRATES = "migrates"
#: Those which nobody wanted.
HALT_FAULTS = (HALT_CONTINUES, HALT_ENDED)

REBOOT_BEHAVIOR_REBOOT = "reboot"
REBOOT_BEHAVIOR_EXIT = "exit"
REBOOT_BEHAVIORS = (REBOOT_BEHAVIOR_REBOOT, REBOOT_BEHAVIOR_EXIT)

HVM_DISK_TYPES = ("ioemu", "paravirtual")
HVM_NIC_TYPES = ("e1000", "ne2k_isa", "ne2k_pci", "paravirtual", "rtl8139")
HVM_VIF_TYPES = ("ioemu", "vif")

KVM_AIO_TYPES = ("io_uring", "native", "threads")
KVM_BOOT_ORDERS = ("cdrom", "disk", "floppy", "network")
KVM_CACHE_TYPES = ("default", "none", "writeback", "writethrough")
KVM_DISCARD_TYPES = ("ignore", "unmap")
KVM_DISK_TYPES = (
    "ide",
    "mtd",
    "paravirtual",
    "pflash",
    "scsi",
    "scsi-block",
    "scsi-cd",
    "scsi-generic",
    "scsi-hd",
    "sd",
)
KVM_SCSI_DEVICE_TYPES = ("scsi-block", "scsi-cd", "scsi-generic", "scsi-hd")
KVM_SCSI_CONTROLLER_TYPES = ("dc390", "lsi", "megasas", "virtio-scsi-pci")
KVM_FIRMWARE_UEFI = "uefi"
KVM_FIRMWARES = ("bios", KVM_FIRMWARE_UEFI)
KVM_TPM_2 = "2.0"
KVM_TPM_VERSIONS = ("1.2", KVM_TPM_2)
# Names of disks with data of the firmware, which the guest does not see as disks.
KVM_UEFI_DISK = "efivars"
KVM_TPM_DISK = "tpm"
KVM_FLAG_VALUES = ("disabled", "enabled")
KVM_MOUSE_TYPES = ("mouse", "tablet")
KVM_NIC_TYPES = (
    "e1000",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "paravirtual",
    "pcnet",
    "rtl8139",
)
KVM_SECURITY_NONE = "none"
KVM_SECURITY_POOL = "pool"
KVM_SECURITY_MODELS = (KVM_SECURITY_NONE, KVM_SECURITY_POOL, "user")
KVM_SPICE_IMAGE_COMPRESSION = ("auto_glz", "auto_lz", "glz", "lz", "off", "quic")
KVM_SPICE_WAN_COMPRESSION = ("always", "auto", "never")
KVM_SPICE_STREAMING_VIDEO = ("all", "filter", "off")

VNC_BASE_PORT = 5900

#: Addresses for SCSI disks of a guest of KVM. Narrow SCSI has eight, and the controller has one.
KVM_SCSI_SLOTS = 16
KVM_SMALL_SCSI_SLOTS = 7
KVM_SMALL_SCSI_CONTROLLERS = frozenset(("lsi", "dc390"))
