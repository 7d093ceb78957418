"""Options of ``gnt-cluster init`` and ``gnt-cluster modify``; most belong to both."""

from __future__ import annotations

from ganeti.cli import options as opt
from ganeti.cli.options import Option


def _specs(name: str, what: str, dest: str) -> Option:
    return Option(
        name,
        kind="keyval",
        dest=dest,
        default={},
        metavar="min=N,max=N,std=N",
        help=f"bounds and standard of the {what} of an instance",
    )


_COMMON = (
    Option(
        "--master-netdev",
        kind="string",
        metavar="NETDEV",
        help="interface that carries the cluster's address",
    ),
    Option(
        "--master-netmask",
        kind="string",
        metavar="NETMASK",
        help="bits of the netmask of the cluster's address",
    ),
    Option(
        "--use-external-mip-script",
        kind="bool",
        metavar="yes|no",
        help="set up the cluster's address with a script of the administrator",
    ),
    Option(
        "-m",
        "--mac-prefix",
        kind="string",
        metavar="PREFIX",
        help="first three bytes of generated MAC addresses",
    ),
    Option(
        "--enabled-hypervisors",
        kind="string",
        metavar="NAME,...",
        help="hypervisors to use, the default one first",
    ),
    Option(
        "-H",
        "--hypervisor-parameters",
        kind="identkeyval",
        action="append",
        dest="hvparams",
        metavar="HYPERVISOR:KEY=VALUE,...",
        help="defaults of a hypervisor's parameters",
    ),
    Option(
        "--hypervisor-defaults",
        kind="identkeyval",
        action="append",
        dest="hvparams",
        metavar="HYPERVISOR:KEY=VALUE,...",
        help="older spelling of --hypervisor-parameters",
    ),
    Option(
        "--defaults",
        kind="keyval",
        default={},
        metavar="KEY=VALUE,...",
        help="older spelling of some defaults: hypervisor, disksize, bridge",
    ),
    Option(
        "-B",
        "--backend-parameters",
        kind="keyval",
        dest="beparams",
        default={},
        metavar="KEY=VALUE,...",
        help="defaults of memory, vcpus and others",
    ),
    Option(
        "-N",
        "--nic-parameters",
        kind="keyval",
        dest="nicparams",
        default={},
        metavar="KEY=VALUE,...",
        help="defaults of network interfaces: mode, link, vlan",
    ),
    opt.NODE_PARAMETERS,
    Option(
        "-D",
        "--disk-parameters",
        kind="identkeyval",
        action="append",
        dest="diskparams",
        metavar="TEMPLATE:KEY=VALUE,...",
        help="defaults of a disk template's parameters",
    ),
    opt.HV_STATE,
    opt.DISK_STATE,
    Option(
        "--enabled-disk-templates",
        kind="string",
        metavar="NAME,...",
        help="disk templates that may be used",
    ),
    Option(
        "--file-storage-dir", kind="string", metavar="DIR", help="where disks of template file are"
    ),
    Option(
        "--shared-file-storage-dir",
        kind="string",
        metavar="SHAREDDIR",
        help="where disks of template sharedfile are, on all nodes",
    ),
    Option("--vg-name", kind="string", metavar="VG", help="volume group for plain and drbd"),
    Option(
        "--drbd-usermode-helper",
        kind="string",
        dest="drbd_helper",
        metavar="PROGRAM",
        help="helper the DRBD module must have",
    ),
    Option(
        "--prealloc-wipe-disks",
        kind="bool",
        metavar="yes|no",
        help="overwrite new disks before use",
    ),
    Option(
        "-C",
        "--candidate-pool-size",
        kind="int",
        metavar="N",
        help="how many nodes keep a copy of the configuration",
    ),
    Option(
        "--maintain-node-health",
        kind="bool",
        metavar="yes|no",
        help="let the watcher stop what should not run",
    ),
    Option(
        "-I",
        "--default-iallocator",
        kind="string",
        metavar="<NAME>",
        completion="iallocator",
        help="allocator used when none is named",
    ),
    Option(
        "--default-iallocator-params",
        kind="keyval",
        metavar="KEY=VALUE,...",
        help="parameters of the default allocator",
    ),
    Option(
        "--uid-pool",
        kind="string",
        metavar="LOW-HIGH,...",
        help="user ids under which guests may run",
    ),
    Option(
        "--ipolicy-bounds-specs",
        kind="multilistidentkeyval",
        metavar="min:KEY=N,.../max:KEY=N,...",
        help="bounds of instances, // between choices",
    ),
    Option("--ipolicy-std-specs", kind="keyval", metavar="KEY=N,...", help="the standard instance"),
    Option(
        "--ipolicy-disk-templates",
        kind="list",
        metavar="NAME,...",
        help="disk templates the policy allows",
    ),
    Option(
        "--ipolicy-spindle-ratio", kind="maybefloat", metavar="N", help="instances for each spindle"
    ),
    Option(
        "--ipolicy-vcpu-ratio",
        kind="maybefloat",
        metavar="N",
        help="virtual processors for each real one",
    ),
    Option(
        "--compression-tools",
        kind="string",
        metavar="NAME,...",
        help="programs that may compress exports",
    ),
    Option(
        "--install-image",
        kind="string",
        metavar="FILE|URL",
        help="image for installations in a helper guest",
    ),
    Option(
        "--zeroing-image",
        kind="string",
        metavar="FILE",
        help="image of the helper guest that overwrites free space",
    ),
    Option(
        "--user-shutdown",
        kind="bool",
        dest="enabled_user_shutdown",
        metavar="yes|no",
        help="take a shutdown from inside a guest as wanted",
    ),
)

