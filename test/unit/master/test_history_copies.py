"""The histories of the candidates: equal to that of the master, whatever they have missed.

The master and three candidates have real files; node calls are the functions of the node daemon,
each below the root of its node.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of, commit, uuid_of
from ganeti import errors
from ganeti.backend.cluster import config_file, ssconf
from ganeti.backend.node import files
from ganeti.bootstrap import history_copies as completion
from ganeti.config import Config
from ganeti.config.api import load
from ganeti.config.history import History, state_at
from ganeti.config.local_file import LocalFile
from ganeti.config.sending import CONFIG, Distribution, DistributionFailure
from ganeti.config.store import ConfigStore
from ganeti.configfile import history_files
from ganeti.configfile.files import write_config_file
from ganeti.master.history_copies import HistoryCopies
from ganeti.objects import codec
from ganeti.platform import paths
from ganeti.rpc.distribute import ConfigDistributor
from ganeti.rpc.results import Result
from ganeti.wire import calls
from ganeti.wire.calls import Call

ME, OTHER, THIRD = (uuid_of(f"node{number}") for number in (1, 2, 3))

HANDLERS: dict[Call, Callable[..., Any]] = {
    calls.CONFIG_REWRITE: config_file.rewrite,
    calls.UPLOAD_FILE: files.upload_file,
    calls.WRITE_SSCONF_FILES: ssconf.write,
    calls.CONFIG_HISTORY_DIGESTS: config_file.history_digests,
    calls.CONFIG_HISTORY_READ: config_file.read_history,
    calls.CONFIG_HISTORY_WRITE: config_file.write_history,
}


class Lab:
    """A master and two candidates.

    :ivar silent: UUIDs of nodes which do not answer.
    """

    def __init__(self, top: Path, **limits: int) -> None:
        self.top = top
        self.limits = limits
        self.silent: set[str] = set()
        self.calls: list[tuple[str, str]] = []
        for uuid in (ME, OTHER, THIRD):
            here = self.here(uuid)
            for directory in (here.data_dir, here.lock_dir):
                os.makedirs(directory)
        text = json.dumps(codec.to_dict(cluster_of(3)))
        write_config_file(self.here(ME).cluster_conf_file, text.encode())
        self.master = ME
        self.start(ME)

    def here(self, uuid: str) -> paths.Paths:
        return paths.Paths(str(self.top / uuid))

    def start(self, uuid: str) -> None:
        """Let a node be the one which writes, with the files which it has."""
        self.master = uuid
        path = self.here(uuid).cluster_conf_file
        data, _version = load(path)
        history = History(self.here(uuid).cluster_conf_history_dir, **self.limits)
        history.open(data)
        self.config = Config(ConfigStore(LocalFile(path), data, history=history))
        if data.cluster.master_node != uuid:
            with self.config.transaction() as change:
                change.cluster.update(dataclasses.replace(data.cluster, master_node=uuid))
        distribute = ConfigDistributor(self)  # type: ignore[arg-type]

        def send(wanted: Distribution) -> Sequence[DistributionFailure]:
            with paths.override(self.here(self.master)):
                return distribute(wanted)

        self.config.use_distribution(send)
        self.copies = HistoryCopies(
            self.config,
            self,  # type: ignore[arg-type]
            self.here(uuid).cluster_conf_history_dir,
        )
        self.config.call_when_incomplete(self.copies.note_incomplete)

    # -- the runner ------------------------------------------------------------------------------

    def call(self, call: Call, uuid: str, **args: Any) -> Result:
        self.calls.append((call.name, uuid))
        if uuid in self.silent:
            return Result(uuid, failure=errors.NodeUnreachable(uuid, call.name, "no route"))
        wire = json.loads(json.dumps(call.encode_args(args, self)))  # type: ignore[arg-type]
        with paths.override(self.here(uuid)):
            try:
                answer = HANDLERS[call](**call.decode_args(wire))
            except (errors.GenericError, OSError) as err:
                return Result(uuid, failure=errors.NodeCallFailed(uuid, call.name, str(err)))
        return Result(uuid, call.result.decode(json.loads(json.dumps(call.result.encode(answer)))))

    def call_many(self, call: Call, uuids: Iterable[str], **args: Any) -> dict[str, Result]:
        return {uuid: self.call(call, uuid, **args) for uuid in uuids}

    def call_together(self, questions: Sequence[Any], on_result: Any) -> list[dict[str, Result]]:
        found = [self.call_many(one.call, one.node_uuids, **one.args) for one in questions]
        for question, results in zip(questions, found, strict=True):
            for uuid, result in results.items():
                on_result(question.call, uuid, result)
        return found

    # -- what tests ask --------------------------------------------------------------------------

    def change(self, times: int = 1) -> None:
        for _ in range(times):
            commit(self.config).ports.allocate()

    def files(self, uuid: str) -> dict[str, bytes]:
        directory = self.here(uuid).cluster_conf_history_dir
        return {name: Path(directory, name).read_bytes() for name in history_files.names(directory)}

    def equal(self) -> bool:
        found = [self.files(uuid) for uuid in (ME, OTHER, THIRD)]
        return bool(found[0]) and found[0] == found[1] == found[2]

    def oldest(self) -> int:
        """The oldest state which the present master can tell."""
        return min(commit.before_serial for commit in self.config.commits())

    def all_states(self) -> list[int]:
        """The serial numbers of all states which follow from the present one."""
        data, found = self.config.snapshot(), []
        history = self.config._kept()
        for serial in range(self.oldest(), data.serial_no + 1):
            found.append(state_at(data, history, serial).serial)
        return found


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path)
    made.change()  # The whole file, and so the whole history later.
    assert made.copies.send() == set()
    assert made.equal()
    made.calls.clear()
    return made


def test_a_change_brings_its_records_without_a_further_call(lab: Lab) -> None:
    lab.change(5)
    assert lab.equal()
    assert [name for name, uuid in lab.calls if uuid == OTHER] == ["config_rewrite"] * 5
    assert lab.copies.send() == set()
    assert len(lab.calls) == 5 * 2
    mode = Path(lab.here(OTHER).cluster_conf_history_dir).stat().st_mode & 0o777
    assert mode == 0o700
    assert all(
        path.stat().st_mode & 0o777 == 0o600
        for path in Path(lab.here(OTHER).cluster_conf_history_dir).iterdir()
    )


def test_new_files_and_removed_files(tmp_path: Path) -> None:
    lab = Lab(tmp_path, max_commits=9, file_commits=3)
    lab.change()
    lab.copies.send()
    for _ in range(30):
        lab.change()
        assert lab.equal()
    assert len(lab.files(OTHER)) == 3


def test_the_dead_master_leaves_no_gap(lab: Lab) -> None:
    lab.change(4)
    before, oldest = lab.config.snapshot(), lab.oldest()
    lab.silent.add(ME)
    lab.start(OTHER)
    lab.change(3)
    assert lab.oldest() == oldest
    assert lab.all_states()[-1] == before.serial_no + 4
    at = state_at(lab.config.snapshot(), lab.config._kept(), before.serial_no)
    assert at.whole() == codec.to_dict(before)


def test_the_former_master_gets_the_history_of_the_new_one(lab: Lab) -> None:
    lab.change(2)
    lab.silent.update((OTHER, THIRD))
    with pytest.raises(errors.ConfigurationError, match="only 1 of 3"):
        lab.change()
    lab.silent = {ME}
    lab.start(OTHER)
    lab.change(2)
    assert not lab.equal()
    lab.silent.clear()
    lab.copies.note_incomplete([ME, OTHER, THIRD])
    assert lab.copies.send() == set()
    assert lab.equal()
    lab.change()
    lab.copies.send()  # The former master gets the whole configuration.
    lab.change()
    assert lab.equal()


def test_a_node_which_missed_changes_gets_them_later(lab: Lab) -> None:
    lab.silent.add(THIRD)
    lab.change(3)
    assert not lab.equal()
    lab.copies.note_incomplete([THIRD])
    assert lab.copies.send() == {THIRD}
    lab.silent.clear()
    assert lab.copies.send() == set()
    assert lab.equal()


def test_a_full_disk_of_a_candidate_stops_no_change(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(history_files, "put", full)
        lab.change(2)
    assert not lab.equal()
    assert lab.copies.send() == set()
    assert lab.equal()


@pytest.mark.parametrize("kind", ["removed", "torn", "other", "more", "newer"])
def test_files_which_are_not_those_of_the_master(lab: Lab, kind: str) -> None:
    """Nothing is added to them; the next comparison replaces them."""
    directory = Path(lab.here(OTHER).cluster_conf_history_dir)
    path = next(directory.iterdir())
    content = path.read_bytes()
    if kind == "removed":
        shutil.rmtree(directory)
    elif kind == "torn":
        path.write_bytes(content[:-10])
    elif kind == "other":
        path.write_bytes(content.replace(b'"serial":', b'"seriol":'))
    elif kind == "more":
        path.write_bytes(content + b'{"serial": 99, "time": 1}\n')
    else:
        (directory / "commits-000000000999").write_bytes(content)
    lab.change()
    assert not lab.equal()
    assert lab.copies.send() == set()
    assert lab.equal()
    lab.change()
    assert lab.equal()


def test_a_damaged_file_of_the_master_does_not_end_the_copies(lab: Lab) -> None:
    directory = Path(lab.here(ME).cluster_conf_history_dir)
    (name, *_others) = history_files.names(str(directory))
    (directory / name).write_bytes(b"\xff\xfe\n")
    lab.copies.note_incomplete([OTHER])
    assert lab.copies.send() == {OTHER}


def test_a_long_history_is_sent_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganeti.master.history_copies._PART_BYTES", 500)
    lab = Lab(tmp_path, file_commits=7)
    lab.change(20)
    lab.calls.clear()
    lab.copies.note_incomplete([OTHER, THIRD])
    assert lab.copies.send() == set()
    assert lab.equal()
    assert len([name for name, uuid in lab.calls if uuid == OTHER]) > 10


def test_records_too_long_for_a_change_are_sent_later(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.rpc.distribute._MAX_REWRITE", 100)
    lab.change()
    assert not lab.equal()
    assert lab.copies.send() == set()
    assert lab.equal()


def test_a_node_without_configuration_gets_no_history(lab: Lab) -> None:
    """It was demoted meanwhile, and the history has secrets."""
    lab.change()
    os.remove(lab.here(OTHER).cluster_conf_file)
    shutil.rmtree(lab.here(OTHER).cluster_conf_history_dir)
    lab.copies.note_incomplete([OTHER])
    assert lab.copies.send() == {OTHER}
    assert lab.files(OTHER) == {}


# -- a new master which lacks records -------------------------------------------------------------


def complete(lab: Lab, *sources: str) -> list[str]:
    with paths.override(lab.here(lab.master)):
        return completion.complete(lab.config, lab, sources)  # type: ignore[arg-type]


@pytest.mark.parametrize("lost", ["all", "begin", "middle"])
def test_a_new_master_fetches_what_it_lacks(tmp_path: Path, lost: str) -> None:
    lab = Lab(tmp_path, file_commits=4)
    lab.change(2)
    lab.copies.send()
    lab.change(12)
    oldest = lab.oldest()
    directory = Path(lab.here(OTHER).cluster_conf_history_dir)
    if lost == "all":
        shutil.rmtree(directory)
    elif lost == "begin":
        (directory / history_files.names(str(directory))[0]).unlink()
    else:
        path = directory / history_files.names(str(directory))[1]
        lines = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join([*lines[:2], *lines[3:]]))
    lab.silent.add(ME)
    lab.start(OTHER)
    assert complete(lab, ME, THIRD) == []
    lab.change()
    assert lab.oldest() == oldest
    assert lab.all_states()[0] == oldest
    names = os.listdir(lab.here(OTHER).data_dir)
    assert [name for name in names if name.startswith("config.data.history.")] == []


def test_a_complete_history_is_left_alone(lab: Lab) -> None:
    lab.change(3)
    lab.start(OTHER)
    before = lab.files(OTHER)
    lab.calls.clear()
    assert complete(lab, ME, THIRD) == []
    assert lab.files(OTHER) == before
    assert {name for name, _uuid in lab.calls} == {"config_history_digests"}
    lab.change()
    assert len(lab.files(OTHER)) == len(before)


def test_a_history_of_other_states_is_not_taken(lab: Lab) -> None:
    lab.change(3)
    lab.start(OTHER)
    shutil.rmtree(lab.here(OTHER).cluster_conf_history_dir)
    for name, content in lab.files(THIRD).items():
        path = Path(lab.here(THIRD).cluster_conf_history_dir, name)
        path.write_bytes(content.replace(b'"time":', b'"time":1'))
    assert complete(lab, THIRD) == []
    assert lab.files(OTHER) == {}


def test_configurations_are_still_judged_by_the_nodes_which_took_them(lab: Lab) -> None:
    lab.silent.add(THIRD)
    lab.change()
    assert lab.config.lagging() == {THIRD: frozenset({CONFIG})}
