"""The virtual cluster of a chaos run: its commands, processes and files.

The programs of the cluster are those of a *project*: this checkout, or a copy of it with a known
defect. Everything is done through ``tools/vcluster`` and the commands, as from a terminal; only the
faults reach below them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from devel import fake_watchdog
from devel.chaos import power, versions
from devel.chaos.schedule import Variant

TOP: Final = Path(__file__).resolve().parents[2]
#: Seconds after which a command is given up; it bounds a hang and measures nothing.
COMMAND_S: Final = 90.0
#: Seconds between two rounds of the watcher.
WATCH_S: Final = 30
#: The limit of ``--auto-failover``: seconds without a master until another node takes the role.
FAILOVER_S: Final = 5
#: The limit of ``--auto-instance-failover``: seconds without an answer until a node is off.
INSTANCE_FAILOVER_S: Final = 10
#: Seconds after which the watchdog of a node fires, unless the node feeds it.
WATCHDOG_S: Final = 8
#: An OS definition whose script leaves a line with its token, and one which does nothing.
OS_NAME: Final = "witness"
QUIET_OS: Final = "quiet"
REST_USER: Final = ("chaos", "chaos-password")
MASTERD: Final = "ganeti-masterd"
#: The directory of the server which is the witness of two nodes.
WITNESS: Final = "witness"

# Leaves a line when an execution begins and when it ends; the instance and the token are in the
# environment. The time is that of the machine since its start, which no fault changes.
_SCRIPT = """\
#!{python} -IS
import os, time
def note(what):
    who = os.environ["INSTANCE_NAME"] + " " + os.environ["OSP_TOKEN"]
    line = f"{{time.monotonic():.6f}} {{who}} {{what}}\\n"
    fd = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, line.encode())
    os.close(fd)
note("begun")
time.sleep(0.3)
note("ended")
"""

# The helper leaves the environment of its node: the shim is not below it, and a power cut of that
# node does not kill it while it changes the files of another one.
_FENCE = """\
#!{python} -I
import os, sys
if "GANETI_ROOTDIR" in os.environ:
    os.execve("{python}", ["{python}", "-I", *sys.argv], {{"PATH": os.defpath}})
