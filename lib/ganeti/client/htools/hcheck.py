"""The program ``hcheck``: checks the health of a cluster, and whether balancing would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ganeti.client.htools import loading, reports
from ganeti.client.htools import program as prog
from ganeti.client.htools.hbal import search_options
from ganeti.client.htools.options import Values
from ganeti.htools import balance, formats, redundancy, score
from ganeti.htools.cluster import Cluster, Group
from ganeti.htools.instance import Instance
from ganeti.htools.node import Node
from ganeti.wire import json

OPTIONS = (
    "text-data", "no-disk-moves", "dynu-file", "ignore-dynu", "evac-mode", "exclude-instances",
    "exclusion-tags", "ialloc-src", "no-instance-moves", "luxi", "machine-readable", "max-cpu",
    "max-length", "min-disk", "min-gain", "min-gain-limit", "min-score", "ignore-soft-errors",
    "no-simulation", "offline", "quiet", "master", "select-instances", "no-capacity-checks",
    "verbose", "group", "what-if", "output",
)  # fmt: skip

_TITLES = {
    "N1_FAIL": "Nodes not N+1 happy",
    "CONFLICT_TAGS": "Nodes with conflicting instances",
    "OFFLINE_PRI": "Instances having the primary node offline",
    "OFFLINE_SEC": "Instances having a secondary node offline",
    "GN1_FAIL": "Nodes not directly evacuateable",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What is wrong in one group.

    :ivar counts: key of the output -> how often.
    """

    group: Group
    counts: dict[str, int]
    score: float


def _examine(
    group: Group, nodes: Sequence[Node], instances: Sequence[Instance], *, capacity: bool
) -> Found:
    online = [node for node in nodes if not node.offline]
    counts = {
        "N1_FAIL": sum(1 for node in online if node.failing),
        "CONFLICT_TAGS": sum(1 for node in online if node.conflicting_tags),
        "OFFLINE_PRI": sum(1 for one in instances if nodes[one.primary].offline)
        + sum(node.outside.primaries for node in nodes if node.offline),
        "OFFLINE_SEC": len(nodes) - len(online),
    }
    if capacity:
        counts["GN1_FAIL"] = len(redundancy.Checker().lost(nodes, instances))
    return Found(group, counts, score.score(nodes))


def _total(found: Sequence[Found]) -> dict[str, int]:
    keys = found[0].counts if found else ()
    return {key: sum(one.counts[key] for one in found) for key in keys}


def execute(values: Values) -> int:
    """Check the cluster."""
    cluster = loading.load(values, one_group=True)
    capacity = not values.no_capacity_checks
    parts = {
        group.index: cluster.only(group.index)
        for group in cluster.groups
        if cluster.nodes_of(group.index)
    }
    initial = [
        _examine(cluster.groups[index], part.nodes, part.instances, capacity=capacity)
        for index, part in parts.items()
    ]
    problems = any(_total(initial).values())
    simulate = problems and not values.no_simulation
    final = initial
    if simulate:
        final = [
            _rebalanced(values, before, parts[before.group.index], capacity=capacity)
            for before in initial
        ]
    if values.output == "json":
        found = _as_dict(initial, final, problems=problems, simulated=simulate)
        prog.out(json.dumps({**reports.what_if(values.changes), **found}))
    elif values.machine_readable:
        _print_for_programs(cluster.groups, initial, final)
    elif values.verbose > 0:
        _print_for_people(values, initial, final, problems=problems, simulated=simulate)
    return prog.EXIT_FAILURE if simulate else 0


def _rebalanced(values: Values, before: Found, part: Cluster, *, capacity: bool) -> Found:
    """Balance one group, and look at it again."""
    state = balance.start(part)
    offset = score.optimal_offset(part.nodes)
    for _ in balance.run(state, search_options(values), max_steps=values.max_length, offset=offset):
        pass
    return _examine(before.group, state.nodes, state.instances, capacity=capacity)


def _print_for_programs(
    groups: Sequence[Group], initial: Sequence[Found], final: Sequence[Found]
) -> None:
    for group in groups:
        prog.out(f"HCHECK_GROUP_UUID_{group.index}='{group.uuid}'")
    for phase, found in (("INIT", initial), ("FINAL", final)):
        for one in found:
            number = one.group.index
            for key, count in one.counts.items():
                prog.out(f"HCHECK_{phase}_GROUP_{number}_{key}={count}")
            prog.out(f"HCHECK_{phase}_GROUP_{number}_SCORE={formats.fixed(one.score, 8)}")
        totals = _total(found)
        for key, count in totals.items():
            prog.out(f"HCHECK_{phase}_CLUSTER_{key}={count}")
        # After balancing it still says whether the cluster needed it.
        needed = any(_total(initial).values())
        prog.out(f"HCHECK_{phase}_CLUSTER_NEED_REBALANCE={int(needed)}")
    prog.out("HCHECK_OK=1")


def _print_for_people(
    values: Values,
    initial: Sequence[Found],
    final: Sequence[Found],
    *,
    problems: bool,
    simulated: bool,
) -> None:
    if values.no_simulation:
        prog.out("Running in no-simulation mode.")
    elif problems:
        prog.out("Cluster needs rebalancing.")
    else:
        prog.out("No need to rebalance cluster, no problems found.")
    _print_phase(initial, "initially", healthy=not problems)
    if simulated:
        _print_phase(final, "after rebalancing", healthy=not problems)


def _print_phase(found: Sequence[Found], when: str, *, healthy: bool) -> None:
    for one in found:
        prog.out(f"\nStatistics for group {one.group.name} {when}")
        for key, count in one.counts.items():
            prog.out(f"    {_TITLES[key]}: {count}")
        prog.out(f"    Group score: {formats.fixed(one.score, 8)}")
    totals = _total(found)
    prog.out(f"\nCluster statistics {when}")
    for key, count in totals.items():
        prog.out(f"    {_TITLES[key]}: {count}")
    prog.out(f"    Cluster is not healthy: {not healthy}")


def _as_dict(
    initial: Sequence[Found], final: Sequence[Found], *, problems: bool, simulated: bool
) -> dict[str, object]:
    def phase(found: Sequence[Found]) -> list[dict[str, object]]:
        return [
            {
                "group": one.group.name,
                "uuid": one.group.uuid,
                "score": one.score,
                **{key.lower(): count for key, count in one.counts.items()},
            }
            for one in found
        ]

    result: dict[str, object] = {"needs_rebalancing": problems, "initial": phase(initial)}
    if simulated:
        result["final"] = phase(final)
    return result


PROGRAM = prog.Program("hcheck", OPTIONS, execute)


def run() -> int:
    """Run the program."""
    return prog.main(PROGRAM)
