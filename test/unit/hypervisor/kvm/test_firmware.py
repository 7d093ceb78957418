"""The firmware's files and what it remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm import argv, firmware

TEMPLATE = bytes(40) + b"_FVH" + bytes(4096 - 44)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The parameters that name a firmware."""
    (tmp_path / "code.fd").write_bytes(b"code")
    (tmp_path / "vars.fd").write_bytes(TEMPLATE)
    return {
        "firmware_path": str(tmp_path / "code.fd"),
        "firmware_vars_path": str(tmp_path / "vars.fd"),
    }


def test_named_firmware_goes_before_the_installed_one(files: dict[str, str]) -> None:
    assert firmware.find_ovmf(files) == argv.Ovmf(
        files["firmware_path"], files["firmware_vars_path"], 4096
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"firmware_path": ""}, "belong together: set both or none"),
        ({"firmware_vars_path": None}, "belong together"),
        (
            {"firmware_path": "/nonexistent/code"},
            "firmware_path: /nonexistent/code or .* is not a file",
        ),
        ({"firmware_vars_path": "/nonexistent/vars"}, "or /nonexistent/vars is not a file"),
    ],
)
def test_named_firmware_that_is_not_there(
    files: dict[str, str], change: dict[str, str], words: str
) -> None:
    with pytest.raises(errors.HypervisorError, match=words):
        firmware.find_ovmf({**files, **change})


def test_no_firmware_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firmware, "_KNOWN_OVMF", (("/nonexistent/a", "/nonexistent/b"),))
    with pytest.raises(errors.HypervisorError, match="OVMF is not installed on this node"):
        firmware.find_ovmf({})


def test_variables_are_written_once(files: dict[str, str], tmp_path: Path) -> None:
    ovmf, disk = firmware.find_ovmf(files), tmp_path / "disk"
    disk.write_bytes(bytes(8192))
    firmware.prepare_variables(str(disk), ovmf)
    assert disk.read_bytes() == TEMPLATE + bytes(4096)
    changed = TEMPLATE[:-1] + b"x" + bytes(4096)
    disk.write_bytes(changed)
    firmware.prepare_variables(str(disk), ovmf)
    assert disk.read_bytes() == changed


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (bytes(512), "less than the 4096 bytes"),
        (b"data" * 2048, "is not UEFI variables"),
    ],
)
def test_disks_that_are_left_alone(
    files: dict[str, str], tmp_path: Path, content: bytes, words: str
) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(content)
    with pytest.raises(errors.HypervisorError, match=words):
        firmware.prepare_variables(str(disk), firmware.find_ovmf(files))
    assert disk.read_bytes() == content
    with pytest.raises(errors.HypervisorError, match="cannot write the UEFI variables"):
        firmware.prepare_variables(str(tmp_path), firmware.find_ovmf(files))


def test_command_of_the_tpm() -> None:
    common = [
        "/bin/swtpm",
        "socket",
        "--tpmstate",
        "backend-uri=file:///dev/x",
        "--ctrl",
        "type=unixio,path=s,mode=0600",
        "--pid",
        "file=p",
        "--log",
        "file=l,level=1",
        "--terminate",
        "--daemon",
    ]
    made = [
        firmware.swtpm_argv("/bin/swtpm", version, "/dev/x", "s", "p", "l")
        for version in ("1.2", "2.0")
    ]
    assert made == [common, [*common, "--tpm2"]]
