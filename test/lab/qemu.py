"""How a machine is started: its command line, as a pure function; and what accelerates it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROGRAM = "qemu-system-x86_64"
_PROBE_S = 15.0


@cache
def accelerator(image: Path) -> str:
    """Return ``kvm`` if a kernel boots with KVM, otherwise ``tcg``.

    In some virtual machines /dev/kvm can be opened, and guests hang later. So the kernel of the
    image is started without a disk; where KVM works, it ends within a second.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    words = [
        PROGRAM,
        "-machine",
        "q35",
        "-accel",
        "kvm",
        "-cpu",
        "max",
        "-m",
        "256",
        "-nodefaults",
        "-display",
        "none",
        "-no-reboot",
        "-kernel",
        str(image / "vmlinuz"),
        "-append",
        "panic=-1 quiet",
    ]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S
        )
    except subprocess.TimeoutExpired:
        return "tcg"
    return "kvm" if done.returncode == 0 else "tcg"


@dataclass(frozen=True, kw_only=True)
class NetworkInterface:
    """A network interface: its connection, and its address (none for the interface to the host)."""

    netdev: str
    mac: str


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A machine."""

    name: str
    directory: Path
    image: Path
    nics: Sequence[NetworkInterface]
    disks: Sequence[Path]
    project: Path
    arguments: str
    memory_mib: int = 1024

    def file(self, suffix: str) -> Path:
        """A file of this machine."""
        return self.directory / f"{self.name}.{suffix}"


def argv(spec: Spec, accel: str) -> list[str]:
    """The command line of a machine."""
    words = [
        PROGRAM,
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-name",
        spec.name,
        "-machine",
        "q35",
        "-accel",
        "kvm" if accel == "kvm" else "tcg,thread=multi",
        "-cpu",
        "max",
        "-smp",
        "1",
        "-m",
        str(spec.memory_mib),
        "-object",
        "rng-random,id=rng0,filename=/dev/urandom",
        "-device",
        "virtio-rng-pci,rng=rng0",
        # Killing QEMU stands for a power failure: what the guest flushed must survive it.
        "-drive",
        f"file={spec.file('qcow2')},if=virtio,cache=writeback,discard=unmap",
    ]
    for disk in spec.disks:
        # Raw files: what was written is in the host's memory, also when QEMU is killed.
        words += ["-drive", f"file={disk},if=virtio,format=raw,cache=unsafe,discard=unmap"]
    words += ["-drive", f"file={spec.project},if=virtio,format=raw,readonly=on"]
    for number, nic in enumerate(spec.nics):
        words += [
            "-netdev",
            f"{nic.netdev},id=net{number}",
            "-device",
            f"virtio-net-pci,netdev=net{number},id=nic{number},mac={nic.mac},romfile=",
        ]
    return [
        *words,
        "-chardev",
        f"socket,id=con,path={spec.file('con')},server=on,wait=off,logfile={spec.file('log')}",
        "-serial",
        "chardev:con",
        "-qmp",
        f"unix:{spec.file('qmp')},server=on,wait=off",
        "-kernel",
        str(spec.image / "vmlinuz"),
        "-initrd",
        str(spec.image / "initrd"),
        "-append",
        f"console=ttyS0 quiet mitigations=off net.ifnames=0 {spec.arguments}",
    ]


def qmp(path: Path, command: str, timeout_s: float = 20.0, **arguments: Any) -> Any:
    """Send one command to a machine's QEMU; returns its answer.

    :raises OSError: nobody answers.
    :raises RuntimeError: it refuses.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        stream = connection.makefile("rw")
        stream.readline()
        for name, given in (("qmp_capabilities", {}), (command, arguments)):
            stream.write(json.dumps({"execute": name, "arguments": given}) + "\n")
            stream.flush()
            while True:
                line = stream.readline()
                if not line:
                    raise OSError("the connection was closed")
                answer = json.loads(line)
                if "error" in answer:
                    raise RuntimeError(f"{name}: {answer['error'].get('desc')}")
                if "return" in answer:
                    break
        return answer["return"]
