"""OP_TEST_ALLOCATOR: the request or the answer, and nothing else happens."""

from __future__ import annotations

import json

import pytest

from fakes.config import GROUP, cluster_of, disk_of, instance_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes.test import OpTestAllocator

NEW = {
    "memory": 64, "vcpus": 1, "os": "noop", "disk_template": "file", "disks": [{"size": 8}],
    "nics": [{"mac": "aa:00:00:00:00:09", "bridge": "br9"}],
}  # fmt: skip


def trial(mode, direction="in", name="web.example.com", **changes):
    return OpTestAllocator(mode=mode, direction=direction, name=name, **changes)


@pytest.fixture
def master():
    stuck = disk_of("stuck", 0, "file")
    instances = (instance_of("web"), instance_of("db"), instance_of("stuck", disks=(stuck.uuid,)))
    return Master(cluster_of(3, instances, (stuck,)))


def shown(master, op):
    request = json.loads(master.run(op))
    assert master.config.writes == []
    assert "iallocator_runner" not in master.rpc.names()
    assert request["version"] == 2
    assert len(request["nodes"]) == 3
    return request["request"]


def test_a_new_instance(master):
    request = shown(master, trial("allocate", name="new", group_name="default", **NEW))
    assert request["group_name"] == "default"
    assert (request["memory"], request["disk_space_total"]) == (64, 8)
    assert request["nics"] == [
        {"mac": "aa:00:00:00:00:09", "ip": None, "mode": "bridged", "link": "br9", "bridge": "br9"}
    ]


def test_several_new_ones(master):
    request = shown(master, trial("multi-allocate", name="new", count=3, **NEW))
    assert [one["name"] for one in request["instances"]] == ["new-1", "new-2", "new-3"]


def test_modes_about_instances_that_exist(master):
    assert shown(master, trial("relocate", name="web"))["relocate_from"] == ["node1.example.com"]
    assert shown(master, trial("allocate-secondary"))["name"] == "web.example.com"
    both = {"instances": ["web", "db"]}
    request = shown(master, trial("node-evacuate", evac_mode="all", **both))
    assert request["instances"] == ["web.example.com", "db.example.com"]
    request = shown(master, trial("change-group", target_groups=["default"]))
    assert request == {
        "instances": ["web.example.com"], "target_groups": [GROUP], "type": "change-group",
    }  # fmt: skip


def test_the_answer_comes_back_as_it_was_printed(master):
    master.rpc.answers["iallocator_runner"] = "no JSON at all\n"
    assert master.run(trial("relocate", "out", iallocator="chooser")) == "no JSON at all\n"
    ((_node, args),) = master.rpc.of("iallocator_runner")
    assert args["name"] == "chooser"
    assert json.loads(args["request"])["request"]["type"] == "relocate"


def test_an_allocator_that_fails(master):
    master.rpc.errors["iallocator_runner"] = (
        "instance allocator chooser exited with exit code 1: boo"
    )
    assert master.failed(trial("relocate", "out", iallocator="chooser")).endswith("boo")


@pytest.mark.parametrize(
    ("op", "ecode", "fragment"),
    [
        (trial("relocate", "out"), errors.ECODE_INVAL, "no default instance allocator"),
        (trial("relocate", name="gone"), errors.ECODE_NOENT, "gone"),
        (trial("relocate", name="stuck"), errors.ECODE_STATE, "stuck.example.com cannot be"),
        (trial("node-evacuate"), errors.ECODE_INVAL, "needs evac_mode"),
        (trial("change-group", target_groups=["g9"]), errors.ECODE_NOENT, "g9"),
        (trial("allocate", name="new"), errors.ECODE_INVAL, "needs memory, vcpus, os"),
        (trial("allocate", **NEW), errors.ECODE_EXISTS, "already in the cluster"),
        (trial("allocate", name="n", **{**NEW, "disks": [{}]}), errors.ECODE_INVAL, "disk 0"),
        (trial("allocate", name="n", **{**NEW, "disks": [3]}), errors.ECODE_INVAL, "disk 0"),
        (
            trial("allocate", name="n", **{**NEW, "disks": [{"size": 1, "mode": "x"}]}),
            errors.ECODE_INVAL,
            "'x'",
        ),
        (
            trial("allocate", name="n", hypervisor="xen-pvm", **NEW),
            errors.ECODE_STATE,
            "xen-pvm is not enabled",
        ),
    ],
)
def test_requests_that_cannot_be_made(master, op, ecode, fragment):
    assert fragment in master.refused(op, ecode)


def test_the_reasons_for_each_node(master):
    op = trial("multi-allocate", "out", name="new", count=2, explain=True, iallocator="hail", **NEW)
    found = json.loads(master.run(op))
    assert [one["instance"] for one in found] == ["new-1", "new-2"]
    assert {row["node"] for row in found[0]["nodes"]} == {f"node{n}.example.com" for n in (1, 2, 3)}
    assert all(row["reason"] for row in found[0]["nodes"])


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"iallocator": "chooser"}, "does not explain its choice"),
        ({"iallocator": "hail"}, "mode relocate cannot be explained"),
    ],
)
def test_what_cannot_be_explained(master, changes, fragment):
    assert fragment in master.refused(
        trial("relocate", explain=True, **changes), errors.ECODE_INVAL
    )
