"""Carrying out the plan of ``hsqueeze`` with jobs: switching nodes off, or on."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.client.htools import execute
from ganeti.client.htools import program as prog
from ganeti.client.htools.execute import Runner
from ganeti.client.htools.options import Values
from ganeti.htools import balance
from ganeti.htools import tags as htags
from ganeti.htools.cluster import Cluster
from ganeti.htools.node import Node
from ganeti.htools.squeeze import Plan
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.misc import OpOobCommand
from ganeti.opcodes.node import OpNodeSetParams
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet
from ganeti.platform import machine
from ganeti.utils import net

#: How long a machine may take from power to its node daemon, and how often it is asked.
_BOOT_S = 900.0
_POLL_S = 5.0
_PING_S = 2.0


def carry_out(values: Values, cluster: Cluster, plan: Plan) -> None:
    """Do what is planned, step by step; after an interrupt no further step begins.

    :raises Failure: a node has no out-of-band helper, so that nothing was done; or a job failed, a
        node does not answer, or the user interrupted, and the rest was not begun.
    """
    with execute.runner(values.luxi) as running:
        _require_helpers(running.client, plan.nodes)
        common = execute.common_parameters(values, "hsqueeze")
        sets = balance.job_sets(plan.steps)
        if plan.online:
            _switch_on(running, plan.nodes, common)
            execute.make_moves(running, sets, cluster, common)
        else:
            execute.make_moves(running, sets, cluster, common)
            _switch_off(running, plan.nodes, common)


def _require_helpers(client: Any, nodes: Sequence[Node]) -> None:
    if not nodes:
        return
    rows = client.query_nodes([node.name for node in nodes], ["name", "powered"], False)
    without = [name for name, powered in rows if powered is None]
    if without:
        raise prog.Failure(
            f"nodes {', '.join(without)} have no out-of-band helper, so they cannot be switched on"
            " or off. Set the node parameter oob_program. Nothing was done"
        )


def _switch_off(running: Runner, nodes: Sequence[Node], common: Mapping[str, Any]) -> None:
    """Tag the nodes, mark them offline and switch them off."""
    names = [node.name for node in nodes]
    running.run_set(
        f"Tagging nodes {','.join(names)}",
        [
            [OpTagsSet(kind="node", tags=[htags.STANDBY_AUTO], name=name, **common)]
            for name in names
        ],
    )
    steps: list[OpCode] = [
        OpNodeSetParams(node_name=name, offline=True, **common) for name in names
    ]
    steps.append(OpOobCommand(node_names=names, command="power-off", **common))
    running.run_set(f"Switching off nodes {','.join(names)}", [steps])


def _switch_on(running: Runner, nodes: Sequence[Node], common: Mapping[str, Any]) -> None:
    """Switch the nodes on, wait until they answer, and take them into service."""
    if not nodes:
        return
    names = [node.name for node in nodes]
    running.run_set(
        f"Switching on nodes {','.join(names)}",
        [[OpOobCommand(node_names=names, command="power-on", **common)]],
    )
    _wait_until_they_answer(running, names)
    steps: list[list[OpCode]] = []
    for node in nodes:
        job: list[OpCode] = [OpNodeSetParams(node_name=node.name, offline=False, **common)]
        if htags.STANDBY_AUTO in node.tags:
            job.append(OpTagsDel(kind="node", tags=[htags.STANDBY_AUTO], name=node.name, **common))
        steps.append(job)
    running.run_set(f"Taking into service nodes {','.join(names)}", steps)


def _wait_until_they_answer(running: Runner, names: Sequence[str]) -> None:
    """Wait for the node daemons.

    :raises Failure: one does not answer in time, or the user interrupted.
    """
    rows = running.client.query_nodes(list(names), ["name", "pip"], False)
    waiting = {str(name): str(address) for name, address in rows}
    port = machine.current().noded_port()
    deadline = time.monotonic() + _BOOT_S
    announced = False
    while True:
        waiting = {
            name: address
            for name, address in waiting.items()
            if not net.tcp_listens(address, port, _PING_S)
        }
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise prog.Failure(
                f"nodes {', '.join(waiting)} were switched on and do not answer. Mark them online"
                " with 'gnt-node modify --offline=no' when they do"
            )
        if not announced:
            prog.out(f"Waiting for nodes {','.join(waiting)}")
            announced = True
        running.pause(_POLL_S)
        running.require_going_on()
