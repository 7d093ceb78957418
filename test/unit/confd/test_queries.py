"""Every question, on a small cluster."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from ganeti import ht
from ganeti.confd import queries
from ganeti.confd.protocol import ConfdReply, ConfdRequest
from ganeti.constants import confd as const
from ganeti.objects import ConfigData, Disk

sys.path.insert(0, str(Path(__file__).parents[1] / "config"))
from samples import instance_of, node_of, small_cluster, uuid_of  # noqa: E402

SECRET = "drbd-secret-0123"


def cluster() -> ConfigData:
    data = small_cluster(
        5,
        {
            2: {"drained": True, "serial_no": 4},
            3: {"offline": True, "drained": True},
            4: {"offline": True, "master_candidate": False},
            5: {"master_candidate": False},
        },
        serial_no=9,
        data_collectors={"drbd": {"active": True, "interval": 5}},
    )
    disk = Disk(
        dev_type="drbd",
        nodes=(uuid_of("node1"), uuid_of("node2")),
        iv_name="disk/0",
        size=1024,
        logical_id=(uuid_of("node1"), uuid_of("node2"), 11000, 0, 3, SECRET),
        serial_no=1,
        uuid=uuid_of("mirror"),
        children=(Disk(dev_type="plain", logical_id=("vg", "data"), size=1024),),
    )
    first = instance_of(
        1, disks=(disk.uuid,), serial_no=6, osparams_private=ht.PrivateDict({"password": "hunter2"})
    )
    first = dataclasses.replace(first, nics=(dataclasses.replace(first.nics[0], ip="10.0.0.1"),))
    second = instance_of(2)
    second = dataclasses.replace(
        second,
        nics=(dataclasses.replace(second.nics[0], ip="10.0.0.2", nicparams={"link": "br1"}),),
    )
    return dataclasses.replace(
        data, instances={one.uuid: one for one in (first, second)}, disks={disk.uuid: disk}
    )


@pytest.fixture(scope="module")
def facts() -> queries.ConfigFacts:
    return queries.ConfigFacts(cluster())


def ask(facts: queries.ConfigFacts, kind: int, query: Any = None) -> ConfdReply:
    return facts.reply(ConfdRequest(kind, query, "salt"))


def test_ping(facts: queries.ConfigFacts) -> None:
    assert ask(facts, const.REQ_PING) == ConfdReply(0, 3010000, 0)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("node1.example.com", const.ROLE_MASTER),
        ("node2", const.ROLE_DRAINED),
        ("node3", const.ROLE_DRAINED),
        ("node4", const.ROLE_OFFLINE),
        ("node5", const.ROLE_REGULAR),
    ],
)
def test_roles(facts: queries.ConfigFacts, name: str, role: int) -> None:
    assert ask(facts, const.REQ_NODE_ROLE, name) == ConfdReply(0, role, 9)


def test_a_plain_candidate() -> None:
    facts = queries.ConfigFacts(small_cluster(2))
    assert ask(facts, const.REQ_NODE_ROLE, "node2").answer == const.ROLE_CANDIDATE


@pytest.mark.parametrize(
    ("kind", "query", "error"),
    [
        (const.REQ_NODE_ROLE, "node9", 0),
        (const.REQ_NODE_ROLE, None, 2),
        (const.REQ_NODE_DRBD, "x", 0),
        (const.REQ_NODE_INSTANCES, 3, 2),
        (const.REQ_INSTANCE_DISKS, "nobody", 0),
        (const.REQ_INSTANCE_DISKS, [], 2),
        (const.REQ_NODE_BY_INSTANCE_IP, {"1": "10.9.9.9"}, 0),
        (const.REQ_NODE_BY_INSTANCE_IP, {"1": 3}, 2),
        (const.REQ_NODE_BY_INSTANCE_IP, {"2": "10.0.0.1"}, 2),
        (const.REQ_NODE_BY_INSTANCE_IP, {"0": 1, "1": "10.0.0.1"}, 2),
        (const.REQ_CLUSTER_MASTER, {"3": [9]}, 2),
        (const.REQ_CLUSTER_MASTER, {"3": ["9"]}, 2),
        (const.REQ_CLUSTER_MASTER, {"3": ["name"]}, 2),
        (const.REQ_CLUSTER_MASTER, {"3": [["0"]]}, 2),
        (const.REQ_CLUSTER_MASTER, {"3": [True]}, 2),
        (const.REQ_CLUSTER_MASTER, {"3": [0.5]}, 2),
        (const.REQ_CLUSTER_MASTER, "name", 2),
        (const.REQ_INSTANCE_IPS, 5, 2),
        (const.REQ_CONFIG, "cluster", 2),
        (const.REQ_CONFIG, None, 2),
        (const.REQ_CONFIG, "/cluster/nothing", 2),
        (const.REQ_CONFIG, "/cluster/enabled_hypervisors/7", 2),
    ],
)
def test_wrong_questions(facts: queries.ConfigFacts, kind: int, query: Any, error: int) -> None:
    assert ask(facts, kind, query) == ConfdReply(const.STATUS_ERROR, error, 9)


def test_unknown_kind(facts: queries.ConfigFacts) -> None:
    assert ask(facts, 12).status == const.STATUS_NOT_IMPLEMENTED


def test_master(facts: queries.ConfigFacts) -> None:
    assert ask(facts, const.REQ_CLUSTER_MASTER).answer == "node1.example.com"
    assert ask(facts, const.REQ_CLUSTER_MASTER, {"3": [2, 0, 1]}).answer == [
        "192.0.2.1",
        "node1.example.com",
        "192.0.2.250",
    ]


@pytest.mark.parametrize("query", [None, "", {}, [], {"3": None}])
def test_ways_to_ask_nothing_special(facts: queries.ConfigFacts, query: Any) -> None:
    assert ask(facts, const.REQ_CLUSTER_MASTER, query).answer == "node1.example.com"
    if query != {"3": None}:
        assert ask(facts, const.REQ_INSTANCE_IPS, query).answer == ["10.0.0.1"]


def test_null_is_a_key_which_is_not_asked(facts: queries.ConfigFacts) -> None:
    one = {"0": None, "1": "10.0.0.1", "2": None}
    assert ask(facts, const.REQ_NODE_BY_INSTANCE_IP, one) == ConfdReply(0, "192.0.2.1", 9)
    # Programs in Haskell write an empty list for a list which they do not ask.
    full = {"0": None, "1": "10.0.0.1", "2": [], "3": []}
    assert ask(facts, const.REQ_NODE_BY_INSTANCE_IP, full) == ConfdReply(0, "192.0.2.1", 9)
    both = {"1": "10.0.0.1", "2": ["10.9.9.9"]}
    assert ask(facts, const.REQ_NODE_BY_INSTANCE_IP, both) == ConfdReply(0, "192.0.2.1", 9)
    several = {"0": None, "1": None, "2": ["10.0.0.1"]}
    found = ask(facts, const.REQ_NODE_BY_INSTANCE_IP, several)
    assert found == ConfdReply(0, [[0, "192.0.2.1", 9]], 9)


def test_addresses(facts: queries.ConfigFacts) -> None:
    every = [f"192.0.2.{number}" for number in range(1, 6)]
    assert ask(facts, const.REQ_NODE_IPS).answer == every
    assert ask(facts, const.REQ_CANDIDATE_IPS).answer == every[:3]
    assert ask(facts, const.REQ_INSTANCE_IPS).answer == ["10.0.0.1"]
    assert ask(facts, const.REQ_INSTANCE_IPS, "br1").answer == ["10.0.0.2"]


def test_node_of_an_instance_address(facts: queries.ConfigFacts) -> None:
    kind = const.REQ_NODE_BY_INSTANCE_IP
    assert ask(facts, kind, {"1": "10.0.0.1"}).answer == "192.0.2.1"
    assert ask(facts, kind, "10.0.0.1").answer == "192.0.2.1"
    assert ask(facts, kind, {"0": "br1", "1": "10.0.0.2"}).answer == "192.0.2.1"
    assert ask(facts, kind, {"2": ["10.0.0.1", "10.0.0.2"]}).answer == [
        [0, "192.0.2.1", 9],
        [1, 0, 0],
    ]


def test_drbd_minors_of_both_ends(facts: queries.ConfigFacts) -> None:
    first, second = "node1.example.com", "node2.example.com"
    name = "instance1.example.com"
    assert ask(facts, const.REQ_NODE_DRBD, "node1") == ConfdReply(
        0, [[first, 0, name, "disk/0", "primary", second]], 1
    )
    assert ask(facts, const.REQ_NODE_DRBD, "node2") == ConfdReply(
        0, [[second, 3, name, "disk/0", "secondary", first]], 4
    )
    assert ask(facts, const.REQ_NODE_DRBD, "node5").answer == []


def test_instances_of_a_node(facts: queries.ConfigFacts) -> None:
    primaries, secondaries = ask(facts, const.REQ_NODE_INSTANCES, "node1").answer
    assert [one["name"] for one in primaries] == ["instance1.example.com", "instance2.example.com"]
    assert secondaries == []
    primaries, secondaries = ask(facts, const.REQ_NODE_INSTANCES, "node2").answer
    assert primaries == [] and [one["name"] for one in secondaries] == ["instance1.example.com"]


def test_disks_of_an_instance_by_name_and_uuid(facts: queries.ConfigFacts) -> None:
    by_name = ask(facts, const.REQ_INSTANCE_DISKS, "instance1")
    assert by_name == ask(facts, const.REQ_INSTANCE_DISKS, uuid_of("instance1"))
    assert by_name.serial == 6
    assert by_name.answer[0]["logical_id"][:5] == [uuid_of("node1"), uuid_of("node2"), 11000, 0, 3]


def test_pointers_into_the_configuration(facts: queries.ConfigFacts) -> None:
    kind = const.REQ_CONFIG
    assert ask(facts, kind, "/cluster/cluster_name").answer == "cluster.example.com"
    assert ask(facts, kind, "/cluster/enabled_hypervisors/0").answer == "fake"
    assert ask(facts, kind, f"/nodes/{uuid_of('node1')}/name").answer == "node1.example.com"
    assert ask(facts, kind, "").answer["version"] == 3010000


def test_pointers_with_escapes() -> None:
    data = small_cluster(1, osparams={"a/b~c": {"x": 1}})
    assert (
        ask(queries.ConfigFacts(data), const.REQ_CONFIG, "/cluster/osparams/a~1b~0c/x").answer == 1
    )


def test_no_answer_tells_a_secret(facts: queries.ConfigFacts) -> None:
    everything = [
        ask(facts, const.REQ_CONFIG, ""),
        ask(facts, const.REQ_NODE_INSTANCES, "node1"),
        ask(facts, const.REQ_INSTANCE_DISKS, "instance1"),
    ]
    text = repr(everything)
    assert SECRET not in text and "hunter2" not in text
    assert everything[2].answer[0]["logical_id"][5] == ht.REDACTED
    # Which parameters there are is not secret.
    assert everything[1].answer[0][0]["osparams_private"] == {"password": ht.REDACTED}


def test_collectors(facts: queries.ConfigFacts) -> None:
    assert ask(facts, const.REQ_DATA_COLLECTORS).answer == {"drbd": {"active": True, "interval": 5}}


def test_every_published_request_has_an_answer(facts: queries.ConfigFacts) -> None:
    node = node_of(1).name
    good: dict[int, Any] = {1: node, 2: {"2": []}, 7: node, 8: node, 9: "instance1", 10: ""}
    for kind in range(12):
        assert ask(facts, kind, good.get(kind)).status == const.STATUS_OK, kind
