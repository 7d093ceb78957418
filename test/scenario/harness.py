"""Drives a virtual cluster the way a person would: through its commands.

The scenario tests own one :class:`Cluster` each (or share one per module). Everything goes through
``tools/vcluster`` and the ``gnt-*`` programs; nothing imports the product, so what passes here
works from a terminal.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
VCLUSTER = str(ROOT / "tools" / "vcluster")

#: How long a test waits for a condition before it gives up. Generous on purpose: it bounds a hang,
#: it does not measure speed.
PATIENCE_S = float(os.environ.get("GANETI_PATIENCE", "180"))
#: Clusters execute their jobs in processes (``make scenario JOB_EXECUTION=processes``).
IN_PROCESSES = os.environ.get("JOB_EXECUTION") == "processes"


#: An instance which needs no network and no OS, and is not started.
ADD_INSTANCE = (
    "gnt-instance", "add", "--no-nics", "-o", "none", "--no-install", "--no-name-check",
    "--no-start",
)  # fmt: skip


#: What Python loads as ``sitecustomize`` adds the seconds in a file to the time of day.
CLOCK_SHIM = """
import os, time

def _offset(path=os.environ["TEST_CLOCK"], files=os):
    descriptor = files.open(path, files.O_RDONLY)
    try:
        return int(files.read(descriptor, 20))
    finally:
        files.close(descriptor)

