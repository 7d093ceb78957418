"""The configuration, and the role of the master: who dies there loses nothing and doubles nothing.

The nodes are directories with real files; votes, promises and copies are those of the real handlers
and stores. Only daemons are not started: that they were told to start or stop is noted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crash_points.engine import Points, Subject
from fakes.config import cluster_of, uuid_of
from ganeti.backend import registry
from ganeti.backend.cluster import config_file
from ganeti.bootstrap import failover
from ganeti.config import Config, ssconf
from ganeti.config.members import read_members
from ganeti.config.sending import CONFIG, SSCONF, DistributionFailure
from ganeti.configfile import files
from ganeti.configfile.files import write_config_file
from ganeti.master import startup
from ganeti.master.fence import Fence, FencedQueueStore
from ganeti.objects import codec, updated
from ganeti.platform import master_epoch, paths
from ganeti.platform.master_epoch import Epoch
from ganeti.rpc import Result
from ganeti.rpc.voting import Voting

OLD, ME, THIRD = NODES = [f"node{number}.example.com" for number in (1, 2, 3)]
_CHANGES = 4


@contextlib.contextmanager
def on_node(base: Path, name: str) -> Iterator[paths.Paths]:
    """Work on a node: its files and its name."""
    before = os.environ.get(paths.ENV_HOSTNAME)
    os.environ[paths.ENV_HOSTNAME] = name
    try:
        with paths.override(paths.Paths(str(base / name))) as here:
            yield here
    finally:
        if before is None:
            del os.environ[paths.ENV_HOSTNAME]
        else:
            os.environ[paths.ENV_HOSTNAME] = before


def acknowledge(path: Path, text: str) -> None:
    """Note what was promised; the process may die at any time after that."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def acknowledged(path: Path) -> set[str]:
    """Return what was promised."""
    return set(path.read_text().split()) if path.exists() else set()


def add_tag(config: Config, tag: str) -> None:
    """Make one change."""
    with config.transaction() as change:
        cluster = change.data.cluster
        change.cluster.update(updated(cluster, tags=frozenset({*(cluster.tags or ()), tag})))


def tags(path: str) -> set[str]:
    """Return the changes which a file of the configuration has."""
    whole = json.loads(Path(path).read_text())["cluster"].get("tags") or ()
    found = set(json.loads(files.read(path))["cluster"].get("tags") or ())
    assert set(whole) <= found, "the file has what the state lacks"
    return found


def make_nodes(base: Path, *, names: list[str] = NODES) -> None:
    """Make nodes with the same configuration; the first one is the master, by epoch 4."""
    data = dataclasses.replace(cluster_of(3), serial_no=7)
    for name in names:
        with on_node(base, name) as here:
            for directory in (here.data_dir, here.lock_dir, here.run_dir, here.queue_dir):
                os.makedirs(directory)
            master_epoch.claim(Epoch(4, uuid_of("node1")))
            with master_epoch.writing(master_epoch.CONFIG, Epoch(4, uuid_of("node1"))):
                write_config_file(here.cluster_conf_file, json.dumps(codec.to_dict(data)).encode())
            values = {"master_node": OLD, "master_candidates": "\n".join(NODES)}
            ssconf.write_local({key: f"{text}\n" for key, text in values.items()}, here)


