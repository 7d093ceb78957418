"""``gnt-cluster epo``: emergency power-off, and the way back.

Off: the instances which need one of the nodes are stopped, the nodes are marked offline and
switched off by their out-of-band helpers, and, when everything goes, the master's own machine comes
last. On: the nodes are switched on, and as they answer again, taken back into service; then the
instances which should run are started. What is already as it should be is passed over, so an
interrupted run is finished by running it once more.

:func:`plan` decides, from what the cluster says; the rest acts.
"""

from __future__ import annotations

import time

from ganeti import errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.cli.oob_options import OOB_TIMEOUT, POWER_DELAY
from ganeti.platform import machine

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode

NODE_FIELDS = ("name", "master", "offline", "powered", "pip", "ndparams")
INSTANCE_FIELDS = ("name", "pnode", "snodes", "admin_state", "oper_state")

#: How long nodes may take to come back, and how often they are looked for.
PATIENCE_S = 600.0
_POLL_S = 2.0
_PING_S = 2.0
_sleep = time.sleep


class Plan:
    """What has to be done.

    :ivar switch: nodes to be switched, without the master.
    :ivar master: the master's node, when it has to be switched off at the end; else None.
    :ivar by_hand: nodes without a helper.
    :ivar to_mark: of the nodes to be switched off those not marked offline; of those to be switched
        on all which have to be taken into service.
    :ivar instances: those to be stopped or started, with the names of the nodes they need.
    """

    __slots__ = ("by_hand", "instances", "master", "switch", "to_mark")

    def __init__(self) -> None:
        self.switch: list[str] = []
        self.master: str | None = None
        self.by_hand: list[str] = []
        self.to_mark: list[str] = []
        self.instances: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.switch or self.master or self.to_mark or self.instances)


def plan(
    nodes: Sequence[Mapping[str, Any]],
    instances: Iterable[Mapping[str, Any]],
    *,
    on: bool,
    everything: bool,
) -> Plan:
    """Decide what to do with nodes.

    :param nodes: those meant, with :data:`NODE_FIELDS`.
    :param instances: all of the cluster, with :data:`INSTANCE_FIELDS`.
    :raises OpPrereqError: the master is to be switched off, but not the whole cluster.
    """
    found = Plan()
    for node in nodes:
        name = node["name"]
        if node["master"]:
            # Whoever asks for something to be switched on runs on the master.
            if on:
                continue
            if not everything:
                raise errors.OpPrereqError(
                    f"node {name} is the master. Move that role to a node which stays on with"
                    " 'gnt-cluster master-failover', or use --all to switch off the whole cluster.",
                    errors.ECODE_INVAL,
                )
            found.master = name
        elif node["powered"] is None:
            if not node["offline"]:
                found.by_hand.append(name)
        elif on:
            if not node["powered"]:
                found.switch.append(name)
                found.to_mark.append(name)
            elif node["offline"]:
                # It was switched on, but the way back was interrupted there.
                found.to_mark.append(name)
        elif node["powered"]:
            found.switch.append(name)
            if not node["offline"]:
                found.to_mark.append(name)
    concerned = {node["name"] for node in nodes}
    for instance in instances:
        needed = [instance["pnode"], *instance["snodes"]]
        if instance["admin_state"] != "up" or not concerned.intersection(needed):
            continue
        # Whether an instance on a node that is off runs is not known (None).
        if bool(instance["oper_state"]) != on:
            found.instances[instance["name"]] = needed
    return found


