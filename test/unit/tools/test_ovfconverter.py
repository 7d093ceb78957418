"""``ovfconverter``: from an appliance to an export and back, with real images."""

from __future__ import annotations

import argparse
import gzip
import shutil
import tarfile
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.foreign import ovf
from ganeti.foreign.export import parse_export
from ganeti.foreign.machine import Machine, Nic
from ganeti.tools import ovfconverter

DATA = Path(__file__).resolve().parents[2] / "data" / "ovf"
pytestmark = [pytest.mark.programs]
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-img") is None, reason="qemu-img (qemu-utils) is not installed"
)


def options(*argv: str) -> argparse.Namespace:
    return ovfconverter.make_parser().parse_args(argv)


@needs_qemu
def test_an_appliance_becomes_an_export(tmp_path: Path) -> None:
    code = ovfconverter.main(
        ["import", str(DATA / "virtualbox.ovf"), "--output-dir", str(tmp_path), "-n", "web1",
         "-B", "memory=512,vcpus=3", "-t", "file", "-o", "lenny", "-H", "kvm:acpi=False",
         "--tags", "a,b", "-O", "image=x", "--no-nics"]
    )  # fmt: skip
    assert code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web1"]
    text = (tmp_path / "web1/config.ini").read_text()
    found = parse_export(text)
    assert (found.name, found.memory_mib, found.vcpus, found.os) == ("web1", 512, 3, "lenny")
    assert found.hvparams == {"kernel_path": "", "acpi": "False"} and found.nics == ()
    assert (found.disk_template, found.tags) == ("file", ("a", "b"))
    assert (tmp_path / "web1/disk0.raw").stat().st_size == 51200
    assert (tmp_path / "web1/config.ini").stat().st_mode & 0o777 == 0o600


@needs_qemu
@pytest.mark.parametrize("form", ["raw", "cow", "vmdk"])
@pytest.mark.parametrize("compress", [False, True])
def test_an_export_becomes_an_archive_and_comes_back(
    tmp_path: Path, form: str, compress: bool
) -> None:
    source = tmp_path / "export"
    source.mkdir()
    shutil.copy(DATA / "config.ini", source)
    content = bytes(range(256)) * 8192
    (source / "rawdisk.raw").write_bytes(content)
    argv = ["export", str(source / "config.ini"), "--output-dir", str(tmp_path), "-n", "app",
            "-f", form, "--ova", *(["--compress"] if compress else [])]  # fmt: skip
    assert ovfconverter.main(argv) == 0
    with tarfile.open(tmp_path / "app.ova") as archive:
        names = archive.getnames()
    assert names[:2] == ["app.ovf", "app.mf"]
    assert names[2] == f"disk0.{form}" + (".gz" if compress else "")
    back = ["import", str(tmp_path / "app.ova"), "--output-dir", str(tmp_path / "back"),
            "--accept-from-description=os,nic/link,nic/mode"]  # fmt: skip
    assert ovfconverter.main(back) == 0
    assert (tmp_path / "back/app/disk0.raw").read_bytes() == content
    found = parse_export((tmp_path / "back/app/config.ini").read_text())
    assert (found.os, found.hypervisor) == ("lenny-image", "xen-pvm")
    assert ovfconverter.main(back) == 1


@needs_qemu
def test_an_appliance_for_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["export", str(DATA / "config.ini"), "--output-dir", str(tmp_path), "--external"]
    assert ovfconverter.main(argv) == 0, capsys.readouterr().err
    assert "qemu-img" not in capsys.readouterr().out
    text = (tmp_path / "ganeti-test-xen/ganeti-test-xen.ovf").read_text()
    assert "GanetiSection" not in text
    assert ovf.parse_ovf(text).disks[0].path == "disk0.raw"
    assert ovfconverter.main(argv) == 1
    assert "exists already" in capsys.readouterr().err
    assert ovfconverter.main([*argv, "-n", "other", "-v"]) == 0
    assert "qemu-img convert -f raw" in capsys.readouterr().out


def test_an_export_in_a_form_of_its_own_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DATA / "config.ini").read_text().replace("disk0_size = 0", "disk0_size = 1024")
    (tmp_path / "config.ini").write_text(text)
    (tmp_path / "rawdisk.raw").write_bytes(gzip.compress(b"x" * 4096))
    argv = ["export", str(tmp_path / "config.ini"), "--output-dir", str(tmp_path / "out")]
    assert ovfconverter.main(argv) == 1
    assert "is not the image of a disk, which is packed with gzip" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["-B", "memory"], "KEY=VALUE"),
        (["-B", "spindle_use=2"], "cannot be given here"),
        (["-B", "memory=0"], "not a number from 1"),
    ],
)
def test_wrong_options(argv: list[str], why: str) -> None:
    machine = ovf.parse_ovf((DATA / "ganeti.ovf").read_text())
    with pytest.raises(errors.GenericError, match=why):
        ovfconverter.changed(machine, options("import", "x.ovf", *argv))


def test_another_hypervisor_forgets_the_parameters() -> None:
    machine = ovf.parse_ovf((DATA / "ganeti.ovf").read_text())
    changed = ovfconverter.changed(machine, options("import", "x", "-H", "kvm:acpi=True"))
    assert (changed.hypervisor, changed.hvparams) == ("kvm", {"acpi": "True"})


EVIL = """  <gnt:GanetiSection xmlns:gnt="http://ganeti">
    <gnt:OperatingSystem><gnt:Name>evil</gnt:Name>
      <gnt:Parameters><gnt:script>/tmp/x</gnt:script></gnt:Parameters></gnt:OperatingSystem>
    <gnt:Hypervisor><gnt:Name>kvm</gnt:Name><gnt:Parameters>
      <gnt:kvm_extra>-chardev file,id=x,path=/x</gnt:kvm_extra>
      <gnt:cdrom_image_path>/etc/shadow</gnt:cdrom_image_path>
      <gnt:acpi>False</gnt:acpi></gnt:Parameters></gnt:Hypervisor>
  </gnt:GanetiSection>
"""


