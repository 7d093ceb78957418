"""Disks: templates, their properties, storage types, parameters a user may give."""

from __future__ import annotations

DISKLESS = "diskless"
FILE = "file"
SHARED_FILE = "sharedfile"
PLAIN = "plain"
BLOCK = "blockdev"
DRBD8 = "drbd"
RBD = "rbd"
EXT = "ext"
GLUSTER = "gluster"
# An instance with disks of several templates; reported by queries, not accepted in requests.
MIXED = "mixed"

#: The usermode helper of DRBD which answers no question of the kernel module, so that the module
#: decides nothing by itself.
DRBD_NEUTRAL_HELPER = "/bin/true"

TEMPLATES = (BLOCK, DISKLESS, DRBD8, EXT, FILE, GLUSTER, PLAIN, RBD, SHARED_FILE)
TEMPLATES_DEFAULT_ENABLED = (DRBD8, PLAIN)

LVM_BASED = frozenset((PLAIN, DRBD8))
FILE_BASED = frozenset((FILE, SHARED_FILE, GLUSTER))
# Disks which all nodes can access without our mirroring: any node may become the primary node.
EXT_MIRRORED = frozenset((BLOCK, DISKLESS, EXT, GLUSTER, RBD, SHARED_FILE))
# Disks which we mirror to a secondary node.
INT_MIRRORED = frozenset((DRBD8,))
MIRRORED = EXT_MIRRORED | INT_MIRRORED
COPYABLE = frozenset((FILE, PLAIN))
GROWABLE = frozenset((PLAIN, EXT, DRBD8, FILE, SHARED_FILE, GLUSTER, RBD))
EXCLUSIVE_STORAGE = frozenset((PLAIN,))
MAY_ADOPT = frozenset((PLAIN, BLOCK))
MUST_ADOPT = frozenset((BLOCK,))
NO_FREE_SPACE_CHECK = frozenset((EXT, FILE, GLUSTER, RBD, SHARED_FILE))
HAVE_ACCESS = frozenset((RBD, GLUSTER, EXT))
SNAPSHOT_CAPABLE = frozenset((DRBD8, EXT, PLAIN))
# Templates whose new storage may hold data of former owners.
WIPED = frozenset((PLAIN, EXT))
# Templates whose paths contain the name of the instance.
INSTANCE_DEPENDENT_PATH = frozenset((FILE, SHARED_FILE))
NOT_CONVERTIBLE_FROM = frozenset((DISKLESS,))
NOT_CONVERTIBLE_TO = frozenset((BLOCK, DISKLESS))

# Storage types, with the names of `gnt-node list-storage` and of the allocator.
ST_BLOCK = "blockdev"
ST_DISKLESS = "diskless"
ST_EXT = "ext"
ST_FILE = "file"
ST_GLUSTER = "gluster"
ST_LVM_PV = "lvm-pv"
ST_LVM_VG = "lvm-vg"
ST_RADOS = "rados"
ST_SHARED_FILE = "sharedfile"
STORAGE_TYPES = (
    ST_BLOCK,
    ST_DISKLESS,
    ST_EXT,
    ST_FILE,
    ST_GLUSTER,
    ST_LVM_PV,
    ST_LVM_VG,
    ST_RADOS,
    ST_SHARED_FILE,
)
STORAGE_TYPES_REPORTABLE = (ST_FILE, ST_LVM_PV, ST_LVM_VG)
STORAGE_TYPE_OF = {
    BLOCK: ST_BLOCK,
    DISKLESS: ST_DISKLESS,
    DRBD8: ST_LVM_VG,
    EXT: ST_EXT,
    FILE: ST_FILE,
    GLUSTER: ST_GLUSTER,
    PLAIN: ST_LVM_VG,
    RBD: ST_RADOS,
    SHARED_FILE: ST_SHARED_FILE,
}

FILE_DRIVER_LOOP = "loop"
FILE_DRIVER_BLKTAP = "blktap"
FILE_DRIVER_BLKTAP2 = "blktap2"
FILE_DRIVERS = (FILE_DRIVER_BLKTAP, FILE_DRIVER_BLKTAP2, FILE_DRIVER_LOOP)

RDONLY = "ro"
RDWR = "rw"
ACCESS_MODES = (RDONLY, RDWR)

# How QEMU accesses an RBD, Gluster or external disk: through the kernel, or with a library.
KERNELSPACE = "kernelspace"
USERSPACE = "userspace"
DISK_ACCESS_MODES = (KERNELSPACE, USERSPACE)

