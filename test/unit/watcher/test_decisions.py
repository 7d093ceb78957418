"""What the watcher decides, from plain values."""

from __future__ import annotations

import pytest

from ganeti.constants import instance as instance_c
from ganeti.objects import start_order
from ganeti.watcher import decisions
from ganeti.watcher.decisions import ObservedInstance, ObservedNode
from ganeti.watcher.memory import Memory

NOW = 1_800_000_000.0


def instance(
    name: str = "web1", status: str = instance_c.STATUS_ERRORDOWN, *tags: str, active: bool = True
) -> ObservedInstance:
    return ObservedInstance(name, status, ("node1", "node2"), active, tags)


def decide(*instances: ObservedInstance, memory: Memory | None = None, **busy: int) -> list[str]:
    """The names of the instances which start, in order."""
    plan = decisions.restarts(instances, memory or Memory(), busy, NOW)
    return [one.instance for one in plan if one.act]


@pytest.mark.parametrize("status", sorted(instance_c.STATUSES))
def test_only_what_should_run_and_is_down_on_a_living_node_starts(status: str) -> None:
    wanted = ["web1"] if status == instance_c.STATUS_ERRORDOWN else []
    assert decide(instance(status=status)) == wanted


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (instance_c.STATUS_WRONGNODE, "another node"),
        (instance_c.STATUS_ERRORUP, "should be stopped"),
        (instance_c.STATUS_NODEDOWN, "does not answer"),
    ],
)
def test_other_faults_are_reported_with_what_to_do(status: str, words: str) -> None:
    (found,) = decisions.restarts([instance(status=status)], Memory(), {}, NOW)
    assert not found.act
    assert words in found.why


def test_a_guest_which_somebody_has_paused_is_reported_and_not_started() -> None:
    one = instance(status=instance_c.STATUS_RUNNING)._replace(guest_state="paused")
    (found,) = decisions.restarts([one], Memory(), {}, NOW)
    assert not found.act
    assert found.why == "it should run, but is halted (paused); see 'gnt-instance info web1'"


def test_a_guest_which_an_error_has_halted_is_started_within_limits() -> None:
    one = instance()._replace(guest_state="io-error")
    (found,) = decisions.restarts([one], Memory(), {}, NOW)
    assert found.act
    assert "it should run, but is halted (io-error) (restart 1 of at most 5)" in found.why
    (found,) = decisions.restarts([one], Memory(restarts={"web1": (5, NOW)}), {}, NOW)
    assert not found.act and "it is halted (io-error), and 5 restarts" in found.why
    (found,) = decisions.restarts([one], Memory(), {"web1": 17}, NOW)
    assert not found.act and "halted (io-error), but job 17" in found.why


def test_an_instance_on_which_a_job_works_is_left_alone() -> None:
    (found,) = decisions.restarts([instance()], Memory(), {"web1": 17}, NOW)
    assert not found.act
    assert "job 17" in found.why


def test_each_of_the_first_rounds_restarts_it() -> None:
    """The time between two rounds is the delay, as in Ganeti; then an administrator has to act."""
    memory = Memory()
    now, rounds = NOW, []
    for number in range(20):
        (found,) = decisions.restarts([instance()], memory, {}, now)
        if found.act:
            memory.note_restart("web1", now, number)
            rounds.append(number)
        now += 300
    assert rounds == [0, 1, 2, 3, 4] and decisions.MAX_RESTARTS == 5
    (found,) = decisions.restarts([instance()], memory, {}, now)
    assert "Look for the reason" in found.why


def test_restarts_are_forgotten_after_hours_without_one() -> None:
    memory = Memory(restarts={"web1": (decisions.MAX_RESTARTS, NOW - decisions.FORGET_S)})
    assert decide(instance(), memory=memory) == []
    memory.forget([], ["web1"], NOW, decisions.FORGET_S)
    assert decide(instance(), memory=memory) == ["web1"]


def test_a_clock_which_was_set_back_does_not_keep_an_instance_down_for_years() -> None:
    memory = Memory(restarts={"web1": (1, NOW + 10 * 365 * 86400)})
    memory.forget([], ["web1"], NOW, decisions.FORGET_S)
    (found,) = decisions.restarts([instance()], memory, {}, NOW)
    assert found.act


