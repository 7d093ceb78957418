"""Tags, OS definitions, delays, consoles; and that every opcode has one unit."""

from __future__ import annotations

import pytest

from fakes.config import GROUP, cluster_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import cmdlib, errors, opcodes
from ganeti.cmdlib import base
from ganeti.opcodes.instance import OpInstanceConsole
from ganeti.opcodes.os import OpOsDiagnose
from ganeti.opcodes.tags import OpTagsDel, OpTagsGet, OpTagsSearch, OpTagsSet
from ganeti.opcodes.test import OpTestDelay

# -- the registry ----------------------------------------------------------------


#: The master refuses it: an opcode for tests of the queue.
WITHOUT_UNIT = "OP_TEST_DUMMY"


def test_all_opcodes_but_one_have_a_unit():
    cmdlib.load()
    assert set(opcodes.op_ids()) - set(base.UNITS) == {WITHOUT_UNIT}


@pytest.mark.parametrize("op_id", sorted({*opcodes.op_ids()} - {WITHOUT_UNIT}))
def test_every_opcode_has_its_unit(op_id):
    unit = cmdlib.lookup(op_id)
    assert unit.OPCODE is opcodes.lookup(op_id)
    assert unit.__name__ == unit.OPCODE.__name__.replace("Op", "LU", 1)
    assert unit.exec is not base.LogicalUnit.exec


def test_units_belong_to_known_opcodes():
    cmdlib.load()
    for op_id in base.UNITS:
        assert opcodes.lookup(op_id).OP_ID == op_id


def test_an_opcode_without_unit_is_said_so():
    with pytest.raises(errors.OpCodeUnknown, match="OP_NOSUCH"):
        cmdlib.lookup("OP_NOSUCH")


def test_two_units_for_one_opcode_are_a_mistake():
    cmdlib.load()
    with pytest.raises(errors.ProgrammerError, match="LUTestDelay"):
        base.executes(OpTestDelay)(type("Second", (base.LogicalUnit,), {}))


BIG_LOCK = {
    "OP_CLUSTER_DESTROY",
    "OP_CLUSTER_POST_INIT",
    "OP_CLUSTER_RENAME",
    "OP_CLUSTER_RENEW_CRYPTO",
    "OP_NODE_ADD",
    "OP_NODE_REMOVE",
    "OP_TEST_ALLOCATOR",
}


def test_the_big_lock_is_for_few():
    cmdlib.load()
    assert {op_id for op_id, unit in base.UNITS.items() if unit.REQ_BGL} == BIG_LOCK


# -- tags ------------------------------------------------------------------------


@pytest.fixture
def master():
    return Master(cluster_of(2, (instance_of("web", tags=("a", "b")),), tags=("site:lab",)))


@pytest.mark.parametrize(
    ("kind", "name"),
    [("cluster", None), ("instance", "web"), ("node", "node2"), ("nodegroup", "default")],
)
def test_tags_of_every_kind(master, kind, name):
    before = master.run(OpTagsGet(kind=kind, name=name, use_locking=True))
    master.run(OpTagsSet(kind=kind, name=name, tags=["x", "y:z"]))
    assert master.run(OpTagsGet(kind=kind, name=name)) == sorted([*before, "x", "y:z"])
    master.run(OpTagsDel(kind=kind, name=name, tags=["x", "y:z"]))
    assert master.run(OpTagsGet(kind=kind, name=name)) == before


def test_tags_are_removed_all_or_none(master):
    op = OpTagsDel(kind="instance", name="web", tags=["a", "nosuch"])
    assert "nosuch" in master.refused(op, errors.ECODE_NOENT)
    assert master.run(OpTagsGet(kind="instance", name="web")) == ["a", "b"]


@pytest.mark.parametrize(
    ("op", "ecode"),
    [
        (OpTagsSet(kind="instance", name="nosuch", tags=["x"]), errors.ECODE_NOENT),
        (OpTagsSet(kind="instance", tags=["x"]), errors.ECODE_INVAL),
        (OpTagsSet(kind="cluster", tags=["bad tag"]), errors.ECODE_INVAL),
        (OpTagsSet(kind="cluster", tags=["x" * 129]), errors.ECODE_INVAL),
        (OpTagsSet(kind="cluster", tags=[f"t{n}" for n in range(4097)]), errors.ECODE_INVAL),
        (OpTagsSearch(pattern="("), errors.ECODE_INVAL),
        (OpTagsSearch(pattern="(?!a)"), errors.ECODE_INVAL),
    ],
)
def test_tags_are_refused(master, op, ecode):
    master.refused(op, ecode)


def test_search_answers_paths(master):
    assert master.run(OpTagsSearch(pattern="^a$|site:")) == [
        ("/cluster", "site:lab"),
        ("/instances/web.example.com", "a"),
    ]


# -- OS definitions --------------------------------------------------------------


def os_row(name, **changes):
    values = {
        "path": f"/srv/os/{name}",
        "valid": True,
        "message": "",
        "variants": ["b", "a"],
        "parameters": [["size", "a size"]],
        "api": [20, 15],
        "trusted": True,
        **changes,
    }
    return [name, *values.values()]


def test_only_what_all_nodes_share_is_shown(master):
    rows = {
        "node1.example.com": [os_row("deb"), os_row("one")],
        "node2.example.com": [os_row("deb", variants=["c", "b"], api=[20])],
    }
    master.rpc.answers["os_diagnose"] = lambda node, args: rows[node]
    op = OpOsDiagnose(output_fields=["name", "variants", "api_versions", "parameters"])
    assert master.run(op) == [["deb", ["b"], [20], [["size", "a size"]]]]


