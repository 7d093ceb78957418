"""The program ``hail``: an instance allocator."""

from __future__ import annotations

import sys

from ganeti.client.htools import loading
from ganeti.client.htools import program as prog
from ganeti.client.htools.options import Values
from ganeti.htools import answer, place
from ganeti.htools import cluster as model
from ganeti.htools.loading import request as req
from ganeti.utils.records import replace
from ganeti.wire import json

OPTIONS = (
    "print-nodes", "save", "text-data", "simulate", "verbose", "ignore-dynu",
    "ignore-soft-errors", "no-capacity-checks", "restrict-allocation-to", "mond", "mond-xen",
    "static-kvm-node-memory", "explain", "output",
)  # fmt: skip


def execute(values: Values) -> int:
    """Answer one request."""
    if len(values.arguments) != 1:
        raise prog.Failure("This program needs an input file.")
    request = req.parse(prog.read_file(values.arguments[0]))
    loading.print_warnings(answer.prepare(request))
    cluster = request.cluster
    if "text_data" in values.given or "simulate" in values.given:
        cluster = loading.load(values)
        for one in request.new:
            model.prepare_new(cluster, one.instance)
    else:
        loading.apply_monitoring(values, cluster)
    if values.verbose > 1:
        # Allocators start often, and seldom say so much.
        from ganeti.client.htools import show

        prog.err(f"Received request: {show.show_request(request)}")
        if values.verbose > 2:
            prog.err(f"Received cluster data: {show.show_cluster(cluster)}")
    options = place.Options(
        ignore_soft_errors=values.ignore_soft_errors,
        capacity_checks=not values.no_capacity_checks,
        restrict_to=values.restrict_to,
    )
    if values.explain:
        if cluster is not request.cluster:
            request = replace(request, cluster=cluster, closed={})
        return _explain(values, request, options)
    if values.save is not None:
        prog.save(f"{values.save}.pre-ialloc", cluster, "before iallocator run")
    remarks: list[str] = []
    refused: list[str] = []
    found = answer.answer(
        request, cluster, options,
        answer.Tell(
            remarks.append,
            # Programs read the answer; what follows is for people.
            (lambda name, lines: refused.append(f"{name}: {'; '.join(lines)}"))
            if sys.stderr.isatty()
            else None,
        ),
    )  # fmt: skip
    if values.verbose > 1:
        for text in remarks:
            prog.err(text)
    prog.print_nodes(values, cluster, "Initial cluster")
    prog.print_nodes(values, found.cluster, "Final cluster")
    if values.save is not None:
        prog.save(f"{values.save}.post-ialloc", found.cluster, "after iallocator run")
    prog.out(json.dumps(found.to_dict()))
    for text in refused:
        prog.err(f"No place for {text}.")
    return 0


def _explain(values: Values, request: req.Request, options: place.Options) -> int:
    """Print why nodes were or were not chosen, instead of the answer."""
    from ganeti.htools import explain

    if not request.new:
        raise prog.Failure(
            f"--explain is about new instances, and a request of type {request.kind} has none."
            f" Use a request of type {req.ALLOCATE} or {req.MULTI_ALLOCATE}."
        )
    found = explain.explain_all(request, options)
    prog.out(json.dumps(found) if values.output else explain.text(found))
    return 0


PROGRAM = prog.Program("hail", OPTIONS, execute, " REQUEST-FILE", "file")


def run() -> int:
    """Run the program."""
    return prog.run_and_end(PROGRAM)
