"""The program is killed at each of its commands and writes, and run again."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.merge import conflicts, record, steps
from ganeti.merge.steps import Choices, Merge
from ganeti.objects import ConfigData, codec
from ganeti.platform import paths
from ganeti.tools import config_files
from ganeti.utils import fs, process
from test.fakes.config import cluster_of, instance_of
from test.fakes.two_clusters import second

Run = tuple[str, ...]
#: What a file of the state has, for each cluster: the effects which commands have.
SIDE = {"paused": False, "drained": False, "down": [], "running": ["shop1.example.com"]}


class Clusters:
    """Two clusters whose state is in files, so that it survives the process which merges them.

    Before and after each command and each write :meth:`point` counts, and may kill the process. It
    counts only in the process which :meth:`is_killed` starts: threads which earlier tests have left
    in the process of the tests may write files, too, in one run and not in another.
    """

    name = "second.example.com"

    class master:
        name = "node11.example.com"
        port = 22

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.here = paths.Paths(str(directory))
        os.makedirs(self.here.data_dir)
        self.data = second("shop1", "shop2")
        self.config_file = Path(self.here.cluster_conf_file)
        self.config_file.write_text(json.dumps(codec.to_dict(cluster_of(3, (instance_of("a"),)))))
        for side in ("own", "other"):
            self.write(side, dict(SIDE))
        self.write("points", 0)
        self.counts = False
        self.kill_at = 0

    def state(self, name: str) -> Any:
        return json.loads((self.directory / f"{name}.state").read_text())

    def write(self, name: str, value: Any) -> None:
        (self.directory / f"{name}.state").write_text(json.dumps(value))

    def point(self) -> None:
        if not self.counts:
            return
        number = self.state("points") + 1
        self.write("points", number)
        if number == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    # -- the interface of OtherCluster -------------------------------------------------------------

    def run(self, *argv: str, node: str | None = None, check: bool = True) -> process.Completed:
        return self.command("other", argv, node or self.master.name)

    def read(self) -> ConfigData:
        return self.data

    def read_text(self) -> str:
        return json.dumps(codec.to_dict(self.data))

    def know(self, addresses: Any, ssh_ports: Any) -> None:
        pass

    def trust(self, node: Any) -> None:
        pass

    # -- what commands do --------------------------------------------------------------------------

    def command(self, side: str, argv: Run, node: str) -> process.Completed:
        self.point()
        words = [os.path.basename(argv[0]), *argv[1:]]
        state = self.state(side)
        out = ""
        names = [word for word in words if word.startswith("shop")]
        match words[:3]:
            case ["daemon-util", "stop-all" | "stop-master", *_]:
                state["down"] = sorted({*state["down"], node})
            case ["daemon-util", "start-all" | "start-master" | "start", *_]:
                state["down"] = [one for one in state["down"] if one != node]
            case ["daemon-util" | "true", *_]:
                pass
            case _ if self.master_of(side) in state["down"]:
                raise errors.OpExecError(f"no master daemon answers {argv}")
            case ["gnt-cluster", "watcher", word]:
                state["paused"] = word == "pause"
            case ["gnt-cluster", "queue", "drain" | "undrain" as word]:
                state["drained"] = word == "drain"
            case ["gnt-instance", "startup" | "shutdown" as word, *_]:
                if state["drained"]:
                    raise errors.OpExecError("the queue is drained")
                running = {*state["running"], *names}
                state["running"] = sorted(running if word == "startup" else running - {*names})
            case ["gnt-instance", "list", *_]:
                out = "".join(
                    f"{one.name}|{'Y' if one.name in state['running'] else 'N'}|up\n"
                    for one in self.data.instances.values()
                )
            case ["gnt-node", "add", *_]:
                if state["drained"]:
                    raise errors.OpExecError("the queue is drained")
                # Otherwise two master daemons would use it.
                kept = self.record()
                assert kept is not None
                down = {*self.state("other")["down"], *kept.added}
                assert {self.master.name, words[-1]} <= down
                self.add_node(words[-1])
            case _:
                pass
        self.write(side, state)
        self.point()
        return process.Completed(argv, 0, out, "", None)

    def master_of(self, side: str) -> str:
        return "node1.example.com" if side == "own" else self.master.name

    def add_node(self, name: str) -> None:
        config = json.loads(self.config_file.read_text())
        (node,) = (one for one in config["nodes"].values() if one["name"] == name)
        node["offline"] = False
        self.config_file.write_text(json.dumps(config))

    # -- runs --------------------------------------------------------------------------------------

    def merge(self, **changes: Any) -> None:
        """Do what the command does: handle an interrupted merge, then merge."""
        kept = record.record_file(self.here.data_dir).read()
        choices = Choices(groups=conflicts.MERGE, **changes)

        def one(of: record.Record | None) -> Merge:
            return Merge(
                self,  # type: ignore[arg-type]
                choices if of is None else Choices(**of.choices),
                record=of,
                run=lambda argv, **_: self.command("own", tuple(argv), "node1.example.com"),
                say=lambda _: None,
                pause=lambda _: None,
                here=self.here,
            )

        if kept is not None and one(kept).resume():
            return
        one(None).execute()

    def is_killed(self, kill_at: int, **changes: Any) -> bool:
        """Merge in another process; whether it was killed. Its errors are ours."""
        self.write("points", 0)
        child = os.fork()
        if child == 0:
            self.counts = True
            self.kill_at = kill_at
            code = 1
            try:
                self.merge(**changes)
                code = 0
            finally:
                if code:
                    self.write("error", traceback.format_exc())
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL), self.state("error")
        return status == signal.SIGKILL

    def config(self) -> ConfigData:
        return codec.from_dict(ConfigData, json.loads(self.config_file.read_text()))

    def record(self) -> record.Record | None:
        return record.record_file(self.here.data_dir).read()


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clusters:
    found = Clusters(tmp_path)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            found.point()
            result = function(*args, **kwargs)
            found.point()
            return result

        return call

    monkeypatch.setattr(fs, "write_file", counted(fs.write_file))
    monkeypatch.setattr(fs, "remove_file", counted(fs.remove_file))
    monkeypatch.setattr(config_files, "write", counted(config_files.write))
    return found


def assert_merged(clusters: Clusters) -> None:
    data = clusters.config()
    assert len(data.nodes) == 5
    assert not any(node.offline for node in data.nodes.values())
    own = clusters.state("own")
    assert (own["paused"], own["drained"], own["down"]) == (False, False, [])
    assert {"shop1.example.com", "shop2.example.com"} <= {*own["running"]}
    assert clusters.record() is None


def assert_as_before(clusters: Clusters, config: str) -> None:
    assert json.loads(clusters.config_file.read_text()) == json.loads(config)
    assert clusters.state("own") == SIDE
    assert clusters.state("other") == SIDE
    assert clusters.record() is None


def points(clusters: Clusters, config: str) -> int:
    """How many points a run has which nobody kills."""
    assert not clusters.is_killed(0)
    assert_merged(clusters)
    found = int(clusters.state("points"))
    reset(clusters, config)
    return found


def completes(clusters: Clusters) -> None:
    """Run the same command again, unless it was killed after its last step."""
    if is_unfinished(clusters):
        clusters.merge()
    assert_merged(clusters)


def is_unfinished(clusters: Clusters) -> bool:
    """Tell whether the merge has not begun, or has left something to do."""
    return clusters.record() is not None or len(clusters.config().nodes) == 3


def test_what_other_tests_write_is_not_counted(
    clusters: Clusters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread which an earlier test has left may write a file in the process of the tests."""
    before = clusters.config_file.read_text()
    number = points(clusters, before)
    wait = os.waitpid

    def busy(child: int, options: int) -> tuple[int, int]:
        ended = wait(child, options)
        fs.write_file(f"{tmp_path}/of-another-test", "", sync=False)
        return ended

    monkeypatch.setattr(os, "waitpid", busy)
    assert points(clusters, before) == number


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
def test_the_next_run_completes_the_merge(clusters: Clusters, every: int) -> None:
    """Killed at each point, the same command has the same end as a run without a kill."""
    before = clusters.config_file.read_text()
    number = points(clusters, before)
    assert number > 80
    for kill_at in range(number, 0, -every):
        reset(clusters, before)
        assert clusters.is_killed(kill_at), kill_at
        completes(clusters)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
