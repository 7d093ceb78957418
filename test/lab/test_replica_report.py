"""What users see of an interrupted mirror, with real DRBD: ``gnt-instance info``, ``verify``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab import drbd
from lab.cluster import Cluster
from lab.machines import SECONDARY

NAME = "report"


@pytest.fixture
def cluster_with_mirror(cluster: Cluster) -> Iterator[Cluster]:
    """A running instance whose replicas are in sync."""
    cluster.add(NAME, "node2:node3")
    cluster.gnt("instance", "startup", NAME)
    cluster.in_step(NAME)
    yield cluster
    cluster.lab["node3"].cable(SECONDARY, plugged=True)
    cluster.remove(NAME)


def shown(cluster: Cluster) -> str:
    """The line about the replicas."""
    text = cluster.gnt("instance", "info", NAME)
    (found,) = re.findall(r"(?m)^ +replicas: (.*)$", text)
    return str(found)


def findings(cluster: Cluster) -> list[str]:
    """What verification reports about mirrored disks and their minors."""
    done = cluster.master.call("gnt-cluster verify --error-codes")
    assert "Other notes" in done.stdout, done.stdout + done.stderr
    return [
        line
        for line in done.stdout.splitlines()
        if ":ENODEDRBD:" in line or ":EINSTANCEFAULTYDISK:" in line
    ]


def test_the_life_of_a_mirror(cluster_with_mirror: Cluster) -> None:
    cluster = cluster_with_mirror
    minors = {node: cluster.minor(NAME, node) for node in ("node2", "node3")}
    # The peer, the secret and the volume which the kernel shows are those of the configuration.
    assert findings(cluster) == []
    assert shown(cluster) == "both in sync"
    cluster.lab["node3"].cable(SECONDARY, plugged=False)
    for node, minor in minors.items():
        drbd.wait_for(cluster.lab[node], minor, "DUnknown$")
    assert shown(cluster) == "not connected, so node node3 misses writes"
    cluster.master.call("gnt-cluster verify-disks")
    assert re.match(r"node node3 has missed writes since \d{4}-", shown(cluster))
    (finding,) = findings(cluster)
    assert "ERROR:EINSTANCEFAULTYDISK:" in finding
    assert f"gnt-instance activate-disks {NAME}" in finding
    cluster.lab["node3"].cable(SECONDARY, plugged=True)
    cluster.in_step(NAME)
    assert shown(cluster) == "both in sync"
    assert findings(cluster) == []
    cluster.gnt("instance", "shutdown", "--timeout=0", NAME)
    assert shown(cluster).startswith("both in sync (compared ")
    assert findings(cluster) == []


def test_another_secret_is_found(cluster_with_mirror: Cluster) -> None:
    """A minor which an administrator, or an interrupted operation, connected in another way."""
    cluster = cluster_with_mirror
    machine, minor = cluster.lab["node3"], cluster.minor(NAME, "node3")
    text = machine.run(f"drbdsetup show {minor}")
    local, remote = re.findall(r"address\s+ipv4 (\S+);", text)[::-1]
    # Two which look for each other with different secrets give up.
    cluster.lab["node2"].run(f"drbdsetup disconnect ipv4:{remote} ipv4:{local}")
    machine.run(
        f"drbdsetup disconnect ipv4:{local} ipv4:{remote};"
        f" drbdsetup connect resource{minor} ipv4:{local} ipv4:{remote} --protocol C"
        " --cram-hmac-alg md5 --shared-secret other"
    )
    found = [line for line in findings(cluster) if ":ENODEDRBD:" in line]
    assert len(found) == 1 and "another secret" in found[0], found
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.in_step(NAME)
    assert findings(cluster) == []
