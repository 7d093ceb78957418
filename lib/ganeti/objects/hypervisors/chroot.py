"""The hypervisor ``chroot``: an instance is a directory in which programs run."""

from __future__ import annotations

from ganeti.constants import hv
from ganeti.objects.hypervisors.descriptor import HypervisorDescriptor, by_name
from ganeti.objects.hypervisors.parameter import STRING, HvParam, absolute_path

CHROOT = HypervisorDescriptor(
    name=hv.CHROOT,
    parameters=by_name(
        HvParam("init_script", STRING, "/ganeti-chroot", check=absolute_path, required=True)
    ),
)
