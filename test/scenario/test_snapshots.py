"""Snapshots that stay, through the commands, over real daemons and real files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import PATIENCE_S, Cluster, wait_until

from ganeti import storage
from ganeti.objects.disk import Disk
from ganeti.platform import paths
from ganeti.storage import file

WEB = "web.example.com"
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _system(cluster: Cluster) -> None:
    cluster.make_os("noop")


def stored(cluster: Cluster) -> list[Path]:
    """All files below the storage directories, each once."""
    places = [cluster.path(node, "srv/ganeti/file-storage") for node in cluster.node_names]
    return sorted(
        path
        for top in (*places, cluster.directory / "shared")
        for path in top.rglob("*")
        if path.is_file()
    )


def disks(cluster: Cluster) -> list[Path]:
    return [path for path in stored(cluster) if ".snap." not in path.name]


def snapshots(cluster: Cluster, *names: str) -> list[tuple[str, int, bool]]:
    rows = json.loads(
        cluster.run("gnt-instance", "list-snapshots", "-o", "json", *names).ok().stdout
    )
    assert all(row["instance"] == WEB for row in rows)
    return [(row["snapshot"], row["disk"], row["usable"]) for row in rows]


def healthy(cluster: Cluster) -> None:
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


@pytest.mark.parametrize("template", ["file", pytest.param("sharedfile", marks=pytest.mark.long)])
def test_there_and_back_again(cluster: Cluster, template: str) -> None:
    run = cluster.run
    run(
        "gnt-instance",
        "add",
        "-t",
        template,
        "--disk",
        "0:size=8M",
        "--disk",
        "1:size=4M",
        "-o",
        "noop",
        "-n",
        cluster.node_names[0],
        "--no-nics",
        "--ignore-ipolicy",
        WEB,
    ).ok()
    old = {}
    for path in disks(cluster):
        half = path.stat().st_size // 2
        path.write_bytes(os.urandom(half) + bytes(half))
        old[path] = path.read_bytes()
    # On a file system which cannot share blocks nothing is copied while the guest runs.
    live = run("gnt-instance", "snapshot", "--snapshot-name", "live", WEB)
    if live.exit_code:
        live.failed("--shutdown")
    else:
        run("gnt-instance", "remove-snapshot", WEB, "live").ok()
    assert len(stored(cluster)) == 2
    before = run("gnt-instance", "snapshot", "--shutdown", "--snapshot-name", "before", WEB).ok()
    assert before.stdout.endswith("before\n")
    assert cluster.rows("gnt-instance", "list", "-o", "status", WEB) == [["running"]]
    assert snapshots(cluster) == [("before", 0, True), ("before", 1, True)]
    run("gnt-instance", "snapshot", "--shutdown", "--snapshot-name", "before", WEB).failed(
        "already", "remove-snapshot"
    )
    run("gnt-instance", "restore-snapshot", "-f", WEB, "before").failed("gnt-instance shutdown")
    run("gnt-instance", "shutdown", WEB).ok()
    (later,) = run("gnt-instance", "snapshot", "--disks", "1", WEB).ok().stdout.splitlines()[-1:]
    assert snapshots(cluster, "web") == [("before", 0, True), (later, 1, True), ("before", 1, True)]
    for path in disks(cluster):
        path.write_bytes(os.urandom(path.stat().st_size))
    plan = run("gnt-instance", "restore-snapshot", "-f", "--dry-run", WEB, "before").ok()
    assert "copy snapshot before (8 MiB) to disk 0" in plan.text
    run("gnt-instance", "grow-disk", "--ignore-ipolicy", WEB, "0", "4M").ok()
    grown = run("gnt-instance", "restore-snapshot", "-f", WEB, "before").ok()
    assert "has grown since" in grown.text
    for path in disks(cluster):
        content = path.read_bytes()
        assert content[: len(old[path])] == old[path]
        assert not any(content[len(old[path]) :])
    healthy(cluster)
    if template == "file":
        run("gnt-instance", "move", "-f", "-n", cluster.node_names[1], WEB).failed(
            "would destroy snapshots", "remove-snapshot"
        )
    run(
        "gnt-instance", "modify", "-t", "file" if template == "sharedfile" else "sharedfile", WEB
    ).failed("would destroy snapshots")
    run("gnt-instance", "rename", WEB, "www.example.com").ok()
    run("gnt-instance", "rename", "www.example.com", WEB).ok()
    assert len(snapshots(cluster)) == 3
    run("gnt-instance", "startup", WEB).ok()
    run("gnt-instance", "remove-snapshot", WEB, later).ok()
    run("gnt-instance", "remove-snapshot", WEB, later).failed("has no snapshot")
    run("gnt-instance", "modify", "--disk", "1:remove", WEB).ok()
    assert snapshots(cluster) == [("before", 0, True)]
    run("gnt-instance", "remove", "-f", WEB).ok()
    assert stored(cluster) == []
    healthy(cluster)


@pytest.mark.long
def test_a_node_dies_while_it_copies(cluster: Cluster) -> None:
    """What it left is listed, verified without complaint, and removed by the clean-up."""
    run, node = cluster.run, cluster.node_names[0]
    run(
        "gnt-instance",
        "add",
        "-t",
        "file",
        "-s",
        "512M",
        "-o",
        "noop",
        "-n",
        node,
        "--no-nics",
        "--no-start",
        WEB,
    ).ok()
    (disk,) = disks(cluster)
    content = os.urandom(MIB)
    with disk.open("r+b") as stream:
        for _ in range(512):
            stream.write(content)
    job = cluster.start("gnt-instance", "snapshot", "--snapshot-name", "a", WEB)
    partial = Path(f"{disk}.snap.a~")
    wait_until(lambda: partial.exists() or job.poll() is not None, "the copy has begun")
    if job.poll() is not None:
        pytest.skip("this file system shares blocks: there is no moment to die in")
    cluster.kill_whole(node, "ganeti-noded")
    assert job.wait(PATIENCE_S) != 0
    assert partial.exists() and disk.exists()
    cluster.on(node, "ganeti-noded").ok()
    wait_until(
        lambda: cluster.run("gnt-instance", "list-snapshots").exit_code == 0 and snapshots(cluster),
        "the node answers again",
    )
    assert snapshots(cluster) == [("a", 0, False)]
    healthy(cluster)
    run("gnt-instance", "snapshot", "--snapshot-name", "a", WEB).failed("remove-snapshot")
    run("gnt-instance", "remove-snapshot", WEB, "a").ok()
    assert stored(cluster) == [disk]
    run("gnt-instance", "snapshot", "--snapshot-name", "a", WEB).ok()
    assert Path(f"{disk}.snap.a").read_bytes() == disk.read_bytes()
    run("gnt-instance", "remove", "-f", WEB).ok()
    assert stored(cluster) == []


# -- file systems which share blocks -----------------------------------------------------------


@pytest.fixture(params=["xfs", "btrfs"])
def shared_blocks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of that kind, in a file."""
    program = shutil.which(f"mkfs.{request.param}")
    if os.geteuid() != 0 or program is None:
        pytest.skip(f"needs root and mkfs.{request.param}")
    image, mount = tmp_path / "image", tmp_path / "mnt"
    mount.mkdir()
    with image.open("wb") as stream:
        stream.truncate(512 * MIB)
    subprocess.run([program, "-q", image], check=True, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", image, mount], check=False, capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.decode().strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_copy_of_one_moment_of_a_file_that_is_written_to(shared_blocks: Path) -> None:
    """One writes a number at two places, again and again: no snapshot has the second of a later
    round than the first."""
    far = 60 * MIB
    directory = "/srv/ganeti/file-storage/web"
    with paths.override(paths.Paths(str(shared_blocks))):
        file.create_dir(directory)
        disk = storage.device(
            Disk(dev_type="file", logical_id=("loop", f"{directory}/disk0"), size=64)
        )
        disk.create(64)
        ended = threading.Event()

        def write() -> None:
            descriptor = os.open(disk.path, os.O_WRONLY)
            number = 0
            while not ended.is_set():
                number += 1
                for place in (0, far):
                    os.pwrite(descriptor, number.to_bytes(8, "big"), place)
            os.close(descriptor)

        writer = threading.Thread(target=write)
        writer.start()
        seen = set()
        try:
            for count in range(50):
                disk.keep_snapshot(f"a{count}", 0, at_rest=False)
                with open(f"{disk.path}.snap.a{count}", "rb") as stream:
                    first, second = (
                        os.pread(stream.fileno(), 8, 0),
                        os.pread(stream.fileno(), 8, far),
                    )
                one, two = int.from_bytes(first, "big"), int.from_bytes(second, "big")
                assert two in (one, one - 1)
                seen.add(one)
        finally:
            ended.set()
            writer.join()
        assert len(seen) > 1, "nobody wrote"
        assert len(disk.kept_snapshots()) == 50
        disk.remove()
        assert os.listdir(os.path.dirname(disk.path)) == []
