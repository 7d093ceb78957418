"""OS definitions that others wrote, from Debian's packages and unmodified.

The packages are fetched and unpacked beside the test, not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import Cluster

TOP = Path(__file__).resolve().parents[2]
NAME = "web1.example.com"


def unpacked(package: str, directory: Path) -> Path:
    """The tree of a Debian package; skips the test where it cannot be had."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("Debian packages need apt-get and dpkg-deb")
    tree = TOP / "build/packages" / package
    if not tree.exists():
        options = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
        done = subprocess.run(
            ["apt-get", "-q", *options, "download", package],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"package {package} cannot be fetched: {done.stderr.strip()[-200:]}")
        (file,) = directory.glob(f"{package}_*.deb")
        part = directory / "tree"
        subprocess.run(["dpkg-deb", "-x", file, part], check=True)
        tree.parent.mkdir(parents=True, exist_ok=True)
        if not tree.exists():
            shutil.move(part, tree)
    return tree


@pytest.mark.long
def test_noop(cluster: Cluster, tmp_path: Path) -> None:
    """API 10, the oldest: no parameters, no variants, no verification."""
    definition = unpacked("ganeti-os-noop", tmp_path) / "usr/share/ganeti/os/noop"
    node, other, _ = cluster.node_names
    assert cluster.run("gnt-os", "list").ok().text.count("noop") == 0
    for one in cluster.node_names:
        cluster.path(one, "srv/ganeti/os/noop").symlink_to(definition)
    assert "noop" in cluster.run("gnt-os", "list").ok().text
    assert "valid" in cluster.run("gnt-os", "diagnose").ok().text
    cluster.run(
        "gnt-instance", "add", "-t", "file", "-s", "2M", "-o", "noop+variant", "-n", node, NAME
    ).failed("variant")
    cluster.run(
        "gnt-instance", "add", "-t", "file", "-s", "2M", "-o", "noop", "-n", node, NAME
    ).ok()
    (disk,) = cluster.path(node, "srv/ganeti/file-storage").rglob("*.file.*")
    disk.write_bytes(b"what a user has written".ljust(2 << 20, b"\0"))
    cluster.run("gnt-instance", "shutdown", NAME).ok()
    cluster.run("gnt-instance", "rename", NAME, "web2.example.com").ok()
    cluster.run("gnt-backup", "export", "-n", other, "web2.example.com").ok()
    cluster.run("gnt-instance", "remove", "--force", "web2.example.com").ok()
    cluster.run(
        "gnt-backup",
        "import",
        "-t",
        "file",
        "-n",
        other,
        "--src-node",
        other,
        "--src-dir",
        "web2.example.com",
        "web2.example.com",
    ).ok()
    (disk,) = cluster.path(other, "srv/ganeti/file-storage").rglob("*.file.*")
    assert disk.read_bytes().startswith(b"what a user has written")
    cluster.run("gnt-instance", "remove", "--force", "web2.example.com").ok()


@pytest.mark.long
@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("debootstrap", "udevadm", "losetup"))),
    reason="installing Debian needs root, debootstrap, udev and losetup",
)
def test_debootstrap(cluster_directory: Path, tmp_path: Path) -> None:
    """A real Debian on a disk; in a name space of mounts, so that /etc/default stays as it is."""
    tree = unpacked("ganeti-instance-debootstrap", tmp_path)
    definition = tree / "usr/share/ganeti/os/debootstrap"
    defaults = tmp_path / "default"
    shutil.copytree("/etc/default", defaults, symlinks=True)
    (defaults / "ganeti-instance-debootstrap").write_text(
        'SUITE="bookworm"\nGENERATE_CACHE="no"\nPARTITION_STYLE="none"\n'
        f'MIRROR="http://deb.debian.org/debian"\nCUSTOMIZE_DIR=""\n'
        f'VARIANTS_DIR="{tree}/etc/ganeti/instance-debootstrap/variants"\n'
    )
    # The definition of the package links to its file in /etc.
    copy = tmp_path / "debootstrap"
    shutil.copytree(definition, copy, symlinks=True)
    (copy / "variants.list").unlink()
    shutil.copy(tree / "etc/ganeti/instance-debootstrap/variants.list", copy)
    directory = cluster_directory.parent / "debootstrap"
    script = f"""
        set -e
        mount --bind {defaults} /etc/default
        trap "{TOP}/tools/vcluster destroy {directory} >/dev/null" EXIT
        {TOP}/tools/vcluster create -n 1 --hypervisor fake --no-tiny {directory}
        run() {{ {TOP}/tools/vcluster run {directory} "$@"; }}
        node=$(run gnt-node list --no-headers -o name)
        os={directory}/$node/srv/ganeti/os
        mkdir -p $os && cp -a {copy} $os/debootstrap
        run gnt-os diagnose
        if run gnt-instance add -t file -s 700M -o debootstrap+default -n $node \
            -O filesystem=ext4,colour=red {NAME}; then exit 9; fi
        run gnt-instance add -t file -s 700M -o debootstrap+default -n $node \
            -O filesystem=ext4 {NAME}
        disk=$(ls {directory}/$node/srv/ganeti/file-storage/{NAME}/*)
        debugfs -R "cat /etc/hostname" $disk
        debugfs -R "cat /etc/debian_version" $disk
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "has no parameters colour" in done.stderr
    name, version = done.stdout.splitlines()[-2:]
    assert (name, version[:2]) == (NAME, "12")
