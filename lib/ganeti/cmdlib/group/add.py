"""Adding a node group."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, ResultWithJobs, executes
from ganeti.cmdlib.group import params
from ganeti.cmdlib.hooks import Hooks
from ganeti.constants import net as net_c
from ganeti.constants import node as node_c
from ganeti.locking import Level
from ganeti.objects import NodeGroup
from ganeti.opcodes.group import OpGroupAdd
from ganeti.opcodes.network import OpNetworkConnect

if TYPE_CHECKING:
    from ganeti.config import Config

# A name stands in REST paths and in lists which people cut at blanks.
_NAME = re.compile(r"^[^\s/-][^\s/]*$")


class GroupHooks(Hooks):
    """Hooks of an operation on a node group."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, "GROUP")


def require_new_name(config: Config, name: str, what: str) -> None:
    """A name which an object may get.

    :param what: ``node group`` or ``network``.
    :raises errors.OpPrereqError: it has a form which cannot be handled, or is taken.
    """
    if not _NAME.match(name):
        raise errors.OpPrereqError(
            f"{name!r} cannot be the name of a {what}: it must not contain blanks or slashes, nor"
            " begin with a dash",
            errors.ECODE_INVAL,
        )
    expand = config.expand_group if what == "node group" else config.expand_network
    try:
        taken = expand(name)
    except errors.OpPrereqError:
        return
    raise errors.OpPrereqError(
        f"{what} {name} already exists (uuid {taken.uuid})", errors.ECODE_EXISTS
    )


@executes(OpGroupAdd)
class LUGroupAdd(LogicalUnit):
    """Add a node group without nodes."""

    op: OpGroupAdd
    HOOKS = GroupHooks("group-add")

    def expand_names(self) -> None:
        self.uuid = self.config.new_uuid(self.ctx.ec_id)
        self.need_new(Level.NODEGROUP, self.uuid)

    def hook_env(self, plan: NodeGroup) -> dict[str, object]:
        return {"GROUP_NAME": self.op.group_name}

    def hook_nodes(self, plan: NodeGroup) -> tuple[list[str], list[str]]:
        master = [self.config.master_node().uuid]
        return master, master

    def check_prereq(self) -> NodeGroup:
        op, cluster = self.op, self.config.cluster()
        require_new_name(self.config, op.group_name, "node group")
        return NodeGroup(
            name=op.group_name,
            alloc_policy=op.alloc_policy or node_c.ALLOC_PREFERRED,
            ndparams=params.merged_ndparams({}, op.ndparams or {}),
            diskparams=params.merged_diskparams({}, op.diskparams or {}),
            ipolicy=params.merged_ipolicy(cluster, {}, op.ipolicy or {}),
            hv_state_static=params.merged_hv_state({}, op.hv_state) if op.hv_state else None,
            disk_state_static=(
                params.merged_disk_state({}, op.disk_state) if op.disk_state else None
            ),
            networks={},
            uuid=self.uuid,
            serial_no=1,
        )

    def exec(self, plan: NodeGroup) -> ResultWithJobs | None:
        self.config.add_group(plan, self.ctx.ec_id)
        network = self.config.cluster().instance_communication_network
        if not network:
            return None
        # Guests of every group can talk to their host.
        return ResultWithJobs(
            [
                [
                    OpNetworkConnect(
                        group_name=plan.name,
                        network_name=network,
                        network_mode=net_c.INSTANCE_COMMUNICATION_MODE,
                        network_link=net_c.INSTANCE_COMMUNICATION_LINK,
                        conflicts_check=True,
                    )
                ]
            ]
        )
