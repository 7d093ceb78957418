"""Descriptions of machines by libvirt, Proxmox and OVF, and the export which is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.cmdlib.ops.transfer import export_description
from ganeti.foreign import export, libvirt, ovf, ovf_writer, proxmox
from ganeti.foreign.machine import Disk, Machine, Nic, is_name, whole_mib

DATA = Path(__file__).resolve().parents[2] / "data"


def text(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def test_a_domain_of_libvirt() -> None:
    found = libvirt.parse_libvirt(text("libvirt/web.xml"))
    assert (found.name, found.memory_mib, found.vcpus) == ("web", 2048, 4)
    assert found.disks == (
        Disk("/var/lib/libvirt/images/web.qcow2", "qcow2"), Disk("/dev/vg/web-data", "raw"),
    )  # fmt: skip
    assert found.nics == (
        Nic(mac="52:54:00:0a:bb:cc", mode="bridged", link="br0"), Nic(mac="52:54:00:0a:bb:cd"),
    )  # fmt: skip
    assert found.hvparams == {
        "kernel_path": "", "disk_type": "paravirtual", "nic_type": "paravirtual",
        "cpu_type": "host",
    }  # fmt: skip
    left_out = "\n".join(found.notes)
    for what in ("vdc: a disk of type 'network'", "cdrom", "interface 1", "hostdev", "UEFI"):
        assert what in left_out


def test_a_machine_of_proxmox() -> None:
    found = proxmox.parse_proxmox(text("proxmox/101.conf"))
    assert (found.name, found.memory_mib, found.vcpus) == ("shop.example.com", 4096, 4)
    assert found.disks == (
        Disk("vm-101-disk-0", "raw", 32768), Disk("101/vm-101-disk-1.qcow2", "qcow2", 8192),
    )  # fmt: skip
    assert found.nics[0] == Nic("bc:24:11:2e:c5:4a", "bridged", "vmbr0", ".20")
    assert found.nics[1].vlan == ""
    assert found.hvparams["disk_type"] == "scsi" and found.hvparams["cpu_type"] == "host"
    assert found.tags == ("production", "web")
    assert [note for note in found.notes if "efidisk0" in note or "UEFI" in note or "CD" in note]


def test_an_appliance_of_virtualbox() -> None:
    found = ovf.parse_ovf(text("ovf/virtualbox.ovf"))
    assert (found.name, found.memory_mib, found.vcpus) == ("Ubuntu-freshly-created", 2048, 1)
    assert found.disks == (Disk("new_disk.vmdk", "vmdk"), Disk("second_disk.vmdk", "vmdk"))
    assert found.nics == (Nic(),)


def test_an_appliance_of_ganeti() -> None:
    found = ovf.parse_ovf(text("ovf/ganeti.ovf"))
    assert (found.name, found.os, found.disk_template) == (
        "ganeti-test-xen",
        "lenny-image",
        "plain",
    )
    assert found.hypervisor == "xen-pvm"
    assert found.hvparams == {"root-path": "/dev/sda", "kernel_args": "ro"}
    assert found.nics == (Nic("aa:00:00:d8:2c:1e", "bridged", "xen-br0"),)
    assert found.beparams == {"auto_balance": False}


def test_a_compressed_disk() -> None:
    assert ovf.parse_ovf(text("ovf/gzip_disk.ovf")).disks[0].gzip


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("empty", "how much memory"),
        ("no_disk_in_ref", "names no file"),
        ("wrong_xml", "not XML"),
    ],
)
def test_broken_appliances_are_refused(name: str, problem: str) -> None:
    with pytest.raises(errors.ParseError, match=problem):
        ovf.parse_ovf(text(f"ovf/{name}.ovf"))


def test_an_image_outside_of_the_appliance_is_refused() -> None:
    changed = text("ovf/ganeti.ovf").replace("new_disk.vmdk", "../../etc/shadow")
    with pytest.raises(errors.ParseError, match="not the name of a file"):
        ovf.parse_ovf(changed)


def test_entities_are_refused() -> None:
    bomb = '<!DOCTYPE d [<!ENTITY a "aaaa">]><domain><name>&a;</name></domain>'
    for parse in (libvirt.parse_libvirt, ovf.parse_ovf):
        with pytest.raises(errors.ParseError, match="document type"):
            parse(bomb)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("memory: much", "memory"),
        ("net0: virtio=AA,bridge=br0", "MAC"),
        ("scsi0: local:1,size=1X", "size"),
        ("nonsense", "key: value"),
    ],
)
def test_wrong_lines_of_proxmox(line: str, problem: str) -> None:
    with pytest.raises(errors.ParseError, match=problem):
        proxmox.parse_proxmox(f"name: x\n{line}\n")


MACHINE = Machine(
    name="web1.example.com", memory_mib=512, vcpus=2, disks=(Disk("a.raw", "raw"),),
    nics=(Nic("aa:00:00:00:00:01", "bridged", "br0"), Nic()), os="image", disk_template="drbd",
    hvparams={"kernel_path": ""}, osparams={"image": "/x"}, tags=("a", "b"),
)  # fmt: skip


def test_the_cluster_understands_the_export() -> None:
    """The master reads what :mod:`ganeti.foreign.export` writes, without a warning."""
    warnings: list[str] = []
    described = export.describe(
        MACHINE, "web2.example.com", [export.Dump("disk0.raw", 20)], source="node1"
    )
    found = export_description.parse(described, warnings.append)
    assert warnings == []
    assert (found.name, found.os, found.disk_template) == ("web2.example.com", "image", "drbd")
    assert found.disks == (export_description.ExportedDisk(20, None, "disk0.raw"),)
    assert found.nics == ({"mac": "aa:00:00:00:00:01", "link": "br0", "mode": "bridged"}, {})
    assert found.beparams == {"maxmem": 512, "minmem": 512, "vcpus": 2}
    assert found.osparams == {"image": "/x"}


def test_an_export_and_back() -> None:
    found = export.parse_export(
        export.describe(MACHINE, MACHINE.name, [export.Dump("a.raw", 20)], source="node1")
    )
    assert found.nics == MACHINE.nics and found.disks == (Disk("a.raw", "raw", 20),)
    assert (found.memory_mib, found.vcpus, found.tags) == (512, 2, ("a", "b"))


def test_an_export_of_ganeti() -> None:
    found = export.parse_export(text("ovf/config.ini"))
    assert (found.name, found.memory_mib, found.vcpus) == ("ganeti-test-xen", 512, 1)
    assert found.disks == (Disk("rawdisk.raw", "raw"),) and found.nics[0].link == "br0"


@pytest.mark.parametrize("name", ["unsafe_path", "empty", "wrong_config", "no_disk"])
def test_broken_exports(name: str) -> None:
    with pytest.raises(errors.ParseError):
        export.parse_export(text(f"ovf/{name}.ini"))


@pytest.mark.parametrize("external", [False, True])
def test_what_is_written_as_ovf_can_be_read(external: bool) -> None:
    images = [ovf_writer.Image("a.vmdk", 100, "vmdk", 20 << 20, gzip=False)]
    written = ovf_writer.describe(MACHINE, images, external=external)
    found = ovf.parse_ovf(written)
    assert (found.name, found.memory_mib, found.vcpus) == (MACHINE.name, 512, 2)
    assert found.disks == (Disk("a.vmdk", "vmdk", 20),)
    assert found.nics[0].mac == MACHINE.nics[0].mac
    assert ("GanetiSection" in written) is not external
    if not external:
        assert found.os == "image" and found.nics == MACHINE.nics and found.tags == ("a", "b")


@pytest.mark.parametrize(
    ("size", "attributes"),
    [
        (20 << 20, 'capacity="20" ovf:capacityAllocationUnits="byte * 2^20"'),
        ((8 << 20) + (1 << 19), 'capacity="8912896" ovf:capacityAllocationUnits="byte"'),
    ],
)
def test_the_capacity_in_an_appliance_is_exact(size: int, attributes: str) -> None:
    images = [ovf_writer.Image("a.vmdk", 100, "vmdk", size, gzip=False)]
    written = ovf_writer.describe(MACHINE, images, external=True)
    assert f"ovf:{attributes}" in written
    assert ovf.parse_ovf(written).disks == (Disk("a.vmdk", "vmdk", whole_mib(size)),)


def test_a_manifest() -> None:
    checksums = ovf.parse_manifest(text("ovf/ganeti.mf"))
    assert [one.file for one in checksums] == ["ganeti.ovf", "new_disk.vmdk"]
    with pytest.raises(errors.ParseError):
        ovf.parse_manifest("SHA1(../x)= " + "0" * 40)


DIGITS = "0" * 40


@pytest.mark.parametrize(
    ("line", "file"),
    [
        (f"SHA1(disk (copy 1).vmdk)= {DIGITS}", "disk (copy 1).vmdk"),
        (f"SHA1 (a)b).vmdk) = {DIGITS}", "a)b).vmdk"),
        (f"sha1(x.vmdk)={DIGITS}", "x.vmdk"),
        (f"SHA1(100%25 & more.vmdk)= {DIGITS}", "100%25 & more.vmdk"),
    ],
)
def test_rare_characters_in_a_manifest(line: str, file: str) -> None:
    assert ovf.parse_manifest(line) == [ovf.Checksum("SHA1", file, DIGITS)]


def test_other_names_of_checksums() -> None:
    for kind in ("SHA2-256", "SHA-256", "sha256"):
        (found,) = ovf.parse_manifest(f"{kind}(x)= {'a' * 64}")
        assert found.kind == "SHA256"


def test_sizes_and_names() -> None:
    assert [whole_mib(size) for size in (0, 1, 1 << 20, (1 << 20) + 1)] == [0, 1, 1, 2]
    assert is_name("web1.example.com") and is_name("a")
    assert not any(map(is_name, ("", "-a", "a..b", "A", "a/b", "a" * 300, "web1.")))
