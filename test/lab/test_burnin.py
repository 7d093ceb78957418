"""``burnin`` on real mirrored disks: every operation, also those which copy and synchronise."""

from __future__ import annotations

import json

import pytest

from lab import drbd
from lab.cluster import Cluster

NAMES = ("burn1", "burn2")
#: The steps which need another node group or another name, or disks without replicas.
SKIPPED = {"change-group", "move", "rename", "add-nics", "evacuate"}


@pytest.mark.parametrize("how", ["one after the other", "together"])
def test_burnin(cluster: Cluster, how: str) -> None:
    """All steps succeed, and no volume and no minor is left."""
    cluster.install_blocks_os()
    parallel = "-p" if how == "together" else ""
    report = json.loads(
        cluster.master.run(
            "/usr/lib/ganeti/tools/burnin -o blocks -H fake -t drbd --disk-size 64m,32m"
            " --disk-growth 16m --mem-size 64m --vcpu-count 1 --no-nics"
            f" {parallel} --report - {' '.join(NAMES)}",
            timeout_s=1800,
        )
    )
    assert report["result"] == "done" and report["left"] == []
    skipped = {step["name"] for step in report["steps"] if step["result"] == "skipped"}
    assert skipped <= SKIPPED, skipped
    for machine in cluster.lab:
        assert drbd.volumes(machine) == [], machine.name
        assert not drbd.minors(machine), machine.name
