"""The command ``gnt-cluster epo``: emergency power-off, and switching on again.

Off: the command stops the instances which need one of the nodes, marks the nodes offline, and
switches them off with their out-of-band helpers. If the whole cluster is switched off, the machine
of the master is the last one. On: the command switches the nodes on, takes them into service as
soon as they answer, and starts the instances which should run. It skips steps which are not
necessary any more, so an interrupted run is completed by running the command again.

:func:`make_plan` decides on the steps from the state of the cluster; the other functions execute
    them.
"""

from __future__ import annotations

import time

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.cli.oob_options import OOB_TIMEOUT, POWER_DELAY
from ganeti.platform import machine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode

NODE_FIELDS = ("name", "master", "offline", "powered", "pip", "ndparams")
INSTANCE_FIELDS = ("name", "pnode", "snodes", "admin_state", "oper_state")

#: How long nodes may take until they answer, and how often they are asked.
PATIENCE_S = 600.0
_POLL_S = 2.0
_PING_S = 2.0
_sleep = time.sleep


class PowerPlan:
    """The steps of switching nodes off or on.

    :ivar switch: names of the nodes to switch, without the master.
    :ivar master: name of the master if it has to be switched off at the end, else None.
    :ivar master_helper: its out-of-band helper; None if it has none, or stays on.
    :ivar by_hand: names of the nodes without a helper.
    :ivar to_mark: off: nodes to switch which are not marked offline yet; on: nodes which have to be
        taken into service.
    :ivar instances: instance to stop or start -> names of the nodes which it needs.
    """

    __slots__ = ("by_hand", "instances", "master", "master_helper", "switch", "to_mark")

    def __init__(self) -> None:
        self.switch: list[str] = []
        self.master: str | None = None
        self.master_helper: str | None = None
        self.by_hand: list[str] = []
        self.to_mark: list[str] = []
        self.instances: dict[str, list[str]] = {}

    @property
    def switches_master(self) -> bool:
        """True if the command can switch the master off: no other node is left to be switched."""
        return bool(self.master and self.master_helper and not self.by_hand)

    def __bool__(self) -> bool:
        return bool(self.switch or self.master or self.to_mark or self.instances)


def make_plan(
    nodes: Sequence[Mapping[str, Any]],
    instances: Iterable[Mapping[str, Any]],
    *,
    on: bool,
    everything: bool,
) -> PowerPlan:
    """Decide on the steps for nodes.

    :param nodes: the nodes to switch, with :data:`NODE_FIELDS`.
    :param instances: all instances of the cluster, with :data:`INSTANCE_FIELDS`.
    :param on: whether to switch on.
    :param everything: whether the nodes are the whole cluster.
    :raises OpPrereqError: the master would be switched off, but not the whole cluster.
    """
    found = PowerPlan()
    for node in nodes:
        name = node["name"]
        if node["master"]:
            # The command runs on the master, so the master is on.
            if on:
                continue
            if not everything:
                raise errors.OpPrereqError(
                    f"node {name} is the master. Move that role to a node which stays on with"
                    " 'gnt-cluster master-failover', or use --all to switch off the whole cluster.",
                    errors.ECODE_INVAL,
                )
            found.master = name
            found.master_helper = (node["ndparams"] or {}).get("oob_program") or None
        elif node["powered"] is None:
            if not node["offline"]:
                found.by_hand.append(name)
        elif on:
            if not node["powered"]:
                found.switch.append(name)
                found.to_mark.append(name)
            elif node["offline"]:
                # The node was switched on, but the command was interrupted before the node
                # answered.
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
        # The state of an instance on a node that is off is unknown (None).
        if bool(instance["oper_state"]) != on:
            found.instances[instance["name"]] = needed
    return found


def epo(values: Values, arguments: list[str]) -> int:
    """Switch nodes off in an emergency, or on again (``epo``)."""
    from ganeti.cli import confirmation

    if values.groups and values.show_all:
        raise errors.OpPrereqError(
            "--all means every node, so --groups cannot be given with it. Give names of groups"
            " with --groups, or --all alone.",
            errors.ECODE_INVAL,
        )
    mode = values.get("multi_mode")
    if mode and (values.groups or values.show_all):
        raise errors.OpPrereqError(
            f"--{mode} chooses nodes, so neither --all nor --groups can be given with it",
            errors.ECODE_INVAL,
        )
    if bool(arguments) == bool(values.show_all):
        raise errors.OpPrereqError(
            "give either names of nodes (with --groups: of groups) or --all", errors.ECODE_INVAL
        )
    client = jobs.connect()
    if values.groups:
        names = _group_nodes(client, arguments)
    else:
        names = selector.names("node", values, arguments, client)
    nodes = [
        dict(zip(NODE_FIELDS, row, strict=True))
        for row in client.query_nodes(names, list(NODE_FIELDS), False)
    ]
    instances = [
        dict(zip(INSTANCE_FIELDS, row, strict=True))
        for row in client.query_instances([], list(INSTANCE_FIELDS), False)
    ]
    todo = make_plan(nodes, instances, on=values.on, everything=values.show_all)
    for name in todo.by_hand:
        terminal.err(f"Node {name} has no out-of-band helper. Switch it by hand.")
    if not todo:
        terminal.out("Nothing to do: all nodes and instances are in the wanted state.")
        return failures.EXIT_SUCCESS
    if values.dry_run:
        terminal.out("\n".join(_announcement(todo, on=values.on)))
        return failures.EXIT_SUCCESS
    if not values.force:
        question = "\n".join([*_announcement(todo, on=values.on), "Continue?"])
        code = confirmation.ask(values, question)
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
        raise errors.OpPrereqError(
            f"node groups {', '.join(groups)} have no nodes", errors.ECODE_INVAL
        )
    return found


