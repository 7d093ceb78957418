"""How a new configuration reaches the candidates: as a difference where that will do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of, commit, instance_of, uuid_of
from ganeti import errors
from ganeti.backend.cluster import config_file, ssconf
from ganeti.backend.node import files
from ganeti.config.sending import CONFIG, SSCONF, Distribution, DistributionFailure
from ganeti.platform import paths
from ganeti.rpc import distribute as distribution
from ganeti.rpc.distribute import ConfigDistributor, QueueTransport
from ganeti.rpc.results import Result
from ganeti.rpc.runner import OnResult, Question
from ganeti.wire.calls import CONFIG_REWRITE, UPLOAD_FILE, WRITE_SSCONF_FILES, Call

NODE1, NODE2, NODE3 = uuid_of("node1"), uuid_of("node2"), uuid_of("node3")


class _Nodes:
    """Candidates, each with a root of its own, which do what a node does."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.failures: dict[tuple[str, str], Exception] = {}

        for uuid in (NODE1, NODE2, NODE3):
            here = paths.Paths(str(top / uuid))
            for directory in (here.data_dir, here.lock_dir):
                Path(directory).mkdir(parents=True)

    def path(self, uuid: str) -> Path:
        return Path(paths.Paths(str(self.top / uuid)).cluster_conf_file)

    def call_many(self, call: Call, uuids: Sequence[str], **args: Any) -> dict[str, Result]:
        self.asked.append((call.name, tuple(uuids)))
        return {uuid: self._call(call, uuid, args) for uuid in uuids}

    def call_together(
        self,
        questions: Sequence[Question],
        on_result: OnResult,
    ) -> list[dict[str, Result]]:
        found = [self.call_many(one.call, list(one.node_uuids), **one.args) for one in questions]
        for question, results in zip(questions, found, strict=True):
            for uuid, result in results.items():
                on_result(question.call, uuid, result)
        return found

    def _call(self, call: Call, uuid: str, args: dict[str, Any]) -> Result:
        failure = self.failures.get((call.name, uuid))
        if failure is not None:
            return Result(uuid, failure=failure)  # type: ignore[arg-type]
        with paths.override(paths.Paths(str(self.top / uuid))):
            if call is CONFIG_REWRITE:
                return Result(uuid, config_file.rewrite(**args))
            if call is UPLOAD_FILE:
                return Result(uuid, files.upload_file(args["file"]))
            assert call is WRITE_SSCONF_FILES
            return Result(uuid, ssconf.write(args["values"]))


@pytest.fixture
def nodes(tmp_path: Path) -> _Nodes:
    return _Nodes(tmp_path)


@pytest.fixture
def config(nodes: _Nodes, tmp_path: Path) -> FakeConfig:
    made = FakeConfig(cluster_of(3))
    distribute = ConfigDistributor(nodes)  # type: ignore[arg-type]
    master = paths.Paths(str(tmp_path / "master"))
    Path(master.data_dir).mkdir(parents=True)

    def here(wanted: Distribution) -> list[DistributionFailure]:
        with paths.override(master):
            return distribute(wanted)

    made.use_distribution(here)
    return made


def _both_have_it(nodes: _Nodes, config: FakeConfig) -> None:
    text = b"".join(config._store._text.render(config.snapshot(), ()))
    assert nodes.path(NODE2).read_bytes() == nodes.path(NODE3).read_bytes() == text


def test_the_whole_file_first_then_what_changed(nodes: _Nodes, config: FakeConfig) -> None:
    commit(config).ports.allocate()
    assert (UPLOAD_FILE.name, (NODE2, NODE3)) in nodes.asked
    _both_have_it(nodes, config)
    for _ in range(3):
        nodes.asked.clear()
        commit(config).ports.allocate()
        assert [name for name, uuids in nodes.asked if uuids == (NODE2, NODE3)] == [
            CONFIG_REWRITE.name
        ]
        _both_have_it(nodes, config)


def test_who_has_another_file_gets_the_whole(nodes: _Nodes, config: FakeConfig) -> None:
    commit(config).ports.allocate()
    nodes.path(NODE3).write_bytes(b"{}\n")
    nodes.asked.clear()
    commit(config).ports.allocate()
    assert [asked for asked in nodes.asked if asked[0] != WRITE_SSCONF_FILES.name] == [
        (CONFIG_REWRITE.name, (NODE2, NODE3)),
        (UPLOAD_FILE.name, (NODE3,)),
    ]
    _both_have_it(nodes, config)


@pytest.mark.parametrize(
    "failure",
    [
        errors.NodeCallFailed("node3", "config_rewrite", "disk is strange"),
        errors.NodeRefused("node3", "config_rewrite", "no such call"),
    ],
)
def test_who_cannot_gets_the_whole(nodes: _Nodes, config: FakeConfig, failure: Exception) -> None:
    commit(config).ports.allocate()
    nodes.failures[CONFIG_REWRITE.name, NODE3] = failure
    commit(config).ports.allocate()
    _both_have_it(nodes, config)
    assert config.lagging() == {}


def test_who_does_not_answer_is_not_asked_twice(nodes: _Nodes, config: FakeConfig) -> None:
    commit(config).ports.allocate()
    nodes.failures[CONFIG_REWRITE.name, NODE3] = errors.NodeUnreachable(
        "node3", "config_rewrite", "no route"
    )
    nodes.asked.clear()
    commit(config).ports.allocate()
    assert UPLOAD_FILE.name not in [name for name, _uuids in nodes.asked]
    assert config.lagging() == {NODE3: {CONFIG}}
    # It missed one; the next difference does not fit, so it gets everything.
    del nodes.failures[CONFIG_REWRITE.name, NODE3]
    commit(config).ports.allocate()
    _both_have_it(nodes, config)
    assert config.lagging() == {}


