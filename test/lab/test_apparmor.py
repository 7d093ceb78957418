"""The profiles of AppArmor under a kernel which enforces them.

A machine with systemd, whose kernel enforces the profiles of ``ganeti-confd`` and ``ganeti-metad``
from their first start. A cluster is made, the watcher asks the configuration query daemon, a
container asks the metadata daemon, logs are rotated, and the daemons get users of their own. The
log of the kernel names nothing that a profile forbids, except what the last test tries. Part of no
other run: ``make lab LAB=test/lab/test_apparmor.py``, with the image of containers.
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

UTIL = "/usr/lib/ganeti/daemon-util"
DAEMONS = ("confd", "metad")
_PATIENCE_S = 900.0
_OS = "/srv/ganeti/os/asking"
_INIT = """#!/bin/sh
export PATH=/bin
exec </dev/console >/dev/console 2>&1
trap 'exit 0' PWR
url=http://169.254.169.254/ganeti/latest
for card in /sys/class/net/eth*; do
    ip link set "${card##*/}" up
    udhcpc -q -n -i "${card##*/}" -s /sbin/dhcp
done
until wget -q -O - $url/meta_data.json; do sleep 1; done
wget -q -O /package $url/os/package && echo "package: $(tar -t -f /package | wc -l) files"
wget -q -O - $url/os/scripts/verify && echo "script: read"
echo "everything was asked"
while :; do sleep 5 & wait $!; done
"""
_DHCP = """#!/bin/sh
[ "$1" = bound ] && ip address add "$ip/16" dev "$interface"
exit 0
"""
_CREATE = """#!/bin/sh
set -e
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p $root/bin $root/sbin $root/dev $root/proc $root/sys $root/mnt
cp /bin/busybox $root/bin/busybox
for name in sh sleep echo ip udhcpc wget tar wc cat; do ln -s busybox $root/bin/$name; done
cp /srv/ganeti/os/asking/init $root/sbin/init
cp /srv/ganeti/os/asking/dhcp $root/sbin/dhcp
chmod 755 $root/sbin/init $root/sbin/dhcp
mkfs.ext4 -q -F -d $root "$DISK_0_PATH"
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machines.Lab]:
    """A machine with systemd and AppArmor."""
    yield from booted(
        tmp_path_factory.mktemp("apparmor"),
        1,
        "logs-apparmor",
        flavour=image.LXC,
        init=machines.SYSTEMD,
    )


@pytest.fixture(scope="module")
def cluster(lab: machines.Lab) -> Cluster:
    """A cluster of it, whose daemons have never run without their profiles."""
    (machine,) = lab.machines
    for daemon in DAEMONS:
        machine.run(f"sed -i 's/complain, //' /etc/apparmor.d/ganeti-{daemon}")
        machine.run(f"apparmor_parser -r -W /etc/apparmor.d/ganeti-{daemon}")
    loaded = machine.run("cat /sys/kernel/security/apparmor/profiles")
    for daemon in DAEMONS:
        assert f"ganeti-{daemon} (enforce)" in loaded
    return systemd.cluster_of(lab)


def refused(machine: Machine) -> list[str]:
    """What the kernel has refused or would refuse, one line for each kind of access."""
    log = machine.run("dmesg | grep -E 'apparmor=\"(DENIED|ALLOWED)\"' || true")
    return sorted({re.sub(r"^.*?apparmor=|audit\([0-9.:]*\)| pid=\d+", "", line)
                   for line in log.splitlines() if 'profile="ganeti-' in line})  # fmt: skip


def confined(machine: Machine, daemon: str) -> str:
    """The profile of a daemon that runs."""
    pid = machine.run(f"systemctl show -P MainPID ganeti-{daemon}").strip()
    return machine.run(f"cat /proc/{pid}/attr/current").strip()


def test_the_daemons_of_a_new_cluster(cluster: Cluster) -> None:
    machine = cluster.master
    machine.run(f"{UTIL} start ganeti-metad")
    for daemon in DAEMONS:
        assert confined(machine, daemon) == f"ganeti-{daemon} (enforce)"
    cluster.gnt("cluster", "verify")
    # The watcher asks the configuration query daemon which node is the master.
    machine.run("ganeti-watcher")
    assert refused(machine) == []


