"""Real containers on machines with systemd, control groups of version 2 alone, LVM and DRBD.

The init of the container writes numbered, checksummed blocks to its mirrored disk, each flushed,
and says on its console which of them are there for good. The node keeps the console. The container
is limited, stopped, ended, failed over and loses its node, and at each start it checks all blocks
from the first one on. Not part of the other runs: ``make lab LAB=lxc``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab import image, machines, systemd
from lab.booted import booted
from lab.cluster import Cluster
from lab.machines import Machine
from lab.waiting import wait_until

NAME = "box"
ROOT = "/var/run/ganeti/lxc"
_PATIENCE_S = 600.0
_OS = "/usr/share/ganeti/os/busybox"

_INIT = r"""#!/bin/sh
export PATH=/bin
exec </dev/console >/dev/console 2>&1
trap 'echo halted; exit 0' PWR
block() { set -- $1 $(echo "$1 lab" | md5sum); printf '%-63s\n' "block $1 $2"; }
last=0
[ -e /blocks ] || : >/blocks
while read -r word number sum; do
    set -- $(block $((last + 1)))
    [ "$word $number $sum" = "$*" ] || break
    last=$((last + 1))
done </blocks
echo "guest ready, $last blocks found"
while :; do
    last=$((last + 1))
    if block $last | dd of=/blocks bs=64 seek=$((last - 1)) conv=notrunc,fsync 2>/dev/null
    then echo "confirmed $last"
    else echo "failed $last"; last=$((last - 1))
    fi
    sleep 0.3 & wait $!
done
"""
_CREATE = r"""#!/bin/sh
set -e
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p $root/bin $root/sbin $root/dev $root/proc $root/sys $root/mnt
cp /bin/busybox $root/bin/busybox
for name in sh sleep echo md5sum printf dd ip cat; do
    ln -s busybox $root/bin/$name
done
cp /usr/share/ganeti/os/busybox/init $root/sbin/init
mkfs.ext4 -q -F -d $root "$DISK_0_PATH"
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machines.Lab]:
    """Two machines with systemd and LXC."""
    yield from booted(
        tmp_path_factory.mktemp("lxc"), 2, "logs-lxc", flavour=image.LXC, init=machines.SYSTEMD
    )


@pytest.fixture(scope="module")
def cluster(lab: machines.Lab) -> Cluster:
    """A cluster of them with an instance, whose container runs."""
    found = systemd.cluster_of(lab)
    for machine in lab:
        machine.write(f"{_OS}/ganeti_api_version", "20\n")
        machine.write(f"{_OS}/variants.list", "default\n")
        machine.write(f"{_OS}/init", _INIT, 0o755)
        machine.write(f"{_OS}/parameters.list", "")
        for script in ("import", "export", "rename", "verify"):
            machine.write(f"{_OS}/{script}", "#!/bin/sh\nexit 0\n", 0o755)
        machine.write(f"{_OS}/create", _CREATE, 0o755)
        machine.run("ip link add labbr type bridge; ip link set labbr up")
    found.gnt("cluster", "modify", "--enabled-hypervisors", "fake,lxc", "--user-shutdown=yes")
    found.gnt(
        "instance", "add", "-t", "drbd", "--disk", "0:size=64M", "-n", "node1:node2", "-B",
        "memory=64M,vcpus=1", "-H", "lxc", "-o", "busybox+default", "--net", "0:link=labbr",
        "--no-name-check", "--no-ip-check", NAME,
    )  # fmt: skip
    return found


def console(cluster: Cluster) -> str:
    """What the node of the container has kept of its console."""
    done = cluster.master.call(f"gnt-instance console --log --lines=5000 {NAME}")
    return done.stdout.replace("\r", "")


def confirmed(cluster: Cluster) -> int:
    """The last block which the container has confirmed."""
    found = re.findall(r"^confirmed (\d+)$", console(cluster), re.MULTILINE)
    return int(found[-1]) if found else 0


def primary(cluster: Cluster) -> Machine:
    return cluster.machine_of(cluster.nodes_of(NAME)[0])


def goes_on(cluster: Cluster) -> int:
    """Wait until the container confirms new blocks; return the last one."""
    before = confirmed(cluster)
    wait_until(lambda: confirmed(cluster) > before + 3, "the container goes on", _PATIENCE_S)
    return confirmed(cluster)


def starts(cluster: Cluster, at_least: int) -> None:
    """Wait until the container has started on its present node and found so many blocks."""

    def found() -> list[str]:
        return re.findall(r"guest ready, (\d+) blocks found", console(cluster))

    wait_until(lambda: found() and int(found()[-1]) >= at_least, "it starts", _PATIENCE_S)
    goes_on(cluster)


