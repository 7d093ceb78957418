"""The program ``hsqueeze``: says which nodes can be switched off, or must be switched on."""

from __future__ import annotations

from ganeti.client.htools import hbal, loading, reports
from ganeti.client.htools import program as prog
from ganeti.client.htools.options import Values
from ganeti.htools import balance, squeeze
from ganeti.htools import tags as htags
from ganeti.htools.cluster import Cluster
from ganeti.htools.squeeze import Plan
from ganeti.wire import json

OPTIONS = (
    "luxi", "text-data", "exec", "minimal-resources", "target-resources", "save",
    "print-commands", "verbose", "no-headers", "static-kvm-node-memory", "output",
)  # fmt: skip


def execute(values: Values) -> int:
    """Say what to do."""
    if values.exec and values.luxi is None:
        raise prog.Failure("hsqueeze: Execution of commands possible only on LUXI")
    if values.exec and values.output is not None:
        raise prog.Failure("--output json only shows a plan; leave out --exec")
    cluster = loading.load(values)
    plan = squeeze.plan(cluster, minimal=values.minimal_resources, target=values.target_resources)
    if values.output == "json":
        prog.out(json.dumps(_as_dict(cluster, plan)))
    else:
        _print(values, cluster, plan)
    if values.save is not None:
        prog.save(f"{values.save}.original", cluster, "before hsqueeze run")
        prog.save(f"{values.save}.squeezed", plan.cluster, "after hsqueeze run")
    if values.exec and (plan.nodes or plan.steps):
        from ganeti.client.htools import switch

        switch.carry_out(values, cluster, plan)
    return 0


def _print(values: Values, cluster: Cluster, plan: Plan) -> None:
    if values.verbose > 1:
        for title, found in (
            ("Offline", squeeze.may_go(cluster)),
            ("Online", squeeze.on_standby(cluster)),
        ):
            prog.out(f"{title} candidates: {','.join(node.name for node in found)}")
    if not values.no_headers:
        title = "Nodes to online" if plan.online else "Nodes to offline"
        prog.out(f"'{title if plan.online or plan.nodes else 'No action'}'")
    for node in plan.nodes:
        prog.out(node.name)
    if not plan.enough and values.verbose > 1:
        prog.out("Onlining all nodes will not yield enough capacity")
    if values.print_commands is not None:
        hbal.print_lines(values.print_commands, command_lines(cluster, plan), "Commands to run:")


def command_lines(cluster: Cluster, plan: Plan) -> list[str]:
    """Return the commands which do what is planned."""
    moves = hbal.command_lines(balance.job_sets(plan.steps), cluster)
    names = [node.alias for node in plan.nodes]
    tag = htags.STANDBY_AUTO
    if plan.online:
        lines = ["echo Power Commands"]
        lines += [f"  gnt-node power -f on {name}" for name in names]
        if names:
            lines += ["", "echo Tagging Commands"]
            lines += [f"  gnt-node remove-tags {name} {tag}" for name in names]
        return [*lines, *moves]
    if not names:
        return ["echo Nothing to do"]
    lines = [*moves, "", "echo Tagging Commands"]
    lines += [f"  gnt-node add-tags {name} {tag}" for name in names]
    lines += ["", "echo Power Commands"]
    return [*lines, *(f"  gnt-node power -f off {name}" for name in names)]


def _as_dict(cluster: Cluster, plan: Plan) -> dict[str, object]:
    action = "online" if plan.online else "offline" if plan.nodes else "none"
    return {
        "action": action,
        "nodes": [node.name for node in plan.nodes],
        "job_sets": reports.moves_in_sets(cluster, plan.steps),
    }


PROGRAM = prog.Program("hsqueeze", OPTIONS, execute)


def run() -> int:
    """Run the program."""
    return prog.main(PROGRAM)
