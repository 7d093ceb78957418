"""How to reach the console of an instance.

The answer is an ``InstanceConsole``: a command to run on the node, the address of a viewer, or a
message. It follows from the configuration and from where the files of a node lie, so no node is
asked. The command is the published one: ``kvm-console-wrapper`` with its arguments.
"""

from __future__ import annotations

import os
from typing import Any

from ganeti.constants.hv import FAKE, KVM, VNC_BASE_PORT
from ganeti.objects import ConfigData, Instance, InstanceConsole, Node, codec, transfer
from ganeti.platform import machine, paths

SSH_USER = "root"
WRAPPER = "kvm-console-wrapper"
#: Ctrl-], as telnet has it.
ESCAPE = "0x1d"
ANY_ADDRESS = "0.0.0.0"


def wrapper_path() -> str:
    """The console program, at the same place on every node."""
    top = paths.project_dir()
    if top is not None:
        return f"{top}/tools/{WRAPPER}"
    return os.path.join(os.path.dirname(paths.daemon_util()), "tools", WRAPPER)


def describe(config: ConfigData, instance: Instance) -> dict[str, Any]:
    """The console of an instance, in the form in which it travels."""
    return codec.to_dict(_console(config, instance).check())


def _console(config: ConfigData, instance: Instance) -> InstanceConsole:
    node = config.nodes[instance.primary_node]
    if instance.hypervisor == KVM:
        return _kvm_console(config, instance, node)
    if instance.hypervisor == FAKE:
        text = f"instance {instance.name} runs under the fake hypervisor, which has no console"
    else:
        text = f"consoles of hypervisor {instance.hypervisor} are not part of this version"
    return InstanceConsole(instance=instance.name, kind=transfer.CONSOLE_MESSAGE, message=text)


def _kvm_console(config: ConfigData, instance: Instance, node: Node) -> InstanceConsole:
    """The best console which the guest has: serial, else VNC, else SPICE, else a message."""
    hvparams = config.cluster.fill_hv(instance)
    port = instance.network_port
    if hvparams.get("serial_console"):
        control = f"{machine.current().paths_of_node(node.name).kvm_root}/ctrl/{instance.name}"
        group = config.nodegroups[node.group]
        return InstanceConsole(
            instance=instance.name,
            kind=transfer.CONSOLE_SSH,
            host=node.name,
            port=config.cluster.fill_nd(node, group)["ssh_port"],
            user=SSH_USER,
            command=[
                wrapper_path(),
                "socat",
                instance.name,
                f"{control}.monitor",
                f"STDIO,raw,echo=0,escape={ESCAPE}",
                f"UNIX-CONNECT:{control}.serial",
            ],
        )
    vnc = hvparams.get("vnc_bind_address")
    if vnc and port and not vnc.startswith("/"):
        return InstanceConsole(
            instance=instance.name,
            kind=transfer.CONSOLE_VNC,
            host=node.name if vnc == ANY_ADDRESS else vnc,
            port=port,
            display=port - VNC_BASE_PORT,
        )
    if hvparams.get("spice_bind") and port:
        return InstanceConsole(
            instance=instance.name,
            kind=transfer.CONSOLE_SPICE,
            host=hvparams["spice_bind"],
            port=port,
        )
    return InstanceConsole(
        instance=instance.name,
        kind=transfer.CONSOLE_MESSAGE,
        message=f"instance {instance.name} has no console: serial_console, vnc_bind_address and"
        " spice_bind are all off",
    )
