"""Options of ``gnt-cluster init`` and ``gnt-cluster modify``; most belong to both."""

from __future__ import annotations

from ganeti.cli import options as opt
from ganeti.cli.command import Option
from ganeti.constants import job as job_const


def _specs(name: str, what: str, dest: str) -> Option:
    return opt.key_values(
        name,
        dest=dest,
        help=f"bounds and standard value of the {what} of an instance",
        metavar="min=N,max=N,std=N",
    )


_COMMON = (
    opt.text("--master-netdev", metavar="NETDEV", help="interface of the address of the cluster"),
    opt.text(
        "--master-netmask",
        metavar="NETMASK",
        help="number of bits of the netmask of the address of the cluster",
    ),
    opt.yes_no(
        "--use-external-mip-script",
        help="whether a script of the administrator sets up the address of the cluster",
    ),
    opt.text(
        "-m",
        "--mac-prefix",
        metavar="PREFIX",
        help="first three bytes of the MAC addresses which are generated for instances",
    ),
    opt.text(
        "--enabled-hypervisors",
        metavar="NAME,...",
        help="hypervisors to use; the first one is the default",
    ),
    opt.hypervisor_defaults("defaults of the parameters of a hypervisor"),
    opt.keyed_values(
        "--hypervisor-defaults",
        dest="hvparams",
        metavar="HYPERVISOR:KEY=VALUE,...",
        help="older spelling of --hypervisor-parameters",
    ),
    Option(
        "--defaults",
        kind="keyval",
        default={},
        metavar="KEY=VALUE,...",
        help="some defaults in the spelling of Ganeti 2.0: hypervisor, disksize, bridge",
    ),
    opt.key_values(
        "-B",
        "--backend-parameters",
        dest="beparams",
        help="defaults of memory (MiB, or with a unit), vcpus and others",
    ),
    opt.key_values(
        "-N",
        "--nic-parameters",
        dest="nicparams",
        help="defaults of network interfaces: mode, link, vlan",
    ),
    opt.NODE_PARAMETERS,
    opt.disk_parameters("defaults of the parameters of a disk template"),
    opt.HV_STATE,
    opt.DISK_STATE,
    opt.text(
        "--enabled-disk-templates", metavar="NAME,...", help="disk templates that may be used"
    ),
    opt.text("--file-storage-dir", metavar="DIR", help="directory for disks of template file"),
    opt.text(
        "--shared-file-storage-dir",
        metavar="SHAREDDIR",
        help="directory for disks of template sharedfile",
    ),
    opt.text("--vg-name", metavar="VG", help="LVM volume group for plain and drbd"),
    opt.text(
        "--drbd-usermode-helper",
        dest="drbd_helper",
        metavar="PROGRAM",
        help="usermode helper with which the DRBD module must be loaded",
    ),
    opt.yes_no(
        "--prealloc-wipe-disks", help="whether new disks are overwritten before a guest gets them"
    ),
    opt.number(
        "-C",
        "--candidate-pool-size",
        metavar="N",
        help="number of nodes that keep a copy of the configuration",
    ),
    opt.yes_no(
        "--maintain-node-health",
        help="whether the watcher stops instances on nodes which are marked offline",
    ),
    Option(
        "-I",
        "--default-iallocator",
        kind="string",
        metavar="<NAME>",
        completion="iallocator",
        help="allocator which is used when neither a node nor an allocator is named",
    ),
    Option(
        "--default-iallocator-params",
        kind="keyval",
        metavar="KEY=VALUE,...",
        help="parameters of the default allocator",
    ),
    opt.text(
        "--uid-pool",
        metavar="LOW-HIGH,...|auto",
        help="user ids under which guests may run; auto chooses 1000 which no account has",
    ),
    Option(
        "--ipolicy-bounds-specs",
        kind="multilistidentkeyval",
        metavar="min:KEY=N,.../max:KEY=N,...",
        help="lower and upper bounds of instances; // separates alternatives",
    ),
    Option(
        "--ipolicy-std-specs",
        kind="keyval",
        metavar="KEY=N,...",
        help="sizes of the standard instance",
    ),
    Option(
        "--ipolicy-disk-templates",
        kind="list",
        metavar="NAME,...",
        help="disk templates which instances may have",
    ),
    Option(
        "--ipolicy-spindle-ratio",
        kind="maybefloat",
        metavar="N",
        help="number of instances per spindle",
    ),
    Option(
        "--ipolicy-vcpu-ratio",
        kind="maybefloat",
        metavar="N",
        help="number of virtual processors per real one",
    ),
    opt.text("--compression-tools", metavar="NAME,...", help="programs that may compress exports"),
    opt.text(
        "--install-image",
        metavar="FILE|URL",
        help="image of the helper guest that installs untrusted operating systems",
    ),
    opt.text(
        "--zeroing-image",
        metavar="FILE",
        help="image of the helper guest that overwrites free space",
    ),
    opt.yes_no(
        "--user-shutdown",
        dest="enabled_user_shutdown",
        help="whether a shutdown from inside a guest is accepted",
    ),
    opt.yes_no(
        "--rapi-require-authentication",
        help="whether every request to the REST interface needs a password",
    ),
)

