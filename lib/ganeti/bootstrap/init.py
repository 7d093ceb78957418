"""Making a cluster with this machine as its first node: ``gnt-cluster init`` up to the first job.

The order of the steps: check everything; write credentials, configuration, ssconf files and an
empty queue; start the daemons. When a step fails, the steps before it are undone in reverse.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ganeti import errors, ht
from ganeti.backend.node import openvswitch
from ganeti.bootstrap import detection, node_state, requirements
from ganeti.config import ssconf, verify
from ganeti.configfile import files as configfile
from ganeti.constants import cluster as const
from ganeti.constants import disk, hv, instance, job, net, node
from ganeti.objects import (
    Cluster,
    ConfigData,
    Node,
    NodeGroup,
    cluster_rules,
    codec,
    disk_templates,
    hvparams,
    hypervisors,
    ipolicy,
)
from ganeti.platform import hosts, machine, paths, ssh_keys
from ganeti.rpc import AddressRunner, key_pins, open_client
from ganeti.utils import clock, fs, text
from ganeti.utils.undo import UndoStack
from ganeti.wire import json
from ganeti.wire.calls import VERSION

T = TypeVar("T")

_HOST_KEY_FILE = "/etc/ssh/ssh_host_rsa_key.pub"


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


def _wrong(message: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(message, errors.ECODE_INVAL)


class Initialized(NamedTuple):
    """What ``gnt-cluster init`` tells its user.

    :ivar chosen: what was chosen because no option said it, such as ``the hypervisor kvm``.
    :ivar lacking: what instances need and this machine does not have.
    :ivar as_root: for each enabled hypervisor whose guests run as root: the option of
        ``gnt-cluster modify`` which changes that.
    """

    chosen: list[str]
    lacking: list[str]
    as_root: Sequence[str] = ()


def init_cluster(params: InitParams) -> Initialized:
    """Make this machine the first node and the master of a new cluster, and start its daemons.

    What was not given is chosen from what this machine has (:mod:`ganeti.bootstrap.detection`).

    :raises OpPrereqError: a parameter is wrong, or this machine lacks something; the error names
        everything that is missing, and nothing was changed.
    :raises OpExecError: a daemon does not start; everything was undone.
    :raises OSError: a file cannot be written; everything was undone.
    """
    here = paths.current()
    requirements.check_no_cluster(here)
    findings = requirements.Findings()
    me, cluster_host = requirements.check_names(params, findings)
    choice = detection.complete(params, me.ip, findings)
    data = build_config(choice.params, me, cluster_host)
    made = [data.cluster.file_storage_dir] if choice.makes_file_storage else []
    requirements.check_cluster(data.cluster, here, findings, will_be_made=made)
    findings.refuse()
    problems = verify.check(data)
    if problems:
        raise _wrong("; ".join(problems))
    with UndoStack() as undo:
        undo.add(f"files in {here.data_dir}", partial(node_state.remove_state, here))
        if choice.makes_file_storage:
            new = detection.make_file_storage(here)
            undo.add("the directory of file storage", partial(detection.remove_file_storage, new))
        if data.cluster.ndparams["ovs"]:
            _configure_switch(data.cluster.ndparams)
        master = data.cluster.master_node
        digest = node_state.write_credentials(here, node_state.new_credentials(), me.name)
        cluster = dataclasses.replace(data.cluster, candidate_certs={master: digest})
        data = dataclasses.replace(data, cluster=cluster)
        node_state.make_queue(here)
        ssconf.write_local(ssconf.values(data), here)

        def start(daemon: str) -> None:
            undo.add(daemon, partial(node_state.daemon_util, "stop", daemon))
            node_state.daemon_util("start", daemon)

        start(node_state.NODED)
        first = dataclasses.replace(data.nodes[master], key_pins=_shown_key(me))
        data = dataclasses.replace(data, nodes={master: first})
        ssconf.write_local(ssconf.values(data), here)  # with the key of this node
        configfile.replace(
            here.cluster_conf_file,
            json.dumps(codec.to_dict(data)) + "\n",
            mode=configfile.FILE_MODE,
        )
        for daemon in (node_state.MASTER, node_state.CONFD, node_state.RAPI):
            start(daemon)
        undo.commit()
    return Initialized(choice.words, findings.notes, _guests_as_root(data.cluster))


def _configure_switch(params: Mapping[str, Any]) -> None:
    """Make the Open vSwitch of this node. It stays when the cluster cannot be made.

    :raises OpPrereqError: it cannot be made.
    """
    try:
        openvswitch.configure(params["ovs_name"], params["ovs_link"] or None)
    except errors.ConfigurationError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_ENVIRON) from err


def _guests_as_root(cluster: Cluster) -> list[str]:
    """For each enabled hypervisor whose guests run as root, the option which changes that."""
    found = []
    for name in cluster.enabled_hypervisors if os.geteuid() == 0 else ():
        descriptor = hypervisors.of(name)
        choice = descriptor.user_parameter
        if choice is not None and descriptor.keeps_daemon_user(cluster.hvparams[name]):
            found.append(f"-H {name}:{choice.name}={choice.pool}")
    return found


def _shown_key(me: hosts.Hostname) -> tuple[str, ...] | None:
    """Return the key which the node daemon of this machine shows; None when it does not answer.

    The master daemon learns it later, then.
    """
    answer = AddressRunner(open_client()).first_contact(VERSION, {me.name: me.ip})[me.name]
    pin = key_pins.pin_of(answer.certificate)
    return None if pin is None else (pin,)


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
    uses_lvm = bool(disk_templates.LVM_BASED & set(templates))
    if params.vg_name and not uses_lvm:
        raise _wrong(
            f"volume group '{params.vg_name}' is given, but no disk template that uses LVM is"
            " enabled"
        )
    ipv6 = params.primary_ip_version == net.IP6_VERSION
    family = net.IP6_FAMILY if ipv6 else net.IP4_FAMILY
    netmask = cluster_rules.master_netmask(
        _either(params.master_netmask, 128 if ipv6 else 32), family
    )
    prefix = cluster_rules.mac_prefix(params.mac_prefix or const.DEFAULT_MAC_PREFIX)
    pool_size = (
        const.MASTER_POOL_SIZE_DEFAULT
        if params.candidate_pool_size is None
        else params.candidate_pool_size
    )
    if pool_size < 1:
        raise _wrong(f"at least one master candidate is needed, not {pool_size}")
    key_type = params.ssh_key_type or const.SSH_KEY_TYPE_DEFAULT
    if key_type not in const.SSH_KEY_TYPES:
        raise _wrong(f"there is no SSH key type '{key_type}'")
    cluster_rules.check_state_names(params.hv_state, params.disk_state)
    return Cluster(
        serial_no=1,
        rsahostkeypub=_host_key(),
        highest_used_port=net.FIRST_PORT - 1,
        tcpudp_port_pool=(),
        mac_prefix=prefix,
        volume_group_name=(params.vg_name or disk.DEFAULT_VG) if uses_lvm else "",
        reserved_lvs=(),
        drbd_usermode_helper=params.drbd_helper,
        master_node=node_uuid,
        master_ip=host.ip,
        master_netdev=params.master_netdev or const.DEFAULT_MASTER_NETDEV,
        master_netmask=netmask,
        use_external_mip_script=params.use_external_mip_script,
        cluster_name=host.name,
        file_storage_dir=_directory(
            params.file_storage_dir, disk.FILE, templates, paths.DEFAULT_FILE_STORAGE_DIR
        ),
        shared_file_storage_dir=_directory(
            params.shared_file_storage_dir,
            disk.SHARED_FILE,
            templates,
            paths.DEFAULT_SHARED_FILE_STORAGE_DIR,
        ),
        gluster_storage_dir=_directory(params.gluster_storage_dir, disk.GLUSTER, templates, ""),
        enabled_hypervisors=hypervisors,
        hvparams=_all_hvparams(params, hypervisors),
        os_hvp={},
        beparams={"default": _beparams(params)},
        osparams={},
        osparams_private_cluster=ht.PrivateDict(),
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
        hidden_os=(),
        blacklisted_os=(),
        primary_ip_family=family,
        prealloc_wipe_disks=params.prealloc_wipe_disks,
        hv_state_static=dict(params.hv_state),
        disk_state_static=dict(params.disk_state),
        ipolicy=_ipolicy(params, templates),
        enabled_disk_templates=templates,
        candidate_certs={},
        max_running_jobs=job.MAX_RUNNING_DEFAULT,
        max_tracked_jobs=job.MAX_TRACKED_DEFAULT,
        install_image=cluster_rules.image(params.install_image, "install image"),
        instance_communication_network="",
        zeroing_image=cluster_rules.image(params.zeroing_image, "zeroing image"),
        compression_tools=cluster_rules.compression_tools(
            _either(params.compression_tools, instance.COMPRESS_DEFAULT_TOOLS)
        ),
        enabled_user_shutdown=params.enabled_user_shutdown,
        rapi_require_authentication=params.rapi_require_authentication,
        data_collectors=cluster_rules.data_collectors({}, None, None),
        ssh_key_type=key_type,
        ssh_key_bits=ssh_keys.key_bits(key_type, params.ssh_key_bits),
        ctime=stamp,
        mtime=stamp,
        uuid=text.new_uuid(),
    )


def _either(given: T | None, usual: T) -> T:
    """Return the given value, or the usual one."""
    return usual if given is None else given


def _directory(given: str | None, template: str, templates: Sequence[str], usual: str) -> str:
    """Return a directory of file storage.

    The result is empty if none is given and its template is not enabled.
    """
    directory = usual if given is None and template in templates else given or ""
    return cluster_rules.storage_dir(directory, template)


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
    policy = {**ipolicy.defaults(), "disk-templates": list(templates), **params.ipolicy}
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
