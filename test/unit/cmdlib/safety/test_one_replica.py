"""Operations which copy the only replica of a disk, while nodes fail: nothing confirmed is lost.

As in ``test_every_state.py``, but the disk is a volume on one node; the copy goes to another node,
or becomes its mirror.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import confirmed
from fakes.breaking import WEB
from fakes.confirmed import PRIMARY, SECONDARY, Lab
from fakes.replica_operations import Operation
from fakes.replica_states import State
from fakes.replica_trial import WORKS, tried
from ganeti.opcodes import instance as ops
from ganeti.opcodes.base import OpCode


def _good(lab: Lab, running: bool) -> None:
    lab.start()
    lab.write()
    if not running:
        lab.stop()


def _dead(node: str) -> State:
    def reach(lab: Lab, running: bool) -> None:
        _good(lab, running)
        lab.power_off(node)

    return reach


def _silent(node: str) -> State:
    def reach(lab: Lab, running: bool) -> None:
        _good(lab, running)
        lab.nodes.silent.add(node)
        if running:
            lab.write()

    return reach


def _offline(node: str) -> State:
    def reach(lab: Lab, running: bool) -> None:
        _dead(node)(lab, running)
        lab.mark_offline(node)

    return reach


STATES: dict[str, State] = {"good": _good}
for _node, _name in ((PRIMARY, "primary"), (SECONDARY, "other node")):
    STATES |= {
        f"{_name} dead": _dead(_node),
        f"{_name} silent": _silent(_node),
        f"{_name} offline": _offline(_node),
    }


def _web(kind: type[OpCode], **changes: object) -> Operation:
    return Operation(lambda: [kind(instance_name=WEB, **changes)])  # type: ignore[call-arg]


OPERATIONS = {
    "convert to drbd": _web(ops.OpInstanceSetParams, disk_template="drbd", remote_node=SECONDARY),
    "convert to file": _web(ops.OpInstanceSetParams, disk_template="file", file_driver="loop"),
    "move": _web(ops.OpInstanceMove, target_node=SECONDARY),
    "move --ignore-consistency": _web(
        ops.OpInstanceMove, target_node=SECONDARY, ignore_consistency=True
    ),
    "recreate-disks": _web(ops.OpInstanceRecreateDisks),
    # A node which is marked offline is lost by the word of the administrator.
    "recreate-disks elsewhere": _web(ops.OpInstanceRecreateDisks, nodes=[SECONDARY])._replace(
        destroys=True
    ),
}
#: Of a stopped instance, with all nodes well: what does not work, and the reason.
REFUSED_WHEN_GOOD = {"recreate-disks": "exists", "recreate-disks elsewhere": "exists"}


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_confirmed_block_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, running: bool
) -> None:
    confirmed.install(monkeypatch)
    for state, reach in STATES.items():
        lab = Lab(tmp_path / state, "plain")
        result = tried(lab, OPERATIONS[name], reach, running)
        assert not result.problems, (state, result.problems, result.text)
        if state == "good" and not running:
            assert result.outcome == REFUSED_WHEN_GOOD.get(name, WORKS), result.text
        if "primary" in state and not OPERATIONS[name].destroys:
            assert result.outcome != WORKS
