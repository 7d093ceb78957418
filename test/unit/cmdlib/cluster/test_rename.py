"""Renaming the cluster, and what the master tells about it."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.config import cluster_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes.cluster import OpClusterConfigQuery, OpClusterQuery, OpClusterRename
from ganeti.platform import hosts
from ganeti.platform.base import Machine

NODE1, NODE2 = (f"node{number}.example.com" for number in (1, 2))
KNOWN = {
    "new.example.com": "192.0.2.200",
    "same.example.com": "192.0.2.100",
    "cluster.example.com": "192.0.2.100",
    "taken.example.com": "192.0.2.2",
    "node2.example.com": "192.0.2.77",
    "six.example.com": "2001:db8::1",
}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(self: Machine, name: str) -> hosts.Hostname:
        if name not in KNOWN:
            raise errors.ResolverError(name, "no such host")
        return hosts.Hostname(name, KNOWN[name])

    monkeypatch.setattr(Machine, "lookup", lookup)


def nobody(master: Master, *hearing: str) -> Master:
    master.rpc.answers["node_verify"] = lambda node, args: {"master-ip": node in hearing}
    return master


def test_name_and_address_change_together() -> None:
    master = nobody(Master(cluster_of(2)))
    assert master.run(OpClusterRename(name="new.example.com")) == "new.example.com"
    cluster = master.config.cluster()
    assert (cluster.cluster_name, cluster.master_ip) == ("new.example.com", "192.0.2.200")
    ((_n, down),) = master.rpc.of("node_deactivate_master_ip")
    ((_n, up),) = master.rpc.of("node_activate_master_ip")
    assert (down["master_params"].ip, up["master_params"].ip) == ("192.0.2.100", "192.0.2.200")
    assert [row for row in master.rpc.hooks() if row[0] == "cluster-rename"] == [
        ("cluster-rename", "pre", NODE1),
        ("cluster-rename", "post", NODE1),
        ("cluster-rename", "post", NODE2),
    ]
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    assert env["GANETI_OP_TARGET"] == "cluster.example.com"
    assert env["GANETI_NEW_NAME"] == "new.example.com"


@pytest.mark.parametrize("name", ["new.example.com", "same.example.com"])
def test_the_known_ssh_hosts_get_the_new_name(name: str) -> None:
    master = nobody(Master(cluster_of(2, modify_ssh_setup=True)))
    keys = {"root": ["ssh-ed25519 AAAAroot root"], "hosts": ["ssh-ed25519 AAAAhost"]}
    master.rpc.answers["node_ssh_keys"] = lambda node, args: keys
    master.run(OpClusterRename(name=name))
    told = {node: args["known_hosts"] for node, args in master.rpc.of("node_ssh_trust")}
    assert set(told) == {NODE1, NODE2}
    assert f"{NODE1},{name} ssh-ed25519 AAAAhost\n" in told[NODE1]


def test_ssh_hosts_of_a_cluster_which_does_not_manage_them() -> None:
    master = nobody(Master(cluster_of(2, modify_ssh_setup=False)))
    master.run(OpClusterRename(name="new.example.com"))
    assert not master.rpc.of("node_ssh_trust")


def test_a_name_for_the_same_address_asks_nobody() -> None:
    master = Master(cluster_of(1))
    assert master.run(OpClusterRename(name="same.example.com")) == "same.example.com"
    assert master.rpc.of("node_verify") == []


@pytest.mark.parametrize(
    ("name", "ecode", "fragment"),
    [
        ("cluster.example.com", errors.ECODE_INVAL, "already"),
        ("taken.example.com", errors.ECODE_NOTUNIQUE, "node node2.example.com"),
        ("node2.example.com", errors.ECODE_NOTUNIQUE, "node node2.example.com"),
        ("six.example.com", errors.ECODE_INVAL, "address family"),
        ("nosuch.example.com", errors.ECODE_RESOLVER, "does not resolve"),
        ("no name", errors.ECODE_INVAL, "not a valid host name"),
    ],
)
def test_refused(name: str, ecode: str, fragment: str) -> None:
    assert fragment in nobody(Master(cluster_of(2))).refused(OpClusterRename(name=name), ecode)


def test_an_address_that_somebody_has_is_refused() -> None:
    master = nobody(Master(cluster_of(2)), NODE2)
    text = master.refused(OpClusterRename(name="new.example.com"), errors.ECODE_NOTUNIQUE)
    assert "node node2.example.com can reach it" in text
    master.rpc.errors["node_verify"] = "not now"
    text = master.refused(OpClusterRename(name="new.example.com"), errors.ECODE_ENVIRON)
    assert "no node could check" in text


def test_a_new_address_that_does_not_come_up_leaves_the_old_one() -> None:
    master = nobody(Master(cluster_of(1)))
    up: list[str] = []

    answer = master.rpc._answer

    def failing(call: Any, node: str, args: dict[str, Any]) -> Any:
        if call.name == "node_activate_master_ip":
            up.append(args["master_params"].ip)
            if up[-1] == "192.0.2.200":
                master.rpc.errors["node_activate_master_ip"] = "no device"
            else:
                master.rpc.errors.pop("node_activate_master_ip", None)
        return answer(call, node, args)

    master.rpc._answer = failing  # type: ignore[method-assign]
    text = master.failed(OpClusterRename(name="new.example.com"))
    assert text.endswith("no device. Nothing was changed.")
    assert up == ["192.0.2.200", "192.0.2.100"]
    cluster = master.config.cluster()
    assert (cluster.cluster_name, cluster.master_ip) == ("cluster.example.com", "192.0.2.100")


def test_an_old_address_that_stays_changes_nothing() -> None:
    master = nobody(Master(cluster_of(1)))
    master.rpc.errors["node_deactivate_master_ip"] = "busy"
    assert "busy" in master.failed(OpClusterRename(name="new.example.com"))
    assert master.config.writes == []


def test_queries() -> None:
    class Queue:
        drained = True

    master = Master(cluster_of(2))
    master.context.queue = Queue()
    info = master.run(OpClusterQuery())
    assert info["name"] == "cluster.example.com"
    assert info["master"] == NODE1
    assert info["primary_ip_version"] == 4
    assert "osparams_private_cluster" not in info
    assert master.run(
        OpClusterConfigQuery(output_fields=["master_node", "drain_flag", "nosuch"])
    ) == [NODE1, True, None]
