"""Instances: states, ways to create, reboot and evacuate them, backend parameters."""

from __future__ import annotations

# The state which the administrator wants.
ADMIN_UP = "up"
ADMIN_DOWN = "down"
ADMIN_OFFLINE = "offline"
ADMIN_STATES = (ADMIN_DOWN, ADMIN_OFFLINE, ADMIN_UP)

# Who has set this state: an administrator, or the guest's user by a shutdown from inside.
SOURCE_ADMIN = "admin"
SOURCE_USER = "user"
ADMIN_STATE_SOURCES = (SOURCE_ADMIN, SOURCE_USER)

# Values of the field `status` of `gnt-instance list`; they are computed and not stored.
STATUS_RUNNING = "running"
STATUS_ADMINDOWN = "ADMIN_down"
STATUS_ADMINOFFLINE = "ADMIN_offline"
STATUS_USERDOWN = "USER_down"
STATUS_ERRORUP = "ERROR_up"
STATUS_ERRORDOWN = "ERROR_down"
STATUS_WRONGNODE = "ERROR_wrongnode"
STATUS_NODEDOWN = "ERROR_nodedown"
STATUS_NODEOFFLINE = "ERROR_nodeoffline"

# What the field guest_state says of a guest which is not halted: it runs, or has ended by itself.
GUEST_RUNNING = "running"
GUEST_SHUTDOWN = "shutdown"
GUEST_NOT_HALTED = (GUEST_RUNNING, GUEST_SHUTDOWN)
STATUSES = (
    STATUS_ADMINDOWN,
    STATUS_ADMINOFFLINE,
    STATUS_ERRORDOWN,
    STATUS_NODEDOWN,
    STATUS_NODEOFFLINE,
    STATUS_ERRORUP,
    STATUS_WRONGNODE,
    STATUS_USERDOWN,
    STATUS_RUNNING,
)

CREATE = "create"
IMPORT = "import"
REMOTE_IMPORT = "remote-import"
CREATE_MODES = (CREATE, IMPORT, REMOTE_IMPORT)

REBOOT_SOFT = "soft"
REBOOT_HARD = "hard"
REBOOT_FULL = "full"
REBOOT_TYPES = (REBOOT_FULL, REBOOT_HARD, REBOOT_SOFT)

EXPORT_LOCAL = "local"
EXPORT_REMOTE = "remote"
EXPORT_MODES = (EXPORT_LOCAL, EXPORT_REMOTE)

COMPRESS_GZIP = "gzip"
COMPRESS_GZIP_FAST = "gzip-fast"
COMPRESS_GZIP_SLOW = "gzip-slow"
COMPRESS_DEFAULT_TOOLS = (COMPRESS_GZIP, COMPRESS_GZIP_FAST, COMPRESS_GZIP_SLOW)

# Seconds which a guest gets to shut down before it is stopped.
SHUTDOWN_TIMEOUT_S = 120

BE_MEMORY = "memory"
BE_MINMEM = "minmem"
BE_MAXMEM = "maxmem"
BE_VCPUS = "vcpus"
BE_AUTO_BALANCE = "auto_balance"
BE_ALWAYS_FAILOVER = "always_failover"
BE_SPINDLE_USE = "spindle_use"
BE_DEFAULTS: dict[str, object] = {
    BE_ALWAYS_FAILOVER: False,
    BE_AUTO_BALANCE: True,
    BE_MAXMEM: 128,
    BE_MINMEM: 128,
    BE_SPINDLE_USE: 1,
    BE_VCPUS: 1,
}
BE_PARAM_TYPES = {
    BE_ALWAYS_FAILOVER: "bool",
    BE_AUTO_BALANCE: "bool",
    BE_MAXMEM: "size",
    BE_MINMEM: "size",
    BE_SPINDLE_USE: "int",
    BE_VCPUS: "int",
}
# "memory" sets minmem and maxmem; users may give it, and it is not stored.
BE_PARAM_TYPES_WITH_MEMORY = {**BE_PARAM_TYPES, BE_MEMORY: "size"}

IALLOCATOR_MODES = (
    "allocate",
    "allocate-secondary",
    "change-group",
    "multi-allocate",
    "node-evacuate",
    "relocate",
)
IALLOCATOR_DIRECTIONS = ("in", "out")
# "." stands for the default allocator of the cluster.
IALLOCATOR_DEFAULT_SHORTCUT = "."
# The allocator of htools, which the master daemon has inside: the default of a new cluster.
IALLOC_HAIL = "hail"
