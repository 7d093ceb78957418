"""Every opcode has one logical unit."""

from __future__ import annotations

import pytest

from ganeti import cmdlib, errors, opcodes
from ganeti.cmdlib import base
from ganeti.opcodes.test import OpTestDelay

#: The master refuses it: an opcode for tests of the queue.
WITHOUT_UNIT = "OP_TEST_DUMMY"


def test_all_opcodes_but_one_have_a_unit():
    cmdlib.load()
    assert set(opcodes.op_ids()) - set(base.UNITS) == {WITHOUT_UNIT}


@pytest.mark.parametrize("op_id", sorted({*opcodes.op_ids()} - {WITHOUT_UNIT}))
def test_every_opcode_has_its_unit(op_id):
    unit = cmdlib.lookup(op_id)
    assert unit.OPCODE is opcodes.lookup(op_id)
    assert unit.__name__ == unit.OPCODE.__name__.replace("Op", "LU", 1)
    assert unit.exec is not base.LogicalUnit.exec


def test_units_belong_to_known_opcodes():
    cmdlib.load()
    for op_id in base.UNITS:
        assert opcodes.lookup(op_id).OP_ID == op_id


def test_an_opcode_without_unit_is_said_so():
    with pytest.raises(errors.OpCodeUnknown, match="OP_NOSUCH"):
        cmdlib.lookup("OP_NOSUCH")


def test_two_units_for_one_opcode_are_a_mistake():
    cmdlib.load()
    with pytest.raises(errors.ProgrammerError, match="LUTestDelay"):
        base.executes(OpTestDelay)(type("Second", (base.LogicalUnit,), {}))


BIG_LOCK = {
    "OP_CLUSTER_DESTROY",
    "OP_CLUSTER_POST_INIT",
    "OP_CLUSTER_RENAME",
    "OP_CLUSTER_RENEW_CRYPTO",
    "OP_NODE_ADD",
    "OP_NODE_REMOVE",
    "OP_TEST_ALLOCATOR",
}


def test_the_big_lock_is_for_few():
    cmdlib.load()
    assert {op_id for op_id, unit in base.UNITS.items() if unit.REQ_BGL} == BIG_LOCK
