"""Roles of nodes over real daemons: every change of the table, and what all nodes know afterwards.

One cluster of four nodes for all tests, which leave it as they find it: two master candidates (the
first node is the master), two regular nodes.
"""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster, Finished, wait_until

NODE1, NODE2, NODE3, NODE4 = NODES = [f"node{number}.example.com" for number in (1, 2, 3, 4)]
AT_REST = {NODE1: "M", NODE2: "C", NODE3: "R", NODE4: "R"}
ADD = ("gnt-instance", "add", "-t", "sharedfile", "-s", "1g", "-o", "noop", "--no-nics")


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    made = Cluster(cluster_directory, 4, "--hypervisor", "fake")
    made.create.ok()
    made.make_os("noop")
    try:
        yield made
    finally:
        made.destroy()


def modify(cluster: Cluster, node: str, *options: str) -> Finished:
    return cluster.run("gnt-node", "modify", *options, node)


def roles(cluster: Cluster) -> dict[str, str]:
    return {name: role for name, role in cluster.rows("gnt-node", "list", "-o", "name,role")}


def data(cluster: Cluster, node: str, name: str) -> Path:
    return cluster.path(node, f"var/lib/ganeti/{name}")


def lines(cluster: Cluster, node: str, key: str) -> set[str]:
    return set(data(cluster, node, f"ssconf_{key}").read_text().split("\n")) - {""}


def agreed(cluster: Cluster, **changes: str) -> None:
    """These are the roles, at rest but for ``changes``; and every node which is online knows it."""
    expected = {**AT_REST, **{f"{name}.example.com": role for name, role in changes.items()}}
    assert roles(cluster) == expected
    online = [node for node, role in expected.items() if role != "O"]
    candidates = {node for node, role in expected.items() if role in "MC"}
    ssconf = {
        "master_candidates": candidates,
        "online_nodes": set(online),
        "offline_nodes": set(NODES) - set(online),
        "node_list": set(NODES),
        "master_node": {NODE1},
    }
    for node in online:
        found = {key: lines(cluster, node, key) for key in ssconf}
        assert found == ssconf, node
        certs = lines(cluster, node, "master_candidates_certs")
        assert len(certs) == len(candidates), node
        has = data(cluster, node, "config.data").exists()
        assert has == (node in candidates), f"{node} has config.data: {has}"
    config = {data(cluster, node, "config.data").read_bytes() for node in candidates}
    assert len(config) == 1
    listed = json.loads(config.pop())["nodes"].values()
    stored = {
        node["name"]: "O" if node["offline"] else "D" if node["drained"]
        else "C" if node["master_candidate"] else "R" for node in listed
    }  # fmt: skip
    assert stored == {**expected, NODE1: "C"}


def verified(cluster: Cluster) -> None:
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


ASK = {"C": "--master-candidate=yes", "D": "--drained=yes", "O": "--offline=yes"}
CLEAR = {"C": "--master-candidate=no", "D": "--drained=no", "O": "--offline=no"}
# Every pair of roles between which a node can be moved, once, in one walk.
WALK = "RCDCOCRDODROR"


def test_a_pool_of_candidates_is_kept(cluster: Cluster) -> None:
    """At first all are candidates; then as many as there should be, whatever the number."""
    agreed(cluster, node2="C", node3="C", node4="C")
    for size, expected in ((2, "CRR"), (3, "CCR"), (2, "CRR")):
        cluster.run("gnt-cluster", "modify", f"--candidate-pool-size={size}").ok()
        agreed(cluster, node2=expected[0], node3=expected[1], node4=expected[2])
    verified(cluster)


def test_every_change_of_role(cluster: Cluster) -> None:
    pairs = set(zip(WALK, WALK[1:], strict=False))
    assert pairs == {(old, new) for old in "CRDO" for new in "CRDO" if old != new}
    for old, new in zip(WALK, WALK[1:], strict=False):
        option = CLEAR[old] if new == "R" else ASK[new]
        said = modify(cluster, NODE3, option).ok().stdout
        assert f"Modified node {NODE3}" in said
        agreed(cluster, node3=new)
    # It was a candidate when it was lost, and comes back as none: its copies go.
    modify(cluster, NODE3, "--master-candidate=yes").ok()
    modify(cluster, NODE3, "--offline=yes").ok()
    assert data(cluster, NODE3, "config.data").exists()
    modify(cluster, NODE3, "--offline=no").ok()
    agreed(cluster)
    verified(cluster)


