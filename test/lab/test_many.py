"""Proof 5: many mirrored instances at once; and what an activation costs."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from lab import drbd
from lab.cluster import Cluster
from lab.machines import Machine
from lab.waiting import wait_until

# From the first program of an activation to the end of the last, in the log of a node daemon.
_ACTIVATION = (
    r"^(.{23}): [^\n]*running drbdsetup new-resource.*"
    r"running drbdsetup primary[^\n]*\n(.{23}): "
)
#: Mirrored devices; those beyond the instances with one disk belong to few instances with many.
DEVICES = int(os.environ.get("LAB_MANY", "20"))
COUNT = min(DEVICES, 20)
FILLERS = {
    f"fill{number}": min(15, DEVICES - COUNT - 15 * number)
    for number in range((DEVICES - COUNT + 14) // 15)
}
NAMES = [f"many{number}" for number in range(COUNT)]
_LOG = "/var/log/ganeti/node-daemon.log"
_ATTEMPTS, _PROGRAMS = 3, 7
# Seconds for as many programs as an activation starts.
_NOTHING = f"""python3 -c 'import subprocess, time
begin = time.monotonic()
for _ in range({_PROGRAMS}):
    subprocess.run(["drbdsetup", "--version"], stdout=subprocess.DEVNULL)
print(time.monotonic() - begin)'"""
_WAITING = (
    "wait4",
    "waitid",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "futex",
    "nanosleep",
    "clock_nanosleep",
    "restart_syscall",
    "pause",
    "rt_sigtimedwait",
)


@pytest.fixture(scope="module", autouse=True)
def instances(cluster: Cluster) -> None:
    """Twenty instances, created at the same time, in both directions between the nodes."""
    specs = {
        name: {
            "disk_template": "drbd",
            "disks": [{"size": 16}] * FILLERS.get(name, 1),
            "os_type": "tiny",
            "no_install": True,
            "nics": [],
            "start": False,
            "name_check": False,
            "ip_check": False,
            "mode": "create",
            "hypervisor": "fake",
            "wait_for_sync": False,
            "beparams": {"minmem": 32, "maxmem": 32},
            "pnode": f"node{number % 2 + 1}",
            "snode": f"node{2 - number % 2}",
        }
        for number, name in enumerate([*NAMES, *FILLERS])
    }
    at_once(
        cluster,
        [
            {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": name, **spec}
            for name, spec in specs.items()
        ],
    )


def at_once(cluster: Cluster, opcodes: list[dict[str, Any]]) -> None:
    """Run opcodes, each as a job of its own, and wait for all."""
    cluster.master.write("/root/many.json", json.dumps(opcodes))
    cluster.gnt("debug", "submit-job", "--each", "/root/many.json", timeout_s=3600)


def test_minors_and_ports_are_unique(cluster: Cluster) -> None:
    disks = cluster.config()["disks"].values()
    assert len(disks) == DEVICES
    ids = [disk["logical_id"] for disk in disks]
    assert len({one[2] for one in ids}) == DEVICES
    assert len({one[5] for one in ids}) == DEVICES
    minors = {(one[0], one[3]) for one in ids} | {(one[1], one[4]) for one in ids}
    assert len(minors) == 2 * DEVICES
    for name in ("node1", "node2"):
        assert sorted(drbd.minors(cluster.lab[name])) == list(range(DEVICES))


class Cost(NamedTuple):
    """What one activation costs on the primary node."""

    programs: int
    system_calls: int  # of the node daemon and all its programs, without those that only wait
    share: float  # its time, as a multiple of that of a few programs which do nothing


def activation(cluster: Cluster, machine: Machine) -> Cost:
    """Activate the first instance, which is not active."""
    before = int(machine.run(f"wc -l <{_LOG}"))
    cluster.gnt("instance", "activate-disks", "many0")
    text = machine.run(f"tail -n +{before + 1} {_LOG}")
    found = re.search(_ACTIVATION, text, re.MULTILINE | re.DOTALL)
    assert found is not None, text
    begin, end = (datetime.strptime(when, "%Y-%m-%d %H:%M:%S,%f") for when in found.groups())
    # Other work on the processors slows both by the same factor.
    nothing_s = float(machine.run(_NOTHING))
    programs = len(re.findall(r"INFO running (?:drbd|lv|pv|vg)", text))
    return Cost(programs, 0, (end - begin).total_seconds() / nothing_s)


def traced(cluster: Cluster, machine: Machine) -> int:
    """As :func:`activation`; returns the number of system calls."""
    machine.run(
        'nohup strace -f -qq -c -o /root/calls -p "$(pgrep -d, -f [s]bin/ganeti-noded)"'
        " >/dev/null 2>&1 & sleep 3"
    )
    cluster.gnt("instance", "activate-disks", "many0")
    machine.run("pkill -INT -x strace; while pgrep -x strace; do sleep 0.2; done")
    table = [line.split() for line in machine.run("cat /root/calls").splitlines()]
    return sum(
        int(words[3])
        for words in table
        if len(words) > 4 and words[3].isdigit() and words[-1] not in (*_WAITING, "total")
    )


def cost(cluster: Cluster) -> Cost:
    """Return the minimum of a few activations, because other work only increases the time."""
    machine = cluster.lab["node1"]
    for node in ("node1", "node2"):
        wait_until(
            lambda node=node: "Inconsistent" not in cluster.lab[node].run("cat /proc/drbd"),
            f"{node} is in sync",
            1200,
            pause_s=2,
        )
    found, calls = [], []
    for _attempt in range(_ATTEMPTS):
        cluster.gnt("instance", "deactivate-disks", "many0")
        found.append(activation(cluster, machine))
        cluster.gnt("instance", "deactivate-disks", "many0")
        calls.append(traced(cluster, machine))
    return Cost(min(one.programs for one in found), min(calls), min(one.share for one in found))


def test_activation_does_not_grow_with_the_number(cluster: Cluster) -> None:
    """The cost of one activation beside 19 other devices (49), and beside none."""
    costs = {DEVICES: cost(cluster)}
    for present, names in ((COUNT, list(FILLERS)), (1, NAMES[1:])):
        if names:
            at_once(
                cluster,
                [
                    {"OP_ID": "OP_INSTANCE_DEACTIVATE_DISKS", "instance_name": name}
                    for name in names
                ],
            )
            costs[present] = cost(cluster)
    for present, one in costs.items():
        print(
            f"activation, {present} devices: {one.programs} programs, {one.system_calls} system"
            f" calls, as long as {one.share:.2f} times {_PROGRAMS} programs that do nothing"
        )
    alone, crowded = costs[1], costs[DEVICES]
    assert crowded.programs == alone.programs
    # The list of all states, which is read in pieces, is longer.
    assert crowded.system_calls < alone.system_calls * 1.05
    assert crowded.share < alone.share * 1.5


def test_end(cluster: Cluster) -> None:
    at_once(
        cluster,
        [{"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": name} for name in [*NAMES, *FILLERS]],
    )
    for name in ("node1", "node2"):
        assert drbd.minors(cluster.lab[name]) == {}
        assert drbd.volumes(cluster.lab[name]) == []
