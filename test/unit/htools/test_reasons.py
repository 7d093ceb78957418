"""Why an instance has no place, in sentences with numbers and the way out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ganeti.htools import answer, evacuate, explain, place, reasons
from ganeti.htools import cluster as model
from ganeti.htools.cluster import Cluster
from ganeti.htools.instance import Disk, Instance, Nic, Size
from ganeti.htools.loading import text
from ganeti.htools.loading.request import New, Request
from ganeti.htools.moves import Kind, Move
from ganeti.htools.node import Fail
from ganeti.htools.reasons import TEXTS, Cause

TOP = Path(__file__).resolve().parents[3]
SMALL = "128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|drbd,plain,ext|4.0|32.0"
LARGE = "128,1,1024,1,1,1|128,1,1024,1,1,1;999999,99,9999999,16,8,12|drbd,plain,ext|4.0|32.0"


def cluster_of(
    nodes: str, instances: str = "", policy: str = LARGE, groups: str = "default preferred",
    tags: str = "",
) -> Cluster:  # fmt: skip
    """Make a cluster.

    :param nodes: for each node: name, memory and free memory, free disk, group, Y if offline.
    :param instances: for each instance: name, memory, primary, secondary, template, tags.
    """
    names = [line.split() for line in groups.split(";")]
    rows = [f"{name}|{name}-uuid|{alloc}||" for name, alloc in names] + [""]
    for line in nodes.split(";"):
        name, total, free, disk, group, offline = line.split()
        rows.append(f"{name}|{total}|100|{free}|90000|{disk}|4|{offline}|{group}-uuid|1||N|0|1|1.0")
    rows.append("")
    for line in filter(None, instances.split(";")):
        name, memory, first, second, template, tag = line.replace("-", "").split(",")
        rows.append(f"{name}|{memory}|2048|1|running|Y|{first}|{second}|{template}|{tag}|1|2048")
    rows += [
        "",
        *filter(None, [tags]),
        "",
        f"|{policy}",
        *(f"{name}|{policy}" for name, _ in names),
    ]
    found = text.parse("\n".join(rows) + "\n")
    model.prepare(found)
    return found


def new(template: str = "plain", **changes: int) -> Instance:
    size = Size(512, 2048, 1)._replace(**changes)
    return Instance("web1", size._replace(disks=(Disk(size.disk),)), template)


def no_place(cluster: Cluster, instance: Instance, states=None, **changes) -> list[str]:
    required = 2 if instance.mirrored else 1
    one = New(instance, required, **changes)
    if not changes.get("restrict_to"):
        options = place.Options(capacity_checks=True)
        assert place.in_any_group(cluster, instance, required, options).cluster is None
    return explain.no_place(cluster, one, place.Options(), states, {"net-uuid": "front"})


THREE = "n1 8192 8000 90000 default N;n2 8192 100 90000 default N;n3 8192 8000 500 default N"


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (512, "512 MiB"), (1024, "1 GiB"), (1536, "1.5 GiB"), (102400, "100 GiB"),
        (1023, "1023 MiB"),
        (1024 * 1024, "1 TiB"), (2047, "2047 MiB"), (22848, "22.3 GiB"),
    ],
)  # fmt: skip
def test_a_size_has_its_unit(size, expected):
    assert reasons.amount(size) == expected


def test_different_sizes_of_a_sentence_look_different() -> None:
    assert reasons.amounts(8388868, 8388867) == ["8388868 MiB", "8388867 MiB"]
    assert reasons.amounts(8388868, 8388867, 0) == ["8388868 MiB", "8388867 MiB", "0 MiB"]
    assert reasons.amounts(1536, 1024, 1024) == ["1.5 GiB", "1 GiB", "1 GiB"]


def test_the_best_node_and_the_number_of_nodes():
    assert no_place(cluster_of(THREE), new(memory=102400)) == [
        "web1 needs 100 GiB of memory, and the most free is 7.8 GiB, on n1 (so on 3 of 3 nodes):"
        " use less memory (-B memory=SIZE), or stop or move other instances [FailMem]"
    ]


def test_each_cause_has_its_own_sentence():
    found = no_place(cluster_of(THREE.replace("n1 8192 8000", "n1 8192 300")), new())
    assert found == [
        "web1 needs 512 MiB of memory, and the most free is 300 MiB, on n1 (so on 2 of 3 nodes):"
        " use less memory (-B memory=SIZE), or stop or move other instances [FailMem]",
        "web1 needs 2 GiB of disk space, and n3 has 500 MiB free (so on 1 of 3 nodes): use smaller"
        " disks, remove or move other instances, or enlarge the storage [FailDisk]",
    ]


def test_a_policy_is_not_a_lack_of_memory():
    assert no_place(cluster_of(THREE, policy=SMALL), new(memory=102400)) == [
        "the policy of group default allows at most 32 GiB of memory for an instance; this one asks"
        " for 100 GiB: gnt-group modify --ipolicy-bounds-specs=min:.../max:... default [FailMem]"
    ]


def test_all_limits_of_a_policy_at_once():
    found = no_place(cluster_of(THREE, policy=SMALL), new(memory=64, vcpus=9, disk=2000000))
    assert [re.sub(": gnt-group.*", "", line) for line in found] == [
        "the policy of group default wants at least 128 MiB of memory for an instance; this one"
        " asks for 64 MiB",
        "the policy of group default allows at most 8 virtual CPUs for an instance; this one asks"
        " for 9",
        "the policy of group default allows at most 1 TiB for a disk; this one asks for 1.9 TiB",
    ]


def test_a_template_which_the_policy_does_not_allow():
    assert no_place(cluster_of(THREE), new("file"))[0].startswith(
        "the policy of group default does not allow disk template file, only drbd, ext, plain: "
    )


def test_the_ratio_of_virtual_processors():
    assert no_place(cluster_of("n1 8192 8000 90000 default N"), new(vcpus=16)) == [
        "web1 needs 16 virtual CPUs, and the policy of group default (vcpu-ratio) leaves 15 on n1:"
        " use fewer (-B vcpus=N), or gnt-group modify --ipolicy-vcpu-ratio=N default [FailCPU]"
    ]


def test_a_node_alone_in_its_group():
    cluster = cluster_of("n4 8192 8000 90000 rack2 N", groups="rack2 preferred")
    assert no_place(cluster, new("ext")) == [
        "n4 is the only usable node of group rack2, so that nothing there survives its loss: name a"
        " node of another group: -n NODE; or add a node to the group [FailN1]"
    ]
    assert no_place(cluster, new("drbd")) == [
        "n4 is the only node of group rack2, and disks of template drbd need a second one: add a"
        " node to the group, or use disk template plain (-t plain)"
    ]


def test_a_group_which_would_not_survive_the_loss_of_a_node():
    nodes = "n1 8192 5000 90000 default N;n2 8192 5000 90000 default N"
    found = no_place(
        cluster_of(nodes, "a,3000,n1,,ext,-;b,3000,n2,,ext,-"), new("ext", memory=3000)
    )
    assert len(found) == 1
    assert found[0].startswith(
        "with web1, group default does not survive the loss of every node: what runs on n1 uses"
        " 5.9 GiB of memory, and the other nodes have 4.9 GiB free in all"
    )
    assert found[0].endswith("no-capacity-checks [FailN1]")


@pytest.mark.parametrize(
    ("state", "way"),
    [
        ("drained", "gnt-node modify --drained=no n1"),
        ("not vm_capable", "gnt-node modify --vm-capable=yes n1"),
        (
            "offline, or it does not answer",
            "gnt-node modify --offline=no n1, if it is marked offline; otherwise see whether"
            " ganeti-noded runs there",
        ),
    ],
)
def test_no_usable_node(state, way):
    cluster = cluster_of("n1 8192 8000 90000 default Y")
    assert no_place(cluster, new(), {"n1": state}) == [
        f"no node of group default can have web1: n1 is {state} ({way})"
    ]


def test_nodes_without_the_hypervisor():
    cluster = cluster_of(THREE)
    states = {name: "without hypervisor xen-pvm" for name in ("n1", "n2", "n3")}
    found = no_place(cluster, new(), states, restrict_to=("other",))
    assert found == [
        "no node of group default can have web1: n1 is without hypervisor xen-pvm, n2 is without"
        " hypervisor xen-pvm, n3 is without hypervisor xen-pvm"
    ]


def test_groups_are_named():
    cluster = cluster_of(
        "n1 8192 300 90000 default N;n2 8192 8000 90000 shut N",
        groups="default preferred;shut unallocable;bare preferred",
    )
    found = no_place(cluster, new())
    assert found[0].startswith("group default: web1 needs 512 MiB of memory, and n1 has 300 MiB")
    assert found[1:] == [
        "group shut takes no new instances (unallocable): gnt-group modify --alloc-policy=preferred"
        " shut",
        "group bare has no nodes: gnt-group assign-nodes bare NODE",
    ]


def test_a_network_which_the_group_lacks():
    instance = new()
    instance.nics = (Nic(network="net-uuid"),)
    assert no_place(cluster_of(THREE), instance) == [
        "group default is not connected to network front, in which web1 has an interface:"
        " gnt-network connect front default"
    ]


def test_the_secondary_node():
    nodes = "n1 8192 8000 90000 default N;n2 8192 8000 500 default N;n3 8192 8000 90000 default Y"
    found = no_place(cluster_of(nodes), new("drbd"), {"n3": "offline"})
    assert found == [
        "web1 needs 2 GiB of disk space, and n2 has 500 MiB free (so on 1 of 2 nodes): use smaller"
        " disks, remove or move other instances, or enlarge the storage [FailDisk]",
        "not usable: n3 is offline (gnt-node modify --offline=no n3)",
    ]


def test_exclusion_tags():
    nodes = "n1 8192 5000 90000 default N"
    cluster = cluster_of(nodes, "db1,3000,n1,,ext,db:1", tags="htools:iextags:db")
    instance = new("ext")
    instance.tags = ("db:1",)
    model.prepare_new(cluster, instance)
    found = reasons.as_primary(cluster, cluster.nodes[0], instance)
    assert found is not None
    assert reasons.sentence(found, "web1") == (
        "db1 has the same exclusion tag as web1 and runs on n1: move the other instance, add a"
        " node, or remove the tag (gnt-instance remove-tags) [FailTags]"
    )


# -- moves ------------------------------------------------------------------------------------


def test_an_evacuation_from_the_only_node_of_a_group():
    cluster = cluster_of(
        "n4 8192 5000 90000 rack2 N", "web1,3000,n4,,ext,-", groups="rack2 preferred"
    )
    solution = evacuate.nodes(cluster, [0], evacuate.Mode.PRIMARY, place.Options())
    assert solution.failed == [(0, "Can't find any good node: ")]
    assert solution.reasons == {
        0: (
            "n4 is the only node of group rack2; name one of another group: -n NODE; or add a node"
            " to the group",
        )
    }


def test_an_evacuation_with_all_others_offline():
    nodes = "n1 8192 5000 90000 default N;n2 8192 8000 90000 default Y"
    cluster = cluster_of(nodes, "web1,3000,n1,,ext,-")
    solution = evacuate.nodes(cluster, [0], evacuate.Mode.PRIMARY, place.Options())
    assert solution.reasons[0][0].startswith(
        "group default has no other usable node for web1: n2 is offline, drained or not vm_capable"
    )


def test_a_relocation_without_memory():
    nodes = "n1 8192 5000 90000 default N;n2 8192 1000 90000 default N"
    cluster = cluster_of(nodes, "web1,3000,n1,,ext,-")
    with pytest.raises(evacuate.CannotMoveError, match="n2 failed: FailMem") as caught:
        evacuate.relocate(cluster, cluster.instances[0], [0], place.Options())
    assert caught.value.reasons == (
        "web1 needs 2.9 GiB of memory, and n2 has 1000 MiB free: use less memory (-B memory=SIZE),"
        " or stop or move other instances [FailMem]",
    )


def test_a_failover_to_a_full_secondary_node():
    nodes = "n1 8192 5000 90000 default N;n2 8192 1000 90000 default N"
    cluster = cluster_of(nodes, "web1,3000,n1,n2,drbd,-")
    solution = evacuate.nodes(cluster, [0], evacuate.Mode.PRIMARY, place.Options())
    assert solution.reasons[0][0].startswith(
        "web1 needs 2.9 GiB of memory, and n2 has 1000 MiB free: "
    )


def test_disks_on_one_node_do_not_move():
    cluster = cluster_of(THREE.replace("8192 8000", "8192 5000"), "web1,3000,n1,,plain,-")
    with pytest.raises(evacuate.CannotMoveError) as caught:
        evacuate.relocate(cluster, cluster.instances[0], [0], place.Options())
    assert "gnt-instance move web1" in caught.value.reasons[0]


def test_a_change_of_the_group():
    cluster = cluster_of(
        "n1 8192 5000 90000 default N;n4 8192 8000 90000 rack2 N", "web1,3000,n1,,ext,-",
        groups="default preferred;rack2 last_resort",
    )  # fmt: skip
    solution = evacuate.groups(cluster, [0], [cluster.groups[1]], place.Options())
    assert solution.failed[0][1].endswith("FailN1: 1")
    assert solution.reasons[0][0].startswith("n4 is the only usable node of group rack2")


def test_a_possible_move_has_no_reason():
    nodes = "n1 8192 5000 90000 default N;n2 8192 8000 90000 default N"
    cluster = cluster_of(nodes, "web1,3000,n1,,ext,-")
    move = Move(Kind.FAILOVER_TO_ANY, 1)
    assert reasons.of_move(cluster, cluster.instances[0], move) is None


def test_several_new_instances_have_reasons_each():
    cluster = cluster_of("n1 8192 8000 90000 default N;n2 8192 8000 90000 default N")
    said: dict[str, str] = {}
    second = new(memory=9000)
    second.name = "web2"
    request = Request(cluster, "multi-allocate", [New(new(), 1), New(second, 1)])
    found = answer.answer(
        request, cluster, place.Options(),
        answer.Tell(reasons=lambda name, lines: said.update({name: "; ".join(lines)})),
    )  # fmt: skip
    assert found.result[1] == ["web2"]
    assert list(said) == ["web2"]
    assert said["web2"].startswith("web2 needs 9000 MiB of memory") or "8.8 GiB" in said["web2"]


def test_the_published_form_does_not_change():
    cluster = cluster_of(THREE)
    request = Request(cluster, "allocate", [New(new(memory=102400), 1)])
    said: list[str] = []
    tell = answer.Tell(reasons=lambda _name, lines: said.extend(lines))
    with_reasons = answer.answer(request, cluster, place.Options(), tell).to_dict()
    assert with_reasons == answer.answer(request, cluster, place.Options()).to_dict()
    assert with_reasons["info"].endswith("failure reasons: FailMem: 3")
    assert said


# -- the table --------------------------------------------------------------------------------


def test_every_cause_has_a_sentence_and_every_code_is_documented():
    assert set(TEXTS) == set(Cause)
    manual = (TOP / "doc/manual/errors.rst").read_text(encoding="utf-8")
    page = (TOP / "man/hail.rst").read_text(encoding="utf-8")
    for fail in Fail:
        assert f"``{fail.value}``" in manual
        assert f"``{fail.value}``" in page
