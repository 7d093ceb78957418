"""A node, its watchdog and the master, explored: a guest never runs on two nodes.

Time is counted in small units. Between two of them everything may happen in any order, or not at
all: a process which is paused is one which does nothing for a while.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from ganeti.constants import node_watchdog as const
from ganeti.watchdogd.rule import Opinion, judge

LEASE, TIMEOUT = 3, 3


class Rules(NamedTuple):
    """The parts of the protocol; without any one of them, the exploration finds a violation."""

    lease_from_question: bool = True
    majority_answers: bool = True
    majority_has_record: bool = True
    wait_for_lease: bool = True
    wait_twice: bool = True
    open_with_lease: bool = True


class State(NamedTuple):
    """One moment.

    :ivar device: time until it fires; 0 when it has fired.
    :ivar lease: time for which the node may feed it.
    :ivar decided: the node has found that it may, and has not fed it yet.
    :ivar asked: time since the last question.
    :ivar crashes: how often the daemon may still end without disarming the device.
    :ivar candidates: whether each has the record, and whether it had it when it answered the last
        question (0 for no answer, 1 without the record, 2 with it). They are sorted, because it
        does not matter which one it is.
    :ivar wait: time until the master relies on it; None before it is committed.
    """

    device: int = TIMEOUT
    lease: int = LEASE
    decided: bool = False
    running: bool = True
    asked: int = 0
    crashes: int = 3
    candidates: tuple[tuple[bool, int], ...] = ((False, 0),) * 3
    wait: int | None = None


class Violation(Exception):
    """The guest runs, and the master starts it elsewhere."""


def changed(state: State, index: int, record: bool, answer: int) -> State:
    rest = [one for place, one in enumerate(state.candidates) if place != index]
    return state._replace(candidates=tuple(sorted([*rest, (record, answer)])))


def steps(state: State, rules: Rules) -> Iterator[State]:
    yield state._replace(
        device=state.device - 1,
        lease=max(0, state.lease - 1),
        asked=min(LEASE, state.asked + 1),
        wait=None if state.wait is None else state.wait - 1,
    )
    for index, (record, answer) in enumerate(state.candidates):
        if not record:
            yield changed(state, index, True, answer)
        if not answer:
            yield changed(state, index, record, 2 if record else 1)
    # -- the master
    records = sum(record for record, _ in state.candidates)
    if state.wait is None and records >= (2 if rules.majority_has_record else 1):
        lease = LEASE if rules.wait_for_lease else 0
        yield state._replace(wait=lease + (2 if rules.wait_twice else 1) * TIMEOUT)
    # -- the node
    if not state.running:
        if state.lease or not rules.open_with_lease:
            yield state._replace(running=True, device=TIMEOUT)
    elif state.crashes:
        yield state._replace(running=False, decided=False, lease=0, crashes=state.crashes - 1)
    if state.asked or any(answer for _, answer in state.candidates):
        nobody = tuple(sorted((record, 0) for record, _ in state.candidates))
        yield state._replace(asked=0, candidates=nobody)
    answers = {str(place): answer for place, (_, answer) in enumerate(state.candidates) if answer}
    listed = frozenset("012") if rules.majority_answers else frozenset(answers)
    verdict = judge({name: Opinion(listed, answer == 2, 0.0) for name, answer in answers.items()})
    if verdict.allowed:
        until = LEASE - (state.asked if rules.lease_from_question else 0)
        yield state._replace(lease=max(state.lease, until))
    if state.running and state.lease:
        yield state._replace(decided=True)
    if state.decided:
        yield state._replace(decided=False, device=TIMEOUT)


def explore(rules: Rules) -> int:
    first = State()
    seen, todo = {first}, [first]
    while todo:
        state = todo.pop()
        if state.device == 0:
            continue  # the machine has restarted; its guests have ended
        if state.wait == 0:
            raise Violation(state)
        for after in steps(state, rules):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return len(seen)


def test_every_state() -> None:
    assert explore(Rules()) > 1000


@pytest.mark.parametrize("name", Rules._fields)
def test_every_part_is_needed(name: str) -> None:
    with pytest.raises(Violation):
        explore(Rules()._replace(**{name: False}))


@pytest.mark.parametrize("timeout_s", [const.MIN_S, const.DEFAULT_S, const.MAX_S])
def test_the_time_which_the_master_waits_is_that_of_the_model(timeout_s: int) -> None:
    least = const.LEASE_S + 2 * timeout_s
    assert least * 1.01 < const.certain_s(timeout_s) < least * 1.1 + 2


#: The lists of candidates of configurations which follow each other; the last one has the record.
HISTORY = ("abc", "abcd", "bcd", "bcde", "cde", "cde")


def holders() -> Iterator[dict[str, int]]:
    """All ways in which the candidates may have these configurations when the last is committed.

    Each configuration is on a majority of its own candidates before the next one is made.
    """
    first = {name: 0 for name in "abc"}
    found = [first, {"a": 0, "b": 0}, {"a": 0, "c": 0}, {"b": 0, "c": 0}]
    for number, names in enumerate(HISTORY[1:], 1):
        after = []
        for have in found:
            for size in range(len(names) // 2 + 1, len(names) + 1):
                for chosen in itertools.combinations(names, size):
                    after.append({**have, **dict.fromkeys(chosen, number)})
        found = [dict(one) for one in {tuple(sorted(have.items())) for have in after}]
    yield from found


def test_no_answers_hide_the_record_when_the_candidates_change() -> None:
    count = 0
    for have in holders():
        opinions = {
            name: Opinion(frozenset(HISTORY[number]), number == len(HISTORY) - 1, 0.0)
            for name, number in have.items()
            # One which knows that it is not a candidate any more does not answer.
            if name in HISTORY[number]
        }
        for size in range(1, len(opinions) + 1):
            for answering in itertools.combinations(opinions, size):
                count += 1
                assert not judge({name: opinions[name] for name in answering}).allowed
    assert count > 1000
