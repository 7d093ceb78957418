"""``--dry-run`` of every command that makes a job, and what it leaves undone.

Whether a command makes a job is read from the source: the names which its function mentions are
followed, from module to module, to the functions of :mod:`ganeti.cli.jobs` that submit.
"""

from __future__ import annotations

import ast
import functools
import importlib
from pathlib import Path

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import client, errors
from ganeti.bootstrap import node_state, renewal
from ganeti.cli import terminal
from ganeti.cli.command import Command, Program
from ganeti.platform import paths

from .conftest import Gnt, fields_of

LIB = Path(client.__file__).parents[1]
Name = tuple[str, str]

#: Submitting, by whatever way.
SUBMITTING = {("ganeti.cli.jobs", name) for name in ("run_opcode", "run_opcodes", "JobSet")} | {
    ("", "submit_job"),
    ("", "submit_many_jobs"),
}

#: Commands with jobs and without a dry run.
EXCEPTIONS = {
    ("gnt-cluster", "init"): "there is no master yet which could plan",
    ("gnt-cluster", "search-tags"): "its job only reads",
    ("gnt-instance", "console"): "its job only reads",
    ("gnt-instance", "info"): "its job only reads",
    ("gnt-instance", "list-snapshots"): "its job only reads",
    ("gnt-node", "health"): "its job only reads",
    ("gnt-node", "list-storage"): "its job only reads",
    ("gnt-node", "volumes"): "its job only reads",
    ("gnt-os", "diagnose"): "its job only reads",
    ("gnt-os", "info"): "its job only reads",
    ("gnt-os", "list"): "its job only reads",
    ("gnt-storage", "diagnose"): "its job only reads",
    ("gnt-storage", "info"): "its job only reads",
}
#: Commands with a dry run and without jobs.
WITHOUT_JOBS = {("gnt-cluster", "master-failover"): "no master runs; it shows the vote"}


def program(name: str) -> Program:
    loaded: Program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    return loaded


ALL = [(name, command) for name in client.PROGRAMS for command in program(name).commands]


@functools.cache
def mentions() -> dict[Name, set[Name]]:
    """For each top-level function and class of commands: what it mentions."""
    found: dict[Name, set[Name]] = {}
    for package in ("cli", "client"):
        for path in (LIB / package).rglob("*.py"):
            module = ".".join(("ganeti", *path.relative_to(LIB).with_suffix("").parts))
            tree = ast.parse(path.read_text(encoding="utf-8"))
            imported = {
                alias.asname or alias.name: (node.module, alias.name)
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and node.module
                for alias in node.names
            }
            for node in tree.body:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    found[module, node.name] = {
                        name
                        for inner in ast.walk(node)
                        for name in _mentioned(inner, module, imported)
                    }
    return found


def _mentioned(node: ast.AST, module: str, imported: dict[str, Name]) -> list[Name]:
    if isinstance(node, ast.Name):
        return [imported.get(node.id, (module, node.id))]
    if isinstance(node, ast.Attribute):
        inner = node.value
        if isinstance(inner, ast.Name) and inner.id in imported:
            return [(".".join(imported[inner.id]), node.attr)]
        return [("", node.attr)]
    return []


def makes_jobs(command: Command) -> bool:
    return mentions_any(command, SUBMITTING)


def mentions_any(command: Command, wanted: set[Name]) -> bool:
    """Whether the function of a command, or one which it mentions, mentions one of these."""
    waiting = [(command.run.__module__, command.run.__qualname__.partition(".")[0])]
    seen: set[Name] = set()
    while waiting:
        name = waiting.pop()
        if name in wanted or ("", name[1]) in wanted:
            return True
        if name not in seen:
            seen.add(name)
            waiting += mentions().get(name, ())
    return False


def test_the_reading_of_the_source_sees_jobs() -> None:
    assert makes_jobs(program("gnt-instance").commands["startup"])
    assert makes_jobs(program("gnt-instance").commands["add-tags"])
    assert not makes_jobs(program("gnt-instance").commands["list"])
    assert not makes_jobs(program("gnt-cluster").commands["copyfile"])


@pytest.mark.parametrize(("program_name", "command_name"), ALL)
def test_every_job_command_can_show_its_plan(program_name: str, command_name: str) -> None:
    command = program(program_name).commands[command_name]
    offered = any("--dry-run" in option.names for option in command.options)
    key = (program_name, command_name)
    if offered:
        assert makes_jobs(command) or key in WITHOUT_JOBS
    else:
        assert makes_jobs(command) == (key in EXCEPTIONS)