def test_what_is_refused(cluster: Cluster) -> None:
    modify(cluster, NODE3).failed("at least one of the parameters")
    modify(cluster, NODE3, "-C", "yes", "-O", "yes").failed("only one of")
    for option in (*CLEAR.values(), *ASK.values()):
        master = modify(cluster, NODE1, option)
        if option in (ASK["C"], CLEAR["D"], CLEAR["O"]):
            master.ok()
        else:
            master.failed("master-failover")
    modify(cluster, NODE2, "-C", "no").failed("too few master candidates", "--auto-promote")
    modify(cluster, "nosuch", "-O", "yes").failed("nosuch")
    cluster.on(NODE3, "gnt-cluster", "master-failover").failed(
        "is not a master candidate", f"Use one of the candidates ({NODE1}, {NODE2})"
    )
    modify(cluster, NODE3, "--node-powered=no").failed("no out-of-band helper program")
    agreed(cluster)


def test_another_node_takes_the_place(cluster: Cluster) -> None:
    modify(cluster, NODE2, "--offline=yes", "--auto-promote").ok()
    agreed(cluster, node2="O", node3="C")
    # There is no room for it when it comes back.
    modify(cluster, NODE2, "--offline=no").ok()
    agreed(cluster, node2="R", node3="C")
    modify(cluster, NODE3, "--drained=yes", "--auto-promote").ok()
    agreed(cluster, node2="C", node3="D")
    modify(cluster, NODE3, "--drained=no").ok()
    # Forced, the pool is short; whoever comes back next fills it.
    said = modify(cluster, NODE2, "--drained=yes", "--force").ok().text
    assert "fewer master candidates than candidate_pool_size" in said
    agreed(cluster, node2="D")
    assert "fewer than candidate_pool_size" in modify(cluster, NODE2, "--drained=no").ok().text
    agreed(cluster)


def test_capabilities(cluster: Cluster) -> None:
    modify(cluster, NODE2, "--master-capable=no", "--auto-promote").ok()
    agreed(cluster, node2="R", node3="C")
    modify(cluster, NODE2, "-C", "yes").failed("not master_capable")
    modify(cluster, NODE2, "--master-capable=yes").ok()
    modify(cluster, NODE3, "-C", "no", "--auto-promote").ok()
    agreed(cluster)
    name = "cap.example.com"
    cluster.run(*ADD, "-n", NODE4, name).ok()
    modify(cluster, NODE4, "--vm-capable=no").failed("has instances")
    cluster.run("gnt-instance", "migrate", "-f", "-n", NODE3, name).ok()
    modify(cluster, NODE4, "--vm-capable=no").ok()
    cluster.run("gnt-instance", "migrate", "-f", "-n", NODE4, name).failed("vm_capable")
    modify(cluster, NODE4, "--vm-capable=yes").ok()
    cluster.run("gnt-instance", "remove", "-f", name).ok()
    agreed(cluster)


def test_drained_and_offline_nodes_get_no_instances(cluster: Cluster) -> None:
    name = "put.example.com"
    modify(cluster, NODE4, "--drained=yes").ok()
    cluster.run(*ADD, "-n", NODE4, name).failed("drained")
    # What is there stays, runs and may leave.
    modify(cluster, NODE4, "--drained=no").ok()
    cluster.run(*ADD, "-n", NODE4, name).ok()
    modify(cluster, NODE4, "--drained=yes").ok()
    cluster.run("gnt-instance", "reboot", name).ok()
    cluster.run("gnt-node", "migrate", "-f", "-n", NODE3, NODE4).ok()
    modify(cluster, NODE3, "--offline=yes").failed("instances run there", name, "--force")
    said = modify(cluster, NODE3, "--offline=yes", "--force").ok().text
    assert f"is the primary node of {name}" in said and "gnt-node evacuate" in said
    cluster.run(*ADD, "-n", NODE3, "other.example.com").failed("offline")
    assert [
        "offline" in cell.lower()
        for cell in cluster.rows("gnt-instance", "list", "-o", "status", name)[0]
    ] == [True]
    modify(cluster, NODE3, "--offline=no").ok()
    modify(cluster, NODE4, "--drained=no").ok()
    cluster.run("gnt-instance", "remove", "-f", name).ok()
    agreed(cluster)


