"""The base class of the logical units which list storage units and logical volumes of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, PlanT, why
from ganeti.objects import Node
from ganeti.opcodes.node import OpNodeQueryStorage, OpNodeQueryvols

if TYPE_CHECKING:
    from ganeti.config import Config

NODE, TYPE, NAME = "node", "type", "name"


def storage_arguments(config: Config, storage_type: str) -> list[Any]:
    """Make the argument ``su_args`` of the node calls about a type of storage unit.

    :returns: the directory of file storage, as ``[[directory]]`` or ``[[]]``; ``[]`` for LVM.
    """
    cluster = config.cluster()
    directories = cluster.directories_of_types()
    if storage_type not in directories:
        return []
    directory = directories[storage_type]
    return [[directory] if directory else []]


NodeQueryOpT = TypeVar("NodeQueryOpT", bound=OpNodeQueryStorage | OpNodeQueryvols)


class NodeQueryUnit(LogicalUnit[NodeQueryOpT, PlanT]):
    """Checks the fields, locks the nodes and asks them."""

    FIELDS: tuple[str, ...] = ()

    def expand_names(self) -> None:
        unknown = sorted(set(self.op.output_fields) - set(self.FIELDS))
        if unknown:
            raise errors.OpPrereqError(
                f"unknown fields {', '.join(unknown)}. The fields are {', '.join(self.FIELDS)}.",
                errors.ECODE_INVAL,
            )
        names = list(self.op.nodes)
        nodes = [self.config.expand_node(n) for n in names] if names else self.config.nodes()
        self.node_uuids = [node.uuid for node in nodes]
        self.lock_nodes(self.node_uuids, shared=True)

    def _ask(self, call: Any, nodes: Sequence[Node], **args: Any) -> dict[str, Any]:
        """Ask the nodes; a failure is a warning.

        :returns: UUID of a node -> its answer.
        """
        found = {}
        for uuid, answer in self.rpc.call_many(call, [n.uuid for n in nodes], **args).items():
            if answer.offline:
                continue
            if answer.failure is not None:
                self.log.warn(
                    f"node {answer.node_name} did not report its storage: {why(answer.failure)}"
                )
                continue
            found[uuid] = answer.data
        return found

    def _warn(self, node: Node, what: str, problem: object) -> None:
        """Warn about one thing of a node which could not be read; the others are listed."""
        self.log.warn(f"node {node.name} could not read {what}: {problem}")
