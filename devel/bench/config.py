"""Measures the configuration store: ``python -m devel.bench.config``.

For clusters of several sizes it measures the time until a change is acknowledged, the time of
reading, and the time of loading. It does so once with the local disk only, and once with master
candidates: node daemons of a virtual cluster, to which changes are distributed as the master daemon
does it. The history is written as usual.

All nodes of a virtual cluster share one disk, so a commit flushes the file once for each node, one
after the other; real nodes have one disk each. ``--candidates-in`` moves the files of the
candidates to another disk, or to memory (``/dev/shm``), where flushing takes no time.

Times are measured in this process, from the call to its return. p50 and p99 are percentiles. On a
shared machine the worst time shows interference by other work.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ganeti import errors, vcluster
from ganeti.config import Config
from ganeti.config.text import ConfigText
from ganeti.configfile import files
from ganeti.configfile.files import write_config_file
from ganeti.objects import ConfigData, Disk, Instance, Nic
from ganeti.platform import paths
from ganeti.rpc import RpcRunner, open_client
from ganeti.rpc.distribute import ConfigDistributor
from ganeti.utils import fs, process, text
from ganeti.wire import json

SIZES: Final = (1_000, 10_000, 20_000)
_COMMIT_BUDGET_MS: Final = 50.0
_NODES: Final = 3


class Times(NamedTuple):
    """The times of one kind of action in a cluster of one size, in ``unit``."""

    what: str
    instances: int
    unit: str
    p50: float
    p99: float
    worst: float
    samples: int
    budget: float | None


def times(
    what: str,
    instances: int,
    samples: Sequence[float],
    *,
    unit: str = "ms",
    budget: float | None = None,
) -> Times:
    """Summarise the samples of one kind of action."""
    ordered = sorted(samples)
    return Times(
        what,
        instances,
        unit,
        _share(ordered, 0.50),
        _share(ordered, 0.99),
        ordered[-1],
        len(ordered),
        budget,
    )


def _share(ordered: Sequence[float], share: float) -> float:
    """Return the value which this share of the sorted values does not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def table(found: Sequence[Times]) -> str:
    """Format the measurements as a table."""
    rows = [["Instances", "What", "p50", "p99", "Worst", "Budget p99", "Within"]]
    for one in found:
        within = "-" if one.budget is None else "yes" if one.p99 <= one.budget else "no"
        budget = "-" if one.budget is None else f"{one.budget:g} {one.unit}"
        rows.append(
            [
                f"{one.instances}",
                one.what,
                *(f"{value:.1f} {one.unit}" for value in (one.p50, one.p99, one.worst)),
                budget,
                within,
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [f"{row[0]:>{widths[0]}}", f"{row[1]:<{widths[1]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


# --- contents of the cluster
# ------------------------------------------------------------------------------------


def make_instance(number: int, node_uuid: str) -> tuple[Instance, Disk]:
    """Make an instance with a disk and a NIC."""
    disk = Disk(
        dev_type="file",
        nodes=(node_uuid,),
        iv_name="disk/0",
        size=10240,
        uuid=text.new_uuid(),
        logical_id=("loop", f"/srv/ganeti/file-storage/instance{number}/{number}.file.disk0"),
        serial_no=1,
        ctime=1.0,
        mtime=1.0,
    )
    low = number.to_bytes(3, "big")
    nic = Nic(
        mac=f"aa:00:10:{low[0]:02x}:{low[1]:02x}:{low[2]:02x}", nicparams={}, uuid=text.new_uuid()
    )
    return Instance(
        name=f"instance{number}.example.com",
        primary_node=node_uuid,
        os="debian+default",
        hypervisor="fake",
        beparams={"maxmem": 1024, "minmem": 1024, "vcpus": 2},
        admin_state="up",
        admin_state_source="admin",
        disks_active=True,
        nics=(nic,),
        disks=(disk.uuid,),
        uuid=text.new_uuid(),
        serial_no=1,
        ctime=1.0,
        mtime=1.0,
    ), disk


def filled_cluster(data: ConfigData, instances: int, serial_no: int) -> ConfigData:
    """Return a cluster with this number of instances, distributed over its nodes."""
    nodes = list(data.nodes)
    made = [make_instance(number, nodes[number % len(nodes)]) for number in range(1, instances + 1)]
    return dataclasses.replace(
        data,
        serial_no=serial_no,
        instances={instance.uuid: instance for instance, _disk in made},
        disks={disk.uuid: disk for _instance, disk in made},
    )


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def measure(
    path: str, size: int, rounds: int, distribute: Any = None, *, serial_no: int = 10
) -> list[Times]:
    """Measure a cluster of one size.

    :param path: a configuration file; it is overwritten.
    :param size: number of instances.
    :param rounds: number of changes of each kind.
    :param distribute: sends changes to candidates; None measures the local disk only.
    :param serial_no: first serial number; candidates refuse one that is lower than theirs.
    """
    start = Config.open(path).snapshot()
    data = filled_cluster(start, size, serial_no)
    write_config_file(path, ConfigText(data).render(data, ()))
    del start
    opened: list[Config] = []
    load_s = _timed(
        lambda: opened.append(Config.open(path, distribute=distribute, change=files.change))
    )
    config = opened[0]
    # The master daemon does the same after its start.
    gc.collect()
    gc.freeze()
    found = []
    uuids = list(config.snapshot().instances)
    nodes = list(config.snapshot().nodes)
    where = "" if distribute is None else f", {len(nodes) - 1} candidates"
    # The first change after a start sends the whole file to the candidates.
    with config.transaction() as transaction:
        transaction.instances.set_disks_active(uuids[0], False)

    def change(number: int) -> None:
        uuid = uuids[number * 7919 % len(uuids)]
        with config.transaction() as transaction:
            transaction.instances.set_disks_active(uuid, not config.instance(uuid).disks_active)

    made = [make_instance(size + number, nodes[0]) for number in range(1, rounds + 1)]

    def add(number: int) -> None:
        instance, disk = made[number]
        with config.transaction() as transaction:
            transaction.instances.add(instance, [disk], "bench")

    actions: tuple[tuple[str, Callable[[int], None]], ...] = (
        (f"change an instance{where}", change),
        (f"add an instance{where}", add),
    )
    for what, action in actions:
        samples = [_timed(partial(action, number)) * 1e3 for number in range(rounds)]
        found.append(times(what, size, samples, budget=_COMMIT_BUDGET_MS))
    if distribute is None:
        found += _reading(config, path, size, rounds, load_s)
    gc.unfreeze()
    return found


def _reading(config: Config, path: str, size: int, rounds: int, load_s: float) -> list[Times]:
    uuids = list(config.snapshot().instances)
    one = [_timed(partial(config.instance, uuid)) * 1e6 for uuid in uuids[:rounds]]
    names = [config.instance(uuid).name for uuid in uuids[:rounds]]
    config.expand_instance(names[0])
    named = [_timed(partial(config.expand_instance, name)) * 1e6 for name in names]
    in_order = [_timed(config.instances) * 1e6 for _ in range(rounds)]
    newest = config.snapshot().serial_no
    back = [_timed(lambda: config.at(newest - rounds)) * 1e3 for _ in range(3)]
    return [
        times("read an instance by uuid", size, one, unit="us"),
        times("read an instance by name", size, named, unit="us"),
        times("all instances in order", size, in_order, unit="us"),
        times(f"the state {rounds} commits ago", size, back),
        times("load, check and open", size, [load_s * 1e3]),
    ]


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _move_candidates(cluster: vcluster.VirtualCluster, place: str) -> None:
    """Move the files of all nodes except the first one to another directory."""
    for node in cluster.nodes[1:]:
        env = vcluster.environment(cluster, node)
        util = f"{cluster.directory}/bin/daemon-util"
        process.run([util, "stop-all"], timeout_s=600.0, env=env, log=False)
        data_dir = cluster.paths(node).data_dir
        shutil.move(data_dir, f"{place}/{node.name}")
        os.symlink(f"{place}/{node.name}", data_dir)
        process.run([util, "start", "ganeti-noded"], timeout_s=600.0, env=env, log=False)


def run(sizes: Sequence[int], rounds: int, candidates_in: str | None = None) -> list[Times]:
    """Create a virtual cluster, measure on it, and destroy it.

    :param sizes: numbers of instances.
    :param rounds: number of changes of each kind.
    :param candidates_in: an existing directory for the files of the candidates.
    """
    found: list[Times] = []
    with (
        tempfile.TemporaryDirectory(prefix="gnt-bench-") as place,
        tempfile.TemporaryDirectory(prefix="gnt-bench-", dir=candidates_in) as elsewhere,
    ):
        directory = f"{place}/vc"
        cluster = vcluster.create(
            directory, vcluster.Plan(_NODES, hypervisor="fake"), say=_progress
        )
        try:
            first = cluster.nodes[0]
            process.run(
                [f"{cluster.directory}/bin/daemon-util", "stop", "ganeti-masterd"],
                timeout_s=600.0,
                env=vcluster.environment(cluster, first),
                log=False,
            )
            if candidates_in is not None:
                _move_candidates(cluster, elsewhere)
            with paths.override(cluster.paths(first)) as here:
                empty = fs.read_bytes(here.cluster_conf_file)
                for number, size in enumerate(sizes, start=1):
                    for with_nodes in (False, True):
                        _progress(
                            f"Measuring {size} instances{' with candidates' if with_nodes else ''}"
                        )
                        fs.write_file(here.cluster_conf_file, empty, mode=0o640)
                        found += _one(here, size, rounds, with_nodes, number * 1_000_000)
        finally:
            vcluster.destroy(directory)
    return found


def _one(
    here: paths.Paths, size: int, rounds: int, with_nodes: bool, serial_no: int
) -> list[Times]:
    if not with_nodes:
        return measure(here.cluster_conf_file, size, rounds)
    known: list[ConfigData] = []

    def snapshot() -> ConfigData:
        return known[0]

    runner = RpcRunner(snapshot, open_client(here))
    distributor = ConfigDistributor(runner)

    def distribute(wanted: Any) -> Any:
        known[:] = [wanted.data]
        return distributor(wanted)

    return measure(here.cluster_conf_file, size, rounds, distribute, serial_no=serial_no)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the figures; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="bench-config", description="Measure the configuration store."
    )
    parser.add_argument(
        "--sizes",
        default=",".join(map(str, SIZES)),
        metavar="N,...",
        help="numbers of instances (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=200,
        metavar="N",
        help="number of changes of each kind (default: %(default)s)",
    )
    parser.add_argument(
        "--candidates-in",
        metavar="DIR",
        help="directory for the files of the candidates, for example /dev/shm",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="also write the figures to this file, as JSON"
    )
    options = parser.parse_args(argv)
    try:
        sizes = [int(size) for size in options.sizes.split(",")]
        if min(sizes) < 1 or options.rounds < 1:
            raise ValueError
    except ValueError:
        parser.error("--sizes and --rounds must be whole numbers above 0")
    try:
        found = run(sizes, options.rounds, options.candidates_in)
        if options.json:
            fs.write_file(
                options.json, json.dumps_pretty([one._asdict() for one in found]), mode=0o644
            )
    except (errors.GenericError, OSError) as err:
        print(f"bench-config: {err}", file=sys.stderr)
        return 1
    print(table(found))
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"Highest memory use of this process: {memory_mib:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
