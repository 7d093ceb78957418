"""The automatic failover of instances: what is fenced, started, left and reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fakes.config import cluster_of, commit, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.cmdlib.ops.node import unattended
from ganeti.config import upgrade
from ganeti.constants import node_watchdog
from ganeti.constants.disk import LDS_FAULTY, LDS_OKAY
from ganeti.objects import BlockDevStatus, Disk, FailoverReport, WatchdogPromise, codec, updated
from ganeti.opcodes.instance import OpInstanceFailover
from ganeti.opcodes.node import OpNodeAutoFailover, OpNodeSetParams
from ganeti.wire.calls import Call

NODE3 = "node3.example.com"
GONE = errors.NodeUnreachable(NODE3, "version", "no route to host")


def mirrored(name: str, **values: Any) -> Disk:
    pair = (uuid_of("node3"), uuid_of("node2"))
    return Disk(
        dev_type="drbd",
        logical_id=(*pair, 11000, 0, 0, "secret"),
        size=1024,
        iv_name="disk/0",
        nodes=pair,
        uuid=uuid_of(f"{name}-disk0"),
        serial_no=1,
        **values,
    )


def dead(*disks: tuple[str, Disk], tags: dict[str, tuple[str, ...]] | None = None) -> Master:
    """A cluster whose third node is gone and has a running instance for each disk."""
    instances = [
        instance_of(
            name, "node3", disks=(disk.uuid,), admin_state="up", tags=(tags or {}).get(name, ())
        )
        for name, disk in disks
    ]
    master = Master(
        cluster_of(
            3,
            tuple(instances),
            tuple(disk for _, disk in disks),
            node_changes={3: {"ndparams": {"oob_program": "/bin/oob"}}},
        )
    )
    cluster = dataclasses.replace(
        master.config.cluster(), auto_instance_failover=15, default_iallocator="hail"
    )
    commit(master.config).cluster.update(cluster)
    master.rpc.errors["version", NODE3] = GONE
    switch(master)
    return master


def switch(master: Master, *, obeys: bool = True, on: bool = True) -> list[str]:
    """A helper; returns the commands which it gets."""
    commands: list[str] = []

    def run(node: str, args: dict[str, Any]) -> str:
        commands.append(args["command"])
        if args["command"] == "power-off":
            return ""
        is_on = on and not (obeys and "power-off" in commands)
        return f'{{"powered": {str(is_on).lower()}}}'

    master.rpc.answers["run_oob"] = run
    return commands


def op() -> OpNodeAutoFailover:
    return OpNodeAutoFailover(node_name="node3")


def report(master: Master) -> FailoverReport:
    found = master.config.node(uuid_of("node3")).auto_failover
    assert found is not None
    return found


def submitted(master: Master) -> list[str]:
    return [getattr(job[0], "instance_name", job[0].OP_ID) for job in master.job.submitted]


def shared(name: str) -> tuple[str, Disk]:
    return name, disk_of(name, template="sharedfile", node="node3")


def test_a_node_is_fenced_before_anything_starts() -> None:
    master = dead(shared("web"))
    commands = switch(master)
    master.run(op())
    assert commands == ["power-status", "power-off", "power-status"]
    node = master.config.node(uuid_of("node3"))
    assert (node.offline, node.powered, node.master_candidate) == (True, False, False)
    assert submitted(master) == ["web.example.com", "OP_CLUSTER_SET_PARAMS"]
    assert not master.job.submitted[0][0].ignore_consistency
    assert report(master).fenced and report(master).started == (uuid_of("web"),)


@pytest.mark.parametrize("fenced", [True, False])
def test_a_fenced_node_is_asked_for_a_short_time(
    monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    """Its instances are failed over one after the other, and each would wait for the machine."""
    master = dead(shared("web"))
    master.run(op())
    if not fenced:
        with master.config.transaction() as change:
            node = change.data.nodes[uuid_of("node3")]
            change.nodes.update(updated(node, auto_failover=None))
    asked: dict[str, float] = {}
    call_many = master.rpc.call_many

    def note(call: Call, node_uuids: Iterable[str], **args: Any) -> dict[str, Any]:
        uuids = list(node_uuids)
        if call.name == "instance_info":
            assert args["even_offline"]
            asked.update((uuid, call.timeout_s) for uuid in uuids)
        return call_many(call, uuids, **args)

    monkeypatch.setattr(master.rpc, "call_many", note)
    master.run(OpInstanceFailover(instance_name="web", target_node="node1"))
    assert set(asked) == {uuid_of(f"node{number}") for number in (1, 2, 3)}
    usual = asked[uuid_of("node1")]
    assert asked[uuid_of("node2")] == usual
    assert (asked[uuid_of("node3")] < usual) is fenced


def test_a_machine_which_is_off_already_is_not_switched() -> None:
    master = dead(shared("web"))
    commands = switch(master, on=False)
    master.run(op())
    assert commands == ["power-status"]
    assert report(master).fenced


@pytest.mark.parametrize("fault", ["no helper", "helper fails", "stays on"])
def test_without_fencing_it_only_reports(fault: str) -> None:
    master = dead(shared("web"))
    if fault == "no helper":
        node = master.config.node(uuid_of("node3"))
        commit(master.config).nodes.update(updated(node, ndparams={}))
    elif fault == "helper fails":
        master.rpc.errors["run_oob"] = "no such outlet"
    else:
        switch(master, obeys=False)
    text = master.failed(op())
    assert "is not fenced, and nothing is started elsewhere" in text
    assert master.job.submitted == []
    assert not master.config.node(uuid_of("node3")).offline
    assert not report(master).fenced
    wanted = {"no helper": "oob_program", "helper fails": "no such outlet", "stays on": "still on"}
    assert wanted[fault] in report(master).reason


def test_the_order_is_that_of_the_administrator() -> None:
    tags = {"b": ("ganeti:watcher:order:1",), "c": ("ganeti:watcher:order:2",)}
    master = dead(shared("a"), shared("b"), shared("c"), tags=tags)
    master.run(op())
    assert submitted(master)[:3] == ["b.example.com", "c.example.com", "a.example.com"]


@pytest.mark.parametrize(
    ("record", "starts"),
    [
        ({}, False),
        ({"outdated_node": uuid_of("node2"), "outdated_since": 1.0}, False),
        ({"outdated_node": uuid_of("node3"), "outdated_since": 1.0}, True),
        ({"in_sync_at": 1.0}, True),
    ],
)
def test_a_mirror_is_used_only_when_the_record_shows_that_it_has_all_writes(
    record: dict[str, Any], starts: bool
) -> None:
    master = dead(("web", mirrored("web", **record)))
    master.run(op())
    assert ("web.example.com" in submitted(master)) is starts
    assert bool(report(master).left) is not starts
    if not starts:
        assert "--ignore-consistency web.example.com" in report(master).left[uuid_of("web")]


def test_what_is_left_is_reported_with_its_reason() -> None:
    plain = disk_of("db", template="plain", node="node3")
    master = dead(shared("web"), ("db", plain))
    master.run(op())
    assert submitted(master)[0] == "web.example.com"
    assert report(master).left == {uuid_of("db"): "its disks (plain) are on this node only"}
    assert master.job.said("instance db.example.com is not started elsewhere")


def test_shared_disks_without_an_allocator_are_left() -> None:
    master = dead(shared("web"))
    cluster = dataclasses.replace(master.config.cluster(), default_iallocator="")
    commit(master.config).cluster.update(cluster)
    master.run(op())
    assert "--default-iallocator" in report(master).left[uuid_of("web")]


def test_what_should_not_run_is_not_started() -> None:
    master = dead(shared("web"))
    with master.config.transaction() as change:
        change.instances.mark(uuid_of("web"), "down")
    master.run(op())
    assert "web.example.com" not in submitted(master)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("answers", "node node3.example.com answers"),
        ("daemon stopped", "node node3.example.com answers, although with an error"),
        ("master alone", "only 1 of 3 nodes answer"),
        ("switched off", "--auto-instance-failover=yes"),
        ("offline", "marked offline"),
    ],
)
def test_nothing_is_fenced_when(fault: str, words: str) -> None:
    master = dead(shared("web"))
    commands = switch(master)
    if fault == "answers":
        del master.rpc.errors["version", NODE3]
    elif fault == "daemon stopped":
        master.rpc.errors["version", NODE3] = errors.NodeUnreachable(
            NODE3, "version", "connection refused", machine_is_on=True
        )
    elif fault == "master alone":
        master.rpc.errors["version", "node2.example.com"] = GONE
    elif fault == "switched off":
        cluster = dataclasses.replace(master.config.cluster(), auto_instance_failover=None)
        commit(master.config).cluster.update(cluster)
    else:
        node = master.config.node(uuid_of("node3"))
        commit(master.config).nodes.update(updated(node, offline=True, master_candidate=False))
    assert words in master.refused(op(), errors.ECODE_STATE)
    assert commands == []


def test_the_master_is_never_gone() -> None:
    master = dead()
    text = master.refused(OpNodeAutoFailover(node_name="node1"), errors.ECODE_STATE)
    assert "is the master" in text


def test_a_node_which_comes_back_has_no_report_any_more() -> None:
    master = dead(shared("web"))
    master.run(op())
    del master.rpc.errors["version", NODE3]
    master.run(OpNodeSetParams(node_name="node3", powered=True))
    assert report(master).fenced
    master.run(OpNodeSetParams(node_name="node3", offline=False))
    node = master.config.node(uuid_of("node3"))
    assert node.auto_failover is None and not node.offline


def test_a_downgrade_drops_what_is_ours() -> None:
    master = dead(shared("web"))
    master.run(op())
    raw = upgrade.downgrade(codec.to_dict(master.config.snapshot()))
    assert "auto_failover" not in raw["nodes"][uuid_of("node3")]
    assert "auto_instance_failover" not in raw["cluster"]


@pytest.mark.parametrize(("state", "goes"), [("ok", True), ("faulty", False), (None, False)])
def test_a_disk_which_was_never_written_to_alone(state: str | None, goes: bool) -> None:
    """The survivor must be active and complete, as it was when the node died."""
    master = dead(("web", mirrored("web", never_alone=uuid_of("node3"))))
    master.run(OpNodeAutoFailover(node_name="node3", dry_run=True))
    assert master.job.said("fail instance web.example.com over")
    found = BlockDevStatus(
        dev_path="/dev/drbd0",
        major=147,
        minor=0,
        sync_percent=None,
        estimated_time=None,
        is_degraded=True,
        ldisk_status=LDS_OKAY if state == "ok" else LDS_FAULTY,
    )
    answer = (False, None) if state is None else (True, found)
    master.rpc.answers["blockdev_getmirrorstatus_multi"] = [answer]
    before = master.config.snapshot().serial_no
    master.run(op())
    # One change: an earlier one would be sent to the dead machine, too, and wait for it.
    assert master.config.snapshot().serial_no == before + 1
    (disk,) = master.config.snapshot().disks.values()
    assert (disk.outdated_node == uuid_of("node3")) is goes
    assert ("web.example.com" in submitted(master)) is goes


# -- the hardware watchdog -------------------------------------------------------------------------

PROMISE = WatchdogPromise(token="12345678-1234-1234-1234-123456789012", timeout_s=10)


class Clock:
    """Time passes only while the job waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.at: dict[float, Callable[[], None]] = {}
        original = unattended.fence

        def fence(ctx: Any, node: Any) -> Any:
            return original(ctx, node, sleep=self.sleep, monotonic=lambda: self.now)

        monkeypatch.setattr(unattended, "fence", fence)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for at in [at for at in self.at if at <= self.now]:
            self.at.pop(at)()


