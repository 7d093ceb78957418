"""Transactions and commits, and what happens when the disk says no."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path

import pytest

from fakes.config import commit
from ganeti import errors
from ganeti.config.index_keys import INSTANCE_NAME
from ganeti.config.text import ConfigText
from ganeti.configfile.files import write_config_file

from .samples import disk_of, group_of, instance_of
from .store_lab import EC, Disk, Nodes, config_of, parsed, until


def test_a_change_is_written_before_it_returns() -> None:
    disk = Disk()
    config = config_of(disk)
    before = config.snapshot()
    commit(config).instances.add(instance_of(1), [disk_of(1)], EC)
    assert config.snapshot() is not before
    assert len(before.instances) == 0
    written = parsed(disk.written[-1])
    assert written == config.snapshot()
    assert written.serial_no == before.serial_no + 1
    assert written.mtime == 2000.0
    instance = written.instances[instance_of(1).uuid]
    assert (instance.serial_no, instance.ctime, instance.mtime) == (1, 2000.0, 2000.0)


def test_the_text_is_what_the_codec_says_after_any_change() -> None:
    disk = Disk()
    config = config_of(disk)
    commit(config).instances.add(instance_of(1), [disk_of(1)], EC)
    commit(config).instances.add(instance_of(2), [], EC)
    commit(config).instances.mark(instance_of(1).uuid, "up")
    commit(config).instances.remove(instance_of(1).uuid)
    commit(config).groups.add(group_of(7))
    commit(config).ports.allocate()
    for text in disk.written:
        assert json.loads(text) == json.loads(
            b"".join(ConfigText(parsed(text)).render(parsed(text), ()))
        )
    assert parsed(disk.written[-1]) == config.snapshot()
    assert list(config.snapshot().instances) == [instance_of(2).uuid]


def test_an_exception_in_the_block_changes_nothing() -> None:
    disk = Disk()
    config = config_of(disk)
    before = config.snapshot()
    with pytest.raises(KeyError), config.transaction() as change:
        change.instances.add(instance_of(1), [disk_of(1)], EC)
        raise KeyError
    assert config.snapshot() is before
    assert disk.written == []


def test_no_change_no_write() -> None:
    disk = Disk()
    config = config_of(disk)
    with config.transaction() as change:
        assert change.data is config.snapshot()
    assert disk.written == []


def test_a_transaction_sees_its_own_changes_and_others_do_not() -> None:
    config = config_of(Disk())
    with config.transaction() as change:
        change.instances.add(instance_of(1), [disk_of(1)], EC)
        change.instances.mark(instance_of(1).uuid, "up")
        assert change.data.instances[instance_of(1).uuid].admin_state == "up"
        assert config.snapshot().instances == {}
    assert config.instance(instance_of(1).uuid).admin_state == "up"


def test_a_transaction_in_a_transaction_is_refused() -> None:
    config = config_of(Disk())
    with config.transaction(), pytest.raises(errors.ProgrammerError), config.transaction():
        pass


def test_a_full_disk_changes_nothing() -> None:
    disk = Disk()
    config = config_of(disk)
    commit(config).instances.add(instance_of(1), [disk_of(1)], EC)
    before = config.snapshot()
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(
        errors.ConfigurationError,
        match=r"cannot write config.data: No space left on device. Nothing was",
    ):
        commit(config).instances.mark(instance_of(1).uuid, "up")
    assert config.snapshot() is before
    disk.error = None
    commit(config).instances.set_disks_active(instance_of(1).uuid, True)
    written = parsed(disk.written[-1])
    assert written == config.snapshot()
    assert written.instances[instance_of(1).uuid].admin_state == "down"
    assert written.instances[instance_of(1).uuid].disks_active


def test_many_wait_for_one_write() -> None:
    disk = Disk()
    disk.gate = threading.Event()
    nodes = Nodes()
    config = config_of(disk, nodes)
    threads = [
        threading.Thread(
            target=commit(config).instances.add, args=(instance_of(number), [], EC), daemon=True
        )
        for number in range(2, 12)
    ]
    threads[0].start()
    until(disk.entered.is_set)
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(config._store._queue) == 9)
    assert len(config.snapshot().instances) == 0
    disk.gate.set()
    for thread in threads:
        thread.join()
    assert len(disk.written) == 2
    assert len(nodes.received) == 2
    assert len(config.snapshot().instances) == 10
    assert parsed(disk.written[-1]) == config.snapshot()


@pytest.mark.parametrize("fails_once", [False, True])
def test_what_was_built_on_a_lost_change_is_lost_with_it(fails_once: bool) -> None:
    disk = Disk()
    disk.fails_once = fails_once
    config = config_of(disk)
    commit(config).instances.add(instance_of(1), [disk_of(1)], EC)
    disk.gate = threading.Event()
    disk.entered.clear()
    disk.error = OSError(errno.EIO, "Input/output error")
    refused: list[str] = []

    def change(number: int) -> None:
        try:
            commit(config).instances.add(instance_of(number), [], EC)
        except errors.ConfigurationError as err:
            refused.append(str(err))

    threads = [threading.Thread(target=change, args=(number,), daemon=True) for number in (2, 3, 4)]
    threads[0].start()
    until(disk.entered.is_set)
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(config._store._queue) == 2)
    disk.gate.set()
    for thread in threads:
        thread.join()
    assert len(refused) == 3
    assert list(config.snapshot().instances) == [instance_of(1).uuid]
    disk.gate, disk.error = None, None
    commit(config).instances.add(instance_of(5), [], EC)
    assert parsed(disk.written[-1]) == config.snapshot()
    assert set(config.snapshot().instances) == {instance_of(1).uuid, instance_of(5).uuid}


def test_the_file_is_written_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    write_config_file(str(path), b"{}")
    assert path.read_bytes() == b"{}"
    assert path.stat().st_mode & 0o777 == 0o640


def test_values_of_a_lost_change_are_free() -> None:
    disk = Disk()
    config = config_of(disk)
    disk.error, disk.fails_once = OSError(errno.EIO, "Input/output error"), True
    with pytest.raises(errors.ConfigurationError):
        commit(config).instances.add(instance_of(3), [], EC)
    assert not config._store._holds(INSTANCE_NAME, instance_of(3).name)
    commit(config).instances.add(instance_of(3), [], EC)
    assert config._store._holds(INSTANCE_NAME, instance_of(3).name)


def test_values_of_an_abandoned_transaction_are_free() -> None:
    config = config_of(Disk())
    with pytest.raises(KeyError), config.transaction() as change:
        change.instances.add(instance_of(3), [], EC)
        raise KeyError
    assert not config._store._holds(INSTANCE_NAME, instance_of(3).name)
