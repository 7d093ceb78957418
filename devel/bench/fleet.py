"""Measures clusters of 10, 100 and 1,000 simulated nodes: ``make bench-fleet``.

The master is real; all other nodes are simulated (:mod:`devel.simnodes`), and answer within a
millisecond. A node has 20 instances with mirrored disks. Each figure is measured in clusters of all
sizes, so that one sees what grows with the cluster. Times are given with the processor time of the
master daemon, because the simulated nodes use the same processors: a second which 1,000 nodes need
together for their answers is not time of the master.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from devel.bench import lists, placement, queue, rapi
from devel.simnodes.cluster import SimulatedCluster, Size, node_name, running
from ganeti import errors
from ganeti.luxi import client as luxi
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.cluster import OpClusterVerify
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceMigrate, OpInstanceRemove
from ganeti.opcodes.tags import OpTagsSet
from ganeti.utils import clock, daemonize, fs, process
from ganeti.utils.net import wait_readable
from ganeti.wire import json

_STEP_S: Final = 900.0
#: Sizes of ``--sizes``, by number of nodes.
SIZES: Final = (10, 100, 1_000)
_HANGING: Final = 20  # one node of so many
_LISTENERS: Final = 1_000
# Time for the flush of a change of the configuration on a candidate, and of every other answer.
_NODE_OPTIONS: Final = ("--delay-ms=0.5", "--jitter-ms=1", "--call-delay=config_rewrite=5")


class Row(NamedTuple):
    """A figure for one size.

    :ivar key: name of the figure, the same for all sizes.
    :ivar cpu_ms: processor time of the master daemon; None where it means nothing.
    """

    nodes: int
    key: str
    title: str
    unit: str
    value: float
    worst: float
    cpu_ms: float | None
    goal: float | None
    load: float


class Bench:
    """Measures one running cluster."""

    def __init__(self, cluster: SimulatedCluster, rounds: int) -> None:
        self.cluster = cluster
        self.rounds = rounds
        self.rows: list[Row] = []
        self._names = 0
        # What was measured of commits before the step with jobs.
        self._earlier: tuple[list[float], list[int], float] | None = None

    # -- tools ------------------------------------------------------------------------------------

    def note(
        self,
        key: str,
        title: str,
        unit: str,
        samples: Sequence[float],
        *,
        cpu_ms: float | None = None,
        goal: float | None = None,
    ) -> None:
        """Keep a figure; the goals are those for 1,000 nodes."""
        row = Row(
            self.cluster.size.nodes,
            key,
            title,
            unit,
            statistics.median(samples),
            max(samples),
            cpu_ms,
            goal,
            os.getloadavg()[0],
        )
        self.rows.append(row)
        _progress(f"{row.nodes} nodes: {title}: {row.value:.1f} {unit}, load {row.load:.1f}")

    def timed(
        self,
        key: str,
        title: str,
        action: Callable[[], object],
        *,
        rounds: int | None = None,
        goal: float | None = None,
        warm: bool = True,
    ) -> None:
        """Measure an action in milliseconds; the first time does not count."""
        if warm:
            action()
        count = rounds or self.rounds
        before = self.master_cpu_ms()
        samples = [lists.milliseconds(action) for _ in range(count)]
        cpu = (self.master_cpu_ms() - before) / count
        self.note(key, title, "ms", samples, cpu_ms=cpu, goal=goal)

    def master_cpu_ms(self) -> float:
        """Return the processor time of the master daemon."""
        fields = fs.read_file(f"/proc/{self._pid()}/stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def _pid(self) -> int:
        pid = daemonize.read_pid(self.cluster.paths().pid_file("ganeti-masterd"))
        if pid is None:
            raise errors.OpExecError("the master daemon does not run")
        return pid

    @contextmanager
    def client(self) -> Iterator[luxi.Client]:
        """Connect to the master daemon."""
        with luxi.Client(self.cluster.paths().master_socket) as client:
            yield client

    def command(self, *argv: str) -> None:
        """Run a command on the master."""
        process.run(
            [f"{self.cluster.cluster.directory}/bin/{argv[0]}", *argv[1:]],
            timeout_s=_STEP_S,
            env=self.cluster.environment(),
            log=False,
        )

    def job(self, op: OpCode) -> None:
        """Run a job to its end.

        :raises OpExecError: it did not succeed.
        """
        with self.client() as client:
            number = client.submit_job([op])
            try:
                queue.wait(client, number)
            except errors.OpExecError as err:
                (row,) = client.query_jobs([number], ["opresult"])
                raise errors.OpExecError(f"{err}: {row[0]!r:.400}") from err

    def new_name(self) -> str:
        """Return a name which no instance has."""
        self._names += 1
        return f"bench{self._names}.example.com"

    # -- figures ----------------------------------------------------------------------------------

    def start(self) -> None:
        """The master daemon: from its start until it serves, and its memory."""

        def restart() -> None:
            self.cluster.daemon("stop")
            self.cluster.daemon("start")
            with self.client() as client:
                client.query("cluster", ["name"])

        self.timed("start", "stop and start of ganeti-masterd", restart, rounds=2, warm=False)

    def memory(self) -> None:
        """The memory of the master daemon."""
        for line in fs.read_file(f"/proc/{self._pid()}/status").splitlines():
            if line.startswith("VmRSS:"):
                self.note(
                    "memory",
                    "memory of ganeti-masterd, after all figures",
                    "MiB",
                    [int(line.split()[1]) / 1024],
                    goal=500,
                )

    def lists(self) -> None:
        """Lists, whole and filtered, and the fan-out without a command."""
        self.timed(
            "node-list", "gnt-node list", lambda: self.command("gnt-node", "list"), goal=3000
        )
        self.timed(
            "node-list-one",
            "gnt-node list of one node",
            lambda: self.command("gnt-node", "list", node_name(2)),
        )
        self.timed(
            "instance-list", "gnt-instance list", lambda: self.command("gnt-instance", "list")
        )
        self.timed(
            "instance-list-one",
            "gnt-instance list of one instance",
            lambda: self.command("gnt-instance", "list", "instance7.example.com"),
        )
        self.timed(
            "instance-list-filter",
            "gnt-instance list -F 'pnode == ...'",
            lambda: self.command("gnt-instance", "list", "-F", f'pnode == "{node_name(2)}"'),
        )
        with self.client() as client:
            self.timed(
                "fan-out",
                "free memory of all nodes, over LUXI",
                lambda: client.query("node", ["name", "mfree"]),
            )

    def hanging(self) -> None:
        """A list while one node of twenty hangs."""
        hang = [node_name(n) for n in range(5, self.cluster.size.nodes + 1, _HANGING)]
        self.cluster.tell("stall", *hang)
        try:
            self.timed(
                "node-list-hanging",
                "gnt-node list, 5 % of the nodes hang",
                lambda: self.command("gnt-node", "list"),
                rounds=2,
                goal=8000,
                warm=False,
            )
        finally:
            self.cluster.tell("well", *hang)

    def jobs(self) -> None:
        """Jobs which concern one or two nodes."""
        numbers = iter(range(1, 1000))
        # The first commit after a start sends whole files to candidates whose copies are not known.
        self.job(OpTagsSet(kind="instance", name="instance3.example.com", tags=["first"]))
        self._earlier = self._commits()
        self.timed(
            "tag",
            "a job with one commit (a tag)",
            lambda: self.job(
                OpTagsSet(kind="instance", name="instance3.example.com", tags=[f"t{next(numbers)}"])
            ),
            rounds=3 * self.rounds,
        )
        made: list[str] = []

        def create() -> None:
            made.append(self.new_name())
            self.job(
                OpInstanceCreate(
                    instance_name=made[-1],
                    mode="create",
                    disk_template="drbd",
                    disks=[{"size": 64}],
                    nics=[],
                    os_type="debian+default",
                    pnode=node_name(1),
                    snode=node_name(1 + self.cluster.size.groups),
                    beparams={"memory": 128},
                    start=True,
                    wait_for_sync=False,
                    name_check=False,
                    ip_check=False,
                )
            )

        self.timed("create", "create an instance with a mirrored disk", create, goal=150)
        self.timed(
            "migrate",
            "migrate an instance",
            lambda: self.job(OpInstanceMigrate(instance_name=made[0])),
        )
        self.timed(
            "remove",
            "remove an instance",
            lambda: self.job(OpInstanceRemove(instance_name=made.pop())),
            rounds=max(1, self.rounds - 1),
        )

    def _commits(self) -> tuple[list[float], list[int], float]:
        """Return what the master daemon has measured so far: bounds, counts, and the sum.

        :raises StatisticsError: the master daemon does not measure commits.
        """
        with self.client() as client:
            for metric in client.query_metrics():
                if metric["name"] == "ganeti_master_config_commit_seconds":
                    (_labels, counts, total), *_more = metric["series"]
                    return [*metric["bounds"], float("inf")], counts, total
        raise statistics.StatisticsError("the master daemon does not measure commits")

    def commits(self) -> None:
        """The commits of the configuration by the jobs of the step before this one."""
        bounds, counts, total = self._commits()
        if self._earlier is not None:
            counts = [now - then for now, then in zip(counts, self._earlier[1], strict=True)]
            total -= self._earlier[2]
        reached, p99 = 0, 0.0
        for bound, count in zip(bounds, counts, strict=True):
            reached += count
            if reached >= 0.99 * sum(counts):
                p99 = bound * 1000
                break
        mean_ms = total * 1000 / sum(counts)
        self.note("commit", "commit of the configuration, mean", "ms", [mean_ms])
        self.note("commit-p99", "commit, p99 is at most", "ms", [p99], goal=100)

    def verify(self) -> None:
        """``gnt-cluster verify``, all groups in parallel."""

        def verify() -> None:
            with self.client() as client:
                job = client.submit_job([OpClusterVerify()])
                queue.wait(client, job)
                (row,) = client.query_jobs([job], ["opresult"])
                for _ok, number in row[0][0]["jobs"]:
                    queue.wait(client, number)

        self.timed("verify", "verify, all groups at once", verify, rounds=1, warm=False)

    def rest(self) -> None:
        """The bulk list of the REST daemon."""
        self.cluster.daemon("start", "ganeti-rapi")
        address = self.cluster.cluster.nodes[0].ip
        before = self.master_cpu_ms()
        samples = rapi.list_ms(address, rapi.BULK, 2)
        self.note(
            "rest-bulk",
            "REST, bulk list of all instances",
            "ms",
            samples,
            cpu_ms=(self.master_cpu_ms() - before) / 3,
        )

    def events(self) -> None:
        """A job while 1,000 clients wait for events, and the time until all have heard of it."""
        clients = [luxi.Client(self.cluster.paths().master_socket) for _ in range(_LISTENERS)]
        try:
            heard = threading.Semaphore(0)
            known = clients[0].call("WaitForEvents", None, 0)
            place = [known["epoch"], known["last"]]

            def listen(client: luxi.Client) -> None:
                client.call("WaitForEvents", place, 300)
                heard.release()

            threads = [threading.Thread(target=listen, args=(one,)) for one in clients]
            for thread in threads:
                thread.start()
            time.sleep(1.0)
            begun = time.perf_counter()
            self.job(queue.small_job())
            for _ in clients:
                heard.acquire()
            for thread in threads:
                thread.join()
            self.note(
                "events",
                "an event reaches 1,000 listeners",
                "ms",
                [(time.perf_counter() - begun) * 1000],
            )
        finally:
            for client in clients:
                client.close()

    def balance(self) -> None:
        """One step of balancing over LUXI."""
        self.timed(
            "balance",
            "hbal -L, one step",
            lambda: self.command("hbal", "-L", "-G", "default", "--max-length=1"),
            rounds=1,
            warm=False,
        )

    def watcher(self) -> None:
        """A round of the watcher while all nodes are well."""
        self.timed(
            "watcher",
            "a round of the watcher",
            lambda: self.command("ganeti-watcher", "--ignore-pause"),
            rounds=1,
            goal=60000,
            warm=False,
        )

    def loss(self) -> None:
        """One node of twenty loses its power; then the master daemon is killed."""
        lost = [node_name(n) for n in range(5, self.cluster.size.nodes + 1, _HANGING)]
        self.cluster.tell("off", *lost)
        try:
            self.timed(
                "node-list-lost",
                "gnt-node list, 5 % of the nodes without power",
                lambda: self.command("gnt-node", "list"),
                rounds=2,
                warm=False,
            )
            self.timed(
                "watcher-lost",
                "a round of the watcher then",
                lambda: self.command("ganeti-watcher", "--ignore-pause"),
                rounds=1,
                warm=False,
            )
        finally:
            self.cluster.tell("well", *lost)

        def die() -> None:
            pid = self._pid()
            ended = os.pidfd_open(pid)
            try:
                os.kill(pid, 9)
                # Until it has ended, a daemon runs, and none would be started.
                wait_readable([ended])
            finally:
                os.close(ended)
            self.cluster.daemon("start")
            self.job(queue.small_job())

        self.timed(
            "master-killed",
            "master daemon killed, until a job has ended",
            die,
            rounds=1,
            warm=False,
        )


#: In this order.
STEPS: Final[tuple[Callable[[Bench], None], ...]] = (
    Bench.start,
    Bench.lists,
    Bench.jobs,
    Bench.commits,
    Bench.rest,
    Bench.events,
    Bench.verify,
    Bench.balance,
    Bench.hanging,
    Bench.memory,
    Bench.watcher,
    Bench.loss,
)


def size_of(nodes: int) -> Size:
    """Return a cluster of this many nodes: 64 groups and 20 candidates for 1,000."""
    return Size(nodes, 20 * nodes, max(1, nodes * 64 // 1000), min(20, nodes // 2))


def measure(nodes: int, rounds: int, only: Sequence[str] = ()) -> list[Row]:
    """Make a cluster, measure it, and destroy it.

    :param only: names of steps; none for all.
    """
    with tempfile.TemporaryDirectory(prefix="gnt-fleet-") as place:
        begun = time.perf_counter()
        with running(f"{place}/vc", size_of(nodes), options=_NODE_OPTIONS) as cluster:
            bench = Bench(cluster, rounds)
            bench.note("make", "making the cluster", "s", [time.perf_counter() - begun])
            for step in STEPS:
                if not only or step.__name__ in only:
                    try:
                        step(bench)
                    except (errors.GenericError, OSError) as err:
                        _progress(f"{nodes} nodes: {step.__name__}: not measured: {err}")
        return bench.rows


def table(rows: Sequence[Row]) -> str:
    """Format the figures: a line for each, a column for each size."""
    sizes = sorted({row.nodes for row in rows})
    found = {(row.key, row.nodes): row for row in rows}
    lines = [["Measured", *(f"{size} nodes" for size in sizes), "of it master", "Goal", "Within"]]
    for key in dict.fromkeys(row.key for row in rows):
        of_key = [found.get((key, size)) for size in sizes]
        last = next(row for row in reversed(of_key) if row is not None)
        goal, within = "-", "-"
        if last.goal is not None and last.nodes == SIZES[-1]:
            goal = f"{last.goal:g} {last.unit}"
            within = "yes" if last.value <= last.goal else "no"
        cpu = "-" if last.cpu_ms is None else f"{last.cpu_ms:.0f} ms"
        cells = ["-" if row is None else f"{row.value:.0f} {row.unit}" for row in of_key]
        lines.append([last.title, *cells, cpu, goal, within])
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            [f"{line[0]:<{widths[0]}}"]
            + [f"{cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True)]
        )
        for line in lines
    )


def plots(rows: Sequence[Row]) -> str:
    """Draw for each figure how it grows with the number of nodes; the bars are logarithmic.

    The shorter bar is the processor time of the master daemon.
    """
    drawn = []
    for key in dict.fromkeys(row.key for row in rows if row.unit == "ms"):
        of_key = [row for row in rows if row.key == key]
        drawn.append(
            placement.plot(
                of_key[0].title,
                [
                    # A daemon which was started again has used less than the one before it.
                    (f"{row.nodes:,}", row.value, row.cpu_ms if (row.cpu_ms or 0) > 0 else None)
                    for row in of_key
                ],
            ).replace(", original", ", processor of the master")
        )
    return "\n\n".join(drawn)


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the figures; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="bench-fleet", description="Measure clusters of simulated nodes."
    )
    parser.add_argument(
        "--sizes",
        default=",".join(map(str, SIZES)),
        metavar="N,...",
        help="numbers of nodes (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="repetitions (default: %(default)s)"
    )
    parser.add_argument(
        "--steps",
        default="",
        metavar="NAME,...",
        help=f"only some of: {', '.join(step.__name__ for step in STEPS)}",
    )
    parser.add_argument("--plots", action="store_true", help="draw how each figure grows, too")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    options = parser.parse_args(argv)
    only = tuple(filter(None, options.steps.split(",")))
    unknown = set(only) - {step.__name__ for step in STEPS}
    if unknown:
        parser.error(f"there is no step {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    try:
        for text in options.sizes.split(","):
            rows += measure(int(text), options.rounds, only)
    except (errors.GenericError, OSError) as err:
        print(f"bench-fleet: {err}", file=sys.stderr)
        return 1
    print(table(rows))
    if options.plots:
        print(f"\n{plots(rows)}")
    if options.json:
        figures: list[dict[str, Any]] = [row._asdict() for row in rows]
        text = json.dumps_pretty({"when": clock.format_time(clock.now()), "figures": figures})
        fs.write_file(options.json, text, mode=0o644)
    return 0


if __name__ == "__main__":
    sys.exit(main())
