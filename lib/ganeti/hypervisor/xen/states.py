"""The states in which Xen keeps a domain and its guest runs no instruction.

Source: xl(1), *list*.
"""

from __future__ import annotations

from typing import Final

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor.xen import record, transfer
from ganeti.hypervisor.xen.parse import Domain
from ganeti.hypervisor.xen.record import STARTING
from ganeti.objects.halt import Halt

# By the letters in the list of xl, the most important first.
_TABLE: Final = (
    ("c", Halt("crashed", hv.HALT_ENDED, "the operating system of the guest has crashed")),
    ("d", Halt("dying", hv.HALT_ENDED, "the domain ends, and something still uses its memory")),
    ("p", Halt("paused", hv.HALT_PAUSED, "somebody has paused it, or it was started paused")),
)
_SENT: Final = Halt("paused", hv.HALT_MIGRATES, "it is being sent to another node, or was sent")
_INTERRUPTED_START: Final = Halt(
    "paused", hv.HALT_ENDED, "its start ended before its first instruction"
)


def of(domain: Domain) -> Halt | None:
    """Return why a guest runs no instruction; None for one which runs or has switched itself off.

    The domain of a guest which was sent looks as if it had ended.
    """
    if (domain.is_paused or domain.is_shut_down) and transfer.is_sending(domain.name):
        return _SENT
    for letter, halt in _TABLE:
        if letter in domain.state:
            starts = halt.kind == hv.HALT_PAUSED and _is_starting(domain.name)
            return _INTERRUPTED_START if starts else halt
    return None


def _is_starting(instance_name: str) -> bool:
    try:
        known = record.find(instance_name)
    except errors.HypervisorError:
        return False
    return known is not None and known.state == STARTING
