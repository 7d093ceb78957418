"""What the history tells, how far, and what a crash leaves of it."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.config import commit
from ganeti import errors, ht
from ganeti.config import Config
from ganeti.config.api import create_file, history_dir
from ganeti.config.history import (
    Author,
    History,
    ObjectChange,
    PastState,
    commit_of,
    compare,
    state_at,
)
from ganeti.config.local_file import LocalFile
from ganeti.config.store import ConfigStore
from ganeti.configfile.files import write_config_file
from ganeti.objects import ConfigData, KeptDocument, codec, updated
from ganeti.wire import json as wire_json

from .samples import disk_of, instance_of, small_cluster, uuid_of

EC = "job-1"


class _Place:
    """A configuration file in a directory of its own, and its owner."""

    def __init__(self, directory: Path, **limits: int) -> None:
        self.path = str(directory / "config.data")
        self.limits = limits
        self.full = False
        self.times = itertools.count(1000)
        create_file(self.path, small_cluster())
        self.start()

    def write(self, path: str, text: Sequence[bytes]) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_config_file(path, tuple(text))

    def start(self) -> Config:
        data = codec.from_dict(ConfigData, json.loads(Path(self.path).read_bytes()))
        self.history = History(history_dir(self.path), **self.limits)
        self.history.open(data)
        self.config = Config(
            ConfigStore(
                LocalFile(self.path, self.write),
                data,
                now=lambda: float(next(self.times)),
                history=self.history,
            )
        )
        return self.config

    @property
    def files(self) -> list[Path]:
        return sorted(Path(history_dir(self.path)).glob("*"))


@pytest.fixture
def place(tmp_path: Path) -> _Place:
    return _Place(tmp_path)


def _some_changes(config: Config) -> list[dict[str, Any]]:
    """Make changes; returns the file's content after each."""
    found = [codec.to_dict(config.snapshot())]

    def name_disk(name: str | None) -> None:
        commit(config).disks.update(dataclasses.replace(config.disk(disk_of(1).uuid), name=name))

    for step in (
        lambda: commit(config).instances.add(instance_of(1), [disk_of(1)], EC),
        lambda: commit(config).instances.mark(instance_of(1).uuid, "up"),
        lambda: name_disk("x"),
        commit(config).ports.allocate,
        lambda: name_disk(None),
        lambda: commit(config).instances.remove(instance_of(1).uuid),
        lambda: commit(config).cluster.set_candidate_cert(uuid_of("node2"), "CC"),
    ):
        step()
        found.append(codec.to_dict(config.snapshot()))
    return found


def test_every_state_comes_back(place: _Place) -> None:
    states = _some_changes(place.config)
    for state in states:
        assert place.config.at(state["serial_no"]).whole() == state
    place.start()
    for state in states:
        assert place.config.at(state["serial_no"]).whole() == state
        assert place.config.at(float(state["mtime"])).whole() == state


def test_a_commit_says_who_and_what(place: _Place) -> None:
    author = Author(17, "OP_INSTANCE_CREATE", "gnt:client", "new shop")
    commit(place.config.acting_for(author)).instances.add(instance_of(1), [disk_of(1)], EC)
    commit(place.config).instances.mark(instance_of(1).uuid, "up")
    second, first = place.config.commits()
    assert first.author == author
    assert [(change.kind, change.name, change.what) for change in first.changes or ()] == [
        ("disks", disk_of(1).uuid, "added"),
        ("instances", "instance1.example.com", "added"),
    ]
    assert second.author == Author()
    (change,) = second.changes or ()
    assert change.what == "changed"
    assert change.old is not None and change.new is not None
    assert (change.old["admin_state"], change.new["admin_state"]) == ("down", "up")
    assert set(change.old) == {"admin_state", "disks_active", "serial_no", "mtime"}
    assert (second.before_serial, second.serial) == (first.serial, first.serial + 1)


