"""The program ``hscan``: reads clusters and writes each of them to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ganeti import errors
from ganeti.cli import rest_address
from ganeti.client.htools import loading, luxi, reports, rest
from ganeti.client.htools import program as prog
from ganeti.client.htools.hinfo import bad_nodes
from ganeti.client.htools.options import Values
from ganeti.htools import cluster as model
from ganeti.htools import figures, formats
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import text
from ganeti.wire import json

OPTIONS = (
    "print-nodes", "output-dir", "luxi", "verbose", "no-headers", "static-kvm-node-memory",
    "output",
)  # fmt: skip

#: The name of the cluster of this machine, in the table and as the name of its file.
LOCAL = "LOCAL"
#: The exit code when a cluster could not be read; the others were.
EXIT_INCOMPLETE = 2

_GIB = 1024


def execute(values: Values) -> int:
    """Scan the clusters one after the other; one which cannot be read does not stop the others."""
    names = values.arguments or [LOCAL]
    width = max(len(rest_address.without_user(name)) for name in [*names, "Name"])
    if not values.no_headers and values.output is None:
        prog.out(
            f"{'Name':<{width}} {'Nodes':>5} {'Inst':>5} {'BNode':>5} {'BInst':>5} {'t_mem':>6}"
            f" {'f_mem':>6} {'t_disk':>6} {'f_disk':>6} {'Score':>10}"
        )
    failed = False
    found: list[dict[str, Any]] = []
    for name in names:
        try:
            found.append(_scan(values, name, width))
        except errors.ParseError as failure:
            failed = True
            shown = rest_address.without_user(name)
            found.append({"name": shown, "error": str(failure)})
            say = prog.out if values.output is None else prog.err
            say(f"\nError for {shown}: failed to load data. Details:\n{failure}")
    if values.output == "json":
        prog.out(json.dumps(found))
    return EXIT_INCOMPLETE if failed else 0


def _scan(values: Values, address: str, width: int) -> dict[str, Any]:
    """Read one cluster, print its line and write its file.

    :returns: what ``--output json`` prints for it.
    :raises ParseError: it cannot be read.
    :raises Failure: its file cannot be written.
    """

    def read(kvm_memory: int) -> Cluster:
        if address == LOCAL and not values.arguments:
            return luxi.load(values.luxi or "", kvm_memory=kvm_memory)
        return rest.load(address, kvm_memory=kvm_memory)

    # The file has what the nodes report; who reads it may choose other memory for KVM.
    recorded = read(0)
    cluster = recorded
    if values.kvm_memory > 0:
        cluster = read(values.kvm_memory)
    warnings = model.prepare(cluster)
    name = rest_address.without_user(address)
    path = Path(values.output_dir, f"{file_name(name)}.data")
    if recorded is not cluster:
        model.prepare(recorded)
    if values.verbose > 2:
        loading.print_warnings(warnings)
    if values.output is None:
        _print(values, name, width, cluster)
    try:
        path.write_text(text.serialize(recorded), encoding="utf-8")
    except OSError as failure:
        raise prog.Failure(f"cannot write {path}: {failure.strerror}") from failure
    return {"name": name, "file": str(path), **reports.cluster(cluster)}


def file_name(name: str) -> str:
    """Return the name of the file of a cluster: its address, where a slash becomes an
    underscore.
    """
    return name.replace("/", "_")


def _print(values: Values, name: str, width: int, cluster: Cluster) -> None:
    nodes, instances = bad_nodes(cluster.nodes)
    found = figures.figures(cluster)
    free = sum(node.free_memory for node in cluster.nodes)
    prog.out(
        f"{name:<{width}} {len(cluster.nodes):5d} {len(cluster.instances):5d} {nodes:5d}"
        f" {instances:5d} {formats.fixed(found.total_memory, 0):>6} {free:6d}"
        f" {formats.fixed(found.total_disk / _GIB, 0):>6} {found.free_disk // _GIB:6d}"
        f" {formats.fixed(found.score, 8):>10}"
    )
    if values.print_nodes is not None:
        from ganeti.htools import tables

        prog.out(tables.nodes(cluster.nodes, tables.wanted_fields(values.print_nodes)))


PROGRAM = prog.Program("hscan", OPTIONS, execute, " [CLUSTER...]", "host")


def run() -> int:
    """Run the program."""
    return prog.main(PROGRAM)
