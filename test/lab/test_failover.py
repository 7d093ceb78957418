"""Power cuts on machines with systemd and DRBD, and nobody types anything.

Three machines boot with systemd. Two of them have an instance with mirrored disks each, whose guest
writes numbered blocks and learns when they are there for good (:mod:`lab.writer`). Both automatic
failovers are on. The power of all machines is cut, then that of a node, then that of the master.
Each time everything runs again, and no confirmed block is missing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from lab import drbd, machines, power, systemd
from lab.booted import booted
from lab.cluster import Cluster
from lab.machines import PRIMARY, SECONDARY, Machine
from lab.waiting import wait_until

#: The instances, with primary and secondary node. The third node is needed for a majority.
_PLACES = {"one": ("node1", "node3"), "two": ("node3", "node1")}
#: Seconds without an answer, which emulated machines on a busy one may need. With
#: ``NODE_FAILOVER_S`` and ``MASTER_FAILOVER_S`` other limits are measured.
_MASTER_S = int(os.environ.get("MASTER_FAILOVER_S", "20"))
_NODE_S = int(os.environ.get("NODE_FAILOVER_S", "30"))
_UP_S = 900.0
#: The timeout of the watchdogs.
_WATCHDOG_S = 20
#: The file of a guest of the hypervisor ``fake`` is made when it starts.
_GUESTS = "/run/ganeti/fake-hypervisor"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machines.Lab]:
    """Three machines, booted with systemd."""
    yield from booted(
        tmp_path_factory.mktemp("failover"), 3, "logs-failover", init=machines.SYSTEMD
    )


@pytest.fixture(scope="module")
def cluster(lab: machines.Lab) -> Cluster:
    """A cluster of them, with both automatic failovers and two instances."""
    found = systemd.cluster_of(lab)
    drbd.install_writer(lab)
    power.install(found)
    for name, (primary, secondary) in _PLACES.items():
        found.add(name, f"{primary}:{secondary}", size="32M")
        found.in_step(name)
        found.gnt("instance", "start", name)
    found.gnt(
        "cluster",
        "modify",
        f"--auto-failover={_MASTER_S}s",
        f"--auto-instance-failover={_NODE_S}s",
    )
    found.protect()
    return found


def serving(lab: machines.Lab) -> Machine | None:
    """The machine whose master daemon answers."""
    for machine in lab:
        if machine.on and machine.call("timeout 20 gnt-cluster info").returncode == 0:
            return machine
    return None


def find_master(cluster: Cluster) -> None:
    """Wait until a master daemon answers; commands go there from now on."""
    found = wait_until(lambda: serving(cluster.lab), "a master daemon answers", _UP_S, pause_s=0.5)
    assert found is not None
    cluster.master = found


def running(cluster: Cluster) -> dict[str, str]:
    """The nodes on which instances run."""
    listed = "gnt-instance list --no-headers --separator='|' -o name,pnode,status"
    rows = [line.split("|") for line in cluster.master.call(listed).stdout.splitlines()]
    return {name: node for name, node, status in rows if status == "running"}


def wait_all_run(cluster: Cluster, without: str = "") -> dict[str, str]:
    """Wait until all instances run, none of them on the given node."""

    def all_run() -> dict[str, str] | None:
        found = running(cluster)
        return found if set(found) == set(_PLACES) and without not in found.values() else None

    found = wait_until(all_run, lambda: f"all run; now: {running(cluster)}", _UP_S, pause_s=0.5)
    assert found is not None
    return found


def write(cluster: Cluster, count: int = 200) -> dict[str, drbd.Writer]:
    """Let the guests write from the first block on, and wait until so many are confirmed."""
    places = running(cluster)
    assert set(places) == set(_PLACES)
    writers = {
        name: drbd.Writer(cluster.lab[node], cluster.device(name, node))
        for name, node in places.items()
    }
    for writer in writers.values():
        writer.wait_for(count, 300.0)
    return writers


def check(cluster: Cluster, writers: dict[str, drbd.Writer]) -> None:
    """No block is missing which was confirmed."""
    for name, node in running(cluster).items():
        machine = cluster.lab[node]
        last = writers[name].stop()
        assert last and drbd.lost(machine, cluster.device(name, node), last) == 0, name


def now(machine: Machine) -> float:
    """Seconds since 1970, by the clock of a machine."""
    return float(machine.run("date +%s.%N"))


def print_times(cluster: Cluster, since: float) -> None:
    """Print what happened after a moment: when jobs worked, and when guests were started."""
    fields = "summary,received_ts,start_ts,end_ts"
    for job in json.loads(cluster.gnt("job", "list", "--output=json", "-o", fields)):
        moments = [job["received_ts"], job["start_ts"], job["end_ts"]]
        times = [one and one[0] + one[1] / 1e6 - since for one in moments]
        if times[0] > 0:
            told = [f"{one:.1f}" if one is not None else "-" for one in times]
            what = ", ".join(job["summary"])
            print(f"  {what}: submitted {told[0]}, begun {told[1]}, ended {told[2]}")
    for name, node in running(cluster).items():
        begun = cluster.lab[node].run(f"stat -c %.3Y {_GUESTS}/{name}")
        print(f"  the guest of {name} was started on {node} at {float(begun) - since:.1f}")


def bring_back(cluster: Cluster, machine: Machine) -> None:
    """What an administrator does when the machine has its power again."""
    power.restore(machine)
    cluster.gnt("node", "modify", "--node-powered=yes", machine.name)
    wait_until(
        lambda: cluster.master.call(f"gnt-node modify --offline=no {machine.name}").returncode == 0,
        f"{machine.name} is back",
        _UP_S,
    )
    cluster.wait_for_node(machine.name)
    for name in _PLACES:
        cluster.gnt("instance", "activate-disks", name)
        cluster.in_step(name)
    cluster.protect()


def test_everything_is_up_again_after_a_power_cut(cluster: Cluster) -> None:
    writers = write(cluster)
    for machine in cluster.lab:
        machine.power_off()
    begin = time.monotonic()
    for machine in cluster.lab:
        machine.start()
    for machine in cluster.lab:
        machine.wait()
    ready_s = time.monotonic() - begin
    find_master(cluster)
    master_s = time.monotonic() - begin
    found = wait_all_run(cluster)
    print(
        f"\nafter the power cut of all: machines ready after {ready_s:.0f} s, master daemon after"
        f" {master_s:.0f} s, all instances after {time.monotonic() - begin:.0f} s"
    )
    assert found == {name: primary for name, (primary, _secondary) in _PLACES.items()}
    check(cluster, writers)
    for name in _PLACES:
        cluster.in_step(name)
    assert systemd.failed_units(cluster.lab) == []


def test_the_instances_of_a_dead_node_start_elsewhere(cluster: Cluster) -> None:
    cluster.protect()
    victim = cluster.lab["node3"]
    assert cluster.master is not victim
    writers = write(cluster)
    begin, cut_at = time.monotonic(), now(cluster.master)
    power.cut(victim)
    # Until the master resumes the I/O of its disk, nothing is confirmed.
    waiting = writers["one"].confirmed
    wait_all_run(cluster, without=victim.name)
    print(f"\nafter the power cut of a node: all instances after {time.monotonic() - begin:.0f} s")
    print_times(cluster, cut_at)
    # Its secondary node died: it has waited for the master, and goes on; perhaps to its end.
    writers["one"].wait_for(waiting + 20)
    check(cluster, writers)
    bring_back(cluster, victim)


def test_another_node_becomes_the_master_and_starts_its_instances(cluster: Cluster) -> None:
    old = cluster.master
    writers = write(cluster)
    begin, cut_at = time.monotonic(), now(old)
    power.cut(old)
    find_master(cluster)
    master_s = time.monotonic() - begin
    assert cluster.master is not old
    wait_all_run(cluster, without=old.name)
    print(
        f"\nafter the power cut of the master: another master after {master_s:.0f} s, all instances"
        f" after {time.monotonic() - begin:.0f} s"
    )
    print_times(cluster, cut_at)
    check(cluster, writers)
    bring_back(cluster, old)


def boot_id(machine: Machine) -> str:
    """The identifier of the present start of a machine, or an empty text without an answer."""
    return machine.call("cat /proc/sys/kernel/random/boot_id").stdout.strip()


def test_the_watchdog_of_a_node_which_is_cut_off_fences_it(cluster: Cluster) -> None:
    """QEMU emulates the device, the kernel drives it, and nobody else switches the node off."""
    victim = cluster.lab["node3"]
    assert cluster.master is not victim
    for machine in cluster.lab:
        machine.run("modprobe i6300esb && test -c /dev/watchdog")
    cluster.gnt("cluster", "modify", "--node-parameters", "oob_program=")
    cluster.gnt("cluster", "modify", f"--node-watchdog={_WATCHDOG_S}s")
    watchdogs = "gnt-node list --no-headers -o watchdog"
    armed = [f"armed ({_WATCHDOG_S} s)"] * len(list(cluster.lab))
    wait_until(
        lambda: cluster.master.call(watchdogs).stdout.splitlines() == armed,
        lambda: f"all watchdogs are armed: {cluster.master.call(watchdogs).stdout}",
        _UP_S,
    )
    # Without any fencing the nodes were allowed to write alone.
    cluster.protect()
    if running(cluster)["two"] != victim.name:
        cluster.gnt("instance", "failover", "--force", "two")
    before, writers = boot_id(victim), write(cluster)
    begin, cut_at = time.monotonic(), now(cluster.master)
    for nic in (PRIMARY, SECONDARY):
        victim.cable(nic, plugged=False)
    wait_all_run(cluster, without=victim.name)
    print(f"\nafter the cut of a node with a watchdog: {time.monotonic() - begin:.0f} s")
    print_times(cluster, cut_at)
    print(cluster.gnt("node", "info", victim.name))
    for nic in (PRIMARY, SECONDARY):
        victim.cable(nic, plugged=True)
    wait_until(lambda: boot_id(victim) not in ("", before), "the node has restarted", _UP_S)
    assert "two" not in victim.run(f"ls {_GUESTS} 2>/dev/null || true").split()
    check(cluster, writers)
