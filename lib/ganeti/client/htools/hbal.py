"""The program ``hbal``: moves instances so that the nodes of a group are used evenly."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from ganeti.client.htools import loading, reports
from ganeti.client.htools import program as prog
from ganeti.client.htools.hinfo import bad_nodes
from ganeti.client.htools.options import Values
from ganeti.htools import balance, formats, moves, score, tables
from ganeti.htools.balance import State, Step
from ganeti.htools.cluster import Cluster, Group
from ganeti.htools.node import Node
from ganeti.wire import json

OPTIONS = (
    "print-nodes", "print-instances", "print-commands", "text-data", "evac-mode",
    "restricted-migration", "master", "luxi", "ialloc-src", "exec", "first-job-group", "reason",
    "group", "max-length", "verbose", "quiet", "offline", "static-kvm-node-memory", "min-score",
    "max-cpu", "min-disk", "min-gain", "min-gain-limit", "no-disk-moves", "select-instances",
    "no-instance-moves", "ignore-soft-errors", "dynu-file", "ignore-dynu", "mond", "mond-data",
    "exit-on-missing-mond-data", "mond-xen", "exclusion-tags", "exclude-instances", "save",
    "priority", "what-if", "output",
)  # fmt: skip

_SCRIPT = """\
#!/bin/sh

# Auto-generated script for executing cluster rebalancing

# To stop, touch the file /tmp/stop-htools

set -e

check() {
  if [ -f /tmp/stop-htools ]; then
    echo 'Stop requested, exiting'
    exit 0
  fi
}