def test_comparing_two_states(place: _Place) -> None:
    states = _some_changes(place.config)
    first = states[0]["serial_no"]
    assert place.config.compare(first, first) == (first, first, [])
    old, new, changes = place.config.compare(first, first + 3)
    assert (old, new) == (first, first + 3)
    assert [(change.kind, change.what) for change in changes] == [
        ("disks", "added"),
        ("instances", "added"),
    ]
    assert changes[0].new is not None and changes[0].new["name"] == "x"
    assert [
        (change.kind, change.what) for change in place.config.compare(first + 2, first + 6)[2]
    ] == [("cluster", "changed"), ("disks", "removed"), ("instances", "removed")]
    # The instance came and went, the port came.
    assert [change.kind for change in place.config.compare(first, first + 6)[2]] == ["cluster"]
    with pytest.raises(errors.OpPrereqError, match="is not before"):
        place.config.compare(first + 3, first)


def test_what_was_never_there(place: _Place) -> None:
    _some_changes(place.config)
    with pytest.raises(errors.OpPrereqError, match="there is no serial number 99 yet"):
        place.config.at(99)
    with pytest.raises(errors.OpPrereqError, match="reaches back to serial number 1, not to seri"):
        place.config.at(0)
    with pytest.raises(errors.OpPrereqError, match="reaches back to serial number 1, not to time"):
        place.config.at(-5.0)


def test_files_are_private(place: _Place) -> None:
    commit(place.config).ports.allocate()
    assert Path(history_dir(place.path)).stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in place.files] == [0o600]


def test_nothing_is_written_before_the_first_change(place: _Place) -> None:
    assert not Path(history_dir(place.path)).exists()
    assert list(place.config.commits()) == []


def test_it_is_bounded_in_number(tmp_path: Path) -> None:
    place = _Place(tmp_path, max_commits=20, file_commits=5)
    for _ in range(50):
        commit(place.config).ports.allocate()
    serials = [commit.serial for commit in place.config.commits()]
    assert serials == list(range(51, 51 - len(serials), -1))
    assert 15 <= len(serials) <= 20
    assert len(place.files) == 4
    with pytest.raises(errors.OpPrereqError, match=f"back to serial number {serials[-1] - 1}"):
        place.config.at(2)
    place.start()
    for _ in range(20):
        commit(place.config).ports.allocate()
    assert len(place.files) == 4


def test_it_is_bounded_in_bytes(tmp_path: Path) -> None:
    place = _Place(tmp_path, max_bytes=20_000, file_bytes=2_000)
    for _ in range(300):
        commit(place.config).ports.allocate()
    assert sum(path.stat().st_size for path in place.files) < 25_000
    assert len(list(place.config.commits())) > 30


def test_starts_of_the_program_cost_no_history(tmp_path: Path) -> None:
    place = _Place(tmp_path, max_commits=50, file_commits=10)
    for _ in range(40):
        place.start()
        commit(place.config).ports.allocate()
    assert [commit.serial for commit in place.config.commits()] == list(range(41, 1, -1))
    assert len(place.files) == 4
    assert place.config.at(1).whole() == codec.to_dict(small_cluster())


def test_a_list_that_grows_costs_what_is_new(tmp_path: Path) -> None:
    place = _Place(tmp_path)
    for number in range(300):
        cluster = place.config.cluster()
        commit(place.config).cluster.update(
            updated(cluster, tags=tuple(sorted((*cluster.tags, f"tag-{number * 37 % 300:03d}"))))
        )
    assert sum(path.stat().st_size for path in place.files) < 300 * 500
    assert place.config.at(2).cluster["tags"] == ["tag-000"]
    _first, _last, (change,) = place.config.compare(100, 101)
    assert change.old is not None and change.new is not None
    assert len(change.new["tags"]) == len(change.old["tags"]) + 1 == 100
    assert place.config.at(1).whole() == codec.to_dict(small_cluster())


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_any_change_of_a_list_can_be_taken_back(was: list[int], now: list[int]) -> None:
    before, after = small_cluster(), small_cluster()
    before = updated(before, cluster=dataclasses.replace(before.cluster, tags=tuple(map(str, was))))
    after = updated(before, cluster=dataclasses.replace(before.cluster, tags=tuple(map(str, now))))
    commit = commit_of(before, after, [("cluster", "")], Author())
    with tempfile.TemporaryDirectory() as directory:
        history = History(directory)
        history.append([commit])
        history.close()
        (read,) = history.commits()
    assert read == commit
    state = PastState(after)
    state.take_back(read)
    assert state.whole() == codec.to_dict(before)


