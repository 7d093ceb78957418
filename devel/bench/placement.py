"""Measures the placement programs on made-up clusters of several sizes, beside the original.

Part of ``make bench`` (:mod:`devel.bench`). Everything is processor time of one core (user and
system), so that other work on the machine matters little. The original programs are run as they are
installed (package ``ganeti-htools-3.0``), with a limit of processor time, because they need minutes
for large clusters; without the package only the own figures are measured. Where both make a step,
it has to be the same one.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ganeti import errors
from ganeti.htools import balance
from ganeti.htools import cluster as model
from ganeti.htools.loading import text

ORIGINAL = "/usr/lib/ganeti/3.0/usr/bin/htools"
_SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

#: Nodes and mirrored instances of the clusters.
SIZES = ((10, 100), (20, 200), (40, 400), (80, 1000), (200, 4000))
_POLICY = (
    "128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12"
    "|diskless,file,sharedfile,plain,blockdev,drbd,rbd,ext|4.0|32.0"
)
_CAPACITY = (
    "--disk-template=drbd", "--no-capacity-checks", "--standard-alloc=20g,4g,2",
    "--tiered-alloc=20g,4g,2", "--machine-readable",
)  # fmt: skip


class Growth(NamedTuple):
    """Processor time in milliseconds for one size of cluster.

    :ivar step_ms: each of some further steps of a search which runs.
    :ivar programs_ms: run -> its time: ``hbal`` with one step, ``hspace`` until the cluster is
        full in each of two allocations, ``hspace_some`` with as many instances as nodes at most,
        ``hail`` with one mirrored instance. The first part of the name is the program.
    :ivar original_ms: the same for the original programs, but not those which reached the limit.
    :ivar limit_ms: this limit.
    """

    nodes: int
    instances: int
    step_ms: list[float]
    programs_ms: dict[str, float]
    original_ms: dict[str, float]
    limit_ms: float


class _Cluster(NamedTuple):
    """A made-up cluster: name of a node -> memory and disk space in use; and rows of instances."""

    used: dict[str, list[int]]
    instances: list[tuple[str, int, int, int, str, str]]
    memory: int
    disk: int


def _make(nodes: int, instances: int) -> _Cluster:
    r = random.Random(nodes)
    names = [f"node{number:03}.example.com" for number in range(nodes)]
    used = {name: [0, 0] for name in names}
    rows = []
    for number in range(instances):
        first, second = r.sample(names, 2)
        memory, disk = r.choice([512, 1024, 2048, 4096]), r.choice([10, 20, 40]) * 1024
        rows.append(
            (f"inst{number:05}.example.com", memory, disk, r.choice([1, 2, 4]), first, second)
        )
        used[first][0] += memory
        for name in (first, second):
            used[name][1] += disk
    return _Cluster(
        used, rows, 2 * max(one[0] for one in used.values()),
        2 * max(one[1] for one in used.values()),
    )  # fmt: skip


def _as_text(made: _Cluster) -> str:
    """Return the cluster in the text format."""
    lines = ["default|u1|preferred||", ""]
    for name, (memory, disk) in made.used.items():
        lines.append(
            f"{name}|{made.memory + 1024}|1024|{made.memory - memory}|{made.disk}"
            f"|{made.disk - disk}|64|N|u1|1||N|0|1|1.0"
        )
    lines.append("")
    lines += [
        f"{name}|{memory}|{disk}|{vcpus}|running|Y|{first}|{second}|drbd||1|-|N"
        for name, memory, disk, vcpus, first, second in made.instances
    ]
    lines += ["", "", f"|{_POLICY}", f"default|{_POLICY}"]
    return "".join(f"{line}\n" for line in lines)


def _as_request(made: _Cluster) -> str:
    """Return a request for one mirrored instance in the cluster, as allocators get it."""
    small = {"memory-size": 128, "cpu-count": 1, "disk-size": 1024, "disk-count": 1,
             "nic-count": 1, "spindle-use": 1}  # fmt: skip
    large = {"memory-size": 32768, "cpu-count": 8, "disk-size": 1048576, "disk-count": 16,
             "nic-count": 8, "spindle-use": 12}  # fmt: skip
    nodes = {
        name: {
            "total_memory": made.memory + 1024, "reserved_memory": 1024,
            "free_memory": made.memory - memory, "i_pri_memory": memory,
            "i_pri_up_memory": memory, "total_disk": made.disk, "free_disk": made.disk - disk,
            "total_cpus": 64, "reserved_cpus": 1, "group": "u1", "tags": [], "offline": False,
            "drained": False, "vm_capable": True, "master_candidate": True,
            "master_capable": True, "primary_ip": "192.0.2.1", "secondary_ip": "192.0.2.1",
            "free_spindles": 0, "total_spindles": 0,
            "ndparams": {"spindle_count": 1, "oob_program": None, "exclusive_storage": False},
        }
        for name, (memory, disk) in made.used.items()
    }  # fmt: skip
    common = {"tags": [], "nics": [], "os": "noop", "hypervisor": "kvm", "disk_template": "drbd",
              "spindle_use": 1}  # fmt: skip
    instances = {
        name: {
            **common, "memory": memory, "vcpus": vcpus, "disk_space_total": disk,
            "disks": [{"size": disk - 128, "mode": "rw", "spindles": None}],
            "nodes": [first, second], "admin_state": "up", "admin_state_source": "admin",
        }
        for name, memory, disk, vcpus, first, second in made.instances
    }  # fmt: skip
    return json.dumps({
        "version": 2, "cluster_name": "bench.example.com", "cluster_tags": [],
        "enabled_hypervisors": ["kvm"],
        "ipolicy": {},
        "nodegroups": {"u1": {
            "name": "default", "alloc_policy": "preferred", "networks": [], "tags": [],
            "ipolicy": {"std": small, "minmax": [{"min": small, "max": large}],
                        "disk-templates": ["drbd"], "vcpu-ratio": 4.0, "spindle-ratio": 32.0},
        }},
        "nodes": nodes, "instances": instances,
        "request": {
            **common, "type": "allocate", "name": "new.example.com", "memory": 1024, "vcpus": 1,
            "disks": [{"size": 10240, "mode": "rw", "spindles": None}],
            "disk_space_total": 10368, "required_nodes": 2,
        },
    })  # fmt: skip


def _run(
    words: Sequence[str], environ: Mapping[str, str], limit_s: int
) -> tuple[float, str] | None:
    """Run a program.

    :returns: its processor time in milliseconds and its output; None when it reached the limit.
    """
    with subprocess.Popen(
        list(words),
        env={**environ, "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s)),
    ) as child:
        assert child.stdout is not None
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode < 0:
        return None
    if child.returncode:
        raise errors.OpExecError(f"{' '.join(words)} ended with {child.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000, output


def _steps_ms(source: str, count: int) -> list[float]:
    """Processor time of each step of a search, without the first one, which loads numpy."""
    cluster = text.parse(source)
    model.prepare(cluster)
    state = balance.start(cluster)
    found = []
    begun = time.process_time()
    for _ in balance.run(state, balance.Options(), max_steps=count + 1):
        now = time.process_time()
        found.append((now - begun) * 1000)
        begun = now
    return found[1:]


def growth(
    directory: str, nodes: int, instances: int, *, rounds: int, original: bool, limit_s: int
) -> Growth:
    """Measure one size of cluster.

    :param directory: a directory for the files.
    :param rounds: how often each program is run; the median counts.
    :param original: whether the original programs are run, too, once.
    :param limit_s: seconds of processor time after which one is ended.
    :raises OpExecError: a program failed, or the first step differs from that of the original.
    """
    made = _make(nodes, instances)
    source = _as_text(made)
    data, request = Path(directory) / "cluster.data", Path(directory) / "request.json"
    data.write_text(source, encoding="utf-8")
    request.write_text(_as_request(made), encoding="utf-8")
    commands = {
        "hbal": (f"--text-data={data}", "--max-length=1"),
        "hspace": (f"--text-data={data}", *_CAPACITY),
        "hspace_some": (f"--text-data={data}", *_CAPACITY, f"--max-length={nodes}"),
        "hail": (str(request),),
    }
    own: dict[str, float] = {}
    others: dict[str, float] = {}
    for run, words in commands.items():
        program = run.partition("_")[0]
        samples = []
        output = ""
        for _ in range(rounds):
            found = _run([sys.executable, str(_SCRIPTS / program), *words], os.environ, 3600)
            assert found is not None
            samples.append(found[0])
            output = found[1]
        own[run] = statistics.median(samples)
        if original:
            other = _run([ORIGINAL, *words], {**os.environ, "HTOOLS": program}, limit_s)
            if other is not None:
                others[run] = other[0]
                if other[1].split() != output.split():
                    raise errors.OpExecError(
                        f"{program} and the original differ for {nodes} nodes and {instances}"
                        " instances"
                    )
    steps = _steps_ms(source, 3 if rounds < 2 else 8)
    return Growth(nodes, instances, steps, own, others, limit_s * 1000.0)


def plot(title: str, rows: Sequence[tuple[str, float, float | None]], width: int = 44) -> str:
    """Draw growth as bars whose length is the logarithm of the time.

    :param rows: name, own milliseconds, and those of the original; None where it was not measured.
    """
    values = [one for _, own, other in rows for one in (own, other) if one]
    low, high = min(values) / 2, max(values)

    def bar(value: float, sign: str) -> str:
        share = math.log(value / low) / math.log(high / low) if high > low else 1.0
        return sign * max(1, round(share * width))

    wide = max(len(name) for name, _, _ in rows)
    lines = [title]
    for name, own, other in rows:
        lines.append(f"{name:<{wide}}  {bar(own, '#')} {own:.0f} ms")
        if other is not None:
            lines.append(f"{'':<{wide}}  {bar(other, 'o')} {other:.0f} ms, original")
    return "\n".join(lines)
