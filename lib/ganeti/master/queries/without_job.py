"""Answers of opcodes that only read, without a job.

A job is a file on every master candidate. A program that asks often, or a user who may only read,
gets the answer of these opcodes at once instead: their units need no locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from ganeti import cmdlib, errors
from ganeti.cmdlib.base import Context, JobLog
from ganeti.opcodes.instance import OpInstanceQueryData, OpInstanceSnapshotList

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LuContext, MasterContext
    from ganeti.opcodes.base import OpCode

# Their units use the configuration, the calls to nodes and the log, and nothing else.
_ANSWERED: Final = (OpInstanceQueryData, OpInstanceSnapshotList)


def run(context: MasterContext, op: OpCode) -> dict[str, Any]:
    """Answer ``RunQuery``: carry out an opcode that only reads.

    :returns: ``result``, that of the opcode; ``warnings``, the texts which the log of a job would
        have.
    :raises errors.OpPrereqError: the opcode is not valid, needs a job (wrong_input), or names an
        object that does not exist (unknown_entity).
    """
    if not isinstance(op, _ANSWERED):
        raise errors.OpPrereqError(f"{op.OP_ID} needs a job", errors.ECODE_INVAL)
    op.validate()
    warnings: list[str] = []
    parts = Context(context.config, context.rpc, JobLog(warnings.append))
    unit = cmdlib.lookup(op.OP_ID)(op, cast("LuContext", parts))
    unit.expand_names()
    if unit.needed_locks:
        raise errors.OpPrereqError(
            f"{op.OP_ID} needs a job, because it waits for locks (use_locking)", errors.ECODE_INVAL
        )
    return {
        "result": unit.exec(unit.check_prereq()),
        "warnings": [text.strip().removeprefix("- WARNING: ") for text in warnings],
    }
