"""A node with an LXC which only pretends: a container is a few files of a control group."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ganeti import errors
from ganeti.platform import paths
from ganeti.utils import process

DATA = Path(__file__).resolve().parents[1] / "data/lxc"


class Lxc:
    """The container of one instance, which is a file; the machine has control groups of version 2.

    :ivar fails: number of the program which fails.
    :ivar dies: number of the program with which the caller's process ends.
    """

    def __init__(self, directory: Path, name: str = "web") -> None:
        self.name = name
        top = directory / "cgroup"
        top.mkdir(parents=True)
        (top / "cgroup.controllers").write_text("cpu cpuset memory io\n")
        self.mounts = directory / "mounts"
        self.mounts.write_text(f"cgroup2 {top} cgroup2 rw 0 0\n")
        self.group = top / f"lxc.payload.{name}"
        self.dies: int | None = None
        self.programs: list[str] = []
        self.fails: int | None = None
        self.ignores_halt = False

    @property
    def monitored(self) -> set[str]:
        """The containers which run."""
        path = self.group / "monitor"
        return {self.name} if path.exists() else set()

    def lose_monitor(self) -> None:
        """LXC's monitor was killed."""
        (self.group / "monitor").unlink(missing_ok=True)

    def run(self, argv: Sequence[str], *, check: bool = True, **_: object) -> process.Completed:
        name = argv[0]
        self.programs.append(name)
        failing = self.fails == len(self.programs)
        if name == "lxc-start" and "--version" not in argv:
            # It may fail after the container runs.
            self.begin()
        elif name == "lxc-stop" and "--kill" in argv:
            self.end()
        elif name == "lxc-stop" and not self.ignores_halt and not failing:
            self.end()
            self.log("ended-PWR.log")
        if self.dies == len(self.programs):
            os._exit(0)
        if failing:
            if check:
                raise errors.CommandError(list(argv), 1, "it fails")
            return process.Completed(tuple(argv), 1, "", "it fails", None)
        out = {"blkid": "TYPE=ext4\n", "lxc-info": "4711\n", "lxc-start": "5.0.2\n"}.get(name, "")
        return process.Completed(tuple(argv), 0, out, "", None)

    def begin(self) -> None:
        self.group.mkdir(exist_ok=True)
        (self.group / "monitor").touch()
        (self.group / "cgroup.events").write_text("populated 1\n")
        (self.group / "cgroup.procs").write_text("4711\n")
        (self.group / "memory.max").write_text("134217728\n")

    def end(self) -> None:
        self.lose_monitor()
        if self.group.exists():
            (self.group / "cgroup.events").write_text("populated 0\n")
            (self.group / "cgroup.procs").write_text("")

    def log(self, name: str) -> None:
        """LXC writes a recorded log."""
        log = Path(paths.current().log_lxc_dir) / f"{self.name}.log"
        log.write_text((DATA / name).read_text())

    def kill(self, path: str, value: str) -> None:
        """What the driver writes into control groups."""
        Path(path).write_text(value)
        if path.endswith("cgroup.kill"):
            self.end()