def epo(values: Values, arguments: list[str]) -> int:
    """``epo``."""
    from ganeti.cli import confirmation

    if bool(arguments) == bool(values.show_all):
        raise errors.OpPrereqError(
            "name the nodes (or groups, with --groups), or give --all, not both", errors.ECODE_INVAL
        )
    client = jobs.connect()
    names = _group_nodes(client, arguments) if values.groups else arguments
    nodes = [
        dict(zip(NODE_FIELDS, row, strict=True))
        for row in client.query_nodes(names, list(NODE_FIELDS), False)
    ]
    instances = [
        dict(zip(INSTANCE_FIELDS, row, strict=True))
        for row in client.query_instances([], list(INSTANCE_FIELDS), False)
    ]
    todo = plan(nodes, instances, on=values.on, everything=values.show_all)
    for name in todo.by_hand:
        terminal.err(f"Node {name} has no out-of-band helper and has to be switched by hand.")
    if not todo:
        terminal.out("Nothing to do, everything is as it should be.")
        return failures.EXIT_SUCCESS
    if values.dry_run:
        terminal.out("\n".join(_announcement(todo, on=values.on)))
        return failures.EXIT_SUCCESS
    if not values.force:
        code = confirmation.ask("\n".join([*_announcement(todo, on=values.on), "Continue?"]))
        if code is not None:
            return code
    if values.on:
        return _switch_on(client, values, todo, {node["name"]: node for node in nodes})
    return _switch_off(client, values, todo, {node["name"]: node for node in nodes})


