"""Which objects the opcodes of a job name."""

from __future__ import annotations

import pytest

from ganeti import opcodes
from ganeti.opcodes import subjects
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceStartup
from ganeti.opcodes.subjects import named_objects
from ganeti.opcodes.tags import OpTagsSet


def test_each_object_once_in_the_order_of_the_opcodes() -> None:
    ops = [
        OpInstanceStartup(instance_name="web2").to_dict(),
        OpInstanceCreate(
            instance_name="web1",
            mode="create",
            disk_template="drbd",
            disks=[],
            nics=[],
            pnode="node1",
            snode="node2",
        ).to_dict(),
        OpInstanceStartup(instance_name="web2").to_dict(),
    ]
    assert named_objects(ops) == [
        ("instance", "web2"),
        ("instance", "web1"),
        ("node", "node1"),
        ("node", "node2"),
    ]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"OP_ID": "OP_CLUSTER_VERIFY", "group_name": None}, []),
        ({"OP_ID": "OP_TAGS_SET", "kind": "nodegroup", "name": "g1"}, [("group", "g1")]),
        ({"OP_ID": "OP_TAGS_SET", "kind": "cluster", "name": None}, []),
        (
            {"OP_ID": "OP_INSTANCE_RENAME", "instance_name": "a", "new_name": "b"},
            [("instance", "a"), ("instance", "b")],
        ),
        (
            {"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": [{"instance_name": "a"}, "b", 3]},
            [("instance", "a"), ("instance", "b")],
        ),
        (
            {"OP_ID": "OP_BACKUP_EXPORT", "instance_name": "a", "target_node": [["host", 1, "x"]]},
            [("instance", "a")],
        ),
        (
            {"instance_name": "a", "mode": "remote-import", "source_instance_name": "b"},
            [("instance", "a")],
        ),
        ({"OP_ID": 3, "instance_name": 4, "nodes": [None], "kind": [], "name": "x"}, []),
    ],
)
def test_names(given: dict[str, object], found: list[tuple[str, str]]) -> None:
    assert named_objects([given]) == found


def test_every_parameter_exists() -> None:
    """A parameter which was renamed would name nothing any more."""
    declared = {name for op_id in opcodes.op_ids() for name in opcodes.lookup(op_id).PARAMS}
    assert set(subjects._KIND_OF) <= declared
    assert {"kind", "name"} <= set(OpTagsSet.PARAMS)
    for op_id in subjects._RENAMES:
        assert "new_name" in opcodes.lookup(op_id).PARAMS
