"""Disks which confirm no write alone: what their guest confirmed outlives the death of its node.

The guest of ``web`` confirms numbered blocks on a mirrored disk (:mod:`fakes.confirmed`). A block
which is written while the device waits for its peer is not confirmed.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

from fakes import confirmed
from fakes.breaking import WEB
from fakes.config import commit, uuid_of
from fakes.confirmed import PRIMARY, SECONDARY, SPARE, Lab
from ganeti import errors
from ganeti.constants.instance_failover import ALONE_TAG
from ganeti.master import node_poll, suspended_disks
from ganeti.objects import Disk, updated
from ganeti.opcodes import cluster as cluster_ops
from ganeti.opcodes import group
from ganeti.opcodes import instance as ops


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The guest runs and has written, and its disk waits for its peer."""
    confirmed.install(monkeypatch)
    lab = Lab(tmp_path / "cluster")
    switch(lab, 15)
    lab.start()
    lab.write()
    return lab


def switch(lab: Lab, seconds: int | None) -> None:
    config = lab.cluster.config
    values = dataclasses.replace(
        config.cluster(), auto_instance_failover=seconds, ndparams={"oob_program": "/bin/oob"}
    )
    commit(config).cluster.update(values)


def disk(lab: Lab) -> Disk:
    (found,) = lab.disks
    return found


def watch(lab: Lab) -> list[str]:
    """What the master does about suspended I/O, on each node which answers."""
    found = []
    for node in (PRIMARY, SECONDARY):
        answer = lab.nodes.call_many(node_poll.DRBD_WAITING, [uuid_of(node)])[uuid_of(node)]
        if answer.failure is None and answer.data:
            found += suspended_disks.resume(
                lab.cluster.config, lab.nodes, uuid_of(node), answer.data
            )
    return found


def verify(lab: Lab) -> None:
    """The job which the watcher submits every few minutes."""
    lab.run(group.OpGroupVerifyDisks(group_name="default"))


def failover() -> ops.OpInstanceFailover:
    return ops.OpInstanceFailover(instance_name=WEB)


def dies(lab: Lab) -> None:
    """The primary node is off, and the master knows it."""
    lab.power_off(PRIMARY)
    lab.mark_offline(PRIMARY)


def all_there(lab: Lab) -> None:
    assert lab.confirmed and not lab.lost(lab.seen()), lab.copies()


def test_a_guest_which_ran_until_its_node_died_is_started_elsewhere(lab: Lab) -> None:
    assert disk(lab).never_alone == uuid_of(PRIMARY)
    lab.write(5)
    dies(lab)
    lab.run(failover())
    assert lab.where() == [SECONDARY]
    all_there(lab)
    assert (disk(lab).outdated_node, disk(lab).never_alone) == (uuid_of(PRIMARY), None)


def test_without_the_parameter_an_administrator_decides(lab: Lab) -> None:
    switch(lab, None)
    dies(lab)
    with pytest.raises(errors.OpExecError, match="may have missed writes"):
        lab.run(failover())


def test_what_it_writes_without_its_peer_is_not_confirmed(lab: Lab) -> None:
    before = set(lab.confirmed)
    lab.cut()
    lab.write(5)
    assert lab.confirmed == before
    dies(lab)
    lab.run(failover())
    all_there(lab)


def test_the_master_records_before_it_resumes_a_disk(lab: Lab) -> None:
    lab.cut()
    assert watch(lab) == [disk(lab).uuid]
    assert (disk(lab).outdated_node, disk(lab).never_alone) == (uuid_of(SECONDARY), None)
    before = len(lab.confirmed)
    lab.write(5)
    assert len(lab.confirmed) == before + 5
    assert watch(lab) == []
    dies(lab)
    with pytest.raises(errors.OpExecError, match="missed writes"):
        lab.run(failover())


def test_a_record_which_cannot_be_stored_resumes_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_options: Any) -> Any:
        raise errors.ConfigurationError("no majority")

    lab.cut()
    for name in ("transaction", "require_committed"):
        with monkeypatch.context() as patch:
            patch.setattr(lab.cluster.config, name, refuse)
            with pytest.raises(errors.ConfigurationError):
                watch(lab)
    before = set(lab.confirmed)
    lab.write()
    assert lab.confirmed == before


def test_no_order_to_a_node_which_is_marked_offline(lab: Lab) -> None:
    """It is cut off from its peer only, so it still answers."""
    lab.cut()
    config = lab.cluster.config
    lab.mark_offline(PRIMARY)
    assert suspended_disks.resume(config, lab.nodes, uuid_of(PRIMARY), [0]) == []
    assert disk(lab).outdated_node is None
    before = set(lab.confirmed)
    lab.write()
    assert lab.confirmed == before


def test_it_goes_on_by_itself_when_its_peer_returns(lab: Lab) -> None:
    lab.cut()
    lab.kernel.heal()
    lab.kernel.settle()
    before = len(lab.confirmed)
    lab.write(2)
    assert len(lab.confirmed) == before + 2
    assert disk(lab).never_alone == uuid_of(PRIMARY)


def test_after_an_interruption_it_waits_again(lab: Lab) -> None:
    lab.cut()
    watch(lab)
    lab.write()
    lab.kernel.heal()
    lab.kernel.settle()
    verify(lab)
    assert (disk(lab).outdated_node, disk(lab).never_alone) == (None, uuid_of(PRIMARY))
    lab.write()
    dies(lab)
    lab.run(failover())
    all_there(lab)


