"""Objects are stored as published, read back the same, and refuse what is wrong with its path."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import pytest

from ganeti import errors, objects
from ganeti.objects import codec

DATA = Path(__file__).parents[2] / "data"
PUBLISHED = json.loads((DATA / "published.json").read_text())
CONFIG_TEXT = (DATA / "cluster_config/cluster_config_3.1.json").read_text()


@pytest.fixture
def stored():
    return json.loads(CONFIG_TEXT)


@pytest.fixture
def config(stored):
    return codec.from_dict(objects.ConfigData, stored)


def assert_same_but_defaults(before, after, path=""):
    """`after` has everything of `before`, and beyond it only empty values."""
    if isinstance(before, dict):
        for key in before:
            assert_same_but_defaults(before[key], after[key], f"{path}/{key}")
        extra = {key: after[key] for key in after.keys() - before.keys()}
        assert all(value in ([], {}, 0, "", "rw") for value in extra.values()), (path, extra)
    elif isinstance(before, list):
        assert len(before) == len(after), path
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            assert_same_but_defaults(old, new, f"{path}/{place}")
    else:
        assert before == after, path


def test_configuration_of_3_1_round_trips(stored, config):
    written = codec.to_dict(config)
    assert_same_but_defaults(stored, written)
    again = codec.from_dict(objects.ConfigData, json.loads(json.dumps(written)))
    assert again == config
    assert codec.to_dict(again) == written


def test_reading_does_not_change_the_input(stored):
    before = copy.deepcopy(stored)
    codec.from_dict(objects.ConfigData, stored)
    assert stored == before


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("Cluster", objects.Cluster),
        ("ConfigData", objects.ConfigData),
        ("Disk", objects.Disk),
        ("FilterRule", objects.FilterRule),
        ("Instance", objects.Instance),
        ("NIC", objects.Nic),
        ("Network", objects.Network),
        ("Node", objects.Node),
        ("NodeGroup", objects.NodeGroup),
    ],
)
def test_stored_attributes_are_as_published(name, cls):
    runtime = {"Disk": {"dynamic_params", "hvinfo", "pci"}}.get(name, set())
    wanted = PUBLISHED["objects"][name]
    # What only our clusters record; it is left out while nothing is known.
    disk = {"in_sync_at", "never_alone", "outdated_node", "outdated_since", "unwiped_from"}
    own = {
        "Disk": disk,
        "Cluster": {
            "auto_balance",
            "auto_failover",
            "witness",
            "auto_instance_failover",
            "node_watchdog",
            "rapi_require_authentication",
            "job_execution",
            "export_key",
        },
        "ConfigData": {"access_records", "damaged", "documents"},
        "Instance": {"importing_since", "pending_changes"},
        "NodeGroup": {"enabled_hypervisors"},
        "Network": {"ext_reservations6", "isolated"},
        "NIC": {"ip6"},
        "Node": {"auto_failover", "key_pins", "maintenance", "watchdog"},
    }.get(name, set())
    fields = {field.name: field for field in dataclasses.fields(cls) if field.name not in runtime}
    assert sorted(fields) == sorted([*wanted, *own])
    # With its default it is not stored.
    assert all(
        fields[key].default in (None, False) or fields[key].metadata.get("unstored") for key in own
    )
    for key, presence in wanted.items():
        field = fields[key]
        mine = (
            "required"
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            else "optional"
            if field.default is None
            else "default"
        )
        if field.metadata.get("unstored"):
            continue  # devices below a disk are stored without
        expected = {"not": "optional"}.get(presence, presence)
        assert mine == expected, key


@pytest.mark.parametrize(
    "name", sorted(set(PUBLISHED["transfer"]) - {"QueryFieldDefinition", "QueryResponse"})
)
def test_transfer_objects_are_as_published(name):
    # What only our nodes tell.
    own = {
        "BlockDevStatus": ["writable"],
        "MigrationStatus": ["downtime", "error", "total_time"],
        "OS": ["hypervisors", "os_version"],
    }.get(name, [])
    cls = getattr(objects, name)
    mine = sorted(field.name for field in dataclasses.fields(cls))
    assert mine == sorted([*PUBLISHED["transfer"][name], *own])


def test_no_object_can_be_changed(config):
    node = next(iter(config.nodes.values()))
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.offline = True


def first(stored, kind):
    return next(iter(stored[kind]))


@pytest.mark.parametrize(
    ("kind", "change", "path", "text"),
    [
        ("nodes", {"colour": "red"}, "nodes/{}/colour", "unknown key"),
        ("nodes", {"offline": "no"}, "nodes/{}/offline", "must be true or false"),
        ("nodes", {"serial_no": True}, "nodes/{}/serial_no", "must be an integer"),
        ("nodes", {"serial_no": 1.5}, "nodes/{}/serial_no", "must be an integer"),
        ("nodes", {"name": None}, "nodes/{}/name", "must be text"),
        ("nodes", {"ndparams": []}, "nodes/{}/ndparams", "must be a dictionary"),
        ("nodes", {"ndparams": {"speed": 1}}, "nodes/{}/ndparams/speed", "unknown key"),
        ("nodes", {"tags": "x"}, "nodes/{}/tags", "must be a list"),
        ("nodes", {"tags": [1]}, "nodes/{}/tags", "must be text"),
        ("nodes", {"mtime": "today"}, "nodes/{}/mtime", "must be a number"),
        ("instances", {"nics": [{}]}, "instances/{}/nics/0/mac", "is missing"),
        ("instances", {"nics": [7]}, "instances/{}/nics/0", "must be a dictionary"),
        ("instances", {"beparams": {"ram": 1}}, "instances/{}/beparams/ram", "unknown key"),
        ("disks", {"size": "1g"}, "disks/{}/size", "must be an integer"),
        (
            "disks",
            {"children": [{"dev_type": "plain"}]},
            "disks/{}/children/0/logical_id",
            "is missing",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_path(stored, kind, change, path, text):
    uuid = first(stored, kind)
    stored[kind][uuid].update(change)
    with pytest.raises(errors.ConfigurationError, match=text) as caught:
        codec.from_dict(objects.ConfigData, stored)
    assert caught.value.path == path.format(uuid)
    assert caught.value.path in str(caught.value)


@pytest.mark.parametrize("missing", ["cluster", "version", "nodes", "filters"])
def test_missing_top_level_key(stored, missing):
    del stored[missing]
    with pytest.raises(errors.ConfigurationError, match="is missing") as caught:
        codec.from_dict(objects.ConfigData, stored)
    assert caught.value.path == missing


@pytest.mark.parametrize("value", [None, [], "text", 5])
def test_no_dictionary_at_all(value):
    with pytest.raises(errors.ConfigurationError, match="dictionary"):
        codec.from_dict(objects.ConfigData, value)


def test_a_long_wrong_value_does_not_flood_the_message(stored):
    stored["cluster"]["cluster_name"] = ["x" * 100000]
    with pytest.raises(errors.ConfigurationError) as caught:
        codec.from_dict(objects.ConfigData, stored)
    assert len(str(caught.value)) < 300


def test_optional_null_counts_as_absent(stored):
    stored["cluster"]["drbd_usermode_helper"] = None
    config = codec.from_dict(objects.ConfigData, stored)
    assert config.cluster.drbd_usermode_helper is None
    assert "drbd_usermode_helper" not in codec.to_dict(config)["cluster"]


def test_forthcoming_instance_may_lack_what_is_not_decided():
    value = {"name": "later", "uuid": "u", "forthcoming": True}
    instance = codec.from_dict(objects.Instance, value)
    assert instance.forthcoming and instance.primary_node == "" and instance.nics == ()
    assert codec.from_dict(objects.Instance, codec.to_dict(instance)) == instance
    with pytest.raises(errors.ConfigurationError):
        codec.from_dict(objects.Instance, {"name": "later", "uuid": "u"})


def test_private_parameters_do_not_show(stored):
    uuid = first(stored, "instances")
    stored["instances"][uuid]["osparams_private"] = {"key": "hush"}
    instance = codec.from_dict(objects.ConfigData, stored).instances[uuid]
    assert "hush" not in repr(instance)
    assert codec.to_dict(instance)["osparams_private"] == {"key": "hush"}


def test_updated_bumps_serial_number_and_time(config):
    node = next(iter(config.nodes.values()))
    changed = objects.updated(node, now=5.0, offline=True)
    assert (changed.serial_no, changed.mtime, changed.offline) == (node.serial_no + 1, 5.0, True)
    assert not node.offline
    rule = objects.FilterRule(
        watermark=1, priority=1, predicates=(), action="ACCEPT", reason_trail=(), uuid="u"
    )
    assert objects.updated(rule, priority=2).priority == 2
    assert objects.updated(node).mtime > 1.6e9


def test_what_another_release_wrote_may_have_unknown_keys(stored):
    expected = codec.from_dict(objects.ConfigData, copy.deepcopy(stored))
    uuid = first(stored, "instances")
    stored["instances"][uuid]["color"] = "red"
    stored["instances"][uuid]["beparams"]["sockets"] = 2
    stored["cluster"]["empty"] = []
    with codec.tolerating() as left_out:
        assert codec.from_dict(objects.ConfigData, stored) == expected
    assert sorted(left_out) == [f"instances/{uuid}/beparams/sockets", f"instances/{uuid}/color"]
    assert codec.from_any_release(objects.ConfigData, stored) == expected
    # The next object is read strictly again, also in a block inside of which something failed.
    with pytest.raises(errors.ConfigurationError, match="unknown key"):
        codec.from_dict(objects.ConfigData, stored)
    del stored["instances"][uuid]["os"]
    with pytest.raises(errors.ConfigurationError, match="os: is missing"):
        codec.from_any_release(objects.ConfigData, stored)
    with pytest.raises(errors.ConfigurationError, match="unknown key"):
        codec.from_dict(objects.ConfigData, stored)
