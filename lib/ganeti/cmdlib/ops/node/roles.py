"""The role of a node, and how it may change.

A node is in exactly one role (seed 001 *Node flags*): master, master candidate, regular, drained or
offline. The configuration stores flags; they exclude each other, and :func:`role_of` reads them.
Everything here is pure: :func:`requested_role` turns what a user asked for into the role to be taken,
:data:`TRANSITIONS` says of every pair of roles whether the change may be made by modifying the node
and what it takes. :mod:`ganeti.cmdlib.node.set_params` does what the table says.
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
    """What a node is for the cluster; the value is the letter of lists."""

    MASTER = node_c.ROLE_MASTER
    CANDIDATE = node_c.ROLE_CANDIDATE
    REGULAR = node_c.ROLE_REGULAR
    DRAINED = node_c.ROLE_DRAINED
    OFFLINE = node_c.ROLE_OFFLINE


#: The flags by which a role is stored and asked for, in the order in which changes are reported.
FLAG_OF = {
    Role.CANDIDATE: "master_candidate",
    Role.DRAINED: "drained",
    Role.OFFLINE: "offline",
}


@dataclass(frozen=True, slots=True)
class Transition:
    """What a change of role takes.

    :ivar refusal: why it cannot be made this way; empty when it can.
    :ivar answers: the node must answer before, because nobody has talked to it for a while.
    :ivar enlists: the node joins the candidates: its certificate is listed with the change.
    :ivar leaves: the node leaves the candidates: another one may have to take its place.
    """

    refusal: str = ""
    answers: bool = False
    enlists: bool = False
    leaves: bool = False


_ONLY_FAILOVER = "the master role moves with 'gnt-cluster master-failover' only"
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
    """The flags as a user gave them: set, cleared, or not mentioned (None)."""

    master_candidate: bool | None = None
    drained: bool | None = None
    offline: bool | None = None
    master_capable: bool | None = None

    def of(self, role: Role) -> bool | None:
        """What was said about the flag of a role; None for a role without flag."""
        flag = FLAG_OF.get(role)
        return None if flag is None else getattr(self, flag)


def role_of(node: Node, master_uuid: str) -> Role:
    """The present role of a node."""
    if node.uuid == master_uuid:
        return Role.MASTER
    if node.offline:
        return Role.OFFLINE
    if node.drained:
        return Role.DRAINED
    return Role.CANDIDATE if node.master_candidate else Role.REGULAR


def requested_role(
    name: str, present: Role, wish: RequestedFlags, *, master_capable: bool, room: bool
) -> Role:
    """The role which a node takes when a user asks for these flags.

    Setting a flag asks for its role; clearing the flag of the present role asks for a regular
    node, which becomes a candidate by itself when it comes back and the pool has room. Clearing a
    flag which is not set means nothing.

    :param name: the node's, for messages.
    :param master_capable: whether it may be a candidate, as it will be after the change.
    :param room: whether there are fewer candidates than there should be.
    :raises errors.OpPrereqError: the flags contradict each other, or the node cannot have them.
    """
    asked = [role for role in FLAG_OF if wish.of(role)]
    if len(asked) > 1:
        raise errors.OpPrereqError(
            "a node can be only one of master candidate, drained and offline", errors.ECODE_INVAL
        )
    if Role.CANDIDATE in asked and not master_capable:
        raise errors.OpPrereqError(
            f"node {name} is not capable of being master", errors.ECODE_INVAL
        )
    if present is Role.MASTER:
        return _as_master(asked, wish)
    if asked:
        return asked[0]
    cleared = wish.of(present) is False
    if present is Role.CANDIDATE and (cleared or not master_capable):
        return Role.REGULAR
    returns = cleared and present in (Role.DRAINED, Role.OFFLINE)
    enabled = wish.master_capable is True and present is Role.REGULAR
    if (returns or enabled) and room and master_capable and wish.master_candidate is not False:
        return Role.CANDIDATE
    return Role.REGULAR if cleared else present


def _as_master(asked: list[Role], wish: RequestedFlags) -> Role:
    # The master has the candidate's flag, so setting that changes nothing.
    leaving = [role for role in asked if role is not Role.CANDIDATE]
    if leaving:
        return leaving[0]
    if wish.master_candidate is False or wish.master_capable is False:
        return Role.REGULAR
    return Role.MASTER


def transition(name: str, present: Role, wanted: Role) -> Transition:
    """What it takes to change a node's role.

    :raises errors.OpPrereqError: it cannot be changed like this.
    """
    found = TRANSITIONS[present, wanted]
    if found.refusal:
        raise errors.OpPrereqError(f"node {name}: {found.refusal}", errors.ECODE_INVAL)
    return found
