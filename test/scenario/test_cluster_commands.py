"""Commands about the cluster as a whole, over real daemons: parameters, name, tags, files and
commands on all nodes, disks, emergency power-off, debugging.

One cluster of three nodes for all tests, which leave it as they find it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import PATIENCE_S, Cluster, Finished, alive

NODE1, NODE2, NODE3 = NODES = [f"node{number}.example.com" for number in (1, 2, 3)]
ADD = ("gnt-instance", "add", "-t", "sharedfile", "-s", "1g", "-o", "noop", "--no-nics")


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    made = Cluster(cluster_directory, 3, "--hypervisor", "fake")
    made.create.ok()
    made.make_os("noop")
    try:
        yield made
    finally:
        made.destroy()


def gnt(cluster: Cluster, *arguments: str) -> Finished:
    return cluster.run("gnt-cluster", *arguments)


def info(cluster: Cluster) -> dict[str, object]:
    found: dict[str, object] = json.loads(gnt(cluster, "info", "--output=json").ok().stdout)
    return found


def ssconf(cluster: Cluster, node: str, key: str) -> str:
    return cluster.path(node, f"var/lib/ganeti/ssconf_{key}").read_text().rstrip("\n")


# -- parameters ------------------------------------------------------------------


def test_parameters_reach_every_node(cluster: Cluster) -> None:
    gnt(
        cluster,
        "modify",
        "--uid-pool=1000-1010,2000",
        "--maintain-node-health=yes",
        "--user-shutdown=yes",
        "-B",
        "memory=256,vcpus=2",
        "--max-running-jobs=7",
        "--mac-prefix=aa:00:01",
        "--reserved-lvs=xenvg/swap",
    ).ok()
    for node in NODES:
        assert ssconf(cluster, node, "uid_pool") == "1000-1010\n2000"
        assert ssconf(cluster, node, "maintain_node_health") == "True"
        assert ssconf(cluster, node, "enabled_user_shutdown") == "True"
    known = info(cluster)
    assert known["max_running_jobs"] == 7
    assert known["mac_prefix"] == "aa:00:01"
    assert known["reserved_lvs"] == ["xenvg/swap"]
    # They hold for what is made now.
    cluster.run(*ADD[:-1], "-n", NODE2, "--net", "0:mac=generate", "fresh").ok()
    ((mac, memory, vcpus),) = cluster.rows(
        "gnt-instance", "list", "-o", "nic.mac/0,be/maxmem,be/vcpus", "--units=m", "fresh"
    )
    assert mac.startswith("aa:00:01:")
    assert (memory, vcpus) == ("256", "2")
    cluster.run("gnt-instance", "remove", "-f", "fresh").ok()
    gnt(cluster, "modify", "--remove-uids=1003", "--add-uids=3000-3001").ok()
    assert ssconf(cluster, NODE3, "uid_pool") == "1000-1002\n1004-1010\n2000\n3000-3001"
    gnt(
        cluster,
        "modify",
        "--uid-pool=",
        "--maintain-node-health=no",
        "--user-shutdown=no",
        "-B",
        "memory=128,vcpus=1",
        "--max-running-jobs=20",
        "--mac-prefix=aa:00:00",
        "--reserved-lvs=",
    ).ok()
    assert ssconf(cluster, NODE1, "uid_pool") == ""


def test_number_of_candidates(cluster: Cluster) -> None:
    def candidates() -> list[str]:
        return [
            name
            for name, role in cluster.rows("gnt-node", "list", "-o", "name,role")
            if role in "MC"
        ]

    gnt(cluster, "modify", "-C", "2").ok()
    assert candidates() == [NODE1, NODE2]
    assert not cluster.path(NODE3, "var/lib/ganeti/config.data").exists()
    assert ssconf(cluster, NODE2, "master_candidates") == f"{NODE1}\n{NODE2}"
    gnt(cluster, "modify", "-C", "10").ok()
    assert candidates() == NODES
    assert cluster.path(NODE3, "var/lib/ganeti/config.data").exists()


def test_what_would_break_something_is_refused(cluster: Cluster) -> None:
    cluster.run(*ADD, "-n", NODE2, "web").ok()
    before = info(cluster)
    no_group = "volume group nosuch" if shutil.which("vgs") else "LVM"
    for options, fragments in (
        (["--enabled-disk-templates=diskless,file"], ["sharedfile", "web"]),
        (["--enabled-hypervisors=kvm"], ["hypervisor fake", "web"]),
        (["--enabled-disk-templates=plain,sharedfile", "--vg-name=nosuch"], ["node1", no_group]),
        (["--file-storage-dir=/srv/elsewhere"], ["/srv/elsewhere", "not below"]),
        (["-H", "fake:migration_mode=bogus"], ["migration_mode"]),
        (["-I", "nosuch"], ["allocator nosuch"]),
        (["--mac-prefix=zz"], ["'zz'"]),
        (["--modify-etc-hosts=yes"], ["/etc/hosts"]),
    ):
        gnt(cluster, "modify", *options).failed(*fragments)
    gnt(cluster, "modify").failed("at least one")
    after = info(cluster)
    assert {**after, "mtime": 0} == {**before, "mtime": 0}
    cluster.run("gnt-instance", "remove", "-f", "web").ok()


def test_parameters_of_an_operating_system(cluster: Cluster) -> None:
    gnt(cluster, "modify", "-H", "kvm:kernel_args=quiet").ok()
    assert info(cluster)["hvparams"]["kvm"]["kernel_args"] == "quiet"  # type: ignore[index]
    words = gnt(cluster, "show-ispecs-cmd").ok().stdout.split()
    assert words[:3] == ["gnt-cluster", "init", "--ipolicy-std-specs"]


# -- name, tags ------------------------------------------------------------------


def test_another_name(cluster: Cluster) -> None:
    old = str(info(cluster)["name"])
    hosts = cluster.directory / "hosts"
    kept = hosts.read_text()
    address = next(line.split()[0] for line in kept.splitlines() if old in line)
    other = address.rsplit(".", 1)[0] + ".249"
    hosts.write_text(f"{kept}{other}\tother.example.com\n")
    try:
        gnt(cluster, "rename", "other.example.com").failed("terminal")
        gnt(cluster, "rename", "-f", old).failed("already")
        gnt(cluster, "rename", "-f", NODE2).failed("node2")
        gnt(cluster, "rename", "-f", "other.example.com").ok()
        for node in NODES:
            assert ssconf(cluster, node, "cluster_name") == "other.example.com"
            assert ssconf(cluster, node, "master_ip") == other
        gnt(cluster, "rename", "-f", old).ok()
    finally:
        hosts.write_text(kept)
    assert ssconf(cluster, NODE3, "master_ip") == address


def test_tags(cluster: Cluster) -> None:
    gnt(cluster, "add-tags", "site:lab", "owner:me").ok()
    assert gnt(cluster, "list-tags").ok().stdout.split() == ["owner:me", "site:lab"]
    assert ssconf(cluster, NODE3, "cluster_tags") == "owner:me\nsite:lab"
    assert gnt(cluster, "search-tags", "^site").ok().stdout == "/cluster site:lab\n"
    gnt(cluster, "search-tags", "nosuch").failed()
    gnt(cluster, "search-tags", "(").failed("regular expression")
    gnt(cluster, "remove-tags", "site:lab", "owner:me").ok()
    assert gnt(cluster, "list-tags").ok().stdout == ""


# -- files and commands on all nodes ---------------------------------------------


def test_a_file_for_all_nodes(cluster: Cluster) -> None:
    place = cluster.path(NODE1, "etc/ganeti/note")
    place.write_text("hello\n")
    place.chmod(0o640)
    gnt(cluster, "copyfile", "-n", NODE2, "/etc/ganeti/note").ok()
    assert cluster.path(NODE2, "etc/ganeti/note").read_text() == "hello\n"
    assert not cluster.path(NODE3, "etc/ganeti/note").exists()
    gnt(cluster, "copyfile", str(place)).ok()
    copy = cluster.path(NODE3, "etc/ganeti/note")
    assert (copy.stat().st_mode & 0o777, copy.stat().st_mtime) == (0o640, place.stat().st_mtime)
    copy.unlink()
    copy.mkdir()
    (copy / "note").mkdir()
    gnt(cluster, "copyfile", "/etc/ganeti/note").failed(NODE3)
    gnt(cluster, "copyfile", "/etc/ganeti/nosuch").failed("nosuch")


def test_a_command_on_all_nodes(cluster: Cluster) -> None:
    shown = gnt(cluster, "command", "echo $GANETI_HOSTNAME; test $GANETI_HOSTNAME != " + NODE2)
    ruler = "-" * 48
    assert shown.exit_code == 1
    assert shown.stdout == "".join(
        f"{ruler}\nnode: {node}\n{node}\n\nreturn code = {int(node == NODE2)}\n"
        for node in (NODE2, NODE3, NODE1)
    )
    shown = gnt(
        cluster,
        "command",
        "-M",
        "--failure-only",
        "-n",
        NODE2,
        "-n",
        NODE3,
        "echo x; test $GANETI_HOSTNAME != " + NODE2,
    )
    assert shown.exit_code == 1
    assert shown.stdout == f"{ruler}\n{NODE2}: x\nreturn code = 1\n"


# -- disks -----------------------------------------------------------------------


def test_disks_that_are_gone(cluster: Cluster) -> None:
    cluster.run(*ADD, "-n", NODE2, "web").ok()
    assert gnt(cluster, "verify-disks").ok().stdout == "No disks need to be activated.\n"
    assert gnt(cluster, "repair-disk-sizes").ok().stdout == ""
    (disk,) = cluster.directory.glob("shared/web*/*")
    with disk.open("ab") as stream:
        stream.truncate(1500 << 20)
    assert "1500 MiB, not 1024" in gnt(cluster, "repair-disk-sizes", "web").ok().stdout
    assert cluster.rows("gnt-instance", "list", "-o", "disk.sizes", "--units=m", "web") == [
        ["1500"]
    ]
    moved = disk.with_name("away")
    disk.rename(moved)
    shown = gnt(cluster, "verify-disks").failed("web")
    assert str(disk.name) in shown.stdout
    moved.rename(disk)
    gnt(cluster, "verify-disks").ok()
    cluster.kill(NODE3, "ganeti-noded", 19)  # its failure does not concern this disk
    try:
        gnt(cluster, "verify-disks").ok()
    finally:
        cluster.kill(NODE3, "ganeti-noded", 18)
    cluster.run("gnt-instance", "remove", "-f", "web").ok()


# -- emergency power-off ---------------------------------------------------------


def test_emergency_power_off_and_back(cluster: Cluster) -> None:
    """The helper ends a node's daemon, which is as good as its power."""
    program = cluster.directory / "oob"
    log = cluster.directory / "oob.log"
    program.write_text(f"""#!/bin/sh
echo "$1 $2" >> {log}
case $1 in
  power-off) {cluster.directory}/$2/cmd daemon-util stop ganeti-noded ;;
  power-on) {cluster.directory}/$2/cmd daemon-util start ganeti-noded ;;
esac > /dev/null
""")
    program.chmod(0o755)
    cluster.run(*ADD, "-n", NODE2, "web").ok()
    cluster.run(*ADD, "-n", NODE1, "stays").ok()
    cluster.run(*ADD, "-n", NODE2, "--no-start", "down").ok()
    gnt(cluster, "modify", f"--node-parameters=oob_program={program}").ok()
    gnt(cluster, "epo").failed("give either names of nodes")
    gnt(cluster, "epo", NODE1).failed("is the master")
    gnt(cluster, "epo", NODE2).failed("terminal")
    pid = cluster.pid(NODE2, "ganeti-noded")
    gnt(cluster, "epo", "-f", "--power-delay=0", NODE2, NODE3).ok()
    assert not alive(pid)
    assert log.read_text().splitlines() == [f"power-off {NODE2}", f"power-off {NODE3}"]
    assert cluster.rows("gnt-node", "list", "-o", "name,role,powered") == [
        [NODE1, "M", "Y"],
        [NODE2, "O", "N"],
        [NODE3, "O", "N"],
    ]
    assert cluster.rows("gnt-instance", "list", "-o", "name,admin_state", "web") == [["web", "up"]]
    gnt(cluster, "epo", "-f", NODE2).ok()
    log.write_text("")
    gnt(cluster, "epo", "--on", "-f", "--power-delay=0", "--groups", "default").ok()
    assert log.read_text().splitlines() == [f"power-on {NODE2}", f"power-on {NODE3}"]
    assert cluster.rows("gnt-node", "list", "-o", "name,role,powered") == [
        [NODE1, "M", "Y"],
        [NODE2, "C", "Y"],
        [NODE3, "C", "Y"],
    ]
    assert cluster.rows("gnt-instance", "list", "-o", "name,status") == [
        ["down", "ADMIN_down"],
        ["stays", "running"],
        ["web", "running"],
    ]
    gnt(cluster, "modify", "--node-parameters=oob_program=default").ok()
    for name in ("web", "stays", "down"):
        cluster.run("gnt-instance", "remove", "-f", name).ok()


