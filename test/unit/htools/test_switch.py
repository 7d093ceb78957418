"""hsqueeze --exec: which jobs switch nodes off and on, in which order, and what stops them."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import pytest

from ganeti import errors
from ganeti.client.htools import execute, luxi, switch

from .conftest import Run
from .test_master import FakeMaster, instance, node

STANDBY = "htools:standby:auto"


class PoweredMaster(FakeMaster):
    """A fake master whose nodes have out-of-band helpers, except those in ``without``."""

    def __init__(self) -> None:
        super().__init__()
        self.without: set[str] = set()

    def query_nodes(
        self, names: Sequence[str], fields: Sequence[str], _locking: bool
    ) -> list[list[Any]]:
        values = {"powered": True, "pip": "192.0.2.1"}
        return [[name, None if name in self.without else values[fields[1]]] for name in names]

    def steps(self) -> list[list[str]]:
        return [[step.OP_ID.removeprefix("OP_") for step in job] for job in self.submitted]


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> PoweredMaster:
    made = PoweredMaster()
    made.objects["node"] = [node("n1", role="M"), node("n2"), node("n3")]
    made.objects["instance"] = [instance("i1", "n1"), instance("i2", "n2")]

    def wait(_client: object, number: int, _show: object) -> list[Any]:
        made.during_wait()
        if number in made.failing:
            raise errors.OpExecError("the node is broken")
        return []

    monkeypatch.setattr(luxi, "connect", lambda _socket: made)
    monkeypatch.setattr(execute.jobs, "wait_for_job", wait)
    monkeypatch.setattr(switch.net, "tcp_listens", lambda *_: True)
    return made


def test_nodes_are_emptied_tagged_and_switched_off(run: Run, master: PoweredMaster) -> None:
    code, out, err = run("hsqueeze", "-L", "-X")
    assert (code, err) == (0, "")
    assert master.steps() == [
        ["INSTANCE_MIGRATE"], ["TAGS_SET"], ["TAGS_SET"],
        ["NODE_SET_PARAMS", "NODE_SET_PARAMS", "OOB_COMMAND"],
    ]  # fmt: skip
    off = master.submitted[-1]
    assert off[0].offline is True
    assert (off[-1].command, off[-1].node_names) == ("power-off", ["n2", "n3"])
    assert "Switching off nodes n2,n3" in out


def test_nodes_are_switched_on_awaited_and_used(run: Run, master: PoweredMaster) -> None:
    master.objects["node"][2] = node("n3", offline=True, tags=[STANDBY])
    code, out, _ = run("hsqueeze", "-L", "-X", "--minimal-resources=1000")
    assert code == 0
    assert master.steps()[:2] == [["OOB_COMMAND"], ["NODE_SET_PARAMS", "TAGS_DEL"]]
    assert master.submitted[0][0].command == "power-on"
    assert master.submitted[1][0].offline is False
    assert "Waiting" not in out


def test_a_node_that_does_not_answer_is_an_error(
    run: Run, master: PoweredMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.objects["node"][2] = node("n3", offline=True, tags=[STANDBY])
    monkeypatch.setattr(switch.net, "tcp_listens", lambda *_: False)
    monkeypatch.setattr(switch, "_BOOT_S", -1.0)
    code, _, err = run("hsqueeze", "-L", "-X", "--minimal-resources=1000")
    assert code == 1
    assert "nodes n3 were switched on and do not answer" in err
    assert master.steps() == [["OOB_COMMAND"]]


def test_the_wait_for_a_node_can_be_interrupted(
    run: Run, master: PoweredMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    master.objects["node"][2] = node("n3", offline=True, tags=[STANDBY])
    # The signal comes while the node is asked; the pause then ends at once.
    monkeypatch.setattr(
        switch.net, "tcp_listens", lambda *_: bool(signal.raise_signal(signal.SIGINT))
    )
    code, _, err = run("hsqueeze", "-L", "-X", "--minimal-resources=1000")
    assert code == 1
    assert "interrupted; the remaining moves were not begun" in err
    assert master.steps() == [["OOB_COMMAND"]]


def test_without_a_helper_nothing_is_done(run: Run, master: PoweredMaster) -> None:
    master.without = {"n3"}
    code, _, err = run("hsqueeze", "-L", "-X")
    assert code == 1
    assert "nodes n3 have no out-of-band helper" in err
    assert not master.submitted


def test_no_node_is_switched_off_after_a_move_that_failed(run: Run, master: PoweredMaster) -> None:
    master.failing = {1}
    code, _, err = run("hsqueeze", "-L", "-X")
    assert code == 1
    assert "job 1: the node is broken" in err
    assert master.steps() == [["INSTANCE_MIGRATE"]]


def test_an_interrupt_ends_after_the_present_step(run: Run, master: PoweredMaster) -> None:
    master.during_wait = lambda: signal.raise_signal(signal.SIGINT)
    code, _, err = run("hsqueeze", "-L", "-X")
    assert code == 1
    assert "the remaining moves were not begun" in err
    assert master.steps() == [["INSTANCE_MIGRATE"]]


def test_a_second_interrupt_does_not_wait(run: Run, master: PoweredMaster) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    master.during_wait = twice
    code, _, err = run("hsqueeze", "-L", "-X")
    assert code == 1
    assert "jobs that were submitted go on" in err


def test_carrying_out_needs_the_master_daemon(run: Run) -> None:
    from .test_squeeze import UNUSED

    assert "possible only on LUXI" in run("hsqueeze", "-t", UNUSED, "-X")[2]
