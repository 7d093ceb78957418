"""What a dry run shows."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import cmdlib
from ganeti.cmdlib import dry_run, prereq
from ganeti.cmdlib.base import LogicalUnit, LuContext
from ganeti.cmdlib.ops.migration.failover_to_any import FailoverToAnyPlan
from ganeti.cmdlib.ops.migration.plan import MigrationPlan
from ganeti.cmdlib.processor import MasterContext
from ganeti.locking import ALL, Level
from ganeti.luxi.answers import OperationPlan
from ganeti.objects import Disk
from ganeti.opcodes.instance import (
    OpInstanceCreate,
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReboot,
    OpInstanceRemove,
    OpInstanceShutdown,
    OpInstanceStartup,
)
from ganeti.opcodes.tags import OpTagsSet
from ganeti.opcodes.test import OpTestDelay
from ganeti.rapi import typed


def plan_of(master: Master, op: Any) -> list[str]:
    """The lines of the plan which a dry run of `op` logs."""
    op.dry_run = True
    master.run(op)
    (text,) = [text for text in master.job.log if text.startswith("Plan of ")]
    return text.splitlines()


def master_of(*instances: str, nodes: int = 2) -> Master:
    disks = tuple(disk_of(name) for name in instances)
    return Master(
        cluster_of(
            nodes,
            tuple(
                instance_of(name, disks=(disk.uuid,))
                for name, disk in zip(instances, disks, strict=True)
            ),
            disks,
        )
    )


def section(lines: list[str], title: str) -> list[str]:
    start = lines.index(f"  {title}:") + 1
    found = []
    for line in lines[start:]:
        if not line.startswith("    "):
            break
        found.append(line.strip())
    return found


def test_locks_checks_nodes_hooks_and_steps() -> None:
    master = master_of("web")
    before = master.config.snapshot()
    lines = plan_of(master, OpInstanceShutdown(instance_name="web"))
    assert lines[0] == "Plan of INSTANCE_SHUTDOWN(web), which was not carried out:"
    assert section(lines, "locks") == [
        "cluster/BGL (shared)",
        "instance/web.example.com",
        "node/node1.example.com (shared)",
    ]
    assert section(lines, "checked")[-1] == "node node1.example.com is online"
    assert section(lines, "nodes") == ["node1.example.com"]
    assert section(lines, "hooks") == [
        "instance-stop-pre, run now on node1.example.com",
        "instance-stop-post on node1.example.com",
    ]
    assert section(lines, "steps") == [
        "1. mark instance web.example.com as down",
        "2. stop it on node1.example.com, at the latest after 120 s",
        "3. deactivate its disks on node1.example.com",
    ]
    assert master.config.snapshot() is before


def test_the_plan_as_data() -> None:
    master = master_of("web", nodes=14)
    before = master.config.snapshot()
    op = OpInstanceShutdown(instance_name="web", timeout=7, plan=True)
    found = master.run(op)
    assert found == {
        "summary": "INSTANCE_SHUTDOWN(web)",
        "asked": {"instance_name": "web", "timeout": 7},
        "locks": [
            {"level": "cluster", "name": "BGL", "shared": True, "new": False},
            {"level": "instance", "name": "web.example.com", "shared": False, "new": False},
            {"level": "node", "name": "node1.example.com", "shared": True, "new": False},
        ],
        "checks": found["checks"],
        "nodes": ["node1.example.com"],
        "hooks": [
            {"name": "instance-stop-pre", "phase": "pre", "nodes": ["node1.example.com"]},
            {"name": "instance-stop-post", "phase": "post", "nodes": ["node1.example.com"]},
        ],
        "decided": [],
        "steps": [
            "mark instance web.example.com as down",
            "stop it on node1.example.com, at the latest after 7 s",
            "deactivate its disks on node1.example.com",
        ],
    }
    assert typed.of(OperationPlan)(found) and "node node1.example.com is online" in found["checks"]
    assert master.config.snapshot() is before
    # The log of the job has the same as text.
    assert any(text.startswith("Plan of INSTANCE_SHUTDOWN(web), ") for text in master.job.log)


def test_the_plan_as_data_has_all_locks_and_no_secrets() -> None:
    master = master_of("web", nodes=14)
    op = OpInstanceCreate(
        instance_name="new",
        disks=[{"size": 1024}],
        nics=[{}],
        mode="create",
        os_type="noop",
        disk_template="sharedfile",
        pnode="node1",
        hypervisor="fake",
        osparams_private={"word": "hush"},
        osparams_secret={"other": "hush"},
        plan=True,
    )
    found = master.run(op)
    assert typed.of(OperationPlan)(found) and "hush" not in json.dumps(found)
    (new,) = [lock for lock in found["locks"] if lock["new"]]
    assert new["level"] == "instance"
    op = OpTestDelay(duration=0.0, on_master=False, on_nodes=[], plan=True)
    assert typed.of(OperationPlan)(master.run(op))


def test_what_was_asked_is_told_without_secrets() -> None:
    op = OpInstanceCreate(
        instance_name="new",
        disks=[{"size": 1024}],
        nics=[{}],
        mode="create",
        os_type="noop",
        disk_template="sharedfile",
        pnode="node1",
        hypervisor="fake",
        osparams_private={"word": "hush"},
        osparams_secret={"other": "hush"},
    )
    lines = plan_of(master_of("web"), op)
    assert "hush" not in "\n".join(lines)
    asked = section(lines, "asked")
    assert {"instance_name: new", 'disks: [{"size":1024}]', "pnode: node1"} <= set(asked)
    # Neither defaults nor what every opcode has.
    assert not any(line.startswith(("start:", "dry_run:", "priority:")) for line in asked)


def test_memory_that_was_counted_is_told() -> None:
    lines = plan_of(master_of("web"), OpInstanceStartup(instance_name="web"))
    assert any(
        "MiB of memory free" in line and "for starting instance web" in line
        for line in section(lines, "checked")
    )


def test_an_operation_without_hooks_or_nodes() -> None:
    lines = plan_of(master_of(), OpTagsSet(kind="cluster", name=None, tags=["prod"]))
    assert "  hooks:" not in lines and "  nodes:" not in lines
    assert section(lines, "steps")


def test_every_unit_has_at_least_one_step() -> None:
    """Units which say nothing of their own are described by their class or opcode."""
    cmdlib.load()
    for unit in cmdlib.UNITS.values():
        assert unit.steps is not LogicalUnit.steps or unit.__doc__ or unit.OPCODE.__doc__


def test_checks_are_only_collected_while_somebody_wants_them() -> None:
    prereq.note("nobody listens")
    with prereq.recorded() as outer:
        prereq.note("one")
        with prereq.recorded() as inner:
            prereq.note("two")
        prereq.note("three")
    prereq.note("nobody listens any more")
    assert (outer, inner) == (["one", "three"], ["two"])


@dataclasses.dataclass(frozen=True)
class Plan:
    """Something of each kind."""

    node: Any
    primary_uuid: str
    disks: tuple[Disk, ...]
    live: bool
    changes: list[tuple[str, Any]]
    hvparams: dict[str, Any]
    osparams_all: dict[str, Any]
    secret_word: str
    anything: object
    nothing: None = None


class LUDescribed(LogicalUnit):
    """Do what a test wants; and more."""

    OPCODE = OpTestDelay


@pytest.fixture
def unit() -> LogicalUnit:
    master = master_of("web")
    context = MasterContext(master.config, master.locks, master.rpc)  # type: ignore[arg-type]
    return LUDescribed(OpTestDelay(duration=0.0).validate(), LuContext(context, master.new_job()))


def test_values_of_a_plan_are_names_and_never_secrets(unit: LogicalUnit) -> None:
    config = unit.config.snapshot()
    plan = Plan(
        config.nodes[uuid_of("node2")],
        uuid_of("node1"),
        (
            Disk(
                dev_type="file", size=64, uuid="d", logical_id=(), serial_no=1, ctime=0.0, mtime=0.0
            ),
        ),
        True,
        [("drained", True), ("vnc_password", "hush")],
        {"acpi": False, "vnc_password_file": "hush"},
        {"root": "hush"},
        "hush",
        object(),
    )
    text = dry_run.text_of(dry_run.plan_of(unit, plan, []))
    assert "hush" not in text
    assert section(text.splitlines(), "decided") == [
        "node: node2.example.com",
        "primary uuid: node1.example.com",
        "disks: file disk of 64 MiB",
        "live: yes",
        "changes: drained=True",
        "hvparams: acpi=no",
    ]
    assert section(text.splitlines(), "steps") == ["1. do what a test wants"]


def test_many_locks_are_counted(unit: LogicalUnit) -> None:
    unit.need(Level.INSTANCE, [f"gone{number}" for number in range(30)], shared=True)
    unit.need(Level.NODE, ALL)
    lines = section(dry_run.text_of(dry_run.plan_of(unit, None, [])).splitlines(), "locks")
    assert lines[1] == "instance/gone0 (shared)"
    assert lines[-2:] == ["and 20 more", "node: all"]


def test_jobs_to_submit_are_steps(unit: LogicalUnit) -> None:
    jobs = [
        [OpInstanceStartup(instance_name="a")],
        [OpInstanceStartup(instance_name="b"), OpInstanceShutdown(instance_name="b")],
    ]
    lines = dry_run.text_of(dry_run.plan_of(unit, jobs, [])).splitlines()
    assert section(lines, "steps") == [
        "1. submit a job: INSTANCE_STARTUP(a)",
        "2. submit a job: INSTANCE_STARTUP(b), INSTANCE_SHUTDOWN(b)",
    ]


def test_own_steps_replace_the_derived_ones(
    unit: LogicalUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LUDescribed, "steps", lambda self, plan: ["sit still", "go on"])
    lines = dry_run.text_of(dry_run.plan_of(unit, 5, ["it is late", "it is late"])).splitlines()
    assert section(lines, "steps") == ["1. sit still", "2. go on"]
    assert section(lines, "checked") == ["it is late"]
    assert "  decided:" not in lines


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (
            OpInstanceStartup(instance_name="web", startup_paused=True),
            [
                "mark instance web.example.com as up",
                "activate its disk on node1.example.com",
                "start it on node1.example.com",
                "leave it paused",
            ],
        ),
        (
            OpInstanceReboot(instance_name="web", reboot_type="full"),
            [
                "mark instance web.example.com as up",
                "activate its disk on node1.example.com",
                "start it on node1.example.com",
            ],
        ),
        (
            OpInstanceRemove(instance_name="web", shutdown_timeout=7),
            [
                "stop it on node1.example.com, at the latest after 7 s",
                "remove disk 0 (sharedfile, 1024 MiB) from node1.example.com",
                "remove instance web.example.com from the configuration",
            ],
        ),
        (
            OpInstanceMigrate(instance_name="web", target_node="node2", allow_failover=True),
            ["make node2.example.com its primary node"],
        ),
        (
            OpInstanceFailover(instance_name="web", target_node="node2"),
            [
                "stop instance web.example.com on node1.example.com",
                "deactivate its disks on node1.example.com",
                "make node2.example.com its primary node",
            ],
        ),
        (
            OpInstanceMigrate(instance_name="web", cleanup=True),
            [
                "find out on which of node1.example.com, node2.example.com instance"
                " web.example.com runs",
                "make that node its primary node",
                "remove what is left on the others",
            ],
        ),
        (
            OpInstanceCreate(
                instance_name="new",
                disks=[{"size": 1024}],
                nics=[{}],
                mode="create",
                os_type="noop",
                disk_template="sharedfile",
                pnode="node1",
                hypervisor="fake",
            ),
            [
                "add instance new to the configuration",
                "make disk 0 (sharedfile, 1024 MiB) on node1.example.com",
                "install OS noop on node1.example.com",
                "start it on node1.example.com",
            ],
        ),
    ],
)
def test_steps_of_instances(op: Any, wanted: list[str]) -> None:
    found = section(plan_of(master_of("web"), op), "steps")
    assert [line.partition(" ")[2] for line in found][-len(wanted) :] == wanted


def test_steps_of_a_live_migration_and_of_a_failover_to_a_third_node() -> None:
    config = cluster_of(
        3, (instance_of("web", admin_state="up", disks=("uuid-web-disk0",)),), (disk_of("web"),)
    )
    reader = Master(config).config
    (web,) = config.instances.values()
    one, two, three = (config.nodes[uuid_of(f"node{number}")] for number in (1, 2, 3))
    assert MigrationPlan(web, one, two, False, False, True, 96).steps(reader) == [
        "shrink it to 96 MiB",
        "activate its disks on node2.example.com",
        "prepare node2.example.com to accept it",
        "send it from node1.example.com to node2.example.com, paused meanwhile",
        "make node2.example.com its primary node",
        "deactivate its disks on node1.example.com",
    ]
    found = FailoverToAnyPlan(web, one, three, partner=two, left=one).steps(reader)
    assert found[0] == "make an empty replica of its disks on node3.example.com"
    assert found[-1] == "destroy the old replica of its disks on node1.example.com"
    assert "start it on node3.example.com" in found
