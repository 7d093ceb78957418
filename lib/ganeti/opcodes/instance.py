"""Instances: life cycle, disks, moves, description."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@opcode(summary="instance_name")
class OpInstanceActivateDisks(OpCode):
    """Make the disks of an instance usable on its nodes. Result: [node, disk, path] each."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    ignore_size: bool = param(ht.Bool, "Take the size of disks as it is", default=False)
    wait_for_sync: bool = param(ht.Bool, "Wait until the disks are in step", default=False)
    RESULT = ht.ListOf(ht.Tuple(ht.NonEmptyString, ht.NonEmptyString, types.MaybeString))


@opcode(summary="instance_name")
class OpInstanceChangeGroup(OpCode):
    """Move an instance to another group. Result: jobs."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    early_release: bool = param(
        ht.Bool, "Give up locks as soon as the new disks are in step", default=False
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    target_groups: list[str] | None = param(
        types.MaybeStrings, "Node groups to go to; any if not given", default=None
    )
    RESULT = types.JobIdListOnly


@opcode(summary="instance_name")
class OpInstanceConsole(OpCode):
    """Say how to reach the console of an instance. Result: a dictionary."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    RESULT = ht.Dict


@opcode(summary="instance_name")
class OpInstanceCreate(OpCode):
    """Create an instance. Result: names of its nodes."""

    instance_name: str = param(ht.Str, "Instance")
    force_variant: bool = param(
        ht.Bool, "Accept an OS variant which the definition does not list", default=False
    )
    wait_for_sync: bool = param(ht.Bool, "Wait until the disks are in step", default=True)
    name_check: bool = param(ht.Bool, "Require that the name resolves", default=False)
    ignore_ipolicy: bool = param(
        ht.Bool, "Accept an instance outside the bounds of its group", default=False
    )
    opportunistic_locking: bool = param(
        ht.Bool, "Take the nodes that are free now rather than wait for all", default=False
    )
    beparams: dict[str, Any] = param(
        ht.Dict, "Backend parameters (memory, processors, ...)", default={}
    )
    disks: list[dict[str, Any]] = param(ht.ListOf(types.IDiskParams), "Disks, each a dictionary")
    disk_template: str | None = param(ht.Maybe(types.DiskTemplate), "Kind of disks", default=None)
    group_name: str | None = param(
        types.MaybeString, "Node group to place the instance in", default=None
    )
    file_driver: str | None = param(
        ht.Maybe(types.FileDriver), "Driver for file disks", default=None
    )
    file_storage_dir: str | None = param(
        types.MaybeString, "Directory below the cluster's one for file disks", default=None
    )
    hvparams: dict[str, Any] = param(ht.Dict, "Hypervisor parameters", default={})
    hypervisor: str | None = param(
        ht.Maybe(types.Hypervisor),
        "Hypervisor; the default of the cluster if not given",
        default=None,
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    identify_defaults: bool = param(
        ht.Bool, "Leave parameters out that equal the cluster defaults", default=False
    )
    ip_check: bool = param(
        ht.Bool, "Require that the address of the name is not in use", default=False
    )
    conflicts_check: bool = param(ht.Bool, "Refuse addresses which a network manages", default=True)
    mode: str = param(
        types.InstCreateMode, "Create from nothing, from a backup, or from another cluster"
    )
    nics: list[dict[str, Any]] = param(ht.ListOf(types.INicParams), "NICs, each a dictionary")
    no_install: bool | None = param(
        ht.Maybe(ht.Bool), "Create the disks without an operating system", default=None
    )
    osparams: dict[str, Any] = param(ht.Dict, "Parameters of the operating system", default={})
    osparams_private: dict[str, Any] | None = param(
        types.PrivateParams, "OS parameters kept out of logs", default=None
    )
    osparams_secret: dict[str, Any] | None = param(
        types.SecretParams, "OS parameters kept out of logs and never stored", default=None
    )
    os_type: str | None = param(types.MaybeString, "Operating system", default=None)
    pnode: str | None = param(types.MaybeString, "Primary node", default=None)
    pnode_uuid: str | None = param(
        types.MaybeString, "UUID of the primary node; filled in by the master", default=None
    )
    snode: str | None = param(types.MaybeString, "Secondary node", default=None)
    snode_uuid: str | None = param(
        types.MaybeString, "UUID of the secondary node; filled in by the master", default=None
    )
    source_handshake: list[Any] | None = param(
        ht.Maybe(ht.List), "Signed greeting of the other cluster", default=None
    )
    source_instance_name: str | None = param(
        types.MaybeString, "Name of the instance there", default=None
    )
    source_shutdown_timeout: int = param(
        ht.NonNegInt, "Seconds the guest there has to shut down", default=120
    )
    source_x509_ca: str | None = param(
        types.MaybeString, "Certificate of the other cluster", default=None
    )
    src_node: str | None = param(types.MaybeString, "Node which holds the backup", default=None)
    src_node_uuid: str | None = param(
        types.MaybeString, "UUID of that node; filled in by the master", default=None
    )
    src_path: str | None = param(types.MaybeString, "Directory of the backup", default=None)
    compress: str = param(ht.Str, "Compression of the disk data on its way", default="none")
    start: bool = param(ht.Bool, "Start the instance when it is ready", default=True)
    forthcoming: bool = param(ht.Bool, "Only reserve the resources", default=False)
    commit: bool = param(ht.Bool, "Make a reserved instance real", default=False)
    tags: list[str] = param(types.Strings, "Tags", default=[])
    instance_communication: bool = param(ht.Bool, "Let the guest talk to its node", default=False)
    helper_startup_timeout: int | None = param(
        ht.Maybe(ht.Int), "Seconds the helper guest has to start", default=None
    )
    helper_shutdown_timeout: int | None = param(
        ht.Maybe(ht.Int), "Seconds the helper guest has to end", default=None
    )
    RESULT = types.Strings


@opcode(summary="instance_name")
class OpInstanceDeactivateDisks(OpCode):
    """Take the disks of a stopped instance down. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    force: bool = param(ht.Bool, "Also when the instance seems to be running", default=False)
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceFailover(OpCode):
    """Stop an instance and start it on its other node. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    shutdown_timeout: int = param(
        ht.NonNegInt, "Seconds the guest has to shut down before it is stopped", default=120
    )
    ignore_consistency: bool = param(
        ht.Bool, "Go on although the disks are not in step", default=False
    )
    target_node: str | None = param(
        types.MaybeString,
        "Node to start on, where the disks are seen by several nodes",
        default=None,
    )
    target_node_uuid: str | None = param(
        types.MaybeString, "UUID of that node; filled in by the master", default=None
    )
    ignore_ipolicy: bool = param(
        ht.Bool, "Accept an instance outside the bounds of its group", default=False
    )
    cleanup: bool = param(ht.Bool, "Tidy up after a failover which broke off", default=False)
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceGrowDisk(OpCode):
    """Make a disk larger. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    wait_for_sync: bool = param(ht.Bool, "Wait until the disks are in step", default=True)
    disk: int = param(types.DiskIndex, "Index of the disk")
    amount: int = param(ht.NonNegInt, "MiB to add")
    absolute: bool = param(ht.Bool, "Take the amount as the new size", default=False)
    ignore_ipolicy: bool = param(
        ht.Bool, "Accept an instance outside the bounds of its group", default=False
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceMigrate(OpCode):
    """Move a running instance without stopping it. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    mode: str | None = param(
        ht.Maybe(types.MigrationMode),
        "Live or not; the default of the hypervisor if not given",
        default=None,
    )
    live: bool | None = param(ht.Maybe(ht.Bool), "Older spelling of mode", default=None)
    target_node: str | None = param(
        types.MaybeString,
        "Node to migrate to, where the disks are seen by several nodes",
        default=None,
    )
    target_node_uuid: str | None = param(
        types.MaybeString, "UUID of that node; filled in by the master", default=None
    )
    allow_runtime_changes: bool = param(
        ht.Bool, "Reduce memory when the target has too little", default=True
    )
    ignore_ipolicy: bool = param(
        ht.Bool, "Accept an instance outside the bounds of its group", default=False
    )
    cleanup: bool = param(ht.Bool, "Tidy up after a migration which broke off", default=False)
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    allow_failover: bool = param(ht.Bool, "Fail over when the instance is stopped", default=False)
    ignore_hvversions: bool = param(
        ht.Bool, "Migrate between different versions of the hypervisor", default=False
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceMove(OpCode):
    """Copy a stopped instance to another node. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    shutdown_timeout: int = param(
        ht.NonNegInt, "Seconds the guest has to shut down before it is stopped", default=120
    )
    ignore_ipolicy: bool = param(
        ht.Bool, "Accept an instance outside the bounds of its group", default=False
    )
    target_node: str = param(ht.NonEmptyString, "Node to go to")
    target_node_uuid: str | None = param(
        types.MaybeString, "UUID of that node; filled in by the master", default=None
    )
    compress: str = param(ht.Str, "Compression of the disk data on its way", default="none")
    ignore_consistency: bool = param(
        ht.Bool, "Go on although the disks are not in order", default=False
    )
    RESULT = ht.NoneType


@opcode()
class OpInstanceMultiAlloc(OpCode):
    """Place several instances at once. Result: jobs, and names that found no place."""

    opportunistic_locking: bool = param(
        ht.Bool, "Take the nodes that are free now rather than wait for all", default=False
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    instances: list[Any] = param(
        ht.List, "Opcodes INSTANCE_CREATE of the instances to place together", default=[]
    )
    RESULT = types.MultiAllocResponse


@opcode(kind=QUERY)
class OpInstanceQueryData(OpCode):
    """Describe instances with everything known. Result: dictionary by name."""

    use_locking: bool = param(ht.Bool, "Wait for locks before looking", default=False)
    instances: list[str] = param(types.Strings, "Instances to describe; none means all", default=[])
    static: bool = param(ht.Bool, "Give only what the configuration knows", default=False)
    RESULT = ht.ObjectOf(ht.Dict)


@opcode(summary="instance_name")
class OpInstanceReboot(OpCode):
    """Reboot an instance. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    shutdown_timeout: int = param(
        ht.NonNegInt, "Seconds the guest has to shut down before it is stopped", default=120
    )
    ignore_secondaries: bool = param(
        ht.Bool, "Start although a secondary cannot be reached", default=False
    )
    reboot_type: str = param(types.RebootType, "How to reboot: soft, hard or full")
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceRecreateDisks(OpCode):
    """Make lost disks again, empty. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    disks: list[Any] = param(
        types.RecreateDisksInfo,
        "Disks to create anew, as indices or [index, changes]; none means all",
        default=[],
    )
    nodes: list[str] = param(
        types.Strings, "New nodes of the instance, primary first; none to keep them", default=[]
    )
    node_uuids: list[str] | None = param(
        types.MaybeStrings, "UUIDs of these nodes; filled in by the master", default=None
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceReinstall(OpCode):
    """Install the operating system again. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    force_variant: bool = param(
        ht.Bool, "Accept an OS variant which the definition does not list", default=False
    )
    os_type: str | None = param(
        types.MaybeString, "Operating system; as before if not given", default=None
    )
    osparams: dict[str, Any] | None = param(
        types.MaybeObject, "Parameters of the operating system", default=None
    )
    osparams_private: dict[str, Any] | None = param(
        types.PrivateParams, "OS parameters kept out of logs", default=None
    )
    osparams_secret: dict[str, Any] | None = param(
        types.SecretParams, "OS parameters kept out of logs and never stored", default=None
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceRemove(OpCode):
    """Remove an instance and its disks. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    shutdown_timeout: int = param(
        ht.NonNegInt, "Seconds the guest has to shut down before it is stopped", default=120
    )
    ignore_failures: bool = param(ht.Bool, "Go on when parts cannot be removed", default=False)
    RESULT = ht.NoneType


@opcode()
class OpInstanceRename(OpCode):
    """Rename an instance. Result: the new name."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    new_name: str = param(ht.NonEmptyString, "New name")
    name_check: bool = param(ht.Bool, "Require that the name resolves", default=False)
    ip_check: bool = param(
        ht.Bool, "Require that the address of the name is not in use", default=False
    )
    RESULT = ht.NonEmptyString


@opcode(summary="instance_name")
class OpInstanceReplaceDisks(OpCode):
    """Replace mirrored disks. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    early_release: bool = param(
        ht.Bool, "Give up locks as soon as the new disks are in step", default=False
    )
    ignore_ipolicy: bool = param(
        ht.Bool, "Accept an instance outside the bounds of its group", default=False
    )
    mode: str = param(types.ReplaceDisksMode, "Which disks to replace, or by which node")
    disks: list[int] = param(
        ht.ListOf(types.DiskIndex), "Indices of the disks; none means all", default=[]
    )
    remote_node: str | None = param(types.MaybeString, "New secondary node", default=None)
    remote_node_uuid: str | None = param(
        types.MaybeString, "UUID of the new secondary node; filled in by the master", default=None
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceSetParams(OpCode):
    """Change an instance. Result: [what, new value] per change."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    force: bool = param(ht.Bool, "Do it although a check speaks against it", default=False)
    force_variant: bool = param(
        ht.Bool, "Accept an OS variant which the definition does not list", default=False
    )
    ignore_ipolicy: bool = param(
        ht.Bool, "Accept an instance outside the bounds of its group", default=False
    )
    nics: list[Any] = param(types.ParamMods(types.INicParams), "Changes to NICs", default=[])
    disks: list[Any] = param(types.ParamMods(types.IDiskParams), "Changes to disks", default=[])
    beparams: dict[str, Any] = param(
        ht.Dict, "Backend parameters (memory, processors, ...)", default={}
    )
    runtime_mem: int | None = param(
        ht.Maybe(ht.PositiveInt), "MiB which the running guest shall have", default=None
    )
    hvparams: dict[str, Any] = param(ht.Dict, "Hypervisor parameters", default={})
    disk_template: str | None = param(
        ht.Maybe(types.DiskTemplate), "Kind of disks to convert to", default=None
    )
    ext_params: dict[str, Any] = param(
        ht.Dict, "Parameters of the external storage provider", default={}
    )
    file_driver: str | None = param(
        ht.Maybe(types.FileDriver), "Driver for file disks", default=None
    )
    file_storage_dir: str | None = param(
        types.MaybeString, "Directory below the cluster's one for file disks", default=None
    )
    pnode: str | None = param(
        types.MaybeString, "New primary node, taken over as it is", default=None
    )
    pnode_uuid: str | None = param(
        types.MaybeString, "UUID of the primary node; filled in by the master", default=None
    )
    remote_node: str | None = param(types.MaybeString, "New secondary node", default=None)
    remote_node_uuid: str | None = param(
        types.MaybeString, "UUID of the new secondary node; filled in by the master", default=None
    )
    iallocator: str | None = param(
        types.MaybeString, "Allocator which decides where to", default=None
    )
    os_name: str | None = param(
        types.MaybeString, "Operating system on record, nothing is installed", default=None
    )
    osparams: dict[str, Any] = param(ht.Dict, "Parameters of the operating system", default={})
    osparams_private: dict[str, Any] | None = param(
        types.PrivateParams, "OS parameters kept out of logs", default=None
    )
    wait_for_sync: bool = param(ht.Bool, "Wait until the disks are in step", default=True)
    offline: bool | None = param(
        ht.Maybe(ht.Bool), "Mark the instance as not to be started, or as stopped", default=None
    )
    conflicts_check: bool = param(ht.Bool, "Refuse addresses which a network manages", default=True)
    hotplug: bool = param(ht.Bool, "Change devices of the running guest", default=True)
    instance_communication: bool | None = param(
        ht.Maybe(ht.Bool), "Let the guest talk to its node", default=None
    )
    RESULT = types.Changes


@opcode(summary="instance_name")
class OpInstanceShutdown(OpCode):
    """Stop an instance. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    force: bool = param(ht.Bool, "Also when the instance is marked as stopped", default=False)
    ignore_offline_nodes: bool = param(
        ht.Bool, "Change the record although the primary node is offline", default=False
    )
    timeout: int = param(
        ht.NonNegInt, "Seconds the guest has to shut down before it is stopped", default=120
    )
    no_remember: bool = param(ht.Bool, "Leave the wanted state on record as it is", default=False)
    admin_state_source: str | None = param(
        ht.Maybe(types.AdminStateSource), "Who wants it: administrator or user", default=None
    )
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceSnapshot(OpCode):
    """Keep the present content of disks under a name. Result: that name."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    snapshot_name: str | None = param(
        types.MaybeString, "Name of the snapshot; the time (UTC) if not given", default=None
    )
    disks: list[int] = param(
        ht.ListOf(types.DiskIndex), "Numbers of the disks; none means all", default=[]
    )
    shutdown: bool = param(
        ht.Bool, "Stop the instance meanwhile, and start it again", default=False
    )
    shutdown_timeout: int = param(
        ht.NonNegInt, "Seconds the guest has to shut down before it is stopped", default=120
    )
    RESULT = ht.NonEmptyString


@opcode(kind=QUERY)
class OpInstanceSnapshotList(OpCode):
    """List the snapshots of instances. Result: a dictionary for each, of each disk."""

    instances: list[str] = param(types.Strings, "Instances; none means all", default=[])
    RESULT = ht.ListOf(ht.Dict)


@opcode(summary="instance_name")
class OpInstanceSnapshotRemove(OpCode):
    """Remove a snapshot of all disks which have it. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    snapshot_name: str = param(ht.NonEmptyString, "Name of the snapshot")
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceSnapshotRestore(OpCode):
    """Let the disks of a stopped instance have the content of a snapshot again. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    snapshot_name: str = param(ht.NonEmptyString, "Name of the snapshot")
    RESULT = ht.NoneType


@opcode(summary="instance_name")
class OpInstanceStartup(OpCode):
    """Start a stopped instance on its primary node. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    force: bool = param(
        ht.Bool, "Start with unchecked parameters, or with a degraded secondary", default=False
    )
    ignore_offline_nodes: bool = param(
        ht.Bool, "Change the record although the primary node is offline", default=False
    )
    hvparams: dict[str, Any] = param(
        ht.Dict, "Hypervisor parameters for this start only", default={}
    )
    beparams: dict[str, Any] = param(ht.Dict, "Backend parameters for this start only", default={})
    no_remember: bool = param(ht.Bool, "Leave the wanted state on record as it is", default=False)
    startup_paused: bool = param(ht.Bool, "Leave the guest paused", default=False)
    shutdown_timeout: int = param(
        ht.NonNegInt, "Seconds the guest has to shut down before it is stopped", default=120
    )
    RESULT = ht.NoneType
