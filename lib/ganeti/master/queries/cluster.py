"""Answers about the cluster as a whole.

``QueryClusterInfo`` and ``QueryConfigValues`` of LUXI and the opcodes of the older names use these
functions. Names and shapes are published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import FULL_VERSION
from ganeti.constants import cluster as cluster_const
from ganeti.constants import net as net_c
from ganeti.master.queries import service
from ganeti.objects import codec, disk_templates

if TYPE_CHECKING:
    from ganeti.cmdlib.base import MasterContext
    from ganeti.config.view import Questions

_STORED = (
    "enabled_hypervisors",
    "hvparams",
    "os_hvp",
    "beparams",
    "osparams",
    "ipolicy",
    "nicparams",
    "ndparams",
    "diskparams",
    "candidate_pool_size",
    "max_running_jobs",
    "max_tracked_jobs",
    "mac_prefix",
    "master_netdev",
    "master_netmask",
    "use_external_mip_script",
    "volume_group_name",
    "drbd_usermode_helper",
    *disk_templates.directory_fields().values(),
    "maintain_node_health",
    "ctime",
    "mtime",
    "uuid",
    "tags",
    "uid_pool",
    "default_iallocator",
    "default_iallocator_params",
    "reserved_lvs",
    "prealloc_wipe_disks",
    "hidden_os",
    "blacklisted_os",
    "enabled_disk_templates",
    "install_image",
    "instance_communication_network",
    "zeroing_image",
    "auto_instance_failover",
    "node_watchdog",
    "compression_tools",
    "enabled_user_shutdown",
    "rapi_require_authentication",
    "job_execution",
    "auto_failover",
    "witness",
    "auto_balance",
    "modify_ssh_setup",
    "ssh_key_type",
    "ssh_key_bits",
)


def cluster_info(context: MasterContext) -> dict[str, Any]:
    """Return everything about the cluster that is not secret, by its published name."""
    return {
        **stored_info(context.config),
        "software_version": cluster_const.RELEASE_VERSION,
        "protocol_version": cluster_const.PROTOCOL_VERSION,
        "config_version": cluster_const.CONFIG_VERSION,
        "os_api_version": cluster_const.OS_API_VERSION,
        "export_version": cluster_const.EXPORT_VERSION,
        "vcs_version": f"(ganeti) version {FULL_VERSION}",
        "architecture": service.architecture(),
    }


def stored_info(config: Questions) -> dict[str, Any]:
    """Return what a state of the configuration says about the cluster, by its published name.

    What the program says, such as its version, is missing.
    """
    cluster = config.cluster()
    state = codec.to_dict(cluster)
    collectors = cluster.data_collectors
    info = {name: state.get(name) for name in _STORED}
    info.update(
        name=cluster.cluster_name,
        master=config.master_node().name,
        default_hypervisor=cluster.primary_hypervisor,
        primary_ip_version=net_c.IP6_VERSION
        if cluster.primary_ip_family == net_c.IP6_FAMILY
        else net_c.IP4_VERSION,
        enabled_data_collectors={
            name: values.get("active", True) for name, values in collectors.items()
        },
        hv_state=cluster.hv_state_static,
        disk_state=cluster.disk_state_static,
        data_collector_interval={
            name: values.get("interval") for name, values in collectors.items()
        },
    )
    return info


def config_values(context: MasterContext, names: Sequence[str]) -> list[Any]:
    """Return single values in the order of the names; None for an unknown name."""
    cluster = context.config.cluster()
    values: dict[str, Callable[[], Any]] = {
        "cluster_name": lambda: cluster.cluster_name,
        "master_node": lambda: context.config.master_node().name,
        "drain_flag": lambda: context.queue.drained,
        "queue_pause": lambda: _queue_pause(context),
        "watcher_pause": service.watcher_pause,
        "commit_age": lambda: context.commit_age(),
        "modify_ssh_setup": lambda: cluster.modify_ssh_setup,
        "ssh_key_type": lambda: cluster.ssh_key_type,
        "ssh_key_bits": lambda: cluster.ssh_key_bits,
    }
    return [values[name]() if name in values else None for name in names]


def _queue_pause(context: MasterContext) -> str:
    """Return why no jobs are taken up; empty when they are."""
    paused = context.queue.paused()
    return "" if paused is None else str(paused.reason)
