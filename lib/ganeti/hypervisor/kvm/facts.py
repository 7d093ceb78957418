"""What the installed QEMU can do, and whether KVM really works on this machine.

``/dev/kvm`` may be there and open, and guests may still hang or crawl: in nested virtual machines,
and with emulating replacements. So the answer comes from a trial: a guest of 200 bytes, our own
"BIOS", switches to 64-bit mode, walks its page tables and counts to ten million, then leaves
through the ``isa-debug-exit`` device with a number only it knows. Working KVM does that within a
tenth of a second; what does not manage it within ``Machine.kvm_probe_timeout_s`` is not used, and
guests run under TCG, QEMU's own emulation.

Facts are kept in ``RUN_DIR/kvm-hypervisor`` (a virtual cluster: in its directory) and asked for
again after a reboot of the node, an update of QEMU, or for another user.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import zlib
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.hypervisor.kvm import parse
from ganeti.platform import machine
from ganeti.utils import fs, process
from ganeti.wire import json

_QUERY_TIMEOUT_S = 60.0

KVM = "kvm"
TCG = "tcg"

# isa-debug-exit ends QEMU with (value << 1 | 1).
_PROBE_VALUE = 0x2A
_PROBE_EXIT_CODE = _PROBE_VALUE << 1 | 1
_PROBE_PORT = 0xF4
_BIOS_SIZE = 65536

# Real mode, at F000:0000: load the descriptor table, go to 32-bit protected mode.
_REAL_MODE = (
    "fa"  # cli
    "2e 66 0f 01 16 c0 00"  # lgdtl cs:gdtr
    "0f 20 c0 0c 01"  # mov eax, cr0; or al, 1
    "0f 22 c0"  # mov cr0, eax
    "66 ea 18 00 0f 00 08 00"
)  # ljmp 0x08:0xf0018
# Protected mode: page tables at 64 KiB that map the first 2 MiB to themselves, then long mode.
_PROTECTED_MODE = (
    "b8 10 00 00 00 8e d8 8e c0"  # mov eax, 0x10; mov ds, eax; mov es, eax
    "bf 00 00 01 00 0f 22 df"  # mov edi, 0x10000; mov cr3, edi
    "31 c0 b9 00 0c 00 00 f3 ab"  # xor eax, eax; mov ecx, 3072; rep stosd
    "c7 05 00 00 01 00 03 10 01 00"  # mov [0x10000], 0x11003
    "c7 05 00 10 01 00 03 20 01 00"  # mov [0x11000], 0x12003
    "c7 05 00 20 01 00 83 00 00 00"  # mov [0x12000], 0x83
    "0f 20 e0 83 c8 20 0f 22 e0"  # mov eax, cr4; or eax, PAE; mov cr4, eax
    "b9 80 00 00 c0 0f 32"  # mov ecx, EFER; rdmsr
    "0d 00 01 00 00 0f 30"  # or eax, LME; wrmsr
    "0f 20 c0 0d 00 00 00 80 0f 22 c0"  # mov eax, cr0; or eax, PG; mov cr0, eax
    "ea 79 00 0f 00 18 00"
)  # ljmp 0x18:0xf0079
# Long mode: 20,000 times a page table reload and 500 memory increments.
_LONG_MODE = (
    "bb 20 4e 00 00"  # mov ebx, 20000
    "0f 20 d8 0f 22 d8"  # mov rax, cr3; mov cr3, rax
    "b9 f4 01 00 00"  # mov ecx, 500
    "48 ff 04 25 00 00 02 00"  # inc qword [0x20000]
    "ff c9 75 f4"  # dec ecx; jnz -12
    "ff cb 75 e5"  # dec ebx; jnz -27
    "b0 2a e6 f4"  # mov al, 0x2a; out 0xf4, al
    "f4 eb fd"
)  # hlt; jmp to hlt
# Null, 32-bit code, data, 64-bit code; then limit and base for lgdt.
_DESCRIPTORS = (
    "00 00 00 00 00 00 00 00"
    "ff ff 00 00 00 9b cf 00"
    "ff ff 00 00 00 93 cf 00"
    "ff ff 00 00 00 9b af 00"
    "1f 00 a0 00 0f 00"
)
_DESCRIPTORS_AT = 0xA0
# The first instruction a processor executes, 16 bytes below the end: jmp to offset 0.
_RESET_VECTOR = "e9 0d 00"


def probe_bios() -> bytes:
    """The image of the trial guest."""
    image = bytearray(_BIOS_SIZE)
    code = bytes.fromhex(_REAL_MODE + _PROTECTED_MODE + _LONG_MODE)
    image[: len(code)] = code
    table = bytes.fromhex(_DESCRIPTORS)
    image[_DESCRIPTORS_AT : _DESCRIPTORS_AT + len(table)] = table
    vector = bytes.fromhex(_RESET_VECTOR)
    image[_BIOS_SIZE - 16 : _BIOS_SIZE - 16 + len(vector)] = vector
    return bytes(image)


def probe_argv(kvm_path: str, accelerator: str, bios_path: str) -> list[str]:
    """The command that runs the trial guest."""
    return [
        kvm_path,
        "-machine",
        f"pc,accel={accelerator}",
        "-m",
        "16",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-bios",
        bios_path,
        "-device",
        f"isa-debug-exit,iobase={_PROBE_PORT:#x},iosize=4",
    ]


@dataclass(frozen=True, slots=True)
class QemuFacts:
    """One installed QEMU on this machine, for this user."""

    program: str  # what to run; not a wrapper script
    version: tuple[int, int, int]
    options: frozenset[str]
    default_machine: str
    accelerator: str  # kvm or tcg: the best that works

    def to_dict(self) -> dict[str, Any]:
        """For the file."""
        return {
            "program": self.program,
            "version": list(self.version),
            "options": sorted(self.options),
            "default_machine": self.default_machine,
            "accelerator": self.accelerator,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> QemuFacts:
        """From the file.

        :raises ValueError, KeyError, TypeError: it is damaged.
        """
        major, minor, patch = (int(n) for n in data["version"])
        if data["accelerator"] not in (KVM, TCG):
            raise ValueError("unknown accelerator")
        return cls(
            str(data["program"]),
            (major, minor, patch),
            frozenset(data["options"]),
            str(data["default_machine"]),
            data["accelerator"],
        )


def resolve_program(kvm_path: str) -> str:
    """The QEMU behind ``kvm_path``.

    Some systems ship ``kvm`` as a script that adds ``-enable-kvm``, which contradicts the
    accelerator that we choose; then the emulator it starts is taken from the directory of the
    script or the path.

    :raises HypervisorError: there is no such program.
    """
    if not os.access(kvm_path, os.X_OK) or os.path.isdir(kvm_path):
        raise errors.HypervisorError(
            f"kvm_path {kvm_path} is no executable file. QEMU may have to be installed."
        )
    try:
        with open(kvm_path, "rb") as stream:
            head = stream.read(4096)
    except OSError:
        # May be executed but not read: then it is no script that we could look into.
        return kvm_path
    if not head.startswith(b"#!") or b"-enable-kvm" not in head:
        return kvm_path
    for directory in (os.path.dirname(kvm_path), *process.DEFAULT_PATH.split(":")):
        candidate = os.path.join(directory, "qemu-system-x86_64")
        if os.access(candidate, os.X_OK):
            return candidate
    return kvm_path


def _boot_id() -> str:
    try:
        return fs.read_file("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return ""


def _identity(program: str) -> list[Any]:
    """What the facts depend on; they hold as long as this stays the same."""
    stat = os.stat(program)
    return [
        _boot_id(),
        program,
        stat.st_size,
        stat.st_mtime_ns,
        os.geteuid(),
        os.access("/dev/kvm", os.R_OK | os.W_OK),
    ]


def _query(argv: list[str]) -> str:
    try:
        return process.run(argv, timeout_s=_QUERY_TIMEOUT_S).stdout
    except errors.CommandError as err:
        raise errors.HypervisorError(f"QEMU does not answer: {err}") from err


def probe(program: str, accelerator: str, *, timeout_s: float) -> bool:
    """Run the trial guest; whether it got to its end in time."""
    with tempfile.TemporaryDirectory(prefix="ganeti-probe-") as directory:
        bios = os.path.join(directory, "bios")
        fs.write_file(bios, probe_bios(), sync=False)
        try:
            result = process.run(
                probe_argv(program, accelerator, bios), timeout_s=timeout_s, check=False
            )
        except errors.CommandTimeout:
            logging.warning(
                "accelerator %s: the trial guest took more than %g s, not used",
                accelerator,
                timeout_s,
            )
            return False
    if result.exit_code != _PROBE_EXIT_CODE:
        logging.warning(
            "accelerator %s: the trial guest failed, not used: %s",
            accelerator,
            result.output.strip() or result.fail_reason,
        )
        return False
    return True


def gather(program: str) -> QemuFacts:
    """Ask QEMU and try KVM, without looking at what is remembered.

    :raises HypervisorError: the program is not a QEMU that works.
    """
    help_text = _query([program, "--help"])
    try:
        version = parse.parse_version(help_text)
    except errors.ParseError as err:
        raise errors.HypervisorError(f"{program} is not QEMU: {err}") from err
    machines = _query([program, "-machine", "?"])
    limit_s = machine.current().kvm_probe_timeout_s
    works = os.access("/dev/kvm", os.R_OK | os.W_OK) and probe(program, KVM, timeout_s=limit_s)
    return QemuFacts(
        program,
        version,
        parse.parse_options(help_text),
        parse.parse_default_machine(machines),
        KVM if works else TCG,
    )


def of(kvm_path: str) -> QemuFacts:
    """The facts of an installed QEMU, remembered when possible.

    :param kvm_path: hypervisor parameter of that name.
    :raises HypervisorError: there is no such program, or it is not a QEMU that works.
    """
    program = resolve_program(kvm_path)
    identity = _identity(program)
    # The nodes of a virtual cluster share one machine, so what one finds out serves all.
    root = machine.current().shared_cache_dir()
    # One file for each program and user; several versions of QEMU may be installed.
    digest = zlib.crc32(f"{program} {os.geteuid()}".encode())
    path = f"{root}/.qemu-{digest:08x}"
    with contextlib.suppress(OSError, errors.ParseError, ValueError, KeyError, TypeError):
        remembered = json.loads(fs.read_file(path))
        if remembered["identity"] == identity:
            return QemuFacts.from_dict(remembered["facts"])
    facts = gather(program)
    try:
        fs.make_dirs(root, 0o775)
        fs.write_file(
            path,
            json.dumps({"identity": identity, "facts": facts.to_dict()}),
            mode=0o644,
            sync=False,
        )
    except OSError as err:
        # Not fatal: the next call asks again, which costs a second.
        logging.warning("cannot remember the facts of %s: %s", program, err)
    return facts
