"""Helper guests on the node: their disk, their variables, what is left of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors, hypervisor
from ganeti.backend.instance import helper, helper_disk, lifecycle, metadata
from ganeti.backend.storage import blockdev
from ganeti.metad import client
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.platform import paths

DISK = Disk(
    dev_type="file",
    logical_id=("loop", "/srv/ganeti/file-storage/web1/disk0"),
    size=4,
    uuid="u",
    iv_name="disk/0",
)
NIC = FilledNic(
    mac="52:54:00:00:00:07",
    ip="169.254.0.7",
    name="ganeti:communication:web1",
    nicparams={"mode": "routed", "link": "communication_rt"},
    uuid="n",
)
GUEST = FilledInstance(
    name="web1",
    primary_node="n",
    os="debian",
    hypervisor="fake",
    hvparams={},
    beparams={"maxmem": 128, "minmem": 64, "vcpus": 2},
    admin_state="down",
    admin_state_source="admin",
    disks_active=True,
    uuid="i",
    serial_no=1,
    disks_info=(DISK,),
    nics=(NIC,),
    osparams={"password": "hush"},
)
PARAMETERS = {"password": ["hush", "secret"], "size": ["1", "public"]}


class FakeDaemon:
    """The metadata daemon, without a socket."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.reports: dict[str, dict[str, Any]] = {}

    def update(self, description: dict[str, Any]) -> None:
        self.known[description["name"]] = dict(description)

    def forget(self, name: str) -> None:
        self.known.pop(name, None)

    def report(self, name: str) -> dict[str, Any] | None:
        return self.reports.get(name)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    made = FakeDaemon()
    monkeypatch.setattr(metadata, "update", made.update)
    monkeypatch.setattr(metadata, "forget", made.forget)
    monkeypatch.setattr(client, "report", made.report)
    return made


@pytest.fixture
def root(tmp_path: Path, daemon: FakeDaemon) -> Iterator[Path]:
    with paths.override(paths.Paths(str(tmp_path))) as here:
        blockdev.file_storage_dir_create("/srv/ganeti/file-storage/web1")
        blockdev.create(DISK, 4, "web1", True, "", False)
        definition = Path(here.os_search_path[0]) / "debian"
        definition.mkdir(parents=True)
        for name in ("create_untrusted", "verify"):
            (definition / name).write_text("#!/bin/sh\n")
            (definition / name).chmod(0o755)
        (definition / "ganeti_api_version").write_text("20\n")
        (definition / "parameters.list").write_text("password p\nsize s\n")
        (tmp_path / "helper.img").write_bytes(b"boot" * 1000)
        yield tmp_path


def begin(
    root: Path,
    guest: FilledInstance = GUEST,
    task: str = "install",
    *,
    image: str = "/helper.img",
    own_nic: bool = False,
) -> None:
    helper.start(guest, task, image, own_nic, PARAMETERS, True, 0)


def left(root: Path) -> list[str]:
    """Files that hold something of a helper."""
    here = paths.current()
    found = [*Path(here.helper_dir).glob("*"), *Path(here.instance_disks_dir).glob("*")]
    return [str(path.relative_to(root)) for path in found]


