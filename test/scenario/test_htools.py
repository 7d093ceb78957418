"""The balancing tools of others, unmodified, over the master's socket of a running cluster.

They come from the Debian package ``ganeti-htools-3.0``. Everything they read (queries of four
kinds, cluster information) and write (migrations as jobs) goes through LUXI.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Cluster, Finished, run_program, wait_until

PROGRAMS = Path("/usr/lib/ganeti/3.0/usr/bin")
if not (PROGRAMS / "hbal").exists():
    pytest.skip("no htools. Run: tools/install-packages ganeti-htools-3.0",
                allow_module_level=True)

INSTANCES = ("db", "mail", "web", "wiki")


@pytest.fixture(scope="module", autouse=True)
def _instances(cluster: Cluster) -> None:
    """The first of three nodes has everything to do."""
    cluster.make_os("noop")
    for name in INSTANCES:
        cluster.run("gnt-instance", "add", "--submit", "-t", "sharedfile", "-s", "64M", "-o",
                    "noop", "--net", "0:", "-B", "memory=256m", "-n", "node1.example.com",
                    f"{name}.example.com").ok()
    wait_until(lambda: [row[0] for row in cluster.rows("gnt-instance", "list", "-o", "status")]
               == ["running"] * len(INSTANCES), "the instances run")


def socket(cluster: Cluster) -> str:
    return str(cluster.path("node1.example.com", "var/run/ganeti/socket/ganeti-master"))


def tool(cluster: Cluster, name: str, *options: str) -> Finished:
    return run_program((str(PROGRAMS / name), f"-L{socket(cluster)}", *options),
                       cluster.environment)


def test_hinfo(cluster: Cluster) -> None:
    text = tool(cluster, "hinfo").ok().stdout
    assert "Loaded 3 nodes, 4 instances, 1 node group" in text


def test_hspace(cluster: Cluster) -> None:
    lines = tool(cluster, "hspace", "--machine-readable").ok().stdout.splitlines()
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    assert facts["HTS_CLUSTER_NODES"] == "3" and facts["HTS_INI_INST_CNT"] == "4"
    assert facts["HTS_OK"] == "1"


def test_hcheck(cluster: Cluster) -> None:
    checked = tool(cluster, "hcheck", "--machine-readable", "--no-simulation")
    facts = dict(line.split("=", 1) for line in checked.stdout.splitlines() if "=" in line)
    assert facts["HCHECK_INIT_CLUSTER_N1_FAIL"] == "0"
    assert facts["HCHECK_OK"] == "1"


def test_hscan_writes_what_hbal_reads(cluster: Cluster, tmp_path: Path) -> None:
    assert "LOCAL" in tool(cluster, "hscan", "-d", str(tmp_path)).ok().stdout
    text = (tmp_path / "LOCAL.data").read_text()
    assert all(f"{name}.example.com" in text for name in INSTANCES)
    balanced = run_program((str(PROGRAMS / "hbal"), "-t", str(tmp_path / "LOCAL.data")),
                           cluster.environment)
    assert "Loaded 3 nodes, 4 instances" in balanced.ok().stdout


def test_hroller_hsqueeze_and_harep(cluster: Cluster) -> None:
    assert "Node Reboot Groups" in tool(cluster, "hroller").ok().stdout
    assert "Nodes to offline" in tool(cluster, "hsqueeze").ok().stdout
    assert "Healthy: 4" in tool(cluster, "harep").ok().stdout


def test_hbal_proposes_and_then_moves(cluster: Cluster) -> None:
    proposed = tool(cluster, "hbal", "-p", "-C").ok().stdout
    assert "gnt-instance migrate -f" in proposed
    assert {row[0] for row in pnodes(cluster)} == {"node1.example.com"}
    done = tool(cluster, "hbal", "-X", "--reason=balance").ok()
    assert "Solution length" in done.stdout
    rows = cluster.rows("gnt-instance", "list", "-o", "pnode,status")
    assert len({row[0] for row in rows}) == 3
    assert {row[1] for row in rows} == {"running"}
    jobs = cluster.rows("gnt-job", "list", "-o", "status,summary")
    migrations = [row for row in jobs if row[1].startswith("INSTANCE_MIGRATE")]
    assert len(migrations) >= 2 and {row[0] for row in migrations} == {"success"}


def pnodes(cluster: Cluster) -> list[list[str]]:
    return cluster.rows("gnt-instance", "list", "-o", "pnode")
