"""Running a restricted command, a program which the administrator prepared, on nodes."""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.opcodes.misc import OpRestrictedCommand
from ganeti.wire.calls import RESTRICTED_COMMAND


@executes(OpRestrictedCommand)
class LURestrictedCommand(LogicalUnit[OpRestrictedCommand, list[str]]):
    """Run the command on all nodes at once. Result: for each node its success and its output."""

    def expand_names(self) -> None:
        if not (self.op.nodes or self.op.node_uuids):
            raise errors.OpPrereqError("no node is named", errors.ECODE_INVAL)
        nodes = self.find_nodes(self.op.nodes, self.op.node_uuids)
        self.node_uuids = [node.uuid for node in nodes]
        if self.op.use_locking:
            self.lock_nodes(self.node_uuids)

    def check_prereq(self) -> list[str]:
        return self.node_uuids

    def exec(self, plan: Sequence[str]) -> list[tuple[bool, str]]:
        # A node which is named twice is called once and has two rows.
        answers = self.rpc.call_many(
            RESTRICTED_COMMAND, list(dict.fromkeys(plan)), cmd=self.op.command
        )
        rows: list[tuple[bool, str]] = []
        for uuid in plan:
            answer = answers[uuid]
            if answer.failure is None:
                rows.append((True, answer.data))
            else:
                rows.append(
                    (
                        False,
                        f"command {self.op.command!r} on node {answer.node_name!r}"
                        f" failed: {why(answer.failure)}",
                    )
                )
        return rows