def status(cluster: Cluster) -> str:
    return cluster.fields("instance", NAME, "status")[0]


def group(machine: Machine, file: str) -> str:
    """A file of the container's control group, which is below its scope."""
    pid = init_of(machine)
    path = machine.run(f"cat /proc/{pid}/cgroup").strip()
    scope = f"0::/ganeti.slice/ganeti-guests.slice/ganeti-instance-{NAME}.scope/"
    assert path.startswith(scope), path
    return machine.run(f"cat /sys/fs/cgroup{path[3:]}/{file}").strip()


def init_of(machine: Machine) -> int:
    return int(machine.run(f"lxc-info -P {ROOT} -n {NAME} --pid --no-humanize"))


def nothing_left(machine: Machine) -> None:
    """No file, mount, interface or scope of the container."""
    assert machine.call(f"ls {ROOT}/{NAME}").returncode != 0
    assert machine.call(f"ls -d /var/lib/lxc/ganeti/{NAME}").returncode != 0
    assert "/ganeti/" not in machine.run("cat /proc/self/mounts")
    assert "gnt.tap" not in machine.run("ip -o link")
    assert NAME not in machine.run("systemctl list-units --plain --no-legend 'ganeti-instance-*'")


def test_control_groups_have_version_2_alone(cluster: Cluster) -> None:
    for machine in cluster.lab:
        mounts = machine.run("cat /proc/self/mounts")
        assert " cgroup2 " in mounts and " cgroup " not in mounts
    cluster.gnt("cluster", "verify")


def test_it_runs_within_its_limits(cluster: Cluster) -> None:
    starts(cluster, 0)
    machine = primary(cluster)
    assert status(cluster) == "running"
    assert group(machine, "memory.max") == str(64 << 20)
    assert group(machine, "cpu.max") == "100000 100000"
    assert "gnt.tap" in machine.run("ip -o link show master labbr")
    assert "eth0" in machine.run(f"lxc-attach -P {ROOT} -n {NAME} -- /bin/ip -o link")
    # The devices which it may open: /dev/zero, and not the disk of the node.
    attach = f"lxc-attach -P {ROOT} -n {NAME} -- /bin/busybox"
    machine.run(f"{attach} head -c 1 /dev/zero")
    assert machine.call(f"{attach} mknod /x b 252 0; {attach} head -c 1 /x").returncode != 0


def test_it_survives_its_node_daemon(cluster: Cluster) -> None:
    machine = primary(cluster)
    pid = init_of(machine)
    machine.run("systemctl restart ganeti-noded")
    cluster.wait_for_node(machine.name)
    assert init_of(machine) == pid and status(cluster) == "running"
    goes_on(cluster)


def test_memory_is_limited_while_it_runs(cluster: Cluster) -> None:
    machine = primary(cluster)
    cluster.gnt("instance", "modify", "--force", "-m", "40M", NAME)
    assert group(machine, "memory.max") == str(40 << 20)
    # What it uses in excess of that is refused, and its init goes on.
    hog = f"lxc-attach -P {ROOT} -n {NAME} -- /bin/busybox tail -c 60000000 /dev/zero"
    assert machine.call(hog).returncode != 0
    assert int(re.findall(r"oom_kill (\d+)", group(machine, "memory.events"))[0]) >= 1
    goes_on(cluster)


def test_processors_are_limited_while_it_runs(cluster: Cluster) -> None:
    machine = primary(cluster)
    said = cluster.gnt("instance", "modify", "-B", "vcpus=2", "-H", "cpu_mask=0", NAME)
    assert "the processors of the running instance were changed" in said
    assert group(machine, "cpu.max") == "200000 100000"
    assert group(machine, "cpuset.cpus") == "0"
    # Every processor again; the kernel takes no empty list of a running container.
    cluster.gnt("instance", "modify", "-B", "vcpus=1", "-H", "cpu_mask=", NAME)
    assert group(machine, "cpu.max") == "100000 100000"
    everything = machine.run("cat /sys/fs/cgroup/cpuset.cpus.effective").strip()
    assert group(machine, "cpuset.cpus.effective") == everything
    goes_on(cluster)


