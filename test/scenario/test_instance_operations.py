"""What is done to an instance in its life, through the commands, over real daemons."""

from __future__ import annotations

import json
from pathlib import Path

from harness import Cluster

WEB = "web.example.com"
LATER = "later.example.com"
NO_POLICY = "--ignore-ipolicy"


def files(cluster: Cluster) -> set[str]:
    """Disk files of all nodes: ``node1.example.com:web.example.com/NAME``, ``shared:...``."""
    places = {"shared": cluster.directory / "shared"}
    places |= {node: cluster.path(node, "srv/ganeti/file-storage") for node in cluster.node_names}
    return {
        f"{place}:{path.relative_to(top)}"
        for place, top in places.items()
        for path in top.rglob("*")
        if path.is_file()
    }


def fields(cluster: Cluster, names: str, instance: str = WEB) -> list[str]:
    (row,) = cluster.rows("gnt-instance", "list", "-o", names, instance)
    return row


def disk_file(cluster: Cluster, pattern: str) -> Path:
    """The only disk file of the instance with such a name."""
    found = {
        path.resolve()
        for path in cluster.directory.rglob(pattern)
        if path.is_file() and path.parent.name == WEB
    }
    (path,) = found
    return path


def content(cluster: Cluster, pattern: str) -> bytes:
    with disk_file(cluster, pattern).open("rb") as stream:
        return stream.read(8)


def write(cluster: Cluster, pattern: str, data: bytes) -> None:
    with disk_file(cluster, pattern).open("r+b") as stream:
        stream.write(data)


def test_devices_come_and_go(cluster: Cluster) -> None:
    cluster.make_os("noop")
    first = cluster.node_names[0]
    cluster.run(
        "gnt-instance",
        "add",
        "-t",
        "file",
        "-s",
        "4M",
        "-o",
        "noop",
        "-n",
        first,
        "--no-nics",
        NO_POLICY,
        "-B",
        "memory=128",
        WEB,
    ).ok()
    changed = cluster.run(
        "gnt-instance",
        "modify",
        NO_POLICY,
        "--disk",
        "add:size=8M,name=data",
        "--net",
        "add:ip=none,mode=user,name=lan",
        "--net",
        "add:mode=user",
        "-B",
        "maxmem=256",
        WEB,
    ).ok()
    assert " - disk/1 -> add:size=8,mode=rw" in changed.stdout
    assert " - be/maxmem -> 256" in changed.stdout
    assert fields(cluster, "disk.count,nic.count,be/maxmem") == ["2", "2", "256"]
    write(cluster, "*.disk1", b"precious")
    cluster.run(
        "gnt-instance", "modify", "--net", "lan:remove", "--disk", "data:access=r", WEB
    ).ok()
    assert fields(cluster, "nic.count") == ["1"]
    cluster.run("gnt-instance", "modify", "--disk", "data:detach", WEB).ok()
    assert fields(cluster, "disk.count") == ["1"]
    assert len(files(cluster)) == 2, "a detached disk was destroyed"
    cluster.run("gnt-instance", "modify", NO_POLICY, "--disk", "attach:name=data", WEB).ok()
    assert content(cluster, "*.disk1") == b"precious"
    cluster.run("gnt-instance", "modify", "--disk", "nosuch:remove", WEB).failed("nosuch")
    cluster.run("gnt-instance", "modify", "--disk", "0:size=1g", WEB).failed("grow-disk")
    cluster.run("gnt-instance", "modify", "--net", "0:mode=nosuch", WEB).failed("nosuch")
    cluster.run("gnt-instance", "modify", WEB).failed("at least one")
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