#: Options of ``init``.
INIT = (
    *_COMMON,
    opt.text(
        "-s",
        "--secondary-ip",
        metavar="ADDRESS",
        help="address of this node in the replication network",
    ),
    Option(
        "--primary-ip-version",
        kind="string",
        default=4,
        metavar="4|6",
        help="address family of the cluster; 4 by default",
    ),
    Option(
        "--gluster-storage-dir",
        kind="string",
        default="/var/run/ganeti/gluster",
        metavar="GLUSTERDIR",
        help="directory where Gluster is mounted; /var/run/ganeti/gluster by default",
    ),
    _specs("--specs-cpu-count", "number of processors", "ispecs_cpu_count"),
    _specs("--specs-disk-count", "number of disks", "ispecs_disk_count"),
    _specs("--specs-disk-size", "size of disks", "ispecs_disk_size"),
    _specs("--specs-mem-size", "memory", "ispecs_mem_size"),
    _specs("--specs-nic-count", "number of network interfaces", "ispecs_nic_count"),
    opt.negative(
        "--no-etc-hosts", dest="modify_etc_hosts", help="do not change /etc/hosts of the nodes"
    ),
    opt.negative(
        "--no-ssh-init", dest="modify_ssh_setup", help="do not change the SSH files of the nodes"
    ),
    Option(
        "--ssh-key-type",
        choices=("dsa", "ecdsa", "ed25519", "rsa"),
        help="type of SSH keys; rsa by default",
    ),
    opt.number("--ssh-key-bits", metavar="BITS", help="length of SSH keys; 2048 by default"),
)

#: Options of ``modify``.
MODIFY = (
    *_COMMON,
    opt.FORCE,
    opt.DRY_RUN,
    opt.PRIORITY,
    *opt.SUBMIT_OPTIONS,
    opt.text("--add-uids", metavar="LOW-HIGH,...", help="user ids to add to the pool"),
    opt.text("--remove-uids", metavar="LOW-HIGH,...", help="user ids to remove from the pool"),
    opt.number(
        "--max-running-jobs", metavar="N", help="number of jobs that may run at the same time"
    ),
    opt.number(
        "--max-tracked-jobs",
        metavar="N",
        help="number of jobs that are watched at the same time: the limit of job processes",
    ),
    Option(
        "--job-execution",
        choices=job_const.EXECUTIONS,
        help="whether jobs are threads of the master daemon or processes of their own",
    ),
    opt.text(
        "--reserved-lvs",
        metavar="PATTERN,...",
        help="logical volumes that do not belong to the cluster, as regular expressions of VG/LV",
    ),
    opt.yes_no(
        "--modify-etc-hosts", help="whether the nodes are written to /etc/hosts of the nodes"
    ),
    opt.text(
        "--instance-communication-network",
        metavar="NETWORK",
        help="network over which guests reach their node; created if it does not exist",
    ),
    opt.text(
        "--auto-instance-failover",
        metavar="yes|no|TIME",
        help="whether a node which does not answer for this time is switched off, and its instances"
        " start elsewhere; yes is 15s",
    ),
    opt.text(
        "--node-watchdog",
        metavar="yes|no|TIME",
        help="whether the hardware watchdog of a node restarts it when it is cut off, so that its"
        " instances can start elsewhere, and the timeout of the device; yes is 10s",
    ),
    opt.text(
        "--auto-failover",
        metavar="yes|no|TIME",
        help="whether a candidate takes the role of a master which is gone for this time; yes is"
        " 5s",
    ),
    opt.text(
        "--witness",
        metavar="URL|none",
        help="document on an HTTPS server which is the third voter of two master candidates",
    ),
    opt.text(
        "--witness-auth",
        metavar="FILE",
        help="file with user and password, or certificate and key, for the server of the witness",
    ),
    opt.text(
        "--witness-ca",
        metavar="FILE",
        help="certificates to trust for the server of the witness, instead of those of the system",
    ),
    Option(
        "--enabled-data-collectors",
        kind="keyval",
        default={},
        metavar="NAME=yes|no,...",
        help="whether data collectors run on the nodes",
    ),
    Option(
        "--data-collector-interval",
        kind="keyval",
        default={},
        metavar="NAME=SECONDS,...",
        help="time between two runs of a data collector",
    ),
    opt.text(
        "--auto-balance",
        metavar="yes|no|moves=N,gain=SCORE",
        help="whether the watcher moves instances to balance the cluster: at most N moves an hour"
        " (4), which must improve the score by SCORE (0.01)",
    ),
)
