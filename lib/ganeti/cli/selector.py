"""Options by which the arguments of a command select objects in another way than by their names.

``-F`` makes the argument a filter expression, as of a list; ``--tags`` makes the arguments tags,
``--node``, ``--primary`` and ``--secondary`` nodes, and ``--group`` node groups. Without one of
these options the arguments are names. :mod:`ganeti.cli.many` works on what is selected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import filters
from ganeti.cli.command import Option, Values

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi

BY_FILTER, BY_TAGS, BY_NODE, BY_GROUP = "filter", "tags", "node", "group"
BY_PRIMARY, BY_SECONDARY = "primary", "secondary"
_DEST = "multi_mode"
# Kind of objects -> the field with the node group of one.
_GROUP_FIELDS = {"instance": "pnode.group", "node": "group"}
# How nodes select instances -> the condition for the name of one node.
_NODE_CONDITIONS: dict[str, Callable[[str], list[Any]]] = {
    BY_NODE: lambda name: ["|", ["==", "pnode", name], ["=[]", "snodes", name]],
    BY_PRIMARY: lambda name: ["==", "pnode", name],
    BY_SECONDARY: lambda name: ["=[]", "snodes", name],
}
# Kind of objects -> the field by which commands name them, if it is not "name".
_NAME_FIELDS = {"job": "id"}

FILTER = Option(
    "-F",
    "--filter",
    action="store_const",
    const=BY_FILTER,
    dest=_DEST,
    help="the argument is a filter expression, as of list",
)
TAGS = Option(
    "--tags",
    action="store_const",
    const=BY_TAGS,
    dest=_DEST,
    help="the arguments are tags, which select objects with one of them",
)
NODE = Option(
    "--node",
    action="store_const",
    const=BY_NODE,
    dest=_DEST,
    help="the arguments are nodes, which select the instances whose primary or secondary node is"
    " one of them",
)
GROUP = Option(
    "--group",
    action="store_const",
    const=BY_GROUP,
    dest=_DEST,
    help="the arguments are node groups, which select the nodes in them, or the instances whose"
    " primary nodes are",
)
PRIMARY = Option(
    "--primary",
    action="store_const",
    const=BY_PRIMARY,
    dest=_DEST,
    help="the arguments are nodes, which select the instances whose primary node is one of them",
)
SECONDARY = Option(
    "--secondary",
    action="store_const",
    const=BY_SECONDARY,
    dest=_DEST,
    help="the arguments are nodes, which select the instances whose secondary node is one of them",
)
FORCE_MULTIPLE = Option(
    "--force-multiple",
    dest="force_multi",
    default=False,
    help="do not ask for confirmation when there are several objects",
)
YES = Option("--yes", dest="force_multi", default=False, help="the same as --force-multiple")
OPTIONS = (FILTER, TAGS, GROUP)
INSTANCE_OPTIONS = (FILTER, TAGS, NODE, GROUP)
#: For commands which change instances, and have an option ``--node`` with another meaning.
CHANGE_WITH_NODE = (FILTER, TAGS, PRIMARY, SECONDARY, GROUP, FORCE_MULTIPLE, YES)
#: For other commands which change instances.
CHANGE_INSTANCES = (NODE, *CHANGE_WITH_NODE)
#: For commands which change nodes.
CHANGE_NODES = (*OPTIONS, FORCE_MULTIPLE, YES)


def given(values: Values) -> bool:
    """Return True if one of the options which select objects is given."""
    return values.get(_DEST) is not None


def names(
    resource: str, values: Values, arguments: Sequence[str], client: luxi.Client
) -> list[str]:
    """Return the names of the selected objects; the arguments, if these are names.

    :param resource: kind of the objects, as queries name it.
    :raises OpPrereqError: nothing is given or selected, or there is no such node or group.
    """
    mode = values.get(_DEST)
    return list(arguments) if mode is None else select(resource, mode, arguments, client)


def select(resource: str, mode: str, words: Sequence[str], client: luxi.Client) -> list[str]:
    """Return the names of the objects which the words select, or the numbers of jobs, in order.

    :param mode: :data:`BY_FILTER`, :data:`BY_TAGS`; :data:`BY_NODE`, :data:`BY_PRIMARY` and
        :data:`BY_SECONDARY` (only of instances) or :data:`BY_GROUP` (only of instances and nodes).
    :raises OpPrereqError: nothing is given or selected, or there is no such node or group.
    :raises QueryFilterParseError: the expression is not valid.
    """
    chosen = condition(resource, mode, words, client)
    response = client.query(resource, [_NAME_FIELDS.get(resource, "name")], chosen)
    found = [str(row[0][1]) for row in response["data"]]
    if not found:
        raise errors.OpPrereqError(
            f"no {resource} is selected by --{mode} {' '.join(words)}", errors.ECODE_INVAL
        )
    return found


def condition(resource: str, mode: str, words: Sequence[str], client: luxi.Client) -> Any:
    """Return the filter, in list form, which selects what :func:`select` does.

    :raises OpPrereqError: nothing is given, or there is no such node or group.
    :raises QueryFilterParseError: the expression is not valid.
    """
    if not words:
        raise errors.OpPrereqError(f"--{mode} needs an argument", errors.ECODE_INVAL)
    if mode == BY_FILTER:
        return filters.make_filter(words, force_filter=True)
    if mode == BY_TAGS:
        return ["|", *(["=[]", "tags", tag] for tag in words)]
    if mode in _NODE_CONDITIONS:
        nodes = [row[0] for row in client.query_nodes(list(words), ["name"], False)]
        return ["|", *(_NODE_CONDITIONS[mode](name) for name in nodes)]
    # A wrong name is an error, and a short one is completed.
    groups = [row[0] for row in client.query_groups(list(words), ["name"], False)]
    return filters.simple_filter(_GROUP_FIELDS[resource], groups)
