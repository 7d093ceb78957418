"""``gnt-cluster undo`` and ``gnt-instance undo``: the plan of opposite jobs, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.cli import terminal

from .conftest import Gnt


def commit(serial: int, *changes: tuple[str, str]) -> dict[str, Any]:
    """A commit in the answer to ``QueryConfigHistory``; changes are kind and name."""
    return {
        "serial": serial,
        "before": serial - 1,
        "time": 1764000000.0,
        "job": serial,
        "opcode": "INSTANCE_SET_PARAMS",
        "source": "",
        "reason": "",
        "count": len(changes),
        "changes": [[kind, name, "changed", []] for kind, name in changes],
    }


def disk(what: str, uuid: str, old: Any, new: Any) -> dict[str, Any]:
    return {**change("disks", uuid, old, new), "uuid": uuid, "what": what}


def change(kind: str, name: str, old: Any, new: Any) -> dict[str, Any]:
    what = "added" if old is None else "removed" if new is None else "changed"
    return {"kind": kind, "uuid": f"u-{name}", "name": name, "what": what, "old": old, "new": new}


class History:
    """What the simulated master knows: the changes of commit 41, and those after it."""

    def __init__(self) -> None:
        self.changes: list[dict[str, Any]] = []
        self.later: list[dict[str, Any]] = []
        #: Serial number -> changes, when the job has more commits than 41.
        self.more: dict[int, list[dict[str, Any]]] = {}


@pytest.fixture
def history(master: FakeMaster) -> History:
    known = History()
    master.rows["node"] = [
        {"name": name, "uuid": f"u-{name}"} for name in ("node1", "node2", "node3")
    ]
    master.rows["instance"] = [
        {
            "name": "web1",
            "uuid": "u-web1",
            "disk_template": "drbd",
            "admin_state": "up",
            "disk.uuids": ["d1"],
            "disk.names": [None],
        }
    ]

    def compare(first: int, last: int) -> dict[str, Any]:
        found = known.later
        if last - first == 1 and last <= 41:
            found = known.more.get(last, known.changes)
        return {"first": first, "last": last, "changes": found}

    def commits(limit: int | None) -> list[dict[str, Any]]:
        found = [commit(43, ("nodes", "node2"))]
        for serial in sorted({41, *known.more}, reverse=True):
            named = known.more.get(serial, known.changes)
            one = commit(serial, *((each["kind"], each["name"]) for each in named))
            found.append({**one, "job": 41})
        return found

    master.rows["group"] = [{"name": "default", "uuid": "u-default"}]
    master.rows["network"] = [
        {"name": "net1", "uuid": "u-net1", "network": "192.0.2.0/29"},
    ]
    master.answers["QueryConfigHistory"] = commits
    master.answers["QueryConfigChanges"] = compare
    master.answers["QueryJobs"] = lambda ids, fields: [None for _ in ids]
    return known


#: Old and new attributes of instance web1 -> what the jobs are given.
INSTANCE = [
    (
        {"beparams": {"maxmem": 1024}},
        {"beparams": {"maxmem": 4096, "vcpus": 4}},
        [("OP_INSTANCE_SET_PARAMS", {"beparams": {"maxmem": 1024, "vcpus": "default"}})],
    ),
    (
        {"hvparams": {"acpi": True}, "serial_no": 3},
        {"hvparams": {"acpi": False}, "serial_no": 4},
        [("OP_INSTANCE_SET_PARAMS", {"hvparams": {"acpi": True}})],
    ),
    (
        {"os": "debian"},
        {"os": "image"},
        [("OP_INSTANCE_SET_PARAMS", {"os_name": "debian"})],
    ),
    ({"admin_state": "up"}, {"admin_state": "down"}, [("OP_INSTANCE_STARTUP", {})]),
    ({"admin_state": "down"}, {"admin_state": "up"}, [("OP_INSTANCE_SHUTDOWN", {})]),
    (
        {"admin_state": "down"},
        {"admin_state": "offline"},
        [("OP_INSTANCE_SET_PARAMS", {"offline": False})],
    ),
    (
        {"tags": ["a", "b"]},
        {"tags": ["b", "c"]},
        [("OP_TAGS_SET", {"tags": ["a"]}), ("OP_TAGS_DEL", {"tags": ["c"]})],
    ),
    (
        {"primary_node": "u-node1"},
        {"primary_node": "u-node2"},
        [("OP_INSTANCE_MIGRATE", {"allow_failover": True, "target_node": None})],
    ),
    ({"name": "old1"}, {"name": "web1"}, [("OP_INSTANCE_RENAME", {"new_name": "old1"})]),
]


@pytest.mark.parametrize(("old", "new", "wanted"), INSTANCE)
def test_the_old_values_come_back(
    old: Any, new: Any, wanted: Any, gnt: Gnt, master: FakeMaster, history: History
) -> None:
    history.changes = [change("instances", "web1", old, new)]
    ended = gnt("cluster undo -f 41")
    assert ended.code == 0, ended
    sent = master.opcodes()
    assert [op["OP_ID"] for op in sent] == [op_id for op_id, _ in wanted]
    for op, (_, values) in zip(sent, wanted, strict=True):
        assert {name: op[name] for name in values} == values
        assert (op.get("instance_name") or op["name"]) == "web1"
    # One object, one job.
    assert len(master.jobs) == 1


def test_an_instance_without_mirrored_disks_is_moved_back(
    gnt: Gnt, master: FakeMaster, history: History
) -> None:
    master.rows["instance"][0]["disk_template"] = "plain"
    history.changes = [
        change("instances", "web1", {"primary_node": "u-node1"}, {"primary_node": "u-node2"})
    ]
    assert gnt("cluster undo -f 41").code == 0
    assert (master.opcode()["OP_ID"], master.opcode()["target_node"]) == (
        "OP_INSTANCE_MOVE",
        "node1",
    )


def test_the_marks_of_a_node(gnt: Gnt, master: FakeMaster, history: History) -> None:
    history.changes = [
        change(
            "nodes",
            "node2",
            {"drained": False, "ndparams": {}},
            {"drained": True, "ndparams": {"oob_program": "/x"}},
        )
    ]
    assert gnt("cluster undo -f 41").code == 0
    op = master.opcode()
    assert (op["drained"], op["offline"], op["ndparams"]) == (
        False,
        None,
        {"oob_program": "default"},
    )


def test_the_plan_is_shown_before_the_question(
    gnt: Gnt, master: FakeMaster, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.changes = [
        change("instances", "web1", {"admin_state": "up"}, {"admin_state": "down"}),
        change("instances", "db1", {"name": "db1"}, None),
        change("disks", "d1", {"size": 5}, None),
    ]
    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(terminal, "confirm", lambda question: False)
    ended = gnt("cluster undo 41")
    assert (ended.code, master.opcodes()) == (13, [])
    lines = ended.out.splitlines()
    assert lines[0].startswith("Undo of commit 41 (2025-11-24 ")
    assert lines[0].endswith(", job 41):")
    assert lines[1:] == [
        "  instance web1: start it",
        "This is not undone:",
        "  instance db1: it was removed with its disks, and no job brings their data back. An"
        " export, if there is one, is imported with 'gnt-backup import'.",
    ]


def test_a_creation_is_undone_by_a_removal(gnt: Gnt, master: FakeMaster, history: History) -> None:
    history.changes = [change("instances", "web1", None, {"name": "web1"})]
    ended = gnt("cluster undo -f 41")
    assert "instance web1: remove it, and destroy its disks and all their data" in ended.out
    assert master.opcode()["OP_ID"] == "OP_INSTANCE_REMOVE"


def test_a_newer_change_is_never_overwritten(
    gnt: Gnt, master: FakeMaster, history: History
) -> None:
    history.changes = [
        change(
            "instances",
            "web1",
            {"beparams": {"vcpus": 1}, "os": "a"},
            {"beparams": {"vcpus": 2}, "os": "b"},
        )
    ]
    history.later = [
        change("instances", "web1", {"beparams": {"vcpus": 2}}, {"beparams": {"vcpus": 8}})
    ]
    ended = gnt("cluster undo -f 41")
    assert "  instance web1: beparams was changed again since" in ended.out
    assert (master.opcode()["os_name"], master.opcode()["beparams"]) == ("a", {})


@pytest.mark.parametrize(
    ("kind", "old", "new", "text"),
    [
        (
            "instances",
            {"osparams_private": {}},
            {"osparams_private": {"a": "b"}},
            "--os-parameters-private",
        ),
        ("nodes", {"name": "node9"}, None, "'gnt-node add' adds the machine again"),
        ("networks", {"gateway": None}, {"gateway": "192.0.2.1"}, "no job removes the gateway"),
        ("filters", {"action": "ACCEPT"}, {"action": "REJECT"}, "no job changes it"),
        ("cluster", {"cluster_name": "a"}, {"cluster_name": "b"}, "gnt-cluster rename"),
        ("nodes", {"maintenance": None}, {"maintenance": {}}, "gnt-node maintenance end"),
    ],
)
def test_what_no_job_brings_back_is_said(
    kind: str, old: Any, new: Any, text: str, gnt: Gnt, master: FakeMaster, history: History
) -> None:
    history.changes = [change(kind, "web1", old, new)]
    ended = gnt("cluster undo -f 41")
    assert (ended.code, master.opcodes()) == (1, [])
    assert text in ended.out
    assert ended.err == "No job can undo this.\n"


def test_an_object_which_is_gone(gnt: Gnt, master: FakeMaster, history: History) -> None:
    history.changes = [change("instances", "web1", {"os": "a"}, {"os": "b"})]
    history.later = [change("instances", "web1", {"name": "web1"}, None)]
    ended = gnt("cluster undo -f 41")
    assert (ended.code, master.opcodes()) == (1, [])
    assert "instance web1: it was removed since" in ended.out


def test_the_last_change_of_an_instance(gnt: Gnt, master: FakeMaster, history: History) -> None:
    history.changes = [
        change("instances", "web1", {"os": "a"}, {"os": "b"}),
        change("nodes", "node3", {"drained": False}, {"drained": True}),
    ]
    assert gnt("instance undo -f web1").code == 0
    # The other objects of this commit stay.
    assert master.opcode()["OP_ID"] == "OP_INSTANCE_SET_PARAMS"
    assert gnt("instance undo -f nosuch").code == 1


def test_a_commit_whose_changes_were_not_kept_may_concern_the_instance(
    gnt: Gnt, master: FakeMaster, history: History
) -> None:
    """It was too large for the history. An older change is not taken for the last one."""
    history.changes = [change("instances", "web1", {"os": "a"}, {"os": "b"})]
    known = master.answers["QueryConfigHistory"]
    master.answers["QueryConfigHistory"] = lambda limit: [
        {**commit(44), "count": None, "changes": []},
        *known(limit),
    ]
    asked: list[int] = []

    def compare(first: int, last: int) -> dict[str, Any]:
        asked.append(last)
        raise errors.OpPrereqError(
            "the commit with serial number 44 was too large to be kept", errors.ECODE_STATE
        )

    master.answers["QueryConfigChanges"] = compare
    ended = gnt("instance undo -f web1")
    assert (ended.code, master.opcodes(), asked) == (1, [], [44])
    assert "was too large to be kept" in ended.err


@pytest.mark.parametrize("word", ["99", "yesterday"])
def test_a_wrong_serial_number(word: str, gnt: Gnt, master: FakeMaster, history: History) -> None:
    ended = gnt(f"cluster undo -f {word}")
    assert (ended.code, master.opcodes()) == (1, [])
    assert "'gnt-cluster history' shows" in ended.err


# -- devices, storage and places -------------------------------------------------------------------


def nic(uuid: str, **values: Any) -> dict[str, Any]:
    return {"mac": "aa:00:00:00:00:01", "nicparams": {}, "uuid": uuid, **values}


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ([nic("a")], [nic("a"), nic("b")], [["remove", "b", {}]]),
        (
            [nic("a", ip="192.0.2.2", network="u-net1")],
            [],
            [["add", 0, {"mac": "aa:00:00:00:00:01", "ip": "192.0.2.2", "network": "net1"}]],
        ),
        (
            [nic("a", nicparams={"link": "br0"})],
            [nic("a", mac="aa:00:00:00:00:02", name="x", nicparams={"vlan": "7"})],
            [
                [
                    "modify",
                    "a",
                    {
                        "mac": "aa:00:00:00:00:01",
                        "name": "none",
                        "link": "br0",
                        "vlan": "default",
                    },
                ]
            ],
        ),
    ],
)
def test_network_interfaces(
    old: Any, new: Any, wanted: Any, gnt: Gnt, master: FakeMaster, history: History
) -> None:
    history.changes = [change("instances", "web1", {"nics": old}, {"nics": new})]
    assert gnt("instance undo -f web1").code == 0
    assert master.opcode()["nics"] == wanted


def test_disks_are_removed_detached_and_attached(
    gnt: Gnt, master: FakeMaster, history: History
) -> None:
    history.changes = [
        change("instances", "web1", {"disks": ["d0", "gone"]}, {"disks": ["d1", "d2"]}),
        disk("added", "d1", None, {"size": 5, "dev_type": "plain"}),
        disk("removed", "gone", {"size": 7, "dev_type": "plain"}, None),
    ]
    # The first was attached in the place of one which still exists.
    ended = gnt("cluster undo -f 41")
    assert ended.code == 0
    assert master.opcode()["disks"] == [
        ["remove", "d1", {}],
        ["detach", "d2", {}],
        ["attach", 0, {"uuid": "d0"}],
    ]
    assert "instance web1: disk 1 (7 MiB) was removed, and its data with it." in ended.out


def test_a_conversion_is_never_undone_by_removing_the_new_disk(
    gnt: Gnt, master: FakeMaster, history: History
) -> None:
    history.changes = [
        change("instances", "web1", {"disks": ["old"]}, {"disks": ["d1"]}),
        disk(
            "removed",
            "old",
            {"size": 7, "dev_type": "drbd", "nodes": ["u-node1", "u-node2"]},
            None,
        ),
        disk("added", "d1", None, {"size": 7, "dev_type": "plain", "nodes": ["u-node1"]}),
    ]
    ended = gnt("cluster undo -f 41")
    op = master.opcode()
    assert (op["disk_template"], op["remote_node"], op["disks"]) == ("drbd", "node2", [])
    assert "convert its disks to drbd again" in ended.out
    assert "not undone" not in ended.out


def test_disks_which_were_made_anew_stay(gnt: Gnt, master: FakeMaster, history: History) -> None:
    history.changes = [
        change("instances", "web1", {"disks": ["old"]}, {"disks": ["d1"]}),
        disk("removed", "old", {"size": 7, "dev_type": "plain"}, None),
        disk("added", "d1", None, {"size": 7, "dev_type": "plain"}),
    ]
    ended = gnt("cluster undo -f 41")
    assert (ended.code, master.opcodes()) == (1, [])
    assert "its disks were made anew; their former data is gone" in ended.out


def test_only_a_disk_was_changed(gnt: Gnt, master: FakeMaster, history: History) -> None:
    history.changes = [
        disk("changed", "d1", {"size": 10, "mode": "rw"}, {"size": 20, "mode": "ro", "name": "a"})
    ]
    ended = gnt("instance undo -f web1")
    assert master.opcode()["disks"] == [["modify", "d1", {"mode": "rw", "name": "none"}]]
    assert "disk 0 grew from 10 to 20 MiB, and does not become smaller" in ended.out


@pytest.mark.parametrize(
    ("nodes", "primaries", "wanted"),
    [
        # The secondary node was replaced.
        (("12", "13"), None, [("OP_INSTANCE_REPLACE_DISKS", "node2")]),
        # The primary node was evacuated: failover, and a new secondary node.
        (
            ("12", "23"),
            ("1", "2"),
            [("OP_INSTANCE_REPLACE_DISKS", "node1"), ("OP_INSTANCE_MIGRATE", None)],
        ),
        # The new secondary node became the primary one.
        (
            ("12", "23"),
            ("1", "3"),
            [
                ("OP_INSTANCE_MIGRATE", None),
                ("OP_INSTANCE_REPLACE_DISKS", "node1"),
                ("OP_INSTANCE_MIGRATE", None),
            ],
        ),
    ],
)
def test_mirrored_instances_come_back_to_their_nodes(
    nodes: Any, primaries: Any, wanted: Any, gnt: Gnt, master: FakeMaster, history: History
) -> None:
    old, new = ([f"u-node{number}" for number in some] for some in nodes)
    history.changes = [disk("changed", "d1", {"nodes": old}, {"nodes": new})]
    if primaries:
        before, after = (f"u-node{number}" for number in primaries)
        history.changes.append(
            change("instances", "web1", {"primary_node": before}, {"primary_node": after})
        )
    assert gnt("cluster undo -f 41").code == 0
    sent = [(op["OP_ID"], op.get("remote_node")) for op in master.opcodes()]
    assert sent == wanted


def test_a_stopped_instance_is_failed_over(gnt: Gnt, master: FakeMaster, history: History) -> None:
    master.rows["instance"][0].update(disk_template="sharedfile", admin_state="down")
    history.changes = [
        change("instances", "web1", {"primary_node": "u-node3"}, {"primary_node": "u-node2"})
    ]
    assert gnt("instance undo -f web1").code == 0
    op = master.opcode()
    assert (op["OP_ID"], op["target_node"]) == ("OP_INSTANCE_FAILOVER", "node3")


# -- other objects ---------------------------------------------------------------------------------

OTHERS = [
    (
        ("nodes", "node2", {"group": "u-default"}, {"group": "u-rack2"}),
        [("OP_GROUP_ASSIGN_NODES", {"group_name": "default", "nodes": ["node2"]})],
    ),
    (
        ("nodes", "node2", {"offline": True}, {"offline": False, "master_candidate": True}),
        [("OP_NODE_SET_PARAMS", {"offline": True, "master_candidate": None})],
    ),
    (("nodes", "node2", None, {"name": "node2"}), [("OP_NODE_REMOVE", {"node_name": "node2"})]),
    (
        (
            "nodegroups",
            "rack3",
            {"ipolicy": {"vcpu-ratio": 4.0}, "diskparams": {}, "name": "rack2"},
            {"ipolicy": {}, "diskparams": {"drbd": {"c-min-rate": 8}}, "name": "rack3"},
        ),
        [
            (
                "OP_GROUP_SET_PARAMS",
                {
                    "ipolicy": {"vcpu-ratio": 4.0},
                    "diskparams": {"drbd": {"c-min-rate": "default"}},
                },
            ),
            ("OP_GROUP_RENAME", {"new_name": "rack2"}),
        ],
    ),
    (
        (
            "nodegroups",
            "rack2",
            {"networks": {"u-net1": {"mode": "bridged", "link": "br0", "vlan": ""}}},
            {"networks": {}},
        ),
        [("OP_NETWORK_CONNECT", {"network_name": "net1", "network_link": "br0"})],
    ),
    (
        ("nodegroups", "rack2", None, {"name": "rack2"}),
        [("OP_GROUP_REMOVE", {"group_name": "rack2"})],
    ),
    (
        (
            "nodegroups",
            "rack2",
            {"alloc_policy": "preferred", "tags": ["a"], "ndparams": {"cpu_speed": 2}},
            None,
        ),
        [
            ("OP_GROUP_ADD", {"alloc_policy": "preferred", "ndparams": {"cpu_speed": 2}}),
            ("OP_TAGS_SET", {"kind": "nodegroup", "tags": ["a"]}),
        ],
    ),
    (
        (
            "networks",
            "net1",
            {"ext_reservations": "11100001", "gateway": "192.0.2.1"},
            {"ext_reservations": "10011001", "gateway": "192.0.2.4"},
        ),
        [
            (
                "OP_NETWORK_SET_PARAMS",
                {
                    "gateway": "192.0.2.1",
                    "add_reserved_ips": ["192.0.2.2"],
                    "remove_reserved_ips": ["192.0.2.3"],
                },
            )
        ],
    ),
    (
        (
            "networks",
            "net2",
            {"network": "192.0.2.0/29", "gateway": "192.0.2.1", "ext_reservations": "11010001"},
            None,
        ),
        [("OP_NETWORK_ADD", {"gateway": "192.0.2.1", "add_reserved_ips": ["192.0.2.3"]})],
    ),
    (
        (
            "cluster",
            "cluster.example.com",
            {"beparams": {"default": {"vcpus": 1}}, "witness": None, "hidden_os": ["a"]},
            {"beparams": {"default": {"vcpus": 2}}, "witness": "https://x/y", "hidden_os": ["b"]},
        ),
        [
            (
                "OP_CLUSTER_SET_PARAMS",
                {
                    "beparams": {"vcpus": 1},
                    "witness": "",
                    "hidden_os": [["add", "a"], ["remove", "b"]],
                },
            )
        ],
    ),
    (
        (
            "cluster",
            "cluster.example.com",
            {"hvparams": {"kvm": {"acpi": True}}, "os_hvp": {}, "volume_group_name": "xenvg"},
            {
                "hvparams": {"kvm": {"acpi": False}},
                "os_hvp": {"debian": {"kvm": {"acpi": False}}},
                "volume_group_name": "other",
            },
        ),
        [
            (
                "OP_CLUSTER_SET_PARAMS",
                {
                    "hvparams": {"kvm": {"acpi": True}},
                    "os_hvp": {"debian": {"kvm": {"acpi": "default"}}},
                    "vg_name": "xenvg",
                },
            )
        ],
    ),
]


@pytest.mark.parametrize(("changed", "wanted"), OTHERS)
def test_other_objects(
    changed: Any, wanted: Any, gnt: Gnt, master: FakeMaster, history: History
) -> None:
    history.changes = [change(*changed)]
    ended = gnt("cluster undo --yes 41")
    assert ended.code == 0, ended
    sent = master.opcodes()
    assert [op["OP_ID"] for op in sent] == [op_id for op_id, _ in wanted]
    for op, (_, values) in zip(sent, wanted, strict=True):
        assert {name: op[name] for name in values} == values


def test_a_secret_is_not_shown(gnt: Gnt, master: FakeMaster, history: History) -> None:
    history.changes = [
        change("cluster", "c", {"witness": "https://x/secret"}, {"witness": "https://x/other"})
    ]
    ended = gnt("cluster undo -f 41")
    assert master.opcode()["witness"] == "https://x/secret"
    assert "secret" not in ended.out + ended.err


# -- jobs ------------------------------------------------------------------------------------------


def test_all_commits_of_a_job_are_undone_together(
    gnt: Gnt, master: FakeMaster, history: History
) -> None:
    history.more = {
        39: [change("instances", "web1", {"os": "a"}, {"os": "b"})],
        40: [disk("added", "tmp", None, {"size": 1})],
        41: [
            change("instances", "web1", {"os": "b", "admin_state": "up"}, {"os": "c"}),
            disk("removed", "tmp", {"size": 1}, None),
        ],
    }
    history.more[41][0]["new"]["admin_state"] = "down"
    ended = gnt("cluster undo -f 40")
    assert ended.out.startswith("Undo of commits 39, 40 and 41 (")
    assert [op["OP_ID"] for op in master.opcodes()] == [
        "OP_INSTANCE_SET_PARAMS",
        "OP_INSTANCE_STARTUP",
    ]
    assert master.opcodes()[0]["os_name"] == "a"
    assert "tmp" not in ended.out


def test_a_job_which_runs_is_not_undone(gnt: Gnt, master: FakeMaster, history: History) -> None:
    master.answers["QueryJobs"] = lambda ids, fields: [["running"] for _ in ids]
    history.changes = [change("instances", "web1", {"os": "a"}, {"os": "b"})]
    ended = gnt("cluster undo -f 41")
    assert (ended.code, master.opcodes()) == (1, [])
    assert "job 41, which made this change, has not ended" in ended.err


def test_the_present_name_is_used(gnt: Gnt, master: FakeMaster, history: History) -> None:
    master.rows["group"] = []
    history.changes = [
        {**change("nodegroups", "a", {"alloc_policy": "x"}, {"alloc_policy": "y"}), "uuid": "u"}
    ]
    history.later = [{**change("nodegroups", "b", {"name": "a"}, {"name": "b"}), "uuid": "u"}]
    assert gnt("cluster undo -f 41").code == 0
    assert master.opcode()["group_name"] == "b"


def test_a_removed_instance_is_found_in_the_history(
    gnt: Gnt, master: FakeMaster, history: History
) -> None:
    history.changes = [change("instances", "db1.example.com", {"os": "a"}, None)]
    history.more = {}
    named = master.answers["QueryConfigHistory"]

    def commits(limit: int | None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = named(limit)
        for one in found:
            for row in one["changes"]:
                row[2] = "removed" if row[0] == "instances" else row[2]
        return found

    master.answers["QueryConfigHistory"] = commits
    ended = gnt("instance undo -f db1")
    assert (ended.code, master.opcodes()) == (1, [])
    assert "instance db1.example.com: it was removed with its disks" in ended.out


def test_a_failed_job_is_a_failure(gnt: Gnt, master: FakeMaster, history: History) -> None:
    master.results["OP_INSTANCE_STARTUP"] = errors.OpExecError("no memory")
    history.changes = [change("instances", "web1", {"admin_state": "up"}, {"admin_state": "down"})]
    ended = gnt("instance undo --yes web1")
    assert ended.code == 1
    assert "no memory" in ended.err
    assert ended.err.splitlines()[-1].startswith("Not everything is undone. Options which an error")


def test_a_dry_run_asks_nothing(gnt: Gnt, master: FakeMaster, history: History) -> None:
    history.changes = [change("instances", "web1", {"admin_state": "up"}, {"admin_state": "down"})]
    ended = gnt("cluster undo --dry-run 41")
    assert (ended.code, master.opcode()["dry_run"]) == (0, True)
    assert "  instance web1: start it\n" in ended.out


def test_submit_prints_the_job_of_each_object(
    gnt: Gnt, master: FakeMaster, history: History
) -> None:
    history.changes = [change("instances", "web1", {"admin_state": "up"}, {"admin_state": "down"})]
    assert gnt("cluster undo -f --submit 41").out.splitlines()[-1] == "1: web1"
