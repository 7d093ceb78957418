"""The closing lines of commands on a terminal."""

from __future__ import annotations

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors, opcodes
from ganeti.cli import closing, terminal

from .conftest import Gnt

# Opcodes of commands without a closing line, with the reason.
WITHOUT = {
    "OP_BACKUP_PREPARE": "a step of a move to another cluster",
    "OP_CLUSTER_CONFIG_QUERY": "reads",
    "OP_CLUSTER_DESTROY": "the master which would be asked is gone",
    "OP_CLUSTER_POST_INIT": "a step of init",
    "OP_CLUSTER_QUERY": "reads",
    "OP_CLUSTER_RENAME": "the command says it",
    "OP_CLUSTER_RENEW_CRYPTO": "the command says it",
    "OP_CLUSTER_REPAIR_DISK_SIZES": "its log says which sizes were corrected",
    "OP_CLUSTER_VERIFY": "the command ends with a verdict",
    "OP_CLUSTER_VERIFY_CONFIG": "reads",
    "OP_CLUSTER_VERIFY_DISKS": "the command says it",
    "OP_CLUSTER_VERIFY_GROUP": "reads",
    "OP_EXT_STORAGE_DIAGNOSE": "reads",
    "OP_GROUP_EVACUATE": "its jobs have closing lines",
    "OP_GROUP_VERIFY_DISKS": "reads",
    "OP_INSTANCE_CHANGE_GROUP": "its jobs have closing lines",
    "OP_INSTANCE_CONSOLE": "reads",
    "OP_INSTANCE_MULTI_ALLOC": "its jobs have closing lines",
    "OP_INSTANCE_QUERY_DATA": "reads",
    "OP_INSTANCE_SNAPSHOT_LIST": "reads",
    "OP_NODE_AUTO_FAILOVER": "only programs submit it",
    "OP_NODE_EVACUATE": "its jobs have closing lines",
    "OP_NODE_MAINTENANCE_CHECK": "a step of a maintenance",
    "OP_NODE_MAINTENANCE_END": "its jobs have closing lines, and the command says the end",
    "OP_NODE_MAINTENANCE_START": "the same",
    "OP_NODE_MIGRATE": "its jobs have closing lines",
    "OP_NODE_QUERYVOLS": "reads",
    "OP_NODE_QUERY_STORAGE": "reads",
    "OP_OOB_COMMAND": "the command shows the answers",
    "OP_OS_DIAGNOSE": "reads",
    "OP_QUERY": "reads",
    "OP_QUERY_FIELDS": "reads",
    "OP_RESTRICTED_COMMAND": "the command shows the answers",
    "OP_TAGS_GET": "reads",
    "OP_TAGS_SEARCH": "reads",
    "OP_TEST_ALLOCATOR": "for tests",
    "OP_TEST_DELAY": "for tests",
    "OP_TEST_DUMMY": "for tests",
    "OP_TEST_JQUEUE": "for tests",
    "OP_TEST_OS_PARAMS": "for tests",
}


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(terminal, "width", lambda stream, otherwise=80: 200)


@pytest.fixture
def web(master: FakeMaster) -> FakeMaster:
    """A master with one instance, which is also known by its short name."""
    web1 = {"pnode": "node2.example.com", "hypervisor": "kvm", "admin_state": "up"}
    master.rows["instance"] = [
        {"name": name, **web1} for name in ("web1.example.com", "web2.example.com")
    ]
    master.rows["node"] = [{"name": "node2.example.com"}]
    master.short_names = True
    return master


