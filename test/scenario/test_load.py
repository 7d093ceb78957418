"""Ten clients create thirty instances at once; everything agrees afterwards."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import Cluster, Finished, wait_until

CLIENTS = 10
EACH = 3


@pytest.mark.long
def test_thirty_creations_from_ten_clients(cluster: Cluster) -> None:
    nodes = cluster.node_names
    cluster.make_os("noop")

    def client(number: int) -> list[Finished]:
        return [
            cluster.run(
                "gnt-instance",
                "add",
                "-t",
                "file",
                "-s",
                "4M",
                "-o",
                "noop",
                "--net",
                "0:",
                "-n",
                nodes[(number + turn) % len(nodes)],
                f"i{number}-{turn}.example.com",
            )  # fmt: skip
            for turn in range(EACH)
        ]

    with ThreadPoolExecutor(CLIENTS) as pool:
        for finished in pool.map(client, range(CLIENTS)):
            for done in finished:
                done.ok()

    rows = cluster.rows("gnt-instance", "list", "-o", "name,status,pnode,nic.mac/0")
    assert len(rows) == CLIENTS * EACH
    assert {row[1] for row in rows} == {"running"}
    assert len({row[3] for row in rows}) == len(rows), "two instances share a MAC address"

    jobs = cluster.rows("gnt-job", "list", "-o", "id,status")
    assert len({row[0] for row in jobs}) == len(jobs)
    assert {row[1] for row in jobs} == {"success"}
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text
    agree(cluster)

    cluster.run("gnt-instance", "shutdown", "--all", "--force-multiple").ok()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in pool.map(
            lambda row: cluster.run("gnt-instance", "remove", "--force", row[0]), rows
        ):
            done.ok()
    assert cluster.rows("gnt-instance", "list", "-o", "name") == []
    for node in nodes:
        storage = cluster.path(node, "srv/ganeti/file-storage")
        assert [path for path in storage.rglob("*") if path.is_file()] == []
    agree(cluster)


def agree(cluster: Cluster) -> None:
    """Configuration and queue are the same on every master candidate."""
    datas = [
        cluster.path(node, "var/lib/ganeti/config.data").read_text() for node in cluster.node_names
    ]
    assert len(set(datas)) == 1
    config = json.loads(datas[0])
    used = [uuid for instance in config["instances"].values() for uuid in instance["disks"]]
    assert sorted(used) == sorted(config["disks"])

    def queue(node: str) -> dict[str, str]:
        directory = cluster.path(node, "var/lib/ganeti/queue")
        return {path.name: path.read_text() for path in directory.glob("job-*")}

    master = queue(cluster.master)
    assert master
    for node in cluster.node_names:
        # A candidate makes its files a moment after it has answered.
        wait_until(lambda node=node: queue(node) == master, f"the queue of {node} is the master's")
