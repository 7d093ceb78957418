"""Untrusted operating systems: installed in a real helper guest, which tells how it went."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster, Finished, alive, wait_until
from kvm_node import TOP

pytestmark = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None or shutil.which("mke2fs") is None,
    reason="QEMU (qemu-system-x86) or e2fsprogs is not installed",
)

SECRET = "do not tell 7c1f"
#: What the OS definition of these tests does is a parameter.
CREATE = """\
#!/bin/sh
printf %s "$OSP_KEY" | sha256sum
echo "disk $DISK_0_PATH, interfaces $NIC_COUNT, reinstall '$INSTANCE_REINSTALL'"
case $OSP_MODE in
  fail) echo "the widget is missing" >&2; exit 7 ;;
  hang) echo "thinking about it"; sleep 100000 ;;
esac
"""


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path, image: Path) -> Iterator[Cluster]:
    made = Cluster(cluster_directory, 1, "--hypervisor", "kvm")
    made.create.ok()
    try:
        node = made.node_names[0]
        helper = cluster_directory / "helper.img"
        subprocess.run(
            [
                TOP / "devel/helper-image",
                "-o",
                helper,
                "--tiny",
                image,
                "--install-os",
                made.path(node, "srv/ganeti/os/tiny-untrusted"),
            ],
            check=True,
            capture_output=True,
        )
        definition = made.path(node, "srv/ganeti/os/mode")
        definition.mkdir()
        (definition / "ganeti_api_version").write_text("20\n")
        (definition / "parameters.list").write_text("mode  what to do\nkey  a secret\n")
        for name, text in (("create_untrusted", CREATE), ("verify", "#!/bin/sh\n")):
            (definition / name).write_text(text)
            (definition / name).chmod(0o755)
        made.run(
            "gnt-cluster",
            "modify",
            f"--install-image={helper}",
            f"--zeroing-image={helper}",
            "--instance-communication-network=communication",
        ).ok()
        yield made
    finally:
        made.destroy()


def add(os_name: str, name: str, *more: str) -> tuple[str, ...]:
    return (
        "gnt-instance",
        "add",
        "-t",
        "file",
        "-s",
        "32M",
        "-o",
        os_name,
        "-n",
        "node1.example.com",
        *more,
        f"{name}.example.com",
    )


def end(program: subprocess.Popen[str]) -> Finished:
    """Wait for a command; nobody waits for ever."""
    out, err = program.communicate(timeout=900)
    return Finished(("gnt-instance",), program.returncode, out, err)


def console(cluster: Cluster, name: str) -> str:
    log = cluster.path(cluster.node_names[0], f"var/log/ganeti/kvm/{name}.example.com.console.log")
    return log.read_text(errors="replace") if log.exists() else ""


def nothing_left(cluster: Cluster) -> bool:
    """No guest, no copy of an image."""
    root = cluster.node_root(cluster.node_names[0])
    return not [
        *root.glob("var/lib/ganeti/helper/*"),
        *root.glob("var/run/ganeti/kvm-hypervisor/pid/*"),
    ]


@pytest.mark.long
def test_untrusted_systems(cluster: Cluster) -> None:
    """Two at once: one that works and boots, one that fails."""
    good = cluster.start(
        *add(
            "tiny-untrusted",
            "good",
            "-O",
            "interval=1",
            "--os-parameters-secret",
            f"root_password={SECRET}",
        )
    )
    bad = cluster.start(
        *add("mode", "bad", "-O", "mode=fail", "--os-parameters-secret", f"key={SECRET}")
    )
    end(bad).failed(
        "failed with exit code 7",
        "the widget is missing",
        "disk /dev/vdb, interfaces 1",
        hashlib.sha256(SECRET.encode()).hexdigest(),
    )
    end(good).ok()
    assert cluster.rows("gnt-instance", "list", "-o", "name,status") == [
        ["good.example.com", "running"]
    ]
    wait_until(
        lambda: "tiny: good.example.com boot 1-" in console(cluster, "good"),
        "what was installed boots",
    )
    cluster.run(
        "gnt-instance", "remove", "--force", "--shutdown-timeout", "0", "good.example.com"
    ).ok()
    assert nothing_left(cluster)
    assert cluster.run("gnt-debug", "metad", "list").ok().text == ""
    # No job, log, configuration or anything else holds the secret.
    for path in cluster.directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.long
def test_a_guest_that_hangs_is_ended(cluster: Cluster) -> None:
    """Both times; what it wrote until then reaches the user."""
    cluster.run(*add("mode", "web", "-O", "mode=hang", "--helper-shutdown-timeout", "10")).failed(
        "did not switch itself off within 10 s (--helper-shutdown-timeout)", "thinking about it"
    )
    cluster.run(*add("mode", "web", "-O", "mode=ok", "--helper-startup-timeout", "1")).failed(
        "did not ask for its task within 1 s (--helper-startup-timeout)"
    )
    assert cluster.rows("gnt-instance", "list", "-o", "name") == [] and nothing_left(cluster)


@pytest.mark.long
def test_a_guest_asks_its_node(cluster: Cluster) -> None:
    """A running guest with the interface, not only a helper."""
    cluster.run(*add("tiny", "web", "-c", "yes", "--no-start")).ok()
    cluster.run("gnt-instance", "start", "web.example.com").ok()
    try:
        assert (
            "web.example.com 169.254.0.1 os=tiny"
            in cluster.run("gnt-debug", "metad", "list").ok().text
        )
    finally:
        cluster.run(
            "gnt-instance", "remove", "--force", "--shutdown-timeout", "0", "web.example.com"
        ).ok()
    assert cluster.run("gnt-debug", "metad", "list").ok().text == ""


@pytest.mark.long
def test_free_space_is_overwritten(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.node_names[0]
    cluster.run(*add("tiny", "web", "--no-start")).ok()
    (disk,) = cluster.path(node, "srv/ganeti/file-storage/web.example.com").glob("*disk*")
    deleted = tmp_path / "deleted"
    deleted.write_bytes(b"what was deleted" + random.Random(1).randbytes(8 << 20))
    for command in (f"write {deleted} deleted", "rm deleted"):
        subprocess.run(
            ["debugfs", "-w", "-R", command, f"{disk}?offset={1 << 20}"],
            check=True,
            capture_output=True,
        )
    assert b"what was deleted" in disk.read_bytes()
    size = len(gzip.compress(disk.read_bytes(), 1))
    cluster.run("gnt-backup", "export", "-n", node, "--zero-free-space", "web.example.com").ok()
    assert b"what was deleted" not in disk.read_bytes()
    assert len(gzip.compress(disk.read_bytes(), 1)) < size - (7 << 20)
    cluster.run("gnt-instance", "start", "web.example.com").ok()
    wait_until(lambda: "tiny: web.example.com boot 1-" in console(cluster, "web"), "it boots")
    cluster.run(
        "gnt-instance", "remove", "--force", "--shutdown-timeout", "0", "web.example.com"
    ).ok()
    assert nothing_left(cluster)


@pytest.mark.long
def test_a_master_that_dies_leaves_nothing_that_lasts(cluster: Cluster) -> None:
    """Canceled, or killed with the helper running: the next operation begins anew."""
    node = cluster.node_names[0]
    pid_file = cluster.path(node, "var/run/ganeti/kvm-hypervisor/pid/web.example.com")
    cluster.run(*add("mode", "web", "-O", "mode=work", "--no-start")).ok()
    for how in ("cancel", "reinstall", "start", "shutdown", "remove"):
        cluster.run(
            "gnt-instance", "reinstall", "-f", "--submit", "-O", "mode=hang", "web.example.com"
        ).ok()
        wait_until(pid_file.exists, "the helper guest runs")
        wait_until(
            lambda: "contact=2" in cluster.run("gnt-debug", "metad", "list").text,
            "it has asked for its task",
        )
        helper = int(pid_file.read_text())
        if how == "cancel":
            job = cluster.rows("gnt-job", "list", "--no-headers", "-o", "id")[-1][0]
            cluster.run("gnt-job", "cancel", job).ok()
        else:
            cluster.kill_with_jobs(node)
            cluster.on(node, str(TOP / "daemons/daemon-util"), "start", "ganeti-masterd").ok()
            assert cluster.rows("gnt-instance", "list", "-o", "status") == [["ERROR_up"]]
        if how == "reinstall":
            cluster.run(
                "gnt-instance", "reinstall", "-f", "-O", "mode=work", "web.example.com"
            ).ok()
        elif how == "start":
            cluster.run("gnt-instance", "start", "web.example.com").ok()
            assert cluster.rows("gnt-instance", "list", "-o", "status") == [["running"]]
            cluster.run("gnt-instance", "shutdown", "--timeout", "0", "web.example.com").ok()
        elif how == "shutdown":
            cluster.run("gnt-instance", "shutdown", "web.example.com").ok()
        elif how == "remove":
            cluster.run("gnt-instance", "remove", "--force", "web.example.com").ok()
        wait_until(lambda: nothing_left(cluster), "the helper guest is gone")
        assert not alive(helper)


@pytest.mark.long
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None,
    reason="a real interface needs root and ip",
)
def test_a_real_wire(image: Path, tmp_path: Path) -> None:
    """Address by DHCP, port 80, and who takes another address is not heard."""
    output = tmp_path / "helper.img"
    subprocess.run(
        [TOP / "devel/helper-image", "-o", output, "--tiny", image], check=True, capture_output=True
    )
    done = subprocess.run(
        [
            "unshare",
            "--net",
            "--mount",
            sys.executable,
            TOP / "test/scenario/helper_wire.py",
            image,
            output,
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for wanted in (
        "exit code 0",
        "inet 169.254.0.7/16",
        '"name":"web1.example.com"',
        "the node answers",
        "not to another address",
        "interfaces left: 0",
    ):
        assert wanted in done.stdout, done.stdout + done.stderr
