"""Makes the faults of a round, and mends them.

The numbers of nodes in a schedule become names at the begin of a round: 0 is the node of the
present master, and the others follow in their order. Each fault is made by a method whose name is
its kind; it returns what mends it, or None for a fault of a moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from devel.chaos import evidence, power, schedule
from devel.chaos.availability import AFTER_S
from devel.chaos.checker import Promise, Violation
from devel.chaos.history import now
from devel.chaos.lab import (
    COMMAND_S,
    MASTERD,
    Finished,
    Lab,
    LabError,
    name_of,
    processes,
    wait_until,
)
from devel.chaos.schedule import NODED, Fault, Round

JOINS: Final = "a node joins and leaves"
# How often a node is emptied and removed until no user has placed something there meanwhile.
_ATTEMPTS: Final = 8
UPGRADES: Final = "an upgrade which was interrupted ends"
Mend = Callable[[], object]
#: Names of processes, by the detail of ``kill helpers``.
_HELPERS: Final = {
    "fork server": ("gnt-fork-server",),
    "spare": ("gnt-fork-server", "gnt-job-idle"),
}
# Seconds in which users change something after a copy of the configuration was made.
_MORE_CHANGES_S: Final = 4.0
# Seconds in which the watcher has begun, and has not ended yet.
_WATCHER_WORKS_S: Final = 0.8
_RANK = re.compile(r"(\d)([->])(\d)")


class Faults:
    """The faults of a run.

    :param say: prints a line of progress.
    :param note_tag: notes that the cluster has a tag which was written into the file by hand.
    :ivar made: how often each kind was made.
    :ivar lost_files: how many files power cuts have lost or made older.
    """

    def __init__(
        self, lab: Lab, say: Callable[[str], None], note_tag: Callable[[str], None]
    ) -> None:
        self.lab = lab
        self._note_tag = note_tag
        self._edits = 0
        self.made: Counter[str] = Counter()
        self.lost_files = 0
        self._say = say
        self._ranks = list(lab.nodes)
        self._cuts: list[list[str]] = []
        self._commands: list[threading.Thread] = []
        self._lasting: list[str] = []
        self._over: dict[str, float] = {}
        self._broken: list[Violation] = []

    # -- a round -----------------------------------------------------------------------------------

    def take_copies(self) -> None:
        """Copy the data of all nodes, while they agree: what a node returns with later."""
        for node in self.lab.nodes:
            target = self._copy_of(node)
            shutil.rmtree(target, ignore_errors=True)
            copy_quickly(self.lab.data(node), target)

    def _copy_of(self, node: str) -> Path:
        return self.lab.directory / f"old.{node}"

    def play(self, one: Round, master: str) -> None:
        """Make the faults of a round at their times, and mend each when it is over."""
        self._ranks = [master, *(node for node in self.lab.nodes if node != master)]
        begun = now()
        events: list[tuple[float, int, Fault, Mend | None]] = [
            (fault.at_s, number, fault, None) for number, fault in enumerate(one.faults)
        ]
        while events:
            events.sort(key=lambda event: event[:2])
            at_s, number, fault, mend = events.pop(0)
            threading.Event().wait(max(0.0, begun + at_s - now()))
            if mend is not None:
                mend()
                self._ends(fault.kind)
                continue
            self._say(f"    {fault.text()} ({self._ranks[fault.node]})")
            self._lasting.append(fault.kind)
            mend = self.make(fault)
            self.made[fault.kind] += 1
            if mend is None:
                self._ends(fault.kind)
            else:
                events.append((at_s + fault.lasts_s, number, fault, mend))

    def _ends(self, kind: str) -> None:
        self._over[kind] = now()
        self._lasting.remove(kind)

    def active(self) -> frozenset[str]:
        """Return the kinds of faults which last, or have ended a short time ago."""
        recent = now() - AFTER_S
        return frozenset(
            (*self._lasting, *(kind for kind, ended in self._over.copy().items() if ended > recent))
        )

    def make(self, fault: Fault) -> Mend | None:
        """Make a fault; returns what mends it."""
        method: Callable[[str, str], Mend | None] = getattr(self, fault.kind.replace(" ", "_"))
        return method(self._ranks[fault.node], fault.detail)

    def mend_all(self) -> None:
        """Mend everything that is left, and start all daemons."""
        self._cuts.clear()
        self._over.update(dict.fromkeys(self._lasting, now()))
        self._lasting.clear()
        self.lab.set_cut(())
        if self.lab.variant.two:
            self.lab.set_witness(True)
        for node in self.lab.nodes:
            self.lab.set("disk", node, "ok")
            self.lab.set("clock", node, "0")
            self.lab.set("lack", node, "ok")
            self.lab.set("network", node, "ok")
            self.lab.plug_in(node)
            self.lab.signal_all(node, signal.SIGCONT)
        self._end_commands()
        starts = [
            threading.Thread(target=self.lab.power_on, args=(node,)) for node in self.lab.nodes
        ]
        for one in starts:
            one.start()
        for one in starts:
            one.join()

    # -- processes ---------------------------------------------------------------------------------

    def kill_daemon(self, node: str, daemon: str) -> None:
        """End a daemon by SIGKILL; the watcher or this run starts it again."""
        self._signal(node, daemon, signal.SIGKILL)

    def pause_daemon(self, node: str, daemon: str) -> Mend | None:
        """Stop a daemon, so that connections are made and nobody answers."""
        pid = self._signal(node, daemon, signal.SIGSTOP)
        if pid is None:
            return None

        def resume() -> None:
            # It may have been killed since, and its number belongs to another process.
            if self.lab.pid(node, daemon) == pid:
                self._signal(node, daemon, signal.SIGCONT)

        return resume

    def _signal(self, node: str, daemon: str, number: signal.Signals) -> int | None:
        pid = self.lab.pid(node, daemon)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid

    def pause_node(self, node: str, _detail: str) -> Mend:
        """Stop all processes of a node."""
        self.lab.signal_all(node, signal.SIGSTOP)
        return lambda: self.lab.signal_all(node, signal.SIGCONT)

    # -- power -------------------------------------------------------------------------------------

    def power_cut(self, node: str, _detail: str) -> Mend | None:
        """Cut the power of a node: what was not flushed is lost, and its guests have ended."""
        return self._power_off([node])

    def blackout(self, _node: str, _detail: str) -> Mend | None:
        """Cut the power of all nodes at once."""
        return self._power_off(self.lab.nodes)

    def _power_off(self, nodes: Sequence[str]) -> Mend | None:
        self.lost_files += self.lab.power_off(nodes)

        def on() -> None:
            for node in nodes:
                self.lab.plug_in(node)
                self._command(node, "daemon-util", "start-all")

        return on

    def old_data(self, node: str, _detail: str) -> Mend:
        """Let a node return with the data which it had at the begin of the round."""

        def restore(data: Path) -> None:
            shutil.rmtree(data)
            shutil.copytree(self._copy_of(node), data, symlinks=True)

        return self._forget(node, restore)

    def torn_file(self, node: str, detail: str) -> Mend:
        """Let a node return with a file which ends somewhere in the middle."""
        what, _, share = detail.partition(" ")

        def tear(data: Path) -> None:
            for path in torn_paths(data, what):
                content = path.read_bytes()
                mode = path.stat().st_mode
                path.chmod(0o600)
                path.write_bytes(content[: int(len(content) * float(share))])
                path.chmod(mode & 0o7777)

        return self._forget(node, tear)

    def _forget(self, node: str, change: Callable[[Path], None]) -> Mend:
        on = self._power_off([node])
        assert on is not None
        data = self.lab.data(node)
        change(data)
        power.begin(data, self.lab.flushed(node))
        return on

    def promise(self, node: str) -> Promise | None:
        """Return what a node has promised; None when it does not know that."""
        try:
            return evidence.promise_of((self.lab.data(node) / "master_state").read_text())
        except (OSError, ValueError):
            return None

    # -- network, disk, clock ----------------------------------------------------------------------

    def split(self, _node: str, detail: str) -> Mend:
        """Keep nodes from calling each other: groups, rings, bridges, one way."""
        lines = []
        for one, how, other in _RANK.findall(detail):
            first, second = self._ranks[int(one)], self._ranks[int(other)]
            lines.append(f"{first} > {second}" if how == ">" else f"{first} {second}")
        self._cuts.append(lines)
        self._write_cuts()

        def heal() -> None:
            if lines in self._cuts:
                self._cuts.remove(lines)
            self._write_cuts()

        return heal

    def _write_cuts(self) -> None:
        self.lab.set_cut([line for lines in self._cuts for line in lines])

    def disk_full(self, node: str, _detail: str) -> Mend:
        """Let every write of a node fail for want of space."""
        return self._disk(node, "full")

    def disk_slow(self, node: str, detail: str) -> Mend:
        """Let every flush of a node take some seconds."""
        return self._disk(node, f"slow {detail}")

    def disk_fails(self, node: str, _detail: str) -> Mend:
        """Let every write and flush of a node fail."""
        return self._disk(node, "fails")

    def _disk(self, node: str, how: str) -> Mend:
        self.lab.set("disk", node, how)
        return lambda: self.lab.set("disk", node, "ok")

    def clock_jumps(self, node: str, detail: str) -> Mend:
        """Let the clock of a node be wrong by some seconds."""
        self.lab.set("clock", node, detail)
        return lambda: self.lab.set("clock", node, "0")

    def witness_away(self, _node: str, _detail: str) -> Mend:
        """Let the witness not answer."""
        self.lab.set_witness(False)
        return lambda: self.lab.set_witness(True)

    # -- machine -----------------------------------------------------------------------------------

    def shortage(self, node: str, detail: str) -> Mend:
        """Let a node have no processes, memory, descriptors, or no space in ``/run``."""
        self.lab.set("lack", node, detail)
        return lambda: self.lab.set("lack", node, "ok")

    def slow_network(self, node: str, detail: str) -> Mend:
        """Let the node daemon answer late, or lose requests and answers."""
        self.lab.set("network", node, detail)
        return lambda: self.lab.set("network", node, "ok")

    def kill_helpers(self, node: str, detail: str) -> None:
        """End processes which execute jobs, wait for jobs, or make such processes."""
        for pid in processes(self.lab.vc).get(node, []):
            name = name_of(pid)
            if detail == "all" or name in _HELPERS[detail]:
                if name.startswith("gnt-"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def hanging_watcher(self, node: str, _detail: str) -> Mend:
        """Start a watcher, and stop it in the middle; it is killed in the end."""
        output = self.lab.directory / "watcher.log"
        process = self.lab.start(node, "ganeti-watcher", "--ignore-pause", output=output)
        threading.Event().wait(_WATCHER_WORKS_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGSTOP)

        def end() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

        return end

    def damaged_byte(self, node: str, detail: str) -> Mend:
        """Let a node return with a file in which one bit is another one."""
        what, _, share = detail.partition(" ")

        def damage(data: Path) -> None:
            for path in torn_paths(data, what):
                content = bytearray(path.read_bytes())
                if content:
                    content[int(len(content) * float(share))] ^= 1
                    mode = path.stat().st_mode
                    path.chmod(0o600)
                    path.write_bytes(content)
                    path.chmod(mode & 0o7777)

        return self._forget(node, damage)

    # -- what administrators do --------------------------------------------------------------------

    def renew(self, _node: str, detail: str) -> None:
        """Renew a key or certificate of the cluster."""
        masters = self.lab.masters()
        if masters:
            self._command(random.choice(masters), "gnt-cluster", "renew-crypto", "-f", detail)

    def master_failover(self, node: str, _detail: str) -> None:
        """Move the role of the master to a node."""
        self._command(node, "gnt-cluster", "master-failover")

    def maintenance(self, node: str, _detail: str) -> Mend:
        """Take a node out for maintenance, and back."""

        def ask(what: str) -> None:
            masters = self.lab.masters()
            if masters:
                force = ["--force"] if what == "start" else []
                self._command(masters[0], "gnt-node", "maintenance", *force, what, node)

        ask("start")

        def end() -> None:
            # An end which comes while the start is still under way is refused.
            self._end_commands()
            ask("end")

        return end

    def join_node(self, _node: str, _detail: str) -> Mend | None:
        """Let another node join, and leave the cluster later."""
        name, done = self.lab.add_node()
        self._say(f"      {name or 'a node'} joins: exit {done.code}")
        if not name:
            self._broken.append(Violation(JOINS, f"exit {done.code}: {done.text[-1000:]}"))
            return None
        return lambda: self._leave(name)

    def _leave(self, name: str) -> None:
        """Empty a node, and remove it."""
        done = Finished(None, "", "no master serves")
        for _ in range(_ATTEMPTS):
            for master in self.lab.masters()[:1]:
                argv = ("gnt-node", "maintenance", "--force", "start", name)
                self.lab.run(master, *argv, timeout_s=COMMAND_S * 2)
                done = self.lab.run(master, "gnt-node", "remove", name, timeout_s=COMMAND_S * 2)
            if done.ok:
                break
        self._say(f"      {name} leaves: exit {done.code}")
        if not done.ok:
            self._broken.append(Violation(JOINS, f"{name}: {done.text[-1000:]}"))

    def upgrade(self, node: str, detail: str) -> Mend:
        """Kill an upgrade when it begins a step, let all machines start again, and finish it.

        :param detail: the number of the step, and ``resume`` or ``back``.
        """
        step, _, how = detail.partition(" ")
        output = self.lab.directory / "upgrade.log"
        output.unlink(missing_ok=True)
        process = self.lab.start(
            node, "gnt-cluster", "upgrade", f"--to={self.lab.next_series}", output=output
        )

        def begun() -> bool:
            lines = output.read_text().splitlines()
            return process.poll() is not None or any(one.startswith(f"[{step}/") for one in lines)

        try:
            wait_until(begun, f"the upgrade begins step {step}")
        except LabError as err:
            self._broken.append(Violation(UPGRADES, str(err)))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for one in self.lab.nodes:
            self.lab.power_on(one)

        def finish() -> None:
            if how == "resume":
                self._upgrade(node, self.lab.next_series, "--resume")
            self._upgrade(node, self.lab.series, f"--to={self.lab.series}")

        return finish

    def _upgrade(self, node: str, series: str, option: str) -> None:
        """Carry out an upgrade; all daemons must be of the version then."""
        done = self.lab.run(node, "gnt-cluster", "upgrade", option, timeout_s=600.0)
        self._say(f"      gnt-cluster upgrade {option}: exit {done.code}")
        wrong = self.lab.other_versions(series)
        if not done.ok:
            text = f"gnt-cluster upgrade {option}: exit {done.code}: {done.err[-1000:]}"
            self._broken.append(Violation(UPGRADES, text))
        elif wrong:
            text = f"not of version {series} after a success: {', '.join(wrong)}"
            self._broken.append(Violation(UPGRADES, text))

    def take_broken(self) -> list[Violation]:
        """Return what was broken while faults were made or mended, since the last call."""
        found, self._broken = self._broken, []
        return found

    def hand_edit(self, node: str, detail: str) -> None:
        """Stop or kill the master, change or restore its configuration by hand, and start it."""
        path = self.lab.data(node) / "config.data"
        saved = self.lab.directory / "by-hand"
        if detail == "restored":
            shutil.copy2(path, saved)
            threading.Event().wait(_MORE_CHANGES_S)
        if detail == "killed":
            for daemon in (NODED, MASTERD):
                self._signal(node, daemon, signal.SIGKILL)
        else:
            self.lab.run(node, "daemon-util", "stop-master")
        if detail == "restored":
            path.write_bytes(saved.read_bytes())
            tag = ""
        else:
            shutil.copy2(path, saved)
            self._edits += 1
            tag = f"by-hand-{self._edits}"
            path.write_text(with_tag(path.read_text(), tag))
        self.lab.run(node, "daemon-util", "start", NODED)
        done = self.lab.run(node, "daemon-util", "start-master")
        self._say(f"      start after the edit: exit {done.code}")
        if done.ok:
            if detail == "stopped":
                self._note_tag(tag)
        elif "cfgshell --journal" in done.text:
            shell = str(self.lab.project / "tools/cfgshell")
            base = f"--base={saved}" if detail == "killed" else ""
            what = "apply" if base else "set-aside"
            argv = [shell, "--write", f"--journal={what}", *([base] if base else [])]
            done = self.lab.run(node, *argv)
            self._say(f"      cfgshell --journal={what}: exit {done.code}")
            done = self.lab.run(node, "daemon-util", "start-master")
        if not done.ok and "master-failover" in done.text:
            self._command(self._ranks[1], "gnt-cluster", "master-failover")

    def _end_commands(self) -> None:
        """Wait for the commands which were started."""
        for command in self._commands:
            command.join()
        self._commands.clear()

    def _command(self, node: str, *argv: str) -> None:
        """Run a command and go on; :meth:`mend_all` waits for it."""

        def run() -> None:
            done = self.lab.run(node, *argv, timeout_s=COMMAND_S * 2)
            lines = done.err.strip().splitlines()
            result = {0: "done", None: "given up"}.get(done.code, f"exit {done.code}")
            if argv[0] != "daemon-util":
                self._say(f"      {' '.join(argv)} on {node}: {result} {lines[-1:] or ''}")

        thread = threading.Thread(target=run, name=f"command {argv[:2]}")
        thread.start()
        self._commands.append(thread)


def torn_paths(data: Path, what: str) -> list[Path]:
    """Return the files of a node which are torn.

    :param what: one of :data:`schedule.TORN_FILES`.
    """
    assert what in schedule.TORN_FILES
    if what == "queue":
        jobs = sorted((data / "queue").glob("job-*"), key=lambda path: int(path.name[4:]))
        return [*jobs[-3:], *sorted((data / "queue").glob("journal-*"))[-1:]]
    if what == "serial":
        return [data / "queue/serial"]
    if what == "ssconf":
        return sorted(data.glob("ssconf_*"))[:8]
    return [data / what] if (data / what).exists() else []


def with_tag(text: str, tag: str) -> str:
    """Edit the text of a configuration, as an administrator: the cluster gets a tag.

    The serial number becomes higher than that of every copy on another node.
    """
    content = json.loads(text)
    content["serial_no"] += 1000
    content["cluster"].setdefault("tags", []).append(tag)
    return json.dumps(content)


def copy_quickly(source: Path, target: Path) -> None:
    """Copy a directory while files come and go in it."""
    for directory, _names, files in os.walk(source):
        here = target / Path(directory).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        shutil.copymode(directory, here)
        for name in files:
            # It may be gone; a socket cannot be copied.
            with contextlib.suppress(FileNotFoundError, shutil.SpecialFileError, OSError):
                shutil.copy2(Path(directory) / name, here / name, follow_symlinks=False)
