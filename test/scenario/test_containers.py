"""Real containers of LXC and real directories with chroot, through the commands, as root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SteadyCluster, made, wait_until

from ganeti.hypervisor.lxc.cgroups import Cgroups

PROGRAMS = ("lxc-start", "busybox", "mkfs.ext4", "sfdisk")
WEB, DIR = "web1.example.com", "dir1.example.com"
NODE1, NODE2 = "node1.example.com", "node2.example.com"
LXC_ROOT = "var/run/ganeti/lxc"
MOUNTS = "var/lib/lxc/ganeti"
MAC = "aa:00:00:11:22:33"

#: An init which ends when LXC asks, and writes down what it sees.
INIT = """#!/bin/sh
trap 'echo halted >> /halted; exit 0' PWR
export PATH=/bin
echo start >> /starts
grep CapBnd /proc/self/status > /capabilities
while :; do sleep 1 & wait $!; done
"""
#: The script of a chroot, whose daemon mounts something below.
SCRIPT = """#!/bin/sh
export PATH=/bin
echo "$1" >> /verbs
[ "$1" = stop ] && exec test ! -e /broken-stop
[ -e /broken-start ] && echo no way >&2 && exit 3
mount -t tmpfs none /tmp
sleep 100000 &
exit 0
"""
#: An OS whose variant says whether the disk is a file system or has a partition table.
CREATE = r"""set -e
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p $root/bin $root/dev $root/proc $root/sys $root/etc $root/tmp $root/sbin
cp "$(command -v busybox)" $root/bin/busybox
for name in sh sleep grep echo test mount cat ip; do ln -s busybox $root/bin/$name; done
cat > $root/sbin/init <<'INIT'
@INIT@INIT
cat > $root/ganeti-chroot <<'SCRIPT'
@SCRIPT@SCRIPT
chmod 755 $root/sbin/init $root/ganeti-chroot
if [ "$OSP_TABLE" = yes ]; then
    echo '2048,,L' | sfdisk --quiet "$DISK_0_PATH"
    mkfs.ext4 -q -F -E offset=1048576 -d $root "$DISK_0_PATH" 60M
else
    mkfs.ext4 -q -F -d $root "$DISK_0_PATH"
