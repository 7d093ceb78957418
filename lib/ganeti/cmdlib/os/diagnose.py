"""Listing the OS definitions of the nodes, and comparing them."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.ops.os.definitions import collect
from ganeti.opcodes.os import OpOsDiagnose
from ganeti.wire.calls import OS_DIAGNOSE


@executes(OpOsDiagnose)
class LUOsDiagnose(LogicalUnit[OpOsDiagnose, None]):
    """Ask the nodes for their OS definitions. Result: for each OS the values of the fields."""

    def check_prereq(self) -> None:
        unknown = sorted(set(self.op.output_fields) - set(_FIELDS))
        if unknown:
            raise errors.OpPrereqError(
                f"unknown fields of an operating system: {', '.join(unknown)}", errors.ECODE_INVAL
            )

    def exec(self, plan: None) -> list[list[Any]]:
        nodes = [node.uuid for node in self.config.vm_capable_nodes() if not node.offline]
        answers = self.rpc.call_many(OS_DIAGNOSE, nodes)
        for answer in answers.values():
            if answer.failure is not None:
                self.log.warn(
                    f"node {answer.node_name} did not report its OS definitions:"
                    f" {why(answer.failure)}"
                )
        found = collect(self.config.cluster(), answers)
        wanted = set(self.op.names)
        # Unusable definitions are shown only by name, or with fields which give the reason.
        rows = []
        for summary in found:
            if wanted and summary.name not in wanted:
                continue
            usable = summary.valid and not summary.hidden and not summary.blacklisted
            if usable or wanted or set(self.op.output_fields) & _TELLING:
                rows.append([_FIELDS[name](summary) for name in self.op.output_fields])
        return rows


_FIELDS: dict[str, Any] = {
    "name": lambda s: s.name,
    "valid": lambda s: s.valid,
    "node_status": lambda s: s.node_status,
    "variants": lambda s: s.variants,
    "parameters": lambda s: [list(pair) for pair in s.parameters],
    "api_versions": lambda s: s.api_versions,
    "hidden": lambda s: s.hidden,
    "blacklisted": lambda s: s.blacklisted,
    "trusted": lambda s: s.trusted,
    "os_hvp": lambda s: s.os_hvp,
    "osparams": lambda s: s.osparams,
    "os_versions": lambda s: s.os_versions,
    "hypervisors": lambda s: s.hypervisors,
}
#: Fields which give the reason why a definition cannot be used; with one of them all are shown.
_TELLING = frozenset(("valid", "node_status", "hidden", "blacklisted"))
