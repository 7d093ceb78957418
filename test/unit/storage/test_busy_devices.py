"""A device which something holds for some seconds is removed when it is free; no other failure
is repeated.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.backend.storage import blockdev
from ganeti.objects import Disk
from ganeti.storage import base, file
from ganeti.storage import device as device_of
from ganeti.storage.drbd import device as drbd
from ganeti.storage.ext.device import ExtDevice
from ganeti.storage.lvm import facts
from ganeti.storage.lvm.device import LogicalVolumeDevice
from ganeti.storage.rbd import RbdDevice
from ganeti.utils import process, retry
from ganeti.utils.process import Completed

from .drbd_kernel import Kernel, mirrored

IMAGE = Disk(dev_type="rbd", logical_id=("rbd", "u1.rbd.disk0"), size=1024, params={"pool": "p"})
VOLUME = Disk(dev_type="plain", logical_id=("xenvg", "web"), size=1024)
FOREIGN = Disk(dev_type="ext", logical_id=("pv", "v1"), size=1024)


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now += pause_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Patience with a busy device, and a clock which needs no time."""
    made = Clock()
    until = retry.until

    def patient(fn: Callable[[], Any], **options: Any) -> Any:
        return until(fn, **options, clock=lambda: made.now, sleep=made.sleep)

    monkeypatch.setattr(base.retry, "until", patient)
    monkeypatch.setattr(base, "BUSY_S", 30.0)
    return made


class Program:
    """Ends with an exit code until it has run some times."""

    def __init__(self, clock: Clock, free_at_s: float, code: int) -> None:
        self._clock, self._free_at_s, self._code = clock, free_at_s, code
        self.runs = 0

    def end(self) -> int:
        self.runs += 1
        return 0 if self._clock.now >= self._free_at_s else self._code


def ended(code: int, output: str = "") -> Completed:
    return Completed((), code, output, "held" if code else "", None)


def busy_image(monkeypatch: pytest.MonkeyPatch, verb: str, program: Program) -> None:
    def run(words: list[str], **_options: Any) -> Completed:
        if words[1] == verb:
            return ended(program.end())
        if words[1] == "showmapped":
            row = {"pool": "p", "name": IMAGE.logical_id[1], "snap": "-", "device": "/dev/rbd0"}
            mapped = verb == "unmap" and not program.runs
            return ended(0, json.dumps([row] if mapped else []))
        return ended(0, '{"size": 1073741824}')

    monkeypatch.setattr(process, "run", run)


@pytest.mark.parametrize("verb", ["rm", "unmap"])
@pytest.mark.parametrize("free_at_s", [0.0, 0.1, 12.0, 29.0])
def test_an_image_with_watchers(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, verb: str, free_at_s: float
) -> None:
    program = Program(clock, free_at_s, errno.EBUSY)
    busy_image(monkeypatch, verb, program)
    RbdDevice(IMAGE).remove()
    assert free_at_s <= clock.now < free_at_s + 2.5
    assert program.runs == len(clock.pauses) + 1


@pytest.mark.parametrize("verb", ["rm", "unmap"])
def test_an_image_which_stays_in_use(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    busy_image(monkeypatch, verb, Program(clock, 1e9, errno.EBUSY))
    with pytest.raises(errors.BlockDeviceError, match="device p/u1.rbd.disk0: cannot be"):
        RbdDevice(IMAGE).remove()
    assert clock.now == pytest.approx(30.0)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTEMPTY, 22])
