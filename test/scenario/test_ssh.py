"""SSH between the nodes, with a real SSH server for each of them: who may log in where.

The servers run as the user of the tests, on the nodes' addresses and a high port; they read the
files which the cluster looks after. One cluster for all tests, in order.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster, Finished
from ssh_lab import Servers, require_programs

NODE1, NODE2, NODE3, NODE4 = (f"node{number}.example.com" for number in (1, 2, 3, 4))
OWN_LINE = "# of the administrator\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} me@desk\n"
BEGIN = "# -- Ganeti: keys"


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    require_programs()
    made = Cluster(cluster_directory, 3, "--hypervisor", "fake", "--ssh")
    made.create.ok()
    try:
        yield made
    finally:
        made.destroy()


@pytest.fixture(scope="module")
def servers(cluster: Cluster) -> Iterator[Servers]:
    made = Servers(cluster)
    try:
        for node in (NODE1, NODE2, NODE3):
            made.start(node)
        cluster.run("gnt-cluster", "modify", f"--node-parameters=ssh_port={made.port}").ok()
        cluster.run("gnt-cluster", "redist-conf").ok()
        yield made
    finally:
        made.stop()


def agreed(servers: Servers, may: set[str], *nodes: str) -> None:
    """These nodes may log in everywhere, the others nowhere; all know each other's hosts.

    Each logs in on the next one; that the others would let it in as well is read in the files.
    """
    for source, target in zip(nodes, (*nodes[1:], nodes[0]), strict=True):
        done = servers.log_in(source, target)
        if source in may:
            assert done.ok().stdout.strip() == target
        else:
            assert "Permission denied" in done.failed(exit_code=255).stderr, source
        listed = servers.cluster.path(source, "var/lib/ganeti/ganeti_pub_keys")
        assert listed.exists() == (source in may)
    blocks = {authorized(servers.cluster, node).read_text().partition(BEGIN)[2] for node in nodes}
    assert len(blocks) == 1
    known = {servers.cluster.path(node, "var/lib/ganeti/known_hosts").read_text() for node in nodes}
    assert len(known) == 1


def authorized(cluster: Cluster, node: str) -> Path:
    return cluster.path(node, "root/.ssh/authorized_keys")


def verify(cluster: Cluster, *options: str) -> str:
    return cluster.run("gnt-cluster", "verify", "--error-codes", *options).text


def renew(cluster: Cluster, *options: str) -> Finished:
    return cluster.run("gnt-cluster", "renew-crypto", "--force", "--new-ssh-keys", *options)


def keys(cluster: Cluster, kind: str) -> dict[str, str]:
    """The private keys of the nodes."""
    found = {
        node: cluster.path(node, f"root/.ssh/id_{kind}").read_text() for node in cluster.node_names
    }
    assert len(set(found.values())) == len(found), "every node has a key of its own"
    return found


def test_master_candidates_may_log_in_everywhere(cluster: Cluster, servers: Servers) -> None:
    agreed(servers, {NODE1, NODE2, NODE3}, NODE1, NODE2, NODE3)
    # All are known under the name of the cluster as well.
    servers.log_in(NODE1, NODE3, alias="cluster.example.com").ok()
    assert "ENODESSH" not in verify(cluster)


def test_a_role_that_changes(cluster: Cluster, servers: Servers) -> None:
    """What the administrator has in the file stays."""
    own = OWN_LINE.format("A" * 43)
    path = authorized(cluster, NODE2)
    path.write_text(own + path.read_text())
    cluster.run("gnt-node", "modify", "-C", "no", "--force", NODE3).ok()
    agreed(servers, {NODE1, NODE2}, NODE1, NODE2, NODE3)
    assert path.read_text().startswith(own) and path.read_text().count(BEGIN) == 1
    cluster.run("gnt-node", "modify", "-C", "yes", NODE3).ok()
    agreed(servers, {NODE1, NODE2, NODE3}, NODE1, NODE2, NODE3)
    # Nobody may come from a node that is gone; when it is back it may again.
    cluster.run("gnt-node", "modify", "--offline=yes", "--force", NODE3).ok()
    assert servers.log_in(NODE3, NODE1).exit_code == 255
    cluster.run("gnt-node", "modify", "--offline=no", NODE3).ok()
    agreed(servers, {NODE1, NODE2, NODE3}, NODE1, NODE2, NODE3)


def test_a_node_comes_and_goes(cluster: Cluster, servers: Servers) -> None:
    cluster.vcluster("add-node", str(cluster.directory)).ok()
    servers.start(NODE4)
    path = authorized(cluster, NODE4)
    path.write_text(OWN_LINE.format("B" * 43) + path.read_text())
    agreed(servers, {NODE1, NODE2, NODE3, NODE4}, NODE1, NODE2, NODE3, NODE4)
    cluster.run("gnt-node", "remove", NODE4).ok()
    agreed(servers, {NODE1, NODE2, NODE3}, NODE1, NODE2, NODE3)
    assert servers.log_in(NODE4, NODE1).exit_code == 255
    assert path.read_text() == OWN_LINE.format("B" * 43)
    assert not cluster.path(NODE4, "var/lib/ganeti/known_hosts").exists()


def test_verification_notices_and_redistribution_repairs(
    cluster: Cluster, servers: Servers
) -> None:
    path = authorized(cluster, NODE2)
    path.write_text(OWN_LINE.format("C" * 43).replace("me@desk", f"root@{NODE3}"))
    cluster.path(NODE3, "var/lib/ganeti/known_hosts").unlink()
    said = verify(cluster, "--verify-ssh-clutter")
    assert f"ERROR:ENODESSH:node:{NODE2}" in said and "keys of the master candidates" in said
    assert f"ERROR:ENODESSH:node:{NODE3}" in said and "known hosts" in said
    assert f"has a key of root@{NODE3} which the cluster does not know" in said
    cluster.run("gnt-cluster", "redist-conf").ok()
    agreed(servers, {NODE1, NODE2, NODE3}, NODE1, NODE2, NODE3)
    assert "ENODESSH" not in verify(cluster)


def test_new_keys(cluster: Cluster, servers: Servers) -> None:
    before = keys(cluster, "rsa")
    renew(cluster).ok()
    after = keys(cluster, "rsa")
    assert not set(before.values()) & set(after.values())
    agreed(servers, {NODE1, NODE2, NODE3}, NODE1, NODE2, NODE3)
    # The old ones open nothing any more.
    cluster.path(NODE1, "root/.ssh/id_rsa").write_text(before[NODE1])
    assert servers.log_in(NODE1, NODE2).exit_code == 255
    cluster.path(NODE1, "root/.ssh/id_rsa").write_text(after[NODE1])
    assert "ENODESSH" not in verify(cluster)


@pytest.mark.long
def test_a_renewal_that_fails_on_the_way_is_repeated(cluster: Cluster, servers: Servers) -> None:
    """Keys of another kind; one node cannot take its new one into use."""
    renew(cluster, "--ssh-key-type=ecdsa", "--ssh-key-bits=2048").failed("256 or 384 or 521 bits")
    blocked = cluster.path(NODE2, "root/.ssh/id_ecdsa.pub")
    following = cluster.path(NODE2, "root/.ssh/id_ecdsa.384.ganeti-next")
    following.mkdir()
    options = ("--ssh-key-type=ecdsa", "--ssh-key-bits=384")
    renew(cluster, *options).failed(NODE2, "Continue with")
    following.rmdir()
    agreed(servers, {NODE1, NODE2, NODE3}, NODE1, NODE2, NODE3)
    (blocked / "in the way").mkdir(parents=True)
    renew(cluster, *options).failed(NODE2, "Continue with")
    shutil.rmtree(blocked)
    agreed(servers, {NODE1, NODE2, NODE3}, NODE1, NODE2, NODE3)
    renew(cluster, *options).ok()
    keys(cluster, "ecdsa")
    for node in (NODE1, NODE2, NODE3):
        cluster.path(node, "root/.ssh/id_rsa").unlink()
        assert not list(cluster.path(node, "root/.ssh").glob("*ganeti*"))
    agreed(servers, {NODE1, NODE2, NODE3}, NODE1, NODE2, NODE3)
    info = cluster.run("gnt-cluster", "info").ok().stdout
    assert "ssh_key_type: ecdsa" in info and "ssh_key_bits: 384" in info
    assert "ENODESSH" not in verify(cluster)


def test_a_failover_changes_nothing(cluster: Cluster, servers: Servers) -> None:
    cluster.on(NODE2, "gnt-cluster", "master-failover").ok()
    cluster.on(NODE2, "gnt-cluster", "redist-conf").ok()
    agreed(servers, {NODE1, NODE2, NODE3}, NODE1, NODE2, NODE3)


def test_private_keys_stay_where_they_are(cluster: Cluster) -> None:
    secrets: dict[bytes, Path] = {}
    for path in cluster.directory.glob("node*/root/.ssh/id_*"):
        if path.suffix != ".pub":
            # The first half of such a file is the same in all of them, and the public key.
            lines = path.read_bytes().splitlines()
            for line in lines[len(lines) // 2 : -1]:
                if len(line) > 40:
                    secrets[line] = path
    assert len(secrets) >= 3
    wanted = re.compile(b"|".join(re.escape(secret) for secret in secrets))
    looked_at = 0
    for path in cluster.directory.rglob("*"):
        if path.is_symlink() or not path.is_file() or path.suffix == ".pub":
            continue
        looked_at += 1
        found = wanted.search(path.read_bytes())
        if found is not None:
            assert path == secrets[found[0]], f"{path} holds a key of {secrets[found[0]]}"
            assert path.stat().st_mode & 0o077 == 0, path
    assert looked_at > 100
