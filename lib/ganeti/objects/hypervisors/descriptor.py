"""What code outside of a driver needs to know of a hypervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ganeti.constants import hv
from ganeti.objects.hypervisors.parameter import HvParam
from ganeti.objects.instance import Instance
from ganeti.objects.transfer import (
    CONSOLE_MESSAGE,
    CONSOLE_SSH,
    CONSOLE_VNC,
    InstanceConsole,
)
from ganeti.platform import paths

_SSH_USER = "root"
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True)
class ConsoleRequest:
    """The facts from which the console of an instance follows."""

    instance: Instance
    hvparams: Mapping[str, Any]  # filled
    node_name: str  # primary node
    ssh_port: int  # of the primary node

    def by_ssh(self, *command: str) -> InstanceConsole:
        """Return a console which is a program on the primary node."""
        return InstanceConsole(
            instance=self.instance.name,
            kind=CONSOLE_SSH,
            host=self.node_name,
            port=self.ssh_port,
            user=_SSH_USER,
            command=list(command),
        )

    def by_vnc(self, address: str, port: int) -> InstanceConsole:
        """Return a console which is the screen of the guest.

        :param address: which the guest serves.
        """
        return InstanceConsole(
            instance=self.instance.name,
            kind=CONSOLE_VNC,
            host=self.node_name if address == _ANY_ADDRESS else address,
            port=port,
            display=port - hv.VNC_BASE_PORT,
        )

    def message(self, text: str) -> InstanceConsole:
        """Return a message in place of a console."""
        return InstanceConsole(instance=self.instance.name, kind=CONSOLE_MESSAGE, message=text)


class UserParameter(NamedTuple):
    """The parameter which chooses the user of a guest's process.

    :ivar daemon: its value with which a guest keeps the user of the node daemon.
    :ivar pool: its value with which a guest gets a user of the cluster's pool.
    """

    name: str
    daemon: str
    pool: str


class GuestDevices(NamedTuple):
    """What a guest has, as far as its hypervisor may have limits for it.

    :ivar name: name of the instance.
    :ivar disks: number of its disks, without those of the firmware.
    :ivar nics: number of its NICs.
    """

    name: str
    disks: int
    nics: int


def no_limits(params: Mapping[str, Any], guest: GuestDevices) -> str:
    """Return no problem: the hypervisor has no limit of its own."""
    return ""


def no_combination_check(params: Mapping[str, Any]) -> None:
    """Accept every combination of values, each of which is legal."""


def no_change(filled: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """No parameter has to change."""
    return {}


def no_firmware_disks(params: Mapping[str, Any]) -> dict[str, str]:
    """Return no disk: the firmware needs none."""
    return {}


def no_console(request: ConsoleRequest) -> InstanceConsole:
    """Say that the console of this hypervisor is not supported."""
    hypervisor = request.instance.hypervisor
    return request.message(f"consoles of hypervisor {hypervisor} are not part of this version")


@dataclass(frozen=True, slots=True, kw_only=True)
class HypervisorDescriptor:
    """One hypervisor, as the master side, the commands and the shared packages see it.

    A driver on the node side (:mod:`ganeti.hypervisor`) refers to the descriptor of its hypervisor.
    A descriptor without a driver describes what the configuration may hold.
    """

    name: str
    #: Name -> parameter.
    parameters: Mapping[str, HvParam]
    #: Checks filled parameters against each other.
    #: :raises HypervisorError: names the parameter which is wrong.
    check_combination: Callable[[Mapping[str, Any]], None] = no_combination_check

    #: Filled parameters, devices of a guest -> why the guest can never start; empty when it can.
    impossible: Callable[[Mapping[str, Any], GuestDevices], str] = no_limits

    #: Whether a guest can be migrated to another node.
    can_migrate: bool = False
    #: Whether disks and network interfaces of a running guest can be added and removed.
    can_hotplug: bool = False
    #: Whether a change of ``vcpus`` and ``cpu_mask`` has an effect on a running guest at once.
    can_limit_processors: bool = False
    #: Whether there are guests at all; False when a file stands for each of them.
    runs_guests: bool = True
    #: Whether a guest has a kernel of its own, which separates it from the node. A guest without
    #: one is as close to the node as any of its processes.
    has_own_kernel: bool = True
    #: Whether an instance has a TCP port of the cluster's pool, for VNC or SPICE.
    needs_port: bool = False
    #: Whether the virtual machine monitor itself can open disks by URI, without the kernel.
    opens_disk_uris: bool = False
    #: The daemon on each node which notices that a guest was shut down from inside; empty for none.
    shutdown_daemon: str = ""
    #: Filled parameters, those of them which somebody chose for the guest -> name and value of
    #: others with which it starts the kernel of its own disk; empty where it does that anyway.
    boot_from_disk: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] = no_change

    #: Filled parameters -> name of each disk which the firmware needs -> the parameter and value
    #: which need it, for messages.
    firmware_disks: Callable[[Mapping[str, Any]], dict[str, str]] = no_firmware_disks
    #: All names which ``firmware_disks`` may return.
    firmware_disk_names: frozenset[str] = field(default_factory=frozenset)

    #: The parameter which chooses the user of a guest's process; None when there is no choice.
    user_parameter: UserParameter | None = None

    #: Whether a node keeps what guests write to their consoles (``hypervisor/console_log.py``).
    keeps_console_log: bool = False
    #: The parameter without which a guest has no such console; empty when each guest has one.
    console_log_parameter: str = ""
    #: How a user reaches the console of an instance.
    console: Callable[[ConsoleRequest], InstanceConsole] = no_console

    #: Beginnings of the names of programs whose processes are guests.
    guest_programs: tuple[str, ...] = ()
    #: Beginnings of the command lines, which are one word, of processes whose children are guests.
    guest_titles: tuple[str, ...] = ()
    #: Whether ``gnt-cluster init`` may choose this hypervisor without being asked.
    may_be_chosen: bool = True
    #: The command which resets a node when its kernel does not react to SysRq.
    reset_argv: tuple[str, ...] = ("reboot", "-n", "-f")

    def keeps_daemon_user(self, params: Mapping[str, Any]) -> bool:
        """Return True if a guest with these filled parameters runs as the user of the node daemon.

        False also for a hypervisor without a parameter for the user.
        """
        choice = self.user_parameter
        return choice is not None and params.get(choice.name) == choice.daemon


def console_program(name: str) -> str:
    """Return the path of a program which connects consoles; it is the same on every node."""
    return paths.guest_program(name)


def by_name(*parameters: HvParam) -> dict[str, HvParam]:
    """Return the table of parameters of a descriptor."""
    return {parameter.name: parameter for parameter in parameters}
