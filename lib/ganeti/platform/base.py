"""The questions which programs ask about the machine they run on.

:class:`Machine` describes one node: a real machine, which belongs to the cluster alone
(:class:`ganeti.platform.real.RealMachine`), or a node of a virtual cluster, which is a directory
and some processes of an ordinary user (:class:`ganeti.platform.virtual.VirtualNode`).
:func:`ganeti.platform.machine.current` chooses one of the two. No other code distinguishes them: it
asks the question that it has, and each question is a method or an attribute of this class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ganeti import TYPE_CHECKING
from ganeti.constants import net as net_c
from ganeti.platform import hosts, paths
from ganeti.utils import net

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import ClassVar


class Machine(ABC):
    """A node, as the programs which run on it see it.

    :param here: the paths of the node.
    :param name: the full name of the node; empty for the name that the system has.
    """

    #: Whether nodes have SSH servers, over which other nodes reach them as root.
    has_ssh: ClassVar[bool]
    #: Whether daemons may run under users of their own, to whom their files then belong.
    has_daemon_users: ClassVar[bool]
    #: Whether only root can make this machine a node.
    needs_root_to_join: ClassVar[bool]
    #: Whether a daemon may lock its memory, so that it answers while the machine swaps.
    may_lock_memory: ClassVar[bool]
    #: Whether the cluster may write ``/etc/hosts``.
    may_edit_etc_hosts: ClassVar[bool]
    #: Whether each node has a system of its own: then a machine which refuses a connection is on.
    has_own_system: ClassVar[bool]
    #: Whether the master may reset the machine without a shutdown.
    may_be_reset: ClassVar[bool]
    #: Whether QEMU's own network carries requests of guests to the metadata daemon. Otherwise each
    #: guest has a tap device for that, and the daemon serves their network.
    has_metadata_through_qemu: ClassVar[bool]
    #: Whether direct access (``O_DIRECT``) must be probed on each disk file before QEMU uses it. A
    #: temporary directory, in which a virtual cluster may be, often does not support it.
    must_probe_direct_access: ClassVar[bool]
    #: Seconds in which a small guest must end, to prove that KVM works. A real machine may be busy
    #: when it probes, and keeps the result until it reboots; the user of a virtual cluster waits.
    kvm_probe_timeout_s: ClassVar[float]

    @property
    def runs_monitoring(self) -> bool:
        """True if the monitoring daemon runs on this machine."""
        return True

    def __init__(self, here: paths.Paths, name: str = "") -> None:
        self.paths = here
        self._name = name.lower()

    @property
    @abstractmethod
    def runs_systemd(self) -> bool:
        """True if systemd has booted this machine, and this process may start units."""

    # -- names and addresses ---------------------------------------------------------------------

    def hostname(self) -> str:
        """Return the full name of this node, in lower case."""
        return self._name or hosts.system_name()

    def lookup(self, name: str) -> hosts.Hostname:
        """Complete a host name and find its address; an address stays as it is.

        :raises ResolverError: the name is not known.
        """
        if net.is_ip(name):
            return hosts.Hostname(name, name)
        return self._cluster_host(name) or hosts.system_lookup(name)

    def _cluster_host(self, name: str) -> hosts.Hostname | None:
        """Return a host that the cluster itself knows, without the system's resolver."""
        return None

    def resolve(self, name: str) -> str:
        """Return the address of a host name; an address stays as it is.

        :raises ResolverError: the name is not known.
        """
        return self.lookup(name).ip

    def addresses(self, name: str) -> list[str]:
        """Return all addresses of a host name, that of :meth:`resolve` first.

        :raises ResolverError: the name is not known.
        """
        first = self.resolve(name)
        if net.is_ip(name) or self._cluster_host(name) is not None:
            return [first]
        return list(dict.fromkeys([first, *hosts.system_addresses(name)]))

    @abstractmethod
    def owns_address(self, ip: str) -> bool:
        """Return True if an address belongs to this node."""

    @abstractmethod
    def is_loopback_only(self, ip: str) -> bool:
        """Return True if an address cannot be that of a node, because no other node reaches it."""

    @abstractmethod
    def answers(self, ip: str, port: int, timeout_s: float) -> bool:
        """Return True if some machine uses an address already: it answers on a port within the
        time.
        """

    @abstractmethod
    def default_bind_address(self) -> str:
        """Return the address which a daemon serves, if it has no option that says so.

        :raises ConfigurationError: the name of the node does not resolve.
        """

    @abstractmethod
    def outgoing_address(self) -> str | None:
        """Return the address from which this node must connect to others; None: the system chooses.

        :raises ResolverError: the name of the node does not resolve.
        """

    @abstractmethod
    def service_port(self, name: str, default: int, protocol: str = "tcp") -> int:
        """Return the port of a service.

        ``/etc/services`` of a real machine may change the default.
        """

    def noded_port(self) -> int:
        """Return the TCP port of the node daemon."""
        return self.service_port("ganeti-noded", hosts.NODED_PORT)

    def cut_addresses(self) -> Collection[str]:
        """Return the addresses which this node must not connect to, to simulate a broken
        network.
        """
        return frozenset()

    # -- users and files -------------------------------------------------------------------------

    @property
    @abstractmethod
    def may_change_owners(self) -> bool:
        """True if this process can give files to other users."""

    @abstractmethod
    def trusted_owner(self) -> tuple[int, int]:
        """User and group to whom programs must belong which root runs for others."""

    @abstractmethod
    def own_file(self, path: str) -> str:
        """Return where a file of this node is that a user has named with an absolute path.

        :raises OpPrereqError: there is no such file among those of the node.
        """

    @abstractmethod
    def shared_cache_dir(self) -> str:
        """Return a directory for facts about the hardware and programs which this node can use."""

    # -- other nodes -----------------------------------------------------------------------------

    @abstractmethod
    def paths_of_node(self, name: str) -> paths.Paths:
        """Return the paths of any node of the cluster, as its own processes see them."""

    @abstractmethod
    def neighbour_dir(self, name: str) -> str | None:
        """Return the root directory of another node which is on the same computer as this one.

        :returns: None when each node is a machine of its own. It is not checked that the directory
            exists.
        :raises OpPrereqError: it is not known where the nodes of the virtual cluster are.
        """

    def neighbour_environment(self, name: str) -> dict[str, str]:
        """Environment variables which make a process belong to the node of that name.

        :raises OpPrereqError: it is not known where the nodes of the virtual cluster are.
        """
        root = self.neighbour_dir(name)
        return {} if root is None else {paths.ENV_ROOT: root, paths.ENV_HOSTNAME: name}

    # -- guests and daemons ----------------------------------------------------------------------

    def nic_modes(self) -> tuple[str, ...]:
        """Return the modes which NICs of instances may have, sorted."""
        return tuple(mode for mode in net_c.NIC_MODES if mode != net_c.NIC_IP_POOL)

    @abstractmethod
    def start_command(self, daemon: str) -> str:
        """Return the command with which an administrator starts a daemon, such as
        ``ganeti-masterd``.
        """
