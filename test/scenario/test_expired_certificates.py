"""A cluster whose certificate has expired: it works, starts, fails over, and gets another one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import Cluster, made, wait_until
from ssh_lab import Servers, require_programs

from fakes.tls_lab import clock_of_maker
from ganeti.utils import x509

# Runs gnt-cluster with the other nodes as machines of their own, so that it uses SSH.
BY_SSH = """
import os
import sys
from ganeti.client.gnt_cluster import program
from ganeti.platform import machine, paths
from ganeti.platform.real import RealMachine

with machine.override(RealMachine(paths.current(), os.environ["GANETI_HOSTNAME"])):
    sys.exit(program.run())
"""


def all_nodes_answer(cluster: Cluster) -> bool:
    rows = cluster.rows("gnt-node", "list", "-o", "name,mfree")
    return all(row[1].isdecimal() for row in rows)


def contents(cluster: Cluster, name: str) -> set[str]:
    found = [path.read_text() for path in cluster.directory.glob(f"node*/var/lib/ganeti/{name}")]
    assert len(found) == 3
    return set(found)


def let_expire(cluster: Cluster) -> None:
    """Give all nodes a certificate that has expired, in the way in which they get a good one."""
    with clock_of_maker(-3000):
        expired = x509.create_self_signed()
    prepared = cluster.path(cluster.master, "var/lib/ganeti/renewal")
    prepared.mkdir(mode=0o700)
    (prepared / "server.pem").write_text(expired)
    cluster.run("gnt-cluster", "renew-crypto", "--force").ok()
    assert contents(cluster, "server.pem") == {expired}


def test_an_expired_certificate_of_the_cluster(cluster: Cluster) -> None:
    let_expire(cluster)
    expired = cluster.path(cluster.master, "var/lib/ganeti/server.pem").read_text()
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


@pytest.fixture
def ssh_cluster(cluster_directory: Path) -> Iterator[Cluster]:
    require_programs()
    if os.geteuid() != 0:
        pytest.skip("SSH servers which see files of their own at equal paths need root")
    with made(
        Cluster(cluster_directory.parent / "ssh", 3, "--hypervisor", "fake", "--ssh")
    ) as cluster:
        yield cluster


@contextmanager
def agent(cluster: Cluster, node: str) -> Iterator[None]:
    """An agent with the key of a node: ``ssh`` looks for keys only in the home of its user."""
    socket_path = cluster.directory / "agent"
    running = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL
    )
    try:
        wait_until(socket_path.exists, "the agent listens")
        cluster.environment["SSH_AUTH_SOCK"] = str(socket_path)
        cluster.run("ssh-add", "-q", str(cluster.path(node, "root/.ssh/id_rsa"))).ok()
        yield
    finally:
        cluster.environment.pop("SSH_AUTH_SOCK", None)
        running.terminate()
        running.wait()


def test_expired_certificates_are_renewed_over_ssh(ssh_cluster: Cluster) -> None:
    """No node accepts another one, and no daemon runs. Each node is reached through a real sshd."""
    cluster = ssh_cluster
    master, *others = cluster.master, *sorted(set(cluster.node_names) - {cluster.master})
    servers = Servers(cluster)
    try:
        for node in others:
            servers.start(node, seen_as=master)
        cluster.run("gnt-cluster", "modify", f"--node-parameters=ssh_port={servers.port}").ok()
        cluster.run("gnt-cluster", "redist-conf").ok()
        let_expire(cluster)
        cluster.vcluster("stop", str(cluster.directory)).ok()
        with clock_of_maker(-3000):
            for node in others:
                pem = cluster.path(node, "var/lib/ganeti/server.pem")
                pem.unlink()
                pem.write_text(x509.create_self_signed())
        before = cluster.path(master, "var/lib/ganeti/server.pem").read_text()
        assert len(contents(cluster, "server.pem")) == 3
        offline = ("python", "-c", BY_SSH, "renew-crypto", "--offline", "--force")

        # Without a key nothing is done, and each node is named with the reason of SSH.
        refused = cluster.run(*offline).failed("Permission denied")
        assert all(f"Node {node} does not have the certificate" in refused.text for node in others)
        assert len(contents(cluster, "server.pem")) == 3

        with agent(cluster, master):
            said = cluster.run(*offline).ok().stdout
        assert [f"Node {node} has the certificate of the cluster." in said for node in others] == [
            True,
            True,
        ]
        assert contents(cluster, "server.pem") == {before}
        for node in others:
            assert cluster.pid(node, "ganeti-noded"), "SSH has started the node daemon"
    finally:
        servers.stop()
    cluster.vcluster("start", str(cluster.directory)).ok()
    wait_until(lambda: all_nodes_answer(cluster), "all nodes answer")
    cluster.run("gnt-cluster", "renew-crypto", "--force", "--new-cluster-certificate").ok()
    after = contents(cluster, "server.pem")
    assert len(after) == 1 and before not in after
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text
