"""A cluster whose master's role is moved under faults, and what was acknowledged in it.

Shared by the tests of the role: :meth:`Lab.settled` looks at all nodes after a fault.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness import Cluster, Finished, alive, wait_until

from ganeti.configfile import files, history_files

MASTERD = "ganeti-masterd"
NODED = "ganeti-noded"
INSTANCE = "web.example.com"
ADD_TAGS = ("gnt-instance", "add-tags", INSTANCE)


# A document of the greatest size, and as many as are allowed: 1.6 MB.
_DOCUMENTS = 100
_TEXT = json.dumps({"filler": "x" * 16000})


def enlarge(cluster: Cluster, master: str) -> None:
    """Make the configuration large enough for a journal."""
    cluster.on(master, "daemon-util", "stop", MASTERD).ok()
    path = cluster.path(master, "var/lib/ganeti/config.data")
    config = json.loads(files.read(str(path)))
    config["serial_no"] += 1
    config["documents"] = {
        f"00000000-0000-4000-8000-{number:012d}": {
            "name": f"filler{number}",
            "text": _TEXT,
            "uuid": f"00000000-0000-4000-8000-{number:012d}",
            "serial_no": 1,
            "ctime": 1.0,
            "mtime": 1.0,
        }
        for number in range(_DOCUMENTS)
    }
    files.write_config_file(str(path), json.dumps(config).encode())
    cluster.on(master, "daemon-util", "start", MASTERD).ok()


class Lab:
    """A cluster, and what was acknowledged in it."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        self.cluster = cluster
        self.nodes = [f"node{number}.example.com" for number in range(1, count + 1)]
        self.tags: list[str] = []
        self.number = 0
        self.first = self.reach(self.nodes[0])

    # -- what a user does ------------------------------------------------------------------------

    def change(self, node: str) -> bool:
        """Add a tag through the master on a node; whether it was acknowledged."""
        self.number += 1
        tag = f"tag{self.number}"
        done = self.cluster.on(node, *ADD_TAGS, tag)
        if done.exit_code == 0:
            self.tags.append(tag)
        return done.exit_code == 0

    def failover(self, node: str, *options: str) -> None:
        self.cluster.on(node, "gnt-cluster", "master-failover", *options).ok()

    # -- what is there ---------------------------------------------------------------------------

    def file(self, node: str, name: str) -> Path:
        return self.cluster.path(node, f"var/lib/ganeti/{name}")

    def epoch(self, node: str) -> int:
        return int(self.file(node, "ssconf_master_epoch").read_text())

    def last_job(self, node: str) -> tuple[str, int]:
        """Epoch and number of the newest job a node has, by what it would say in a vote."""
        ids = [int(path.name[4:]) for path in self.file(node, "queue").glob("job-*")]
        state = self.file(node, "master_state").read_text()
        (label,) = [line for line in state.splitlines() if line.startswith("queue ")]
        return label, max([int(self.file(node, "queue/serial").read_text()), *ids])

    def config(self, node: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.file(node, "config.data").read_text())
        return found

    def master_runs(self, node: str) -> bool:
        try:
            return alive(self.cluster.pid(node, MASTERD))
        except (FileNotFoundError, ValueError):
            return False

    def masters(self) -> list[str]:
        return [node for node in self.nodes if self.master_runs(node)]

    def log(self, node: str) -> str:
        return self.cluster.path(node, "var/log/ganeti/master-daemon.log").read_text()

    def verify(self, master: str, *options: str) -> Finished:
        return self.cluster.on(master, "gnt-cluster", "verify", *options)

    def history(self, node: str) -> bytes:
        """The records of all changes, in order."""
        return b"".join(path.read_bytes() for path in sorted(self._history_files(node)))

    def _history_files(self, node: str) -> list[Path]:
        return list(self.file(node, "config.data.history").glob("commits-*"))

    def audit(self, node: str) -> tuple[str, ...]:
        """The lines of the audit log of a node."""
        path = self.cluster.path(node, "var/log/ganeti/audit.log")
        return tuple(path.read_text().splitlines()) if path.exists() else ()

    def jobs(self, node: str) -> set[int]:
        """The ids of all jobs which are not archived."""
        shown = self.cluster.on(node, "gnt-job", "list", "--no-headers", "-o", "id").ok().stdout
        return set(map(int, shown.split()))

    def reach(self, node: str) -> int:
        """The serial number of the oldest configuration which a node can show."""
        config = json.loads(files.read(str(self.file(node, "config.data"))))
        present = (config["serial_no"], config["mtime"])
        directory = self.file(node, "config.data.history")
        return history_files.reach(str(directory), present)[0]

    def settled(self, master: str, *verify: str) -> None:
        """One master; everybody agrees; nothing acknowledged is missing; everything is whole.

        :param verify: options of the verification, which must not find anything.
        """
        candidates = self.nodes
        wait_until(lambda: self.masters() == [master], f"only {master} runs a master daemon")
        # A change makes sure that the master can still commit, and reaches everybody.
        assert self.change(master)
        wait_until(lambda: len({self.epoch(node) for node in self.nodes}) == 1, "one epoch")
        wait_until(
            lambda: len({self.file(node, "config.data").read_bytes() for node in candidates}) == 1,
            "one configuration",
        )
        wait_until(
            lambda: (
                {self.file(node, "ssconf_master_node").read_text().strip() for node in self.nodes}
                == {master}
            ),
            "one master in ssconf",
        )
        config = self.config(master)
        instances = config["instances"]
        assert isinstance(instances, dict)
        (instance,) = instances.values()
        kept = set(instance["tags"])
        assert set(self.tags) <= kept, f"lost: {set(self.tags) - kept}"
        wait_until(
            lambda: {self.last_job(node) for node in candidates} == {self.last_job(master)},
            "one job queue",
        )
        wait_until(
            lambda: len({self.history(node) for node in candidates}) == 1,
            "one history of the configuration",
        )
        assert self.reach(master) <= self.first, "the history has a gap"
        wait_until(
            lambda: len({self.audit(node)[-1:] for node in candidates}) == 1, "one audit log"
        )
        accepted = [line for line in self.audit(master) if '"event":"accepted"' in line]
        jobs = {int(json.loads(line)["job"]) for line in accepted}
        assert len(jobs) == len(accepted), "a job is twice in the audit log"
        lost = self.jobs(master) - jobs
        assert not lost, f"not in the audit log: {lost}"
        self.cluster.on(master, "gnt-cluster", "audit", "--verify").ok()
        # Who was away is brought up to date in the background.
        wait_until(
            lambda: "ERROR" not in self.verify(master, *verify).text, "everybody has everything"
        )
        self.verify(master, *verify).ok()


