"""The hypervisor ``chroot``: an instance is a directory in which programs run."""

from __future__ import annotations

from ganeti.constants import hv
from ganeti.objects.hypervisors.descriptor import ConsoleRequest, HypervisorDescriptor, by_name
from ganeti.objects.hypervisors.parameter import GUEST, STRING, HvParam, absolute_path
from ganeti.objects.transfer import InstanceConsole
from ganeti.platform import machine


def _console(request: ConsoleRequest) -> InstanceConsole:
    """Return a shell in the directory."""
    root = machine.current().paths_of_node(request.node_name).chroot_root
    return request.by_ssh("chroot", f"{root}/{request.instance.name}")


CHROOT = HypervisorDescriptor(
    name=hv.CHROOT,
    parameters=by_name(
        HvParam("init_script", STRING, "/ganeti-chroot", GUEST, check=absolute_path, required=True)
    ),
    console=_console,
    has_own_kernel=False,
    may_be_chosen=False,
)
