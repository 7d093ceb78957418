"""The order in which the storage of mirrored disks is replaced.

While one replica is made anew the other one is the only complete one. What was replaced is
destroyed only when the new replica is in sync, unless the user asked for the opposite.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from fakes.master import Master
from ganeti.cmdlib.ops.disks import mirror, sync
from ganeti.locking import Level, Owner
from ganeti.objects import BlockDevStatus
from ganeti.opcodes.instance import OpInstanceReplaceDisks
from unit.cmdlib.instance.test_disks import NODE1, NODE2, NODE3, disks_of, master_with, mirrored

MODES = {
    "replace_on_primary": "node1",
    "replace_on_secondary": "node2",
    "replace_new_secondary": "node2",
}


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "POLL_S", 0)
    monkeypatch.setattr(mirror, "POLL_S", 0)


@pytest.fixture
def master() -> Master:
    made: Master = master_with(mirrored(), admin_state="up", disks_active=True)
    return made


def replace(mode: str, **changes: Any) -> OpInstanceReplaceDisks:
    if mode == "replace_new_secondary":
        changes.setdefault("remote_node", "node3")
    return OpInstanceReplaceDisks(instance_name="web", mode=mode, **changes)


def state(percent: float | None, *, degraded: bool = True) -> BlockDevStatus:
    return BlockDevStatus(
        dev_path="/dev/drbd0", is_degraded=degraded, sync_percent=percent, ldisk_status=1
    )


def synchronising(master: Master, *states: BlockDevStatus, look: Callable[[], Any]) -> list[Any]:
    """The replica is in these states, one after the other; returns what `look` found each time."""
    found: list[Any] = []
    left = list(states)

    def report(_node: str, args: dict[str, Any]) -> list[BlockDevStatus]:
        found.append(look())
        now = left.pop(0) if len(left) > 1 else left[0]
        return [now for _ in args["disks"]]

    master.rpc.answers["blockdev_getmirrorstatus"] = report
    return found


def destroyed(master: Master) -> list[str]:
    return [
        disk.logical_id[1]
        for _node, args in master.rpc.of("blockdev_remove_multi")
        for disk in args["disks"]
    ]


DONE = state(None, degraded=False)


@pytest.mark.parametrize("mode", MODES)
def test_old_volumes_live_until_the_new_replica_is_in_sync(master: Master, mode: str) -> None:
    found = synchronising(master, state(10.0), state(90.0), DONE, look=lambda: destroyed(master))
    master.run(replace(mode))
    assert found == [[], [], []]
    removed = {"w0_data", "w0_meta"} if "new" in mode else {"w0_data_old", "w0_meta_old"}
    assert removed <= set(destroyed(master))
    assert {node.split(".")[0] for node, _ in master.rpc.of("blockdev_remove_multi")} == {
        MODES[mode]
    }


@pytest.mark.parametrize("mode", MODES)
def test_old_volumes_stay_when_the_new_replica_stays_degraded(master: Master, mode: str) -> None:
    synchronising(master, state(None), look=lambda: None)
    assert "degraded after their synchronisation" in master.failed(replace(mode))
    assert destroyed(master) == []
    kept = [disk for disk in master.config.snapshot().disks.values() if disk.name]
    assert {disk.logical_id[1] for disk in kept} >= (
        {"w0_data", "w0_meta"} if "new" in mode else {"w0_data_old", "w0_meta_old"}
    )


def _free(master: Master) -> bool:
    """Whether another job may look at the storage of the nodes now."""
    other = Owner(99, "another job")
    taken = master.locks.acquire(other, Level.NODE_RES, [NODE1, NODE2], shared=True, timeout_s=0)
    master.locks.release(other)
    return taken is not None


@pytest.mark.parametrize("early", [False, True])
def test_an_early_release_destroys_and_releases_before_all_is_in_sync(
    master: Master, early: bool
) -> None:
    found = synchronising(
        master,
        state(10.0),
        DONE,
        look=lambda: (bool(destroyed(master)), _free(master)),
    )
    master.run(replace("replace_on_secondary", early_release=early))
    assert found == [(early, early)] * 2


@pytest.mark.parametrize("mode", MODES)
def test_nothing_begins_before_the_other_replica_is_known_to_be_good(
    master: Master, mode: str
) -> None:
    """Not even the volumes of an interrupted replacement go."""
    master.rpc.errors["blockdev_addchildren"] = "cannot attach"
    master.failed(replace("replace_on_secondary"))
    del master.rpc.errors["blockdev_addchildren"]
    before = len(master.config.snapshot().disks)
    other = "node2" if mode == "replace_on_primary" else "node1"
    master.rpc.answers["blockdev_find_multi"] = lambda node, _args: BlockDevStatus(
        dev_path="/dev/drbd0",
        is_degraded=node.startswith(other),
        ldisk_status=4 if node.startswith(other) else 1,
    )
    master.rpc.calls.clear()
    assert "no complete copy" in master.failed(replace(mode))
    assert destroyed(master) == []
    assert not {"blockdev_create_multi", "blockdev_removechildren", "drbd_disconnect_net"} & set(
        master.rpc.names()
    )
    assert len(master.config.snapshot().disks) == before


def test_every_volume_is_recorded_before_it_exists(master: Master) -> None:
    """After an interruption the next operation knows what to destroy."""
    master.rpc.errors["blockdev_create_multi"] = "no space"
    assert "the disk was not changed" in master.failed(replace("replace_on_secondary"))
    marked = [disk for disk in master.config.snapshot().disks.values() if disk.name]
    assert {disk.logical_id[1] for disk in marked} == {
        "w0_data_new",
        "w0_meta_new",
        "w0_data_old",
        "w0_meta_old",
    }


def test_lost_volumes_are_not_renamed(master: Master) -> None:
    master.rpc.answers["blockdev_getdimensions"] = lambda _node, args: [
        (1 << 20, None) if disk.logical_id[1] == "w0_meta" else None for disk in args["disks"]
    ]
    master.run(replace("replace_on_secondary"))
    ((_node, args),) = master.rpc.of("blockdev_rename")
    assert [(old.logical_id[1], new[1]) for old, new in args["renames"]] == [
        ("w0_meta", "w0_meta_old"),
        ("w0_data_new", "w0_data"),
        ("w0_meta_new", "w0_meta"),
    ]


@pytest.mark.parametrize(
    "call", ["blockdev_removechildren", "blockdev_rename", "blockdev_addchildren"]
)
def test_a_failed_step_ends_the_replacement(master: Master, call: str) -> None:
    master.rpc.errors[call] = "the kernel refuses"
    text = master.failed(replace("replace_on_secondary"))
    assert "the kernel refuses" in text and "Repeat the command" in text
    assert master.rpc.names()[-1] != "drbd_attach_net"
    assert destroyed(master) == []


def test_the_primary_is_disconnected_when_the_new_replica_exists(master: Master) -> None:
    master.run(replace("replace_new_secondary"))
    names = master.rpc.acting()
    last_create = max(place for place, name in enumerate(names) if name == "blockdev_create_multi")
    assert last_create < names.index("drbd_disconnect_net") < names.index("drbd_attach_net")
    (disk,) = disks_of(master)
    # The new secret shuts the former secondary out.
    assert disk.logical_id[5] != mirrored().logical_id[5]


@pytest.mark.parametrize(
    "replicas", [(NODE1, NODE2, 11000, 4, 9, "secret"), (NODE2, NODE1, 11000, 9, 4, "secret")]
)
def test_the_primary_keeps_its_minor_and_its_place(replicas: tuple[Any, ...]) -> None:
    """With DRBD 9 its place is in its metadata."""
    disk = dataclasses.replace(mirrored(), logical_id=replicas)
    master = master_with(disk, admin_state="up", disks_active=True)
    master.run(replace("replace_new_secondary"))
    found = disks_of(master)[0].logical_id
    place = replicas.index(NODE1)
    assert (found[place], found[3 + place]) == (NODE1, 4)
    assert found[1 - place] == NODE3 and found[2] == 11000


def test_a_primary_which_cannot_be_disconnected_keeps_its_secondary(master: Master) -> None:
    master.rpc.errors["drbd_disconnect_net"] = "busy"
    assert "cannot be disconnected" in master.failed(replace("replace_new_secondary"))
    assert disks_of(master)[0].nodes == (NODE1, NODE2)
    assert "drbd_attach_net" not in master.rpc.names()


@pytest.mark.parametrize("node", ["node1.example.com", "node3.example.com"])
def test_nodes_which_do_not_connect_are_an_error(master: Master, node: str) -> None:
    master.rpc.errors["drbd_attach_net", node] = "no route"
    text = master.failed(replace("replace_new_secondary"))
    assert f"cannot be connected on node {node}" in text
    # The new node has the replica nevertheless, and the volumes of the old one are known.
    assert disks_of(master)[0].nodes == (NODE1, NODE3)
    marked = [disk for disk in master.config.snapshot().disks.values() if disk.name]
    assert {(disk.logical_id[1], disk.nodes) for disk in marked} == {
        ("w0_data", (NODE2,)),
        ("w0_meta", (NODE2,)),
    }


def test_the_disks_of_a_stopped_instance_are_inactive_again() -> None:
    master = master_with(mirrored())
    master.run(replace("replace_on_secondary"))
    assert not master.config.instance(disks_of_owner(master)).disks_active
    assert {node.split(".")[0] for node, _ in master.rpc.of("blockdev_shutdown_multi")} == {
        "node1",
        "node2",
    }


def disks_of_owner(master: Master) -> str:
    (instance,) = master.config.instances()
    return str(instance.uuid)
