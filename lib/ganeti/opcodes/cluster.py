"""The cluster as a whole: parameters, verification, master address."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@opcode()
class OpClusterActivateMasterIp(OpCode):
    """Bring the master address up on the master. Result: None."""

    RESULT = ht.NoneType


@opcode(kind=QUERY)
class OpClusterConfigQuery(OpCode):
    """Read single values of the cluster. Result: values in the order asked."""

    output_fields: list[str] = param(types.Strings, "Values wanted")
    RESULT = ht.List


@opcode()
class OpClusterDeactivateMasterIp(OpCode):
    """Take the master address down. Result: None."""

    RESULT = ht.NoneType


@opcode()
class OpClusterDestroy(OpCode):
    """Prepare the end of a cluster without other nodes or instances. Result: UUID of the master."""

    RESULT = ht.NonEmptyString


@opcode()
class OpClusterPostInit(OpCode):
    """Run the hooks of a cluster just made. Result: True."""

    RESULT = ht.Bool


@opcode(kind=QUERY)
class OpClusterQuery(OpCode):
    """Describe the cluster. Result: a dictionary."""

    RESULT = ht.Dict


@opcode()
class OpClusterRedistConf(OpCode):
    """Copy configuration and shared files to the nodes again. Result: None."""

    RESULT = ht.NoneType


@opcode(summary="name")
class OpClusterRename(OpCode):
    """Give the cluster another name and address. Result: the new name."""

    name: str = param(ht.NonEmptyString, "New name of the cluster")
    RESULT = ht.NonEmptyString


@opcode()
class OpClusterRenewCrypto(OpCode):
    """Renew certificates and keys of the nodes. Result: None."""

    node_certificates: bool = param(
        ht.Bool, "Renew the client certificates of the nodes", default=False
    )
    renew_ssh_keys: bool = param(ht.Bool, "Renew the SSH keys of the nodes", default=False)
    ssh_key_type: str | None = param(
        ht.Maybe(types.SshKeyType), "Type of the new SSH keys", default=None
    )
    ssh_key_bits: int | None = param(
        ht.Maybe(ht.PositiveInt), "Length of the new SSH keys in bits", default=None
    )
    verbose: bool = param(ht.Bool, "Say more about what is done", default=False)
    debug: bool = param(ht.Bool, "Say everything about what is done", default=False)
    RESULT = ht.NoneType


@opcode()
class OpClusterRepairDiskSizes(OpCode):
    """Correct recorded disk sizes by what the nodes have.

    Result: [instance, disk index, what (size or spindles), new value] per correction.
    """

    instances: list[str] = param(types.Strings, "Instances to look at; none means all", default=[])
    RESULT = ht.ListOf(ht.Tuple(ht.NonEmptyString, ht.NonNegInt, ht.NonEmptyString, ht.NonNegInt))


@opcode()
class OpClusterSetParams(OpCode):
    """Change cluster-wide parameters; those left out stay. Result: None, or jobs."""

    force: bool = param(ht.Bool, "Do it although a check speaks against it", default=False)
    hv_state: dict[str, Any] | None = param(
        types.MaybeObject,
        "Resources that the hypervisor reports wrongly, set by hand",
        default=None,
    )
    disk_state: dict[str, Any] | None = param(
        types.MaybeObject, "Resources of storage, set by hand", default=None
    )
    vg_name: str | None = param(
        ht.Maybe(ht.Str), "Volume group of LVM disks; empty for none", default=None
    )
    enabled_hypervisors: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.Hypervisor)),
        "Hypervisors in use, the default one first",
        default=None,
    )
    hvparams: dict[str, dict[str, Any]] | None = param(
        ht.Maybe(ht.DictOf(ht.Str, ht.Dict)), "Default parameters per hypervisor", default=None
    )
    beparams: dict[str, Any] | None = param(
        types.MaybeObject, "Default backend parameters", default=None
    )
    os_hvp: dict[str, dict[str, Any]] | None = param(
        ht.Maybe(ht.DictOf(ht.Str, ht.Dict)),
        "Hypervisor parameters per operating system",
        default=None,
    )
    osparams: dict[str, dict[str, Any]] | None = param(
        ht.Maybe(ht.DictOf(ht.Str, ht.Dict)), "Parameters per operating system", default=None
    )
    osparams_private_cluster: dict[str, dict[str, Any]] | None = param(
        ht.Maybe(ht.DictOf(ht.Str, ht.ObjectOf(ht.Private(ht.Any)))),
        "Private parameters per operating system",
        default=None,
    )
    diskparams: dict[str, dict[str, Any]] | None = param(
        types.DiskParams, "Parameters per disk template", default=None
    )
    candidate_pool_size: int | None = param(
        ht.Maybe(ht.PositiveInt), "How many master candidates to keep", default=None
    )
    max_running_jobs: int | None = param(
        ht.Maybe(ht.PositiveInt), "How many jobs may run at once", default=None
    )
    max_tracked_jobs: int | None = param(
        ht.Maybe(ht.PositiveInt), "How many jobs to watch for changes at once", default=None
    )
    uid_pool: list[Any] | None = param(
        types.UidPool, "User ids for guests, as [first, last]", default=None
    )
    add_uids: list[Any] | None = param(types.UidPool, "User ids to add to the pool", default=None)
    remove_uids: list[Any] | None = param(
        types.UidPool, "User ids to take out of the pool", default=None
    )
    maintain_node_health: bool | None = param(
        ht.Maybe(ht.Bool),
        "Whether the watcher stops instances on nodes which are marked offline",
        default=None,
    )
    prealloc_wipe_disks: bool | None = param(
        ht.Maybe(ht.Bool), "Whether new disks are overwritten before use", default=None
    )
    nicparams: dict[str, Any] | None = param(
        ht.Maybe(types.INicParams), "Default NIC parameters", default=None
    )
    ndparams: dict[str, Any] | None = param(types.MaybeObject, "Node parameters", default=None)
    ipolicy: dict[str, Any] | None = param(types.MaybeObject, "Bounds for instances", default=None)
    drbd_helper: str | None = param(
        ht.Maybe(ht.Str), "Program the kernel calls for DRBD; empty for none", default=None
    )
    default_iallocator: str | None = param(
        ht.Maybe(ht.Str), "Allocator to ask when none is named; empty for none", default=None
    )
    default_iallocator_params: dict[str, Any] | None = param(
        types.MaybeObject, "Its parameters", default=None
    )
    mac_prefix: str | None = param(
        types.MaybeString, "First three bytes of generated MAC addresses", default=None
    )
    master_netdev: str | None = param(
        ht.Maybe(ht.Str), "Network device which carries the master address", default=None
    )
    master_netmask: int | None = param(
        ht.Maybe(ht.NonNegInt), "Netmask of the master address, in bits", default=None
    )
    reserved_lvs: list[str] | None = param(
        types.MaybeStrings, "Patterns of logical volumes to leave alone", default=None
    )
    hidden_os: list[Any] | None = param(
        ht.Maybe(ht.ListOf(ht.Tuple(types.ListChange, ht.NonEmptyString))),
        "Operating systems to hide from lists: [add or remove, name]",
        default=None,
    )
    blacklisted_os: list[Any] | None = param(
        ht.Maybe(ht.ListOf(ht.Tuple(types.ListChange, ht.NonEmptyString))),
        "Operating systems not to be used: [add or remove, name]",
        default=None,
    )
    use_external_mip_script: bool | None = param(
        ht.Maybe(ht.Bool), "Whether a script of the site moves the master address", default=None
    )
    enabled_disk_templates: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.DiskTemplate)), "Disk templates in use", default=None
    )
    modify_etc_hosts: bool | None = param(
        ht.Maybe(ht.Bool), "Whether nodes are written to /etc/hosts", default=None
    )
    file_storage_dir: str | None = param(ht.Maybe(ht.Str), "Directory of file disks", default=None)
    shared_file_storage_dir: str | None = param(
        ht.Maybe(ht.Str), "Directory of shared file disks", default=None
    )
    gluster_storage_dir: str | None = param(
        ht.Maybe(ht.Str), "Directory where Gluster volumes are mounted", default=None
    )
    install_image: str | None = param(
        ht.Maybe(ht.Str), "Image booted to install instances", default=None
    )
    instance_communication_network: str | None = param(
        ht.Maybe(ht.Str),
        "Network over which guests talk to their node; empty for none",
        default=None,
    )
    zeroing_image: str | None = param(
        ht.Maybe(ht.Str), "Image booted to overwrite free space", default=None
    )
    compression_tools: list[str] | None = param(
        types.MaybeStrings, "Programs allowed for compression", default=None
    )
    enabled_user_shutdown: bool | None = param(
        ht.Maybe(ht.Bool),
        "Whether a shutdown from inside the guest is taken as wanted",
        default=None,
    )
    enabled_data_collectors: dict[str, bool] | None = param(
        ht.Maybe(ht.DictOf(ht.Str, ht.Bool)), "Which data collectors run", default=None
    )
    data_collector_interval: dict[str, int] | None = param(
        ht.Maybe(ht.DictOf(ht.Str, ht.Int)),
        "Microseconds between runs, per data collector",
        default=None,
    )
    RESULT = types.MaybeJobIdListOnly


@opcode()
class OpClusterVerify(OpCode):
    """Check the cluster: submits the checks of configuration and groups. Result: jobs."""

    debug_simulate_errors: bool = param(ht.Bool, "Report every check as failed", default=False)
    error_codes: bool = param(ht.Bool, "Give findings in a form for programs", default=False)
    skip_checks: list[str] = param(
        ht.SetOf(types.VerifyOptionalCheck), "Optional checks to leave out", default=[]
    )
    ignore_errors: list[str] = param(
        ht.SetOf(types.VerifyCode), "Findings to be reported as warnings", default=[]
    )
    verbose: bool = param(ht.Bool, "Say more about what is done", default=False)
    group_name: str | None = param(types.MaybeString, "Only this node group", default=None)
    verify_clutter: bool = param(
        ht.Bool, "Look for keys that do not belong to this cluster", default=False
    )
    RESULT = types.JobIdListOnly


@opcode()
class OpClusterVerifyConfig(OpCode):
    """Check the configuration in itself. Result: whether it is in order."""

    debug_simulate_errors: bool = param(ht.Bool, "Report every check as failed", default=False)
    error_codes: bool = param(ht.Bool, "Give findings in a form for programs", default=False)
    ignore_errors: list[str] = param(
        ht.SetOf(types.VerifyCode), "Findings to be reported as warnings", default=[]
    )
    verbose: bool = param(ht.Bool, "Say more about what is done", default=False)
    RESULT = ht.Bool


@opcode()
class OpClusterVerifyDisks(OpCode):
    """Check the disks of all groups: submits a job for each. Result: jobs."""

    group_name: str | None = param(types.MaybeString, "Only this node group", default=None)
    is_strict: bool = param(ht.Bool, "Take a node that cannot be asked as an error", default=True)
    RESULT = types.JobIdListOnly


@opcode(summary="group_name")
class OpClusterVerifyGroup(OpCode):
    """Check nodes and instances of a group. Result: whether all is in order."""

    group_name: str = param(ht.NonEmptyString, "Node group")
    debug_simulate_errors: bool = param(ht.Bool, "Report every check as failed", default=False)
    error_codes: bool = param(ht.Bool, "Give findings in a form for programs", default=False)
    skip_checks: list[str] = param(
        ht.SetOf(types.VerifyOptionalCheck), "Optional checks to leave out", default=[]
    )
    ignore_errors: list[str] = param(
        ht.SetOf(types.VerifyCode), "Findings to be reported as warnings", default=[]
    )
    verbose: bool = param(ht.Bool, "Say more about what is done", default=False)
    verify_clutter: bool = param(
        ht.Bool, "Look for keys that do not belong to this cluster", default=False
    )
    RESULT = ht.Bool
