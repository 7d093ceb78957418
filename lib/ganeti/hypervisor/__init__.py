"""The drivers of hypervisors, which run guests on a node.

:func:`of` gives the driver for a hypervisor's name; :mod:`ganeti.hypervisor.base` has the
operations that every driver offers. The node's handlers (:mod:`ganeti.backend.instance`) know only
these. The master sends filled parameters and has checked their syntax
(:mod:`ganeti.objects.hvparams`); the driver checks whether this node can use them.

What other code must know of a hypervisor is in its descriptor (:mod:`ganeti.objects.hypervisors`).
A new hypervisor needs a descriptor, a package here, and a line in the table below.

==================== ==========================================================================
:mod:`.base`         the operations which every driver offers, and the types of their values
:mod:`.host`         facts about processes, files, interfaces and capacity of this machine
:mod:`.guest_lock`   the lock of one guest, so that operations on it exclude each other
:mod:`.guest_errors` the errors which several drivers raise for a guest
:mod:`.console_log`  the log of what a guest writes to its console
:mod:`.net`          the host's side of the network interfaces of guests
:mod:`.rootfs`       what is on a disk with a root file system, and the command which mounts it
:mod:`.kvm`          the driver of ``kvm``: processes of QEMU
:mod:`.xen`          the drivers of ``xen-pvm`` and ``xen-hvm``
:mod:`.lxc`          the driver of ``lxc``: containers
:mod:`.chroot`       the driver of ``chroot``: programs which run in a directory
:mod:`.fake`         the driver of ``fake``: a file stands for each guest
==================== ==========================================================================
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.objects import hypervisors
from ganeti.objects.hypervisors.chroot import CHROOT
from ganeti.objects.hypervisors.fake import FAKE
from ganeti.objects.hypervisors.kvm import KVM
from ganeti.objects.hypervisors.lxc import LXC
from ganeti.objects.hypervisors.xen import XEN_HVM, XEN_PVM

if TYPE_CHECKING:
    from ganeti.hypervisor.base import Hypervisor

# Name -> module and class. A module is imported with the first use of its hypervisor.
_DRIVERS = {
    FAKE.name: ("ganeti.hypervisor.fake.driver", "FakeHypervisor"),
    # Before the others: a new cluster gets the first one which works, and under Xen no other does.
    XEN_PVM.name: ("ganeti.hypervisor.xen.driver", "XenPvmHypervisor"),
    XEN_HVM.name: ("ganeti.hypervisor.xen.driver", "XenHvmHypervisor"),
    KVM.name: ("ganeti.hypervisor.kvm.driver", "KvmHypervisor"),
    LXC.name: ("ganeti.hypervisor.lxc.driver", "LxcHypervisor"),
    CHROOT.name: ("ganeti.hypervisor.chroot.driver", "ChrootHypervisor"),
}


def known() -> tuple[str, ...]:
    """Return the names of the hypervisors which have a driver."""
    return tuple(_DRIVERS)


def of(name: str) -> Hypervisor:
    """Return the driver of a hypervisor.

    :raises HypervisorError: there is no hypervisor of this name, or it has no driver.
    """
    if name not in _DRIVERS:
        published = name in hypervisors.ALL
        problem = "is not supported by this version" if published else "does not exist"
        raise errors.HypervisorError(f"hypervisor {name} {problem}")
    module, cls = _DRIVERS[name]
    driver: Hypervisor = getattr(importlib.import_module(module), cls)()
    return driver