def test_a_guest_on_a_node_that_is_taken_for_dead(cluster: Cluster) -> None:
    """The node lives, then it is cut off, then it is back: its guest never stays a second one."""

    def runs_on(node: str) -> bool:
        return cluster.path(node, f"var/run/ganeti/fake-hypervisor/{name}").exists()

    name = "twice.example.com"
    failover = ("gnt-instance", "failover", "-f", "-n", NODE4)
    cluster.run(*ADD, "-n", NODE3, name).ok()
    modify(cluster, NODE3, "--offline=yes").failed("instances run there", name)
    modify(cluster, NODE3, "--offline=yes", "--force").ok()
    cluster.run(*failover, name).failed("is marked offline, but it answers", "runs there")
    cluster.run(*failover, "--ignore-consistency", name).failed("runs there")
    assert runs_on(NODE3)
    assert not runs_on(NODE4)
    # Nobody can know of a guest on a machine which does not answer.
    cluster.on(NODE3, "daemon-util", "stop", "ganeti-noded").ok()
    cluster.run(*failover, name).ok()
    assert runs_on(NODE3)
    assert runs_on(NODE4)
    cluster.on(NODE3, "daemon-util", "start", "ganeti-noded").ok()
    modify(cluster, NODE3, "--offline=no").failed(f"{name} (belongs to node {NODE4})")
    cluster.run("gnt-node", "add", "--readd", NODE3).failed(f"{name} (belongs to node {NODE4})")
    for command in ("shutdown", "reboot"):
        cluster.run("gnt-instance", command, name).failed(f"runs on node {NODE3}")
    cluster.run("gnt-instance", "remove", "-f", name).failed(f"runs on node {NODE3}")
    modify(cluster, NODE3, "--offline=no", "--force").ok()
    assert not runs_on(NODE3)
    assert runs_on(NODE4)
    cluster.run("gnt-instance", "remove", "-f", name).ok()
    agreed(cluster)


# --- vetoes --------------------------------------------------------------------------------------


class Hook:
    """A script on a node which notes what it is told and refuses."""

    def __init__(self, cluster: Cluster, node: str, directory: str) -> None:
        self.path = cluster.path(node, f"etc/ganeti/hooks/{directory}/veto")
        self.notes = cluster.directory / f"{directory}.notes"
        self.path.parent.mkdir(parents=True)
        self.path.write_text(
            f"#!/bin/sh\nenv | grep ^GANETI_ | sort >{self.notes}\necho not today\nexit 1\n"
        )
        self.path.chmod(0o755)

    def told(self) -> dict[str, str]:
        found = dict(line.split("=", 1) for line in self.notes.read_text().splitlines())
        self.notes.unlink()
        return found

    def remove(self) -> None:
        shutil.rmtree(self.path.parent)


def test_hooks_refuse_a_change_of_role(cluster: Cluster) -> None:
    """On the node itself, or on the master; and nothing has changed."""
    for node in (NODE3, NODE1):
        hook = Hook(cluster, node, "node-modify-pre.d")
        modify(cluster, NODE3, "--drained=yes").failed("not today", node)
        told = hook.told()
        assert told["GANETI_OP_TARGET"] == NODE3 and told["GANETI_DRAINED"] == "True"
        assert told["GANETI_HOOKS_PHASE"] == "pre" and told["GANETI_MASTER"] == NODE1
        agreed(cluster)
        hook.remove()
    # Afterwards it is too late for a veto.
    hook = Hook(cluster, NODE3, "node-modify-post.d")
    assert "not today" in modify(cluster, NODE3, "--drained=yes").ok().text
    hook.remove()
    agreed(cluster, node3="D")
    modify(cluster, NODE3, "--drained=no").ok()


def test_hooks_refuse_moves(cluster: Cluster) -> None:
    name = "veto.example.com"
    cluster.run(*ADD, "-n", NODE3, name).ok()
    for command, directory, node in (
        (("gnt-instance", "failover", "-f", "-n", NODE4, name), "instance-failover-pre.d", NODE4),
        (("gnt-instance", "migrate", "-f", "-n", NODE4, name), "instance-migrate-pre.d", NODE3),
        (("gnt-node", "migrate", "-f", "-n", NODE4, NODE3), "node-migrate-pre.d", NODE1),
        (("gnt-node", "evacuate", "-f", "-n", NODE4, NODE3), "instance-migrate-pre.d", NODE4),
    ):
        hook = Hook(cluster, node, directory)
        done = cluster.run(*command)
        assert done.exit_code == 1 and "not today" in done.text, done.text
        told = hook.told()
        if directory.startswith("instance"):
            assert (told["GANETI_OLD_PRIMARY"], told["GANETI_NEW_PRIMARY"]) == (NODE3, NODE4)
        else:
            assert told["GANETI_NODE_NAME"] == NODE3
        hook.remove()
        assert cluster.rows("gnt-instance", "list", "-o", "pnode,status", name) == [
            [NODE3, "running"]
        ]
    cluster.run("gnt-node", "failover", "-f", NODE3)
    cluster.run("gnt-instance", "remove", "-f", name).ok()