def test_exceptions_exist() -> None:
    assert set(EXCEPTIONS) | set(WITHOUT_JOBS) <= set(ALL)


# -- commands which do more than submit ------------------------------------------------------------


def test_a_node_is_not_prepared(gnt: Gnt, master: FakeMaster, here: paths.Paths) -> None:
    """Neither over SSH, nor with a token."""
    master.errors["QueryNodes"] = errors.OpPrereqError("no node node2", errors.ECODE_NOENT)
    for option in ("", "--token "):
        done = gnt(f"node add {option}--dry-run node2.example.com")
        assert (done.code, done.err) == (0, "")
    for op in master.opcodes():
        assert op["OP_ID"] == "OP_NODE_ADD" and op["dry_run"] is True and op["node_setup"] is True
    assert len(master.opcodes()) == 2
    assert not (Path(here.root).parent / "node2.example.com").exists()


def test_disks_are_looked_at_and_not_activated(gnt: Gnt, master: FakeMaster) -> None:
    master.results["OP_CLUSTER_VERIFY_DISKS"] = {"jobs": [[True, 90]]}
    master.next_job_id = 90
    master.add_job({"OP_ID": "OP_GROUP_VERIFY_DISKS"})
    master.results["OP_GROUP_VERIFY_DISKS"] = [{}, ["web"], {}]
    done = gnt("cluster verify-disks --dry-run")
    assert done.code == 0
    assert "A dry run activates no disks for instance 'web'" in done.out
    _, look, activate = master.opcodes()
    assert look["OP_ID"] == "OP_CLUSTER_VERIFY_DISKS" and not look["dry_run"]
    assert activate["OP_ID"] == "OP_INSTANCE_ACTIVATE_DISKS" and activate["dry_run"] is True


def test_a_cluster_is_not_destroyed(gnt: Gnt, master: FakeMaster, here: paths.Paths) -> None:
    done = gnt("cluster destroy --dry-run")
    assert (done.code, done.err) == (0, "")
    assert master.opcode()["dry_run"] is True
    assert Path(here.ssconf_file("master_node")).exists()


def test_an_emergency_is_only_announced(gnt: Gnt, master: FakeMaster) -> None:
    master.rows["node"] = [
        {
            "name": "node2.example.com",
            "master": False,
            "offline": False,
            "powered": True,
            "pip": "192.0.2.2",
            "ndparams": {},
        }
    ]
    master.rows["instance"] = [
        {
            "name": "web",
            "pnode": "node2.example.com",
            "snodes": [],
            "admin_state": "up",
            "oper_state": True,
        }
    ]
    done = gnt("cluster epo --dry-run node2.example.com")
    assert done == (
        0,
        "These nodes will be switched off:\n  node2.example.com\n"
        "and these instances stopped:\n  web\n",
        "",
    )
    assert master.opcodes() == []


def test_no_key_is_made(gnt: Gnt, master: FakeMaster, here: paths.Paths) -> None:
    node_state.write_credentials(here, node_state.new_credentials(), "node1.example.com")
    done = gnt("cluster renew-crypto --dry-run --new-cluster-certificate --new-confd-hmac-key")
    assert done == (0, "New content would be prepared for server.pem, hmac.key.\n", "")
    sent = master.opcode()
    assert sent["dry_run"] is True and sent["node_certificates"] is True
    assert renewal.pending(here) == []


@pytest.mark.parametrize("line", ["activate-master-ip", "deactivate-master-ip"])
def test_the_address_of_the_master_stays(line: str, gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"cluster {line} --dry-run").code == 0
    assert master.opcode()["dry_run"] is True


def test_the_queue_is_not_tested(gnt: Gnt, master: FakeMaster) -> None:
    assert gnt("debug test-jobqueue --dry-run") == (0, "", "")
    assert [op["OP_ID"] for op in master.opcodes()] == ["OP_TEST_DELAY", "OP_TEST_JQUEUE"]
    assert all(op["dry_run"] for op in master.opcodes())
    assert gnt("debug test-osparams --dry-run --os-parameters-secret a=b").code == 0
    assert master.opcodes()[-1]["dry_run"] is True


