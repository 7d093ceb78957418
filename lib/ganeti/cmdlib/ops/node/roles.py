"""The roles of nodes, and the transitions between them.

A node has exactly one role: master, master candidate, regular, drained or offline (Ganeti design
2.0, *Node flags*). The configuration stores flags, which exclude each other; :func:`role_of` reads
them. :func:`requested_role` finds the role which follows from the flags in a request, and
:data:`TRANSITIONS` has the requirements and consequences of each change of role. All functions are
pure; :mod:`ganeti.cmdlib.node.set_params` carries out the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.constants import node as node_c

if TYPE_CHECKING:
    from ganeti.objects import Node


class Role(Enum):
    """The role of a node; the value is the published letter in lists."""

    MASTER = node_c.ROLE_MASTER
    CANDIDATE = node_c.ROLE_CANDIDATE
    REGULAR = node_c.ROLE_REGULAR
    DRAINED = node_c.ROLE_DRAINED
    OFFLINE = node_c.ROLE_OFFLINE

    @property
    def label(self) -> str:
        """The role in words: ``master candidate``."""
        return "master candidate" if self is Role.CANDIDATE else self.name.lower()


#: The flag of each role in configuration and requests, in the order in which changes are reported.
FLAG_OF = {
    Role.CANDIDATE: "master_candidate",
    Role.DRAINED: "drained",
    Role.OFFLINE: "offline",
}


@dataclass(frozen=True, slots=True)
class Transition:
    """Requirements and consequences of a change of role.

    :ivar refusal: why the change is not possible by modifying the node; empty if it is.
    :ivar answers: the node must answer first, because it was not called while it was offline.
    :ivar enlists: the node becomes a candidate: its certificate is listed with the change.
    :ivar leaves: the node is not a candidate any more: another one may have to take its place.
    """

    refusal: str = ""
    answers: bool = False
    enlists: bool = False
    leaves: bool = False


_ONLY_FAILOVER = "only 'gnt-cluster master-failover' moves the master role"
_BECOME_MASTER = Transition(refusal=f"it cannot become the master: {_ONLY_FAILOVER}")
_STOP_BEING_MASTER = Transition(refusal=f"it is the master: {_ONLY_FAILOVER}")
_NOTHING = Transition()

TRANSITIONS: dict[tuple[Role, Role], Transition] = {
    (Role.MASTER, Role.MASTER): _NOTHING,
    (Role.MASTER, Role.CANDIDATE): _STOP_BEING_MASTER,
    (Role.MASTER, Role.REGULAR): _STOP_BEING_MASTER,
    (Role.MASTER, Role.DRAINED): _STOP_BEING_MASTER,
    (Role.MASTER, Role.OFFLINE): _STOP_BEING_MASTER,
    (Role.CANDIDATE, Role.MASTER): _BECOME_MASTER,
    (Role.CANDIDATE, Role.CANDIDATE): _NOTHING,
    (Role.CANDIDATE, Role.REGULAR): Transition(leaves=True),
    (Role.CANDIDATE, Role.DRAINED): Transition(leaves=True),
    (Role.CANDIDATE, Role.OFFLINE): Transition(leaves=True),
    (Role.REGULAR, Role.MASTER): _BECOME_MASTER,
    (Role.REGULAR, Role.CANDIDATE): Transition(enlists=True),
    (Role.REGULAR, Role.REGULAR): _NOTHING,
    (Role.REGULAR, Role.DRAINED): _NOTHING,
    (Role.REGULAR, Role.OFFLINE): _NOTHING,
    (Role.DRAINED, Role.MASTER): _BECOME_MASTER,
    (Role.DRAINED, Role.CANDIDATE): Transition(enlists=True),
    (Role.DRAINED, Role.REGULAR): _NOTHING,
    (Role.DRAINED, Role.DRAINED): _NOTHING,
    (Role.DRAINED, Role.OFFLINE): _NOTHING,
    (Role.OFFLINE, Role.MASTER): _BECOME_MASTER,
    (Role.OFFLINE, Role.CANDIDATE): Transition(answers=True, enlists=True),
    (Role.OFFLINE, Role.REGULAR): Transition(answers=True),
    (Role.OFFLINE, Role.DRAINED): Transition(answers=True),
    (Role.OFFLINE, Role.OFFLINE): _NOTHING,
}


@dataclass(frozen=True, slots=True)
class RequestedFlags:
    """The flags in a request: set, cleared, or not mentioned (None)."""

    master_candidate: bool | None = None
    drained: bool | None = None
    offline: bool | None = None
    master_capable: bool | None = None

    def of(self, role: Role) -> bool | None:
        """Return the requested value of the flag of a role.

        The result is None if not mentioned, or without flag.
        """
        flag = FLAG_OF.get(role)
        return None if flag is None else getattr(self, flag)


def role_of(node: Node, master_uuid: str) -> Role:
    """Return the present role of a node."""
    if node.uuid == master_uuid:
        return Role.MASTER
    if node.offline:
        return Role.OFFLINE
    if node.drained:
        return Role.DRAINED
    return Role.CANDIDATE if node.master_candidate else Role.REGULAR


def requested_role(
    name: str, present: Role, flags: RequestedFlags, *, master_capable: bool, pool_not_full: bool
) -> Role:
    """Find the role of a node after a request to change its flags.

    Setting a flag requests its role. Clearing the flag of the present role requests the role
    *regular*; a node which was drained or offline then becomes a candidate if there are too few of
    them. Clearing a flag which is not set has no effect.

    :param name: name of the node, for messages.
    :param master_capable: whether the node may be a candidate after the change.
    :param pool_not_full: whether there are fewer candidates than there should be.
    :raises errors.OpPrereqError: the flags contradict each other, or the node cannot have them.
    """
    asked = [role for role in FLAG_OF if flags.of(role)]
    if len(asked) > 1:
        raise errors.OpPrereqError(
            "a node can be only one of master candidate, drained and offline", errors.ECODE_INVAL
        )
    if Role.CANDIDATE in asked and not master_capable:
        raise errors.OpPrereqError(f"node {name} is not master_capable", errors.ECODE_INVAL)
    if present is Role.MASTER:
        return _as_master(asked, flags)
    if asked:
        return asked[0]
    cleared = flags.of(present) is False
    if present is Role.CANDIDATE and (cleared or not master_capable):
        return Role.REGULAR
    returns = cleared and present in (Role.DRAINED, Role.OFFLINE)
    enabled = flags.master_capable is True and present is Role.REGULAR
    wanted = flags.master_candidate is not False
    if (returns or enabled) and pool_not_full and master_capable and wanted:
        return Role.CANDIDATE
    return Role.REGULAR if cleared else present


def _as_master(asked: list[Role], flags: RequestedFlags) -> Role:
    # The master has the candidate's flag, so setting that changes nothing.
    leaving = [role for role in asked if role is not Role.CANDIDATE]
    if leaving:
        return leaving[0]
    if flags.master_candidate is False or flags.master_capable is False:
        return Role.REGULAR
    return Role.MASTER


def transition(name: str, present: Role, wanted: Role) -> Transition:
    """Return requirements and consequences of a change of role.

    :raises errors.OpPrereqError: the change is not possible by modifying the node.
    """
    found = TRANSITIONS[present, wanted]
    if found.refusal:
        raise errors.OpPrereqError(f"node {name}: {found.refusal}", errors.ECODE_INVAL)
    return found