def test_nics_which_come_and_go(cluster: Cluster) -> None:
    """A routed NIC and one in Open vSwitch are plugged in; the node reaches the container."""
    machine = primary(cluster)
    machine.run("mkdir -p /run/openvswitch; /usr/share/openvswitch/scripts/ovs-ctl start"
                " --system-id=random --no-monitor; ovs-vsctl add-br labovs;"
                " ip addr add 198.51.100.1/24 dev labovs; ip link set labovs up")  # fmt: skip
    attach = f"lxc-attach -P {ROOT} -n {NAME} -- /bin/ip"
    cluster.gnt("instance", "modify", "--net", "add:mode=routed,link=,ip=192.0.2.7", NAME)
    machine.run(f"{attach} addr add 192.0.2.7/32 dev eth1; {attach} route add default dev eth1")
    assert "gnt.tap" in machine.run("ip route show 192.0.2.7")
    wait_until(
        lambda: machine.call("ping -c 1 -W 2 192.0.2.7").returncode == 0, "it answers", _PATIENCE_S
    )
    cluster.gnt("instance", "modify", "--net", "add:mode=openvswitch,link=labovs", NAME)
    machine.run(f"{attach} addr add 198.51.100.7/24 dev eth2")
    assert "gnt.tap" in machine.run("ovs-vsctl list-ports labovs")
    wait_until(
        lambda: machine.call("ping -c 1 -W 2 198.51.100.7").returncode == 0,
        "it answers",
        _PATIENCE_S,
    )
    cluster.gnt("instance", "modify", "--net", "2:remove", NAME)
    cluster.gnt("instance", "modify", "--net", "1:remove", NAME)
    assert machine.run("ip route show 192.0.2.7; ovs-vsctl list-ports labovs").strip() == ""
    inside = machine.run(f"{attach} -o link")
    assert "eth0" in inside and "eth1" not in inside
    goes_on(cluster)


def test_shutdown_reboot_and_its_user(cluster: Cluster) -> None:
    last = goes_on(cluster)
    cluster.gnt("instance", "reboot", NAME)
    starts(cluster, last)
    assert "halted" in console(cluster)
    last = goes_on(cluster)
    machine = primary(cluster)
    machine.run(f"kill -PWR {init_of(machine)}")
    wait_until(lambda: status(cluster) == "USER_down", "its user shut it down", _PATIENCE_S)
    cluster.gnt("instance", "shutdown", NAME)
    nothing_left(machine)
    assert systemd.failed_units(cluster.lab) == []
    cluster.gnt("instance", "start", NAME)
    starts(cluster, last)


def test_a_frozen_container_is_reported_and_waits(cluster: Cluster) -> None:
    """Its processes live. Neither a start nor the watcher lets them run unasked."""
    machine = primary(cluster)
    pid = init_of(machine)
    machine.run(f"lxc-freeze -P {ROOT} -n {NAME}")
    assert cluster.fields("instance", NAME, "status", "guest_state") == ["running", "frozen"]
    assert "halted: frozen" in cluster.gnt("instance", "info", NAME)
    said = cluster.master.call("gnt-cluster verify").stdout
    assert f"instance {NAME}: does not run, although it was started: frozen" in said
    assert "--continue" in cluster.fails("instance", "start", NAME)
    cluster.master.run("ganeti-watcher --wait-children")
    assert cluster.fields("instance", NAME, "guest_state") == ["frozen"]
    cluster.gnt("instance", "start", "--continue", NAME)
    assert cluster.fields("instance", NAME, "guest_state") == ["running"]
    goes_on(cluster)
    assert init_of(machine) == pid


def test_a_crashed_container_is_started_by_the_watcher(cluster: Cluster) -> None:
    last = goes_on(cluster)
    machine = primary(cluster)
    machine.run(f"kill -KILL {init_of(machine)}")
    wait_until(lambda: status(cluster) == "ERROR_down", "it crashed", _PATIENCE_S)
    cluster.master.run("ganeti-watcher --wait-children")
    wait_until(lambda: status(cluster) == "running", "it runs again", _PATIENCE_S)
    starts(cluster, last)


def test_failover(cluster: Cluster) -> None:
    last = goes_on(cluster)
    cluster.in_step(NAME)
    source = primary(cluster)
    cluster.gnt("instance", "failover", "-f", NAME)
    assert primary(cluster) is not source
    nothing_left(source)
    starts(cluster, last)


def test_its_node_loses_power(cluster: Cluster) -> None:
    """The other replica has every block which was confirmed."""
    cluster.in_step(NAME)
    machine = primary(cluster)
    assert machine is not cluster.master
    last = goes_on(cluster)
    machine.power_off()
    cluster.gnt("node", "modify", "--offline=yes", "--auto-promote", machine.name)
    cluster.gnt("instance", "failover", "-f", "--ignore-consistency", NAME)
    assert primary(cluster) is cluster.master
    starts(cluster, last)
    # Its other replica stays on the node which is off.
    cluster.gnt("instance", "remove", "-f", "--shutdown-timeout=0", "--ignore-failures", NAME)
    nothing_left(cluster.master)
