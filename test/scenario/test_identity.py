"""A node stays the same node when the secrets of the cluster change, or its address.

One cluster for all tests, in order.
"""

from __future__ import annotations

from harness import Cluster

NODES = [f"node{number}.example.com" for number in (1, 2, 3)]
NODE3, CLUSTER = NODES[2], "cluster.example.com"


def verified(cluster: Cluster) -> None:
    said = cluster.run("gnt-cluster", "verify").ok().text
    assert "ERROR" not in said, said


def addresses(cluster: Cluster) -> dict[str, str]:
    """What the names of the virtual cluster resolve to."""
    lines = (cluster.directory / "hosts").read_text().splitlines()
    return {words[1]: words[0] for words in map(str.split, lines)}


def move(cluster: Cluster, *names: str) -> dict[str, str]:
    """Let names resolve to other addresses of the same network; return the new addresses."""
    path = cluster.directory / "hosts"
    text = path.read_text()
    new = {}
    for name in names:
        old = addresses(cluster)[name]
        first, _, last = old.rpartition(".")
        new[name] = f"{first}.{(int(last) + 50) % 256}"
        text = "".join(
            line.replace(old, new[name], 1) if line.split()[1] == name else line
            for line in text.splitlines(keepends=True)
        )
    path.write_text(text)
    return new


def test_a_node_that_was_off_during_a_renewal_is_added_again(cluster: Cluster) -> None:
    """It still has the former secrets, which nobody else accepts any more."""
    cluster.run("gnt-node", "modify", "--offline=yes", "--auto-promote", "--force", NODE3).ok()
    cluster.on(NODE3, "daemon-util", "stop-all").ok()
    cluster.run(
        "gnt-cluster",
        "renew-crypto",
        "--force",
        "--new-cluster-certificate",
        "--new-confd-hmac-key",
        "--new-rapi-certificate",
        "--new-cluster-domain-secret",
    ).ok()
    cluster.on(NODE3, "daemon-util", "start", "ganeti-noded").ok()
    cluster.run("gnt-node", "modify", "--offline=no", NODE3).failed("gnt-node add --readd")
    cluster.run("gnt-node", "add", "--readd", NODE3).ok()
    assert cluster.node_fields(NODE3, "offline") == ["N"]
    assert cluster.node_fields(NODE3, "mfree")[0].isdecimal()
    verified(cluster)


def test_a_node_has_another_address_when_it_is_added_again(cluster: Cluster) -> None:
    cluster.on(NODE3, "daemon-util", "stop-all").ok()
    new = move(cluster, NODE3)[NODE3]
    cluster.on(NODE3, "daemon-util", "start", "ganeti-noded").ok()
    assert cluster.node_fields(NODE3, "mfree") == ["?"]
    cluster.run("gnt-node", "add", "--readd", NODE3).ok()
    assert cluster.node_fields(NODE3, "pip", "sip") == [new, new]
    verified(cluster)
    for node in cluster.node_names:
        listed = cluster.path(node, "var/lib/ganeti/ssconf_node_primary_ips").read_text()
        assert f"{NODE3} {new}\n" in listed