def test_a_survivor_which_was_not_active_all_the_time_is_not_used(lab: Lab) -> None:
    """It lost its storage, missed writes, and was activated again after the primary had died."""
    lab.kernel.detach(lab.key(SECONDARY))
    lab.write(5)
    dies(lab)
    lab.restart_node(SECONDARY)
    for _ in range(2):
        with pytest.raises(errors.OpExecError):
            lab.run(failover())


@pytest.mark.parametrize("kind", ["cluster", "group", "instance"])
def test_a_tag_keeps_disks_as_they_were(lab: Lab, kind: str) -> None:
    config = lab.cluster.config
    change = commit(config)
    if kind == "cluster":
        change.cluster.update(dataclasses.replace(config.cluster(), tags=(ALONE_TAG,)))
    elif kind == "group":
        (one,) = config.snapshot().nodegroups.values()
        change.groups.update(updated(one, tags=(ALONE_TAG,)))
    else:
        assert lab.instance is not None
        change.instances.update(updated(lab.instance, tags=(ALONE_TAG,)))
    verify(lab)
    assert disk(lab).never_alone is None
    lab.cut()
    before = len(lab.confirmed)
    lab.write()
    assert len(lab.confirmed) > before


def test_switching_off_and_on(lab: Lab) -> None:
    lab.run(cluster_ops.OpClusterSetParams(auto_instance_failover=0))
    # Until the next check of the disks the master looks after those which wait.
    assert suspended_disks.are_expected(lab.cluster.config.snapshot())
    verify(lab)
    assert not suspended_disks.are_expected(lab.cluster.config.snapshot())
    assert not lab.kernel.minors[lab.key(PRIMARY)].waits
    lab.run(cluster_ops.OpClusterSetParams(auto_instance_failover=15))
    verify(lab)
    assert disk(lab).never_alone == uuid_of(PRIMARY)


def test_without_a_helper_which_could_fence_the_node_nothing_waits(lab: Lab) -> None:
    config = lab.cluster.config
    without = dataclasses.replace(config.cluster(), ndparams={"oob_program": ""})
    commit(config).cluster.update(without)
    verify(lab)
    assert disk(lab).never_alone is None
    assert not lab.kernel.minors[lab.key(PRIMARY)].waits


def test_records_of_the_time_before_are_removed_when_it_is_switched_on(lab: Lab) -> None:
    lab.run(cluster_ops.OpClusterSetParams(auto_instance_failover=0))
    lab.run(cluster_ops.OpClusterSetParams(auto_instance_failover=15))
    assert disk(lab).never_alone is None


def test_a_usermode_helper_which_may_answer_protects_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ganeti.storage.drbd import status

    monkeypatch.setattr(status, "usermode_helper", lambda: "/sbin/drbdadm")
    lab.activate()
    assert disk(lab).never_alone is None


def test_an_order_to_resume_meanwhile_counts_more_than_the_record(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link breaks after the node has answered, and before that is recorded."""
    lab.stop()
    real = type(lab.nodes).call

    def call(nodes: Any, one: Any, *args: Any, **options: Any) -> Any:
        answer = real(nodes, one, *args, **options)
        if one.name == "drbd_wait_for_peer":
            lab.cut()
            watch(lab)
        return answer

    monkeypatch.setattr(type(lab.nodes), "call", call)
    lab.start()
    assert (disk(lab).outdated_node, disk(lab).never_alone) == (uuid_of(SECONDARY), None)


_EVENTS = (
    "write", "write", "cut", "heal", "watch", "watch", "verify", "activate",
    "detach", "restart peer", "stop", "start", "migrate", "failover", "replace", "off and on",
)  # fmt: skip


def play(lab: Lab, event: str) -> None:
    """One event; a command which is refused has no effect."""
    if event == "write":
        lab.write(2)
    elif event == "cut":
        lab.cut()
    elif event == "heal":
        lab.kernel.heal()
        lab.kernel.settle()
    elif event == "watch":
        watch(lab)
    elif event == "verify":
        verify(lab)
    elif event == "activate":
        lab.activate()
    elif event == "detach":
        other = SECONDARY if lab.where() == [PRIMARY] else PRIMARY
        lab.kernel.detach(lab.key(other))
    elif event == "restart peer":
        lab.restart_node(SECONDARY if lab.where() == [PRIMARY] else PRIMARY)
    elif event == "stop":
        lab.stop()
    elif event == "start":
        lab.start()
    elif event == "failover":
        lab.run(failover())
    elif event == "replace":
        mode = "replace_on_primary"
        lab.run(ops.OpInstanceReplaceDisks(instance_name=WEB, mode=mode, disks=[]))
    elif event == "migrate":
        lab.run(ops.OpInstanceMigrate(instance_name=WEB))
    else:
        lab.run(cluster_ops.OpClusterSetParams(auto_instance_failover=0))
        lab.run(cluster_ops.OpClusterSetParams(auto_instance_failover=15))


@pytest.mark.parametrize(
    "seed", [1, 4, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 100))]
)
def test_no_history_leads_to_a_loss(lab: Lab, seed: int) -> None:
    """Anything happens, then the node of the guest dies: it starts with all writes, or not."""
    choose = random.Random(seed)
    history = []
    for _ in range(choose.randrange(1, 12)):
        event = choose.choice(_EVENTS)
        history.append(event)
        try:
            play(lab, event)
        except (errors.GenericError, ValueError, KeyError, AssertionError):
            # Refused, or it has no meaning in this state.
            continue
    running = lab.where()
    if not running:
        return
    (node,) = running
    lab.power_off(node)
    lab.mark_offline(node)
    assert node != SPARE
    try:
        lab.run(failover())
    except errors.GenericError:
        return
    assert not lab.lost(lab.seen()), history