def test_the_machines_of_the_other_cluster_start_again(clusters: Clusters, every: int) -> None:
    """Their daemons serve the former cluster then, and are stopped before nodes are added."""
    before = clusters.config_file.read_text()
    for kill_at in range(points(clusters, before), 0, -every):
        reset(clusters, before)
        assert clusters.is_killed(kill_at), kill_at
        clusters.write("other", {**clusters.state("other"), "down": []})
        completes(clusters)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
def test_the_next_run_takes_back(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Where the clusters cannot be merged any more, everything is as before, or merged."""
    before = clusters.config_file.read_text()
    ends = set()
    for kill_at in range(points(clusters, before), 0, -every):
        reset(clusters, before)
        assert clusters.is_killed(kill_at), kill_at
        interrupted = clusters.record()
        with monkeypatch.context() as patch:
            patch.setattr(steps.Merge, "check", _refuse)
            if interrupted is not None and interrupted.merged:
                ends.add("merged")
                completes(clusters)
            elif interrupted is not None or len(clusters.config().nodes) == 3:
                ends.add("as before")
                with pytest.raises(errors.OpPrereqError, match="no longer"):
                    clusters.merge()
                assert_as_before(clusters, before)
    assert ends == {"merged", "as before"}


@pytest.mark.long
def test_killed_again_while_it_takes_back_or_goes_on(clusters: Clusters) -> None:
    before = clusters.config_file.read_text()
    number = points(clusters, before)
    for first in range(1, number, 7):
        for again in range(1, number, 5):
            reset(clusters, before)
            assert clusters.is_killed(first)
            if is_unfinished(clusters) and clusters.is_killed(again):
                completes(clusters)
            assert_merged(clusters)


def reset(clusters: Clusters, config: str) -> None:
    clusters.kill_at = 0
    for name in os.listdir(clusters.here.data_dir):
        os.unlink(f"{clusters.here.data_dir}/{name}")
    clusters.config_file.write_text(config)
    for side in ("own", "other"):
        clusters.write(side, dict(SIDE))


def _refuse(self: steps.Merge) -> None:
    raise errors.OpPrereqError("they can no longer be merged", errors.ECODE_STATE)
