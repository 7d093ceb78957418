"""OS definitions: what all nodes have, and why something is not shown."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes.os import OpOsDiagnose


@pytest.fixture
def master():
    return Master(cluster_of(2))


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
