"""Whole command lines of QEMU, compared with files.

After a change that is meant, ``GOLDEN_WRITE=1 pytest`` this file writes them anew, and the
difference is there to be read.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fakes.kvm_variants import VARIANTS, command
from ganeti.hypervisor.kvm import parse
from ganeti.hypervisor.kvm.accelerator import TCG
from ganeti.hypervisor.kvm.facts import QemuFacts

GOLDEN = Path(__file__).parent / "golden"
# What these versions print of themselves was kept; see doc/checklists/qemu-version.rst.
QEMUS = {
    "7.2": QemuFacts(
        "/usr/bin/qemu",
        (7, 2, 0),
        frozenset(("no-acpi", "runas", "chroot", "display", "audio")),
        "pc-i440fx-7.2",
        TCG,
    ),
    "10.0": QemuFacts(
        "/usr/bin/qemu",
        (10, 0, 0),
        frozenset(("run-with", "display", "audio")),
        "pc-i440fx-10.0",
        TCG,
    ),
}


@pytest.mark.parametrize("version", QEMUS)
@pytest.mark.parametrize("name", VARIANTS)
def test_command_line(name: str, version: str) -> None:
    path = GOLDEN / f"{name}.{version}"
    # One option with its value a line.
    words = command(name, QEMUS[version])
    lines, start = [words[0]], 1
    while start < len(words):
        end = start + 1
        while end < len(words) and not words[end].startswith("-"):
            end += 1
        lines.append(" ".join(words[start:end]))
        start = end
    text = "\n".join(lines) + "\n"
    if os.environ.get("GOLDEN_WRITE"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("version", QEMUS)
@pytest.mark.parametrize("name", VARIANTS)
def test_qemu_never_has_to_find_out_the_format_of_an_image(name: str, version: str) -> None:
    """Else a guest could write the header of another format, with any file behind it."""
    words = command(name, QEMUS[version])
    nodes = [words[at + 1] for at, word in enumerate(words) if word == "-blockdev"]
    assert [node for node in nodes if not node.startswith("driver=raw,")] == []
    for old in ("-drive", "-hda", "-cdrom", "-fda", "-sd", "-mtdblock", "-pflash"):
        assert old not in words
    assert not [word for word in words if "if=" in word and "format=" not in word]


def test_no_file_without_a_variant() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {
        f"{name}.{version}" for name in VARIANTS for version in QEMUS
    }


def test_our_own_command_lines_are_recognised_in_the_process_list() -> None:
    for name in VARIANTS:
        words = command(name, QEMUS["7.2"])
        found = parse.parse_command_line("\0".join(words).encode() + b"\0")
        assert found == ("web1", 64, 2)
