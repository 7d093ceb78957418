"""``gnt-cluster epo``: what is decided, and in which order it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.client.gnt_cluster import epo
from ganeti.utils import net

from ..conftest import Gnt

NODE1, NODE2, NODE3 = NODES = [f"node{number}.example.com" for number in (1, 2, 3)]


def node(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "name": f"node{number}.example.com",
        "master": number == 1,
        "offline": False,
        "powered": True,
        "pip": f"192.0.2.{number}",
        "ndparams": {"oob_program": "/bin/oob"},
        "group": "default",
        **changes,
    }


def instance(name: str, primary: int = 2, *secondaries: int, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "pnode": f"node{primary}.example.com",
        "snodes": [f"node{number}.example.com" for number in secondaries],
        "admin_state": "up",
        "oper_state": True,
        **changes,
    }


def plan(
    nodes: list[dict[str, Any]],
    instances: list[dict[str, Any]],
    on: bool = False,
    everything: bool = False,
) -> epo.PowerPlan:
    return epo.make_plan(nodes, instances, on=on, everything=everything)


def test_off() -> None:
    todo = plan(
        [node(2), node(3, offline=True)],
        [
            instance("here"),
            instance("mirror", 1, 3),
            instance("elsewhere", 1),
            instance("stopped", 2, admin_state="down", oper_state=False),
            instance("crashed", 2, oper_state=False),
        ],
    )
    assert todo.switch == [NODE2, NODE3]
    assert todo.to_mark == [NODE2]
    assert set(todo.instances) == {"here", "mirror"}
    assert todo.master is None


def test_off_once_more_has_nothing_to_do() -> None:
    assert not plan([node(2, powered=False, offline=True)], [instance("here", oper_state=None)])


def test_off_for_the_master() -> None:
    with pytest.raises(errors.OpPrereqError, match="is the master"):
        plan([node(1), node(2)], [])
    todo = plan([node(1), node(2)], [], everything=True)
    assert (todo.master, todo.switch) == (NODE1, [NODE2])


def test_nodes_without_a_helper() -> None:
    todo = plan([node(2, powered=None), node(3, powered=None, offline=True)], [])
    assert (todo.by_hand, todo.switch) == ([NODE2], [])


def test_on() -> None:
    todo = plan(
        [node(1), node(2, powered=False, offline=True), node(3, offline=True)],
        [
            instance("here", oper_state=None),
            instance("runs", 1, 2),
            instance("stopped", 2, admin_state="down", oper_state=None),
        ],
        on=True,
    )
    assert todo.switch == [NODE2]
    # The third was switched on, but not taken into service.
    assert todo.to_mark == [NODE2, NODE3]
    assert set(todo.instances) == {"here"}
    assert not plan([node(1), node(2)], [instance("runs")], on=True)


# -- what is done ----------------------------------------------------------------


@pytest.fixture
def cluster(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> FakeMaster:
    master.rows["node"] = [node(1), node(2), node(3)]
    master.rows["instance"] = [instance("web"), instance("db", 1)]
    master.results["OP_OOB_COMMAND"] = lambda op: [
        [[0, name], [0, None]] for name in op["node_names"]
    ]
    monkeypatch.setattr(epo, "_sleep", lambda seconds: None)
    return master


def done(master: FakeMaster) -> list[tuple[str, Any]]:
    about = {
        "OP_INSTANCE_SHUTDOWN": "instance_name",
        "OP_INSTANCE_STARTUP": "instance_name",
        "OP_NODE_SET_PARAMS": "node_name",
        "OP_OOB_COMMAND": "node_names",
    }
    return [(op["OP_ID"], op[about[op["OP_ID"]]]) for op in master.opcodes()]


def test_switching_off(gnt: Gnt, cluster: FakeMaster) -> None:
    assert gnt(f"cluster epo -f {NODE2} {NODE3}").code == 0
    assert done(cluster) == [
        ("OP_INSTANCE_SHUTDOWN", "web"),
        ("OP_NODE_SET_PARAMS", NODE2),
        ("OP_NODE_SET_PARAMS", NODE3),
        ("OP_OOB_COMMAND", [NODE2, NODE3]),
    ]
    stop, mark, _mark, power = cluster.opcodes()
    assert (stop["no_remember"], stop["timeout"]) == (True, 120)
    assert (mark["offline"], mark["force"]) == (True, True)
    assert (power["command"], power["ignore_status"]) == ("power-off", True)


def test_no_node_goes_while_an_instance_runs(gnt: Gnt, cluster: FakeMaster) -> None:
    cluster.results["OP_INSTANCE_SHUTDOWN"] = errors.OpExecError("it hangs")
    ended = gnt(f"cluster epo -f {NODE2}")
    assert ended.code == 1
    assert "no node was switched off" in ended.err
    assert done(cluster) == [("OP_INSTANCE_SHUTDOWN", "web")]


def test_helpers_that_fail_are_named(gnt: Gnt, cluster: FakeMaster) -> None:
    cluster.results["OP_OOB_COMMAND"] = lambda op: [[[0, NODE2], [2, None]]]
    ended = gnt(f"cluster epo -f {NODE2}")
    assert ended.code == 1
    assert f"Node {NODE2} could not be switched off" in ended.err


@pytest.mark.programs
def test_the_master_goes_last(gnt: Gnt, cluster: FakeMaster, tmp_path: Path) -> None:
    program, log = tmp_path / "oob", tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    program.chmod(0o755)
    cluster.rows["node"][0]["ndparams"] = {"oob_program": str(program)}
    ended = gnt("cluster epo -f --all")
    assert ended.code == 0
    assert log.read_text() == f"power-off {NODE1}\n"
    assert ("OP_OOB_COMMAND", [NODE2, NODE3]) in done(cluster)
    assert ("OP_INSTANCE_SHUTDOWN", "db") in done(cluster)
    cluster.rows["node"][0]["ndparams"] = {"oob_program": ""}
    assert "by hand now" in gnt("cluster epo -f --all").err
    cluster.rows["node"][2]["powered"] = None
    ended = gnt("cluster epo -f --all")
    assert ended.code == 0
    assert "after the nodes without a helper" in ended.err
    cluster.rows["node"][0]["ndparams"] = {"oob_program": str(program)}
    ended = gnt("cluster epo -f --all")
    assert ended.code == 1
    assert f"Node {NODE3} has no out-of-band helper" in ended.err
    assert "stays on" in ended.err


def test_a_cluster_without_helpers(gnt: Gnt, cluster: FakeMaster) -> None:
    """The instances stop and start, and that is all which the command can do."""
    for row in cluster.rows["node"]:
        row.update(powered=None, ndparams={"oob_program": ""})
    ended = gnt("cluster epo -f --all")
    assert ended.code == 0
    assert f"Node {NODE2} has no out-of-band helper" in ended.err
    assert "Switch it off by hand after the nodes without a helper" in ended.err
    assert {name for _, name in done(cluster)} == {"web", "db"}
    for row in cluster.rows["instance"]:
        row["oper_state"] = False
    assert gnt("cluster epo --on -f --all").code == 0
    assert ("OP_INSTANCE_STARTUP", "web") in done(cluster)


def test_the_way_back(gnt: Gnt, cluster: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.rows["node"][1].update(powered=False, offline=True)
    cluster.rows["node"][2].update(powered=False, offline=True)
    cluster.rows["instance"] = [
        instance("web", oper_state=None),
        instance("lost", 3, oper_state=None),
    ]
    up: list[str] = []

    def listens(address: str, port: int, timeout_s: float) -> bool:
        up.append(address)
        return address == "192.0.2.2" and len(up) > 2

    def modified(op: dict[str, Any]) -> list[Any]:
        cluster.rows["node"][1]["offline"] = False
        return []

    monkeypatch.setattr(net, "tcp_listens", listens)
    monkeypatch.setattr(epo, "PATIENCE_S", 0.5)
    cluster.results["OP_NODE_SET_PARAMS"] = modified
    ended = gnt("cluster epo --on -f --all")
    assert ended.code == 1
    assert f"Node {NODE2} is back" in ended.out
    assert f"Node {NODE3} does not answer" in ended.err
    assert "Not started, because a node is offline: lost" in ended.err
    assert done(cluster) == [
        ("OP_OOB_COMMAND", [NODE2, NODE3]),
        ("OP_NODE_SET_PARAMS", NODE2),
        ("OP_INSTANCE_STARTUP", "web"),
    ]
    assert cluster.opcodes()[1]["offline"] is False


def test_arguments(gnt: Gnt, cluster: FakeMaster) -> None:
    assert "give either names of nodes" in gnt("cluster epo").err
    assert "give either" in gnt(f"cluster epo --all {NODE2}").err
    assert "--groups cannot be given" in gnt("cluster epo --groups --all").err
    assert "--groups cannot be given" in gnt("cluster epo --on --groups --all default").err
    assert gnt(f"cluster epo {NODE2}").code == 1
    cluster.answers["QueryGroups"] = lambda names, fields, locking: [["default", []]]
    ended = gnt("cluster epo --groups default")
    assert "no nodes" in ended.err
    cluster.rows["node"] = [node(2, powered=False, offline=True)]
    cluster.rows["instance"] = []
    assert "Nothing to do" in gnt(f"cluster epo {NODE2}").out
    assert not cluster.jobs


@pytest.mark.parametrize(
    ("helpers", "wanted"),
    [
        ((1, 2), f"These nodes will be switched off:\n  {NODE2}\n  {NODE1}\n"),
        (
            (2,),
            f"These nodes will be switched off:\n  {NODE2}\n"
            f"The master {NODE1} will stay on. Switch it off by hand, as the last.\n",
        ),
        ((1,), f"The master {NODE1} will stay on. Switch it off by hand, as the last.\n"),
    ],
)
def test_a_dry_run_promises_only_what_helpers_can_do(
    helpers: tuple[int, ...], wanted: str, gnt: Gnt, master: FakeMaster
) -> None:
    master.rows["node"] = [
        node(number)
        if number in helpers
        else node(number, powered=None, ndparams={"oob_program": ""})
        for number in (1, 2)
    ]
    master.rows["instance"] = []
    done = gnt("cluster epo --all --dry-run")
    assert (done.code, done.out) == (0, wanted)
