"""Listing the storage units of nodes."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import executes
from ganeti.cmdlib.ops.node.storage_query import NAME, NODE, TYPE, NodeQueryUnit, storage_arguments
from ganeti.constants import disk as disk_c
from ganeti.objects import Node, disk_templates
from ganeti.opcodes.node import (
    OpNodeQueryStorage,
)
from ganeti.utils import text
from ganeti.wire.calls import (
    STORAGE_LIST,
)

STORAGE_FIELDS = ("allocatable", "free", NAME, NODE, "size", TYPE, "used")
REPORTED_TYPES = (
    disk_c.ST_SHARED_FILE,
    disk_c.ST_FILE,
    disk_c.ST_LVM_PV,
    disk_c.ST_LVM_VG,
    disk_c.ST_GLUSTER,
)


@executes(OpNodeQueryStorage)
class LUNodeQueryStorage(NodeQueryUnit[OpNodeQueryStorage, str]):
    """List the storage units of one type."""

    FIELDS = STORAGE_FIELDS

    def check_prereq(self) -> str:
        wanted = self.op.storage_type
        if wanted is None:
            enabled = [
                disk_templates.of(template).storage_type
                for template in self.config.cluster().enabled_disk_templates
            ]
            # The first type which nodes can list; shared storage belongs to no node.
            wanted = next((kind for kind in enabled if kind in REPORTED_TYPES), enabled[0])
        if wanted not in REPORTED_TYPES:
            raise errors.OpPrereqError(
                f"storage units of type {wanted!r} cannot be listed. Choose one of"
                f" {', '.join(REPORTED_TYPES)} with --storage-type.",
                errors.ECODE_INVAL,
            )
        return wanted

    def exec(self, plan: str) -> list[list[Any]]:
        nodes = [self.config.node(uuid) for uuid in self.node_uuids]
        arguments = storage_arguments(self.config, plan)
        if arguments == [[]]:
            return []
        fields = [field for field in self.op.output_fields if field not in (NODE, TYPE)]
        asked = list(dict.fromkeys([NAME, *fields]))
        answers = self._ask(
            STORAGE_LIST,
            nodes,
            su_name=plan,
            su_args=arguments,
            name=self.op.name,
            fields=asked,
            apart=True,
        )
        rows = []
        for node in nodes:
            # A node of the release before does not tell the units which fail.
            judged = [self._judged(node, row, len(asked)) for row in answers.get(node.uuid, [])]
            units = [row for row in judged if row is not None]
            if any(len(values) != len(asked) for values in units):
                self.log.warn(
                    f"node {node.name}: expected {len(asked)} values for each storage unit"
                )
                continue
            for values in sorted(units, key=lambda v: text.natural_key(v[0])):
                unit = {**dict(zip(asked, values, strict=True)), NODE: node.name, TYPE: plan}
                rows.append([unit[field] for field in self.op.output_fields])
        return rows

    def _judged(self, node: Node, row: list[Any], count: int) -> list[Any] | None:
        """Return the values of a unit; None, with a warning, when it could not be read."""
        if len(row) != count + 1:
            return row
        *values, problem = row
        if problem is None:
            return values
        self._warn(node, f"storage unit {values[0]}", problem)
        return None
