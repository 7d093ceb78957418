"""Opcodes for the cluster: parameters, verification, master address."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.constants import job
from ganeti.opcodes import params, types
from ganeti.opcodes.base import QUERY, OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


# Parameters which several opcodes have.
DEBUG_SIMULATE_ERRORS: Any = param(ht.Bool, "Report an error for every check", default=False)
ERROR_CODES: Any = param(ht.Bool, "Report problems in a form for programs", default=False)
SKIP_CHECKS: Any = param(
    ht.SetOf(types.VerifyOptionalCheck), "Optional checks to leave out", default=[]
)
IGNORE_ERRORS: Any = param(ht.SetOf(types.VerifyCode), "Errors to report as warnings", default=[])
VERBOSE: Any = param(ht.Bool, "Write more messages", default=False)
ONE_GROUP: Any = param(types.MaybeString, "Only this node group", default=None)
VERIFY_CLUTTER: Any = param(
    ht.Bool, "Search for keys which do not belong to the cluster", default=False
)


@opcode()
class OpClusterActivateMasterIp(OpCode):
    """Activate the master address on the master node. Result: None."""

    RESULT = ht.NoneType


@opcode(kind=QUERY)
class OpClusterConfigQuery(OpCode):
    """Read single values of the cluster. Result: list of values in the order of the names."""

    output_fields: list[str] = param(ht.FieldNames, "Names of the values")
    RESULT = ht.List


@opcode()
class OpClusterDeactivateMasterIp(OpCode):
    """Deactivate the master address. Result: None."""

    RESULT = ht.NoneType


@opcode()
class OpClusterDestroy(OpCode):
    """Prepare the end of a cluster which has no other nodes and no instances.

    Result: UUID of the master node.
    """

    RESULT = ht.NonEmptyString


@opcode()
class OpClusterPostInit(OpCode):
    """Run the hooks after the initialisation of the cluster. Result: True."""

    RESULT = ht.Bool


@opcode(kind=QUERY)
class OpClusterQuery(OpCode):
    """Describe the cluster. Result: a dictionary."""

    RESULT = ht.Dict


@opcode()
class OpClusterRedistConf(OpCode):
    """Copy the configuration and the common files to all nodes again. Result: None."""

    RESULT = ht.NoneType


@opcode(summary="name")
class OpClusterRename(OpCode):
    """Change name and address of the cluster. Result: the new name."""

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
    verbose: bool = param(ht.Bool, "Log the nodes which have completed each step", default=False)
    debug: bool = param(
        ht.Bool, "Log these, and the digests of old and new certificates", default=False
    )
    RESULT = ht.NoneType


@opcode()
class OpClusterRepairDiskSizes(OpCode):
    """Set the recorded disk sizes to the real ones.

    Result: [instance, index of the disk, size or spindles, new value] for each correction.
    """

    instances: list[str] = param(
        types.Strings, "Instances to check; all if the list is empty", default=[]
    )
    RESULT = ht.ListOf(ht.Tuple(ht.NonEmptyString, ht.NonNegInt, ht.NonEmptyString, ht.NonNegInt))


@opcode()
class OpClusterSetParams(OpCode):
    """Change parameters of the cluster; those which are not given stay. Result: None, or jobs."""

    force: bool = params.FORCE
    hv_state: dict[str, Any] | None = params.HV_STATE
    disk_state: dict[str, Any] | None = params.DISK_STATE
    vg_name: str | None = param(
        ht.Maybe(ht.Str), "Volume group of LVM disks; an empty text for none", default=None
    )
    enabled_hypervisors: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.Hypervisor)),
        "Enabled hypervisors, the default one first",
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
    diskparams: dict[str, dict[str, Any]] | None = params.DISKPARAMS
    candidate_pool_size: int | None = param(
        ht.Maybe(ht.PositiveInt), "Wanted number of master candidates", default=None
    )
    max_running_jobs: int | None = param(
        ht.Maybe(ht.PositiveInt), "Maximum number of jobs which run at the same time", default=None
    )
    max_tracked_jobs: int | None = param(
        ht.Maybe(ht.PositiveInt),
        "Maximum number of jobs which are watched for changes at the same time",
        default=None,
    )
    uid_pool: list[Any] | None = param(
        types.UidPool, "User IDs for guests, as list of [first, last]", default=None
    )
    add_uids: list[Any] | None = param(
        types.UidPool, "User IDs to add to the pool, as list of [first, last]", default=None
    )
    remove_uids: list[Any] | None = param(
        types.UidPool, "User IDs to remove from the pool, as list of [first, last]", default=None
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
    ndparams: dict[str, Any] | None = params.NDPARAMS
    ipolicy: dict[str, Any] | None = params.IPOLICY
    drbd_helper: str | None = param(
        ht.Maybe(ht.Str),
        "Program which the kernel calls for DRBD; an empty text for none",
        default=None,
    )
    default_iallocator: str | None = param(
        ht.Maybe(ht.Str), "Default allocator; an empty text for none", default=None
    )
    default_iallocator_params: dict[str, Any] | None = param(
        types.MaybeObject, "Parameters of the default allocator", default=None
    )
    mac_prefix: str | None = param(
        types.MaybeString, "First three bytes of generated MAC addresses", default=None
    )
    master_netdev: str | None = param(
        ht.Maybe(ht.Str), "Network device which has the master address", default=None
    )
    master_netmask: int | None = param(
        ht.Maybe(ht.NonNegInt), "Netmask of the master address: number of bits", default=None
    )
    reserved_lvs: list[str] | None = param(
        types.MaybeStrings,
        "Regular expressions; logical volumes with such names are left alone",
        default=None,
    )
    hidden_os: list[Any] | None = param(
        ht.Maybe(ht.ListOf(ht.Tuple(types.ListChange, ht.NonEmptyString))),
        "Operating systems to hide in lists: [add or remove, name]",
        default=None,
    )
    blacklisted_os: list[Any] | None = param(
        ht.Maybe(ht.ListOf(ht.Tuple(types.ListChange, ht.NonEmptyString))),
        "Operating systems which nobody may use: [add or remove, name]",
        default=None,
    )
    use_external_mip_script: bool | None = param(
        ht.Maybe(ht.Bool),
        "Whether a script of the administrator sets up the master address",
        default=None,
    )
    enabled_disk_templates: list[str] | None = param(
        ht.Maybe(ht.ListOf(types.DiskTemplate)), "Enabled disk templates", default=None
    )
    modify_etc_hosts: bool | None = param(
        ht.Maybe(ht.Bool), "Whether the names of nodes are written to /etc/hosts", default=None
    )
    file_storage_dir: str | None = param(ht.Maybe(ht.Str), "Directory of file disks", default=None)
    shared_file_storage_dir: str | None = param(
        ht.Maybe(ht.Str), "Directory of shared file disks", default=None
    )
    gluster_storage_dir: str | None = param(
        ht.Maybe(ht.Str), "Directory where Gluster volumes are mounted", default=None
    )
    install_image: str | None = param(
        ht.Maybe(ht.Str), "Image of the helper guest which installs instances", default=None
    )
    instance_communication_network: str | None = param(
        ht.Maybe(ht.Str),
        "Network by which guests communicate with their node; an empty text for none",
        default=None,
    )
    zeroing_image: str | None = param(
        ht.Maybe(ht.Str), "Image of the helper guest which overwrites free space", default=None
    )
    compression_tools: list[str] | None = param(
        types.MaybeStrings, "Programs which may be used for compression", default=None
    )
    enabled_user_shutdown: bool | None = param(
        ht.Maybe(ht.Bool),
        "Whether a user may shut down an instance from inside the guest",
        default=None,
    )
    enabled_data_collectors: dict[str, bool] | None = param(
        ht.Maybe(ht.DictOf(ht.Str, ht.Bool)), "Whether each data collector runs", default=None
    )
    data_collector_interval: dict[str, int] | None = param(
        ht.Maybe(ht.DictOf(ht.Str, ht.Int)),
        "Microseconds between two runs of each data collector",
        default=None,
    )
    auto_instance_failover: int | None = param(
        ht.Maybe(ht.NonNegInt),
        "Seconds without an answer after which a node is fenced and its instances start elsewhere;"
        " 0 for never",
        default=None,
        added=True,
    )
    node_watchdog: int | None = param(
        ht.Maybe(ht.NonNegInt),
        "Seconds after which the hardware watchdog of a node which is cut off restarts it;"
        " 0 for not using the watchdogs",
        default=None,
        added=True,
    )
    auto_balance: dict[str, Any] | None = param(
        ht.Maybe(ht.Dict),
        "Automatic balance by the watcher: moves_per_hour and min_gain; empty for none",
        default=None,
        added=True,
    )
    rapi_require_authentication: bool | None = param(
        ht.Maybe(ht.Bool),
        "Whether every request to the REST interface needs a password",
        default=None,
        added=True,
    )
    job_execution: str | None = param(
        ht.Maybe(ht.OneOf("threads or processes", job.EXECUTIONS)),
        "Where jobs are executed which start afterwards: in threads of the master daemon, or in"
        " processes of their own",
        default=None,
        added=True,
    )
    auto_failover: int | None = param(
        ht.Maybe(ht.NonNegInt),
        "Seconds without a master after which a candidate asks for its role; 0 for never",
        default=None,
        added=True,
    )
    witness: str | None = param(
        ht.Maybe(ht.Str),
        "URL of the document which is the third voter of two candidates; none for no witness",
        default=None,
        added=True,
    )
    RESULT = types.MaybeJobIdListOnly


@opcode()
class OpClusterVerify(OpCode):
    """Verify the cluster: submit jobs for the configuration and each node group. Result: jobs."""

    debug_simulate_errors: bool = DEBUG_SIMULATE_ERRORS
    error_codes: bool = ERROR_CODES
    skip_checks: list[str] = SKIP_CHECKS
    ignore_errors: list[str] = IGNORE_ERRORS
    verbose: bool = VERBOSE
    group_name: str | None = ONE_GROUP
    verify_clutter: bool = VERIFY_CLUTTER
    RESULT = types.JobIdListOnly


@opcode()
class OpClusterVerifyConfig(OpCode):
    """Verify the configuration without the nodes. Result: True if there is no error."""

    debug_simulate_errors: bool = DEBUG_SIMULATE_ERRORS
    error_codes: bool = ERROR_CODES
    ignore_errors: list[str] = IGNORE_ERRORS
    verbose: bool = VERBOSE
    RESULT = ht.Bool


@opcode()
class OpClusterVerifyDisks(OpCode):
    """Verify the disks of all node groups: submit a job for each. Result: jobs."""

    group_name: str | None = ONE_GROUP
    is_strict: bool = params.IS_STRICT
    RESULT = types.JobIdListOnly


@opcode(summary="group_name")
class OpClusterVerifyGroup(OpCode):
    """Verify nodes and instances of a node group. Result: True if there is no error."""

    group_name: str = params.GROUP_NAME
    debug_simulate_errors: bool = DEBUG_SIMULATE_ERRORS
    error_codes: bool = ERROR_CODES
    skip_checks: list[str] = SKIP_CHECKS
    ignore_errors: list[str] = IGNORE_ERRORS
    verbose: bool = VERBOSE
    verify_clutter: bool = VERIFY_CLUTTER
    RESULT = ht.Bool
