"""How to reach a guest's console; pure, so that the master can say it without asking the node.

The command for a serial console is the published one: ``kvm-console-wrapper`` with the words
another program of that name would take. Ours (:mod:`ganeti.tools.kvm_console`) needs no socat.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti.hypervisor.kvm.argv import Layout
from ganeti.objects import transfer
from ganeti.objects.transfer import InstanceConsole

#: Ctrl-], as telnet has it.
ESCAPE = "0x1d"


def command(wrapper: str, layout: Layout, *, socat: str = "socat") -> list[str]:
    """The words that attach a terminal on the node to the guest's serial port."""
    return [wrapper, socat, layout.name, layout.socket("monitor"),
            f"STDIO,raw,echo=0,escape={ESCAPE}", f"UNIX-CONNECT:{layout.socket('serial')}"]


def console(instance_name: str, network_port: int | None, host: str,
            hvparams: Mapping[str, Any], wrapper: str, layout: Layout,
            user: str = "root") -> InstanceConsole:
    """The best console a guest has: serial, else VNC, else SPICE, else a message.

    :param host: name or address of the guest's node.
    :param wrapper: path of ``kvm-console-wrapper`` on that node.
    """
    if hvparams.get("serial_console"):
        return InstanceConsole(instance=instance_name, kind=transfer.CONSOLE_SSH, host=host,
                               user=user, command=command(wrapper, layout)).check()
    vnc = hvparams.get("vnc_bind_address")
    if vnc and network_port and not vnc.startswith("/"):
        address = host if vnc == "0.0.0.0" else vnc
        return InstanceConsole(instance=instance_name, kind=transfer.CONSOLE_VNC, host=address,
                               port=network_port, display=network_port - 5900).check()
    if hvparams.get("spice_bind") and network_port:
        return InstanceConsole(instance=instance_name, kind=transfer.CONSOLE_SPICE,
                               host=hvparams["spice_bind"], port=network_port).check()
    return InstanceConsole(
        instance=instance_name, kind=transfer.CONSOLE_MESSAGE,
        message=f"instance {instance_name} has no console: serial_console, vnc_bind_address and "
                "spice_bind are all off").check()
