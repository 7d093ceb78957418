"""A real QEMU takes the command line of each kind of guest.

``GANETI_TEST_QEMU`` names another QEMU than the installed one.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from kvm_node import SHARED, Node, kernel_args, wait_until

from fakes.kvm_variants import VARIANTS, instance
from ganeti.bootstrap import renewal
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.objects.instance import FilledInstance
from ganeti.utils import process, x509


def place(node: Node, name: str) -> FilledInstance:
    """The guest of a variant with its files; this node's programs instead of the default ones."""
    files = node.root / "files"
    (files / "x509").mkdir(parents=True)
    for image in ("one.iso", "two.iso", "floppy.img"):
        (files / image).write_bytes(bytes(1440 * 1024))
    (files / "password").write_text("secret\n")
    guest = instance(name, str(files))
    hvp = {**guest.hvparams, "kvm_path": node.instance("x").hvparams["kvm_path"]}
    if hvp["kernel_path"]:
        hvp |= {
            "kernel_path": str(node.image / "vmlinux"),
            "initrd_path": str(node.image / "initrd"),
            "kernel_args": kernel_args(node.image),
        }
    if hvp["vnc_x509_path"] or hvp["spice_use_tls"]:
        made = renewal.new_spice()
        Path(node.paths.spice_cert_file).parent.mkdir(parents=True)
        Path(node.paths.spice_cert_file).write_text(made[renewal.SPICE])
        Path(node.paths.spice_cacert_file).write_text(made[renewal.SPICE_CA])
        for part, content in (
            ("ca-cert", made[renewal.SPICE_CA]),
            ("server-cert", x509.certificate_part(made[renewal.SPICE])),
            ("server-key", made[renewal.SPICE]),
        ):
            (files / f"x509/{part}.pem").write_text(content)
    disks = tuple(
        replace(
            disk, dev_type="sharedfile", logical_id=("loop", f"{SHARED}/{guest.name}/d{number}")
        )
        for number, disk in enumerate(guest.disks_info)
    )
    return replace(guest, hvparams=hvp, disks_info=disks, disk_template="sharedfile")


@pytest.mark.parametrize("name", [name for name, variant in VARIANTS.items() if variant.starts])
def test_qemu_starts_it(node: Node, name: str) -> None:
    if name == "uefi-tpm":
        if not os.path.exists("/usr/share/OVMF"):
            pytest.skip("OVMF (package ovmf) is not installed")
        if shutil.which("swtpm", path=process.DEFAULT_PATH) is None:
            pytest.skip("swtpm is not installed")
    guest = place(node, name)
    node.create_disks(guest)
    node.start(guest, paused=True)
    with Qmp(node.socket(guest, "qmp"), guest.name) as control:
        assert control.execute("query-status")["status"] == "prelaunch"
    node.shutdown(guest, 0)
    assert node.leftovers() == []


@pytest.mark.long
def test_uefi_remembers_and_the_tpm_answers(node: Node) -> None:
    """The firmware runs, finds its TPM, and writes its variables on the disk of the instance."""
    if not os.path.exists("/usr/share/OVMF"):
        pytest.skip("OVMF (package ovmf) is not installed")
    if shutil.which("swtpm", path=process.DEFAULT_PATH) is None:
        pytest.skip("swtpm is not installed")
    guest = place(node, "uefi-tpm")
    node.create_disks(guest)
    variables, _, tpm = (node.disk_file(guest, index) for index in range(3))
    node.start(guest, paused=True)
    before = variables.read_bytes()
    assert before[40:44] == b"_FVH"  # from the template
    with Qmp(node.socket(guest, "qmp"), guest.name) as control:
        control.execute("cont")
    wait_until(lambda: "BdsDxe" in node.console(guest), "the firmware looks for a system")
    assert variables.read_bytes() != before
    assert tpm.read_bytes().strip(b"\0")
    node.shutdown(guest, 0)
    after = variables.read_bytes()
    node.start(guest, paused=True)
    assert variables.read_bytes() == after  # variables that are there stay
    node.shutdown(guest, 0)
    assert node.leftovers() == []
