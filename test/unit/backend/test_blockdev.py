"""Calls about block devices."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.backend.storage import blockdev
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths
from ganeti.storage.file import FileDevice
from ganeti.wire import calls
from ganeti.wire import errors as wire_errors

DIRECTORY = "/srv/ganeti/file-storage/web1"
MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with paths.override(paths.Paths(str(tmp_path))):
        blockdev.file_storage_dir_create(DIRECTORY)
        yield tmp_path


def disk(index: int = 0) -> Disk:
    return Disk(
        dev_type="file",
        logical_id=("loop", f"{DIRECTORY}/disk{index}"),
        size=4,
        uuid=f"u{index}",
        iv_name=f"disk/{index}",
    )


def guest(*disks: Disk) -> FilledInstance:
    return FilledInstance(
        name="web1",
        primary_node="n",
        os="tiny",
        hypervisor="fake",
        hvparams={},
        beparams={},
        admin_state="up",
        admin_state_source="admin",
        disks_active=True,
        uuid="i",
        serial_no=1,
        disks_info=disks,
    )


def links(root: Path) -> dict[str, str]:
    directory = root / "var/run/ganeti/instance-disks"
    return {path.name: os.readlink(path) for path in directory.iterdir()}


def notes(root: Path) -> list[str]:
    directory = root / "var/run/ganeti/bdev-cache"
    return sorted(path.read_text() for path in directory.iterdir()) if directory.exists() else []


def test_life(root: Path) -> None:
    path = f"{root}{DIRECTORY}/disk0"
    assert blockdev.find(disk()) is None
    assert blockdev.create(disk(), 4, "web1", True, "info", False) == path
    assert notes(root) == ["web1 primary disk/0\n"]
    found = blockdev.find(disk())
    assert found is not None and found.dev_path == path
    for _ in range(2):
        link = f"{root}/var/run/ganeti/instance-disks/web1:0"
        assert blockdev.assemble(disk(), guest(disk()), True, 0) == [path, link, None]
    assert links(root) == {"web1:0": path}
    assert blockdev.dimensions([disk(), disk(1)]) == [[4 * MIB, None], None]
    assert [one.dev_path for one in blockdev.mirror_status([disk()])] == [path]
    blockdev.grow(disk(), 2, False, True, False)
    blockdev.set_info(disk(), "text")
    blockdev.close_disks("web1", [disk()])
    assert links(root) == {}
    blockdev.open_disks("web1", [disk()], True)
    assert links(root) == {"web1:0": path}
    blockdev.shutdown(disk())
    assert links(root) == {} and notes(root) == []
    blockdev.remove(disk())
    blockdev.remove(disk())
    blockdev.shutdown(disk())
    assert blockdev.find(disk()) is None
    blockdev.file_storage_dir_remove(DIRECTORY)


def test_a_disk_which_cannot_be_examined_does_not_hide_the_others(root: Path) -> None:
    blockdev.create(disk(), 4, "web1", True, "info", False)
    away = replace(disk(1), logical_id=("loop", f"{DIRECTORY}-away/disk1"))
    found = blockdev.dimensions([away, disk(), disk(1)])
    assert isinstance(found[0], errors.BlockDeviceError)
    assert found[1:] == [[4 * MIB, None], None]
    wire = json.loads(json.dumps(calls.BLOCKDEV_GETDIMENSIONS.result.encode(found)))
    failed, *rest = calls.BLOCKDEV_GETDIMENSIONS.result.decode(wire)
    assert rest == found[1:]
    assert failed.text == str(found[0]) and isinstance(failed.cause, errors.BlockDeviceError)


@pytest.mark.parametrize("call", [blockdev.find, lambda disk: _one_dimension(disk)])
def test_what_cannot_be_examined_is_not_absent(root: Path, call: Callable[[Disk], object]) -> None:
    assert call(disk()) in (None, [None])
    blockdev.file_storage_dir_remove(DIRECTORY)
    with pytest.raises(errors.BlockDeviceError, match="it is not known whether it exists"):
        call(disk())


def _one_dimension(disk: Disk) -> object:
    """The answer for one disk; its failure is raised."""
    (found,) = blockdev.dimensions([disk])
    if isinstance(found, Exception):
        raise found
    return found


def test_a_device_is_not_good_when_nobody_knows_what_is_below_it(root: Path) -> None:
    blockdev.create(disk(), 4, "web1", True, "info", False)
    away = replace(disk(1), logical_id=("loop", f"{DIRECTORY}-away/disk1"))
    for below, state in ((disk(1), 4), (away, 3)):
        (found,) = blockdev.mirror_status([replace(disk(), children=(below,))])
        assert found.is_degraded and found.ldisk_status == state


def test_a_refused_creation_says_that_nothing_was_made(root: Path) -> None:
    blockdev.create(disk(), 4, "web1", True, "info", False)
    with pytest.raises(errors.DeviceCreationError, match="exists already") as caught:
        blockdev.create(disk(), 4, "web1", True, "info", False)
    assert caught.value.created_devices == []
    assert wire_errors.decode(wire_errors.encode(caught.value)).created_devices == []  # type: ignore[union-attr]


def test_a_broken_creation_says_what_is_left(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FileDevice, *args: object) -> None:
        raise self.fail("is broken")

    monkeypatch.setattr(FileDevice, "set_info", fail)
    with pytest.raises(errors.DeviceCreationError, match="is broken") as caught:
        blockdev.create(disk(), 4, "web1", True, "info", False)
    assert caught.value.created_devices == []
    assert blockdev.find(disk()) is None
    monkeypatch.setattr(FileDevice, "remove", fail)
    with pytest.raises(errors.DeviceCreationError, match="cannot be removed again") as caught:
        blockdev.create(disk(), 4, "web1", True, "info", False)
    path = f"{root}{DIRECTORY}/disk0"
    assert wire_errors.decode(wire_errors.encode(caught.value)).created_devices == [path]  # type: ignore[union-attr]


def test_secondary_gets_no_link(root: Path) -> None:
    blockdev.create(disk(), 4, "web1", False, "", False)
    assert notes(root) == []
    assert blockdev.assemble(disk(), guest(disk()), False, 0) == [True, True, None]
    assert notes(root) == []
    assert not (root / "var/run/ganeti/instance-disks").exists()


@pytest.mark.parametrize(
    "verb",
    [
        lambda: blockdev.assemble(disk(), guest(disk()), True, 0),
        lambda: blockdev.mirror_status([disk()]),
        lambda: blockdev.grow(disk(), 1, False, True, False),
        lambda: blockdev.open_disks("web1", [disk()], True),
        lambda: blockdev.set_info(disk(), "x"),
    ],
)
def test_missing_device(root: Path, verb: object) -> None:
    with pytest.raises(errors.BlockDeviceError, match="disk0"):
        verb()  # type: ignore[operator]


def test_half_made_device_is_removed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FileDevice, text: str) -> None:
        raise self.fail("no info today")

    monkeypatch.setattr(FileDevice, "set_info", fail)
    with pytest.raises(errors.BlockDeviceError, match="no info today"):
        blockdev.create(disk(), 4, "web1", True, "info", False)
    assert list((root / DIRECTORY[1:]).iterdir()) == []


def test_existing_device_survives_a_second_create(root: Path) -> None:
    blockdev.create(disk(), 4, "web1", True, "", False)
    with pytest.raises(errors.BlockDeviceError, match="exists already"):
        blockdev.create(disk(), 4, "web1", True, "", False)
    assert blockdev.find(disk()) is not None


def test_renames_go_on_after_a_failure(root: Path) -> None:
    blockdev.create(disk(1), 4, "web1", True, "", False)
    new = [("loop", f"{DIRECTORY}/new{index}") for index in (0, 1)]
    with pytest.raises(errors.BlockDeviceError, match="disk0.*cannot rename"):
        blockdev.rename([(disk(0), new[0]), (disk(1), new[1])])
    assert [path.name for path in (root / DIRECTORY[1:]).iterdir()] == ["new1"]
    assert notes(root) == []


def test_links_of_other_instances_stay(root: Path) -> None:
    for name in ("web1", "web1.example", "web"):
        blockdev.make_link(name, 0, "/dev/null")
    blockdev.make_link("web1", 11, "/dev/null")
    blockdev.make_link("web1", 0, "/dev/zero")
    assert links(root)["web1:0"] == "/dev/zero"
    blockdev.remove_links("web1")
    assert set(links(root)) == {"web1.example:0", "web:0"}
    with pytest.raises(errors.BlockDeviceError, match="is not the name of an instance"):
        blockdev.make_link("../x", 0, "/dev/null")


def test_life_of_several(root: Path) -> None:
    both = [disk(0), disk(1)]
    paths_of = [f"{root}{DIRECTORY}/disk{index}" for index in (0, 1)]
    assert blockdev.create_multi(both, "web1", True, "info", False) == paths_of
    found = blockdev.assemble_multi(both, guest(*both), True, [0, 3])
    assert [one[0] for one in found if isinstance(one, list)] == paths_of
    assert links(root) == {"web1:0": paths_of[0], "web1:3": paths_of[1]}
    assert blockdev.assemble_multi(both, guest(*both), False, [0, 3]) == [[True, True, None]] * 2
    states = blockdev.find_multi([*both, disk(2)])
    assert [getattr(one, "dev_path", one) for one in states] == [*paths_of, None]
    assert blockdev.set_info_multi(both, "text") == [None, None]
    assert blockdev.shutdown_multi(both) == [None, None]
    assert links(root) == {}
    assert blockdev.remove_multi([*both, disk(2)]) == [None] * 3
    assert blockdev.find_multi(both) == [None, None]


def test_one_of_several_which_fails_does_not_keep_the_others(root: Path) -> None:
    three = [disk(index) for index in range(3)]
    blockdev.create(three[1], 4, "web1", True, "info", False)
    first, second, third = blockdev.create_multi(three, "web1", True, "info", False)
    assert first and third and isinstance(second, errors.DeviceCreationError)
    assert second.created_devices == []
    blockdev.remove(three[1])
    first, second, third = blockdev.assemble_multi(three, guest(*three), True, [0, 1, 2])
    assert isinstance(second, errors.BlockDeviceError)
    assert set(links(root)) == {"web1:0", "web1:2"}


def test_all_are_assembled_before_the_first_is_opened(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mirrored disks connect to their peers at the same time."""
    both = [disk(0), disk(1)]
    blockdev.create_multi(both, "web1", True, "info", False)
    done: list[str] = []
    monkeypatch.setattr(FileDevice, "assemble", lambda self: done.append("assemble"))
    monkeypatch.setattr(FileDevice, "open", lambda self, **_: done.append("open"))
    blockdev.assemble_multi(both, guest(*both), True, [0, 1])
    assert done == ["assemble", "assemble", "open", "open"]
