"""Parts of the model by small examples, computed by hand from the manual pages."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ganeti.htools import balance, moves, place, score
from ganeti.htools import cluster as model
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import Disk, Instance, Load, Size
from ganeti.htools.loading import text
from ganeti.htools.moves import Kind, Move
from ganeti.htools.node import Fail, Node, Resources, Usage

from .conftest import Run
from .test_balance import made

POLICY = "128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|drbd,ext|8.0|32.0"
NAMES = [one.name for one in score.COMPONENTS]


def cluster_of(
    nodes: list[str],
    instances: list[tuple[str, str, str]],
    tags: tuple[str, ...] = (),
    *,
    speeds: tuple[float, ...] = (),
    options: model.Options | None = None,
) -> Cluster:
    """Make a cluster of equal nodes.

    :param nodes: the tags of each node, which are named n1, n2 and so on.
    :param instances: primary node, secondary node (empty for shared storage) and tags of each.
    """
    used = [sum(first == f"n{n}" for first, _, _ in instances) for n in range(1, len(nodes) + 1)]
    lines = ["grp|g|preferred||", ""]
    for number, own in enumerate(nodes):
        speed = speeds[number] if speeds else 1.0
        lines.append(
            f"n{number + 1}|16384|0|{16384 - 1024 * used[number]}|102400|102400|8|N|g|1|{own}|N|0|0"
            f"|{speed}"
        )
    lines.append("")
    for number, (first, second, own) in enumerate(instances):
        template = "drbd" if second else "ext"
        lines.append(f"i{number + 1}|1024|1024|1|running|Y|{first}|{second}|{template}|{own}|1|-|N")
    lines += ["", *tags, "", f"|{POLICY}", f"grp|{POLICY}"]
    cluster = text.parse("".join(f"{line}\n" for line in lines))
    model.prepare(cluster, options)
    return cluster


def component(cluster: Cluster, name: str) -> float:
    return score.details(cluster.nodes)[NAMES.index(name)]


def first_steps(cluster: Cluster, count: int = 20) -> list[tuple[str, str]]:
    """The moves of a search: instance, and its primary node afterwards."""
    state = balance.start(cluster)
    options = balance.Options(min_gain=0.0)
    return [
        (cluster.instances[one.instance].name, cluster.nodes[one.after[0]].name)
        for one in balance.run(state, options, max_steps=count)
    ]


# -- locations ------------------------------------------------------------------------------------

DESIRED = ("htools:nlocation:power", "htools:desiredlocation:power")


def test_a_desired_location_which_the_primary_node_lacks_counts_one() -> None:
    nodes = ["power:a", "power:b", "power:b"]
    instances = [("n1", "", "power:b"), ("n2", "", "power:b"), ("n3", "", "")]
    cluster = cluster_of(nodes, instances, DESIRED)
    assert [one.location_score for one in cluster.instances] == [1, 0, 0]
    assert component(cluster, "location_score") == 1.0
    # Without the tag of the cluster nothing is desired.
    assert component(cluster_of(nodes, instances, DESIRED[:1]), "location_score") == 0.0


def test_both_nodes_in_one_location_count_one_for_each_common_tag() -> None:
    nodes = ["power:a,power:x", "power:a,power:x", "power:a", "power:b"]
    instances = [("n1", "n2", ""), ("n1", "n3", ""), ("n1", "n4", "")]
    cluster = cluster_of(nodes, instances, DESIRED)
    assert [one.location_score for one in cluster.instances] == [2, 1, 0]
    assert component(cluster, "location_score") == 3.0


def test_balancing_moves_an_instance_to_its_desired_location() -> None:
    instances = [("n1", "", "power:b"), ("n2", "", "")]
    cluster = cluster_of(["power:a", "power:b", "power:b"], instances, DESIRED)
    assert first_steps(cluster) == [("i1", "n3")]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000))
def test_the_location_score_is_counted_from_the_tags(seed: int) -> None:
    cluster = made(seed)
    for one in cluster.instances:
        nodes = [cluster.nodes[index] for index in one.nodes]
        common = set.intersection(*(set(node.location_tags) for node in nodes))
        missing = set(one.desired_locations) - set(nodes[0].location_tags)
        expected = (len(common) if len(nodes) > 1 else 0) + len(missing)
        assert one.location_score == expected
    for node in cluster.nodes:
        own = [cluster.instances[index] for index in node.real.primaries]
        assert node.location_score == sum(one.location_score for one in own)


# -- exclusion tags -------------------------------------------------------------------------------


def test_two_instances_with_one_exclusion_tag_conflict() -> None:
    instances = [("n1", "", "svc:web"), ("n1", "", "svc:web"), ("n1", "", "svc:db"), ("n2", "", "")]
    tags = ("htools:iextags:svc",)
    cluster = cluster_of(["", ""], instances, tags)
    assert component(cluster, "pri_tags_score") == 1.0
    assert component(cluster_of(["", ""], instances), "pri_tags_score") == 0.0
    # The other web server may not come to this node, and one of both leaves it.
    web = cluster.instances[0]
    assert cluster.nodes[0].copy().add_primary(web) is Fail.TAGS
    assert [name in ("i1", "i2") for name, _ in first_steps(cluster)][:1] == [True]


def test_a_new_instance_avoids_a_node_with_its_exclusion_tag() -> None:
    cluster = cluster_of(["", "", ""], [("n1", "", "svc:web")], ("htools:iextags:svc",))
    size = Size(memory=1024, disk=0, vcpus=1, disks=(Disk(1024),))
    new = Instance("new", size, "ext", tags=("svc:web",))
    model.prepare_new(cluster, new)
    found = place.Places(cluster, place.Options()).find(new, 1)
    assert found.failure_counts() == {Fail.TAGS: 1}
    assert found.best is not None
    assert found.best.changed[0].name in ("n2", "n3")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000))
def test_the_conflicts_are_counted_from_the_tags(seed: int) -> None:
    cluster = made(seed)
    for node in cluster.nodes:
        tags = [
            tag for index in node.forth.primaries for tag in cluster.instances[index].exclusion_tags
        ]
        assert node.conflicting_tags == len(tags) - len(set(tags))


# -- migration tags -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "rules", "allowed"),
    [
        ("hv:a", "hv:a", (), True),
        ("hv:a", "hv:b", (), False),
        ("hv:a", "", (), False),
        ("", "hv:a", (), True),
        ("hv:a", "hv:b", ("htools:allowmigration:hv:a::hv:b",), True),
        ("hv:b", "hv:a", ("htools:allowmigration:hv:a::hv:b",), False),
        ("hv:a,hv:c", "hv:a", (), False),
    ],
)
def test_migration_tags(source: str, target: str, rules: tuple[str, ...], allowed: bool) -> None:
    tags = ("htools:migration:hv", *rules)
    cluster = cluster_of([source, target], [("n1", "n2", ""), ("n1", "", "")], tags)
    expected = None if allowed else Fail.MIGRATION
    for one, move in zip(
        cluster.instances, (Move(Kind.FAILOVER), Move(Kind.FAILOVER_TO_ANY, 1)), strict=True
    ):
        done = moves.apply(cluster.nodes, one, move)
        assert (done if isinstance(done, Fail) else None) == expected


# -- processors -----------------------------------------------------------------------------------


def test_a_node_with_faster_processors_counts_as_less_loaded() -> None:
    instances = [("n1", "", ""), ("n1", "", ""), ("n2", "", ""), ("n2", "", "")]
    equal = cluster_of(["", ""], instances)
    assert component(equal, "vcpu_ratio_cv") == 0.0
    # 2 / 8 virtual CPUs for each real one; divided by the speeds 0.125 and 0.25.
    faster = cluster_of(["", ""], instances, speeds=(2.0, 1.0))
    assert component(faster, "vcpu_ratio_cv") == pytest.approx((0.25 - 0.125) / 2)
    assert component(faster, "vcpu_ratio_cv_forth") == pytest.approx(0.0625)


# -- utilisation ----------------------------------------------------------------------------------


def test_each_instance_is_one_unit_of_load_unless_it_is_known() -> None:
    instances = [("n1", "n2", ""), ("n1", "n2", ""), ("n2", "n1", "")]
    # Primary instances count for all four kinds, secondary ones for the disks only.
    cluster = cluster_of(["", ""], instances)
    assert cluster.nodes[0].load == Load(2.0, 2.0, 3.0, 2.0)
    assert cluster.nodes[1].load == Load(1.0, 1.0, 3.0, 1.0)
    assert component(cluster, "cpu_load_cv") == pytest.approx(0.5)
    assert component(cluster, "disk_load_cv") == 0.0
    known = model.Options(load={"i1": Load(0.0, 4.0, 2.0, 0.5)})
    cluster = cluster_of(["", ""], instances, options=known)
    assert cluster.nodes[0].load == Load(1.0, 5.0, 4.0, 1.5)
    assert component(cluster, "mem_load_cv") == pytest.approx(2.0)
    ignored = cluster_of(["", ""], instances, options=model.Options(ignore_load=True))
    assert [component(ignored, f"{kind}_load_cv") for kind in ("cpu", "mem", "disk", "net")] == [
        0.0
    ] * 4


def test_the_load_decides_which_instance_moves(run: Run, tmp_path: Path) -> None:
    cluster = cluster_of(["", ""], [("n1", "", ""), ("n1", "", ""), ("n2", "", "")])
    source, load = tmp_path / "cluster", tmp_path / "load"
    source.write_text(text.serialize(cluster))
    load.write_text("i1 0 0 0 0\ni2 8 8 8 8\ni3 8 8 8 8\n")
    # The busy instance stays alone, and the idle one makes the virtual CPUs no better elsewhere.
    _, without, _ = run("hbal", "-t", str(source), "-q")
    assert "No solution found" in without
    load.write_text("i1 6 6 6 6\ni2 1 1 1 1\ni3 1 1 1 1\n")
    _, out, _ = run("hbal", "-t", str(source), "-q", "-U", str(load))
    assert " i2 n1 => n2 " in " ".join(out.split())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000), st.floats(0.1, 50))
def test_the_deviation_of_the_load_grows_with_its_unit(seed: int, factor: float) -> None:
    """Twice the load everywhere is twice the deviation, and no other component changes."""
    before, after = made(seed), made(seed)
    for node in after.nodes:
        node.load = Load(*(factor * one for one in node.load))
    for name, one, other in zip(
        NAMES, score.details(before.nodes), score.details(after.nodes), strict=True
    ):
        if name.endswith("_load_cv"):
            assert math.isclose(other, factor * one, rel_tol=1e-9, abs_tol=1e-9)
        else:
            assert other == one


@given(st.lists(st.floats(-1e6, 1e6)))
@example([1e16, 1.0, -1e16])
@example([0.1] * 10)
def test_sums_are_made_one_number_after_the_other(values: list[float]) -> None:
    """To the last bit, because equal moves are equal then; a sum which compensates differs."""
    total = 0.0
    for value in values:
        total += value
    assert score.plain_sum(values) == total


def test_a_reserved_instance_counts_only_with_forthcoming() -> None:
    resources = Resources(
        total_memory=8192, free_memory=8192, total_disk=10000, free_disk=10000, total_cpus=4
    )
    node = Node("a", resources)
    node.max_spindles = 16.0
    size = Size(memory=1024, disk=1000, vcpus=2)
    real = Instance("one", size, "plain", [0])
    reserved = Instance("two", size, "plain", [0], forthcoming=True)
    real.index, reserved.index = 0, 1
    assert node.add_primary(real) is None
    # Without forthcoming instances nothing is counted twice.
    assert node.real is node.forth
    assert node.add_primary(reserved) is None
    assert node.real == Usage((0,), (), 3, 9000, 1.0, 0)
    assert node.forth == Usage((1, 0), (), 5, 8000, 2.0, 0)
    assert (node.unallocated_memory, node.free_memory_forth) == (7168, 6144)
    node.renumber(lambda indices: tuple(index + 5 for index in indices))
    assert (node.real.primaries, node.forth.primaries) == ((5,), (6, 5))
    real.index = 5
    node.remove_primary(real)
    assert node.real == Usage((), (), 1, 10000, 0.0, 0)
    assert node.forth == Usage((6,), (), 3, 9000, 1.0, 0)