class Nodes:
    """Calls of these nodes, in place of both runners; `notes` has what was done to daemons."""

    def __init__(self, base: Path, *, facts: bool = False) -> None:
        """:param facts: also write the facts for all nodes (ssconf), which are many files."""
        self.base = base
        self._facts = facts
        self.points: Points | None = None
        self.notes: list[tuple[str, str]] = []
        self.epoch: Epoch | None = None
        self._handlers = registry.handlers()

    def point(self, label: str) -> None:
        if self.points is not None:
            self.points.reach(label)

    def call_addresses(self, call: Any, addresses: Any, **args: Any) -> dict[str, Result]:
        found = {}
        for name in addresses:
            self.point(f"call {call.name} {name}")
            if call.name in ("master_vote", "master_claim"):
                with on_node(self.base, name):
                    found[name] = Result(name, self._handlers[call.name](**args))
            else:
                self.notes.append((call.name, name))
                found[name] = Result(name, None)
            self.point(f"called {call.name} {name}")
        return found

    def call_until(self, call: Any, addresses: Any, until: Any, **args: Any) -> dict[str, Result]:
        found = self.call_addresses(call, addresses, **args)
        until(found)
        return found

    def call_many(self, call: Any, node_uuids: Any, **args: Any) -> dict[str, Result]:
        assert call.name == "config_history_digests"
        found = {}
        for uuid in node_uuids:
            with on_node(self.base, f"{uuid.removeprefix('uuid-')}.example.com"):
                found[uuid] = Result(uuid, self._handlers[call.name](**args))
        return found

    def expect_keys(self, pins: Any) -> None:
        """All keys are right here."""

    def use_epoch(self, epoch: Epoch, on_newer: Any = None) -> None:
        self.epoch = epoch

    def distribute(self, wanted: Any) -> list[DistributionFailure]:
        """Bring a configuration to the candidates, as the node daemons write it."""
        assert self.epoch is not None
        for uuid in dict.fromkeys((*wanted.candidates, *wanted.nodes)):
            name = f"{uuid.removeprefix('uuid-')}.example.com"
            with on_node(self.base, name) as here:
                if uuid in wanted.candidates:
                    self.point(f"call config_rewrite {name}")
                    wanted_change = wanted.difference()
                    with master_epoch.writing(master_epoch.CONFIG, self.epoch):
                        if wanted_change is None or not files.change(
                            here.cluster_conf_file, wanted_change
                        ):
                            write_config_file(here.cluster_conf_file, wanted.text)
                    wanted.accepted(uuid, CONFIG)
                    self.point(f"called config_rewrite {name}")
                if not self._facts:
                    wanted.accepted(uuid, SSCONF)
                elif wanted.ssconf is not None and uuid in wanted.nodes:
                    self.point(f"call write_ssconf_files {name}")
                    ssconf.write_local(wanted.ssconf, here)
                    wanted.accepted(uuid, SSCONF)
                    self.point(f"called write_ssconf_files {name}")
        return []

    def owners(self) -> list[str]:
        """The owner of the epoch which each node obeys."""
        found = []
        for name in NODES:
            with on_node(self.base, name):
                found.append(master_epoch.read().epoch.owner)
        return found


class Configuration(Subject):
    """A master daemon which commits changes of the configuration."""

    name = "configuration"
    promise = "an acknowledged change is in the file, in its history, and on a majority"
    # Candidates get their copies in a thread.
    steady = False

    def make(self) -> None:
        make_nodes(self.directory / "nodes")

    def _open(self, nodes: Nodes) -> Config:
        with on_node(nodes.base, OLD) as here:
            return Config.open(here.cluster_conf_file, distribute=nodes.distribute)

    def work(self, points: Points) -> None:
        nodes = Nodes(self.directory / "nodes")
        nodes.points = points
        nodes.use_epoch(Epoch(4, uuid_of("node1")))
        with points.on_disk(nodes.base):
            config = self._open(nodes)
            for number in range(_CHANGES):
                add_tag(config, f"change-{number}")
                acknowledge(self.directory / "acknowledged", f"change-{number}")

    def recover(self, survivors: Any) -> None:
        promised = acknowledged(self.directory / "acknowledged")
        nodes = Nodes(self.directory / "nodes")
        nodes.use_epoch(Epoch(4, uuid_of("node1")))
        files = [paths.Paths(str(nodes.base / name)).cluster_conf_file for name in NODES]
        found = [tags(path) for path in files]
        for change in promised:
            assert change in found[0], f"{change} is not in the file of the master"
            assert sum(change in one for one in found) >= 2, f"{change} is on no majority"
        config = self._open(nodes)
        assert promised <= set(config.cluster().tags), "a start has lost a change"
        add_tag(config, "after")
        assert tags(files[0]) == {*found[0], "after"}, "a later change lost an earlier one"
        left = [name for name in os.listdir(os.path.dirname(files[0])) if name.endswith(".tmp")]
        assert not left, left


class Journal(Configuration):
    """The same with a configuration which keeps a journal, on the master and on the candidates."""

    name = "configuration with a journal"
    promise = "an acknowledged change is in the file or its journal, and on a majority"

    def _open(self, nodes: Nodes) -> Config:
        with on_node(nodes.base, OLD) as here:
            return Config.open(
                here.cluster_conf_file, distribute=nodes.distribute, change=files.change
            )

    def recover(self, survivors: Any) -> None:
        with self._small_files_have_journals():
            super().recover(survivors)

    def work(self, points: Points) -> None:
        with self._small_files_have_journals():
            self._work(points)

    @staticmethod
    @contextlib.contextmanager
    def _small_files_have_journals() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "JOURNAL_FROM_BYTES", 1)
            yield

    def _work(self, points: Points) -> None:
        nodes = Nodes(self.directory / "nodes")
        nodes.points = points
        nodes.use_epoch(Epoch(4, uuid_of("node1")))
        with points.on_disk(nodes.base):
            config = self._open(nodes)
            config.adopt_copies()
            for number in range(_CHANGES):
                add_tag(config, f"change-{number}")
                acknowledge(self.directory / "acknowledged", f"change-{number}")
                if number == 2:
                    for name in NODES:
                        with on_node(nodes.base, name):
                            config_file.fold()


