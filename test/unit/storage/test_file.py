"""Disks in files."""

from __future__ import annotations

import errno
import os
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ganeti import errors, storage
from ganeti.objects.disk import Disk
from ganeti.platform import paths
from ganeti.storage import file
from ganeti.utils import shared_dir

DIRECTORY = "/srv/ganeti/file-storage/web1"
MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with paths.override(paths.Paths(str(tmp_path))):
        file.create_dir(DIRECTORY)
        yield tmp_path


def disk(name: str = "disk0", **changes: object) -> Disk:
    made = Disk(dev_type="file", logical_id=("loop", f"{DIRECTORY}/{name}"), size=4, uuid="u")
    return replace(made, **changes)  # type: ignore[arg-type]


def local(root: Path, name: str = "disk0") -> Path:
    return root / DIRECTORY[1:] / name


def test_life(root: Path) -> None:
    device = storage.device(disk())
    assert not device.exists()
    device.create(4)
    path = local(root)
    assert device.path == device.unique_id == str(path)
    assert path.stat().st_size == 4 * MIB
    assert path.stat().st_blocks == 0  # sparse
    assert path.stat().st_mode & 0o777 == 0o640
    device.assemble()
    device.open()
    device.close()
    assert device.sync_status().dev_path == str(path)
    assert device.sync_status().is_degraded is False
    assert device.dimensions() == (4 * MIB, None)
    device.grow(3, dry_run=True, backing_store=True)
    device.grow(3, dry_run=False, backing_store=False)
    assert device.size_bytes() == 4 * MIB
    device.grow(3, dry_run=False, backing_store=True)
    assert device.size_bytes() == 7 * MIB
    device.rename(("loop", f"{DIRECTORY}/other"))
    assert device.path == str(local(root, "other")) and device.exists()
    device.rename(("loop", f"{DIRECTORY}/other"))
    device.shutdown()
    device.remove()
    device.remove()
    assert list(local(root).parent.iterdir()) == []


def test_nothing_is_overwritten(root: Path) -> None:
    local(root).write_text("precious")
    local(root, "other").write_text("other")
    device = storage.device(disk())
    with pytest.raises(errors.BlockDeviceError, match="exists already"):
        device.create(4)
    with pytest.raises(errors.BlockDeviceError, match="other, which exists"):
        device.rename(("loop", f"{DIRECTORY}/other"))
    assert local(root).read_text() == "precious"
    assert local(root, "other").read_text() == "other"


def test_missing_or_no_file(root: Path) -> None:
    device = storage.device(disk())
    for verb in (device.assemble, device.dimensions):
        with pytest.raises(errors.BlockDeviceError, match="cannot be used: No such file"):
            verb()
    local(root).mkdir()
    with pytest.raises(errors.BlockDeviceError, match="not a regular file"):
        device.assemble()
    with pytest.raises(errors.BlockDeviceError, match="cannot remove the file"):
        device.remove()


