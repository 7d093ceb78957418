"""Machines with Debian's packages of the original Ganeti, for tests of the takeover.

Each machine is a chroot with namespaces of its own: mounts, processes, network, name. All share one
base, made by debootstrap, and write into their own layer above it. The machines are connected by a
switch (a bridge in a network namespace), and each runs a real SSH server.

The base is kept in the directory which ``GANETI_ORIGINAL_DIR`` names. Without this variable the
tests are skipped, because they need root, a mirror of Debian and some hundred MB.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import wait_until

VARIABLE = "GANETI_ORIGINAL_DIR"
#: Its value; the tests of virtual clusters remove all variables of this kind later.
PLACE = Path(os.environ.get(VARIABLE, ""))
CLUSTER = "cl.example.com"
#: Suite of Debian -> version of the original in it.
SUITES = {"bookworm": "3.0", "trixie": "3.1"}
_PACKAGES = "ganeti openssh-server iproute2 iputils-arping procps fdisk python3 cron-daemon-common"
#: What our package depends on; the machines find it in an archive of their own, without a network.
_OFFERED = (
    "iproute2 iputils-arping openssl procps python3-cryptography python3-numpy python3-openssl"
    " python3-pycurl python3-pyinotify python3-pyparsing python3-simplejson python3-yaml systemd"
)
_MORE = {"bookworm": "", "trixie": "python3-pyasyncore"}
_EMULATOR = {"bookworm": "qemu-system-x86 qemu-utils socat", "trixie": ""}
_ARCHIVE = "srv/archive"
_ENVIRONMENT = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND": "noninteractive",
}
# An OS definition which does nothing, as guests of the hypervisor "fake" need it.
_OS = r"""
mkdir -p /srv/ganeti/file-storage /srv/ganeti/os/noop /etc/ganeti/hooks/instance-add-post.d
cd /srv/ganeti/os/noop
echo 20 > ganeti_api_version; echo default > variants.list; : > parameters.list
for script in create import export rename verify; do
    printf '#!/bin/sh\nexit 0\n' > $script
    chmod 755 $script
