"""Ask the administrator's out-of-band helper, which switches machines on and off.

The helper runs on the master node. Its output is checked here: rows of item and status for
``health``, ``{"powered": bool}`` for ``power-status``, nothing for the other commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.constants import node as node_c
from ganeti.objects import Node, fill
from ganeti.wire import json
from ganeti.wire.calls import RUN_OOB

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.rpc import RpcRunner

POWER_ON, POWER_OFF, POWER_CYCLE = "power-on", "power-off", "power-cycle"
POWER_STATUS, HEALTH = "power-status", "health"
POWERED = "powered"
HEALTH_STATUSES = ("CRITICAL", "OK", "UNKNOWN", "WARNING")
#: Seconds which the helper has to tell whether a machine is switched on.
STATUS_TIMEOUT_S = 30


def program_of(config: Config, node: Node) -> str:
    """Return the path of the helper which controls a node; empty when it has none."""
    data = config.snapshot()
    program: str = fill.fill_nd(data.cluster, data.nodegroups[node.group], node)["oob_program"]
    return program


def ask(
    config: Config, rpc: RpcRunner, node: Node, program: str, command: str, timeout_s: int
) -> Any:
    """Run a command of the helper for a node.

    :returns: what :func:`parse_answer` returns.
    :raises errors.RpcError: the helper failed, or the master node did not run it.
    :raises errors.ParseError: its output has another form.
    """
    text = rpc.call(
        RUN_OOB,
        config.master_node().uuid,
        oob_program=program,
        command=command,
        remote_node=node.name,
        timeout_s=timeout_s,
    ).payload()
    return parse_answer(command, text)


def is_powered(ctx: Context, node: Node) -> bool | None:
    """Return True if a machine is switched on.

    The result is None when it is not known, with a warning if the helper failed.
    """
    program = program_of(ctx.config, node)
    if not program:
        return None
    try:
        answer = ask(ctx.config, ctx.rpc, node, program, POWER_STATUS, STATUS_TIMEOUT_S)
    except (errors.RpcError, errors.ParseError) as err:
        ctx.log.warn(
            f"the out-of-band helper did not tell whether node {node.name} is switched on:"
            f" {why(err)}"
        )
        return None
    powered: bool = answer[POWERED]
    return powered


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


assert {POWER_ON, POWER_OFF, POWER_CYCLE, POWER_STATUS, HEALTH} == set(node_c.OOB_COMMANDS)