sys.path[:0] = ["{top}", "{top}/lib"]
from devel.chaos import fence
sys.exit(fence.main("{directory}", sys.argv[1:]))
"""
_ALLOCATOR = "most-memory"


BASIC: Final = Variant()
# Together more than 1 MiB, from which on changes are written into a journal.
_FILLERS: Final = 300
_FILLER: Final = json.dumps({"filler": "x" * 4096})


class LabError(Exception):
    """The cluster of the run could not be made or used; this is not a finding about a promise."""


@dataclasses.dataclass(frozen=True)
class Finished:
    """How a command ended. ``code`` is None when it was given up."""

    code: int | None
    out: str
    err: str

    @property
    def ok(self) -> bool:
        """True if it succeeded."""
        return self.code == 0

    @property
    def text(self) -> str:
        """Everything it printed."""
        return self.out + self.err


class Lab:
    """The cluster.

    :ivar directory: of the run; the cluster is in ``vc`` below it.
    :ivar nodes: names of all nodes, in their order.
    :ivar series: the version of the program; ``next_series`` is the one to which it is upgraded.
    """

    def __init__(
        self, directory: Path, nodes: int, project: Path = TOP, variant: Variant = BASIC
    ) -> None:
        self.variant = variant
        self.directory = directory
        self.vc = directory / "vc"
        self.project = project
        self.nodes = [f"node{number}.example.com" for number in range(1, nodes + 1)]
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GANETI_", "CHAOS_")) and name != "PYTHONPATH"
        }
        # "python3" of some machines is a script which takes longer than the start of a daemon.
        self.environment["PATH"] = (
            f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}"
        )
        self._addresses: dict[str, str] = {}
        self.series, self.next_series = "", ""
        self._witness: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()

    # -- making and ending -----------------------------------------------------------------------

    def create(self) -> None:
        """Make the cluster, put the shim below its programs, and start it again with it.

        :raises LabError: a step failed.
        """
        self._need(
            self.vcluster(
                "create", "-n", str(len(self.nodes)), "--hypervisor", "fake",
                "--watch-every", str(WATCH_S), str(self.vc),
            )
        )  # fmt: skip
        following = self.directory / "next"
        self.series, self.next_series = versions.make_next(self.project, following)
        self._need(self.vcluster("add-version", str(self.vc), str(following)))
        self._make_os()
        self._make_helpers()
        self._need(
            self.run(
                self.nodes[0], "gnt-cluster", "modify", f"--auto-failover={FAILOVER_S}s",
                f"--auto-instance-failover={INSTANCE_FAILOVER_S}s",
                f"--default-iallocator={_ALLOCATOR}",
                f"--node-parameters=oob_program={self.directory}/fence",
            )
        )  # fmt: skip
        if self.variant.two:
            self._make_witness()
        if self.variant.watchdogs:
            self._make_watchdogs()
        if self.variant.processes:
            self._need(
                self.run(self.nodes[0], "gnt-cluster", "modify", "--job-execution=processes")
            )
        self._need(self.vcluster("stop", str(self.vc)))
        if self.variant.large:
            path = self.data(self.nodes[0]) / "config.data"
            path.write_text(enlarged(path.read_text()))
        shutil.copy(TOP / "devel/chaos/shim.py", self.directory / "sitecustomize.py")
        self._use_shim()
        for node in self.nodes:
            users = self.data(node) / "rapi/users"
            users.parent.mkdir(exist_ok=True)
            users.write_text(f"{REST_USER[0]} {REST_USER[1]} write\n")
            users.chmod(0o640)
            power.begin(self.data(node), self.flushed(node))
        self._need(self.vcluster("start", str(self.vc)))

    def _use_shim(self) -> None:
        """Let programs which start from now on load the shim."""
        path = self.vc / "enter.sh"
        if "CHAOS_DIRECTORY" in path.read_text():
            return
        with path.open("a") as stream:
            stream.write(
                f"PYTHONPATH={self.directory}:$PYTHONPATH\n"
                f"CHAOS_DIRECTORY={self.directory}\n"
                "export CHAOS_DIRECTORY\n"
                # Nothing starts on a node without power.
                f"if [ -e {self.directory}/off.$GANETI_HOSTNAME ]; then\n"
                '    echo "$GANETI_HOSTNAME has no power" >&2\n'
                "    exit 9\n"
                "fi\n"
            )

    def add_node(self) -> tuple[str, Finished]:
        """Make another node, and let it join; returns its name, and how that ended.

        It is no node of the run: users and faults do not choose it.
        """
        done = self.vcluster("add-node", str(self.vc))
        # The virtual cluster has written its programs anew.
        self._use_shim()
        name = done.out.split()[-1] if done.ok else ""
        if name:
            for place in ("srv/ganeti/os", "usr/local/lib/ganeti/iallocators"):
                source, target = self.root(self.nodes[0]) / place, self.root(name) / place
                target.mkdir(parents=True, exist_ok=True)
                for one in source.iterdir():
                    # A new node has some of them, as links to the same files.
                    if not (target / one.name).exists():
                        copy = shutil.copytree if one.is_dir() else shutil.copy
                        copy(one, target / one.name)
        return name, done

    def _make_os(self) -> None:
        script = _SCRIPT.format(python=sys.executable, log=str(self.directory / "scripts.log"))
        nothing = "#!/bin/sh\nexit 0\n"
        for node in self.nodes:
            for os_name in (OS_NAME, QUIET_OS):
                directory = self.root(node) / "srv/ganeti/os" / os_name
                directory.mkdir(parents=True)
                (directory / "ganeti_api_version").write_text("20\n")
                (directory / "parameters.list").write_text("token name of the execution\n")
                for name in ("create", "export", "import", "rename", "verify"):
                    noted = name == "create" and os_name == OS_NAME
                    (directory / name).write_text(script if noted else nothing)
                    (directory / name).chmod(0o755)

    def _make_helpers(self) -> None:
        """Install the helper which switches nodes off, and an allocator."""
        helper = self.directory / "fence"
        helper.write_text(_FENCE.format(python=sys.executable, top=TOP, directory=self.directory))
        helper.chmod(0o755)
        for node in self.nodes:
            allocators = self.root(node) / "usr/local/lib/ganeti/iallocators"
            allocators.mkdir(parents=True)
            shutil.copy(TOP / "doc/examples/iallocators" / _ALLOCATOR, allocators)

    def _make_witness(self) -> None:
        """Start a server which no fault of a node concerns, and let the cluster use it."""
        place = self.directory / WITNESS
        place.mkdir()
        self._need(
            self._run(
                (
                    "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "9",
                    "-keyout", str(place / "key"), "-out", str(place / "ca.pem"),
                ),
                timeout_s=COMMAND_S,
            )
        )  # fmt: skip
        pem = (place / "key").read_text() + (place / "ca.pem").read_text()
        (place / "server.pem").write_text(pem)
        server = str(TOP / "test/fakes/witness_server.py")
        self._witness = subprocess.Popen((sys.executable, server, str(place)))
        wait_until((place / "port").exists, "the server of the witness listens")
        (place / "auth").write_text("user = both\npassword = correct horse\n")
        self._need(
            self.run(
                self.nodes[0], "gnt-cluster", "modify",
                f"--witness=https://localhost:{(place / 'port').read_text()}/cluster/witness.json",
                f"--witness-auth={place / 'auth'}", f"--witness-ca={place / 'ca.pem'}",
            )
        )  # fmt: skip

    def _make_watchdogs(self) -> None:
        """Play the watchdog of each node, and let the cluster use them."""
        for node in self.nodes:
            fifo = self.root(node) / "dev/watchdog"
            fifo.parent.mkdir(exist_ok=True)
            threading.Thread(target=self._play_watchdog, args=(node, fifo), daemon=True).start()
            wait_until(fifo.exists, f"{node} has a watchdog")
        argv = ("gnt-cluster", "modify", f"--node-watchdog={WATCHDOG_S}s")
        self._need(self.run(self.nodes[0], *argv))

    def _play_watchdog(self, node: str, fifo: Path) -> None:
        # It ends with the directory of the cluster.
        with contextlib.suppress(FileNotFoundError):
            fake_watchdog.play(str(fifo), lambda: self.reset(node))

    def reset(self, node: str) -> None:
        """Do to a node what a reset does to a machine, which starts again then."""
        if self._ending.is_set() or not self.has_power(node):
            return
        self.power_off([node])
        with (self.directory / "resets.log").open("a") as stream:
            stream.write(f"{node}\n")
        self.plug_in(node)
        self.power_on(node)

    def set_witness(self, answers: bool) -> None:
        """Let the witness answer, or not."""
        new = self.directory / WITNESS / "faults.new"
        new.write_text("" if answers else "deaf\n")
        new.rename(self.directory / WITNESS / "faults")

    def witness_answers(self) -> bool:
        """Return True if there is a witness which answers."""
        faults = self.directory / WITNESS / "faults"
        return self.variant.two and not (faults.exists() and faults.read_text())

    def keep_files(self) -> None:
        """Copy logs and data of the nodes, before the cluster is removed."""
        for node in self.nodes:
            for place in ("var/log/ganeti", "var/lib/ganeti"):
                target = self.directory / "found" / node / Path(place).parts[1]
                shutil.copytree(self.root(node) / place, target, dirs_exist_ok=True)

    def destroy(self) -> None:
        """End all processes of the cluster, and remove it."""
        self._ending.set()
        if (self.vc / "vcluster.json").exists():
            for node in self.nodes:
                self.signal_all(node, signal.SIGCONT)
            self._need(self.vcluster("destroy", str(self.vc)))
        if self._witness is not None:
            self._witness.terminate()
            self._witness.wait()

    @staticmethod
    def _need(done: Finished) -> Finished:
        if not done.ok:
            raise LabError(done.text)
        return done

    # -- programs ----------------------------------------------------------------------------------

    def vcluster(self, *args: str) -> Finished:
        """Run ``tools/vcluster``."""
        argv = (sys.executable, str(self.project / "tools/vcluster"), *args)
        return self._run(argv, timeout_s=600.0)

    def run(self, node: str, *argv: str, timeout_s: float = COMMAND_S) -> Finished:
        """Run a command as a node."""
        return self._run((str(self.root(node) / "cmd"), *argv), timeout_s=timeout_s)

    def start(self, node: str, *argv: str, output: Path) -> subprocess.Popen[bytes]:
        """Start a command as a node, and do not wait for it."""
        with output.open("ab") as stream:
            return subprocess.Popen(
                (str(self.root(node) / "cmd"), *argv),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def _run(self, argv: Sequence[str], *, timeout_s: float) -> Finished:
        process = subprocess.Popen(
            list(argv),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            # Also what it has started: a child would keep the pipes open.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            return Finished(None, out, err)
        return Finished(process.returncode, out, err)

    # -- files -------------------------------------------------------------------------------------

    def root(self, node: str) -> Path:
        """Return the directory which stands for the ``/`` of a node."""
        return self.vc / node

    def data(self, node: str) -> Path:
        """Return the data directory of a node."""
        return self.root(node) / "var/lib/ganeti"

    def run_dir(self, node: str) -> Path:
        """Return the run directory of a node."""
        return self.root(node) / "var/run/ganeti"

    def flushed(self, node: str) -> Path:
        """Return the record of what was flushed on a node."""
        return self.directory / f"flushed.{node}"

    def socket(self, node: str) -> Path:
        """Return the local socket of the master daemon of a node."""
        return self.run_dir(node) / "socket/ganeti-master"

    def log(self, node: str, name: str = "master-daemon.log") -> str:
        """Return a log of a node; empty when it is missing."""
        path = self.root(node) / "var/log/ganeti" / name
        return path.read_text(errors="replace") if path.exists() else ""

    def address(self, node: str) -> str:
        """Return the address of a node."""
        if not self._addresses:
            content = json.loads((self.vc / "vcluster.json").read_text())
            self._addresses.update(content["nodes"])
        return self._addresses[node]

    def set(self, what: str, node: str, value: str) -> None:
        """Tell the shim of a node something: ``clock``, ``disk`` or ``boot``."""
        new = self.directory / f"{what}.new.{node}"
        new.write_text(value)
        new.rename(self.directory / f"{what}.{node}")

    def setting(self, what: str, node: str) -> str:
        """Return the last setting of the shim of a node; empty when there was none."""
        try:
            return (self.directory / f"{what}.{node}").read_text()
        except FileNotFoundError:
            return ""

    def set_cut(self, lines: Sequence[str]) -> None:
        """Say which nodes do not reach each other (``doc/virtual-cluster.rst``)."""
        new = self.vc / "cut.new"
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.vc / "cut")

    def cuts(self) -> list[tuple[str, str]]:
        """Return the pairs of nodes of which the first does not reach the second."""
        try:
            lines = (self.vc / "cut").read_text().splitlines()
        except FileNotFoundError:
            return []
        pairs = [line.replace(">", " ").split() for line in lines]
        return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]

    def config(self, node: str) -> dict[str, Any]:
        """Return the configuration of a node; empty when there is none that can be read."""
        try:
            found: dict[str, Any] = json.loads((self.data(node) / "config.data").read_text())
        except (OSError, ValueError):
            return {}
        return found

    # -- processes ---------------------------------------------------------------------------------

    def pid(self, node: str, daemon: str) -> int | None:
        """Return the number of a daemon's process; None when it does not run."""
        try:
            pid = int((self.run_dir(node) / f"{daemon}.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if alive(pid) and node in processes(self.vc, [pid]) else None

    def other_versions(self, series: str) -> list[str]:
        """Return the daemons which run and are not of a version, as ``node: daemon``."""
        found = []
        for node in self.nodes:
            place = self.root(node) / "usr/lib/ganeti" / series
            for path in sorted(self.run_dir(node).glob("ganeti-*.pid")):
                pid = self.pid(node, path.stem)
                if pid is not None:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                    if not versions.is_of(words, path.stem, place):
                        found.append(f"{node}: {path.stem}")
        return found

    def masters(self) -> list[str]:
        """Return the nodes on which a master daemon runs."""
        return [node for node in self.nodes if self.pid(node, MASTERD) is not None]

    def signal_all(self, node: str, number: signal.Signals) -> list[int]:
        """Send a signal to every process of a node; returns the processes."""
        found = processes(self.vc).get(node, [])
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return found

    def power_off(self, nodes: Sequence[str]) -> int:
        """Cut the power of nodes at once; returns how many files were lost or became older.

        The run and the helper of :mod:`.fence` may do this at the same time.
        """
        with (self.directory / "power.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            nodes = [node for node in nodes if self.has_power(node)]
            for node in nodes:
                self._off_mark(node).touch()
            return self._end_all(nodes)

    def _end_all(self, nodes: Sequence[str]) -> int:
        """Kill all processes of nodes, and leave what a power cut leaves."""
        doomed: list[int] = []

        def all_gone() -> bool:
            return not any(map(alive, doomed))

        # A process may start another one while the first ones are killed.
        while found := [pid for node in nodes for pid in self.signal_all(node, signal.SIGKILL)]:
            doomed += found
            wait_until(all_gone, "the processes are gone")
        lost = 0
        for node in nodes:
            self.end_guests(node)
            self.set("boot", node, f"{uuid.uuid4()}\n")
            lost += power.cut(self.data(node), self.flushed(node))
            self.forget_promises(node)
            for directory, _below, files in os.walk(self.run_dir(node)):
                for name in files:
                    (Path(directory) / name).unlink()
        return lost

    def has_power(self, node: str) -> bool:
        """Return True if a node has power."""
        return not self._off_mark(node).exists()

    def _off_mark(self, node: str) -> Path:
        return self.directory / f"off.{node}"

    def plug_in(self, node: str) -> None:
        """Let programs start on a node again."""
        self._off_mark(node).unlink(missing_ok=True)

    def end_guests(self, node: str, pattern: str = "*") -> None:
        """Let guests of a node end, and note it; all of them, or those of a name."""
        directory = self.run_dir(node) / "fake-hypervisor"
        for path in sorted(directory.glob(pattern)) if directory.is_dir() else ():
            with (self.directory / "guests.log").open("a") as stream:
                stream.write(f"{time.monotonic():.6f} {node} {path.name} ended\n")
            path.unlink()

    def guest_runs(self, node: str, name: str) -> bool:
        """Return True if a guest runs on a node, by the file which stands for it."""
        path = self.run_dir(node) / "fake-hypervisor" / name
        try:
            return path.read_text().split()[:1] == ["1"]
        except FileNotFoundError:
            return False

    def forget_promises(self, node: str) -> None:
        """Note that a node which is off may have forgotten its last promise."""
        with (self.directory / "promises.log").open("a") as stream:
            stream.write(f"{node}\n")

    def power_on(self, node: str) -> Finished:
        """Start the daemons of a node, as the start of its machine does."""
        return self.run(node, "daemon-util", "start-all")


def enlarged(text: str) -> str:
    """Add texts to a configuration, so that it has a journal from then on."""
    content = json.loads(text)
    content["serial_no"] += 1
    uuids = [f"00000000-0000-4000-8000-{number:012d}" for number in range(_FILLERS)]
    content["documents"] = {
        one: {
            "name": f"filler{number}", "text": _FILLER, "uuid": one, "serial_no": 1,
            "ctime": 1.0, "mtime": 1.0,
        }
        for number, one in enumerate(uuids)
    }  # fmt: skip
    return json.dumps(content)


def processes(vc: Path, only: Sequence[int] | None = None) -> dict[str, list[int]]:
    """Return the processes of each node: daemons, commands, and what they have started.

    :param only: look at these processes.
    """
    mark = f"GANETI_ROOTDIR={vc}/".encode()
    found: dict[str, list[int]] = {}
    numbers = only if only is not None else [int(n) for n in os.listdir("/proc") if n.isdecimal()]
    for pid in numbers:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        begin = environment.find(mark)
        if begin >= 0:
            node = environment[begin + len(mark) :].partition(b"\0")[0].decode()
            found.setdefault(node, []).append(pid)
    return found


def alive(pid: int) -> bool:
    """Return True if a process exists and is not a zombie."""
    return state_of(pid) != "Z"


def name_of(pid: int) -> str:
    """Return the name which a process has given itself; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def state_of(pid: int | None) -> str:
    """Return the letter of the state of a process, as ``ps`` does; ``Z`` when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def wait_until(
    condition: Callable[[], object], what: str, *, patience_s: float = 240.0, pause_s: float = 0.1
) -> None:
    """Wait for a condition.

    :raises LabError: it was still false when the patience was at its end.
    """
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"gave up waiting until {what}")
        time.sleep(pause_s)


@contextlib.contextmanager
def made(lab: Lab) -> Iterator[Lab]:
    """Make a cluster, and destroy it in the end."""
    try:
        lab.create()
        yield lab
    finally:
        lab.destroy()
