"""The drivers of hypervisors, which run guests on a node.

:func:`of` gives the driver for a hypervisor's name; :mod:`ganeti.hypervisor.base` has the
operations that every driver offers. The node's handlers (:mod:`ganeti.backend.instance`) know only
these. The master sends filled parameters and has checked their syntax
(:mod:`ganeti.objects.hvparams`); the driver checks whether this node can use them.

What other code must know of a hypervisor is in its descriptor (:mod:`ganeti.objects.hypervisors`).
A new hypervisor needs a descriptor, a package here, and a line in the table below.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.objects import hypervisors
from ganeti.objects.hypervisors.fake import FAKE
from ganeti.objects.hypervisors.kvm import KVM

if TYPE_CHECKING:
    from ganeti.hypervisor.base import Hypervisor

# Name -> module and class. A module is imported with the first use of its hypervisor.
_DRIVERS = {
    FAKE.name: ("ganeti.hypervisor.fake.driver", "FakeHypervisor"),
    KVM.name: ("ganeti.hypervisor.kvm.driver", "KvmHypervisor"),
}


def known() -> tuple[str, ...]:
    """Names of the hypervisors which have a driver."""
    return tuple(_DRIVERS)


def of(name: str) -> Hypervisor:
    """The driver of a hypervisor.

    :raises HypervisorError: there is no hypervisor of this name, or it has no driver.
    """
    if name not in _DRIVERS:
        published = name in hypervisors.ALL
        problem = "is not supported by this version" if published else "does not exist"
        raise errors.HypervisorError(f"hypervisor {name} {problem}")
    module, cls = _DRIVERS[name]
    driver: Hypervisor = getattr(importlib.import_module(module), cls)()
    return driver