def _group_nodes(client: luxi.Client, groups: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name, members in client.query_groups(list(groups), ["name", "node_list"], False):
        if not members:
            terminal.err(f"Node group {name} has no nodes.")
        found += members
    if not found:
        raise errors.OpPrereqError("there are no nodes in these groups", errors.ECODE_INVAL)
    return found


def _announcement(todo: Plan, *, on: bool) -> list[str]:
    lines = [f"These nodes will be switched {'on' if on else 'off'}:"]
    lines += [f"  {name}" for name in (*todo.switch, *([todo.master] if todo.master else ()))]
    if todo.instances:
        lines.append(f"and these instances {'started' if on else 'stopped'}:")
        lines += [f"  {name}" for name in todo.instances]
    return lines


# -- off ------------------------------------------------------------------------------------------


def _switch_off(
    client: luxi.Client, values: Values, todo: Plan, nodes: Mapping[str, Mapping[str, Any]]
) -> int:
    from ganeti.opcodes.instance import OpInstanceShutdown
    from ganeti.opcodes.node import OpNodeSetParams

    common = jobs.common_params(values)
    if not _for_instances(
        client,
        values,
        {
            name: OpInstanceShutdown(
                instance_name=name, timeout=values.shutdown_timeout, no_remember=True, **common
            )
            for name in todo.instances
        },
    ):
        terminal.err(
            "Not all instances could be stopped, so no node was switched off. Stop them"
            " and try again."
        )
        return failures.EXIT_FAILURE
    if todo.switch:
        # In one job, and before: nobody should wait for the answer of a node that is off.
        marks: list[OpCode] = [
            OpNodeSetParams(node_name=name, offline=True, force=True, **common)
            for name in todo.to_mark
        ]
        if not _power(client, values, "power-off", todo.switch, marks):
            return failures.EXIT_FAILURE
    if todo.master is None:
        return failures.EXIT_SUCCESS
    if todo.by_hand:
        terminal.err(
            f"The master {todo.master} stays on until the nodes without a helper are off."
            " Switch it off by hand then."
        )
        return failures.EXIT_FAILURE
    return _master_off(values, nodes[todo.master])


def _master_off(values: Values, master: Mapping[str, Any]) -> int:
    """The machine this runs on; the helper is run from here, because no job would see its end."""
    from ganeti.utils import process

    program = (master["ndparams"] or {}).get("oob_program")
    if not program:
        terminal.err(
            f"The master {master['name']} has no out-of-band helper. Switch it off by hand now."
        )
        return failures.EXIT_SUCCESS
    terminal.out(f"Switching off the master {master['name']}, the last one")
    try:
        process.run([program, "power-off", master["name"]], timeout_s=values.oob_timeout)
    except errors.CommandError as err:
        terminal.err(f"The master could not be switched off: {err}")
        return failures.EXIT_FAILURE
    return failures.EXIT_SUCCESS


def _power(
    client: luxi.Client,
    values: Values,
    command: str,
    names: Sequence[str],
    before: Sequence[OpCode] = (),
) -> bool:
    """Let the helpers switch nodes; whether all of them did."""
    from ganeti.constants import query as query_const
    from ganeti.opcodes.misc import OpOobCommand

    rows = jobs.run_opcodes(
        [
            *before,
            OpOobCommand(
                node_names=list(names),
                command=command,
                ignore_status=True,
                timeout=values.oob_timeout,
                power_delay=values.power_delay,
                **jobs.common_params(values),
            ),
        ],
        values,
        client=client,
    )[-1]
    failed = [name for (_, name), (status, _) in rows if status != query_const.RS_NORMAL]
    for name in failed:
        terminal.err(f"Node {name} could not be switched {command.removeprefix('power-')}.")
    return not failed


def _for_instances(client: luxi.Client, values: Values, opcodes: Mapping[str, OpCode]) -> bool:
    """A job for each instance, all at once; whether all succeeded."""
    job_set = jobs.JobSet(client, values, verbose=False)
    for name, opcode in opcodes.items():
        job_set.add(name, opcode)
    return all(outcome.success for outcome in job_set.wait())


# -- on -------------------------------------------------------------------------------------------


def _switch_on(
    client: luxi.Client, values: Values, todo: Plan, nodes: Mapping[str, Mapping[str, Any]]
) -> int:
    from ganeti.opcodes.instance import OpInstanceStartup

    common = jobs.common_params(values)
    good = True
    if todo.switch:
        good = _power(client, values, "power-on", todo.switch)
    back = _wait_for(client, values, {name: nodes[name]["pip"] for name in todo.to_mark})
    lost = set(todo.to_mark) - back
    for name in sorted(lost):
        terminal.err(f"Node {name} did not come back.")
    ready, left = {}, []
    offline = {
        name for name, is_off in client.query_nodes([], ["name", "offline"], False) if is_off
    }
    for name, needed in todo.instances.items():
        if offline.intersection(needed):
            left.append(name)
        else:
            ready[name] = OpInstanceStartup(instance_name=name, no_remember=True, **common)
    if left:
        terminal.err(f"Not started, because a node is missing: {', '.join(left)}")
    if not _for_instances(client, values, ready):
        good = False
    return failures.EXIT_SUCCESS if good and not lost and not left else failures.EXIT_FAILURE


def _wait_for(client: luxi.Client, values: Values, addresses: Mapping[str, str]) -> set[str]:
    """Take nodes into service as soon as they answer; returns those which did in time."""
    from ganeti.opcodes.node import OpNodeSetParams

    waiting, back = dict(addresses), set()
    deadline = time.monotonic() + PATIENCE_S
    told = False
    while waiting:
        for name in _listening(waiting, machine.current().noded_port()):
            job_set = jobs.JobSet(client, values, quiet=True)
            job_set.add(
                name, OpNodeSetParams(node_name=name, offline=False, **jobs.common_params(values))
            )
            del waiting[name]
            if all(outcome.success for outcome in job_set.wait()):
                terminal.out(f"Node {name} is back")
                back.add(name)
        if not waiting or time.monotonic() > deadline:
            break
        if not told:
            terminal.out(f"Waiting for nodes {', '.join(waiting)}")
            told = True
        _sleep(_POLL_S)
    return back


def _listening(addresses: Mapping[str, str], port: int) -> Collection[str]:
    from concurrent.futures import ThreadPoolExecutor

    from ganeti.utils import net

    with ThreadPoolExecutor(min(32, len(addresses))) as pool:
        answers = pool.map(lambda ip: net.tcp_listens(ip, port, _PING_S), addresses.values())
        return [name for name, answer in zip(addresses, answers, strict=True) if answer]


#: The row of the table of ``gnt-cluster``.
COMMAND = Command(
    "epo",
    epo,
    [Argument("unknown")],
    [
        opt.flag("--all", dest="show_all", help="the whole cluster, the master last"),
        opt.flag("--groups", help="the arguments are node groups"),
        opt.flag("--on", help="switch on again and start what should run"),
        opt.FORCE,
        opt.DRY_RUN,
        opt.SHUTDOWN_TIMEOUT,
        OOB_TIMEOUT,
        POWER_DELAY,
    ],
    "Emergency power-off: stop instances, switch nodes off; or all of it on again",
    usage="[<options>] {--all|<node>...|--groups <group>...}",
)
