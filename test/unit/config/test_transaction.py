"""Every change, and every change that is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from fakes.config import commit
from ganeti import errors
from ganeti.config import Config, Transaction, verify
from ganeti.config.local_file import LocalFile
from ganeti.config.store import ConfigStore
from ganeti.objects import ConfigData, Disk, FilterRule, Nic, updated

from .samples import (
    disk_of,
    group_of,
    instance_of,
    network_of,
    node_of,
    small_cluster,
    uuid_of,
)

EC = "job-1"
I1, N1, N2 = uuid_of("instance1"), uuid_of("node1"), uuid_of("node2")


def _config(data: ConfigData | None = None) -> Config:
    return Config(
        ConfigStore(
            LocalFile("config.data", lambda path, text: None),
            data or small_cluster(),
            now=lambda: 2000.0,
        )
    )


@pytest.fixture
def config() -> Config:
    made = _config()
    commit(made).instances.add(instance_of(1), [disk_of(1)], EC)
    commit(made).networks.add(network_of(1))
    commit(made).groups.add(group_of(1))
    return made


def _drbd(port: int) -> Disk:
    return Disk(
        dev_type="drbd",
        logical_id=(N1, N2, port, 0, 0, "secret"),
        nodes=(N1, N2),
        iv_name="disk/0",
        size=1024,
        uuid=uuid_of("drbd"),
        serial_no=1,
    )


def _refusals() -> list[tuple[Callable[[Transaction], object], str]]:
    same_mac = dataclasses.replace(instance_of(2), nics=instance_of(1).nics)
    unknown_net = dataclasses.replace(
        instance_of(2),
        nics=(
            Nic(mac="aa:00:00:00:00:77", nicparams={}, uuid=uuid_of("n"), network=uuid_of("no")),
        ),
    )
    return [
        (
            lambda c: c.instances.add(instance_of(1), [disk_of(1)], EC),
            "in use by this kind of object: instance",
        ),
        (
            lambda c: c.instances.add(instance_of(2, name="instance1.example.com"), [], EC),
            "instance instance1.example.com exists already",
        ),
        (
            lambda c: c.instances.add(instance_of(2, uuid=N1), [], EC),
            "in use by this kind of object: node",
        ),
        (lambda c: c.instances.add(instance_of(2, uuid=""), [], EC), "has no uuid"),
        (lambda c: c.instances.add(instance_of(2, name=""), [], EC), "has no name"),
        (
            lambda c: c.instances.add(instance_of(2, primary_node="x"), [], EC),
            "instance2.example.com: node x is not in",
        ),
        (lambda c: c.instances.add(instance_of(2), [disk_of(2)], EC), "do not agree with its list"),
        (lambda c: c.instances.add(same_mac, [], EC), "MAC address aa:00:00:00:00:01 is already"),
        (lambda c: c.instances.add(unknown_net, [], EC), "network .* is not in the configuration"),
        (lambda c: c.instances.remove("x"), "instance x is not in the configuration"),
        (lambda c: c.instances.mark(I1, "gone"), "there is no state 'gone'"),
        (lambda c: c.instances.mark(I1, "up", "nobody"), "there is no source 'nobody'"),
        (lambda c: c.instances.set_primary(I1, "x"), "node x is not in"),
        (lambda c: c.instances.update(instance_of(1, disks=())), "list of disks cannot be changed"),
        (lambda c: c.instances.update(instance_of(1, serial_no=7)), "was changed meanwhile"),
        (lambda c: c.disks.add(I1, disk_of(1), 0), "in use by this kind of object: disk"),
        (lambda c: c.disks.add(I1, disk_of(1, 1), 5), "a disk cannot have index 5"),
        (lambda c: c.disks.remove(I1, "x"), "disk x is not one of its disks"),
        (lambda c: c.nodes.add(node_of(1)), "already"),
        (lambda c: c.nodes.add(node_of(9, group="x")), "node group x is not in"),
        (lambda c: c.nodes.add(node_of(9, name="node1.example.com")), "node1.* exists"),
        (lambda c: c.nodes.remove(N1), "node1.example.com is the master"),
        (lambda c: c.groups.remove(uuid_of("default")), "has node node1.example.com"),
        (lambda c: c.groups.add(group_of(1)), "already"),
        (lambda c: c.groups.add(group_of(2, networks={"x": {}})), "network x is not in"),
        (lambda c: c.networks.remove("x"), "network x is not in"),
        (lambda c: c.filters.remove("x"), "filter rule x is not in"),
        (lambda c: c.cluster.set_candidate_cert("x", "AA"), "node x is not in"),
        (lambda c: c.cluster.update(updated(c.data.cluster, master_node="x")), "node x is not in"),
    ]


@pytest.mark.parametrize("number", range(len(_refusals())))
def test_refused(config: Config, number: int) -> None:
    operation, message = _refusals()[number]
    before = config.snapshot()
    with pytest.raises(errors.ConfigurationError, match=message), config.transaction() as change:
        operation(change)
    assert config.snapshot() is before


def test_marking(config: Config) -> None:
    commit(config).instances.mark(I1, "up")
    instance = config.instance(I1)
    assert (instance.admin_state, instance.disks_active, instance.serial_no) == ("up", True, 2)
    commit(config).instances.mark(I1, "down", "user")
    instance = config.instance(I1)
    assert (instance.admin_state, instance.admin_state_source) == ("down", "user")
    assert instance.disks_active
    commit(config).instances.mark(I1, "offline")
    assert not config.instance(I1).disks_active
    serial = config.snapshot().serial_no
    commit(config).instances.mark(I1, "offline")
    assert config.snapshot().serial_no == serial


def test_a_new_primary_takes_file_disks_along(config: Config) -> None:
    commit(config).instances.set_primary(I1, N2)
    assert config.instance(I1).primary_node == N2
    assert config.disk(disk_of(1).uuid).nodes == (N2,)
    assert config.disk(disk_of(1).uuid).serial_no == 2


def test_removal_takes_the_disks_and_gives_back_ports() -> None:
    config = _config()
    port = commit(config).ports.allocate()
    drbd_port = commit(config).ports.allocate()
    assert (port, drbd_port) == (11001, 11002)
    commit(config).instances.add(
        instance_of(2, network_port=port, disks=(uuid_of("drbd"),)), [_drbd(drbd_port)], EC
    )
    commit(config).instances.remove(uuid_of("instance2"))
    data = config.snapshot()
    assert (data.instances, data.disks) == ({}, {})
    assert data.cluster.tcpudp_port_pool == (port, drbd_port)
    assert commit(config).ports.allocate() == port
    commit(config).ports.release(port)
    commit(config).ports.release(port)
    assert config.cluster().tcpudp_port_pool == (port, drbd_port)


def test_ports_end() -> None:
    config = _config(small_cluster(highest_used_port=14998))
    assert commit(config).ports.allocate() == 14999
    with pytest.raises(errors.OpPrereqError, match="ports up to 14999 are all in use"):
        commit(config).ports.allocate()


def test_disks_are_numbered(config: Config) -> None:
    commit(config).disks.add(I1, disk_of(1, 1, iv_name=""))
    commit(config).disks.add(I1, disk_of(1, 2, iv_name=""), 0)
    disks = config.instance_disks(config.instance(I1))
    assert [disk.uuid for disk in disks] == [
        disk_of(1, 2).uuid,
        disk_of(1).uuid,
        disk_of(1, 1).uuid,
    ]
    assert [disk.iv_name for disk in disks] == ["disk/0", "disk/1", "disk/2"]
    commit(config).disks.remove(I1, disk_of(1, 2).uuid)
    assert [disk.iv_name for disk in config.instance_disks(config.instance(I1))] == [
        "disk/0",
        "disk/1",
    ]
    assert disk_of(1, 2).uuid not in config.snapshot().disks
    disk = config.disk(disk_of(1).uuid)
    commit(config).disks.update(dataclasses.replace(disk, size=2048))
    assert config.disk(disk.uuid).size == 2048
    assert config.verify() == []


def test_nodes(config: Config) -> None:
    commit(config).nodes.add(node_of(9))
    commit(config).cluster.set_candidate_cert(uuid_of("node9"), "CC:DD")
    assert config.cluster().candidate_certs[uuid_of("node9")] == "CC:DD"
    commit(config).nodes.update(
        dataclasses.replace(config.node(uuid_of("node9")), master_candidate=False)
    )
    assert uuid_of("node9") not in config.cluster().candidate_certs
    commit(config).nodes.remove(uuid_of("node9"))
    assert config.node_by_name("node9.example.com") is None
    commit(config).instances.set_primary(I1, N2)
    with pytest.raises(errors.ConfigurationError, match="primary node of instance instance1"):
        commit(config).nodes.remove(N2)


def test_a_node_with_disks_stays() -> None:
    config = _config()
    commit(config).instances.add(instance_of(2, disks=(uuid_of("drbd"),)), [_drbd(11000)], EC)
    with pytest.raises(errors.ConfigurationError, match="node2.example.com has disk"):
        commit(config).nodes.remove(N2)


def test_groups_and_networks(config: Config) -> None:
    group, network = config.expand_group("group1"), config.expand_network("net1")
    commit(config).groups.update(dataclasses.replace(group, networks={network.uuid: {}}))
    with pytest.raises(errors.ConfigurationError, match="connected to node group group1"):
        commit(config).networks.remove(network.uuid)
    commit(config).groups.update(dataclasses.replace(config.group(group.uuid), networks={}))
    commit(config).networks.update(dataclasses.replace(network, name="lan"))
    assert config.network_by_name("lan") is not None
    commit(config).networks.remove(network.uuid)
    commit(config).groups.remove(group.uuid)
    assert [group.name for group in config.groups()] == ["default"]


def test_the_last_group_stays() -> None:
    data = small_cluster()
    config = _config(dataclasses.replace(data, nodegroups={uuid_of("group1"): group_of(1)}))
    with pytest.raises(errors.ConfigurationError, match="group1 is the last one"):
        commit(config).groups.remove(uuid_of("group1"))


def test_filters(config: Config) -> None:
    rules = [
        FilterRule(
            watermark=5,
            priority=priority,
            predicates=(),
            action="ACCEPT",
            reason_trail=(),
            uuid=uuid_of(f"rule{priority}"),
        )
        for priority in (3, 1, 2)
    ]
    for rule in rules:
        commit(config).filters.put(rule)
    assert [rule.priority for rule in config.filters()] == [1, 2, 3]
    commit(config).filters.put(dataclasses.replace(rules[0], priority=0))
    commit(config).filters.remove(rules[1].uuid)
    assert [rule.priority for rule in config.filters()] == [0, 2]


def test_an_older_change_does_not_undo_a_newer_one(config: Config) -> None:
    old = config.instance(I1)
    commit(config).instances.mark(I1, "up")
    with pytest.raises(errors.ConfigurationError, match=r"serial number 2, the change was made fo"):
        commit(config).instances.update(dataclasses.replace(old, hvparams={"x": 1}))
    commit(config).instances.update(updated(config.instance(I1), tags=("a",)))
    assert config.instance(I1).serial_no == 3
    commit(config).instances.update(dataclasses.replace(config.instance(I1), tags=("b",)))
    assert (config.instance(I1).serial_no, config.instance(I1).tags) == (4, ("b",))


def test_the_cluster(config: Config) -> None:
    commit(config).cluster.update(dataclasses.replace(config.cluster(), tags=("x",)))
    assert (config.cluster().tags, config.cluster().serial_no) == (("x",), 2)


# -- reservations -------------------------------------------------------------------------------


def test_a_name_is_taken_once(config: Config) -> None:
    config.reserving_for(EC).reserve_instance_name("web")
    config.reserving_for(EC).reserve_instance_name("web")
    with pytest.raises(errors.ReservationError, match="web is reserved by another operation"):
        config.reserving_for("job-2").reserve_instance_name("web")
    with pytest.raises(errors.ReservationError, match="instance1.example.com is already in use"):
        config.reserving_for(EC).reserve_instance_name("instance1.example.com")
    with pytest.raises(errors.ReservationError, match="being added by another operation"):
        commit(config).instances.add(instance_of(3, name="web"), [], "job-2")
    commit(config).instances.add(instance_of(3, name="web"), [], EC)
    config.reserving_for(EC).release_reservations()
    with pytest.raises(errors.ReservationError, match="already in use"):
        config.reserving_for("job-2").reserve_instance_name("web")


def test_mac_addresses(config: Config) -> None:
    mac = config.reserving_for(EC).generate_mac()
    assert mac.startswith("aa:00:00:")
    assert config.reserving_for(EC).generate_mac("aa:bb:cc").startswith("aa:bb:cc:")
    with pytest.raises(errors.ReservationError, match="is reserved"):
        config.reserving_for("job-2").reserve_mac(mac.upper())
    with pytest.raises(errors.ReservationError, match="already in use"):
        config.reserving_for("job-2").reserve_mac("AA:00:00:00:00:01")
    nic = Nic(mac=mac, nicparams={}, uuid=uuid_of("n"))
    with pytest.raises(errors.ConfigurationError, match="already in use"):
        commit(config).instances.add(instance_of(4, nics=(nic,)), [], "job-2")
    config.reserving_for(EC).release_reservations()
    commit(config).instances.add(instance_of(4, nics=(nic,)), [], "job-2")


def test_uuids_and_volumes(config: Config) -> None:
    uuids = {config.reserving_for(EC).new_uuid() for _ in range(50)}
    assert len(uuids) == 50
    config.reserving_for(EC).reserve_lv("xenvg/disk0")
    with pytest.raises(errors.ReservationError, match="xenvg/disk0 is reserved"):
        config.reserving_for("job-2").reserve_lv("xenvg/disk0")


# -- disks which belong to no instance ---------------------------------------------------------


def test_a_disk_is_detached_and_attached(config):
    disk = disk_of(1)
    with config.transaction() as change:
        change.disks.detach(I1, disk.uuid)
    assert config.instance(I1).disks == ()
    assert config.disk(disk.uuid).iv_name == ""
    # It is there on purpose.
    assert not [problem for problem in config.verify() if disk.uuid in problem]
    with config.transaction() as change:
        change.disks.attach(I1, disk.uuid)
    assert config.instance(I1).disks == (disk.uuid,)
    assert config.disk(disk.uuid).iv_name == "disk/0"


def test_detached_disks_take_the_place_of_others(config):
    old = disk_of(1)
    new = dataclasses.replace(disk_of(1), uuid=uuid_of("other-disk"), iv_name="")
    with config.transaction() as change:
        change.disks.add_detached(new)
        change.disks.replace(I1, [new.uuid])
    assert config.instance(I1).disks == (new.uuid,)
    assert (config.disk(new.uuid).iv_name, config.disk(old.uuid).iv_name) == ("disk/0", "")
    with config.transaction() as change:
        change.disks.remove_detached(old.uuid)
    assert old.uuid not in config.snapshot().disks


def test_the_port_of_a_dropped_mirror_is_free_again(config):
    with config.transaction() as change:
        change.disks.add_detached(dataclasses.replace(_drbd(11007), iv_name=""))
        change.disks.remove_detached(uuid_of("drbd"))
    assert 11007 in config.cluster().tcpudp_port_pool


def test_what_is_known_about_replicas(config: Config) -> None:
    """Which one missed writes, since when, and whether an inactive disk was in sync."""
    uuid = uuid_of("drbd")
    commit(config).disks.add_detached(dataclasses.replace(_drbd(11007), iv_name=""))

    def known() -> tuple[str | None, float | None, float | None]:
        disk = config.disk(uuid)
        return disk.outdated_node, disk.outdated_since, disk.in_sync_at

    assert known() == (None, None, None)
    commit(config).disks.mark_in_sync(uuid)
    assert known() == (None, None, 2000.0)
    commit(config).disks.mark_outdated(uuid, N2)
    assert known() == (N2, 2000.0, None)
    before = config.disk(uuid)
    commit(config).disks.mark_outdated(uuid, N2)
    commit(config).disks.forget_in_sync(uuid)
    assert config.disk(uuid) == before
    assert not [line for line in verify.check(config.snapshot()) if "miss writes" in line]
    wrong = dataclasses.replace(before, outdated_node=uuid_of("node9"))
    data = dataclasses.replace(config.snapshot(), disks={uuid: wrong})
    assert any("could miss writes" in line for line in verify.check(data))
    # A change which leaves the replicas where they are keeps the record, another one ends it.
    commit(config).disks.update(updated(before, size=2048))
    assert known()[0] == N2
    other = updated(config.disk(uuid), logical_id=(*before.logical_id[:5], "another secret"))
    commit(config).disks.update(other)
    assert known() == (None, None, None)
    commit(config).disks.mark_outdated(uuid, N1)
    commit(config).disks.forget_outdated(uuid)
    assert known() == (None, None, None)
    with pytest.raises(errors.ConfigurationError, match="has no replica of it"):
        commit(config).disks.mark_outdated(uuid, uuid_of("node9"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: c.disks.detach(I1, uuid_of("no")), "is not one of its disks"),
        (lambda c: c.disks.attach(I1, disk_of(1).uuid), "belongs to instance instance1"),
        (lambda c: c.disks.attach(I1, uuid_of("no")), "is not in the configuration"),
        (lambda c: c.disks.remove_detached(disk_of(1).uuid), "belongs to instance instance1"),
        (lambda c: c.disks.replace(I1, [uuid_of("no")]), "is not in the configuration"),
    ],
)
def test_detached_disks_are_refused(config, change, text):
    before = config.snapshot()
    with pytest.raises(errors.ConfigurationError, match=text), config.transaction() as transaction:
        change(transaction)
    assert config.snapshot() is before


def test_minors_of_both_nodes_are_taken() -> None:
    config = Config(ConfigStore(LocalFile("config.data", lambda path, text: None), small_cluster()))
    nodes = (uuid_of("node1"), uuid_of("node2"))
    disk = disk_of(
        1, dev_type="drbd", nodes=nodes, logical_id=(*nodes, 11001, 0, 0, "secret"), children=()
    )
    commit(config).instances.add(instance_of(1), [disk], "job-1")
    assert config.reserving_for("job-2").allocate_minors([*nodes, uuid_of("node3")]) == (1, 1, 0)
