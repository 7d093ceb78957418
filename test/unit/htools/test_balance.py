"""Balancing: legal moves only, a score that falls, and the same moves as the original."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.htools import arrays, balance, moves, score, units
from ganeti.htools import cluster as model
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import text
from ganeti.htools.moves import Kind, Move
from ganeti.htools.node import Fail, Node
from ganeti.htools.space import StorageUnit

from . import random_clusters
from .conftest import Run

ORIGINAL = Path("/usr/lib/ganeti/3.0/usr/bin/htools")


def made(seed: int, *, forthcoming: bool = False) -> Cluster:
    cluster = text.parse(random_clusters.make(seed, forthcoming=forthcoming)[0])
    model.prepare(cluster)
    return cluster


def slow_score(nodes: list[Node]) -> float:
    """The score with library functions, written for this test from the manual page."""
    online = [node for node in nodes if not node.offline]
    if not online:
        return 0.0
    total = 0.0
    for c, component in enumerate(score.COMPONENTS):
        if component.kind == "pairs":
            pairs = [pair for node in online for pair in node.location_pairs]
            count = sum(sum(node.location_pairs.values()) for node in online)
            total += component.weight * (count - len(set(pairs)))
            continue
        chosen = [n for n in nodes if n.offline] if component.kind == "offline" else online
        values = [score.node_values(node)[c] for node in chosen]
        if c == score.FREE_DISK and all(node.storage is not None for node in online):
            total += component.weight * slow_unit_deviation(online)
        elif component.kind == "deviation":
            total += component.weight * statistics.pstdev(values)
        else:
            total += component.weight * math.fsum(values)
    return total


def slow_unit_deviation(online: list[Node]) -> float:
    """The mean deviation of the free shares, with library functions."""
    found = []
    for wanted in {one for node in online for one in node.storage or {}}:
        own = [node.storage[wanted] for node in online if node.storage and wanted in node.storage]
        found.append(statistics.pstdev([unit.free / unit.total for unit in own]))
    return statistics.fmean(found) if found else 0.0


def facts(nodes: list[Node]) -> list[tuple[object, ...]]:
    return [
        (
            node.instance_memory, node.real.free_disk, node.forth.free_disk, node.free_memory_forth,
            node.real.vcpus, node.real.spindles, node.real.free_spindles, set(node.real.primaries),
            set(node.real.secondaries), node.reserved_memory, node.primary_tags,
            node.location_score, node.location_pairs,
        )
        for node in nodes
    ]  # fmt: skip


@settings(max_examples=30)
@given(st.integers(0, 100_000))
def test_the_score_falls_with_every_step_and_is_that_of_the_result(seed: int) -> None:
    cluster = made(seed, forthcoming=True)
    state = balance.start(cluster)
    assert state.score == pytest.approx(slow_score(cluster.nodes), abs=1e-9)
    before = state.score
    for step in balance.run(state, balance.Options()):
        assert step.score < before
        before = step.score
        assert state.score == score.score(state.nodes)
        assert step.score == pytest.approx(slow_score(state.nodes), abs=1e-9)


@settings(max_examples=30)
@given(st.integers(0, 100_000))
def test_no_step_breaks_a_limit(seed: int) -> None:
    cluster = made(seed)
    state = balance.start(cluster)
    for step in balance.run(state, balance.Options()):
        instance = state.instances[step.instance]
        assert instance.movable
        assert instance.auto_balance
        for index in set(step.after) - set(step.before) - {-1}:
            node = state.nodes[index]
            assert not node.offline
            assert node.real.free_disk > 0 or not instance.local_storage
            assert node.real.free_spindles >= 0 or not instance.local_storage
        new = state.nodes[step.after[0]]
        if new.index != step.before[0] and not state.nodes[step.before[0]].offline:
            assert new.unallocated_memory > 0
            assert new.real.vcpus <= new.max_vcpus


@settings(max_examples=30)
@given(st.integers(0, 100_000))
def test_a_move_and_its_opposite_change_nothing(seed: int) -> None:
    cluster = made(seed, forthcoming=True)
    for instance in cluster.instances:
        if not instance.mirrored:
            continue
        once = moves.apply(cluster.nodes, instance, Move(Kind.FAILOVER), force=True)
        if isinstance(once, Fail):
            continue
        nodes = list(cluster.nodes)
        for node in once.nodes:
            nodes[node.index] = node
        back = moves.apply(nodes, once.instance, Move(Kind.FAILOVER), force=True)
        if isinstance(back, Fail):
            continue
        for node in back.nodes:
            nodes[node.index] = node
        assert facts(nodes) == facts(cluster.nodes)
        assert back.instance.nodes == instance.nodes
        assert back.instance.location_score == instance.location_score


def test_a_move_does_not_change_the_cluster_it_was_tried_in() -> None:
    cluster = made(7)
    before = facts(cluster.nodes)
    for instance in cluster.instances:
        for move in balance.candidates(instance, cluster.nodes, [0, 1], balance.Options()):
            moves.apply(cluster.nodes, instance, move)
    assert facts(cluster.nodes) == before


def give_units(cluster: Cluster) -> None:
    """Give the nodes a volume group with two kinds of units, and some a directory for files."""
    for number, node in enumerate(cluster.nodes):
        space, free = int(node.total_disk), node.real.free_disk
        node.storage = {
            ("drbd8", "xenvg"): StorageUnit(space, free),
            ("lvm-vg", "xenvg"): StorageUnit(space, free),
        }
        if number % 2:
            node.storage[("file", "/srv")] = StorageUnit(50000, 40000 - number * 500)
    units.derive(cluster)


@pytest.mark.parametrize("seed", range(60))
def test_arrays_find_the_same_steps(seed: int) -> None:
    found = []
    for arrays_from in (1 << 40, 0):
        cluster = text.parse(random_clusters.make(seed, forthcoming=True)[0])
        if seed % 2:
            give_units(cluster)
        model.prepare(cluster)
        options = balance.Options(
            arrays_from=arrays_from,
            restricted_migration=seed % 5 == 0,
            evacuate=seed % 7 == 0,
            disk_moves=seed % 11 != 0,
            instance_moves=seed % 13 != 0,
            ignore_soft_errors=seed % 3 == 0,
        )
        state = balance.start(cluster)
        found.append(list(balance.run(state, options)))
    assert found[0] == found[1]


def test_estimates_on_arrays_are_the_scores() -> None:
    checked = 0
    for seed in range(40):
        cluster = made(seed)
        if not arrays.usable(cluster.nodes):
            continue
        values = balance.Values(cluster.nodes)
        estimates = arrays.Estimates(cluster.nodes, values.rows)
        chosen = balance.movable(balance.start(cluster), balance.Options())
        for kind, some in balance.kinds_of(chosen, cluster.nodes, balance.Options()):
            if not some:
                continue
            table = estimates.estimate(some, kind)
            for row, instance in enumerate(some):
                for column in range(table.shape[1]):
                    target = -1 if kind == Kind.FAILOVER else column
                    if target in instance.nodes:
                        continue
                    done = moves.apply(cluster.nodes, instance, Move(kind, target))
                    if isinstance(done, Fail):
                        continue
                    exact = values.exact(done.nodes, [values.row(node) for node in done.nodes])
                    if math.isfinite(table[row, column]):
                        assert table[row, column] == pytest.approx(exact, abs=1e-9)
                        checked += 1
    assert checked > 500


def test_sets_of_jobs_share_no_nodes(load: Callable[..., Cluster]) -> None:
    cluster = load("generated/simu-rebal-merged.standard").only(0)
    state = balance.start(cluster)
    steps = list(balance.run(state, balance.Options()))
    sets = balance.job_sets(steps)
    assert [step for part in sets for step in part] == steps
    for part in sets:
        involved = [index for step in part for index in step.involved]
        assert len(involved) == len(set(involved))


@pytest.mark.programs
@pytest.mark.long
@pytest.mark.skipif(
    "GANETI_LONG" not in os.environ, reason="takes minutes; make check-long runs it"
)
@pytest.mark.skipif(not ORIGINAL.exists(), reason="package ganeti-htools-3.0 is not installed")
def test_takes_the_same_steps_as_the_original(run: Run, tmp_path: Path) -> None:
    """On a thousand clusters; every step is chosen from hundreds of moves to the last bit.

    Of every second cluster one node is lost.
    """
    path = tmp_path / "cluster.data"
    wrong = []
    for seed in range(1000):
        content, options = random_clusters.make(seed)
        path.write_text(random_clusters.lose(content, seed % 4 // 2) if seed % 2 else content)
        words = ["-t", str(path), *options]
        original = subprocess.run(
            [str(ORIGINAL), *words],
            env={"HTOOLS": "hbal", "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        found = run("hbal", *words)
        if (found[0], found[1].strip()) != (original.returncode, original.stdout.strip()):
            wrong.append(seed)
    print(f"{len(wrong)} of 1000 clusters differ: {wrong}")
    assert wrong == []


@pytest.mark.parametrize(("free", "result"), [(1, None), (0, Fail.MEMORY)])
def test_a_node_without_memory_for_its_stopped_instances_takes_no_replica(
    load: Callable[..., Cluster], free: int, result: Fail | None
) -> None:
    """Also no replica of an instance which uses no memory, as in the original."""
    cluster = load(
        "g|u|preferred||\n\n"
        "n1|4096|0|4096|99999|90000|8|N|u|1\nn2|4096|0|4096|99999|90000|8|N|u|1\n"
        "n3|4096|0|4096|99999|90000|8|N|u|1\n\n"
        "moved|128|1024|1|ADMIN_offline|Y|n1|n2|drbd||1\n"
        f"stopped|{4096 - free}|1024|1|ADMIN_offline|Y|n3|n1|drbd||1\n\n"
    )
    moved, third = cluster.instances[0], cluster.nodes[2]
    assert third.add_secondary(moved, 0) is result
