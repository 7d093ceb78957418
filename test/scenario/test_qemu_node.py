"""What a node finds out about QEMU, and a control socket whose peer does not behave."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from kvm_node import (
    NAME,
    PATIENCE_S,
    Node,
    find_qemu,
)

from ganeti import errors
from ganeti.backend.instance import lifecycle
from ganeti.hypervisor.kvm import accelerator, facts
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths
from ganeti.utils import process

pytestmark = pytest.mark.skipif(
    not os.access(find_qemu(), os.X_OK), reason="QEMU (qemu-system-x86) is not installed"
)


def test_probe_guest_runs_under_emulation() -> None:
    """The code of the trial guest is right: emulation, which always works, gets to its end."""
    assert accelerator.probe(find_qemu(), accelerator.TCG, timeout_s=PATIENCE_S)


def test_probe_guest_has_a_time_limit(tmp_path: Path) -> None:
    sleeper = tmp_path / "qemu"
    sleeper.write_text("#!/bin/sh\nexec sleep 1000\n")
    sleeper.chmod(0o755)
    started = time.monotonic()
    assert not accelerator.probe(str(sleeper), accelerator.KVM, timeout_s=0.2)
    assert time.monotonic() - started < PATIENCE_S


def test_facts_are_remembered(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.ENV_VCLUSTER)
    with paths.override(node.paths):
        monkeypatch.setattr(facts, "probe", lambda *args, **kwargs: True)
        first = facts.of(find_qemu())
        with process.forbid("the facts are known"):
            assert facts.of(find_qemu()) == first
        # Damage is not an obstacle, the question is asked again.
        (remembered,) = Path(node.paths.kvm_root).glob(".qemu-*")
        remembered.write_text("{")
        assert facts.of(find_qemu()) == first


def test_validation_on_the_node(node: Node, guest: FilledInstance, tmp_path: Path) -> None:
    qcow2 = tmp_path / "image"
    qcow2.write_bytes(b"QFI\xfb\0\0\0\3" + bytes(4096))
    with paths.override(node.paths):
        lifecycle.validate_params("kvm", guest.hvparams)
        lifecycle.validate_params(
            "kvm",
            {
                **guest.hvparams,
                "cpu_type": "qemu64,+ssse3",
                "machine_version": "q35",
                "usb_devices": "tablet",
                "migration_caps": "xbzrle:auto-converge",
                "cpu_mask": "0",
                "vnc_bind_address": "0.0.0.0",
                "keymap": "de",
            },
        )
        for params, words in (
            ({"initrd_path": "/nonexistent"}, "initrd_path: /nonexistent is not a file"),
            ({"mem_path": "/bin/true"}, "mem_path: /bin/true is not a directory"),
            ({"cdrom_image_path": str(qcow2)}, "cdrom_image_path: .*format qcow2, but must be raw"),
            ({"cdrom2_image_path": str(qcow2)}, "cdrom2_image_path: .*format qcow2"),
            ({"floppy_image_path": str(qcow2)}, "floppy_image_path: .*format qcow2"),
            ({"machine_version": "pdp11"}, "knows no machine pdp11"),
            ({"disk_type": "sd"}, "disk_type: the machines of guests have no sd disks"),
            ({"cpu_type": "8080"}, "cpu_type=8080: .*unable to find CPU model '8080'"),
            ({"vga": "cga", "machine_version": "q35"}, "vga=cga: .*unknown vga type: cga"),
            ({"soundhw": "organ"}, "Unknown sound card name `organ'"),
            ({"usb_devices": "tablet crane"}, "could not add USB device 'crane'"),
            ({"migration_caps": "xbzrle:teleport"}, "has no capability teleport"),
            ({"vnc_bind_address": "203.0.113.9"}, "203.0.113.9 is not an address of this node"),
            ({"spice_bind": "2001:db8::9"}, "2001:db8::9 is not an address of this node"),
            (
                {"vnc_bind_address": "127.0.0.1", "keymap": "xx"},
                "keymap=xx: .*could not read keymap file: 'xx'",
            ),
            ({"cpu_mask": "0:70000"}, "range '70000' is not possible"),
            ({"cpu_mask": "0-65535"}, "is not one of the [0-9]+ of this node"),
            ({"disk_aio": "native"}, "native needs disk_cache=none"),
            (
                {"security_model": "user", "security_domain": "nobody-of-that-name"},
                "no user 'nobody-of-that-name'",
            ),
        ):
            with pytest.raises(errors.HypervisorError, match=words):
                lifecycle.validate_params("kvm", {**guest.hvparams, **params})


def test_qmp_peer_that_is_silent_talks_nonsense_or_leaves(tmp_path: Path) -> None:
    path = str(tmp_path / "qmp")

    def serve(answers: list[bytes]) -> threading.Thread:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()

        def run() -> None:
            with listener, listener.accept()[0] as peer:
                for answer in answers:
                    peer.sendall(answer)
                    peer.recv(4096)
            os.unlink(path)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    hello, ready = b'{"QMP": {"version": {}}}\r\n', b'{"return": {}}\r\n'
    for answers, words in (
        ([b"hello\r\n"], "which is not JSON"),
        ([b'{"event": "X"}\r\n'], "not the greeting of QMP"),
        ([b"[]\r\n"], "expected an object"),
        ([hello], "closed its control socket during qmp_capabilities|closed its control"),
        ([hello, ready, b'{"error": {"class": "X", "desc": "no"}}\r\n'], "refuses stop: no"),
        ([hello, ready, b'{"event": "STOP"}\r\n{"x": 1}\r\n'], "answers stop with"),
    ):
        thread = serve(answers)
        with (
            pytest.raises(errors.HypervisorError, match=words),
            Qmp(path, NAME, timeout_s=PATIENCE_S) as control,
        ):
            control.execute("stop")
        thread.join()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    with listener, pytest.raises(errors.HypervisorError, match="does not answer .* within 0.2 s"):
        Qmp(path, NAME, timeout_s=0.2)
    with pytest.raises(errors.HypervisorError, match="cannot reach QEMU"):
        Qmp(path, NAME)
