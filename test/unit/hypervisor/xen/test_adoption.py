"""Guests which another program has started, as the original Ganeti does, with a fake ``xl``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes import xen_node
from fakes.xen_node import XenNode, driver, instance, nic
from ganeti import errors, storage
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.xen import record
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths

pytestmark = pytest.mark.programs
DOMAIN = "02cc03da-9a9d-4d2b-8d75-4ecbebab28ea"
MAC = "aa:00:00:11:22:44"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[XenNode]:
    xen_node.plain_disks(monkeypatch)
    found = XenNode(tmp_path)
    monkeypatch.setattr(
        storage, "device", lambda disk: SimpleNamespace(path=str(tmp_path / "dev" / disk.uuid))
    )
    with found.here():
        yield found


def link(node: XenNode, index: int, disk: AttachedDisk) -> AttachedDisk:
    """The disk by its link, as hypervisors open it."""
    path = Path(paths.current().instance_disk_link("web1", index))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(disk.path)
    return disk._replace(path=str(path))


def of_another(node: XenNode) -> tuple[FilledInstance, AttachedDisk]:
    """Start a guest with a disk and a NIC as another program would: without a record."""
    disk = link(node, 0, node.disk())
    guest = replace(instance(nics=(nic(),), kernel_path=node.kernel()), disks_info=(disk.disk,))
    driver().start(guest, [disk])
    record.remove("web1")
    node.change("web1", uuid=DOMAIN)
    return guest, disk


def test_a_guest_is_adopted_where_it_is_said_to_start(node: XenNode) -> None:
    guest, disk = of_another(node)
    before = node.domains()
    assert driver().complete_start(guest)
    assert node.domains() == before
    known = record.load("web1")
    assert (known.uuid, known.domain_uuid, known.state) == (guest.uuid, DOMAIN, record.COMPLETE)
    assert (known.memory_mib, known.vcpus) == (128, 2)
    assert [(one.disk["uuid"], one.path, one.vdev) for one in known.disks] == [
        ("d0", disk.path, "sda")
    ]
    assert [(one.nic["uuid"], one.devid) for one in known.nics] == [("n0", 0)]
    # Each later process reads what was written.
    assert record.loads(known.dumps(), "web1") == known
    assert driver("xen-hvm").list_instances() == []


def test_a_guest_keeps_what_it_has_when_the_configuration_is_another(node: XenNode) -> None:
    """Names of devices and memory are those of the domain; what was added since is not there."""
    guest, _disk = of_another(node)
    more = Disk(dev_type="plain", logical_id=("xenvg", "d1"), size=64, uuid="d1")
    now = replace(
        guest,
        hvparams={**guest.hvparams, "blockdev_prefix": "xvd", "type": "pvh"},
        beparams={**guest.beparams, "maxmem": 256, "vcpus": 4},
        nics=(nic("n1", mac=MAC), *guest.nics),
        disks_info=(more, *guest.disks_info),
    )
    driver().devices.check(now)
    known = record.load("web1")
    assert (known.memory_mib, known.vcpus, known.hvparams["type"]) == (128, 2, "pv")
    assert [one.vdev for one in known.disks] == ["sda"]
    assert [one.nic["uuid"] for one in known.nics] == ["n0"]
    driver().devices.add_nic(now, now.nics[0], 0)
    assert [one.devid for one in record.load("web1").nics] == [1, 0]


def test_a_reboot_makes_the_guest_one_of_ours(node: XenNode) -> None:
    guest, disk = of_another(node)
    driver().reboot(guest, [disk], timeout_s=5)
    assert node.domains()["web1"]["uuid"] == guest.uuid
    assert record.load("web1").domain_uuid == ""


def test_the_memory_of_an_adopted_guest_changes(node: XenNode) -> None:
    guest, _disk = of_another(node)
    driver().balloon_memory(guest, 256)
    assert (node.domains()["web1"]["memory"], node.domains()["web1"]["maxmem"]) == (256, 256)


def test_an_adopted_guest_can_be_migrated(node: XenNode) -> None:
    guest, _disk = of_another(node)
    driver().migration.check(guest)
    source = record.loads(driver().migration.info(guest)["record"], "web1")
    assert source.uuid == guest.uuid and source.domain_uuid == DOMAIN


def test_a_guest_is_stopped_without_being_adopted(node: XenNode) -> None:
    guest, _disk = of_another(node)
    driver().stop("web1", guest.hvparams)
    driver().cleanup("web1")
    assert node.domains() == {} and node.files() == []


def test_a_record_of_an_earlier_domain_is_made_again(node: XenNode) -> None:
    """Ours has stayed while the cluster belonged to the original, which restarted the guest."""
    guest, disk = of_another(node)
    old = record.of_instance(guest, [disk._replace(path="/dev/other")], state=record.STARTING)
    record.save(replace(old, memory_mib=7))
    assert driver().complete_start(guest)
    known = record.load("web1")
    assert (known.memory_mib, known.disks[0].path) == (128, disk.path)
    # And again by the original.
    node.change("web1", uuid="another", maxmem=200)
    driver().devices.check(guest)
    assert (record.load("web1").domain_uuid, record.load("web1").memory_mib) == ("another", 200)


@pytest.mark.parametrize("uuid", [DOMAIN, xen_node.UUID])
def test_a_domain_with_no_device_of_the_instance_is_left_alone(node: XenNode, uuid: str) -> None:
    guest, _disk = of_another(node)
    node.change("web1", uuid=uuid)
    other = replace(guest, disks_info=(), nics=(nic("n1", mac=MAC),))
    with pytest.raises(errors.HypervisorError, match="has the name of instance web1, and is not"):
        driver().complete_start(other)
    assert "web1" in node.domains() and record.find("web1") is None


def test_a_record_of_another_instance_proves_nothing(node: XenNode) -> None:
    driver().start(instance(), [])
    with pytest.raises(errors.HypervisorError, match="has the name of instance web1, and is not"):
        driver().complete_start(replace(instance(), uuid="another"))
    assert "web1" in node.domains()


def test_a_guest_with_more_than_the_instance_is_named(node: XenNode) -> None:
    guest, _disk = of_another(node)
    with pytest.raises(errors.HotplugError, match=f"with a NIC with the address {nic().mac}"):
        driver().devices.check(replace(guest, nics=()))
    with pytest.raises(errors.HypervisorError, match=r"with disk .*web1:0, which it does not have"):
        driver().migration.check(replace(guest, disks_info=()))
    assert record.find("web1") is None


def test_a_domain_of_another_type_is_not_adopted(node: XenNode) -> None:
    guest, _disk = of_another(node)
    node.change("web1", type="hvm")
    with pytest.raises(errors.HypervisorError, match="and has the type 'hvm'"):
        driver().complete_start(guest)
