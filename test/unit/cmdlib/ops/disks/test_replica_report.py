"""What ``gnt-instance info`` says about the replicas of mirrored disks, and about kept volumes."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from fakes.config import commit, uuid_of
from fakes.disks import NODE1, NODE2, cluster_with, drbd_of, plain_of, volume
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.disks import convert, replica_report
from ganeti.constants.disk import LDS_FAULTY, LDS_OKAY, LDS_SYNC
from ganeti.objects import BlockDevStatus
from ganeti.opcodes.instance import OpInstanceQueryData

THEN = time.mktime((2026, 11, 22, 20, 0, 1, 0, 0, -1))
IF_NOT = " If they do not connect, see WHEN A MIRROR WAS INTERRUPTED in gnt-instance(8)."
ACTIVATE = "Use 'gnt-instance activate-disks web.example.com', which connects and"


def status(**values: Any) -> BlockDevStatus:
    return BlockDevStatus(**{"dev_path": "/dev/drbd0", "ldisk_status": LDS_OKAY, **values})


GOOD = status(is_degraded=False)
ALONE = status(is_degraded=True)
SOURCE = status(is_degraded=True, sync_percent=34.5, estimated_time=9.0)
TARGET = status(is_degraded=True, sync_percent=34.5, ldisk_status=LDS_SYNC)
FAULTY = status(is_degraded=True, ldisk_status=LDS_FAULTY)
OUTDATED = {"outdated_node": uuid_of("node2"), "outdated_since": THEN}


def shown(
    *reports: Any, static: bool = False, active: bool = True, offline: str = "", **record: Any
) -> dict[str, Any]:
    """What is said about a disk whose nodes report this; a text is the error of the node."""
    master = cluster_with(
        dataclasses.replace(drbd_of("web"), **record), admin_state="down", disks_active=active
    )
    if offline:
        commit(master.config).nodes.update(
            dataclasses.replace(master.config.node(uuid_of(offline)), offline=True)
        )
    by_node = dict(zip((NODE1, NODE2), reports, strict=False))
    master.rpc.answers["blockdev_find_multi"] = lambda node, args: by_node.get(node, GOOD)
    for node, report in by_node.items():
        if isinstance(report, str):
            master.rpc.errors["blockdev_find_multi", node] = report
    (facts,) = master.run(OpInstanceQueryData(instances=["web"], static=static)).values()
    (disk,) = facts["disks"]
    assert all("replicas" not in child for child in disk["children"])
    found: dict[str, Any] = disk["replicas"]
    return found


CASES: list[tuple[str, dict[str, Any], tuple[Any, ...], str, str, str]] = [
    # title, options, what the nodes report, state, text, hint
    ("equal", {}, (GOOD, GOOD), "in sync", "both in sync", ""),
    ("equal again, with an old record", OUTDATED, (GOOD, GOOD), "in sync", "both in sync", ""),
    (
        "compared when they were deactivated",
        {"active": False, "in_sync_at": THEN},
        (None, None),
        "in sync",
        "both in sync (compared 2026-11-22 20:00:01)",
        "",
    ),
    (
        "activated to be compared again",
        {"active": False, "in_sync_at": THEN},
        (ALONE, ALONE),
        "in sync",
        "both in sync (compared 2026-11-22 20:00:01)",
        "",
    ),
    (
        "synchronising",
        {},
        (SOURCE, TARGET),
        "synchronising",
        f"synchronising, 34.5 %, node {NODE2} lacks data until the end",
        "",
    ),
    ("only the source reports", {}, (SOURCE, "dead"), "synchronising", "synchronising, 34.5 %", ""),
    (
        "recorded",
        OUTDATED,
        (ALONE, ALONE),
        "outdated",
        f"node {NODE2} has missed writes since 2026-11-22 20:00:01",
        f"{ACTIVATE} synchronises them.{IF_NOT}",
    ),
    (
        "recorded, and all is inactive",
        {**OUTDATED, "active": False},
        (None, None),
        "outdated",
        f"node {NODE2} has missed writes since 2026-11-22 20:00:01",
        f"{ACTIVATE} synchronises them.{IF_NOT}",
    ),
    (
        "recorded, and the node is offline",
        {**OUTDATED, "offline": "node2"},
        (ALONE,),
        "outdated",
        f"node {NODE2} has missed writes since 2026-11-22 20:00:01",
        f"When node {NODE2} is not offline any more, use 'gnt-instance activate-disks"
        f" web.example.com', which connects and synchronises them.{IF_NOT}",
    ),
    (
        "a disk without storage",
        {},
        (GOOD, FAULTY),
        "incomplete",
        f"incomplete on node {NODE2}",
        f"{ACTIVATE} synchronises them. If the node has lost its storage, use 'gnt-instance"
        " replace-disks --auto web.example.com' instead.",
    ),
    (
        "no connection",
        {},
        (ALONE, ALONE),
        "not connected",
        "not connected, so one of them may miss writes",
        f"{ACTIVATE} synchronises them.{IF_NOT}",
    ),
    (
        "no connection while it is in use",
        {},
        (status(is_degraded=True, writable=True), ALONE),
        "not connected",
        f"not connected, so node {NODE2} misses writes",
        f"{ACTIVATE} synchronises them.{IF_NOT}",
    ),
    (
        "active on one node",
        {},
        (ALONE, None),
        "not connected",
        "not connected, so one of them may miss writes",
        f"{ACTIVATE} synchronises them.{IF_NOT}",
    ),
    (
        "recorded, and without storage",
        OUTDATED,
        (GOOD, FAULTY),
        "incomplete",
        f"incomplete on node {NODE2} since 2026-11-22 20:00:01",
        f"{ACTIVATE} synchronises them. If the node has lost its storage, use 'gnt-instance"
        " replace-disks --auto web.example.com' instead.",
    ),
    (
        "inactive, and nobody compared them",
        {"active": False},
        (None, None),
        "not compared",
        "not compared since the disks were active",
        f"{ACTIVATE} compares them.",
    ),
    (
        "both nodes started again",
        {},
        (None, None),
        "not compared",
        "not compared since the disks were active",
        f"{ACTIVATE} compares them.",
    ),
    (
        "one node does not answer",
        {},
        (GOOD, "no route"),
        "unknown",
        f"both in sync, as only node {NODE1} reports; node {NODE2} did not report its replica"
        " (no route)",
        "",
    ),
    (
        "no node answers",
        {},
        ("no route", "no route"),
        "unknown",
        f"not known; node {NODE1} did not report its replica (no route), node {NODE2} did not"
        " report its replica (no route)",
        f"{ACTIVATE} compares them.",
    ),
    (
        "static",
        {"static": True},
        (),
        "unknown",
        "not known, because no node was asked",
        "",
    ),
    (
        "static, with a record",
        {**OUTDATED, "static": True},
        (),
        "outdated",
        f"node {NODE2} has missed writes since 2026-11-22 20:00:01",
        f"{ACTIVATE} synchronises them.{IF_NOT}",
    ),
    (
        "static and inactive",
        {"static": True, "active": False},
        (),
        "not compared",
        "not compared since the disks were active",
        f"{ACTIVATE} compares them.",
    ),
]


@pytest.mark.parametrize(
    ("options", "reports", "state", "text", "hint"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_replicas(
    options: dict[str, Any], reports: tuple[Any, ...], state: str, text: str, hint: str
) -> None:
    found = shown(*reports, **options)
    assert (found["state"], found["text"], found["hint"]) == (state, text, hint)


def test_facts_for_programs() -> None:
    assert shown(ALONE, ALONE, **OUTDATED)["since"] == THEN
    assert shown(ALONE, ALONE, **OUTDATED)["node"] == NODE2
    assert shown(SOURCE, TARGET)["percent"] == 34.5
    assert shown(SOURCE, TARGET, **OUTDATED)["since"] == THEN
    # The record is about the other replica.
    assert shown(TARGET, SOURCE, **OUTDATED)["since"] is None
    assert shown(None, None, active=False, in_sync_at=THEN)["compared"] == THEN


def test_disks_without_replicas_say_nothing() -> None:
    master = cluster_with(plain_of("flat"))
    (facts,) = master.run(OpInstanceQueryData(instances=["flat"])).values()
    assert "replicas" not in facts["disks"][0]
    assert "kept_volumes" not in facts


# -- kept volumes ------------------------------------------------------------------


def with_kept(name: str = "web-data_old") -> Master:
    """An instance of whose interrupted replacement a volume is left on the second node."""
    master = cluster_with(drbd_of("web"))
    instance = master.config.instance(uuid_of("web"))
    left = dataclasses.replace(
        volume(name),
        name=convert.mark(instance.uuid),
        nodes=(uuid_of("node2"),),
        uuid=uuid_of(name),
        serial_no=1,
    )
    commit(master.config).disks.add_detached(left)
    return master


def kept(master: Master, **options: Any) -> list[dict[str, Any]]:
    (facts,) = master.run(OpInstanceQueryData(instances=["web"], **options)).values()
    found: list[dict[str, Any]] = facts["kept_volumes"]
    return found


def test_kept_volumes_are_shown() -> None:
    master = with_kept()
    (found,) = kept(master)
    hint = found.pop("hint")
    assert found == {"node": NODE2, "name": "xenvg/web-data_old", "size": 1024, "exists": True}
    assert "'gnt-instance replace-disks web.example.com'" in hint


def test_a_kept_volume_may_be_absent_or_unknown() -> None:
    master = with_kept()
    master.rpc.answers["blockdev_getdimensions"] = [None]
    assert kept(master)[0]["exists"] is False
    master.rpc.errors["blockdev_getdimensions"] = errors.NodeUnreachable(NODE2, "x", "no route")
    assert kept(master)[0]["exists"] is None


def test_static_kept_volumes_ask_no_node() -> None:
    master = with_kept()
    assert kept(master, static=True)[0]["exists"] is None
    assert master.rpc.calls == []


def test_names_of_volumes() -> None:
    assert replica_report.volume_name(volume("a")) == "xenvg/a"
    file_disk = dataclasses.replace(volume("a"), dev_type="file", logical_id=("loop", "/srv/a"))
    assert replica_report.volume_name(file_disk) == "/srv/a"
