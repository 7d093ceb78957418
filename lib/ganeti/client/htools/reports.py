"""Results of the placement programs for other programs (``--output json``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganeti import TYPE_CHECKING
from ganeti.htools import figures as sums
from ganeti.htools import moves, score
from ganeti.htools.balance import Step, job_sets
from ganeti.htools.capacity import Filled
from ganeti.htools.cluster import Cluster
from ganeti.htools.figures import Figures
from ganeti.htools.policy import Spec

if TYPE_CHECKING:
    from ganeti.htools.what_if import Change


def components(values: Sequence[float]) -> dict[str, Any]:
    """Return the components of a score, by name."""
    return {
        one.name: {"value": value, "weight": one.weight}
        for one, value in zip(score.COMPONENTS, values, strict=True)
    }


def what_if(changes: Sequence[Change]) -> dict[str, Any]:
    """Return what was changed before the question was answered; empty when nothing was."""
    return {"what_if": [one.to_dict() for one in changes]} if changes else {}


def cluster(found: Cluster) -> dict[str, Any]:
    """Return a cluster: its score, nodes and instances. Memory and disk space are in MiB."""
    values = score.details(found.nodes)
    return {
        "score": score.total(values),
        "components": components(values),
        "n1_happy": not any(node.failing and not node.offline for node in found.nodes),
        "tags": list(found.tags),
        "groups": [
            {"name": one.name, "uuid": one.uuid, "alloc_policy": one.alloc_policy}
            for one in found.groups
        ],
        "nodes": [
            {
                "name": node.name,
                "group": found.groups[node.group].uuid,
                "offline": node.offline,
                "failing_n1": node.failing,
                "total_memory": int(node.total_memory),
                "unallocated_memory": node.unallocated_memory,
                "reserved_memory": node.reserved_memory,
                "total_disk": int(node.total_disk),
                "free_disk": node.real.free_disk,
                "cpus": int(node.total_cpus),
                "vcpus": node.real.vcpus,
                "primaries": [found.instances[index].name for index in node.real.primaries],
                "secondaries": [found.instances[index].name for index in node.real.secondaries],
            }
            for node in found.nodes
        ],
        "instances": [
            {
                "name": one.name,
                "nodes": [found.nodes[index].name for index in one.nodes],
                "memory": one.memory,
                "disk": one.disk,
                "vcpus": one.vcpus,
                "status": one.status,
                "disk_template": one.template,
                "forthcoming": one.forthcoming,
            }
            for one in found.instances
        ],
    }


def solution(found: Cluster, initial: float, final: float, steps: Sequence[Step]) -> dict[str, Any]:
    """Return a solution: the scores before and after, and its moves in sets which can run at
    once.
    """
    return {
        "initial_score": initial,
        "final_score": final,
        "job_sets": moves_in_sets(found, steps),
    }


def moves_in_sets(found: Cluster, steps: Sequence[Step]) -> list[list[dict[str, Any]]]:
    """Moves in sets which can run at once."""
    return [[_step(found, step) for step in some] for some in job_sets(steps)]


def _step(found: Cluster, step: Step) -> dict[str, Any]:
    instance = found.instances[step.instance]

    def names(pair: tuple[int, int]) -> list[str]:
        return [found.nodes[index].name for index in pair if index >= 0]

    return {
        "instance": instance.name,
        "from": names(step.before),
        "to": names(step.after),
        "move": moves.short_form(step.move, found.nodes),
        "score": step.score,
        "commands": [
            f"gnt-instance {line}" for line in moves.commands(step.move, instance, found.nodes)
        ],
    }


def figures(found: Figures) -> dict[str, Any]:
    """Return the sums over all nodes of a cluster, and the used shares. Amounts are in MiB."""
    shares = {
        f"{key.removesuffix('_EFF').lower()}_share": None if value != value else value
        for key, value in sums.shares(found).items()
    }
    return {name: getattr(found, name) for name in Figures.__annotations__} | shares


def spec(size: Spec) -> dict[str, Any]:
    """Return a size of instances. Memory and disk space are in MiB."""
    return {
        "memory": size.memory,
        "disk": size.disk_size,
        "vcpus": size.cpus,
        "spindles": size.spindle_use,
    }


def filled(result: Filled) -> dict[str, Any]:
    """Return a filled cluster: the new instances by size, why no more fit, and its sums."""
    return {
        "instances": len(result.placed),
        "sizes": [
            {
                "memory": one.memory,
                "disk": one.disk,
                "vcpus": one.vcpus,
                "spindles": one.spindles,
                "count": count,
            }
            for one, count in result.sizes()
        ],
        "failures": {fail.value: count for fail, count in result.reasons() if count},
        "figures": figures(sums.figures(result.cluster)),
    }