"""


def search_options(values: Values) -> balance.Options:
    """Return what the command line allows a search to do."""
    return balance.Options(
        disk_moves=not values.no_disk_moves,
        instance_moves=not values.no_instance_moves,
        evacuate=values.evac_mode,
        restricted_migration=values.options.get("restricted_migration", False),
        ignore_soft_errors=values.ignore_soft_errors,
        min_score=values.min_score,
        min_gain=values.min_gain,
        min_gain_limit=values.min_gain_limit,
    )


def execute(values: Values) -> int:
    """Balance one group."""
    whole = loading.load(values)
    if values.output == "json":
        return _as_json(values, whole)
    _print_split(values, whole)
    prog.print_cluster_facts(values, whole)
    prog.print_policy(values, whole)
    if not whole.instances:
        prog.out("Cluster is empty, exiting.")
        return 0
    prog.out(f"Loaded {len(whole.nodes)} nodes, {len(whole.instances)} instances")
    prog.print_suffix(values, whole)
    group = _choose_group(values, whole)
    cluster = whole.only(group.index)
    count = len(cluster.instances) + len(cluster.left_out)
    prog.out(f"Group size {len(cluster.nodes)} nodes, {count} instances")
    prog.out(f"Selected node group: {group.name}")
    _print_first_check(values, cluster)
    prog.print_instances(values, cluster, "Initial")
    prog.print_nodes(values, cluster, "Initial cluster")
    state = balance.start(cluster)
    if values.verbose > 2:
        prog.out(f"Initial coefficients: overall {formats.fixed(state.score, 8)}")
        prog.out(tables.components(score.details(cluster.nodes) if cluster.nodes else ()))
    else:
        prog.out(f"Initial score: {formats.fixed(state.score, 8)}")
    offset = score.optimal_offset(cluster.nodes)
    if state.score <= values.min_score + offset:
        _print_balanced(values, state.score, offset)
        return 0
    prog.out("Trying to minimize the CV...")
    initial = state.score
    for step in balance.run(
        state, search_options(values), max_steps=values.max_length, offset=offset
    ):
        prog.out(step_line(len(state.steps), step, cluster))
    _print_end(values, state, initial, cluster)
    return 0


def _print_split(values: Values, cluster: Cluster) -> None:
    """Name the instances with nodes in two groups when the user asked for more."""
    split = cluster.split_instances()
    if split and values.verbose > 1:
        prog.err("Found instances belonging to multiple node groups:")
        prog.err("\n".join(f"  {one.alias}" for one in split))
        prog.err("These instances will not be moved.")


def _as_json(values: Values, whole: Cluster) -> int:
    """Print the solution as JSON, and nothing else."""
    if values.exec:
        raise prog.Failure("--output json only shows a solution; leave out --exec")
    cluster = whole.only(_choose_group(values, whole).index) if whole.nodes else whole
    solution = reports.solution(cluster, *solve(values, cluster))
    prog.out(json.dumps({**reports.what_if(values.changes), **solution}))
    return 0


def solve(values: Values, cluster: Cluster) -> tuple[float, float, list[Step]]:
    """Balance one group; return the scores before and after, and the steps."""
    state = balance.start(cluster)
    offset = score.optimal_offset(cluster.nodes)
    initial = state.score
    found = balance.run(state, search_options(values), max_steps=values.max_length, offset=offset)
    steps = list(found)
    return initial, state.score, steps


def _choose_group(values: Values, cluster: Cluster) -> Group:
    if values.group is not None:
        found = cluster.find_group(values.group)
        if found is not None:
            return found
        text_ = f"Node group {values.group} not found. Node group list is:"
    elif len({node.group for node in cluster.nodes}) > 1:
        text_ = "Found multiple node groups:"
    else:
        return cluster.groups[cluster.nodes[0].group]
    prog.err("\n".join([text_, *(f"  {group.name}" for group in cluster.groups)]))
    raise prog.Failure("Aborting.")


def _print_first_check(values: Values, cluster: Cluster) -> None:
    failing, touched = bad_nodes(cluster.nodes)
    if values.verbose > 0:
        prog.out(f"Initial check done: {failing} bad nodes, {touched} bad instances.")
        if failing:
            prog.out(
                "Cluster is not N+1 happy, continuing but no guarantee that the cluster will"
                " end N+1 happy."
            )
    violating = sum(1 for node in cluster.nodes if violates_policy(node))
    if violating and values.verbose > 0:
        prog.out(f"The cluster contains {violating} policy-violating nodes.")
        prog.out(
            "Continuing, ignoring soft errors."
            if values.ignore_soft_errors
            else "Continuing, but the set of moves might be too restricted; consider using the"
            " --ignore-soft-errors option."
        )


def violates_policy(node: Node) -> bool:
    """Return True if a node is beyond a limit of its policy.

    One that fails N+1 is reported anyhow.
    """
    return (node.offline or not node.failing) and (
        node.real.spindles > node.max_spindles >= 0
        or 0 <= node.max_vcpus < node.real.vcpus
        or node.real.free_disk < node.min_disk
    )


def _print_balanced(values: Values, value: float, offset: float) -> None:
    prog.out(
        f"Cluster is already well balanced (initial score {formats.general(value)},\n"
        f"optimum score due to N+1 reservations {formats.general(offset)},\n"
        f"minimum score {formats.general(values.min_score)}).\nNothing to do, exiting"
    )


def step_line(number: int, step: Step, cluster: Cluster) -> str:
    """Return the line which describes a step."""
    nodes = cluster.nodes
    width = max(len(node.alias) for node in nodes)
    names = max(map(len, [*(one.alias for one in cluster.instances), *cluster.left_out]))

    def place(pair: tuple[int, int]) -> str:
        return ":".join(nodes[index].alias for index in pair if index >= 0).ljust(2 * width + 1)

    return (
        f"  {number:3d}. {cluster.instances[step.instance].alias.ljust(names)}"
        f" {place(step.before)} => {place(step.after)}"
        f" {formats.fixed(step.score, 8):>12} a={moves.short_form(step.move, nodes)}"
    )


def _print_end(values: Values, state: State, initial: float, cluster: Cluster) -> None:
    final = Cluster(cluster.groups, state.nodes, state.instances, cluster.tags, cluster.policy)
    if not state.steps:
        prog.out("No solution found")
    elif values.verbose > 2:
        prog.out(f"Final coefficients:   overall {formats.fixed(state.score, 8)}")
        prog.out(tables.components(score.details(state.nodes)))
    else:
        prog.out(
            f"Cluster score improved from {formats.fixed(initial, 8)} to"
            f" {formats.fixed(state.score, 8)}"
        )
    if values.verbose > 0:
        prog.out(f"Solution length={len(state.steps)}")
    sets = balance.job_sets(state.steps)
    if values.print_commands is not None:
        print_commands(values.print_commands, sets, cluster)
    if values.save is not None:
        prog.save(f"{values.save}.original", cluster, "before balancing")
        prog.save(f"{values.save}.balanced", final, "after balancing")
    prog.print_instances(values, final, "Final")
    prog.print_nodes(values, final, "Final cluster")
    if values.verbose > 3:
        for title, part in (("Original:", cluster), ("Final:   ", final)):
            memory = sum(node.unallocated_memory for node in part.nodes)
            disk = sum(node.real.free_disk for node in part.nodes)
            prog.out(f"{title} mem={memory} disk={disk}")
    if values.exec:
        if values.luxi is None:
            raise prog.Failure("hbal: Execution of commands possible only on LUXI")
        from ganeti.client.htools import execute

        execute.run_sets(values, sets, cluster)


def command_lines(sets: Sequence[Sequence[Step]], cluster: Cluster) -> list[str]:
    """Return the commands of a solution as lines of a shell script, with lines that only say
    ``check``.
    """
    lines: list[str] = []
    for number, steps in enumerate(sets, 1):
        lines += ["", f"echo jobset {number}, {len(steps)} jobs"]
        for position, step in enumerate(steps, 1):
            lines += [f"  echo job {number}/{position}", "  check"]
            lines += [
                f"  gnt-instance {command}"
                for command in moves.commands(
                    step.move, cluster.instances[step.instance], cluster.nodes
                )
            ]
    return lines


def print_commands(file: str, sets: Sequence[Sequence[Step]], cluster: Cluster) -> None:
    """Print the commands of a solution, or write them to a file."""
    title = "Commands to run to reach the above solution:"
    print_lines(file, command_lines(sets, cluster), title)


def print_lines(file: str, lines: Sequence[str], title: str) -> None:
    """Print commands below a title, or write them to a file.

    :param file: empty for standard output.
    """
    if not file:
        prog.out(f"\n{title}")
        for line in lines:
            if line != "  check":
                prog.out(f"  {line}")
        return
    try:
        path = Path(file)
        path.write_text(_SCRIPT + "".join(f"{line}\n" for line in lines), encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    except OSError as failure:
        raise prog.Failure(f"cannot write {file}: {failure.strerror}") from failure
    prog.out(f"The commands have been written to file '{file}'")


PROGRAM = prog.Program("hbal", OPTIONS, execute)


def run() -> int:
    """Run the program."""
    return prog.main(PROGRAM)