MAX_DISKS = 16
DEFAULT_VG = "xenvg"

# Keys of one disk in a request.
IDISK_PARAMS = (
    "access",
    "adopt",
    "dev_type",
    "metavg",
    "mode",
    "name",
    "provider",
    "size",
    "spindles",
    "vg",
)

# Changes of lists of disks or NICs.
MOD_ADD = "add"
MOD_ATTACH = "attach"
MOD_DETACH = "detach"
MOD_MODIFY = "modify"
MOD_REMOVE = "remove"
MOD_ACTIONS = (MOD_ADD, MOD_ATTACH, MOD_DETACH, MOD_REMOVE)
MOD_ACTIONS_WITH_MODIFY = (MOD_ADD, MOD_ATTACH, MOD_DETACH, MOD_MODIFY, MOD_REMOVE)

REPLACE_AUTO = "replace_auto"
REPLACE_NEW_SECONDARY = "replace_new_secondary"
REPLACE_ON_PRIMARY = "replace_on_primary"
REPLACE_ON_SECONDARY = "replace_on_secondary"
REPLACE_MODES = (REPLACE_AUTO, REPLACE_NEW_SECONDARY, REPLACE_ON_PRIMARY, REPLACE_ON_SECONDARY)

# The state of the local storage of a device.
LDS_OKAY = 1
LDS_SYNC = 2
LDS_UNKNOWN = 3
LDS_FAULTY = 4
LDS_NAMES = {LDS_OKAY: "ok", LDS_SYNC: "syncing", LDS_UNKNOWN: "unknown", LDS_FAULTY: "faulty"}

DRBD_META_SIZE_MIB = 128
DRBD_SECRET_LENGTH = 20

# Defaults of the parameters of a template: users set them, and `gnt-cluster info` shows them. Rates
# are in KiB/s, delays and plan-ahead in tenths of a second.
TEMPLATE_DEFAULTS: dict[str, dict[str, object]] = {
    BLOCK: {},
    DISKLESS: {},
    DRBD8: {
        "c-delay-target": 1,
        "c-fill-target": 0,
        "c-max-rate": 61440,
        "c-min-rate": 4096,
        "c-plan-ahead": 20,
        "data-stripes": 1,
        "disk-barriers": "n",
        "disk-custom": "",
        "dynamic-resync": False,
        "meta-barriers": False,
        "meta-stripes": 1,
        "metavg": DEFAULT_VG,
        "net-custom": "",
        "protocol": "C",
        "resync-rate": 61440,
    },
    EXT: {"access": KERNELSPACE},
    FILE: {},
    GLUSTER: {"access": KERNELSPACE, "host": "127.0.0.1", "port": 24007, "volume": "gv0"},
    PLAIN: {"stripes": 1},
    RBD: {"access": KERNELSPACE, "pool": "rbd", "user-id": ""},
    SHARED_FILE: {},
}
TEMPLATE_PARAM_TYPES = {
    "access": "string",
    "c-delay-target": "int",
    "c-fill-target": "int",
    "c-max-rate": "int",
    "c-min-rate": "int",
    "c-plan-ahead": "int",
    "data-stripes": "int",
    "disk-barriers": "string",
    "disk-custom": "string",
    "dynamic-resync": "bool",
    "host": "string",
    "meta-barriers": "bool",
    "meta-stripes": "int",
    "metavg": "string",
    "net-custom": "string",
    "pool": "string",
    "port": "int",
    "protocol": "string",
    "resync-rate": "int",
    "stripes": "int",
    "user-id": "string",
    "volume": "string",
}
# Defaults of the parameters of one device in the tree of a disk, which a node gets.
DEVICE_DEFAULTS: dict[str, dict[str, object]] = {
    BLOCK: {},
    DRBD8: {
        "c-delay-target": 1,
        "c-fill-target": 0,
        "c-max-rate": 61440,
        "c-min-rate": 4096,
        "c-plan-ahead": 20,
        "default-metavg": DEFAULT_VG,
        "disable-meta-flush": False,
        "disabled-barriers": "n",
        "disk-custom": "",
        "dynamic-resync": False,
        "net-custom": "",
        "protocol": "C",
        "resync-rate": 61440,
    },
    EXT: {"access": KERNELSPACE},
    FILE: {},
    GLUSTER: {"access": KERNELSPACE, "host": "127.0.0.1", "port": 24007, "volume": "gv0"},
    PLAIN: {"stripes": 1},
    RBD: {"access": KERNELSPACE, "pool": "rbd", "user-id": ""},
    SHARED_FILE: {},
}
