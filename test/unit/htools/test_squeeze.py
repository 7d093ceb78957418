"""Switching nodes off: instances and capacity stay, and what is needed is switched on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.htools import squeeze
from ganeti.htools.cluster import Cluster

from .conftest import DATA, Run
from .test_balance import facts, made

UNUSED = str(DATA / "hsqueeze-underutilized.data")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000), st.sampled_from([0.0, 1.0, 2.0]))
def test_no_instance_stays_on_a_node_that_is_switched_off(seed: int, target: float) -> None:
    cluster = made(seed)
    before = facts(cluster.nodes)
    plan = squeeze.plan(cluster, minimal=0.0, target=target)
    assert facts(cluster.nodes) == before
    if plan.online:
        # Some node is too full to begin with; then nothing may be switched off.
        assert all(node in squeeze.on_standby(cluster) for node in plan.nodes)
        return
    for node in plan.nodes:
        after = plan.cluster.nodes[node.index]
        assert after.offline
        assert not node.master
        assert not (node.real.secondaries or after.real.primaries or after.real.secondaries)
    if plan.nodes:
        assert all(
            not plan.cluster.nodes[index].offline
            for one in plan.cluster.instances
            if not one.forthcoming
            for index in one.nodes
        )


def test_nodes_on_standby_are_switched_on_until_they_suffice(load: Callable[..., Cluster]) -> None:
    cluster = load("hsqueeze-underutilized.data")
    for number in (4, 5):
        cluster.nodes[number].offline = True
        cluster.nodes[number].tags = ("htools:standby:auto",)
    # An instance of this size fits none of the other nodes.
    plan = squeeze.plan(cluster, minimal=1000.0, target=2.0)
    assert plan.online
    assert [node.index for node in plan.nodes] == [4, 5]
    assert squeeze.on_standby(cluster) == cluster.nodes[4:6]


def test_a_higher_target_switches_fewer_nodes_off(load: Callable[..., Cluster]) -> None:
    cluster = load("hsqueeze-underutilized.data")
    counts = [
        len(squeeze.plan(cluster, minimal=0.0, target=target).nodes) for target in (0.0, 1.0, 2.0)
    ]
    assert counts == [4, 3, 2]


def test_json_has_the_moves(run: Run) -> None:
    code, out, _ = run("hsqueeze", "-t", UNUSED, "--output", "json")
    assert code == 0
    found = json.loads(out)
    assert found["action"] == "offline"
    assert found["nodes"] == ["node-01-004", "node-01-005"]
    assert [move["instance"] for some in found["job_sets"] for move in some] == [
        "inst-40",
        "inst-50",
    ]


def test_the_tag_is_removed_from_nodes_to_switch_on(run: Run, tmp_path: Path) -> None:
    """The original leaves the tag: such a node could be switched on when it is off for repair."""
    lines = Path(UNUSED).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("node-01-005|"):
            lines[number] = line.replace("|N|", "|Y|") + "|htools:standby:auto"
    path = tmp_path / "cluster.data"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    code, out, _err = run("hsqueeze", "--minimal-resources=1000", "-C", "-t", str(path))
    assert code == 0
    assert out.startswith("'Nodes to online'\nnode-01-005\n")
    assert "gnt-node power -f on node-01-005" in out
    assert "gnt-node remove-tags node-01-005 htools:standby:auto" in out
