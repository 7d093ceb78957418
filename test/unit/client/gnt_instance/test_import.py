"""``gnt-instance import``: what is taken from a description."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.objects import hvparams
from ganeti.platform import paths
from ganeti.wire import ini

from ..conftest import Gnt

DATA = Path(__file__).resolve().parents[3] / "data"
SECTION = """  <gnt:GanetiSection xmlns:gnt="http://ganeti">
    <gnt:OperatingSystem><gnt:Name>evil</gnt:Name>
      <gnt:Parameters><gnt:script>/tmp/x</gnt:script></gnt:Parameters></gnt:OperatingSystem>
    <gnt:Hypervisor><gnt:Name>kvm</gnt:Name><gnt:Parameters>
      <gnt:kvm_extra>-chardev file,id=x,path=/x</gnt:kvm_extra>
      <gnt:cdrom_image_path>/etc/shadow</gnt:cdrom_image_path>
      <gnt:security_model>none</gnt:security_model>
      <gnt:kvm_path>/usr/bin/kvm</gnt:kvm_path>
      <gnt:acpi>False</gnt:acpi></gnt:Parameters></gnt:Hypervisor>
    <gnt:Network><gnt:Nic><gnt:MACAddress>aa:00:00:00:00:01</gnt:MACAddress>
      <gnt:Link>br-admin</gnt:Link></gnt:Nic></gnt:Network>
  </gnt:GanetiSection>
"""

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(
        shutil.which("qemu-img") is None, reason="qemu-img (qemu-utils) is not installed"
    ),
]


@pytest.fixture
def info(master: FakeMaster) -> dict[str, Any]:
    """What the cluster says about itself; its guests have users of their own."""
    own = {**hvparams.defaults("kvm"), "security_model": "pool"}
    master.cluster_info = {
        "default_hypervisor": "kvm",
        "enabled_hypervisors": ["kvm"],
        "hvparams": {"kvm": own},
        "os_hvp": {},
        "osparams": {},
        "nicparams": {"default": {"mode": "bridged", "link": "br0", "vlan": ""}},
    }
    return master.cluster_info


@pytest.fixture
def appliance(tmp_path: Path) -> Path:
    top = tmp_path / "appliance"
    top.mkdir()
    for path in (DATA / "ovf").glob("*.vmdk"):
        shutil.copy(path, top)
    text = (DATA / "ovf/virtualbox.ovf").read_text()
    found = top / "evil.ovf"
    found.write_text(text.replace("</Envelope>", f"{SECTION}</Envelope>"))
    return found


REFUSED = "os,kvm_extra,cdrom_image_path,security_model,os/script,nic/link"


def exports(here: paths.Paths) -> list[str]:
    return [path.name for path in Path(here.export_dir).iterdir()]


@pytest.mark.usefixtures("info")
def test_a_dry_run_shows_all_of_it(gnt: Gnt, appliance: Path, here: paths.Paths) -> None:
    ended = gnt("instance import --from=ovf --dry-run", str(appliance), "web1")
    assert ended.code == 1 and exports(here) == []
    for part in (
        "kvm_extra='-chardev file,id=x,path=/x'", "cdrom_image_path='/etc/shadow'", "os='evil'",
        "security_model='none'", "the cluster has 'pool'", "OS parameter script='/tmp/x'",
        "interface 0: link='br-admin'", f"--accept-from-description={REFUSED}",
    ):  # fmt: skip
        assert part in ended.err
    assert "kvm_path" not in ended.err
    ended = gnt(
        f"instance import --from=ovf --dry-run --accept-from-description={REFUSED}",
        str(appliance), "web1",
    )  # fmt: skip
    assert ended.code == 0 and "kvm_extra='-chardev file,id=x,path=/x'" in ended.out


@pytest.mark.usefixtures("info")
def test_an_appliance_which_names_things_of_the_node(
    gnt: Gnt,
    master: FakeMaster,
    appliance: Path,
    here: paths.Paths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is made of it, unless the administrator says other values, or accepts them."""
    line = "instance import --from=ovf -t file -n node1"
    assert gnt(line, str(appliance), "web1").code == 1
    assert master.opcodes() == [] and exports(here) == []
    kept: list[str] = []
    monkeypatch.setattr(shutil, "rmtree", lambda path, **_more: kept.append(path))
    mine = "-o debian -H kvm:cdrom_image_path=,security_model=pool --accept-from-description"
    ended = gnt(f"{line} {mine}=kvm_extra,nic/link", str(appliance), "web1")
    assert ended.code == 0, ended.err
    op = master.opcode()
    assert (op["mode"], op["os_type"]) == ("import", "debian")
    text = (Path(here.export_dir) / "web1/config.ini").read_text()
    sections = ini.parse(text).sections
    assert sections["hypervisor"] == {
        "kvm_extra": "-chardev file,id=x,path=/x", "kvm_path": "/usr/bin/kvm", "acpi": "False",
    }  # fmt: skip
    assert (sections["os"], sections["instance"]["nic0_link"]) == ({}, "br-admin")


@pytest.mark.usefixtures("info")
def test_a_domain_which_names_a_file_of_the_master(
    gnt: Gnt, tmp_path: Path, here: paths.Paths
) -> None:
    """The image is used only from where the administrator says."""
    secret = tmp_path / "secret/image"
    secret.parent.mkdir()
    secret.write_bytes(bytes(1 << 20))
    top = tmp_path / "domain"
    top.mkdir()
    path = top / "web.xml"
    path.write_text(
        "<domain type='kvm'><name>web</name><memory unit='MiB'>128</memory><devices>"
        f"<disk type='file'><source file='{secret}'/><target dev='vda' bus='virtio'/></disk>"
        "</devices></domain>"
    )
    line = "instance import --from=libvirt --dry-run"
    ended = gnt(line, str(path), "web1")
    assert ended.code == 1
    assert f"disk 0={str(secret)!r}" in ended.err and "=disk/0" in ended.err
    for accepted in (f"--disks-from={secret.parent}", "--accept-from-description=disk/0"):
        assert gnt(f"{line} {accepted}", str(path), "web1").code == 0
    (top / "image").symlink_to(secret)
    assert "disk 0=" in gnt(line, str(path), "web1").err
    (top / "image").unlink()
    # One beside the description counts more than the file which it names.
    shutil.copy(secret, top)
    assert gnt(line, str(path), "web1").code == 0
    assert exports(here) == []
