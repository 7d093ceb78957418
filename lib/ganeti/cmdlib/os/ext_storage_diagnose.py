"""Listing the external storage providers of the nodes."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.constants import query as query_c
from ganeti.opcodes.os import OpExtStorageDiagnose
from ganeti.query import resources


@executes(OpExtStorageDiagnose)
class LUExtStorageDiagnose(LogicalUnit[OpExtStorageDiagnose, None]):
    """Ask the nodes for their providers. Result: for each provider the values of the fields."""

    def check_prereq(self) -> None:
        known = resources.lookup(query_c.EXTSTORAGE).fields
        unknown = sorted(set(self.op.output_fields) - set(known))
        if unknown:
            raise errors.OpPrereqError(
                f"unknown fields of a storage provider: {', '.join(unknown)}", errors.ECODE_INVAL
            )

    def exec(self, plan: None) -> list[list[Any]]:
        return self.ctx.queries.query_values(
            query_c.EXTSTORAGE, self.op.names, self.op.output_fields
        )