fi
""".replace("@INIT@", INIT).replace("@SCRIPT@", SCRIPT)


def _missing() -> str | None:
    """Why this machine cannot run containers, or None."""
    if os.geteuid() != 0:
        return "containers need root"
    for program in PROGRAMS:
        if shutil.which(program) is None:
            return f"the program {program} is missing (packages lxc, busybox-static, fdisk)"
    return Cgroups().problem()


pytestmark = pytest.mark.skipif(_missing() is not None, reason=_missing() or "it can")


@pytest.fixture(scope="module")
def two(cluster_directory: Path) -> Iterator[SteadyCluster]:
    with made(SteadyCluster(cluster_directory, 2, "--hypervisor", "fake")) as one:
        templates = "sharedfile,diskless"
        one.run(
            "gnt-cluster", "modify", "--enabled-hypervisors", "fake,lxc,chroot", "--user-shutdown",
            "yes", "--enabled-disk-templates", templates, "--ipolicy-disk-templates", templates,
        ).ok()  # fmt: skip
        one.make_os("busybox", CREATE)
        for node in (NODE1, NODE2):
            (one.path(node, "srv/ganeti/os/busybox") / "parameters.list").write_text("table yes/no")
        add(one, "lxc", WEB, "--no-nics", "--no-start")
        yield one
        for name in (WEB, DIR):
            one.run("gnt-instance", "shutdown", "--timeout", "0", name)


@pytest.fixture
def stopped(two: SteadyCluster) -> SteadyCluster:
    """The cluster while the container does not run."""
    two.run("gnt-instance", "shutdown", WEB).ok()
    return two


@pytest.fixture
def running(two: SteadyCluster) -> SteadyCluster:
    """The cluster while the container runs."""
    if status(two, WEB) != "running":
        two.run("gnt-instance", "shutdown", WEB).ok()
        two.start_instances(WEB)
    return two


def add(cluster: SteadyCluster, hypervisor: str, name: str, *options: str) -> None:
    cluster.run(
        "gnt-instance", "add", "-t", "sharedfile", "--disk", "0:size=64M", "-B",
        "memory=64M,vcpus=1", "-o", "busybox", "-H", hypervisor, "--no-name-check", "-n", NODE1,
        *options, name,
    ).ok()  # fmt: skip


def status(cluster: SteadyCluster, name: str) -> str:
    return cluster.places()[name][1]


def lxc(cluster: SteadyCluster, node: str, program: str, *words: str) -> str:
    argv = [program, f"--lxcpath={cluster.path(node, LXC_ROOT)}", f"--name={WEB}", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def init_of(cluster: SteadyCluster, node: str = NODE1) -> int:
    return int(lxc(cluster, node, "lxc-info", "--pid", "--no-humanize"))


def seen(pid: int, path: str) -> str:
    """A file as the container has it."""
    return Path(f"/proc/{pid}/root{path}").read_text()


def capabilities(pid: int) -> int:
    """The capabilities which the container may have, as soon as it has written them."""
    wait_until(lambda: len(seen(pid, "/capabilities").split()) == 2, "the capabilities are known")
    return int(seen(pid, "/capabilities").split()[1], 16)


def nothing_left(cluster: SteadyCluster) -> None:
    """No mount, loop device, interface, process or file of a container of this cluster."""
    place = str(cluster.directory)
    assert place not in Path("/proc/self/mounts").read_text()
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        assert place not in backing.read_text()
    assert f"@{place}" not in Path("/proc/net/unix").read_text()
    for node in (NODE1, NODE2):
        root = cluster.path(node, LXC_ROOT)
        assert not root.exists() or [path.name for path in root.iterdir()] == [".lock"]
        mounts = cluster.path(node, MOUNTS)
        assert not mounts.exists() or not list(mounts.iterdir())


def test_life_of_a_container(running: SteadyCluster) -> None:
    two, pid = running, init_of(running)
    starts = seen(pid, "/starts")
    # The default capabilities are dropped: mac_override, sys_boot, sys_module, sys_time, sys_admin.
    bounding = capabilities(pid)
    assert not any(bounding >> number & 1 for number in (32, 22, 16, 25, 21))
    # The node sees the file system only through the process.
    assert not list(two.path(NODE1, f"{MOUNTS}/{WEB}/rootfs").iterdir())
    ((memory, vcpus),) = two.rows("gnt-instance", "list", "-o", "oper_ram,oper_vcpus", "--units=m")
    assert (memory, vcpus) == ("64", "1")
    two.run("gnt-instance", "modify", "--force", "-m", "40M", WEB).ok()
    ((memory,),) = two.rows("gnt-instance", "list", "-o", "oper_ram", "--units=m")
    assert memory == "40"
    two.run("gnt-instance", "reboot", "-t", "soft", WEB).ok()
    pid = init_of(two)
    assert seen(pid, "/starts") == f"{starts}start\n" and seen(pid, "/halted").endswith("halted\n")
    shown = two.run("gnt-instance", "console", "--show-cmd", WEB).ok().stdout
    assert f"lxc-console --lxcpath={two.path(NODE1, LXC_ROOT)} --name={WEB}" in shown
    two.run("gnt-instance", "migrate", "-f", WEB).failed("lxc cannot migrate")
    two.run("gnt-instance", "failover", "-f", "-n", NODE2, WEB).ok()
    assert two.places()[WEB] == (NODE2, "running")
    two.run("gnt-instance", "failover", "-f", "-n", NODE1, WEB).ok()
    two.run("gnt-instance", "shutdown", WEB).ok()
    nothing_left(two)


@pytest.mark.long
def test_it_survives_its_node_daemon(running: SteadyCluster) -> None:
    two, pid = running, init_of(running)
    two.kill_whole(NODE1, "ganeti-noded")
    two.power_on(NODE1)
    assert status(two, WEB) == "running" and init_of(two) == pid


def test_who_ended_it(running: SteadyCluster) -> None:
    two = running
    pid = init_of(two)

    def shut_down() -> bool:
        # An init which has just begun, and has no handler yet, does not get the signal.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGPWR)
        return status(two, WEB) == "USER_down"

    wait_until(shut_down, "its user has shut it down")
    two.run("gnt-instance", "shutdown", WEB).ok()
    two.start_instances(WEB)
    os.kill(init_of(two), signal.SIGKILL)
    wait_until(lambda: status(two, WEB) == "ERROR_down", "it has crashed")


@pytest.mark.long
def test_a_frozen_container_shuts_down(running: SteadyCluster) -> None:
    two = running
    halts = seen(init_of(two), "/starts").count("start")
    lxc(two, NODE1, "lxc-freeze")
    assert status(two, WEB) == "running"
    two.run("gnt-instance", "shutdown", WEB).ok()
    assert status(two, WEB) == "ADMIN_down"
    two.start_instances(WEB)
    assert seen(init_of(two), "/starts").count("start") == halts + 1
    assert seen(init_of(two), "/halted").endswith("halted\n")


@pytest.mark.long
def test_without_the_monitor_of_lxc_it_is_found_and_ended(running: SteadyCluster) -> None:
    """It never runs unseen: either the kernel ends it with its monitor, or it is listed."""
    two, pid = running, init_of(running)
    monitor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(monitor, signal.SIGKILL)
    inside = Path(f"/proc/{pid}/root/starts")
    wait_until(lambda: (status(two, WEB) == "running") == inside.exists(), "it is known")
    two.run("gnt-instance", "shutdown", "--timeout", "0", WEB).ok()
    wait_until(lambda: not inside.exists(), "it is gone")
    nothing_left(two)


@pytest.mark.long
def test_what_cannot_start_leaves_nothing(stopped: SteadyCluster) -> None:
    two = stopped
    add(two, "lxc", "bad.example.com", "--no-nics", "--no-install", "--no-start")
    two.run("gnt-instance", "start", "bad.example.com").failed("has no file system")
    two.run("gnt-instance", "remove", "-f", "bad.example.com").ok()
    # An unknown key of LXC, which only LXC itself can refuse.
    two.run("gnt-instance", "modify", "-H", "extra_config=lxc.nonsense=1", WEB).ok()
    try:
        two.run("gnt-instance", "start", WEB).failed()
        nothing_left(two)
    finally:
        two.run("gnt-instance", "modify", "-H", "extra_config=default", WEB).ok()


@pytest.mark.long
def test_a_disk_with_partitions(stopped: SteadyCluster) -> None:
    two = stopped
    two.run("gnt-instance", "reinstall", "-f", "-O", "table=yes", WEB).ok()
    two.start_instances(WEB)
    assert seen(init_of(two), "/starts") == "start\n"
    two.run("gnt-instance", "shutdown", WEB).ok()
    nothing_left(two)


@pytest.mark.long
def test_parameters_reach_the_container(stopped: SteadyCluster) -> None:
    two = stopped
    two.run(
        "gnt-instance", "modify", "-H",
        r"cpu_mask=0,drop_capabilities=sys_time,devices=c 1:3 rw\,c 1:5 r,num_ttys=2"
        r",extra_config=lxc.environment=A=b c", WEB,
    ).ok()  # fmt: skip
    two.start_instances(WEB)
    pid = init_of(two)
    assert b"A=b c" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert "Cpus_allowed_list:\t0\n" in Path(f"/proc/{pid}/status").read_text()
    bounding = capabilities(pid)
    assert not bounding >> 25 & 1 and bounding >> 22 & 1
    assert {path.name for path in Path(f"/proc/{pid}/root/dev").glob("tty?")} == {"tty1", "tty2"}
    read = ["lxc-attach", f"--lxcpath={two.path(NODE1, LXC_ROOT)}", f"--name={WEB}", "--"]
    for device, allowed in (("/dev/zero", True), ("/dev/urandom", False)):
        done = subprocess.run(
            [*read, "/bin/busybox", "head", "-c", "1", device], capture_output=True, check=False
        )
        assert (done.returncode == 0) == allowed, done.stderr
    names = ("cpu_mask", "drop_capabilities", "devices", "num_ttys", "extra_config")
    defaults = ",".join(f"{name}=default" for name in names)
    two.run("gnt-instance", "modify", "-H", defaults, WEB).ok()
    two.run("gnt-instance", "shutdown", WEB).ok()


def test_what_changes_while_it_runs(running: SteadyCluster) -> None:
    """Memory, processors and NICs; the console is kept."""
    two, pid = running, init_of(running)
    directory = two.path(NODE1, f"{LXC_ROOT}/{WEB}")
    groups = json.loads((directory / "ganeti.json").read_text())["groups"]
    mounts = Cgroups()

    def limit(controller: str, v2: str, v1: str) -> str:
        place = mounts._directory(groups, controller)
        return Path(f"{place}/{v2 if mounts.is_v2(controller) else v1}").read_text().split()[0]

    shown = two.run("gnt-instance", "modify", "-B", "vcpus=2", "-H", "cpu_mask=0", WEB).ok().stdout
    assert "the processors of the running instance were changed" in shown
    assert limit("cpu", "cpu.max", "cpu.cfs_quota_us") == "200000"
    assert "Cpus_allowed_list:\t0\n" in Path(f"/proc/{pid}/status").read_text()
    two.run("gnt-instance", "modify", "-B", "vcpus=1", "-H", "cpu_mask=default", WEB).ok()
    everywhere = Path("/proc/self/status").read_text().partition("Cpus_allowed_list:")[2]
    assert everywhere.split("\n")[0] in Path(f"/proc/{pid}/status").read_text()
    subprocess.run(["ip", "link", "add", "gnt-brhot", "type", "bridge"], check=True)
    try:
        nic = "add:mode=bridged,link=gnt-brhot,mac="
        two.run("gnt-instance", "modify", "--net", f"{nic}{MAC}", WEB).ok()
        two.run("gnt-instance", "modify", "--net", f"{nic}{MAC[:-2]}34", WEB).ok()
        inside = lxc(two, NODE1, "lxc-attach", "--", "/bin/ip", "link")
        assert inside.index("eth0") < inside.index(MAC) < inside.index("eth1")
        assert inside.count(",UP") >= 2
        two.run("gnt-instance", "modify", "--net", "0:modify,mac=aa:00:00:11:22:55", WEB).ok()
        two.run("gnt-instance", "modify", "--net", "1:remove", WEB).ok()
        inside = lxc(two, NODE1, "lxc-attach", "--", "/bin/ip", "link")
        assert "aa:00:00:11:22:55" in inside and "eth1" not in inside
        tap = (directory / "nic/0").read_text().strip()
        assert [path.name for path in Path("/sys/class/net/gnt-brhot/brif").iterdir()] == [tap]
        # With what it has now, it is started again.
        two.run("gnt-instance", "reboot", "-t", "soft", WEB).ok()
        assert "aa:00:00:11:22:55" in lxc(two, NODE1, "lxc-attach", "--", "/bin/ip", "link")
        two.run("gnt-instance", "modify", "--net", "0:remove", WEB).ok()
        assert "eth0" not in lxc(two, NODE1, "lxc-attach", "--", "/bin/ip", "link")
        assert not list(Path("/sys/class/net/gnt-brhot/brif").iterdir())
    finally:
        subprocess.run(["ip", "link", "delete", "gnt-brhot"], check=True)
    assert init_of(two) != pid
    lxc(two, NODE1, "lxc-attach", "--", "/bin/sh", "-c", "echo kept text >/dev/console")
    wait_until(
        lambda: "kept text" in two.run("gnt-instance", "console", "--log", WEB).ok().stdout,
        "the text is in the log",
    )


@pytest.mark.long
def test_more_disks(stopped: SteadyCluster) -> None:
    """The second disk is mounted; the container keeps what it writes there."""
    two = stopped
    two.run("gnt-instance", "modify", "--disk", "add:size=16M", WEB).ok()
    two.run("gnt-instance", "start", WEB).failed("which has no file system")
    nothing_left(two)
    shown = two.run("gnt-instance", "activate-disks", WEB).ok().stdout
    path = next(line.split(":")[2] for line in shown.splitlines() if ":disk/1:" in line)
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    two.start_instances(WEB)
    write = ["lxc-attach", "--", "/bin/sh", "-c"]
    lxc(two, NODE1, *write, "echo data >/mnt/disk1/file")
    two.run("gnt-instance", "modify", "--disk", "1:remove", WEB).failed("cannot be changed while")
    two.run("gnt-instance", "reboot", "-t", "soft", WEB).ok()
    assert seen(init_of(two), "/mnt/disk1/file") == "data\n"
    two.run("gnt-instance", "failover", "-f", "-n", NODE2, WEB).ok()
    assert seen(init_of(two, NODE2), "/mnt/disk1/file") == "data\n"
    two.run("gnt-instance", "failover", "-f", "-n", NODE1, WEB).ok()
    two.run("gnt-instance", "shutdown", WEB).ok()
    two.run("gnt-instance", "modify", "--disk", "1:remove", WEB).ok()
    nothing_left(two)


@pytest.mark.long
def test_network(stopped: SteadyCluster) -> None:
    """On a bridge while it runs; the container's end has the MAC address of the NIC."""
    two = stopped
    bridge = "gnt-brtest"
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    try:
        nic = f"add:mode=bridged,link={bridge},mac={MAC}"
        two.run("gnt-instance", "modify", "--net", nic, WEB).ok()
        two.start_instances(WEB)
        tap = two.path(NODE1, f"{LXC_ROOT}/{WEB}/nic/0").read_text().strip()
        assert Path(f"/sys/class/net/{bridge}/brif/{tap}").exists()
        inside = lxc(two, NODE1, "lxc-attach", "--", "/bin/ip", "link", "show", "eth0")
        assert MAC in inside
        two.run("gnt-instance", "reboot", "-t", "hard", WEB).ok()
        two.run("gnt-instance", "shutdown", WEB).ok()
        assert not list(Path(f"/sys/class/net/{bridge}/brif").iterdir())
        two.run("gnt-instance", "modify", "--net", "0:remove", WEB).ok()
    finally:
        subprocess.run(["ip", "link", "delete", bridge], check=True)


