"""What ``gnt-instance info`` says about replicas is true in every state of them.

The states are those of :mod:`fakes.replica_states`, with real records and the real driver above a
made-up kernel; the guest has confirmed numbered blocks, so that each replica can be judged by its
content.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes import confirmed, mirror
from fakes.config import uuid_of
from fakes.confirmed import PRIMARY, SECONDARY, Lab, blocks
from fakes.replica_states import STATES, STOPPED_ONLY
from ganeti.cmdlib.ops.disks import replica_report as report
from ganeti.opcodes import group
from ganeti.opcodes import instance as ops

#: A record cannot know that a machine comes back with the disks of an earlier time.
EXCHANGED = {("primary_old", False), ("secondary_old", False)}

CASES = [
    (state, running)
    for state in STATES
    for running in (True, False)
    if not (running and state in STOPPED_ONLY)
]


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmed.install(monkeypatch)


def shown(lab: Lab) -> dict[str, Any]:
    op = ops.OpInstanceQueryData(instances=[lab.name])
    result: dict[str, Any] = lab.cluster.run(op, lab.cluster.new_job())
    found: dict[str, Any] = result[lab.name]["disks"][0]["replicas"]
    return found


def complete(lab: Lab) -> set[str]:
    """The nodes whose replica has all confirmed blocks."""
    lab.kernel.replicate()
    data = lab.disks[0].children[0].logical_id
    return {
        f"{node}.example.com"
        for node in (PRIMARY, SECONDARY)
        if not lab.lost(blocks(Path(lab.key(node)[0], mirror.LVM, *map(str, data))))
    }


@pytest.mark.parametrize(("state", "running"), CASES)
def test_what_is_said_is_true(tmp_path: Path, state: str, running: bool) -> None:
    lab = Lab(tmp_path / "cluster")
    STATES[state](lab, running)
    if (state, running) in EXCHANGED:
        return
    _judge(lab, shown(lab))
    # The watcher submits this job every few minutes; it records what the nodes report.
    lab.run(group.OpGroupVerifyDisks(group_name="default"))
    _judge(lab, shown(lab))


def _judge(lab: Lab, said: dict[str, Any]) -> None:
    good = complete(lab)
    if said["state"] == report.IN_SYNC:
        assert len(good) == 2, said
    elif said["node"] is not None:
        (other,) = {f"{node}.example.com" for node in (PRIMARY, SECONDARY)} - {said["node"]}
        assert other in good, said
    if said["state"] not in (report.IN_SYNC, report.SYNCHRONISING):
        assert said["hint"] or "as only node" in said["text"], said


@pytest.mark.parametrize("state", ["remote_stale", "secondary_offline"])
def test_a_replica_which_misses_writes_is_named(tmp_path: Path, state: str) -> None:
    lab = Lab(tmp_path / "cluster")
    STATES[state](lab, True)
    lab.run(group.OpGroupVerifyDisks(group_name="default"))
    said = shown(lab)
    assert (said["state"], said["node"]) == (report.OUTDATED, f"{SECONDARY}.example.com")
    assert said["since"] == lab.disks[0].outdated_since
    assert lab.disks[0].outdated_node == uuid_of(SECONDARY)


def test_the_life_of_a_mirror(tmp_path: Path) -> None:
    """From good over interrupted to good again, and stopped."""
    lab = Lab(tmp_path / "cluster")
    STATES["good"](lab, True)
    assert shown(lab)["text"] == "both in sync"
    lab.cut()
    lab.write()
    assert shown(lab)["state"] == report.NOT_CONNECTED
    lab.run(group.OpGroupVerifyDisks(group_name="default"))
    assert shown(lab)["state"] == report.OUTDATED
    lab.kernel.heal()
    lab.kernel.settle()
    assert shown(lab)["text"] == "both in sync"
    lab.stop()
    assert shown(lab)["text"].startswith("both in sync (compared ")
    lab.forget_records()
    assert shown(lab)["state"] == report.NOT_COMPARED
