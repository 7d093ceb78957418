"""Drives a virtual cluster the way a person would: through its commands.

The scenario tests own one :class:`Cluster` each (or share one per module). Everything goes through
``tools/vcluster`` and the ``gnt-*`` programs; nothing imports the product, so what passes here
works from a terminal.
"""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VCLUSTER = str(ROOT / "tools" / "vcluster")

#: How long a test waits for a condition before it gives up. Generous on purpose: it bounds a hang,
#: it does not measure speed.
PATIENCE_S = float(os.environ.get("GANETI_PATIENCE", "180"))


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

    @staticmethod
    def outside() -> dict[str, str]:
        """Our environment without what would lead into some cluster."""
        return {name: value for name, value in os.environ.items() if not name.startswith("GANETI_")}

    def vcluster(self, *args: str) -> Finished:
        """Run ``tools/vcluster``."""
        return run_program((VCLUSTER, *args), self.environment)

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

    def cut(self, *groups: Sequence[str]) -> None:
        """Let nodes of different groups not reach each other; no groups heal the network."""
        pairs = [
            f"{one} {other}\n"
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


class SteadyCluster(Cluster):
    """One whose master never changes: commands go straight to it, which takes half the time."""

    def run(self, *argv: str, stdin: str | None = None) -> Finished:
        """Run a command on the first node."""
        return run_program(
            (str(self.node_root("node1.example.com") / "cmd"), *argv), self.environment, stdin=stdin
        )


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
    """Whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
