"""Measures lists: whole commands, the cost of a row, and the start of every command.

Part of ``make bench`` (:mod:`devel.bench`). Each function takes a running virtual cluster and
returns samples; :mod:`devel.bench.program` has the titles and budgets. The clusters are filled by
writing their configuration and the files of the ``fake`` hypervisor, because creating 10,000
instances with jobs would take longer than all measurements.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from devel import completion
from devel.bench import config as bench_config
from devel.bench import queue as bench_queue
from ganeti import errors, vcluster
from ganeti.config import Config
from ganeti.config.text import ConfigText
from ganeti.configfile.files import write_config_file
from ganeti.luxi import client as luxi
from ganeti.platform import paths
from ganeti.utils import fs, net, process

_STEP_S = 600.0
_REQUEST_S = 60.0
#: For each program a command whose first request is a query.
FIRST_REQUESTS = (
    ("gnt-backup", "list"),
    ("gnt-cluster", "info"),
    ("gnt-debug", "locks"),
    ("gnt-filter", "list"),
    ("gnt-group", "list"),
    ("gnt-instance", "list"),
    ("gnt-job", "list"),
    ("gnt-network", "list"),
    ("gnt-node", "list"),
    ("gnt-os", "list"),
    ("gnt-storage", "diagnose"),
)
_CONFIG_FIELDS = ("name", "pnode", "os", "admin_state", "be/maxmem", "disk.sizes")
_LIVE_FIELDS = ("name", "hypervisor", "os", "pnode", "status", "oper_ram")


class Lists(NamedTuple):
    """Times of whole commands in a cluster of one size, in ms; time of a row in microseconds."""

    instances_ms: list[float]
    instances_config_ms: list[float]
    one_instance_ms: list[float]
    nodes_ms: list[float]
    jobs_ms: list[float]
    config_row_us: list[float]
    live_row_us: list[float]
    #: CPU time of all processes for one default list; other work on the machine does not change it.
    command_cpu_ms: list[float]
    master_cpu_ms: list[float]
    nodes_cpu_ms: list[float]


def fill(cluster: vcluster.VirtualCluster, instances: int) -> None:
    """Fill a cluster with running instances, and restart its master daemon."""
    first = cluster.nodes[0]
    daemon(cluster, "stop")
    with paths.override(cluster.paths(first)) as here:
        before = Config.open(here.cluster_conf_file).snapshot()
        data = bench_config.filled_cluster(before, instances, before.serial_no + 1000)
        write_config_file(here.cluster_conf_file, ConfigText(data).render(data, ()))
    for node in cluster.nodes:
        with paths.override(cluster.paths(node)) as here:
            fs.make_dirs(here.fake_root)
            for instance in data.instances.values():
                if data.nodes[instance.primary_node].name == node.name:
                    fs.write_file(f"{here.fake_root}/{instance.name}", "1\n1024\n2\n", sync=False)
    daemon(cluster, "start")


def daemon(cluster: vcluster.VirtualCluster, action: str) -> None:
    """Start or stop the master daemon."""
    process.run(
        [f"{cluster.directory}/bin/daemon-util", action, "ganeti-masterd"],
        timeout_s=_STEP_S,
        env=vcluster.environment(cluster, cluster.nodes[0]),
        log=False,
    )


def add_jobs(cluster: vcluster.VirtualCluster, count: int) -> None:
    """Run small jobs, so that the list of jobs has rows."""
    with luxi.Client(cluster.paths(cluster.nodes[0]).master_socket) as client:
        while count > 0:
            ids = bench_queue.submit_many(client, min(count, 500))
            bench_queue.wait_for_all(client, ids)
            count -= len(ids)


def lists(cluster: vcluster.VirtualCluster, size: int, rounds: int) -> Lists:
    """Measure a cluster with ``size`` instances and as many jobs."""
    fill(cluster, size)
    add_jobs(cluster, size)
    name = f"instance{size // 2}.example.com"

    def command(*argv: str) -> list[float]:
        return whole_command_ms(cluster, argv, rounds)

    return Lists(
        command("gnt-instance", "list"),
        command("gnt-instance", "list", "-o", ",".join(_CONFIG_FIELDS)),
        command("gnt-instance", "list", "-o", ",".join(_CONFIG_FIELDS), name),
        command("gnt-node", "list"),
        command("gnt-job", "list"),
        row_us(cluster, _CONFIG_FIELDS, size, rounds),
        row_us(cluster, _LIVE_FIELDS, size, rounds),
        *cpu_ms(cluster, ("gnt-instance", "list"), rounds),
    )


def row_us(
    cluster: vcluster.VirtualCluster, fields: Sequence[str], size: int, rounds: int
) -> list[float]:
    """Measure the time of a row of six fields, from the request to the decoded answer."""
    with luxi.Client(cluster.paths(cluster.nodes[0]).master_socket) as client:

        def ask() -> None:
            client.query("instance", fields)

        ask()
        return [milliseconds(ask) * 1000 / size for _ in range(rounds)]


def milliseconds(action: Callable[[], object]) -> float:
    """Measure the time of an action, in milliseconds."""
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1000


def whole_command_ms(
    cluster: vcluster.VirtualCluster, argv: Sequence[str], rounds: int
) -> list[float]:
    """Measure a command from its start to its end."""
    words = [f"{cluster.directory}/bin/{argv[0]}", *argv[1:]]
    env = vcluster.environment(cluster, cluster.nodes[0])

    def one() -> None:
        process.run(words, timeout_s=_STEP_S, env=env, log=False)

    one()  # fills the file cache and writes byte code
    return [milliseconds(one) for _ in range(rounds)]


def cpu_ms(
    cluster: vcluster.VirtualCluster, argv: Sequence[str], rounds: int
) -> tuple[list[float], list[float], list[float]]:
    """Measure the CPU time of a command, of the master daemon and of the node daemons, per run."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    master, nodes = bench_queue.cpu_s(cluster)
    whole_command_ms(cluster, argv, rounds - 1)  # the function runs the command once more
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    master_after, nodes_after = bench_queue.cpu_s(cluster)
    own = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime

    def each(seconds: float) -> list[float]:
        return [seconds * 1000 / rounds]

    return each(own), each(master_after - master), each(nodes_after - nodes)


