"""The file on the master: a journal for a large one, and whole files in all other cases."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.config import Config
from ganeti.config.api import load
from ganeti.config.local_file import LocalFile
from ganeti.config.store import ConfigStore
from ganeti.config.text import ConfigText, Pieces
from ganeti.configfile import files
from ganeti.objects import ConfigData, updated

from .samples import disk_of, instance_of, small_cluster


@pytest.fixture(autouse=True)
def small_files_have_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1)


def _cluster(count: int = 300) -> ConfigData:
    made = [instance_of(number) for number in range(2, count)]
    disks = [disk_of(number) for number in range(2, count)]
    return dataclasses.replace(
        small_cluster(),
        instances={one.uuid: one for one in made},
        disks={one.uuid: one for one in disks},
    )


def _store(path: str, data: ConfigData) -> ConfigStore:
    files.write_config_file(path, ConfigText(data).render(data, ()))
    store = ConfigStore(LocalFile(path, change=files.change, change_from_bytes=1), data)
    store.adopt_copies()
    return store


def _tag(store: ConfigStore, tag: str) -> None:
    with store.transaction() as change:
        cluster = change.data.cluster
        change.cluster.update(updated(cluster, tags=(*cluster.tags, tag)))


def test_changes_go_to_the_journal(tmp_path: Path) -> None:
    path = str(tmp_path / "config.data")
    data = _cluster()
    store = _store(path, data)
    before = Path(path).read_bytes()
    for number in range(5):
        _tag(store, f"t{number}")
        with store.transaction() as change:
            change.instances.mark(instance_of(50 + number).uuid, "up")
    assert Path(path).read_bytes() == before
    assert Path(files.journal_of(path)).stat().st_size < len(before) / 4
    assert load(path)[0] == store.snapshot()
    # A master which starts reads the journal, and goes on.
    again = Config.open(path, change=files.change)
    assert again.snapshot() == store.snapshot()


def test_the_first_change_after_a_start_needs_the_same_file(tmp_path: Path) -> None:
    path = str(tmp_path / "config.data")
    data = _cluster()
    store = _store(path, data)
    files.write_config_file(path, b"{}")
    _tag(store, "a")
    assert not os.path.exists(files.journal_of(path))
    assert load(path)[0] == store.snapshot()
    other = ConfigStore(LocalFile(path, change=files.change, change_from_bytes=1), data)
    _tag(other, "b")
    assert not os.path.exists(files.journal_of(path))
    assert load(path)[0] == other.snapshot()


def test_a_file_changed_by_others_is_written_as_a_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "config.data")
    store = _store(path, _cluster())
    _tag(store, "a")
    assert os.path.exists(files.journal_of(path))
    with open(path, "ab") as stream:
        stream.write(b" ")
    _tag(store, "b")
    assert "is not what was written last (it has another length or end)" in caplog.text
    assert not os.path.exists(files.journal_of(path))
    assert load(path)[0] == store.snapshot()


def test_a_small_file_is_written_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "JOURNAL_FROM_BYTES", 1 << 20)
    path = str(tmp_path / "config.data")
    data = small_cluster()
    files.write_config_file(path, ConfigText(data).render(data, ()))
    store = ConfigStore(LocalFile(path, change=files.change), data)
    store.adopt_copies()
    for tag in ("a", "b"):
        _tag(store, tag)
        assert os.listdir(tmp_path) == ["config.data"]


def test_redistribution_writes_a_whole_file_next(tmp_path: Path) -> None:
    path = str(tmp_path / "config.data")
    store = _store(path, _cluster())
    _tag(store, "a")
    store.redistribute()
    _tag(store, "b")
    assert os.listdir(tmp_path) == ["config.data"]
    assert load(path)[0] == store.snapshot()


def test_a_refused_change_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "config.data")
    store = _store(path, _cluster())
    _tag(store, "a")
    before = store.snapshot()

    def refuse(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with pytest.raises(errors.ConfigurationError, match=r"No space left.*Nothing was changed"):
            _tag(store, "b")
    assert store.snapshot() == before == load(path)[0]
    _tag(store, "c")
    assert load(path)[0].cluster.tags == (*before.cluster.tags, "c")


@pytest.mark.parametrize("wrong", [lambda: False, lambda: int("x")])
def test_a_change_which_does_not_fit_is_replaced_by_the_whole(wrong: Callable[[], bool]) -> None:
    written: list[Pieces] = []
    file = LocalFile("x", lambda _path, text: written.append(text), lambda *_args: wrong(), 1)
    for text in ((b"a" * 100, b"1"), (b"a" * 100, b"2"), (b"a" * 100, b"3")):
        file.write(text)
        assert written[-1] == text


def test_a_large_change_is_written_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Pieces] = []
    changed: list[object] = []

    def change(*args: object) -> bool:
        changed.append(args)
        return True

    file = LocalFile("x", lambda _path, text: written.append(text), change, 1)
    file.write((b"a" * 100, b"1"))
    file.write((b"a" * 100, b"2"))
    assert (len(written), len(changed)) == (1, 1)
    file.write((b"b" * (1 << 20), b"3"))
    assert (len(written), len(changed)) == (2, 1)
