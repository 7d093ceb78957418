"""What a machine must have before ``gnt-cluster init`` makes it the first node of a cluster.

All requirements are checked, and one error names everything that is missing, each with its remedy.
What only instances need is a note: the cluster can be made without it.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence

from ganeti import errors, hypervisor
from ganeti.backend.node.info import missing_bridges
from ganeti.bootstrap import node_state
from ganeti.bootstrap.init_params import InitParams
from ganeti.constants import disk, net
from ganeti.objects import Cluster, disk_templates
from ganeti.platform import hosts, machine, paths
from ganeti.utils import net as utils_net
from ganeti.utils import process, ssh

_PING_S = 2.0
_VGS_S = 60.0
#: A smaller volume group is refused.
SMALLEST_VG_MIB = 20 * 1024
# Stands for an address which is not known, while the other requirements are checked.
_NO_ADDRESS = {net.IP4_VERSION: "0.0.0.0", net.IP6_VERSION: "::"}


class Findings:
    """What a machine lacks.

    :ivar missing: what prevents the initialisation: pairs of a text and an error code.
    :ivar notes: what instances need and is not there.
    """

    def __init__(self) -> None:
        self.missing: list[tuple[str, str]] = []
        self.notes: list[str] = []

    def lacks(self, text: str, code: str = errors.ECODE_ENVIRON) -> None:
        """Add something that is missing; the text says what to do about it."""
        self.missing.append((text, code))

    def refuse(self) -> None:
        """Raise one error with everything that is missing, if there is something.

        :raises OpPrereqError: something is missing.
        """
        if len(self.missing) == 1 and not self.notes:
            raise errors.OpPrereqError(*self.missing[0])
        if not self.missing:
            return
        lines = ["this machine lacks what a cluster needs"]
        lines += [f"  {number}. {text}" for number, (text, _) in enumerate(self.missing, 1)]
        if self.notes:
            lines.append("Instances will need, besides:")
            lines += [f"  - {note}" for note in self.notes]
        codes = {code for _, code in self.missing}
        raise errors.OpPrereqError(
            "\n".join(lines), codes.pop() if len(codes) == 1 else errors.ECODE_ENVIRON
        )


def check_no_cluster(here: paths.Paths) -> None:
    """Check that this machine belongs to no cluster.

    :raises OpPrereqError: there is a file or a daemon of a cluster; names it.
    """
    found = node_state.cluster_traces(here)
    if found:
        raise errors.OpPrereqError(
            f"this machine already belongs to a cluster: {found[0]} exists", errors.ECODE_STATE
        )
    for daemon in (node_state.NODED, node_state.MASTER):
        pid = node_state.running_daemon(here, daemon)
        if pid is not None:
            raise errors.OpPrereqError(
                f"{daemon} already runs on this machine as process {pid}", errors.ECODE_STATE
            )


def check_names(params: InitParams, findings: Findings) -> tuple[hosts.Hostname, hosts.Hostname]:
    """Resolve this machine's and the cluster's name.

    :returns: full name and address of this machine, and of the cluster; one which does not resolve
        is among the findings and has an address which nobody can have.
    :raises OpPrereqError: an option is wrong.
    """
    if params.primary_ip_version not in _NO_ADDRESS:
        raise errors.OpPrereqError(
            f"there is no IP version {params.primary_ip_version}", errors.ECODE_INVAL
        )
    if params.secondary_ip is not None and not utils_net.is_ipv4(params.secondary_ip):
        raise errors.OpPrereqError(
            f"the secondary address '{params.secondary_ip}' is not an IPv4 address",
            errors.ECODE_INVAL,
        )
    me = _this_machine(params, findings)
    cluster_host = _cluster(params, me, findings)
    if params.secondary_ip is None:
        if params.primary_ip_version == net.IP6_VERSION:
            findings.lacks(
                "a cluster with IPv6 addresses needs an IPv4 secondary address. Give it with"
                " --secondary-ip.",
                errors.ECODE_INVAL,
            )
    elif params.secondary_ip != me.ip and not machine.current().owns_address(params.secondary_ip):
        findings.lacks(
            f"the secondary address {params.secondary_ip} is not an address of this machine. Add it"
            " to a network interface, or give another one with --secondary-ip."
        )
    return me, cluster_host


def _this_machine(params: InitParams, findings: Findings) -> hosts.Hostname:
    here = machine.current()
    name = here.hostname()
    unknown = hosts.Hostname(name, _NO_ADDRESS[params.primary_ip_version])
    line = f"Put a line '<address> {name}' into /etc/hosts, with the address which other nodes use."
    try:
        me = here.lookup(name)
    except errors.ResolverError as err:
        findings.lacks(
            f"the name of this machine does not resolve: {err}. {line}", errors.ECODE_RESOLVER
        )
        return unknown
    if here.is_loopback_only(me.ip):
        findings.lacks(f"{me.name} resolves to {me.ip}, which other machines cannot reach. {line}")
    elif not here.owns_address(me.ip):
        findings.lacks(
            f"{me.name} resolves to {me.ip}, which is not an address of this machine. {line}"
        )
    _check_family(params, me, findings)
    return me


def _cluster(params: InitParams, me: hosts.Hostname, findings: Findings) -> hosts.Hostname:
    here, name = machine.current(), params.cluster_name
    try:
        host = here.lookup(name)
    except errors.ResolverError as err:
        findings.lacks(
            f"the name of the cluster does not resolve: {err}. Choose an address of this network"
            f" which no machine has, and put a line '<address> {name}' into /etc/hosts, or into the"
            " name service.",
            errors.ECODE_RESOLVER,
        )
        return hosts.Hostname(name, _NO_ADDRESS[params.primary_ip_version])
    if host.ip == me.ip or host.name == me.name:
        findings.lacks(
            f"the cluster needs a name and an address of its own, but {host.name} with {host.ip} is"
            " this machine. Choose an address of this network which no machine has.",
            errors.ECODE_INVAL,
        )
    elif here.answers(host.ip, here.noded_port(), _PING_S):
        findings.lacks(
            f"the address {host.ip} of the cluster is already in use. Choose another one.",
            errors.ECODE_NOTUNIQUE,
        )
    _check_family(params, host, findings)
    return host


def _check_family(params: InitParams, host: hosts.Hostname, findings: Findings) -> None:
    if utils_net.is_ipv6(host.ip) != (params.primary_ip_version == net.IP6_VERSION):
        findings.lacks(
            f"{host.name} has no IPv{params.primary_ip_version} address: {host.ip}. Correct it, or"
            " choose the other version with --primary-ip-version.",
            errors.ECODE_INVAL,
        )


def check_cluster(
    cluster: Cluster, here: paths.Paths, findings: Findings, *, will_be_made: Sequence[str] = ()
) -> None:
    """Check that this machine can be the master of a cluster and use its disk templates.

    :param will_be_made: directories, as paths of the cluster, which need not exist yet.
    """
    if cluster.modify_ssh_setup:
        _check_ssh(here, findings)
    if machine.current().has_own_system and not cluster.use_external_mip_script:
        _check_network(cluster, findings)
    if machine.current().has_own_system:
        _check_bridge(cluster, findings)
    _check_directories(cluster, here, findings, will_be_made)
    if disk_templates.LVM_BASED & set(cluster.enabled_disk_templates):
        _check_lvm(cluster, findings)
    if disk.DRBD8 in cluster.enabled_disk_templates and not is_installed("drbdsetup"):
        findings.notes.append(
            f"the program drbdsetup, for disk template {disk.DRBD8}. Install the package"
            " drbd-utils on every node."
        )
    for name in cluster.enabled_hypervisors:
        _check_hypervisor(cluster, name, findings)


def is_installed(program: str) -> bool:
    """Return whether a program is in the directories in which daemons look for programs."""
    return shutil.which(program, path=process.DEFAULT_PATH) is not None


def _check_ssh(here: paths.Paths, findings: Findings) -> None:
    """Check that the cluster can set up SSH on this machine."""
    if shutil.which("ssh-keygen") is None:
        findings.lacks(
            "there is no program ssh-keygen, so SSH cannot be set up. Install the package"
            " openssh-client, or use --no-ssh-init."
        )
    directory = here.ssh_host_key_dir
    if not any(os.path.exists(f"{directory}/ssh_host_{kind}_key.pub") for kind in ssh.KEY_TYPES):
        findings.lacks(
            f"there is no SSH host key in {directory}, so SSH cannot be set up. Install the package"
            " openssh-server, or use --no-ssh-init."
        )


def _check_network(cluster: Cluster, findings: Findings) -> None:
    """Check that this machine can take the address of the cluster."""
    if not is_installed("ip"):
        findings.lacks(
            "there is no program ip, which gives the address of the cluster to the master. Install"
            " the package iproute2, or use --use-external-mip-script."
        )
    interfaces = sorted(name for _, name in socket.if_nameindex())
    if cluster.master_netdev not in interfaces:
        findings.lacks(
            f"there is no network interface {cluster.master_netdev} for the address of the cluster."
            f" Choose one with --master-netdev. This machine has {', '.join(interfaces)}."
        )


def _check_bridge(cluster: Cluster, findings: Findings) -> None:
    """Check that this machine has the bridge to which NICs are connected by default."""
    params = cluster.nicparams["default"]
    link = params.get("link") or ""
    if params.get("mode") == net.NIC_MODE_BRIDGED and missing_bridges([link]):
        findings.notes.append(
            f"the bridge {link}, for their NICs. Make it on every node, or choose another one with"
            " the option --nic-parameters link=NAME of 'gnt-cluster init' or 'gnt-cluster modify'."
        )


def _check_directories(
    cluster: Cluster, here: paths.Paths, findings: Findings, will_be_made: Sequence[str]
) -> None:
    for template, check in disk_templates.directory_checks().items():
        directory = cluster.disk_directory(template)
        if (
            not check.must_pass_before
            or template not in cluster.enabled_disk_templates
            or directory in will_be_made
        ):
            continue
        if not directory:
            option = disk_templates.of(template).directory.replace("_", "-")
            findings.lacks(
                f"disk template {template} has no directory. Give one with --{option}, or choose"
                " other disk templates with --enabled-disk-templates.",
                errors.ECODE_INVAL,
            )
            continue
        path = here.to_local(directory)
        if not os.path.isdir(path):
            findings.lacks(
                f"the directory {path} of disk template {template} does not exist. Make it with"
                f" 'mkdir -p {path}'."
            )


def _check_lvm(cluster: Cluster, findings: Findings) -> None:
    name = cluster.volume_group_name or ""
    templates = sorted(disk_templates.LVM_BASED & set(cluster.enabled_disk_templates))
    why = f"disk template{'s' if len(templates) > 1 else ''} {' and '.join(templates)}"
    others = (
        "or choose disk templates without LVM, such as"
        f" --enabled-disk-templates={disk.FILE},{disk.DISKLESS}."
    )
    if not is_installed("vgs"):
        findings.lacks(
            f"there is no program vgs, and so no volume group {name} for {why}. Install the package"
            f" lvm2 and make the group with 'vgcreate {name} DEVICE', {others}"
        )
        return
    argv = ["vgs", "--noheadings", "--nosuffix", "--units", "m", "-o", "vg_size", name]
    try:
        size_mib = float(process.run(argv, timeout_s=_VGS_S).stdout)
    except (errors.CommandError, ValueError) as err:
        findings.lacks(
            f"cannot use volume group {name} for {why}: {err}. Make it with 'vgcreate {name}"
            f" DEVICE', give the name of another one with --vg-name, {others}"
        )
        return
    if size_mib < SMALLEST_VG_MIB:
        findings.lacks(
            f"volume group {name} has {size_mib:.0f} MiB, at least {SMALLEST_VG_MIB} are needed"
            f" for {why}. Enlarge it with 'vgextend {name} DEVICE', {others}"
        )


def _check_hypervisor(cluster: Cluster, name: str, findings: Findings) -> None:
    known: Sequence[str] = hypervisor.known()
    if name not in known:
        findings.lacks(
            f"hypervisor {name} is not supported by this version. Choose others with"
            f" --enabled-hypervisors, such as --enabled-hypervisors=kvm. Known are"
            f" {', '.join(known)}."
        )
        return
    lacking = hypervisor.of(name).missing_program(cluster.hvparams[name])
    if lacking:
        findings.notes.append(f"for hypervisor {name}, {lacking}")
