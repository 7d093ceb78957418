"""What stands in the way back, with its remedies: settings, values, users and snapshots."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ganeti import client, errors
from ganeti.config import newer_values, upgrade
from ganeti.constants import net as net_const
from ganeti.rapi import passwords
from ganeti.takeover import features, probe

DATA = Path(__file__).resolve().parents[2] / "data" / "upgrade"
V3_0, V3_1 = upgrade.DOWNGRADE_VERSIONS


def config(name: str = "to_3.0.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / name).read_text())
    return found


def test_what_stands_in_the_way_back_has_a_remedy() -> None:
    raw = upgrade.upgrade(config())
    users = "# users\njack secret write\njill {HA1}" + "a" * 32
    assert list(features.in_the_way(raw, users, V3_0)) == []
    raw["cluster"]["auto_failover"] = 5
    raw["cluster"]["hvparams"]["kvm"]["tpm_version"] = "2.0"
    node = next(iter(raw["nodes"].values()))
    node["maintenance"] = {"started": 1}
    users = f"joe {passwords.hashed('x')} write\njack {{PAM}} write"
    found = dict(features.in_the_way(raw, users, V3_0))
    assert found["the cluster: auto_failover"] == "gnt-cluster modify --auto-failover=no"
    assert found[f"node {node['name']}: maintenance"] == (
        f"gnt-node maintenance end {node['name']}"
    )
    assert found["the cluster: parameter tpm_version of kvm"] == (
        "gnt-cluster modify -H kvm:tpm_version=default"
    )
    assert "rapi-passwd --delete joe" in found["REST user joe: a password in the form SCRYPT"]
    assert "rapi-passwd --delete jack" in found["REST user jack: a password in the form PAM"]


def test_each_field_of_ours_has_a_remedy() -> None:
    for place in upgrade.OURS:
        for name in upgrade.settings_of(place):
            assert features.remedy(upgrade.OwnFeature("node x", name))
    one = upgrade.OwnFeature("instance web1", "tpm_version", "kvm")
    assert features.remedy(one) == "gnt-instance modify -H tpm_version=default web1"
    two = upgrade.OwnFeature("the OS definition noop", "type", "xen-pvm")
    assert features.remedy(two) == "gnt-os modify -H xen-pvm:type=default noop"


def changed() -> tuple[dict[str, Any], dict[str, Any]]:
    """A configuration which uses each newer value, and its first instance."""
    raw = upgrade.upgrade(config("to_3.1.json"))
    cluster = raw["cluster"]
    cluster |= {"ssh_key_type": "ed25519", "ssh_key_bits": 256}
    cluster["hvparams"]["kvm"]["disk_aio"] = "io_uring"
    cluster["os_hvp"] = {"noop": {"kvm": {"scsi_controller_type": "dc390"}}}
    cluster["nicparams"]["default"]["mode"] = net_const.NIC_MODE_EXT
    cluster["diskparams"]["rbd"]["user-id"] = "admin"
    instance = next(iter(raw["instances"].values()))
    instance |= {"hypervisor": "kvm", "hvparams": {"disk_aio": "io_uring", "acpi": False}}
    instance["nics"][0]["nicparams"] = {"mode": net_const.NIC_MODE_EXT, "link": "x"}
    group = next(iter(raw["nodegroups"].values()))
    group["diskparams"] = {"rbd": {"user-id": "joe"}}
    raw["networks"] = {"u": {"uuid": "u", "name": "lan"}}
    group["networks"] = {"u": {"mode": net_const.NIC_MODE_EXT, "link": "x", "vlan": ""}}
    return raw, instance


def test_each_value_which_version_3_0_does_not_have_is_named() -> None:
    raw, instance = changed()
    group = next(iter(raw["nodegroups"].values()))["name"]
    name = instance["name"]
    before = json.dumps(raw)
    assert dict(features.in_the_way(raw, "", V3_0)) == {
        "the cluster: ssh_key_type=ed25519":
            "gnt-cluster renew-crypto --new-ssh-keys --ssh-key-type=rsa",
        "the cluster: disk_aio=io_uring of kvm": "gnt-cluster modify -H kvm:disk_aio=default",
        "the OS definition noop: scsi_controller_type=dc390 of kvm":
            "gnt-os modify -H kvm:scsi_controller_type=default noop",
        f"instance {name}: disk_aio=io_uring of kvm":
            f"gnt-instance modify -H disk_aio=default {name}",
        "the cluster: mode=ext": "gnt-cluster modify --nic-parameters=mode=bridged",
        f"instance {name}: mode=ext of NIC 0":
            f"gnt-instance modify --net 0:mode=bridged {name}",
        f"nodegroup {group}: mode=ext of network lan":
            f"gnt-network disconnect lan {group}; connect it again with another mode, if it is"
            " needed",
        "the cluster: user-id=admin of rbd": "gnt-cluster modify -D rbd:user-id=",
        f"nodegroup {group}: user-id=joe of rbd":
            f"gnt-group modify -D rbd:user-id=default {group}",
    }  # fmt: skip
    assert json.dumps(raw) == before


def test_version_3_1_has_all_but_the_type_of_keys() -> None:
    found = list(features.in_the_way(changed()[0], "", V3_1))
    assert [text for text, _remedy in found] == ["the cluster: ssh_key_type=ed25519"]


def test_a_downgrade_replaces_values_which_would_be_refused() -> None:
    raw, instance = changed()
    back = upgrade.downgrade(raw, V3_0)
    assert upgrade.newer_in({**back, "version": V3_1}, V3_0) == []
    assert back["cluster"]["ssh_key_type"] == "rsa" and back["cluster"]["ssh_key_bits"] == 2048
    changed_one = back["instances"][instance["uuid"]]
    assert changed_one["hvparams"] == {"acpi": False}
    assert changed_one["nics"][0]["nicparams"] == {"mode": "bridged", "link": "x"}
    kept = upgrade.downgrade(raw, V3_1)
    assert kept["instances"][instance["uuid"]]["hvparams"]["disk_aio"] == "io_uring"
    assert kept["cluster"]["ssh_key_type"] == "rsa"


def test_a_partly_restored_disk_is_named() -> None:
    raw = upgrade.upgrade(config())
    instance = next(iter(raw["instances"].values()))
    instance["tags"] = ["web", f"snapshot-restore:monday:{'0' * 36}"]
    ((text, remedy),) = features.in_the_way(raw, "", V3_0)
    assert "was not completely restored from snapshot monday" in text
    assert remedy == f"gnt-instance restore-snapshot {instance['name']} monday"


@pytest.mark.parametrize(
    ("rights", "own"),
    [("", []), ("write", []), ("read,write", []), ("@admin", ["@admin"]),
     ("read, nodes_name_role:PUT", ["nodes_name_role:PUT"])],
)  # fmt: skip
def test_rights_of_users_which_the_original_does_not_have(rights: str, own: list[str]) -> None:
    text = f"# jane secret @admin\njoe secret {rights}\n"
    assert features.own_rights(text) == [("joe", right) for right in own]
    found = list(features.in_the_way(upgrade.upgrade(config()), text, V3_0))
    assert [one[0] for one in found] == [f"REST user joe: right {right}" for right in own]


def test_an_os_definition_which_goes_with_our_package_is_named() -> None:
    raw = {
        "instances": {
            "1": {"name": "web1", "os": "image"},
            "2": {"name": "web2", "os": "tiny+default"},
            "3": {"name": "web3", "os": "debootstrap+default"},
        }
    }
    found = dict(features.own_definitions(raw, {"tiny", "noop"}))
    (text,) = found
    assert text == "instance web1: OS definition image, which is part of our package"
    assert "gnt-instance modify --os-type=OTHER web1" in found[text]


def test_the_definitions_of_our_package_are_those_in_the_table() -> None:
    top = Path(__file__).resolve().parents[3]
    found = {path.name for path in (top / "doc/examples/os").iterdir() if path.is_dir()}
    assert set(features.OWN_DEFINITIONS) == found - {"tiny-untrusted"}


# -- snapshots -------------------------------------------------------------------------------------


def with_disks(tmp_path: Path) -> dict[str, Any]:
    """A configuration with disks of the three kinds which have snapshots."""
    path = str(tmp_path / "web1" / "disk[0]")
    return {
        "instances": {
            "i1": {"name": "web1", "disks": ["d1"]},
            "i2": {"name": "web2", "disks": ["d2", "d3"]},
        },
        "disks": {
            "d1": {"dev_type": "file", "logical_id": ["loop", path]},
            "d2": {"dev_type": "plain", "logical_id": ["vg", "a.disk0"]},
            "d3": {
                "dev_type": "drbd",
                "logical_id": ["n1", "n2", 11000, 0, 0, "secret"],
                "children": [
                    {"dev_type": "plain", "logical_id": ["vg", "b.disk1_data"]},
                    {"dev_type": "plain", "logical_id": ["vg", "b.disk1_meta"]},
                ],
            },
        },
    }


def test_snapshots_of_files_are_found_by_the_probe(tmp_path: Path) -> None:
    known = with_disks(tmp_path)
    del known["instances"]["i2"]
    asked = features.questions(known)
    assert asked["commands"] == {}
    disk = tmp_path / "web1" / "disk[0]"
    disk.parent.mkdir()
    for name in ("disk[0]", "disk[0].snap.monday", "disk[0].snap", "disk[0].snap.a.snap.b",
                 "disk0.snap.other"):  # fmt: skip
        (disk.parent / name).touch()
    assert features.kept_snapshots(known, probe.answers(asked)) == [("web1", "monday")]


def test_snapshots_of_volumes_are_found(tmp_path: Path) -> None:
    known = with_disks(tmp_path)
    asked = features.questions(known)
    assert asked["commands"]["volumes"][0] == "lvs"
    text = (
        "  vg|a.disk0\n  vg|a.disk0.snap.one\n  vg|b.disk1_data.snap.two\n  vg|root\n"
        "  vg|b.disk1_meta.snap.no\n  vg|a.disk0.snap\n  other|a.disk0.snap.no\n"
        "  vg|gone.disk0.snap.no\n"
    )
    answers = {"commands": {"volumes": text}, "patterns": {}}
    assert features.kept_snapshots(known, answers) == [("web2", "one"), ("web2", "two")]


@pytest.mark.parametrize(
    "answers", [{}, None, [], {"commands": {"volumes": None}, "patterns": {}}, {"patterns": []}]
)
def test_a_node_which_cannot_say_it_is_no_node_without_snapshots(
    tmp_path: Path, answers: Any
) -> None:
    with pytest.raises(errors.ParseError):
        features.kept_snapshots(with_disks(tmp_path), answers)


def test_snapshots_are_named_once_with_their_nodes() -> None:
    found: dict[str, list[tuple[str, str]] | str] = {
        "node1": [("web1", "a"), ("web2", "b")],
        "node2": "no route",
        "node3": [("web2", "b")],
    }
    assert list(features.snapshots_in_the_way(found)) == [
        ("node node2: it did not say whether it has snapshots: no route",
         "mend that, mark the node offline, or use --leave-out"),
        ("instance web1: snapshot a, on node1", "gnt-instance remove-snapshot web1 a"),
        ("instance web2: snapshot b, on node1, node3", "gnt-instance remove-snapshot web2 b"),
    ]  # fmt: skip


# -- the commands ----------------------------------------------------------------------------------


def remedies() -> list[str]:
    """Each remedy, with names in it."""
    raw, _instance = changed()
    of_values = [features.remedy_of_value(one) for one in upgrade.newer_in(raw, V3_0)]
    assert {one.kind for one in upgrade.newer_in(raw, V3_0)} == {
        newer_values.HYPERVISOR, newer_values.NIC, newer_values.NETWORK, newer_values.STORAGE,
        newer_values.SSH_KEYS,
    }  # fmt: skip
    snapshot = [one[1] for one in features.snapshots_in_the_way({"n": [("web1", "a")]})]
    return [*features.REMEDIES.values(), *of_values, *snapshot]


def test_the_remedies_are_commands_which_exist() -> None:
    for text in remedies():
        for command in re.findall(r"gnt-[a-z]+ [a-z-]+[^,;]*", text):
            words = shlex.split(re.split(r" (?:names|repair|after)\b", command)[0].format(name="x"))
            program = importlib.import_module(client.PROGRAMS[words[0]]).PROGRAM
            chosen = program.commands[words[1]]
            options = [word for word in words[2:] if word.startswith("-")]
            for option in options:
                names = {name for known in chosen.options for name in known.names}
                assert option.partition("=")[0] in names, command