def promised(promise: WatchdogPromise | None = PROMISE, **params: Any) -> Master:
    master = dead(shared("web"))
    node = master.config.node(uuid_of("node3"))
    commit(master.config).nodes.update(updated(node, watchdog=promise, ndparams=params))
    return master


def test_a_watchdog_must_have_fired_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    master = promised()
    master.run(op())
    assert clock.now >= node_watchdog.certain_s(10) > 30
    node = master.config.node(uuid_of("node3"))
    assert node.offline and node.powered
    assert node.watchdog is not None and node.watchdog.left_at is not None
    assert submitted(master)[0] == "web.example.com" and report(master).fenced
    master.rpc.errors.pop(("version", NODE3))
    master.run(OpNodeSetParams(node_name="node3", offline=False))
    assert master.config.node(uuid_of("node3")).watchdog is None


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("no promise", "(there is no watchdog /dev/watchdog)"),
        ("answers again", "it answers again"),
        ("other promise", "has changed meanwhile"),
        ("no majority", "cannot be recorded"),
    ],
)
def test_nothing_starts_when_the_watchdog_may_not_have_fired(
    monkeypatch: pytest.MonkeyPatch, fault: str, words: str
) -> None:
    clock = Clock(monkeypatch)
    reason = WatchdogPromise(reason="there is no watchdog /dev/watchdog")
    master = promised(reason if fault == "no promise" else PROMISE)

    def answer_again() -> None:
        del master.rpc.errors["version", NODE3]

    def promise_anew() -> None:
        node = master.config.node(uuid_of("node3"))
        other = dataclasses.replace(PROMISE, token="87654321-1234-1234-1234-123456789012")
        commit(master.config).nodes.update(updated(node, watchdog=other))

    def refuse() -> None:
        raise errors.ConfigurationError("only 1 of 3 master candidates have the configuration")

    if fault == "answers again":
        clock.at[20.0] = answer_again
    elif fault == "other promise":
        clock.at[20.0] = promise_anew
    elif fault == "no majority":
        monkeypatch.setattr(master.config, "require_committed", refuse)
    assert words in master.failed(op())
    assert master.job.submitted == []
    node = master.config.node(uuid_of("node3"))
    assert not node.offline
    if fault == "answers again":
        assert node.watchdog == PROMISE


def test_a_helper_which_fails_leaves_it_to_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    master = promised(oob_program="/bin/oob")
    master.rpc.errors["run_oob"] = "no such outlet"
    master.run(op())
    assert clock.now > 30 and report(master).fenced


def test_a_helper_which_works_saves_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    master = promised(oob_program="/bin/oob")
    switch(master)
    master.run(op())
    assert clock.now == 0 and not master.config.node(uuid_of("node3")).powered