def test_a_history_without_pieces_is_read(place: _Place) -> None:
    """As earlier programs wrote it."""
    commit(place.config).ports.allocate()
    commit(place.config).ports.allocate()
    place.history.close()
    (path,) = place.files
    path.write_bytes(path.read_bytes().replace(b'"format":2', b'"format":1'))
    place.start()
    commit(place.config).ports.allocate()
    assert len(place.files) == 2, "a file has one format"
    assert place.config.at(1).whole() == codec.to_dict(small_cluster())


def test_a_commit_too_large_to_keep(place: _Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganeti.config.history.MAX_RECORD_BYTES", 1000)
    commit(place.config).ports.allocate()
    commit(place.config).instances.add(instance_of(1), [disk_of(1)], EC)
    commit(place.config).ports.allocate()
    assert [commit.changes is None for commit in place.config.commits()] == [False, True, False]
    place.config.at(3)
    with pytest.raises(errors.OpPrereqError, match="serial number 3 was too large"):
        place.config.at(2)


def test_a_change_which_was_not_made_is_not_in_it(place: _Place) -> None:
    commit(place.config).ports.allocate()
    place.full = True
    with pytest.raises(errors.ConfigurationError, match="No space left"):
        commit(place.config).ports.allocate()
    place.full = False
    assert [commit.serial for commit in place.config.commits()] == [2]
    commit(place.config).cluster.set_candidate_cert(uuid_of("node2"), "CC")
    assert [commit.serial for commit in place.config.commits()] == [3, 2]
    assert place.config.at(1).whole() == codec.to_dict(small_cluster())


def test_a_text_which_cannot_be_made_takes_nothing_back(
    place: _Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(place.config).ports.allocate()

    def broken(*_args: object) -> None:
        raise errors.ProgrammerError("not JSON")

    with monkeypatch.context() as patch:
        patch.setattr(place.config._store._text, "render", broken)
        with pytest.raises(errors.ProgrammerError):
            commit(place.config).ports.allocate()
    assert [commit.serial for commit in place.config.commits()] == [2]


def test_killed_between_record_and_configuration(place: _Place) -> None:
    commit(place.config).ports.allocate()
    before = Path(place.path).read_bytes()
    commit(place.config).ports.allocate()
    # As if the second commit had stopped after its record.
    Path(place.path).write_bytes(before)
    place.start()
    assert [commit.serial for commit in place.config.commits()] == [2]
    commit(place.config).cluster.set_candidate_cert(uuid_of("node2"), "CC")
    assert [commit.serial for commit in place.config.commits()] == [3, 2]
    assert place.config.at(2).whole() == json.loads(before)


def test_the_first_record_alone_may_be_too_early(place: _Place) -> None:
    before = Path(place.path).read_bytes()
    commit(place.config).ports.allocate()
    Path(place.path).write_bytes(before)
    place.start()
    assert place.files == []
    commit(place.config).ports.allocate()
    assert [commit.serial for commit in place.config.commits()] == [2]


def test_a_torn_end(place: _Place) -> None:
    commit(place.config).ports.allocate()
    commit(place.config).ports.allocate()
    (path,) = place.files
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size - 10)
    place.start()
    assert [commit.serial for commit in place.config.commits()] == [2]
    commit(place.config).ports.allocate()
    assert [commit.serial for commit in place.config.commits()] == [4, 2]
    with pytest.raises(errors.OpPrereqError, match="gap between serial numbers 2 and 3"):
        place.config.at(2)
    assert place.config.at(3).serial == 3


def test_a_history_of_another_life_is_not_believed(place: _Place) -> None:
    """Another master made the second commit; ours, with the same number, was not its."""
    commit(place.config).ports.allocate()
    other = updated(place.config.snapshot(), now=5.0, serial_no=2)
    Path(place.path).write_text(json.dumps(codec.to_dict(other)))
    place.start()
    commit(place.config).ports.allocate()
    assert place.config.at(2).time_s == 5.0
    with pytest.raises(errors.OpPrereqError):
        place.config.at(1)


def test_a_history_which_cannot_be_written_stops_nobody(
    place: _Place, caplog: pytest.LogCaptureFixture
) -> None:
    Path(history_dir(place.path)).write_text("in the way")
    commit(place.config).ports.allocate()
    assert place.config.snapshot().serial_no == 2
    assert "is missing in the history" in caplog.text
    os.unlink(history_dir(place.path))
    commit(place.config).ports.allocate()
    assert [commit.serial for commit in place.config.commits()] == [3]


@pytest.mark.parametrize(
    "content",
    [
        b"\n",
        b"5\n",
        b'{"format": 3, "version": 1}\n',
        b"{}\n",
        b'{"format": 1, "version": 1}\n{"serial": 3}\n',
    ],
)
def test_what_is_no_history(place: _Place, content: bytes) -> None:
    commit(place.config).ports.allocate()
    place.files[0].write_bytes(content)
    with pytest.raises(errors.ConfigurationError, match=str(place.files[0])):
        list(place.config.commits())


def test_nothing_from_before_an_upgrade(place: _Place) -> None:
    commit(place.config).ports.allocate()
    text = place.files[0].read_bytes()
    place.files[0].write_bytes(text.replace(b'"version":3010000', b'"version":3000000', 1))
    assert len(list(place.config.commits())) == 1
    with pytest.raises(errors.OpPrereqError, match="was upgraded after serial number 2"):
        place.config.at(1)


def test_without_a_history() -> None:
    config = Config(
        ConfigStore(LocalFile("config.data", lambda _path, _text: None), small_cluster())
    )
    commit(config).ports.allocate()
    assert list(config.commits()) == []
    with pytest.raises(errors.ConfigurationError, match="no history"):
        config.at(1)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(("add", "remove", "mark", "port", "cert", "disk", "restart")),
        st.integers(1, 4),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(_STEPS)
def test_any_sequence_of_changes_can_be_taken_back(steps: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = _Place(Path(directory), file_commits=3)
        states = [place.config.snapshot()]
        for name, number in steps:
            _step(place, name, number)
            if place.config.snapshot().serial_no != states[-1].serial_no:
                states.append(place.config.snapshot())
        for state in states:
            assert place.config.at(state.serial_no).whole() == codec.to_dict(state)
        for first, last in zip(states, reversed(states), strict=True):
            if first.serial_no <= last.serial_no:
                _old, _new, changes = place.config.compare(first.serial_no, last.serial_no)
                _check_changes(first, last, changes)


def _step(place: _Place, name: str, number: int) -> None:
    config, uuid = place.config, instance_of(number).uuid
    known = uuid in config.snapshot().instances
    if name == "add" and not known:
        instance = dataclasses.replace(instance_of(number), disks=(disk_of(number).uuid,))
        commit(config).instances.add(instance, [disk_of(number)], EC)
    elif name == "remove" and known:
        commit(config).instances.remove(uuid)
    elif name == "mark" and known:
        commit(config).instances.mark(
            uuid, "up" if config.instance(uuid).admin_state == "down" else "down"
        )
    elif name == "disk" and known:
        disk = config.disk(disk_of(number).uuid)
        commit(config).disks.update(dataclasses.replace(disk, name=None if disk.name else "n"))
    elif name == "port":
        commit(config).ports.allocate()
    elif name == "cert":
        digest = config.cluster().candidate_certs.get(uuid_of("node2"))
        commit(config).cluster.set_candidate_cert(uuid_of("node2"), None if digest else "AA")
    elif name == "restart":
        place.start()


def _check_changes(first: ConfigData, last: ConfigData, changes: list[ObjectChange]) -> None:
    """What the changes say is exactly what is different."""
    found = {(change.kind, change.uuid): change for change in changes}
    for kind in ("instances", "disks", "nodes"):
        before, after = getattr(first, kind), getattr(last, kind)
        for uuid in {*before, *after}:
            change = found.pop((kind, uuid), None)
            if before.get(uuid) == after.get(uuid):
                assert change is None
            else:
                assert change is not None
                if uuid in before and uuid in after:
                    old, new = codec.to_dict(before[uuid]), codec.to_dict(after[uuid])
                    assert all(
                        old.get(key) != new.get(key)
                        for key in {*(change.old or {}), *(change.new or {})}
                    )
                    assert {**old, **(change.new or {})} == {
                        **old,
                        **{key: value for key, value in new.items() if old.get(key) != value},
                    }
    if first.cluster != last.cluster:
        del found["cluster", ""]
    assert not found


def test_a_group_of_commits_is_written_at_once(tmp_path: Path) -> None:
    history = History(str(tmp_path / "history"))
    states = [small_cluster()]
    commits = []
    for number in range(1, 4):
        state = dataclasses.replace(
            states[-1],
            serial_no=number + 1,
            mtime=float(number),
            instances={**states[-1].instances, instance_of(number).uuid: instance_of(number)},
        )
        commits.append(
            commit_of(states[-1], state, {("instances", instance_of(number).uuid)}, Author(number))
        )
        states.append(state)
    history.append(commits)
    assert [commit.author.job_id for commit in history.commits()] == [3, 2, 1]
    assert state_at(states[-1], history, 2).whole() == PastState(states[1]).whole()
    assert compare(states[-1], history, 1, 2)[2][0].name == "instance1.example.com"
    history.take_back()
    assert list(history.commits()) == []
    history.append(commits[:1])
    assert [commit.author.job_id for commit in history.commits()] == [1]
    history.close()


def test_private_parameters_are_kept_as_they_were(place: _Place) -> None:
    private = ht.hide({"password": "old"})
    commit(place.config).instances.add(
        dataclasses.replace(instance_of(2), osparams_private=private), [], EC
    )
    before = Path(place.path).read_bytes()
    instance = place.config.instance(instance_of(2).uuid)
    commit(place.config).instances.update(
        dataclasses.replace(instance, osparams_private=ht.hide({"password": "new"}))
    )
    commit(place.config).instances.update(place.config.instance(instance_of(2).uuid))
    same, changed, _added = place.config.commits()
    assert "osparams_private" not in (same.changes or ())[0].old
    (change,) = changed.changes or ()
    assert (change.old or {})["osparams_private"] == {"password": "old"}
    assert (change.new or {})["osparams_private"] == {"password": "new"}
    was = place.config.at(json.loads(before)["serial_no"]).whole()
    assert wire_json.loads(wire_json.dumps(was)) == json.loads(before)


def test_a_table_which_is_empty_now(place: _Place) -> None:
    """The only document was removed, so the present file has no table of documents."""
    kept = KeptDocument(uuid="u-d", name="lease", text="{}", ctime=1.0, mtime=1.0, serial_no=1)
    with place.config.transaction() as change:
        change.documents.put(kept)
    with_document = place.config.snapshot().serial_no
    with place.config.transaction() as change:
        change.documents.remove("u-d")
    assert place.config.at(with_document).whole()["documents"]["u-d"]["name"] == "lease"
    assert not place.config.at(with_document - 1).whole().get("documents")
