"""How to reach the console of an instance.

The master says it without asking the node: everything needed is in the configuration and in the
layout of files, which is the same on all nodes (in a virtual cluster: below each node's root). For
a serial console under KVM that is the published command line of ``kvm-console-wrapper``; ours
(:mod:`ganeti.tools.kvm_console`) needs no socat, other programs of that name take the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti.constants import hv
from ganeti.objects.transfer import (
    CONSOLE_MESSAGE,
    CONSOLE_SPICE,
    CONSOLE_SSH,
    CONSOLE_VNC,
    InstanceConsole,
)
from ganeti.utils import paths

#: Ctrl-], as telnet has it.
ESCAPE = "0x1d"
USER = "root"
_WRAPPER = "tools/kvm-console-wrapper"


def node_paths(node_name: str) -> paths.Paths:
    """The paths of another node."""
    directory = paths.vcluster_dir() if paths.is_virtual() else None
    return paths.Paths(f"{directory}/{node_name}" if directory else "")


def wrapper_path() -> str:
    """Where ``kvm-console-wrapper`` is: in this checkout, or where packages put it."""
    top = paths.project_dir()
    if top is not None and paths.is_virtual():
        return f"{top}/{_WRAPPER}"
    return f"/usr/lib/ganeti/{_WRAPPER}"


def serial_command(instance_name: str, node_name: str) -> list[str]:
    """The words that, on the node, attach a terminal to a guest's serial port."""
    control = f"{node_paths(node_name).kvm_root}/ctrl/{instance_name}"
    return [wrapper_path(), "socat", instance_name, f"{control}.monitor",
            f"STDIO,raw,echo=0,escape={ESCAPE}", f"UNIX-CONNECT:{control}.serial"]


def console(instance_name: str, hypervisor: str, hvparams: Mapping[str, Any],
            network_port: int | None, node_name: str) -> InstanceConsole:
    """The best console a running instance has: serial, else VNC, else SPICE, else a message.

    :param hvparams: filled.
    :param node_name: where it runs.
    """
    if hypervisor != hv.KVM:
        return InstanceConsole(
            instance=instance_name, kind=CONSOLE_MESSAGE,
            message=f"Console not available for {hypervisor} hypervisor").check()
    if hvparams.get("serial_console"):
        return InstanceConsole(
            instance=instance_name, kind=CONSOLE_SSH, host=node_name, user=USER,
            command=serial_command(instance_name, node_name)).check()
    vnc = hvparams.get("vnc_bind_address")
    if vnc and network_port and not vnc.startswith("/"):
        return InstanceConsole(
            instance=instance_name, kind=CONSOLE_VNC, port=network_port,
            host=node_name if vnc in ("0.0.0.0", "::") else vnc,
            display=network_port - hv.VNC_BASE_PORT).check()
    if hvparams.get("spice_bind") and network_port:
        return InstanceConsole(
            instance=instance_name, kind=CONSOLE_SPICE, host=hvparams["spice_bind"],
            port=network_port).check()
    return InstanceConsole(
        instance=instance_name, kind=CONSOLE_MESSAGE,
        message=f"instance {instance_name} has no console: serial_console, vnc_bind_address and "
                "spice_bind are all off").check()
