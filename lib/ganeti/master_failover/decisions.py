"""When a candidate asks for the role of the master: functions of observations and times.

Nothing here measures time or asks a node, so that tests can play any history. All times are those
of the monotonic clock of this node, in seconds.

A candidate asks alone as long as possible: the first one in the order of their names at once, each
further one :data:`STAGGER_S` later. Two which ask at the same moment do no harm, because only one
of them wins the vote, but the role would move twice.

Source: ``doc/design-auto-failover.rst``, *When a candidate asks*.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ganeti.constants import failover as const
from ganeti.objects.transfer import MasterStatus
from ganeti.replication.majority import majority
from ganeti.utils.text import comma_join

#: Seconds by which each candidate asks later than the one before it.
STAGGER_S = 3.0
#: A master whose node daemon answers, or which was never seen serving, gets at least this time: its
#: daemon may be starting, or may be started again.
PATIENT_S = 60.0
PATIENT_FACTOR = 3
#: So often the role may move within :data:`MOVES_S`; then an administrator has to look.
MAX_MOVES = 3
MOVES_S = 600.0
# The pauses between attempts double, from the first to the last.
_RETRY_FIRST_S = 5.0
_RETRY_LAST_S = 60.0
# A daemon that observed nothing for so long was paused itself, and its observations are too old.
_PAUSED_S = 3.0


class View(NamedTuple):
    """What a candidate knows about the master.

    :ivar limit_s: seconds without a master after which the first candidate asks.
    :ivar rank: how many candidates come before this one.
    :ivar state: the state of the master daemon, a word of :mod:`ganeti.constants.failover`.
    :ivar detail: why nothing is known, for states without an answer.
    :ivar seen_at: when it could commit a change last, or when this candidate began to watch it.
    :ivar ever_seen: whether it has served since then.
    :ivar tries: how often this candidate has asked in vain since then.
    :ivar tried_at: when it asked last.
    :ivar moves: when the role moved to another node, as far as this daemon has noticed.
    :ivar answered_at: when the node of the master answered last, with or without a master
        daemon; None if it has not answered since then.
    :ivar stalled: the last thing it said was that it cannot commit changes.
    """

    limit_s: int
    rank: int
    state: str
    detail: str
    seen_at: float
    ever_seen: bool
    tries: int = 0
    tried_at: float = 0.0
    moves: tuple[float, ...] = ()
    answered_at: float | None = None
    stalled: bool = False


class Decision(NamedTuple):
    """What to do now.

    :ivar ask: ask for the role.
    :ivar due: when this would be right if nothing changes; None if never.
    :ivar text: the reason, for the log and for the administrator.
    """

    ask: bool
    due: float | None
    text: str


def end_of_patience(view: View) -> float:
    """Return until when a master may not serve before the first candidate asks.

    The short time begins with the last answer of the node. Otherwise one answer which does not come
    in time would move the role while the node starts a dead master daemon again. A master which has
    said itself that it cannot commit changes gets no more than the short time, even when its daemon
    ends then: to start it again does not mend its disk or its network.
    """
    if view.stalled:
        return view.seen_at + view.limit_s
    patient = view.seen_at + max(PATIENT_S, float(PATIENT_FACTOR * view.limit_s))
    if view.state != const.UNREACHABLE or not view.ever_seen:
        return patient
    answered_at = view.seen_at if view.answered_at is None else view.answered_at
    return min(patient, max(view.seen_at, answered_at) + view.limit_s)


def decide(view: View, now: float) -> Decision:
    """Decide whether to ask for the role."""
    if view.state == const.SERVING:
        return Decision(False, None, "the master serves")
    if view.state == const.STOPPED:
        return Decision(
            False, None, "the master daemon was stopped on purpose; start it, or move its role"
        )
    gone_s = now - view.seen_at
    what = f"{_WORDS[view.state]} ({view.detail})" if view.detail else _WORDS[view.state]
    moves = [at for at in view.moves if now - at < MOVES_S]
    if len(moves) >= MAX_MOVES:
        return Decision(
            False,
            min(moves) + MOVES_S,
            f"{what}, but the role has moved {len(moves)} times within {MOVES_S / 60:.0f} minutes."
            " It is not moved again before some time has passed; look for the reason.",
        )
    due = end_of_patience(view) + view.rank * STAGGER_S
    if view.tries:
        pause_s = min(_RETRY_LAST_S, _RETRY_FIRST_S * 2 ** (view.tries - 1))
        due = max(due, view.tried_at + pause_s + view.rank * STAGGER_S)
    if now < due:
        return Decision(False, due, f"{what}; this node asks for the role if that lasts")
    return Decision(True, due, f"{what} for {gone_s:.0f} s")


_WORDS = {
    const.STALLED: "the master answers and cannot commit changes",
    const.DEAD: "the master daemon has ended unexpectedly",
    const.MUTE: "the master daemon runs and does not answer",
    const.UNREACHABLE: "the node of the master does not answer",
    const.UNCLEAR: "the node daemon of the master does not know whether the master daemon serves",
}


def was_paused(before: float, now: float, pause_s: float) -> bool:
    """Tell whether this daemon itself did not run for some time, so that it saw nothing.

    :param before: the time of the poll before.
    :param pause_s: how long the daemon meant to wait since then.
    """
    return now - before > pause_s + _PAUSED_S


def objection(
    master: str,
    candidates: Collection[str],
    statuses: Mapping[str, MasterStatus],
    *,
    limit_s: int,
    known: tuple[int, str],
    wall_s: float,
) -> str | None:
    """Return why this node must not ask, by what the candidates say; None if it may.

    :param candidates: names of the candidates which are online, with the master.
    :param statuses: the answers of the candidates, by name; this node is among them.
    :param known: the master epoch which this node knew before, as number and owner.
    :param wall_s: the time of day, in seconds since 1970.
    """
    for name, status in statuses.items():
        if status.paused_until is not None and status.paused_until > wall_s:
            return f"the watcher is paused (node {name})"
    newer = [name for name, status in statuses.items() if _epoch(status) > known]
    if newer:
        return f"another node has just asked for the role ({comma_join(sorted(newer))} know of it)"
    seers = sorted(
        name
        for name, status in statuses.items()
        if name != master
        and status.watched == master
        and status.seen_s is not None
        and status.seen_s < limit_s
    )
    if seers and len(seers) + 1 >= majority(len(candidates)):
        return (
            f"the master can still commit changes: {comma_join(seers)} have seen it serve within"
            f" the last {limit_s} s, so the connection of this node is broken"
        )
    return None


def _epoch(status: MasterStatus) -> tuple[int, str]:
    number, _, owner = status.epoch.partition(" ")
    return (int(number) if number.isascii() and number.isdigit() else 0, owner)


def replaced(me: str, statuses: Mapping[str, MasterStatus], known: tuple[int, str]) -> str:
    """Return why the master daemon of this node must not be started again; empty if it may.

    :param statuses: the answers of other candidates, by name.
    :param known: the master epoch which this node knows, as number and owner.
    """
    for name, status in sorted(statuses.items()):
        if _epoch(status) > known and status.master.lower() != me:
            return (
                f"{status.master} is the master now (epoch {_epoch(status)[0]}, as {name} says), so"
                " the master daemon of this node is not started. If this node is marked offline,"
                f" use 'gnt-node modify --offline=no {me}' on {status.master}"
            )
    return ""


class OwnMaster(NamedTuple):
    """The master daemon of this node, which has the role.

    :ivar state: as in :class:`View`.
    :ivar dead_since: when it was found dead; None if it is not.
    :ivar tries: how often it was started again since it served.
    :ivar tried_at: when that was tried last.
    :ivar replaced: why it must not be started any more; empty if it may.
    """

    state: str
    dead_since: float | None
    tries: int = 0
    tried_at: float = 0.0
    replaced: str = ""


def decide_restart(own: OwnMaster, now: float) -> Decision:
    """Decide whether to start the master daemon of this node again."""
    if own.state != const.DEAD or own.dead_since is None:
        return Decision(False, None, _OWN_WORDS[own.state])
    if own.replaced:
        return Decision(False, None, own.replaced)
    due = own.dead_since
    if own.tries:
        due = own.tried_at + min(_RETRY_LAST_S, _RETRY_FIRST_S * 2 ** (own.tries - 1))
    if now < due:
        return Decision(False, due, "the master daemon has ended and is started again in a moment")
    return Decision(True, due, "the master daemon has ended unexpectedly and is started again")


_OWN_WORDS = {
    const.SERVING: "this node is the master and its daemon runs",
    const.STOPPED: "this node is the master; its daemon was stopped on purpose",
    const.MUTE: "this node is the master; its daemon does not answer",
    const.DEAD: "this node is the master; its daemon has ended",
}
