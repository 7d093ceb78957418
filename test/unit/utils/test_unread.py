"""Who loses the connection when too many answers are not read, by counting the bytes kept."""

from __future__ import annotations

import random

import pytest

from ganeti.utils.unread import UnreadAnswers


def answers(total: int, client: int | None = None) -> UnreadAnswers[str]:
    """The client of a connection is its first letter."""
    return UnreadAnswers(total, client, lambda connection: connection[0])


def test_what_is_taken_is_kept_no_longer() -> None:
    unread = answers(100)
    assert unread.add("a1", 60) == []
    assert unread.add("a1", 30) == []
    assert (unread.bytes, unread.of("a1")) == (90, 90)
    unread.progress("a1", 60)
    assert (unread.bytes, unread.of("a1"), len(unread)) == (30, 30, 1)
    unread.progress("a1", 30)
    assert (unread.bytes, unread.of("a1"), len(unread)) == (0, 0, 0)
    unread.progress("a1", 30)
    unread.remove("a1")
    assert unread.bytes == 0


def test_a_single_answer_may_be_larger_than_the_limits() -> None:
    unread = answers(100, 50)
    assert unread.add("a1", 500) == []
    assert unread.bytes == 500
    assert unread.add("b1", 10) == ["a1"], "but it goes when somebody else needs the memory"


def test_the_client_with_most_loses_the_one_which_took_nothing_for_longest() -> None:
    unread = answers(100)
    for name, size in (("b1", 30), ("a1", 25), ("a2", 25)):
        assert unread.add(name, size) == []
    unread.progress("a1", 1)
    assert unread.add("c1", 25) == ["a2"]
    assert (unread.bytes, unread.of("b1"), unread.of("c1")) == (79, 30, 25)


def test_what_a_client_gets_now_counts_for_it() -> None:
    unread = answers(100)
    assert unread.add("a1", 50) == []
    assert unread.add("b1", 50) == []
    assert unread.add("b2", 50) == ["b1"]
    assert unread.of("a1") == 50


def test_the_limit_of_one_client_costs_no_other_one() -> None:
    unread = answers(1000, 100)
    assert unread.add("b1", 90) == []
    for number in range(20):
        ended = unread.add(f"a{number}", 40)
        assert ended == ([f"a{number - 2}"] if number >= 2 else [])
    assert unread.bytes == 90 + 80


@pytest.mark.parametrize("seed", range(20))
def test_the_limits_hold_whatever_happens(seed: int) -> None:
    """More is kept only for a single connection, and the sums are right."""
    rng = random.Random(seed)
    unread = answers(1000, 400)
    kept: dict[str, int] = {}
    for _step in range(500):
        name = rng.choice("abc") + str(rng.randrange(5))
        size = rng.randrange(1, 500)
        action = rng.choice(("add", "add", "progress", "remove"))
        if action == "add":
            kept[name] = kept.get(name, 0) + size
            for ended in unread.add(name, size):
                assert ended != name
                del kept[ended]
            own = sum(value for other, value in kept.items() if other[0] == name[0])
            assert own <= 400 or own == kept[name]
            assert sum(kept.values()) <= 1000 or len(kept) == 1
        elif action == "progress":
            unread.progress(name, size)
            kept[name] = max(0, kept.get(name, 0) - size)
        else:
            unread.remove(name)
            kept[name] = 0
        kept = {one: value for one, value in kept.items() if value}
        assert unread.bytes == sum(kept.values())
        assert {one: unread.of(one) for one in kept} == kept
