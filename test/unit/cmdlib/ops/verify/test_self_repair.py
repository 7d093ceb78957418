"""LVM self-repair: when it acts, when it leaves things to people, and what it never throws away."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.config import commit, uuid_of
from fakes.disks import NODE1, NODE2, cluster_with, drbd_of, plain_of
from fakes.master import FakeJob, Master
from ganeti import errors
from ganeti.cmdlib.ops.verify import self_repair
from ganeti.cmdlib.ops.verify.self_repair import Decision, decide
from ganeti.opcodes.group import OpGroupVerifyDisks
from ganeti.platform import paths

WHOLE = ["/dev/sda", "xenvg", 10240.0, 1024.0, "a--", ["web-data"]]


def lost(*volumes: str) -> list[Any]:
    return ["[unknown]", "xenvg", 10240.0, 0.0, "a-m", list(volumes)]


@pytest.fixture(autouse=True)
def root(tmp_path: Path) -> Iterator[Path]:
    for name in ("var/lib/ganeti", "var/lock"):
        (tmp_path / name).mkdir(parents=True)
    with paths.override(paths.Paths(str(tmp_path))):
        yield tmp_path


def willing(master: Master, *tags: str) -> Master:
    """With LVM, and the cluster wants it."""
    cluster = master.config.cluster()
    commit(master.config).cluster.update(
        dataclasses.replace(
            cluster,
            tags=tags or (self_repair.TAG,),
            enabled_disk_templates=("drbd", "plain"),
            volume_group_name="xenvg",
        )
    )
    return master


def nodes_say(master: Master, **answers: Any) -> None:
    """What the nodes tell of their physical volumes; an error stands for a call that fails."""
    master.rpc.errors = {
        ("node_verify", f"{name}.example.com"): answer
        for name, answer in answers.items()
        if isinstance(answer, Exception)
    }
    master.rpc.answers["node_verify"] = lambda node, _args: {
        "pvlist": answers.get(node.partition(".")[0], [WHOLE])
    }


def look(master: Master) -> list[Any]:
    """Verify the disks; the jobs that were submitted."""
    master.rpc.answers["lv_list"] = {}
    master.rpc.answers["drbd_needs_activation"] = []
    master.run(OpGroupVerifyDisks(group_name="default"))
    return [op for (op,) in master.job.submitted]


@pytest.mark.parametrize(
    ("before", "lacking", "unresponsive", "expected"),
    [
        (True, [], [], Decision(None)),
        (False, [], [], Decision(True)),
        (None, [], [], Decision(True)),
        (False, ["a"], [], Decision(None)),
        (None, ["a"], [], Decision(False)),
        (True, ["a", "b"], [], Decision(False)),
        (True, ["a"], [], Decision(False, "a")),
        (True, ["a"], ["b"], Decision(None)),
        (False, [], ["b"], Decision(None)),
    ],
)
def test_the_table_of_the_design(before, lacking, unresponsive, expected) -> None:
    assert decide(before, lacking, unresponsive) == expected


def test_it_is_off_by_default(root: Path) -> None:
    master = willing(cluster_with(drbd_of("web")), "other")
    nodes_say(master, node1=[lost("web-data")])
    assert look(master) == []
    assert master.rpc.of("node_verify") == []
    assert not (root / "var/lib/ganeti/lvm_state").exists()


def test_a_disk_that_dies_is_taken_out_once(caplog) -> None:
    master = willing(cluster_with(drbd_of("web")))
    nodes_say(master)
    assert look(master) == []
    nodes_say(master, node2=[WHOLE, lost("web-data", "web-meta")])
    (op,) = look(master)
    assert (op.node_name, op.storage_type, op.name) == (NODE2, "lvm-vg", "xenvg")
    assert not op.ignore_consistency
    line = next(
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith(self_repair.LOG_MARK)
    )
    assert line == f"lvm-self-repair node={NODE2} group=xenvg volumes=web-data,web-meta job=100"
    # Whether it helped or not: it is not done again before all was well for a while.
    assert look(master) == []
    assert master.job.said("had incomplete volume groups before")
    nodes_say(master)
    assert look(master) == []
    nodes_say(master, node2=[lost()])
    assert len(look(master)) == 1


def test_what_nobody_saw_in_order_is_left_alone() -> None:
    master = willing(cluster_with(drbd_of("web")))
    nodes_say(master, node2=[lost("web-data")])
    assert look(master) == []
    assert master.job.said("volume group xenvg of node node2.example.com lacks physical volumes")


def test_several_nodes_at_once_are_left_alone() -> None:
    master = willing(cluster_with(drbd_of("web")))
    nodes_say(master)
    look(master)
    nodes_say(master, node1=[lost()], node2=[lost()])
    assert look(master) == []
    assert master.job.said("2 nodes lost disks at once")
    # Also when one of them is repaired by hand.
    nodes_say(master, node2=[lost()])
    assert look(master) == []


@pytest.mark.parametrize(
    "problem",
    [errors.NodeUnreachable("node3.example.com", "node_verify", "timeout"), "cannot query LVM"],
)
def test_a_silent_node_leaves_everything_open(problem) -> None:
    master = willing(cluster_with(drbd_of("web")))
    nodes_say(master)
    look(master)
    nodes_say(master, node2=[lost()], node3=problem)
    assert look(master) == []
    assert master.job.said("node node3.example.com could not be asked")
    nodes_say(master, node2=[lost()])
    assert len(look(master)) == 1


def test_a_volume_that_is_no_mirror_is_never_thrown_away() -> None:
    master = willing(cluster_with(drbd_of("web"), plain_of("db")))
    nodes_say(master)
    look(master)
    nodes_say(master, node1=[lost("web-data", "db-lv")])
    assert look(master) == []
    assert master.job.said("because db-lv belongs to no mirrored disk")
    assert master.job.said(f"gnt-node repair-storage {NODE1} lvm-vg xenvg")


def test_a_group_may_want_it_alone() -> None:
    master = willing(cluster_with(drbd_of("web")), "other")
    group = next(iter(master.config.groups()))
    commit(master.config).groups.update(dataclasses.replace(group, tags=(self_repair.TAG,)))
    nodes_say(master)
    look(master)
    nodes_say(master, node2=[lost()])
    assert len(look(master)) == 1


def test_nodes_marked_offline_are_not_asked() -> None:
    master = willing(cluster_with(drbd_of("web")))
    node = master.config.node(uuid_of("node3"))
    commit(master.config).nodes.update(dataclasses.replace(node, offline=True))
    nodes_say(master)
    look(master)
    assert sorted(name for name, _args in master.rpc.of("node_verify")) == [NODE1, NODE2]


@pytest.mark.parametrize("text", ["{", "[]", '{"x": "yes"}'])
def test_a_state_that_is_not_readable_says_nothing(root: Path, text: str) -> None:
    (root / "var/lib/ganeti/lvm_state").write_text(text)
    master = willing(cluster_with(drbd_of("web")))
    nodes_say(master, node2=[lost()])
    assert look(master) == []
    nodes_say(master)
    look(master)
    nodes_say(master, node2=[lost()])
    assert len(look(master)) == 1


def test_a_job_that_is_not_accepted(monkeypatch) -> None:
    master = willing(cluster_with(drbd_of("web")))
    nodes_say(master)
    look(master)
    nodes_say(master, node2=[lost()])
    monkeypatch.setattr(FakeJob, "submit_jobs", lambda self, jobs: [[False, "queue is drained"]])
    assert look(master) == []
    assert master.job.said("is not repaired: queue is drained")
