"""The hypervisor whose guests are files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti import errors, hypervisor
from ganeti.constants import hv
from ganeti.hypervisor import base
from ganeti.hypervisor.fake import guests
from ganeti.hypervisor.fake.driver import FakeHypervisor
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths

PLACE = base.Place("192.0.2.1", 0)
UUID = "0f4c7a52-9b11-4b0e-a3a4-5d3c1f0e9a77"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with paths.override(paths.Paths(str(tmp_path))):
        yield tmp_path


def guest(name: str = "web1", memory_mib: int = 128) -> FilledInstance:
    return FilledInstance(
        name=name,
        primary_node="n",
        os="tiny",
        hypervisor="fake",
        hvparams={},
        beparams={"maxmem": memory_mib, "minmem": 64, "vcpus": 2},
        admin_state="up",
        admin_state_source="admin",
        disks_active=True,
        uuid=UUID,
        serial_no=1,
    )


def test_registry() -> None:
    assert isinstance(hypervisor.of("fake"), FakeHypervisor)
    assert set(hypervisor.known()) >= {"fake", "kvm", "lxc", "chroot"}
    with pytest.raises(errors.HypervisorError, match="vmware does not exist"):
        hypervisor.of("vmware")


def test_life(root: Path) -> None:
    fake = FakeHypervisor()
    assert fake.list_instances() == [] and fake.all_info() == []
    fake.start(guest(), [])
    assert (root / "var/run/ganeti/fake-hypervisor/web1").read_text() == "1\n128\n2\n"
    with pytest.raises(errors.HypervisorError, match="web1 is running already"):
        fake.start(guest(), [])
    assert fake.instance_info("web1") == base.InstanceInfo("web1", 1, 128, 2, 0, 0.0)
    fake.balloon_memory(guest(), 100)
    assert [info.memory_mib for info in fake.all_info()] == [100]
    fake.reboot(guest(), [], timeout_s=1)
    fake.stop("web1", {})
    fake.stop("web1", {}, force=True)
    assert not fake.is_running("web1")
    for verb in (
        lambda: fake.reboot(guest(), [], timeout_s=1),
        lambda: fake.migration.check(guest()),
        lambda: fake.balloon_memory(guest(), 1),
        lambda: fake.migration.info(guest()),
    ):
        with pytest.raises(errors.HypervisorError, match="web1 is not running"):
            verb()


def test_disk_must_be_there(root: Path) -> None:
    disk = Disk(dev_type="file", logical_id=("loop", "/d"), size=1)
    with pytest.raises(errors.HypervisorError, match="nowhere does not exist"):
        FakeHypervisor().start(guest(), [base.AttachedDisk(disk, str(root / "nowhere"))])
    assert FakeHypervisor().list_instances() == []


def test_memory_is_taken_off_the_node(root: Path) -> None:
    fake = FakeHypervisor()
    free = fake.node_info()["memory_free"]
    fake.start(guest(memory_mib=free * 2), [])
    info = fake.node_info()
    assert info["memory_free"] == 0
    assert info["memory_total"] > 0 and info["cpu_total"] == os.cpu_count()


def test_migration(tmp_path: Path) -> None:
    fake = FakeHypervisor()
    source, target = paths.Paths(str(tmp_path / "a")), paths.Paths(str(tmp_path / "b"))
    with paths.override(source):
        fake.start(guest(), [])
        fake.balloon_memory(guest(), 99)
        info = fake.migration.info(guest())
        assert fake.migration.status(guest()).status == "none"
        fake.migration.finalize_source(guest(), success=False, live=True)
    with paths.override(target):
        fake.migration.accept(guest(), info, PLACE, [])
        assert [one.state for one in fake.all_info()] == [base.SHUTDOWN]
        fake.migration.finalize_target(guest(), info, success=False)
        assert not fake.is_running("web1")
        fake.migration.accept(guest(), info, PLACE, [])
    with paths.override(source):
        fake.migration.send("c", guest(), PLACE, live=True)
        assert fake.migration.status(guest()).status == "completed"
        with pytest.raises(errors.HypervisorError, match="sent to another node"):
            fake.migration.check(guest())
        with pytest.raises(errors.HypervisorError, match="cannot run on here"):
            fake.migration.finalize_source(guest(), success=False, live=True)
    with paths.override(target):
        fake.migration.finalize_target(guest(), info, success=True)
        assert fake.all_info()[0].memory_mib == 99
        with pytest.raises(errors.HypervisorError, match="running already"):
            fake.migration.accept(guest(), info, PLACE, [])
        with pytest.raises(errors.HypervisorError, match="damaged"):
            fake.migration.finalize_target(guest(), {"memory": "much"}, success=True)
        with pytest.raises(errors.HypervisorError, match="was not ended"):
            fake.migration.finalize_target(guest(), info, success=False)
        assert fake.is_running("web1")
    with paths.override(source):
        fake.migration.finalize_source(guest(), success=True, live=True)
        assert not fake.is_running("web1")


@pytest.mark.parametrize("begin", ["accept", "send"])
def test_a_start_removes_what_a_migration_left(root: Path, begin: str) -> None:
    fake = FakeHypervisor()
    if begin == "accept":
        fake.migration.accept(guest(), {}, PLACE, [])
    else:
        fake.start(guest(), [])
        fake.migration.send("c", guest(), PLACE, live=True)
    assert not fake.complete_start(guest())
    assert fake.list_instances() == []
    fake.start(guest(), [])
    assert fake.complete_start(guest()) and fake.is_running("web1")


@pytest.mark.parametrize("name", ["../config", ".hidden", "a/b"])
def test_forged_name(root: Path, name: str) -> None:
    with pytest.raises(errors.HypervisorError, match="is not an instance name"):
        FakeHypervisor().start(guest(name), [])


def test_damaged_file(root: Path) -> None:
    fake = FakeHypervisor()
    fake.start(guest(), [])
    (root / "var/run/ganeti/fake-hypervisor/web1").write_text("hello")
    with pytest.raises(errors.HypervisorError, match="damaged, expected three numbers"):
        fake.instance_info("web1")
    (found,) = fake.all_info()
    # It hides no other guest, and nobody may start it again.
    assert (found.name, found.state, found.memory_mib) == ("web1", base.RUNNING, 0)
    fake.stop("web1", {})
    assert fake.all_info() == []


def test_verify(root: Path) -> None:
    assert FakeHypervisor().verify() is None
    (root / "var/run/ganeti").mkdir(parents=True)
    (root / "var/run/ganeti/fake-hypervisor").touch()
    assert "is not a directory" in str(FakeHypervisor().verify())


@pytest.mark.parametrize("number", sorted(guests.HALTS))
def test_a_number_in_the_file_halts_a_guest(root: Path, number: int) -> None:
    fake = FakeHypervisor()
    fake.start(guest(), [])
    guests.write("web1", 128, 2, number)
    info = fake.instance_info("web1")
    assert info is not None and info.state == base.RUNNING and info.halt == guests.HALTS[number]
    if info.halt.kind in (hv.HALT_ENDED, hv.HALT_MIGRATES):
        with pytest.raises(errors.HypervisorError, match="cannot run on"):
            fake.resume("web1")
    else:
        fake.resume("web1")
        assert fake.instance_info("web1") == base.InstanceInfo("web1", 1, 128, 2, 0, 0.0)


def test_what_no_driver_can_continue() -> None:
    with pytest.raises(errors.HypervisorError, match="chroot cannot let halted instances run on"):
        hypervisor.of("chroot").resume("web1")
