"""Mirrored disks in detail: parameters in the kernel, unknown devices on a minor, moves.

The instance is on node2 and node3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab import drbd
from lab.cluster import GROUP, Cluster
from lab.machines import Failed

NAME = "mirror"
BLOCKS = 200
ALLOCATOR = "/usr/local/lib/ganeti/iallocators/room"
# Chooses a node which has no data of the instance, and whose volume group has free space for its
# mirrored disks, according to the storage units (Ganeti storage units design).
_ALLOCATOR = """#!/usr/bin/python3
import json, sys
asked = json.load(open(sys.argv[1]))
request = asked["request"]

def place(name):
    instance = asked["instances"][name]
    need = sum(disk["size"] for disk in instance["disks"])
    for node, facts in sorted(asked["nodes"].items()):
        room = [unit["free"] for unit in facts["storage"] if unit["sunit"][0] == "drbd8"]
        if node not in instance["nodes"] and room and room[0] >= need:
            return node
    raise SystemExit("no place for " + name)

if request["type"] == "relocate":
    result = [place(request["name"])]
else:
    moved, jobs = [], []
    for name in request["instances"]:
        node = place(name)
        primary = asked["instances"][name]["nodes"][0]
        group = asked["nodes"][node]["group"]
        moved.append([name, asked["nodegroups"][group]["name"], [primary, node]])
        jobs.append([{"OP_ID": "OP_INSTANCE_REPLACE_DISKS", "instance_name": name,
                      "mode": "replace_new_secondary", "remote_node": node}])
    result = [moved, [], jobs]
