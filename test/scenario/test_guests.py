"""Real guests under QEMU in a virtual cluster: install, boot, live migration, failover, death."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import serial_line
from harness import Cluster, Finished, alive, wait_until

pytestmark = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None, reason="QEMU (qemu-system-x86) is not installed"
)

NAME = "web1.example.com"


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    made = Cluster(cluster_directory, 2, "--hypervisor", "kvm")
    made.create.ok()
    try:
        yield made
    finally:
        made.destroy()


def console(cluster: Cluster, node: str) -> str:
    log = cluster.path(node, f"var/log/ganeti/kvm/{NAME}.console.log")
    return log.read_text(errors="replace") if log.exists() else ""


def uptimes(text: str) -> list[tuple[str, int]]:
    """(boot id, seconds) of each line in which the guest counts its uptime."""
    return [(found[1], int(found[2])) for found in re.finditer(r"boot (\S+) uptime (\d+) s", text)]


def type_in(
    cluster: Cluster,
    node: str,
    line: str,
    done: Callable[[], bool],
    what: str,
    *,
    has_booted: bool = True,
) -> None:
    """Type a line on the guest's console until it has worked.

    While the guest's shell asks the terminal for its size, it takes no notice of a line.

    :param has_booted: on this node; else it has come from another one.
    """
    if has_booted:
        wait_until(lambda: "shell on the serial console" in console(cluster, node), "it has booted")
    socket = str(cluster.path(node, f"var/run/ganeti/kvm-hypervisor/ctrl/{NAME}.serial"))

    def attempt() -> bool:
        try:
            with serial_line.connected(socket, 5) as serial:
                serial.sendall(f"\n{line}\n".encode())
                end = time.monotonic() + 5
                while not done() and time.monotonic() < end:
                    time.sleep(0.1)
        except OSError:
            # The guest may have gone, which may be what was wanted.
            pass
        return done()

    wait_until(attempt, what)


def qemu_pid(cluster: Cluster, node: str) -> int:
    return int(cluster.path(node, f"var/run/ganeti/kvm-hypervisor/pid/{NAME}").read_text())


def test_life_of_a_guest(cluster: Cluster) -> None:
    first, second = cluster.node_names
    cluster.run(
        "gnt-instance", "add", "-t", "sharedfile", "-s", "16M", "-o", "tiny", "-n", first, NAME
    ).ok()
    wait_until(lambda: len(uptimes(console(cluster, first))) >= 2, "the guest counts its uptime")

    # Live migration: the same boot goes on counting on the other node.
    boot, before = uptimes(console(cluster, first))[-1]
    cluster.run("gnt-instance", "migrate", "-f", "-n", second, NAME).ok()
    wait_until(lambda: uptimes(console(cluster, second)), "the guest speaks on the second node")
    boot_after, after = uptimes(console(cluster, second))[-1]
    assert boot_after == boot and after >= before
    assert cluster.rows("gnt-instance", "list", "-o", "pnode,status") == [[second, "running"]]
    assert not cluster.path(first, f"var/run/ganeti/kvm-hypervisor/pid/{NAME}").exists()

    # Failover: a new boot on the first node.
    cluster.run("gnt-instance", "failover", "-f", "-n", first, NAME).ok()
    wait_until(
        lambda: any(found != boot for found, _ in uptimes(console(cluster, first))),
        "the guest has booted again",
    )
    pid = qemu_pid(cluster, first)
    cluster.run("gnt-instance", "shutdown", NAME).ok()
    assert not alive(pid)

    # Death of the process is seen, and starting again mends it.
    cluster.run("gnt-instance", "start", NAME).ok()
    os.kill(qemu_pid(cluster, first), signal.SIGKILL)
    wait_until(
        lambda: cluster.rows("gnt-instance", "list", "-o", "status") == [["ERROR_down"]],
        "the list shows that the guest is down",
    )
    cluster.run("gnt-cluster", "verify").failed(NAME)
    cluster.run("gnt-instance", "start", NAME).ok()
    assert cluster.rows("gnt-instance", "list", "-o", "status") == [["running"]]
    cluster.run("gnt-instance", "remove", "--force", NAME).ok()
    assert list((cluster.directory / "shared").rglob("*disk*")) == []


def test_qemu_that_dies_at_start_says_why(cluster: Cluster) -> None:
    node = cluster.node_names[0]
    done = cluster.run(
        "gnt-instance", "add", "-t", "sharedfile", "-s", "16M", "-o", "tiny", "-n", node,
        "-H", "kvm:kvm_extra=-no-such-option", NAME,
    )  # fmt: skip
    done.failed("no-such-option")
    if cluster.rows("gnt-instance", "list", "-o", "name"):
        assert "gnt-instance" in done.text
        cluster.run("gnt-instance", "remove", "--force", NAME).ok()
    assert not cluster.path(node, f"var/run/ganeti/kvm-hypervisor/pid/{NAME}").exists()
    assert "ERROR" not in cluster.run("gnt-cluster", "verify").ok().text


@pytest.mark.long
def test_a_shutdown_from_inside_is_no_crash(cluster: Cluster) -> None:
    """Not after a crash, and not before the administrator allows it."""
    node = cluster.node_names[0]

    def state() -> list[list[str]]:
        return cluster.rows("gnt-instance", "list", "-o", "status")

    cluster.run("gnt-cluster", "modify", "--user-shutdown=yes").ok()
    assert cluster.on(node, "daemon-util", "check", "ganeti-kvmd").exit_code == 0
    cluster.run(
        "gnt-instance",
        "add",
        "-t",
        "sharedfile",
        "-s",
        "16M",
        "-o",
        "tiny",
        "-n",
        node,
        "-H",
        "kvm:user_shutdown=yes",
        NAME,
    ).ok()
    type_in(
        cluster,
        node,
        "power off",
        lambda: state() == [["USER_down"]],
        "the list says who wanted it",
    )
    cluster.run("ganeti-watcher", "--no-verify-disks").ok()
    assert state() == [["USER_down"]], "the watcher leaves it alone"
    cluster.path(node, f"var/log/ganeti/kvm/{NAME}.console.log").unlink()
    cluster.run("gnt-instance", "start", NAME).ok()
    assert state() == [["running"]]
    os.kill(qemu_pid(cluster, node), signal.SIGKILL)
    wait_until(lambda: state() == [["ERROR_down"]], "a crash is a crash")
    cluster.run("gnt-instance", "shutdown", NAME).ok()
    assert state() == [["ADMIN_down"]]
    cluster.run("gnt-instance", "remove", "--force", NAME).ok()
    cluster.run("gnt-cluster", "modify", "--user-shutdown=no").ok()
    assert cluster.on(node, "daemon-util", "check", "ganeti-kvmd").exit_code != 0


def test_node_daemons_restart_under_a_guest(cluster: Cluster) -> None:
    """They find it again: facts, memory, devices, migration, and its end from inside."""
    first, second = cluster.node_names
    cluster.run("gnt-cluster", "modify", "--user-shutdown=yes").ok()
    cluster.run(
        "gnt-instance",
        "add",
        "-t",
        "sharedfile",
        "-s",
        "16M",
        "-o",
        "tiny",
        "-n",
        first,
        "-O",
        "quiet=yes",
        "-B",
        "minmem=64M,maxmem=112M",
        "-H",
        "kvm:user_shutdown=yes",
        NAME,
    ).ok()

    def says(node: str, command: str, pattern: str) -> bool:
        # Only the answer looks like the pattern, not what was typed.
        type_in(
            cluster,
            node,
            command,
            lambda: re.search(pattern, console(cluster, node)) is not None,
            pattern,
            has_booted=node == first,
        )
        return True

    assert says(first, "grep MemTotal /proc/meminfo", r"MemTotal: +\d+ kB")
    total_kib = int(re.findall(r"MemTotal: +(\d+) kB", console(cluster, first))[-1])
    before = {daemon: cluster.pid(first, daemon) for daemon in ("ganeti-noded", "ganeti-kvmd")}
    for node in (first, second):
        for daemon in before:
            for verb in ("stop", "start"):
                cluster.on(node, "daemon-util", verb, daemon).ok()
    assert not any(alive(pid) for pid in before.values())

    def facts() -> list[str]:
        return cluster.rows("gnt-instance", "list", "-o", "pnode,status,oper_ram")[0]

    assert facts() == [first, "running", "112"]
    cluster.run("gnt-instance", "modify", "--runtime-memory=80M", NAME).ok()
    wait_until(lambda: facts()[2] == "80", "the node sees the balloon")
    assert says(first, "grep MemTotal /proc/meminfo", f"MemTotal: +{total_kib - (32 << 10)} kB")
    done = cluster.run("gnt-instance", "modify", "--disk", "add:size=8M", NAME).ok()
    assert "disk 1 of the running instance was changed" in done.text
    cluster.run("gnt-instance", "migrate", "-f", "-n", second, NAME).ok()
    assert facts() == [second, "running", "80"]
    assert says(second, "cat /sys/block/vdb/size", f"\n{8 << 11}\r?\n")
    type_in(
        cluster,
        second,
        "power off",
        lambda: facts()[1] == "USER_down",
        "its user did it",
        has_booted=False,
    )
    cluster.run("gnt-instance", "shutdown", NAME).ok()
    cluster.run("gnt-instance", "remove", "--force", NAME).ok()
    cluster.run("gnt-cluster", "modify", "--user-shutdown=no").ok()


def test_guest_from_a_disk_image(cluster: Cluster, tmp_path: Path) -> None:
    """A path, then an image of the catalogue with ``--image``; the guest sees the seed disk."""
    if shutil.which("qemu-img") is None:
        pytest.skip("qemu-img (qemu-utils) is not installed")
    node = cluster.node_names[0]
    top = Path(__file__).resolve().parents[2]
    for one in cluster.node_names:
        assert cluster.path(one, "srv/ganeti/os/image").samefile(top / "doc/examples/os/image")
    # What tiny installs is an image like any other.
    cluster.run(
        "gnt-instance",
        "add",
        "-t",
        "file",
        "-s",
        "16M",
        "-o",
        "tiny",
        "-n",
        node,
        "--no-start",
        NAME,
    ).ok()
    (made,) = cluster.path(node, "srv/ganeti/file-storage").rglob("*.file.*")
    image = tmp_path / "tiny.qcow2"
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", made, image], check=True)
    cluster.run("gnt-instance", "remove", "--force", NAME).ok()

    def add(*more: str) -> Finished:
        return cluster.run(
            "gnt-instance",
            "add",
            "-t",
            "file",
            "--disk",
            "0:size=24M",
            "-o",
            "image",
            "-n",
            node,
            "-O",
            f"image={image}",
            *more,
            NAME,
        )

    add("-O", "grow=perhaps").failed("parameter grow")
    add("-O", "ssh_key=me").failed("need a disk named cidata")
    cluster.run("gnt-os", "images", "fetch", "tiny", str(image)).ok()
    # The kernel of this image is not on its disk.
    tiny = cluster.directory / "tiny"
    cluster.run("gnt-os", "modify", "-H", f"kvm:kernel_path={tiny}/vmlinux", "image").ok()
    key = tmp_path / "id.pub"
    key.write_text("ssh-ed25519 AAAA me@desk\n")
    cluster.run(
        "gnt-instance", "add", "--image", "tiny", "-s", "24M", "-t", "file", "-n", node,
        "--metadata", f"ssh-key={key}", NAME,
    ).ok()  # fmt: skip
    log = cluster.path(node, f"var/log/ganeti/kvm/{NAME}.console.log")
    type_in(
        cluster,
        node,
        "tick off; cat /sys/block/vda/vda1/size; strings /dev/vdb",
        lambda: f'"fqdn": "{NAME}"' in log.read_text(errors="replace"),
        "the seed is there",
    )
    # The partition has grown with the disk.
    assert f"\n{(24 << 11) - 2048}" in log.read_text(errors="replace").replace("\r", "")
    cluster.run("gnt-instance", "remove", "--force", NAME).ok()
