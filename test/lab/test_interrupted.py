"""Proof 4: a daemon is killed in the middle of an operation; the next run cleans up everything.

The moment is an event on the secondary node, whose node daemon writes down which program it runs:
as soon as that line appears, the node daemon there, or the master daemon, is gone.
"""

from __future__ import annotations

import pytest

from lab import drbd
from lab.cluster import Cluster
from lab.waiting import wait_until

NAME = "interrupted"
FIRST_PORT = 11000
_LOG = "/var/log/ganeti/node-daemon.log"
_UTIL = "/usr/lib/ganeti/daemon-util"

CREATE = ["running lvcreate .*data", "running drbdmeta .*create-md", "running drbdsetup connect"]
REPLACE = ["running lvcreate .*meta", "running drbdsetup detach", "running drbdsetup attach"]
MIGRATE = ["running drbdsetup disconnect", "running drbdsetup primary"]
REMOVE = ["running drbdsetup down", "running lvremove"]
CASES = [
    (operation, event, victim)
    for operation, events in (
        ("create", CREATE),
        ("replace", REPLACE),
        ("migrate", MIGRATE),
        ("remove", REMOVE),
    )
    for number, event in enumerate(events)
    for victim in ("noded", "masterd")
    # Each event with one of the two, and the last of each operation with both.
    if number == len(events) - 1 or (victim == "noded") == (number % 2 == 0)
]


def run(cluster: Cluster, operation: str) -> bool:
    """The operation; whether it succeeded."""
    words = {
        "create": f"gnt-instance add -t drbd --disk 0:size=64M -n node2:node3 --no-nics -o tiny"
        f" -B memory=64 --no-install --no-name-check --no-ip-check {NAME}",
        "replace": f"gnt-instance replace-disks -s {NAME}",
        "migrate": f"gnt-instance migrate -f {NAME}",
        "remove": f"gnt-instance remove -f --shutdown-timeout=0 {NAME}",
    }[operation]
    return cluster.master.call(words).returncode == 0


def exists(cluster: Cluster) -> bool:
    return NAME in cluster.gnt("instance", "list", "--no-headers", "-o", "name").split()


def kill_when(cluster: Cluster, node: str, event: str, victim: str) -> None:
    """Kill a daemon when the node daemon of a node writes this line."""
    kill = "pkill -9 -f [s]bin/ganeti-noded"
    if victim == "masterd":
        kill = "ssh node1 pkill -9 -f [s]bin/ganeti-masterd"
    # One that waits in vain since an earlier test would kill at the wrong time.
    cluster.lab[node].call("pkill -x tail")
    cluster.lab[node].run(
        f'nohup sh -c \'tail -n 0 -F {_LOG} | grep -m 1 -E "{event}" && {kill}'
        f" && touch /tmp/killed' >/dev/null 2>&1 & sleep 1; rm -f /tmp/killed"
    )


def recover(cluster: Cluster, node: str, victim: str) -> None:
    """Start the daemon again, and wait until it works."""
    machine = cluster.lab[node]
    wait_until(lambda: machine.call("test -e /tmp/killed").returncode == 0, "the event came", 120)
    if victim == "noded":
        machine.run(f"{_UTIL} start ganeti-noded")
        cluster.wait_for_node(node)
    else:
        cluster.master.run(f"{_UTIL} start ganeti-masterd")
    cluster.gnt("job", "list")
    statuses = ("job", "list", "--no-headers", "-o", "status")
    wait_until(lambda: "running" not in cluster.gnt(*statuses), "all jobs have ended", 600)


def check_nothing_too_many(cluster: Cluster, *, instance: bool) -> None:
    """Volumes, minors and ports are those of the configuration."""
    config = cluster.config()
    ids = [disk["logical_id"] for disk in config["disks"].values()]
    assert len(ids) == (1 if instance else 0)
    own = config["cluster"]
    used = {one[2] for one in ids}
    free = set(own["tcpudp_port_pool"])
    assert not used & free
    given_out = {port for port in used | free if port >= FIRST_PORT}
    assert given_out == set(range(FIRST_PORT, own["highest_used_port"] + 1))
    for name in ("node2", "node3"):
        assert len(drbd.volumes(cluster.lab[name])) == (2 if instance else 0), name
        assert len(drbd.minors(cluster.lab[name])) == (1 if instance else 0), name


@pytest.mark.parametrize(("operation", "event", "victim"), CASES)
def test_a_daemon_is_killed(cluster: Cluster, operation: str, event: str, victim: str) -> None:
    if operation == "create":
        if exists(cluster):
            cluster.remove(NAME)
    elif not exists(cluster):
        assert run(cluster, "create")
    if operation != "create":
        cluster.gnt("instance", "startup", NAME)
    node = cluster.nodes_of(NAME)[1] if operation != "create" else "node3"
    kill_when(cluster, node, event, victim)
    run(cluster, operation)
    recover(cluster, node, victim)
    if operation == "create" and exists(cluster):
        cluster.remove(NAME)
    elif operation == "replace":
        cluster.gnt("instance", "activate-disks", NAME)
        cluster.gnt("instance", "replace-disks", "-s", NAME)
    elif operation == "migrate":
        done = cluster.master.call(f"gnt-instance migrate --cleanup -f {NAME}")
        if done.returncode:
            # A guest of the fake hypervisor exists on the target only after the target node knows
            # the end of the migration; a guest of QEMU exists before. So the state is the same as
            # after a power failure, and the test follows the hint of the message.
            text = done.stdout + done.stderr
            assert f"runs nowhere. Use 'gnt-instance shutdown {NAME}'" in text, text
            cluster.gnt("instance", "shutdown", NAME)
            cluster.gnt("instance", "startup", NAME)
        cluster.in_step(NAME)
        for name, writable in zip(cluster.nodes_of(NAME), (True, False), strict=True):
            machine, minor = cluster.lab[name], cluster.minor(NAME, name)
            assert "allow-two-primaries" not in machine.run(f"drbdsetup show {minor}")
            assert drbd.minors(machine)[minor].primary is writable
    elif operation == "remove" and exists(cluster):
        cluster.remove(NAME)
    check_nothing_too_many(cluster, instance=operation in ("replace", "migrate"))


def test_end(cluster: Cluster) -> None:
    if exists(cluster):
        cluster.remove(NAME)
    check_nothing_too_many(cluster, instance=False)
