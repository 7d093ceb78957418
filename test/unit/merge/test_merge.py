"""Two configurations become one: what forbids it, what differs, and what comes out."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ganeti import errors, ht
from ganeti.config import verify
from ganeti.constants import disk as disk_c
from ganeti.constants import net as net_c
from ganeti.merge import conflicts, other_cluster
from ganeti.merge.combine import combine
from ganeti.objects import ConfigData, Disk, Nic, codec, fill
from ganeti.objects.address_pool import AddressPool, empty
from ganeti.objects.network import Network
from ganeti.wire import json
from test.fakes.config import GROUP, cluster_of, disk_of, instance_of, uuid_of
from test.fakes.two_clusters import GROUP_2, second

NOW = 1e9


def network(name: str, uuid: str, **changes: Any) -> Network:
    values: dict[str, Any] = {"name": name, "network": "198.51.100.0/24", "uuid": uuid}
    return empty(Network(**{**values, "serial_no": 1, **changes}))


def changed(data: ConfigData, short: str, **changes: Any) -> ConfigData:
    """Return a configuration with changes of an instance."""
    instance = dataclasses.replace(data.instances[uuid_of(short)], **changes)
    return dataclasses.replace(data, instances={**data.instances, instance.uuid: instance})


def drbd(name: str, port: int, nodes: tuple[str, str] = ("node11", "node12")) -> Disk:
    volume = Disk(
        dev_type=disk_c.PLAIN,
        logical_id=("xenvg", name),
        size=1024,
        nodes=tuple(map(uuid_of, nodes)),
    )
    meta = dataclasses.replace(volume, logical_id=("xenvg", f"{name}-meta"), size=128)
    return Disk(
        dev_type=disk_c.DRBD8,
        logical_id=(*map(uuid_of, nodes), port, 0, 0, "secret"),
        children=(volume, meta),
        iv_name="disk/0",
        size=1024,
        nodes=tuple(map(uuid_of, nodes)),
        uuid=f"disk-{name}",
        serial_no=1,
    )


def test_clusters_which_share_nothing() -> None:
    own, theirs = cluster_of(3, (instance_of("web1"),)), second("shop1")
    assert conflicts.forbidden(own, theirs, groups=conflicts.MERGE) == []
    assert conflicts.differences(own, theirs, groups=conflicts.MERGE) == []
    merged = combine(own, theirs, groups=conflicts.MERGE, now=NOW)
    data = merged.data
    assert (merged.ports, merged.groups, merged.kept) == ({}, {}, {})
    assert set(verify.check(data)) <= {*verify.check(own), *verify.check(theirs)}
    assert data.serial_no == own.serial_no + 1
    assert {node.name: node.group for node in data.nodes.values()} == {
        f"node{number}.example.com": GROUP for number in (1, 2, 3, 11, 12)
    }
    joined = data.nodes[uuid_of("node11")]
    assert (joined.offline, joined.master_candidate, joined.key_pins) == (True, False, None)
    assert data.nodes[uuid_of("node1")] == own.nodes[uuid_of("node1")]
    assert data.instances[uuid_of("web1")] == own.instances[uuid_of("web1")]
    assert data.instances[uuid_of("shop1")] == theirs.instances[uuid_of("shop1")]
    # The result can be written and read.
    assert codec.from_dict(ConfigData, codec.to_dict(data)) == data


def mac_of_web1(data: ConfigData) -> ConfigData:
    nic = Nic(mac="AA:00:00:00:00:04", nicparams={}, uuid="nic-x")
    return changed(data, "shop1", nics=(nic,))


def node_changes(data: ConfigData, **changes: Any) -> ConfigData:
    node = dataclasses.replace(data.nodes[uuid_of("node12")], **changes)
    return dataclasses.replace(data, nodes={**data.nodes, node.uuid: node})


def cluster_changes(data: ConfigData, **changes: Any) -> ConfigData:
    return dataclasses.replace(data, cluster=dataclasses.replace(data.cluster, **changes))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: changed(data, "shop1", name="web1.example.com"), "an instance web1"),
        (mac_of_web1, "aa:00:00:00:00:04 is used by instances web1.example.com and shop1"),
        (lambda data: node_changes(data, name="node2.example.com"), "a node node2.example.com"),
        (
            lambda data: node_changes(data, primary_ip="192.0.2.2", secondary_ip="192.0.2.2"),
            "address 192.0.2.2 is used by node node2.example.com and node node12",
        ),
        (
            lambda data: cluster_changes(data, master_ip="192.0.2.100"),
            "192.0.2.100 is used by cluster cluster.example.com and cluster second",
        ),
        (
            lambda data: node_changes(data, secondary_ip="203.0.113.1"),
            "only one of the clusters has a secondary network",
        ),
        (lambda data: cluster_changes(data, uuid=cluster_of().cluster.uuid), "is this cluster"),
        (lambda data: dataclasses.replace(data, version=2160000), "Install the same release"),
        (
            lambda data: changed(data, "shop1", hypervisor="lxc"),
            "need hypervisor lxc. Enable it with 'gnt-cluster modify --enabled-hypervisors'",
        ),
        (lambda data: changed(data, "shop1", importing_since=1.0), "shop1.example.com is being"),
        (
            lambda data: dataclasses.replace(
                data, networks={"n2": network("lan", "n2", network="198.51.100.0/25")}
            ),
            "a network lan, with different definitions (198.51.100.0/24 and 198.51.100.0/25)",
        ),
        (
            lambda data: dataclasses.replace(data, disks={"d": dataclasses.replace(
                disk_of("shop1", template=disk_c.RBD), uuid="d")}),
            "template rbd. Enable it with 'gnt-cluster modify --enabled-disk-templates'",
        ),
        (lambda data: dataclasses.replace(data, damaged={"x": 1}), "has damaged entries"),
        (
            lambda data: dataclasses.replace(
                data, networks={"n1": network("other", "n1")}
            ),
            "UUID n1 among their networks",
        ),
    ],
)  # fmt: skip
def test_what_forbids_it(change: Any, text: str) -> None:
    own = dataclasses.replace(
        cluster_of(3, (instance_of("web1"),)), networks={"n1": network("lan", "n1")}
    )
    found = conflicts.forbidden(own, change(second("shop1")), groups=conflicts.MERGE)
    assert any(text in line for line in found), found


def test_groups() -> None:
    own, theirs = cluster_of(), second()
    name = own.nodegroups[GROUP].name
    (text,) = conflicts.forbidden(own, theirs)
    assert text == f"both clusters have a node group {name}: choose with --groups=merge or" + (
        " --groups=rename"
    )
    renamed = combine(own, theirs, groups=conflicts.RENAME, now=NOW)
    assert renamed.groups == {name: f"{name}-second.example.com"}
    assert {group.name for group in renamed.data.nodegroups.values()} == {
        name, f"{name}-second.example.com"
    }  # fmt: skip
    assert renamed.data.nodes[uuid_of("node11")].group == GROUP_2
    group = dataclasses.replace(theirs.nodegroups[GROUP_2], alloc_policy="last_resort")
    theirs = dataclasses.replace(theirs, nodegroups={GROUP_2: group})
    assert conflicts.differences(own, theirs, groups=conflicts.MERGE) == [
        f"node group {name}: alloc_policy"
    ]
    merged = combine(own, theirs, groups=conflicts.MERGE, now=NOW).data
    assert [one.alloc_policy for one in merged.nodegroups.values()] == ["preferred"]


def test_ports_which_collide_change_on_the_other_side() -> None:
    own = cluster_of(
        3, (instance_of("web1", network_port=11001),), highest_used_port=11003,
        tcpudp_port_pool=(11002, 11003),
    )  # fmt: skip
    theirs = second("shop1", "shop2", highest_used_port=11003, tcpudp_port_pool=())
    theirs = changed(theirs, "shop1", disks=("disk-a",), network_port=11002)
    theirs = changed(theirs, "shop2", network_port=11003)
    theirs = dataclasses.replace(theirs, disks={"disk-a": drbd("a", 11001)})
    own = cluster_changes(own, enabled_disk_templates=("drbd", "plain", "file", "sharedfile"))
    merged = combine(own, theirs, groups=conflicts.MERGE, now=NOW)
    # 11002 and 11003 are not free any more, because the other cluster uses them.
    assert merged.ports == {"shop1.example.com": {11001: 11004}}
    assert merged.data.disks["disk-a"].logical_id[2:] == (11004, 0, 0, "secret")
    assert merged.data.instances[uuid_of("web1")].network_port == 11001
    assert merged.data.instances[uuid_of("shop1")].network_port == 11002
    assert merged.data.cluster.highest_used_port == 11004
    assert merged.data.cluster.tcpudp_port_pool == ()
    both = cluster_changes(own, highest_used_port=net_c.LAST_PORT)
    with pytest.raises(errors.ConfigurationError, match="not enough TCP ports"):
        combine(both, theirs, groups=conflicts.MERGE, now=NOW)


def test_instances_keep_their_parameters() -> None:
    own, theirs = cluster_of(3), second("shop1")
    cluster = theirs.cluster
    theirs = cluster_changes(
        theirs,
        beparams={"default": {**cluster.beparams["default"], "maxmem": 4096}},
        hvparams={**cluster.hvparams, "kvm": {**cluster.hvparams["kvm"], "acpi": False}},
        nicparams={"default": {**cluster.nicparams["default"], "link": "br9"}},
        osparams={"noop": {"dhcp": "yes"}, "only": {"a": "b"}},
        osparams_private_cluster=ht.PrivateDict({"noop": {"password": "xyzzy"}}),
    )
    own = cluster_changes(
        own,
        osparams={"noop": {"dhcp": "no"}},
        osparams_private_cluster=ht.PrivateDict({"noop": {"password": "plugh"}}),
    )
    theirs = changed(theirs, "shop1", hypervisor="kvm")
    found = conflicts.differences(own, theirs, groups=conflicts.MERGE)
    assert (
        f"beparams/default/maxmem: {own.cluster.beparams['default']['maxmem']} here, 4096 there"
        in found
    )
    assert "hvparams/kvm/acpi: True here, False there" in found
    assert "osparams_private_cluster/noop differs" in found
    assert not any("xyzzy" in line or "plugh" in line for line in found)
    merged = combine(own, theirs, groups=conflicts.MERGE, now=NOW)
    data = merged.data
    instance = data.instances[uuid_of("shop1")]
    assert merged.kept == {
        "shop1.example.com": [
            "hvparams/acpi", "beparams/maxmem", "osparams/dhcp", "osparams_private/password",
            "nic 0/link",
        ]
    }  # fmt: skip
    assert data.cluster.beparams == own.cluster.beparams
    before = theirs.instances[uuid_of("shop1")]
    here, there = (
        (
            fill.instance_hv(cluster, one),
            fill.fill_be(cluster, one.beparams),
            fill.fill_osparams(cluster, one.os, one.osparams),
            fill.fill_osparams_private(cluster, one.os, one.osparams_private),
        )
        for cluster, one in ((data.cluster, instance), (theirs.cluster, before))
    )
    assert here == there
    assert fill.fill_nic(data.cluster, instance.nics[0].nicparams)["link"] == "br9"
    assert data.cluster.osparams == {"noop": {"dhcp": "no"}, "only": {"a": "b"}}


def test_networks_with_one_definition_become_one() -> None:
    mine, theirs_net = network("lan", "n1"), network("lan", "n2")
    own = dataclasses.replace(
        cluster_of(), networks={"n1": AddressPool(mine).taken(["198.51.100.9"], external=True)}
    )
    theirs = second("shop1")
    nic = dataclasses.replace(
        theirs.instances[uuid_of("shop1")].nics[0], network="n2", ip="198.51.100.7"
    )
    theirs = changed(theirs, "shop1", nics=(nic,))
    group = dataclasses.replace(theirs.nodegroups[GROUP_2], networks={"n2": {"mode": "bridged"}})
    theirs = dataclasses.replace(
        theirs,
        networks={"n2": AddressPool(theirs_net).taken(["198.51.100.7"])},
        nodegroups={GROUP_2: group},
    )
    data = combine(own, theirs, groups=conflicts.MERGE, now=NOW).data
    assert list(data.networks) == ["n1"]
    pool = AddressPool(data.networks["n1"])
    assert pool.taken_addresses(external=False) == ["198.51.100.7"]
    assert "198.51.100.9" in pool.taken_addresses(external=True)
    assert data.instances[uuid_of("shop1")].nics[0].network == "n1"
    assert data.nodegroups[GROUP].networks["n1"] == {"mode": "bridged"}


def test_a_result_with_contradictions_is_refused() -> None:
    own = cluster_of(3, (instance_of("web1"),), (disk_of("web1"),))
    theirs = second("shop1")
    disk = dataclasses.replace(drbd("a", 11001), iv_name="disk/7")
    theirs = changed(theirs, "shop1", disks=("disk-a",))
    theirs = dataclasses.replace(theirs, disks={"disk-a": disk})
    # The fault is one of the other cluster alone, so it does not forbid the merge.
    combine(own, theirs, groups=conflicts.MERGE, now=NOW)
    group = dataclasses.replace(own.nodegroups[GROUP], enabled_hypervisors=("kvm",))
    own = dataclasses.replace(own, nodegroups={GROUP: group})
    with pytest.raises(errors.ConfigurationError, match="has no hypervisor fake"):
        combine(own, theirs, groups=conflicts.MERGE, now=NOW)


def test_parse_config() -> None:
    data = second("shop1")
    text = json.dumps(codec.to_dict(data))
    assert other_cluster.parse_config(text, "second").cluster.cluster_name == "second.example.com"
    for wrong in ("", "[]", "{", '{"version": 1, "cluster": {}}'):
        with pytest.raises(errors.GenericError):
            other_cluster.parse_config(wrong, "second")
