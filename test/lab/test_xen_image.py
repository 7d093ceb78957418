"""A cloud image under a real Xen, on logical volumes and on a mirrored disk; its root grows.

The image has a full root file system in the last partition of its disk. The node enlarges both
with ``grow=filesystem``; without it the node enlarges the partition, and cloud-init in the guest
the file system, again after ``gnt-instance grow-disk``. The guest starts its own kernel, with
pygrub or, as is usual, with GRUB.
Part of ``make lab LAB=xen``; needs root and a mirror of Debian, as the image is made here.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import cloud_image
from lab import drbd
from lab.booted import booted
from lab.cluster import GROUP, Cluster
from lab.machines import Lab, Machine
from lab.waiting import wait_until

NAME = "web1"
_CONSOLE = f"/var/log/xen/console/guest-{NAME}.log"
#: Emulated on a busy machine, the guest may need long to boot.
_PATIENCE_S = 3600.0
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIpmTCpJ8cMGyXUBkTsYTvAHjnjXQC2cOZMcRCGDzHbX me@desk"
# The guest says at each boot how large its root file system is.
_USER_DATA = """#cloud-config
write_files:
  - path: /var/lib/cloud/scripts/per-boot/show
    permissions: "0755"
    content: |
      #!/bin/sh
      exec >/dev/hvc0
      echo "SHOW name=$(hostname)"
      echo "SHOW size=$(df -m --output=size / | tail -n 1)"
      echo "SHOW key=$(cat /home/debian/.ssh/authorized_keys)"
      echo "SHOW end"
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image. It is made before the machines start, which need the processors."""
    return cloud_image.made(tmp_path_factory.mktemp("cloud"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Iterator[Lab]:
    """Two machines under Xen, with memory for a guest of a whole system."""
    yield from booted(
        tmp_path_factory.mktemp("xen-image"), 2, "logs-xen-image", memory_mib=1792, dom0_mib=800
    )


@pytest.fixture(scope="module")
def cluster(lab: Lab, source: Path) -> Cluster:
    """A cluster whose catalogue has the image."""
    found = Cluster(lab)
    found.make()
    found.enable_xen("console=hvc0")
    with open(source, "rb") as stream:
        subprocess.run(
            [*found.master.ssh_argv(), "cat >/root/debian-12.qcow2"], stdin=stream, check=True
        )
    found.gnt("os", "images", "fetch", "debian-12", "/root/debian-12.qcow2")
    found.master.write("/root/id.pub", f"{_KEY}\n")
    found.master.write("/root/user-data", _USER_DATA)
    assert found.gnt("os", "images", "check").split("\n")[:2] == [
        "node1: debian-12 ok", "node2: debian-12 ok",
    ]  # fmt: skip
    # While a machine writes the image to its disk, it answers slowly.
    for machine in lab:
        machine.run("sync")
        found.wait_for_node(machine.name)
    return found


def add(cluster: Cluster, name: str, *words: str) -> str:
    return cluster.gnt(
        "instance", "add", "--image", "debian-12", "--no-nics", "--no-name-check", "--no-ip-check",
        *words, name,
    )  # fmt: skip


def file_system_mib(machine: Machine, device: str) -> tuple[int, int]:
    """Size of partition 1, and of the file system in it, which has no mistakes."""
    table = json.loads(machine.run(f"sfdisk --json --quiet {device}"))["partitiontable"]
    (root,) = (one for one in table["partitions"] if re.search(r"\D1$", one["node"]))
    place = f"'{device}?offset={root['start'] * 512}'"
    machine.run(f"e2fsck -fn {place}")
    # dumpe2fs has no such option.
    said = machine.run(f"debugfs -R 'show_super_stats -h' {place}")
    sizes = [int(re.search(rf"Block {word}: +(\d+)", said)[1]) for word in ("count", "size")]  # type: ignore[index]
    return root["size"] >> 11, sizes[0] * sizes[1] >> 20


def test_the_node_grows_the_file_system(cluster: Cluster) -> None:
    add(
        cluster, "small", "-t", "plain", "-n", "node1", "--disk", "0:size=1536M", "-O",
        "grow=filesystem", "-B", "memory=64", "--no-start",
    )  # fmt: skip
    cluster.gnt("instance", "activate-disks", "small")
    (device,) = cluster.master.run(f"ls -d /dev/{GROUP}/*disk0").split()
    partition, size = file_system_mib(cluster.master, device)
    # 128 MiB are before the partition, and less than 1 MiB behind it.
    assert (partition, size) == (1536 - 128 - 1, 1536 - 128 - 1)
    cluster.remove("small")


def console(machine: Machine) -> str:
    return machine.call(f"tr -d '\\r' <{_CONSOLE}").stdout


def shown(machine: Machine) -> dict[str, str]:
    """What the guest says when it has booted; forgets what it said before."""
    wait_until(
        lambda: re.search("SHOW end|Kernel panic", console(machine)),
        lambda: f"cloud-init has done everything: {console(machine)[-3000:]}",
        _PATIENCE_S,
        pause_s=3.0,
    )
    said = console(machine)
    machine.run(f": >{_CONSOLE}")
    return dict(re.findall(r"SHOW ([a-z]+)= *(.*)", said))


def test_the_guest_grows_its_file_system(cluster: Cluster) -> None:
    """On a mirrored disk. A guest of type pv is the fastest one in an emulation."""
    (pygrub,) = cluster.master.run("ls -d /usr/lib/xen-*/bin/pygrub").split()
    add(
        cluster, NAME, "-t", "drbd", "-n", "node2:node1", "-s", "1280M", "-B", "memory=512",
        "-H", f"xen-pvm:use_bootloader=true,bootloader_path={pygrub}",
        "--metadata", "ssh-key=/root/id.pub,user-data=/root/user-data",
    )  # fmt: skip
    found = shown(cluster.lab["node2"])
    assert (found["name"], found["key"]) == (NAME, _KEY)
    assert 1000 < int(found["size"]) < 1280 - 128


def test_it_grows_once_more_with_its_disk(cluster: Cluster) -> None:
    cluster.gnt("instance", "grow-disk", NAME, "0", "512M")
    cluster.gnt("instance", "reboot", "--shutdown-timeout=600", NAME)
    found = shown(cluster.lab["node2"])
    assert found["name"] == NAME
    assert 1500 < int(found["size"]) < 1792 - 128
    states = [state for machine in cluster.lab for state in drbd.minors(machine).values()]
    assert len(states) == 4
    assert {(one.connection, one.local_disk) for one in states} == {("Connected", "UpToDate")}
    cluster.gnt("instance", "shutdown", "--timeout=600", NAME)
    cluster.remove(NAME)


def test_the_image_is_all_that_is_named(cluster: Cluster) -> None:
    """GRUB loads the kernel of the image, whose compression the one for type pv does not know."""
    add(cluster, NAME, "-t", "plain", "-n", "node1", "-B", "memory=256")
    assert cluster.fields("instance", NAME, "hv/type", "hv/kernel_path") == [
        "pvh", "/usr/lib/grub-xen/grub-i386-xen_pvh.bin",
    ]  # fmt: skip
    machine = cluster.lab["node1"]
    # After 100 % the kernel begins to run.
    wait_until(
        lambda: re.search(r"initrd\.img[^\[]* 100%|error:", console(machine)),
        lambda: f"GRUB has loaded the kernel: {console(machine)[-3000:]}",
        _PATIENCE_S,
        pause_s=3.0,
    )
    assert "error:" not in console(machine)
    cluster.remove(NAME)
