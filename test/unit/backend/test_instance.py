"""Calls about instances, with the fake hypervisor; test/scenario/test_qemu.py has real guests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors, hypervisor
from ganeti.backend.instance import lifecycle
from ganeti.backend.storage import blockdev
from ganeti.hypervisor.fake.driver import FakeHypervisor
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths
from ganeti.wire import calls

DISK = Disk(
    dev_type="file",
    logical_id=("loop", "/srv/ganeti/file-storage/web1/disk0"),
    size=4,
    uuid="u",
    iv_name="disk/0",
)
GUEST = FilledInstance(
    name="web1",
    primary_node="n",
    os="tiny",
    hypervisor="fake",
    hvparams={},
    beparams={"maxmem": 128, "minmem": 64, "vcpus": 2},
    admin_state="up",
    admin_state_source="admin",
    disks_active=True,
    uuid="i",
    serial_no=1,
    disks_info=(DISK,),
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with paths.override(paths.Paths(str(tmp_path))):
        blockdev.file_storage_dir_create("/srv/ganeti/file-storage/web1")
        blockdev.create(DISK, 4, "web1", True, "", False)
        yield tmp_path


def links(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "var/run/ganeti/instance-disks").iterdir())


class Stubborn(FakeHypervisor):
    """A guest that shuts down when asked for the n-th time, or only by force, or never."""

    def __init__(self, hears_at: int = 0, *, immortal: bool = False) -> None:
        self.asked, self.hears_at, self.immortal = 0, hears_at, immortal

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        self.asked += not force
        if not self.immortal if force else self.asked == self.hears_at:
            super().stop(instance_name, hvparams)
        elif not force and self.asked == 1:
            raise errors.HypervisorError("busy")


def use(monkeypatch: pytest.MonkeyPatch, driver: FakeHypervisor) -> None:
    monkeypatch.setattr(hypervisor, "of", lambda name: driver)
    monkeypatch.setattr(lifecycle, "_ASK_AGAIN_S", 0.01)


def test_life(root: Path) -> None:
    lifecycle.start(GUEST, False, [["gnt:client", "why", 5]])
    lifecycle.start(GUEST, False, [])
    assert links(root) == ["web1:0"]
    (reason,) = (root / "var/run/ganeti/instance-reason").iterdir()
    trail = json.loads(reason.read_text())
    assert trail[0] == ["gnt:client", "why", 5]
    assert trail[1][:2] == ["gnt:daemon:noded:instance_start", ""]
    assert lifecycle.list_instances(["kvm", "fake"], {}) == ["web1"]
    facts = {"memory": 128, "vcpus": 2, "state": 0, "time": 0.0}
    assert lifecycle.all_instances_info(["fake", "kvm"], {}) == {"web1": facts}
    assert lifecycle.instance_info("web1", "fake", {}) == facts
    assert lifecycle.instance_info("web2", "fake", {}) == {}
    lifecycle.reboot(GUEST, "soft", 5, [])
    lifecycle.reboot(replace(GUEST, beparams={**GUEST.beparams, "maxmem": 64}), "hard", 5, [])
    assert lifecycle.instance_info("web1", "fake", {})["memory"] == 64
    lifecycle.balloon_memory(GUEST, 70)
    assert lifecycle.instance_info("web1", "fake", {})["memory"] == 70
    with pytest.raises(errors.HypervisorError, match="cannot be carried out by the node alone"):
        lifecycle.reboot(GUEST, "full", 5, [])
    lifecycle.shutdown(GUEST, 5, [])
    lifecycle.shutdown(GUEST, 5, [])
    assert links(root) == [] and lifecycle.list_instances(["fake"], {}) == []
    with pytest.raises(errors.HypervisorError, match="not running, cannot reboot"):
        lifecycle.reboot(GUEST, "soft", 5, [])


def test_a_guest_which_cannot_start_again_is_not_stopped_for_a_reboot(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithoutKernel(FakeHypervisor):
        def require_files(self, hvparams: Mapping[str, Any]) -> None:
            raise errors.HypervisorError("parameter kernel_path: there is no such file")

    lifecycle.start(GUEST, False, [])
    use(monkeypatch, WithoutKernel())
    with pytest.raises(errors.HypervisorError, match="no such file"):
        lifecycle.reboot(GUEST, "hard", 5, [])
    assert lifecycle.list_instances(["fake"], {}) == ["web1"]


def test_start_without_its_disk_leaves_no_link(root: Path) -> None:
    missing = replace(DISK, logical_id=("loop", "/srv/ganeti/file-storage/web1/disk1"))
    with pytest.raises(errors.BlockDeviceError, match="disk 1 of instance web1.*does not exist"):
        lifecycle.start(replace(GUEST, disks_info=(DISK, missing)), False, [])
    assert links(root) == []


def test_unknown_hypervisor(root: Path) -> None:
    with pytest.raises(errors.HypervisorError, match="vmware does not exist"):
        lifecycle.start(replace(GUEST, hypervisor="vmware"), False, [])
    with pytest.raises(errors.HypervisorError, match="vmware does not exist"):
        lifecycle.validate_params("vmware", {})
    lifecycle.validate_params("fake", {})


def test_guest_is_asked_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Stubborn(3)
    use(monkeypatch, driver)
    lifecycle.start(GUEST, False, [])
    lifecycle.shutdown(GUEST, 3600, [])
    assert driver.asked == 3
    assert links(root) == []


def test_guest_that_does_not_hear_is_forced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Stubborn()
    use(monkeypatch, driver)
    lifecycle.start(GUEST, False, [])
    lifecycle.shutdown(GUEST, 1, [])
    assert driver.asked > 1 and not driver.is_running("web1")


def test_timeout_zero_forces_at_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Stubborn()
    use(monkeypatch, driver)
    lifecycle.start(GUEST, False, [])
    lifecycle.shutdown(GUEST, 0, [])
    assert driver.asked == 0 and not driver.is_running("web1")


def test_guest_that_cannot_be_stopped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Stubborn(immortal=True))
    lifecycle.start(GUEST, False, [])
    with pytest.raises(errors.HypervisorError, match="still runs"):
        lifecycle.shutdown(GUEST, 0, [])
    assert links(root) == ["web1:0"]  # it runs, so its disks stay linked


def test_one_name_under_two_hypervisors(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(FakeHypervisor):
        def all_info(self) -> list[Any]:
            return [replace(info, memory_mib=1) for info in super().all_info()]

    lifecycle.start(GUEST, False, [])
    monkeypatch.setattr(hypervisor, "of", {"fake": FakeHypervisor(), "kvm": Other()}.__getitem__)
    assert lifecycle.list_instances(["fake", "kvm"], {}) == ["web1", "web1"]
    # The guest is an error of its own, and does not hide the others.
    assert (
        lifecycle.all_instances_info(["fake", "kvm"], {})["web1"]["memory"]
        == (lifecycle.all_instances_info(["fake"], {})["web1"]["memory"])
    )


def test_a_hypervisor_which_fails_does_not_hide_the_guests_of_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(FakeHypervisor):
        def all_info(self) -> list[Any]:
            raise errors.HypervisorError("xl does not answer")

    lifecycle.start(GUEST, False, [])
    monkeypatch.setattr(hypervisor, "of", {"fake": FakeHypervisor(), "kvm": Broken()}.__getitem__)
    asked = ["kvm", "fake"]
    found = lifecycle.all_instances_info(asked, {}, apart=True)
    assert (list(found), found.problems) == (["web1"], {"kvm": "xl does not answer"})
    codec = calls.ALL_INSTANCES_INFO.result
    sent = codec.decode(json.loads(json.dumps(codec.encode(found))))
    assert (list(sent), sent.problems) == (["web1"], {"kvm": "xl does not answer"})
    # A master of the release before would take the absent guests for stopped.
    with pytest.raises(errors.HypervisorError, match="does not answer"):
        lifecycle.all_instances_info(asked, {})


def test_a_guest_which_cannot_be_asked_does_not_hide_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as running: nobody may start it elsewhere."""

    class Odd(FakeHypervisor):
        def instance_info(self, instance_name: str) -> Any:
            if instance_name == "web1":
                raise errors.HypervisorError("instance web1: its record is damaged")
            return super().instance_info(instance_name)

    lifecycle.start(GUEST, False, [])
    lifecycle.start(replace(GUEST, name="web2", uuid="uuid-web2"), False, [])
    before = lifecycle.all_instances_info(["fake"], {})
    monkeypatch.setattr(hypervisor, "of", {"fake": Odd()}.__getitem__)
    found = lifecycle.all_instances_info(["fake"], {})
    assert found["web2"] == before["web2"]
    assert found["web1"] == {"memory": 0, "vcpus": 0, "state": 0, "time": 0.0}


def test_migration(root: Path, tmp_path: Path) -> None:
    target = paths.Paths(str(tmp_path / "other"))
    shared = replace(GUEST, disks_info=())
    lifecycle.start(shared, False, [])
    lifecycle.migratable(shared)
    info = lifecycle.migration_info(shared)
    with paths.override(target):
        lifecycle.accept_instance(shared, info, "192.0.2.1")
    lifecycle.migrate("cluster", shared, "192.0.2.1", True)
    assert lifecycle.migration_status(shared).status == "completed"
    with paths.override(target):
        lifecycle.finalize_migration_dst(shared, info, True)
        assert lifecycle.list_instances(["fake"], {}) == ["web1"]
    assert os.listdir(paths.current().instance_reason_dir) == [shared.name]
    lifecycle.finalize_migration_src(shared, True, True)
    assert os.listdir(paths.current().instance_reason_dir) == []
    assert lifecycle.list_instances(["fake"], {}) == []


def test_failed_migration_removes_the_targets_links(root: Path) -> None:
    lifecycle.accept_instance(GUEST, {"memory": 1, "vcpus": 1}, "192.0.2.1")
    assert links(root) == ["web1:0"]
    lifecycle.finalize_migration_dst(GUEST, {}, False)
    assert links(root) == []
