"""The points of every subject are counted, and a part of the deaths is tried; all in a long run.

The program is one of its own, because it forks, and its children end at once.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path

import pytest

from crash_points import __main__ as program
from crash_points.engine import Points, Result, Subject, Trial
from ganeti.utils import process

TOP = Path(__file__).resolve().parents[3]

#: Words for a part of the subjects each; together all.
PARTS = {
    "queue and masters": ("job queue", "configuration", "role:", "join"),
    "keys": ("key renewal",),
    "files": ("(files)",),
    "volumes": ("(volumes)",),
    "snapshots": ("snapshot",),
}


def run(*words: str) -> str:
    """Run the program; return its table."""
    done = process.run(
        [sys.executable, "-m", "crash_points", *words],
        env={
            "PYTHONPATH": os.pathsep.join(str(TOP / part) for part in ("lib", "test", ".")),
            "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
        },
        timeout_s=7200,
        check=False,
    )
    assert done.exit_code == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.programs
def test_some_points_of_some_subjects() -> None:
    table = run("--every", "29", "join", "role: taken", "startup (files)", "remove (files)")
    assert len(table.splitlines()) == 2 + 6


@pytest.mark.programs
@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_points(part: str) -> None:
    """Another seventh of the points of each subject every day; the numbers must not fall."""
    first = datetime.date.today().toordinal() % 7
    run("--every", "7", "--first", str(first), *PARTS[part])


def test_every_recorded_subject_is_in_a_part() -> None:
    recorded = json.loads(program.RECORDED.read_text())
    words = [word for part in PARTS.values() for word in part]
    assert [name for name in recorded if not any(word in name for word in words)] == []
    assert sum(one["points"] for one in recorded.values()) > 6000


# -- the engine itself -------------------------------------------------------------------------


class Careless(Subject):
    """Acknowledges before it renames; `early` says whether."""

    name = "careless"
    promise = "what is acknowledged is there"

    def __init__(self, directory: Path, early: bool) -> None:
        super().__init__(directory)
        self._early = early

    def make(self) -> None:
        (self.directory / "disk").mkdir(parents=True)

    def _acknowledge(self) -> None:
        (self.directory / "acknowledged").touch()

    def work(self, points: Points) -> None:
        disk = self.directory / "disk"
        with points.on_disk(disk):
            points.reach("call begin")
            descriptor = os.open(disk / "new.123", os.O_WRONLY | os.O_CREAT)
            os.write(descriptor, b"x")
            os.fsync(descriptor)
            os.close(descriptor)
            if self._early:
                self._acknowledge()
            os.rename(disk / "new.123", disk / "file")
            if not self._early:
                self._acknowledge()

    def recover(self, survivors: object) -> None:
        if (self.directory / "acknowledged").exists():
            assert (self.directory / "disk" / "file").read_bytes() == b"x", "lost"


@pytest.mark.parametrize("early", [False, True])
def test_a_broken_promise_is_found_at_its_point(tmp_path: Path, early: bool) -> None:
    trial = Trial(Careless(tmp_path / "subject", early))
    assert trial.labels() == [
        "call begin", "open new.*", "write new.*", "fsync new.*",
        "rename new.*",
    ]  # fmt: skip
    result = trial.run()
    assert (result.points, result.kinds, result.killed) == (5, 5, 5)
    assert [text.split(":")[1].strip() for text in result.broken] == (
        ["point 4, rename new.*"] if early else []
    )
    trial.clean_up()
    assert list(tmp_path.iterdir()) == []


def test_a_number_which_falls_is_a_failure() -> None:
    recorded = {"points": 10, "kinds": 4}
    for points, kinds, wrong in ((10, 4, False), (11, 5, False), (9, 4, True), (10, 3, True)):
        found = program.fallen(Result("x", points, kinds), recorded, steady=True)
        assert bool(found) is wrong
    assert not program.fallen(Result("x", 8, 4), recorded, steady=False)
    assert program.fallen(Result("x", 6, 4), recorded, steady=False)
    assert "--record" in program.fallen(Result("new", 5, 5), None, steady=True)
