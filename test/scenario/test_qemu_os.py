"""The OS definition "tiny": its scripts, its image, and a quiet guest."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kvm_node import (
    NAME,
    PATIENCE_S,
    TOP,
    Node,
    find_qemu,
    wait_until,
)

from ganeti.objects.instance import FilledInstance

pytestmark = pytest.mark.skipif(
    not os.access(find_qemu(), os.X_OK), reason="QEMU (qemu-system-x86) is not installed"
)


def test_os_scripts(node: Node, guest: FilledInstance, tmp_path: Path) -> None:
    disk = node.disk_file(guest)
    assert node.run_script("verify", guest).returncode == 1  # wants an argument
    renamed = node.instance(NAME)
    done = node.run_script(
        "rename", renamed, INSTANCE_NAME="new.example.com", OLD_INSTANCE_NAME=NAME
    )
    assert done.returncode == 0, done.stderr
    exported = subprocess.run(
        [TOP / "doc/examples/os/tiny/export"],
        env={"PATH": os.environ["PATH"], "EXPORT_DEVICE": str(disk)},
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    ).stdout
    assert exported == disk.read_bytes()
    other = tmp_path / "other"
    other.write_bytes(bytes(len(exported)))
    imported = subprocess.run(
        [TOP / "doc/examples/os/tiny/import"],
        input=exported,
        timeout=PATIENCE_S,
        check=False,
        env={
            "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
            "IMPORT_DEVICE": str(other),
            "INSTANCE_NAME": "copy.example.com",
        },
        capture_output=True,
    )
    assert imported.returncode == 0, imported.stderr
    listing = subprocess.run(
        ["debugfs", "-R", "cat /etc/hostname", f"{other}?offset=1048576"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        env={"PATH": "/sbin:/bin:/usr/sbin:/usr/bin"},
    )
    assert listing.stdout == "copy.example.com\n"


@pytest.mark.parametrize(
    "env, words",
    [
        ({"OSP_INTERVAL": "0"}, "parameter interval: '0'"),
        ({"OSP_INTERVAL": "1; reboot"}, "parameter interval"),
        ({"OSP_QUIET": "maybe"}, "parameter quiet: 'maybe'"),
        ({"OSP_IMAGE_DIR": "/nonexistent"}, "no boot image in /nonexistent. Run: devel/tiny-image"),
        ({"DISK_0_PATH": "/nonexistent/disk"}, "No such file or directory"),
        ({"INSTANCE_NAME": ""}, "INSTANCE_NAME is not set"),
    ],
)
def test_create_script_refuses_and_says_why(
    node: Node, guest: FilledInstance, env: dict[str, str], words: str
) -> None:
    disk = node.disk_file(guest)
    before = disk.read_bytes()
    argv = {
        "OSP_IMAGE_DIR": str(node.image),
        "DISK_COUNT": "1",
        "DISK_0_PATH": str(disk),
        "INSTANCE_NAME": NAME,
        "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
        **env,
    }
    done = subprocess.run(
        [TOP / "doc/examples/os/tiny/create"],
        env=argv,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert words in done.stderr and "Traceback" not in done.stderr
    assert disk.read_bytes() == before


def test_image_from_given_files(image: Path, tmp_path: Path) -> None:
    """Without network and packages; two at once make one image, and the OS definition with it."""
    modules = tmp_path / "modules"
    modules.mkdir()
    argv = [
        TOP / "devel/tiny-image",
        "-o",
        tmp_path / "image",
        "--offline",
        "--kernel",
        image / "vmlinux",
        "--modules",
        modules,
        "--busybox",
        image / "busybox",
        "--install-os",
        tmp_path / "os/tiny",
    ]
    builders = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    outputs = [builder.communicate(timeout=PATIENCE_S)[0] for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0], outputs
    # Only one of them built, the other found it ready.
    assert sorted("kernel vmlinux" in text for text in outputs) == [False, True], outputs
    assert (tmp_path / "image/vmlinux").read_bytes() == (image / "vmlinux").read_bytes()
    assert (tmp_path / "os/tiny/create").stat().st_mode & 0o111
    disk = tmp_path / "disk"
    disk.write_bytes(b"")
    os.truncate(disk, 16 << 20)
    done = subprocess.run(
        [tmp_path / "os/tiny/create"],
        capture_output=True,
        text=True,
        env={
            "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
            "DISK_COUNT": "1",
            "DISK_0_PATH": str(disk),
            "INSTANCE_NAME": NAME,
        },
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".image.lock",
        "disk",
        "image",
        "modules",
        "os",
    ]


def test_quiet_guest(node: Node) -> None:
    guest = node.instance("quiet.example.com")
    node.install(guest, OSP_QUIET="yes")
    node.start(guest)
    wait_until(lambda: "shell on the serial console" in node.console(guest), "the shell is there")
    node.shutdown(guest)
    assert node.lines(guest) == []