def test_a_large_change_is_sent_as_a_file(
    nodes: _Nodes, config: FakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(config).ports.allocate()
    monkeypatch.setattr("ganeti.rpc.distribute._MAX_REWRITE", 10)
    nodes.asked.clear()
    commit(config).ports.allocate()
    assert (UPLOAD_FILE.name, (NODE2, NODE3)) in nodes.asked
    assert CONFIG_REWRITE.name not in [name for name, _uuids in nodes.asked]
    _both_have_it(nodes, config)


def test_sending_again_sends_all(nodes: _Nodes, config: FakeConfig) -> None:
    commit(config).ports.allocate()
    # Same length and same end: only the whole file can put this right.
    text = nodes.path(NODE2).read_bytes()
    nodes.path(NODE2).write_bytes(b" " * 100 + text[100:])
    assert config.redistribute() == []
    _both_have_it(nodes, config)


def _instance_list(nodes: _Nodes, uuid: str) -> str:
    return Path(paths.Paths(str(nodes.top / uuid)).ssconf_file("instance_list")).read_text()


def test_candidates_get_both_in_one_message(nodes: _Nodes, config: FakeConfig) -> None:
    commit(config).ports.allocate()
    nodes.asked.clear()
    commit(config).instances.add(instance_of("new"), [], "job-1")
    assert nodes.asked == [
        (CONFIG_REWRITE.name, (NODE2, NODE3)),
        (WRITE_SSCONF_FILES.name, (NODE1,)),
    ]
    _both_have_it(nodes, config)
    assert {_instance_list(nodes, uuid) for uuid in (NODE1, NODE2, NODE3)} == {"new.example.com\n"}


def test_who_does_not_know_the_change_gets_the_values_too(
    nodes: _Nodes, config: FakeConfig
) -> None:
    commit(config).ports.allocate()
    nodes.failures[CONFIG_REWRITE.name, NODE3] = errors.NodeRefused(
        "node3", "config_rewrite", "unknown argument ssconf"
    )
    nodes.asked.clear()
    commit(config).instances.add(instance_of("new"), [], "job-1")
    assert nodes.asked[2:] == [(UPLOAD_FILE.name, (NODE3,)), (WRITE_SSCONF_FILES.name, (NODE3,))]
    _both_have_it(nodes, config)
    assert _instance_list(nodes, NODE3) == "new.example.com\n"
    assert config.lagging() == {}


def test_who_does_not_answer_lacks_both(nodes: _Nodes, config: FakeConfig) -> None:
    commit(config).ports.allocate()
    nodes.failures[CONFIG_REWRITE.name, NODE3] = errors.NodeUnreachable(
        "node3", "config_rewrite", "no route"
    )
    commit(config).instances.add(instance_of("new"), [], "job-1")
    assert config.lagging() == {NODE3: {CONFIG, SSCONF}}


def test_who_takes_neither_the_difference_nor_the_file_lacks_it(
    nodes: _Nodes, config: FakeConfig
) -> None:
    commit(config).ports.allocate()
    for call in (CONFIG_REWRITE, UPLOAD_FILE):
        nodes.failures[call.name, NODE3] = errors.NodeCallFailed("node3", call.name, "disk is full")
    commit(config).ports.allocate()
    assert config.lagging() == {NODE3: {CONFIG}}


def test_who_refuses_the_values_lacks_them(nodes: _Nodes, config: FakeConfig) -> None:
    commit(config).ports.allocate()
    nodes.failures[WRITE_SSCONF_FILES.name, NODE1] = errors.NodeCallFailed(
        "node1", "write_ssconf_files", "disk is full"
    )
    commit(config).instances.add(instance_of("new"), [], "job-1")
    assert config.lagging() == {NODE1: {SSCONF}}


_FAILED = errors.NodeCallFailed("node2", "call", "disk is full")


@pytest.mark.parametrize(
    ("call", "result", "accepted"),
    [
        (CONFIG_REWRITE, Result("node2", True), [CONFIG, SSCONF]),
        # Its file is another one; it has written the values.
        (CONFIG_REWRITE, Result("node2", False), [SSCONF]),
        (CONFIG_REWRITE, Result("node2", failure=_FAILED), []),
        (UPLOAD_FILE, Result("node2", None), [CONFIG]),
        (UPLOAD_FILE, Result("node2", failure=_FAILED), []),
        (WRITE_SSCONF_FILES, Result("node2", None), [SSCONF]),
        (WRITE_SSCONF_FILES, Result("node2", failure=_FAILED), []),
    ],
)
def test_what_counts_as_accepted_while_others_are_waited_for(
    call: Call, result: Result, accepted: list[str]
) -> None:
    found: list[tuple[str, str]] = []

    class Wanted:
        def accepted(self, uuid: str, what: str) -> None:
            found.append((uuid, what))

    wanted: Any = Wanted()
    distribution._note_accepted(wanted, both=True)(call, NODE2, result)
    assert found == [(NODE2, what) for what in accepted]


def test_who_gets_the_job_queue() -> None:
    """The candidates which are online, without the master."""
    changes = {3: {"offline": True}, 4: {"master_candidate": False}}
    now = [cluster_of(5, node_changes=changes)]
    transport = QueueTransport(None, lambda: now[0])  # type: ignore[arg-type]
    assert transport.candidates() == (NODE2, uuid_of("node5"))
    assert transport.candidates() is transport.candidates()
    nodes = {**now[0].nodes, NODE3: dataclasses.replace(now[0].nodes[NODE3], offline=False)}
    now[0] = dataclasses.replace(now[0], nodes=nodes)
    assert transport.candidates() == (NODE2, NODE3, uuid_of("node5"))
