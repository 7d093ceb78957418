"""What QEMU prints and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm import parse
from ganeti.objects.transfer import MigrationStatus

DATA = Path(__file__).resolve().parents[3] / "data/kvm"

HELP = """\
QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)
usage: qemu-system-x86_64 [options] [disk_image]

-h or -help     display this help and exit
-machine [type=]name[,prop[=value][,...]]
                property accel=accel1[:accel2[:...]] selects accelerator
-no-acpi        disable ACPI
-runas user     change to user id user just before starting the VM
"""
MACHINES = """\
Supported machines are:
microvm              microvm (i386)
pc                   Standard PC (i440FX + PIIX, 1996) (alias of pc-i440fx-7.2)
pc-i440fx-7.2        Standard PC (i440FX + PIIX, 1996) (default)
q35                  Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-7.2)
"""


@pytest.mark.parametrize(
    "text, version",
    [
        (HELP, (7, 2, 22)),
        ("QEMU PC emulator version 0.9.1 (kvm-72), Copyright", (0, 9, 1)),
        ("QEMU emulator version 10.0 (x)", (10, 0, 0)),
    ],
)
def test_version(text: str, version: tuple[int, ...]) -> None:
    assert parse.parse_version(text) == version


def test_no_version() -> None:
    with pytest.raises(errors.ParseError, match="bash"):
        parse.parse_version("GNU bash, version 5.2")


def test_options() -> None:
    assert parse.parse_options(HELP) == {"h", "machine", "no-acpi", "runas"}


def test_real_help_and_machines() -> None:
    text = (DATA / "kvm_5.2.0_help.txt").read_text()
    assert parse.parse_version(text) == (5, 2, 0)
    assert {"no-acpi", "blockdev", "runas", "chroot", "usbdevice"} <= parse.parse_options(text)
    assert "run-with" not in parse.parse_options(text)
    machines = (DATA / "kvm_6.0.0_machine.txt").read_text()
    assert parse.parse_default_machine(machines) == "pc-i440fx-impish"


def test_default_machine() -> None:
    assert parse.parse_default_machine(MACHINES) == "pc-i440fx-7.2"
    assert parse.parse_default_machine("nothing") == "pc"


@pytest.mark.parametrize(
    "words, wanted",
    [
        (
            ["qemu", "-name", "web1,debug-threads=on", "-m", "512", "-smp", "2,cores=2"],
            ("web1", 512, 2),
        ),
        (["qemu", "-name", "guest=web1", "-m", "64"], ("web1", 64, 1)),
        (["qemu", "-m", "64"], None),
        (["vi", "notes"], None),
        (["qemu", "-name", "web1", "-m", "1G"], None),
        (["qemu", "-name"], None),
        ([], None),
    ],
)
def test_command_line(words: list[str], wanted: tuple[str, int, int] | None) -> None:
    assert parse.parse_command_line("\0".join(words).encode() + b"\0") == wanted


@pytest.mark.parametrize(
    "answer, wanted",
    [
        ({"status": "setup"}, MigrationStatus(status="active")),
        (
            {"status": "completed", "total-time": 1200, "downtime": 7},
            MigrationStatus(status="completed", total_time=1200, downtime=7),
        ),
        (
            {"status": "active", "ram": {"transferred": 5, "total": 10}},
            MigrationStatus(status="active", transferred_ram=5, total_ram=10),
        ),
        ({"status": "device", "ram": None}, MigrationStatus(status="active")),
        ({"status": "completed"}, MigrationStatus(status="completed")),
        ({"status": "failed", "error-desc": "x"}, MigrationStatus(status="failed", error="x")),
        ({"status": "failed", "error-desc": 7}, MigrationStatus(status="failed")),
        *(
            (
                {"status": f"postcopy-{state}"},
                MigrationStatus(status="postcopy-active", postcopy_status=f"postcopy-{state}"),
            )
            for state in ("active", "paused", "recover", "recover-setup", "device")
        ),
        ({}, MigrationStatus(status="none")),
        ({"status": "none"}, MigrationStatus(status="none")),
    ],
)
def test_migration_status(answer: dict[str, Any], wanted: MigrationStatus) -> None:
    assert parse.parse_migration_status(answer) == wanted


def test_unknown_state_of_a_migration() -> None:
    with pytest.raises(errors.ParseError, match="unknown state 'dancing'"):
        parse.parse_migration_status({"status": "dancing"})


@pytest.mark.parametrize(
    "run_state, answer, sent, received",
    [
        ("running", {}, False, True),
        ("inmigrate", {"status": "setup"}, False, False),
        ("inmigrate", {"status": "active"}, False, False),
        ("inmigrate", {"status": "completed"}, False, True),
        ("inmigrate", {"status": "postcopy-active"}, False, True),
        ("paused", {"status": "completed"}, False, True),
        ("paused", {"status": "postcopy-paused"}, False, True),
        ("paused", {"status": "active", "ram": {}}, False, True),
        ("running", {"status": "failed", "ram": {}}, False, True),
        ("postmigrate", {"status": "failed", "ram": {}}, True, True),
        ("postmigrate", {"status": "completed", "ram": {}}, True, True),
        ("finish-migrate", {"status": "completed", "ram": {}}, True, True),
        ("finish-migrate", {"status": "postcopy-active", "ram": {}}, True, True),
        ("postmigrate", {"status": "postcopy-paused", "ram": {}}, True, True),
    ],
)
def test_who_has_the_guest(
    run_state: str, answer: dict[str, Any], sent: bool, received: bool
) -> None:
    assert parse.has_sent(run_state, answer) == sent
    assert parse.has_received(run_state, answer) == received
