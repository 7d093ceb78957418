"""The protocol of the master's role as a small machine: vote, promise, write, send, crash, be late.

The decisions are the real ones (:mod:`ganeti.config.role`); nodes, disks and network are modelled.
Every node may be master, and any number of masters run at once, since each step of one may be
delayed for any time (a paused process, a slow message) while the others go on.

What must hold in every state:

* a change that was acknowledged is in the state of everybody who becomes master with a later
  epoch, and of everybody who acknowledges a change later;
* a node never obeys a lower epoch after a higher one, and an epoch has one owner;
* at most one master can still reach a majority: never two are obeyed.

A :class:`Rules` may leave out a part of the protocol; then the exploration must find a violation.
That is how we know that it looks at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from ganeti.config import role
from ganeti.config.role import Ballot, Standing
from ganeti.platform.master_epoch import NONE, Epoch
from ganeti.replication.majority import has_quorum, majority

# A state of the configuration: the epochs under which its changes were made, oldest first. Two
# changes are the same when they have the same place and epoch.
History = tuple[Epoch, ...]


class Node(NamedTuple):
    """One node's disk.

    ``filed`` is how many changes are in the file of the configuration; the others are in its
    journal, and the serial number counts them, too.
    """

    promised: Epoch
    label: Epoch
    history: History
    filed: int = 0

    def standing(self, master: str) -> Standing:
        return Standing(
            master,
            self.promised,
            (self.label, len(self.history)),
            (NONE, 0),
            digest=repr(self.history),
        )


class Process(NamedTuple):
    """A master daemon. ``promises`` while it is None until it has won."""

    epoch: Epoch
    promises: tuple[tuple[int, Standing], ...] | None
    history: History = ()
    have: frozenset[int] = frozenset()
    acked: bool = True
    #: The newest generation of the document of a witness which it has seen.
    newest: int = 0


class Document(NamedTuple):
    """What a witness keeps: no data, only how far others have got."""

    promised: Epoch
    label: Epoch
    length: int
    generation: int


class Put(NamedTuple):
    """A conditional write under way to the witness.

    ``expected`` is the document which it replaces, as the ETag identifies the content.
    """

    number: int
    epoch: Epoch
    expected: Document | None
    document: Document


class Message(NamedTuple):
    """A configuration under way."""

    epoch: Epoch
    history: History
    target: int


class State(NamedTuple):
    """Everything. ``acked``: what was acknowledged; ``acked_by``: by whom, the lowest epoch."""

    nodes: tuple[Node, ...]
    processes: tuple[Process | None, ...]
    messages: frozenset[Message]
    acked: History
    starts: int
    writes: int
    crashes: int
    acked_by: tuple[Epoch, ...] = ()
    document: Document | None = None
    puts: frozenset[Put] = frozenset()
    kept: frozenset[Document] = frozenset()
    restores: int = 0


class Rules(NamedTuple):
    """Parts of the protocol that may be left out."""

    judge_promises: bool = True
    compare_epochs: bool = True
    fence_own_disk: bool = True
    refuse_late: bool = True
    count_all: bool = True
    # Left out: the daemon which a failover starts overrides the vote.
    vote_again: bool = True
    # Left out: the server of the witness writes without the condition.
    conditional: bool = True
    # Left out: a candidate does not compare its copy with the document.
    compare_document: bool = True
    # Left out: the document may be replaced by an older one, or removed, at any time.
    restore_when_known: bool = True
    # Left out: after the answer of the witness a master does not look at its own node again.
    look_again: bool = True
    # Nodes keep a journal. It changes nothing for others, so most explorations do without it.
    journal: bool = False
    # Left out: a vote, and a master which starts, read the file only.
    count_journal: bool = True
    # Left out: a node answers before the record in the journal is flushed.
    flush_journal: bool = True


ALL_RULES = Rules()


class Violation(AssertionError):
    """A state that must not be."""


def name(number: int) -> str:
    return f"n{number}"


@cache
def everybody(count: int) -> frozenset[str]:
    return frozenset(name(number) for number in range(count))


@cache
def ballot(number: int, count: int) -> Ballot:
    return Ballot(name(number), everybody(count), everybody(count), moving=True)


@cache
def _judge(one: Ballot, standings: tuple[tuple[int, Standing], ...]) -> bool:
    return role.judge(one, {name(number): standing for number, standing in standings}).won


@cache
def _judge_promises(one: Ballot, standings: tuple[tuple[int, Standing], ...]) -> bool:
    return role.judge_promises(one, {name(n): standing for n, standing in standings}).won


def initial(count: int, starts: int, writes: int, crashes: int) -> State:
    return State(
        (Node(NONE, NONE, ()),) * count, (None,) * count, frozenset(), (), starts, writes, crashes
    )


class Model:
    """All steps that may be made from a state.

    :param count: the nodes; a witness counts as one, and as the last one.
    """

    def __init__(self, count: int, rules: Rules = ALL_RULES) -> None:
        self.count = count
        self.rules = rules

    def seen(self, node: Node) -> History:
        """The changes which a reader finds on a node."""
        if self.rules.journal and not self.rules.count_journal:
            return node.history[: node.filed]
        return node.history

    def stored(self, node: Node, label: Epoch, history: History) -> Node:
        """A node after a configuration was written to it: a change to its journal, or the file."""
        appended = history[:-1] == node.history != ()
        filed = 0 if not self.rules.journal else node.filed if appended else len(history)
        return node._replace(label=label, history=history, filed=filed)

    def _rest(self, state: State) -> Iterator[tuple[str, State]]:
        """A node writes its journal into the file, or loses its power."""
        for number, node in enumerate(state.nodes):
            if node.filed < len(node.history):
                filed = node._replace(filed=len(node.history))
                yield f"fold at {number}", self._node(state, number, filed)
                if state.crashes and not self.rules.flush_journal:
                    lost = node._replace(history=node.history[: node.filed])
                    after = state._replace(crashes=state.crashes - 1)
                    yield f"power of {number} fails", self._node(after, number, lost)

    def standing(self, node: Node) -> Standing:
        if self.rules.journal:
            node = node._replace(history=self.seen(node))
        found = node.standing("n0")
        if not self.rules.compare_epochs:
            found = found._replace(config=(NONE, len(node.history)))
        return found

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for number in range(len(state.processes)):
            process = state.processes[number]
            if process is None:
                if state.starts:
                    yield from self._start(state, number)
                continue
            if state.crashes:
                yield (
                    f"crash {number}",
                    self._set(state, number, None)._replace(crashes=state.crashes - 1),
                )
            if process.promises is not None:
                yield from self._promise(state, number, process)
            else:
                yield from self._act(state, number, process)
                if not self.rules.vote_again and state.starts:
                    yield f"override {number}", self._override(state, number)
        for message in state.messages:
            yield from self._deliver(state, message)
        if self.rules.journal:
            yield from self._rest(state)

    # -- becoming master -------------------------------------------------------------------------

    def _start(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        """Ask a majority; who answers beyond it only can object, so all ways to object are here."""
        for asked in majorities(self.count, number):
            votes = self.votes(state, number, asked)
            if not _judge(ballot(number, self.count), votes):
                continue
            epoch = role.next_epoch(name(number), [one.epoch for _, one in votes])
            yield (
                f"vote {number} by {asked}",
                self._set(state, number, Process(epoch, ()))._replace(starts=state.starts - 1),
            )

    def votes(
        self, state: State, _number: int, asked: tuple[int, ...]
    ) -> tuple[tuple[int, Standing], ...]:
        """What those who are asked answer."""
        return tuple((other, self.standing(state.nodes[other])) for other in asked)

    def _promise(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        promises = process.promises
        assert promises is not None
        done = {other for other, _ in promises}
        for other, node in enumerate(state.nodes):
            if other in done or process.epoch < node.promised:
                continue
            promised = node._replace(promised=process.epoch)
            after = self._node(state, other, promised)
            found = tuple(sorted([*promises, (other, self.standing(promised))]))
            yield (
                f"promise of {other} to {number}",
                self._set(after, number, process._replace(promises=found)),
            )
        if self._won(number, promises):
            yield f"win {number}", self._win(state, number, process)

    def _won(self, number: int, promises: tuple[tuple[int, Standing], ...]) -> bool:
        if self.rules.judge_promises:
            return _judge_promises(ballot(number, self.count), promises)
        return len(promises) >= majority(self.count)

    def _win(self, state: State, number: int, process: Process) -> State:
        node = state.nodes[number]
        if node.promised != process.epoch:
            return self._set(state, number, None)  # its own node says that it is over
        # A promise may come so late that a later epoch is in use already; that is not a violation,
        # because nothing of this one will ever be acknowledged.
        older = tuple(
            change
            for change, by in zip(state.acked, state.acked_by, strict=True)
            if by <= process.epoch
        )
        history = self.seen(node)
        if history[: len(older)] != older:
            raise Violation(
                f"{number} wins epoch {process.epoch} with {history}, acknowledged is {state.acked}"
            )
        adopted = self._node(state, number, node._replace(label=process.epoch))
        return self._set(
            adopted, number, Process(process.epoch, None, history, frozenset({number}))
        )

    def _override(self, state: State, number: int) -> State:
        """The daemon takes over from the command, and asks nobody but its own node."""
        node = state.nodes[number]
        epoch = role.next_epoch(name(number), [node.promised])
        taken = self._node(state, number, node._replace(promised=epoch, label=epoch))
        process = Process(epoch, None, node.history, frozenset({number}))
        return self._set(taken, number, process)._replace(starts=state.starts - 1)

    # -- being master ----------------------------------------------------------------------------

    def _act(self, state: State, number: int, process: Process) -> Iterator[tuple[str, State]]:
        if not process.acked and self._is_committed(process):
            yield f"acknowledge {number}", self._acknowledge(state, number, process)
        if state.writes and process.acked:
            node = state.nodes[number]
            if node.promised > process.epoch and self.rules.fence_own_disk:
                yield f"end {number}", self._set(state, number, None)
                return
            history = (*process.history, process.epoch)
            after = self._node(state, number, self.stored(node, process.epoch, history))
            after = self._set(
                after,
                number,
                process._replace(history=history, have=frozenset({number}), acked=False),
            )
            yield (
                f"write {number}",
                after._replace(
                    writes=state.writes - 1,
                    messages=state.messages
                    | {
                        Message(process.epoch, history, other)
                        for other in range(len(state.nodes))
                        if other != number
                    },
                ),
            )

    def _is_committed(self, process: Process) -> bool:
        have = {name(other) for other in process.have}
        # Left out: who does not answer does not count, as if it were marked offline.
        return has_quorum(have, everybody(self.count) if self.rules.count_all else have)

    def _acknowledge(self, state: State, number: int, process: Process) -> State:
        shorter, longer = sorted((process.history, state.acked), key=len)
        if longer[: len(shorter)] != shorter:
            raise Violation(f"{number} acknowledges {process.history} over {state.acked}")
        after = self._set(state, number, process._replace(acked=True))
        known = (*state.acked_by, *[process.epoch] * (len(longer) - len(state.acked_by)))
        return after._replace(
            acked=longer,
            acked_by=tuple(
                min(by, process.epoch) if place < len(process.history) else by
                for place, by in enumerate(known)
            ),
        )

    def _deliver(self, state: State, message: Message) -> Iterator[tuple[str, State]]:
        node = state.nodes[message.target]
        rest = state._replace(messages=state.messages - {message})
        if message.epoch < node.promised:
            return
        if (
            self.rules.refuse_late
            and node.label == message.epoch
            and len(message.history) < len(node.history)
        ):
            return
        obeying = node._replace(promised=message.epoch)
        written = self._node(
            rest, message.target, self.stored(obeying, message.epoch, message.history)
        )
        yield f"write at {message.target}, answer lost", written
        for number, process in enumerate(state.processes):
            if (
                process is not None
                and process.promises is None
                and not process.acked
                and (process.epoch, process.history) == (message.epoch, message.history)
            ):
                yield (
                    f"write at {message.target}",
                    self._set(
                        written, number, process._replace(have=process.have | {message.target})
                    ),
                )

    # -- helpers ---------------------------------------------------------------------------------

    def _node(self, state: State, number: int, node: Node) -> State:
        old = state.nodes[number]
        if node.promised < old.promised:
            raise Violation(f"{number} obeys {node.promised} after {old.promised}")
        nodes = list(state.nodes)
        nodes[number] = node
        return state._replace(nodes=tuple(nodes))

    @staticmethod
    def _set(state: State, number: int, process: Process | None) -> State:
        processes = list(state.processes)
        processes[number] = process
        return state._replace(processes=tuple(processes))

    def promised(self, state: State) -> list[Epoch]:
        """The epochs which the voters have promised."""
        return [node.promised for node in state.nodes]

    def check(self, state: State) -> None:
        """Nobody but one master can reach a majority; an epoch has one owner."""
        active = [one for one in state.processes if one is not None and one.promises is None]
        if len(active) < 2:
            return
        if len({one.epoch for one in active}) != len(active):
            raise Violation(f"two masters with one epoch: {active}")
        obeyed = [
            one
            for one in active
            if sum(known <= one.epoch for known in self.promised(state)) >= majority(self.count)
        ]
        if len(obeyed) > 1:
            raise Violation(f"two masters are obeyed: {obeyed}")


@cache
def majorities(count: int, including: int) -> tuple[tuple[int, ...], ...]:
    from itertools import combinations

    others = [number for number in range(count) if number != including]
    return tuple(
        tuple(sorted((including, *chosen))) for chosen in combinations(others, majority(count) - 1)
    )


def explore(model: Model, start: State, limit: int | None = None) -> int:
    """Visit every state that can be reached; how many there are.

    :raises Violation: with the way there.
    """
    seen = {start}
    came: dict[State, tuple[str, State] | None] = {start: None}
    queue = [start]
    while queue:
        state = queue.pop()
        try:
            for label, after in model.steps(state):
                if after not in seen:
                    model.check(after)
                    seen.add(after)
                    came[after] = (label, state)
                    queue.append(after)
        except Violation as err:
            way: list[str] = []
            at: State | None = state
            while at is not None and (step := came[at]) is not None:
                way.append(step[0])
                at = step[1]
            raise Violation(f"{err}; after {', '.join(reversed(way))}") from err
        if limit is not None and len(seen) > limit:
            raise AssertionError(f"more than {limit} states")
    return len(seen)


def walk(model: Model, start: State, choose: Callable[[int], int], length: int) -> State:
    """Go one way of many.

    :param choose: a number below the given one.
    :raises Violation: with the way there.
    """
    state, way = start, []
    for _ in range(length):
        try:
            options = list(model.steps(state))
            if not options:
                return state
            # Crashes are possible in almost every state; without this they would be the rule.
            kinds = sorted({label.split(" ")[0] for label, _ in options})
            kind = kinds[choose(len(kinds))]
            options = [option for option in options if option[0].split(" ")[0] == kind]
            label, state = options[choose(len(options))]
            way.append(label)
            model.check(state)
        except Violation as err:
            raise Violation(f"{err}; after {', '.join(way)}") from err
    return state
