"""The schedule of a chaos run depends on its seed alone, can be kept, and says what it makes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from devel.chaos import faults, program, schedule
from devel.chaos.schedule import Fault, Round

MANY = [schedule.one_round(seed, number) for seed in range(40) for number in range(1, 26)]
TWO = [schedule.for_two(number, one) for number, one in enumerate(MANY)]


def first(seed: int, count: int) -> list[Round]:
    return list(itertools.islice(schedule.rounds(seed), count))


def test_the_same_seed_makes_the_same_schedule() -> None:
    assert first(7, 50) == first(7, 50)
    assert first(7, 50) != first(8, 50)


def test_this_schedule_stays_what_it_is() -> None:
    """A seed in a report means the same rounds later."""
    assert schedule.one_round(1, 5, basic=True) == Round(5, (Fault(4.7, "old data", 3, 6.0, ""),))


def test_later_kinds_change_no_fault_of_an_older_schedule() -> None:
    for seed in range(20):
        for number in range(1, 9):
            first = schedule.one_round(seed, number, basic=True)
            now = schedule.one_round(seed, number)
            older = {*schedule.KINDS, *schedule.FORGETFUL}
            assert {fault.kind for fault in first.faults} <= older
            if any(fault.kind in schedule.MORE_FORGETFUL for fault in now.faults):
                assert any(fault.kind in schedule.FORGETFUL for fault in first.faults)
            else:
                assert tuple(one for one in now.faults if one.kind in older) == first.faults


def test_seeds_make_clusters_of_all_variants() -> None:
    found = set(map(schedule.variant_of, range(300)))
    assert len(found) == 16
    assert len({one.text() for one in found}) == 16
    assert schedule.variant_of(3) == schedule.variant_of(3)


def test_a_round_can_be_made_alone() -> None:
    assert schedule.one_round(7, 12) == first(7, 12)[-1]


def test_every_kind_of_fault_comes() -> None:
    made = {fault.kind for one in MANY for fault in one.faults}
    assert made == schedule.kinds() - {schedule.WITNESS_AWAY}
    assert {fault.kind for one in TWO for fault in one.faults} == schedule.kinds()
    nodes = {fault.node for one in MANY for fault in one.faults}
    assert nodes == set(range(schedule.NODES))


def test_every_kind_has_its_method() -> None:
    for kind in schedule.kinds():
        assert callable(getattr(faults.Faults, kind.replace(" ", "_")))


def test_faults_are_in_order_and_end_in_their_round() -> None:
    for one in (*MANY, *TWO):
        assert one.faults
        times = [fault.at_s for fault in one.faults]
        assert times == sorted(times)
        assert all(fault.at_s + fault.lasts_s <= schedule.ROUND_S for fault in one.faults)


def test_a_node_forgets_in_a_round_of_its_own() -> None:
    """Otherwise the rest of a majority could be lost in the same round."""
    for one in (*MANY, *TWO):
        forgetful = {*schedule.FORGETFUL, *schedule.MORE_FORGETFUL}
        if any(fault.kind in forgetful for fault in one.faults):
            assert len(one.faults) == 1


def test_all_shapes_of_a_split_come() -> None:
    details = {fault.detail for one in MANY for fault in one.faults if fault.kind == "split"}
    pairs = [set(detail.split()) for detail in details]
    assert any(len(some) == 10 for some in pairs), "everybody alone"
    assert any(len(some) == 5 for some in pairs), "a ring"
    assert any(">" in detail for detail in details), "one way"
    # Nobody is cut off from itself.
    assert all(pair[0] != pair[-1] for some in pairs for pair in some)


def test_a_schedule_is_kept_and_read_again() -> None:
    some = first(3, 20)
    assert schedule.parse_schedule(schedule.dump(3, some)) == (3, some)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"seed": 1}',
        '{"seed": 1, "rounds": [{"number": 1, "faults": [{"kind": "split"}]}]}',
        schedule.dump(1, [Round(1, (Fault(1, "earthquake", 0, 0),))]),
        schedule.dump(1, [Round(1, (Fault(1, "split", schedule.NODES, 0),))]),
        schedule.dump(1, [Round(1, (Fault(-1, "split", 0, 0),))]),
    ],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(schedule.ScheduleError):
        schedule.parse_schedule(text)


def test_the_command_prints_and_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "schedule"
    assert program.main(["--seed", "5", "--rounds", "3", "--save", str(file), "--print"]) == 0
    shown = capsys.readouterr().out
    assert shown == "\n".join(one.text() for one in first(5, 3)) + "\n"
    assert program.main(["--replay", str(file), "--print"]) == 0
    assert capsys.readouterr().out == shown
    assert program.main(["--replay", str(tmp_path / "none"), "--print"]) == 2
    assert "No such file" in capsys.readouterr().err


def test_two_nodes_have_the_faults_of_five() -> None:
    for five, two in zip(MANY, TWO, strict=True):
        own = [fault for fault in two.faults if fault.kind != schedule.WITNESS_AWAY]
        assert [fault.kind for fault in own] == [fault.kind for fault in five.faults]
        assert {fault.node for fault in own} <= {0, 1}
    splits = {fault.detail for one in TWO for fault in one.faults if fault.kind == "split"}
    assert splits == {"0-1", "0>1", "1>0"}
