"""What if: changes which nobody has made, and the answers of the programs to them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti import errors
from ganeti.cli.main import run as run_command
from ganeti.client.gnt_cluster.program import PROGRAM
from ganeti.client.htools import luxi
from ganeti.htools import what_if
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import simulation, text
from ganeti.utils.records import replace

from .conftest import Run
from .test_balance import facts, made
from .test_monitoring import TEXT


def names(cluster: Cluster) -> list[str]:
    return [node.name for node in cluster.nodes]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000), st.integers(0, 100))
def test_a_node_less_leaves_a_whole_cluster(seed: int, number: int) -> None:
    cluster = made(seed)
    before = facts(cluster.nodes)
    lost = cluster.nodes[number % len(cluster.nodes)].name
    result = what_if.apply(cluster, [f"remove-node={lost}"])
    assert facts(cluster.nodes) == before
    after, (change,) = result.cluster, result.changes
    assert names(after) == [name for name in names(cluster) if name != lost]
    kept = {one.name for one in after.instances}
    assert kept == {one.name for one in cluster.instances} - set(change.without_place)
    assert set(change.moved) <= kept
    for index, one in enumerate(after.instances):
        assert one.index == index
        nodes = [after.nodes[number] for number in one.nodes]
        assert index in nodes[0].forth.primaries
        assert all(index in node.forth.secondaries for node in nodes[1:])
        assert len({node.group for node in nodes}) <= 1 or one.name not in change.moved


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100_000), st.integers(0, 100), st.sampled_from(["fail", "drain"]))
def test_nobody_counts_on_a_node_which_failed_or_is_drained(
    seed: int, number: int, how: str
) -> None:
    cluster = made(seed)
    before = facts(cluster.nodes)
    closed = cluster.nodes[number % len(cluster.nodes)]
    result = what_if.apply(cluster, [f"{how}-node={closed.name}"])
    assert facts(cluster.nodes) == before
    after, (change,) = result.cluster, result.changes
    assert names(after) == names(cluster)
    node = after.nodes[closed.index]
    assert node.offline and node.unallocated_memory <= 0 and node.real.free_disk == 0
    left = {one.name for one in after.instances if node.index in one.nodes}
    if how == "fail":
        assert left == set(change.without_place) and node.lost
    else:
        assert change.moved == change.without_place == ()
        assert left == {one.name for one in cluster.instances if closed.index in one.nodes}
    online = [one for one in after.nodes if not one.offline]
    assert what_if.summary(after)["free_memory"] == sum(one.unallocated_memory for one in online)


def test_new_nodes_are_empty_and_have_other_names(load: Callable[..., Cluster]) -> None:
    cluster = load(TEXT)
    found = what_if.apply(cluster, ["add-nodes=2:node1", "add-nodes=1:node2"]).cluster
    assert names(found)[4:] == ["new-node-1", "new-node-2", "new-node-3"]
    for index in (4, 5, 6):
        node = found.nodes[index]
        assert (node.index, node.real.primaries, node.real.secondaries) == (index, (), ())
        assert (node.real.free_disk, node.unallocated_memory) == (100000, 16384 - 512)
    assert what_if.summary(cluster)["more_instances"] < what_if.summary(found)["more_instances"]
    assert what_if.summary(found)["more_instances"] <= 100


def test_new_instances_take_capacity_until_it_is_used_up(load: Callable[..., Cluster]) -> None:
    cluster = load(TEXT)
    result = what_if.apply(cluster, ["add-instances=3:2g,1g,1"])
    assert len(result.cluster.instances) == 7
    assert result.changes[0].without_place == ()
    (change,) = what_if.apply(cluster, ["add-instances=100:2g,8g,1"]).changes
    assert 0 < len(change.without_place) < 100
    (change,) = what_if.apply(cluster, ["add-instances=2:2g,512g,1:drbd"]).changes
    assert change.without_place == ("new-1", "new-2")


def test_another_policy_reaches_all_groups_and_nodes(load: Callable[..., Cluster]) -> None:
    found = what_if.apply(
        load(TEXT), ["vcpu-ratio=0.5", "spindle-ratio=2", "disk-templates=plain,drbd"]
    ).cluster
    for policy in (found.policy, *(one.policy for one in found.groups)):
        assert (policy.vcpu_ratio, policy.spindle_ratio) == (0.5, 2.0)
        assert policy.templates == ("plain", "drbd")
    assert {node.max_vcpus for node in found.nodes} == {4}


def test_other_sizes_reach_all_policies(load: Callable[..., Cluster]) -> None:
    cluster = load(TEXT)
    before = cluster.policy.ranges[0]
    changes = ["min-size=2g,512m,1", "std-size=10g,3g,2,4", "max-size=20g,4g,3"]
    found = what_if.apply(cluster, changes).cluster
    for policy in (found.policy, *(one.policy for one in found.groups)):
        assert policy.standard == replace(
            policy.standard, disk_size=10240, memory=3072, cpus=2, spindle_use=4
        )
        (sizes,) = policy.ranges
        assert sizes.smallest == replace(before.smallest, disk_size=2048, memory=512, cpus=1)
        assert sizes.largest == replace(before.largest, disk_size=20480, memory=4096, cpus=3)
    assert found.nodes[0].policy == found.groups[0].policy
    # Three times the memory: a third of the instances.
    assert what_if.summary(found)["more_instances"] < what_if.summary(cluster)["more_instances"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["min-size=2t,1g,1"], "disk size of the smallest size .2097152. exceeds that of the larg"),
        (["max-size=512,1g,1"], "disk size of the smallest size .1024. exceeds"),
        (["std-size=2t,1g,1"], "disk size of the standard size .2097152. is not from 1024 to"),
        (["std-size=1g"], "'1g' is not a size"),
        (["max-size=1g,1g,x"], "is not a size"),
    ],
)
def test_sizes_must_agree(load: Callable[..., Cluster], changes: list[str], message: str) -> None:
    with pytest.raises(errors.ParseError, match=message):
        what_if.apply(load(TEXT), changes)


def test_several_ranges_of_sizes_have_no_single_end(load: Callable[..., Cluster]) -> None:
    cluster = load("hspace-tiered-dualspec.data")
    with pytest.raises(errors.ParseError, match="a policy has 2 ranges of sizes and not one"):
        what_if.apply(cluster, ["max-size=1g,1g,1"])


def test_sizes_may_disagree_between_two_changes(load: Callable[..., Cluster]) -> None:
    changes = ["min-size=2t,1g,1", "std-size=2t,1g,1", "max-size=3t,2g,2"]
    found = what_if.apply(load(TEXT), changes).cluster
    assert found.policy.ranges[0].smallest.disk_size == 2 * 1024 * 1024


def test_short_and_misspelt_names_of_nodes(load: Callable[..., Cluster]) -> None:
    # Without the common suffix of all names, which would make short ones.
    cluster = load(re.sub("node([123])", r"node\1.example.com", TEXT))
    found = what_if.apply(cluster, ["remove-node=node3"]).cluster
    assert "node3.example.com" not in names(found)
    assert len(names(found)) == len(names(cluster)) - 1
    with pytest.raises(errors.ParseError, match=r"unknown node 'nod3.example.com'. Did you mean"):
        what_if.apply(cluster, ["remove-node=nod3.example.com"])


def test_changes_are_made_in_their_order(load: Callable[..., Cluster]) -> None:
    cluster = load(TEXT)
    found = what_if.apply(cluster, ["add-nodes=1:node4", "remove-node=node4"]).cluster
    assert names(found) == ["node1", "node2", "node3", "new-node-1"]
    with pytest.raises(errors.ParseError, match="unknown node 'node4'"):
        what_if.apply(cluster, ["remove-node=node4", "add-nodes=1:node4"])


WRONG = [
    "", "x", "x=1", "remove-node", "remove-node=", "remove-node=nosuch", "add-nodes=1",
    "add-nodes=0:node1", "add-nodes=-1:node1", "add-nodes=1:nosuch", "add-nodes=999999:node1",
    "add-instances=1", "add-instances=1:", "add-instances=1:1g", "add-instances=x:1g,1g,1",
    "add-instances=1:1g,1g,x", "add-instances=1:1g,1g,-1", "add-instances=1:1g,1g,1:nosuch",
    "vcpu-ratio=", "vcpu-ratio=0", "vcpu-ratio=nan", "spindle-ratio=inf", "disk-templates=",
    "disk-templates=drbd,nosuch",
]  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "cluster"
    path.write_text(TEXT)
    return str(path)


@pytest.mark.parametrize("text", WRONG)
def test_a_change_which_is_not_understood_is_an_error(text: str, run: Run, source: str) -> None:
    code, out, err = run("hcheck", "-t", source, f"--what-if={text}")
    assert (code, out) == (1, "")
    assert "Error: " in err and "change" in err


def test_programs_answer(run: Run, source: str) -> None:
    less = "--what-if=remove-node=node3"
    code, out, err = run("hspace", "-t", source, less)
    assert code == 0
    assert "The cluster has 3 nodes" in out
    assert "What if remove-node=node3: 3 instances move" in err
    assert json.loads(run("hbal", "-t", source, less, "--output=json")[1])["final_score"] < 2.2
    _, out, _ = run("hcheck", "-t", source, less, "--output=json")
    assert json.loads(out)["initial"][0]["offline_pri"] == 0


@pytest.mark.parametrize("program", ["hspace", "hbal", "hcheck"])
def test_json_names_the_changes(run: Run, source: str, program: str) -> None:
    words = ["--what-if=remove-node=node3", "--what-if=add-instances=2:1g,1g,1"]
    found = json.loads(run(program, "-t", source, *words, "--output=json")[1])
    moved, added = found["what_if"]
    assert (moved["change"], len(moved["moved"])) == ("remove-node=node3", 3)
    assert added == {
        "change": "add-instances=2:1g,1g,1", "moved": [], "without_place": [],
    }  # fmt: skip
    assert "what_if" not in json.loads(run(program, "-t", source, "--output=json")[1])


@pytest.mark.parametrize("program", ["hspace", "hcheck"])
def test_one_group_is_a_cluster_of_its_own(run: Run, program: str, tmp_path: Path) -> None:
    path = tmp_path / "two-groups"
    path.write_text(text.serialize(simulation.make(["p,2,1t,16g,8", "p,3,1t,32g,8"])))
    source = ("-t", str(path), "--output=json")
    whole = json.loads(run(program, *source)[1])
    parts = [json.loads(run(program, *source, "-G", f"group-0{one}")[1]) for one in (1, 2)]
    if program == "hspace":
        memory = [found["initial"]["total_memory"] for found in parts]
        assert sorted(memory) == [2 * 16384, 3 * 32768]
        assert whole["initial"]["total_memory"] == sum(memory)
    else:
        found = {one["group"]: one for one in whole["initial"]}
        assert [one["initial"] for one in parts] == [[found["group-01"]], [found["group-02"]]]


@pytest.mark.parametrize("program", ["hspace", "hbal", "hcheck"])
def test_an_unknown_group_is_an_error(run: Run, source: str, program: str) -> None:
    code, out, err = run(program, "-t", source, "-G", "nosuch", "--what-if=vcpu-ratio=2")
    assert (code, out) == (1, "")
    assert "unknown node group 'nosuch'; there are " in err


def test_a_question_is_not_carried_out(run: Run, source: str) -> None:
    code, _, err = run("hbal", "-t", source, "--what-if=vcpu-ratio=2", "-X")
    assert code == 1
    assert "leave out --exec" in err


# -- gnt-cluster simulate -------------------------------------------------------------------------


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The master daemon has the cluster."""
    monkeypatch.setattr(luxi, "load", lambda _socket, **_: text.parse(TEXT))


