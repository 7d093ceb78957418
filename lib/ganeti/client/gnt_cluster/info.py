"""The output of ``gnt-cluster info``, made from the result of ``QueryClusterInfo``.

The keys, their order and the form of the values are published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ganeti import TYPE_CHECKING
from ganeti.cli import listing, output
from ganeti.platform import paths

if TYPE_CHECKING:
    from typing import Any

    from ganeti.cli.output import Pairs

    Number = Callable[[Any], str]


def describe(info: Mapping[str, Any], number: Number) -> Pairs:
    """Return the properties of the cluster as keys and values.

    :param info: result of ``QueryClusterInfo``.
    :param number: function which formats whole numbers.
    """
    enabled = info["enabled_hypervisors"]
    return [
        ("Cluster name", info["name"]),
        ("Cluster UUID", info["uuid"]),
        ("Creation time", listing.format_time(info["ctime"])),
        ("Modification time", listing.format_time(info["mtime"])),
        ("Master node", info["master"]),
        ("Architecture (this node)", _architecture(info["architecture"])),
        ("Tags", _or_none(info["tags"])),
        ("Default hypervisor", info["default_hypervisor"]),
        ("Enabled hypervisors", ", ".join(enabled)),
        (
            "Hypervisor parameters",
            _groups({name: info["hvparams"].get(name, {}) for name in enabled}, number),
        ),
        (
            "OS-specific hypervisor parameters",
            {name: _groups(params, number) for name, params in info["os_hvp"].items()},
        ),
        ("OS parameters", _groups(info["osparams"], number)),
        ("Hidden OSes", ", ".join(info["hidden_os"])),
        ("Blacklisted OSes", ", ".join(info["blacklisted_os"])),
        ("Cluster parameters", _parameters(info, number)),
        ("Default node parameters", _params(info["ndparams"], number)),
        ("Default instance parameters", _groups(info["beparams"], number)),
        ("Default nic parameters", _groups(info["nicparams"], number)),
        ("Default disk parameters", _groups(info["diskparams"], number)),
        *_states(info, number),
        ("Instance policy - limits for instances", _policy(info["ipolicy"], number)),
        ("Data collectors", _collectors(info)),
    ]


def _states(info: Mapping[str, Any], number: Number) -> Pairs:
    """Return the assumed sizes of nodes, if the cluster has such defaults."""
    pairs: Pairs = []
    if info.get("hv_state"):
        pairs.append(("Default hypervisor state", _groups(info["hv_state"], number)))
    if info.get("disk_state"):
        pairs.append(
            (
                "Default disk state",
                {
                    template: _groups(named, number)
                    for template, named in info["disk_state"].items()
                },
            )
        )
    return pairs


def _architecture(architecture: list[str]) -> str:
    return f"{architecture[0]} ({architecture[1]})"


def _or_none(names: list[str]) -> str:
    return ", ".join(names) if names else "(none)"


def _auto_balance(settings: Mapping[str, Any] | None, number: Number) -> Pairs:
    """Return the line about the automatic balance, where it is on."""
    if not settings:
        return []
    from ganeti.constants import balance

    moves, gain = settings[balance.MOVES_PER_HOUR], settings[balance.MIN_GAIN]
    return [("automatic balance", f"{number(moves)} moves an hour, each gains {number(gain)}")]


def _parameters(info: Mapping[str, Any], number: Number) -> Pairs:
    # The paths without the root directory of a node of a virtual cluster.
    everywhere = paths.Paths()
    return [
        ("candidate pool size", number(info["candidate_pool_size"])),
        ("maximal number of jobs running simultaneously", number(info["max_running_jobs"])),
        (
            "maximal number of jobs simultaneously tracked by the scheduler",
            number(info["max_tracked_jobs"]),
        ),
        ("mac prefix", info["mac_prefix"]),
        ("master netdev", info["master_netdev"]),
        ("master netmask", number(info["master_netmask"])),
        ("use external master IP address setup script", info["use_external_mip_script"]),
        ("lvm volume group", info["volume_group_name"]),
        ("lvm reserved volumes", _or_none(info["reserved_lvs"])),
        ("drbd usermode helper", info["drbd_usermode_helper"]),
        ("file storage path", info["file_storage_dir"]),
        ("shared file storage path", info["shared_file_storage_dir"]),
        ("gluster storage path", info["gluster_storage_dir"]),
        ("maintenance of node health", info["maintain_node_health"]),
        ("uid pool", _uid_pool(info["uid_pool"], number)),
        ("default instance allocator", info["default_iallocator"]),
        (
            "default instance allocator parameters",
            _params(info["default_iallocator_params"] or {}, number),
        ),
        ("primary ip version", number(info["primary_ip_version"])),
        ("preallocation wipe disks", info["prealloc_wipe_disks"]),
        ("OS search path", ", ".join(everywhere.os_search_path)),
        ("ExtStorage Providers search path", ", ".join(everywhere.extstorage_search_path)),
        ("enabled disk templates", ", ".join(info["enabled_disk_templates"])),
        ("install image", info["install_image"]),
        ("instance communication network", info["instance_communication_network"]),
        ("zeroing image", info["zeroing_image"]),
        ("compression tools", list(info["compression_tools"])),
        (
            "automatic instance failover",
            _or_off("after", info.get("auto_instance_failover"), number),
        ),
        ("watchdogs of nodes", _or_off("timeout", info.get("node_watchdog"), number)),
        ("enabled user shutdown", info["enabled_user_shutdown"]),
        ("execution of jobs", f"in {info.get('job_execution') or 'threads'}"),
        ("REST requires authentication", info["rapi_require_authentication"]),
        ("automatic master failover", _or_off("after", info.get("auto_failover"), number)),
        ("witness", info.get("witness") or "none"),
        *_auto_balance(info.get("auto_balance"), number),
        ("modify ssh setup", info["modify_ssh_setup"]),
        ("ssh_key_type", info["ssh_key_type"]),
        ("ssh_key_bits", info["ssh_key_bits"]),
    ]


def _uid_pool(ranges: list[list[int]], number: Number) -> str:
    return ", ".join(
        number(low) if low == high else f"{number(low)}-{number(high)}" for low, high in ranges
    )


def _or_off(word: str, timeout_s: int | None, number: Number) -> str:
    return f"{word} {number(timeout_s)} s" if timeout_s else "off"


def _params(params: Mapping[str, Any], number: Number) -> dict[str, str]:
    return {name: output.value_text(value, number) for name, value in params.items()}


def _groups(groups: Mapping[str, Mapping[str, Any]], number: Number) -> dict[str, dict[str, str]]:
    return {name: _params(params, number) for name, params in groups.items()}


def _policy(policy: Mapping[str, Any], number: Number) -> Pairs:
    bounds = [
        # "min" comes before "max"; both orders occur in the configuration.
        [
            (f"{kind}/{index}", _params(bound[kind], number))
            for kind in sorted(bound, key=("min", "max").index)
        ]
        for index, bound in enumerate(policy["minmax"])
    ]
    return [
        ("bounds specs", bounds),
        ("std", _params(policy["std"], number)),
        ("allowed disk templates", ", ".join(policy["disk-templates"])),
        ("spindle-ratio", output.value_text(policy["spindle-ratio"], number)),
        ("vcpu-ratio", output.value_text(policy["vcpu-ratio"], number)),
    ]


def _collectors(info: Mapping[str, Any]) -> dict[str, Pairs]:
    intervals_us = info["data_collector_interval"]
    return {
        name: [("active", active), ("interval", f"{intervals_us.get(name, 0) / 1e6:.3f}s")]
        for name, active in info["enabled_data_collectors"].items()
    }