#: Of ``init``.
INIT = (
    *_COMMON,
    Option(
        "-s",
        "--secondary-ip",
        kind="string",
        metavar="ADDRESS",
        help="address of this node in the replication network",
    ),
    Option(
        "--primary-ip-version",
        kind="string",
        default=4,
        metavar="4|6",
        help="address family of the cluster",
    ),
    Option(
        "--gluster-storage-dir",
        kind="string",
        default="/var/run/ganeti/gluster",
        metavar="GLUSTERDIR",
        help="where Gluster is mounted",
    ),
    _specs("--specs-cpu-count", "number of processors", "ispecs_cpu_count"),
    _specs("--specs-disk-count", "number of disks", "ispecs_disk_count"),
    _specs("--specs-disk-size", "size of disks", "ispecs_disk_size"),
    _specs("--specs-mem-size", "memory", "ispecs_mem_size"),
    _specs("--specs-nic-count", "number of network interfaces", "ispecs_nic_count"),
    opt.flag(
        "--no-etc-hosts",
        dest="modify_etc_hosts",
        default=True,
        value=False,
        help="leave /etc/hosts of the nodes alone",
    ),
    opt.flag(
        "--no-ssh-init",
        dest="modify_ssh_setup",
        default=True,
        value=False,
        help="leave SSH keys of the nodes alone",
    ),
    Option("--ssh-key-type", choices=("dsa", "ecdsa", "rsa"), help="kind of SSH keys"),
    Option("--ssh-key-bits", kind="int", metavar="BITS", help="length of SSH keys"),
)

#: Of ``modify``.
MODIFY = (
    *_COMMON,
    opt.FORCE,
    opt.DRY_RUN,
    opt.PRIORITY,
    *opt.SUBMIT_OPTIONS,
    Option("--add-uids", kind="string", metavar="LOW-HIGH,...", help="add user ids to the pool"),
    Option(
        "--remove-uids", kind="string", metavar="LOW-HIGH,...", help="take user ids out of the pool"
    ),
    Option("--max-running-jobs", kind="int", metavar="N", help="how many jobs may run at once"),
    Option(
        "--max-tracked-jobs",
        kind="int",
        metavar="N",
        help="how many jobs are watched for changes at once",
    ),
    Option(
        "--reserved-lvs",
        kind="string",
        metavar="PATTERN,...",
        help="logical volumes that are not the cluster's, as regular expressions of VG/LV",
    ),
    Option(
        "--modify-etc-hosts",
        kind="bool",
        metavar="yes|no",
        help="write nodes to /etc/hosts of the nodes",
    ),
    Option(
        "--instance-communication-network",
        kind="string",
        metavar="NETWORK",
        help="network over which guests reach their node; made when missing",
    ),
    Option(
        "--enabled-data-collectors",
        kind="keyval",
        default={},
        metavar="NAME=yes|no,...",
        help="data collectors that run",
    ),
    Option(
        "--data-collector-interval",
        kind="keyval",
        default={},
        metavar="NAME=SECONDS,...",
        help="time between two runs of a data collector",
    ),
)
