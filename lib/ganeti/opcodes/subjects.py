"""Which objects the opcodes of a job name, for events and for rights on single objects.

The parameters of an opcode say which objects it works on; this module reads them from the
dictionaries of job files and submissions, without building the opcodes. Names are as the client
gave them: they may be short, or UUIDs.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.constants.instance import REMOTE_IMPORT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

INSTANCE, NODE, GROUP, NETWORK = "instance", "node", "group", "network"

# Parameter -> kind of the object, or of each object in its list.
_KIND_OF = {
    "group": GROUP,
    "group_name": GROUP,
    "instance_name": INSTANCE,
    "instances": INSTANCE,
    "more_groups": GROUP,
    "network_name": NETWORK,
    "node_name": NODE,
    "node_names": NODE,
    "nodes": NODE,
    "on_nodes": NODE,
    "pnode": NODE,
    "remote_node": NODE,
    "snode": NODE,
    "source_instance_name": INSTANCE,
    "src_node": NODE,
    "target_groups": GROUP,
    "target_node": NODE,
}
# A new name has the kind of the object which gets it.
_RENAMES = {
    "OP_INSTANCE_COPY": INSTANCE,
    "OP_INSTANCE_RENAME": INSTANCE,
    "OP_GROUP_RENAME": GROUP,
    "OP_NETWORK_RENAME": NETWORK,
}
_TAG_KINDS = {
    "instance": INSTANCE,
    "network": NETWORK,
    "node": NODE,
    "nodegroup": GROUP,
}


def named_objects(inputs: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the objects which opcodes name, each once, in the order of the opcodes.

    :param inputs: opcodes as dictionaries, with ``OP_ID`` (``QueuedJob.inputs``). They may come
        from another version: a value of a wrong type is ignored.
    :returns: pairs of kind (:data:`INSTANCE`, :data:`NODE`, :data:`GROUP`, :data:`NETWORK`) and
        name. An opcode for the whole cluster names none.
    """
    found: dict[tuple[str, str], None] = {}
    for given in inputs:
        found.update(dict.fromkeys(_of_opcode(given)))
    return list(found)


def _of_opcode(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    op_id = given.get("OP_ID")
    for name, kind in _KIND_OF.items():
        value = given.get(name)
        if not value or (name == "source_instance_name" and _is_remote(given)):
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, str):
                yield kind, one
            elif isinstance(one, dict) and name == "instances":
                # The opcodes of instances which are created together.
                yield from _of_opcode(one)
    new_name = given.get("new_name")
    if isinstance(op_id, str) and op_id in _RENAMES and isinstance(new_name, str):
        yield _RENAMES[op_id], new_name
    tagged, its_name = given.get("kind"), given.get("name")
    if isinstance(tagged, str) and tagged in _TAG_KINDS and isinstance(its_name, str) and its_name:
        yield _TAG_KINDS[tagged], its_name


def _is_remote(given: Mapping[str, Any]) -> bool:
    """Tell whether the source of an import is an instance of another cluster."""
    return given.get("mode") == REMOTE_IMPORT