def bare_python_ms(rounds: int) -> list[float]:
    """Measure a Python interpreter which does nothing, from its start to its end."""

    def one() -> None:
        process.run([sys.executable, "-c", ""], timeout_s=_STEP_S, log=False)

    one()
    return [milliseconds(one) for _ in range(rounds)]


def first_request_ms(
    cluster: vcluster.VirtualCluster, program: str, command: str, rounds: int
) -> list[float]:
    """Measure the time from the start of a command to its first byte on the socket of the master.

    This process serves the socket, so that the speed of the master has no influence.
    """
    samples = []
    with tempfile.TemporaryDirectory(prefix="gnt-bench-") as directory:
        here = paths.Paths(directory)
        real = cluster.paths(cluster.nodes[0])
        fs.make_dirs(here.socket_dir)
        fs.make_dirs(here.data_dir)
        for name in fs.list_visible(real.data_dir):
            # The command may read the name of the master before it connects.
            if name.startswith("ssconf_"):
                shutil.copy(f"{real.data_dir}/{name}", here.data_dir)
        env = process.environment(
            {**vcluster.environment(cluster, cluster.nodes[0]), paths.ENV_ROOT: directory}
        )
        path = vcluster.programs()[program]
        with net.unix_listen(here.master_socket) as listener:
            listener.settimeout(_REQUEST_S)
            for _ in range(rounds + 1):
                begun = time.perf_counter()
                child = subprocess.Popen(
                    [sys.executable, path, command],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                try:
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(_REQUEST_S)
                        connection.recv(1)
                    samples.append((time.perf_counter() - begun) * 1000)
                except TimeoutError as err:
                    raise errors.OpExecError(
                        f"{program} {command} sent no request to the master"
                    ) from err
                finally:
                    child.kill()
                    child.wait()
    return samples[1:]  # the first run fills the file cache and writes byte code


def completion_ms(instances: int, rounds: int) -> list[float]:
    """Measure one completion among this number of names of instances."""
    with tempfile.TemporaryDirectory(prefix="gnt-bench-") as directory:
        completion.build(directory, f"{directory}/{completion.ENGINE}")
        here = paths.Paths(f"{directory}/root")
        fs.make_dirs(here.data_dir)
        fs.write_file(
            here.ssconf_file("instance_list"),
            "".join(f"instance{number}.example.com\n" for number in range(1, instances + 1)),
        )
        words = [f"{directory}/{completion.ENGINE}", "gnt-instance", "startup", "instance77"]

        def one() -> None:
            process.run(words, timeout_s=_STEP_S, env={paths.ENV_ROOT: here.root}, log=False)

        one()
        return [milliseconds(one) for _ in range(rounds)]


def existing(requests: Sequence[tuple[str, str]] = FIRST_REQUESTS) -> list[tuple[str, str]]:
    """Return the commands whose program is installed."""
    programs = vcluster.programs()
    return [
        (program, command)
        for program, command in requests
        if os.path.exists(programs.get(program, ""))
    ]
