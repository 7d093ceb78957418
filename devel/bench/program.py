"""Measures latency, throughput and start-up of a cluster: ``python -m devel.bench``.

Everything runs on virtual clusters with the ``fake`` hypervisor, through the sockets and programs
which a user has. The measurements are grouped in sections (``--sections``). The table has the
budget of each figure (``doc/performance.rst``), and with ``--baseline`` the ratio to an earlier run
on the same machine.

Figures are medians of repeated measurements; the table has the worst value, too. On a shared
machine the median shows the program, and the worst value shows interference by other work.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from devel.bench import calls as call
from devel.bench import instances as instance
from devel.bench import lists as query
from devel.bench import memory, monitoring, placement, power_cut, processes, queue, rest
from devel.bench.figures import Figure, figure, read_baseline, table, to_data
from ganeti import errors, vcluster
from ganeti.platform import paths
from ganeti.utils import fs, process
from ganeti.watcher import restarting
from ganeti.wire import json

_STEP_S = 600.0


# --- measurements ------------------------------------------------------------------------------


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def job_latency(socket: str, rounds: int, key: str, where: str) -> list[Figure]:
    """Measure small jobs, one at a time: from the submission until the end is known."""
    samples = queue.latencies_ms(socket, rounds)
    return [
        figure(f"job_latency{key}", f"small job, {where}", "ms", samples, budget=12),
        figure(f"job_latency_p99{key}", f"small job, {where}, p99", "ms",
               [queue.percentile(samples, 99)], budget=60),
    ]  # fmt: skip


def acceptance(socket: str, rounds: int, key: str, where: str) -> Figure:
    """Measure 200 jobs in one request, until they are accepted."""
    return figure(f"acceptance{key}", f"200 jobs accepted, {where}", "ms",
                  queue.acceptance_ms(socket, rounds), budget=100)  # fmt: skip


def sustained(
    cluster: vcluster.VirtualCluster, seconds: float, key: str, where: str, budget: float | None
) -> list[Figure]:
    """Measure a busy queue: jobs per second, and CPU time per job."""
    load = queue.sustained(cluster, seconds)
    return [
        figure(f"sustained{key}", f"small jobs, sustained, {where}", "jobs/s", [load.jobs_per_s],
               budget=budget, more_is_better=True),
        figure(f"master_cpu{key}", f"  of this CPU of the master, {where}", "ms/job",
               [load.master_ms_per_job]),
        figure(f"nodes_cpu{key}", f"  of this CPU of all nodes, {where}", "ms/job",
               [load.nodes_ms_per_job]),
    ]  # fmt: skip


def backlog(
    cluster: vcluster.VirtualCluster, queued: int, archived: int, rounds: int
) -> list[Figure]:
    """Measure a queue with many jobs."""
    found = queue.backlog(cluster, queued=queued, archived=archived, rounds=rounds)
    where = f"{queued} jobs queued"
    return [
        figure("list_p99", f"job list, {where}, p99", "ms",
               [queue.percentile(found.list_ms, 99)], budget=100),
        figure("list_some_p99", f"list of 20 jobs, {where}, p99", "ms",
               [queue.percentile(found.some_ms, 99)], budget=100),
        figure("job_memory", "memory per queued job", "KiB", [found.kib_per_job]),
        figure("restart", f"restart, {where}, {archived} archived", "ms", found.restart_ms,
               budget=3000),
    ]  # fmt: skip


def whole_command(cluster: vcluster.VirtualCluster, rounds: int) -> Figure:
    """Measure ``gnt-instance list`` from its start to its end."""
    return figure(
        "instance_list",
        "gnt-instance list, whole command",
        "ms",
        query.whole_command_ms(cluster, ("gnt-instance", "list"), rounds),
        budget=1000,
    )


def first_request(cluster: vcluster.VirtualCluster, rounds: int) -> Figure:
    """Measure the time from the start of ``gnt-instance list`` to its first byte to the master."""
    return figure(
        "first_request",
        "gnt-instance list to first request",
        "ms",
        query.first_request_ms(cluster, "gnt-instance", "list", rounds),
        budget=100,
    )


def lists(cluster: vcluster.VirtualCluster, size: int, rounds: int) -> list[Figure]:
    """Measure list commands with ``size`` instances and jobs."""
    found = query.lists(cluster, size, rounds)
    commands = (
        ("instances", "gnt-instance list", found.instances_ms, 1000),
        ("config", "gnt-instance list, configuration", found.instances_config_ms, 500),
        ("one", "gnt-instance list of one", found.one_instance_ms, 200),
        ("nodes", "gnt-node list", found.nodes_ms, 1000),
        ("jobs", "gnt-job list", found.jobs_ms, 1000),
    )
    rows = (
        ("config_row", "row of 6 fields, configuration", found.config_row_us),
        ("live_row", "row of 6 fields, with live data", found.live_row_us),
    )
    cpu = (
        ("command_cpu", "CPU of gnt-instance list", found.command_cpu_ms),
        ("master_cpu", "  of the master for it", found.master_cpu_ms),
        ("nodes_cpu", "  of all nodes for it", found.nodes_cpu_ms),
    )
    return [
        *(
            figure(f"list_{key}_{size}", f"{title}, {size}", "ms", samples, budget=budget)
            for key, title, samples, budget in commands
        ),
        *(
            figure(f"{key}_{size}", f"{title}, {size}", "us", samples)
            for key, title, samples in rows
        ),
        *(
            figure(f"list_{key}_{size}", f"{title}, {size}", "ms", samples)
            for key, title, samples in cpu
        ),
    ]


def start_up(cluster: vcluster.VirtualCluster, rounds: int) -> list[Figure]:
    """Measure each program up to its first request, and an interpreter which does nothing."""
    bare = figure("bare_python", "python, start to end", "ms", query.bare_python_ms(rounds))
    figures = [
        bare,
        figure(
            "completion",
            "tab key, 10000 instances",
            "ms",
            query.completion_ms(10000, rounds),
            budget=50,
        ),
    ]
    for program, command in query.existing():
        samples = query.first_request_ms(cluster, program, command, rounds)
        key, title = program.replace("-", "_"), f"{program} {command}"
        figures.append(
            figure(f"first_{key}", f"{title} to first request", "ms", samples, budget=100)
        )
        figures.append(
            figure(
                f"first_{key}_ratio",
                f"  of bare python, {program}",
                "times",
                [sample / bare.value for sample in samples],
            )
        )
    return figures


def master_start(cluster: vcluster.VirtualCluster, rounds: int) -> Figure:
    """Measure the start of ganeti-masterd, until it reports that it serves requests."""
    env = vcluster.environment(cluster, cluster.nodes[0])
    program = f"{cluster.directory}/bin/ganeti-masterd"
    util = f"{cluster.directory}/bin/daemon-util"
    samples = []
    for _ in range(rounds):
        process.run([util, "stop", "ganeti-masterd"], timeout_s=_STEP_S, env=env, log=False)
        samples.append(
            _timed(lambda: process.run([program], timeout_s=_STEP_S, env=env, log=False)) * 1000
        )
    return figure("masterd_start", "start of ganeti-masterd", "ms", samples, budget=3000)


# --- sections ----------------------------------------------------------------------------------


def _commands(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    return [
        whole_command(cluster, 3 if quick else 15),
        first_request(cluster, 3 if quick else 15),
        master_start(cluster, 1 if quick else 5),
    ]


def _jobs(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    count = len(cluster.nodes)
    key, where = f"_{count}", f"{count} candidate{'s' if count > 1 else ''}"
    socket = cluster.paths(cluster.nodes[0]).master_socket
    return [
        *job_latency(socket, 10 if quick else 200, key, where),
        acceptance(socket, 1 if quick else 5, key, where),
        *sustained(cluster, 0.5 if quick else 5.0, key, where, _RATES.get(count)),
    ]


def _backlog(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    return backlog(cluster, 1000 if quick else 10000, 1000 if quick else 50000,
                   5 if quick else 100)  # fmt: skip


def _lists(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    rounds = 2 if quick else 9
    return [
        one
        for size in ((10, 100) if quick else (10, 1000, 10000))
        for one in lists(cluster, size, rounds)
    ]


def _instances(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    instance.install_os(cluster)
    one = instance.one(cluster, 2 if quick else 20)
    many = instance.many(cluster, 10 if quick else 100)
    placed = instance.placed(cluster, 2 if quick else 20)
    return [
        figure("instance_create_chosen", "create an instance, with the default allocator", "ms",
               placed.chosen_ms, budget=78),
        figure("instance_create_ratio", "  compared with a named node", "times",
               [chosen / named for named, chosen in zip(*placed, strict=True)], budget=1.3),
        *(figure(f"instance_{key}", f"{title} an instance", "ms", samples, budget=budget)
          for key, title, samples, budget in (
              ("create", "create", one.create_ms, 60),
              ("startup", "start", one.startup_ms, 40),
              ("shutdown", "stop", one.shutdown_ms, 40),
              ("remove", "remove", one.remove_ms, 40),
              ("migrate", "migrate", one.migrate_ms, 50))),
        figure("instances_created", "instances created, 100 at once", "1/s",
               [many.created_per_s], budget=60, more_is_better=True),
        figure("instances_removed", "instances removed, 100 at once", "1/s",
               [many.removed_per_s], more_is_better=True),
        figure("instances_master_cpu", "  of this CPU of the master", "ms", [many.master_ms]),
        figure("instances_nodes_cpu", "  of this CPU of all nodes", "ms", [many.nodes_ms]),
    ]  # fmt: skip


def _processes(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    instance.install_os(cluster)
    created = processes.creations_ms(cluster, 2 if quick else 20)
    killed = processes.kills_ms(cluster, 2 if quick else 20)
    query.fill(cluster, 100 if quick else 10000)
    rounds = 1 if quick else 5
    verified = processes.computing_per_s(cluster, processes.VERIFICATIONS, rounds)
    searched = processes.computing_per_s(cluster, processes.SEARCHES, rounds)
    return [
        figure("create_threads", "create an instance, job in a thread", "ms", created.threads),
        figure("create_processes", "create an instance, job in a process", "ms",
               created.processes),
        figure("create_processes_ratio", "  compared with a thread", "times", created.ratios,
               budget=1.5),
        figure("kill_ms", "kill a running job, until another job has had its lock", "ms", killed,
               budget=1000),
        figure("computing_threads", "verify the configuration, in threads", "1/s",
               verified.threads, more_is_better=True),
        figure("computing_processes", "verify the configuration, in processes", "1/s",
               verified.processes, more_is_better=True),
        figure("computing_processes_ratio", "  compared with threads", "times", verified.ratios,
               budget=1.6, more_is_better=True),
        figure("search_threads", "search 10,000 instances, in threads", "1/s",
               searched.threads, more_is_better=True),
        figure("search_processes", "search 10,000 instances, in processes", "1/s",
               searched.processes, more_is_better=True),
        figure("search_processes_ratio", "  compared with threads", "times", searched.ratios,
               more_is_better=True),
    ]  # fmt: skip


def _power_cut(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    count = 20 if quick else 200
    found = [power_cut.restart(cluster, count, n) for n in range(1 if quick else 3)]
    return [
        figure("power_cut", f"{count} instances started after a power cut", "s",
               [one.whole_s for one in found]),
        figure("power_cut_first", "  until the first in the order runs", "s",
               [one.first_s for one in found]),
        figure("power_cut_jobs", "  most jobs at the same time", "jobs",
               [one.most_jobs for one in found], budget=restarting.MAX_JOBS),
    ]  # fmt: skip


def _calls(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    titles = {
        "kept": "node call, kept connection",
        "resumed": "node call, resumed session",
        "full": "node call, full handshake",
    }
    found = call.measure(cluster, 5 if quick else 300)
    return [
        figure(f"call_{kind}{key}", f"{titles[kind]}{with_pin}", "ms", samples)
        for kind in call.KINDS
        for key, with_pin, samples in (
            ("", "", found[kind].plain_ms),
            ("_pinned", ", key pinned", found[kind].pinned_ms),
        )
    ]


def _start_up(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    return start_up(cluster, 2 if quick else 15)


#: Goals in milliseconds of one step of balancing, by number of nodes (``doc/performance.rst``).
_STEP_GOALS = {80: 150.0, 200: 1000.0}
#: Seconds of processor time after which the original programs are ended.
_ORIGINAL_LIMIT_S = 120
#: The programs which have to be so many times faster than the original, and at which sizes.
_RATIO_GOALS = {("hspace", 80): 100.0, ("hspace", 200): 100.0}
_RUNS = {"hspace_some": "hspace with a limit"}


def _placement(quick: bool) -> list[Figure]:
    original = os.access(placement.ORIGINAL, os.X_OK)
    found: list[Figure] = []
    grown: list[placement.Growth] = []
    for nodes, instances in placement.SIZES[:2] if quick else placement.SIZES:
        with tempfile.TemporaryDirectory(prefix="gnt-bench-") as place:
            one = placement.growth(
                place, nodes, instances, rounds=1 if quick else 5, original=original,
                limit_s=_ORIGINAL_LIMIT_S,
            )  # fmt: skip
        grown.append(one)
        found += _placement_figures(one, original)
        _progress(f"htools, {nodes} nodes and {instances} instances: done")
    for program in ("hbal", "hspace", "hspace_some", "hail"):
        rows = [
            (f"{one.nodes} x {one.instances}", one.programs_ms[program],
             one.original_ms.get(program))
            for one in grown
        ]  # fmt: skip
        _progress(
            placement.plot(f"\n{_RUNS.get(program, program)}, processor time, logarithmic", rows)
        )
    return found


def _placement_figures(one: placement.Growth, original: bool) -> list[Figure]:
    where = f"{one.nodes} nodes, {one.instances} instances"
    found = [
        figure(f"htools_step_{one.nodes}", f"one more step of balancing, {where}", "ms",
               one.step_ms, budget=_STEP_GOALS.get(one.nodes)),
    ]  # fmt: skip
    if original:
        # The time of a program which was ended is a lower bound, and so is the ratio.
        step_ms = one.original_ms.get("hbal", one.limit_ms)
        found.append(
            figure(f"htools_step_{one.nodes}_ratio", "  hbal -l 1 of the original, compared",
                   "times", [step_ms / one_ms for one_ms in one.step_ms],
                   budget=100 if one.nodes == 80 else None, more_is_better=True)
        )  # fmt: skip
    for program, own_ms in one.programs_ms.items():
        budget = 50 if (program, one.nodes) == ("hail", 40) else None
        found.append(
            figure(f"htools_{program}_{one.nodes}", f"{_RUNS.get(program, program)}, {where}",
                   "ms", [own_ms], budget=budget)
        )  # fmt: skip
        if original:
            ratio_of = one.original_ms.get(program, one.limit_ms) / own_ms
            reached = "" if program in one.original_ms else ", ended at its limit"
            found.append(
                figure(f"htools_{program}_{one.nodes}_ratio", f"  the original{reached}, compared"
                       " with it", "times", [ratio_of],
                       budget=_RATIO_GOALS.get((program, one.nodes)), more_is_better=True)
            )  # fmt: skip
    return found


def _monitoring(cluster: vcluster.VirtualCluster, quick: bool) -> list[Figure]:
    count = 20 if quick else 300
    found = monitoring.scrapes(cluster, count, 1 if quick else 5, 5.0 if quick else 60.0)
    where = f"{count} instances"
    minute = f"one minute, a reading every {monitoring.EVERY_S:g} s"
    return [
        figure("scrape_kept", f"/metrics of the master, {where}", "ms", found.kept_ms, budget=50),
        figure("scrape_fresh", "  when the master is asked for it", "ms", found.fresh_ms,
               budget=200),
        figure("scrape_page", "  size of the page", "KiB", [found.page_kib]),
        figure("scrape_mond_cpu", f"CPU of ganeti-mond for {minute}", "ms", [found.mond_ms]),
        figure("scrape_master_cpu", "  of the master daemon", "ms", [found.master_ms]),
        figure("scrape_nodes_cpu", "  of all node daemons", "ms", [found.nodes_ms]),
    ]  # fmt: skip


class Section(NamedTuple):
    """A group of figures, and the sizes of the clusters on which they are measured.

    :ivar monitored: the nodes run ``ganeti-mond``.
    :ivar alone: measures without a virtual cluster; then there are no sizes.
    """

    about: str
    nodes: Sequence[int] = ()
    measure: Callable[[vcluster.VirtualCluster, bool], list[Figure]] | None = None
    alone: Callable[[bool], list[Figure]] | None = None
    monitored: bool = False


# Budget of jobs per second, by number of candidates.
_RATES = {1: 1000.0, 5: 500.0}
SECTIONS = {
    "commands": Section("start-up of commands and of the master daemon", (3,), _commands),
    "startup": Section("each program up to its first request", (1,), _start_up),
    "lists": Section("lists of 10, 1000 and 10000 instances and jobs", (3,), _lists),
    "instances": Section(
        "operations on one instance, and on 100 at once, on five nodes", (5,), _instances
    ),
    "processes": Section("jobs in threads and in processes", (3,), _processes),
    "powercut": Section(
        "the watcher starts 200 instances whose guests died, on five nodes", (5,), _power_cut
    ),
    "calls": Section("node calls, with the key of the node pinned and without", (2,), _calls),
    "rest": Section(
        "requests to the REST daemon, and a list of 10000 instances", (3,), rest.requests
    ),
    "rest-lists": Section("lists of 20000 instances over REST", (3,), rest.lists),
    "events": Section("jobs and requests beside 1000 listeners to events", (3,), rest.events),
    "monitoring": Section(
        "readings of the metrics of a cluster with 300 instances, on five nodes",
        (5,),
        _monitoring,
        monitored=True,
    ),
    "memory": Section(
        "memory of the daemons of a master's machine, without and with 300 instances",
        (5,),
        memory.measure,
    ),
    "jobs": Section("small jobs with one and with five candidates", (1, 5), _jobs),
    "curve": Section(
        "small jobs with other numbers of candidates up to ten", (2, 3, 4, 6, 8, 10), _jobs
    ),
    "htools": Section(
        "placement programs beside the original, for 10 to 200 nodes", alone=_placement
    ),
    "backlog": Section("10000 jobs queued and 50000 archived", (1,), _backlog),
}
DEFAULT_SECTIONS = ("commands", "jobs")


def measure(names: Sequence[str], *, quick: bool = False) -> list[Figure]:
    """Measure sections, each size on a new virtual cluster.

    :param quick: make few repetitions.
    """
    figures: list[Figure] = []
    for name in names:
        section = SECTIONS[name]
        if section.alone is not None:
            found = section.alone(quick)
            load = os.getloadavg()[0]
            figures += [one._replace(load=load) for one in found]
        for count in section.nodes[:1] if quick else section.nodes:
            with tempfile.TemporaryDirectory(prefix="gnt-bench-") as place:
                directory = f"{place}/vc"
                plan = vcluster.Plan(count, hypervisor="fake", monitoring=section.monitored)
                cluster = vcluster.create(directory, plan, say=_nothing)
                try:
                    # Writes which are still pending would disturb the measurement.
                    os.sync()
                    assert section.measure is not None
                    found = section.measure(cluster, quick)
                finally:
                    vcluster.destroy(directory)
            load = os.getloadavg()[0]
            figures += [one._replace(load=load) for one in found]
            _progress(f"{name}, {count} nodes: done, load {load:.1f}")
    return figures


def _nothing(_message: str) -> None:
    """Ignore the progress of the creation of a cluster."""


def _progress(message: str) -> None:
    """Print progress to standard error, because standard output may have the figures as JSON."""
    print(message, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench", description="Measure latency, throughput and start-up of a cluster.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="sections:\n" + "\n".join(
            f"  {name:<10} {section.about}"
            + (" (default)" if name in DEFAULT_SECTIONS else "")
            for name, section in SECTIONS.items()),
    )  # fmt: skip
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="also write the figures to this file, as JSON; - means standard output only",
    )
    parser.add_argument(
        "--baseline", metavar="FILE", help="compare with this file of an earlier run"
    )
    parser.add_argument("--quick", action="store_true", help="make few repetitions")
    parser.add_argument(
        "--sections",
        metavar="NAME,...",
        type=_section_names,
        default=DEFAULT_SECTIONS,
        help="sections to measure, or 'all'",
    )
    return parser


def _section_names(text: str) -> tuple[str, ...]:
    names = tuple(SECTIONS) if text == "all" else tuple(text.split(","))
    for name in names:
        if name not in SECTIONS:
            raise argparse.ArgumentTypeError(
                f"there is no section '{name}'. The sections are {', '.join(SECTIONS)}."
            )
    return names


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the figures; returns the exit code."""
    options = _parser().parse_args(argv)
    for name in (paths.ENV_ROOT, paths.ENV_HOSTNAME, paths.ENV_VCLUSTER):
        os.environ.pop(name, None)
    try:
        before = read_baseline(options.baseline) if options.baseline else None
        figures = measure(options.sections, quick=options.quick)
        data = json.dumps(to_data(figures)) + "\n"
        if options.json == "-":
            sys.stdout.write(data)
            return 0
        if options.json:
            fs.write_file(options.json, data, mode=0o644)
        print(table(figures, before))
    except (errors.GenericError, OSError) as err:
        print(f"bench: {err}", file=sys.stderr)
        return 1
    return 0