def test_the_life_of_a_helper(root: Path, daemon: FakeDaemon) -> None:
    begin(root)
    assert hypervisor.of("fake").list_instances() == ["web1"]
    told = daemon.known["web1"]
    assert told["osparams_secret"] == {"password": "hush"}
    assert told["osparams_public"] == {"size": "1"} and told["osparams_private"] == {}
    env = told["helper"]["environment"]
    assert env["OSP_PASSWORD"] == "hush" and env["INSTANCE_REINSTALL"] == "1"
    assert (env["DISK_COUNT"], env["NIC_COUNT"]) == ("1", "1")
    assert (root / "var/lib/ganeti/helper/web1/image").read_bytes()[:4000] == b"boot" * 1000
    assert helper.status(GUEST) == {
        "running": True,
        "known": False,
        "contact": False,
        "started": False,
        "exit_code": None,
    }
    daemon.reports["web1"] = {
        "contact": 5.0,
        "started": True,
        "exit_code": 3,
        "log": "one\x1b[2J\ntwo\r\n\n",
    }
    assert helper.status(GUEST) == {
        "running": True,
        "known": True,
        "contact": True,
        "started": True,
        "exit_code": 3,
    }
    done = helper.stop(GUEST, "install")
    assert done["lines"] == ["one?[2J", "two"]
    assert Path(done["log_file"]).name.startswith("add-debian-web1-")
    assert Path(done["log_file"]).read_text() == "one?[2J\ntwo\n"
    assert hypervisor.of("fake").list_instances() == [] and daemon.known == {}
    assert left(root) == []
    assert helper.stop(GUEST, "install") == {"lines": [], "log_file": ""}
    assert not any(b"hush" in path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_the_helpers_own_interface_is_not_the_instances(root: Path, daemon: FakeDaemon) -> None:
    begin(root, own_nic=True)
    assert daemon.known["web1"]["helper"]["environment"]["NIC_COUNT"] == "0"
    assert daemon.known["web1"]["nics"][0]["ip"] == "169.254.0.7"


def test_zeroing_needs_neither_os_nor_interface(root: Path, daemon: FakeDaemon) -> None:
    begin(root, replace(GUEST, os="gone"), "zero")
    assert "OSP_PASSWORD" not in daemon.known["web1"]["helper"]["environment"]
    helper.stop(GUEST, "zero")
    begin(root, replace(GUEST, os="gone", nics=()), "zero")
    assert daemon.known == {} and hypervisor.of("fake").list_instances() == ["web1"]


@pytest.mark.parametrize(
    ("changes", "image", "fragment"),
    [
        ({"os": "none"}, "/helper.img", "does not exist"),
        ({}, "/missing.img", "No such file"),
        ({}, "/srv", "is not a file"),
        ({}, "/empty.img", "is empty"),
        ({}, "/odd.img", "no parameters colour"),
        ({}, "/broken.img", "cannot read"),
    ],
)
def test_a_start_that_fails_leaves_nothing(
    root: Path, daemon: FakeDaemon, changes: dict[str, Any], image: str, fragment: str
) -> None:
    for name in ("empty", "odd", "broken"):
        (root / f"{name}.img").write_bytes(b"" if name == "empty" else b"boot")
    (root / "odd.img.json").write_text('{"colour": "blue"}')
    (root / "broken.img.json").write_text("{")
    with pytest.raises(errors.GenericError, match=fragment):
        begin(root, replace(GUEST, **changes), image=image)
    assert left(root) == [] and daemon.known == {}
    assert hypervisor.of("fake").list_instances() == []


def test_a_trusted_os_is_refused(root: Path) -> None:
    definition = Path(paths.current().os_search_path[0]) / "debian"
    os.rename(definition / "create_untrusted", definition / "create")
    with pytest.raises(errors.OpExecError, match="is trusted"):
        begin(root)


def test_a_running_instance_is_left_alone(root: Path) -> None:
    lifecycle.start(GUEST, False, [])
    with pytest.raises(errors.HypervisorError, match="runs"):
        begin(root)
    assert hypervisor.of("fake").list_instances() == ["web1"]


@pytest.mark.parametrize("how", ["helper", "start", "shutdown"])
def test_a_helper_that_was_left_is_ended_by_what_comes_next(
    root: Path, daemon: FakeDaemon, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    begin(root)
    daemon.known["web1"]["old"] = True
    if how == "helper":
        begin(root)
        assert "old" not in daemon.known["web1"]
        assert "helper guest which an interrupted job has left" in caplog.text
    elif how == "start":
        lifecycle.start(GUEST, False, [])
        assert not helper_disk.exists("web1")
        assert "helper" not in daemon.known["web1"]  # described as itself
        assert hypervisor.of("fake").list_instances() == ["web1"]
    else:
        lifecycle.shutdown(GUEST, 100, [])
        assert left(root) == [] and daemon.known == {}
        assert hypervisor.of("fake").list_instances() == []


def test_an_image_which_is_not_raw_is_refused(root: Path) -> None:
    (root / "helper.img").write_bytes(b"QFI\xfb\0\0\0\3" + bytes(4096))
    with pytest.raises(errors.OpExecError, match="helper.img is an image of format qcow2.* be raw"):
        helper_disk.make("web1", "/helper.img")


def test_boot_parameters_stand_beside_the_image(root: Path) -> None:
    (root / "helper.img.json").write_text(
        json.dumps(
            {
                "kernel_path": "helper.vmlinux",
                "initrd_path": "/boot/initrd",
                "root_path": "/dev/vda",
            }
        )
    )
    made = helper_disk.make("web1", "/helper.img")
    assert made.disk.size == 1 and os.path.getsize(made.path) == 1 << 20
    guest = replace(
        GUEST,
        hvparams={
            "kernel_path": "/boot/own",
            "initrd_path": "",
            "root_path": "/dev/vda1",
            "boot_order": "network",
            "firmware": "uefi",
            "reboot_behavior": "reboot",
            "acpi": True,
        },
    )
    changed = helper.helper_instance(guest, made)
    assert changed.hvparams == {
        "kernel_path": f"{root}/helper.vmlinux",
        "initrd_path": "/boot/initrd",
        "root_path": "/dev/vda",
        "boot_order": "disk",
        "firmware": "bios",
        "reboot_behavior": "exit",
        "acpi": True,
    }
    assert [disk.name for disk in changed.disks_info] == ["helper", None]


@pytest.mark.parametrize(
    ("disk_type", "wanted"),
    [
        ("paravirtual", ["/dev/vdb", "/dev/vdc"]),
        ("ide", ["/dev/sdb", "/dev/sdc"]),
        ("scsi-hd", ["/dev/sdb", "/dev/sdc"]),
    ],
)
def test_disks_have_other_names_inside(disk_type: str, wanted: list[str]) -> None:
    env = helper.guest_environment(
        {"DISK_0_PATH": "/srv/x", "DISK_0_URI": "rbd:x", "DISK_1_PATH": "/srv/y", "A": "b"},
        disk_type,
        2,
    )
    assert env == {"A": "b", "DISK_0_PATH": wanted[0], "DISK_1_PATH": wanted[1]}


def test_a_guest_with_an_interface_is_described_when_it_starts(
    root: Path, daemon: FakeDaemon
) -> None:
    lifecycle.start(replace(GUEST, osparams={"size": "1"}), False, [])
    assert daemon.known["web1"]["osparams_public"] == {"size": "1"}
    lifecycle.shutdown(GUEST, 0, [])
    assert daemon.known == {}
    lifecycle.start(replace(GUEST, nics=()), False, [])
    assert daemon.known == {}


def test_a_guest_starts_without_its_metadata(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_description: object) -> None:
        raise errors.GenericError("no daemon")

    monkeypatch.setattr(metadata, "update", fail)
    lifecycle.start(GUEST, False, [])
    assert "will find no metadata: no daemon" in caplog.text
