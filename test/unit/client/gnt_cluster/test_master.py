"""``gnt-cluster``: the master's role, its address, the queue's drain flag, the watcher's pause."""

from __future__ import annotations

import dataclasses
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.config import cluster_of
from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.bootstrap import failover, node_state
from ganeti.cli import jobs
from ganeti.config.members import Members
from ganeti.config.role import Ballot, Standing, judge
from ganeti.config.witness import Document
from ganeti.objects.transfer import MasterStatus
from ganeti.platform.master_epoch import Epoch
from ganeti.rpc import failover_status
from ganeti.rpc.voting import Votes

from ..conftest import Gnt

ME = "node2.example.com"
E = Epoch(3, "u")


def survey(**answers: Standing) -> failover.Survey:
    data = cluster_of(3)
    nodes = {node.name: node for node in data.nodes.values()}
    members = Members(nodes, data.cluster.master_node, 5)
    given = {f"{name}.example.com": one for name, one in answers.items()}
    failures = {name: f"node {name} is unreachable" for name in members.nodes if name not in given}
    ballot = Ballot(ME, frozenset(members.nodes), members.candidates, moving=True)
    voting: Any = SimpleNamespace(ballot=ballot)
    return failover.Survey(
        ME,
        members,
        voting,
        Votes(given, failures, (E,)),
        judge(ballot, given),
        members.master,
        True,
    )


def standing(serial: int = 5) -> Standing:
    return Standing("node1.example.com", E, (E, serial), (E, 9))


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def move(**options: Any) -> list[str]:
        options.pop("say")("a step")
        calls.append(options)
        return ["something is left"]

    monkeypatch.setattr(failover, "failover", move)
    return calls


def test_failover(gnt: Gnt, moved: list[dict[str, Any]]) -> None:
    assert gnt("cluster master-failover") == (0, "a step\n", "Warning: something is left\n")
    assert gnt("cluster masterfailover --ignore-offline-nodes=no").code == 0
    assert gnt("cluster master-failover --no-voting --yes-do-it").code == 0
    assert moved == [
        {"no_voting": False, "ignore_offline": True},
        {"no_voting": False, "ignore_offline": False},
        {"no_voting": True, "ignore_offline": True},
    ]


