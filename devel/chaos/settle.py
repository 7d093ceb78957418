"""After the faults: waits until the cluster is whole, helps as an administrator, finds leaks.

``gnt-cluster verify`` must be clean, or say exactly what an administrator has to do. So this module
does nothing by its own wisdom: each remedy in :data:`REMEDIES` is a command which a finding names.
What remains after the remedies is a violation.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from devel.chaos import evidence
from devel.chaos import lab as lab_module
from devel.chaos.checker import FINAL, Violation
from devel.chaos.lab import MASTERD, Lab, LabError, wait_until
from devel.chaos.luxi import Luxi, RefusedError

VERIFY: Final = "verify is clean, or says what to do"
LEAKS: Final = "nothing leaks"
SETTLES: Final = "the cluster becomes whole again"

#: Seconds which the cluster may need after everything was mended. It bounds a hang.
PATIENCE_S: Final = 300.0
_FINDING: Final = re.compile(r"(?:^|- )(ERROR|WARNING): (.*?)(?: \[E[A-Z0-9]+\])?$")
#: Commands which findings of ``gnt-cluster verify`` name, and how they are run.
REMEDIES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("gnt-cluster redist-conf", ("gnt-cluster", "redist-conf")),
    ("gnt-cluster renew-crypto", ("gnt-cluster", "renew-crypto", "-f")),
)
# What all nodes have the same of. At rest, the changes in a journal are in the file.
_SAME: Final = (
    "config.data", "config.data.journal", "ssconf_master_epoch", "ssconf_master_node",
)  # fmt: skip
# What every cluster of a run has, because of how it is made.
_EXPECTED: Final = ("guests of hypervisor kvm run as root",)
# Instances which are down are started by the watcher, or stay down as their disks are gone.
_DOWN: Final = re.compile(r"instance (\S+): should run, but does not run on its node")
# ``burnin`` removes its instances also when their node does not answer, and the guests go on.
_ORPHAN: Final = re.compile(r"node (\S+): runs instance (\S+), which is not in the configuration")
# An instance of ``burnin`` whose removal broke off after its disks were gone is removed once more.
_PARTLY_REMOVED: Final = re.compile(
    r"instance (burn-\S+?)[:,]? .*it is not known whether it exists"
)
_REMOVE: Final = re.compile(r"remove the file (\S+) on this node")

#: The daemons which every node has, or the one with the role of the master.
DAEMONS: Final = (
    MASTERD, "ganeti-noded", "ganeti-confd", "ganeti-rapi", "ganeti-failoverd", "ganeti-watchdogd",
)  # fmt: skip
# More than these in a daemon which waits would be a leak: descriptors, and MiB of memory.
_MOST_FDS: Final = 120
_MOST_MIB: Final = 400


class Settled:
    """What an administrator had to do.

    :ivar remedies: how often each command was needed.
    """

    def __init__(self, lab: Lab, say: Callable[[str], None]) -> None:
        self.lab = lab
        self.remedies: Counter[str] = Counter()
        self._say = say
        self._serial = 0

    # -- one master, one state ---------------------------------------------------------------------

    def wait_for_master(self) -> str:
        """Wait until one master serves, and return its node.

        :raises LabError: there is none in time, or there are two.
        """
        found: list[str] = []

        def one() -> bool:
            found[:] = [node for node in self.lab.masters() if self._serves(node)]
            return len(found) == 1 and self.lab.masters() == found

        wait_until(one, "one master serves", patience_s=PATIENCE_S, pause_s=0.5)
        return found[0]

    def _serves(self, node: str) -> bool:
        """Return True if a master accepts a change and makes it durable on a majority."""
        self._serial += 1
        op = {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": [f"settled-{self._serial}"]}
        try:
            with Luxi(self.lab.socket(node)) as luxi:
                job = luxi.call("SubmitJob", [{**op, "comment": f"settled-{self._serial}"}])
                while (row := luxi.call("QueryJobs", [job], ["status"])[0])[0] not in FINAL:
                    time.sleep(0.1)
            return bool(row[0] == "success")
        except (OSError, RefusedError, TypeError):
            return False

    def wait_for_agreement(self, master: str) -> None:
        """Wait until all nodes have the same configuration and obey the same master.

        :raises LabError: they do not agree in time; the message says what differs.
        """

        def facts(node: str) -> tuple[object, ...]:
            data = self.lab.data(node)
            return tuple(
                (data / name).read_bytes() if (data / name).exists() else b"" for name in _SAME
            )

        def agree() -> bool:
            try:
                found = {facts(node) for node in self.lab.nodes}
                return len(found) == 1 and not any(one[1] for one in found)
            except OSError:
                return False

        try:
            wait_until(agree, "all nodes have the same", patience_s=PATIENCE_S / 2, pause_s=0.3)
        except LabError as err:
            own = facts(master)
            different = [node for node in self.lab.nodes if facts(node) != own]
            raise LabError(f"{err}; the master is {master}, and {different} differ") from err

    def bring_back(self, master: str) -> None:
        """Use nodes again which the cluster has switched off: they have power, and run.

        ``gnt-node info`` and the log of the watcher name such nodes; an administrator decides when
        they are used again.
        """
        for node in self.lab.nodes:
            if not self.lab.has_power(node):
                self.lab.plug_in(node)
                self.lab.power_on(node)
        for one in self.lab.config(master).get("nodes", {}).values():
            steps = []
            if not one.get("powered", True):
                steps.append("--node-powered=yes")
            if one.get("offline"):
                steps.append("--offline=no")
            for step in steps:
                argv = ("gnt-node", "modify", step)
                done = self.lab.run(master, *argv, one["name"], timeout_s=300.0)
                self.remedies[" ".join(argv)] += 1
                self._say(f"    {' '.join(argv)} {one['name']}: exit {done.code} {done.err[-300:]}")

    def is_whole(self, master: str) -> bool:
        """Return True if every node has power and is used by the cluster."""
        nodes = self.lab.config(master).get("nodes", {}).values()
        return all(map(self.lab.has_power, self.lab.nodes)) and not any(
            one.get("offline") or not one.get("powered", True) for one in nodes
        )

    def verify(self, master: str) -> list[Violation]:
        """Verify the cluster, do what it says, and return what remains.

        :raises OSError: the master has gone meanwhile.
        """
        remaining: list[str] = []
        for _ in range(12):
            done = self.lab.run(master, "gnt-cluster", "verify", timeout_s=300.0)
            findings = parse_findings(done.out)
            remaining = [text for kind, text in findings if kind == "ERROR"]
            if "Traceback" in done.text:
                return [Violation(VERIFY, f"verify failed:\n{done.text[-2000:]}")]
            if not remaining and done.ok:
                return []
            if not remaining:
                # For example, an instance was created in the meantime: it asks to be repeated.
                remaining = [done.text[-1000:]]
                time.sleep(2)
                continue
            self._remedy(master, findings)
        return [Violation(VERIFY, text) for text in remaining]

    def _remedy(self, master: str, findings: Sequence[tuple[str, str]]) -> None:
        commands: dict[tuple[str, ...], str] = {}
        before = self.remedies.total()
        for _kind, text in findings:
            for named, argv in REMEDIES:
                if named in text:
                    commands[argv] = text
            if _DOWN.search(text):
                # The watcher starts it, as it would in some minutes.
                commands["ganeti-watcher", "--no-verify-disks"] = text
            if match := _ORPHAN.search(text):
                self.lab.end_guests(match[1], match[2])
                self.remedies["end the guest of a removed instance on its node"] += 1
                self._say(f"    verify: {text}; it is ended there")
                continue
            if match := _PARTLY_REMOVED.search(text):
                commands["gnt-instance", "remove", "-f", match[1]] = text
            if match := _REMOVE.search(text):
                commands["rm", "-f", match[1]] = text
        if not commands and self.remedies.total() == before:
            time.sleep(5)
        for argv, text in commands.items():
            done = self.lab.run(master, *argv, timeout_s=300.0)
            self.remedies[" ".join(argv).replace(str(self.lab.vc), "")] += 1
            self._say(f"    verify: {text[:160]}; {' '.join(argv)}: exit {done.code}")

    # -- leaks -------------------------------------------------------------------------------------

    def wait_for_jobs(self, master: str) -> list[Violation]:
        """Wait until all jobs have ended."""

        def ended() -> bool:
            return all(job.status in FINAL for job in evidence.read_jobs(self.lab, master).values())

        try:
            wait_until(ended, "all jobs have ended", patience_s=PATIENCE_S, pause_s=1.0)
        except LabError:
            left = [
                f"{job.id} ({job.status}, {job.token})"
                for job in evidence.read_jobs(self.lab, master).values()
                if job.status not in FINAL
            ]
            return [Violation("no acknowledged job is lost", f"jobs do not end: {left[:10]}")]
        return []

    def leaks(self, master: str) -> list[Violation]:
        """Look for what is left although no job is running."""
        texts = [
            *self._left_locks(master),
            *self._left_files(master),
            *self._left_processes(master),
            *self._left_ports(),
        ]
        return [Violation(LEAKS, text) for text in texts]

    def _left_locks(self, master: str) -> list[str]:
        with Luxi(self.lab.socket(master)) as luxi:
            answer = luxi.call("Query", "lock", ["name", "mode", "owner", "pending"], None)
        found = []
        for row in answer["data"]:
            name, mode, owner, pending = (value for _state, value in row)
            if mode or owner or pending:
                found.append(f"lock {name} is held: {mode} {owner} {pending}")
        return found

    def _left_files(self, master: str) -> list[str]:
        config = self.lab.config(master)
        names = {one["name"] for one in config["instances"].values()}
        found = []
        for node in self.lab.nodes:
            for directory, _names, files in os.walk(self.lab.data(node)):
                found += [
                    f"temporary file {directory}/{name}"
                    for name in files
                    if name.startswith(".") and name.endswith(".new")
                ]
            storage = self.lab.root(node) / "srv/ganeti/file-storage"
            found += [
                f"{node}: storage of {path.name}, which is not an instance"
                for path in storage.glob("*")
                if path.name not in names and any(path.iterdir())
            ]
            guests = self.lab.run_dir(node) / "fake-hypervisor"
            found += [
                f"{node}: guest {path.name}, which is not an instance"
                for path in guests.glob("*")
                if path.name not in names
            ]
            work = self.lab.run_dir(node) / "node-work"
            found += [
                f"{node}: record of work {path.name}" for path in work.glob("*") if path.is_file()
            ]
        return found

    def _left_processes(self, master: str) -> list[str]:
        found = []
        for node, pids in sorted(lab_module.processes(self.lab.vc).items()):
            expected = {self.lab.pid(node, daemon) for daemon in DAEMONS}
            for pid in pids:
                text = _command_line(pid)
                if not text or "ganeti-watcher" in text:
                    continue
                if not expected & {pid, *_ancestors(pid)}:
                    found.append(f"{node}: process {pid}: {text[:120]}")
                elif pid in expected:
                    found += self._too_much(node, pid, text)
            if node == master and self.lab.pid(node, MASTERD) is None:
                found.append(f"{node}: the master daemon has gone")
        return found

    @staticmethod
    def _too_much(node: str, pid: int, text: str) -> list[str]:
        try:
            count = len(os.listdir(f"/proc/{pid}/fd"))
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return []
        resident = int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) // 1024
        name = os.path.basename(text.split()[1] if " " in text else text)
        found = []
        if count > _MOST_FDS:
            found.append(f"{node}: {name} has {count} open descriptors")
        if resident > _MOST_MIB:
            found.append(f"{node}: {name} has {resident} MiB of memory")
        return found

    def _left_ports(self) -> list[str]:
        """Look for sockets which listen on an address of the cluster and belong to no daemon."""
        expected = {1811, 1815, 5080}
        found = []
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            address, _, port = words[1].partition(":")
            ip = ".".join(str(byte) for byte in reversed(bytes.fromhex(address)))
            ours = ip in {self.lab.address(node) for node in self.lab.nodes}
            if words[3] == "0A" and ours and int(port, 16) not in expected:
                found.append(f"port {int(port, 16)} of {ip} is open")
        return found

    def usage(self) -> dict[str, Any]:
        """Return descriptors and memory of the daemons, for the report."""
        found: dict[str, Any] = {}
        for node in self.lab.nodes:
            for daemon in DAEMONS:
                pid = self.lab.pid(node, daemon)
                if pid is None:
                    continue
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                    count = len(os.listdir(f"/proc/{pid}/fd"))
                except OSError:
                    continue
                mib = int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) // 1024
                most = found.setdefault(daemon, {"descriptors": 0, "mib": 0})
                most["descriptors"] = max(most["descriptors"], count)
                most["mib"] = max(most["mib"], mib)
        return found


def parse_findings(text: str) -> list[tuple[str, str]]:
    """Read the errors and warnings of ``gnt-cluster verify``: kind, and text."""
    return [
        (match[1], match[2])
        for match in map(_FINDING.search, text.splitlines())
        if match and not any(known in match[2] for known in _EXPECTED)
    ]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def _ancestors(pid: int) -> list[int]:
    """Return the parent of a process, its parent, and so on.

    A process that waits for a job is a child of the fork server, which the master daemon started.
    """
    found: list[int] = []
    while (parent := _parent(found[-1] if found else pid)) is not None and parent > 1:
        found.append(parent)
    return found


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
