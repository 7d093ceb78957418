"""A node of a virtual cluster: a directory and some processes of an ordinary user.

All nodes share one computer. Each has an address of its own in 127.0.0.0/8, which the computer
answers for without any set-up; names are looked up in the file ``hosts`` of the cluster's directory
first. Nothing that belongs to the computer is changed: no ``/etc/hosts``, no users, no SSH set-up.
"""

from __future__ import annotations

import os

from ganeti import errors
from ganeti.constants import net as net_c
from ganeti.platform import base, hosts, paths


class VirtualNode(base.Machine):
    """A node which shares its computer with the other nodes of its virtual cluster.

    :param cluster_dir: directory of the virtual cluster; None when it is not known, which is
        enough for everything that needs no other node.
    """

    has_ssh = False
    has_daemon_users = False
    needs_root_to_join = False
    may_lock_memory = False
    may_edit_etc_hosts = False
    has_own_system = False
    may_be_reset = False
    has_metadata_through_qemu = True
    must_probe_direct_access = True
    kvm_probe_timeout_s = 3.0

    def __init__(self, here: paths.Paths, name: str = "", cluster_dir: str | None = None) -> None:
        super().__init__(here, name)
        self.cluster_dir = cluster_dir

    @property
    def runs_monitoring(self) -> bool:
        """True if the virtual cluster was created with monitoring."""
        return self.cluster_dir is not None and os.path.exists(
            f"{self.cluster_dir}/{paths.VIRTUAL_MONITORING}"
        )

    def _cluster_host(self, name: str) -> hosts.Hostname | None:
        if self.cluster_dir is None:
            return None
        try:
            with open(f"{self.cluster_dir}/hosts", encoding="utf-8") as stream:
                text = stream.read()
        except FileNotFoundError:
            return None
        return hosts.parse_hosts(text).get(name.lower())

    @property
    def runs_systemd(self) -> bool:
        return False

    def owns_address(self, ip: str) -> bool:
        # The computer answers for all of 127.0.0.0/8, so the node's name decides.
        try:
            return self.resolve(self.hostname()) == ip
        except errors.ResolverError:
            return False

    def is_loopback_only(self, ip: str) -> bool:
        # All nodes are here, so each reaches the loopback addresses of the others.
        return False

    def answers(self, ip: str, port: int, timeout_s: float) -> bool:
        # The computer answers for all of 127.0.0.0/8, so an answer would say nothing.
        return False

    def default_bind_address(self) -> str:
        try:
            return self.resolve(self.hostname())
        except errors.ResolverError as err:
            raise errors.ConfigurationError(f"cannot find the address to serve: {err}") from err

    def outgoing_address(self) -> str | None:
        return self.resolve(self.hostname())

    def service_port(self, name: str, default: int, protocol: str = "tcp") -> int:
        # The computer's own /etc/services must not change how the nodes find each other.
        return default

    def cut_addresses(self) -> frozenset[str]:
        """Return the addresses of nodes which share a line with this node in ``<cluster>/cut``.

        A line of this file has the names of two nodes which do not reach each other; with ``>``
        between them, only requests of the first to the second do not arrive.

        :raises ResolverError: a name in the file is not known.
        """
        if self.cluster_dir is None:
            return frozenset()
        try:
            with open(f"{self.cluster_dir}/cut", encoding="utf-8") as stream:
                pairs = [line.split() for line in stream]
        except FileNotFoundError:
            return frozenset()
        own = self.hostname()
        found = set()
        for words in pairs:
            if ">" in words:
                if words[0] == own:
                    found.add(words[-1])
            elif own in words:
                found.update(name for name in words if name != own)
        return frozenset(map(self.resolve, found))

    @property
    def may_change_owners(self) -> bool:
        return False

    def trusted_owner(self) -> tuple[int, int]:
        return os.geteuid(), os.getegid()

    def own_file(self, path: str) -> str:
        if path.startswith(f"{self.paths.root}/"):
            return path
        inside = self.paths.to_local(path)
        if not os.path.isfile(inside):
            raise errors.OpPrereqError(
                f"file '{path}' is not below {self.paths.root}, where this node of the virtual"
                " cluster keeps its files",
                errors.ECODE_INVAL,
            )
        return inside

    def shared_cache_dir(self) -> str:
        # All nodes share the hardware and the programs, so what one finds out serves all.
        return self.cluster_dir or self.paths.kvm_root

    def paths_of_node(self, name: str) -> paths.Paths:
        return self.paths if self.cluster_dir is None else paths.Paths(f"{self.cluster_dir}/{name}")

    def neighbour_dir(self, name: str) -> str | None:
        if self.cluster_dir is None:
            raise errors.OpPrereqError(
                f"this node has its files below {self.paths.root}, but it is not known where node"
                f" {name} has its files. Set {paths.ENV_VCLUSTER} to the directory of the virtual"
                " cluster.",
                errors.ECODE_ENVIRON,
            )
        return f"{self.cluster_dir}/{name}"

    def nic_modes(self) -> tuple[str, ...]:
        # QEMU's own network needs no rights on the computer.
        return (*super().nic_modes(), net_c.NIC_MODE_USER)

    def start_command(self, daemon: str) -> str:
        return f"tools/vcluster start {self.cluster_dir or os.path.dirname(self.paths.root)}"
