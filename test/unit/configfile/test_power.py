"""What is left of a configuration with a journal when the power fails, or the process dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.power import ALL_WAYS, Disk, Moment, write_tree
from ganeti.configfile import files

from .samples import change_to, path, serial_of, text_of, unlocked

__all__ = ["path"]


def _append(path: str, note: Callable[[int], None]) -> None:
    for serial in (8, 9, 10):
        assert files.change(path, change_to(serial))
        note(serial)


def _fold(path: str, note: Callable[[int], None]) -> None:
    _append(path, note)
    assert files.fold(path, unlocked())
    assert files.change(path, change_to(11))
    note(11)
    assert files.fold(path, unlocked())


def _fold_meanwhile(path: str, note: Callable[[int], None]) -> None:
    _append(path, note)

    def meanwhile() -> None:
        for serial in (11, 12):
            assert files.change(path, change_to(serial))
            note(serial)

    assert files.fold(path, unlocked(meanwhile))
    assert files.change(path, change_to(13))
    note(13)
    assert files.fold(path, unlocked())


def _whole(path: str, note: Callable[[int], None]) -> None:
    _append(path, note)
    files.write_config_file(path, text_of(11))
    note(11)
    assert files.change(path, change_to(12))
    note(12)


def _too_long(path: str, note: Callable[[int], None]) -> None:
    _append(path, note)
    files._MAX_PARTS = 1  # type: ignore[misc]
    assert files.change(path, change_to(11))
    note(11)


_WORK = (_append, _fold, _fold_meanwhile, _whole, _too_long)


def _left(moment: Moment, target: Path, how: str) -> tuple[str, int]:
    path = str(write_tree(moment.left(how), target) / "config.data")
    # The file itself is whole at every moment, too.
    serial_of(Path(path).read_bytes())
    return path, serial_of(files.read(path))


@pytest.mark.parametrize("work", _WORK)
def test_the_power_fails(
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[str, Callable[[int], None]], None],
) -> None:
    """Everything acknowledged is there, and nothing is there which was not at least begun."""
    monkeypatch.setattr(files, "_MAX_PARTS", files._MAX_PARTS)
    root = Path(path).parent
    with Disk(root).watched(monkeypatch) as disk:
        disk.note = 7

        def note(serial: int) -> None:
            disk.note = serial

        work(path, note)
        disk.moments.append(disk.now())
    assert len(disk.moments) >= 10
    for place, moment in enumerate(disk.moments):
        for way, how in enumerate(ALL_WAYS):
            again, serial = _left(moment, tmp_path / f"left-{place}-{way}", how)
            what = f"power failed before {moment.before}; {how}"
            assert moment.note <= serial <= moment.note + 1, what
            # The next start goes on from there, and folds in.
            assert files.change(again, change_to(serial + 1)), what
            assert serial_of(files.read(again)) == serial + 1, what
            files.fold(again, unlocked())
            assert serial_of(Path(again).read_bytes()) == serial + 1, what


def test_the_power_fails_again_while_the_next_start_folds_in(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Disk(Path(path).parent).watched(monkeypatch) as disk:
        _fold_meanwhile(path, lambda serial: setattr(disk, "note", serial))
    count = 0
    for place, moment in enumerate(disk.moments[::2]):
        again, serial = _left(moment, tmp_path / f"first-{place}", ALL_WAYS[place % 3])
        with Disk(Path(again).parent).watched(monkeypatch) as second:
            files.fold(again, unlocked())
            second.moments.append(second.now())
        for number, later in enumerate(second.moments):
            for way, how in enumerate(ALL_WAYS):
                count += 1
                found = _left(later, tmp_path / f"second-{place}-{number}-{way}", how)[1]
                assert found == serial, f"{moment.before}, then {later.before}; {how}"
    assert count > 100


def test_a_process_dies_between_any_two_calls(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a loss of power everything that was written is there, flushed or not."""
    with Disk(Path(path).parent).watched(monkeypatch) as disk:
        disk.note = 7
        _fold_meanwhile(path, lambda serial: setattr(disk, "note", serial))
    for place, moment in enumerate(disk.moments):
        seen = Moment(moment.before, moment.note, moment.root, moment.visible, moment.visible)
        serial = _left(seen, tmp_path / f"left-{place}", ALL_WAYS[0])[1]
        assert moment.note <= serial <= moment.note + 1, moment.before
