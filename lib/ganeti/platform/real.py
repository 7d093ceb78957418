"""A real machine: it belongs to the cluster alone, and its daemons have the rights of root."""

from __future__ import annotations

import os
import socket

from ganeti.platform import base, paths
from ganeti.utils import net


class RealMachine(base.Machine):
    """A node which is a machine of its own."""

    has_ssh = True
    has_daemon_users = True
    needs_root_to_join = True
    may_lock_memory = True
    may_edit_etc_hosts = True
    has_own_system = True
    may_be_reset = True
    has_metadata_through_qemu = False
    must_probe_direct_access = False
    kvm_probe_timeout_s = 15.0

    @property
    def runs_systemd(self) -> bool:
        # sd_booted(3)
        return os.path.isdir("/run/systemd/system") and os.geteuid() == 0

    def owns_address(self, ip: str) -> bool:
        return net.can_bind(ip)

    def is_loopback_only(self, ip: str) -> bool:
        return ip.startswith("127.")

    def answers(self, ip: str, port: int, timeout_s: float) -> bool:
        return net.tcp_ping(ip, port, timeout_s)

    def default_bind_address(self) -> str:
        return "0.0.0.0"

    def outgoing_address(self) -> str | None:
        return None

    def service_port(self, name: str, default: int, protocol: str = "tcp") -> int:
        try:
            return socket.getservbyname(name, protocol)
        except OSError:
            return default

    @property
    def may_change_owners(self) -> bool:
        return os.geteuid() == 0

    def trusted_owner(self) -> tuple[int, int]:
        return 0, 0

    def own_file(self, path: str) -> str:
        return path

    def shared_cache_dir(self) -> str:
        return self.paths.kvm_root

    def paths_of_node(self, name: str) -> paths.Paths:
        return self.paths

    def neighbour_dir(self, name: str) -> str | None:
        return None

    def start_command(self, daemon: str) -> str:
        return f"daemon-util start {daemon}"
