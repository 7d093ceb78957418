"""The order of the steps, and what is taken back when one of them fails."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.merge import conflicts, steps
from ganeti.merge.other_cluster import LoginError
from ganeti.merge.steps import Choices, Guest, Merge, MergeIncompleteError, parse_guests
from ganeti.objects import ConfigData, codec
from ganeti.platform import paths
from ganeti.utils import process
from ganeti.wire import json
from test.fakes.config import cluster_of, instance_of
from test.fakes.two_clusters import second

Run = tuple[str, ...]
GUESTS = "shop1.example.com|Y|up\nshop2.example.com|N|down\nshop3.example.com|?|up\n"


class Master:
    """Stands for the node with which the merge talks first."""

    name = "node11.example.com"
    port = 22


class Side:
    """Records the commands of a cluster and answers them.

    :ivar fails: part of a command line -> whether it fails from now on.
    """

    name = "second.example.com"

    def __init__(self, log: list[str], label: str, data: ConfigData) -> None:
        self.log, self.label, self.data = log, label, data
        self.master = Master()
        self.fails: set[str] = set()
        self.jobs: list[str] = []

    def command(self, argv: Run, node: str = "", check: bool = True) -> process.Completed:
        line = " ".join(os.path.basename(word) for word in argv)
        self.log.append(f"{self.label} {node.partition('.')[0]}{' ' * bool(node)}{line}")
        failed = any(part in line for part in self.fails)
        if failed and check:
            raise errors.OpExecError(f"'{line}' failed")
        out = ""
        if line.startswith("gnt-instance list"):
            out = GUESTS
        elif line.startswith("gnt-job list"):
            out = self.jobs.pop(0) if self.jobs else "1|success\n"
        return process.Completed(argv, int(failed), out, "", None)


class Other(Side):
    """Stands for :class:`ganeti.merge.other_cluster.OtherCluster`."""

    #: Nodes to which root cannot log in.
    closed: Sequence[str] = ()

    def run(self, *argv: str, node: str | None = None, check: bool = True) -> process.Completed:
        done = self.command(argv, node or "", check)
        if node in self.closed:
            raise LoginError(f"no login to {node}")
        return done

    def read(self) -> ConfigData:
        return self.data

    def read_text(self) -> str:
        return json.dumps(codec.to_dict(self.data))

    def know(self, addresses: Any, ssh_ports: Any) -> None:
        self.known = list(addresses)
        self.ports = ssh_ports

    def trust(self, node: Any) -> None:
        self.log.append(f"trust {node.name.partition('.')[0]}")


class Lab:
    """Two clusters, and the merge of one into the other."""

    def __init__(self, directory: Path) -> None:
        self.here = paths.Paths(str(directory))
        os.makedirs(self.here.data_dir)
        self.log: list[str] = []
        self.said: list[str] = []
        self.own = Side(self.log, "own", cluster_of(3, (instance_of("web1"),)))
        self.other = Other(self.log, "other", second("shop1", "shop2", "shop3"))
        self.path = Path(self.here.cluster_conf_file)
        self.path.write_text(json.dumps(codec.to_dict(self.own.data)))

    def _run(self, argv: Any, check: bool = True, **_: Any) -> process.Completed:
        return self.own.command(tuple(argv), check=check)

    def merge(self, **choices: Any) -> None:
        self.log.clear()
        Merge(
            self.other,  # type: ignore[arg-type]
            Choices(groups=conflicts.MERGE, **choices),
            run=self._run,
            say=lambda text: self.said.append(str(text)),
            pause=lambda _: None,
            here=self.here,
        ).execute()

    def config(self) -> ConfigData:
        return codec.from_dict(ConfigData, json.loads(self.path.read_text()))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_the_order(lab: Lab) -> None:
    lab.other.jobs = ["7|running\n8|queued\n", "7|running\n8|success\n"]
    lab.merge()
    assert lab.log == [
        "other node11 true",
        "other node12 true",
        "own gnt-cluster watcher pause 1800",
        "own gnt-cluster queue drain",
        "own gnt-job list --no-headers --separator=| -o id,status",
        "other gnt-cluster watcher pause 1800",
        "other gnt-cluster queue drain",
        *["other gnt-job list --no-headers --separator=| -o id,status"] * 3,
        "other gnt-instance list --no-headers --separator=| -o name,oper_state,admin_state",
        "other gnt-cluster queue undrain",
        "other gnt-instance shutdown --force-multiple --no-remember shop1.example.com",
        "other gnt-cluster queue drain",
        "other gnt-job list --no-headers --separator=| -o id,status",
        "other node11 daemon-util stop-all",
        "other node12 daemon-util stop-all",
        "own daemon-util stop-master",
        "own daemon-util start ganeti-masterd",
        "own gnt-cluster queue info",
        "own gnt-cluster queue undrain",
        "trust node11",
        "own gnt-node add --readd --force-join node11.example.com",
        "trust node12",
        "own gnt-node add --readd --force-join node12.example.com",
        "own daemon-util start-master",
        "own gnt-cluster redist-conf",
        "own gnt-instance startup --force-multiple shop1.example.com shop2.example.com"
        " shop3.example.com",
        "own gnt-cluster watcher continue",
        "own gnt-cluster verify --error-codes",
    ]
    assert len(lab.config().nodes) == 5
    assert Path(f"{lab.path}.backup-before-second.example.com").exists()
    assert os.stat(f"{lab.path}.merged-second.example.com").st_mode & 0o777 == 0o600
    assert "  waiting for 2 jobs: 7, 8" in lab.said


def test_a_dry_run_changes_nothing(lab: Lab) -> None:
    before = lab.path.read_text()
    lab.merge(dry_run=True)
    assert lab.log == ["other node11 true", "other node12 true"]
    assert lab.path.read_text() == before
    assert ": 2 nodes, 3 instances, 1 node group and 0 networks join" in lab.said[0]


def test_all_nodes_which_cannot_be_reached_are_named(lab: Lab) -> None:
    lab.other.closed = ["node11.example.com", "node12.example.com"]
    with pytest.raises(errors.OpPrereqError, match=r"(?s)to node11\..*to node12\."):
        lab.merge()
    assert lab.log == ["other node11 true", "other node12 true"]
    lab.other.closed = []
    lab.merge(dry_run=True)


@pytest.mark.parametrize(
    ("choices", "stopped", "started"),
    [
        ({"restart": steps.UP}, "shop1", "shop1 shop3"),
        ({"restart": steps.NONE}, "shop1", ""),
        ({"keep_running": True}, "", "shop2 shop3"),
        ({"keep_running": True, "restart": steps.UP}, "", "shop3"),
    ],
)
def test_which_instances(lab: Lab, choices: Any, stopped: str, started: str) -> None:
    lab.merge(**choices)
    for word, names in (
        ("other gnt-instance shutdown", stopped),
        ("own gnt-instance startup", started),
    ):
        found = [line for line in lab.log if line.startswith(word)]
        shown = " ".join(
            name.partition(".")[0] for line in found for name in line.split() if "example" in name
        )
        assert shown == names


def test_running_instances_are_refused(lab: Lab) -> None:
    with pytest.raises(errors.OpPrereqError, match=r"run: shop1\.example\.com\. Stop them"):
        lab.merge(stop_instances=False)
    assert lab.log[-4:] == [
        "other gnt-cluster queue undrain",
        "other gnt-cluster watcher continue",
        "own gnt-cluster queue undrain",
        "own gnt-cluster watcher continue",
    ]


TAKEN_BACK = [
    ("own gnt-cluster watcher pause", ["own gnt-cluster watcher continue"]),
    ("other gnt-instance shutdown", ["own gnt-cluster queue undrain"]),
    ("other node12 daemon-util stop-all", ["other node11 daemon-util start-all"]),
    ("own daemon-util stop-master", ["own daemon-util start-master"]),
    ("own daemon-util start ganeti-masterd", ["own daemon-util start-master"]),
]


@pytest.mark.parametrize(("failing", "wanted"), TAKEN_BACK, ids=[one for one, _ in TAKEN_BACK])
def test_errors_are_taken_back(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, failing: str, wanted: list[str]
) -> None:
    before = lab.path.read_text()
    real = Side.command

    def command(self: Side, argv: Run, node: str = "", check: bool = True) -> process.Completed:
        done = real(self, argv, node, check)
        if self.log[-1].startswith(failing):
            raise errors.OpExecError("it broke")
        return done

    monkeypatch.setattr(Side, "command", command)
    with pytest.raises(errors.OpExecError, match="^it broke$"):
        lab.merge()
    place = next(number for number, line in enumerate(lab.log) if line.startswith(failing))
    after = lab.log[place + 1 :]
    assert set(wanted) <= set(after)
    assert after[-1] == "own gnt-cluster watcher continue"
    stopped = [line for line in lab.log if line.startswith("other gnt-instance shutdown")]
    started = "other gnt-instance startup --force-multiple --no-remember shop1.example.com"
    assert (started in after) is bool(stopped)
    assert lab.path.read_text().strip() == before.strip()
    # Daemons of the other cluster are back before its queue is used.
    if "start-all" in wanted[0]:
        assert after.index(wanted[0]) < after.index(started)


def test_a_node_which_cannot_be_added(lab: Lab) -> None:
    lab.own.fails = {"--force-join node12"}
    with pytest.raises(MergeIncompleteError) as caught:
        lab.merge()
    assert str(caught.value).endswith("\n  gnt-node add --readd --force-join node12.example.com")
    assert "own gnt-cluster watcher continue" in lab.log
    assert len(lab.config().nodes) == 5


def test_a_smaller_cluster_starts_without_votes(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.own.data = cluster_of(2)
    lab.path.write_text(json.dumps(codec.to_dict(lab.own.data)))
    lab.merge()
    assert "own daemon-util start ganeti-masterd --no-voting --yes-do-it" in lab.log
    assert "own daemon-util restart ganeti-masterd" in lab.log


def test_verification_finds_errors(lab: Lab) -> None:
    lab.own.fails = {"gnt-cluster verify"}
    with pytest.raises(MergeIncompleteError, match="finds errors"):
        lab.merge()


def test_conflicts_are_listed(lab: Lab) -> None:
    lab.other.data = second("web1", "shop1", uid_pool=((1, 2),))
    with pytest.raises(errors.OpPrereqError) as caught:
        lab.merge()
    assert "  - both clusters have an instance web1.example.com" in str(caught.value)
    lab.other.data = second("shop1", uid_pool=((1, 2),))
    with pytest.raises(errors.OpPrereqError, match="With --parameter-conflicts=warn"):
        lab.merge()
    assert lab.log == []
    lab.merge(parameters=conflicts.WARN, dry_run=True)
    assert any(line.startswith("Warning: parameter uid_pool") for line in lab.said)


def test_the_ports_of_ssh(lab: Lab) -> None:
    """The port of the master, which the user has named, is the one in its configuration."""
    cluster = lab.other.data.cluster
    lab.other.data = dataclasses.replace(
        lab.other.data,
        cluster=dataclasses.replace(cluster, ndparams={**cluster.ndparams, "ssh_port": 2222}),
    )
    with pytest.raises(errors.OpPrereqError, match="SSH uses port 22, .* ssh_port is 2222"):
        lab.merge(parameters=conflicts.WARN, dry_run=True)
    assert lab.log == []
    lab.other.master.port = 2222
    lab.merge(parameters=conflicts.WARN)
    assert set(lab.other.ports.values()) == {2222}
    found = {node.name: node.ndparams for node in lab.config().nodes.values()}
    assert found["node11.example.com"] == found["node12.example.com"] == {"ssh_port": 2222}
    assert found["node1.example.com"] == {}


def test_parse_guests() -> None:
    assert parse_guests(GUESTS + "\nx\n") == [
        Guest("shop1.example.com", True, True),
        Guest("shop2.example.com", False, False),
        Guest("shop3.example.com", False, True),
        Guest("x", False, False),
    ]