def _announcement(todo: PowerPlan, *, on: bool) -> list[str]:
    lines = []
    switched = [*todo.switch, *([todo.master] if todo.master and todo.switches_master else ())]
    if switched:
        lines = [f"These nodes will be switched {'on' if on else 'off'}:"]
        lines += [f"  {name}" for name in switched]
    marked = [name for name in todo.to_mark if name not in todo.switch]
    if marked:
        lines.append(f"These nodes will be marked {'online' if on else 'offline'}:")
        lines += [f"  {name}" for name in marked]
    if todo.instances:
        beginning = "and these instances" if switched and not marked else "These instances will be"
        lines.append(f"{beginning} {'started' if on else 'stopped'}:")
        lines += [f"  {name}" for name in todo.instances]
    if todo.master and not todo.switches_master:
        lines.append(f"The master {todo.master} will stay on. Switch it off by hand, as the last.")
    return lines


# -- off ------------------------------------------------------------------------------------------


def _switch_off(
    client: luxi.Client, values: Values, todo: PowerPlan, nodes: Mapping[str, Mapping[str, Any]]
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
            " and run the command again."
        )
        return failures.EXIT_FAILURE
    if todo.switch:
        # In the same job before the power-off, so that no request waits for a node that is off.
        marks: list[OpCode] = [
            OpNodeSetParams(node_name=name, offline=True, force=True, **common)
            for name in todo.to_mark
        ]
        if not _power(client, values, "power-off", todo.switch, marks):
            return failures.EXIT_FAILURE
    if todo.master is None:
        return failures.EXIT_SUCCESS
    program = todo.master_helper
    if program is None:
        # Everything that this command is able to switch off is off.
        when = "after the nodes without a helper" if todo.by_hand else "now"
        terminal.err(
            f"The master {todo.master} has no out-of-band helper. Switch it off by hand {when}."
        )
        return failures.EXIT_SUCCESS
    if todo.by_hand:
        terminal.err(
            f"The master {todo.master} stays on, because nodes without a helper are on."
            " Switch it off by hand after them."
        )
        return failures.EXIT_FAILURE
    return _master_off(values, nodes[todo.master], program)


def _master_off(values: Values, master: Mapping[str, Any], program: str) -> int:
    """Switch off the machine of this command.

    The helper is run by the command itself, because no job would see its end.
    """
    from ganeti.utils import process

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
    """Switch nodes with their helpers; return whether all helpers succeeded."""
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
    """Submit a job for each instance, all at once; return whether all succeeded."""
    job_set = jobs.JobSet(client, values, verbose=False)
    for name, opcode in opcodes.items():
        job_set.add(name, opcode)
    return all(outcome.success for outcome in job_set.wait())


# -- on -------------------------------------------------------------------------------------------


def _switch_on(
    client: luxi.Client, values: Values, todo: PowerPlan, nodes: Mapping[str, Mapping[str, Any]]
) -> int:
    from ganeti.opcodes.instance import OpInstanceStartup

    common = jobs.common_params(values)
    good = True
    if todo.switch:
        good = _power(client, values, "power-on", todo.switch)
    back = _wait_for(client, values, {name: nodes[name]["pip"] for name in todo.to_mark})
    lost = set(todo.to_mark) - back
    for name in sorted(lost):
        terminal.err(f"Node {name} does not answer.")
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
        terminal.err(f"Not started, because a node is offline: {', '.join(left)}")
    if not _for_instances(client, values, ready):
        good = False
    return failures.EXIT_SUCCESS if good and not lost and not left else failures.EXIT_FAILURE


def _wait_for(client: luxi.Client, values: Values, addresses: Mapping[str, str]) -> set[str]:
    """Take nodes into service as soon as they answer; return those which answered in time."""
    from ganeti.opcodes.node import OpNodeSetParams

    waiting, back = dict(addresses), set()
    deadline = time.monotonic() + PATIENCE_S
    announced = False
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
        if not announced:
            terminal.out(f"Waiting for nodes {', '.join(waiting)}")
            announced = True
        _sleep(_POLL_S)
    return back


def _listening(addresses: Mapping[str, str], port: int) -> Collection[str]:
    from concurrent.futures import ThreadPoolExecutor

    from ganeti.utils import net

    with ThreadPoolExecutor(min(32, len(addresses))) as pool:
        answers = pool.map(lambda ip: net.tcp_listens(ip, port, _PING_S), addresses.values())
        return [name for name, answer in zip(addresses, answers, strict=True) if answer]


COMMAND = Command(
    "epo",
    epo,
    [Argument("unknown")],
    [
        opt.flag("--all", dest="show_all", help="switch all nodes of the cluster, the master last"),
        opt.flag("--groups", help="the arguments are node groups"),
        selector.FILTER,
        selector.TAGS,
        opt.flag("--on", help="switch on instead of off, and start the instances which should run"),
        opt.FORCE,
        opt.DRY_RUN,
        opt.SHUTDOWN_TIMEOUT,
        OOB_TIMEOUT,
        POWER_DELAY,
    ],
    "Stop instances and switch nodes off in an emergency, or on again",
    usage="[<options>] {--all|<node>...|--groups <group>...|-F <filter>|--tags <tag>...}",
)
