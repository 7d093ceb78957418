"""The command which probes hardware, and how its output is read."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm import probe
from ganeti.hypervisor.kvm.accelerator import KVM
from ganeti.hypervisor.kvm.facts import QemuFacts
from ganeti.objects import hvparams
from ganeti.utils import process

QEMU = QemuFacts("/usr/bin/qemu", (7, 2, 0), frozenset(), "pc-i440fx-7.2", KVM)
CAPABILITIES = """{"QMP": {}}
garbage
{"return": {}}
{"return": [{"capability": "xbzrle", "state": false}, {"capability": "multifd", "state": false}]}
"""


def params(**changes: Any) -> dict[str, Any]:
    return {**hvparams.defaults("kvm"), **changes}


def test_the_hardware_and_nothing_else() -> None:
    assert probe.probe_argv(
        params(cpu_type="host", soundhw="hda", spice_bind="192.0.2.1", usb_devices="tablet"), QEMU
    ) == [
        "/usr/bin/qemu",
        "-S",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-m",
        "64",
        "-machine",
        "pc-i440fx-7.2,accel=kvm",
        "-usb",
        "-audio",
        "driver=none,model=hda,id=soundhw",
        "-cpu",
        "host",
        "-vga",
        "qxl",
        "-usbdevice",
        "tablet",
        "-qmp",
        "stdio",
    ]


def test_what_names_nothing_is_not_tried() -> None:
    with process.forbid("there is nothing to ask"):
        probe.check_hardware(params(spice_bind="192.0.2.1", use_localtime=True), QEMU)


def test_a_keymap_is_read_with_vnc_only() -> None:
    words = probe.probe_argv(params(vnc_bind_address="0.0.0.0", keymap="de"), QEMU)
    assert words[4:8] == ["-vnc", "none", "-k", "de"]
    with process.forbid("there is nothing to ask"):
        probe.check_hardware(params(keymap="de"), QEMU)


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        ("xbzrle:multifd", None),
        (":xbzrle:", None),
        ("xbzrle:warp", "migration_caps: /usr/bin/qemu has no capability warp"),
    ],
)
def test_capabilities(monkeypatch: pytest.MonkeyPatch, caps: str, words: str | None) -> None:
    def run(argv: list[str], **kwargs: Any) -> process.Completed:
        assert "query-migrate-capabilities" in kwargs["stdin"]
        return process.Completed(argv, 0, CAPABILITIES, "", None)

    monkeypatch.setattr(process, "run", run)
    if words is None:
        probe.check_hardware(params(migration_caps=caps), QEMU)
        return
    with pytest.raises(errors.HypervisorError, match=words):
        probe.check_hardware(params(migration_caps=caps), QEMU)
