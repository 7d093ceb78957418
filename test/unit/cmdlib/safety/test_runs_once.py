"""An instance never runs twice: all that starts a guest, while it runs where it should not.

Nodes are the real node code with guests of the fake hypervisor (:mod:`fakes.node_side`), volumes
and mirrors those of :mod:`fakes.mirror`. A guest is put on another node by hand, as an interrupted
migration or an administrator would leave it; then everything that starts guests is tried.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import mirror
from fakes.breaking import WEB, create, empty
from fakes.config import uuid_of
from fakes.node_side import Cluster
from ganeti import errors
from ganeti.opcodes import instance as ops
from ganeti.platform import paths


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.install(monkeypatch)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def cluster_with(
    directory: Path, template: str, *, start: bool = False, pnode: str = "node1"
) -> Cluster:
    cluster = empty(directory)
    cluster.run(create(template, pnode=pnode, start=start))
    return cluster


def guests(cluster: Cluster, node: str) -> Path:
    with paths.override(paths.Paths(str(cluster.rpc.root(f"{node}.example.com")))):
        return Path(paths.current().fake_root)


def runs_also_on(cluster: Cluster, node: str) -> None:
    """The guest of node1 is on another node, too; it is not there any more."""
    os.makedirs(guests(cluster, node), exist_ok=True)
    shutil.move(guests(cluster, "node1") / WEB, guests(cluster, node) / WEB)


def web(cluster: Cluster):
    return cluster.config.instances()[0]


def starters():
    """What starts a guest, and where it would."""
    return {
        "startup": lambda: ops.OpInstanceStartup(instance_name=WEB),
        "startup --force": lambda: ops.OpInstanceStartup(instance_name=WEB, force=True),
        "reboot hard": lambda: ops.OpInstanceReboot(instance_name=WEB, reboot_type="hard"),
        "reboot soft": lambda: ops.OpInstanceReboot(instance_name=WEB, reboot_type="soft"),
        "reboot full": lambda: ops.OpInstanceReboot(instance_name=WEB, reboot_type="full"),
        "failover": lambda: ops.OpInstanceFailover(instance_name=WEB, target_node="node2"),
        "failover --ignore-consistency": lambda: ops.OpInstanceFailover(
            instance_name=WEB, target_node="node2", ignore_consistency=True
        ),
        "migrate": lambda: ops.OpInstanceMigrate(instance_name=WEB, target_node="node2"),
        "migrate --allow-failover": lambda: ops.OpInstanceMigrate(
            instance_name=WEB, target_node="node2", allow_failover=True
        ),
    }


@pytest.mark.parametrize("where", ["node2", "node3"])
@pytest.mark.parametrize("how", starters())
def test_what_runs_elsewhere_on_shared_disks(tmp_path: Path, how: str, where: str) -> None:
    cluster = cluster_with(tmp_path / "cluster", "sharedfile", start=True)
    runs_also_on(cluster, where)
    with pytest.raises(errors.OpPrereqError) as refused:
        cluster.run(starters()[how]())
    assert cluster.rpc.running() == {WEB: [where]}
    assert web(cluster).primary_node == uuid_of("node1")
    if how != "migrate":
        assert f"runs on node {where}.example.com" in str(refused.value)
        assert "--cleanup" in str(refused.value)


@pytest.mark.parametrize(
    "how",
    [
        "startup",
        "reboot hard",
        "reboot full",
        "failover",
        "failover to a third node",
        "migrate",
        "migrate to a third node",
        "migrate --allow-failover",
    ],
)
def test_what_runs_on_the_other_replica(tmp_path: Path, how: str) -> None:
    cluster = cluster_with(tmp_path / "cluster", "drbd", start=True)
    runs_also_on(cluster, "node2")
    makers = {
        **starters(),
        "failover": lambda: ops.OpInstanceFailover(instance_name=WEB),
        "failover to a third node": lambda: ops.OpInstanceFailover(
            instance_name=WEB, target_node="node3"
        ),
        "migrate": lambda: ops.OpInstanceMigrate(instance_name=WEB),
        "migrate to a third node": lambda: ops.OpInstanceMigrate(
            instance_name=WEB, target_node="node3"
        ),
        "migrate --allow-failover": lambda: ops.OpInstanceMigrate(
            instance_name=WEB, allow_failover=True
        ),
    }
    with pytest.raises(errors.OpPrereqError):
        cluster.run(makers[how]())
    assert cluster.rpc.running() == {WEB: ["node2"]}


def test_a_guest_is_not_sent_where_it_runs_already(tmp_path: Path) -> None:
    cluster = cluster_with(tmp_path / "cluster", "sharedfile", start=True)
    os.makedirs(guests(cluster, "node2"), exist_ok=True)
    shutil.copy(guests(cluster, "node1") / WEB, guests(cluster, "node2") / WEB)
    with pytest.raises(errors.GenericError):
        cluster.run(ops.OpInstanceMigrate(instance_name=WEB, target_node="node2"))
    assert web(cluster).primary_node == uuid_of("node1")


def test_clean_up_makes_both_agree_and_then_it_can_be_stopped(tmp_path: Path) -> None:
    cluster = cluster_with(tmp_path / "cluster", "sharedfile", start=True)
    runs_also_on(cluster, "node3")
    cluster.run(ops.OpInstanceMigrate(instance_name=WEB, cleanup=True))
    assert web(cluster).primary_node == uuid_of("node3")
    cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    assert cluster.rpc.running() == {WEB: ["node3"]}


# -- nodes that go and return ------------------------------------------------------


def offline(cluster: Cluster, node: str) -> None:
    with cluster.config.transaction() as change:
        change.nodes.update(
            replace(cluster.config.node(uuid_of(node)), offline=True, master_candidate=False)
        )


def back(cluster: Cluster, node: str) -> None:
    """As ``gnt-node modify --offline=no`` records it."""
    with cluster.config.transaction() as change:
        change.nodes.update(replace(cluster.config.node(uuid_of(node)), offline=False))


def test_a_node_that_was_lost_and_comes_back_starts_nothing(tmp_path: Path) -> None:
    cluster = cluster_with(tmp_path / "cluster", "sharedfile", start=True, pnode="node2")
    offline(cluster, "node2")
    cluster.run(ops.OpInstanceFailover(instance_name=WEB, target_node="node3"))
    assert web(cluster).primary_node == uuid_of("node3")
    # The machine lost its power, so its guests are gone; what it has on its disks is still there.
    shutil.rmtree(guests(cluster, "node2"))
    back(cluster, "node2")
    assert cluster.rpc.running() == {WEB: ["node3"]}
    cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    assert cluster.rpc.running() == {WEB: ["node3"]}


def test_a_node_that_was_only_cut_off_is_found_out(tmp_path: Path) -> None:
    """Somebody marked it offline although it runs: nothing makes it worse, and who asks is told."""
    cluster = cluster_with(tmp_path / "cluster", "sharedfile", start=True, pnode="node2")
    offline(cluster, "node2")
    cluster.run(ops.OpInstanceFailover(instance_name=WEB, target_node="node3"))
    back(cluster, "node2")
    for op in (
        ops.OpInstanceStartup(instance_name=WEB),
        ops.OpInstanceReboot(instance_name=WEB, reboot_type="hard"),
        ops.OpInstanceFailover(instance_name=WEB, target_node="node1"),
    ):
        with pytest.raises(errors.OpPrereqError, match="runs on node node2"):
            cluster.run(op)
    with pytest.raises(errors.GenericError, match="node2.*node3|node3.*node2"):
        cluster.run(ops.OpInstanceMigrate(instance_name=WEB, cleanup=True))


def test_an_unresponsive_source_is_not_taken_for_a_dead_one(tmp_path: Path, monkeypatch) -> None:
    """Without --ignore-consistency nothing starts elsewhere while the source does not answer."""
    cluster = cluster_with(tmp_path / "cluster", "sharedfile", start=True)
    real = cluster.rpc._one

    def silent(call, uuid, args):
        if uuid == uuid_of("node1") and call.name.startswith("instance_"):
            from ganeti.rpc import Result

            return Result(
                "node1.example.com",
                failure=errors.NodeUnreachable("node1.example.com", call.name, "timed out"),
            )
        return real(call, uuid, args)

    monkeypatch.setattr(cluster.rpc, "_one", silent)
    with pytest.raises(errors.OpExecError, match="Only if that machine is certainly off"):
        cluster.run(ops.OpInstanceFailover(instance_name=WEB, target_node="node2"))
    assert cluster.rpc.running() == {WEB: ["node1"]}
    assert web(cluster).primary_node == uuid_of("node1")


# -- migrations which stop in the middle -----------------------------------------------


@pytest.mark.parametrize("template", ["sharedfile", "drbd"])
def test_a_migration_that_broke_off_lets_nobody_start_a_second_guest(
    tmp_path: Path, template: str
) -> None:
    """Whatever was reached: a start, a reboot or a failover leaves at most one guest."""

    def op():
        return ops.OpInstanceMigrate(
            instance_name=WEB, target_node=None if template == "drbd" else "node2"
        )

    whole = cluster_with(tmp_path / "whole", template, start=True)
    whole.rpc.restart()
    whole.run(op())
    for at in range(len(whole.rpc.calls)):
        if "migration" not in whole.rpc.calls[at][0] and at % 3:
            continue
        cluster = cluster_with(tmp_path / f"{at}", template, start=True)
        cluster.rpc.restart()
        cluster.broken(op(), at, "lost")
        for again in (
            ops.OpInstanceStartup(instance_name=WEB),
            ops.OpInstanceReboot(instance_name=WEB, reboot_type="hard"),
            ops.OpInstanceFailover(
                instance_name=WEB, target_node=None if template == "drbd" else "node3"
            ),
        ):
            try:
                cluster.run(again)
            except errors.GenericError:
                pass
            where = cluster.rpc.running().get(WEB, [])
            assert len(where) <= 1, (whole.rpc.calls[at], again.OP_ID, where)
