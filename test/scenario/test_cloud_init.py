"""A guest of a cloud image boots, and cloud-init does in it what the metadata say.

The image is made of Debian's packages, as distributions make theirs (``cloud-image``): GRUB,
cloud-init, a full root file system, and nothing which knows where it will run. As root
only, and where a mirror of Debian can be reached. Emulated, the guest boots for some minutes.
``CLOUD_IMAGE=FILE`` takes another image of Debian instead, such as one of cloud.debian.org.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster, made, wait_until

import cloud_image

NAME = "web1.example.com"
_PATIENCE_S = 3600.0
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIpmTCpJ8cMGyXUBkTsYTvAHjnjXQC2cOZMcRCGDzHbX me@desk"
_USER_DATA = """#cloud-config
write_files:
  - path: /srv/greeting
    content: from-the-user-data
runcmd:
  - - sh
    - -c
    - |
      {
        echo "SHOW name=$(hostname)"
        echo "SHOW file=$(cat /srv/greeting)"
        echo "SHOW size=$(df -m --output=size / | tail -n 1)"
        echo "SHOW key=$(cat /home/debian/.ssh/authorized_keys)"
        echo "SHOW address=$(ip -4 -o address show scope global)"
        echo "SHOW host-key=$(ls /etc/ssh/ssh_host_ed25519_key)"
        echo "SHOW end"
      } >/dev/ttyS0
"""
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("not installed: qemu-system-x86_64")
    return cloud_image.made(tmp_path_factory.mktemp("cloud"))


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path, image: Path) -> Iterator[Cluster]:
    with made(Cluster(cluster_directory, 1, "--hypervisor", "kvm")) as one:
        for node in one.node_names:
            assert one.path(node, "srv/ganeti/os/image").is_symlink()
        one.run("gnt-os", "images", "fetch", "debian-12", str(image)).ok()
        yield one


@pytest.mark.parametrize(
    "firmware",
    [
        pytest.param(["-s", "4G"], id="bios"),
        pytest.param(
            ["--disk", "0:size=4G", "--disk", "1:size=4M,name=cidata",
             "--disk", "2:size=4M,name=efivars",
             "-H", "kvm:kernel_path=,machine_version=q35,firmware=uefi"],
            id="uefi",
        ),
    ],
)  # fmt: skip
def test_cloud_init_in_the_guest(cluster: Cluster, tmp_path: Path, firmware: list[str]) -> None:
    if "firmware=uefi" in firmware[-1] and not os.path.exists("/usr/share/OVMF/OVMF_CODE_4M.fd"):
        pytest.skip("not installed: ovmf")
    key, data = tmp_path / "id.pub", tmp_path / "user-data"
    key.write_text(f"{_KEY}\n")
    data.write_text(_USER_DATA)
    cluster.run(
        "gnt-instance", "add", "-t", "file", "-n", cluster.master, "--image", "debian-12",
        *firmware, "-B", "memory=512", "--metadata", f"ssh-key={key},user-data={data}",
        "--ignore-ipolicy", NAME,
    ).ok()  # fmt: skip
    log = cluster.path(cluster.master, f"var/log/ganeti/kvm/{NAME}.console.log")

    def console() -> str:
        return log.read_text(errors="replace").replace("\r", "") if log.exists() else ""

    wait_until(
        lambda: "SHOW end" in console() or "Kernel panic" in console(),
        "cloud-init has done everything",
        patience_s=_PATIENCE_S,
    )
    shown = dict(re.findall(r"SHOW ([a-z-]+)= *(.*)", console()))
    assert shown["name"] == NAME.partition(".")[0]
    assert shown["file"] == "from-the-user-data"
    assert shown["key"] == _KEY
    # The partition has grown on the node, and the file system in the guest.
    assert 3500 < int(shown["size"]) < 4096
    assert "inet 10.0.2." in shown["address"], shown
    assert shown["host-key"] == "/etc/ssh/ssh_host_ed25519_key"
    cluster.run("gnt-instance", "remove", "-f", "--shutdown-timeout=0", NAME).ok()
    # The next guest of this name begins a new one.
    assert not log.exists()