def test_a_guest_asks_for_its_metadata(cluster: Cluster) -> None:
    machine = cluster.master
    for name, text in (
        ("ganeti_api_version", "20\n"),
        ("variants.list", "default\n"),
        ("parameters.list", ""),
        ("init", _INIT),
        ("dhcp", _DHCP),
        ("create", _CREATE),
        *((script, "#!/bin/sh\nexit 0\n") for script in ("import", "export", "rename", "verify")),
    ):
        machine.write(f"{_OS}/{name}", text, 0o755)
    cluster.gnt(
        "cluster", "modify", "--enabled-hypervisors", "fake,lxc",
        "--instance-communication-network=communication",
    )  # fmt: skip
    cluster.gnt(
        "instance", "add", "-t", "plain", "--disk", "0:size=64M", "-n", "node1", "-B",
        "memory=64M,vcpus=1", "-H", "lxc", "-o", "asking+default", "--communication=yes",
        "--no-nics", "--no-name-check", "--no-ip-check", "box",
    )  # fmt: skip

    def console() -> str:
        return machine.call("gnt-instance console --log --lines=500 box").stdout

    wait_until(
        lambda: "everything was asked" in console() or refused(machine),
        lambda: f"the guest has its answers:\n{console()}",
        _PATIENCE_S,
    )
    assert refused(machine) == []
    assert '"name"' in console()
    assert "package: " in console() and "script: read" in console()
    assert confined(machine, "metad") == "ganeti-metad (enforce)"


def test_restart_reload_and_rotation(cluster: Cluster) -> None:
    machine = cluster.master
    machine.run(f"{UTIL} rotate-all-logs")
    for daemon in DAEMONS:
        machine.run(f"systemctl restart ganeti-{daemon}")
        assert confined(machine, daemon) == f"ganeti-{daemon} (enforce)"
    cluster.gnt("cluster", "modify", "--candidate-pool-size", "5")
    cluster.gnt("instance", "reboot", "box")
    cluster.gnt("cluster", "verify")
    machine.run("ganeti-watcher")
    assert refused(machine) == []


def test_users_of_their_own(cluster: Cluster) -> None:
    machine = cluster.master
    machine.run("systemd-sysusers && sed -i 's/^#\\(.*gnt-\\)/\\1/' /etc/default/ganeti")
    machine.run(f"systemctl stop ganeti.target && {UTIL} stop-all")
    machine.run("/usr/lib/ganeti/ensure-dirs --full-run && systemctl start ganeti.target")
    machine.run(f"{UTIL} start ganeti-metad")
    for daemon, user in (("confd", "gnt-confd"), ("metad", "gnt-metad")):
        pid = machine.run(f"systemctl show -P MainPID ganeti-{daemon}").strip()
        assert machine.run(f"ps -o user:20= -p {pid}").strip() == user
        assert confined(machine, daemon) == f"ganeti-{daemon} (enforce)"
    wait_until(
        lambda: machine.call("gnt-cluster queue info").returncode == 0,
        "the master answers",
        _PATIENCE_S,
    )
    cluster.gnt("instance", "reboot", "box")
    cluster.gnt("cluster", "verify")
    machine.run("ganeti-watcher")
    assert refused(machine) == []
    assert systemd.failed_units(cluster.lab) == []


@pytest.mark.parametrize(
    ("daemon", "path"),
    [
        ("confd", "/var/lib/ganeti/server.pem"),
        ("confd", "/dev/mem"),
        ("metad", "/var/lib/ganeti/server.pem"),
        ("metad", "/var/lib/ganeti/config.data"),
        ("metad", "/dev/dm-0"),
        ("metad", "/etc/shadow"),
    ],
)
def test_what_is_forbidden(cluster: Cluster, daemon: str, path: str) -> None:
    machine = cluster.master
    assert machine.call(f"ls {path}").returncode == 0
    program = f"python3 -c 'open(\"{path}\").close()'"
    machine.run(program)
    done = machine.call(f"aa-exec -p ganeti-{daemon} -- {program}")
    assert "Permission denied" in done.stderr, done
    assert any(f'name="{path}"' in line for line in refused(machine))
