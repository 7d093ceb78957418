"""The cases of a review: ordinary commands which used to destroy the only good copy of a disk.

The guest of ``web`` confirms numbered blocks on a mirrored disk (:mod:`fakes.confirmed`); none of
them may be missing afterwards in what the instance uses. ``test_every_state.py`` tries all
operations in all states; here each rule has its example.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import confirmed
from fakes.breaking import WEB
from fakes.config import uuid_of
from fakes.confirmed import PRIMARY, SECONDARY, SPARE, Lab
from ganeti import errors
from ganeti.cmdlib.ops.disks import convert
from ganeti.opcodes import group
from ganeti.opcodes import instance as ops


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    confirmed.install(monkeypatch)
    lab = Lab(tmp_path / "cluster")
    if not lab.where():
        lab.start()
    lab.write()
    return lab


def degrade(lab: Lab) -> None:
    """The mirror is interrupted, the guest goes on, and the secondary comes back with old data."""
    lab.cut()
    lab.write(5)


def failover(**changes: object) -> ops.OpInstanceFailover:
    return ops.OpInstanceFailover(instance_name=WEB, **changes)  # type: ignore[arg-type]


def all_there(lab: Lab) -> None:
    assert lab.confirmed and not lab.lost(lab.seen()), lab.copies()


# -- 1: which replica is promoted ----------------------------------------------------------


def test_a_stopped_instance_is_compared_before_it_goes(lab: Lab) -> None:
    """Both nodes are well again, and the secondary is synchronised before it becomes primary."""
    degrade(lab)
    lab.stop()
    lab.kernel.heal()
    lab.run(failover())
    assert lab.instance.primary_node == uuid_of(SECONDARY)
    lab.start()
    assert lab.where() == [SECONDARY]
    all_there(lab)


@pytest.mark.parametrize("running", [True, False])
def test_a_mirror_which_stays_interrupted_is_not_failed_over(lab: Lab, running: bool) -> None:
    degrade(lab)
    if not running:
        lab.stop()
    with pytest.raises(errors.OpExecError, match="cannot be compared|not connect|missed writes"):
        lab.run(failover())
    assert lab.instance.primary_node == uuid_of(PRIMARY)
    lab.heal()
    if not running:
        lab.start()
    assert lab.where() == [PRIMARY]
    all_there(lab)


def test_a_migration_which_may_fail_over_compares_too(lab: Lab) -> None:
    degrade(lab)
    lab.stop()
    op = ops.OpInstanceMigrate(instance_name=WEB, allow_failover=True)
    with pytest.raises(errors.OpExecError, match="cannot be compared"):
        lab.run(op)
    lab.heal()
    lab.run(op)
    lab.start()
    assert lab.where() == [SECONDARY]
    all_there(lab)


def test_the_knowledge_outlives_the_node(lab: Lab) -> None:
    """The secondary missed writes and the primary dies: the record says what would be lost."""
    degrade(lab)
    lab.run(group.OpGroupVerifyDisks(group_name="default"))
    assert lab.disks[0].outdated_node == uuid_of(SECONDARY)
    lab.power_off(PRIMARY)
    lab.mark_offline(PRIMARY)
    with pytest.raises(
        errors.OpExecError, match="is known to miss the writes since .*--ignore-consistency"
    ):
        lab.run(failover())
    lab.heal()
    lab.start()
    assert lab.where() == [PRIMARY]
    all_there(lab)


def test_a_dead_primary_needs_the_option(lab: Lab) -> None:
    lab.power_off(PRIMARY)
    lab.mark_offline(PRIMARY)
    with pytest.raises(errors.OpExecError, match="cannot be compared .*--ignore-consistency"):
        lab.run(failover())
    lab.run(failover(ignore_consistency=True))
    assert lab.where() == [SECONDARY]
    assert lab.disks[0].outdated_node == uuid_of(PRIMARY)
    all_there(lab)
    lab.write()
    # The former primary comes back, and its replica is synchronised.
    lab.heal()
    lab.activate()
    lab.kernel.finish_syncs()
    lab.run(ops.OpInstanceActivateDisks(instance_name=WEB, wait_for_sync=True))
    assert lab.disks[0].outdated_node is None
    lab.run(failover())
    assert lab.where() == [PRIMARY]
    all_there(lab)


def test_an_instance_stopped_in_sync_leaves_a_dead_node_at_once(lab: Lab) -> None:
    lab.stop()
    assert lab.disks[0].in_sync_at is not None
    lab.power_off(PRIMARY)
    lab.mark_offline(PRIMARY)
    lab.run(failover())
    lab.start()
    assert lab.where() == [SECONDARY]
    assert lab.disks[0].in_sync_at is None
    assert lab.disks[0].outdated_node == uuid_of(PRIMARY)
    all_there(lab)


def test_a_start_without_the_secondary_is_recorded_first(lab: Lab) -> None:
    lab.stop()
    lab.power_off(SECONDARY)
    with pytest.raises(errors.OpExecError, match="cannot be activated on secondary node"):
        lab.start()
    lab.mark_offline(SECONDARY)
    lab.start()
    assert lab.disks[0].outdated_node == uuid_of(SECONDARY)
    lab.write()
    lab.stop()
    # Now that node is the only one which is left: it must not be used without a word.
    lab.heal()
    lab.power_off(PRIMARY)
    lab.mark_offline(PRIMARY)
    with pytest.raises(errors.OpExecError, match="is known to miss the writes since"):
        lab.run(failover())


def test_a_start_of_equal_replicas_needs_no_connection(lab: Lab) -> None:
    """Both were in sync when the instance stopped, so the one on the primary node is good."""
    lab.stop()
    lab.cut()
    lab.start()
    assert lab.disks[0].outdated_node == uuid_of(SECONDARY)
    lab.write()
    lab.heal()
    all_there(lab)


def test_a_replica_which_missed_writes_is_not_started(lab: Lab) -> None:
    """Not on the primary node either, where only an option which names the loss helps."""
    lab.power_off(PRIMARY)
    lab.mark_offline(PRIMARY)
    lab.run(failover(ignore_consistency=True))
    lab.write()
    lab.stop()
    lab.heal()
    with lab.cluster.config.transaction() as change:
        change.instances.set_primary(lab.instance.uuid, uuid_of(PRIMARY))
    lab.power_off(SECONDARY)
    lab.mark_offline(SECONDARY)
    with pytest.raises(errors.OpExecError, match="is known to miss the writes since .*--force"):
        lab.start()
    lab.run(ops.OpInstanceStartup(instance_name=WEB, force=True))
    assert "are lost" in lab.said()


def test_a_new_primary_by_hand_is_compared(lab: Lab) -> None:
    degrade(lab)
    lab.stop()
    op = ops.OpInstanceSetParams(instance_name=WEB, pnode=_full(SECONDARY))
    with pytest.raises(errors.OpExecError, match="cannot be compared"):
        lab.run(op)
    lab.heal()
    lab.run(op)
    lab.start()
    assert lab.where() == [SECONDARY]
    all_there(lab)


# -- 2: conversion ------------------------------------------------------------------------


def test_the_copy_which_stays_is_proved_good(lab: Lab) -> None:
    """The instance is on the node which missed writes; the other one has them."""
    degrade(lab)
    lab.stop()
    lab.forget_records()
    with lab.cluster.config.transaction() as change:
        change.instances.set_primary(lab.instance.uuid, uuid_of(SECONDARY))
    op = ops.OpInstanceSetParams(instance_name=WEB, disk_template="plain")
    with pytest.raises(errors.OpExecError, match="cannot be compared"):
        lab.run(op)
    assert not lab.lost(lab.best())
    lab.heal()
    lab.run(op)
    lab.start()
    all_there(lab)


def test_a_conversion_without_the_other_node(lab: Lab) -> None:
    degrade(lab)
    lab.stop()
    lab.power_off(SECONDARY)
    lab.mark_offline(SECONDARY)
    # It was observed that the secondary is the one which missed writes.
    lab.run(ops.OpInstanceSetParams(instance_name=WEB, disk_template="plain"))
    lab.start()
    all_there(lab)


def test_an_accepted_loss_destroys_nothing(lab: Lab) -> None:
    """The replica which may have more stays, also after a conversion by force."""
    degrade(lab)
    lab.stop()
    lab.forget_records()
    with lab.cluster.config.transaction() as change:
        change.instances.set_primary(lab.instance.uuid, uuid_of(SECONDARY))
    lab.run(ops.OpInstanceSetParams(instance_name=WEB, disk_template="plain", force=True))
    assert "are kept" in lab.said()
    assert not lab.lost(lab.best())


# -- 4: replacement -----------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
def test_nothing_is_filled_from_a_partner_which_missed_writes(lab: Lab, running: bool) -> None:
    degrade(lab)
    if not running:
        lab.stop()
    op = ops.OpInstanceReplaceDisks(instance_name=WEB, mode="replace_on_primary")
    with pytest.raises(errors.OpExecError):
        lab.run(op)
    assert not lab.lost(lab.best())
    lab.heal()
    lab.run(op)
    if not running:
        lab.start()
    all_there(lab)


def test_a_secondary_which_missed_writes_is_replaced(lab: Lab) -> None:
    degrade(lab)
    lab.run(
        ops.OpInstanceReplaceDisks(
            instance_name=WEB, mode="replace_new_secondary", remote_node=_full(SPARE)
        )
    )
    lab.heal()
    all_there(lab)
    assert lab.disks[0].outdated_node is None
    lab.run(failover())
    assert lab.where() == [SPARE]
    all_there(lab)


# -- 8: the last copy ---------------------------------------------------------------------


def test_kept_volumes_stay_until_the_rest_is_good(lab: Lab) -> None:
    """They may be the last copy, so a replacement which is refused leaves them alone."""
    kept = lab.disks[0].children[0]
    with lab.cluster.config.transaction() as change:
        config = lab.cluster.config.reserving_for("a test")
        part = convert.detached_part(config, lab.instance, kept, uuid_of(SPARE))
        change.disks.add_detached(part)
    path = Path(lab.nodes.root(_full(SPARE)), "lvm", *map(str, kept.logical_id))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"the last copy")
    degrade(lab)
    with pytest.raises(errors.OpExecError):
        lab.run(ops.OpInstanceReplaceDisks(instance_name=WEB, mode="replace_on_primary"))
    assert path.read_bytes() == b"the last copy"
    lab.heal()
    lab.run(ops.OpInstanceReplaceDisks(instance_name=WEB, mode="replace_on_secondary"))
    assert not path.exists()


# -- 10: a former secondary ---------------------------------------------------------------


def test_a_former_secondary_never_takes_the_place_of_the_new_one(lab: Lab) -> None:
    before = lab.disks[0].logical_id
    lab.run(
        ops.OpInstanceReplaceDisks(
            instance_name=WEB, mode="replace_new_secondary", remote_node=_full(SPARE)
        )
    )
    after = lab.disks[0].logical_id
    assert after[2] == before[2] and after[5] != before[5]
    assert lab.disks[0].in_sync_at is None and lab.disks[0].outdated_node is None


def _full(node: str) -> str:
    return f"{node}.example.com"


def test_an_instance_whose_primary_uses_the_peer_is_removed(lab: Lab) -> None:
    """DRBD refuses to take the data of the secondary away before the primary is deactivated."""
    lab.kernel.detach(lab.key(PRIMARY))
    lab.write()
    lab.run(ops.OpInstanceRemove(instance_name=WEB))
    assert lab.copies() == {} and not lab.kernel.minors