# -- debugging -------------------------------------------------------------------


def test_the_job_queue_tests_itself(cluster: Cluster) -> None:
    shown = cluster.run("gnt-debug", "test-jobqueue").ok().stdout
    assert shown.endswith("Job queue test successful\n")


def test_secrets_stay_nowhere(cluster: Cluster) -> None:
    word = "unspeakable-7261"
    shown = cluster.run("gnt-debug", "test-osparams", f"--os-parameters-secret=a={word}").ok()
    assert f"secret parameter a has {len(word)} characters" in shown.stdout
    found = [
        path
        for path in cluster.directory.rglob("*")
        if path.is_file() and word.encode() in path.read_bytes()
    ]
    assert found == []


def test_a_delay_that_is_ended_early(cluster: Cluster) -> None:
    waiting = cluster.start("gnt-debug", "delay", "-i", "3600")
    assert waiting.stdout is not None
    path = waiting.stdout.readline().split("'")[1]
    # The name is too long for some machines, but not from its directory.
    script = (
        "import os, socket, sys; os.chdir(os.path.dirname(sys.argv[1]));"
        " socket.socket(socket.AF_UNIX).connect('sock')"
    )
    cluster.run(sys.executable, "-c", script, path).ok()
    out, err = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 0, err
    assert "ended early" in out


