"""What runs guests on a node, behind one set of verbs.

:func:`of` gives the object for a hypervisor's name; :mod:`~ganeti.hypervisor.base` says what it can
do. Each hypervisor is a module or a sub-room of its own; the node's handlers
(:mod:`ganeti.backend.instance.lifecycle`) know only the verbs. Parameters arrive filled from the
master; whether their syntax is right was decided there (:mod:`ganeti.objects.hvparams`), whether
this node can use them is decided here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.constants import hv

if TYPE_CHECKING:
    from ganeti.hypervisor.base import Hypervisor

# Imported when asked for: a node that runs one kind of guest does not load the others.
_CLASSES = {
    hv.FAKE: ("ganeti.hypervisor.fake.driver", "FakeHypervisor"),
    hv.KVM: ("ganeti.hypervisor.kvm.driver", "KvmHypervisor"),
}


def known() -> tuple[str, ...]:
    """Names of the hypervisors this version drives."""
    return tuple(_CLASSES)


def of(name: str) -> Hypervisor:
    """The hypervisor of that name.

    :raises HypervisorError: no such hypervisor, or none that this version drives.
    """
    if name not in _CLASSES:
        known_elsewhere = "is not supported by this version" if name in hv.ALL else "does not exist"
        raise errors.HypervisorError(f"hypervisor {name} {known_elsewhere}")
    module, cls = _CLASSES[name]
    instance: Hypervisor = getattr(importlib.import_module(module), cls)()
    return instance
