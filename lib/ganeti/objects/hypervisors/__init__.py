"""The six hypervisors which Ganeti publishes: a descriptor each.

A :class:`~ganeti.objects.hypervisors.descriptor.HypervisorDescriptor` holds what code outside of
the drivers must know: parameters, console, capabilities. No other module asks for a hypervisor by
its name; a new one needs a descriptor here and a driver in :mod:`ganeti.hypervisor`.

================== ======================================================================
:mod:`.parameter`  one parameter: its type, its default and the check of its value
:mod:`.descriptor` what code outside of a driver needs to know of a hypervisor
:mod:`.cpu_masks`  the parameter ``cpu_mask``: the processors on which a guest may run
:mod:`.kvm`        ``kvm``: processes of QEMU
:mod:`.xen`        ``xen-pvm`` and ``xen-hvm``
:mod:`.lxc`        ``lxc``: containers of the node's kernel
:mod:`.chroot`     ``chroot``: directories in which programs run
:mod:`.fake`       ``fake``: a file stands for each guest, for tests and virtual clusters
================== ======================================================================
"""

from __future__ import annotations

from ganeti import errors
from ganeti.objects.hypervisors.chroot import CHROOT
from ganeti.objects.hypervisors.descriptor import HypervisorDescriptor
from ganeti.objects.hypervisors.fake import FAKE
from ganeti.objects.hypervisors.kvm import KVM
from ganeti.objects.hypervisors.lxc import LXC
from ganeti.objects.hypervisors.xen import XEN_HVM, XEN_PVM

#: Name -> descriptor, sorted by name.
ALL: dict[str, HypervisorDescriptor] = {
    descriptor.name: descriptor for descriptor in (CHROOT, FAKE, KVM, LXC, XEN_HVM, XEN_PVM)
}


def of(name: str) -> HypervisorDescriptor:
    """Return the descriptor of a hypervisor.

    :raises HypervisorError: there is no hypervisor of this name.
    """
    descriptor = ALL.get(name)
    if descriptor is None:
        raise errors.HypervisorError(f"there is no hypervisor {name!r}")
    return descriptor
