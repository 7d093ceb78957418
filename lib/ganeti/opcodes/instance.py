"""Opcodes for instances: life cycle, disks, migration, snapshots, description."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.constants.instance import SHUTDOWN_TIMEOUT_S
from ganeti.opcodes import params, types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


# Parameters which several opcodes have.
FORCE_VARIANT: Any = param(
    ht.Bool, "Accept an OS variant which the definition does not list", default=False
)
WAIT_FOR_SYNC: Any = param(ht.Bool, "Wait until the disks are in sync", default=True)
NAME_CHECK: Any = param(ht.Bool, "Require that the name resolves", default=False)
OPPORTUNISTIC_LOCKING: Any = param(
    ht.Bool,
    "Use only nodes whose locks are free now, and do not wait for others",
    default=False,
)
BEPARAMS: Any = param(ht.Dict, "Backend parameters (memory, processors, ...)", default={})
FILE_DRIVER: Any = param(ht.Maybe(types.FileDriver), "Driver for file disks", default=None)
FILE_STORAGE_DIR: Any = param(
    types.MaybeString, "Directory for file disks, below the one of the cluster", default=None
)
EXACT_NAME: Any = param(
    ht.Maybe(ht.Bool),
    "Accept a name which is the short form of another instance's name, or has one as short form",
    default=None,
    added=True,
)
IP_CHECK: Any = param(ht.Bool, "Require that the address of the name is not in use", default=False)
CONFLICTS_CHECK: Any = param(
    ht.Bool,
    "Refuse addresses which are reserved or belong to a network of which the NIC is not part",
    default=True,
)
OSPARAMS: Any = param(ht.Dict, "Parameters of the operating system", default={})
OSPARAMS_PRIVATE: Any = param(
    types.PrivateParams, "OS parameters which are not written to logs", default=None
)
DISK_INDICES: Any = param(
    ht.ListOf(types.DiskIndex), "Indices of the disks; all if the list is empty", default=[]
)
NEW_SECONDARY: Any = param(types.MaybeString, "New secondary node", default=None)
NEW_SECONDARY_UUID: Any = param(
    types.MaybeString,
    "UUID of the new secondary node; used instead of the name if given",
    default=None,
)
IGNORE_OFFLINE_NODES: Any = param(
    ht.Bool, "Change the recorded state although the primary node is offline", default=False
)
NO_REMEMBER: Any = param(ht.Bool, "Do not change the recorded state of the instance", default=False)


@opcode(summary="instance_name")
class OpInstanceActivateDisks(OpCode):
    """Activate the disks of an instance. Result: list of [node, disk, path]."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    ignore_size: bool = param(
        ht.Bool, "Accept disks whose size differs from the recorded one", default=False
    )
    wait_for_sync: bool = param(ht.Bool, "Wait until the disks are in sync", default=False)
    RESULT = ht.ListOf(ht.Tuple(ht.NonEmptyString, ht.NonEmptyString, types.MaybeString))


@opcode(summary="instance_name")
class OpInstanceChangeGroup(OpCode):
    """Move an instance to another node group. Result: jobs."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    early_release: bool = params.EARLY_RELEASE
    iallocator: str | None = params.ALLOCATOR
    target_groups: list[str] | None = params.TARGET_GROUPS
    RESULT = types.JobIdListOnly


@opcode(summary="instance_name")
class OpInstanceConsole(OpCode):
    """Describe how to open the console of an instance. Result: a dictionary."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    RESULT = ht.Dict


