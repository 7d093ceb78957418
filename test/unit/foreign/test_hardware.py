"""What descriptions say about hardware: which disk boots, what is left out, and names of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.foreign import images, libvirt, ova, ovf, proxmox, reading
from ganeti.foreign.machine import Machine, Nic

NAMESPACES = (
    'xmlns="http://schemas.dmtf.org/ovf/envelope/2"'
    ' xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/2"'
    ' xmlns:rasd="urn:rasd" xmlns:sasd="urn:sasd" xmlns:epasd="urn:epasd" xmlns:vmw="urn:vmw"'
)


def item(tag: str = "Item", attributes: str = "", **values: object) -> str:
    prefix = {"StorageItem": "sasd", "EthernetPortItem": "epasd"}.get(tag, "rasd")
    inner = "".join(f"<{prefix}:{key}>{value}</{prefix}:{key}>" for key, value in values.items())
    return f"<{tag} {attributes}>{inner}</{tag}>"


BASE = item(InstanceID=1, ResourceType=3, VirtualQuantity=2) + item(
    InstanceID=2, ResourceType=4, VirtualQuantity=512, AllocationUnits="byte * 2^20"
)
SCSI = item(InstanceID=10, ResourceType=6, Address=0, ElementName="SCSI 0")


def disk(name: str, place: object, parent: int = 10, tag: str = "Item", kind: int = 17) -> str:
    return item(
        tag, InstanceID=100, ResourceType=kind, ElementName=name, Parent=parent,
        AddressOnParent=place, HostResource=f"ovf:/disk/{name}",
    )  # fmt: skip


def parsed(
    hardware: str,
    disks: tuple[str, ...] = ("one", "two"),
    *,
    files: str = "",
    sections: str = "",
    disk_section: str = "",
) -> Machine:
    references = "".join(f'<File ovf:href="{name}.vmdk" ovf:id="f-{name}"/>' for name in disks)
    listed = "".join(
        f'<Disk ovf:diskId="{name}" ovf:fileRef="f-{name}" ovf:format="vmdk"/>' for name in disks
    )
    return ovf.parse_ovf(
        f"<Envelope {NAMESPACES}><References>{references}{files}</References>"
        f"<DiskSection>{listed}{disk_section}</DiskSection>{sections}"
        f'<VirtualSystem ovf:id="vm"><VirtualHardwareSection>{BASE}{hardware}'
        "</VirtualHardwareSection></VirtualSystem></Envelope>"
    )


def paths(machine: Machine) -> list[str]:
    return [one.path for one in machine.disks]


# -- OVF -------------------------------------------------------------------------


def test_items_of_ovf_2() -> None:
    found = parsed(
        SCSI
        + disk("two", 0, tag="StorageItem", kind=31)
        + disk("one", 1, tag="StorageItem")
        + item("EthernetPortItem", InstanceID=5, ResourceType=10, Address="00:50:56:AA:BB:CC")
    )
    assert paths(found) == ["two.vmdk", "one.vmdk"]
    assert found.nics == (Nic(mac="00:50:56:aa:bb:cc"),)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("hardware", "order"),
    [
        (SCSI + disk("one", 1) + disk("two", 0), ["two", "one"]),
        (SCSI + disk("one", 10) + disk("two", 9), ["two", "one"]),
        # The second controller is listed first.
        (
            item(InstanceID=20, ResourceType=6, Address=1) + SCSI
            + disk("one", 0, 20) + disk("two", 0, 10),
            ["two", "one"],
        ),
        # One position for both, and no positions: the order of the items.
        (SCSI + disk("two", 0) + disk("one", 0), ["two", "one"]),
        (SCSI + disk("two", "") + disk("one", ""), ["two", "one"]),
        (disk("two", 0, 99) + disk("one", 1, 99), ["two", "one"]),
        # A disk without an item comes last; an item may be written twice.
        (SCSI + disk("two", 0) + disk("two", 0), ["two", "one"]),
        ("", ["one", "two"]),
    ],
)  # fmt: skip
def test_the_order_of_disks_is_that_of_their_places(hardware: str, order: list[str]) -> None:
    assert paths(parsed(hardware)) == [f"{name}.vmdk" for name in order]


@pytest.mark.parametrize("kind", [14, 15, 16])
def test_the_image_of_a_cd_is_no_hard_disk(kind: int) -> None:
    found = parsed(SCSI + disk("one", 0) + disk("two", 1, kind=kind))
    assert paths(found) == ["one.vmdk"]
    assert any("two.vmdk, was left out" in note for note in found.notes)
    assert any("drive 'two' was left out" in note for note in found.notes)


def test_a_cd_may_be_a_file_or_known_by_its_format() -> None:
    iso = '<File ovf:href="tools.iso" ovf:id="iso"/>'
    found = parsed(
        SCSI + disk("one", 0)
        + item(ResourceType=15, ElementName="CD", HostResource="ovf:/file/iso"),
        ("one",), files=iso,
    )  # fmt: skip
    assert paths(found) == ["one.vmdk"]
    assert any("tools.iso was left out" in note for note in found.notes)
    listed = '<Disk ovf:diskId="cd" ovf:fileRef="iso" ovf:format="http://x.org/Ecma-119.htm"/>'
    found = parsed(SCSI + disk("one", 0), ("one",), files=iso, disk_section=listed)
    assert paths(found) == ["one.vmdk"]
    assert any("tools.iso, was left out" in note for note in found.notes)


def test_what_is_not_used_is_named() -> None:
    found = parsed(
        item(ResourceType=35, ElementName="sound card")
        + item(ResourceType=1, OtherResourceType="vTPM")
        + item(ElementName="a riddle")
        + item(ResourceType=10, Connection="Intern & more".replace("&", "&amp;")),
        sections="<BootDeviceSection/><PlacementGroupSection/>"
        '<X vmw:key="bios.hddOrder" vmw:value="scsi0:1"/><X vmw:key="firmware" vmw:value="efi"/>',
    )
    notes = "\n".join(found.notes)
    for what in (
        "'sound card' (resource type 35)", "'vTPM'", "'a riddle' (resource type missing)",
        "network 'Intern & more'", "BootDeviceSection", "PlacementGroupSection", "bios.hddOrder",
        "UEFI",
    ):  # fmt: skip
        assert what in notes, what


def test_only_the_default_configuration_counts() -> None:
    sections = (
        '<DeploymentOptionSection><Configuration ovf:id="small"/>'
        '<Configuration ovf:id="large" ovf:default="true"/></DeploymentOptionSection>'
    )
    values = {"ResourceType": 4, "AllocationUnits": "byte * 2^20"}
    text = (
        item(attributes='ovf:configuration="small"', **values, VirtualQuantity=1024)
        + item(attributes='ovf:configuration="large"', **values, VirtualQuantity=8192)
        + item(attributes='ovf:bound="min"', **values, VirtualQuantity=16)
    )
    machine = ovf.parse_ovf(
        f'<Envelope {NAMESPACES}>{sections}<VirtualSystem ovf:id="vm">{text}'
        "</VirtualSystem></Envelope>"
    )
    assert machine.memory_mib == 8192


def test_addresses_of_interfaces_in_other_forms() -> None:
    found = parsed(
        "".join(
            item(ResourceType=10, Address=text)
            for text in ("080027AABBCC", "08-00-27-aa-bb-cc", "7", "")
        )
    )
    assert [nic.mac for nic in found.nics] == ["08:00:27:aa:bb:cc", "08:00:27:aa:bb:cc", "", ""]


@pytest.mark.parametrize(
    ("files", "listed", "why"),
    [
        ('<File ovf:href="d" ovf:id="d" ovf:chunkSize="9"/>', "", "split into parts"),
        ('<File ovf:href="d" ovf:id="d"/>', 'ovf:parentRef="one"', "differences"),
        ('<File ovf:href="..%2Fd" ovf:id="d"/>', "", "not the name of a file"),
    ],
)
def test_images_that_are_not_complete(files: str, listed: str, why: str) -> None:
    section = f'<Disk ovf:diskId="d" ovf:fileRef="d" {listed}/>'
    with pytest.raises(errors.ParseError, match=why):
        parsed("", files=files, disk_section=section)


# -- names of files --------------------------------------------------------------


@pytest.mark.parametrize(
    ("href", "file"),
    [
        ("my%20disk%20%281%29.vmdk", "my disk (1).vmdk"),
        ("my%20disk.vmdk", "my%20disk.vmdk"),
        ("R&amp;D (1).vmdk", "R&D (1).vmdk"),
        # Not escaped, so that the text is no XML.
        ("R&D 100%.vmdk", "R&D 100%.vmdk"),
    ],
)
def test_rare_characters_in_the_name_of_an_image(tmp_path: Path, href: str, file: str) -> None:
    (tmp_path / file).write_bytes(b"x")
    (tmp_path / "vm.ovf").write_text(
        f'<Envelope {NAMESPACES}><References><File ovf:href="{href}" ovf:id="f"/></References>'
        '<DiskSection><Disk ovf:diskId="d" ovf:fileRef="f"/></DiskSection>'
        f'<VirtualSystem ovf:id="vm">{BASE}</VirtualSystem></Envelope>'
    )
    listed = href.replace("&amp;", "&")
    digest = ova.digest(str(tmp_path / file), "SHA256")
    (tmp_path / "vm.mf").write_text(f"SHA256({listed})= {digest}\n")
    machine, description = reading.read(reading.OVF, str(tmp_path / "vm.ovf"), str(tmp_path))
    assert images.locate(machine.disks[0].path, description) == str(tmp_path / file)


def test_a_manifest_that_names_itself(tmp_path: Path) -> None:
    (tmp_path / "vm.OVF").write_text("x")
    digest = ova.digest(str(tmp_path / "vm.OVF"), "SHA1")
    (tmp_path / "vm.mf").write_text(f"SHA1(vm.mf)= {'0' * 40}\nSHA1(vm.OVF)= {digest}\n")
    assert ova.verify(str(tmp_path / "vm.OVF"))
    (tmp_path / "vm.OVF").write_text("changed")
    with pytest.raises(errors.OpPrereqError, match="another SHA1 checksum"):
        ova.verify(str(tmp_path / "vm.OVF"))


# -- Proxmox ---------------------------------------------------------------------

VOLUMES = (
    "ide0: local-lvm:vm-1-disk-0\nscsi1: local-lvm:vm-1-disk-1\n"
    "virtio0: local:1/vm-1-disk-2.qcow2\nscsi10: local:1/d3,format=qcow2\n"
)


@pytest.mark.parametrize(
    ("boot", "order", "note"),
    [
        ("", ["vm-1-disk-0", "vm-1-disk-1", "d3", "vm-1-disk-2.qcow2"], ""),
        ("boot: order=scsi10;ide0", ["d3", "vm-1-disk-0", "vm-1-disk-1", "vm-1-disk-2.qcow2"], ""),
        (
            "boot: order=net0;virtio0",
            ["vm-1-disk-2.qcow2", "vm-1-disk-0", "vm-1-disk-1", "d3"],
            "boots from net0 first",
        ),
        (
            "boot: cdn\nbootdisk: scsi1",
            ["vm-1-disk-1", "vm-1-disk-0", "d3", "vm-1-disk-2.qcow2"],
            "",
        ),
        (
            "boot: dc\nbootdisk: scsi1",
            ["vm-1-disk-1", "vm-1-disk-0", "d3", "vm-1-disk-2.qcow2"],
            "boots from a CD first",
        ),
        ("boot: legacy=c", ["vm-1-disk-0", "vm-1-disk-1", "d3", "vm-1-disk-2.qcow2"], ""),
    ],
)
def test_the_boot_order_of_proxmox(boot: str, order: list[str], note: str) -> None:
    found = proxmox.parse_proxmox(f"name: x\n{boot}\n{VOLUMES}")
    assert [Path(one.path).name for one in found.disks] == order
    assert bool(note) == any("first" in one for one in found.notes)
    assert note in "\n".join(found.notes)
    assert {one.format for one in found.disks if one.path.endswith("d3")} == {"qcow2"}


def test_lines_of_proxmox_which_are_not_used_are_named() -> None:
    found = proxmox.parse_proxmox(
        "name: x\nargs: -device vfio\nunused0: local-lvm:vm-1-disk-9\nrng0: source=/dev/random\n"
        "hostpci0: 01:00\nagent: 1\nfuture_thing: 7\n"
    )
    notes = "\n".join(found.notes)
    for what in ("args", "unused0", "vm-1-disk-9", "rng0", "hostpci0", "future_thing"):
        assert what in notes, what
    assert "agent" not in notes


# -- libvirt ---------------------------------------------------------------------


def domain(devices: str, more: str = "") -> Machine:
    return libvirt.parse_libvirt(
        f"<domain><name>x</name><memory>1024</memory>{more}<devices>{devices}</devices></domain>"
    )


def volume(name: str, boot: str = "", driver: str = "<driver type='qcow2'/>") -> str:
    order = f"<boot order='{boot}'/>" if boot else ""
    return (
        f"<disk type='file' device='disk'>{driver}<source file='/x/{name}'/>"
        f"<target dev='{name}'/>{order}</disk>"
    )


def test_the_boot_order_of_libvirt() -> None:
    found = domain(volume("vda", "10") + volume("vdb", "9") + volume("vdc"))
    assert paths(found) == ["/x/vdb", "/x/vda", "/x/vdc"] and found.notes == ()
    found = domain(
        "<interface type='bridge'><source bridge='br0'/><boot order='1'/></interface>"
        + volume("vda") + volume("vdb", "2")
    )  # fmt: skip
    assert paths(found) == ["/x/vdb", "/x/vda"]
    assert any("boots from <interface> first" in note for note in found.notes)
    found = domain(volume("vda"), "<os><boot dev='cdrom'/><boot dev='hd'/></os>")
    assert any("boots from cdrom first" in note for note in found.notes)


def test_parts_of_libvirt_which_are_not_used_are_named() -> None:
    found = domain(
        "<tpm/><sound/><watchdog/><controller/><newdevice/>" + volume("vda"),
        "<clock offset='localtime'/><memoryBacking/><launchSecurity/><features/>",
    )
    notes = "\n".join(found.notes)
    for what in ("<tpm>", "<sound>", "<watchdog>", "<newdevice>", "'localtime'", "<memoryBacking>",
                 "<launchSecurity>"):  # fmt: skip
        assert what in notes, what
    assert "controller" not in notes and "features" not in notes


def test_formats_of_libvirt_are_not_guessed() -> None:
    """Libvirt takes an image without a type as raw; a guest may have written another header."""
    assert domain(volume("vda", driver="")).disks[0].format == "raw"
    found = domain(
        "<disk><source file='/x/a'><encryption/></source><target dev='vda'/></disk>"
        + volume("vdb")
    )  # fmt: skip
    assert paths(found) == ["/x/vdb"]
    assert any("encrypted" in note for note in found.notes)
    assert len(domain(volume("vda") + volume("vda")).disks) == 2