def test_no_voting_is_confirmed(
    gnt: Gnt, moved: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ganeti.cli import terminal

    questions: list[str] = []

    def refuse(question: str) -> bool:
        questions.append(question)
        return False

    monkeypatch.setattr(terminal, "confirm", refuse)
    assert gnt("cluster master-failover --no-voting").code == 13
    assert "without a vote of the other nodes" in questions[0]
    assert moved == []


def test_wrong_option(gnt: Gnt, moved: list[dict[str, Any]]) -> None:
    ended = gnt("cluster master-failover --ignore-offline-nodes=perhaps")
    assert ended.code == 1
    assert "--ignore-offline-nodes" in ended.err
    assert moved == []


def test_dry_run(gnt: Gnt, moved: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    found = survey(node1=standing(), node2=standing())
    monkeypatch.setattr(failover, "survey", lambda **_options: found)
    ended = gnt("cluster master-failover --dry-run")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[1].split()[:6] == [
        "node1.example.com",
        "yes",
        "node1.example.com",
        "3",
        "3/5",
        "3/9",
    ]
    assert "is unreachable" in lines[3]
    assert lines[-1] == f"{ME} may become the master in place of node1.example.com."
    assert moved == []


def test_dry_run_of_what_is_refused(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    found = survey(node2=standing())
    monkeypatch.setattr(failover, "survey", lambda **_options: found)
    ended = gnt("cluster master-failover --dry-run")
    assert ended.code == 1
    assert f"{ME} may not become the master: only 1 of 3 nodes answer" in ended.out


def test_dry_run_names_what_would_be_fetched(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    found = survey(node1=standing(6), node2=standing())
    monkeypatch.setattr(failover, "survey", lambda **_options: found)
    ended = gnt("cluster master-failover --dry-run")
    assert ended.code == 0
    assert "node1.example.com has newer configuration, which would be fetched." in ended.out
    assert "jobs, which" not in ended.out


def test_ping(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("cluster master-ping") == (0, "", "")
    master.errors["QueryClusterInfo"] = errors.GenericError("it is ill")
    ended = gnt("cluster master-ping")
    assert ended.code == 1
    assert "it is ill" in ended.err


def test_ping_without_a_master(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_CONNECT_TIMEOUT_S", 0.1)
    ended = gnt("cluster master-ping")
    assert ended.code == 1
    assert ended.err.startswith("The master does not answer: ")
    assert "protocol error" not in ended.err


@pytest.mark.parametrize(
    ("line", "op_id"),
    [
        ("cluster activate-master-ip", "OP_CLUSTER_ACTIVATE_MASTER_IP"),
        ("cluster deactivate-master-ip --yes", "OP_CLUSTER_DEACTIVATE_MASTER_IP"),
        ("cluster redist-conf", "OP_CLUSTER_REDIST_CONF"),
    ],
)
def test_jobs(gnt: Gnt, master: FakeMaster, line: str, op_id: str) -> None:
    assert gnt(line) == (0, "", "")
    assert master.opcode()["OP_ID"] == op_id


def test_the_address_stays_up_unless_confirmed(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("cluster deactivate-master-ip").code == 13
    assert master.opcodes() == []


def test_queue(gnt: Gnt, master: FakeMaster) -> None:
    master.answers["QueryConfigValues"] = lambda _fields: [True, ""]
    assert gnt("cluster queue info") == (0, "The drain flag is set\n", "")
    assert gnt("cluster queue --output=csv info") == (0, "drained,paused\ntrue,\n", "")
    master.answers["QueryConfigValues"] = lambda _fields: [False, ""]
    assert gnt("cluster queue info") == (0, "The drain flag is unset\n", "")
    master.answers["SetDrainFlag"] = lambda flag: flag
    assert gnt("cluster queue drain") == (0, "", "")
    assert gnt("cluster queue undrain") == (0, "", "")
    assert [args for name, args in master.requests if name == "SetDrainFlag"] == [[True], [False]]
    assert gnt("cluster queue empty").code == 1


def test_a_pause_of_the_queue_is_told(gnt: Gnt, master: FakeMaster) -> None:
    reason = "cannot make a process for the job: No space left on device"
    known = {"drain_flag": False, "queue_pause": reason}
    master.answers["QueryConfigValues"] = lambda names: [known.get(name) for name in names]
    text = f"Jobs cannot be executed, and wait: {reason}."
    assert text in gnt("cluster queue info").out
    assert f'"paused": "{reason}"' in gnt("cluster queue --output=json info").out
    assert f"ERROR: {text}" in gnt("cluster verify").out


def test_watcher(gnt: Gnt, master: FakeMaster) -> None:
    until = time.time() + 3600
    master.answers["QueryConfigValues"] = lambda _fields: [until]
    paused = f"The watcher is paused until {time.ctime(until)}.\n"
    assert gnt("cluster watcher info") == (0, paused, "")
    assert gnt("cluster watcher --output=json info").out == f'{{\n  "paused_until": {until}\n}}\n'
    master.answers["QueryConfigValues"] = lambda _fields: [time.time() - 1]
    assert gnt("cluster watcher info") == (0, "The watcher is not paused.\n", "")
    master.answers["SetWatcherPause"] = lambda value: value
    assert gnt("cluster watcher pause 1h").out.startswith("The watcher is paused until ")
    assert gnt("cluster watcher continue") == (0, "The watcher is no longer paused.\n", "")
    given = [args[0] for name, args in master.requests if name == "SetWatcherPause"]
    assert given[1] is None
    assert abs(given[0] - until) < 60


@pytest.mark.parametrize("words", ["pause", "pause soon", "continue 1h", "info 1h", "sleep"])
def test_watcher_words(gnt: Gnt, master: FakeMaster, words: str) -> None:
    assert gnt(f"cluster watcher {words}").code == 1
    assert master.methods() == []


# -- failover-status -------------------------------------------------------------------------------

_STATUS = MasterStatus(
    master="node1.example.com",
    epoch="3 u",
    daemon="dead",
    watching=True,
    watched="node1.example.com",
    state="unreachable",
    seen_s=7.2,
    text="the node of the master does not answer; this node asks for the role if that lasts",
    acted="2026-11-23 10:00:00 failover has failed: only 1 of 3 nodes answer",
)


def status(limit_s: int = 5) -> failover_status.Status:
    return failover_status.Status(
        limit_s,
        "node1.example.com",
        [
            failover_status.NodeStatus("node1.example.com", True, False, None, "no route to host"),
            failover_status.NodeStatus("node2.example.com", True, False, _STATUS),
            failover_status.NodeStatus("node3.example.com", False, True, None),
        ],
    )


@pytest.fixture(autouse=True)
def in_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_state, "cluster_traces", lambda _here: ["a file"])


def test_failover_status_without_a_cluster(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_state, "cluster_traces", lambda _here: [])
    ended = gnt("cluster failover-status")
    assert ended.code == 1 and "belongs to no cluster" in ended.err


def test_failover_status(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover_status, "ask", status)
    ended = gnt("cluster failover-status")
    assert ended.code == 0
    first, _titles, one, two, three, acted = ended.out.splitlines()
    assert first.endswith("takes its role when it is gone for 5 s.")
    assert one.split()[:4] == ["node1.example.com", "yes", "-", "-"]
    assert one.endswith("no route to host")
    assert two.split()[:4] == ["node2.example.com", "yes", "watches", "unreachable"]
    assert two.endswith("(seen serving 7 s ago)")
    assert three.split() == ["node3.example.com", "no", "-", "-", "offline"]
    assert "node2.example.com acted: 2026-11-23" in acted


def test_failover_status_of_a_master_which_cannot_commit(
    gnt: Gnt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(age_s: float) -> str:
        found = status()
        master = dataclasses.replace(
            _STATUS, daemon="serving", watched="node1.example.com", seen_s=age_s, text="it runs"
        )
        found.nodes[0] = found.nodes[0]._replace(answer=master, failure="")
        monkeypatch.setattr(failover_status, "ask", lambda: found)
        line: str = gnt("cluster failover-status").out.splitlines()[2]
        return line

    assert shown(5.0).split()[3] == "serving"
    assert shown(5.4).split()[3] == "stalled"
    assert shown(7.0).endswith("it runs (a majority confirmed 7 s ago that it can commit)")


def test_failover_status_of_a_cluster_without_it(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover_status, "ask", lambda: status(0))
    assert "does not move by itself" in gnt("cluster failover-status").out


def test_failover_status_shows_a_pause(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    paused = dataclasses.replace(_STATUS, paused_until=4e9)
    found = status()
    found.nodes[1] = found.nodes[1]._replace(answer=paused)
    monkeypatch.setattr(failover_status, "ask", lambda: found)
    assert "The watcher is paused until" in gnt("cluster failover-status").out
    found.nodes[1] = found.nodes[1]._replace(answer=dataclasses.replace(_STATUS, paused_until=1e9))
    assert "paused" not in gnt("cluster failover-status").out


def test_failover_status_for_programs(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover_status, "ask", status)
    found = json.loads(gnt("cluster failover-status --output=json").out)
    assert found["auto_failover"] == 5
    assert found["nodes"][0]["sight"] is None
    assert found["nodes"][1]["sight"]["seen_s"] == 7.2


def test_failover_status_shows_the_witness(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    document = Document(
        "c", 3, "n", "node1.example.com", Epoch(4, "u"), (Epoch(4, "u"), 12), (Epoch(4, "u"), 7)
    )
    url = "https://w.example.com/d"
    known = failover_status.WitnessStatus(url, document)
    monkeypatch.setattr(failover_status, "ask", lambda: status()._replace(witness=known))
    out = gnt("cluster failover-status").out
    assert (
        f"The witness {url} answers: it obeys master epoch 4 of node1.example.com, it knows" in out
    )
    assert "configuration 12, it knows of job 7; written" in out
    found = json.loads(gnt("cluster failover-status --output=json").out)["witness"]
    assert (found["url"], found["epoch"], found["last_job"]) == (url, 4, 7)
    lost = failover_status.WitnessStatus(url, None, f"{url}: no answer")
    monkeypatch.setattr(failover_status, "ask", lambda: status()._replace(witness=lost))
    out = gnt("cluster failover-status").out
    assert f"The witness does not count: {url}: no answer" in out
