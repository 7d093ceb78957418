"""The steps of an upgrade: their order, the record before each, and every interruption."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.runbook.record import RecordFile
from ganeti.runbook.steps import StepFailed
from ganeti.upgrading import steps
from ganeti.upgrading.record import Record, parse_record, record_file


class Killed(Exception):
    """The process has died."""


class FakeCluster:
    """A cluster whose steps have effects which can be compared."""

    def __init__(self) -> None:
        self.link = "0.9"
        self.config = "0.9"
        self.running: str | None = "0.9"
        self.drained = False
        self.backups = 0

    def boot(self) -> None:
        """All machines start again, and their daemons with them, as the version of the link."""
        self.running = self.link

    def inspect(self, record: Record) -> None:
        assert self.running == record.origin and not self.drained

    def drain(self, record: Record) -> None:
        assert self.running
        self.drained = True

    def stop(self, record: Record) -> None:
        self.running = None

    def backup(self, record: Record) -> None:
        assert self.running is None
        self.backups += 1

    def convert_back(self, record: Record) -> None:
        assert self.running is None and self.link in (record.origin, record.target)
        self.config = record.target

    def switch(self, record: Record) -> None:
        assert self.running is None
        self.link = record.target

    def convert(self, record: Record) -> None:
        assert self.running is None and self.link == record.target
        self.config = record.target

    def start(self, record: Record) -> None:
        assert self.config == self.link == record.target
        self.running = self.link

    def serve(self, record: Record) -> None:
        assert self.running == record.target
        self.drained = False

    def verify(self, record: Record) -> None:
        assert self.running == record.target

    def finish(self, record: Record) -> None:
        assert self.running == record.target


def drive(
    cluster: FakeCluster, file: RecordFile[Record], own: str, limit: int | None = None
) -> tuple[bool, list[str]]:
    """Run the command, as both versions; the process dies before its ``limit``-th write.

    Only the first of them has been interrupted before.
    """
    said: list[str] = []
    written = [0]
    wanted: list[str] = []

    def save(record: Record) -> None:
        if limit is not None and written[0] == limit:
            raise Killed
        written[0] += 1
        file.write(record)

    for _ in range(3):
        record = file.read()
        assert record is not None
        if steps.Upgrade(
            record, cluster, save=save, hand_over=wanted.append, own=own, say=said.append,
            interrupted=not wanted,
        ).execute():  # fmt: skip
            return True, said
        own = wanted[-1]
    raise AssertionError(f"versions hand over to each other: {wanted}")


def begin(tmp_path: Path, origin: str, target: str, cluster: FakeCluster) -> RecordFile[Record]:
    cluster.link = cluster.config = cluster.running = origin
    file = record_file(str(tmp_path / "intent"))
    file.write(Record(7, origin, target, "node1", {"node1": "192.0.2.1"}))
    return file


@pytest.mark.parametrize(("origin", "target"), [("0.9", "0.10"), ("0.10", "0.9")])
def test_complete(tmp_path: Path, origin: str, target: str) -> None:
    cluster = FakeCluster()
    file = begin(tmp_path, origin, target, cluster)
    done, said = drive(cluster, file, origin)
    assert done and (cluster.link, cluster.config, cluster.running) == (target,) * 3
    assert not cluster.drained
    assert [line.split()[0] for line in said] == [f"[{n}/10]" for n in range(1, 11)]
    assert f"Switching all nodes to version {target}" in "\n".join(said)


@pytest.mark.parametrize("boots", [False, True])
@pytest.mark.parametrize(("origin", "target"), [("0.9", "0.10"), ("0.10", "0.9")])
def test_every_interruption(tmp_path: Path, origin: str, target: str, boots: bool) -> None:
    """Whichever write is the last: --resume ends in the new state, the way back in the old one.

    :param boots: the machines start again before somebody goes on.
    """
    for limit in range(100):
        cluster = FakeCluster()
        file = begin(tmp_path, origin, target, cluster)
        try:
            if drive(cluster, file, origin, limit)[0]:
                assert limit == 21
                break
        except Killed:
            pass
        if boots:
            cluster.boot()
        there, back = copy.copy(cluster), copy.copy(cluster)
        record = file.read()
        assert record is not None
        for own in (origin, target):
            # Either version may be the one whose program is called.
            resumed = copy.copy(there)
            file.write(record)
            assert drive(resumed, file, own)[0]
            assert (resumed.link, resumed.config, resumed.running) == (target,) * 3
            assert not resumed.drained
        file.write(record.turned(8))
        assert drive(back, file, target)[0]
        assert (back.link, back.config, back.running) == (origin,) * 3
        assert not back.drained
    else:
        raise AssertionError("the run never ended")


def test_a_step_that_fails(tmp_path: Path) -> None:
    class Broken(FakeCluster):
        def start(self, record: Record) -> None:
            raise errors.OpExecError("node2: no")

    cluster = Broken()
    file = begin(tmp_path, "0.9", "0.10", cluster)
    with pytest.raises(StepFailed, match="step 'start' failed: node2: no") as failed:
        drive(cluster, file, "0.9")
    assert failed.value.step == "start"
    record = file.read()
    assert record is not None and record.step == "start" and record.done[-1] == "convert"


def test_record(tmp_path: Path) -> None:
    file = record_file(str(tmp_path / "intent"))
    assert file.read() is None
    record = Record(1, "0.9", "0.10", "n", {"n": "192.0.2.1"}, left_out=("m",), paused_until=2.5)
    file.write(record)
    assert file.read() == record
    # A later version may have added something.
    text = Path(file.path).read_text().replace("{", '{"more": [1], ', 1)
    assert parse_record(text) == record
    for wrong in ("", "[]", "{}", text.replace('"format": 1', '"format": 2'), text[:-9],
                  text.replace('"number": 1', '"number": "1"')):  # fmt: skip
        with pytest.raises(errors.ConfigurationError):
            parse_record(wrong)


def test_turned() -> None:
    record = Record(1, "0.9", "0.10", "n", done=("inspect", "drain", "stop"), verified=("E",),
                    was_drained=True, stopped_at=5.0)  # fmt: skip
    back = record.turned(2)
    assert (back.origin, back.target, back.done) == ("0.10", "0.9", ("inspect", "drain"))
    assert back.verified == ("E",) and back.was_drained and back.stopped_at == 5.0
    assert [one.name for one in steps.plan(back)] == [one.name for one in steps.BACK]


def test_the_other_version_goes_on_with_the_record_which_was_turned(tmp_path: Path) -> None:
    """It reads the file, in which the way ahead is until then."""
    cluster = FakeCluster()
    file = begin(tmp_path, "0.9", "0.10", cluster)
    before = file.read()
    assert before is not None
    before.done, before.stopped_at = ("inspect", "drain"), 5.0
    file.write(before)

    def hand_over(series: str) -> None:
        found = file.read()
        assert series == "0.10" and found == before.turned(8)

    assert not steps.Upgrade(
        before.turned(8), cluster, save=file.write, hand_over=hand_over, own="0.9"
    ).execute()


def test_the_way_back_before_the_daemons_were_stopped(tmp_path: Path) -> None:
    """Only the queue and the watcher were changed."""
    cluster = FakeCluster()
    file = begin(tmp_path, "0.9", "0.10", cluster)
    with pytest.raises(Killed):
        drive(cluster, file, "0.9", 3)
    record = file.read()
    assert record is not None and record.step == "drain" and cluster.drained
    file.write(record.turned(8))
    said = drive(cluster, file, "0.9")[1]
    assert [line.split()[0] for line in said] == ["[8/10]", "[10/10]"]
    assert cluster.running == "0.9" and cluster.backups == 0 and not cluster.drained
