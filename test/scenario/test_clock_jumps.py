"""Clocks that jump, on the master and on others: nothing that counts depends on the time of day.

The daemons and commands of each node run with a clock of their own: a module that Python loads at
its start adds what a file says to the time of day. The file is changed while they work. (OpenSSL
asks the kernel: how far a clock may be behind a new certificate is in the tests of x509.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import CLOCK_SHIM, ROOT, wait_until
from role_lab import INSTANCE, MASTERD, Lab, make_lab, present

CONFD_CLIENT = str(ROOT / "tools" / "confd-client")
# What a clock that is wrong on purpose lets the verification find.
SKEWED = ("--ignore-errors=ENODETIME",)


HOUR_S = 3600

pytestmark = pytest.mark.long


class Clocks:
    """The clocks of a cluster's nodes."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.cluster = lab.cluster
        self.directory = lab.cluster.directory.parent
        (self.directory / "sitecustomize.py").write_text(CLOCK_SHIM)
        for node in lab.nodes:
            self.put(node)
        # Read by whatever begins to run on a node.
        with (self.cluster.directory / "enter.sh").open("a") as stream:
            stream.write(
                f"PYTHONPATH={self.directory}:$PYTHONPATH\n"
                f"TEST_CLOCK={self.directory}/clock.$GANETI_HOSTNAME\n"
                "export TEST_CLOCK\n"
            )
        self.cluster.vcluster("stop", str(self.cluster.directory)).ok()
        self.cluster.vcluster("start", str(self.cluster.directory)).ok()

    def put(self, node: str, hours: int = 0) -> None:
        """Set a node's clock, while its daemons run; so far from the right time."""
        new = self.directory / "clock.new"
        new.write_text(f"{hours * HOUR_S}\n")
        new.rename(self.directory / f"clock.{node}")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    yield from make_lab(3)


@pytest.fixture(scope="module")
def all_clocks(lab: Lab) -> Clocks:
    return Clocks(lab)


@pytest.fixture
def clocks(all_clocks: Clocks) -> Iterator[Clocks]:
    yield all_clocks
    for node in all_clocks.lab.nodes:
        all_clocks.put(node)


def test_the_clocks_are_put(lab: Lab, clocks: Clocks) -> None:
    """What the other tests rest on; and verification says whose clock is wrong."""
    master, (other, _) = present(lab)
    clocks.put(other, -2)
    found = lab.cluster.on(master, "gnt-cluster", "verify", "--error-codes").failed("ENODETIME")
    (line,) = [line for line in found.text.splitlines() if "ENODETIME" in line]
    assert other in line and "behind by 7" in line


@pytest.mark.parametrize("hours", [48, -2])
def test_the_masters_clock_jumps(lab: Lab, clocks: Clocks, hours: int) -> None:
    """Changes are made before, during and after; another node takes over in between."""
    master, (other, _) = present(lab)
    assert lab.change(master)
    before = lab.config(master)["serial_no"]
    epoch = lab.epoch(master)
    clocks.put(master, hours)
    assert lab.change(master)
    lab.settled(master, *SKEWED)
    after = lab.config(master)["serial_no"]
    assert isinstance(before, int) and isinstance(after, int) and after > before
    job = lab.cluster.on(master, "gnt-debug", "delay", "--submit", "--print-jobid", "0.1")
    lab.cluster.on(master, "gnt-job", "watch", job.ok().stdout.strip()).ok()
    lab.failover(other)
    assert lab.epoch(other) > epoch
    lab.settled(other, *SKEWED)
    clocks.put(master)
    lab.settled(other)


@pytest.mark.parametrize("hours", [48, -2])
def test_a_candidate_with_a_wrong_clock_becomes_master(
    lab: Lab, clocks: Clocks, hours: int
) -> None:
    """Its configuration is as new as the others', whatever its clock says; and so is its epoch."""
    master, (other, _) = present(lab)
    clocks.put(other, hours)
    assert lab.change(master)
    lab.failover(other)
    assert lab.change(other)
    lab.settled(other, *SKEWED)
    # The old one comes back with the right time and is refused all the same.
    lab.cluster.on(master, MASTERD).failed(other, exit_code=11)
    clocks.put(other)
    assert lab.change(other)
    lab.settled(other)


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        # What was restarted in the future counts as restarted now, and waits.
        (48, [(True, 1), (False, 1), (True, 2)]),
        # The pause seems to be over; the restart counts all the same.
        (-2, [(True, 1), (True, 2), (True, 3)]),
    ],
)
def test_the_watcher_counts_restarts(
    lab: Lab, clocks: Clocks, hours: int, expected: list[tuple[bool, int]]
) -> None:
    """The clock of the master jumps, comes back, and then is an hour fast."""
    master, _ = present(lab)
    guest = lab.cluster.path(master, f"var/run/ganeti/fake-hypervisor/{INSTANCE}")

    def memory() -> list[Path]:
        return list(lab.cluster.node_root(master).glob("var/lib/ganeti/watcher.*.data"))

    for path in memory():
        path.unlink()
    lab.cluster.on(master, "gnt-instance", "startup", INSTANCE).ok()
    found = []
    for offset in (hours, 0, 1):
        clocks.put(master, offset)
        guest.unlink(missing_ok=True)
        lab.cluster.on(master, "ganeti-watcher", "--no-verify-disks").ok()
        (path,) = memory()
        known = json.loads(path.read_text())["instance"][INSTANCE]
        found.append((guest.exists(), known["restart_count"]))
    assert found == expected
    clocks.put(master)
    lab.cluster.on(master, "gnt-instance", "shutdown", INSTANCE).ok()


def test_a_running_job_and_its_waiter_do_not_notice(lab: Lab, clocks: Clocks) -> None:
    """Neither ends early nor hangs; the times that are shown are those of the clock."""
    master, _ = present(lab)
    job = (
        lab.cluster.on(master, "gnt-debug", "delay", "--submit", "--print-jobid", "3")
        .ok()
        .stdout.strip()
    )
    wait_until(
        lambda: (
            "running"
            in lab.cluster.on(master, "gnt-job", "list", "--no-headers", "-o", "status", job).stdout
        ),
        "the job runs",
    )
    waiting = lab.cluster.start_on(master, "gnt-job", "watch", job)
    for hours in (48, -2, 0):
        clocks.put(master, hours)
    out, err = waiting.communicate()
    assert waiting.returncode == 0, out + err
    status = lab.cluster.on(master, "gnt-job", "list", "--no-headers", "-o", "status", job)
    assert status.ok().stdout.strip() == "success"
    lab.settled(master)


def test_confd_answers_by_its_own_clock_again(lab: Lab, clocks: Clocks) -> None:
    master, (other, _) = present(lab)
    address = lab.cluster.on(master, "gnt-node", "list", "--no-headers", "-o", "pip", other)
    ask = (CONFD_CLIENT, "-a", address.ok().stdout.strip(), "-r", "1")
    lab.cluster.on(master, *ask).ok()
    clocks.put(other, -2)
    lab.cluster.on(master, *ask).failed()
    clocks.put(other)
    lab.cluster.on(master, *ask).ok()
