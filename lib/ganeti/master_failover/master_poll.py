"""Watching the master, and asking for its role: the loop of ``ganeti-failoverd``.

Each poll reads which node is the master and asks it whether it serves (:data:`MASTER_STATUS`), or,
on the master itself, looks at the local daemon. :mod:`.decisions` decides. Before this node asks
for the role, it asks the other candidates what they see. The failover itself runs in a child
process, which loads what it needs and ends; so the daemon stays small, and it can be ended while a
failover hangs.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from ganeti import errors
from ganeti.config.ssconf import SimpleStore
from ganeti.constants import failover as const
from ganeti.constants import ssconf as ssconf_c
from ganeti.master_failover import decisions
from ganeti.master_failover.child import FAILOVER, RELEASE_ADDRESS, RESTART, Child, Task
from ganeti.objects.transfer import MasterStatus
from ganeti.platform import failover_report, machine, master_epoch, paths
from ganeti.platform.failover_report import Report
from ganeti.replication.majority import has_quorum
from ganeti.rpc import AddressRunner, key_pins
from ganeti.rpc.results import Result
from ganeti.utils import clock
from ganeti.utils.filelock import is_locked
from ganeti.wire.calls import MASTER_STATUS

_log = logging.getLogger(__name__)

# A text which differs in this only is not logged once more.
_DETAIL = re.compile(r"\([^()]*\)|[0-9]+")

#: Seconds between two polls: at most, and on nodes which watch nothing.
POLL_S = 1.0
IDLE_S = 5.0
# Seconds after which a candidate that has not answered counts as one which does not see the master.
_ASK_S = 1.0
# Seconds which the other candidates get when a majority of them has answered.
_HASTE_S = 0.3


class Facts(NamedTuple):
    """What the files of this node say about the cluster.

    :ivar limit_s: the parameter ``auto_failover``; 0 for never.
    :ivar candidates: names of the candidates which are not marked offline, in the order in which
        they ask; this node is among them only if it is one.
    :ivar addresses: primary addresses of the nodes, by name.
    :ivar keys: pins of the keys which the machines at these addresses may show.
    """

    limit_s: int
    me: str
    master: str
    candidates: tuple[str, ...]
    addresses: Mapping[str, str]
    keys: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def read_facts() -> Facts:
    """Read the files of this node.

    :raises ConfigurationError: a file is missing, or cannot be read.
    """
    store = SimpleStore()
    try:
        limit_s = int(store.get(ssconf_c.AUTO_FAILOVER) or "0")
    except ValueError as err:
        raise errors.ConfigurationError(f"ssconf value {ssconf_c.AUTO_FAILOVER}: {err}") from err
    online = {name.lower() for name in store.online_nodes()}
    names = [name.lower() for name in store.master_candidates()]
    addresses = {name.lower(): ip for name, ip in store.node_primary_ips().items()}
    pins = {name.lower(): keys for name, keys in store.node_key_pins().items()}
    return Facts(
        limit_s,
        machine.current().hostname(),
        store.master_node().lower(),
        tuple(name for name in names if name in online),
        addresses,
        key_pins.expected_at(addresses, pins),
    )


class Seen(NamedTuple):
    """The state of a master daemon: a word of :mod:`ganeti.constants.failover`, and the reason.

    :ivar age_s: seconds since a majority confirmed that it can commit changes; 0 if not known.
    """

    state: str
    detail: str = ""
    age_s: float = 0.0


class MasterPoll:
    """The memory of the daemon, and one poll at a time.

    :param runner: makes node calls.
    :param start: starts a task in a child process.
    """

    def __init__(
        self,
        runner: AddressRunner,
        start: Callable[[Task], Child],
        *,
        facts: Callable[[], Facts] = read_facts,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._start = start
        self._facts = facts
        self._now = now
        self._child: Child | None = None
        self._master = ""
        self._was_me = False
        self._view = decisions.View(0, 0, "", "", 0.0, False)
        self._own = decisions.OwnMaster(const.SERVING, None)
        self._moves: deque[float] = deque(maxlen=decisions.MAX_MOVES)
        self._epoch = master_epoch.NONE
        self._trust: tuple[float, ...] = ()
        self._keys: Mapping[str, tuple[str, ...]] = {}
        self._polled_at = now()
        self._pause_s = POLL_S
        self._acted = ""
        self._said = ""
        self._why_not = ""

    def close(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._child.end()

    def descriptors(self) -> list[int]:
        """File descriptors which are readable when the pause ends early."""
        return [] if self._child is None else [self._child.fileno()]

    # -- one poll --------------------------------------------------------------------------------

    def poll(self) -> float:
        """Observe and act; return the seconds until the next poll."""
        begun = self._now()
        if decisions.was_paused(self._polled_at, begun, self._pause_s):
            self._forget_absence(begun)
        try:
            facts = self._facts()
            self._renew_trust()
            if facts.keys != self._keys:
                self._keys = facts.keys
                self._runner.expect_keys(facts.keys)
            pause_s = self._poll(facts, begun)
        except (errors.GenericError, OSError) as err:
            self._report("", Seen(""), f"this node cannot watch the master: {err}")
            pause_s = IDLE_S
        # What this poll itself took is not a pause of the daemon.
        self._polled_at = self._now()
        self._pause_s = pause_s
        return pause_s

    def _poll(self, facts: Facts, begun: float) -> float:
        self._reap()
        if facts.master != self._master:
            self._new_master(facts, begun)
        if not facts.limit_s:
            self._report("", Seen(""), "automatic failover is off")
            return IDLE_S
        if self._child is not None and self._child.task.name == FAILOVER:
            self._report(facts.master, Seen(""), "this node is taking the role of the master")
            return POLL_S
        if facts.me == facts.master:
            self._look_at_own(facts, begun)
            return POLL_S
        if facts.me not in facts.candidates:
            self._report("", Seen(""), "this node is not a master candidate, or is marked offline")
            return IDLE_S
        return self._look_at(facts, begun)

    def _new_master(self, facts: Facts, now: float) -> None:
        if self._master:
            self._moves.append(now)
            _log.info("the master is %s now; it was %s", facts.master, self._master)
        if self._was_me and facts.me != facts.master:
            # A master that was replaced while it was cut off may still have the address.
            self._act(Task(RELEASE_ADDRESS), "the address of the master is released")
        self._was_me = facts.me == facts.master
        self._master = facts.master
        self._view = decisions.View(facts.limit_s, 0, "", "", now, False)
        self._own = decisions.OwnMaster(const.SERVING, None)
        self._epoch = master_epoch.read().epoch

    def _forget_absence(self, now: float) -> None:
        """Begin anew after a pause of this daemon: what it did not see is not absence."""
        _log.info("this daemon was paused; it begins to watch anew")
        self._view = self._view._replace(seen_at=now, tries=0)
        self._own = self._own._replace(dead_since=None)

    # -- on a candidate --------------------------------------------------------------------------

    def _look_at(self, facts: Facts, begun: float) -> float:
        others = [name for name in facts.candidates if name != facts.master]
        seen = self._ask_master(facts, begun)
        view = self._view._replace(
            limit_s=facts.limit_s,
            rank=others.index(facts.me),
            state=seen.state,
            detail=seen.detail,
            moves=tuple(self._moves),
        )
        if seen.state == const.SERVING:
            self._epoch = max(self._epoch, master_epoch.read().epoch)
            view = view._replace(seen_at=begun - seen.age_s, ever_seen=True, tries=0, stalled=False)
        elif seen.state == const.STALLED:
            view = view._replace(seen_at=begun - seen.age_s, stalled=True)
        elif seen.state == const.STOPPED:
            view = view._replace(seen_at=begun, stalled=False)
        if seen.state != const.UNREACHABLE:
            view = view._replace(answered_at=begun)
        self._view = view
        now = self._now()
        known = master_epoch.read().epoch
        if known > self._epoch:
            self._wait_for_other(known, now)
        decision = decisions.decide(self._view, now)
        if decision.ask and self._child is None:
            decision = self._consult(facts, decision, now)
        elif self._why_not and self._view.tries:
            decision = decision._replace(
                text=f"{decision.text}; at the last attempt: {self._why_not}"
            )
        self._report(facts.master, seen, decision.text)
        if decision.due is None:
            return POLL_S
        return min(POLL_S, max(0.05, decision.due - self._now()))

    def _wait_for_other(self, known: master_epoch.Epoch, now: float) -> None:
        """Give another node time which has asked this one for the role."""
        _log.info("a node has asked for the role of the master (epoch %s); it gets time", known)
        self._epoch = known
        self._view = self._view._replace(seen_at=now, tries=0)

    def _ask_master(self, facts: Facts, begun: float) -> Seen:
        """Ask the node of the master whether its master daemon serves."""
        address = facts.addresses.get(facts.master)
        if address is None:
            return Seen(const.UNCLEAR, f"the address of {facts.master} is not known")
        timeout_s = max(_ASK_S, facts.limit_s / 5)
        if self._view.state == const.UNREACHABLE:
            # The questions before had no answer. One which ends after the limit makes this node ask
            # late for the role.
            due = decisions.decide(self._view, begun).due
            if due is not None and due > begun:
                timeout_s = max(_HASTE_S, min(timeout_s, due - begun))
        call = replace(MASTER_STATUS, timeout_s=timeout_s)
        result = self._runner.call_addresses(call, {facts.master: address})[facts.master]
        failure = result.failure
        if isinstance(failure, (errors.NodeUnreachable, errors.NodeKeyMismatch)):
            # Another machine has the address: the master is not there.
            return Seen(const.UNREACHABLE, failure.message)
        if failure is not None:
            return Seen(const.UNCLEAR, str(failure))
        status: MasterStatus = result.data
        state = status.daemon if status.daemon in const.STATES else const.UNCLEAR
        if state != const.SERVING or status.seen_s is None:
            return Seen(state)
        # To be well means to commit changes, and not only to answer.
        if status.seen_s <= facts.limit_s:
            return Seen(state, age_s=status.seen_s)
        return Seen(const.STALLED, f"for {status.seen_s:.0f} s", status.seen_s)

    def _consult(
        self, facts: Facts, decision: decisions.Decision, now: float
    ) -> decisions.Decision:
        """Ask the candidates what they see; ask for the role if nothing speaks against it."""
        names = {name for name in facts.candidates if name != facts.master}
        statuses = self._ask_candidates({name: facts.addresses[name] for name in names}, facts.me)
        why_not = decisions.objection(
            facts.master,
            facts.candidates,
            statuses,
            limit_s=facts.limit_s,
            known=(self._epoch.number, self._epoch.owner),
            wall_s=clock.now(),
        )
        if facts.me not in statuses:
            why_not = "the node daemon of this node does not answer"
        self._view = self._view._replace(tries=self._view.tries + 1, tried_at=now)
        self._why_not = why_not or ""
        if why_not is not None:
            return decisions.Decision(
                False, decisions.decide(self._view, now).due, f"{decision.text}, but {why_not}"
            )
        self._act(Task(FAILOVER), f"{decision.text}: this node asks for the role of the master")
        return decisions.Decision(False, None, f"{decision.text}; this node asks for the role")

    def _ask_candidates(self, addresses: Mapping[str, str], me: str) -> dict[str, MasterStatus]:
        limit: list[float] = []

        def until(results: Mapping[str, Result]) -> float | None:
            have = {name for name, one in results.items() if one.failure is None}
            if not limit and me in have and has_quorum(have, addresses):
                limit.append(time.monotonic() + _HASTE_S)
            return limit[0] if limit else None

        call = replace(MASTER_STATUS, timeout_s=_ASK_S)
        results = self._runner.call_until(call, addresses, until)
        return {name: one.data for name, one in results.items() if one.failure is None}

    # -- on the master ---------------------------------------------------------------------------

    def _look_at_own(self, facts: Facts, now: float) -> None:
        here = paths.current()
        state = const.SERVING
        if not is_locked(here.pid_file("ganeti-masterd")):
            state = const.STOPPED if os.path.exists(here.master_stopped_file) else const.DEAD
        own = self._own
        if state == const.DEAD:
            own = own._replace(
                state=state,
                dead_since=own.dead_since or now,
                replaced=self._replaced(facts) if own.tries else "",
            )
        elif own.tries and now - own.tried_at < decisions.PATIENT_S:
            own = own._replace(state=state, dead_since=None)
        else:
            own = decisions.OwnMaster(state, None)
        decision = decisions.decide_restart(own, now)
        if decision.ask and self._child is None:
            own = own._replace(tries=own.tries + 1, tried_at=now)
            self._act(Task(RESTART), decision.text)
        self._own = own
        self._report(self._master, Seen(state), decision.text)

    def _replaced(self, facts: Facts) -> str:
        """Return which master replaced this one, if other candidates say so; empty otherwise.

        A node which was marked offline meanwhile is not informed of it.
        """
        others = {
            name: facts.addresses[name]
            for name in facts.candidates
            if name != facts.me and name in facts.addresses
        }
        call = replace(MASTER_STATUS, timeout_s=_ASK_S)
        statuses = {
            name: one.data
            for name, one in self._runner.call_addresses(call, others).items()
            if one.failure is None
        }
        known = master_epoch.read().epoch
        return decisions.replaced(facts.me, statuses, (known.number, known.owner))

    # -- acting ----------------------------------------------------------------------------------

    def _act(self, task: Task, text: str) -> None:
        if self._child is not None:
            return
        self._note(text)
        self._child = self._start(task)

    def _note(self, text: str) -> None:
        _log.warning("%s", text)
        self._acted = f"{clock.format_time(clock.now())} {text}"

    def _reap(self) -> None:
        """Take the result of the child, if it has ended."""
        if self._child is None:
            return
        result = self._child.result()
        if result is None:
            return
        task, self._child = self._child.task, None
        if result.success:
            self._note(f"{task.name}: {result.text or 'done'}")
            return
        self._note(f"{task.name} has failed: {result.text}")
        # The attempt itself has taken an epoch, perhaps; that is not another node.
        self._epoch = max(self._epoch, master_epoch.read().epoch)

    def _renew_trust(self) -> None:
        """Use new certificates after they were replaced."""
        here = paths.current()
        trust = tuple(map(_mtime, (here.trust_file(), here.noded_client_cert_file)))
        if self._trust and trust != self._trust:
            self._runner.trust_changed()
        self._trust = trust

    def _report(self, watched: str, seen: Seen, text: str) -> None:
        """Write the report for other processes, and what has changed into the log."""
        said = _DETAIL.sub("", text)
        if said != self._said:
            _log.info("%s", text)
            self._said = said
        view = self._view
        report = Report(
            watched, seen.state, view.seen_at if view.ever_seen else None, text, self._acted
        )
        try:
            failover_report.write(report)
        except OSError as err:
            _log.error("cannot write the report: %s", err)


def _mtime(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0