class RoleMoved(Subject):
    """``gnt-cluster master-failover``, which takes the role from node1 to node2."""

    name = "role: moved"
    # Nodes which have not answered in time get their copies in a thread.
    steady = False
    promise = "the same command moves the role; no daemon starts before the old master is out"

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(directory)
        self._nodes = Nodes(directory, facts=True)
        for name in ("AddressRunner", "RpcRunner"):
            patch.setattr(failover, name, lambda *args: self._nodes)
        patch.setattr(failover, "ConfigDistributor", lambda runner: runner.distribute)
        patch.setattr(failover, "open_client", lambda *args: None)
        patch.setattr(failover, "take_down_at", partial(self._take_down))
        patch.setattr(Voting.ask_patiently, "__defaults__", (0.0,))

    def _take_down(self, runner: Any, data: Any, uuid: str) -> None:
        self._nodes.point("call node_deactivate_master_ip")
        self._nodes.notes.append(("take down", uuid))

    def make(self) -> None:
        make_nodes(self.directory)

    def _move(self) -> None:
        with on_node(self.directory, ME):
            failover.failover(say=lambda text: None)

    def work(self, points: Points) -> None:
        self._nodes.points = points
        with points.on_disk(self.directory):
            self._move()

    def survivors(self) -> Any:
        return self._nodes.notes

    def _check(self) -> None:
        """A master was told to start only when no other can write on a majority any more."""
        owners = self._nodes.owners()
        new = uuid_of("node2")
        if ("node_start_master_daemons", ME) in self._nodes.notes:
            assert owners.count(new) >= 2, owners
        named = []
        for name in NODES:
            with on_node(self.directory, name) as here:
                data = json.loads(Path(here.cluster_conf_file).read_text())
                named.append(data["cluster"]["master_node"])
                if named[-1] == new:
                    assert owners.count(new) >= 2, f"{name} names node2 before it was promised"
        if ("node_start_master_daemons", ME) in self._nodes.notes:
            assert named.count(new) >= 2, named

    def recover(self, survivors: Any) -> None:
        self._nodes.notes = survivors
        self._check()
        self._move()
        self._check()
        assert ("node_start_master_daemons", ME) in self._nodes.notes
        with on_node(self.directory, ME) as here:
            assert read_members(here.cluster_conf_file).master.name == ME


class RoleTaken(Subject):
    """A master daemon which starts: votes, its epoch, the queue, the configuration."""

    name = "role: taken at a start"
    steady = False
    promise = "the next start wins a later epoch, and has every change which was acknowledged"

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(directory)
        patch.setattr(Voting.ask_patiently, "__defaults__", (0.0,))

    def make(self) -> None:
        make_nodes(self.directory / "nodes")

    def _start(self, nodes: Nodes, change: str) -> Epoch:
        with on_node(nodes.base, OLD) as here:
            store = FencedQueueStore(here.queue_dir)
            store.open()
            won = startup.take_role(nodes, read_members(here.cluster_conf_file))  # type: ignore[arg-type]
            fence = Fence(won.epoch)
            store.use_fence(fence, override=won.override)
            fence.adopt_config()
            config = Config.open(here.cluster_conf_file, write=fence.write_config)
            nodes.use_epoch(won.epoch)
            config.use_distribution(nodes.distribute)
            add_tag(config, change)
            acknowledge(self.directory / "acknowledged", f"{change} {won.epoch.number}")
            store.abandon()
        return won.epoch

    def work(self, points: Points) -> None:
        nodes = Nodes(self.directory / "nodes")
        nodes.points = points
        with points.on_disk(nodes.base):
            self._start(nodes, "first")

    def recover(self, survivors: Any) -> None:
        promised = acknowledged(self.directory / "acknowledged")
        nodes = Nodes(self.directory / "nodes")
        before = []
        for name in NODES:
            with on_node(nodes.base, name):
                before.append(master_epoch.read().epoch)
        epoch = self._start(nodes, "second")
        assert epoch > max(before), f"{epoch} is not later than {before}"
        found = [tags(paths.Paths(str(nodes.base / name)).cluster_conf_file) for name in NODES]
        wanted = {"second", *(["first"] if "first" in promised else [])}
        assert all(wanted <= one for one in found), found
        with on_node(nodes.base, OLD):
            known = master_epoch.read()
            assert known.config == known.queue == known.epoch == epoch, known
