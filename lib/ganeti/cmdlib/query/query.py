"""Answering a query in a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ganeti.cmdlib.base import LockRequest, LogicalUnit, executes
from ganeti.constants import query as query_c
from ganeti.locking import ALL, Level
from ganeti.opcodes.query import OpQuery
from ganeti.query import filter as query_filter
from ganeti.query import resources
from ganeti.query.engine import QueryAnswer

if TYPE_CHECKING:
    from ganeti.objects import Instance, Network, Node, NodeGroup

# Kinds of objects which have locks.
_LEVELS = {
    query_c.INSTANCE: Level.INSTANCE,
    query_c.NODE: Level.NODE,
    query_c.GROUP: Level.NODEGROUP,
    query_c.NETWORK: Level.NETWORK,
}


@executes(OpQuery)
class LUQuery(LogicalUnit[OpQuery, None]):
    """Answer a query. Result: that of the LUXI request.

    With ``use_locking`` the answer waits until no job works on the objects. A query about instances
    also waits for their nodes and node groups. Objects of other kinds have no locks.
    """

    def expand_names(self) -> None:
        query_filter.check_size(self.op.qfilter)
        level = _LEVELS.get(self.op.what)
        if self.op.use_locking and level is not None:
            self.need(level, self._wanted(), shared=True)

    def _wanted(self) -> LockRequest:
        """Return the UUIDs of the objects which the filter names; all objects, if it names none."""
        resource = resources.lookup(self.op.what)
        names = query_filter.requested_names(self.op.qfilter, resource.name_field)
        expand: dict[str, Callable[[str], Instance | Node | NodeGroup | Network]] = {
            query_c.INSTANCE: self.config.expand_instance,
            query_c.NODE: self.config.expand_node,
            query_c.GROUP: self.config.expand_group,
            query_c.NETWORK: self.config.expand_network,
        }
        if names is None:
            return ALL
        return [expand[self.op.what](str(name)).uuid for name in names]

    def declare_locks(self, level: Level) -> None:
        about_instances = self.op.use_locking and self.op.what == query_c.INSTANCE
        if not about_instances or level not in (Level.NODEGROUP, Level.NODE):
            return
        present = self.config.snapshot().instances
        owned = [present[uuid] for uuid in self.owned(Level.INSTANCE) if uuid in present]
        nodes = {uuid for inst in owned for uuid in self.config.instance_nodes(inst)}
        if level is Level.NODE:
            self.need(level, nodes, shared=True)
        else:
            self.need(level, {self.config.node(uuid).group for uuid in nodes}, shared=True)

    def exec(self, plan: None) -> QueryAnswer:
        return self.ctx.queries.query(self.op.what, self.op.fields, self.op.qfilter)
