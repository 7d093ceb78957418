"""Running the administrator's out-of-band helper, which switches machines on and off.

The helper runs once for each node in the request (:mod:`ganeti.cmdlib.ops.liveness.oob`). After
``power-on`` and ``power-off`` the flag *powered* of the node is changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.liveness import oob
from ganeti.constants import query as query_c
from ganeti.objects import Node, updated
from ganeti.opcodes.misc import OpOobCommand

_DANGEROUS = (oob.POWER_OFF, oob.POWER_CYCLE)
# Pause between machines which are switched on, because of their inrush current.
_sleep = time.sleep


@executes(OpOobCommand)
class LUOobCommand(LogicalUnit[OpOobCommand, list[Node]]):
    """Run a command of the out-of-band helper for nodes."""

    def expand_names(self) -> None:
        op = self.op
        # Without names, all nodes are meant; a list of UUIDs names them as well.
        self.named = bool(op.node_names or op.node_uuids)
        if self.named:
            nodes = self.find_nodes(op.node_names, op.node_uuids)
        else:
            nodes = list(self.config.nodes())
        self.node_uuids = [node.uuid for node in nodes]
        self.lock_nodes(self.node_uuids)

    def check_prereq(self) -> list[Node]:
        op = self.op
        nodes = [self.config.node(uuid) for uuid in dict.fromkeys(self.node_uuids)]
        master = self.config.master_node()
        if op.power_delay < 0 or op.timeout < 1:
            raise errors.OpPrereqError(
                "power_delay must not be negative, and timeout must be at least one second",
                errors.ECODE_INVAL,
            )
        if op.command in _DANGEROUS and master.uuid in self.node_uuids:
            if self.named:
                program = oob.program_of(self.config, master) or "the helper"
                raise errors.OpPrereqError(
                    f"node {master.name} is the master node, and the job would end with it. Run"
                    f" '{program} {op.command} {master.name}' by hand,"
                    " or move the master role first.",
                    errors.ECODE_INVAL,
                )
            nodes = [node for node in nodes if node.uuid != master.uuid]
        if op.command == oob.POWER_OFF and not op.ignore_status:
            online = [node.name for node in nodes if not node.offline]
            if online:
                raise errors.OpPrereqError(
                    f"nodes {', '.join(online)} are not marked offline, so they cannot be switched"
                    " off. Mark them offline, or use --ignore-status.",
                    errors.ECODE_STATE,
                )
        if self.named:
            without = [node.name for node in nodes if not oob.program_of(self.config, node)]
            if without and op.command not in (oob.HEALTH, oob.POWER_STATUS):
                raise errors.OpPrereqError(
                    f"nodes {', '.join(without)} have no out-of-band helper program. Set the node"
                    " parameter oob_program.",
                    errors.ECODE_STATE,
                )
        return nodes

    def exec(self, plan: Sequence[Node]) -> list[list[tuple[int, Any]]]:
        rows: list[list[tuple[int, Any]]] = []
        switched = False
        for node in plan:
            name: tuple[int, Any] = (query_c.RS_NORMAL, node.name)
            program = oob.program_of(self.config, node)
            if not program:
                rows.append([name, (query_c.RS_UNAVAIL, None)])
                continue
            if switched and self.op.command == oob.POWER_ON and self.op.power_delay:
                _sleep(self.op.power_delay)
            switched = True
            try:
                answer = oob.ask(
                    self.config, self.rpc, node, program, self.op.command, self.op.timeout
                )
            except (errors.RpcError, errors.ParseError) as err:
                self.log.warn(
                    f"out-of-band command {self.op.command} failed for node {node.name}: {why(err)}"
                )
                rows.append([name, (query_c.RS_NODATA, None)])
                continue
            self._take_in(node, answer)
            rows.append([name, (query_c.RS_NORMAL, answer)])
        return rows

    def _take_in(self, node: Node, answer: Any) -> None:
        """Change the flag *powered* of the node; warn about problems in the answer."""
        command = self.op.command
        if command == oob.HEALTH:
            for item, status in answer:
                if status in ("WARNING", "CRITICAL"):
                    self.log.warn(f"{item} of node {node.name} has status {status}")
        elif command == oob.POWER_STATUS:
            if answer[oob.POWERED] != node.powered:
                is_on, should = ("on", "off") if answer[oob.POWERED] else ("off", "on")
                self.log.warn(
                    f"node {node.name} is switched {is_on}, but is marked as powered {should}"
                )
        elif command in (oob.POWER_ON, oob.POWER_OFF):
            powered = command == oob.POWER_ON
            fresh = self.config.node(node.uuid)
            if fresh.powered != powered:
                with self.config.transaction() as change:
                    change.nodes.update(updated(fresh, powered=powered))
