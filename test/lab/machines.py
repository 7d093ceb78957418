"""The machines: starts them, breaks their network, power and disks, and always shuts them down.

``with Lab(directory, 3) as lab: lab["node1"].run("uptime")``. What a test does to a machine is done
from outside (power, cables) or through device-mapper inside (disks); nothing of it needs the help
of the programs under test.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from lab import image, network, qemu
from lab.waiting import wait_until

PRIMARY, SECONDARY = 0, 1
#: For machines which boot as most machines do; it takes two to three times as long.
SYSTEMD = "/lib/systemd/systemd"
_DISK_MIB = 24 * 1024
#: Starting takes 10 s of a processor of one's own; the machines may have to share few.
_START_S = 900.0
_SSH_FAILED = 255
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failed(Exception):
    """A command on a machine failed."""

    def __init__(self, machine: str, command: str, done: subprocess.CompletedProcess[str]) -> None:
        super().__init__(
            f"{machine}: {command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
        self.done = done


class Machine:
    """One machine, started or not."""

    def __init__(self, lab: Lab, number: int) -> None:
        self.lab = lab
        self.number = number
        self.name = f"node{number}"
        self.primary_ip = f"{network.PREFIX}.1.{number}"
        self.secondary_ip = f"{network.PREFIX}.2.{number}"
        self._process: subprocess.Popen[bytes] | None = None
        self._nics = lab.network.nics(number)
        directory = lab.directory
        self.disks = [directory / f"{self.name}.disk{index}" for index in range(2)]
        addresses = ",".join(lab.network.addresses(number))
        self._spec = qemu.Spec(
            name=self.name,
            directory=directory,
            image=lab.image,
            nics=self._nics,
            disks=self.disks,
            project=lab.project,
            memory_mib=lab.memory_mib,
            dom0_mib=lab.dom0_mib,
            arguments=f"lab.name={self.name} lab.addresses={addresses} lab.hosts={lab.hosts()}"
            + (f" lab.init={lab.init}" if lab.init else ""),
        )
        self._make_disks()

    def _make_disks(self) -> None:
        subprocess.run(
            [
                "qemu-img",
                "create",
                "-q",
                "-f",
                "qcow2",
                "-F",
                "raw",
                "-b",
                self.lab.image / "base.img",
                self._spec.file("qcow2"),
            ],
            check=True,
        )
        for disk in self.disks:
            with open(disk, "wb") as stream:
                stream.truncate(_DISK_MIB << 20)

    @property
    def on(self) -> bool:
        """Whether it is switched on."""
        return self._process is not None

    # -- power and cables --------------------------------------------------------

    def start(self) -> None:
        """Switch the machine on; :meth:`wait` waits until it is ready."""
        self._spec.file("log").unlink(missing_ok=True)
        self._close_ssh()
        words = self.lab.network.wrap(qemu.argv(self._spec, qemu.accelerator(self.lab.image)))
        with open(self._spec.file("out"), "wb") as output:
            # With a session of its own, Ctrl-C does not reach the machine: this process shuts it
            # down in order. When this process is killed, the kernel ends the machine.
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        share_priority(self._process.pid)

    def wait(self) -> float:
        """Wait until it has started; returns the seconds that took.

        :raises TimeoutError: it does not become ready; the end of its console is in the text.
        """
        begin = time.monotonic()
        log = self._spec.file("log")

        def console() -> str:
            return log.read_text(errors="replace") if log.exists() else ""

        def ready() -> bool:
            if f"lab: {self.name} is ready" in console():
                return True
            if self._process is None or self._process.poll() is not None:
                raise TimeoutError(f"{self.name} ended: {self._spec.file('out').read_text()}")
            return False

        wait_until(
            ready, lambda: f"{self.name} is ready:\n{console()[-3000:]}", _START_S, pause_s=0.1
        )
        return time.monotonic() - begin

    def power_off(self) -> None:
        """Switch the power off."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        self._close_ssh()

    def cable(self, nic: int, *, plugged: bool) -> None:
        """Plug in or pull out the cable of a NIC: ``PRIMARY`` or ``SECONDARY``."""
        qemu.qmp(self._spec.file("qmp"), "set_link", name=f"nic{nic}", up=plugged)

    def freeze(self) -> None:
        """Stop the processors; the machine becomes unresponsive."""
        qemu.qmp(self._spec.file("qmp"), "stop")

    def thaw(self) -> None:
        """Let the processors continue."""
        qemu.qmp(self._spec.file("qmp"), "cont")

    # -- disks --------------------------------------------------------------------

    def break_disk(self, index: int) -> None:
        """From now on every access to spare disk `index` is an error."""
        self._load_table(index, "error")

    def mend_disk(self, index: int) -> None:
        """The disk works again, with the content it had."""
        disk = "/dev/vd" + "bc"[index]
        self._load_table(index, f"linear {disk} 0")

    def _load_table(self, index: int, target: str) -> None:
        size = self.run(f"blockdev --getsz /dev/vd{'bc'[index]}").strip()
        # Without flushing: requests that wait for the broken disk would block this for ever.
        self.run(
            f"dmsetup suspend --noflush --nolockfs lab{index} &&"
            f" dmsetup load lab{index} --table '0 {size} {target}' &&"
            f" dmsetup resume lab{index}"
        )

    # -- commands ------------------------------------------------------------------

    def ssh_argv(self) -> list[str]:
        """The beginning of a command line which runs something there."""
        return self.lab.network.wrap(
            [
                "ssh",
                "-i",
                str(self.lab.key),
                "-o",
                "StrictHostKeyChecking=no",
                "-o",
                "UserKnownHostsFile=/dev/null",
                "-o",
                "LogLevel=ERROR",
                "-o",
                "BatchMode=yes",
                "-o",
                "ConnectTimeout=30",
                "-o",
                "ServerAliveInterval=30",
                "-o",
                "ControlMaster=auto",
                "-o",
                f"ControlPath={self._spec.file('ctl')}",
                "-o",
                "ControlPersist=600",
                *self.lab.network.ssh_target(self.number),
            ]
        )

    def call(
        self, command: str, stdin: str | None = None, timeout_s: float = 900.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command on the machine; it may fail."""
        for _attempt in range(2):
            done = subprocess.run(
                [*self.ssh_argv(), command],
                input=stdin,
                text=True,
                stdin=None if stdin is not None else subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
            )
            # ssh's own failure: a connection that just expired.
            if done.returncode != _SSH_FAILED:
                break
            self._close_ssh()
        return done

    def run(self, command: str, stdin: str | None = None, timeout_s: float = 900.0) -> str:
        """Run a shell command there; returns what it printed.

        :raises Failed: its exit code is not 0.
        """
        done = self.call(command, stdin, timeout_s)
        if done.returncode:
            raise Failed(self.name, command, done)
        return done.stdout

    def spawn(self, command: str) -> subprocess.Popen[str]:
        """Start a shell command there which goes on; its output can be read."""
        return subprocess.Popen(
            [*self.ssh_argv(), command],
            stdin=subprocess.DEVNULL,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file there, which is whole after a loss of power too."""
        quoted = shlex.quote(path)
        self.run(
            f"mkdir -p $(dirname {quoted}); cat >{quoted}; chmod {mode:o} {quoted}; sync {quoted}",
            text,
        )

    def _close_ssh(self) -> None:
        control = self._spec.file("ctl")
        if control.exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    [*self.ssh_argv()[:-1], "-O", "exit", "root@x"], capture_output=True, timeout=10
                )
            control.unlink(missing_ok=True)


