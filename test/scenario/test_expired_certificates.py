"""A cluster whose certificate has expired: it works, starts, fails over, and gets another one."""

from __future__ import annotations

import signal

from harness import Cluster, wait_until

from fakes.tls_lab import clock_of_maker
from ganeti.utils import x509


def all_nodes_answer(cluster: Cluster) -> bool:
    rows = cluster.rows("gnt-node", "list", "-o", "name,mfree")
    return all(row[1].isdecimal() for row in rows)


def contents(cluster: Cluster, name: str) -> set[str]:
    return {cluster.path(node, f"var/lib/ganeti/{name}").read_text() for node in cluster.node_names}


def test_an_expired_certificate_of_the_cluster(cluster: Cluster) -> None:
    with clock_of_maker(-3000):
        expired = x509.create_self_signed()
    # All nodes get it in the way in which they get a good one.
    prepared = cluster.path(cluster.master, "var/lib/ganeti/renewal")
    prepared.mkdir(mode=0o700)
    (prepared / "server.pem").write_text(expired)
    cluster.run("gnt-cluster", "renew-crypto", "--force").ok()
    assert contents(cluster, "server.pem") == {expired}
    assert all_nodes_answer(cluster)

    # All machines are started again.
    cluster.vcluster("stop", str(cluster.directory)).ok()
    cluster.vcluster("start", str(cluster.directory)).ok()
    assert all_nodes_answer(cluster)
    cluster.add_instance("test1", "node2").ok()
    cluster.run("gnt-instance", "startup", "test1").ok()
    cluster.run("gnt-instance", "remove", "-f", "test1").ok()

    # It is an error, and the watcher of each node says so.
    cluster.run("gnt-cluster", "verify").failed(
        "ERROR: cluster: certificate", "server.pem expired on"
    )
    for node in cluster.node_names:
        cluster.on(node, "ganeti-watcher", "--no-verify-disks").ok()
        log = cluster.path(node, "var/log/ganeti/watcher.log").read_text()
        assert "server.pem expired on" in log

    # Another node takes the role.
    other = cluster.node_names[1]
    cluster.on(other, "gnt-cluster", "master-failover").ok()
    assert cluster.master == other and all_nodes_answer(cluster)

    said = cluster.run("gnt-cluster", "renew-crypto", "--force", "--new-cluster-certificate").ok()
    assert "have been replaced" in said.text
    new = contents(cluster, "server.pem")
    assert len(new) == 1 and expired not in new
    assert all_nodes_answer(cluster)
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


def test_nodes_with_other_certificates_of_the_cluster(cluster: Cluster) -> None:
    """Files were restored from a backup, or a disk was damaged: SSH is the way back."""
    master, second, third = cluster.master, *sorted(set(cluster.node_names) - {cluster.master})
    right = cluster.path(master, "var/lib/ganeti/server.pem").read_text()
    pem = cluster.path(second, "var/lib/ganeti/server.pem")
    pem.unlink()
    pem.write_text(x509.create_self_signed())
    cluster.path(third, "var/lib/ganeti/server.pem").unlink()
    cluster.kill(third, "ganeti-noded", signal.SIGTERM)
    cluster.run("gnt-cluster", "renew-crypto", "--force", "--new-cluster-certificate").failed(
        "can be renewed only while all online nodes answer"
    )
    cluster.on(second, "gnt-cluster", "renew-crypto", "--offline", "-f").failed(
        f"the master is {master}"
    )
    cluster.run("gnt-cluster", "renew-crypto", "--offline", "--new-node-certificates").failed(
        "option --offline renews nothing by itself"
    )
    shown = cluster.run("gnt-cluster", "renew-crypto", "--offline", "--dry-run").ok().stdout
    assert second in shown and pem.read_text() != right

    said = cluster.run("gnt-cluster", "renew-crypto", "--offline", "--force").ok().stdout
    assert said.count("has the certificate of the cluster") == 2
    assert contents(cluster, "server.pem") == {right}
    wait_until(lambda: all_nodes_answer(cluster), "all nodes answer")
    cluster.run("gnt-cluster", "renew-crypto", "--force").ok()
    assert right not in contents(cluster, "server.pem")
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text
