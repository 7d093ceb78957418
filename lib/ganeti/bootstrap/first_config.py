"""The first configuration of a cluster, made of the options of ``gnt-cluster init``."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, TypeVar

from ganeti import errors, ht
from ganeti.bootstrap.init_params import InitParams
from ganeti.constants import cluster as const
from ganeti.constants import disk, hv, instance, job, net, node
from ganeti.objects import (
    Cluster,
    ConfigData,
    Node,
    NodeGroup,
    cluster_rules,
    disk_templates,
    hvparams,
    ipolicy,
)
from ganeti.platform import hosts, machine, paths, ssh_keys
from ganeti.utils import clock, fs, text

T = TypeVar("T")

_HOST_KEY_FILE = "/etc/ssh/ssh_host_rsa_key.pub"


def _wrong(message: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(message, errors.ECODE_INVAL)


def build_config(
    params: InitParams,
    me: hosts.Hostname,
    cluster_host: hosts.Hostname,
    *,
    now: float | None = None,
) -> ConfigData:
    """Make the first configuration: the cluster, one group, one node; without certificate digests.

    :param now: time of its objects, in seconds since 1970; None for the present time.
    :raises OpPrereqError: a parameter is wrong.
    """
    stamp = clock.now() if now is None else now
    node_uuid, group_uuid = text.new_uuid(), text.new_uuid()
    try:
        cluster = _build_cluster(params, cluster_host, node_uuid, stamp)
    except (
        errors.ConfigurationError, errors.HypervisorError, errors.ParameterError,
    ) as err:  # fmt: skip
        raise _wrong(str(err)) from err
    first = Node(
        name=me.name,
        primary_ip=me.ip,
        secondary_ip=params.secondary_ip or me.ip,
        master_candidate=True,
        offline=False,
        drained=False,
        group=group_uuid,
        master_capable=True,
        vm_capable=True,
        ndparams={},
        powered=True,
        ctime=stamp,
        mtime=stamp,
        uuid=node_uuid,
        serial_no=1,
    )
    group = NodeGroup(
        name=node.INITIAL_GROUP_NAME,
        ndparams={},
        alloc_policy=node.ALLOC_PREFERRED,
        ipolicy={},
        diskparams={},
        networks={},
        ctime=stamp,
        mtime=stamp,
        uuid=group_uuid,
        serial_no=1,
    )
    return ConfigData(
        version=const.CONFIG_VERSION,
        cluster=cluster,
        nodes={node_uuid: first},
        nodegroups={group_uuid: group},
        instances={},
        networks={},
        disks={},
        filters={},
        ctime=stamp,
        mtime=stamp,
        serial_no=1,
    )


def _build_cluster(
    params: InitParams, host: hosts.Hostname, node_uuid: str, stamp: float
) -> Cluster:
    templates = cluster_rules.chosen(
        _either(params.enabled_disk_templates, disk.TEMPLATES_DEFAULT_ENABLED),
        disk_templates.ALL,
        "disk template",
    )
    hypervisors = cluster_rules.chosen(
        _either(params.enabled_hypervisors, (hv.DEFAULT_ENABLED,)), hv.ALL, "hypervisor"
    )
    pool_size = _either(params.candidate_pool_size, const.MASTER_POOL_SIZE_DEFAULT)
    if pool_size < 1:
        raise _wrong(f"at least one master candidate is needed, not {pool_size}")
    key_type = params.ssh_key_type or const.SSH_KEY_TYPE_DEFAULT
    if key_type not in const.SSH_KEY_TYPES:
        raise _wrong(f"there is no SSH key type '{key_type}'")
    cluster_rules.check_state_names(params.hv_state, params.disk_state)
    return Cluster(
        rsahostkeypub=_host_key(),
        mac_prefix=cluster_rules.mac_prefix(params.mac_prefix or const.DEFAULT_MAC_PREFIX),
        drbd_usermode_helper=params.drbd_helper,
        master_node=node_uuid,
        **_master_address(params, host),
        **_storage(params, templates),
        enabled_hypervisors=hypervisors,
        hvparams=_all_hvparams(params, hypervisors),
        beparams={"default": _beparams(params)},
        nicparams={"default": _nicparams(params)},
        ndparams={**node.ND_DEFAULTS, **hvparams.force_types(params.ndparams, node.ND_PARAM_TYPES)},
        diskparams=_diskparams(params),
        candidate_pool_size=pool_size,
        modify_etc_hosts=params.modify_etc_hosts and machine.current().may_edit_etc_hosts,
        modify_ssh_setup=params.modify_ssh_setup,
        maintain_node_health=params.maintain_node_health,
        uid_pool=cluster_rules.uid_ranges(params.uid_pool),
        default_iallocator=_default_iallocator(params.default_iallocator),
        default_iallocator_params=dict(params.default_iallocator_params),
        prealloc_wipe_disks=params.prealloc_wipe_disks,
        hv_state_static=dict(params.hv_state),
        disk_state_static=dict(params.disk_state),
        ipolicy=_ipolicy(params, templates),
        enabled_disk_templates=templates,
        install_image=cluster_rules.image(params.install_image, "install image"),
        zeroing_image=cluster_rules.image(params.zeroing_image, "zeroing image"),
        compression_tools=cluster_rules.compression_tools(
            _either(params.compression_tools, instance.COMPRESS_DEFAULT_TOOLS)
        ),
        enabled_user_shutdown=params.enabled_user_shutdown,
        rapi_require_authentication=params.rapi_require_authentication,
        ssh_key_type=key_type,
        ssh_key_bits=ssh_keys.key_bits(key_type, params.ssh_key_bits),
        **_without_option(),
        ctime=stamp,
        mtime=stamp,
    )


def _master_address(params: InitParams, host: hosts.Hostname) -> dict[str, Any]:
    """Return the name and the address of the cluster, and how the master gets it."""
    ipv6 = params.primary_ip_version == net.IP6_VERSION
    family = net.IP6_FAMILY if ipv6 else net.IP4_FAMILY
    return {
        "cluster_name": host.name,
        "master_ip": host.ip,
        "master_netdev": params.master_netdev or const.DEFAULT_MASTER_NETDEV,
        "master_netmask": cluster_rules.master_netmask(
            _either(params.master_netmask, 128 if ipv6 else 32), family
        ),
        "primary_ip_family": family,
        "use_external_mip_script": params.use_external_mip_script,
    }


def _storage(params: InitParams, templates: Sequence[str]) -> dict[str, Any]:
    """Return the volume group and the directories of the disk templates."""
    uses_lvm = bool(disk_templates.LVM_BASED & set(templates))
    if params.vg_name and not uses_lvm:
        raise _wrong(
            f"volume group '{params.vg_name}' is given, but no disk template that uses LVM is"
            " enabled"
        )
    return {
        "volume_group_name": (params.vg_name or disk.DEFAULT_VG) if uses_lvm else "",
        **_directories(params, templates),
    }


def _without_option() -> dict[str, Any]:
    """Return what no option sets: each new cluster has these values."""
    return {
        "serial_no": 1,
        "uuid": text.new_uuid(),
        "highest_used_port": net.FIRST_PORT - 1,
        "tcpudp_port_pool": (),
        "reserved_lvs": (),
        "os_hvp": {},
        "osparams": {},
        "osparams_private_cluster": ht.PrivateDict(),
        "hidden_os": (),
        "blacklisted_os": (),
        "candidate_certs": {},
        "max_running_jobs": job.MAX_RUNNING_DEFAULT,
        "max_tracked_jobs": job.MAX_TRACKED_DEFAULT,
        "instance_communication_network": "",
        "export_key": secrets.token_hex(32),
        "data_collectors": cluster_rules.data_collectors({}, None, None),
    }


def _either(given: T | None, usual: T) -> T:
    """Return the given value, or the usual one."""
    return usual if given is None else given


def _directories(params: InitParams, templates: Sequence[str]) -> dict[str, Any]:
    """Return the directories of disks, each by its attribute of the cluster.

    One is empty if none is given and its template is not enabled.
    """
    found = {}
    for template, field in disk_templates.directory_fields().items():
        given = getattr(params, field)
        usual = disk_templates.of(template).default_directory if template in templates else ""
        found[field] = cluster_rules.storage_dir(usual if given is None else given, template)
    return found


def _all_hvparams(params: InitParams, enabled: Sequence[str]) -> dict[str, Any]:
    """Return the complete parameters of all hypervisors.

    Those of enabled hypervisors are checked.
    """
    for name in params.hvparams:
        if name not in hv.ALL:
            raise _wrong(f"there is no hypervisor '{name}'")
    filled = {}
    for name in hv.ALL:
        own = hvparams.force_types(params.hvparams.get(name, {}), hvparams.TYPES)
        filled[name] = {**hvparams.defaults(name), **own}
        if name in enabled:
            hvparams.check_parameter_syntax(name, filled[name])
            cluster_rules.require_pool(name, filled[name], params.uid_pool)
    return filled


def _beparams(params: InitParams) -> dict[str, Any]:
    own = hvparams.force_types(params.beparams, instance.BE_PARAM_TYPES)
    filled = {**instance.BE_DEFAULTS, **own}
    cluster_rules.backend_params(filled)
    return filled


def _nicparams(params: InitParams) -> dict[str, Any]:
    filled = {**net.NIC_DEFAULTS, **hvparams.force_types(params.nicparams, net.NIC_PARAM_TYPES)}
    cluster_rules.nic_params(filled, machine.current().nic_modes())
    return filled


def _diskparams(params: InitParams) -> dict[str, Any]:
    given = cluster_rules.disk_params(params.diskparams)
    return {
        name: {**disk_templates.defaults(name), **given.get(name, {})}
        for name in sorted(disk_templates.ALL)
    }


def _ipolicy(params: InitParams, templates: Sequence[str]) -> dict[str, Any]:
    # A guest without a network violates no policy which nobody has written.
    usual = ipolicy.defaults()
    usual[ipolicy.MINMAX][0][ipolicy.MIN][ipolicy.NIC_COUNT] = 0
    policy = {**usual, "disk-templates": list(templates), **params.ipolicy}
    ipolicy.check_syntax(policy, filled=True)
    cluster_rules.policy_templates(policy, templates, "the instance policy")
    return policy


def _host_key() -> str:
    """Return the public SSH host key of this machine, which nodes compare.

    The result is empty in a virtual cluster.
    """
    if not machine.current().has_ssh:
        return ""
    try:
        words = fs.read_file(_HOST_KEY_FILE).split()
    except OSError:
        # There is no SSH server; the requirements include one if the cluster needs it.
        return ""
    return words[1] if len(words) > 1 else ""


def _default_iallocator(wanted: str | None) -> str:
    """Return the default allocator of the cluster.

    :param wanted: the given one, or the empty string for none; None for ``hail``, which every
        master daemon has inside.
    """
    if wanted is None:
        return instance.IALLOC_HAIL
    searched = paths.current().iallocator_search_path
    found = wanted == instance.IALLOC_HAIL or fs.find_program(wanted, searched) is not None
    if wanted and not found:
        raise _wrong(f"instance allocator {wanted} is in none of {', '.join(searched)}")
    return wanted
