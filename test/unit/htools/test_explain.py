"""Why nodes are or are not chosen for a new instance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ganeti.htools import answer, explain, place
from ganeti.htools import cluster as model
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import Disk, Instance, Size
from ganeti.htools.loading import request as loading
from ganeti.htools.loading import text
from ganeti.htools.loading.request import New

from .conftest import DATA, Run
from .random_clusters import make_plain

POLICY = "128,1,1024,1,1,1|128,1,1024,1,1,1;4096,4,10000,2,8,12|drbd,plain,ext|2.0|32.0"
CLUSTER = f"""\
one|u1|preferred||
far|u2|last_resort||
shut|u3|unallocable||

n1|8192|100|8000|90000|90000|4|N|u1|1||N|0|1|1.0
n2|8192|100|100|90000|90000|4|N|u1|1||N|0|1|1.0
n3|8192|100|8000|90000|500|4|N|u1|1||N|0|1|1.0
n4|8192|100|8000|90000|90000|4|N|u2|1||N|0|1|1.0
n5|8192|100|8000|90000|90000|4|N|u2|1||N|0|1|1.0
n6|8192|100|8000|90000|90000|4|N|u3|1||N|0|1|1.0
n7|8192|100|8000|90000|90000|4|Y|u1|1||N|0|1|1.0



|{POLICY}
one|{POLICY}
far|{POLICY}
shut|{POLICY}
"""


def cluster_of(source: str) -> Cluster:
    cluster = text.parse(source)
    model.prepare(cluster)
    return cluster


def new(template: str = "drbd", **changes: int) -> Instance:
    size = Size(512, 2048, 1)._replace(**changes)
    return Instance("new", size._replace(disks=(Disk(size.disk),)), template)


def explained(instance: Instance, required: int = 1, **options: object) -> dict[str, explain.Row]:
    found = explain.explain(
        cluster_of(CLUSTER), New(instance, required), place.Options(**options), {"n7": "drained"}
    )
    assert "Node" in explain.table(found.to_dict())
    return {row.node: row for row in found.nodes}


def test_each_node_has_its_reason():
    rows = explained(new("ext"), restrict_to=("n1", "n2", "n3", "n4", "n6", "n7"))
    assert [row.node for row in rows.values() if row.chosen] == ["n1"] or rows["n3"].chosen
    assert rows["n2"].reason == "new needs 512 MiB of memory, and n2 has 100 MiB free [FailMem]"
    assert rows["n5"].reason == "not one of the nodes to which the choice is restricted"
    assert rows["n6"].reason == "group shut is unallocable"
    assert rows["n7"].reason == "drained"
    assert rows["n4"].reason == "possible, but another place is better"
    assert rows["n4"].score is not None
    assert rows["n7"].score is None


def test_disks_and_pairs():
    rows = explained(new(), 2)
    # Only n1 has both in its group, and n3 has no space for a disk.
    assert rows["n3"].reason == (
        "new needs 2 GiB of disk space, and n3 has 500 MiB free [FailDisk]"
    )
    assert {row.chosen for row in rows.values()} == {"primary", "secondary", None}
    first = next(row for row in rows.values() if row.chosen == "primary")
    assert rows[first.secondary].chosen == "secondary"
    assert first.reason.startswith("the best place: score ")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"memory": 5000},
            "at most 4 GiB of memory for an instance; this one asks for 4.9 GiB [FailMem]",
        ),
        ({"vcpus": 9}, "at most 4 virtual CPUs for an instance; this one asks for 9 [FailCPU]"),
        ({"disk": 20000}, "at most 9.8 GiB for a disk; this one asks for 19.5 GiB [FailDisk]"),
    ],
)
def test_policies(changes, reason):
    assert explained(new("ext", **changes))["n1"].reason.endswith(reason)


def test_a_policy_ratio():
    source = CLUSTER.replace("|2.0|32.0", "|0.5|32.0")
    found = explain.explain(cluster_of(source), New(new("ext", vcpus=4), 1), place.Options())
    assert {row.reason for row in found.nodes if row.node in ("n1", "n4")} == {
        f"new needs 4 virtual CPUs, and the policy of group {group} (vcpu-ratio) leaves 1 on {node}"
        " [FailCPU]"
        for node, group in (("n1", "one"), ("n4", "far"))
    }


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_the_choice(seed):
    cluster = cluster_of(make_plain(seed))
    template, required = ("drbd", 2) if seed % 2 else ("ext", 1)
    instance = new(template)
    placed = place.in_any_group(cluster, instance, required, place.Options())
    found = explain.explain(cluster, New(instance, required), place.Options())
    chosen = {row.chosen: row.node for row in found.nodes if row.chosen}
    names = (
        [] if placed.instance is None else [cluster.nodes[i].name for i in placed.instance.nodes]
    )
    assert [chosen[role] for role in ("primary", "secondary") if role in chosen] == names
    assert {row.node for row in found.nodes} == {node.name for node in cluster.nodes}
    if names and required == 1:
        best = min(row.score for row in found.nodes if row.score is not None)
        first = next(row for row in found.nodes if row.node == names[0])
        assert first.score == pytest.approx(best) or cluster.groups[1].alloc_policy == "preferred"


def test_the_program_explains(run: Run, tmp_path: Path) -> None:
    source = DATA / "hail-alloc-drbd.json"
    description = json.loads(source.read_text())
    description["nodes"]["node1"]["drained"] = True
    changed = tmp_path / "request.json"
    changed.write_text(json.dumps(description))
    code, out, _ = run("hail", "--explain", "--output=json", str(changed))
    assert code == 0
    (found,) = json.loads(out)
    request = loading.parse(changed.read_text())
    answer.prepare(request)
    assert [found] == explain.explain_all(request, place.Options())
    chosen = {row["chosen"]: row["node"] for row in found["nodes"] if row["chosen"]}
    answered = json.loads(run("hail", str(changed))[1])
    assert [chosen["primary"], chosen["secondary"]] == answered["result"]
    rows = {row["node"]: row["reason"] for row in found["nodes"]}
    assert rows["node1"] == "drained"
    code, out, _ = run("hail", "--explain", str(changed))
    assert code == 0
    assert out.startswith(f"{found['instance']}: ")
    assert "drained" in out


def test_the_program_explains_another_cluster(run: Run) -> None:
    source = str(DATA / "hail-alloc-drbd.json")
    code, out, _ = run("hail", "--explain", "--simulate", "p,3,1t,16g,8", source)
    assert code == 0
    assert "node-01-001" in out
    assert "node4" not in out


def test_only_new_instances_are_explained(run: Run) -> None:
    code, out, err = run("hail", "--explain", str(DATA / "hail-node-evac.json"))
    assert (code, out) == (1, "")
    assert "a request of type node-evacuate has none" in err
