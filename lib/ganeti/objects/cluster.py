"""The cluster object, filter rules, and the root of the configuration."""

from __future__ import annotations

import dataclasses
from typing import Any

from ganeti import ht
from ganeti.constants.node import ND_PARAM_TYPES
from ganeti.objects import disk_templates
from ganeti.objects.base import parameters, unstored
from ganeti.objects.disk import Disk
from ganeti.objects.instance import Instance
from ganeti.objects.network import Network
from ganeti.objects.node import Node, NodeGroup


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Parameters of the whole cluster, and the defaults of all other parameters.

    :ivar master_node: UUID of the master node.
    :ivar candidate_certs: SHA1 digest (upper case, colons) of the client certificate of each master
        candidate, by UUID of the node.
    :ivar uid_pool: ranges of user IDs, each ``(first, last)``.
    """

    serial_no: int
    rsahostkeypub: str
    dsahostkeypub: str | None = None
    highest_used_port: int
    tcpudp_port_pool: tuple[int, ...]
    mac_prefix: str
    volume_group_name: str | None = None
    reserved_lvs: tuple[str, ...]
    drbd_usermode_helper: str | None = None
    master_node: str
    master_ip: str
    master_netdev: str
    master_netmask: int
    use_external_mip_script: bool
    cluster_name: str
    file_storage_dir: str
    shared_file_storage_dir: str
    gluster_storage_dir: str
    enabled_hypervisors: tuple[str, ...]
    hvparams: dict[str, Any]
    os_hvp: dict[str, Any]
    beparams: dict[str, Any]
    osparams: dict[str, Any]
    osparams_private_cluster: ht.PrivateDict
    nicparams: dict[str, Any]
    ndparams: dict[str, Any] = parameters(frozenset(ND_PARAM_TYPES))
    diskparams: dict[str, Any]
    candidate_pool_size: int
    modify_etc_hosts: bool
    modify_ssh_setup: bool
    maintain_node_health: bool
    uid_pool: tuple[Any, ...]
    default_iallocator: str
    default_iallocator_params: dict[str, Any]
    hidden_os: tuple[str, ...]
    blacklisted_os: tuple[str, ...]
    primary_ip_family: int
    prealloc_wipe_disks: bool
    hv_state_static: dict[str, Any] = parameters(optional=True)
    disk_state_static: dict[str, Any] = parameters(optional=True)
    ipolicy: dict[str, Any]
    enabled_disk_templates: tuple[str, ...]
    candidate_certs: dict[str, Any]
    max_running_jobs: int
    max_tracked_jobs: int
    install_image: str
    instance_communication_network: str
    zeroing_image: str
    compression_tools: tuple[str, ...]
    enabled_user_shutdown: bool
    data_collectors: dict[str, Any]
    #: Ours: seconds without an answer after which a node is fenced, and its instances start
    #: elsewhere; None for never.
    auto_instance_failover: int | None = None
    #: Ours: seconds after which the hardware watchdog of a node which is cut off restarts it; None
    #: when the watchdogs are not used.
    node_watchdog: int | None = None
    #: Ours: every request to the REST interface needs a password.
    rapi_require_authentication: bool = False
    #: Ours: seconds without a master after which a candidate asks for its role; None for never.
    auto_failover: int | None = None
    #: Ours: URL of the document which is the third voter of two candidates; None for none.
    witness: str | None = None
    #: Ours: the watcher moves instances to balance the cluster; None for never. ``moves_per_hour``
    #: is the most moves in an hour, ``min_gain`` what they must improve the score by.
    auto_balance: dict[str, Any] | None = None
    #: Ours: ``threads`` or ``processes``.
    job_execution: str = unstored("threads")
    #: Ours: secret of the master candidates, with which exports are sealed; empty before the first.
    export_key: str = unstored("")
    ssh_key_type: str
    ssh_key_bits: int
    ctime: float = 0
    mtime: float = 0
    uuid: str
    tags: tuple[str, ...] = ()

    @property
    def primary_hypervisor(self) -> str:
        """The default hypervisor of new instances."""
        return self.enabled_hypervisors[0]

    def disk_directory(self, template: str) -> str:
        """Return the directory of a template's disks; empty when it has or needs none."""
        field = disk_templates.of(template).directory
        return str(getattr(self, field) or "") if field else ""

    def directories_of_types(self) -> dict[str, str]:
        """Return storage type -> directory of its disks, for types which have one."""
        return {
            disk_templates.of(name).storage_type: self.disk_directory(name)
            for name in disk_templates.directory_fields()
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FilterRule:
    """A filter rule for jobs; rules are applied in the order of their priority."""

    watermark: int
    priority: int
    predicates: tuple[Any, ...]
    action: Any
    reason_trail: tuple[Any, ...]
    uuid: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KeptDocument:
    """A small JSON document which a program keeps in this cluster (``/2/documents`` of REST).

    The cluster does not read its content. It may be the witness of another cluster.

    :ivar text: the content, a JSON object.
    :ivar serial_no: grows with each replacement of the content.
    """

    uuid: str
    name: str
    text: str
    ctime: float
    mtime: float
    serial_no: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccessRecord:
    """What the cluster keeps about a session, a token or another proof of a user's identity.

    The secret of a user is never in a record: the key of a session or a token is a hash of it.

    :ivar kind: such as ``session`` or ``token``.
    :ivar key: identifies the record among those of its kind.
    :ivar owner: name of the user of the REST interface.
    :ivar expires: end in seconds since 1970; None for a record without end.
    :ivar used: time of the last use, rarely written; None before the first one.
    :ivar data: what else the kind needs.
    """

    uuid: str
    kind: str
    key: str
    owner: str
    ctime: float
    expires: float | None = None
    used: float | None = None
    data: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConfigData:
    """Root of the configuration. The keys of all dictionaries are UUIDs."""

    version: int
    cluster: Cluster
    nodes: dict[str, Node]
    nodegroups: dict[str, NodeGroup]
    instances: dict[str, Instance]
    networks: dict[str, Network]
    disks: dict[str, Disk]
    filters: dict[str, FilterRule]
    documents: dict[str, KeptDocument] = dataclasses.field(
        default_factory=dict, metadata={"unstored": True}
    )
    access_records: dict[str, AccessRecord] = dataclasses.field(
        default_factory=dict, metadata={"unstored": True}
    )
    #: Entries which cannot be understood, by path; see :mod:`ganeti.config.damaged`.
    damaged: dict[str, Any] = dataclasses.field(default_factory=dict, metadata={"unstored": True})
    ctime: float = 0
    mtime: float = 0
    serial_no: int
