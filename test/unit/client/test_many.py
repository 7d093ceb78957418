"""Commands on several instances or nodes: one selector, the plan, the question, each result."""

from __future__ import annotations

import importlib
import shlex
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import client, errors
from ganeti.cli import jobs, terminal
from ganeti.cli.command import Program

from .conftest import Gnt


@pytest.fixture(autouse=True)
def _cluster(master: FakeMaster) -> None:
    master.rows["instance"] = [
        {"name": "web1", "forthcoming": False},
        {"name": "web2", "forthcoming": False},
        {"name": "later", "forthcoming": True},
    ]
    master.rows["node"] = [
        {
            "name": name,
            "pinst_list": ["web1"],
            "sinst_list": [],
            "drained": False,
            "offline": False,
        }
        for name in ("node1", "node2")
    ]
    master.answers["QueryGroups"] = lambda names, fields, lock: [[name] for name in names]


#: Command -> the words between the options and the names, and the words behind the names.
INSTANCES = {
    "instance remove": ("", ""),
    "instance startup": ("", ""),
    "instance shutdown": ("", ""),
    "instance reboot": ("", ""),
    "instance reinstall": ("", ""),
    "instance migrate": ("", ""),
    "instance failover": ("", ""),
    "instance move": ("-n node2", ""),
    "instance modify": ("-B memory=512", ""),
    "instance snapshot": ("", ""),
    "instance remove-snapshot": ("", "old"),
    "instance restore-snapshot": ("", "old"),
    "instance activate-disks": ("", ""),
    "instance deactivate-disks": ("", ""),
    "instance grow-disk": ("", "0 1g"),
    "instance recreate-disks": ("", ""),
    "instance replace-disks": ("-p", ""),
    "instance add-tags": ("", "new"),
    "instance remove-tags": ("", "old"),
    "backup export": ("-n node2", ""),
}
#: Commands whose option ``--node`` is not a way to select instances.
NODE_IS_A_TARGET = ("move", "modify", "recreate-disks", "export")


def program(name: str) -> Program:
    loaded: Program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    return loaded


def found(master: FakeMaster, *names: str) -> list[Any]:
    """Let each query find these objects; return the list of what is asked."""
    asked: list[Any] = []

    def query(what: str, fields: list[str], qfilter: Any) -> dict[str, Any]:
        asked.append((what, qfilter))
        return {"fields": [], "data": [[[0, name]] for name in names]}

    master.answers["Query"] = query
    return asked


def selections() -> list[Any]:
    """Each command with each way to select instances, but the older ones of test_power.py."""
    ways = {
        "filter": "-F 'status == \"running\"'",
        "tags": "--tags blue",
        "group": "--group rack2",
        "primary": "--primary node1",
    }
    older = ("startup", "shutdown", "reboot", "reinstall")
    return [
        pytest.param(line, words, id=f"{way}-{line}")
        for way, words in ways.items()
        for line in INSTANCES
        if way == "filter" or line.split()[1] not in older
    ]


def objects(master: FakeMaster) -> list[str]:
    return [op.get("instance_name") or op.get("node_name") or op["name"] for op in master.opcodes()]


@pytest.mark.parametrize(("line", "words"), selections())
def test_every_command_selects_instances(
    line: str, words: str, gnt: Gnt, master: FakeMaster
) -> None:
    asked = found(master, "web1", "web2", "later")
    before, behind = INSTANCES[line]
    ended = gnt(f"{line} --yes {before} {words} {behind}")
    assert ended.code == 0, ended
    # What is only reserved has to be named.
    assert objects(master) == ["web1", "web2"]
    assert asked[0][0] == "instance"


@pytest.mark.parametrize("line", [line for line in INSTANCES if "tags" not in line])
def test_every_command_takes_several_names(line: str, gnt: Gnt, master: FakeMaster) -> None:
    before, behind = INSTANCES[line]
    ended = gnt(f"{line} --force-multiple {before} web1 web2 web1 {behind}")
    assert ended.code == 0, ended
    expected = ["web1", "web2"]
    if line.split()[1] in ("startup", "shutdown", "reboot", "reinstall"):
        expected = ["web1", "web2", "web1"]
    assert objects(master) == expected


def test_no_command_is_forgotten() -> None:
    """A command which takes an instance takes several, or is named here with the reason."""
    single = {
        "add-tags": "the first argument selects, the others are tags",
        "remove-tags": "the first argument selects, the others are tags",
        "list-tags": "prints the tags of one object",
        "console": "a terminal shows one console",
        "copy": "each copy gets another name",
        "rename": "each instance gets another name",
        "undo": "the plan is about the last change of one instance",
        "top": "a list",
        "list-drbd": "the configuration daemons answer about one node",
        "modify-storage": "a volume of one node",
        "repair-storage": "a volume group of one node",
    }
    for name in ("gnt-instance", "gnt-node", "gnt-backup"):
        for word, command in program(name).commands.items():
            for argument in command.arguments:
                if argument.kind in ("instance", "node") and word != "import":
                    assert argument.maximum is None or word in single, (name, word)


