"""``gnt-instance modify``, the commands about disks, ``reinstall``, ``rename``, ``move``."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.luxi_master import FakeMaster

from ..conftest import Gnt


@pytest.fixture(autouse=True)
def _instances(master: FakeMaster) -> None:
    master.rows["instance"] = [{"name": "web1", "tags": ["x"]}, {"name": "web2", "tags": []}]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "modify -B memory=1g,vcpus=default web1",
            {
                "OP_ID": "OP_INSTANCE_SET_PARAMS",
                "beparams": {"memory": 1024, "vcpus": "default"},
                "disks": [],
                "nics": [],
                "offline": None,
                "hotplug": True,
                "pnode": None,
            },
        ),
        ("modify --hypervisor acpi=false web1", {"hvparams": {"acpi": False}}),
        ("modify -H kvm web1", {"hypervisor": "kvm"}),
        (
            "modify -H kvm:acpi=false,boot_order=n web1",
            {"hypervisor": "kvm", "hvparams": {"acpi": False, "boot_order": "n"}},
        ),
        (
            "modify --disk add:size=1g,name=data --disk 1:remove --disk -1:mode=ro web1",
            {
                "disks": [
                    ["add", -1, {"size": 1024, "name": "data"}],
                    ["remove", 1, {}],
                    ["modify", -1, {"mode": "ro"}],
                ]
            },
        ),
        (
            "modify --disk 0:add,size=4m --disk remove --disk data:detach --disk attach:uuid=u web1",
            {
                "disks": [
                    ["add", 0, {"size": 4}],
                    ["remove", -1, {}],
                    ["detach", "data", {}],
                    ["attach", -1, {"uuid": "u"}],
                ]
            },
        ),
        ("modify --disk 2:access=r web1", {"disks": [["modify", 2, {"access": "r"}]]}),
        (
            "modify --net add --net lan:link=br1,mac=auto --net 0:remove web1",
            {
                "nics": [
                    ["add", -1, {}],
                    ["modify", "lan", {"link": "br1", "mac": "auto"}],
                    ["remove", 0, {}],
                ]
            },
        ),
        ("modify --offline web1", {"offline": True}),
        ("modify --online web1", {"offline": False}),
        ("modify -m 200 web1", {"runtime_mem": 200}),
        (
            "modify --new-primary node2 --no-hotplug -f web1",
            {"pnode": "node2", "hotplug": False, "force": True},
        ),
        (
            "modify --hotplug --hotplug-if-possible -c yes web1",
            {"hotplug": True, "instance_communication": True},
        ),
        (
            "modify -t drbd -n node2 --no-wait-for-sync web1",
            {"disk_template": "drbd", "remote_node": "node2", "wait_for_sync": False},
        ),
        (
            "modify -t file --file-storage-dir sub --file-driver loop -e a=b web1",
            {
                "disk_template": "file",
                "file_storage_dir": "sub",
                "file_driver": "loop",
                "ext_params": {"a": "b"},
            },
        ),
        (
            "modify -o debian -O a=1 --os-parameters-private p=2 --force-variant web1",
            {
                "os_name": "debian",
                "osparams": {"a": "1"},
                "osparams_private": {"p": "2"},
                "force_variant": True,
            },
        ),
        (
            "activate-disks --ignore-size --wait-for-sync web1",
            {"OP_ID": "OP_INSTANCE_ACTIVATE_DISKS", "ignore_size": True, "wait_for_sync": True},
        ),
        ("deactivate-disks -f web1", {"OP_ID": "OP_INSTANCE_DEACTIVATE_DISKS", "force": True}),
        (
            "grow-disk web1 1 2g",
            {
                "OP_ID": "OP_INSTANCE_GROW_DISK",
                "disk": 1,
                "amount": 2048,
                "absolute": False,
                "wait_for_sync": True,
            },
        ),
        (
            "grow-disk --absolute --no-wait-for-sync web1 0 512",
            {"absolute": True, "amount": 512, "wait_for_sync": False},
        ),
        ("recreate-disks web1", {"OP_ID": "OP_INSTANCE_RECREATE_DISKS", "disks": [], "nodes": []}),
        (
            "recreate-disks --disk 1:size=2g --disk 0 -n node1:node2 web1",
            {"disks": [[1, {"size": 2048}], [0, {}]], "nodes": ["node1", "node2"]},
        ),
        (
            "replace-disks -p --disks 0,2 web1",
            {"OP_ID": "OP_INSTANCE_REPLACE_DISKS", "mode": "replace_on_primary", "disks": [0, 2]},
        ),
        (
            "replace-disks -s --early-release web1",
            {"mode": "replace_on_secondary", "early_release": True},
        ),
        ("replace-disks -n node3 web1", {"mode": "replace_new_secondary", "remote_node": "node3"}),
        ("replace-disks -I hail web1", {"mode": "replace_new_secondary", "iallocator": "hail"}),
        ("replace-disks -a web1", {"mode": "replace_auto"}),
        (
            "rename --name-check --ip-check web1 www",
            {
                "OP_ID": "OP_INSTANCE_RENAME",
                "new_name": "www",
                "name_check": True,
                "ip_check": True,
            },
        ),
        (
            "move -f -n node2 --compress gzip --ignore-consistency web1",
            {
                "OP_ID": "OP_INSTANCE_MOVE",
                "target_node": "node2",
                "compress": "gzip",
                "ignore_consistency": True,
                "shutdown_timeout": 120,
            },
        ),
        (
            "reinstall -f -o debian -O a=1 --os-parameters-secret s=2 web1",
            {
                "OP_ID": "OP_INSTANCE_REINSTALL",
                "os_type": "debian",
                "osparams": {"a": "1"},
                "osparams_secret": {"s": "2"},
            },
        ),
    ],
)
def test_requests(line: str, wanted: dict[str, Any], gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt(f"instance {line}")
    assert ended.code == 0, ended
    sent = master.opcode()
    assert sent["instance_name"] == "web1"
    assert {name: sent[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("modify web1", "at least one of the parameters"),
        ("modify --offline --online web1", "either --offline or --online"),
        ("modify -t drbd web1", "secondary node"),
        ("modify --disk add:sze=1g web1", "Did you mean 'size' instead of 'sze'?"),
        ("modify --disk add:siz=1g web1", "Did you mean 'size' instead of 'siz'?"),
        ("modify --disk add:size=much web1", "much"),
        ("modify --disk 0:add,remove web1", "only one of"),
        ("modify --disk no_0 web1", "0:remove"),
        ("modify --disk 0:mode web1", "mode needs a value"),
        ("modify --net 0:nosuch=1 web1", "nosuch"),
        ("modify -B nosuch=1 web1", "nosuch"),
        ("grow-disk web1 x 1g", "'x'"),
        ("grow-disk web1 0 much", "much"),
        ("recreate-disks --disk 0 --disk 0 web1", "twice"),
        ("recreate-disks --disk a web1", "'a'"),
        ("replace-disks web1", "exactly one of"),
        ("replace-disks -p -n node3 web1", "exactly one of"),
        ("move -f web1", "--node"),
    ],
)
def test_mistakes_are_found_before_a_job_is_made(
    line: str, text: str, gnt: Gnt, master: FakeMaster
) -> None:
    ended = gnt(f"instance {line}")
    assert ended.code == 1
    assert text in ended.err
    assert master.opcodes() == []


@pytest.mark.parametrize("line", ["move -n node2 web1", "reinstall web1", "reinstall --all"])
def test_not_without_a_yes(line: str, gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt(f"instance {line}")
    assert ended.code == 1
    assert "--force" in ended.err
    assert master.opcodes() == []


def test_what_was_changed_is_listed(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_SET_PARAMS"] = [["be/vcpus", 2], ["NIC/0", "remove"]]
    lines = gnt("instance modify -B vcpus=2 --net 0:remove web1").out.splitlines()
    assert lines[:3] == ["Modified instance web1", " - be/vcpus -> 2", " - NIC/0 -> remove"]
    assert "next start" in lines[3]
    master.results["OP_INSTANCE_SET_PARAMS"] = [["admin_state", "offline"]]
    assert gnt("instance modify --offline web1").out.splitlines() == [
        "Modified instance web1",
        " - admin_state -> offline",
    ]


def test_devices_of_activated_disks(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_ACTIVATE_DISKS"] = [["node1", "disk/0", "/dev/x"]]
    assert gnt("instance activate-disks web1").out == "node1:disk/0:/dev/x\n"


def test_the_new_name_is_said(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["instance"] = [{"name": "web1"}]
    master.results["OP_INSTANCE_RENAME"] = "www.example.com"
    assert gnt("instance rename web1 www").out == "Instance 'web1' renamed to 'www.example.com'\n"


def test_many_are_reinstalled(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("instance reinstall --force-multiple --all").code == 0
    assert [op["instance_name"] for op in master.opcodes()] == ["web1", "web2"]
