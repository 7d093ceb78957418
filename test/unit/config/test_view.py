"""Names as users write them, lists in the order people expect."""

from __future__ import annotations

import dataclasses

import pytest

from fakes.config import commit
from ganeti import errors
from ganeti.config import Config, View
from ganeti.config.local_file import LocalFile
from ganeti.config.store import ConfigStore
from ganeti.objects import Disk

from .samples import disk_of, group_of, instance_of, node_of, small_cluster, uuid_of


@pytest.fixture
def view() -> View:
    data = small_cluster(2, {2: {"offline": True, "master_candidate": False}})
    nodes = {**data.nodes, uuid_of("node10"): node_of(10, vm_capable=False)}
    names = ("web.example.com", "web2.example.com", "db.a.example.com", "db.b.example.com")
    instances = {
        uuid_of(name): instance_of(number, name=name, uuid=uuid_of(name))
        for number, name in enumerate(names, start=2)
    }
    instances[instance_of(1).uuid] = instance_of(1)
    drbd = Disk(
        dev_type="drbd",
        size=1,
        uuid=uuid_of("drbd"),
        serial_no=1,
        logical_id=(uuid_of("node1"), uuid_of("node2"), 11000, 0, 0, "s"),
    )
    instances[uuid_of("mirrored")] = instance_of(
        9, name="mirrored", uuid=uuid_of("mirrored"), disks=(drbd.uuid,)
    )
    return View(
        dataclasses.replace(
            data,
            nodes=nodes,
            instances=instances,
            disks={disk_of(1).uuid: disk_of(1), drbd.uuid: drbd},
        )
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("node1", "node1.example.com"),
        ("node1.example.com", "node1.example.com"),
        ("NODE1", "node1.example.com"),
        ("node1.example", "node1.example.com"),
        (uuid_of("node10"), "node10.example.com"),
    ],
)
def test_nodes_are_found(view: View, name: str, found: str) -> None:
    assert view.expand_node(name).name == found


@pytest.mark.parametrize("name", ["", "node", "node3", "example.com", "node1.example.co"])
def test_nodes_are_not_found(view: View, name: str) -> None:
    with pytest.raises(errors.OpPrereqError, match="is not in the cluster") as caught:
        view.expand_node(name)
    assert caught.value.ecode == errors.ECODE_NOENT


def test_a_misspelt_name_is_guessed(view: View) -> None:
    with pytest.raises(
        errors.OpPrereqError,
        match=r"instance 'wbe' is not in the cluster\. Did you mean 'web.example",
    ):
        view.expand_instance("wbe")
    # Another number is another machine.
    with pytest.raises(errors.OpPrereqError, match="node 'node77' is not in the cluster$"):
        view.expand_node("node77")


def test_instances(view: View) -> None:
    assert view.expand_instance("web").name == "web.example.com"
    assert view.expand_instance("db.a").name == "db.a.example.com"
    with pytest.raises(
        errors.OpPrereqError, match="'db' is not unique: it matches db.a.example.com"
    ):
        view.expand_instance("db")
    assert view.instance_by_name("web") is None


def test_groups_have_exact_names(view: View) -> None:
    assert view.expand_group("default").uuid == uuid_of("default")
    assert view.expand_group(uuid_of("default")).name == "default"
    with pytest.raises(errors.OpPrereqError, match="node group 'DEFAULT' is not in the cluster"):
        view.expand_group("DEFAULT")


def test_lists_are_in_natural_order(view: View) -> None:
    assert [node.name for node in view.nodes()] == [
        "node1.example.com",
        "node2.example.com",
        "node10.example.com",
    ]
    assert [node.name for node in view.online_nodes()] == [
        "node1.example.com",
        "node10.example.com",
    ]
    assert [node.name for node in view.master_candidates()] == [
        "node1.example.com",
        "node10.example.com",
    ]
    assert [node.name for node in view.vm_capable_nodes()] == [
        "node1.example.com",
        "node2.example.com",
    ]
    assert len(view.group_nodes(uuid_of("default"))) == 3
    assert view.group_nodes(group_of(1).uuid) == ()
    assert view.master_node().name == "node1.example.com"
    assert view.cluster_name == "cluster.example.com"


def test_instances_and_nodes(view: View) -> None:
    mirrored = view.expand_instance("mirrored")
    assert view.instance_nodes(mirrored) == (uuid_of("node1"), uuid_of("node2"))
    assert view.secondary_nodes(mirrored) == (uuid_of("node2"),)
    assert view.disk_template(mirrored) == "drbd"
    assert view.disk_template(view.expand_instance("web")) == "diskless"
    primaries, secondaries = view.node_instances(uuid_of("node2"))
    assert (primaries, secondaries) == ((), (mirrored,))
    assert len(view.node_instances(uuid_of("node1"))[0]) == 6


def test_filling(view: View) -> None:
    filled = view.filled(view.expand_instance("instance1"), beparams={"vcpus": 4})
    assert filled.beparams["vcpus"] == 4
    assert filled.disk_template == "file"


def test_what_does_not_exist(view: View) -> None:
    for call in (view.node, view.instance, view.group, view.network, view.disk, view.filter_rule):
        with pytest.raises(errors.ConfigurationError, match="x is not in the configuration"):
            call("x")


def test_order_and_names_follow_any_changes() -> None:
    config = Config(
        ConfigStore(LocalFile("config.data", lambda _path, _text: None), small_cluster())
    )
    assert config.instances() == ()
    assert config.instance_by_name("instance2.example.com") is None
    for number in (10, 2, 300, 7, 1000, 3):
        commit(config).instances.add(dataclasses.replace(instance_of(number), disks=()), [], "x")
        _check_order(config)
    commit(config).instances.mark(instance_of(7).uuid, "up")
    _check_order(config)
    assert config.expand_instance("instance7").admin_state == "up"
    commit(config).instances.update(
        dataclasses.replace(config.instance(instance_of(7).uuid), name="a.example.com")
    )
    _check_order(config)
    assert config.instance_by_name("instance7.example.com") is None
    assert config.expand_instance("a").uuid == instance_of(7).uuid
    commit(config).instances.remove(instance_of(300).uuid)
    _check_order(config)
    assert config.instance_by_name("instance300.example.com") is None
    with config.transaction() as change:
        change.instances.remove(instance_of(2).uuid)
        for number in range(4, 150, 3):
            if number not in (7, 10):
                change.instances.add(dataclasses.replace(instance_of(number), disks=()), [], "x")
    _check_order(config)


def _check_order(config: Config) -> None:
    present = config.snapshot().instances
    assert [instance.uuid for instance in config.instances()] == [
        instance.uuid for instance in View(config.snapshot()).instances()
    ]
    assert {instance.uuid: instance for instance in config.instances()} == present
    for instance in present.values():
        assert config.instance_by_name(instance.name) is instance