def test_the_stopped_instance_is_grown_renamed_reinstalled_and_converted(cluster: Cluster) -> None:
    cluster.run("gnt-instance", "reinstall", "-f", WEB).failed("marked 'up'")
    cluster.run("gnt-instance", "grow-disk", NO_POLICY, WEB, "1", "4M").ok()
    cluster.run("gnt-instance", "grow-disk", "--absolute", WEB, "1", "4M").failed("cannot shrink")
    assert fields(cluster, "disk.size/1") == ["12"]
    cluster.run("gnt-instance", "shutdown", WEB).ok()
    cluster.run("gnt-instance", "reinstall", "-f", "-o", "nosuch", WEB).failed("does not exist")
    cluster.run("gnt-instance", "reinstall", "-f", WEB).ok()
    renamed = cluster.run("gnt-instance", "rename", WEB, "www.example.com").ok()
    assert renamed.stdout.endswith(f"Instance '{WEB}' renamed to 'www.example.com'\n")
    assert "no script 'rename'" in renamed.stdout
    assert {name.split(":")[1].split("/")[0] for name in files(cluster)} == {"www.example.com"}
    cluster.run("gnt-instance", "rename", "www", WEB).ok()
    shown = cluster.run("gnt-instance", "activate-disks", WEB).ok().stdout.splitlines()
    assert [line.split(":")[1] for line in shown] == ["disk/0", "disk/1"]
    cluster.run("gnt-instance", "deactivate-disks", WEB).ok()
    cluster.run("gnt-instance", "modify", "-t", "sharedfile", WEB).ok()
    assert fields(cluster, "disk_template,disk.size/1,disk.name/1") == ["sharedfile", "12", "data"]
    assert {name.split(":")[0] for name in files(cluster)} == {"shared"}
    assert content(cluster, "*.sharedfile.disk1") == b"precious"
    cluster.run("gnt-instance", "modify", "--offline", WEB).ok()
    cluster.run("gnt-instance", "startup", WEB).failed("marked 'offline'")
    cluster.run("gnt-instance", "modify", "--online", WEB).ok()
    cluster.run("gnt-instance", "modify", "-t", "file", WEB).ok()


def test_it_moves_with_its_disks_and_loses_them(cluster: Cluster) -> None:
    first, second, third = cluster.node_names
    cluster.run("gnt-instance", "startup", WEB).ok()
    cluster.run("gnt-instance", "move", "-f", NO_POLICY, "-n", second, WEB).ok()
    assert fields(cluster, "pnode,status") == [second, "running"]
    assert {name.split(":")[0] for name in files(cluster)} == {second}
    assert content(cluster, "*.file.disk1") == b"precious"
    cluster.run("gnt-instance", "move", "-f", "-n", second, WEB).failed("already on node")
    cluster.run("gnt-instance", "recreate-disks", WEB).failed("marked 'up'")
    cluster.run("gnt-instance", "shutdown", WEB).ok()
    cluster.run("gnt-instance", "recreate-disks", WEB).failed("all disks")
    for path in cluster.path(second, "srv/ganeti/file-storage").rglob("*.disk1"):
        path.unlink()
    cluster.run("gnt-instance", "startup", WEB).failed("disk 1")
    cluster.run("gnt-instance", "shutdown", WEB).ok()
    said = cluster.run("gnt-instance", "recreate-disks", WEB).ok().text
    assert "disk 0 exists and is kept" in said
    cluster.run("gnt-instance", "startup", WEB).ok()
    # A guest which somebody left on another node: it must not run twice.
    guests = cluster.path(third, "var/run/ganeti/fake-hypervisor")
    if not guests.parent.is_dir():
        guests = cluster.path(third, "run/ganeti/fake-hypervisor")
    cluster.run("gnt-instance", "shutdown", WEB).ok()
    cluster.run("gnt-instance", "modify", "-t", "sharedfile", WEB).ok()
    guests.mkdir(parents=True, exist_ok=True)
    (guests / WEB).write_text("1\n128\n1\n")
    cluster.run("gnt-instance", "startup", WEB).failed(f"runs on node {third}")
    (guests / WEB).unlink()
    cluster.run("gnt-instance", "startup", WEB).ok()
    cluster.run("gnt-instance", "replace-disks", "-p", WEB).failed("only mirrored disks")
    cluster.run("gnt-instance", "remove", "-f", WEB).ok()
    assert files(cluster) == set()


