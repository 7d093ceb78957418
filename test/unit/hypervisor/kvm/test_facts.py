"""Facts of QEMU, without running one (test/scenario/test_qemu_node.py does)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm import accelerator, facts


def test_layout_of_the_probe_guest() -> None:
    image = accelerator.probe_bios()
    assert len(image) == 65536
    # The jump at the reset vector leads to offset 0, modulo 64 KiB.
    assert image[0xFFF0] == 0xE9
    assert (0xFFF3 + int.from_bytes(image[0xFFF1:0xFFF3], "little")) % 65536 == 0
    # lgdt finds limit and base where the code looks for them.
    at = image.index(bytes.fromhex("2e660f0116")) + 5
    descriptor = int.from_bytes(image[at : at + 2], "little")
    assert image[descriptor : descriptor + 6] == bytes.fromhex("1f00e0000f00")
    # The far jumps lead to the first instructions of the 32-bit and 64-bit parts.
    assert image[0x18:0x1D] == bytes.fromhex("b810000000")
    assert image[0x79:0x7E] == bytes.fromhex("bf00280100")


def test_dict_form() -> None:
    known = facts.QemuFacts("/q", (7, 2, 1), frozenset(("a", "b")), "pc", accelerator.TCG)
    assert facts.QemuFacts.from_dict(known.to_dict()) == known
    with pytest.raises(ValueError, match="accelerator"):
        facts.QemuFacts.from_dict({**known.to_dict(), "accelerator": "magic"})


def test_wrapper_script_is_looked_through(tmp_path: Path) -> None:
    wrapper, emulator = tmp_path / "kvm", tmp_path / "qemu-system-x86_64"
    wrapper.write_text('#!/bin/sh\nexec qemu-system-x86_64 -enable-kvm "$@"\n')
    with pytest.raises(errors.HypervisorError, match="not an executable file"):
        facts.resolve_program(str(wrapper))
    for program in (wrapper, emulator):
        program.touch()
        program.chmod(0o755)
    assert facts.resolve_program(str(wrapper)) == str(emulator)
    assert facts.resolve_program(str(emulator)) == str(emulator)
    with pytest.raises(errors.HypervisorError, match="not an executable file"):
        facts.resolve_program(str(tmp_path))


@pytest.mark.programs
def test_a_guest_which_kvm_stopped_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "qemu"
    # As QEMU does after "KVM internal error": it prints the registers, and waits.
    program.write_text(
        "#!/bin/sh\n"
        "printf 'KVM internal error. Suberror: 1\\nRAX=0 RBX=0\\nCode=ff 0f\\n' >&2\n"
        "exec sleep 1000\n"
    )
    program.chmod(0o755)
    assert not accelerator.probe(str(program), accelerator.KVM, timeout_s=600)
    assert "KVM internal error. Suberror: 1 RAX=0" in caplog.text
