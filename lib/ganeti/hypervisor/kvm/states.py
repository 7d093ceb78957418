"""The states in which QEMU lives and its guest runs no instruction.

Source: QMP reference of QEMU 4 to 10, *RunState*.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ganeti.constants import hv
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.objects.halt import Halt

#: A guest which is prepared, and has not run yet.
PRELAUNCH: Final = "prelaunch"
#: QEMU waits for a guest which still runs on another node.
INCOMING: Final = "inmigrate"
#: The guest has switched itself off, and QEMU stays, as its parameters say.
SHUTDOWN: Final = "shutdown"
#: The guest sleeps, and wakes up with an event of its hardware.
SUSPENDED: Final = "suspended"

_TABLE: Final = MappingProxyType({
    halt.state: halt
    for halt in (
        Halt(
            "io-error",
            hv.HALT_CONTINUES,
            "a disk cannot be read or written, or its storage is full; QEMU has stopped the guest",
        ),
        Halt("internal-error", hv.HALT_ENDED, "QEMU or KVM has failed"),
        Halt("guest-panicked", hv.HALT_ENDED, "the operating system of the guest has crashed"),
        Halt(
            "watchdog",
            hv.HALT_ENDED,
            "the operating system of the guest hangs; its watchdog has stopped it",
        ),
        Halt("paused", hv.HALT_PAUSED, "somebody has paused it"),
        Halt(PRELAUNCH, hv.HALT_PAUSED, "it was started paused"),
        Halt(SUSPENDED, hv.HALT_PAUSED, "the guest has put itself to sleep"),
        Halt("debug", hv.HALT_PAUSED, "a debugger has stopped it"),
        Halt("save-vm", hv.HALT_PAUSED, "a snapshot with its memory is being written"),
        Halt("restore-vm", hv.HALT_PAUSED, "a snapshot with its memory is being read"),
        Halt("postmigrate", hv.HALT_MIGRATES, "it was sent to another node"),
        Halt("finish-migrate", hv.HALT_MIGRATES, "the last part of it is being sent"),
    )
})  # fmt: skip
_INTERRUPTED_START: Final = Halt(
    PRELAUNCH, hv.HALT_CONTINUES, "its start ended before its first instruction"
)

#: States in which no operating system would react to the power button.
NO_POWER_BUTTON: Final = frozenset({
    PRELAUNCH, INCOMING, SHUTDOWN, "postmigrate", "guest-panicked", "internal-error", "io-error",
    "watchdog",
})  # fmt: skip


def of(answer: Mapping[str, Any], layout: Layout) -> Halt | None:
    """Return why a guest runs no instruction; None for one which runs.

    A guest which QEMU keeps for another node, or which has switched itself off, is not halted: it
    does not run here.

    :param answer: to ``query-status``.
    """
    state = answer.get("status")
    if not isinstance(state, str) or answer.get("running", state == "running"):
        return None
    if state in (INCOMING, SHUTDOWN):
        return None
    if state == PRELAUNCH and not os.path.exists(layout.paused_file):
        return _INTERRUPTED_START
    unknown = Halt(state, hv.HALT_PAUSED, "this version does not know this state of QEMU")
    return _TABLE.get(state, unknown)
