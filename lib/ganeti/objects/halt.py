"""Why a guest whose process lives runs no instruction, and what may be done about it.

A process, domain or container which lives does not prove that its guest runs. The driver of a
hypervisor has a table of the states in which a guest is halted; a node adds the halt to the facts
of the guest, where the master and the commands read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ganeti.constants import hv


class Halt(NamedTuple):
    """Why a guest runs no instruction.

    :ivar state: the name of the state in its hypervisor, such as ``io-error``.
    :ivar kind: one of ``constants.hv.HALT_*``: what may be done about it.
    :ivar why: what happened, as the end of a sentence about the guest.
    """

    state: str
    kind: str
    why: str

    @property
    def is_fault(self) -> bool:
        """True if nobody wanted it: an instance which should run is down."""
        return self.kind in hv.HALT_FAULTS

    def to_facts(self) -> dict[str, str]:
        """Return what is added to the facts of a guest, which are plain values."""
        return {f"halt_{key}": value for key, value in self._asdict().items()}

    def text(self) -> str:
        """Return the state with its meaning, such as ``io-error (a disk ...)``."""
        return f"{self.state} ({self.why})"

    def remedy(self, instance_name: str) -> str:
        """Return the sentence which says what an administrator can do."""
        return _REMEDIES[self.kind].format(name=instance_name)


_REMEDIES: Final = {
    hv.HALT_CONTINUES: "Remove the reason, then continue it with 'gnt-instance startup {name}'.",
    hv.HALT_ENDED: "'gnt-instance startup {name}' ends the guest, and starts it again.",
    hv.HALT_PAUSED: "Continue it with 'gnt-instance startup --continue {name}'.",
    hv.HALT_MIGRATES: "If no job migrates it, run 'gnt-instance migrate --cleanup {name}'.",
}


def of_facts(facts: Mapping[str, Any] | None) -> Halt | None:
    """Return why a guest is halted; None for one which runs, or of which that is not known.

    :param facts: of a guest, as its node reports them; None or empty when there is no guest.
    """
    state, kind, why = (str((facts or {}).get(f"halt_{key}", "")) for key in Halt._fields)
    return Halt(state, kind, why) if kind in _REMEDIES else None
