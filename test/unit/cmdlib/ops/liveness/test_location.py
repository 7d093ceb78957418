"""Whoever touches a guest or its disks asks all nodes first which can run it.

The units are found in the code: every opcode with the name of one instance must be in one of the
two tables below. The instance runs on its secondary node, or on a third node which can reach its
disks, as an interrupted migration or manual work would leave it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import cmdlib, errors, opcodes
from ganeti.cmdlib.ops.liveness import oob
from ganeti.objects import Disk
from ganeti.opcodes import backup as backup_ops
from ganeti.opcodes import instance as ops
from ganeti.opcodes.base import OpCode
from ganeti.platform import machine

UNITS = Path(cmdlib.__file__).parent
NODE1, NODE2, NODE3 = (uuid_of(f"node{number}") for number in (1, 2, 3))
#: Calls about single guests, which only location.py may make.
PRIVATE = re.compile(r"\bINSTANCE_INFO\b|\bINSTANCE_LIST\b")
WEB = "web"
TEMPLATES = ("drbd", "file", "plain", "sharedfile")

DOWN = "down"
UP = "up"
#: Opcode -> (state of the instance, makers of the opcode). Each is refused, whatever it is told.
ASKING: dict[str, tuple[str, list[Callable[[], OpCode]]]] = {
    "OP_INSTANCE_ACTIVATE_DISKS": (
        DOWN,
        [lambda: ops.OpInstanceActivateDisks(instance_name=WEB)],
    ),
    "OP_INSTANCE_CONSOLE": (UP, [lambda: ops.OpInstanceConsole(instance_name=WEB)]),
    "OP_INSTANCE_DEACTIVATE_DISKS": (
        DOWN,
        [
            lambda: ops.OpInstanceDeactivateDisks(instance_name=WEB),
            lambda: ops.OpInstanceDeactivateDisks(instance_name=WEB, force=True),
        ],
    ),
    "OP_INSTANCE_FAILOVER": (
        UP,
        [
            lambda: ops.OpInstanceFailover(instance_name=WEB),
            lambda: ops.OpInstanceFailover(instance_name=WEB, ignore_consistency=True),
            lambda: ops.OpInstanceFailover(instance_name=WEB, target_node="node3"),
        ],
    ),
    "OP_INSTANCE_GROW_DISK": (
        DOWN,
        [lambda: ops.OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=1024)],
    ),
    "OP_INSTANCE_MIGRATE": (
        UP,
        [
            # The repair goes on with what runs elsewhere, unless that node is marked offline.
            lambda: ops.OpInstanceMigrate(instance_name=WEB, cleanup=True),
            lambda: ops.OpInstanceMigrate(instance_name=WEB),
            lambda: ops.OpInstanceMigrate(instance_name=WEB, allow_failover=True),
        ],
    ),
    "OP_INSTANCE_MOVE": (
        DOWN,
        [
            lambda: ops.OpInstanceMove(
                instance_name=WEB, target_node="node3", ignore_consistency=True
            )
        ],
    ),
    "OP_INSTANCE_REBOOT": (
        UP,
        [
            lambda: ops.OpInstanceReboot(instance_name=WEB, reboot_type="hard"),
            lambda: ops.OpInstanceReboot(instance_name=WEB, reboot_type="full"),
        ],
    ),
    "OP_INSTANCE_COPY": (
        DOWN,
        [
            lambda: ops.OpInstanceCopy(
                instance_name=WEB, new_name="other", pnode="node3", disk_template="file"
            )
        ],
    ),
    "OP_INSTANCE_RECREATE_DISKS": (
        DOWN,
        [
            lambda: ops.OpInstanceRecreateDisks(instance_name=WEB),
            lambda: ops.OpInstanceRecreateDisks(instance_name=WEB, nodes=["node3", "node4"]),
        ],
    ),
    "OP_INSTANCE_REINSTALL": (DOWN, [lambda: ops.OpInstanceReinstall(instance_name=WEB)]),
    "OP_INSTANCE_REMOVE": (
        DOWN,
        [
            lambda: ops.OpInstanceRemove(instance_name=WEB),
            lambda: ops.OpInstanceRemove(instance_name=WEB, ignore_failures=True),
        ],
    ),
    "OP_INSTANCE_RENAME": (
        DOWN,
        [
            lambda: ops.OpInstanceRename(
                instance_name=WEB, new_name="other", name_check=False, ip_check=False
            )
        ],
    ),
    "OP_INSTANCE_REPLACE_DISKS": (
        DOWN,
        [
            lambda: ops.OpInstanceReplaceDisks(instance_name=WEB, mode="replace_on_primary"),
            lambda: ops.OpInstanceReplaceDisks(
                instance_name=WEB, mode="replace_new_secondary", remote_node="node3"
            ),
        ],
    ),
    "OP_INSTANCE_SET_PARAMS": (
        DOWN,
        [
            lambda: ops.OpInstanceSetParams(instance_name=WEB, disk_template="plain"),
            lambda: ops.OpInstanceSetParams(instance_name=WEB, pnode="node2"),
            lambda: ops.OpInstanceSetParams(instance_name=WEB, pnode="node2", force=True),
            lambda: ops.OpInstanceSetParams(instance_name=WEB, disks=[["remove", -1, {}]]),
            lambda: ops.OpInstanceSetParams(
                instance_name=WEB, disks=[["modify", 0, {"mode": "ro"}]], force=True
            ),
        ],
    ),
    "OP_INSTANCE_SHUTDOWN": (
        UP,
        [
            lambda: ops.OpInstanceShutdown(instance_name=WEB),
            lambda: ops.OpInstanceShutdown(instance_name=WEB, force=True),
        ],
    ),
    "OP_INSTANCE_SNAPSHOT": (
        UP,
        [lambda: ops.OpInstanceSnapshot(instance_name=WEB, snapshot_name="one")],
    ),
    "OP_INSTANCE_SNAPSHOT_RESTORE": (
        DOWN,
        [lambda: ops.OpInstanceSnapshotRestore(instance_name=WEB, snapshot_name="one")],
    ),
    "OP_INSTANCE_STARTUP": (
        DOWN,
        [
            lambda: ops.OpInstanceStartup(instance_name=WEB),
            lambda: ops.OpInstanceStartup(instance_name=WEB, force=True),
        ],
    ),
    "OP_BACKUP_EXPORT": (
        DOWN,
        [
            lambda: backup_ops.OpBackupExport(instance_name=WEB, target_node="node3"),
            lambda: backup_ops.OpBackupExport(
                instance_name=WEB, target_node="node3", remove_instance=True
            ),
        ],
    ),
}
#: Opcodes which do not touch the guest or its disks, and why.
OTHERS = {
    "OP_BACKUP_PREPARE": "makes a key on the node",
    "OP_BACKUP_REMOVE": "destroys exports, which no guest uses",
    "OP_INSTANCE_CHANGE_GROUP": "makes jobs, which ask",
    "OP_INSTANCE_CREATE": "the instance does not exist yet",
    "OP_INSTANCE_SNAPSHOT_REMOVE": "destroys a snapshot, which no guest uses",
}
#: Operations which go on although a node which can run the instance does not answer.
MAY_GO_ON = {
    "OP_INSTANCE_ACTIVATE_DISKS",
    "OP_INSTANCE_CONSOLE",
    "OP_INSTANCE_FAILOVER",
    "OP_INSTANCE_MIGRATE",
    "OP_INSTANCE_REBOOT",
    "OP_INSTANCE_SHUTDOWN",
    "OP_INSTANCE_SNAPSHOT",
    "OP_INSTANCE_STARTUP",
}
#: Options with which the administrator says that failures do not matter.
FORCE = ("force", "ignore_failures")
#: What only exists for a kind of disk which one node has.
ONE_NODE = {"OP_INSTANCE_MOVE"}


def mirrored() -> Disk:
    nodes = (NODE1, NODE2)
    return Disk(
        dev_type="drbd",
        logical_id=(*nodes, 11000, 0, 0, "secret"),
        size=1024,
        iv_name="disk/0",
        uuid=uuid_of("web-disk0"),
        serial_no=1,
        nodes=nodes,
        children=tuple(
            Disk(dev_type="plain", logical_id=("xenvg", f"w0_{part}"), size=size, nodes=nodes)
            for part, size in (("data", 1024), ("meta", 128))
        ),
    )


def plain() -> Disk:
    return dataclasses.replace(
        mirrored(), dev_type="plain", logical_id=("xenvg", "w0"), nodes=(NODE1,), children=()
    )


def master_with(state: str, template: str = "drbd") -> Master:
    """Instance ``web`` of nodes 1 and 2, of a cluster with four nodes."""
    disk = {"drbd": mirrored, "plain": plain}.get(template, lambda: disk_of("web", 0, template))()
    web = instance_of("web", admin_state=state, disks=(disk.uuid,))
    return Master(
        cluster_of(
            4,
            instances=(web,),
            disks=(disk,),
            enabled_disk_templates=TEMPLATES,
            volume_group_name="xenvg",
        )
    )


def one_instance_ops() -> list[str]:
    """All opcodes about one instance."""
    return sorted(
        op_id
        for op_id in opcodes.op_ids()
        if "instance_name" in opcodes.lookup(op_id).PARAMS and not op_id.startswith("OP_TEST_")
    )


def test_every_unit_about_one_instance_is_listed() -> None:
    assert one_instance_ops() == sorted({**ASKING, **OTHERS})


def test_only_one_module_asks_about_one_guest() -> None:
    found = {
        str(path.relative_to(UNITS))
        for path in UNITS.rglob("*.py")
        if PRIVATE.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"ops/liveness/location.py"}


def cases(leave_out: set[str], *, without: tuple[str, ...] = ()) -> list:
    """All makers of opcodes, except those which set one of some options."""
    return [
        pytest.param(op_id, state, maker, id=f"{op_id}-{number}")
        for op_id, (state, makers) in ASKING.items()
        if op_id not in leave_out
        for number, maker in enumerate(makers)
        if not any(getattr(maker(), option, False) for option in without)
    ]


@pytest.mark.parametrize(("op_id", "state", "maker"), cases(ONE_NODE, without=("cleanup",)))
def test_what_runs_elsewhere_is_left_alone(op_id: str, state: str, maker) -> None:
    master = master_with(state)
    master.rpc.run("web", "node2")
    text = refusal(master, maker())
    assert "runs on node node2.example.com" in text
    assert "gnt-instance migrate --cleanup web.example.com" in text


@pytest.mark.parametrize(("op_id", "state", "maker"), cases(ONE_NODE))
def test_what_runs_on_a_living_node_which_is_marked_offline(op_id: str, state: str, maker) -> None:
    master = master_with(state)
    offline(master, "node2")
    master.rpc.alive.add("node2.example.com")
    master.rpc.run("web", "node2")
    assert_untouched(master, maker())


@pytest.mark.parametrize(("op_id", "state", "maker"), cases({*ONE_NODE, *MAY_GO_ON}, without=FORCE))
def test_what_destroys_data_must_be_certain(op_id: str, state: str, maker) -> None:
    """The secondary node does not answer, and the instance does not run on the primary node."""
    master = master_with(state)
    master.rpc.errors["instance_info", "node2.example.com"] = errors.NodeUnreachable(
        "node2.example.com", "instance_info", "timed out"
    )
    text = refusal(master, maker())
    assert "node2.example.com did not report whether it runs it" in text
    assert "gnt-node modify --offline=yes node2.example.com" in text


def refusal(master: Master, op: OpCode) -> str:
    text = ""
    try:
        master.run(op)
    except errors.OpPrereqError as err:
        text = str(err)
        assert err.ecode == errors.ECODE_STATE, err
    assert text, f"{op.OP_ID} was not refused"
    assert master.config.writes == []
    assert master.rpc.acting() == []
    return text


def assert_untouched(master: Master, op: OpCode) -> None:
    with pytest.raises(errors.OpPrereqError):
        master.run(op)
    assert master.config.writes == []
    assert master.rpc.acting() == []
    assert master.rpc.where("web") == ["node2"]


def offline(master: Master, *nodes: str) -> None:
    for name in nodes:
        node = master.config.node(uuid_of(name))
        commit(master.config).nodes.update(
            dataclasses.replace(node, offline=True, master_candidate=False)
        )
    master.config.writes.clear()


# -- who can run it ----------------------------------------------------------------


def asked(master: Master) -> list[str]:
    return sorted(node.split(".")[0] for node, _args in master.rpc.of("instance_info"))


@pytest.mark.parametrize(
    ("template", "nodes"),
    [
        ("plain", []),
        ("file", []),
        ("drbd", ["node2"]),
        ("sharedfile", ["node2", "node3", "node4"]),
    ],
)
def test_only_the_others_which_can_run_it_are_asked(template: str, nodes: list[str]) -> None:
    """Before a shutdown; the primary node finds out when it stops the guest."""
    master = master_with(UP, template)
    master.rpc.run("web", "node1")
    master.run(ops.OpInstanceShutdown(instance_name=WEB))
    assert asked(master) == nodes
    assert master.rpc.where("web") == []


@pytest.mark.parametrize(
    ("template", "nodes"),
    [
        ("plain", ["node1"]),
        ("drbd", ["node1", "node2"]),
        ("sharedfile", ["node1", "node2", "node3", "node4"]),
    ],
)
def test_before_a_start_all_are_asked_once(template: str, nodes: list[str]) -> None:
    master = master_with(DOWN, template)
    master.run(ops.OpInstanceStartup(instance_name=WEB))
    assert asked(master) == nodes


def test_one_dead_node_keeps_nobody_down() -> None:
    master = master_with(DOWN, "sharedfile")
    master.rpc.errors["instance_info", "node3.example.com"] = "dead"
    master.run(ops.OpInstanceStartup(instance_name=WEB))
    assert master.rpc.where("web") == ["node1"]
    assert master.job.said("node3.example.com did not report whether it runs instance web")


def test_a_running_instance_runs_where_it_says() -> None:
    """It runs on the primary node: what another node does not say changes nothing."""
    master = master_with(UP, "sharedfile")
    master.rpc.run("web", "node1")
    master.rpc.errors["instance_info", "node3.example.com"] = "dead"
    master.run(ops.OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=1024))
    assert master.job.said("node3.example.com did not report")


def test_the_removal_may_ignore_a_dead_node_but_not_a_guest() -> None:
    master = master_with(DOWN, "sharedfile")
    master.rpc.errors["instance_info", "node3.example.com"] = "dead"
    assert "node3" in refusal(master, ops.OpInstanceRemove(instance_name=WEB))
    master.rpc.run("web", "node2")
    forced = ops.OpInstanceRemove(instance_name=WEB, ignore_failures=True)
    assert "runs on node node2" in refusal(master, forced)
    master.rpc.running.clear()
    master.run(forced)
    assert master.config.instances() == ()


# -- a failover away from a node which is marked offline -----------------------------


def lost_primary(*, running: bool = False, alive: bool = False, oob_program: str = "") -> Master:
    """A shared instance whose primary node, node2, is marked offline."""
    disk = disk_of("web")
    web = instance_of("web", primary="node2", admin_state=UP, disks=(disk.uuid,))
    changes = {2: {"ndparams": {"oob_program": oob_program}}} if oob_program else {}
    master = Master(cluster_of(4, instances=(web,), disks=(disk,), node_changes=changes))
    offline(master, "node2")
    if alive:
        master.rpc.alive.add("node2.example.com")
    if running:
        master.rpc.run("web", "node2")
    return master


def failover(**changes) -> OpCode:
    return ops.OpInstanceFailover(instance_name=WEB, target_node="node3", **changes)


@pytest.mark.parametrize("force", [False, True])
def test_a_guest_on_a_living_node_is_never_started_twice(force: bool) -> None:
    master = lost_primary(alive=True, running=True)
    text = refusal(master, failover(ignore_consistency=force))
    assert "is marked offline, but it answers, and instance web.example.com runs there" in text
    assert "gnt-node modify --offline=no node2.example.com" in text
    assert master.rpc.where("web") == ["node2"]


@pytest.mark.parametrize("how", ["answers", "fails", "refuses", "daemon is dead"])
def test_a_machine_which_is_on_needs_force(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(machine.current()), "has_own_system", True)
    node = "node2.example.com"
    master = lost_primary(alive=how != "daemon is dead")
    failures: dict[str, errors.RpcError] = {
        "fails": errors.NodeCallFailed(node, "instance_info", "broken"),
        "refuses": errors.NodeRefused(node, "instance_info", "another certificate"),
        "daemon is dead": errors.NodeUnreachable(
            node, "instance_info", "Connection refused", machine_is_on=True
        ),
    }
    if how in failures:
        master.rpc.errors["instance_info", node] = failures[how]
    text = refusal(master, failover())
    assert "two guests will write to its disks" in text
    assert "--ignore-consistency" in text
    master.run(failover(ignore_consistency=True))
    assert master.rpc.where("web") == ["node3"]
    assert master.job.said("is marked offline, but")


def test_an_unresponsive_node_is_off() -> None:
    master = lost_primary()
    master.run(failover())
    assert master.rpc.where("web") == ["node3"]


@pytest.mark.parametrize(("output", "goes"), [("false", True), ("true", False)])
def test_the_out_of_band_helper_knows_better(output: str, goes: bool) -> None:
    master = lost_primary(oob_program="/usr/local/bin/power")
    master.rpc.answers["run_oob"] = f'{{"powered": {output}}}'
    if goes:
        master.run(failover())
        assert master.rpc.where("web") == ["node3"]
    else:
        with pytest.raises(errors.OpPrereqError, match="out-of-band helper reports"):
            master.run(failover())
        assert master.rpc.where("web") == []
    ((node, args),) = master.rpc.of("run_oob")
    assert (node, args["command"]) == ("node1.example.com", oob.POWER_STATUS)
    assert args["remote_node"] == "node2.example.com"


def test_a_helper_which_fails_decides_nothing() -> None:
    master = lost_primary(oob_program="/usr/local/bin/power")
    master.rpc.errors["run_oob"] = "no contact"
    master.run(failover())
    assert master.job.said("did not tell whether node node2.example.com is switched on")
    assert master.rpc.where("web") == ["node3"]


@pytest.mark.parametrize(
    "op",
    [
        ops.OpInstanceShutdown(instance_name=WEB, ignore_offline_nodes=True),
        ops.OpInstanceRemove(instance_name=WEB, ignore_failures=True),
        ops.OpInstanceDeactivateDisks(instance_name=WEB, force=True),
    ],
    ids=lambda op: op.OP_ID,
)
def test_nothing_is_taken_from_a_guest_on_a_living_node(op: OpCode) -> None:
    """Its primary node is marked offline, so that nobody would stop it there."""
    text = refusal(lost_primary(alive=True, running=True), op)
    assert "is marked offline, but it answers, and instance web.example.com runs there" in text
    assert "gnt-node modify --offline=no node2.example.com" in text


@pytest.mark.parametrize("running", [True, False])
def test_disks_are_recreated_elsewhere_only_when_the_machine_is_off(running: bool) -> None:
    master = master_with(DOWN, "plain")
    offline(master, "node2")
    commit(master.config).instances.set_primary(uuid_of("web"), NODE2)
    master.config.writes.clear()
    master.rpc.alive.add("node2.example.com")
    if running:
        master.rpc.run("web", "node2")
    op = ops.OpInstanceRecreateDisks(instance_name=WEB, nodes=["node3"])
    assert "node2.example.com is marked offline, but it answers" in refusal(master, op)


def test_other_ways_away_from_a_living_node() -> None:
    migrate = ops.OpInstanceMigrate(instance_name=WEB, target_node="node3", allow_failover=True)
    assert "runs there" in refusal(lost_primary(alive=True, running=True), migrate)
    assert "--ignore-consistency" in refusal(lost_primary(alive=True), migrate)
    master = lost_primary(alive=True, running=True)
    commit(master.config).instances.mark(uuid_of("web"), DOWN)
    master.config.writes.clear()
    by_hand = ops.OpInstanceSetParams(instance_name=WEB, pnode="node3", force=True)
    assert "runs there" in refusal(master, by_hand)
