"""Disks: names of templates, storage types, parameters a user may give.

Which templates there are, and what they can do, says :mod:`ganeti.objects.disk_templates`.
"""

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

TEMPLATES_DEFAULT_ENABLED = (DRBD8, PLAIN)

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
#: Kind of the storage units for mirrored disks, for allocators; on the node they are volume groups.
UNIT_DRBD = "drbd8"

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

#: The least size of the metadata of a disk; see :mod:`ganeti.objects.disk_templates.drbd`.
DRBD_META_SIZE_MIB = 128
DRBD_SECRET_LENGTH = 20
#: The kernel has so many minors of one kind of device.
MINORS = 1 << 20
