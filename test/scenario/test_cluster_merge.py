"""``cluster-merge`` takes nodes, instances and networks of a second cluster; guests run on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, Cluster, Finished, run_program

MERGE = (sys.executable, str(ROOT / "tools/cluster-merge"))
SECOND = "second.example.com"
#: Guests of virtual clusters are small.
BOUNDS = (
    "min:cpu-count=1,disk-count=0,disk-size=1,memory-size=1,nic-count=0,spindle-use=1"
    "/max:cpu-count=8,disk-count=16,disk-size=1048576,memory-size=32768,nic-count=8,spindle-use=12"
)

pytestmark = pytest.mark.long


class Side:
    """One of two clusters in the directory of one virtual cluster.

    :param master: the short name of its master.
    """

    def __init__(self, whole: Cluster, master: str) -> None:
        self.directory = whole.directory
        self._environment = whole.environment
        self._master = master

    def run(self, *argv: str) -> Finished:
        """Run a command on the master of this cluster."""
        program = f"{self.directory}/{self._master}.example.com/cmd"
        return run_program((program, *argv), self._environment)

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a command on the master of this cluster, whose output can be read."""
        program = f"{self.directory}/{self._master}.example.com/cmd"
        return subprocess.Popen(
            (program, *argv),
            env={**self._environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def rows(self, program: str, fields: str) -> list[list[str]]:
        """Return a list without its heading, as rows of fields."""
        done = self.run(program, "list", "--no-headers", "--separator=|", "-o", fields).ok()
        return sorted(line.split("|") for line in done.stdout.splitlines())

    def check(self) -> None:
        """Check that the cluster works as before."""
        self.run("gnt-cluster", "verify").ok()
        assert self.run("gnt-cluster", "queue", "info").ok().stdout.strip().endswith("unset")


def second_cluster(whole: Cluster) -> Side:
    """Make a cluster of two further machines."""
    for _ in range(2):
        whole.vcluster("add-node", "--machine-only", str(whole.directory)).ok()
    network = json.loads((whole.directory / "vcluster.json").read_text())["network"]
    with open(whole.directory / "hosts", "a", encoding="utf-8") as stream:
        stream.write(f"{network}.251\t{SECOND}\n")
    second = Side(whole, "node3")
    second.run(
        "gnt-cluster", "init", "--no-ssh-init", "--no-etc-hosts", "--master-netdev", "lo",
        "--enabled-hypervisors", "fake,kvm", "--enabled-disk-templates", "diskless,file,sharedfile",
        "--candidate-pool-size", "10", "--nic-parameters", "mode=user,link=",
        "--backend-parameters", "maxmem=64,minmem=64,vcpus=1", "--ipolicy-bounds-specs", BOUNDS,
        SECOND,
    ).ok()  # fmt: skip
    second.run("gnt-node", "add", "node4").ok()
    return second


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    whole = Cluster(tmp_path / "vc", 2, "--hypervisor", "fake")
    try:
        whole.create.ok()
        yield Side(whole, "node1"), second_cluster(whole)
    finally:
        whole.destroy()


def add(cluster: Side, node: str, *options: str) -> None:
    """Make an instance with a disk. It is not started."""
    cluster.run(
        "gnt-instance", "add", "-t", "file", "-s", "4M", "-H", "fake", "--no-install", "-o", "none",
        "--no-name-check", "-n", node, *options,
    ).ok()  # fmt: skip


def guest_file(second: Side, name: str) -> Path:
    """Return the file by which the hypervisor ``fake`` knows a guest."""
    (found,) = [
        path for path in second.directory.glob(f"node*/var/run/ganeti/fake*/**/{name}*")
        if path.is_file()
    ]  # fmt: skip
    return found


def test_merge(clusters: tuple[Side, Side]) -> None:
    first, second = clusters
    for cluster, node, name in (
        (first, "node1", "web1"),
        (second, "node4", "shop1"),
        (second, "node3", "shop2"),
        (second, "node4", "web1"),
    ):
        add(cluster, node, f"{name}.example.com")
    second.run("gnt-instance", "startup", "shop1").ok()
    for cluster in clusters:
        cluster.run("gnt-network", "add", "--network=198.51.100.0/24", "lan").ok()

    # Everything that forbids it is named.
    first.run(*MERGE, SECOND).failed(
        "both clusters have an instance web1.example.com",
        "both clusters have a node group default: choose with --groups",
    )
    second.run("gnt-instance", "remove", "-f", "web1").ok()
    first.run(*MERGE, "--groups=rename", SECOND).failed(
        "beparams/default/maxmem: 128 here, 64 there", "--parameter-conflicts=warn"
    )
    options = ("--groups=rename", "--parameter-conflicts=warn", "--keep-running", "--restart=up")
    dry = first.run(*MERGE, *options, "--dry-run", SECOND).ok()
    assert "2 nodes, 2 instances" in dry.stdout
    assert "Dry run: nothing was changed." in dry.stdout

    # An error before the point of no return: the file cannot be written.
    data = first.directory / "node1.example.com/var/lib/ganeti"
    kept = data / f"config.data.merged-{SECOND}"
    kept.mkdir()
    first.run(*MERGE, *options[:2], SECOND).failed(kept.name)
    kept.rmdir()
    for cluster in clusters:
        cluster.check()
    assert second.rows("gnt-instance", "name,status") == [
        ["shop1.example.com", "running"],
        ["shop2.example.com", "ADMIN_down"],
    ]
    assert len(first.rows("gnt-node", "name")) == 2

    before = guest_file(second, "shop1").stat()
    done = first.run(*MERGE, *options, SECOND).ok()
    assert "verification finds no errors" in done.stdout
    after = guest_file(second, "shop1").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert first.rows("gnt-node", "name,role,group") == [
        ["node1.example.com", "M", "default"],
        ["node2.example.com", "C", "default"],
        ["node3.example.com", "C", f"default-{SECOND}"],
        ["node4.example.com", "C", f"default-{SECOND}"],
    ]
    assert first.rows("gnt-instance", "name,pnode,status,be/maxmem") == [
        ["shop1.example.com", "node4.example.com", "running", "64"],
        ["shop2.example.com", "node3.example.com", "ADMIN_down", "64"],
        ["web1.example.com", "node1.example.com", "ADMIN_down", "128"],
    ]
    assert first.rows("gnt-network", "name") == [["lan"]]
    first.run("gnt-instance", "reboot", "shop1").ok()
    first.check()
    # The node which was the master of the other cluster is none any more.
    second.run("gnt-node", "list").failed("node1.example.com", exit_code=11)
    assert os.stat(kept).st_mode & 0o777 == 0o600


def killed_at(cluster: Side, line: str, *argv: str) -> str:
    """Run a command, and kill it with SIGKILL when it prints a line; return what it printed."""
    process = cluster.start(*argv)
    printed = []
    assert process.stdout is not None
    for text in process.stdout:
        printed.append(text)
        if text.startswith(line):
            break
    process.send_signal(signal.SIGKILL)
    # Its last command may go on; the next run waits for it.
    process.stdout.close()
    process.wait()
    assert printed[-1].startswith(line), printed
    return "".join(printed)


def test_killed_and_run_again(clusters: tuple[Side, Side]) -> None:
    first, second = clusters
    add(second, "node4", "shop1.example.com")
    add(second, "node3", "shop2.example.com")
    second.run("gnt-instance", "startup", "shop1").ok()
    command = (*MERGE, "--groups=rename", "--parameter-conflicts=warn", "--restart=up", SECOND)
    back = f"The merge of {SECOND} was interrupted; taking it back"

    killed_at(first, "Pausing the watchers", *command)
    # Another merge must not begin; the message says what to do.
    first.run(*MERGE, "third.example.com").failed(
        f"the merge of {SECOND} was interrupted. Run 'cluster-merge {SECOND}' first: it takes back"
        " what has begun, and begins again."
    )
    assert "takes back what has begun" in first.run(*command, "--dry-run").ok().stdout
    for line in (
        "Stopping 1 instance of",
        "Stopping the daemons of 2 nodes",
        "The former configurations are",
    ):
        assert back in killed_at(first, line, *command), line
    assert back in killed_at(first, "Starting the master daemon with the merged", *command)
    dry = first.run(*command, "--dry-run").ok()
    assert "Without --dry-run, the same command completes the merge." in dry.stdout
    goes_on = f"The merge of {SECOND} was interrupted; it goes on"
    assert goes_on in killed_at(first, "Adding node node3", *command)
    assert goes_on in killed_at(first, "Adding node node4", *command)
    assert goes_on in killed_at(first, "Starting 1 instance", *command)
    done = first.run(*command).ok()
    assert goes_on in done.stdout
    assert "verification finds no errors" in done.stdout
    assert "Adding node" not in done.stdout
    assert first.rows("gnt-node", "name,role") == [
        ["node1.example.com", "M"],
        ["node2.example.com", "C"],
        ["node3.example.com", "C"],
        ["node4.example.com", "C"],
    ]
    assert first.rows("gnt-instance", "name,status") == [
        ["shop1.example.com", "running"],
        ["shop2.example.com", "ADMIN_down"],
    ]
    first.check()


def test_killed_and_taken_back(clusters: tuple[Side, Side]) -> None:
    """What prevents a merge by now does not prevent that it is taken back."""
    first, second = clusters
    add(second, "node4", "shop1.example.com")
    second.run("gnt-instance", "startup", "shop1").ok()
    command = (*MERGE, "--groups=rename", "--parameter-conflicts=warn", SECOND)
    killed_at(first, "The former configurations are", *command)
    # Without --parameter-conflicts the clusters cannot be merged.
    done = first.run(*MERGE, "--groups=rename", SECOND)
    done.failed("cannot be merged")
    assert "Both clusters are as before." in done.stdout
    assert len(first.rows("gnt-node", "name")) == 2
    assert second.rows("gnt-instance", "name,status") == [["shop1.example.com", "running"]]
    for cluster in clusters:
        cluster.check()
    first.run(*MERGE, "--groups=rename", SECOND).failed("cannot be merged")