@pytest.mark.parametrize("line", INSTANCES)
def test_the_options_are_everywhere(line: str) -> None:
    name, word = line.split()
    options = {one for o in program(f"gnt-{name}").commands[word].options for one in o.names}
    wanted = {"-F", "--filter", "--tags", "--node", "--primary", "--secondary", "--group", "--yes"}
    assert wanted <= options


NODES = {
    "node modify": "--drained=yes",
    "node powercycle": "",
    "node remove": "",
    "node evacuate": "",
    "node migrate": "",
    "node add-tags": "",
}


@pytest.mark.parametrize("line", NODES)
@pytest.mark.parametrize("words", ["-F offline", "--tags old", "--group rack2"])
def test_every_command_selects_nodes(line: str, words: str, gnt: Gnt, master: FakeMaster) -> None:
    asked = found(master, "node1", "node2")
    for op_id in ("OP_NODE_EVACUATE", "OP_NODE_MIGRATE"):
        master.results[op_id] = {"jobs": []}
    behind = "new" if "tags" in line else ""
    ended = gnt(f"{line} --yes {NODES[line]} {words} {behind}")
    assert ended.code == 0, ended
    assert objects(master) == ["node1", "node2"]
    assert asked[0][0] == "node"


# -- the plan and the question ---------------------------------------------------------------------