def test_everything_is_shown_to_who_wants_to_know_why(master):
    rows = {
        "node1.example.com": [os_row("deb"), os_row("deb", path="/other")],
        "node2.example.com": [os_row("deb", valid=False, message="no API file")],
    }
    master.rpc.answers["os_diagnose"] = lambda node, args: rows[node]
    ((name, valid, status),) = master.run(
        OpOsDiagnose(output_fields=["name", "valid", "node_status"])
    )
    assert (name, valid) == ("deb", False)
    assert [entry[0] for entry in status[uuid_of("node1")]] == ["/srv/os/deb", "/other"]
    assert status[uuid_of("node2")][0][1:3] == [False, "no API file"]


def test_a_version_that_differs_between_nodes_is_a_fault(master):
    rows = {
        "node1.example.com": [[*os_row("deb"), "1", ["kvm", "fake"]]],
        "node2.example.com": [[*os_row("deb"), "2", ["kvm"]]],
    }
    master.rpc.answers["os_diagnose"] = lambda node, args: rows[node]
    fields = ["name", "valid", "os_versions", "hypervisors", "node_status"]
    ((_name, valid, versions, hypervisors, status),) = master.run(
        OpOsDiagnose(output_fields=fields)
    )
    assert (valid, versions, hypervisors) == (False, ["1", "2"], ["kvm"])
    assert status[uuid_of("node2")][0][7:] == ["2", ["kvm"]]
    assert master.run(OpOsDiagnose(output_fields=["name"])) == []
    rows["node2.example.com"] = rows["node1.example.com"]
    assert master.run(OpOsDiagnose(output_fields=["name"])) == [["deb"]]


def test_hidden_definitions_are_shown_by_name():
    master = Master(cluster_of(1, hidden_os=("noop",)))
    assert master.run(OpOsDiagnose(output_fields=["name"])) == []
    assert master.run(OpOsDiagnose(output_fields=["name"], names=["noop"])) == [["noop"]]


def test_a_dead_node_does_not_hide_definitions(master):
    node = "node2.example.com"
    master.rpc.errors["os_diagnose", node] = errors.NodeUnreachable(node, "os_diagnose", "no route")
    assert master.run(OpOsDiagnose(output_fields=["name"])) == [["noop"]]
    assert master.job.said("no route")


def test_unknown_fields_of_definitions(master):
    master.refused(OpOsDiagnose(output_fields=["nosuch"]), errors.ECODE_INVAL)


# -- delays ----------------------------------------------------------------------


def test_a_delay_on_nodes(master):
    op = OpTestDelay(duration=0.0, on_master=False, on_nodes=["node1", "node2"], repeat=2)
    assert master.run(op) is None
    assert len(master.rpc.of("test_delay")) == 4
    assert master.job.said("round 2 of 2")


def test_a_delay_may_hold_locks(master):
    held = {}
    op = OpTestDelay(duration=0.0, on_master=False, on_nodes=["node2"], no_locks=False)
    master.rpc.answers["test_delay"] = lambda node, args: held.update(
        master.locks.owned(master.job.owner, base.Level.NODE)
    )
    master.run(op)
    assert held == {uuid_of("node2"): "exclusive"}


def test_a_negative_delay_is_refused(master):
    master.refused(OpTestDelay(duration=-1.0), errors.ECODE_INVAL)


def test_a_delay_that_fails_on_a_node(master):
    master.rpc.errors["test_delay"] = "broken"
    assert "broken" in master.failed(OpTestDelay(duration=0.0, on_nodes=["node1"]))


# -- console ---------------------------------------------------------------------


KERNEL = {"kernel_path": "/boot/vmlinuz"}


def console_of(hvparams, **changes):
    web = instance_of("web", hypervisor="kvm", hvparams={**KERNEL, **hvparams}, **changes)
    master = Master(cluster_of(1, (web,)))
    master.rpc.run("web", "node1")
    return master.run(OpInstanceConsole(instance_name="web"))


def test_a_serial_console_is_a_command_on_the_node():
    console = console_of({"serial_console": True})
    assert console["kind"] == "ssh"
    assert console["host"] == "node1.example.com"
    command = console["command"]
    assert command[0].endswith("/tools/kvm-console-wrapper")
    assert command[2] == "web.example.com"
    assert command[-1].startswith("UNIX-CONNECT:/")
    assert command[-1].endswith("/ctrl/web.example.com.serial")


def test_a_vnc_console_is_an_address():
    off = {"serial_console": False, "vnc_bind_address": "0.0.0.0"}
    console = console_of(off, network_port=11005)
    assert (console["kind"], console["port"], console["display"]) == ("vnc", 11005, 5105)


def test_no_console_is_a_message(master):
    master.rpc.run("web", "node1")
    console = master.run(OpInstanceConsole(instance_name="web"))
    assert console["kind"] == "msg"
    assert "fake" in console["message"]
    assert console_of({"serial_console": False})["kind"] == "msg"


def test_a_stopped_instance_has_no_console(master):
    assert "is not running" in master.failed(OpInstanceConsole(instance_name="web"))


def test_tags_take_the_lock_of_their_object(master):
    assert GROUP in master.locks.keys(base.Level.NODEGROUP)