def test_another_failure_of_an_image_is_not_repeated(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    program = Program(clock, 1e9, code)
    busy_image(monkeypatch, "rm", program)
    with pytest.raises(errors.BlockDeviceError, match="cannot be removed"):
        RbdDevice(IMAGE).remove()
    assert program.runs == 1


def busy_volume(monkeypatch: pytest.MonkeyPatch, program: Program) -> None:
    monkeypatch.setattr(facts.Lvm, "change", lambda *args, **options: ended(program.end()))
    monkeypatch.setattr(LogicalVolumeDevice, "exists", lambda self: True)
    monkeypatch.setattr(blockdev, "_known_path", lambda device: "/dev/xenvg/web")
    monkeypatch.setattr(blockdev, "_forget_owner", lambda path: None)
    monkeypatch.setattr(blockdev.leftover, "take_down", lambda path: False)


def test_a_volume_which_udev_holds(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(clock, 3.0, 5)
    busy_volume(monkeypatch, program)
    blockdev.remove(VOLUME)
    assert program.runs > 3 and 3.0 <= clock.now < 5.0


def test_a_volume_which_stays_in_use(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    busy_volume(monkeypatch, Program(clock, 1e9, 5))
    with pytest.raises(errors.BlockDeviceError, match="cannot be removed"):
        blockdev.remove(VOLUME)
    assert clock.now == pytest.approx(30.0)


def test_a_new_volume_is_removed_again_although_udev_holds_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A creation which failed leaves nothing behind."""
    program = Program(clock, 2.0, 5)
    busy_volume(monkeypatch, program)
    monkeypatch.setattr(LogicalVolumeDevice, "create", lambda self, size, **options: None)

    def fails(self: Any, *_args: Any) -> None:
        raise self.fail("cannot be activated")

    monkeypatch.setattr(LogicalVolumeDevice, "set_info", fails)
    monkeypatch.setattr(LogicalVolumeDevice, "assemble", fails)
    with pytest.raises(errors.DeviceCreationError, match="cannot be activated") as caught:
        blockdev.create(VOLUME, 1024, "web1", True, "info", False)
    assert not caught.value.created_devices
    assert program.runs > 2


def test_the_scripts_of_a_provider_are_repeated(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts: list[str] = []

    def script(self: ExtDevice, name: str) -> None:
        scripts.append(name)
        if clock.now < 1.0:
            raise self.fail(f"script {name} failed: dataset is busy")

    monkeypatch.setattr(ExtDevice, "_script", script)
    device_of(FOREIGN).shutdown()
    device_of(FOREIGN).remove()
    assert set(scripts[:-1]) == {"detach"} and scripts[-1] == "remove" and len(scripts) > 3


def test_a_mirrored_device_which_a_program_has_open(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel()
    kernel.ours()
    monkeypatch.setattr(drbd.process, "run", kernel.run)
    monkeypatch.setattr(drbd.status, "loaded", lambda: True)
    monkeypatch.setattr(drbd.status, "version", lambda: (8, 4, 11))
    state = drbd.parse.parse_proc(kernel.state())[0]
    monkeypatch.setattr(
        drbd.status, "minor", lambda number: state if kernel.data is not None else None
    )
    kernel.failing["down"] = "State change failed: Device is held open by someone"
    sleep = clock.sleep

    def closes(pause_s: float) -> None:
        sleep(pause_s)
        if clock.now > 1.0:
            kernel.failing.clear()

    monkeypatch.setattr(clock, "sleep", closes)
    drbd.DrbdDevice(mirrored()).remove()
    assert kernel.data is None and kernel.verbs().count("down") > 2


@pytest.mark.parametrize(("name", "waits"), [(".nfs0001", True), ("disk1", False)])
def test_a_directory_with_a_file_which_nfs_keeps(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, waits: bool
) -> None:
    directory = tmp_path / "web"
    directory.mkdir()
    (directory / name).touch()
    monkeypatch.setattr(file, "_local", lambda path: path)
    sleep = clock.sleep

    def closes(pause_s: float) -> None:
        sleep(pause_s)
        if clock.now > 5.0:
            (directory / name).unlink(missing_ok=True)

    monkeypatch.setattr(clock, "sleep", closes)
    if waits:
        file.remove_dir(str(directory))
        assert not os.path.exists(directory)
    else:
        with pytest.raises(errors.FileStoragePathError, match="not empty"):
            file.remove_dir(str(directory))
        assert clock.pauses == []
