"""A node stays the same node when the secrets of the cluster change, or its address.

One cluster for all tests, in order.
"""

from __future__ import annotations

from harness import Cluster

NODE3 = "node3.example.com"


def verified(cluster: Cluster) -> None:
    said = cluster.run("gnt-cluster", "verify").ok().text
    assert "ERROR" not in said, said


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
