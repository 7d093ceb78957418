"""Two virtual clusters side by side do not meet, and destroying one leaves the other alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from harness import Cluster


@pytest.mark.long
def test_two_clusters_side_by_side() -> None:
    with tempfile.TemporaryDirectory(prefix="gnt-") as name:
        made = []
        try:
            for which in ("one", "two"):
                made.append(Cluster(Path(name) / which, 2, "--hypervisor", "fake"))
                made[-1].create.ok()
            one, two = made
            addresses = [
                {row[0] for row in cluster.rows("gnt-node", "list", "-o", "pip")}
                for cluster in made
            ]
            assert not addresses[0] & addresses[1]
            one.run("gnt-cluster", "verify").ok()
            one.destroy()
            two.run("gnt-cluster", "verify").ok()
            assert "two" in two.vcluster("show", str(two.directory)).ok().stdout
        finally:
            for cluster in made:
                cluster.destroy()