done
printf '#!/bin/sh\nexit 0\n' > /etc/ganeti/hooks/instance-add-post.d/note
chmod 755 /etc/ganeti/hooks/instance-add-post.d/note
"""
_POLICY = "#!/bin/sh\nexit 101\n"

# Runs inside the new namespaces; $1 is the root, $2 the name, $3 the last part of the address.
_MACHINE = r"""
set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$4,upperdir=$5/upper,workdir=$5/work" "$1"
mount -t proc proc "$1/proc"; mount -t sysfs sysfs "$1/sys"; mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/run"; mount -t tmpfs tmpfs "$1/tmp"
mkdir -p "$1/run/lock" "$1/run/sshd"
hostname "$2"; ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link add xen-br0 type bridge; ip link set eth0 master xen-br0; ip link set eth0 up
ip addr add "192.0.2.$3/24" dev xen-br0; ip link set xen-br0 up
# The first process waits for orphans; the SSH server may be restarted.
exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c '/usr/sbin/sshd; while :; do sleep 1000; done'
"""


def has_own_network(pid: int) -> bool:
    """Whether a process has left the network of this one."""
    return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")


def reason_to_skip() -> str | None:
    """Why these tests cannot run here; None if they can."""
    if not PLACE.name:
        return f"{VARIABLE} does not name a directory for machines with the original Ganeti"
    if os.geteuid() != 0:
        return "machines with the original Ganeti need root"
    missing = [
        name
        for name in ("debootstrap", "dpkg-scanpackages", "unshare", "nsenter")
        if not shutil.which(name)
    ]
    return f"not installed: {', '.join(missing)}" if missing else None


def build_package(place: Path) -> Path:
    """Build our package from a clone of the last commit; returns its file.

    :param place: an empty directory.
    """
    top = Path(__file__).resolve().parents[2]
    checkout = place / "checkout"
    for argv in (
        ["git", "-c", f"safe.directory={top}/.git", "clone", "-q", f"file://{top}", str(checkout)],
        [f"{checkout}/devel/make-deb", "--no-lintian"],
    ):
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (checkout / "build/deb").glob("ganeti-py_*.deb")
    return found


def base(suite: str) -> Path:
    """Return the directory with Debian and the original; it is made when it is missing."""
    place = PLACE / f"base-{suite}"
    if (place / ".complete").exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    mirror = _mirror()
    log = (place.parent / f"base-{suite}.log").open("w")
    subprocess.run(
        ["debootstrap", "--variant=minbase", suite, str(place), *([mirror] if mirror else [])],
        check=True, stdout=log, stderr=subprocess.STDOUT,
    )  # fmt: skip
    source = f"deb {mirror or 'http://deb.debian.org/debian'} {suite} main\n"
    (place / "etc/apt/sources.list").write_text(source)
    for file in Path("/etc/apt/apt.conf.d").glob("99*"):
        shutil.copy(file, place / "etc/apt/apt.conf.d")
    shutil.copy("/etc/resolv.conf", place / "etc/resolv.conf")
    policy = place / "usr/sbin/policy-rc.d"
    policy.write_text(_POLICY)
    policy.chmod(0o755)
    (place / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    (place / _ARCHIVE).mkdir(parents=True)
    for words in (
        "apt-get -q update",
        f"apt-get -qy install --no-install-recommends {_PACKAGES} {_EMULATOR[suite]}",
        "ssh-keygen -q -t rsa -b 2048 -N '' -f /root/.ssh/id_rsa",
        "cp /root/.ssh/id_rsa.pub /root/.ssh/authorized_keys",
        "apt-get clean",
        f"apt-get -qy --download-only --no-install-recommends install {_OFFERED} {_MORE[suite]}",
        f"cd /{_ARCHIVE} && cp /var/cache/apt/archives/*.deb . &&"
        " apt-get -q download $(dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n' 'ganeti*' |"
        " sed -n 's/^ii *//p')",
    ):
        command = f"mount -t proc proc {place}/proc; exec chroot {place} sh -c {shlex.quote(words)}"
        subprocess.run(
            ["unshare", "-m", "sh", "-c", command],
            check=True, stdout=log, stderr=subprocess.STDOUT, env=_ENVIRONMENT,
        )  # fmt: skip
    listed = subprocess.run(
        ["dpkg-scanpackages", "."], cwd=place / _ARCHIVE, check=True, capture_output=True
    )
    (place / _ARCHIVE / "Packages").write_bytes(listed.stdout)
    (place / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:/{_ARCHIVE} ./\n")
    shutil.rmtree(place / "var/lib/apt/lists")
    command = f"mount -t proc proc {place}/proc; exec chroot {place} apt-get -q update"
    subprocess.run(
        ["unshare", "-m", "sh", "-c", command],
        check=True, stdout=log, stderr=subprocess.STDOUT, env=_ENVIRONMENT,
    )  # fmt: skip
    policy.unlink()
    hosts = "".join(
        f"192.0.2.{number} node{number}.example.com node{number}\n" for number in range(1, 6)
    )
    (place / "etc/hosts").write_text(f"127.0.0.1 localhost\n{hosts}192.0.2.10 {CLUSTER} cl\n")
    (place / "srv/ganeti").mkdir(parents=True, exist_ok=True)
    (place / "etc/ganeti/file-storage-paths").write_text("/srv/ganeti/file-storage\n")
    (place / ".complete").touch()
    return place


def _mirror() -> str | None:
    for file in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.sources")):
        if not file.exists():
            continue
        for line in file.read_text().splitlines():
            for word in line.split():
                if word.startswith("http") and word.endswith("/debian"):
                    return word
    return None


class Machine:
    """One machine: ``run`` executes a program on it."""

    def __init__(self, place: Path, number: int, suite: str, hub: int) -> None:
        self.number = number
        self.name = f"node{number}.example.com"
        self.address = f"192.0.2.{number}"
        self.place = place / f"node{number}"
        for part in ("root", "upper", "work"):
            (self.place / part).mkdir(parents=True)
        self.root = self.place / "root"
        self.hub = hub
        self.lower = base(suite)
        self.log = (self.place / "sshd.log").open("a")
        self.start()

    def start(self) -> None:
        """Start the machine: its namespaces, its network and its SSH server."""
        self.holder = subprocess.Popen(
            ["unshare", "-m", "-p", "-n", "-u", "-i", "-f", "--kill-child", "bash", "-c", _MACHINE,
             "_", str(self.root), self.name, str(self.number), str(self.lower), str(self.place)],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )  # fmt: skip
        self.pid = self._child()
        subprocess.run(
            ["nsenter", "-t", str(self.hub), "-n", "ip", "link", "add", f"port{self.number}",
             "type", "veth", "peer", "name", "eth0", "netns", str(self.pid)], check=True,
        )  # fmt: skip
        for words in (f"set port{self.number} master switch", f"set port{self.number} up"):
            subprocess.run(
                ["nsenter", "-t", str(self.hub), "-n", "ip", "link", *words.split()], check=True
            )
        listens = "test -e /run/sshd && ss -ltn | grep -q ':22 '"
        wait_until(
            lambda: self.run(listens, check=False).returncode == 0,
            f"{self.name} listens for SSH",
        )

    def _child(self) -> int:
        children = Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children")
        found: list[int] = []

        def separate() -> bool:
            words = children.read_text().split()
            found[:] = [int(words[0])] if words and has_own_network(int(words[0])) else []
            return bool(found)

        wait_until(separate, f"{self.name} has a network of its own")
        return found[0]

    def run(self, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command with the shell of the machine."""
        done = subprocess.run(
            self._inside("sh", "-c", command),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(
                f"{self.name}: {command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def _inside(self, *argv: str) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-u", "-i", "chroot",
                str(self.root), "env", "-i",
                *[f"{key}={value}" for key, value in _ENVIRONMENT.items()], *argv]  # fmt: skip

    def run_until(self, argv: Sequence[str], stop_at: Callable[[str], bool]) -> tuple[int, str]:
        """Run a program, and kill it after the first line for which a function says so.

        :returns: the exit code (-9 if it was killed), and what it has printed.
        """
        child = subprocess.Popen(
            self._inside(*argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        printed = []
        assert child.stdout is not None
        for line in child.stdout:
            printed.append(line)
            if stop_at(line):
                # The program itself: what it has started on other machines goes on.
                children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text()
                os.kill(int(children.split()[0]), signal.SIGKILL)
                child.stdout.read()
                child.wait()
                return -9, "".join(printed)
        return child.wait(), "".join(printed)

    def put(self, file: Path, target: str) -> None:
        """Copy a file of this machine to an absolute path on the machine."""
        shutil.copy(file, f"/proc/{self.pid}/root{target}")

    def stop(self) -> None:
        """End the machine and everything that runs on it, as a loss of power would."""
        self.holder.kill()
        self.holder.wait()
        # The namespaces end with their last process.
        wait_until(lambda: not Path(f"/proc/{self.pid}").exists(), f"{self.name} has ended")


class Lab:
    """Machines which are connected to each other.

    :param place: an empty directory for their files; not on an overlay file system.
    """

    def __init__(self, place: Path, suite: str, count: int) -> None:
        self.hub = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        wait_until(lambda: has_own_network(self.hub.pid), "the switch has a network of its own")
        for words in ("add switch type bridge", "set switch up"):
            subprocess.run(
                ["nsenter", "-t", str(self.hub.pid), "-n", "ip", "link", *words.split()], check=True
            )
        self.suite = suite
        self.place = place
        self.machines = [
            Machine(place, number, suite, self.hub.pid) for number in range(1, count + 1)
        ]
        self.master = self.machines[0]

    def close(self) -> None:
        """End all machines."""
        for machine in self.machines:
            machine.stop()
        self.hub.kill()
        self.hub.wait()

    def make_cluster(self, hypervisor: str = "fake", parameters: str = "") -> None:
        """Make a cluster of the original, with all machines, as its administrator would.

        :param parameters: parameters of the hypervisor, as ``NAME=VALUE,...``.
        """
        for machine in self.machines:
            machine.run(_OS)
        self.master.run(
            "gnt-cluster init --no-etc-hosts --master-netdev=xen-br0"
            f" --enabled-hypervisors={hypervisor}"
            f"{f' -H {hypervisor}:{parameters}' if parameters else ''}"
            " --enabled-disk-templates=file,diskless --file-storage-dir=/srv/ganeti/file-storage"
            f" --nic-parameters=mode=bridged,link=xen-br0 {CLUSTER}"
        )
        key = self.master.run("cat /root/.ssh/id_rsa.pub").stdout.strip()
        for machine in self.machines[1:]:
            machine.run(f"echo '{key}' >> /root/.ssh/authorized_keys")
            self.master.run(f"yes | gnt-node add --no-ssh-key-check {machine.name}")
        self.master.run("gnt-cluster modify -B minmem=128,maxmem=128")

    def add_instance(self, name: str, machine: Machine) -> None:
        """Add an instance of the hypervisor "fake" and start it."""
        self.master.run(
            f"gnt-instance add -t file -s 1G -B memory=128 -o noop+default -n {machine.name}"
            f" --no-name-check --no-ip-check --net 0:link=xen-br0 {name}"
        )