def make_lab(count: int) -> Iterator[Lab]:
    """A cluster with one instance."""
    directory = Path(tempfile.mkdtemp(prefix="gnt-"))
    cluster = Cluster(directory / "vc", count, "--hypervisor", "fake")
    cluster.create.ok()
    cluster.make_os("noop")
    cluster.run(
        "gnt-instance",
        "add",
        "-t",
        "diskless",
        "--no-nics",
        "--no-start",
        "-o",
        "noop",
        "-n",
        cluster.master,
        INSTANCE,
    ).ok()
    try:
        yield Lab(cluster, count)
    finally:
        cluster.destroy()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def small_disk(data: Path) -> Iterator[Path]:
    """Put a directory on a small file system of its own, and give its content back. Needs root.

    No process may use it at the begin. The value is a file which :func:`fill` makes larger.
    """
    kept = data.with_name(f"{data.name}.kept")
    shutil.copytree(data, kept)
    _mount("-t", "tmpfs", "-o", "size=32m", "tmpfs", str(data))
    try:
        shutil.copytree(kept, data, dirs_exist_ok=True)
        yield data / "filler"
        (data / "filler").unlink(missing_ok=True)
        shutil.copytree(data, kept, dirs_exist_ok=True)
    finally:
        _let_go(data)
        shutil.copytree(kept, data, dirs_exist_ok=True)
        shutil.rmtree(kept)


def fill(filler: Path) -> None:
    """Use all space of the file system of a file."""
    with filler.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(b"x" * 4096)


@contextlib.contextmanager
def read_only(data: Path) -> Iterator[None]:
    """Let nobody make or change a file by its name below a directory. Needs root."""
    _mount("--bind", str(data), str(data))
    try:
        _mount("-o", "remount,bind,ro", str(data))
        yield
    finally:
        _let_go(data)


def _mount(*args: str) -> None:
    subprocess.run(["mount", *args], check=True)


def _let_go(data: Path) -> None:
    # A node daemon holds the copy of the queue for a moment after the last message.
    wait_until(
        lambda: subprocess.run(["umount", str(data)], check=False).returncode == 0,
        "the disk is let go",
    )


def present(lab: Lab) -> tuple[str, list[str]]:
    """The master and the others."""
    (master,) = lab.masters()
    return master, [node for node in lab.nodes if node != master]
