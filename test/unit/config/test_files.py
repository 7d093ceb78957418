"""Reading files of this and older versions, the self-check, and the ssconf values."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of
from ganeti import errors
from ganeti.config import Config, ssconf, upgrade, verify
from ganeti.config.api import create_file, load
from ganeti.constants import cluster as const
from ganeti.objects import ConfigData, FilterRule, codec, hvparams
from ganeti.platform.paths import Paths

from .samples import (
    disk_of,
    group_of,
    instance_of,
    network_of,
    node_of,
    small_cluster,
    uuid_of,
)

DATA = Path(__file__).parents[2] / "data"
RECORDED = DATA / "config-3.0.2" / "config.data"
OLD = DATA / "cluster_config" / "cluster_config_3.0.json"
NEW = DATA / "cluster_config" / "cluster_config_3.1.json"


# -- loading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [RECORDED, OLD, NEW])
def test_files_of_others_are_read(path: Path) -> None:
    data, _version = load(str(path))
    assert data.version == const.CONFIG_VERSION
    assert verify.check(data) == []


def test_a_present_file_stays_as_it_is() -> None:
    raw = json.loads(NEW.read_text())
    data, version = load(str(NEW))
    assert version == const.CONFIG_VERSION
    written = codec.to_dict(data)
    for kind in ("nodes", "nodegroups", "instances", "disks", "networks"):
        for uuid, obj in raw[kind].items():
            stored = codec.to_dict(getattr(data, kind)[uuid])
            kept = {key: value for key, value in obj.items() if key != "children"}
            assert {key: _lists(stored[key]) for key in kept} == kept
    for key, value in raw["cluster"].items():
        if key not in ("hvparams", "diskparams", "ndparams", "nicparams", "beparams"):
            assert _lists(written["cluster"][key]) == value


def _lists(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_3_0_becomes_3_1() -> None:
    old, new = json.loads(OLD.read_text()), json.loads(NEW.read_text())
    before = json.dumps(old)
    assert upgrade.upgrade(old) == upgrade.upgrade(new)
    assert json.dumps(old) == before


def test_new_parameters_get_their_defaults_and_gone_ones_go() -> None:
    raw = json.loads(RECORDED.read_text())
    assert "xen_cmd" in raw["cluster"]["hvparams"]["xen-pvm"]
    raw["cluster"]["hvparams"]["kvm"]["acpi"] = False
    found = upgrade.upgrade(raw)["cluster"]["hvparams"]
    for name in hvparams.TABLES:
        assert set(found[name]) == set(hvparams.defaults(name))
    assert found["kvm"]["acpi"] is False


def test_nothing_to_do_returns_the_same() -> None:
    done = upgrade.upgrade(json.loads(NEW.read_text()))
    assert upgrade.upgrade(done) is done


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "invalid JSON"),
        ("{", "invalid JSON"),
        ("[]", "contains no cluster configuration"),
        ('{"version": 3010000}', "contains no cluster configuration"),
        ('{"version": "3", "cluster": {}}', "version: must be an integer"),
        ('{"version": 3010000, "cluster": {}}', "is missing"),
        (
            json.dumps(
                {
                    "version": 3010000,
                    "cluster": {"hvparams": 5},
                    "serial_no": 1,
                    **dict.fromkeys(
                        ("nodes", "nodegroups", "instances", "networks", "disks", "filters"), {}
                    ),
                }
            ),
            "cluster/",
        ),
    ],
)
def test_what_is_no_configuration(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "config.data"
    path.write_text(content)
    with pytest.raises(errors.ConfigurationError, match=message) as caught:
        load(str(path))
    assert str(path) in str(caught.value)


def test_the_place_is_named(tmp_path: Path) -> None:
    raw = json.loads(NEW.read_text())
    uuid = next(iter(raw["nodes"]))
    raw["nodes"][uuid]["offline"] = "maybe"
    path = tmp_path / "config.data"
    path.write_text(json.dumps(raw))
    with pytest.raises(errors.ConfigurationError, match=f"nodes/{uuid}/offline: must be true"):
        load(str(path))


def test_a_missing_file_and_a_missing_master(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    with pytest.raises(errors.ConfigurationError, match=r"is missing. This machine is not the"):
        load(str(path))
    raw = json.loads(NEW.read_text())
    raw["cluster"]["master_node"] = "x"
    path.write_text(json.dumps(raw))
    with pytest.raises(errors.ConfigurationError, match="master_node: node x is not"):
        load(str(path))


def test_opening_upgrades_the_file_and_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    path.write_bytes(OLD.read_bytes())
    config = Config.open(str(path))
    assert (tmp_path / "config.data.backup-3.0").read_bytes() == OLD.read_bytes()
    assert json.loads(path.read_text())["version"] == const.CONFIG_VERSION
    assert load(str(path))[0] == config.snapshot()
    assert path.stat().st_mode & 0o777 == 0o640


def test_opening_writes_nothing_without_need(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    create_file(str(path), small_cluster())
    before = path.stat().st_ino, path.stat().st_mtime_ns
    Config.open(str(path))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["config.data"]


def test_contradictions_are_logged_when_opening(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = small_cluster(node_changes={2: {"group": uuid_of("gone")}})
    path = tmp_path / "config.data"
    path.write_text(json.dumps(codec.to_dict(data)))
    with caplog.at_level(logging.WARNING):
        Config.open(str(path))
    assert "node2.example.com: node group" in caplog.text


def test_a_first_configuration_must_be_right(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    with pytest.raises(errors.ConfigVerifyError, match="no hypervisor is enabled"):
        create_file(str(path), small_cluster(enabled_hypervisors=()))
    assert not path.exists()


# -- the self-check -----------------------------------------------------------------------------


def _with(**tables: dict[str, Any]) -> ConfigData:
    data = small_cluster()
    tables = {kind: {**getattr(data, kind), **table} for kind, table in tables.items()}
    return dataclasses.replace(data, **tables)


def _instances(*changes: dict[str, Any]) -> dict[str, Any]:
    made = [instance_of(number, **change) for number, change in enumerate(changes, start=2)]
    return {instance.uuid: instance for instance in made}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (small_cluster(enabled_hypervisors=("vmware",)), "cluster: there is no hypervisor vmware"),
        (
            small_cluster(enabled_disk_templates=("tape",)),
            "cluster: there is no disk template tape",
        ),
        (small_cluster(candidate_certs={"x": "AA"}), "candidate certificate of node x"),
        (small_cluster(node_changes={1: {"master_candidate": False}}), "is no master candidate"),
        (small_cluster(beparams={"default": {}}), "cluster: beparams lack"),
        (small_cluster(ipolicy={}), "cluster: instance policy"),
        (small_cluster(master_ip="192.0.2.2"), "node2.example.com has the address of the cluster"),
        (
            small_cluster(node_changes={2: {"offline": True}}),
            "is master candidate and offline at the same time",
        ),
        (
            small_cluster(node_changes={1: {"drained": True}}),
            "is the master, but not a master cand",
        ),
        (small_cluster(node_changes={2: {"master_capable": False}}), "but not master capable"),
        (small_cluster(node_changes={2: {"primary_ip": "localhost"}}), "'localhost' is not an IP"),
        (
            small_cluster(node_changes={2: {"secondary_ip": "192.0.2.1"}}),
            "192.0.2.1 is used by sever",
        ),
        (
            small_cluster(node_changes={2: {"ndparams": {"spindle_count": "x"}}}),
            "node2.example.com: ",
        ),
        (
            small_cluster(node_changes={2: {"ndparams": {"exclusive_storage": True}}}),
            "exclusive_storage cannot be set for a single node",
        ),
        (small_cluster(node_changes={2: {"name": "node1.example.com"}}), "used more than once"),
        (small_cluster(node_changes={2: {"serial_no": 0}}), "serial number is 0"),
        (_with(nodes={"nine": node_of(9, uuid="nine")}), "'nine' is not a uuid"),
        (small_cluster(reserved_lvs=("(a)\\1",)), "references to groups cannot be used here"),
        (_with(nodes={uuid_of("x"): node_of(9)}), "stored under"),
        (
            _with(nodegroups={uuid_of("group1"): group_of(1, alloc_policy="x")}),
            "allocation policy x",
        ),
        (
            _with(nodegroups={uuid_of("group1"): group_of(1, networks={"x": {}})}),
            "network x does not",
        ),
        (
            _with(networks={uuid_of("net1"): network_of(1, reservations="0")}),
            "must consist of 4 digits 0 or 1",
        ),
        (
            _with(networks={uuid_of("net1"): network_of(1, reservations="00x0")}),
            "must consist of 4 digits 0 or 1",
        ),
        (
            _with(networks={uuid_of("net1"): network_of(1, reservations="0100")}),
            "address 198.51.1.1 is marked as used in the pool, but no instance has it",
        ),
        (
            _with(networks={uuid_of("net1"): network_of(1, gateway="192.0.2.1")}),
            "gateway 192.0.2.1",
        ),
        (
            _with(
                networks={uuid_of("net1"): network_of(1)},
                instances=_instances(
                    {
                        "nics": (
                            dataclasses.replace(
                                instance_of(2).nics[0], ip="198.51.1.2", network=uuid_of("net1")
                            ),
                        )
                    }
                ),
            ),
            "an instance has address 198.51.1.2, but the pool has it as free",
        ),
        (
            _with(
                networks={uuid_of("net1"): network_of(1)},
                instances=_instances(
                    {
                        "nics": (
                            dataclasses.replace(
                                instance_of(2).nics[0], ip="10.0.0.1", network=uuid_of("net1")
                            ),
                        )
                    }
                ),
            ),
            "an instance has address 10.0.0.1, which is not in 198.51.1.0/30",
        ),
        (_with(instances=_instances({"primary_node": "x"})), "primary node x does not exist"),
        (_with(instances=_instances({"hypervisor": "kvm"})), "hypervisor kvm is not enabled"),
        (_with(instances=_instances({"admin_state": "x"})), "there is no state x"),
        (
            _with(instances=_instances({"beparams": {"minmem": 512}})),
            "minmem 512 is above maxmem 128",
        ),
        (_with(instances=_instances({"hvparams": {"migration_mode": "x"}})), "migration_mode"),
        (_with(instances=_instances({"disks": ("x",)})), "disk x does not exist"),
        (_with(instances=_instances({}, {"nics": instance_of(2).nics})), "MAC address aa:00"),
        (_with(instances=_instances({"network_port": 12000})), "above the highest used port"),
        (
            _with(instances=_instances({"network_port": 11000}, {"network_port": 11000})),
            "port 11000 is used more than once",
        ),
        (small_cluster(tcpudp_port_pool=(12000,)), "port 12000 of the pool"),
        (
            _with(
                filters={
                    uuid_of("f"): FilterRule(
                        uuid=uuid_of("f"),
                        watermark=0,
                        priority=0,
                        predicates=(["jobid", ["=", "x", 1]],),
                        action="PAUSE",
                        reason_trail=(),
                    )
                }
            ),
            "there is no field 'x'",
        ),
        (
            _with(
                filters={
                    uuid_of("f"): FilterRule(
                        uuid=uuid_of("f"),
                        watermark=0,
                        priority=0,
                        predicates=(),
                        action="NOSUCH",
                        reason_trail=(),
                    )
                }
            ),
            "there is no filter action 'NOSUCH'",
        ),
        (_with(disks={disk_of(1).uuid: disk_of(1)}), "belongs to no instance"),
        (
            _with(
                disks={
                    disk_of(number).uuid: disk_of(
                        number,
                        dev_type="drbd",
                        nodes=tuple(map(uuid_of, nodes)),
                        logical_id=(*map(uuid_of, nodes), 11000 + number, number, 7, "secret"),
                    )
                    for number, nodes in ((1, ("node1", "node2")), (2, ("node3", "node2")))
                }
            ),
            "DRBD minor 7 is used more than once on node node2",
        ),
        (_with(disks={disk_of(1).uuid: disk_of(1, nodes=("x",))}), "node x does not exist"),
        (_with(disks={disk_of(1).uuid: disk_of(1, dev_type="tape")}), "no disk template tape"),
        (
            _with(
                disks={
                    disk_of(1).uuid: disk_of(1),
                    uuid_of("o"): dataclasses.replace(disk_of(1), uuid=uuid_of("o")),
                }
            ),
            "is used more than once on node node1",
        ),
    ],
)
def test_contradictions(data: ConfigData, problem: str) -> None:
    assert any(problem in found for found in verify.check(data)), verify.check(data)


def test_a_good_cluster() -> None:
    data = small_cluster()
    assert (
        verify.check(
            dataclasses.replace(
                data,
                instances={instance_of(1).uuid: instance_of(1)},
                disks={disk_of(1).uuid: disk_of(1)},
            )
        )
        == []
    )


# -- ssconf -------------------------------------------------------------------------------------


def test_ssconf_is_what_the_original_wrote() -> None:
    recorded = json.loads((DATA / "config-3.0.2" / "ssconf.json").read_text())
    found = ssconf.values(load(str(RECORDED))[0])
    # The REST daemon and the failover daemon read these; they are ours.
    ours = {"auto_failover", "node_key_pins", "node_watchdog", "rapi_require_authentication"}
    assert set(found) - ours == set(recorded)
    assert found["node_key_pins"] == ""
    assert found["auto_failover"] == "0\n"
    assert found["rapi_require_authentication"] == "False\n"
    for key, value in recorded.items():
        if key == "release_version":
            assert found[key] == f"{const.RELEASE_VERSION}\n"
        elif key.startswith("hvparams_"):
            # Parameters differ between the versions; those of both must read the same.
            lines = set(value.splitlines())
            gone = {line for line in lines if line.startswith("xen_cmd=")}
            if "disk_discard=default" in lines:
                # The configuration has a value which version 3.1 refuses; it is converted.
                gone.add("disk_discard=default")
                assert "disk_discard=ignore" in found[key].splitlines()
            assert lines - gone <= set(found[key].splitlines())
        else:
            assert found[key] == value, key


def test_the_keys_of_nodes_in_ssconf(tmp_path: Path) -> None:
    where = Paths(str(tmp_path))
    Path(where.data_dir).mkdir(parents=True)
    store = ssconf.SimpleStore(where)
    assert store.node_key_pins() == {}, "a master of an older release writes no such file"
    pins = {1: {"key_pins": ("A", "B")}, 3: {"key_pins": ("C",)}}
    ssconf.write_local(ssconf.values(cluster_of(3, node_changes=pins)), where)
    assert store.node_key_pins() == {
        "node1.example.com": ("A", "B"),
        "node3.example.com": ("C",),
    }


def test_ssconf_files(tmp_path: Path) -> None:
    where = Paths(str(tmp_path))
    Path(where.data_dir).mkdir(parents=True)
    ssconf.write_local(ssconf.values(small_cluster()), where)
    store = ssconf.SimpleStore(where)
    assert store.cluster_name() == "cluster.example.com"
    assert store.master_node() == "node1.example.com"
    assert store.node_list() == [f"node{number}.example.com" for number in (1, 2, 3)]
    assert store.online_nodes() == store.master_candidates() == store.node_list()
    assert store.candidate_certs() == {uuid_of("node1"): "AA:BB"}
    assert store.node_primary_ips()["node3.example.com"] == "192.0.2.3"
    assert Path(where.ssconf_file("node_list")).stat().st_mode & 0o777 == 0o444
    with pytest.raises(errors.ConfigurationError, match="is probably not a node of a cluster"):
        ssconf.SimpleStore(Paths(str(tmp_path / "other"))).master_node()
    with pytest.raises(errors.ConfigurationError, match="cannot read line"):
        store.get_map("node_list", "=")