def test_the_order_of_the_tags_then_of_the_names() -> None:
    order = start_order.ORDER_TAG
    assert decide(
        instance("web"),
        instance("last", instance_c.STATUS_ERRORDOWN, f"{order}2000"),
        instance("dns", instance_c.STATUS_ERRORDOWN, "other", f"{order}10"),
        instance("db", instance_c.STATUS_ERRORDOWN, f"{order}20", f"{order}junk"),
        instance("app"),
    ) == ["dns", "db", "app", "web", "last"]


@pytest.mark.parametrize("tag", ["", "-5", "x", "1.5", "²", "٣"])
def test_a_tag_without_a_number_is_ignored(tag: str) -> None:
    assert start_order.start_order([f"{start_order.ORDER_TAG}{tag}"]) == start_order.DEFAULT_ORDER


def test_rebooted_nodes() -> None:
    nodes = [
        ObservedNode("same", False, "a"),
        ObservedNode("new", False, "b"),
        ObservedNode("again", False, "c"),
        ObservedNode("offline", True, "d"),
        ObservedNode("silent", False, None),
    ]
    memory = Memory(boot_ids={"same": "a", "again": "b", "offline": "x", "silent": "y"})
    assert decisions.rebooted(nodes, memory) == {"new": "b", "again": "c"}


def test_disks_are_activated_where_a_machine_has_started_again() -> None:
    running = instance_c.STATUS_RUNNING
    instances = [
        instance("here", running),
        ObservedInstance("elsewhere", running, ("node3",), True),
        instance("unwanted", running, active=False),
        instance("started", running),
        instance("down"),
        instance("busy", running),
    ]
    plan = decisions.activations(instances, ["node2"], {"busy": 3}, ["started"])
    assert [(one.instance, one.act) for one in plan] == [("here", True), ("busy", False)]
    assert "node2" in plan[0].why


def test_inactive_disks() -> None:
    running = instance_c.STATUS_RUNNING
    instances = [
        instance("one", running),
        instance("done", running),
        instance("down"),
        instance("busy", running),
        instance("offline", instance_c.STATUS_NODEOFFLINE),
    ]
    names = ["one", "done", "down", "busy", "offline", "removed"]
    plan = decisions.inactive(names, instances, {"busy": 3}, ["done"])
    assert [(one.instance, one.act) for one in plan] == [
        ("busy", False),
        ("offline", False),
        ("one", True),
    ]


def test_a_node_in_maintenance_is_left_alone() -> None:
    held = instance()._replace(maintenance=("node1",))
    (found,) = decisions.restarts([held], Memory(), {}, NOW)
    assert not found.act
    assert "node1 is in maintenance" in found.why
    # It runs on another node, so that it is started there, but its disks wait.
    elsewhere = instance()._replace(maintenance=("node2",))
    assert decide(elsewhere) == ["web1"]
    running = elsewhere._replace(status=instance_c.STATUS_RUNNING)
    for plan in (
        decisions.activations([running], ["node1"], {}, []),
        decisions.inactive(["web1"], [running], {}, []),
    ):
        assert [(one.act, "maintenance" in one.why) for one in plan] == [(False, True)]


def test_a_start_of_a_machine_in_maintenance_is_seen_after_it() -> None:
    memory = Memory()
    node = ObservedNode("node1", False, "a", maintenance=True)
    assert decisions.rebooted([node], memory) == {}
    assert decisions.rebooted([node._replace(maintenance=False)], memory) == {"node1": "a"}


@pytest.mark.parametrize(
    ("since", "status", "busy", "acts"),
    [
        (NOW - 1, "ADMIN_down", {}, False),
        (NOW - decisions.IMPORT_S, "ADMIN_down", {}, True),
        (NOW - decisions.IMPORT_S, "ADMIN_down", {"web1": 17}, False),
        (NOW - decisions.IMPORT_S, "running", {}, False),
        # The clock was set back.
        (NOW + 10**8, "ADMIN_down", {}, False),
    ],
)
def test_an_import_which_never_ended_is_removed_after_a_day(
    since: float, status: str, busy: dict[str, int], acts: bool
) -> None:
    half = instance(status=status)._replace(importing_since=since)
    (found,) = decisions.unfinished_imports([half, instance("other")], busy, NOW)
    assert (found.instance, found.act) == ("web1", acts)
