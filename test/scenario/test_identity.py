"""A node stays the same node when the secrets of the cluster change, or its address.

One cluster for all tests, in order.
"""

from __future__ import annotations

from harness import Cluster, wait_until

NODES = [f"node{number}.example.com" for number in (1, 2, 3)]
NODE3, CLUSTER = NODES[2], "cluster.example.com"


def verified(cluster: Cluster) -> None:
    said = cluster.run("gnt-cluster", "verify").ok().text
    assert "ERROR" not in said, said


def configurations(cluster: Cluster) -> set[bytes]:
    """The different files with the configuration."""
    return {cluster.path(node, "var/lib/ganeti/config.data").read_bytes() for node in NODES}


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


def test_the_whole_cluster_is_renumbered(cluster: Cluster) -> None:
    """All nodes and the cluster have other addresses, which the master daemon does not know."""
    cluster.add_instance("web.example.com", NODES[1]).ok()
    names = [*NODES, CLUSTER]
    for node in NODES:
        cluster.on(node, "daemon-util", "stop-all").ok()
    new = move(cluster, *names)
    for node in NODES:
        cluster.on(node, "daemon-util", "start", "ganeti-noded").ok()
    cluster.run("daemon-util", "start-master").failed()
    said = cluster.run("gnt-cluster", "renumber", "--dry-run").ok().text
    for name in NODES:
        assert f"node {name}: primary address" in said and f"becomes {new[name]}" in said
    assert f"becomes {new[CLUSTER]}" in said
    assert "does not answer" not in said
    cluster.run("gnt-cluster", "renumber", "-f").ok()
    for node in NODES:
        cluster.on(node, "daemon-util", "start-all").ok()
    assert cluster.rows("gnt-node", "list", "-o", "pip,sip") == [
        [new[name], new[name]] for name in NODES
    ]
    verified(cluster)
    assert "already" in cluster.run("gnt-cluster", "renumber", "-f").ok().text
    cluster.run("gnt-instance", "startup", "web.example.com").ok()
    cluster.on(NODES[1], "gnt-cluster", "master-failover", "--dry-run").ok()
    verified(cluster)


def test_addresses_of_others_are_refused(cluster: Cluster) -> None:
    before = cluster.rows("gnt-node", "list", "-o", "pip")
    cluster.run("gnt-cluster", "renumber", "-f", f"{NODE3}={before[0][0]}").failed(
        "used by several nodes"
    )
    cluster.run("gnt-cluster", "renumber", "-f", f"node9={before[0][0]}").failed("node9")
    cluster.run("gnt-cluster", "renumber", "-f", f"{NODE3}").failed("NODE=PRIMARY")
    assert cluster.rows("gnt-node", "list", "-o", "pip") == before


def test_a_master_that_does_not_start_keeps_the_former_addresses(cluster: Cluster) -> None:
    """The nodes do not have these addresses, so that nobody votes for the master."""
    before = cluster.rows("gnt-node", "list", "-o", "pip")
    wrong = [
        f"{name}={pip.rpartition('.')[0]}.{number}"
        for number, (name, (pip,)) in enumerate(zip(NODES, before, strict=True), 200)
    ]
    said = cluster.run("gnt-cluster", "renumber", "-f", *wrong).failed("former addresses again")
    assert "does not answer at its new address" in said.text
    cluster.run("daemon-util", "start-master").ok()
    assert cluster.rows("gnt-node", "list", "-o", "pip") == before
    # The daemon serves before the other candidates have these addresses again.
    wait_until(lambda: len(configurations(cluster)) == 1, "the candidates have the same file")
    verified(cluster)
