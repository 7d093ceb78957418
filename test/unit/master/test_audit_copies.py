"""The audit log on other candidates: one chain, whoever is the master."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of, uuid_of
from ganeti import errors
from ganeti.backend.cluster import jobqueue
from ganeti.jobstore import audit
from ganeti.master.audit_copies import AuditCopies
from ganeti.platform import paths
from ganeti.rpc.results import Result
from ganeti.wire.calls import AUDIT_EXTEND, Call

MASTER, OTHER, THIRD = (uuid_of(f"node{number}") for number in (1, 2, 3))


class Lab:
    """Three candidates with files; the first is the master."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.silent: set[str] = set()
        self.calls: list[tuple[str, int]] = []
        for uuid in (MASTER, OTHER, THIRD):
            here = self.here(uuid)
            for directory in (here.data_dir, here.lock_dir, here.log_dir, here.queue_dir):
                os.makedirs(directory)
        self.become(MASTER)

    def become(self, uuid: str) -> None:
        self.master = uuid
        config = FakeConfig(cluster_of(3, master_node=uuid))
        self.copies = AuditCopies(config, self, self.path(uuid))  # type: ignore[arg-type]
        self.chain = audit.Chain(self.path(uuid))
        self.chain.open()

    def here(self, uuid: str) -> paths.Paths:
        return paths.Paths(str(self.top / uuid))

    def path(self, uuid: str) -> str:
        return self.here(uuid).log_audit_file

    def call(self, call: Call, uuid: str, **args: Any) -> Result:
        assert call is AUDIT_EXTEND
        wire = json.loads(json.dumps(call.encode_args(args, self)))  # type: ignore[arg-type]
        decoded = call.decode_args(wire)
        self.calls.append((uuid, decoded["lines"].count("\n")))
        if uuid in self.silent:
            return Result(uuid, failure=errors.NodeUnreachable(uuid, call.name, "no route"))
        with paths.override(self.here(uuid)):
            return Result(uuid, jobqueue.extend_audit(**decoded))

    def write(self, *numbers: int) -> None:
        for number in numbers:
            self.chain.add([{"job": number}])
        self.copies.note_written()

    def jobs(self, uuid: str) -> list[int]:
        """The jobs in the log of a node, whose chain must be whole."""
        found = list(audit.verify(audit.files(self.path(uuid))))
        assert [problem for _row, problem in found if problem] == []
        return [row["job"] for row, _problem in found]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_new_lines_are_sent_together(lab: Lab) -> None:
    lab.write(1, 2)
    assert lab.copies.send() == set()
    lab.calls.clear()
    lab.write(3, 4, 5)
    assert lab.copies.send() == set()
    assert lab.calls == [(OTHER, 3), (THIRD, 3)]
    assert lab.jobs(OTHER) == lab.jobs(THIRD) == [1, 2, 3, 4, 5]
    lab.calls.clear()
    assert lab.copies.send() == set()
    assert lab.calls == []
    assert Path(lab.path(OTHER)).stat().st_mode & 0o777 == 0o600


def test_the_chain_goes_on_under_another_master(lab: Lab) -> None:
    lab.write(1, 2)
    lab.copies.send()
    lab.become(OTHER)
    lab.write(3)
    assert lab.copies.send() == set()
    assert lab.jobs(MASTER) == lab.jobs(OTHER) == lab.jobs(THIRD) == [1, 2, 3]


def test_lines_which_a_dead_master_did_not_send_are_set_aside(lab: Lab) -> None:
    lab.write(1, 2)
    lab.copies.send()
    lab.write(3, 4)
    alone = Path(lab.path(MASTER)).read_bytes()
    lab.become(THIRD)
    lab.write(5)
    assert lab.copies.send() == set()
    assert lab.jobs(MASTER) == lab.jobs(OTHER) == [1, 2, 5]
    assert Path(f"{lab.path(MASTER)}.apart-1").read_bytes() == alone


def test_a_node_which_was_away(lab: Lab) -> None:
    lab.write(1)
    lab.silent.add(OTHER)
    assert lab.copies.send() == {OTHER}
    lab.write(2)
    lab.silent.clear()
    assert lab.copies.send() == set()
    assert lab.jobs(OTHER) == lab.jobs(THIRD) == [1, 2]


@pytest.mark.parametrize("rotated", [MASTER, OTHER])
def test_files_which_are_rotated(lab: Lab, rotated: str) -> None:
    lab.write(1, 2)
    lab.copies.send()
    os.rename(lab.path(rotated), f"{lab.path(rotated)}.1")
    lab.write(3)
    assert lab.copies.send() == set()
    assert lab.jobs(OTHER) == lab.jobs(THIRD) == lab.jobs(MASTER) == [1, 2, 3]
    lab.become(MASTER)
    assert lab.copies.send() == set()
    assert lab.jobs(OTHER) == [1, 2, 3]


def test_a_master_whose_old_files_were_removed(lab: Lab) -> None:
    lab.write(1, 2)
    os.rename(lab.path(MASTER), f"{lab.path(MASTER)}.1")
    lab.write(3)
    os.remove(f"{lab.path(MASTER)}.1")
    assert lab.copies.send() == set()
    assert lab.jobs(OTHER) == [3]


def test_a_long_log_is_sent_in_parts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganeti.master.audit_copies._PART_BYTES", 300)
    lab.write(*range(20))
    assert lab.copies.send() == set()
    assert lab.jobs(OTHER) == list(range(20))
    assert len(lab.calls) > 10


def test_the_last_lines_are_sent_at_the_end(lab: Lab) -> None:
    lab.copies.start()
    lab.write(1)
    lab.copies.note_written()
    lab.copies.stop()
    assert lab.jobs(OTHER) == [1]
