"""Places of new instances: the quick search gives what a plain one gives, to the last bit."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ganeti.htools import answer, moves, place, redundancy, score
from ganeti.htools import cluster as model
from ganeti.htools.cluster import Cluster, NoNodesError
from ganeti.htools.instance import NO_NODE, Disk, Instance, Size
from ganeti.htools.limits import violates
from ganeti.htools.loading import request, text
from ganeti.htools.node import Fail, Node

from .conftest import Run
from .random_clusters import make, make_plain, make_request
from .test_balance import ORIGINAL

SEEDS = range(60)


def loaded(seed: int) -> Cluster:
    source = make(seed)[0] if seed % 3 else make_plain(seed)
    cluster = text.parse(source)
    model.prepare(cluster)
    return cluster


def new_instance(r: random.Random, cluster: Cluster) -> Instance:
    template = r.choice(["drbd", "drbd", "drbd", "plain", "sharedfile", "ext", "file", "diskless"])
    size = r.choice([1024, 4000])
    wanted = Size(
        memory=r.choice([128, 600, 2048]),
        disk=0 if template == "diskless" else size,
        vcpus=r.choice([1, 2]),
        disks=(Disk(size, r.choice([None, 1, 2])),),
        spindle_use=r.choice([1, 2]),
    )
    instance = Instance("new", wanted, template, tags=tuple(r.choice([["svc:a"], []])))
    model.prepare_new(cluster, instance)
    return instance


def plain_search(
    cluster: Cluster, instance: Instance, required: int, options: place.Options
) -> tuple[list[Fail], int, tuple[float, tuple[int, ...]] | None]:
    """Try every place on the model, and score all nodes each time."""
    failures: list[Fail] = []
    successes = 0
    best: tuple[float, tuple[int, ...]] | None = None
    nodes = [node for node in cluster.nodes if not node.offline]
    for first in nodes:
        seconds: list[Node | None] = [None]
        if required > 1:
            seconds = [one for one in nodes if one is not first and one.group == first.group]
        for second in seconds:
            found = plain_place(cluster, instance, first, second, options)
            if isinstance(found, Fail):
                failures.append(found)
                continue
            successes += 1
            if best is None or found <= best[0]:
                best = (found, (first.index,) + (() if second is None else (second.index,)))
    return failures, successes, best


def plain_place(
    cluster: Cluster, instance: Instance, first: Node, second: Node | None, options: place.Options
) -> float | Fail:
    force = options.ignore_soft_errors
    assert first.policy is not None
    fail = violates(instance, first.policy, exclusive=first.exclusive_storage)
    if fail is not None:
        return fail
    number = NO_NODE if second is None else second.index
    new = moves.moved(instance, cluster.nodes, first.index, number)
    after = list(cluster.nodes)
    after[first.index] = first.copy()
    fail = after[first.index].add_primary(new, force=force)
    if fail is None and second is not None:
        after[number] = second.copy()
        fail = after[number].add_secondary(new, first.index, force=force)
    if fail is not None:
        return fail
    if options.capacity_checks and not redundancy.is_redundant(
        after,
        [*cluster.instances, new],
        ignored=redundancy.stranded(cluster.nodes, cluster.instances),
    ):
        return Fail.N1
    return score.score(after)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("checks", [True, False])
def test_equals_a_plain_search(seed, checks):
    r = random.Random(seed)
    cluster = loaded(seed)
    instance = new_instance(r, cluster)
    options = place.Options(capacity_checks=checks, ignore_soft_errors=r.random() < 0.2)
    required = 2 if instance.mirrored else 1
    if len([node for node in cluster.nodes if not node.offline]) < required:
        with pytest.raises(NoNodesError):
            place.Places(cluster, options).find(instance, required)
        return
    found = place.Places(cluster, options).find(instance, required)
    failures, successes, best = plain_search(cluster, instance, required, options)
    assert found.failures == failures
    assert found.successes == successes
    if best is None:
        assert found.best is None
    else:
        assert found.best is not None
        assert (found.best.value, found.best.instance.nodes) == best


def test_a_group_without_nodes_to_choose_from_is_named() -> None:
    description = made_request()
    for node in description["nodes"].values():
        node["offline"] = True
    assert "Group group-u1: error Not enough online nodes" in answered(description).info
    description["nodegroups"]["u1"]["alloc_policy"] = "unallocable"
    assert "Group group-u1" in answered(description).info


def made_request(template: str = "drbd", **changes: Any) -> dict[str, Any]:
    """Three nodes; the first has an instance, whose second node, if it has one, is the next."""
    found = make_request(0)
    node = {
        **make_request(0)["nodes"]["node0"], "group": "u1", "offline": False, "drained": False,
        "total_memory": 8192, "reserved_memory": 0, "total_disk": 50000, "free_memory": 8192,
        "free_disk": 50000, "total_cpus": 8, "reserved_cpus": 0, "tags": [],
    }  # fmt: skip
    mirrored = template == "drbd"
    instance = {
        "disk_template": template, "memory": 512, "vcpus": 1, "tags": [], "nics": [],
        "disk_space_total": 0 if template == "diskless" else 1024, "spindle_use": 1,
        "disks": [] if template == "diskless" else [{"size": 1024, "mode": "rw"}],
        "os": "noop", "hypervisor": "xen-pvm",
    }  # fmt: skip
    found.update(
        nodes={f"node{number}": dict(node) for number in range(3)},
        instances={
            "old": {
                **instance, "nodes": ["node0", "node1"] if mirrored else ["node0"],
                "admin_state": "up", "admin_state_source": "admin",
            }
        },
        cluster_tags=[],
        request={
            **instance, "type": "allocate", "name": "new", "required_nodes": 2 if mirrored else 1,
            **changes,
        },
    )  # fmt: skip
    found["nodegroups"] = {
        "u1": {**found["nodegroups"]["u1"], "name": "group-u1", "alloc_policy": "preferred"}
    }
    return found


def answered(description: dict[str, Any]) -> answer.Answer:
    asked = request.from_dict(description)
    answer.prepare(asked)
    return answer.answer(asked, asked.cluster, place.Options())


def test_an_offline_primary_node_does_not_prevent_new_instances() -> None:
    """Its instance fails over to a node which has the disks; its free space is not known."""
    description = made_request()
    description["nodes"]["node0"]["offline"] = True
    found = answered(description)
    assert found.success
    assert sorted(found.result) == ["node1", "node2"]


def test_a_drained_node_gets_no_instance_but_takes_over_its_own() -> None:
    description = made_request()
    description["nodes"]["node1"]["drained"] = True
    found = answered(description)
    assert found.success
    assert sorted(found.result) == ["node0", "node2"]
    # A node that is lost takes over nothing; that was so before the request.
    description["nodes"]["node1"].update(drained=False, offline=True)
    found = answered(description)
    assert sorted(found.result) == ["node0", "node2"]


@pytest.mark.parametrize("template", ["diskless", "ext"])
def test_instances_without_local_disks_can_be_moved(template: str) -> None:
    question = {"type": "node-evacuate", "instances": ["old"], "evac_mode": "all"}
    description = {**made_request(template), "request": question}
    found = answered(description)
    # Of equal nodes the last one is taken.
    assert found.result[0] == [["old", "group-u1", ["node2"]]]
    question = {
        "type": "relocate", "name": "old", "required_nodes": 1, "disk_space_total": 0,
        "relocate_from": ["node0"],
    }  # fmt: skip
    assert answered({**description, "request": question}).result == ["node2"]
    question = {"type": "node-evacuate", "instances": ["old"], "evac_mode": "secondary-only"}
    ((_, reason),) = answered({**description, "request": question}).result[1]
    assert reason == f"Instances with disk template '{template}' can't execute change secondary"


def test_an_evacuation_keeps_the_ratio_of_virtual_cpus() -> None:
    description = made_request("ext")
    description["nodegroups"]["u1"]["ipolicy"]["vcpu-ratio"] = 1.0
    description["instances"]["old"]["vcpus"] = 4
    description["nodes"]["node2"]["total_cpus"] = 2
    description["request"] = {
        "type": "node-evacuate", "instances": ["old"], "evac_mode": "all",
    }  # fmt: skip
    assert answered(description).result[0] == [["old", "group-u1", ["node1"]]]
    description["nodes"]["node1"]["total_cpus"] = 2
    ((_, reason),) = answered(description).result[1]
    assert "FailCPU" in reason
    # The guest of a lost node has to run somewhere.
    description["nodes"]["node0"]["offline"] = True
    assert len(answered(description).result[0]) == 1


@pytest.mark.parametrize(
    ("name", "size", "fits"),
    [
        ("cidata", 4, True),
        ("efivars", 4, True),
        ("data", 4, False),
        (None, 4, False),
        ("cidata", 99, False),
    ],
)
def test_small_disks_with_a_purpose_of_their_own_are_no_matter_of_the_policy(
    name: str | None, size: int, fits: bool
) -> None:
    disks = [{"size": 1024, "mode": "rw"}, {"size": size, "mode": "rw", "name": name}]
    description = made_request(disks=disks)
    for bounds in description["nodegroups"]["u1"]["ipolicy"]["minmax"]:
        bounds["min"] |= {"disk-size": 1024, "disk-count": 1}
    assert answered(description).success is fits


def is_broken(description: dict[str, Any]) -> bool:
    """Whether an instance of the cluster has no other place when its node is lost."""
    asked = request.from_dict(description)
    answer.prepare(asked)
    return bool(redundancy.stranded(asked.cluster.nodes, asked.cluster.instances))


@pytest.mark.programs
@pytest.mark.long
@pytest.mark.skipif(
    "GANETI_LONG" not in os.environ, reason="takes a minute; make check-long runs it"
)
@pytest.mark.skipif(not ORIGINAL.exists(), reason="package ganeti-htools-3.0 is not installed")
def test_answers_like_the_original(run: Run, tmp_path: Path) -> None:
    """On a thousand requests of all kinds: the same nodes and jobs, and the same scores."""
    path = tmp_path / "request.json"
    wrong, lenient = [], []
    for seed in range(1000):
        description = make_request(seed)
        if description["request"]["type"] == "allocate" and not seed % 5:
            group = random.Random(seed).choice(list(description["nodegroups"].values()))
            description["request"]["group_name"] = group["name"]
        path.write_text(json.dumps(description))
        original = subprocess.run(
            [str(ORIGINAL), str(path)],
            env={"HTOOLS": "hail", "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        theirs = json.loads(original.stdout)
        ours = json.loads(run("hail", str(path))[1])
        kind = description["request"]["type"]
        if is_broken(description) and "FailN1" in original.stdout:
            # The original refuses every place then.
            lenient.append(seed)
            continue
        if kind == "multi-allocate" and ours["result"][1]:
            # Version 3.0 places all of them or none, and says why; version 3.1 as many as fit.
            equal = not theirs["success"]
        elif kind in ("node-evacuate", "change-group") and ours["success"]:
            # The reasons are sentences of our own where the original names only a check.
            equal = [ours["result"][0], ours["result"][2]] == [
                theirs["result"][0], theirs["result"][2],
            ] and [one[0] for one in ours["result"][1]] == [
                one[0] for one in theirs["result"][1]
            ]  # fmt: skip
        else:
            equal = ours == theirs or (
                # What is said about groups which take no instances.
                not ours["success"] and not theirs["success"] and "(unallocable)" in ours["info"]
            )
        if not equal:
            wrong.append(seed)
    print(f"{len(wrong)} of 1000 requests differ: {wrong}; {len(lenient)} are not compared")
    assert len(lenient) < 200
    # The last digit of a printed score may differ, and with it a choice among equal groups.
    assert len(wrong) <= 10, wrong


# -- what was broken before ------------------------------------------------------------------------


def with_group_of_one(template: str = "ext", **changes: Any) -> dict[str, Any]:
    """A healthy group of three empty nodes, and one of one node with an instance."""
    description = made_request(template, **changes)
    groups, nodes = description["nodegroups"], description["nodes"]
    groups["u2"] = {**groups["u1"], "name": "group-u2"}
    nodes["solo"] = {**nodes["node0"], "group": "u2"}
    description["instances"]["old"]["nodes"] = ["solo"]
    return description


@pytest.mark.parametrize("group", [None, "group-u1"])
@pytest.mark.parametrize("template", ["ext", "plain", "drbd"])
@pytest.mark.parametrize("old", ["ext", "sharedfile", "plain"])
def test_a_group_of_one_node_prevents_no_instance_in_other_groups(
    old: str, template: str, group: str | None
) -> None:
    description = with_group_of_one(template)
    description["instances"]["old"]["disk_template"] = old
    description["request"]["group_name"] = group
    found = answered(description)
    assert found.success
    assert set(found.result) <= {"node0", "node1", "node2"}
    assert "group-u1 (preferred): score" in found.info
    assert ("FailN1" in found.info) == (group is None and template != "drbd")


def test_the_instance_itself_needs_another_place() -> None:
    """In a group of one node nothing survives the loss of a node, and a new instance neither."""
    description = with_group_of_one()
    description["request"]["group_name"] = "group-u2"
    assert "FailN1: 1" in answered(description).info
    description["instances"] = {}
    assert "FailN1: 1" in answered(description).info


def stranded_in_its_group(memory: int = 6000) -> dict[str, Any]:
    """Of three nodes with 8 GiB, each has an instance which fits no other node; one is larger."""
    description = made_request("plain")
    one = description["instances"].pop("old")
    for number in range(3):
        size = memory if number else 7000
        description["instances"][f"old{number}"] = {
            **one, "nodes": [f"node{number}"], "memory": size,
        }  # fmt: skip
        description["nodes"][f"node{number}"]["free_memory"] -= size
    return description


def test_instances_without_another_place_prevent_no_new_one_that_has_it() -> None:
    description = stranded_in_its_group()
    assert answered(description).success
    # No second node has place for as much.
    description["request"]["memory"] = 2000
    description["nodes"]["node0"]["offline"] = description["nodes"]["node1"]["offline"] = True
    assert "FailN1" in answered(description).info


def test_instances_with_another_place_keep_it() -> None:
    """The old instance may move to node1 only, and has to be able to afterwards."""
    description = made_request("plain", memory=6000)
    description["instances"]["old"]["memory"] = 3000
    description["nodes"]["node0"]["free_memory"] -= 3000
    description["nodes"]["node2"].update(total_memory=1000, free_memory=1000)
    found = answered(description)
    assert not found.success
    assert "FailN1" in found.info
    # With an instance that had no other place beforehand, the same is required.
    large = {**description["instances"]["old"], "memory": 9000}
    description["instances"]["large"] = {**large, "admin_state": "down"}
    assert "FailN1" in answered(description).info


def test_a_secondary_node_is_chosen_although_others_have_none() -> None:
    description = stranded_in_its_group()
    description["instances"]["old0"]["memory"] = 512
    description["nodes"]["node0"]["free_memory"] += 7000 - 512
    description["request"] = {"type": "allocate-secondary", "name": "old0"}
    found = answered(description)
    assert found.success, found.info


@pytest.mark.parametrize("seed", range(40))
def test_another_group_makes_no_difference(seed: int) -> None:
    """A group of one node, whose instance survives nothing, beside each cluster."""
    plain = make_request(seed)
    plain["request"] = new_of_request(seed)
    nodes, groups = plain["nodes"], plain["nodegroups"]
    solo = {**made_request("ext")["nodes"]["node0"], "group": "alone"}
    more = {
        **plain,
        "nodegroups": {**groups, "alone": {**groups["u1"], "name": "alone",
                                           "alloc_policy": "unallocable"}},
        "nodes": {**nodes, "solo": solo},
        "instances": {
            **plain["instances"], "lonely": made_request("ext")["instances"]["old"] | {
                "nodes": ["solo"]},
        },
    }  # fmt: skip
    old, new = answered(plain), answered(more)
    assert old.success == new.success
    reasons = [
        {part for part in re.sub("score: [^,]*", "", one.info).split(", Group ")[1:]}
        for one in (old, new)
    ]
    assert {one for one in reasons[1] if not one.startswith("alone")} == reasons[0]


def new_of_request(seed: int) -> dict[str, Any]:
    template = random.Random(seed).choice(["drbd", "ext", "plain", "sharedfile"])
    return made_request(template)["request"]


def test_an_instance_of_another_group_is_judged_where_it_goes() -> None:
    """Its number is that of an instance which has another primary node until then."""
    description = with_group_of_one()
    for number in range(3):
        node = description["nodes"][f"node{number}"]
        node.update(total_memory=2000, free_memory=2000)
    description["instances"]["old"]["memory"] = 1500
    description["request"] = {
        "type": "change-group", "instances": ["old"], "target_groups": ["u1"],
    }  # fmt: skip
    assert len(answered(description).result[0]) == 1
    for number in (0, 1):
        description["nodes"][f"node{number}"].update(total_memory=1000, free_memory=1000)
    ((_, reason),) = answered(description).result[1]
    assert "FailN1: 1" in reason


@pytest.mark.parametrize(
    ("state", "words"),
    [("drained", "node1 is drained (gnt-node modify --drained=no node1)"),
     ("offline", "node1 is offline, or it does not answer (gnt-node modify --offline=no")],
)  # fmt: skip
def test_why_no_node_of_another_group_takes_an_instance(state: str, words: str) -> None:
    """A node that is drained, or only does not answer, is not marked offline."""
    description = with_group_of_one()
    for number in range(3):
        description["nodes"][f"node{number}"][state] = True
    description["request"] = {
        "type": "change-group", "instances": ["old"], "target_groups": ["u1"],
    }  # fmt: skip
    asked = request.from_dict(description)
    answer.prepare(asked)
    told: dict[str, list[str]] = {}
    tell = answer.Tell(reasons=lambda name, lines: told.update({name: list(lines)}))
    answer.answer(asked, asked.cluster, place.Options(), tell)
    ((line,),) = told.values()
    assert words in line


def test_the_score_of_a_named_group_is_its_own() -> None:
    """And the answer has the form of the original, which names no selected group."""
    description = with_group_of_one("plain")
    description["request"]["group_name"] = "group-u1"
    info = answered(description).info
    del description["nodegroups"]["u2"], description["nodes"]["solo"]
    description["instances"] = {}
    description["request"]["group_name"] = None
    alone = answered(description).info
    assert info.removeprefix("Request successful: ") in alone
    assert "Selected group" in alone and "Selected group" not in info


def test_a_named_group_without_connection_or_nodes() -> None:
    description = with_group_of_one("plain")
    description["request"]["group_name"] = "group-u2"
    description["request"]["nics"] = [{"mac": None, "ip": None, "network": "net"}]
    assert answered(description).info == (
        "Request failed: The group group-u2 is not connected to a network required by instance new"
    )
    description["request"]["nics"] = []
    description["nodes"]["solo"]["offline"] = True
    assert answered(description).info == "Request failed: No online nodes"