print(json.dumps({"success": True, "info": "", "result": result}))
"""


@pytest.fixture(scope="module", autouse=True)
def instance(cluster: Cluster) -> Iterator[None]:
    """A running instance with a few blocks, and an allocator."""
    cluster.master.write(ALLOCATOR, _ALLOCATOR, 0o755)
    cluster.add(NAME, "node2:node3", size="32M")
    cluster.gnt("instance", "startup", NAME)
    writer = drbd.Writer(cluster.lab["node2"], cluster.device(NAME, "node2"))
    writer.wait_for(BLOCKS)
    writer.stop()
    yield
    cluster.remove(NAME)
    for machine in cluster.lab:
        assert drbd.minors(machine) == {} and drbd.volumes(machine) == [], machine.name


def shown(cluster: Cluster, node: str) -> str:
    """How the kernel of a node is configured."""
    return cluster.lab[node].run(f"drbdsetup show {cluster.minor(NAME, node)}")


def again(cluster: Cluster) -> None:
    """Stop and start the instance, so that new parameters take effect."""
    cluster.gnt("instance", "shutdown", "--timeout=0", NAME)
    cluster.gnt("instance", "startup", NAME)
    cluster.in_step(NAME)


def test_barriers_and_flushes(cluster: Cluster) -> None:
    assert not re.search(r"(disk-barrier|disk-flushes|md-flushes)\s+no", shown(cluster, "node2"))
    # The value of the group has precedence over the value of the cluster.
    cluster.gnt("cluster", "modify", "-D", "drbd:disk-barriers=bfd")
    cluster.gnt("group", "modify", "-D", "drbd:disk-barriers=bf,meta-barriers=yes", "default")
    again(cluster)
    for node in ("node2", "node3"):
        text = shown(cluster, node)
        assert re.search(r"disk-flushes\s+no", text) and re.search(r"md-flushes\s+no", text), text
        assert not re.search(r"disk-drain\s+no", text), text


def test_the_controller_of_the_synchronisation(cluster: Cluster) -> None:
    cluster.gnt(
        "cluster",
        "modify",
        "-D",
        "drbd:disk-barriers=n,dynamic-resync=yes,c-plan-ahead=15,c-fill-target=100,"
        "c-max-rate=81920,c-min-rate=4096,protocol=C",
    )
    cluster.gnt(
        "group", "modify", "-D", "drbd:disk-barriers=default,meta-barriers=default", "default"
    )
    again(cluster)
    for node in ("node2", "node3"):
        text = shown(cluster, node)
        assert re.search(r"c-plan-ahead\s+15", text), text
        assert re.search(r"c-max-rate\s+81920k", text), text
        assert not re.search(r"disk-flushes\s+no", text), text
    cluster.gnt("cluster", "modify", "-D", "drbd:dynamic-resync=no,resync-rate=40960")
    again(cluster)
    text = shown(cluster, "node3")
    assert re.search(r"resync-rate\s+40960k", text) and re.search(r"c-plan-ahead\s+0\b", text), text


def test_what_stands_alone_is_connected_again(cluster: Cluster) -> None:
    minor, other = cluster.minor(NAME, "node2"), cluster.minor(NAME, "node3")
    config = cluster.config()
    (disk,) = config["disks"].values()
    port = disk["logical_id"][2]
    cluster.lab["node2"].run(f"drbdsetup disconnect ipv4:10.77.2.2:{port} ipv4:10.77.2.3:{port}")
    drbd.wait_for(cluster.lab["node2"], minor, "^StandAlone")
    assert NAME in cluster.gnt("cluster", "verify-disks")
    cluster.settled(NAME, "node2", "node3", blocks=BLOCKS)
    cluster.lab["node3"].run(f"drbdsetup down resource{other}")
    assert NAME in cluster.gnt("cluster", "verify-disks")
    cluster.settled(NAME, "node2", "node3", blocks=BLOCKS)


def test_a_stranger_on_the_minor(cluster: Cluster) -> None:
    """An unknown device on the minor is removed, or refused while it is in use; never adopted."""
    machine, minor = cluster.lab["node3"], cluster.minor(NAME, "node3")
    cluster.gnt("instance", "shutdown", "--timeout=0", NAME)
    stranger = (
        f"lvcreate -qq -Wn -y -L 32m -n foreign {GROUP} &&"
        f" lvcreate -qq -Wn -y -L 128m -n foreign_meta {GROUP} &&"
        f" drbdmeta --force /dev/drbd{minor} v08 /dev/{GROUP}/foreign_meta flex-external create-md"
        " >/dev/null 2>&1 &&"
        " drbdsetup new-resource stranger &&"
        f" drbdsetup new-minor stranger {minor} 0 &&"
        f" drbdsetup attach {minor} /dev/{GROUP}/foreign /dev/{GROUP}/foreign_meta flexible &&"
        f" drbdsetup primary {minor} --force"
    )
    machine.run(stranger)
    user = machine.spawn(f"exec 9<>/dev/drbd{minor}; echo open; exec sleep 600 <&9")
    assert user.stdout is not None and user.stdout.readline() == "open\n"
    text = cluster.fails("instance", "startup", NAME)
    assert f"minor {minor} is in use by something else" in text, text
    assert drbd.minors(machine)[minor].primary, "the stranger was disturbed"
    assert "foreign" in machine.run(f"drbdsetup show {minor}")
    machine.call("pkill -x sleep")
    user.wait(timeout=60)
    cluster.gnt("instance", "startup", NAME)
    assert "foreign" not in machine.run(f"drbdsetup show {minor}")
    machine.run(f"lvremove -f {GROUP}/foreign {GROUP}/foreign_meta")
    cluster.settled(NAME, "node2", "node3", blocks=BLOCKS)


def test_the_other_half_has_another_secret(cluster: Cluster) -> None:
    """Two replicas with different secrets do not connect, even with the right addresses."""
    machine, minor = cluster.lab["node3"], cluster.minor(NAME, "node3")
    (disk,) = cluster.config()["disks"].values()
    port = disk["logical_id"][2]
    ours, theirs = f"ipv4:10.77.2.3:{port}", f"ipv4:10.77.2.2:{port}"
    machine.run(f"drbdsetup disconnect {ours} {theirs}")
    machine.run(
        f"drbdsetup connect resource{minor} {ours} {theirs} --protocol C"
        " --cram-hmac-alg md5 --shared-secret wrong"
    )
    drbd.wait_for(cluster.lab["node2"], cluster.minor(NAME, "node2"), "DUnknown$")
    with pytest.raises(TimeoutError):
        drbd.wait_for(machine, minor, "^Connected", timeout_s=10)
    cluster.gnt("instance", "activate-disks", NAME)
    cluster.settled(NAME, "node2", "node3", blocks=BLOCKS)


def test_a_dry_run_changes_nothing(cluster: Cluster) -> None:
    before = [drbd.volumes(machine) for machine in cluster.lab]
    cluster.gnt("instance", "replace-disks", "--dry-run", "-n", "node1", NAME)
    assert [drbd.volumes(machine) for machine in cluster.lab] == before
    cluster.settled(NAME, "node2", "node3", blocks=BLOCKS)


def test_an_allocator_chooses_the_new_secondary(cluster: Cluster) -> None:
    cluster.gnt("instance", "replace-disks", "-I", "room", NAME)
    cluster.settled(NAME, "node2", "node1", blocks=BLOCKS)


def test_a_node_is_evacuated(cluster: Cluster) -> None:
    cluster.gnt("node", "evacuate", "-f", "-s", "-I", "room", "node1")
    cluster.settled(NAME, "node2", "node3", blocks=BLOCKS)
    cluster.gnt("node", "evacuate", "-f", "-s", "-n", "node1", "--early-release", "node3")
    cluster.settled(NAME, "node2", "node1", blocks=BLOCKS)
    cluster.gnt("node", "migrate", "-f", "node2")
    cluster.settled(NAME, "node1", "node2", blocks=BLOCKS)
    with pytest.raises(Failed, match="room"):
        cluster.gnt("node", "evacuate", "-f", "-s", "-I", "nosuchroom", "node2")
    cluster.gnt("node", "failover", "-f", "node1")
    cluster.settled(NAME, "node2", "node1", blocks=BLOCKS)
