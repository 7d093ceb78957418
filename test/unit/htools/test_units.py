"""Storage units: each disk must fit the unit it wants, not the node in total."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.htools import balance, moves, score, units
from ganeti.htools import cluster as model
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import Disk, Instance, Size
from ganeti.htools.loading import text
from ganeti.htools.moves import Kind, Move
from ganeti.htools.node import Fail
from ganeti.htools.space import StorageUnit

from . import random_clusters
from .conftest import DATA, Run
from .random_clusters import lose, make_request, with_units
from .test_place import answered as answer_to
from .test_place import made_request

NODES = """\
default|u1|preferred||

n1|8192|0|7680|100000|90000|8|M|u1|1||N|0|1|1.0|{first}
n2|8192|0|8192|100000|99000|8|N|u1|1||N|0|1|1.0|{second}
n3|8192|0|8192|100000|99000|8|N|u1|1||N|0|1|1.0|{third}

i1|512|2000|1|running|Y|n1|n2|drbd||1|-|N


"""


def cluster(load: Callable[..., Cluster], first: str, second: str, third: str) -> Cluster:
    return load(NODES.format(first=first, second=second, third=third))


def test_a_disk_needs_room_in_its_own_unit(load: Callable[..., Cluster]) -> None:
    """10 GB here and 10 GB there do not take a disk of 15 GB."""
    made = cluster(
        load,
        "4000,8000,drbd,xenvg",
        "4000,8000,drbd,xenvg",
        "1500,8000,drbd,xenvg;9000,9000,file,/srv",
    )
    done = moves.apply(made.nodes, made.instances[0], Move(Kind.REPLACE_SECONDARY, 2))
    assert done is Fail.DISK


def test_totals_do_not_count_where_units_are_known(load: Callable[..., Cluster]) -> None:
    made = cluster(load, "4000,8000,drbd,xenvg", "4000,8000,drbd,xenvg", "3000,8000,drbd,xenvg")
    made.nodes[2].real = made.nodes[2].real._replace(free_disk=0)
    done = moves.apply(made.nodes, made.instances[0], Move(Kind.REPLACE_SECONDARY, 2))
    assert isinstance(done, moves.Done)


def test_a_node_without_the_unit_takes_no_disk(load: Callable[..., Cluster]) -> None:
    made = cluster(load, "4000,8000,drbd,xenvg", "4000,8000,drbd,xenvg", "9000,9000,drbd,other")
    done = moves.apply(made.nodes, made.instances[0], Move(Kind.REPLACE_SECONDARY, 2))
    assert done is Fail.DISK


def test_the_old_way_without_units(load: Callable[..., Cluster]) -> None:
    made = cluster(load, "", "", "")
    done = moves.apply(made.nodes, made.instances[0], Move(Kind.REPLACE_SECONDARY, 2))
    assert isinstance(done, moves.Done)
    assert all(node.storage is None for node in made.nodes)


def test_a_move_changes_the_free_space_of_units(load: Callable[..., Cluster]) -> None:
    unit = "4000,8000,drbd,xenvg"
    made = cluster(load, unit, unit, unit)
    done = moves.apply(made.nodes, made.instances[0], Move(Kind.REPLACE_SECONDARY, 2))
    assert isinstance(done, moves.Done)
    free = {
        node.index: node.storage[("drbd8", "xenvg")].free for node in done.nodes if node.storage
    }
    assert free == {0: 4000, 1: 6000, 2: 2000}


def test_a_mirrored_and_a_plain_unit_of_one_volume_group_share_its_space(
    load: Callable[..., Cluster],
) -> None:
    unit = "4000,8000,drbd,xenvg;4000,8000,lvm-vg,xenvg,false"
    made = cluster(load, unit, unit, unit)
    done = moves.apply(made.nodes, made.instances[0], Move(Kind.REPLACE_SECONDARY, 2))
    assert isinstance(done, moves.Done)
    target = done.nodes[2].storage
    assert target is not None
    assert target[("lvm-vg", "xenvg")].free == target[("drbd8", "xenvg")].free == 2000


@pytest.mark.parametrize(
    ("template", "unit", "fits"),
    [
        ("file", "file,/srv", False),
        ("sharedfile", "sharedfile,/srv", False),
        ("plain", "lvm-vg,xenvg,false", False),
        ("ext", "file,/srv", True),
        ("diskless", "file,/srv", True),
    ],
)
def test_a_new_disk_of_each_kind_needs_space_in_its_unit(
    load: Callable[..., Cluster], template: str, unit: str, fits: bool
) -> None:
    free = f"1000,8000,{unit}"
    made = cluster(load, free, free, free)
    disk = Disk(2000)
    new = Instance("new", Size(memory=128, disk=2000, vcpus=1, disks=(disk,)), template, [0])
    units.derive_for(new, made.nodes[0].storage or ())
    assert (made.nodes[1].copy().add_primary(new) is None) == fits
    small = new.resized(disk=500, disks=(new.disks[0]._replace(size=500),))
    assert made.nodes[1].copy().add_primary(small) is None


def test_a_move_on_shared_storage_takes_no_space(load: Callable[..., Cluster]) -> None:
    free = "100,8000,sharedfile,/srv"
    text_ = NODES.format(first=free, second=free, third=free)
    made = load(text_.replace("|n1|n2|drbd|", "|n1||sharedfile|"))
    done = moves.apply(made.nodes, made.instances[0], Move(Kind.FAILOVER_TO_ANY, 2))
    assert isinstance(done, moves.Done)
    assert [node.storage[("sharedfile", "/srv")].free for node in done.nodes if node.storage] == [
        100,
        100,
    ]


def test_the_metric_is_the_mean_over_desired_units(load: Callable[..., Cluster]) -> None:
    made = cluster(
        load,
        "2000,8000,drbd,xenvg;500,1000,file,/srv",
        "6000,8000,drbd,xenvg",
        "4000,8000,drbd,xenvg;500,1000,file,/srv",
    )
    mirrored = score.deviation([0.25, 0.75, 0.5])
    values = score.details(made.nodes)
    assert values[score.FREE_DISK] == pytest.approx((mirrored + 0.0) / 2)


def test_one_unit_on_each_node_has_the_value_of_the_old_metric(
    load: Callable[..., Cluster],
) -> None:
    plain = cluster(load, "", "", "")
    with_units = cluster(
        load, *(f"{node.real.free_disk},100000,drbd,xenvg" for node in plain.nodes)
    )
    assert score.details(with_units.nodes)[score.FREE_DISK] == pytest.approx(
        score.details(plain.nodes)[score.FREE_DISK], abs=1e-12
    )


@pytest.mark.parametrize(
    "column", ["5", "a,b,file,/srv", "1,2,file,/srv;3,4,file,/srv", "1,2,file"]
)
def test_a_wrong_column_is_an_error_with_the_name_of_the_node(column: str) -> None:
    with pytest.raises(errors.ParseError, match="n1"):
        text.parse(NODES.format(first=column, second="", third=""))


def test_the_column_is_written_as_it_was_read(load: Callable[..., Cluster]) -> None:
    unit = "4000,8000,drbd8,xenvg;5000,9000,lvm-vg,ssd,true"
    made = cluster(load, unit, unit, unit)
    assert text.serialize(made).count(f"|{unit}\n") == 3
    assert units.serialize({("file", "/srv"): StorageUnit(9, 5)}) == "5,9,file,/srv"


def test_units_of_a_request() -> None:
    described = [
        {"sunit": ["drbd8", "xenvg", []], "free": 2000, "total": 4000},
        {"sunit": ["lvm-vg", "xenssdvg", [False]], "free": 1024, "total": 1024},
    ]
    found = units.from_description("n1", described)
    assert found is not None
    assert found[("drbd8", "xenvg")].free == 2000
    assert found[("lvm-vg", "xenssdvg")].arguments == ("false",)
    assert units.from_description("n1", None) is None
    with pytest.raises(errors.ParseError, match="n1: invalid storage units"):
        units.from_description("n1", [{"sunit": ["drbd8"]}])


def test_hbal_moves_within_units(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.data"
    unit = "4000,8000,drbd,xenvg"
    path.write_text(NODES.format(first=unit, second=unit, third="100,8000,drbd,xenvg"))
    code, out, _ = run("hbal", "-t", str(path))
    assert code == 0
    assert "n3" not in out


# -- the allocator ---------------------------------------------------------------------------------


def request(**changes: Any) -> dict[str, Any]:
    """A request whose nodes have 10 GB for mirrored disks and 10 GB for plain ones."""
    found: dict[str, Any] = json.loads((DATA / "hail-alloc-drbd.json").read_text())
    for node in found["nodes"].values():
        node["total_disk"], node["free_disk"] = 20000, 20000
        node["storage"] = [
            {"sunit": ["drbd8", "mirrored", []], "free": 10000, "total": 10000},
            {"sunit": ["lvm-vg", "plain", [False]], "free": 10000, "total": 10000},
        ]
    found["instances"] = {}
    found["request"].update(changes)
    return found


def answered(run: Run, tmp_path: Path, description: dict[str, Any]) -> dict[str, Any]:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(description))
    code, out, _ = run("hail", str(path))
    assert code == 0
    answer: dict[str, Any] = json.loads(out)
    return answer


@pytest.mark.parametrize(
    ("template", "required", "sizes", "fits"),
    [
        ("drbd", 2, [9000], True),
        # The example of the design: 15 GB of one kind do not fit 10 GB of each kind.
        ("drbd", 2, [15000], False),
        ("plain", 1, [15000], False),
        ("plain", 1, [9000], True),
        # All disks of an instance must find space, not each of them alone.
        ("plain", 1, [6000, 6000], False),
        ("plain", 1, [5000, 5000], True),
        # The nodes have no directory for files.
        ("file", 1, [100], False),
    ],
)
def test_hail_places_disks_in_units(
    run: Run, tmp_path: Path, template: str, required: int, sizes: list[int], fits: bool
) -> None:
    disks = [{"size": size, "mode": "rw", "spindles": 1} for size in sizes]
    described = request(
        disk_template=template, required_nodes=required, disks=disks, disk_space_total=sum(sizes)
    )
    for group in described["nodegroups"].values():
        group["ipolicy"]["disk-templates"] = ["drbd", "plain", "file"]
    answer = answered(run, tmp_path, described)
    assert answer["success"] is fits
    if not fits:
        assert "FailDisk" in answer["info"]


def test_hail_ignores_totals_where_units_are_given(run: Run, tmp_path: Path) -> None:
    """What was illegal becomes legal when the total is less than the sum of the units."""
    described = request(disks=[{"size": 9000, "mode": "rw", "spindles": 1}], disk_space_total=9000)
    for node in described["nodes"].values():
        node["free_disk"] = 0
    assert answered(run, tmp_path, described)["success"]
    for node in described["nodes"].values():
        del node["storage"]
    assert not answered(run, tmp_path, described)["success"]


def test_hail_needs_every_node_to_have_the_unit(run: Run, tmp_path: Path) -> None:
    described = request(disks=[{"size": 9000, "mode": "rw", "spindles": 1}], disk_space_total=9000)
    names = sorted(described["nodes"])
    for name in names[2:]:
        del described["nodes"][name]["storage"][0]
    assert sorted(answered(run, tmp_path, described)["result"]) == names[:2]


# -- moves -----------------------------------------------------------------------------------------


def in_volume_groups(load: Callable[..., Cluster], third: str) -> Cluster:
    """A mirrored instance with a disk in each of two volume groups."""
    both = "4000,8000,drbd,xenvg;4000,8000,drbd,ssd"
    made = cluster(load, both, both, third)
    instance = made.instances[0]
    instance.disks = (Disk(1000, unit=("drbd8", "xenvg")), Disk(1000, unit=("drbd8", "ssd")))
    return made


@pytest.mark.parametrize(
    ("third", "fits"),
    [
        ("1000,8000,drbd,xenvg;1000,8000,drbd,ssd", True),
        ("5000,8000,drbd,xenvg;900,8000,drbd,ssd", False),
        ("5000,8000,drbd,xenvg", False),
    ],
)
def test_each_disk_needs_the_unit_which_it_has(
    load: Callable[..., Cluster], third: str, fits: bool
) -> None:
    made = in_volume_groups(load, third)
    done = moves.apply(made.nodes, made.instances[0], Move(Kind.REPLACE_SECONDARY, 2))
    assert isinstance(done, moves.Done) == fits
    if isinstance(done, Fail):
        assert done is Fail.DISK


def test_a_moved_disk_keeps_its_desired_unit(load: Callable[..., Cluster]) -> None:
    made = in_volume_groups(load, "1500,8000,drbd,xenvg;3000,8000,drbd,ssd")
    wanted = [disk.unit for disk in made.instances[0].disks]
    done = moves.apply(made.nodes, made.instances[0], Move(Kind.FAILOVER_AND_REPLACE, 2))
    assert isinstance(done, moves.Done)
    assert [disk.unit for disk in done.instance.disks] == wanted
    target = next(node for node in done.nodes if node.index == 2)
    assert target.storage is not None
    assert target.storage[("drbd8", "xenvg")].free == 500
    assert target.storage[("drbd8", "ssd")].free == 2000


def test_exclusive_storage_needs_space_in_the_unit_and_spindles(
    load: Callable[..., Cluster],
) -> None:
    unit = "4000,8000,lvm-vg,xenvg,true"
    source = NODES.format(first=unit, second=unit, third=unit).replace(
        "|u1|1||N|0|1|1.0", "|u1|4||Y|2|1|1.0"
    )
    made = load(source.replace("|n1|n2|drbd||1|-|N", "|n1||plain||1|1|N"))
    assert made.nodes[1].exclusive_storage

    def tried(size: int, spindles: int) -> Fail | None:
        disks = (Disk(size, spindles, unit=("lvm-vg", "xenvg")),)
        new = Instance("new", Size(memory=128, disk=size, vcpus=1, disks=disks), "plain", [1])
        return made.nodes[1].copy().add_primary(new)

    assert tried(3000, 2) is None
    assert tried(5000, 1) is Fail.DISK
    assert tried(3000, 3) is Fail.SPINDLES


# -- the metric ------------------------------------------------------------------------------------


def test_the_weight_of_the_metric_is_that_of_free_disk_space(load: Callable[..., Cluster]) -> None:
    made = cluster(load, "2000,8000,drbd,xenvg", "6000,8000,drbd,xenvg", "4000,8000,drbd,xenvg")
    without = cluster(load, "", "", "")
    names = [one.name for one in score.COMPONENTS]
    assert score.COMPONENTS[score.FREE_DISK].weight == 0.5
    assert names[score.FREE_DISK] == "free_disk_cv"
    units_value = score.details(made.nodes)[score.FREE_DISK]
    old_value = score.details(without.nodes)[score.FREE_DISK]
    difference = score.score(made.nodes) - score.score(without.nodes)
    assert difference == pytest.approx(0.5 * (units_value - old_value), abs=1e-12)


def test_scarce_units_count_more_than_large_ones(load: Callable[..., Cluster]) -> None:
    """The same 900 MiB are a larger share of a small unit; nodes without it do not count."""
    small = "100,1000,file,/srv", "1000,1000,file,/srv"
    large = "99100,100000,file,/srv", "100000,100000,file,/srv"

    def metric(first: str, second: str) -> float:
        made = cluster(load, first, second, "8000,8000,drbd,xenvg")
        return score.details(made.nodes)[score.FREE_DISK]

    assert metric(*small) == pytest.approx(score.deviation([0.1, 1.0]) / 2)
    assert metric(*small) > 50 * metric(*large)


def test_units_of_some_nodes_only_are_not_enough_for_the_metric(
    load: Callable[..., Cluster],
) -> None:
    made = cluster(load, "2000,8000,drbd,xenvg", "6000,8000,drbd,xenvg", "")
    old = cluster(load, "", "", "")
    assert score.details(made.nodes)[score.FREE_DISK] == score.details(old.nodes)[score.FREE_DISK]


def test_the_example_of_the_design_is_read() -> None:
    column = "2000,4000,drbd,xenvg;5000,10000,file,/path/to/storage1"
    found = units.parse("n1", column)
    assert found is not None
    assert {wanted: (unit.free, unit.total) for wanted, unit in found.items()} == {
        ("drbd8", "xenvg"): (2000, 4000),
        ("file", "/path/to/storage1"): (5000, 10000),
    }


# -- lost nodes ------------------------------------------------------------------------------------


def lost(load: Callable[..., Cluster], *names: str) -> Cluster:
    """A mirrored instance on n1 and n2, some of which do not answer; n3 has terabytes."""
    content = NODES.format(
        first="4000,8000,drbd,xenvg",
        second="4000,8000,drbd,xenvg",
        third="4000000,4000000,drbd,xenvg",
    )
    for name in names:
        content = lose(content, int(name[1:]) - 1)
    return load(content)


@pytest.mark.parametrize(
    ("name", "move"),
    [
        ("n1", Move(Kind.FAILOVER)),
        ("n1", Move(Kind.FAILOVER_AND_REPLACE, 2)),
        ("n2", Move(Kind.REPLACE_SECONDARY, 2)),
        ("n2", Move(Kind.REPLACE_AND_FAILOVER, 2)),
    ],
)
def test_the_unit_of_a_disk_is_known_from_the_node_that_is_left(
    load: Callable[..., Cluster], name: str, move: Move
) -> None:
    made = lost(load, name)
    assert [disk.unit for disk in made.instances[0].disks] == [("drbd8", "xenvg")]
    assert isinstance(moves.apply(made.nodes, made.instances[0], move), moves.Done)


def test_the_unit_of_a_disk_is_known_from_another_node_of_the_group(
    load: Callable[..., Cluster],
) -> None:
    made = lost(load, "n1", "n2")
    assert [disk.unit for disk in made.instances[0].disks] == [("drbd8", "xenvg")]


def test_the_group_of_an_instance_counts_more_than_other_groups(
    load: Callable[..., Cluster],
) -> None:
    content = lose(lose(NODES.format(first="", second="", third="9,9,drbd,own"), 0), 1).replace(
        "default|u1|preferred||\n", "default|u1|preferred||\nother|u2|preferred||\n"
    )
    foreign = "n0|8192|0|7680|100000|90000|8|N|u2|1||N|0|1|1.0|9,9,drbd,foreign\n"
    made = load(content.replace("n1|?", foreign + "n1|?"))
    assert [disk.unit for disk in made.instances[0].disks] == [("drbd8", "own")]
    made = load(content.replace("n1|?", foreign + "n1|?").replace("9,9,drbd,own", "9,9,file,/srv"))
    assert [disk.unit for disk in made.instances[0].disks] == [("drbd8", "foreign")]


def test_hbal_moves_instances_away_from_a_lost_node(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.data"
    unit = "4000,8000,drbd,xenvg"
    path.write_text(lose(NODES.format(first=unit, second=unit, third=unit), 0))
    code, out, _ = run("hbal", "-t", str(path), "--evac-mode", "-C")
    assert code == 0
    assert "gnt-instance migrate -f i1" in out
    assert "gnt-instance replace-disks -n n3 i1" in out


@pytest.mark.parametrize("seed", range(150))
def test_units_that_are_the_whole_disk_space_make_no_difference(seed: int) -> None:
    """Some nodes of most of these clusters are lost."""
    plain = make_request(seed)
    found = [answer_to(description) for description in (plain, with_units(plain))]
    old, new = found
    kind = plain["request"]["type"]
    assert old.success == new.success
    if kind == "multi-allocate":
        # Scores, and so the chosen nodes, may differ.
        assert old.info == new.info
    elif kind in ("node-evacuate", "change-group"):
        for part in (0, 1):
            names = [[one[0] for one in answered.result[part]] for answered in found]
            assert names[0] == names[1]
    elif not old.success:
        infos = [re.sub("score: [0-9.]+", "", one.info) for one in (old, new)]
        assert infos[0] == infos[1]


#: Clusters whose nodes share their spindles; of the others the metric counts spindles, not space.
SHARING = [
    seed
    for seed in range(60)
    if not text.parse(random_clusters.make(seed)[0]).nodes[0].exclusive_storage
]


@pytest.mark.parametrize("seed", SHARING)
def test_hbal_takes_the_same_steps_with_units_that_are_the_whole_disk_space(seed: int) -> None:
    found = []
    content = random_clusters.make(seed)[0]
    for with_storage in (False, True):
        cluster = text.parse(lose(content, seed % 2))
        if with_storage:
            for node in cluster.nodes:
                if not node.offline:
                    free = node.real.free_disk
                    node.storage = {("drbd8", "xenvg"): StorageUnit(int(node.total_disk), free)}
            units.derive(cluster)
        mirrored = [one.name for one in cluster.instances if one.mirrored]
        model.prepare(cluster, model.Options(selected=mirrored))
        found.append(list(balance.run(balance.start(cluster), balance.Options(evacuate=True))))
    steps = [[(step.instance, step.move) for step in one] for one in found]
    assert steps[0] == steps[1]


def test_a_lost_node_is_described_without_tags_as_by_the_original(
    load: Callable[..., Cluster],
) -> None:
    """Nothing migrates from it, so its migration tags forbid no failover."""
    content = NODES.format(first="", second="", third="").replace("|u1|1||N", "|u1|1|hv:old|N", 1)
    content = content.replace("\n\n\n", "\n\nhtools:migration:hv\n\n", 1)
    alive = load(content)
    assert alive.nodes[0].migration_tags == {"hv:old"}
    assert moves.apply(alive.nodes, alive.instances[0], Move(Kind.FAILOVER)) is Fail.MIGRATION
    dead = load(lose(content, 0))
    assert isinstance(moves.apply(dead.nodes, dead.instances[0], Move(Kind.FAILOVER)), moves.Done)


@pytest.mark.parametrize(("state", "moved"), [("offline", True), ("drained", False)])
def test_an_instance_fails_over_from_a_lost_node_with_migration_tags(
    state: str, moved: bool
) -> None:
    """The guest of a drained node still runs, so that it would migrate."""
    description = made_request()
    description["cluster_tags"] = ["htools:migration:hv"]
    description["nodes"]["node0"].update({state: True, "tags": ["hv:old"]})
    description["request"] = {
        "type": "node-evacuate", "instances": ["old"], "evac_mode": "primary-only",
    }  # fmt: skip
    assert bool(answer_to(description).result[0]) is moved


def test_hbal_moves_the_instances_of_a_lost_node_in_a_group_of_two(
    run: Run, tmp_path: Path
) -> None:
    """The memory of one node is all that is known, so that there is no optimum to compare with."""
    path = tmp_path / "cluster.data"
    lines = [line for line in NODES.format(first="", second="", third="").splitlines(True)
             if not line.startswith("n3")]  # fmt: skip
    path.write_text(lose("".join(lines), 0))
    code, out, _ = run("hbal", "-t", str(path), "--no-disk-moves")
    assert code == 0
    assert " 1. i1 n1:n2 => n2:n1 " in out
    path.write_text(lose(lose("".join(lines), 0), 1))
    code, out, _ = run("hbal", "-t", str(path))
    assert code == 0
    assert "Cluster is already well balanced" in out