# -- verification ----------------------------------------------------------------


def test_faults_on_nodes_are_noticed(cluster: Cluster) -> None:
    """A fact that a node missed, a helper and a script that are not there, a tag shared."""
    fact = cluster.path(NODE2, "var/lib/ganeti/ssconf_cluster_tags")
    gnt(cluster, "modify", "--node-parameters=oob_program=/nonexistent/oob").ok()
    gnt(cluster, "add-tags", "htools:iextags:service").ok()
    for name in ("web1", "web2"):
        cluster.run(*ADD, "-n", NODE2, "--no-start", "--tags=service:web", name).ok()
    fact.chmod(0o644)
    fact.write_text("old\n")
    shown = gnt(cluster, "verify", "--error-codes").failed().stdout
    for code, text in (
        ("ECLUSTERFILECHECK:cluster:", f"missing or old on {NODE2}"),
        (f"ENODEOOBPATH:node:{NODE3}:", "/nonexistent/oob"),
        (f"EEXTAGS:node:{NODE2}:", "web1, web2 share the exclusive tag"),
    ):
        assert any(f"ERROR:{code}" in line and text in line for line in shown.splitlines()), shown
    for name in ("web1", "web2"):
        cluster.run("gnt-instance", "remove", "-f", name).ok()
    gnt(cluster, "remove-tags", "htools:iextags:service").ok()
    gnt(cluster, "modify", "--node-parameters=oob_program=default").ok()
    gnt(cluster, "redist-conf").ok()


def test_all_is_well_in_the_end(cluster: Cluster) -> None:
    shown = gnt(cluster, "verify", "--error-codes").ok()
    assert "ERROR" not in shown.stdout
    gnt(cluster, "upgrade", "--to", "3.1").ok()
    gnt(cluster, "upgrade", "--to", "9.9").failed("9.9")