def test_several_at_once(cluster: Cluster, tmp_path: Path) -> None:
    described = [
        {
            "name": f"many{number}.example.com",
            "disk_template": "diskless",
            "os_type": "noop",
            "pnode": cluster.node_names[number % 3],
            "beparams": {"memory": 128},
            "nics": [],
            "tags": ["crowd"],
        }
        for number in range(3)
    ]
    batch = tmp_path / "batch.json"
    batch.write_text(json.dumps(described))
    made = cluster.run("gnt-instance", "batch-create", str(batch)).ok()
    assert made.stdout.endswith("All instances created successfully.\n")
    cluster.run("gnt-instance", "batch-create", str(batch)).failed("already in the cluster")
    batch.write_text(json.dumps([{**described[0], "nosuch": 1}]))
    cluster.run("gnt-instance", "batch-create", str(batch)).failed("instance 0", "nosuch")
    cluster.run("gnt-instance", "shutdown", "--force-multiple", "--tags", "crowd").ok()
    states = {row[0] for row in cluster.rows("gnt-instance", "list", "-o", "status")}
    assert states == {"ADMIN_down"}
    cluster.run(
        "gnt-instance", "startup", "--force-multiple", "--primary", cluster.node_names[1]
    ).ok()
    states = cluster.rows("gnt-instance", "list", "-o", "name,status")
    assert [row[0] for row in states if row[1] == "running"] == ["many1.example.com"]
    for number in range(3):
        cluster.run("gnt-instance", "remove", "-f", f"many{number}").ok()
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


def test_reserved_then_made_then_gone(cluster: Cluster) -> None:
    cluster.make_os("noop")
    first, second = cluster.node_names[:2]
    before = files(cluster)
    cluster.run(
        "gnt-instance",
        "add",
        "--forthcoming",
        "-t",
        "file",
        "-s",
        "4M",
        "-n",
        second,
        "--net",
        "0:mode=user,mac=aa:00:00:77:77:77",
        "--ignore-ipolicy",
        "--tags",
        "soon",
        LATER,
    ).ok()
    assert files(cluster) == before
    assert cluster.rows("gnt-instance", "list", "-o", "name,pnode,status,forthcoming", LATER) == [
        [LATER, second, "ADMIN_down", "Y"]
    ]
    assert (
        "forthcoming, only its resources are reserved"
        in cluster.run("gnt-instance", "info", LATER).ok().stdout
    )
    refused = cluster.run("gnt-instance", "startup", LATER)
    assert refused.exit_code == 1 and "it is forthcoming" in refused.stderr
    # Nothing complains about what does not exist yet.
    cluster.run("gnt-cluster", "verify").ok()
    cluster.run("gnt-cluster", "verify-disks").ok()
    failed = cluster.run("gnt-instance", "add", "--commit", "-o", "nosuch", LATER)
    assert failed.exit_code == 1 and "nosuch" in failed.stderr
    cluster.run("gnt-instance", "add", "--commit", "-o", "noop", "--ignore-ipolicy", LATER).ok()
    assert cluster.rows(
        "gnt-instance", "list", "-o", "name,pnode,status,forthcoming,nic.macs,tags", LATER
    ) == [[LATER, second, "running", "N", "aa:00:00:77:77:77", "soon"]]
    cluster.run("gnt-instance", "remove", "-f", LATER).ok()
    assert files(cluster) == before
    cluster.run(
        "gnt-instance",
        "add",
        "--forthcoming",
        "-t",
        "diskless",
        "--no-nics",
        "-n",
        first,
        "--ignore-ipolicy",
        LATER,
    ).ok()
    cluster.run("gnt-instance", "remove", "-f", LATER).ok()
    assert LATER not in cluster.run("gnt-instance", "list", "-o", "name").ok().stdout
