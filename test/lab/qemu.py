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

from ganeti.hypervisor.kvm.accelerator import KVM, probe

# Emulated, Xen 4.17 ends its first domain where the processor has SMAP, cannot emulate rdtscp, and
# loses the wide registers of a program when it switches between domains.
_XEN_CPU = "max,-smap,-smep,-rdtscp,-xsave,-avx,-avx2"
PROGRAM = "qemu-system-x86_64"
_PROBE_S = 15.0


@cache
def accelerator(image: Path) -> str:
    """Return ``kvm`` if a kernel boots with KVM, otherwise ``tcg``.

    In some virtual machines /dev/kvm can be opened, and guests hang later. Some do so at once. For
    the others the kernel of the image is started without a disk; where KVM works, it ends within a
    second.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    if not probe(PROGRAM, KVM, timeout_s=_PROBE_S):
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
    #: Memory of the machine's own system under Xen; 0 for a machine without Xen.
    dom0_mib: int = 0

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
        _XEN_CPU if spec.dom0_mib else "max",
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
        # A watchdog of a machine: it restarts the machine when nobody feeds it.
        "-device",
        "i6300esb,id=watchdog",
        "-action",
        "watchdog=reset",
        "-chardev",
        f"socket,id=con,path={spec.file('con')},server=on,wait=off,logfile={spec.file('log')}",
        "-serial",
        "chardev:con",
        "-qmp",
        f"unix:{spec.file('qmp')},server=on,wait=off",
        *_boot(spec),
    ]


def _boot(spec: Spec) -> list[str]:
    """The kernel and its command line, below the hypervisor if there is one."""
    console = "hvc0" if spec.dom0_mib else "ttyS0"
    # Emulated on a busy machine, the timer may look broken; the kernel would stop for that.
    line = f"console={console} quiet mitigations=off no_timer_check net.ifnames=0 {spec.arguments}"
    kernel, initrd = spec.image / "vmlinuz", spec.image / "initrd"
    if not spec.dom0_mib:
        return ["-kernel", str(kernel), "-initrd", str(initrd), "-append", line]
    # Multiboot: the hypervisor, and modules separated by commas; a comma inside of one is doubled.
    modules = [f"{kernel} {line}".replace(",", ",,"), str(initrd)]
    memory = f"dom0_mem={spec.dom0_mib}M,max:{spec.dom0_mib}M dom0_max_vcpus=1"
    return [
        "-kernel",
        str(spec.image / "xen"),
        "-append",
        f"com1=115200,8n1 console=com1 {memory} spec-ctrl=no,eager-fpu xpti=no guest_loglvl=info",
        "-initrd",
        ",".join(modules),
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
