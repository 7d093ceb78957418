"""A node becomes offline, or comes back: what runs on it never runs on another node, too."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.opcodes import instance as ops
from ganeti.opcodes.node import OpNodeAdd, OpNodeSetParams

NODE2 = "node2.example.com"


def master_with(*, offline: bool = False, primary: str = "node2") -> Master:
    """Instance ``web`` on shared disks; node2 may be marked offline."""
    disk = disk_of("web")
    web = instance_of("web", primary, admin_state="up", disks=(disk.uuid,))
    changes = {2: {"offline": offline, "master_candidate": not offline}}
    return Master(cluster_of(3, (web,), (disk,), node_changes=changes))


def mark(**changes) -> OpNodeSetParams:
    return OpNodeSetParams(node_name="node2", auto_promote=True, **changes)


# -- becoming offline --------------------------------------------------------------


@pytest.mark.parametrize("primary", ["node2", "node1"])
def test_a_living_node_with_guests_is_not_marked(primary: str) -> None:
    """Neither with its own guests, nor with one which is there after an interrupted migration."""
    master = master_with(primary=primary)
    master.rpc.run("web", "node2")
    text = master.refused(mark(offline=True), errors.ECODE_STATE)
    assert "instances run there: web.example.com" in text
    assert "gnt-node migrate node2.example.com" in text
    assert "--force" in text
    assert not master.config.node(uuid_of("node2")).offline
    master.run(mark(offline=True, force=True))
    assert master.config.node(uuid_of("node2")).offline
    assert master.job.said("each of them runs twice")


def test_a_living_node_without_guests_is_marked() -> None:
    master = master_with()
    master.run(mark(offline=True))
    assert master.config.node(uuid_of("node2")).offline


def test_a_dead_node_is_marked() -> None:
    master = master_with()
    master.rpc.run("web", "node2")
    master.rpc.errors["all_instances_info"] = errors.NodeUnreachable(
        NODE2, "all_instances_info", "no route to host"
    )
    master.run(mark(offline=True))
    assert master.config.node(uuid_of("node2")).offline


def test_guests_which_the_cluster_does_not_know_do_not_matter() -> None:
    master = master_with()
    master.rpc.run("foreign", "node2")
    master.run(mark(offline=True))
    assert master.config.node(uuid_of("node2")).offline


# -- coming back -------------------------------------------------------------------


def returning() -> Master:
    """node2 was marked offline although it ran web, which now runs on node3."""
    master = master_with(offline=True, primary="node3")
    master.rpc.alive.add(NODE2)
    master.rpc.run("web", "node2")
    master.rpc.run("web", "node3")
    return master


def test_a_node_with_guests_of_other_nodes_does_not_come_back() -> None:
    master = returning()
    text = master.refused(mark(offline=False), errors.ECODE_STATE)
    assert "web.example.com (belongs to node node3.example.com)" in text
    assert "gnt-node modify --offline=no --force node2.example.com" in text
    assert master.config.node(uuid_of("node2")).offline


def test_they_are_stopped_before_it_is_online() -> None:
    master = returning()
    seen: list[tuple[str, bool]] = []

    def stopped(node, args):
        seen.append((node, master.config.node(uuid_of("node2")).offline))
        master.rpc.running.pop((args["instance"].name, node))

    master.rpc.answers["instance_shutdown"] = stopped
    master.run(mark(offline=False, force=True))
    assert seen == [(NODE2, True)]
    assert master.rpc.where("web") == ["node3"]
    assert not master.config.node(uuid_of("node2")).offline
    (shutdown,) = master.rpc.of("instance_shutdown")
    assert shutdown[1]["timeout_s"] == 0, "what it would still write is lost anyway"
    assert [node for node, _args in master.rpc.of("blockdev_shutdown_multi")] == [NODE2]


def test_what_cannot_be_stopped_keeps_the_node_offline() -> None:
    master = returning()
    master.rpc.errors["instance_shutdown"] = "it hangs"
    text = master.failed(mark(offline=False, force=True))
    assert "The node stays offline" in text
    assert master.config.node(uuid_of("node2")).offline


def test_a_node_that_does_not_tell_its_guests_needs_force() -> None:
    master = returning()
    master.rpc.errors["all_instances_info"] = "broken"
    text = master.refused(mark(offline=False), errors.ECODE_ENVIRON)
    assert "does not tell which instances it runs" in text
    master.run(mark(offline=False, force=True))
    assert not master.config.node(uuid_of("node2")).offline


def test_a_node_comes_back_with_its_own_guests() -> None:
    master = master_with(offline=True)
    master.rpc.alive.add(NODE2)
    master.rpc.run("web", "node2")
    master.rpc.run("foreign", "node2")
    master.run(mark(offline=False))
    assert not master.config.node(uuid_of("node2")).offline
    assert master.rpc.where("web") == ["node2"]
    assert master.job.said("not in the configuration: foreign.example.com")


def test_adding_again_finds_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    master = returning()
    node = master.config.node(uuid_of("node2"))
    monkeypatch.setattr(
        "ganeti.cmdlib.prereq.resolve",
        lambda name, what: type("Host", (), {"name": node.name, "ip": node.primary_ip}),
    )
    op = OpNodeAdd(node_name=NODE2, readd=True)
    text = master.refused(op, errors.ECODE_STATE)
    assert "web.example.com (belongs to node node3.example.com)" in text
    assert "stop them there, and repeat the command" in text
    master.rpc.running.pop(("web.example.com", NODE2))
    master.run(op)
    assert not master.config.node(uuid_of("node2")).offline


# -- the whole way -----------------------------------------------------------------


def test_marking_a_living_node_and_failing_over_never_runs_a_guest_twice() -> None:
    """Each step by force, as somebody in a hurry would take it."""
    master = master_with()
    master.rpc.run("web", "node2")
    master.run(mark(offline=True, force=True))
    master.rpc.alive.add(NODE2)
    for ignore in (False, True):
        with pytest.raises(errors.OpPrereqError, match="runs there"):
            master.run(
                ops.OpInstanceFailover(
                    instance_name="web", target_node="node3", ignore_consistency=ignore
                )
            )
        assert master.rpc.where("web") == ["node2"]
    # Nobody can know of a guest on a machine which does not answer. It is found when it does.
    master.rpc.alive.clear()
    master.run(ops.OpInstanceFailover(instance_name="web", target_node="node3"))
    master.rpc.alive.add(NODE2)
    with pytest.raises(errors.OpPrereqError, match="belongs to node node3"):
        master.run(mark(offline=False))
    master.run(mark(offline=False, force=True))
    assert master.rpc.where("web") == ["node3"]