def test_a_file_is_absent_only_from_a_directory_which_is_there(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert storage.device(disk()).exists() is False
    local(root).parent.rmdir()
    with pytest.raises(errors.BlockDeviceError, match="it is not known.*there is no directory"):
        storage.device(disk()).exists()
    # A removal which is repeated finds the directory above.
    storage.device(disk()).remove()
    local(root).parent.parent.rmdir()
    with pytest.raises(errors.BlockDeviceError, match="it is not known.*Mount"):
        storage.device(disk()).remove()

    def broken(path: str) -> os.stat_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    device = storage.device(disk())
    monkeypatch.setattr(os, "stat", broken)
    with pytest.raises(errors.BlockDeviceError, match="it is not known.*Stale file handle"):
        device.exists()


def test_a_directory_in_its_place_is_no_absence(root: Path) -> None:
    local(root).mkdir()
    with pytest.raises(errors.BlockDeviceError, match="not a regular file"):
        storage.device(disk()).exists()


def test_create_fails_without_directory_or_space(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(errors.BlockDeviceError, match="cannot create the file: No such file"):
        storage.device(disk("missing/disk0")).create(4)

    def full(fd: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(errors.BlockDeviceError, match="to 4 MiB: No space left on device"):
        storage.device(disk()).create(4)
    assert not local(root).exists()


@pytest.mark.parametrize("size", [0, -1, 1 << 60])
def test_impossible_sizes(root: Path, size: int) -> None:
    with pytest.raises(errors.BlockDeviceError, match="is not possible"):
        storage.device(disk()).create(size)
    assert not local(root).exists()
    storage.device(disk()).create(1)
    with pytest.raises(errors.BlockDeviceError, match="cannot grow by -1|is not possible"):
        storage.device(disk()).grow(-1 if size <= 0 else size, dry_run=True, backing_store=True)


def test_what_files_cannot(root: Path) -> None:
    device = storage.device(disk())
    with pytest.raises(errors.BlockDeviceError, match="physical disk of their own"):
        device.create(4, exclusive=True)
    with pytest.raises(errors.BlockDeviceError, match="have no snapshots"):
        device.snapshot("s", 4)


@pytest.mark.parametrize(
    "logical_id, words",
    [
        (("loop",), "is not .driver, path."),
        (("loop", 5), "is not .driver, path."),
        (("floppy", "/srv/x"), "file driver 'floppy' is not known"),
    ],
)
def test_wrong_ids(root: Path, logical_id: tuple[object, ...], words: str) -> None:
    with pytest.raises(errors.BlockDeviceError, match=words):
        storage.device(disk(logical_id=logical_id))


def test_unsupported_types() -> None:
    with pytest.raises(errors.BlockDeviceError, match="type 'tape' are not supported"):
        storage.device(disk(dev_type="tape"))


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/etc",
        "/etc/ganeti/x",
        "/bin/x",
        "/usr/lib64/disk",
        "/usr/local/sbin",
        "/root/x",
        "/proc/1/mem",
        "/dev/sda",
        "/home/user/disk",
        "relative/disk",
        "/srv/../etc/shadow",
        "/srv//x",
        "",
    ],
)
def test_forbidden_places(root: Path, path: str) -> None:
    with pytest.raises(errors.FileStoragePathError, match="system directory|not absolute"):
        file.check_acceptable(path)
    with pytest.raises(errors.FileStoragePathError):
        file.create_dir(path)
    with pytest.raises(errors.FileStoragePathError):
        storage.device(disk(logical_id=("loop", path)))


@pytest.mark.parametrize(
    "path",
    ["//etc/passwd", "//srv/ganeti/x", "/srv/ganeti/x\0", "/srv/ganeti/x\n", "/opt/x", "/srv/x"],
)
def test_places_which_nobody_has_allowed(root: Path, path: str) -> None:
    """Without a list of the administrator only the default directories may hold disks."""
    with pytest.raises(errors.FileStoragePathError):
        file.check_acceptable(path)


def test_default_places(root: Path) -> None:
    for path in ("/srv/ganeti/file-storage/web1", "/srv/ganeti/shared-file-storage/web1"):
        file.check_acceptable(path)


def test_list_of_allowed_directories(root: Path) -> None:
    listing = root / "etc/ganeti/file-storage-paths"
    listing.parent.mkdir(parents=True)
    listing.write_text(f"# comment\n\n/srv/one/\n{root}/srv/two\nrelative\n/etc\n")
    for path in ("/srv/one", "/srv/one/disk", "/srv/two/disk", f"{root}/srv/one/disk"):
        file.check_acceptable(paths.current().to_virtual(path))
    for path in ("/srv/onemore/disk", "/srv", "/etc/disk", "/other"):
        with pytest.raises(errors.FileStoragePathError):
            file.check_acceptable(path)
    listing.write_text("")
    with pytest.raises(errors.FileStoragePathError, match="not below a directory listed"):
        file.check_acceptable("/srv/one")


def test_a_directory_goes_with_the_marks_of_an_interrupted_comparison(root: Path) -> None:
    file.create_dir(DIRECTORY)
    directory = local(root).parent
    shared_dir.mark(str(directory), "token", "one")
    shared_dir.mark(str(directory), "token", "other")
    local(root).touch()
    with pytest.raises(errors.FileStoragePathError, match="cannot remove .*not empty"):
        file.remove_dir(DIRECTORY)
    # They may belong to a comparison which goes on.
    assert len(os.listdir(directory)) == 3
    local(root).unlink()
    file.remove_dir(DIRECTORY)
    assert not directory.exists()


def test_directories(root: Path) -> None:
    file.create_dir(DIRECTORY)
    local(root).touch()
    with pytest.raises(errors.FileStoragePathError, match="cannot remove .*not empty"):
        file.remove_dir(DIRECTORY)
    file.rename_dir(DIRECTORY, f"{DIRECTORY}-new")
    file.rename_dir(DIRECTORY, f"{DIRECTORY}-new")  # done already
    file.create_dir(DIRECTORY)
    with pytest.raises(errors.FileStoragePathError, match="web1-new exists"):
        file.rename_dir(DIRECTORY, f"{DIRECTORY}-new")
    file.remove_dir(DIRECTORY)
    file.remove_dir(DIRECTORY)
    with pytest.raises(errors.FileStoragePathError, match="cannot rename"):
        file.rename_dir("/srv/ganeti/missing", "/srv/ganeti/other")
    local(root).parent.touch()
    with pytest.raises(errors.FileStoragePathError, match="cannot create the directory"):
        file.create_dir(DIRECTORY)


def test_space(root: Path) -> None:
    found = file.space(DIRECTORY)
    assert 0 <= found["storage_free"] <= found["storage_size"]
    with pytest.raises(errors.FileStoragePathError, match="cannot measure"):
        file.space("/srv/missing")


def test_a_growth_which_the_file_system_cannot_hold_changes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of ext4 has at most 16 TiB."""
    device = storage.device(disk())
    device.create(4)
    truncate, most = os.truncate, 16 << 40

    def limited(path: str | int, size: int) -> None:
        if size > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        truncate(path, 1 << 20 if isinstance(path, int) else size)

    monkeypatch.setattr(os, "truncate", limited)
    device.grow((16 << 20) - 4, dry_run=True, backing_store=True)
    with pytest.raises(errors.BlockDeviceError, match="cannot have a file of 16777217 MiB"):
        device.grow((16 << 20) - 3, dry_run=True, backing_store=True)
    assert device.size_bytes() == 4 * MIB
    assert [path.name for path in local(root).parent.iterdir()] == ["disk0"]


def test_the_space_of_a_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one which will be made; the space of what goes first counts as free."""
    top = root / "space"
    top.mkdir()
    # What other programs of this machine write meanwhile must not matter.
    monkeypatch.setattr(
        os, "statvfs", lambda _path: types.SimpleNamespace(f_frsize=1, f_bavail=7, f_blocks=8)
    )
    # A quarter of so small a file system is kept free.
    assert file.space_for(str(top), 0) == file.space_for(str(top / "later" / "still"), 0) == 5
    (top / "web~new.1").mkdir()
    (top / "web~new.1" / "disk").write_bytes(b"x" * 100_000)
    (top / "web").write_bytes(b"x" * 100_000)
    assert 100_000 <= file.space_for(str(top), 0, [str(top / "web~new")]) - 5 < 200_000
    assert sorted(path.name for path in top.iterdir()) == ["web", "web~new.1"]


@pytest.mark.parametrize(
    ("size", "free", "sparse", "tried"), [(5, 5, False, 5), (6, 5, False, 0), (6, 5, True, 6)]
)
def test_a_largest_file_is_tried(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    free: int,
    sparse: bool,
    tried: int,
) -> None:
    sizes = []
    monkeypatch.setattr(
        os, "statvfs", lambda _path: types.SimpleNamespace(f_frsize=1, f_bavail=free, f_blocks=0)
    )
    monkeypatch.setattr(os, "truncate", lambda _fd, wanted: sizes.append(wanted))
    assert file.space_for(str(root), size, sparse=sparse) == free
    assert sizes == [tried]


def test_a_file_which_ends_within_a_mib_grows_to_whole_ones(root: Path) -> None:
    """Its size in the configuration counts the incomplete MiB."""
    device = storage.device(disk())
    device.create(8)
    os.truncate(device.path, 8 * MIB + MIB // 2)
    device.grow(1, dry_run=False, backing_store=True)
    assert device.size_bytes() == 10 * MIB
