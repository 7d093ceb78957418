"""Select the instances for the commands which start, stop and reinstall them.

Their options are older, and more, than those of :mod:`ganeti.cli.selector`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, selector, terminal
from ganeti.cli.command import Option, Values

if TYPE_CHECKING:
    from ganeti.cli import many
    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode


BY_INSTANCES = "instances"
BY_CLUSTER = "cluster"


def select_instances(mode: str, names: Sequence[str], client: luxi.Client) -> list[str]:
    """Return the names of the instances which the arguments select.

    A forthcoming instance is selected only by its name.

    :param mode: the kind of the arguments: a value of one of the options :data:`SELECTION`.
    :raises OpPrereqError: there are no arguments, or no instance is selected.
    """
    if mode == BY_CLUSTER:
        if names:
            raise errors.OpPrereqError("--all takes no names", errors.ECODE_INVAL)
        rows = client.query_instances([], ["name", "forthcoming"], False)
        found = [name for name, forthcoming in rows if not forthcoming]
    elif not names:
        raise errors.OpPrereqError(
            "no instance is given. Name instances, or use --all.", errors.ECODE_INVAL
        )
    elif mode == BY_INSTANCES:
        return [row[0] for row in client.query_instances(names, ["name"], False)]
    elif mode == "instances-by-tags":
        rows = client.query_instances([], ["name", "forthcoming", "tags"], False)
        found = [
            name for name, forthcoming, tags in rows if not forthcoming and set(names) & set(tags)
        ]
    elif mode in (selector.BY_FILTER, selector.BY_GROUP):
        rows = client.query_instances(
            selector.select("instance", mode, names, client), ["name", "forthcoming"], False
        )
        found = [name for name, forthcoming in rows if not forthcoming]
    else:
        found = _instances_of_nodes(mode, names, client)
    if not found:
        by = "the tag " if mode == "instances-by-tags" else ""
        raise errors.OpPrereqError(
            f"no instance is selected by {by}{', '.join(names) or '--all'}", errors.ECODE_INVAL
        )
    return found


def _instances_of_nodes(mode: str, names: Sequence[str], client: luxi.Client) -> list[str]:
    by_tags = mode.endswith("-by-tags")
    fields = ["name", "pinst_list", "sinst_list", *(["tags"] if by_tags else [])]
    rows = client.query_nodes([] if by_tags else names, fields, False)
    found: dict[str, None] = {}  # an ordered set
    for row in rows:
        if by_tags and not set(names) & set(row[3]):
            continue
        if "-sec" not in mode:
            found.update(dict.fromkeys(row[1]))
        if "-pri" not in mode:
            found.update(dict.fromkeys(row[2]))
    if not found:
        return []
    instances = client.query_instances(list(found), ["name", "forthcoming"], False)
    return [name for name, forthcoming in instances if not forthcoming]


def for_each(
    plan: str, done: str, make: Callable[[str, Values], OpCode]
) -> Callable[[Values, list[str]], int]:
    """Return the function of a command that submits a job for each selected instance.

    :param plan: what happens to the instances, as of :class:`ganeti.cli.many.Plan`.
    :param done: what has happened to one.
    :param make: returns the opcode for an instance.
    """

    def run(values: Values, arguments: list[str]) -> int:
        client = jobs.connect()
        mode = values.multi_mode or BY_INSTANCES
        names = select_instances(mode, arguments, client)
        if mode == BY_INSTANCES and len(names) == 1:
            return submit(names, values, make, client)
        from ganeti.cli import many

        work = plan_of(plan, done)
        code = many.accepted(names, values, work)
        return submit(names, values, make, client, work) if code is None else code

    return run


def plan_of(plan: str, done: str) -> many.Plan:
    """Return the plan of a command on several instances, to which ``--force`` is no agreement."""
    from ganeti.cli import many

    return many.Plan("instance", plan=plan, done=done, option="--force-multiple")


def submit(
    names: Sequence[str],
    values: Values,
    make: Callable[[str, Values], OpCode],
    client: luxi.Client,
    work: many.Plan | None = None,
) -> int:
    """Submit a job for each instance, and wait for all of them; return the exit code.

    On a terminal, the last line says how many succeeded.

    :param work: the plan for several instances; None for a single one.
    """
    job_set = jobs.JobSet(client, values, verbose=work is not None)
    for name in names:
        job_set.add(name, make(name, values))
    if work is None or values.submit_only or not terminal.is_terminal(sys.stdout):
        return failures.EXIT_SUCCESS if job_set.run() else failures.EXIT_FAILURE
    from ganeti.cli import many

    outcomes = job_set.wait()
    good = [outcome.name for outcome in outcomes if outcome.success]
    bad = [outcome.name for outcome in outcomes if not outcome.success]
    return many.summary(good, bad, values, work)


def _mode(name: str, mode: str, help_text: str) -> Option:
    return Option(name, action="store_const", const=mode, dest="multi_mode", help=help_text)


SELECTION = (
    _mode("--all", BY_CLUSTER, "select all instances of the cluster"),
    _mode("--instance", BY_INSTANCES, "the arguments are instances (the default)"),
    selector.FILTER,
    selector.GROUP,
    _mode(
        "--node",
        "nodes",
        "the arguments are nodes; select instances whose primary or secondary node is one of them",
    ),
    _mode(
        "--primary",
        "nodes-pri",
        "the arguments are nodes; select instances whose primary node is one of them",
    ),
    _mode(
        "--secondary",
        "nodes-sec",
        "the arguments are nodes; select instances whose secondary node is one of them",
    ),
    _mode(
        "--tags",
        "instances-by-tags",
        "the arguments are tags of instances, which select instances with one of them",
    ),
    _mode(
        "--node-tags",
        "nodes-by-tags",
        "the arguments are tags of nodes, which select instances as with --node",
    ),
    _mode(
        "--pri-node-tags",
        "nodes-pri-by-tags",
        "the arguments are tags of nodes, which select instances as with --primary",
    ),
    _mode(
        "--sec-node-tags",
        "nodes-sec-by-tags",
        "the arguments are tags of nodes, which select instances as with --secondary",
    ),
    selector.FORCE_MULTIPLE,
    selector.YES,
)