def test_every_opcode_has_a_sentence_or_a_reason() -> None:
    known = set(opcodes.op_ids())
    assert closing.SENTENCES.keys() | WITHOUT.keys() == known
    assert not closing.SENTENCES.keys() & WITHOUT.keys() and all(WITHOUT.values())


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("startup web1", "web1.example.com runs on node2, console: gnt-instance console web1"),
        ("shutdown web1", "web1.example.com is stopped"),
        (
            "reboot web1",
            "web1.example.com was restarted, and runs on node2, console: gnt-instance console web1",
        ),
        ("migrate -f web1", "web1.example.com is on node2 now"),
        ("failover -f web1", "web1.example.com is on node2 now"),
        ("grow-disk web1 1 2g", "disk 1 of web1.example.com is 2.0G larger"),
        ("grow-disk --absolute web1 1 2g", "disk 1 of web1.example.com has 2.0G"),
        ("remove -f web1.example.com", "web1.example.com is removed"),
        ("deactivate-disks web1", "the disks of web1.example.com are not active"),
        ("recreate-disks web1", "the disks of web1.example.com are made again"),
        ("add-tags web1 prod", "web1.example.com has the tag prod"),
        ("remove-tags web1 prod db", "web1.example.com does not have the tags prod, db"),
        (
            "add -t diskless -o noop -n node2 --no-start web1.example.com",
            "web1.example.com is made, and stopped, on node2",
        ),
        (
            "add -t diskless -o noop -n node2 web1.example.com",
            "web1.example.com runs on node2, console: gnt-instance console web1",
        ),
    ],
)
def test_an_instance_command_ends_with_what_is_so_now(
    line: str, sentence: str, gnt: Gnt, web: FakeMaster, on_terminal: None
) -> None:
    ended = gnt(f"instance {line}")
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1] == f"{sentence} (0.0 s)"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("network rename lan lan2", "network lan is lan2 now"),
        ("network remove lan", "network lan is removed"),
        ("group add rack2", "group rack2 is added"),
        ("group assign-nodes rack2 node1 node2", "nodes node1, node2 are in group rack2"),
        ("node remove node3", "node node3 is removed"),
        ("cluster redist-conf", "all nodes have the files of the cluster"),
    ],
)
def test_other_commands(
    line: str, sentence: str, gnt: Gnt, web: FakeMaster, on_terminal: None
) -> None:
    ended = gnt(line)
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1] == f"{sentence} (0.0 s)"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("startup web1", "was started already, and runs on node2, console: gnt-instance console"),
        ("shutdown web1", "was stopped already"),
    ],
)
def test_what_was_so_before_is_said_once(
    line: str, sentence: str, gnt: Gnt, web: FakeMaster, on_terminal: None
) -> None:
    op_id = f"OP_INSTANCE_{line.split()[0].upper()}"
    web.logs[op_id], web.log_type = [" - INFO: instance web1.example.com is so already"], "already"
    lines = gnt(f"instance {line}").out.splitlines()
    assert lines[-1].startswith(f"web1.example.com {sentence}")
    assert not any("is so already" in one for one in lines)


def test_an_instance_which_was_not_started_is_made_and_stopped(
    gnt: Gnt, web: FakeMaster, on_terminal: None
) -> None:
    web.rows["instance"][0]["admin_state"] = "down"
    ended = gnt("instance add -t diskless --no-install -n node2 web1.example.com")
    assert ended.out == "web1.example.com is made, and stopped, on node2 (0.0 s)\n"


def test_a_long_line_is_broken_between_words(
    gnt: Gnt, web: FakeMaster, on_terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "width", lambda stream, otherwise=80: 60)
    lines = gnt("instance reboot web1").out.splitlines()
    assert lines[-2:] == [
        "web1.example.com was restarted, and runs on node2, console:",
        "gnt-instance console web1 (0.0 s)",
    ]


def test_a_line_for_each_of_several_instances(gnt: Gnt, web: FakeMaster, on_terminal: None) -> None:
    lines = gnt("instance shutdown --force-multiple web1 web2").out.splitlines()
    assert [line for line in lines if line.endswith(" s)")] == [
        "web1.example.com is stopped (0.0 s)",
        "web2.example.com is stopped (0.0 s)",
    ]


@pytest.mark.parametrize("line", ["shutdown --dry-run web1", "shutdown --print-jobid web1"])
def test_no_line_for_trials_and_programs(
    line: str, gnt: Gnt, web: FakeMaster, on_terminal: None
) -> None:
    assert "stopped" not in gnt(f"instance {line}").out


def test_without_a_terminal_the_output_is_the_published_one(gnt: Gnt, web: FakeMaster) -> None:
    assert gnt("instance shutdown web1") == (
        0,
        "Waiting for job 1 for web1.example.com ...\n",
        "",
    )


def test_a_change_is_said_once(gnt: Gnt, web: FakeMaster, on_terminal: None) -> None:
    web.results["OP_INSTANCE_SET_PARAMS"] = [["be/maxmem", 256], ["be/minmem", 128]]
    line = "instance modify -B maxmem=256,minmem=128 web1"
    changed = "web1.example.com is changed: be/maxmem is 256, be/minmem is 128"
    assert gnt(line).out == f"{changed} (0.0 s)\n"
    web.rows["instance"][0]["pending_changes"] = ["be/maxmem", "hv/acpi"]
    waits = "in effect after a restart with gnt-instance: be/maxmem, hv/acpi"
    assert gnt(line).out == f"{changed}; {waits} (0.0 s)\n"


def test_a_failed_job_has_no_closing_line(gnt: Gnt, web: FakeMaster, on_terminal: None) -> None:
    web.results["OP_INSTANCE_SHUTDOWN"] = errors.OpExecError("it hangs")
    ended = gnt("instance shutdown web1")
    assert ended.code == 1
    assert "is stopped" not in ended.out


def test_a_master_which_ends_after_the_job_is_no_failure(
    gnt: Gnt, web: FakeMaster, on_terminal: None
) -> None:
    web.errors["QueryJobs"] = errors.OpExecError("it ends")
    assert gnt("instance add-tags web1 prod").code == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.14, "3.1 s"), (59.94, "59.9 s"), (61, "1 min 1 s"), (3720, "1 h 2 min"), (-1, "0.0 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert closing.duration([0, 0], [int(seconds), round(seconds % 1 * 1e6)]) == text