# --- adding again --------------------------------------------------------------------------------


def test_a_node_is_added_again(cluster: Cluster) -> None:
    """Its disk was replaced: nothing of the cluster is on it any more."""
    add = ("gnt-node", "add", "--readd")
    cluster.run("gnt-node", "add", NODE3).failed("--readd")
    cluster.run(*add, NODE1).failed("is the master")
    cluster.run(*add, "node9").failed("node9")
    modify(cluster, NODE3, "--offline=yes").ok()
    cluster.on(NODE3, "daemon-util", "stop-all").ok()
    for directory in ("var/lib/ganeti", "var/run/ganeti", "var/log/ganeti"):
        shutil.rmtree(cluster.path(NODE3, directory))
    modify(cluster, NODE3, "--offline=no").failed("does not answer", "--readd")
    agreed(cluster, node3="O")
    uuid = cluster.rows("gnt-node", "list", "-o", "uuid", NODE3)
    cluster.run(*add, NODE3).ok()
    agreed(cluster)
    assert cluster.rows("gnt-node", "list", "-o", "uuid", NODE3) == uuid
    verified(cluster)
    # Where there is room it becomes a candidate, with the certificate it has now.
    modify(cluster, NODE2, "--drained=yes", "--force").ok()
    cluster.run(*add, NODE3).ok()
    agreed(cluster, node2="D", node3="C")
    cluster.on(NODE3, "gnt-cluster", "master-failover", "--dry-run").ok()
    cluster.run(*add, NODE2).ok()  # also clears its drained flag
    agreed(cluster, node2="R", node3="C")
    modify(cluster, NODE2, "-C", "yes").ok()
    modify(cluster, NODE3, "-C", "no").ok()
    agreed(cluster)


# --- power ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def helper(cluster: Cluster) -> Iterator[Path]:
    """A program that switches virtual machines: it stops and starts the daemons of a node."""
    directory = cluster.directory.parent / "power"
    directory.mkdir()
    path = directory / "helper"
    path.write_text(
        textwrap.dedent(f"""\
        #!/bin/sh
        echo "$@" >>{directory}/calls
        node={cluster.directory}/$2/cmd
        test -e {directory}/fail.$2 && {{ echo "no answer from its board" >&2; exit 1; }}
        case $1 in
        power-on) touch {directory}/on.$2; $node daemon-util start ganeti-noded >/dev/null ;;
        power-off) rm -f {directory}/on.$2; $node daemon-util stop-all >/dev/null ;;
        power-cycle) $node daemon-util stop-all >/dev/null
            $node daemon-util start ganeti-noded >/dev/null ;;
        power-status) test -e {directory}/on.$2 && echo '{{"powered": true}}' \\
            || echo '{{"powered": false}}' ;;
        health) cat {directory}/health.$2 ;;
        esac
        """)
    )
    path.chmod(0o755)
    for node in NODES:
        (directory / f"on.{node}").touch()
    for node in (NODE1, NODE3, NODE4):
        modify(cluster, node, f"--node-parameters=oob_program={path}").ok()
    yield directory
    for node in (NODE1, NODE3, NODE4):
        modify(cluster, node, "--node-parameters=oob_program=default").ok()


def power(cluster: Cluster, command: str, *arguments: str) -> Finished:
    options = [argument for argument in arguments if argument.startswith("-")]
    nodes = [argument for argument in arguments if not argument.startswith("-")]
    return cluster.run(
        "gnt-node", "power", "--no-headers", "--separator=|", *options, command, *nodes
    )


def called(helper: Path) -> list[str]:
    path = helper / "calls"
    found = path.read_text().splitlines() if path.exists() else []
    path.write_text("")
    return found


def test_power(cluster: Cluster, helper: Path) -> None:
    done = power(cluster, "status")
    assert done.exit_code == 1  # one has no helper
    assert done.stdout.splitlines() == [
        f"{NODE1}|powered",
        f"{NODE2}|(unavail)",
        f"{NODE3}|powered",
        f"{NODE4}|powered",
    ]
    assert called(helper) == [f"power-status {node}" for node in (NODE1, NODE3, NODE4)]
    power(cluster, "off", "-f", NODE1).failed("master")
    power(cluster, "off", NODE3).failed("--force")
    power(cluster, "off", "-f").failed("at least one node")
    power(cluster, "off", "-f", NODE2, "--auto-promote").failed("no out-of-band helper")
    assert called(helper) == []
    agreed(cluster)