def test_the_plan_has_number_and_names(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(terminal, "confirm", confirm)
    ended = gnt("instance remove web1 web2")
    assert ended.out == (
        "2 instances will be removed and their disks will be destroyed:\n  web1\n  web2\n"
    )
    assert (ended.code, asked, master.opcodes()) == (13, ["Continue?"], [])


def test_one_selected_instance_is_shown_too(gnt: Gnt, master: FakeMaster) -> None:
    found(master, "web1")
    ended = gnt("instance modify --tags blue -B memory=512")
    assert ended.out == "1 instance will be changed:\n  web1\n"
    assert (ended.code, master.opcodes()) == (1, [])
    assert "There is no terminal to ask on. Add --yes to continue." in ended.err


@pytest.mark.parametrize("option", ["-f", "--yes", "--force-multiple"])
def test_nobody_is_asked(option: str, gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"instance remove {option} web1 web2").code == 0
    assert objects(master) == ["web1", "web2"]


def test_the_force_of_a_change_is_not_an_agreement(gnt: Gnt, master: FakeMaster) -> None:
    """There it means that failed checks do not matter."""
    assert gnt("instance modify -f -B memory=512 web1 web2").code == 1
    assert master.opcodes() == []


def test_a_wrong_name_changes_nothing(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance remove -f web1 nosuch")
    assert (ended.code, master.opcodes()) == (1, [])
    assert "nosuch" in ended.err


def test_only_reserved_instances(gnt: Gnt, master: FakeMaster) -> None:
    found(master, "later")
    ended = gnt("instance remove -f --tags blue")
    assert ended.code == 1
    assert "only forthcoming instances are selected" in ended.err


def test_the_plan_alone(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance migrate --dry-run web1 web2")
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "2 instances will be migrated to other nodes:"
    assert ended.out.splitlines()[-1] == "2 instances could be migrated."
    assert all(op["dry_run"] for op in master.opcodes())


# -- results ---------------------------------------------------------------------------------------


def test_one_fails(gnt: Gnt, master: FakeMaster) -> None:
    def result(op: dict[str, Any]) -> Any:
        if op["instance_name"] == "web1":
            return errors.OpExecError("no free memory")
        return None

    master.results["OP_INSTANCE_MIGRATE"] = result
    ended = gnt("instance migrate -f web1 web2")
    assert ended.code == 1
    assert ended.out.splitlines()[-1] == "web2: migrated"
    assert ended.err.splitlines()[-1] == "1 of 2 instances migrated; failed: web1."
    assert "no free memory" in ended.err
    # One request submits all of them; the queue bounds how many run.
    assert master.methods().count("SubmitManyJobs") == 1


def test_all_succeed(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_INSTANCE_SNAPSHOT"] = "a"
    ended = gnt("instance snapshot --yes web1 web2")
    assert ended.code == 0
    assert ended.out.splitlines()[-3:] == [
        "web1: a",
        "web2: a",
        "2 instances recorded in a snapshot.",
    ]


def test_an_export_without_a_disk_is_a_failure(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_BACKUP_EXPORT"] = lambda op: [True, [op["instance_name"] == "web1"]]
    ended = gnt("backup export --yes -n node2 web1 web2")
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "These disks of instance web2 were not exported: 0",
        "1 of 2 instances exported; failed: web2.",
    ]


def test_submit_only(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("instance remove -f --submit web1 web2") == (0, "1: web1\n2: web2\n", "")


@pytest.mark.parametrize(
    ("line", "names", "snapshot"),
    [
        ("web1 before", ["web1"], "before"),
        ("web1 web2", ["web1", "web2"], None),
        ("--snapshot-name a web1 web2", ["web1", "web2"], "a"),
    ],
)
def test_the_name_of_a_snapshot_may_follow(
    line: str, names: list[str], snapshot: str | None, gnt: Gnt, master: FakeMaster
) -> None:
    master.results["OP_INSTANCE_SNAPSHOT"] = "a"
    assert gnt(f"instance snapshot --yes {line}").code == 0
    assert objects(master) == names
    assert {op["snapshot_name"] for op in master.opcodes()} == {snapshot}


# -- nodes, one after another ----------------------------------------------------------------------


def test_nodes_are_emptied_one_after_another(gnt: Gnt, master: FakeMaster) -> None:
    def result(op: dict[str, Any]) -> Any:
        if op["node_name"] == "node1":
            return errors.OpPrereqError("no other node", errors.ECODE_NORES)
        return {"jobs": []}

    master.results["OP_NODE_EVACUATE"] = result
    ended = gnt("node evacuate -f node1 node2")
    assert ended.code == 1
    assert objects(master) == ["node1", "node2"]
    assert ended.out.splitlines() == [
        "node1 (1 of 2)",
        "node2 (2 of 2)",
        "All instances evacuated successfully.",
    ]
    assert "gnt-node modify --drained=yes node1 node2" in ended.err
    assert "node1: " in ended.err and "no other node" in ended.err
    assert ended.err.splitlines()[-1] == "1 of 2 nodes evacuated; failed: node1."


def test_drained_nodes_need_no_advice(gnt: Gnt, master: FakeMaster) -> None:
    for row in master.rows["node"]:
        row["drained"] = True
    master.results["OP_NODE_EVACUATE"] = {"jobs": []}
    ended = gnt("node evacuate -f node1 node2")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == "2 nodes evacuated."


def test_a_failover_of_several_nodes_tells_failures(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["instance"][0]["disk_template"] = "drbd"
    master.results["OP_INSTANCE_FAILOVER"] = errors.OpExecError("no")
    assert gnt("node failover -f node1 node2").code == 1
    # For one node the code is published.
    assert gnt("node failover -f node1").code == 0


def test_maintenance_of_several(gnt: Gnt, master: FakeMaster) -> None:
    for op_id in ("OP_NODE_MAINTENANCE_START", "OP_NODE_MAINTENANCE_END"):
        master.results[op_id] = {"jobs": []}
    ended = gnt("node maintenance --yes start node1 node2")
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1] == "2 nodes ready."
    assert gnt("node maintenance --yes end --tags x").code == 1
    found(master, "node2")
    assert gnt("node maintenance --yes end --tags x").code == 0
    assert objects(master)[:3] == ["node1", "node2", "node2"]


def test_a_secondary_address_belongs_to_one_node(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("node modify --yes -s 192.0.2.7 node1 node2")
    assert (ended.code, master.opcodes()) == (1, [])
    assert "belongs to one node" in ended.err


def test_the_examples_are_split() -> None:
    assert all(shlex.split(line) for line in INSTANCES)


@pytest.mark.parametrize(
    ("line", "plan", "done"),
    [
        ("startup web1 web2", "2 instances will be started:", "2 instances started."),
        ("shutdown web1 web2", "2 instances will be stopped:", "2 instances stopped."),
        ("reboot --all", "2 instances will be rebooted:", "2 instances rebooted."),
        (
            "reinstall web1 web2",
            "2 instances will be reinstalled, and the content of their disks will be destroyed:",
            "2 instances reinstalled.",
        ),
    ],
)
def test_older_commands_have_the_same_plan_and_end(
    line: str,
    plan: str,
    done: str,
    gnt: Gnt,
    master: FakeMaster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return True

    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(terminal, "confirm", confirm)
    # Programs find the lines which they know.
    ended = gnt(f"instance {line}")
    assert (ended.code, asked) == (0, ["Continue?"])
    assert ended.out.splitlines()[0] == plan
    assert ended.out.splitlines()[-1].startswith("Waiting for job ")
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(jobs, "_ending", lambda values: None)
    ended = gnt(f"instance {line}")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, done)


def test_an_older_command_names_what_failed(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(jobs, "_ending", lambda values: None)
    master.results["OP_INSTANCE_STARTUP"] = lambda op: (
        errors.OpExecError("no memory") if op["instance_name"] == "web2" else None
    )
    ended = gnt("instance startup --yes web1 web2")
    assert ended.code == 1
    assert ended.err.splitlines()[-1].endswith("1 of 2 instances started; failed: web2.")
