"""The file in which the watcher remembers restarts and starts of machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.watcher import memory
from ganeti.watcher.memory import Memory


def test_what_is_stored_is_loaded(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    stored = Memory({"node1": "boot"}, {"web1": (3, 1234.5)})
    memory.store(path, stored)
    assert memory.load(path) == stored


def test_the_published_form(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text(
        '{"node": {"node1": {"bootid": "x"}},'
        ' "instance": {"web1": {"restart_count": 2, "restart_when": 1000}}}'
    )
    assert memory.load(str(path)) == Memory({"node1": "x"}, {"web1": (2, 1000.0)})


def test_a_restart_without_its_job(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    one = Memory(restarts={"web1": (3, 90.0)})
    for name in ("web1", "web2", "web3"):
        one.note_restart(name, 100.0, 1_795_213_010_684_568_001)
    one.confirm("web3")
    memory.store(path, one)
    again = memory.load(path)
    assert again == one
    assert again.unconfirmed["web1"] == (1_795_213_010_684_568_001, 3, 90.0)
    for name in ("web1", "web2", "web3"):
        again.take_back(name)
    assert again == Memory(restarts={"web1": (3, 90.0), "web3": (1, 100.0)})


def test_a_missing_file_is_an_empty_memory(tmp_path: Path) -> None:
    assert memory.load(str(tmp_path / "data")) == Memory()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"node": []}',
        '{"instance": {"web1": 3}}',
        '{"instance": {"web1": {"restart_count": "5", "restart_when": 1}}}',
        '{"instance": {"web1": {"restart_count": true, "restart_when": 1}}}',
        '{"instance": {"web1": {"restart_count": 1, "restart_when": 1e300}}}',
        '{"instance": {"web1": {"restart_count": 1.5, "restart_when": 1}}}',
        '{"instance": {"web1": {"restart_count": -1, "restart_when": 1}}}',
        '{"node": {"node1": {"bootid": 5}}}',
        '{"instance": {"web1": {"unconfirmed": 5}}}',
        '{"instance": {"web1": {"unconfirmed": [1, 2]}}}',
        '{"instance": {"web1": {"unconfirmed": ["1", 2, 3]}}}',
        '{"instance": {"web1": {"unconfirmed": [1, 2, null]}}}',
        "\udcff",
    ],
)
def test_a_damaged_file_never_stops_the_watcher(text: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert memory.load(str(path)) == Memory()


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "data")
    memory.store(path, Memory(restarts={"web1": (1, 1.0)}))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ganeti.utils.fs.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        memory.store(path, Memory())
    monkeypatch.undo()
    assert memory.load(path).restarts == {"web1": (1, 1.0)}


def test_what_does_not_exist_any_more_is_forgotten() -> None:
    one = Memory({"gone": "x", "node1": "y"}, {"web1": (1, 90.0), "gone": (1, 90.0)})
    one.forget(["node1"], ["web1"], 100.0, 60)
    assert one == Memory({"node1": "y"}, {"web1": (1, 90.0)})