@pytest.mark.usefixtures("configured")
def test_simulate_compares(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--what-if=remove-node=node3", "--what-if=add-instances=2:1g,1g,1"]
    assert run_command(PROGRAM, words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Change remove-node=node3: 3 instances move"
    rows = {line[:48].strip(): line[48:].split() for line in lines[3:]}
    assert rows["Nodes"] == ["4", "3"]
    assert rows["Instances"] == ["4", "6"]


@pytest.mark.usefixtures("configured")
def test_simulate_looks_at_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("default", "g1"):
        assert run_command(PROGRAM, ["simulate", "-G", name, "--what-if=vcpu-ratio=2"]) == 0
        assert "Nodes" in capsys.readouterr().out
    assert run_command(PROGRAM, ["simulate", "-G", "nosuch"]) == 1
    assert "unknown node group 'nosuch'; there are " in capsys.readouterr().err


@pytest.mark.usefixtures("configured")
def test_simulate_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--what-if=add-instances=2:1g,512g,1", "--output=json"]
    assert run_command(PROGRAM, words) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["changes"] == [
        {
            "change": "add-instances=2:1g,512g,1", "moved": [],
            "without_place": ["new-1", "new-2"],
        }
    ]  # fmt: skip
    assert found["now"] == found["then"]


@pytest.mark.usefixtures("configured")
def test_simulate_refuses_what_it_does_not_understand(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(PROGRAM, ["simulate", "--what-if=nothing"]) == 1
    assert "unknown change 'nothing'" in capsys.readouterr().err