class Lab:
    """Several machines with their networks.

    While it is up, the machines of another one which was up before are frozen.

    :param directory: for disks, consoles and sockets; removed at the end except for logs.
    :param init: first program of the machines, such as :data:`SYSTEMD`; empty for the quick one of
        the recipe.
    :param dom0_mib: the machines run under Xen, and their own system has so much memory; 0 for
        machines without Xen.
    :param flavour: the image of machines without Xen, see :func:`lab.image.built`.
    :param project_writer: writes the file system whose files each machine gets when it starts; by
        default those of the project.
    """

    _numbers = itertools.count(1)
    _up_now: ClassVar[list[Lab]] = []

    def __init__(
        self,
        directory: Path,
        count: int,
        *,
        memory_mib: int = 1024,
        init: str = "",
        dom0_mib: int = 0,
        flavour: str = image.PLAIN,
        project_writer: Callable[[Path], None] = image.install_project,
    ) -> None:
        self.directory = directory
        self.memory_mib = memory_mib
        self.count = count
        self.init = init
        self.dom0_mib = dom0_mib
        self.flavour = image.XEN if dom0_mib else flavour
        self._write_project = project_writer
        self.network = network.choose(f"{os.getpid()}-{next(self._numbers)}")
        self.machines: list[Machine] = []

    def hosts(self) -> str:
        """``address:name`` of all machines and of the cluster."""
        names = [(f"{network.PREFIX}.1.{n}", f"node{n}") for n in range(1, self.count + 1)]
        return ",".join(f"{ip}:{name}" for ip, name in [*names, (f"{network.PREFIX}.1.200", "lab")])

    def __enter__(self) -> Lab:
        try:
            self._up()
        except BaseException:
            self.down()
            raise
        return self

    def prepare(self) -> None:
        """Build what is needed to start.

        :raises CannotBuild: this machine cannot.
        """
        self.image = image.built(self.flavour)

    def _up(self) -> None:
        self.prepare()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.key = self.directory / "id"
        shutil.copyfile(self.image / "id", self.key)
        self.key.chmod(0o600)
        self.project = self.directory / "project.img"
        self._write_project(self.project)
        for other in self._up_now:
            other.freeze()
        self._up_now.append(self)
        self.network.up()
        self.machines = [Machine(self, number) for number in range(1, self.count + 1)]
        for machine in self.machines:
            machine.start()
        for machine in self.machines:
            machine.wait()

    def __exit__(self, *_details: object) -> None:
        self.down()

    def __getitem__(self, name: str) -> Machine:
        return next(machine for machine in self.machines if machine.name == name)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.machines)

    def freeze(self) -> None:
        """Stop the processors of all machines, which then need none of this machine."""
        for machine in self.machines:
            if machine.on:
                machine.freeze()

    def thaw(self) -> None:
        """Let all machines continue, with a clock which is behind."""
        for machine in self.machines:
            if machine.on:
                machine.thaw()

    def collect_logs(self, target: Path) -> None:
        """Copy logs of daemons and kernels to `target`/NODE, and the consoles."""
        target.mkdir(parents=True, exist_ok=True)
        for machine in self.machines:
            with contextlib.suppress(OSError):
                shutil.copy(self.directory / f"{machine.name}.log", target)
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                with open(target / f"{machine.name}.tar.gz", "wb") as stream:
                    subprocess.run(
                        [
                            *machine.ssh_argv(),
                            "dmesg >/var/log/dmesg.txt; cat /proc/drbd"
                            " >/var/log/drbd.txt 2>/dev/null; lvs >/var/log/lvs.txt 2>&1;"
                            " tar -cz -C /var/log . 2>/dev/null",
                        ],
                        stdin=subprocess.DEVNULL,
                        stdout=stream,
                        stderr=subprocess.DEVNULL,
                        timeout=60,
                    )

    def down(self) -> None:
        """End all machines and remove their files; safe to call at any time."""
        # A second Ctrl-C must not interrupt the shutdown.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
        try:
            self._down()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _down(self) -> None:
        for machine in self.machines:
            with contextlib.suppress(Exception):
                machine.power_off()
        with contextlib.suppress(Exception):
            self.network.down()
        if self in self._up_now:
            self._up_now.remove(self)
            for other in self._up_now:
                with contextlib.suppress(Exception):
                    other.thaw()
        shutil.rmtree(self.directory / "project.tree", ignore_errors=True)
        for pattern in ("*.qcow2", "*.disk?", "*.qmp", "*.con", "*.ctl", "project.img", "id"):
            for path in self.directory.glob(pattern):
                path.unlink(missing_ok=True)


def share_priority(pid: int, proc: Path = Path("/proc")) -> None:
    """Give a process the priority which the group of this one has in the kernel's scheduler.

    A process with a session of its own begins with the usual one, see sched(7), *The autogroup
    feature*. Nothing changes where the kernel has no such groups, or where this process is in none:
    the file is empty then.
    """
    with contextlib.suppress(OSError):
        words = (proc / "self" / "autogroup").read_text().split()
        if words:
            (proc / str(pid) / "autogroup").write_text(words[-1])


def _end_with_parent() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def ended_in_order() -> Iterator[None]:
    """Treat signals which end the process like Ctrl-C, so that the machines are shut down."""
    numbers = [
        number
        for number in _ENDINGS
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def missing_programs() -> Sequence[str]:
    """Return the programs which the laboratory needs and this machine does not have."""
    return [
        name
        for name in (qemu.PROGRAM, "qemu-img", "ssh", "mkfs.ext4")
        if shutil.which(name) is None
    ]
