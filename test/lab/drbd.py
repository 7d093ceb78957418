"""Reads the state of DRBD from the kernel, and runs a program which writes to a device."""

from __future__ import annotations

import re
import subprocess
import threading
import uuid
from pathlib import Path

from ganeti.storage.drbd.parse import MinorState, parse_proc
from lab.machines import Lab, Machine
from lab.waiting import wait_until

#: Where ``writer.py`` is on the machines.
WRITER = "/root/writer.py"
#: The mark of the blocks which are written and expected now.
_mark = "laboratory"


def new_mark(name: str) -> None:
    """From now on write and expect other blocks than before: volumes may be where others were."""
    global _mark
    _mark = f"{name}-{uuid.uuid4().hex[:8]}"


def install_writer(lab: Lab) -> None:
    """Put the program which writes blocks on all machines."""
    text = (Path(__file__).resolve().parent / "writer.py").read_text()
    for machine in lab:
        machine.write(WRITER, text, 0o755)


def minors(machine: Machine) -> dict[int, MinorState]:
    """Minors in use on a machine."""
    found = parse_proc(machine.run("cat /proc/drbd"))
    return {number: state for number, state in found.items() if state.configured}


def wait_for(machine: Machine, minor: int, what: str, timeout_s: float = 900.0) -> MinorState:
    """Wait until ``connection local/remote`` of a minor matches a regular expression."""
    text = ""

    def reached() -> MinorState | None:
        nonlocal text
        state = minors(machine).get(minor)
        text = "" if state is None else f"{state.connection} {state.local_disk}/{state.remote_disk}"
        return state if re.search(what, text) else None

    found = wait_until(
        reached,
        lambda: f"{machine.name}: minor {minor} is {what!r}; it is {text!r}",
        timeout_s,
        pause_s=0.3,
    )
    assert found is not None
    return found


def volumes(machine: Machine) -> list[str]:
    """Logical volumes of the cluster's group."""
    return sorted(machine.run("lvs --noheadings -o lv_name xenvg").split())


class Writer:
    """A process on a machine which writes to a device, as a guest would."""

    def __init__(self, machine: Machine, device: str, first: int = 1) -> None:
        self.confirmed = first - 1
        self._machine = machine
        self._process = machine.spawn(f"exec python3 {WRITER} write {device} {_mark} {first}")
        self.output: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("confirmed "):
                # An incomplete line confirms nothing.
                if line.endswith("\n"):
                    self.confirmed = int(line.split()[1])
            else:
                self.output.append(line)

    def wait_for(self, number: int, timeout_s: float = 600.0) -> None:
        """Wait until this many blocks are confirmed."""

        def written() -> bool:
            ended = self._process.poll() is not None
            assert self.confirmed >= number or not ended, (
                f"the writer ended: {''.join(self.output)}"
            )
            return self.confirmed >= number

        wait_until(
            written,
            lambda: f"{number} blocks are written; {self.confirmed} are",
            timeout_s,
            pause_s=0.1,
        )

    def more(self, count: int) -> None:
        """Wait for so many more blocks."""
        self.wait_for(self.confirmed + count)

    def stop(self) -> int:
        """End it; returns the last block that was confirmed."""
        self._machine.call(f"pkill -9 -f '^python3 {WRITER}'")
        return self.ended()

    def ended(self) -> int:
        """Wait until the program has ended, for example because its machine was switched off."""
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join(timeout=20)
        return self.confirmed


def check(machine: Machine, device: str, last: int) -> None:
    """All blocks up to `last` are on the device.

    :raises Failed: some are not.
    """
    machine.run(f"python3 {WRITER} check {device} {_mark} {last}")


def lost(machine: Machine, device: str, last: int, first: int = 1) -> int:
    """Number of blocks from `first` to `last` which are not on the device."""
    done = machine.call(f"python3 {WRITER} check {device} {_mark} {last} {first}")
    found = re.match(r"\d+ blocks, (\d+) wrong", done.stdout)
    assert found, f"{device} on {machine.name} cannot be read: {done.stdout}{done.stderr}"
    return int(found.group(1))
