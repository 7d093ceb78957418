"""Find out which nodes see the same directory, with a file that is made for this question.

That two nodes have a path says nothing: there may be one network file system behind it, or one
directory each. So nobody may take the copy of another node for another copy because of the name of
that node. :mod:`ganeti.utils.shared_dir` explains the marks which the nodes make.

A node which does not answer is *not known*: neither the same, nor another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ganeti.cmdlib.base import why
from ganeti.utils import shared_dir, text
from ganeti.wire.calls import DIRECTORY_MARK, DIRECTORY_SEEN, DIRECTORY_UNMARK

if TYPE_CHECKING:
    from ganeti.rpc import Result, RpcRunner


@dataclass(frozen=True, slots=True)
class Views:
    """What nodes see of one directory.

    :ivar groups: UUIDs of nodes; those of one group see one directory. A node which can neither
        make nor see a mark is in none.
    :ivar unknown: UUID of each other node -> why it is not known.
    :ivar blind: UUIDs of the nodes which looked, and saw no mark; they are in no group.
    """

    groups: tuple[tuple[str, ...], ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    blind: frozenset[str] = frozenset()

    def shared_with(self, node_uuid: str) -> tuple[str, ...]:
        """Return the other nodes which see the directory of this node."""
        found = shared_dir.group_of(node_uuid, self.groups)
        return tuple(uuid for uuid in found if uuid != node_uuid)


def compare(
    rpc: RpcRunner,
    directories: Sequence[str],
    marking: Sequence[str],
    looking: Iterable[str] = (),
) -> dict[str, Views]:
    """Compare directories of nodes; takes three calls to these nodes.

    :param directories: virtual paths, the same on all nodes.
    :param marking: UUIDs of the nodes which make a mark and look for those of the others.
    :param looking: UUIDs of nodes which only look; a node which sees no mark is in no group.
    :returns: directory -> what the nodes see.
    """
    token = text.new_uuid()
    asked = list(dict.fromkeys((*marking, *looking)))
    if not directories or len(asked) < 2:
        return {path: Views(tuple((uuid,) for uuid in asked)) for path in directories}
    per_node = {uuid: {"key": uuid} for uuid in marking}
    try:
        marked = rpc.call_many(
            DIRECTORY_MARK, marking, per_node=per_node, directories=directories, token=token
        )
        seen = rpc.call_many(
            DIRECTORY_SEEN, asked, directories=directories, token=token, keys=list(marking)
        )
    finally:
        # A mark which stays is removed by a later comparison in the same directory.
        rpc.call_many(
            DIRECTORY_UNMARK, marking, per_node=per_node, directories=directories, token=token
        )
    return {path: _views(path, asked, marked, seen) for path in directories}


def _views(
    path: str, asked: Sequence[str], marked: Mapping[str, Result], seen: Mapping[str, Result]
) -> Views:
    unknown: dict[str, str] = {}
    sees: dict[str, list[str]] = {}
    made, blind = set(), set()
    for uuid, answer in marked.items():
        problem = why(answer.failure) if answer.failure is not None else answer.data.get(path)
        if problem is None:
            made.add(uuid)
        else:
            unknown[uuid] = problem
    for uuid in asked:
        answer = seen[uuid]
        keys = why(answer.failure) if answer.failure is not None else answer.data.get(path, "")
        if isinstance(keys, str):
            unknown.setdefault(uuid, keys or "no answer")
            continue
        if keys or uuid in made:
            sees[uuid] = keys
            unknown.pop(uuid, None)
        else:
            blind.add(uuid)
    for uuid in made - sees.keys():
        # Others may see its mark although it did not answer again.
        if any(uuid in keys for keys in sees.values()):
            sees[uuid] = [uuid]
            del unknown[uuid]
    return Views(tuple(map(tuple, shared_dir.groups(sees))), unknown, frozenset(blind))
