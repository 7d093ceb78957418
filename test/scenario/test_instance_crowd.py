"""A hundred instances made, migrated and removed by twenty clients at once on five nodes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import Cluster

pytestmark = pytest.mark.long

CLIENTS, EACH = 20, 5


@pytest.fixture
def five(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "vc", 5, "--hypervisor", "fake")
    cluster.create.ok()
    yield cluster
    cluster.destroy()


def test_a_hundred_lives(five: Cluster) -> None:
    nodes = five.node_names
    five.make_os("noop")

    def client(number: int) -> None:
        names = [f"i{number}-{turn}.example.com" for turn in range(EACH)]
        for turn, name in enumerate(names):
            five.run(
                "gnt-instance",
                "add",
                "-t",
                "diskless",
                "-o",
                "noop",
                "--no-nics",
                "-B",
                "memory=128",
                "-n",
                nodes[(number + turn) % 5],
                name,
            ).ok()
        for turn, name in enumerate(names):
            five.run(
                "gnt-instance", "migrate", "-f", "-n", nodes[(number + turn + 1) % 5], name
            ).ok()
        for name in names:
            five.run("gnt-instance", "remove", "-f", name).ok()

    with ThreadPoolExecutor(CLIENTS) as pool:
        for _done in pool.map(client, range(CLIENTS)):
            pass
    assert five.rows("gnt-instance", "list", "-o", "name") == []
    jobs = five.rows("gnt-job", "list", "-o", "id,status,summary")
    assert {row[1] for row in jobs} == {"success"}
    assert sum("INSTANCE_" in row[2] for row in jobs) == CLIENTS * EACH * 3
    for node in nodes:
        assert not list(five.node_root(node).rglob("fake-hypervisor/*"))
        log = five.path(node, "var/log/ganeti/master-daemon.log")
        assert not log.is_file() or "LockError" not in log.read_text()
    assert five.rows("gnt-debug", "locks", "-o", "name,mode,owner") is not None
    assert "ERROR" not in five.run("gnt-cluster", "verify").ok().text
