"""A cluster of the original Ganeti on the machines, with Debian's packages, and our package beside.

The packages are those of the machines for ``test/scenario/original_lab.py``, in the directory which
``GANETI_ORIGINAL_DIR`` names, with what this image lacks. They come as an archive for apt, because
the machines have no other network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from lab import drbd
from lab.booted import booted
from lab.cluster import GROUP, Cluster
from lab.image import TOP
from lab.machines import Lab

VARIABLE = "GANETI_ORIGINAL_DIR"
# Tests of virtual clusters remove all variables of this kind later.
_PLACE = os.environ.get(VARIABLE, "")
NAME = "lab"
#: Where our package is on the machines.
PACKAGE = "/srv/ganeti-py.deb"
_ARCHIVE = "srv/archive"
#: What the original needs, and the image does not have.
_MORE = (
    "cron-daemon-common", "fping", "iputils-arping", "libpcre3", "python3-bitarray",
    "python3-psutil",
)  # fmt: skip
_IMAGE_MIB = 96
_BOUNDS = (
    "min:memory-size=32,cpu-count=1,disk-count=1,disk-size=16,nic-count=0,spindle-use=1/"
    "max:memory-size=8192,cpu-count=8,disk-count=16,disk-size=1048576,nic-count=8,"
    "spindle-use=12"
)
#: The kernel of paravirtual guests and of those of KVM, as parameters of a hypervisor.
KERNEL = "kernel_path=/usr/share/lab/vmlinux,initrd_path=/usr/share/lab/initrd"
_OF_KVM = (
    f"{KERNEL},kvm_path=/usr/bin/qemu-system-x86_64,serial_console=true,disk_cache=none,"
    "vnc_bind_address=,"
    "kernel_args=ro quiet mitigations=off nokaslr tsc=reliable no_timer_check cryptomgr.notests"
    " lpj=4000000"
)


def reason_to_skip() -> str | None:
    """Why there cannot be a cluster of the original with a guest here; None if there can."""
    if not os.environ.get("LAB_GUEST"):
        return "a guest within a machine is slow; set LAB_GUEST=1"
    if not _PLACE or not (Path(_PLACE) / "base-bookworm" / ".complete").exists():
        return f"{VARIABLE} names no directory with the packages; test_takeover.py makes it"
    missing = [name for name in ("apt-get", "dpkg-scanpackages") if not shutil.which(name)]
    return f"not installed: {', '.join(missing)}" if missing else None


def machines(directory: Path, count: int, logs: str, *, under_xen: bool = False) -> Iterator[Lab]:
    """Start machines for a fixture, with the packages of the original instead of the project.

    :param logs: name of the directory for their logs.
    """
    memory = {"memory_mib": 1536, "dom0_mib": 800} if under_xen else {}
    yield from booted(directory, count, logs, project_writer=write_image, **memory)


def write_image(image: Path) -> None:
    """Write a file system with an archive of the original, and with our package.

    :param image: the file to write.
    """
    tree = image.with_suffix(".tree")
    shutil.rmtree(tree, ignore_errors=True)
    place = Path(_PLACE) / "base-bookworm"
    shutil.copytree(place / _ARCHIVE, tree / _ARCHIVE)
    archive = tree / _ARCHIVE
    subprocess.run(["apt-get", "-q", "download", *_MORE], cwd=archive, check=True)
    listed = subprocess.run(
        ["dpkg-scanpackages", "."], cwd=archive, check=True, capture_output=True
    )
    (archive / "Packages").write_bytes(listed.stdout)
    subprocess.run(
        [TOP / "devel/make-deb", "--no-lintian"], check=True, capture_output=True, text=True
    )
    (package,) = (TOP / "build/deb").glob("ganeti-py_*.deb")
    shutil.copy(package, tree / PACKAGE[1:])
    image.unlink(missing_ok=True)
    subprocess.run(
        ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-d", tree, image, f"{_IMAGE_MIB}M"],
        check=True,
    )
    shutil.rmtree(tree)


class OriginalCluster(Cluster):
    """A cluster of the original; our commands have the same names later."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self.install_blocks_os()

    def make_original(self, hypervisor: str = "kvm", parameters: str = _OF_KVM) -> None:
        """Install the original on all machines, and make a cluster of them.

        :param hypervisor: the one of its guests.
        :param parameters: those of the hypervisor, as ``NAME=VALUE,...``.
        """
        for machine in self.lab:
            machine.run(
                f"echo 'deb [trusted=yes] file:/{_ARCHIVE} ./' >/etc/apt/sources.list;"
                " rm -f /etc/apt/sources.list.d/*; apt-get -q update"
            )
            machine.run(
                "DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install"
                " ganeti ganeti-3.0 ganeti-haskell-3.0 ganeti-htools-3.0"
            )
            machine.run(f"pvcreate -q /dev/mapper/lab0 && vgcreate -q {GROUP} /dev/mapper/lab0")
        self.gnt(
            "cluster", "init", "--no-etc-hosts", "--master-netdev=eth0",
            "--secondary-ip", self.master.secondary_ip, "--vg-name", GROUP,
            "--enabled-disk-templates=drbd,plain", "--drbd-usermode-helper=/bin/true",
            f"--enabled-hypervisors={hypervisor}", "--ipolicy-bounds-specs", _BOUNDS,
            "-H", f"{hypervisor}:{parameters}", NAME,
        )  # fmt: skip
        for machine in self.lab.machines[1:]:
            self.master.run(
                "yes | gnt-node add --no-ssh-key-check"
                f" --secondary-ip={machine.secondary_ip} {machine.name}"
            )

    def version(self) -> str:
        """What the commands on the master say of themselves."""
        return self.master.run("gnt-cluster --version")

    def replicas(self) -> list[str]:
        """The only disk with its minors and its secret, and the states of the replicas."""
        (disk,) = self.config()["disks"].values()
        states = [
            [
                (number, state.connection, state.local_disk)
                for number, state in drbd.minors(machine).items()
            ]
            for machine in self.lab
        ]
        return [str(disk["logical_id"]), str(states)]

    def unpack_ours(self) -> str:
        """Unpack our package on the master, beside the original; returns the program."""
        self.master.run(f"dpkg-deb -x {PACKAGE} /root/ganeti-py")
        return f"/root/ganeti-py/usr/sbin/ganeti-takeover --package={PACKAGE}"