_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _offset()
time.time_ns = lambda: _time_ns() + _offset() * 10**9
"""


@dataclass(frozen=True)
class Finished:
    """What a program printed and how it ended."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """Both streams, for messages that may go to either."""
        return self.stdout + self.stderr

    def ok(self) -> Finished:
        """:raises AssertionError: the program failed; shows what it said."""
        assert self.exit_code == 0, f"{' '.join(self.argv)}: exit {self.exit_code}\n{self.text}"
        return self

    def failed(self, *fragments: str, exit_code: int = 1) -> Finished:
        """Expect a failure whose text has every fragment."""
        assert self.exit_code == exit_code, (
            f"{' '.join(self.argv)}: exit {self.exit_code}, wanted {exit_code}\n{self.text}"
        )
        for fragment in fragments:
            assert fragment in self.text, f"no {fragment!r} in:\n{self.text}"
        assert "Traceback" not in self.text, self.text
        return self


def wait_until(
    condition: Callable[[], object], what: str, *, patience_s: float = PATIENCE_S
) -> None:
    """Poll ``condition`` until it is true.

    :raises AssertionError: it was still false when the patience was at its end.
    """
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up waiting until {what}")
        time.sleep(0.05)


class Cluster:
    """A virtual cluster under ``directory``."""

    def __init__(self, directory: Path, nodes: int = 3, *extra: str) -> None:
        self.directory = directory
        self.environment = self.outside()
        self.create = self.vcluster(
            "create", "-n", str(nodes), "--watch-every", "0", *extra, str(directory)
        )
        # All scenarios can be run with jobs in processes, too.
        if IN_PROCESSES and self.create.exit_code == 0:
            self.run("gnt-cluster", "modify", "--job-execution=processes").ok()

    @staticmethod
    def outside() -> dict[str, str]:
        """Our environment without what would lead into some cluster.

        Programs run by the Python of the tests: "python3" of some machines is a script which takes
        longer than the start of a daemon.
        """
        found = {
            name: value for name, value in os.environ.items() if not name.startswith("GANETI_")
        }
        found["PATH"] = f"{os.path.dirname(sys.executable)}:{found.get('PATH', os.defpath)}"
        return found

    def vcluster(self, *args: str) -> Finished:
        """Run ``tools/vcluster``."""
        # By the Python of the tests: a "python3" of some machines is a script that takes a while.
        return run_program((sys.executable, VCLUSTER, *args), self.environment)

    def run(self, *argv: str, stdin: str | None = None) -> Finished:
        """Run a command inside the cluster, on its master."""
        return run_program((self._enter(), *argv), self.environment, stdin=stdin)

    def _enter(self) -> str:
        """The program that runs others on the master, without the start of Python that
        ``vcluster run`` would cost each time: that has tests of its own."""
        says = collections.Counter(
            path.read_text().strip()
            for path in self.directory.glob("*/var/lib/ganeti/ssconf_master_node")
        )
        name = (
            says.most_common(1)[0][0]
            if says
            else min(path.name for path in self.directory.glob("node*"))
        )
        return str(self.node_root(name) / "cmd")

    def on(self, node: str, *argv: str) -> Finished:
        """Run a command on a node, whoever is the master."""
        return run_program((str(self.node_root(node) / "cmd"), *argv), self.environment)

    def start_on(self, node: str, *argv: str) -> subprocess.Popen[str]:
        """Start a command on a node and do not wait for it."""
        return subprocess.Popen(
            (str(self.node_root(node) / "cmd"), *argv),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def cut(self, *groups: Sequence[str], one_way: bool = False) -> None:
        """Let nodes of different groups not reach each other; no groups heal the network.

        :param one_way: only the requests of earlier groups to later ones do not arrive.
        """
        sign = ">" if one_way else ""
        pairs = [
            f"{one} {sign} {other}\n"
            for index, group in enumerate(groups)
            for rest in groups[index + 1 :]
            for one in group
            for other in rest
        ]
        path = self.directory / "cut"
        temporary = self.directory / "cut.new"
        temporary.write_text("".join(pairs))
        temporary.rename(path)

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a command inside the cluster and do not wait for it."""
        return subprocess.Popen(
            (self._enter(), *argv),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def rows(self, *argv: str) -> list[list[str]]:
        """Run a list command for programs and split its rows."""
        program, command, *rest = argv
        out = self.run(program, command, "--no-headers", "--separator", "|", *rest).ok().stdout
        return [line.split("|") for line in out.splitlines()]

    @property
    def node_names(self) -> list[str]:
        return [row[0] for row in self.rows("gnt-node", "list", "-o", "name")]

    @property
    def master(self) -> str:
        return self.run("gnt-cluster", "getmaster").ok().stdout.strip()

    def node_root(self, name: str) -> Path:
        return self.directory / name

    def path(self, node: str, relative: str) -> Path:
        return self.node_root(node) / relative

    def pid(self, node: str, daemon: str) -> int:
        """Process id from the daemon's pid file."""
        return int(self.path(node, f"var/run/ganeti/{daemon}.pid").read_text())

    def kill(self, node: str, daemon: str, number: signal.Signals) -> int:
        pid = self.pid(node, daemon)
        os.kill(pid, number)
        return pid

    def kill_whole(self, node: str, daemon: str) -> None:
        """End a daemon and the processes which serve its connections, as when the machine dies."""
        pid = self.pid(node, daemon)
        family = [pid, *children(pid)]
        for each in family:
            # The children may end by themselves, when the first has gone.
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        wait_until(lambda: not any(map(alive, family)), f"{daemon} is gone")

    def kill_with_jobs(self, node: str) -> None:
        """Kill the master daemon and the processes of its jobs: no job goes on, in no mode."""
        family = [self.pid(node, "ganeti-masterd")]
        for pid in self.processes(node):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("gnt-job-"):
                    family.append(pid)
        for pid in family:
            # A process which rests ends with the daemon.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(alive, family)), "the master daemon is gone")

    def processes(self, node: str) -> list[int]:
        """All processes of a node: its daemons, and what they have started."""
        mark = f"GANETI_ROOTDIR={self.node_root(node)}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found

    def cut_power(self, node: str, number: signal.Signals = signal.SIGKILL) -> list[int]:
        """Kill, or stop, everything on a node; returns its processes."""
        doomed = self.processes(node)
        for pid in doomed:
            # One of them may have ended since.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number == signal.SIGKILL:
            wait_until(lambda: not any(map(alive, doomed)), f"{node} is off")
        return doomed

    def power_on(self, node: str) -> None:
        """Start the daemons of a node, as the start of its machine does."""
        self.on(node, "daemon-util", "start-all")
        wait_until(lambda: alive(self.pid(node, "ganeti-noded")), f"{node} is back")

    def run_later(self, hours: int, daemon: str, *args: str) -> Finished:
        """Run a program of ``daemons/`` on the master as if it was some hours later.

        The daemons keep their clocks. The wrapper of the cluster would replace the module path.
        """
        directory = self.directory / "later"
        directory.mkdir(exist_ok=True)
        (directory / "sitecustomize.py").write_text(CLOCK_SHIM)
        (directory / "clock").write_text(f"{hours * 3600}\n")
        settings = (f"PYTHONPATH={directory}", f"TEST_CLOCK={directory / 'clock'}")
        program = str(ROOT / "daemons" / daemon)
        return self.run("env", *settings, sys.executable, program, *args)

    def make_os(self, name: str, create: str = "exit 0") -> None:
        """An OS definition on every node, with ``create`` as the body of its create script.

        It has neither export nor import nor rename: these are optional.
        """
        for node in self.directory.glob("node*"):
            directory = node / "srv/ganeti/os" / name
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "ganeti_api_version").write_text("20\n")
            (directory / "parameters.list").write_text("")
            for script, body in (("create", create), ("verify", "exit 0")):
                (directory / script).write_text(f"#!/bin/sh\n{body}\n")
                (directory / script).chmod(0o755)

    def destroy(self) -> None:
        if self.directory.exists():
            self.vcluster("destroy", str(self.directory)).ok()
            shutil.rmtree(self.directory, ignore_errors=True)

    def add_instance(
        self, name: str, node: str, *options: str, template: str = "diskless"
    ) -> Finished:
        """Add an instance which needs no network and no OS; it is not started."""
        return self.run(*ADD_INSTANCE, "-t", template, "-n", node, *options, name)

    def start_instances(self, *names: str) -> None:
        self.run("gnt-instance", "startup", "--force-multiple", *names).ok()

    def places(self) -> dict[str, tuple[str, str]]:
        """Name of each instance -> its primary node, and its status."""
        rows = self.rows("gnt-instance", "list", "-o", "name,pnode,status")
        return {name: (node, status) for name, node, status in rows}

    def node_fields(self, node: str, *fields: str) -> list[str]:
        """Columns of ``gnt-node list`` for one node."""
        ((*found,),) = self.rows("gnt-node", "list", "-o", ",".join(fields), node)
        return found

    def node_info(self, node: str) -> dict[str, Any]:
        """What ``gnt-node info`` knows about a node, as a program reads it."""
        shown = self.run("gnt-node", "info", "--output=json", node).ok().stdout
        found: dict[str, Any] = json.loads(shown)[0]
        return found

    def crash_guests(self, node: str, *names: str) -> None:
        """Let guests of the fake hypervisor die."""
        for name in names:
            self.path(node, f"var/run/ganeti/fake-hypervisor/{name}").unlink()

    def install_allocator(self) -> None:
        """Put the example ``most-memory`` on every node."""
        for node in self.node_names:
            directory = self.path(node, "usr/local/lib/ganeti/iallocators")
            directory.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "doc/examples/iallocators/most-memory", directory)


class SteadyCluster(Cluster):
    """One whose master never changes: commands go straight to it, which takes half the time."""

    def run(self, *argv: str, stdin: str | None = None) -> Finished:
        """Run a command on the first node."""
        return run_program(
            (str(self.node_root("node1.example.com") / "cmd"), *argv), self.environment, stdin=stdin
        )


_AnyCluster = TypeVar("_AnyCluster", bound=Cluster)


@contextlib.contextmanager
def made(cluster: _AnyCluster) -> Iterator[_AnyCluster]:
    """Use a new cluster, and destroy it in the end."""
    try:
        cluster.create.ok()
        yield cluster
    finally:
        cluster.destroy()


def run_program(
    argv: Sequence[str], environment: dict[str, str], *, stdin: str | None = None
) -> Finished:
    done = subprocess.run(
        list(argv),
        env=environment,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )
    return Finished(tuple(argv), done.returncode, done.stdout, done.stderr)


def children(pid: int) -> list[int]:
    """The processes which a process has begun and not outlived."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(path.parent.name))
    return found


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie.

    When its first thread has ended, the others may still hold its sockets for a moment.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False