def evil(tmp_path: Path) -> Path:
    """An appliance whose section of Ganeti names things of the node."""
    for path in DATA.glob("*.vmdk"):
        shutil.copy(path, tmp_path)
    text = (DATA / "virtualbox.ovf").read_text()
    found = tmp_path / "evil.ovf"
    found.write_text(text.replace("</Envelope>", f"{EVIL}</Envelope>"))
    return found


@needs_qemu
def test_things_of_the_node_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are listed, in a dry run too, and an option or the name of the value accepts them."""
    argv = ["import", str(evil(tmp_path)), "--output-dir", str(tmp_path / "out"), "-n", "web1"]
    for more in ([], ["--dry-run"]):
        assert ovfconverter.main([*argv, *more]) == 1
        shown = capsys.readouterr().err
        for part in (
            "kvm_extra='-chardev file,id=x,path=/x'",
            "cdrom_image_path='/etc/shadow'",
            "os='evil'",
            "OS parameter script='/tmp/x'",
            "--accept-from-description=os,kvm_extra,cdrom_image_path,os/script",
        ):
            assert part in shown
        assert not list((tmp_path / "out").iterdir())
    mine = ["-o", "lenny", "-H", "kvm:cdrom_image_path=", "--accept-from-description=kvm_extra"]
    assert ovfconverter.main([*argv, *mine, "--dry-run"]) == 0
    assert "kvm_extra is accepted" in capsys.readouterr().out
    assert ovfconverter.main([*argv, *mine]) == 0
    found = parse_export((tmp_path / "out/web1/config.ini").read_text())
    assert (found.os, found.osparams) == ("lenny", {})
    assert found.hvparams == {
        "kvm_extra": "-chardev file,id=x,path=/x", "acpi": "False", "cdrom_image_path": "",
    }  # fmt: skip


@needs_qemu
def test_an_image_which_is_a_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"root:x" * 1000)
    top = tmp_path / "appliance"
    top.mkdir()
    path = evil(top)
    (top / "new_disk.vmdk").unlink()
    (top / "new_disk.vmdk").symlink_to(secret)
    argv = ["import", str(path), "--output-dir", str(tmp_path / "out"), "-n", "web1"]
    assert ovfconverter.main(argv) == 1
    assert "disk 0=" in capsys.readouterr().err


def test_a_manifest_which_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["import", str(DATA / "wrong_manifest.ovf"), "--output-dir", str(tmp_path)]
    assert ovfconverter.main(argv) == 1
    assert "checksum" in capsys.readouterr().err or not (tmp_path / "x").exists()
    assert list(tmp_path.iterdir()) == []


def test_network_interfaces() -> None:
    machine = Machine(name="app", memory_mib=1, vcpus=1, nics=(Nic(mac="aa:00:00:00:00:01"),))
    line = ("import", "x.ovf", "--net=1:link=br1", "--net", "0:mac=aa:00:00:00:00:02,mode=bridged")
    assert ovfconverter.changed(machine, options(*line)).nics == (
        Nic(mac="aa:00:00:00:00:02", mode="bridged"),
        Nic(link="br1"),
    )
    assert ovfconverter.changed(machine, options("import", "x.ovf")).nics == machine.nics
    for given, text in (
        (("--net=1:link=br1",), "from 0 on, not 1"),
        (("--net=a:link=br1",), "from 0 on, not a"),
        (("--net=0:bridge=br1",), "there is no 'bridge', only mac, mode, link, vlan, ip"),
        (("--net=0:link=a", "--net=0:link=b"), "--net 0 is given twice"),
        (("--net=0:link",), "'link' is not KEY=VALUE"),
        (("--net=0:link=a", "--no-nics"), "give either --net or --no-nics"),
    ):
        with pytest.raises(errors.OpPrereqError, match=text):
            ovfconverter.changed(machine, options("import", "x.ovf", *given))


@needs_qemu
def test_disks_in_place_of_those_of_the_appliance(tmp_path: Path) -> None:
    images = [tmp_path / "second.img", tmp_path / "a (1).img"]
    for number, image in enumerate(images):
        image.write_bytes(bytes([number + 1]) * (1 << 20))
    code = ovfconverter.main(
        ["import", str(DATA / "virtualbox.ovf"), "--output-dir", str(tmp_path / "out"), "-n", "w",
         f"--disk=1:path={images[0]}", "--disk", f"0:path={images[1]}"]
    )  # fmt: skip
    assert code == 0
    found = parse_export((tmp_path / "out/w/config.ini").read_text())
    assert [disk.path for disk in found.disks] == ["disk0.raw", "disk1.raw"]
    assert (tmp_path / "out/w/disk0.raw").read_bytes()[:1] == b"\2"
    assert (tmp_path / "out/w/disk1.raw").read_bytes()[:1] == b"\1"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["0:path=/nowhere/x"], "there is no file /nowhere/x"),
        (["0:size=1g"], "write N:path=FILE"),
        (["0:path=/etc/hostname", "0:path=/etc/hostname"], "once for each disk"),
        (["1:path=/etc/hostname"], "number the devices from 0 on, not 1"),
    ],
)
def test_wrong_disks(given: list[str], why: str) -> None:
    words = [word for one in given for word in ("--disk", one)]
    with pytest.raises(errors.OpPrereqError, match=why):
        ovfconverter.changed(
            Machine(name="x", memory_mib=1, vcpus=1), options("import", "x", *words)
        )
