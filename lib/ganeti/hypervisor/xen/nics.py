"""What the drivers for Xen pass to :mod:`ganeti.hypervisor.net` for the NICs of a guest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.hypervisor.net import interfaces
from ganeti.hypervisor.net.connect import GuestNetwork
from ganeti.hypervisor.xen import record
from ganeti.platform import paths

#: The program which Xen runs for each NIC, see :mod:`ganeti.hypervisor.xen.vif`.
_PROGRAM = "vif-ganeti"
#: The administrator's program, in the configuration directory. Packages of the original leave
#: ``xen-ifup-os`` there, which is for the NIC of its metadata service alone.
_SCRIPT = "xen-vif-bridge"


def guest_network(instance_name: str, tags: Sequence[str] = ()) -> GuestNetwork:
    """Return the names and files of the host's side of a guest's network.

    :param tags: of the instance.
    """
    script = f"{paths.current().conf_dir}/{_SCRIPT}"
    return GuestNetwork(instance_name, record.nic_dir(instance_name), script, tags)


def program(hvparams: Mapping[str, Any]) -> str:
    """Return the path of the program which connects the NICs of a guest: ``vif_script``, or
    ours.
    """
    chosen = str(hvparams.get("vif_script") or "")
    return chosen or paths.guest_program(_PROGRAM)


def check(nics: Sequence[Mapping[str, Any]], instance_name: str) -> None:
    """Check that the NICs of a guest can be connected on this node.

    :raises HypervisorError: names the NIC and what is missing.
    """
    guest = guest_network(instance_name)
    for nic in nics:
        interfaces.check(nic, guest)