#: Every command with a dry run which asks for confirmation without it.
ASKING = [
    "backup export --node node2 --shutdown-timeout 1 --remove-instance web1",
    "cluster deactivate-master-ip",
    "cluster rename cluster2.example.com",
    "instance activate-disks web1 web2",
    "instance add-tags --node node2 new",
    "instance change-group web1 web2",
    "instance deactivate-disks web1 web2",
    "instance failover web1",
    "instance grow-disk web1 web2 0 1g",
    "instance migrate web1",
    "instance migrate --cleanup web1",
    "instance modify -B memory=512 web1 web2",
    "instance move --node node2 web1",
    "instance reboot --all",
    "instance reinstall web1",
    "instance reinstall --all",
    "instance recreate-disks web1 web2",
    "instance remove web1",
    "instance remove web1 web2",
    "instance remove-snapshot web1 web2 before",
    "instance remove-tags --node node2 new",
    "instance replace-disks -p web1 web2",
    "instance restore-snapshot web1 before",
    "instance shutdown --all",
    "instance snapshot web1 web2",
    "instance startup --all",
    "node add-tags --tags old new",
    "node evacuate --iallocator hail node2",
    "node failover node2",
    "node maintenance start node2",
    "node migrate node2",
    "node modify --drained=yes --tags old",
    "node power off node2",
    "node powercycle node2",
    "node remove --tags old",
    "node remove-tags --tags old new",
]


@pytest.fixture
def asked(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A terminal on which every question is answered with no."""
    questions: list[str] = []

    def ask(question: str) -> str:
        questions.append(question)
        return "n"

    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    monkeypatch.setattr(terminal, "ask_line", ask)
    names = ("web1", "web2")
    master.fields["instance"], master.fields["node"] = fields_of("instance"), fields_of("node")
    master.rows["instance"] = [
        {"name": name, "forthcoming": False, "disk_template": "drbd"} for name in names
    ]
    master.rows["node"] = [
        {"name": "node2", "pinst_list": list(names), "sinst_list": [], "powered": True}
    ]
    return questions


@pytest.mark.parametrize("line", ASKING)
def test_a_dry_run_never_asks(line: str, gnt: Gnt, master: FakeMaster, asked: list[str]) -> None:
    assert gnt(line).code == 13
    # A command may show the plan of a dry run before it asks.
    assert asked and all(op["dry_run"] for op in master.opcodes())
    asked.clear()
    program_name, command, *rest = line.split(" ")
    done = gnt(" ".join([program_name, command, "--dry-run", *rest]))
    assert asked == []
    assert master.opcodes(), done
    assert all(op["dry_run"] for op in master.opcodes())


def test_a_refusal_of_a_maintenance_comes_before_the_question(
    gnt: Gnt, master: FakeMaster, asked: list[str]
) -> None:
    master.results["OP_NODE_MAINTENANCE_START"] = errors.OpPrereqError(
        "node node2 is the master", errors.ECODE_STATE
    )
    done = gnt("node maintenance start node2")
    assert done.code == 1 and "node node2 is the master" in done.err
    assert asked == []
    (op,) = master.opcodes()
    assert op["dry_run"]


def test_every_command_that_asks_is_tried() -> None:
    """Whether a command asks is read from the source, like whether it makes a job."""
    confirming = {
        ("ganeti.cli.confirmation", "ask"),
        ("ganeti.cli.terminal", "confirm"),
        ("ganeti.cli.terminal", "ask_line"),
    }
    tried = {tuple(line.split(" ")[:2]) for line in ASKING}
    # The first shows the vote, the second its plan (tested above), renumber works without a master
    # (bootstrap/test_renumber.py), the others ask about SSH keys and about keys of the cluster only
    # after the dry run. An undo needs a history (test_undo.py). Tags of instances and nodes ask when several are selected; those of other
    # objects never do.
    others = {
        *((name, "add-tags") for name in ("cluster", "group", "network")),
        *((name, "remove-tags") for name in ("cluster", "group", "network")),
        ("cluster", "epo"),
        ("cluster", "undo"),
        ("instance", "undo"),
        ("cluster", "master-failover"),
        ("cluster", "renew-crypto"),
        ("cluster", "renumber"),
        ("node", "add"),
    }
    for program_name, command_name in ALL:
        command = program(program_name).commands[command_name]
        if not any("--dry-run" in option.names for option in command.options):
            continue
        key = (program_name.removeprefix("gnt-"), command_name)
        if mentions_any(command, confirming):
            assert key in tried | others, key
        else:
            assert key not in tried | others, key


def test_a_dry_run_does_not_offer_a_choice(gnt: Gnt, master: FakeMaster, asked: list[str]) -> None:
    done = gnt("instance reinstall --dry-run --select-os web1")
    assert done.code == 1 and "--os-type" in done.err
    assert asked == [] and master.opcodes() == []
