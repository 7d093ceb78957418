"""The program: its options, what it refuses, how the nodes are reached, and ``status``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti.cli import remote
from ganeti.takeover import command, facts, node_steps, remote_nodes, steps
from ganeti.takeover.state import BACK, RUN, State, StateFile
from ganeti.utils import process

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIGnvAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


def state(*cluster: str, stopped: bool = False) -> State:
    found = State(number=7, direction=RUN, master="node1", verified=("E x",), stopped_at=5.0,
                  unverified=("node3",))  # fmt: skip
    for name in cluster:
        found.complete(name)
    if stopped:
        found.complete("stop", "node1")
    return found


# -- the way back from any point -------------------------------------------------------------------


def test_the_way_back_looks_at_daemons_which_run() -> None:
    for before in (state("inspect", "drain"), state("inspect", "drain", "open", stopped=True)):
        found = command._way_back(before, "node2", 9)
        assert (found.direction, found.master, found.cluster) == (BACK, "node2", ())
        assert found.verified == ("E x",) and found.unverified == ("node3",)


def test_the_way_back_asks_no_daemons_which_were_stopped() -> None:
    found = command._way_back(state("inspect", "drain", stopped=True), "node1", 9)
    assert found.cluster == ("inspect", "drain") and found.stopped_at == 5.0
    assert found.without_daemons


def test_status_names_what_is_missing() -> None:
    now = state("inspect")
    for step in ("prepare", "stop"):
        now.complete(step, "node1")
    now.complete("prepare", "node2")
    data = command.status_data(now)
    by_name = {one["name"]: one for one in data["steps"]}
    assert by_name["prepare"] == {"name": "prepare", "done": True, "missing": []}
    assert by_name["stop"] == {"name": "stop", "done": False, "missing": ["node2"]}
    assert by_name["inspect"]["done"] and not by_name["drain"]["done"]
    assert by_name["upgrade"]["missing"] == ["node1"]
    assert [one["name"] for one in data["steps"]] == [step.name for step in steps.PLANS[RUN]]


def test_status_without_and_with_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "StateFile", lambda: StateFile(str(tmp_path)))
    assert command.main(["status"]) == 0
    assert "no record" in capsys.readouterr().out
    assert command.main(["--output=json", "status"]) == 0
    assert capsys.readouterr().out == "null\n"
    one = state("inspect")
    one.left_out = ("node3",)
    StateFile(str(tmp_path)).write(one)
    assert command.main(["status"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("run: not complete\n") and "  inspect: done\n" in text
    assert text.endswith("  left out: node3\n")
    assert command.main(["--output=json", "status"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == ["node3"]


# -- a cluster -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"), [(["nosuch"], 2), ([], 2), (["--at-once=0", "status"], 2), (["check"], 1)]
)
def test_wrong_uses(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        found = command.main(words)
    except SystemExit as err:
        found = int(str(err.code))
    assert found == code and capsys.readouterr().err


# -- the nodes -------------------------------------------------------------------------------------


def test_the_key_of_the_cluster_counts_for_all_its_nodes() -> None:
    line = f"cl.example.com ssh-ed25519 {KEY}\n"
    text = remote_nodes.known_hosts_text(
        "other ssh-rsa x\n", line, "cl.example.com", [("node1", 22), ("node2", 2222)]
    )
    assert text == (
        f"other ssh-rsa x\n{line}node1 ssh-ed25519 {KEY}\n[node2]:2222 ssh-ed25519 {KEY}\n"
    )
    assert remote_nodes.known_hosts_text("", "", "cl", [("node1", 22)]) == "\n"


class FakeRemote(remote.RemoteNode):
    """A node which answers from a list, and remembers what it gets."""

    def __init__(self, name: str, answers: Sequence[process.Completed] = ()) -> None:
        super().__init__(name, "192.0.2.2")
        self.answers = list(answers)
        self.commands: list[str] = []
        self.copied: list[str] = []

    @property
    def here(self) -> bool:
        return self.name == "node1"

    def run(self, command: str) -> process.Completed:
        self.commands.append(command)
        return self.answers.pop(0) if self.answers else process.Completed((), 0, "", "", None)

    def copy(self, path: str) -> None:
        self.copied.append(path)


def answer(code: int, out: str = "", err: str = "") -> process.Completed:
    return process.Completed((), code, out, err, None)


def test_a_step_is_a_program_on_the_node_and_its_answer_a_line() -> None:
    one = FakeRemote("node2", [answer(0, f'noise\n{node_steps.ANSWER}{{"missing": []}}\n')])
    found = remote_nodes.Nodes({"node2": one}, 4).call("node2", "prepare", {"package": "it's"})
    assert found == {"missing": []}
    assert one.commands[0].startswith(
        "env PYTHONPATH=/var/lib/ganeti-takeover/program python3 -P -m ganeti.takeover.node_steps"
        " prepare "
    )


@pytest.mark.parametrize(
    ("done", "text"),
    [
        (answer(1, "", "no space"), "no space"),
        (answer(255, "", ""), "exited with exit code 255"),
        (answer(0, "something else"), "no answer from step 'stop': something else"),
    ],
)
def test_a_step_which_fails(done: process.Completed, text: str) -> None:
    with pytest.raises(steps.NodeFailed, match=text):
        remote_nodes.Nodes({"node2": FakeRemote("node2", [done])}, 4).call("node2", "stop", {})


def test_the_program_is_copied_to_other_nodes_only() -> None:
    here, other = FakeRemote("node1"), FakeRemote("node2")
    reach = remote_nodes.Nodes({"node1": here, "node2": other}, 4)
    for name in ("node1", "node2"):
        reach.spread(name, "/p.deb")
    assert here.commands == here.copied == []
    assert other.copied == [f"{facts.STATE_DIR}/program.tar", "/p.deb"]
    assert other.commands[-1].startswith("mv ")


def test_work_goes_on_at_so_many_nodes_at_once() -> None:
    names = [f"node{number}" for number in range(1, 8)]
    reach = remote_nodes.Nodes({name: FakeRemote(name) for name in names}, 3)
    assert list(reach.each(names, str.upper)) == [(name, name.upper()) for name in names]


def test_a_remote_node_uses_the_given_port_and_host_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(process, "run", lambda argv, **_options: seen.append(argv) or answer(0))
    one = remote.RemoteNode("node2", "192.0.2.2", port=2222, known_hosts="/k")
    one.run("true")
    one.copy("/x")
    for argv in seen:
        assert "-oUserKnownHostsFile=/k" in argv and "-oHostKeyAlias=[node2]:2222" in argv
    assert "-p2222" in seen[0] and "-P2222" in seen[1]
