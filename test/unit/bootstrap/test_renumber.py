"""``gnt-cluster renumber``: the new addresses, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from fakes.config import cluster_of, instance_of, uuid_of
from ganeti import errors
from ganeti.bootstrap import renumber
from ganeti.bootstrap.renumber import Given
from ganeti.client.gnt_cluster.renumber import given_addresses
from ganeti.config import api
from ganeti.objects import ConfigData, Disk, Nic
from ganeti.platform import hosts
from ganeti.platform.base import Machine

CLUSTER = "cluster.example.com"
NEW = {f"node{number}.example.com": f"198.51.100.{number}" for number in (1, 2)}


def plan(
    monkeypatch: pytest.MonkeyPatch,
    data: ConfigData,
    given: Mapping[str, Given] | None = None,
    names: Mapping[str, str] | None = None,
    **options: Any,
) -> renumber.Plan:
    table = {**NEW, CLUSTER: "198.51.100.100", **(names or {})}

    def lookup(name: str) -> hosts.Hostname:
        if not table[name]:
            raise errors.ResolverError(name, -2, "name not known")
        return hosts.Hostname(name, table[name])

    monkeypatch.setattr(api, "load", lambda path: (data, data.version))
    monkeypatch.setattr(Machine, "hostname", lambda self: "node1.example.com")
    return renumber.plan(given or {}, lookup=lookup, **options)


def test_names_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, cluster_of(2))
    assert made.lines() == [
        "node node1.example.com: primary address 192.0.2.1 becomes 198.51.100.1",
        "node node1.example.com: secondary address 192.0.2.1 becomes 198.51.100.1",
        "node node2.example.com: primary address 192.0.2.2 becomes 198.51.100.2",
        "node node2.example.com: secondary address 192.0.2.2 becomes 198.51.100.2",
        "cluster cluster.example.com: address 192.0.2.100 becomes 198.51.100.100",
    ]


def test_the_user_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {number: {"secondary_ip": f"10.0.0.{number}"} for number in (1, 2)}
    given = {"node1": Given("192.0.2.1"), "node2": Given(None, "10.0.0.22")}
    names = {"node2.example.com": "192.0.2.2"}
    made = plan(
        monkeypatch, cluster_of(2, node_changes=own), given, names, cluster_ip="192.0.2.100"
    )
    assert made.lines() == [
        "node node2.example.com: secondary address 10.0.0.2 becomes 10.0.0.22",
    ]


def test_instances_with_replicas_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    disks = tuple(
        Disk(
            dev_type="drbd",
            logical_id=(uuid_of("node1"), uuid_of("node2"), 11000 + number, number, number, "x"),
            nodes=(uuid_of("node1"), uuid_of("node2")),
            iv_name="disk/0",
            size=1024,
            uuid=uuid_of(f"disk{number}"),
            serial_no=1,
        )
        for number in (0, 1)
    )
    running = instance_of("web", disks=(disks[0].uuid,), disks_active=True)
    stopped = instance_of("mail", disks=(disks[1].uuid,))
    made = plan(monkeypatch, cluster_of(2, (running, stopped), disks))
    assert made.replicating() == ["web.example.com"]


@pytest.mark.parametrize(
    ("given", "names", "fragment"),
    [
        ({}, {"node2.example.com": "198.51.100.1"}, "198.51.100.1 is used by several nodes"),
        ({}, {CLUSTER: "198.51.100.2"}, "has the address of the cluster"),
        ({}, {"node2.example.com": "203.0.113.5"}, "instance web.example.com: nic 0"),
        ({}, {CLUSTER: "2001:db8::1"}, "one family"),
        ({}, {CLUSTER: ""}, "Let the name resolve"),
        ({"node1": Given(None, "10.0.0.1")}, {}, "separate secondary address"),
        ({"node7": Given("198.51.100.7")}, {}, "node7"),
    ],
)
def test_addresses_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Given],
    names: dict[str, str],
    fragment: str,
) -> None:
    nic = Nic(mac="aa:00:00:00:00:01", ip="203.0.113.5", nicparams={}, uuid=uuid_of("nic"))
    data = cluster_of(2, (instance_of("web", nics=(nic,)),))
    with pytest.raises(errors.OpPrereqError) as caught:
        plan(monkeypatch, data, given, names)
    assert fragment in str(caught.value)


def test_only_the_master_renumbers(monkeypatch: pytest.MonkeyPatch) -> None:
    data = cluster_of(2)
    cluster = dataclasses.replace(data.cluster, master_node=uuid_of("node2"))
    with pytest.raises(errors.OpPrereqError, match="on its master, node2.example.com"):
        plan(monkeypatch, dataclasses.replace(data, cluster=cluster))


def test_arguments() -> None:
    assert given_addresses(["a=192.0.2.1", "b=192.0.2.2,10.0.0.2", "c=,10.0.0.3"]) == {
        "a": Given("192.0.2.1", None),
        "b": Given("192.0.2.2", "10.0.0.2"),
        "c": Given(None, "10.0.0.3"),
    }
    for wrong in ("a", "=192.0.2.1", "a=", "a=x", "a=192.0.2.1,10.0.0.2,10.0.0.3"):
        with pytest.raises(errors.OpPrereqError):
            given_addresses([wrong])
    with pytest.raises(errors.OpPrereqError, match="twice"):
        given_addresses(["a=192.0.2.1", "a=192.0.2.2"])
