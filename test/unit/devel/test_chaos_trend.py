"""The chaos run finds files, memory and descriptors which only grow."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from devel.chaos import trend

DAEMON = ("node1: ganeti-noded", "descriptors")
FILES = ("node1: ganeti", "files")
MEMORY = ("node1: ganeti-masterd", "MiB")


def samples(key: tuple[str, str], values: Sequence[float | None]) -> list[trend.Sample]:
    """Make samples: each value was seen for some time."""
    often = -(-trend.LEAST_SAMPLES // 9)
    return [{} if value is None else {key: value} for value in values for _ in range(often)]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (DAEMON, [20 + 3 * number for number in range(12)]),
        (FILES, [number * 5 for number in range(9)]),
        (FILES, [None, None, None, None, *(number * 9 for number in range(1, 9))]),
        (MEMORY, [60 + 5 * number for number in range(15)]),
        (DAEMON, [20, 100, 20, None, 40, 41, 90, 40, 60, 61, 60, 61]),
    ],
)
def test_growth_is_found(key: tuple[str, str], values: Sequence[float | None]) -> None:
    (found,) = trend.growing(samples(key, values))
    assert found.promise == trend.TREND
    assert key[0] in found.text and key[1] in found.text


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (DAEMON, [20] * 12),
        (DAEMON, [20, 25, 20, 23, 26, 21, 24, 20, 25, 22, 21, 20]),
        (MEMORY, [60] * 4 + [200] * 8),
        (DAEMON, [20 + 9 * number for number in range(8)]),
        (DAEMON, [None] * 8 + [20, 40, 60, 80]),
        (FILES, [9, 30, 3] * 4),
    ],
)
def test_what_does_not_only_grow_is_not_reported(
    key: tuple[str, str], values: Sequence[float | None]
) -> None:
    assert trend.growing(samples(key, values)) == []


def test_files_of_jobs_are_not_counted(tmp_path: Path) -> None:
    top = tmp_path / "ganeti"
    for name in ("queue/job-1", "queue/archive/0/job-2", "node-work/5", "node-work/7", "known"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch()
    found = trend.count_files("node1", top)
    assert found == {("node1: ganeti", "files"): 1, ("node1: ganeti/node-work", "files"): 2}


def test_directories_which_differ_by_a_number_count_together(tmp_path: Path) -> None:
    top = tmp_path / "run"
    for number in range(3):
        (top / f"import-export-{number}").mkdir(parents=True)
        (top / f"import-export-{number}" / "status").touch()
    assert trend.count_files("n", top)["n: run/import-export-N", "files"] == 3


def test_samples_are_taken_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trend, "EVERY_S", 0.001)
    enough = threading.Event()

    def sample() -> trend.Sample:
        if len(sampler.samples) == 2:
            enough.set()
        return {DAEMON: 1.0}

    sampler = trend.Sampler(sample)
    sampler.start()
    assert enough.wait(60)
    sampler.stop()
    assert sampler.samples[:2] == [{DAEMON: 1.0}] * 2
