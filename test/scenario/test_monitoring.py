"""The monitoring daemon on the nodes of a cluster, and the program which reads it."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Cluster, alive, made, wait_until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def watched(cluster_directory: Path) -> Iterator[Cluster]:
    """Two nodes with the monitoring daemon."""
    with made(Cluster(cluster_directory, 2, "--hypervisor", "fake", "--monitoring")) as one:
        yield one


def read(cluster: Cluster, node: str, page: str) -> str:
    """Get a page of a node's daemon."""
    (address,) = cluster.node_fields(node, "pip")
    with urllib.request.urlopen(f"http://{address}:1815{page}", timeout=30) as response:
        text: str = response.read().decode()
        return text


def names(cluster: Cluster, node: str) -> list[str]:
    return [row[0] for row in json.loads(read(cluster, node, "/1/list/collectors"))]


def test_every_node_has_reports(watched: Cluster) -> None:
    for node in watched.node_names:
        assert read(watched, node, "/") == "[1]"
        reports: list[dict[str, Any]] = json.loads(read(watched, node, "/1/report/all"))
        found = {one["name"]: one["data"] for one in reports}
        assert found["cpu-avg-load"]["cpu_number"] >= 1
        assert {"major", "minor", "name"} < set(found["diskstats"][0])


def test_metrics_of_the_cluster_are_on_the_master(watched: Cluster) -> None:
    master, other = watched.master, next(n for n in watched.node_names if n != watched.master)
    watched.add_instance("seen", other).ok()
    wait_until(
        lambda: (
            'ganeti_cluster_instances{admin_state="down"} 1' in read(watched, master, "/metrics")
        ),
        "the metrics have the new instance",
    )

    def shown() -> str:
        return read(watched, master, "/metrics")

    # The creation of the instance: its phases, its calls, its commits; then what the nodes answer.
    wait_until(lambda: "ganeti_cluster_instance_states" in shown(), "the nodes were asked")
    text = shown()
    assert 'ganeti_master_opcodes_total{opcode="OP_INSTANCE_CREATE",status="success"} 1' in text
    assert (
        'ganeti_master_opcode_seconds_count{opcode="OP_INSTANCE_CREATE",phase="running"} 1' in text
    )
    assert 'ganeti_master_node_calls_total{call="node_info",outcome="answered"}' in text
    assert "ganeti_master_config_commit_seconds_bucket" in text
    assert 'ganeti_cluster_node_memory_free_bytes{node="' in text
    text = read(watched, other, "/metrics")
    assert "ganeti_node_is_master 0" in text and "ganeti_cluster" not in text
    assert 'ganeti_node_daemon_up{daemon="ganeti-noded"} 1' in text


def test_a_guest_is_on_the_page_of_its_node(watched: Cluster) -> None:
    """With what it uses, while it runs."""
    here = watched.node_names[1]
    watched.add_instance("used", here).ok()
    watched.run("gnt-instance", "startup", "used").ok()

    def pages_with_it() -> list[str]:
        return [
            node
            for node in watched.node_names
            if 'ganeti_node_guest_memory_bytes{guest="used' in read(watched, node, "/metrics")
        ]

    wait_until(lambda: pages_with_it() == [here], "the page of its node has the guest")
    text = read(watched, here, "/metrics")
    assert 'ganeti_node_guests_measured{hypervisor="fake"} 1' in text
    assert 'ganeti_node_guest_vcpus{guest="used' in text
    watched.run("gnt-instance", "shutdown", "used").ok()
    wait_until(lambda: pages_with_it() == [], "a stopped guest is on no page")


def test_collectors_are_switched_off_in_the_configuration(watched: Cluster) -> None:
    node = watched.node_names[1]
    watched.run("gnt-cluster", "modify", "--enabled-data-collectors", "diskstats=false").ok()
    wait_until(lambda: "diskstats" not in names(watched, node), "the daemon knows it")
    with pytest.raises(urllib.error.HTTPError) as caught:
        read(watched, node, "/1/report/storage/diskstats")
    assert caught.value.code == 404
    watched.run("gnt-cluster", "modify", "--enabled-data-collectors", "diskstats=true").ok()
    wait_until(lambda: "diskstats" in names(watched, node), "the daemon knows it again")


def test_the_balancer_reads_the_load(watched: Cluster) -> None:
    done = watched.run("hbal", "-L", "--mond", "--exit-on-missing-mond-data")
    assert done.exit_code == 0, done.text


def test_the_watcher_starts_it_again(watched: Cluster) -> None:
    node = watched.master
    pid = watched.kill(node, "ganeti-mond", signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the daemon has ended")
    watched.on(node, "ganeti-watcher").ok()
    wait_until(lambda: alive(watched.pid(node, "ganeti-mond")), "the daemon runs again")
    assert read(watched, node, "/") == "[1]"
