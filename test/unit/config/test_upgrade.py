"""Each step of the upgrade, against files of the original's versions.

``cluster_config_<version>.json`` is what the original wrote; ``upgrade/to_<version>.json`` is what
our step makes of the file of the version before.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.config import upgrade, verify
from ganeti.config.api import Config, load
from ganeti.constants import cluster as const
from ganeti.objects import (
    Cluster,
    ConfigData,
    Disk,
    FilterRule,
    Instance,
    Network,
    Nic,
    Node,
    NodeGroup,
    codec,
)

DATA = Path(__file__).parents[2] / "data"
TEXTS = [upgrade.version_text(version) for version in upgrade.VERSIONS]
STEPS = list(itertools.pairwise(TEXTS))


def _original(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (DATA / "cluster_config" / f"cluster_config_{version}.json").read_text()
    )
    return found


def _numbered() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012d}"


def test_the_steps_are_those_of_the_versions() -> None:
    assert TEXTS == [
        "2.7",
        "2.8",
        "2.9",
        "2.10",
        "2.11",
        "2.12",
        "2.13",
        "2.14",
        "2.15",
        "2.16",
        "3.0",
        "3.1",
    ]


@pytest.mark.parametrize(("before", "after"), STEPS)
def test_one_step(before: str, after: str) -> None:
    given = _original(before)
    kept = copy.deepcopy(given)
    made = upgrade.upgrade_once(given, new_uuid=_numbered())
    assert given == kept
    assert made == json.loads((DATA / "upgrade" / f"to_{after}.json").read_text())


# Where our step and the original's later file differ, and why.
_DIFFERENT = {
    # The file of the next version was made later, by a run which also counted and dated.
    "": {"serial_no", "mtime"},
    # Parameters which we fill in at the end, for all versions at once; names of the version.
    "cluster": {
        "hvparams",
        "diskparams",
        "ndparams",
        "nicparams",
        "enabled_disk_templates",
        "tcpudp_port_pool",
        "ipolicy",
    },
    # A development version gave these away too early, and took them back.
    "instances": {"ctime", "admin_state_source", "uuid"},
    # In the file of 2.11 an instance lost its time of birth, which its disk gets.
    "disks": {"children", "ctime", "mtime"},
}


def _comparable(config: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in config.items() if key not in _DIFFERENT[""]}
    found["cluster"] = {
        key: value for key, value in found["cluster"].items() if key not in _DIFFERENT["cluster"]
    }
    for kind in ("instances", "disks"):
        found[kind] = {
            key: {name: value for name, value in item.items() if name not in _DIFFERENT[kind]}
            for key, item in found.get(kind, {}).items()
        }
    for instance in found["instances"].values():
        instance["nics"] = [{**nic, "uuid": ""} for nic in instance["nics"]]
        instance["disks"] = [
            disk
            if isinstance(disk, str)
            else {key: value for key, value in disk.items() if key not in ("uuid", "children")}
            for disk in instance["disks"]
        ]
    return found


@pytest.mark.parametrize(("before", "after"), STEPS)
def test_a_step_leads_to_what_the_original_wrote(before: str, after: str) -> None:
    assert _comparable(upgrade.upgrade_once(_original(before))) == _comparable(_original(after))


@pytest.mark.parametrize("version", TEXTS)
def test_every_version_loads_and_holds_together(version: str, tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    path.write_text(json.dumps(_original(version)))
    data, found = load(str(path))
    assert upgrade.version_text(found) == version
    assert data.version == const.CONFIG_VERSION
    assert verify.check(data) == []
    assert [node.name for node in data.nodes.values() if node.uuid == data.cluster.master_node] == [
        "node1.example.com"
    ]
    assert sorted(instance.name for instance in data.instances.values()) == [
        f"instance{number}.example.com" for number in (1, 2, 3)
    ]
    assert len(data.disks) == 3
    opened = Config.open(str(path))
    if version != upgrade.version_text(const.CONFIG_VERSION):
        assert json.loads((tmp_path / f"config.data.backup-{version}").read_text()) == _original(
            version
        )
    # What was written is this version's own, and is not upgraded again.
    assert load(str(path)) == (opened.snapshot(), const.CONFIG_VERSION)


def test_the_oldest_and_the_newest_file_say_the_same() -> None:
    old = codec.from_dict(ConfigData, upgrade.upgrade(_original("2.9")))
    new = codec.from_dict(ConfigData, upgrade.upgrade(_original("3.1")))
    assert old.nodes == new.nodes
    assert old.nodegroups == new.nodegroups
    for uuid, instance in new.instances.items():
        assert old.instances[uuid].disks == instance.disks
        assert old.instances[uuid].primary_node == instance.primary_node
    for uuid, disk in new.disks.items():
        assert old.disks[uuid].logical_id == disk.logical_id
        assert old.disks[uuid].nodes == disk.nodes


def test_what_the_cluster_used_stays_enabled() -> None:
    config = _original("2.7")
    config["cluster"].update(volume_group_name="", shared_file_storage_dir="")
    enabled = upgrade.upgrade_once(config)["cluster"]["enabled_disk_templates"]
    assert enabled == ["drbd", "plain"]
    config["instances"] = {}
    assert upgrade.upgrade_once(config)["cluster"]["enabled_disk_templates"] == ["diskless"]


@pytest.mark.parametrize("version", TEXTS[:-1])
@pytest.mark.parametrize(("key", "value"), [("instances", []), ("nodes", 5), ("disks", "x")])
def test_a_broken_old_file_is_refused(version: str, key: str, value: Any) -> None:
    config = {**_original(version), key: value}
    with pytest.raises(errors.ConfigurationError):
        codec.from_dict(ConfigData, upgrade.upgrade(config))


def test_a_missing_key_is_named() -> None:
    config = _original("2.8")
    del config["nodes"]
    with pytest.raises(
        errors.ConfigurationError, match="a configuration of version 2.8: key 'nodes' is missing"
    ):
        upgrade.upgrade(config)


@pytest.mark.parametrize("version", [1020000, 2060000, 2170000, 3020000, 4000000])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(errors.ConfigVersionMismatch) as caught:
        upgrade.upgrade({**_original("3.1"), "version": version})
    assert caught.value.args == (const.CONFIG_VERSION, version)


def test_back_and_forth_again() -> None:
    here = upgrade.upgrade(_original("3.1"))
    known = copy.deepcopy(here)
    for disk in known["disks"].values():
        disk |= {"outdated_node": disk["nodes"][0], "outdated_since": 1.5, "in_sync_at": 1.5}
        disk["never_alone"] = disk["nodes"][0]
        disk |= {"unwiped_from": 128}
    for node in known["nodes"].values():
        node["key_pins"] = ["A" * 43 + "="]
    for group in known["nodegroups"].values():
        group["enabled_hypervisors"] = ["kvm"]
    assert known["disks"] and known["nodes"] and known["nodegroups"]
    known["cluster"]["rapi_require_authentication"] = True
    known["cluster"]["hvparams"]["kvm"]["tpm_version"] = "2.0"
    known["cluster"]["auto_balance"] = {"moves_per_hour": 2, "min_gain": 0.1}
    known["cluster"]["hvparams"]["xen-pvm"]["type"] = "pvh"
    known["cluster"].setdefault("os_hvp", {})["an-os"] = {"xen-pvm": {"type": "pvh"}}
    instance = next(iter(known["instances"].values()))
    instance |= {"hypervisor": "xen-pvm", "hvparams": {"type": "pvh"}}
    back = upgrade.downgrade(known)
    assert back["version"] == 3_000_000
    assert back["cluster"]["hvparams"]["xen-pvm"]["xen_cmd"] == "xl"
    assert "type" not in back["cluster"]["hvparams"]["xen-pvm"]
    assert back["cluster"]["os_hvp"].pop("an-os") == {"xen-pvm": {}}
    changed = back["instances"][instance["uuid"]]
    assert changed["hvparams"] == {}
    for key in ("hypervisor", "hvparams"):
        changed[key] = here["instances"][instance["uuid"]][key]
    assert upgrade.upgrade(back) == here
    with pytest.raises(errors.ConfigVersionMismatch):
        upgrade.downgrade(back)


def test_the_default_of_disk_discard_in_version_3_0_becomes_ignore() -> None:
    """The original in version 3.0.2 has written this file for a cluster with KVM."""
    old = json.loads((DATA / "config-3.0.2/config.data").read_text())
    assert old["cluster"]["hvparams"]["kvm"]["disk_discard"] == "default"
    instance = next(iter(old["instances"].values()))
    instance |= {"hypervisor": "kvm", "hvparams": {"disk_discard": "default"}}
    new = upgrade.upgrade(old)
    assert new["cluster"]["hvparams"]["kvm"]["disk_discard"] == "ignore"
    assert new["instances"][instance["uuid"]]["hvparams"] == {"disk_discard": "ignore"}
    problems = verify.check(codec.from_dict(ConfigData, new))
    assert not [one for one in problems if "disk_discard" in one]


def test_a_downgrade_to_the_same_version_leaves_out_what_is_ours_only() -> None:
    here = upgrade.upgrade(_original("3.1"))
    known = json.loads(json.dumps(here))
    known["cluster"]["auto_failover"] = 10
    known["cluster"]["hvparams"]["kvm"]["tpm_version"] = "2.0"
    back = upgrade.downgrade(known, 3_010_000)
    assert back["version"] == 3_010_000
    assert "tpm_version" not in back["cluster"]["hvparams"]["kvm"]
    assert "xen_cmd" not in back["cluster"]["hvparams"]["xen-pvm"]
    assert upgrade.upgrade(back) == here
    assert upgrade.downgrade(back, 3_010_000) == back


#: Fields of our classes which are never in the file.
_RUNTIME = {"dynamic_params", "hvinfo", "pci", "netinfo"}


def test_no_field_of_ours_is_left_for_another_version() -> None:
    """A new field must be in the table, because the original refuses a file with an unknown one."""
    published = json.loads((DATA / "published.json").read_text())["objects"]
    classes = {
        "": ConfigData,
        "cluster": Cluster,
        "nodegroups": NodeGroup,
        "nodes": Node,
        "instances": Instance,
        "disks": Disk,
        "filters": FilterRule,
        "networks": Network,
        "nics": Nic,
    }
    for place, kind in classes.items():
        names = {field.name for field in dataclasses.fields(kind)}
        own = names - set(published["NIC" if kind is Nic else kind.__name__]) - _RUNTIME
        assert own == set(upgrade.OURS.get(place, ())), place
    assert set(upgrade.OURS) <= set(classes)


def test_what_only_this_version_has_is_named() -> None:
    config = upgrade.upgrade(_original("3.1"))
    assert upgrade.own_features(config) == []
    disk, node, instance = (
        next(iter(config[key].values())) for key in ("disks", "nodes", "instances")
    )
    disk["outdated_node"] = disk["nodes"][0]
    disk["in_sync_at"] = 1.5
    node["key_pins"] = ["A" * 43 + "="]
    node["maintenance"] = {"since": 1.0}
    instance |= {"hypervisor": "kvm", "hvparams": {"tpm_version": "2.0"}}
    config["cluster"]["auto_failover"] = 10
    found = [one.text for one in upgrade.own_features(config)]
    assert found == [
        "the cluster: auto_failover",
        f"node {node['name']}: maintenance",
        f"disk {disk['uuid']}: outdated_node",
        f"instance {instance['name']}: parameter tpm_version of kvm",
    ]
