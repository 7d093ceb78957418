"""What an operation costs, counted: node calls, forks, bytes, nodes concerned, commits, locks.

Seconds depend on the machine, counts do not. The cluster has ten simulated nodes and a real master,
with two other candidates. ``test/data/counts.json`` has the counts of each operation; a change
which needs more calls, sends more, or concerns nodes which have nothing to do with the operation
fails here on any machine.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness import wait_until

from devel.bench import queue
from devel.simnodes.cluster import SimulatedCluster, Size, node_name, running
from ganeti.luxi import client as luxi
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.opcodes.tags import OpTagsSet
from ganeti.wire import calls

TABLE = Path(__file__).parents[1] / "data" / "counts.json"
NAME, NAME_OF_EIGHT = "counted.example.com", "eight.example.com"
PRIMARY, SECONDARY = node_name(5), node_name(6)
CANDIDATES = 2
# What follows an operation later, in messages whose number depends on the moment: copies of the job
# queue and of the audit log, and the names of instances for nodes which are not candidates.
LATER = {
    "jobqueue_update_many",
    "jobqueue_rename",
    "jobqueue_inventory",
    "jobqueue_read",
    "audit_extend",
    "config_history_digests",
    "config_history_write",
}
# What a node has answered about its scripts holds for some seconds (``cmdlib/hooks.py``); on a very
# slow machine it is asked again for the second phase.
AGEING = {"hooks_present": 2}
# Lengths vary with numbers and times in the arguments.
TOLERANCE = 1.15
# A change of the configuration is sent from the first digit on in which a time differs, so it is
# longer when a second ends. Bytes for each call.
LONGER = {"config_rewrite": 100}


class Counted(dict[str, Any]):
    """Node calls by name, bytes of their requests, and so on, of one operation.

    ``forks`` are the calls for each of which a real node makes a process; ``other_nodes`` the nodes
    which were called and have nothing to do with the instance.
    """


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedCluster]:
    directory = tempfile.mkdtemp(prefix="gnt-")
    try:
        size = Size(10, 40, 1, CANDIDATES)
        with running(f"{directory}/vc", size, options=("--sync-mib-s=1000000",)) as made:
            yield made
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class Seen(NamedTuple):
    """Counts since the start.

    :ivar by_node: calls which a node has answered.
    :ivar received: bytes of the requests of each call.
    :ivar own: what the master daemon has counted.
    :ivar under_way: node calls which have begun and not ended.
    """

    by_node: dict[str, Counter[str]]
    received: Counter[str]
    own: Counter[str]
    under_way: Counter[str]


def seen(cluster: SimulatedCluster) -> Seen:
    own: Counter[str] = Counter()
    under_way: Counter[str] = Counter()
    with luxi.Client(cluster.paths().master_socket) as client:
        series = {metric["name"]: metric["series"] for metric in client.query_metrics()}
    own["commits"] = sum(
        sum(counts) for _labels, counts, _sum in series["ganeti_master_config_commit_seconds"]
    )
    own["locks"] = sum(number for _labels, number in series["ganeti_master_lock_requests"])
    under_way.update(
        {labels[0]: number for labels, number in series["ganeti_master_node_calls_begun"]}
    )
    for labels, number in series["ganeti_master_node_calls"]:
        under_way[labels[0]] -= number
    shown = cluster.tell("show")["nodes"]
    by_node = {
        name: Counter({call: n for call, n in one["answered"].items() if call not in LATER})
        for name, one in shown.items()
    }
    received: Counter[str] = Counter()
    for one in shown.values():
        received.update({call: n for call, n in one["received"].items() if call not in LATER})
    return Seen(by_node, received, own, under_way)


def settled(cluster: SimulatedCluster) -> Seen:
    """The counts when no call is under way, except for those which may follow later."""
    last: list[Seen] = []

    def at_rest() -> bool:
        last[:] = [seen(cluster)]
        return not any(n for call, n in last[0].under_way.items() if call not in LATER)

    wait_until(at_rest, "the last node call has ended")
    return last[0]


def counted(cluster: SimulatedCluster, action: Callable[[luxi.Client], object]) -> Counted:
    before = settled(cluster)
    with luxi.Client(cluster.paths().master_socket) as client:
        action(client)
    after = settled(cluster)
    by_node = {name: after.by_node[name] - before.by_node[name] for name in before.by_node}
    total: Counter[str] = Counter()
    for made in by_node.values():
        total += made
    outsiders = [
        name
        for name, made in by_node.items()
        if name not in (PRIMARY, SECONDARY) and set(made) - {"config_rewrite", "write_ssconf_files"}
    ]
    return Counted(
        calls=dict(sorted(total.items())),
        bytes=sum((after.received - before.received).values()),
        other_nodes=len(outsiders),
        forks=sum(number for call, number in total.items() if not calls.TABLE[call].keep),
        commits=after.own["commits"] - before.own["commits"],
        locks=after.own["locks"] - before.own["locks"],
    )


def job(op: OpCode) -> Callable[[luxi.Client], None]:
    return lambda client: queue.wait(client, client.submit_job([op]))


def creation(name: str, disks: int) -> Callable[[luxi.Client], None]:
    """Create a running instance with mirrored disks."""
    return job(
        OpInstanceCreate(
            instance_name=name,
            mode="create",
            disk_template="drbd",
            disks=[{"size": 64}] * disks,
            nics=[],
            os_type="debian+default",
            pnode=PRIMARY,
            snode=SECONDARY,
            beparams={"memory": 128},
            start=True,
            wait_for_sync=False,
            name_check=False,
            ip_check=False,
        )
    )


#: In this order: each begins with what the one before has left.
OPERATIONS: dict[str, Callable[[luxi.Client], object]] = {
    "create": creation(NAME, 1),
    "shutdown": job(OpInstanceShutdown(instance_name=NAME)),
    "startup": job(OpInstanceStartup(instance_name=NAME)),
    "migrate": job(OpInstanceMigrate(instance_name=NAME)),
    "failover": job(OpInstanceFailover(instance_name=NAME)),
    "tag": job(OpTagsSet(kind="instance", name=NAME, tags=["one"])),
    "list-one": lambda client: client.query("instance", ["name", "status"], ["=", "name", NAME]),
    "list-nodes": lambda client: client.query("node", ["name", "mfree"]),
    "remove": job(OpInstanceRemove(instance_name=NAME)),
    # A node is called once for all disks of an instance.
    "create-8-disks": creation(NAME_OF_EIGHT, 8),
    "shutdown-8-disks": job(OpInstanceShutdown(instance_name=NAME_OF_EIGHT)),
    "startup-8-disks": job(OpInstanceStartup(instance_name=NAME_OF_EIGHT)),
    "remove-8-disks": job(OpInstanceRemove(instance_name=NAME_OF_EIGHT)),
}


@pytest.fixture(scope="module")
def found(cluster: SimulatedCluster) -> dict[str, Counted]:
    # The first job of a kind asks nodes for facts which are kept.
    job(OpTagsSet(kind="cluster", tags=["begun"]))(luxi.Client(cluster.paths().master_socket))
    measured = {name: counted(cluster, action) for name, action in OPERATIONS.items()}
    if os.environ.get("WRITE_COUNTS"):
        TABLE.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")
    return measured


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_costs_no_more_than_the_table_says(
    found: dict[str, Counted], operation: str
) -> None:
    wanted, have = json.loads(TABLE.read_text())[operation], found[operation]
    hint = f"{operation}: if that is intended, change {TABLE.name} (WRITE_COUNTS=1 writes it)"
    more = {
        call: (number, wanted["calls"].get(call, 0))
        for call, number in have["calls"].items()
        if number > wanted["calls"].get(call, 0) * AGEING.get(call, 1)
    }
    assert not more, f"more node calls than in the table, as (now, table): {more}. {hint}"
    for what in ("other_nodes", "forks", "commits", "locks"):
        assert have[what] <= wanted[what], f"{what}: {have[what]}, not {wanted[what]}. {hint}"
    longer = sum(LONGER.get(call, 0) * number for call, number in wanted["calls"].items())
    assert have["bytes"] <= TOLERANCE * wanted["bytes"] + longer, (
        f"{have['bytes']} bytes were sent, not {wanted['bytes']}. {hint}"
    )


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "list-nodes"])
def test_nodes_which_have_nothing_to_do_with_it_are_not_asked(
    found: dict[str, Counted], operation: str
) -> None:
    assert found[operation]["other_nodes"] == 0
    copies = found[operation]["calls"].get("config_rewrite", 0)
    assert copies == CANDIDATES * found[operation]["commits"]
