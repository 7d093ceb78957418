"""Parameters are inherited from the wide circle to the narrow one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ganeti import errors, objects
from ganeti.objects import codec, fill

DATA = Path(__file__).parents[2] / "data"
CONFIG_TEXT = (DATA / "cluster_config/cluster_config_3.1.json").read_text()


@pytest.fixture
def config():
    return codec.from_dict(objects.ConfigData, json.loads(CONFIG_TEXT))


def by_name(objs, name):
    return next(obj for obj in objs.values() if obj.name == name)


def replace_cluster(config, **changes):
    return dataclasses.replace(config.cluster, **changes)


def test_fill_dict():
    defaults = {"a": 1, "b": 2}
    assert fill.fill_dict(defaults, {"b": 3, "c": 4}, skip=["a"]) == {"b": 3, "c": 4}
    assert fill.fill_dict(defaults, None) == defaults == {"a": 1, "b": 2}


def test_hypervisor_parameters_come_from_cluster_os_and_instance(config):
    cluster = config.cluster
    os_name = "TEMP-Ganeti-QA-OS"
    assert cluster.hvparams["xen-pvm"]["root_path"] == "/dev/xvda1"
    assert fill.fill_hv(cluster, "xen-pvm")["root_path"] == "/dev/xvda1"
    assert fill.fill_hv(cluster, "xen-pvm", os_name)["root_path"] == "/dev/sda5"
    own = {"root_path": "/dev/sdb"}
    assert fill.fill_hv(cluster, "xen-pvm", os_name, own)["root_path"] == "/dev/sdb"


def test_globals_can_be_left_out(config):
    assert "migration_port" in fill.fill_hv(config.cluster, "xen-pvm")
    filled = fill.fill_hv(config.cluster, "xen-pvm", None, {"migration_port": 1}, skip_globals=True)
    assert "migration_port" not in filled and "kernel_path" in filled


def test_os_parameters_by_definition_and_variant(config):
    cluster = replace_cluster(config, osparams={"deb": {"a": 1, "b": 1}, "deb+min": {"b": 2}})
    assert fill.fill_osparams(cluster, "deb+min", {"c": 3}) == {"a": 1, "b": 2, "c": 3}
    assert fill.fill_osparams(cluster, "deb") == {"a": 1, "b": 1}
    assert fill.fill_osparams(cluster, "other", {"c": 3}) == {"c": 3}


def test_node_parameters(config):
    group = by_name(config.nodegroups, "another")
    node = dataclasses.replace(next(iter(config.nodes.values())), ndparams={"ssh_port": 2222})
    filled = fill.fill_nd(config.cluster, group, node)
    assert filled["exclusive_storage"] is True and filled["ssh_port"] == 2222
    assert fill.fill_nd(config.cluster, group)["ssh_port"] == 22


def test_what_was_set_by_hand_of_a_node(config):
    cluster = objects.updated(
        config.cluster,
        hv_state_static={"kvm": {"mem_node": 1, "mem_hv": 2}},
        disk_state_static={"plain": {"vg": {"disk_total": 5}}},
    )
    group = objects.updated(
        next(iter(config.nodegroups.values())),
        hv_state_static={"kvm": {"mem_hv": 3}, "fake": {"mem_total": 4}},
    )
    node = objects.updated(
        next(iter(config.nodes.values())),
        hv_state_static={"kvm": {"mem_total": 9}},
        disk_state_static={"plain": {"vg": {"disk_reserved": 1}, "ssd": {}}},
    )
    assert fill.fill_hv_state(cluster, group, node) == {
        "kvm": {"mem_node": 1, "mem_hv": 3, "mem_total": 9},
        "fake": {"mem_total": 4},
    }
    assert fill.fill_disk_state(cluster, None, node) == {
        "plain": {"vg": {"disk_total": 5, "disk_reserved": 1}, "ssd": {}}
    }
    assert cluster.hv_state_static == {"kvm": {"mem_node": 1, "mem_hv": 2}}, "nothing is changed"


def test_policy_inherits_std_by_value_and_the_rest_as_a_whole(config):
    group = by_name(config.nodegroups, "another")
    filled = fill.fill_ipolicy(
        config.cluster.ipolicy,
        {**group.ipolicy, "std": {"cpu-count": 3}},
    )
    assert filled["std"] == {**config.cluster.ipolicy["std"], "cpu-count": 3}
    assert filled["minmax"] == group.ipolicy["minmax"]
    assert filled["disk-templates"] == ["plain"]


def test_disk_parameters_know_every_template(config):
    group = dataclasses.replace(
        by_name(config.nodegroups, "default"), diskparams={"plain": {"stripes": 5}}
    )
    filled = fill.fill_diskparams(config.cluster.diskparams, group.diskparams)
    assert filled["plain"] == {"stripes": 5} and filled["diskless"] == {}
    assert filled["drbd"]["resync-rate"] == 1024
    assert filled["rbd"]["user-id"] == ""  # absent in the file, so the published default


def test_filled_instance_with_drbd(config):
    instance = by_name(config.instances, "instance1.example.com")
    filled = objects.filled_instance(
        config, instance, beparams={"maxmem": 999}, hvparams={"kernel_args": "single"}
    )
    assert filled.disk_template == "drbd"
    assert filled.secondary_nodes == ("41f9c238-173c-4120-9e41-04ad379b647a",)
    assert filled.beparams["maxmem"] == 999 and filled.beparams["vcpus"] == 1
    assert filled.hvparams["kernel_args"] == "single"
    assert filled.hvparams["migration_port"] == 8082
    assert filled.nics[0].nicparams == {"link": "br974", "mode": "bridged", "vlan": ""}
    top = filled.disks_info[0]
    assert top.params["disabled-barriers"] == "bf" and top.params["resync-rate"] == 1024
    assert [child.params for child in top.children] == [{"stripes": 2}, {"stripes": 2}]
    # What is stored stays as it was.
    assert instance.beparams == {} and config.disks[instance.disks[0]].params == {}


def test_filled_instance_survives_the_way_to_a_node(config):
    for instance in config.instances.values():
        filled = objects.filled_instance(config, instance)
        wire = json.loads(json.dumps(codec.to_dict(filled)))
        assert codec.from_dict(objects.FilledInstance, wire) == filled


def test_network_travels_with_the_nic(config):
    network = next(iter(config.networks.values()))
    instance = by_name(config.instances, "instance1.example.com")
    nic = dataclasses.replace(instance.nics[0], network=network.uuid, ip="203.0.113.9")
    instance = dataclasses.replace(instance, nics=(nic,))
    wire = codec.to_dict(objects.filled_instance(config, instance))
    assert wire["nics"][0]["netinfo"]["network"] == "203.0.113.0/24"
    assert "netinfo" not in codec.to_dict(instance)["nics"][0]


@pytest.mark.parametrize(
    "change",
    [
        {"disks": ("gone",)},
        {"primary_node": "gone"},
        {"nics": (objects.Nic(mac="a", nicparams={}, uuid="u", network="gone"),)},
    ],
)
def test_dangling_references_are_named(config, change):
    instance = dataclasses.replace(by_name(config.instances, "instance1.example.com"), **change)
    with pytest.raises(errors.ConfigurationError, match="instance1.*gone"):
        objects.filled_instance(config, instance)


def test_template_of_disks(config):
    disks = list(config.disks.values())
    assert fill.disk_template([]) == "diskless"
    assert fill.disk_template([d for d in disks if d.dev_type == "plain"]) == "plain"
    assert fill.disk_template(disks) == "mixed"