@opcode(summary="instance_name")
class OpInstanceCopy(OpCode):
    """Make a new instance with the parameters and the content of another one. Result: its nodes."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    new_name: str = param(ht.NonEmptyString, "Name of the new instance")
    snapshot_name: str | None = param(
        types.MaybeString,
        "Name of the snapshot whose content is copied; that of the stopped instance if not given",
        default=None,
    )
    disk_template: str | None = param(
        ht.Maybe(types.DiskTemplate),
        "Disk template of the copy; the same if not given",
        default=None,
    )
    disks: list[dict[str, Any]] = param(
        ht.ListOf(types.IDiskParams),
        "What is different for each disk of the copy, each a dictionary",
        default=[],
    )
    nics: list[dict[str, Any]] = param(
        ht.ListOf(types.INicParams),
        "What is different for each NIC of the copy, each a dictionary",
        default=[],
    )
    pnode: str | None = param(types.MaybeString, "Primary node of the copy", default=None)
    pnode_uuid: str | None = param(
        types.MaybeString, "UUID of the primary node, instead of its name", default=None
    )
    snode: str | None = param(types.MaybeString, "Secondary node of the copy", default=None)
    snode_uuid: str | None = param(
        types.MaybeString, "UUID of the secondary node, instead of its name", default=None
    )
    iallocator: str | None = params.ALLOCATOR
    group_name: str | None = params.GROUP_OF_INSTANCE
    file_driver: str | None = FILE_DRIVER
    file_storage_dir: str | None = FILE_STORAGE_DIR
    wait_for_sync: bool = WAIT_FOR_SYNC
    name_check: bool = NAME_CHECK
    exact_name: bool | None = EXACT_NAME
    ip_check: bool = IP_CHECK
    conflicts_check: bool = CONFLICTS_CHECK
    ignore_ipolicy: bool = params.IGNORE_IPOLICY
    compress: str = params.COMPRESS
    start: bool = param(ht.Bool, "Start the copy when it is complete", default=False)
    explain: bool | None = param(
        ht.Maybe(ht.Bool),
        "Add to the job log why each node was or was not chosen",
        default=None,
    )
    RESULT = types.Strings


@opcode(summary="instance_name")
class OpInstanceCreate(OpCode):
    """Create an instance. Result: names of its nodes."""

    instance_name: str = params.INSTANCE_NAME
    force_variant: bool = FORCE_VARIANT
    wait_for_sync: bool = WAIT_FOR_SYNC
    name_check: bool = NAME_CHECK
    exact_name: bool | None = EXACT_NAME
    ignore_ipolicy: bool = params.IGNORE_IPOLICY
    opportunistic_locking: bool = OPPORTUNISTIC_LOCKING
    beparams: dict[str, Any] = BEPARAMS
    disks: list[dict[str, Any]] = param(ht.ListOf(types.IDiskParams), "Disks, each a dictionary")
    disk_template: str | None = params.DISK_TEMPLATE
    group_name: str | None = params.GROUP_OF_INSTANCE
    file_driver: str | None = FILE_DRIVER
    file_storage_dir: str | None = FILE_STORAGE_DIR
    hvparams: dict[str, Any] = param(ht.Dict, "Hypervisor parameters", default={})
    hypervisor: str | None = params.HYPERVISOR
    iallocator: str | None = params.ALLOCATOR
    identify_defaults: bool = param(
        ht.Bool, "Leave out parameters which equal the defaults of the cluster", default=False
    )
    ip_check: bool = IP_CHECK
    conflicts_check: bool = CONFLICTS_CHECK
    mode: str = param(
        types.InstCreateMode,
        "create: new instance; import: from a backup; remote-import: from another cluster",
    )
    nics: list[dict[str, Any]] = param(ht.ListOf(types.INicParams), "NICs, each a dictionary")
    no_install: bool | None = param(
        ht.Maybe(ht.Bool), "Create the disks without an operating system", default=None
    )
    osparams: dict[str, Any] = OSPARAMS
    osparams_private: dict[str, Any] | None = OSPARAMS_PRIVATE
    osparams_secret: dict[str, Any] | None = params.OSPARAMS_SECRET
    os_type: str | None = params.OS
    pnode: str | None = param(types.MaybeString, "Primary node", default=None)
    pnode_uuid: str | None = param(
        types.MaybeString,
        "UUID of the primary node, instead of its name or in addition to it",
        default=None,
    )
    snode: str | None = param(types.MaybeString, "Secondary node", default=None)
    snode_uuid: str | None = param(
        types.MaybeString,
        "UUID of the secondary node, instead of its name or in addition to it",
        default=None,
    )
    source_handshake: list[Any] | None = param(
        ht.Maybe(ht.List), "Signed data of the other cluster, from BACKUP_PREPARE", default=None
    )
    source_instance_name: str | None = param(
        types.MaybeString, "Name of the instance in the other cluster", default=None
    )
    source_shutdown_timeout: int = param(
        ht.NonNegInt,
        "Seconds which the guest in the other cluster has to shut down",
        default=SHUTDOWN_TIMEOUT_S,
    )
    source_x509_ca: str | None = param(
        types.MaybeString, "Certificate of the other cluster", default=None
    )
    src_node: str | None = param(types.MaybeString, "Node which has the backup", default=None)
    src_node_uuid: str | None = param(
        types.MaybeString,
        "UUID of the node which has the backup; used instead of the name if given",
        default=None,
    )
    src_path: str | None = param(types.MaybeString, "Directory of the backup", default=None)
    compress: str = params.COMPRESS
    start: bool = param(ht.Bool, "Start the instance when it is ready", default=True)
    forthcoming: bool = param(
        ht.Bool, "Only reserve names, addresses and capacity (forthcoming instance)", default=False
    )
    commit: bool = param(ht.Bool, "Make a forthcoming instance real", default=False)
    explain: bool | None = param(
        ht.Maybe(ht.Bool),
        "Add to the job log why each node was or was not chosen",
        default=None,
        added=True,
    )
    accept_from_description: list[str] | None = param(
        ht.Maybe(ht.ListOf(ht.NonEmptyString)),
        "Names of values which are taken from the description of an export, although they name"
        " things of the node; see gnt-backup(8)",
        default=None,
        added=True,
    )
    tags: list[str] = params.TAGS
    instance_communication: bool = param(
        ht.Bool, "Let the guest communicate with its node", default=False
    )
    helper_startup_timeout: int | None = param(
        ht.Maybe(ht.Int), "Seconds which the helper guest has to start", default=None
    )
    helper_shutdown_timeout: int | None = param(
        ht.Maybe(ht.Int), "Seconds which the helper guest has to finish", default=None
    )
    RESULT = types.Strings


@opcode(summary="instance_name")
class OpInstanceDeactivateDisks(OpCode):
    """Deactivate the disks of a stopped instance. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    force: bool = param(
        ht.Bool, "Deactivate the disks without a check whether the instance runs", default=False
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceFailover(OpCode):
    """Stop an instance and start it on its other node. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    shutdown_timeout: int = params.SHUTDOWN_TIMEOUT
    ignore_consistency: bool = param(
        ht.Bool, "Go on although the disks are not in sync", default=False
    )
    target_node: str | None = params.TARGET_NODE
    target_node_uuid: str | None = params.TARGET_NODE_UUID
    ignore_ipolicy: bool = params.IGNORE_IPOLICY
    cleanup: bool = param(ht.Bool, "Clean up after a failover which was interrupted", default=False)
    iallocator: str | None = params.ALLOCATOR
    new_secondary: str | None = param(
        types.MaybeString,
        "Which of the present nodes keeps its replica, if the target node has none",
        default=None,
        added=True,
    )
    wait_for_sync: bool | None = param(
        ht.Maybe(ht.Bool),
        "Start the instance only when its replica on the target node is in sync, if the target"
        " node had none",
        default=None,
        added=True,
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceGrowDisk(OpCode):
    """Make a disk larger. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    wait_for_sync: bool = WAIT_FOR_SYNC
    disk: int = param(types.DiskIndex, "Index of the disk")
    amount: int = param(ht.NonNegInt, "MiB to add")
    absolute: bool = param(ht.Bool, "The amount is the new size", default=False)
    ignore_ipolicy: bool = params.IGNORE_IPOLICY
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceMigrate(OpCode):
    """Migrate a running instance to another node. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    mode: str | None = params.MIGRATION_MODE
    live: bool | None = params.LIVE
    target_node: str | None = params.TARGET_NODE
    target_node_uuid: str | None = params.TARGET_NODE_UUID
    allow_runtime_changes: bool = params.ALLOW_RUNTIME_CHANGES
    ignore_ipolicy: bool = params.IGNORE_IPOLICY
    cleanup: bool = param(
        ht.Bool, "Clean up after a migration which was interrupted", default=False
    )
    iallocator: str | None = params.ALLOCATOR
    allow_failover: bool = param(ht.Bool, "Fail over if the instance is stopped", default=False)
    ignore_hvversions: bool = param(
        ht.Bool, "Migrate between different versions of the hypervisor", default=False
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceMove(OpCode):
    """Copy a stopped instance to another node. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    shutdown_timeout: int = params.SHUTDOWN_TIMEOUT
    ignore_ipolicy: bool = params.IGNORE_IPOLICY
    target_node: str = param(ht.NonEmptyString, "Target node")
    target_node_uuid: str | None = param(
        types.MaybeString,
        "UUID of the target node; used instead of the name if given",
        default=None,
    )
    compress: str = params.COMPRESS
    ignore_consistency: bool = param(
        ht.Bool, "Go on even if the instance cannot be shut down", default=False
    )
    RESULT = ht.NoneType


@opcode()
class OpInstanceMultiAlloc(OpCode):
    """Create several instances, placed together by an allocator.

    Result: ``jobs``; the names of the instances which these jobs create, ``allocatable``; the names
    of those for which there is no capacity, ``failed``.
    """

    opportunistic_locking: bool = OPPORTUNISTIC_LOCKING
    iallocator: str | None = params.ALLOCATOR
    instances: list[Any] = param(
        ht.List, "Opcodes INSTANCE_CREATE of the instances to place together", default=[]
    )
    RESULT = types.MultiAllocResponse


@opcode(kind=QUERY)
class OpInstanceQueryData(OpCode):
    """Describe instances completely. Result: dictionary by name."""

    use_locking: bool = params.USE_LOCKING
    instances: list[str] = param(
        types.Strings, "Instances to describe; all if the list is empty", default=[]
    )
    static: bool = param(
        ht.Bool, "Only data from the configuration, nothing from the nodes", default=False
    )
    with_guest: bool | None = param(
        ht.Maybe(ht.Bool),
        "Describe the running guest, too: its memory, since when it runs, and its addresses",
        default=None,
        added=True,
    )
    RESULT = ht.ObjectOf(ht.Dict)


@opcode(summary="instance_name")
class OpInstanceReboot(OpCode):
    """Reboot an instance. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    shutdown_timeout: int = params.SHUTDOWN_TIMEOUT
    ignore_secondaries: bool = param(
        ht.Bool, "Start although a secondary node cannot be reached", default=False
    )
    reboot_type: str = param(types.RebootType, "How to reboot: soft, hard or full")
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceRecreateDisks(OpCode):
    """Create lost disks again, empty. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    disks: list[Any] = param(
        types.RecreateDisksInfo,
        "Disks to create again, as indices or [index, changes]; all if the list is empty",
        default=[],
    )
    nodes: list[str] = param(
        types.Strings,
        "New nodes of the instance, the primary node first; the present ones if the list is empty",
        default=[],
    )
    node_uuids: list[str] | None = param(
        types.MaybeStrings,
        "UUIDs of the new nodes; used instead of the names if given",
        default=None,
    )
    iallocator: str | None = params.ALLOCATOR
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceReinstall(OpCode):
    """Install the operating system again. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    force_variant: bool = FORCE_VARIANT
    os_type: str | None = param(
        types.MaybeString, "Operating system; the present one if not given", default=None
    )
    osparams: dict[str, Any] | None = param(
        types.MaybeObject, "Parameters of the operating system", default=None
    )
    osparams_private: dict[str, Any] | None = OSPARAMS_PRIVATE
    osparams_secret: dict[str, Any] | None = params.OSPARAMS_SECRET
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceRemove(OpCode):
    """Remove an instance and its disks. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    shutdown_timeout: int = params.SHUTDOWN_TIMEOUT
    ignore_failures: bool = params.IGNORE_REMOVE_FAILURES
    unfinished_import: bool | None = param(
        ht.Maybe(ht.Bool),
        "Remove the instance only if its import from another cluster has not ended",
        default=None,
        added=True,
    )
    RESULT = ht.NoneType


@opcode()
class OpInstanceRename(OpCode):
    """Rename an instance. Result: the new name."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    new_name: str = params.NEW_NAME
    name_check: bool = NAME_CHECK
    exact_name: bool | None = EXACT_NAME
    ip_check: bool = IP_CHECK
    RESULT = ht.NonEmptyString


@opcode(summary="instance_name")
class OpInstanceReplaceDisks(OpCode):
    """Replace disks of an instance whose disks are mirrored. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    early_release: bool = params.EARLY_RELEASE
    ignore_ipolicy: bool = params.IGNORE_IPOLICY
    mode: str = param(
        types.ReplaceDisksMode,
        "replace_on_primary, replace_on_secondary, replace_new_secondary or replace_auto",
    )
    disks: list[int] = DISK_INDICES
    remote_node: str | None = NEW_SECONDARY
    remote_node_uuid: str | None = NEW_SECONDARY_UUID
    iallocator: str | None = params.ALLOCATOR
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceSetParams(OpCode):
    """Change parameters or devices of an instance. Result: list of [parameter, new value]."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    force: bool = params.FORCE
    force_variant: bool = FORCE_VARIANT
    ignore_ipolicy: bool = params.IGNORE_IPOLICY
    nics: list[Any] = param(types.ParamMods(types.INicParams), "Changes to NICs", default=[])
    disks: list[Any] = param(types.ParamMods(types.IDiskParams), "Changes to disks", default=[])
    beparams: dict[str, Any] = BEPARAMS
    runtime_mem: int | None = param(
        ht.Maybe(ht.PositiveInt), "New memory of the running guest, in MiB", default=None
    )
    hvparams: dict[str, Any] = param(ht.Dict, "Hypervisor parameters", default={})
    hypervisor: str | None = param(
        ht.Maybe(types.Hypervisor),
        "Other hypervisor of the stopped instance; its present hypervisor parameters are dropped",
        default=None,
        added=True,
    )
    disk_template: str | None = param(
        ht.Maybe(types.DiskTemplate), "Disk template to convert the disks to", default=None
    )
    ext_params: dict[str, Any] = param(
        ht.Dict, "Parameters of the external storage provider", default={}
    )
    file_driver: str | None = FILE_DRIVER
    file_storage_dir: str | None = FILE_STORAGE_DIR
    pnode: str | None = param(
        types.MaybeString,
        "New primary node; only the record is changed, nothing is moved",
        default=None,
    )
    pnode_uuid: str | None = param(
        types.MaybeString,
        "UUID of the primary node; used instead of the name if given",
        default=None,
    )
    remote_node: str | None = NEW_SECONDARY
    remote_node_uuid: str | None = NEW_SECONDARY_UUID
    iallocator: str | None = params.ALLOCATOR
    os_name: str | None = param(
        types.MaybeString, "Operating system to record; nothing is installed", default=None
    )
    osparams: dict[str, Any] = OSPARAMS
    osparams_private: dict[str, Any] | None = OSPARAMS_PRIVATE
    wait_for_sync: bool = WAIT_FOR_SYNC
    offline: bool | None = param(
        ht.Maybe(ht.Bool), "True marks the instance as offline, False as stopped", default=None
    )
    conflicts_check: bool = CONFLICTS_CHECK
    hotplug: bool = param(ht.Bool, "Change the devices of the running guest as well", default=True)
    instance_communication: bool | None = param(
        ht.Maybe(ht.Bool), "Let the guest communicate with its node", default=None
    )
    RESULT = types.Changes
    OLD_FLAGS = {"hotplug_if_possible": "hotplug"}  # noqa: RUF012


@opcode(summary="instance_name")
class OpInstanceShutdown(OpCode):
    """Stop an instance. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    force: bool = param(
        ht.Bool, "Stop the guest even if the instance is marked as offline", default=False
    )
    ignore_offline_nodes: bool = IGNORE_OFFLINE_NODES
    timeout: int = params.SHUTDOWN_TIMEOUT
    no_remember: bool = NO_REMEMBER
    admin_state_source: str | None = param(
        ht.Maybe(types.AdminStateSource), "Who stops the instance: admin or user", default=None
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceSnapshot(OpCode):
    """Make a snapshot of disks under a name. Result: that name."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    snapshot_name: str | None = param(
        types.MaybeString, "Name of the snapshot; the present time (UTC) if not given", default=None
    )
    disks: list[int] = DISK_INDICES
    shutdown: bool = param(
        ht.Bool, "Stop the instance for the snapshot, and start it again afterwards", default=False
    )
    shutdown_timeout: int = params.SHUTDOWN_TIMEOUT
    RESULT = ht.NonEmptyString


@opcode(kind=QUERY)
class OpInstanceSnapshotList(OpCode):
    """List the snapshots of instances. Result: a dictionary for each snapshot of each disk."""

    instances: list[str] = param(types.Strings, "Instances; all if the list is empty", default=[])
    RESULT = ht.ListOf(ht.Dict)


@opcode(summary="instance_name")
class OpInstanceSnapshotRemove(OpCode):
    """Remove a snapshot from all disks which have it. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    snapshot_name: str = param(ht.NonEmptyString, "Name of the snapshot")
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceSnapshotRestore(OpCode):
    """Restore the disks of a stopped instance from a snapshot. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    snapshot_name: str = param(ht.NonEmptyString, "Name of the snapshot")
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceStartup(OpCode):
    """Start a stopped instance on its primary node. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    force: bool = param(
        ht.Bool,
        "Start although a disk is not completely restored, or a secondary node cannot be reached",
        default=False,
    )
    ignore_offline_nodes: bool = IGNORE_OFFLINE_NODES
    hvparams: dict[str, Any] = param(
        ht.Dict, "Hypervisor parameters for this start only", default={}
    )
    beparams: dict[str, Any] = param(ht.Dict, "Backend parameters for this start only", default={})
    no_remember: bool = NO_REMEMBER
    startup_paused: bool = param(ht.Bool, "Start the guest paused", default=False)
    shutdown_timeout: int = params.SHUTDOWN_TIMEOUT
    wanted_only: bool | None = param(
        ht.Maybe(ht.Bool),
        "Start the instance only if its wanted state is up when the job has its locks; otherwise"
        " leave it as it is",
        default=None,
        added=True,
    )
    continue_paused: bool | None = param(
        ht.Maybe(ht.Bool),
        "Let the guest run on if somebody has paused it",
        default=None,
        added=True,
    )
    RESULT = ht.NoneType
