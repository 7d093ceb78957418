"""The command ``gnt-cluster simulate``: what the cluster would be after some changes."""

from __future__ import annotations

import math

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Option, Values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ganeti.htools.what_if import Change

_TITLES = {
    "nodes": "Nodes",
    "offline_nodes": "Offline nodes",
    "instances": "Instances",
    "free_memory": "Free memory (MiB)",
    "free_disk": "Free disk space (MiB)",
    "nodes_failing_n1": "Nodes without memory for the loss of another one",
    "nodes_not_evacuable": "Nodes which cannot be emptied",
    "more_instances": "Standard instances that fit (up to 100)",
    "score": "Score (lower is better)",
}


def simulate(values: Values, arguments: list[str]) -> int:
    """Compare the cluster as it is with the cluster after changes (``simulate``)."""
    from ganeti.client.htools import luxi
    from ganeti.htools import cluster as model
    from ganeti.htools import what_if

    cluster = luxi.load("")
    model.prepare(cluster)
    try:
        if values.group is not None:
            cluster = model.one_group(cluster, values.group)
        result = what_if.apply(cluster, values.what_if or ())
    except errors.ParseError as err:
        raise errors.ParameterError(str(err)) from err
    now, then = what_if.summary(cluster), what_if.summary(result.cluster)
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        found = {
            "changes": [one.to_dict() for one in result.changes],
            "now": _finite(now),
            "then": _finite(then),
        }
        output.write_data(found, values.output_format)
    else:
        _print(result.changes, now, then)
    complete = not any(one.without_place for one in result.changes)
    return failures.EXIT_SUCCESS if complete else failures.EXIT_FAILURE


def _print(
    changes: Sequence[Change], now: dict[str, int | float], then: dict[str, int | float]
) -> None:
    from ganeti.htools.formats import table

    for one in changes:
        terminal.out(f"Change {one.text}: {len(one.moved)} instances move")
        if one.without_place:
            terminal.out(f"  No place for: {', '.join(one.without_place)}")
    rows = [["", "Now", "Then"]]
    for key, title in _TITLES.items():
        rows.append([title, *(_text(found[key]) for found in (now, then))])
    for line in table(rows, [False, True, True]):
        terminal.out(line)


def _finite(found: dict[str, int | float]) -> dict[str, int | float | None]:
    return {key: value if math.isfinite(value) else None for key, value in found.items()}


def _text(value: int | float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}"


COMMAND = Command(
    "simulate",
    simulate,
    [],
    [
        Option(
            "--what-if",
            kind="string",
            action="append",
            metavar="CHANGE",
            completion="what-if",
            help="a change, such as remove-node=NODE, add-nodes=COUNT:NODE or"
            " add-instances=COUNT:SIZE; may be repeated (man page htools)",
        ),
        Option(
            "-G",
            "--group",
            kind="string",
            metavar="GROUP",
            completion="nodegroup",
            help="look at this node group only, and change nothing else",
        ),
        opt.OUTPUT_FORMAT,
    ],
    "Show what the cluster would be after some changes, without making them",
)
