"""Probing whether KVM works on this machine.

``/dev/kvm`` may exist and open, and guests may still hang, crash or crawl: in nested virtual
machines, and with emulations of KVM. So a probe guest is run: 300 bytes of our own "BIOS", which
switch to 64-bit mode, change a page table in the way of the Linux kernel, count to ten million, and
then leave through the device ``isa-debug-exit`` with a certain number. Working KVM does that within
a tenth of a second. If it stops at an instruction which an emulation does not know, or takes longer
than ``Machine.kvm_probe_timeout_s``, guests run under TCG, QEMU's own emulation. QEMU does not end
when KVM has stopped a guest: it prints the registers and waits, and is ended here.
"""

from __future__ import annotations

import logging
import os
import tempfile

from ganeti import errors
from ganeti.utils import fs, process

KVM = "kvm"
TCG = "tcg"

# isa-debug-exit ends QEMU with (value << 1 | 1).
_PROBE_VALUE = 0x2A
_PROBE_EXIT_CODE = _PROBE_VALUE << 1 | 1
_PROBE_PORT = 0xF4
_BIOS_SIZE = 65536
# The end of the registers which QEMU prints when KVM cannot go on with a guest.
_STOPPED = "\nCode="
# Characters of QEMU's message in the log.
_SHOWN = 300

# Real mode, at F000:0000: load the descriptor table, go to 32-bit protected mode.
_REAL_MODE = (
    "fa"  # cli
    "2e 66 0f 01 16 00 01"  # lgdtl cs:gdtr
    "0f 20 c0 0c 01"  # mov eax, cr0; or al, 1
    "0f 22 c0"  # mov cr0, eax
    "66 ea 18 00 0f 00 08 00"
)  # ljmp 0x08:0xf0018
# Protected mode: page tables at 64 KiB which map the first 2 MiB to themselves, then long mode.
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
# Long mode: a 16-byte compare-and-exchange in a page table, which Linux does at its start and which
# an emulation of KVM may not know; then 20,000 times a page table reload and 500 memory increments.
_LONG_MODE = (
    "bf 00 28 01 00"  # mov edi, 0x12800
    "31 c0 31 d2 31 c9 31 db"  # xor eax, eax; xor edx, edx; xor ecx, ecx; xor ebx, ebx
    "f0 48 0f c7 0f"  # lock cmpxchg16b [rdi]
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
    "1f 00 e0 00 0f 00"
)
_DESCRIPTORS_AT = 0xE0
# The first instruction which a processor executes, 16 bytes below the end: jmp to offset 0.
_RESET_VECTOR = "e9 0d 00"


def probe_bios() -> bytes:
    """Return the image of the probe guest, 64 KiB."""
    image = bytearray(_BIOS_SIZE)
    code = bytes.fromhex(_REAL_MODE + _PROTECTED_MODE + _LONG_MODE)
    image[: len(code)] = code
    table = bytes.fromhex(_DESCRIPTORS)
    image[_DESCRIPTORS_AT : _DESCRIPTORS_AT + len(table)] = table
    vector = bytes.fromhex(_RESET_VECTOR)
    image[_BIOS_SIZE - 16 : _BIOS_SIZE - 16 + len(vector)] = vector
    return bytes(image)


def probe_argv(kvm_path: str, accelerator: str, bios_path: str) -> list[str]:
    """Return the command which runs the probe guest."""
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


def probe(program: str, accelerator: str, *, timeout_s: float) -> bool:
    """Return True if the probe guest reaches its end in time under an accelerator.

    :param program: a QEMU.
    """
    with tempfile.TemporaryDirectory(prefix="ganeti-probe-") as directory:
        bios = os.path.join(directory, "bios")
        fs.write_file(bios, probe_bios(), sync=False)
        try:
            result = process.run(
                probe_argv(program, accelerator, bios),
                timeout_s=timeout_s,
                check=False,
                last_words=_STOPPED,
            )
        except errors.CommandTimeout:
            logging.warning(
                "accelerator %s: the probe guest took more than %g s, not used",
                accelerator,
                timeout_s,
            )
            return False
    if result.exit_code != _PROBE_EXIT_CODE:
        logging.warning(
            "accelerator %s: the probe guest failed, not used: %s",
            accelerator,
            " ".join(result.output.split())[:_SHOWN] or result.fail_reason,
        )
        return False
    return True
