"""The locks which a master daemon takes before it serves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of, uuid_of
from ganeti import errors
from ganeti.config.members import Members
from ganeti.master import startup
from ganeti.objects import ConfigData, MasterVote
from ganeti.platform import master_epoch, paths
from ganeti.platform.master_epoch import Epoch
from ganeti.rpc import Result
from ganeti.rpc.voting import RoleNotWonError, Voting, Won
from ganeti.utils import filelock
from ganeti.wire.calls import Call

ME = "node1.example.com"


def test_two_on_one_queue(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with filelock.FileLock(path) as other:
        other.acquire()
        with pytest.raises(errors.LockError, match="locked by another process"):
            startup.lock_queue(path)
    startup.lock_queue(path).close()


def test_a_livelock_replaces_those_of_the_dead(tmp_path: Path) -> None:
    (tmp_path / "masterd_1_1").touch()
    (tmp_path / "job_7").touch()
    lock = startup.take_livelock(str(tmp_path))
    assert filelock.is_locked(lock.path)
    assert sorted(os.listdir(tmp_path)) == ["job_7", os.path.basename(lock.path)]
    lock.close()


# -- the role ----------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfigData]:
    """The configuration of node1, on which node4 and node5 are marked offline."""
    monkeypatch.setenv(paths.ENV_HOSTNAME, ME)
    monkeypatch.setattr(Voting.ask_patiently, "__defaults__", (0.0,))
    here = paths.Paths(str(tmp_path / ME))
    for directory in (here.data_dir, here.lock_dir):
        os.makedirs(directory)
    gone = {"offline": True, "master_candidate": False}
    with paths.override(here):
        yield cluster_of(5, node_changes={3: gone, 4: gone, 5: gone})


class Nodes:
    """Nodes 1 and 2 answer, the others do not; ``known`` is the epoch which node 2 knows."""

    def __init__(self, answering: int = 2) -> None:
        self.names = [f"node{number}.example.com" for number in range(1, answering + 1)]
        self.known = master_epoch.read().epoch

    def call_addresses(self, call: Call, addresses: Any, **args: Any) -> dict[str, Result]:
        if "epoch" in args:
            self.known = master_epoch.parse(args["epoch"])
            master_epoch.claim(self.known)
        return {name: self._answer(name, call) for name in addresses}

    def call_until(self, call: Call, addresses: Any, until: Any, **args: Any) -> dict[str, Result]:
        found = self.call_addresses(call, addresses, **args)
        until(found)
        return found

    def _answer(self, name: str, call: Call) -> Result:
        if name not in self.names:
            return Result(name, failure=errors.NodeUnreachable(name, call.name, "no route"))
        # Node 2 has not heard of the new master yet.
        known = self.known if name != ME else master_epoch.read().epoch
        old = "node3.example.com"
        return Result(
            name,
            MasterVote(
                master=old,
                epoch=str(known),
                config_epoch="1 x",
                config_serial=7,
                config_digest="d",
                queue_epoch="1 x",
                last_job=3,
            ),
        )


def take_role(data: ConfigData, nodes: Nodes) -> Won:
    members = Members(
        {node.name: node for node in data.nodes.values()}, data.cluster.master_node, data.serial_no
    )
    return startup.take_role(nodes, members)  # type: ignore[arg-type]


def test_the_voters_of_a_failover_are_those_of_its_daemon(data: ConfigData) -> None:
    master_epoch.record_failover(Epoch(4, uuid_of("node1")), ignored_offline=True)
    won = take_role(data, Nodes())
    assert won.epoch == Epoch(5, uuid_of("node1")) and not won.override
    # That was one start. The next one is like any other, with all nodes.
    with pytest.raises(RoleNotWonError, match="only 2 of 5 nodes"):
        take_role(data, Nodes())


def test_a_failover_which_counted_all_nodes(data: ConfigData) -> None:
    master_epoch.record_failover(Epoch(4, uuid_of("node1")), ignored_offline=False)
    with pytest.raises(RoleNotWonError, match="only 2 of 5 nodes"):
        take_role(data, Nodes())


def test_a_failover_is_no_override(data: ConfigData) -> None:
    """Cut off after it was won, the daemon does not start."""
    master_epoch.record_failover(Epoch(4, uuid_of("node1")), ignored_offline=True)
    with pytest.raises(RoleNotWonError, match="only 1 of 2 nodes"):
        take_role(data, Nodes(answering=1))
    assert master_epoch.read().moved_to(uuid_of("node1")), "the next attempt may succeed"


def test_a_failover_after_which_somebody_else_became_master(data: ConfigData) -> None:
    master_epoch.record_failover(Epoch(4, uuid_of("node1")), ignored_offline=True)
    nodes = Nodes()
    nodes.known = Epoch(4, uuid_of("node2"))
    with pytest.raises(RoleNotWonError, match="only 2 of 5 nodes"):
        take_role(data, nodes)


def test_without_a_failover_all_nodes_count(data: ConfigData) -> None:
    master_epoch.claim(Epoch(4, uuid_of("node1")))
    with pytest.raises(RoleNotWonError, match="only 2 of 5 nodes"):
        take_role(data, Nodes())
