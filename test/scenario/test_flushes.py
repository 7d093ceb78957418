"""What an operation flushes to the disks of the master and of the nodes, counted.

A flush is what an operation waits for on a real disk, however fast the machine is. A module that
Python loads at the start of the daemons of a virtual cluster notes each ``fsync`` and ``fdatasync``
with the program and the file. ``test/data/flushes.json`` has the numbers for each operation: a
change which flushes more often costs time, and one which flushes less often may lose something when
the power fails. Either fails here on any machine. ``test_counts.py`` counts what else operations
cost.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SteadyCluster, made

TABLE = Path(__file__).parents[1] / "data" / "flushes.json"
NAME = "counted.example.com"
MASTER, OTHER = "node1.example.com", "node2.example.com"

#: What Python loads as ``sitecustomize`` notes each flush: program, thread, and file.
SHIM = """
import os, sys, threading

def _noting(call, files=os):
    def flush(fd):
        what = files.readlink(f"/proc/self/fd/{fd}")
        program = files.path.basename(sys.argv[0])
        line = f"{program} {threading.current_thread().name} {what}\\n".encode()
        how = files.O_WRONLY | files.O_APPEND | files.O_CREAT
        note = files.open(os.environ["TEST_FLUSHES"], how)
        try:
            files.write(note, line)
        finally:
            files.close(note)
        return call(fd)
    return flush

os.fsync, os.fdatasync = _noting(os.fsync), _noting(os.fdatasync)
"""

# What differs from run to run in the name of a file, and what stands for it.
CHANGING = (
    (re.compile(r"\.([^/]+)\.[0-9]+\.[0-9]+\.new$"), r"\1"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"journal-[0-9]+"), "journal-N"),
)
# How many of these there are depends on the moment: checkpoints of the job queue, new journals of
# it after a pause, and its copies, several of which a candidate may get in one message.
LATER = re.compile(
    r"ganeti-masterd (jq-flush .*|\S+ var/lib/ganeti/queue)"
    r"|ganeti-noded \S+ var/lib/ganeti/queue(/.*)?"
)
# A job is written when it is submitted, begins, and ends. That it waits for locks is written, too,
# and often together with its beginning, so the table is without this file.
JOURNAL = "ganeti-masterd var/lib/ganeti/queue/journal-N"
FLUSHES_OF_A_JOB = (3, 4)

#: In this order: each begins with what the one before has left.
OPERATIONS = {
    "small-job": ("gnt-debug", "delay", "--no-master", "0"),
    "create": (
        *("gnt-instance", "add", "-t", "sharedfile", "-s", "8M", "--no-nics", "-o", "counted"),
        *("--no-name-check", "-n", OTHER, NAME),
    ),
    "shutdown": ("gnt-instance", "shutdown", NAME),
    "startup": ("gnt-instance", "startup", NAME),
    "migrate": ("gnt-instance", "migrate", "-f", "-n", MASTER, NAME),
    "failover": ("gnt-instance", "failover", "-f", "-n", OTHER, NAME),
    "reboot": ("gnt-instance", "reboot", NAME),
    "tag": ("gnt-instance", "add-tags", NAME, "one"),
    "list": ("gnt-instance", "list"),
    "remove": ("gnt-instance", "remove", "-f", NAME),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SteadyCluster]:
    directory = Path(tempfile.mkdtemp(prefix="gnt-"))
    try:
        with made(SteadyCluster(directory / "vc", 2, "--hypervisor", "fake")) as one:
            (directory / "sitecustomize.py").write_text(SHIM)
            with (one.directory / "enter.sh").open("a") as stream:
                stream.write(
                    f"PYTHONPATH={directory}:$PYTHONPATH\n"
                    f"TEST_FLUSHES={directory}/flushes.$GANETI_HOSTNAME\n"
                    "export TEST_FLUSHES\n"
                )
            one.vcluster("stop", str(one.directory)).ok()
            one.vcluster("start", str(one.directory)).ok()
            one.make_os("counted")
            yield one
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def noted(cluster: SteadyCluster) -> Counter[str]:
    """The flushes since the start: program and file -> number."""
    found: Counter[str] = Counter()
    for path in cluster.directory.parent.glob("flushes.*"):
        node = path.name.removeprefix("flushes.")
        for line in path.read_text().splitlines():
            line = line.replace(f"{cluster.directory}/{node}/", "").replace(
                f"{cluster.directory}/", ""
            )
            if not LATER.fullmatch(line):
                program, _thread, place = line.split(" ", 2)
                for pattern, mark in CHANGING:
                    place = pattern.sub(mark, place)
                found[f"{program} {place}"] += 1
    return found


def without_journal(counts: dict[str, int]) -> dict[str, int]:
    return {what: number for what, number in counts.items() if what != JOURNAL}


@pytest.fixture(scope="module")
def found(cluster: SteadyCluster) -> dict[str, dict[str, int]]:
    # The first change makes the nodes note whose it is.
    cluster.run("gnt-cluster", "add-tags", "begun").ok()
    measured = {}
    for name, argv in OPERATIONS.items():
        before = noted(cluster)
        cluster.run(*argv).ok()
        measured[name] = dict(sorted((noted(cluster) - before).items()))
    if os.environ.get("WRITE_COUNTS"):
        table = {name: without_journal(one) for name, one in measured.items()}
        TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    return measured


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_flushes_as_often_as_the_table_says(
    found: dict[str, dict[str, int]], operation: str
) -> None:
    wanted, have = json.loads(TABLE.read_text())[operation], found[operation]
    hint = f"{operation}: if that is intended, change {TABLE.name} (WRITE_COUNTS=1 writes it), and"
    assert without_journal(have) == wanted, f"{hint} say in the commit why"
    assert have.get(JOURNAL, 0) in ((0,) if operation == "list" else FLUSHES_OF_A_JOB)
