"""Running the administrator's out-of-band helper, which switches machines on and off.

The helper runs on the master node, once for each node in the request. Its output is checked here:
rows of item and status for ``health``, ``{"powered": bool}`` for ``power-status``, nothing for the
other commands. After ``power-on`` and ``power-off`` the flag *powered* of the node is changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.constants import node as node_c
from ganeti.constants import query as query_c
from ganeti.objects import Node, updated
from ganeti.opcodes.misc import OpOobCommand
from ganeti.wire import json
from ganeti.wire.calls import RUN_OOB

POWER_ON, POWER_OFF, POWER_CYCLE = "power-on", "power-off", "power-cycle"
POWER_STATUS, HEALTH = "power-status", "health"
POWERED = "powered"
HEALTH_STATUSES = ("CRITICAL", "OK", "UNKNOWN", "WARNING")
_DANGEROUS = (POWER_OFF, POWER_CYCLE)
# Pause between machines which are switched on, because of their inrush current.
_sleep = time.sleep


def parse_answer(command: str, text: str) -> Any:
    """Read and check the output of a helper.

    :param command: the command of the helper, such as ``health``.
    :returns: rows of [item, status] for health, ``{"powered": bool}`` for the power status, else
        None.
    :raises ParseError: the output has another form.
    """
    if command in (POWER_ON, POWER_OFF, POWER_CYCLE):
        if text.strip():
            raise errors.ParseError(f"expected no output, found {text.strip()!r:.200}")
        return None
    data = json.loads(text)
    if command == HEALTH:
        if not isinstance(data, list) or not all(_is_health(row) for row in data):
            raise errors.ParseError(
                f"expected rows of item and status ({', '.join(HEALTH_STATUSES)}), found"
                f" {text.strip()!r:.200}"
            )
    elif not isinstance(data, dict) or not isinstance(data.get(POWERED), bool):
        raise errors.ParseError(
            f"expected an object that says whether the node is powered, found {text.strip()!r:.200}"
        )
    return data


def _is_health(row: Any) -> bool:
    return (
        isinstance(row, list)
        and len(row) == 2
        and isinstance(row[0], str)
        and row[1] in HEALTH_STATUSES
    )


@executes(OpOobCommand)
class LUOobCommand(LogicalUnit[OpOobCommand, list[Node]]):
    """Run a command of the out-of-band helper for nodes."""

    def expand_names(self) -> None:
        op = self.op
        if op.node_names:
            nodes = [self.config.expand_node(name) for name in op.node_names]
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
            if op.node_names:
                raise errors.OpPrereqError(
                    f"node {master.name} is the master node, and the job would end with it. Run"
                    f" '{self._helper(master) or 'the helper'} {op.command} {master.name}' by hand,"
                    " or move the master role first.",
                    errors.ECODE_INVAL,
                )
            nodes = [node for node in nodes if node.uuid != master.uuid]
        if op.command == POWER_OFF and not op.ignore_status:
            online = [node.name for node in nodes if not node.offline]
            if online:
                raise errors.OpPrereqError(
                    f"nodes {', '.join(online)} are not marked offline, so they cannot be switched"
                    " off. Mark them offline, or use --ignore-status.",
                    errors.ECODE_STATE,
                )
        if op.node_names:
            without = [node.name for node in nodes if not self._helper(node)]
            if without and op.command not in (HEALTH, POWER_STATUS):
                raise errors.OpPrereqError(
                    f"nodes {', '.join(without)} have no out-of-band helper program. Set the node"
                    " parameter oob_program.",
                    errors.ECODE_STATE,
                )
        return nodes

    def _helper(self, node: Node) -> str:
        data = self.config.snapshot()
        program: str = data.cluster.fill_nd(node, data.nodegroups[node.group])["oob_program"]
        return program

    def exec(self, plan: Sequence[Node]) -> list[list[tuple[int, Any]]]:
        rows: list[list[tuple[int, Any]]] = []
        switched = False
        for node in plan:
            name: tuple[int, Any] = (query_c.RS_NORMAL, node.name)
            program = self._helper(node)
            if not program:
                rows.append([name, (query_c.RS_UNAVAIL, None)])
                continue
            if switched and self.op.command == POWER_ON and self.op.power_delay:
                _sleep(self.op.power_delay)
            switched = True
            try:
                answer = self._ask(node, program)
            except (errors.RpcError, errors.ParseError) as err:
                self.warn(
                    f"out-of-band command {self.op.command} failed for node {node.name}: {why(err)}"
                )
                rows.append([name, (query_c.RS_NODATA, None)])
                continue
            self._take_in(node, answer)
            rows.append([name, (query_c.RS_NORMAL, answer)])
        return rows

    def _ask(self, node: Node, program: str) -> Any:
        text = self.rpc.call(
            RUN_OOB,
            self.config.master_node().uuid,
            oob_program=program,
            command=self.op.command,
            remote_node=node.name,
            timeout_s=self.op.timeout,
        ).payload()
        return parse_answer(self.op.command, text)

    def _take_in(self, node: Node, answer: Any) -> None:
        """Change the flag *powered* of the node; warn about problems in the answer."""
        command = self.op.command
        if command == HEALTH:
            for item, status in answer:
                if status in ("WARNING", "CRITICAL"):
                    self.warn(f"{item} of node {node.name} has status {status}")
        elif command == POWER_STATUS:
            if answer[POWERED] != node.powered:
                is_on, should = ("on", "off") if answer[POWERED] else ("off", "on")
                self.warn(
                    f"node {node.name} is switched {is_on}, but is marked as powered {should}"
                )
        elif command in (POWER_ON, POWER_OFF):
            powered = command == POWER_ON
            fresh = self.config.node(node.uuid)
            if fresh.powered != powered:
                with self.config.transaction() as change:
                    change.update_node(updated(fresh, powered=powered))


assert {POWER_ON, POWER_OFF, POWER_CYCLE, POWER_STATUS, HEALTH} == set(node_c.OOB_COMMANDS)
