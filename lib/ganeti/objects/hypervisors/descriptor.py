"""What code outside of a driver needs to know of a hypervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ganeti.objects.hypervisors.parameter import HvParam
from ganeti.objects.instance import Instance
from ganeti.objects.transfer import CONSOLE_MESSAGE, InstanceConsole


@dataclass(frozen=True, slots=True)
class ConsoleRequest:
    """The facts from which the console of an instance follows."""

    instance: Instance
    hvparams: Mapping[str, Any]  # filled
    node_name: str  # primary node
    ssh_port: int  # of the primary node


def no_combination_check(params: Mapping[str, Any]) -> None:
    """Accept every combination of values, each of which is legal."""


def no_firmware_disks(params: Mapping[str, Any]) -> dict[str, str]:
    """The firmware needs no disk."""
    return {}


def no_console(request: ConsoleRequest) -> InstanceConsole:
    """Say that the console of this hypervisor is not supported."""
    instance = request.instance
    return InstanceConsole(
        instance=instance.name,
        kind=CONSOLE_MESSAGE,
        message=f"consoles of hypervisor {instance.hypervisor} are not part of this version",
    )


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

    #: Whether a guest can be migrated to another node.
    can_migrate: bool = False
    #: Whether there are guests at all; False when a file stands for each of them.
    runs_guests: bool = True
    #: Whether an instance has a TCP port of the cluster's pool, for VNC or SPICE.
    needs_port: bool = False
    #: Whether the virtual machine monitor itself can open disks by URI, without the kernel.
    opens_disk_uris: bool = False
    #: The daemon on each node which notices that a guest was shut down from inside; empty for none.
    shutdown_daemon: str = ""

    #: Filled parameters -> name of each disk which the firmware needs -> the parameter and value
    #: which need it, for messages.
    firmware_disks: Callable[[Mapping[str, Any]], dict[str, str]] = no_firmware_disks
    #: All names which ``firmware_disks`` may return.
    firmware_disk_names: frozenset[str] = field(default_factory=frozenset)

    #: How a user reaches the console of an instance.
    console: Callable[[ConsoleRequest], InstanceConsole] = no_console

    #: Beginnings of the names of programs whose processes are guests.
    guest_programs: tuple[str, ...] = ()
    #: The command which resets a node when its kernel does not react to SysRq.
    reset_argv: tuple[str, ...] = ("reboot", "-n", "-f")


def by_name(*parameters: HvParam) -> dict[str, HvParam]:
    """The table of parameters of a descriptor."""
    return {parameter.name: parameter for parameter in parameters}