def test_life_of_a_directory(stopped: SteadyCluster) -> None:
    """The script's daemon and its mount end with the instance; so does what a failure left."""
    two = stopped
    add(two, "chroot", DIR, "--no-nics")
    assert status(two, DIR) == "running"
    root = two.path(NODE1, f"var/run/ganeti/chroot-hypervisor/{DIR}").resolve()
    assert (root / "verbs").read_text() == "start\n"
    assert f"{root}/tmp " in Path("/proc/self/mounts").read_text()
    shown = two.run("gnt-instance", "console", "--show-cmd", DIR).ok().stdout
    assert f"chroot {two.path(NODE1, 'var/run/ganeti/chroot-hypervisor')}/{DIR}" in shown
    two.run("gnt-instance", "reboot", DIR).ok()
    assert (root / "verbs").read_text() == "start\nstop\nstart\n"
    (root / "broken-stop").touch()
    # The script fails until the time is over; then its failure does not count.
    two.run("gnt-instance", "shutdown", "--timeout", "1", DIR).ok()
    assert not root.exists()
    nothing_left(two)
    two.start_instances(DIR)
    (root / "broken-start").touch()
    two.run("gnt-instance", "shutdown", "--timeout", "1", DIR).ok()
    two.run("gnt-instance", "start", DIR).failed("no way")
    assert status(two, DIR) == "ERROR_down" and not root.exists()
    nothing_left(two)
    two.run("gnt-instance", "shutdown", DIR).ok()
