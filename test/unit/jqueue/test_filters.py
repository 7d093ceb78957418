"""Filter rules: which one decides, and who is let through next."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.jqueue.filters import (
    NO_RULE,
    FilterChain,
    FilterGate,
    describe_rule,
    parse_action,
    rejection,
)
from ganeti.objects import FilterRule

DELAY = [{"OP_ID": "OP_TEST_DELAY"}]
VERIFY = [{"OP_ID": "OP_CLUSTER_VERIFY"}]
IS_DELAY = ["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]


def rule(
    uuid: str,
    action: Any,
    *predicates: Any,
    priority: int = 0,
    watermark: int = 0,
    reason: tuple[Any, ...] = (),
) -> FilterRule:
    return FilterRule(
        uuid=uuid,
        action=action,
        predicates=predicates,
        priority=priority,
        watermark=watermark,
        reason_trail=reason,
    )


def decides(*rules: FilterRule, job_id: int = 1, ops: Any = DELAY) -> tuple[str, str]:
    verdict = FilterChain(rules).judge(job_id, ops)
    return verdict.action, verdict.uuid


def test_without_rules_every_job_is_accepted() -> None:
    assert decides() == ("ACCEPT", "")
    assert not FilterChain()


@pytest.mark.parametrize("action", ["ACCEPT", "PAUSE", "REJECT"])
def test_the_first_rule_that_means_the_job_decides(action: str) -> None:
    other = rule("b", "PAUSE" if action != "PAUSE" else "REJECT", priority=1)
    assert decides(rule("a", action, IS_DELAY), other) == (action, "a")
    assert decides(rule("a", action, IS_DELAY), other, ops=VERIFY) == (other.action, "b")
    assert decides(rule("a", action, IS_DELAY), ops=VERIFY) == ("ACCEPT", "")


def test_rate_limit() -> None:
    verdict = FilterChain([rule("a", ("RATE_LIMIT", 3))]).judge(1, DELAY)
    assert (verdict.action, verdict.limit, verdict.uuid) == ("RATE_LIMIT", 3, "a")


def test_continue_looks_further() -> None:
    assert decides(rule("a", "CONTINUE"), rule("b", "REJECT", priority=1)) == ("REJECT", "b")
    assert decides(rule("a", "CONTINUE")) == ("ACCEPT", "")
    assert not FilterChain([rule("a", "CONTINUE")])


def test_order_is_priority_then_watermark_then_uuid() -> None:
    first, second, third, fourth = (
        rule("c", "ACCEPT", priority=1, watermark=9),
        rule("b", "PAUSE", priority=2, watermark=3),
        rule("a", "REJECT", priority=2, watermark=4),
        rule("d", "PAUSE", priority=2, watermark=4),
    )
    assert decides(fourth, third, second, first) == ("ACCEPT", "c")
    assert decides(fourth, third, second) == ("PAUSE", "b")
    assert decides(fourth, third) == ("REJECT", "a")


def test_watermark_leaves_earlier_jobs_alone() -> None:
    later = rule("a", "REJECT", ["jobid", [">", "id", "watermark"]], watermark=10)
    assert decides(later, job_id=10) == ("ACCEPT", "")
    assert decides(later, job_id=11) == ("REJECT", "a")


def test_actions_are_read() -> None:
    assert parse_action("PAUSE") == ("PAUSE", 0)
    assert parse_action(["RATE_LIMIT", 4]) == ("RATE_LIMIT", 4)
    with pytest.raises(errors.ParameterError):
        parse_action("NOSUCH")


def test_a_rejected_job_says_which_rule_and_why() -> None:
    verdict = FilterChain(
        [rule("a-b", "REJECT", reason=(("gnt:user", "no tests today", 1), ("luxid", "", 2)))]
    ).judge(1, DELAY)
    assert str(rejection(verdict)) == "rejected by filter rule a-b (no tests today)"
    assert describe_rule(rule("a-b", "PAUSE", reason=(("luxid", "", 2),))) == "filter rule a-b"


# -- the gate ------------------------------------------------------------------------------------

LIMIT = rule("limit", ("RATE_LIMIT", 2), IS_DELAY)


def arrive(gate: FilterGate, job_id: int, priority: int = 0, ops: Any = DELAY) -> bool:
    """What the queue does with a job that may start."""
    verdict = gate.judge(job_id, ops)
    if verdict.action == "PAUSE" or (
        verdict.action == "RATE_LIMIT" and not gate.has_free_place(verdict)
    ):
        gate.hold(job_id, priority, verdict)
        return False
    gate.enter(job_id, verdict)
    return True


def test_at_most_n_jobs_under_a_rule() -> None:
    gate = FilterGate([LIMIT])
    assert [arrive(gate, job_id) for job_id in (1, 2, 3, 4)] == [True, True, False, False]
    assert arrive(gate, 5, ops=VERIFY)
    assert gate.running_under("limit") == [1, 2]
    assert gate.held_ids() == [3, 4]
    assert gate.ended(5) == []
    assert gate.ended(1) == [3]
    assert arrive(gate, 3)
    assert gate.ended(3) == [4]


def test_the_most_urgent_goes_first_and_may_become_so_while_held() -> None:
    gate = FilterGate([LIMIT])
    for job_id, priority in ((1, 0), (2, 0), (3, 0), (4, -10), (5, 5), (6, 5)):
        arrive(gate, job_id, priority)
    gate.reprioritise(6, -20)
    gate.reprioritise(99, -20)
    order = []
    for job_id in (1, 2, 6, 4):
        for freed in gate.ended(job_id):
            order.append(freed)
            assert arrive(gate, freed)
    assert order == [6, 4, 3, 5]


def test_a_held_job_that_is_canceled_is_forgotten() -> None:
    gate = FilterGate([LIMIT])
    for job_id in (1, 2, 3, 4):
        arrive(gate, job_id)
    assert gate.ended(3) == []
    assert gate.held(3) is None
    assert gate.ended(1) == [4]


def test_a_place_that_is_not_taken_goes_to_the_next() -> None:
    gate = FilterGate([LIMIT])
    for job_id in (1, 2, 3, 4):
        arrive(gate, job_id)
    assert gate.ended(1) == [3]
    # 3 is canceled before a worker took it up.
    assert gate.ended(3) == [4]


def test_paused_until_the_rules_change() -> None:
    gate = FilterGate([rule("p", "PAUSE", IS_DELAY)])
    assert not arrive(gate, 1)
    held = gate.held(1)
    assert held is not None and held.uuid == "p"
    assert gate.ended(7) == []
    gate.set_rules([], [])
    assert gate.release(1)
    assert not gate.release(1)
    assert arrive(gate, 1)


def test_running_jobs_count_for_a_younger_rule() -> None:
    gate = FilterGate()
    gate.set_rules([LIMIT], [(1, DELAY), (2, DELAY), (3, DELAY), (4, VERIFY)])
    assert gate.running_under("limit") == [1, 2, 3]
    assert not arrive(gate, 5)
    assert gate.ended(1) == []
    assert gate.ended(2) == [5]


def test_a_rule_that_cannot_be_applied_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert decides(rule("x", "NOSUCH"), rule("y", "PAUSE", ["nosuch", 1]), rule("z", "REJECT")) == (
        "REJECT",
        "z",
    )
    assert "filter rule x is not applied: there is no filter action 'NOSUCH'" in caplog.text
    assert "filter rule y is not applied" in caplog.text


# -- reasons which limit --------------------------------------------------------------------------


def because(*reasons: Any) -> list[dict[str, Any]]:
    """A job with these reasons."""
    return [{**DELAY[0], "reason": [["gnt:user", reason, 1] for reason in reasons]}]


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        ("rate-limit:1:x", 1),
        ("rate-limit:025:a:b c", 25),
        ("rate-limit:2:", None),
        ("rate-limit:0:x", None),
        ("rate-limit:-1:x", None),
        ("rate-limit:1", None),
        ("rate-limit:x:1", None),
        ("rate-limit:9999999999:x", None),
        ("rate-limit:\u0661:x", None),
        ("no rate-limit:1:x", None),
        (5, None),
    ],
)
def test_which_reasons_limit(reason: Any, limit: int | None) -> None:
    verdict = FilterGate().judge(1, because(reason))
    assert verdict == (NO_RULE if limit is None else ("RATE_LIMIT", None, limit, reason, ()))


def test_a_trail_of_another_shape_limits_nothing() -> None:
    for trail in (None, "rate-limit:1:x", [["rate-limit:1:x"]], [None], 5):
        assert FilterGate().judge(1, [{**DELAY[0], "reason": trail}]) == NO_RULE


def test_jobs_with_the_same_reason_go_one_after_the_other() -> None:
    gate = FilterGate()
    one, other = because("rate-limit:1:x"), because("rate-limit:1:y", "rate-limit:1:y")
    assert [arrive(gate, job_id, ops=one) for job_id in (1, 2, 3)] == [True, False, False]
    assert arrive(gate, 4, ops=other) and arrive(gate, 5)
    # Another number is another limit.
    assert arrive(gate, 6, ops=because("rate-limit:2:x"))
    held = gate.held(2)
    assert held is not None and (held.key, held.uuid) == ("rate-limit:1:x", "")
    assert gate.running_under("rate-limit:1:x") == [1]
    assert gate.ended(4) == []
    assert gate.ended(1) == [2]


def test_a_rule_and_a_reason_may_both_limit() -> None:
    gate = FilterGate([LIMIT])
    both = because("rate-limit:1:x")
    assert arrive(gate, 1, ops=both)
    assert not arrive(gate, 2, ops=both)  # waits for the reason
    assert arrive(gate, 3)
    assert not arrive(gate, 4)  # waits for the rule
    assert [held.key for job in (2, 4) if (held := gate.held(job))] == ["rate-limit:1:x", "limit"]
    assert gate.ended(3) == [4]
    assert arrive(gate, 4)
    assert not arrive(gate, 5, priority=-1)
    # One place of the rule becomes free, and one of the reason: 2 can use both.
    assert gate.ended(1) == [2]
    # It is canceled, and leaves the place of the rule to the next.
    assert gate.ended(2) == [5]
    assert arrive(gate, 5)
    assert not arrive(gate, 6, ops=both)
    held = gate.held(6)
    assert held is not None and held.key == "limit"
    assert gate.ended(4) == [6]


def test_a_place_which_a_job_leaves_goes_to_the_next() -> None:
    """A job was released for a place, and found its other limit full when it started."""
    gate = FilterGate()
    x, y = "rate-limit:1:x", "rate-limit:1:y"
    assert arrive(gate, 1, ops=because(x))
    assert not arrive(gate, 2, ops=because(x, y))
    assert not arrive(gate, 3, ops=because(x))
    assert gate.ended(1) == [2]
    assert arrive(gate, 4, ops=because(y))
    assert not arrive(gate, 2, ops=because(x, y))
    assert gate.take_ready() == [3]
    assert gate.take_ready() == []


def test_another_priority_keeps_the_line() -> None:
    gate = FilterGate()
    x = because("rate-limit:1:x")
    for job_id in (1, 2, 3):
        arrive(gate, job_id, ops=x)
    assert gate.ended(1) == [2]  # released, and not running yet
    gate.reprioritise(3, -5)
    assert gate.ended(2) == [3]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["arrive", "start", "start", "end", "cancel", "priority"]),
            st.integers(1, 12),
            st.integers(0, 7),
        ),
        max_size=80,
    ),
    st.booleans(),
)
def test_many_limits_and_slow_workers(steps: Any, with_rule: bool) -> None:
    """As the scheduler does it: a job which may start is in line for a worker for some time."""
    limits = {"rate-limit:1:x": 1, "rate-limit:2:y": 2, "rate-limit:1:z": 1}
    gate = FilterGate([LIMIT] if with_rule else [])
    ops: dict[int, Any] = {}
    line: set[int] = set()
    running: set[int] = set()

    def under(job_id: int) -> list[str]:
        return [limit.key for limit in gate.judge(job_id, ops[job_id]).limits]

    def may_start(job_id: int) -> bool:
        verdict = gate.judge(job_id, ops[job_id])
        if gate.has_free_place(verdict):
            return True
        gate.hold(job_id, -job_id % 3, verdict)
        ready(gate.take_ready())
        return False

    def ready(job_ids: list[int]) -> None:
        for job_id in job_ids:
            if may_start(job_id):
                line.add(job_id)

    for what, job_id, which in steps:
        if what == "arrive" and job_id not in ops:
            ops[job_id] = because(*(name for bit, name in enumerate(limits) if which >> bit & 1))
            if may_start(job_id):
                line.add(job_id)
        elif what == "start" and job_id in line:
            line.remove(job_id)
            if may_start(job_id):
                gate.enter(job_id, gate.judge(job_id, ops[job_id]))
                running.add(job_id)
        elif what == "priority":
            gate.reprioritise(job_id, which)
        elif (what == "end" and job_id in running) or (
            what == "cancel" and job_id in ops and job_id not in running
        ):
            running.discard(job_id)
            line.discard(job_id)
            del ops[job_id]
            ready(gate.ended(job_id))
        for key, limit in {**limits, "limit": 2}.items():
            assert gate.running_under(key) == sorted(job for job in running if key in under(job))
            assert len(gate.running_under(key)) <= limit
        assert set(gate.held_ids()) == set(ops) - line - running
        # A held job waits for one which is running, or which is about to be.
        for held in gate.held_ids():
            verdict = gate.held(held)
            assert verdict is not None
            assert any(verdict.key in under(other) for other in line | running)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["arrive", "end", "cancel", "priority"]),
            st.integers(1, 12),
            st.integers(-3, 3),
        ),
        max_size=60,
    ),
    st.integers(1, 3),
)
def test_never_above_the_limit_and_nobody_forgotten(steps: Any, limit: int) -> None:
    gate = FilterGate([rule("r", ("RATE_LIMIT", limit))])
    running: set[int] = set()
    held: dict[int, int] = {}

    def end(job_id: int) -> None:
        running.discard(job_id)
        held.pop(job_id, None)
        freed = gate.ended(job_id)
        assert freed == sorted(held, key=lambda one: (held[one], one))[: len(freed)]
        for one in freed:
            assert arrive(gate, one, held.pop(one))
            running.add(one)

    for what, job_id, priority in steps:
        if what == "arrive" and job_id not in running and job_id not in held:
            if arrive(gate, job_id, priority):
                running.add(job_id)
            else:
                held[job_id] = priority
        elif what == "priority" and job_id in held:
            held[job_id] = priority
            gate.reprioritise(job_id, priority)
        elif (what == "end" and job_id in running) or (what == "cancel" and job_id in held):
            end(job_id)
        assert len(running) <= limit
        assert not held or len(running) == limit
        assert gate.held_ids() == sorted(held)
        assert gate.running_under("r") == sorted(running)


def test_a_rule_of_the_configuration_survives_its_file() -> None:
    from ganeti.objects import codec

    stored = rule(
        "9f0f6b0c-3d0c-4b3e-9a3c-0f3a1f4b7c11",
        ["RATE_LIMIT", 2],
        IS_DELAY,
        reason=(["gnt:user", "x", 1],),
    )
    again = codec.from_dict(FilterRule, codec.to_dict(stored))
    assert FilterChain([again]).judge(1, DELAY).limit == 2


def test_rules_which_are_too_large_together_are_left_out(caplog) -> None:
    half = ["jobid", ["|", *([">", "id", number] for number in range(1200))]]
    chain = FilterChain([rule("first", "REJECT", half), rule("second", "REJECT", half)])
    assert chain.judge(5, [{}]).uuid == "first"
    assert "filter rule second is not applied: the filter rules together" in caplog.text


def test_an_expression_which_takes_too_much_work_does_not_match() -> None:
    chain = FilterChain([rule("slow", "REJECT", ["opcode", ["=~", "comment", "a.{300}x|b$"]])])
    assert chain.judge(1, [{"comment": "b"}]).uuid == "slow"
    letters = random.Random(1)
    text = "".join(letters.choice("ab") for _ in range(20_000)) + "b"
    assert chain.judge(2, [{"comment": text}]).action == "ACCEPT"
    # The next job has its own work.
    assert chain.judge(3, [{"comment": "b"}]).uuid == "slow"