def test_a_node_is_switched_off_and_on(cluster: Cluster, helper: Path) -> None:
    called(helper)
    power(cluster, "off", "-f", NODE3).ok()
    assert called(helper) == [f"power-off {NODE3}"]
    agreed(cluster, node3="O")
    assert not cluster.path(NODE3, "var/run/ganeti/ganeti-noded.pid").exists()
    assert cluster.rows("gnt-node", "list", "-o", "powered", NODE3) == [["N"]]
    modify(cluster, NODE3, "--offline=no").failed("is powered off")
    # Somebody pressed the button: the configuration is compared, not changed.
    (helper / f"on.{NODE3}").touch()
    said = power(cluster, "status", NODE3).ok().text
    assert "is switched on, but is marked as powered off" in said
    power(cluster, "on", "--power-delay=0", NODE3, NODE4).ok()
    assert called(helper)[-2:] == [f"power-on {NODE3}", f"power-on {NODE4}"]
    assert cluster.rows("gnt-node", "list", "-o", "powered", NODE3) == [["Y"]]
    modify(cluster, NODE3, "--offline=no").ok()
    agreed(cluster)
    pid = cluster.pid(NODE3, "ganeti-noded")
    power(cluster, "cycle", "-f", NODE3).ok()
    wait_until(lambda: cluster.pid(NODE3, "ganeti-noded") != pid, "the node has started again")
    # Without any program, by hand.
    modify(cluster, NODE3, "--offline=yes").ok()
    modify(cluster, NODE3, "--node-powered=no").ok()
    assert cluster.rows("gnt-node", "list", "-o", "powered", NODE3) == [["N"]]
    modify(cluster, NODE3, "--node-powered=yes", "--offline=no").ok()
    agreed(cluster)


def test_what_nodes_have(cluster: Cluster) -> None:
    """Storage, volumes, minors, commands of the administrator, and a reset that cannot be."""
    rows = cluster.rows("gnt-node", "list-storage", "-o", "node,type,name", NODE2)
    assert rows == [[NODE2, "file", "/srv/ganeti/file-storage"]]
    said = cluster.run("gnt-node", "list-storage", "--storage-type=lvm-vg", NODE2).ok().text
    assert (f"node {NODE2} did not report its storage" in said) == (shutil.which("vgs") is None)
    cluster.run("gnt-node", "list-storage", "--storage-type=diskless").failed(
        "invalid choice", exit_code=2
    )
    assert cluster.rows("gnt-node", "volumes") == []
    assert cluster.rows("gnt-node", "list-drbd", NODE2) == []
    cluster.run(
        "gnt-node", "modify-storage", "--allocatable=no", NODE2, "lvm-pv", "/dev/nosuch"
    ).failed("/dev/nosuch", NODE2)
    cluster.run("gnt-node", "powercycle", "--yes", NODE2).failed("virtual cluster")
    directory = cluster.path(NODE2, "etc/ganeti/restricted-commands")
    directory.mkdir(mode=0o755)
    command = directory / "kernel"
    command.write_text("#!/bin/sh\nuname -r\n")
    command.chmod(0o755)
    said = cluster.run("gnt-node", "restricted-command", "-M", "kernel", NODE2).ok().stdout
    assert f"{NODE2}: {os.uname().release}" in said


def test_health_and_helpers_that_fail(cluster: Cluster, helper: Path) -> None:
    health = ("gnt-node", "health", "--no-headers", "--separator=|")
    (helper / f"health.{NODE3}").write_text('[["fan1", "OK"], ["disk2", "CRITICAL"]]')
    done = cluster.run(*health, NODE3).ok()
    assert done.stdout.splitlines()[-2:] == [f"{NODE3}|fan1=OK", "|disk2=CRITICAL"]
    assert f"disk2 of node {NODE3} has status CRITICAL" in done.text
    (helper / f"health.{NODE3}").write_text('[["fan1", "broken"]]')
    done = cluster.run(*health, NODE3)
    assert done.exit_code == 1 and f"{NODE3}|(nodata)" in done.stdout
    assert "expected rows of item and status" in done.text
    (helper / f"fail.{NODE3}").touch()
    done = power(cluster, "status", NODE3, NODE4)
    assert done.exit_code == 1
    assert "no answer from its board" in done.text
    assert [f"{NODE3}|(nodata)", f"{NODE4}|powered"] == done.stdout.splitlines()[-2:]
    # It could not be switched off, so it counts as powered.
    done = power(cluster, "off", "-f", NODE3)
    assert done.exit_code == 1
    assert cluster.rows("gnt-node", "list", "-o", "powered", NODE3) == [["Y"]]
    (helper / f"fail.{NODE3}").unlink()
    modify(cluster, NODE3, "--offline=no").ok()
    agreed(cluster)
    verified(cluster)
