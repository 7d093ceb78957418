"""Calls for several disks, also of a node of the release before."""

from __future__ import annotations

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.disks.calls import call_for_disks
from ganeti.wire import calls

NODE1, NODE2 = "node1.example.com", "node2.example.com"
DISKS = tuple(disk_of("web", index) for index in range(2))
INSTANCE = instance_of("web", disks=tuple(disk.uuid for disk in DISKS))
MULTI = {
    calls.BLOCKDEV_CREATE_MULTI: {
        "owner": "web",
        "on_primary": True,
        "info": "",
        "exclusive_storage": False,
    },
    calls.BLOCKDEV_REMOVE_MULTI: {},
    calls.BLOCKDEV_ASSEMBLE_MULTI: {"instance": INSTANCE, "on_primary": True, "indexes": [5, 7]},
    calls.BLOCKDEV_SHUTDOWN_MULTI: {},
    calls.BLOCKDEV_FIND_MULTI: {},
    calls.BLOCKDEV_SETINFO_MULTI: {"info": "originstname+web"},
}


def master_with_former() -> Master:
    master = Master(cluster_of(2, (INSTANCE,), DISKS))
    master.rpc.former.add(NODE2)
    master.rpc.lacking.update(call.name for call in MULTI)
    master.rpc.answers["blockdev_assemble"] = ["/dev/x", "/run/link", None]
    master.rpc.answers["blockdev_assemble_multi"] = ["/dev/x", "/run/link", None]
    return master


def test_a_node_of_the_release_before_is_asked_once_for_each_disk() -> None:
    """So its guests can be started and stopped, and it gets new ones."""
    for call, args in MULTI.items():
        master = master_with_former()
        found = call_for_disks(
            master.rpc,  # type: ignore[arg-type]
            call,
            {uuid_of("node1"): DISKS, uuid_of("node2"): DISKS},
            INSTANCE,
            **args,
        )
        single = call.name.removesuffix("_multi")
        assert [node for node, _args in master.rpc.of(call.name)] == [NODE1, NODE2]
        assert [(node, args["disk"].uuid) for node, args in master.rpc.of(single)] == [
            (NODE2, disk.uuid) for disk in DISKS
        ]
        answers = [answer.failure for some in found.values() for answer in some]
        assert answers == [None] * 4, call.name


def test_arguments_which_the_call_for_one_disk_has_instead() -> None:
    master = master_with_former()
    for call in (calls.BLOCKDEV_CREATE_MULTI, calls.BLOCKDEV_ASSEMBLE_MULTI):
        call_for_disks(
            master.rpc,  # type: ignore[arg-type]
            call,
            {uuid_of("node2"): DISKS},
            INSTANCE,
            **MULTI[call],
        )
    created = [args["size_mib"] for _node, args in master.rpc.of("blockdev_create")]
    assert created == [disk.size for disk in DISKS]
    assert [args["index"] for _node, args in master.rpc.of("blockdev_assemble")] == [5, 7]


def test_one_disk_which_fails_there_does_not_hide_the_other() -> None:
    master = master_with_former()

    def remove(node: str, args: dict[str, object]) -> object:
        if args["disk"].uuid == DISKS[0].uuid:  # type: ignore[attr-defined]
            return errors.NodeCallFailed(node, "blockdev_remove", "it is in use")
        return None

    master.rpc.answers["blockdev_remove"] = remove
    found = call_for_disks(
        master.rpc,  # type: ignore[arg-type]
        calls.BLOCKDEV_REMOVE_MULTI,
        {uuid_of("node2"): DISKS},
        INSTANCE,
    )
    first, second = found[uuid_of("node2")]
    assert "it is in use" in str(first.failure) and second.failure is None


def test_every_call_for_several_disks_is_tried_here() -> None:
    """Those which ask or do something that the release before cannot do at all are left out."""
    new = {"blockdev_reachable_multi", "blockdev_getmirrorstatus_multi"}
    multi = {
        name
        for name in calls.TABLE
        if name.startswith("blockdev_") and name.endswith("_multi") and name not in new
    }
    assert multi == {call.name for call in MULTI}
