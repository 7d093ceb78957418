"""What a machine of the chaos run lacks, its slow network, and what is edited by hand."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from devel.chaos import faults, lab, settle
from ganeti.configfile import files

SHIM = Path(lab.TOP, "devel/chaos/shim.py")
NODE = "node1.example.com"


class Machine:
    """A directory of a run, and programs which run on its node with the shim."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "sitecustomize.py").write_text(SHIM.read_text())
        self.run_dir = directory / "vc" / NODE / "var/run/ganeti"
        self.run_dir.mkdir(parents=True)

    def set(self, what: str, value: str) -> None:
        (self.directory / f"{what}.{NODE}").write_text(value)

    def python(self, program: str, name: str = "program") -> str:
        """Run a program, and return what it prints."""
        path = self.directory / name
        path.write_text(program)
        done = subprocess.run(
            [sys.executable, str(path), str(self.run_dir)],
            env={
                "PYTHONPATH": str(self.directory),
                "CHAOS_DIRECTORY": str(self.directory),
                "GANETI_ROOTDIR": str(self.directory / "vc" / NODE),
                "GANETI_HOSTNAME": NODE,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


TRY = """
import os, subprocess, sys, threading
def show(what):
    try:
        what()
        return 0
    except OSError as err:
        return err.errno
    except RuntimeError:
        return "thread"
def fork():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
def thread():
    one = threading.Thread(target=int)
    one.start()
    one.join()
run = sys.argv[1]
def write():
    with open(run + "/file", "w") as stream:
        stream.write("x")
def create():
    os.close(os.open(run + "/other", os.O_CREAT | os.O_WRONLY, 0o600))
def read():
    with open("/proc/self/stat") as stream:
        stream.read()
print(*map(show, (fork, lambda: subprocess.run(["true"]), thread, write, create, read)))
"""


@pytest.mark.parametrize(
    ("lacking", "expected"),
    [
        ("ok", (0, 0, 0, 0, 0, 0)),
        ("processes", (errno.EAGAIN, errno.EAGAIN, "thread", 0, 0, 0)),
        ("memory", (errno.ENOMEM, errno.ENOMEM, "thread", 0, 0, 0)),
        ("descriptors", (0, 0, 0, errno.EMFILE, errno.EMFILE, errno.EMFILE)),
        ("run", (0, 0, 0, errno.ENOSPC, errno.ENOSPC, 0)),
    ],
)
def test_a_machine_lacks_something(
    machine: Machine, lacking: str, expected: tuple[object, ...]
) -> None:
    machine.set("lack", lacking)
    assert machine.python(TRY) == " ".join(map(str, expected))


def test_it_lacks_nothing_again(machine: Machine) -> None:
    machine.set("lack", "run")
    machine.set("lack", "ok")
    assert machine.python(TRY) == "0 0 0 0 0 0"


NETWORK = """
import socket, ssl
one, other = socket.socketpair()
tls = ssl.SSLSocket.__new__(ssl.SSLSocket)
socket.socket.__init__(tls, fileno=one.detach())
tls._sslobj = None
try:
    tls.sendall(b"answer")
    print(other.recv(6).decode())
except ConnectionResetError:
    print("lost", tls.fileno())
"""


def test_a_node_daemon_loses_answers(machine: Machine) -> None:
    machine.set("network", "lossy 1")
    assert machine.python(NETWORK, "ganeti-noded") == "lost -1"
    # Other programs have no slow network.
    assert machine.python(NETWORK, "gnt-node") == "answer"
    machine.set("network", "lossy 0")
    assert machine.python(NETWORK, "ganeti-noded") == "answer"


def test_a_slow_node_daemon_answers(machine: Machine) -> None:
    machine.set("network", "slow 0.01")
    assert machine.python(NETWORK, "ganeti-noded") == "answer"


CONFIG = json.dumps({"serial_no": 7, "cluster": {"tags": ["a"]}, "nodes": {}})


def test_an_edit_adds_a_tag_and_is_newer() -> None:
    assert json.loads(faults.with_tag(CONFIG, "by-hand-1")) == {
        "serial_no": 1007,
        "cluster": {"tags": ["a", "by-hand-1"]},
        "nodes": {},
    }


def test_a_large_configuration_has_a_journal() -> None:
    text = lab.enlarged(CONFIG)
    assert len(text) > files.JOURNAL_FROM_BYTES
    assert json.loads(text)["serial_no"] == 8


def test_the_nodes_which_are_cut_off(tmp_path: Path) -> None:
    found = lab.Lab(tmp_path, 2)
    found.vc.mkdir()
    assert found.cuts() == []
    found.set_cut(["a b", "a > c"])
    assert found.cuts() == [("a", "b"), ("a", "c")]


def test_the_settings_of_a_node(tmp_path: Path) -> None:
    found = lab.Lab(tmp_path, 1)
    assert found.setting("lack", NODE) == ""
    found.set("lack", NODE, "run")
    assert found.setting("lack", NODE) == "run"


def test_the_ancestors_of_a_process() -> None:
    """A process which waits for a job belongs to the master daemon, as its fork server does."""
    program = "import os, subprocess, sys; print(os.getpid(), flush=True); sys.stdin.read()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert settle._ancestors(grandchild)[:2] == [child.pid, os.getpid()]
        child.stdin.close()


class Device(lab.Lab):
    """Notes what a reset does to a node."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 1)
        self.done: list[str] = []

    def power_off(self, nodes: Sequence[str]) -> int:
        self.done += [f"off {node}" for node in nodes]
        return 0

    def power_on(self, node: str) -> lab.Finished:
        self.done.append(f"on {node}")
        return lab.Finished(0, "", "")


def test_a_watchdog_resets_its_node(tmp_path: Path) -> None:
    device = Device(tmp_path)
    device.reset(NODE)
    assert device.done == [f"off {NODE}", f"on {NODE}"]
    assert (tmp_path / "resets.log").read_text() == f"{NODE}\n"


def test_a_watchdog_without_power_does_nothing(tmp_path: Path) -> None:
    device = Device(tmp_path)
    device._off_mark(NODE).touch()
    device.reset(NODE)
    device.plug_in(NODE)
    device._ending.set()
    device.reset(NODE)
    assert device.done == []
