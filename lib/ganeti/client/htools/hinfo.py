"""The program ``hinfo``: shows the nodes, instances and score of a cluster."""

from __future__ import annotations

from ganeti.client.htools import loading, reports
from ganeti.client.htools import program as prog
from ganeti.client.htools.options import Values
from ganeti.htools import formats, score, tables
from ganeti.htools.cluster import Cluster
from ganeti.htools.node import Node
from ganeti.wire import json

OPTIONS = (
    "print-nodes", "print-instances", "text-data", "master", "luxi", "ialloc-src", "verbose",
    "quiet", "offline", "ignore-dynu", "mond", "mond-data", "static-kvm-node-memory", "output",
)  # fmt: skip


def bad_nodes(nodes: list[Node]) -> tuple[int, int]:
    """Return how many nodes could not start the instances of another one, and instances on
    these.
    """
    failing = [node for node in nodes if node.failing and not node.offline]
    touched = {
        index for node in failing for index in (*node.real.primaries, *node.real.secondaries)
    }
    return len(failing), len(touched)


def _groups(cluster: Cluster) -> list[list[str]]:
    rows = []
    for group in cluster.groups:
        part = cluster.only(group.index)
        if not part.nodes:
            continue
        nodes, instances = bad_nodes(part.nodes)
        rows.append(
            [
                group.name,
                str(len(part.nodes)),
                str(len(part.instances) + len(part.left_out)),
                str(nodes),
                str(instances),
                str(not nodes),
                formats.fixed(score.score(part.nodes), 8),
            ]
        )
    return rows


def execute(values: Values) -> int:
    """Show the cluster."""
    cluster = loading.load(values)
    if values.output == "json":
        prog.out(json.dumps(reports.cluster(cluster)))
        return 0
    prog.print_cluster_facts(values, cluster, always_tags=True)
    prog.print_policy(values, cluster, 2)
    if not cluster.instances and values.verbose > 1:
        prog.out("Cluster is empty.")
    prog.out(
        f"Loaded {prog.plural(len(cluster.nodes), 'node', 'nodes')},"
        f" {prog.plural(len(cluster.instances), 'instance', 'instances')},"
        f" {prog.plural(len(cluster.groups), 'node group', 'node groups')}"
    )
    prog.print_suffix(values, cluster, 2)
    _print_split(values, cluster)
    if values.verbose > 1:
        _print_groups(cluster)
    prog.print_instances(values, cluster, "Instances")
    prog.print_nodes(values, cluster, "Cluster")
    happy = not bad_nodes(cluster.nodes)[0]
    prog.out(f"Cluster is N+1 {'happy' if happy else 'unhappy'}")
    found = score.details(cluster.nodes)
    prog.out("Cluster coefficients:")
    prog.out(tables.components(found if cluster.nodes else ()))
    prog.out(f"Cluster score: {formats.fixed(score.total(found), 8)}")
    return 0


def _print_split(values: Values, cluster: Cluster) -> None:
    """Name the instances with nodes in two groups; their names go to standard error."""
    split = cluster.split_instances()
    if split:
        prog.out("Found instances belonging to multiple node groups:")
        prog.err("\n".join(f"  {one.alias}" for one in split))
    elif values.verbose > 1:
        prog.out("No split instances found")


def _print_groups(cluster: Cluster) -> None:
    header = ["Group", "Nodes", "Instances", "Bad_Nodes", "Bad_Instances", "N+1", "Score"]
    lines = formats.table([header, *_groups(cluster)], [False, True, True, True, True, False, True])
    prog.out("Node group information:")
    prog.out("\n".join(f"   {line}" for line in lines))


PROGRAM = prog.Program("hinfo", OPTIONS, execute)


def run() -> int:
    """Run the program."""
    return prog.main(PROGRAM)
