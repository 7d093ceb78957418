"""Machines which boot with systemd: one command starts a node, guests survive, and all is up again.

The machines are two more, with the same image and another first program. After ``make install`` and
``systemctl enable --now ganeti.target`` nothing is started by hand.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from lab import drbd, machines, systemd
from lab.booted import booted
from lab.cluster import Cluster
from lab.machines import Machine
from lab.systemd import active, failed_units
from lab.waiting import wait_until

UTIL = "/usr/lib/ganeti/daemon-util"
MASTER_UNITS = ("ganeti-masterd.service", "ganeti-rapi.service")
NODE_UNITS = ("ganeti-noded.service", "ganeti-confd.service")
_UP_S = 900.0
# An OS whose script works until it is allowed to end.
_OS = "/usr/share/ganeti/os/slow"
_SCRIPT = """#!/bin/sh
echo started >/root/slow.started
while [ ! -e /root/slow.go ]; do sleep 0.2; done
echo done >/root/slow.done
"""
# An instance whose replicas are synchronised so slowly that restarts come in between.
_SLOW_KIB = 512
_MIRRORED = (
    *("-t", "drbd", "--disk", "0:size=256M", "-n", "node1:node2", "-H", "fake", "-o", "tiny"),
    *("-B", "minmem=64,maxmem=64", "--no-nics", "--no-install", "--no-start"),
    *("--no-name-check", "--no-ip-check", "mirrored"),
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machines.Lab]:
    """Two machines, booted with systemd."""
    yield from booted(tmp_path_factory.mktemp("start"), 2, "logs-start", init=machines.SYSTEMD)


@pytest.fixture(scope="module")
def cluster(lab: machines.Lab) -> Cluster:
    """A cluster of both, with one guest."""
    found = systemd.cluster_of(lab)
    found.enable_kvm()
    found.add("web", "node1", "-H", "kvm", template="plain")
    found.gnt("instance", "start", "web")
    return found


def guest(machine: Machine, name: str = "web") -> int:
    """The process of a guest, which is in a scope of its own."""
    pid = int(machine.run(f"cat /run/ganeti/kvm-hypervisor/pid/{name}"))
    scope = machine.run(f"cat /proc/{pid}/cgroup").strip()
    assert scope == f"0::/ganeti.slice/ganeti-guests.slice/ganeti-instance-{name}.scope"
    return pid


def status(cluster: Cluster, name: str = "web") -> str:
    """The status of an instance; empty while no master answers."""
    done = cluster.master.call(f"gnt-instance list --no-headers -o status {name}")
    return done.stdout.strip()


def is_running(cluster: Cluster, name: str = "web") -> bool:
    return status(cluster, name) == "running"


def test_units_show_the_role_of_each_node(cluster: Cluster) -> None:
    first, second = cluster.lab.machines
    assert failed_units(cluster.lab) == []
    for unit in (*NODE_UNITS, *MASTER_UNITS):
        assert active(first, unit), unit
    for unit in (*NODE_UNITS, "ganeti-watcher.timer", "ganeti-cleaner.timer"):
        assert active(second, unit), unit
    # The master daemon is started on every node. That another one is the master is not a failure.
    for daemon, text in (("masterd", "the master is node1"), ("rapi", "not needed on this node")):
        second.run(f"systemctl start ganeti-{daemon}")
        done = second.call(f"{UTIL} start ganeti-{daemon}")
        assert done.returncode == 11
        assert text in done.stderr
        assert not active(second, f"ganeti-{daemon}.service")
    assert failed_units(cluster.lab) == []
    assert "node1" in second.run("systemctl show -P StatusText ganeti-masterd")


def test_daemons_which_are_started_when_they_are_needed(cluster: Cluster) -> None:
    first = cluster.master
    assert not active(first, "ganeti-kvmd.service")
    cluster.gnt("cluster", "modify", "--user-shutdown=yes")
    for machine in cluster.lab:
        assert active(machine, "ganeti-kvmd.service"), machine.name
    # As the node daemon does for the first guest with a communication NIC.
    first.run(f"{UTIL} start ganeti-metad")
    assert active(first, "ganeti-metad.service")
    first.run(f"{UTIL} stop ganeti-metad")
    assert not active(first, "ganeti-metad.service")
    assert failed_units(cluster.lab) == []


def test_the_guest_survives_every_unit(cluster: Cluster) -> None:
    master = cluster.master
    pid = guest(master)
    listed = "systemctl list-units 'ganeti*' --all --plain --no-legend"
    units = [line.split()[0] for line in master.run(listed).splitlines()]
    units = [unit for unit in units if not unit.endswith((".scope", ".slice"))]
    assert {*NODE_UNITS, *MASTER_UNITS, "ganeti.target", "ganeti-watcher.timer"} <= set(units)
    for unit in units:
        master.run(f"systemctl restart {unit}")
        assert guest(master) == pid, unit
    master.run(f"systemctl stop ganeti.target && {UTIL} stop-all")
    assert not active(master, "ganeti-noded.service")
    assert guest(master) == pid
    master.run("systemctl start ganeti.target")
    for unit in NODE_UNITS:
        master.run(f"systemctl kill -s KILL {unit}")
    for unit in (*NODE_UNITS, *MASTER_UNITS):
        wait_until(lambda unit=unit: active(master, unit), f"{unit} is active", _UP_S)
    wait_until(lambda: is_running(cluster), "the cluster knows that the guest runs", _UP_S)
    assert guest(master) == pid


def test_an_os_script_survives_the_node_daemon(cluster: Cluster) -> None:
    master = cluster.master
    for name, text in (
        ("ganeti_api_version", "20\n"),
        ("create", _SCRIPT),
        *((script, "#!/bin/sh\n") for script in ("export", "import", "rename", "verify")),
    ):
        master.write(f"{_OS}/{name}", text, 0o755)
    master.write(f"{_OS}/parameters.list", "")
    master.write(f"{_OS}/variants.list", "default\n")
    cluster.add("worker", "node1", template="plain")
    installing = master.spawn("gnt-instance reinstall -f -o slow+default worker")
    wait_until(lambda: master.call("test -e /root/slow.started").returncode == 0, "started", 600)
    main = master.run("systemctl show -P MainPID ganeti-noded")
    master.run("systemctl restart ganeti-noded")
    assert master.run("systemctl show -P MainPID ganeti-noded") != main
    assert master.call("test -e /root/slow.done").returncode != 0
    master.run("touch /root/slow.go")
    output, _ = installing.communicate(timeout=600)
    assert installing.returncode == 0, output
    assert master.run("cat /root/slow.done") == "done\n"
    cluster.remove("worker")


def _main(machine: Machine) -> str:
    """The main process of the unit of the master daemon; "0" for none."""
    return machine.run("systemctl show -P MainPID ganeti-masterd").strip()


def _job(cluster: Cluster, job: str) -> tuple[str, int]:
    """The status of a job, and its process; 0 for none."""
    found = json.loads(cluster.master.run(f"cat /var/lib/ganeti/queue/job-{job}"))
    return found["ops"][0]["status"], int(found["process_id"] or 0)


def _submit(cluster: Cluster, *words: str) -> str:
    """Submit a job; return its number when it is running."""
    found = cluster.gnt(*words[:2], "--submit", "--print-jobid", *words[2:])
    job = re.findall(r"\d+", found)[0]
    wait_until(lambda: _job(cluster, job)[0] == "running", f"job {job} runs", _UP_S)
    return str(job)


def test_a_job_in_a_process_survives_the_unit_of_the_master_daemon(cluster: Cluster) -> None:
    """``KillMode=process``: systemd ends the daemon alone, while real mirrors are synchronised."""
    first, second = cluster.lab.machines
    cluster.gnt("cluster", "modify", "--job-execution=processes")
    rate = f"drbd:dynamic-resync=no,resync-rate={_SLOW_KIB}"
    cluster.gnt("group", "modify", "-D", rate, "default")
    job = _submit(cluster, "instance", "add", *_MIRRORED)
    wait_until(lambda: drbd.minors(second), "the second node has a replica", _UP_S)
    ((minor, _state),) = drbd.minors(second).items()
    _status, pid = _job(cluster, job)
    for restart in (
        "systemctl restart ganeti-masterd",
        f"{UTIL} restart ganeti-masterd",
        "systemctl kill -s KILL --kill-who=main ganeti-masterd",
    ):
        before = _main(first)
        assert before != str(pid)
        first.run(restart)
        wait_until(lambda before=before: _main(first) not in (before, "0"), "a new daemon", _UP_S)
        wait_until(lambda: active(first, "ganeti-masterd.service"), "it is active", _UP_S)
        assert _job(cluster, job) == ("running", pid), restart
        unit = first.run(f"cat /proc/{pid}/cgroup").strip()
        assert unit == "0::/system.slice/ganeti-masterd.service"
        assert first.run(f"cat /proc/{pid}/comm").strip() == f"gnt-job-{job}"
    assert drbd.minors(second)[minor].resyncing, "it has lasted all the time"
    for machine in (first, second):
        machine.run(f"drbdsetup disk-options {minor} --c-plan-ahead=0 --resync-rate=61440k")
    first.run(f"gnt-job wait {job}")
    assert _job(cluster, job) == ("success", pid), first.run(f"gnt-job info {job}")
    assert failed_units(cluster.lab) == []
    # A process of an earlier daemon can be killed, and systemd keeps nothing of it.
    job = _submit(cluster, "debug", "delay", "600")
    first.run("systemctl restart ganeti-masterd")
    _status, pid = _job(cluster, job)
    first.run(f"gnt-job cancel --kill --yes-do-it {job}")
    assert _job(cluster, job)[0] == "error"
    assert first.call(f"test -e /proc/{pid}").returncode != 0
    cluster.remove("mirrored")
    rate = "drbd:dynamic-resync=default,resync-rate=default"
    cluster.gnt("group", "modify", "-D", rate, "default")
    cluster.gnt("cluster", "modify", "--job-execution=threads")


def test_a_daemon_that_hangs_is_restarted(cluster: Cluster) -> None:
    master = cluster.master
    unit = "ganeti-confd.service"
    master.write(f"/run/systemd/system/{unit}.d/soon.conf", "[Service]\nWatchdogSec=20\n")
    master.run(f"systemctl daemon-reload; systemctl restart {unit}")
    main = master.run(f"systemctl show -P MainPID {unit}").strip()
    # Longer than the limit: signs of life arrive.
    watched = time.monotonic()
    wait_until(lambda: time.monotonic() - watched > 50, "two limits have passed", 100)
    assert master.run(f"systemctl show -P MainPID {unit}").strip() == main
    master.run(f"kill -STOP {main}")

    def restarted() -> bool:
        now = master.run(f"systemctl show -P MainPID {unit}").strip()
        return now not in (main, "0") and active(master, unit)

    wait_until(restarted, "the watchdog has restarted the daemon", 300)
    journal = master.run(f"journalctl --no-pager -u {unit}")
    assert "Watchdog timeout" in journal
    # Where it was: the daemon wrote that before it ended.
    assert "Fatal Python error: Aborted" in journal
    master.run(f"rm -r /run/systemd/system/{unit}.d; systemctl daemon-reload")


def test_everything_is_up_again_after_a_power_cut(cluster: Cluster) -> None:
    cluster.add("off", "node1", "-H", "kvm", template="plain")
    for machine in cluster.lab:
        machine.power_off()
    begin = time.monotonic()
    for machine in cluster.lab:
        machine.start()
    for machine in cluster.lab:
        machine.wait()
    ready_s = time.monotonic() - begin
    # Nothing is typed: these commands only read.
    wait_until(lambda: status(cluster), "the master daemon answers", _UP_S, pause_s=1.0)
    master_s = time.monotonic() - begin
    wait_until(lambda: is_running(cluster), "the instance runs again", _UP_S, pause_s=1.0)
    print(
        f"\nafter the power cut: machines ready after {ready_s:.0f} s, master daemon after"
        f" {master_s:.0f} s, instance after {time.monotonic() - begin:.0f} s"
    )
    guest(cluster.master)
    assert status(cluster, "off") == "ADMIN_down"
    assert failed_units(cluster.lab) == []
    for machine in cluster.lab:
        for unit in NODE_UNITS:
            assert active(machine, unit), (machine.name, unit)
    # The timer's watcher has submitted the job.
    assert "web" in cluster.master.run("cat /var/log/ganeti/watcher.log")


def test_the_role_moves_with_the_units(cluster: Cluster) -> None:
    first, second = cluster.lab.machines
    second.run("gnt-cluster master-failover")
    for unit in MASTER_UNITS:
        assert active(second, unit), unit
        assert not active(first, unit), unit
    assert failed_units(cluster.lab) == []
    first.run("gnt-cluster master-failover")
    assert active(first, "ganeti-masterd.service")
    assert not active(second, "ganeti-masterd.service")


def test_daemons_run_as_users_of_their_own(cluster: Cluster) -> None:
    master = cluster.master
    pid = guest(master)
    # On every node, because the master gives files the owners which they have on its machine.
    for machine in cluster.lab:
        # The users of sysusers.d, and the lines which the file of settings has as comments.
        machine.run("systemd-sysusers && sed -i 's/^#\\(.*gnt-\\)/\\1/' /etc/default/ganeti")
        # The end of the target does not wait for the daemons; stop-all does.
        machine.run(f"systemctl stop ganeti.target && {UTIL} stop-all")
        machine.run("/usr/lib/ganeti/ensure-dirs --full-run && systemctl start ganeti.target")
    for unit in (*NODE_UNITS, *MASTER_UNITS):
        wait_until(lambda unit=unit: active(master, unit), f"{unit} is active", _UP_S)
    found = {}
    for daemon in ("noded", "confd", "masterd", "rapi"):
        main = master.run(f"systemctl show -P MainPID ganeti-{daemon}").strip()
        found[daemon] = master.run(f"ps -o user:20= -p {main}").strip()
    assert found == {
        "noded": "root",
        "confd": "gnt-confd",
        "masterd": "gnt-masterd",
        "rapi": "gnt-rapi",
    }
    wait_until(lambda: is_running(cluster), "the master answers", _UP_S)
    done = master.run("curl -sk https://localhost:5080/2/info")
    assert '"name"' in done, done
    assert failed_units(cluster.lab) == []
    assert guest(master) == pid


def test_a_destroyed_cluster_leaves_no_failed_unit(cluster: Cluster) -> None:
    first, second = cluster.lab.machines
    for name in cluster.gnt("instance", "list", "--no-headers", "-o", "name").split():
        cluster.remove(name)
    assert first.run("systemctl list-units 'ganeti-instance-*' --all --no-legend") == ""
    cluster.gnt("node", "remove", "node2")
    cluster.gnt("cluster", "destroy", "--yes-do-it")
    for unit in (*NODE_UNITS, *MASTER_UNITS):
        assert not active(first, unit), unit
        # The conditions of the units do not hold any more.
        first.run(f"systemctl start {unit}")
        assert not active(first, unit), unit
    wait_until(
        lambda: not active(second, "ganeti-noded.service"), "the removed node has no daemon", _UP_S
    )
    assert failed_units(cluster.lab) == []
