"""Which instances a command is about, and asking before something happens to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ganeti import errors
from ganeti.cli import confirmation, failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Values
from ganeti.cli.options import Option

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from ganeti.luxi import client as luxi
    from ganeti.opcodes.base import OpCode


def confirmed(values: Values, name: str, question: str, client: luxi.Client) -> int | None:
    """Ask before something happens to an instance.

    :returns: None to go on, or the exit code.
    """
    if values.force:
        return None
    # A wrong name is said before the question, not after it.
    client.query_instances([name], ["name"], False)
    return confirmation.ask(question)


BY_INSTANCES = "instances"
BY_CLUSTER = "cluster"


def select_instances(mode: str, names: Sequence[str], client: luxi.Client) -> list[str]:
    """Names of the instances meant by the arguments.

    What is only reserved (forthcoming) is meant when it is named, but not as one of many.

    :param mode: what the arguments name: instances, nodes, tags ...
    :raises OpPrereqError: nothing named, or nothing found.
    """
    if mode == BY_CLUSTER:
        if names:
            raise errors.OpPrereqError("--all takes no names", errors.ECODE_INVAL)
        rows = client.query_instances([], ["name", "forthcoming"], False)
        found = [name for name, forthcoming in rows if not forthcoming]
    elif not names:
        raise errors.OpPrereqError(
            "no instance given. Name some, or use --all.", errors.ECODE_INVAL
        )
    elif mode == BY_INSTANCES:
        return [row[0] for row in client.query_instances(names, ["name"], False)]
    elif mode == "instances-by-tags":
        rows = client.query_instances([], ["name", "forthcoming", "tags"], False)
        found = [
            name for name, forthcoming, tags in rows if not forthcoming and set(names) & set(tags)
        ]
    else:
        found = _instances_of_nodes(mode, names, client)
    if not found:
        raise errors.OpPrereqError("no instance is selected by this", errors.ECODE_INVAL)
    return found


def _instances_of_nodes(mode: str, names: Sequence[str], client: luxi.Client) -> list[str]:
    by_tags = mode.endswith("-by-tags")
    fields = ["name", "pinst_list", "sinst_list", *(["tags"] if by_tags else [])]
    rows = client.query_nodes([] if by_tags else names, fields, False)
    found: dict[str, None] = {}  # keeps the order, once each
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
    verb: str, make: Callable[[str, Values], OpCode]
) -> Callable[[Values, list[str]], int]:
    """A command that does the same to every selected instance, a job for each."""

    def run(values: Values, arguments: list[str]) -> int:
        client = jobs.connect()
        mode = values.multi_mode or BY_INSTANCES
        names = select_instances(mode, arguments, client)
        several = mode != BY_INSTANCES or len(names) > 1
        if several and not values.force_multi:
            terminal.out(f"{verb} will be done to {len(names)} instances:")
            for name in names:
                terminal.out(f"  {name}")
            code = confirmation.ask(f"Go on with {verb}?", "--force-multiple")
            if code is not None:
                return code
        job_set = jobs.JobSet(client, values, verbose=several)
        for name in names:
            job_set.add(name, make(name, values))
        return failures.EXIT_SUCCESS if job_set.run() else failures.EXIT_FAILURE

    return run


def _mode(name: str, mode: str, help_text: str) -> Option:
    return Option(name, action="store_const", const=mode, dest="multi_mode", help=help_text)


SELECTION = (
    _mode("--all", BY_CLUSTER, "all instances of the cluster"),
    _mode("--instance", BY_INSTANCES, "the arguments are instances (the default)"),
    _mode(
        "--node",
        "nodes",
        "the arguments are nodes: instances which have them as primary or secondary",
    ),
    _mode(
        "--primary", "nodes-pri", "the arguments are nodes: instances which have them as primary"
    ),
    _mode(
        "--secondary",
        "nodes-sec",
        "the arguments are nodes: instances which have them as secondary",
    ),
    _mode("--tags", "instances-by-tags", "the arguments are tags of instances"),
    _mode("--node-tags", "nodes-by-tags", "the arguments are tags of nodes, as --node"),
    _mode("--pri-node-tags", "nodes-pri-by-tags", "the arguments are tags of nodes, as --primary"),
    _mode(
        "--sec-node-tags", "nodes-sec-by-tags", "the arguments are tags of nodes, as --secondary"
    ),
    opt.flag("--force-multiple", dest="force_multi", help="do not ask when there are several"),
)
