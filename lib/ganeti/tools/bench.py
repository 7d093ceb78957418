"""Measures the cluster: latency, throughput, start-up; the program ``bench`` (``make bench``).

Everything runs on a virtual cluster of three nodes with the ``fake`` hypervisor, through the same
sockets and programs a user has. Each figure stands beside its budget (``doc/performance.rst``);
with ``--baseline`` also beside an earlier run on the same machine, as a ratio.

Figures are medians of repeated measurements with the worst one beside them: on a shared machine the
median tells about the program, the worst about the neighbours.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti import __version__, errors, luxi
from ganeti.opcodes.test import OpTestDelay
from ganeti.tools import vcluster
from ganeti.utils import clock, fs, net, paths, process
from ganeti.wire import json

NODES = 3
_STEP_S = 600.0
_FORMAT = 1


class Figure(NamedTuple):
    """One measured quantity."""

    key: str
    title: str
    unit: str
    value: float
    worst: float
    samples: int
    budget: float | None
    more_is_better: bool

    @property
    def within_budget(self) -> bool | None:
        """Whether it is as good as it should be; None without a budget."""
        if self.budget is None:
            return None
        return self.value >= self.budget if self.more_is_better else self.value <= self.budget


def figure(
    key: str,
    title: str,
    unit: str,
    samples: Sequence[float],
    *,
    budget: float | None = None,
    more_is_better: bool = False,
) -> Figure:
    """Sum up repeated measurements."""
    worst = min(samples) if more_is_better else max(samples)
    return Figure(
        key, title, unit, statistics.median(samples), worst, len(samples), budget, more_is_better
    )


def ratio(now: Figure, before: Mapping[str, float]) -> float | None:
    """How many times better (above 1) or worse (below 1) than an earlier run; None if unknown."""
    old = before.get(now.key)
    if not old or not now.value:
        return None
    return now.value / old if now.more_is_better else old / now.value


def table(figures: Sequence[Figure], before: Mapping[str, float] | None = None) -> str:
    """The figures for people."""
    rows = [["What", "Median", "Worst", "Budget", "Met"]]
    if before is not None:
        rows[0].append("Ratio")
    for one in figures:
        met = {True: "yes", False: "no", None: "-"}[one.within_budget]
        budget = "-" if one.budget is None else f"{one.budget:g} {one.unit}"
        row = [one.title, f"{one.value:.1f} {one.unit}", f"{one.worst:.1f} {one.unit}", budget, met]
        if before is not None:
            better = ratio(one, before)
            row.append("-" if better is None else f"{better:.2f}")
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [f"{row[0]:<{widths[0]}}"]
        cells += [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def to_data(figures: Sequence[Figure]) -> dict[str, Any]:
    """The figures for programs and for a later ``--baseline``."""
    return {
        "format": _FORMAT,
        "version": __version__,
        "when": clock.format_time(clock.now()),
        "cores": os.cpu_count(),
        "figures": {
            one.key: {
                "title": one.title,
                "unit": one.unit,
                "value": one.value,
                "worst": one.worst,
                "samples": one.samples,
                "budget": one.budget,
            }
            for one in figures
        },
    }


def read_baseline(path: str) -> dict[str, float]:
    """Key -> value of an earlier run saved with ``--json``.

    :raises ConfigurationError: not such a file.
    """
    try:
        data = json.loads(fs.read_file(path))
        if data["format"] != _FORMAT:
            raise errors.ConfigurationError(f"{path} has format {data['format']}, not {_FORMAT}")
        return {key: float(one["value"]) for key, one in data["figures"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, errors.ParseError) as err:
        raise errors.ConfigurationError(f"{path} is not the result of a bench run") from err


# --- measurements ------------------------------------------------------------------------------


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _delay(duration_s: float = 0.0) -> OpTestDelay:
    return OpTestDelay(duration=duration_s, on_master=False, on_nodes=[])


_FINAL = ("success", "error", "canceled")


def _wait(client: luxi.Client, job_id: int) -> None:
    """Wait for a job as the commands do.

    :raises OpExecError: it did not succeed.
    """
    previous: list[Any] | None = None
    while previous is None or previous[0] not in _FINAL:
        previous, _log = client.wait_for_job_change(job_id, ["status"], previous, None)
    if previous[0] != "success":
        raise errors.OpExecError(f"job {job_id} ended with status {previous[0]}")


def job_latency(client: luxi.Client, rounds: int) -> Figure:
    """One small job at a time: from submitting to its end being known."""
    samples = []
    for _ in range(rounds):

        def one() -> None:
            _wait(client, client.submit_job([_delay()]))

        samples.append(_timed(one) * 1000)
    return figure("job_latency", "small job, idle cluster", "ms", samples, budget=20)


def jobs_per_second(client: luxi.Client, rounds: int, jobs: int) -> Figure:
    """Many small jobs in one request, until the last has ended."""
    samples = []
    for _ in range(rounds):

        def one() -> None:
            answers = client.submit_many_jobs([[_delay()] for _ in range(jobs)])
            for accepted, job_id in answers:
                if not accepted:
                    raise errors.OpExecError(f"a job was refused: {job_id}")
            for _, job_id in answers:
                _wait(client, job_id)

        samples.append(jobs / _timed(one))
    return figure(
        "jobs_per_second", f"small jobs, {jobs} at once", "jobs/s", samples,
        budget=500, more_is_better=True,
    )  # fmt: skip


def whole_command(cluster: vcluster.VirtualCluster, rounds: int) -> Figure:
    """``gnt-instance list`` from start to end."""
    node = cluster.nodes[0]
    argv = [f"{cluster.directory}/bin/gnt-instance", "list"]
    env = vcluster.environment(cluster, node)

    def one() -> None:
        process.run(argv, timeout_s=_STEP_S, env=env, log=False)

    one()  # warms the file cache and writes byte code
    return figure(
        "instance_list", "gnt-instance list, whole command", "ms",
        [_timed(one) * 1000 for _ in range(rounds)], budget=1000,
    )  # fmt: skip


def first_request(cluster: vcluster.VirtualCluster, rounds: int) -> Figure:
    """From starting ``gnt-instance list`` to its first byte on the master's socket.

    The socket belongs to this measurement, so that the master's own speed does not count.
    """
    samples = []
    with tempfile.TemporaryDirectory(prefix="gnt-bench-") as directory:
        here = paths.Paths(directory)
        real = cluster.paths(cluster.nodes[0])
        fs.make_dirs(here.socket_dir)
        fs.make_dirs(here.data_dir)
        for name in fs.list_visible(real.data_dir):
            # The command may look who is master before it connects.
            if name.startswith("ssconf_"):
                shutil.copy(f"{real.data_dir}/{name}", here.data_dir)
        env = process.environment(
            {**vcluster.environment(cluster, cluster.nodes[0]), paths.ENV_ROOT: directory}
        )
        program = vcluster.programs()["gnt-instance"]
        with net.unix_listen(here.master_socket) as listener:
            listener.settimeout(_STEP_S)
            for _ in range(rounds):
                started = time.perf_counter()
                child = subprocess.Popen(
                    [sys.executable, program, "list"],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                try:
                    connection, _ = listener.accept()
                    with connection:
                        connection.settimeout(_STEP_S)
                        connection.recv(1)
                    samples.append((time.perf_counter() - started) * 1000)
                finally:
                    child.kill()
                    child.wait()
    return figure("first_request", "gnt-instance list to first request", "ms", samples, budget=100)


def master_start(cluster: vcluster.VirtualCluster, rounds: int) -> Figure:
    """From starting ganeti-masterd to *serving*, as its starter sees it."""
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


def measure(cluster: vcluster.VirtualCluster, *, quick: bool = False) -> list[Figure]:
    """All figures of one cluster."""
    first = cluster.nodes[0]
    figures = []
    with luxi.Client(cluster.paths(first).master_socket) as client:
        _wait(client, client.submit_job([_delay()]))  # the first job pays for lazy imports
        figures.append(job_latency(client, 10 if quick else 100))
        figures.append(jobs_per_second(client, 1 if quick else 5, 200))
    figures.append(whole_command(cluster, 3 if quick else 15))
    figures.append(first_request(cluster, 3 if quick else 15))
    figures.append(master_start(cluster, 1 if quick else 5))
    return figures


def _progress(message: str) -> None:
    """Progress goes beside the figures, which may be read by a program."""
    print(message, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description="Measure the cluster.")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here (- for stdout)")
    parser.add_argument("--baseline", metavar="FILE", help="compare with an earlier --json")
    parser.add_argument("--quick", action="store_true", help="few repetitions, for a first look")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    options = _parser().parse_args(argv)
    for name in (paths.ENV_ROOT, paths.ENV_HOSTNAME, paths.ENV_VCLUSTER):
        os.environ.pop(name, None)
    try:
        before = read_baseline(options.baseline) if options.baseline else None
        with tempfile.TemporaryDirectory(prefix="gnt-bench-") as place:
            directory = f"{place}/vc"
            cluster = vcluster.create(directory, NODES, hypervisor="fake", say=_progress)
            try:
                figures = measure(cluster, quick=options.quick)
            finally:
                vcluster.destroy(directory)
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
