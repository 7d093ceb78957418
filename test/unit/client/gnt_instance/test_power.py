"""``gnt-instance startup, shutdown, reboot``: one or several at once."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.cli import terminal

from ..conftest import Gnt


@pytest.fixture(autouse=True)
def _instances(master: FakeMaster) -> None:
    master.rows["instance"] = [
        {"name": "web1", "tags": ["web"]},
        {"name": "web2", "tags": ["web", "prod"]},
        {"name": "db1", "tags": []},
    ]
    master.rows["node"] = [
        {"name": "node1", "pinst_list": ["web1"], "sinst_list": ["web2"], "tags": ["ssd"]},
        {"name": "node2", "pinst_list": ["web2", "db1"], "sinst_list": ["web1"], "tags": []},
    ]


def test_one(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("instance shutdown web1") == (0, "Waiting for job 1 for web1 ...\n", "")
    assert [request[0] for request in master.requests[:3]] == [
        "QueryInstances",
        "SubmitManyJobs",
        "WaitForJobChange",
    ]
    assert master.requests[0] == ("QueryInstances", [["web1"], ["name"], False])


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "startup web1",
            {
                "OP_ID": "OP_INSTANCE_STARTUP",
                "force": False,
                "ignore_offline_nodes": False,
                "no_remember": False,
                "startup_paused": False,
                "hvparams": {},
                "beparams": {},
            },
        ),
        (
            "start -f --paused --no-remember --ignore-offline -B maxmem=1g -H acpi=false web1",
            {
                "OP_ID": "OP_INSTANCE_STARTUP",
                "force": True,
                "ignore_offline_nodes": True,
                "no_remember": True,
                "startup_paused": True,
                "hvparams": {"acpi": False},
                "beparams": {"maxmem": 1024},
            },
        ),
        (
            "stop --timeout 7 -f web1",
            {
                "OP_ID": "OP_INSTANCE_SHUTDOWN",
                "timeout": 7,
                "force": True,
                "no_remember": False,
                "admin_state_source": None,
            },
        ),
        (
            "reboot web1",
            {
                "OP_ID": "OP_INSTANCE_REBOOT",
                "reboot_type": "hard",
                "shutdown_timeout": 120,
                "ignore_secondaries": False,
            },
        ),
        (
            "reboot -t full --ignore-secondaries --shutdown-timeout=9 --dry-run --priority=low web1",
            {
                "reboot_type": "full",
                "shutdown_timeout": 9,
                "ignore_secondaries": True,
                "dry_run": True,
                "priority": 10,
            },
        ),
    ],
)
def test_options(line: str, wanted: dict[str, Any], gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"instance {line}").code == 0
    sent = master.opcode()
    assert sent["instance_name"] == "web1"
    assert {name: sent[name] for name in wanted} == wanted


def test_the_command_of_an_alias_is_in_the_reason(gnt: Gnt, master: FakeMaster) -> None:
    gnt("instance start web1")
    assert master.opcode()["reason"][0][:2] == ["gnt:client:gnt-instance", "startup"]


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        ("--all", ["web1", "web2", "db1"]),
        ("--instance web1 db1", ["web1", "db1"]),
        ("--node node1", ["web1", "web2"]),
        ("--primary node2", ["web2", "db1"]),
        ("--secondary node1 node2", ["web2", "web1"]),
        ("--tags prod nosuch", ["web2"]),
        ("--node-tags ssd", ["web1", "web2"]),
        ("--pri-node-tags ssd", ["web1"]),
        ("--sec-node-tags ssd", ["web2"]),
    ],
)
def test_selections(selection: str, names: list[str], gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt(f"instance startup --force-multiple {selection}")
    assert ended.code == 0
    assert [op["instance_name"] for op in master.opcodes()] == names
    listed = ", ".join(str(number + 1) for number in range(len(names)))
    assert ended.out.splitlines()[0] == f"Submitted jobs {listed}"


@pytest.mark.parametrize("words", [["-F", 'pnode == "node1"'], ["--group", "rack2"]])
def test_filter_and_groups(words: list[str], gnt: Gnt, master: FakeMaster) -> None:
    asked: list[Any] = []

    def query(what: str, fields: list[str], qfilter: Any) -> dict[str, Any]:
        asked.append((what, qfilter))
        return {"fields": [], "data": [[[0, "web1"]], [[0, "db1"]]]}

    master.answers["Query"] = query
    master.answers["QueryGroups"] = lambda names, fields, lock: [[name] for name in names]
    assert gnt("instance shutdown --force-multiple", *words).code == 0
    assert [op["instance_name"] for op in master.opcodes()] == ["web1", "db1"]
    field = "pnode" if words[0] == "-F" else "pnode.group"
    assert asked[0][0] == "instance" and field in str(asked[0][1])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("startup", "no instance is given"),
        ("startup --all web1", "--all takes no names"),
        ("startup --tags nosuch", "no instance is selected"),
        ("startup nosuch", "'nosuch' not known"),
        ("startup --node nosuch", "'nosuch' not known"),
    ],
)
def test_nothing_selected(line: str, text: str, gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt(f"instance {line}")
    assert ended.code == 1
    assert text in ended.err
    assert master.opcodes() == []


def test_several_need_a_yes(gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = gnt("instance shutdown --all")
    assert ended.code == 1
    assert "--force-multiple" in ended.err
    assert "  web2\n" in ended.out
    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(terminal, "confirm", lambda question: False)
    assert gnt("instance shutdown --all").code == 13
    assert master.opcodes() == []
    monkeypatch.setattr(terminal, "confirm", lambda question: True)
    assert gnt("instance shutdown --all").code == 0
    assert len(master.opcodes()) == 3


def test_one_of_several_fails(gnt: Gnt, master: FakeMaster) -> None:
    def result(op: dict[str, Any]) -> Any:
        if op["instance_name"] == "web2":
            return errors.HooksAbort([["node1", "instance-start-pre.d/no", "not today"]])
        return None

    master.results["OP_INSTANCE_STARTUP"] = result
    ended = gnt("instance startup --all --force-multiple")
    assert ended.code == 1
    assert ended.out.splitlines() == [
        "Submitted jobs 1, 2, 3",
        "Waiting for job 1 for web1 ...",
        "Waiting for job 2 for web2 ...",
        "Waiting for job 3 for db1 ...",
    ]
    assert ended.err == (
        "Job 2 for web2 has failed: Failure: hooks execution failed:\n"
        "  node: node1, script: instance-start-pre.d/no, output: not today\n"
    )


def test_one_of_several_cannot_be_submitted(gnt: Gnt, master: FakeMaster) -> None:
    master.submit_errors = {1: "queue is full"}
    ended = gnt("instance startup --all --force-multiple")
    assert ended.code == 1
    assert "Failed to submit job for web2: queue is full" in ended.err
    assert "Submitted jobs 1, 2\n" in ended.out


def test_submit_only(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("instance startup --all --force-multiple --submit --print-jobid") == (
        0,
        "1: web1\n2: web2\n3: db1\n",
        "",
    )
    assert "WaitForJobChange" not in master.methods()
    master.submit_errors = {0: "queue is full"}
    ended = gnt("instance startup --submit web1")
    assert (ended.code, ended.err) == (1, "Failure for web1: queue is full\n")


def test_a_running_job_is_watched_first(gnt: Gnt, master: FakeMaster) -> None:
    real = master.answers.get("SubmitManyJobs")
    assert real is None

    def submit(jobs: list[Any]) -> list[Any]:
        rows = [[True, master._submit(ops)] for ops in jobs]
        master.jobs[2].status = "running"
        return rows

    master.answers["SubmitManyJobs"] = submit
    out = gnt("instance startup --all --force-multiple").out.splitlines()
    assert out[1] == "Waiting for job 2 for web2 ..."


def test_a_job_that_is_archived_meanwhile(gnt: Gnt, master: FakeMaster) -> None:
    master.errors["WaitForJobChange"] = errors.JobLost("job 1 does not exist")
    ended = gnt("instance startup web1")
    assert ended.code == 1
    assert "Job 1 for web1 has failed: the job is archived or lost" in ended.err


def test_wrong_reboot_type(gnt: Gnt) -> None:
    ended = gnt("instance reboot -t bogus web1")
    assert ended.code == 2
    assert "invalid choice: 'bogus' (choose from 'soft', 'hard', 'full')" in ended.err


@pytest.mark.parametrize(
    ("selection", "left"),
    [
        ("--all", ["db1", "web1"]),
        ("--tags prod web", ["web1"]),
        ("--node node2", ["db1", "web1"]),
        ("--instance web2", ["web2"]),
    ],
)
def test_what_is_only_reserved_must_be_named(
    selection: str, left: list[str], gnt: Gnt, master: FakeMaster
) -> None:
    master.rows["instance"][1]["forthcoming"] = True
    assert gnt(f"instance shutdown --force-multiple {selection}").code == 0
    assert sorted(op["instance_name"] for op in master.opcodes()) == left
