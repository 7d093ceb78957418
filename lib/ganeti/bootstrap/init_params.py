"""The options of ``gnt-cluster init``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.constants import net


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InitParams:
    """The options of ``gnt-cluster init``; dictionaries have only values that are not the defaults.

    :ivar secondary_ip: None for the primary address.
    :ivar vg_name: None for the usual volume group, if a disk template uses LVM.
    :ivar master_netdev: None, as for `enabled_hypervisors` and `enabled_disk_templates`, for what
        this machine has.
    :ivar file_storage_dir: a virtual path, as the paths of all file storage.
    """

    cluster_name: str
    secondary_ip: str | None = None
    primary_ip_version: int = net.IP4_VERSION
    master_netdev: str | None = None
    master_netmask: int | None = None
    use_external_mip_script: bool = False
    mac_prefix: str | None = None
    vg_name: str | None = None
    drbd_helper: str | None = None
    enabled_hypervisors: Sequence[str] | None = None
    enabled_disk_templates: Sequence[str] | None = None
    hvparams: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    beparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    nicparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ndparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    diskparams: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    ipolicy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    hv_state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    disk_state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    file_storage_dir: str | None = None
    shared_file_storage_dir: str | None = None
    gluster_storage_dir: str | None = None
    candidate_pool_size: int | None = None
    modify_etc_hosts: bool = True
    modify_ssh_setup: bool = True
    maintain_node_health: bool = False
    uid_pool: Sequence[tuple[int, int]] = ()
    default_iallocator: str | None = None
    default_iallocator_params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    prealloc_wipe_disks: bool = False
    install_image: str = ""
    zeroing_image: str = ""
    compression_tools: Sequence[str] | None = None
    enabled_user_shutdown: bool = False
    rapi_require_authentication: bool = False
    ssh_key_type: str | None = None
    ssh_key_bits: int | None = None
