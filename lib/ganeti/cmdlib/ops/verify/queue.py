"""Verification of the copies of the job queue which the other master candidates keep.

Called by the verification of a group for the candidates in it. The queue changes while it is looked
at, were it only for the job that looks. So a file counts as wrong when several looks, some time
apart, found it in the copy unchanged and different from the master's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.jobstore.inventory import Inventory
from ganeti.jobstore.store import DRAIN, archive_file, job_file
from ganeti.wire.calls import JOBQUEUE_INVENTORY

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.objects import Node

# Together longer than a candidate waits that has just come back, before the master sends it what it
# missed.
_LOOKS = 9
_PAUSE_S = 1.0
# The first time only for what is on its way; a copy's files follow the messages after 0.25 s.
_FIRST_PAUSE_S = 0.4
_MAX_NAMED = 5

_Look = dict[str, dict[str, str | None]]


def compare_copies(
    unit: AnyUnit,
    findings: Findings,
    nodes: Sequence[Node],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Report each of these nodes that is a candidate and has another queue than the master."""
    master = unit.config.master_node()
    names = {
        node.uuid: node.name for node in nodes if node.master_candidate and node.uuid != master.uuid
    }
    if not names:
        return
    asked = [master.uuid, *names]
    parts: list[int] = []
    first = _ask(unit, asked, parts, findings)
    if master.uuid not in first:
        return
    # The archives of two nodes are compared job by job only where they differ.
    parts = sorted(
        {
            part
            for copy in first.values()
            for part in first[master.uuid].archive
            if copy.archive.get(part) != first[master.uuid].archive[part]
        }
    )
    wrong: _Look | None = None
    for number in range(_LOOKS):
        if number:
            sleep(_PAUSE_S if number > 1 else _FIRST_PAUSE_S)
        found = _ask(unit, asked, parts) if number or parts else first
        here = found.pop(master.uuid, None)
        if here is None:
            return
        wrong = _still(
            wrong, {uuid: _differences(_files(here), _files(copy)) for uuid, copy in found.items()}
        )
        if not any(wrong.values()):
            break
    for uuid, files in sorted((wrong or {}).items(), key=lambda entry: names[entry[0]]):
        listed = sorted(files)
        more = f" and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
        findings.check(
            bool(listed),
            "ENODEFILECHECK",
            names[uuid],
            f"its copy of the job queue differs in {', '.join(listed[:_MAX_NAMED])}{more}."
            " 'gnt-cluster redist-conf' brings it up to date",
        )


def _ask(
    unit: AnyUnit, uuids: Sequence[str], parts: Sequence[int], findings: Findings | None = None
) -> dict[str, Inventory]:
    found = {}
    for uuid, answer in unit.rpc.call_many(JOBQUEUE_INVENTORY, uuids, parts=list(parts)).items():
        try:
            if answer.failure is not None:
                raise answer.failure
            found[uuid] = Inventory.from_wire(answer.data)
        except errors.GenericError as err:
            if findings is not None:
                findings.report(
                    "ENODEFILECHECK",
                    answer.node_name,
                    f"does not tell what its job queue holds: {why(err)}",
                )
    return found


def _files(copy: Inventory) -> dict[str, str | None]:
    """Everything to be compared: by name, what is told of it."""
    files: dict[str, str | None] = {job_file(job_id): told for job_id, told in copy.live.items()}
    files.update(copy.plain)
    files[DRAIN] = "set" if copy.drained else None
    for sizes in copy.archived.values():
        files.update((archive_file(job_id), str(size)) for job_id, size in sizes.items())
    return files


def _differences(
    here: Mapping[str, str | None], there: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Files which are not the same, with what the copy tells of them.

    More in the copy's archive than in the master's is no harm: who was a candidate for long may
    know more than who has become the master.
    """
    return {
        name: there.get(name)
        for name in {**there, **here}
        if here.get(name) != there.get(name) and (name in here or not name.startswith("archive/"))
    }


def _still(before: _Look | None, now: _Look) -> _Look:
    """Of what was wrong before, that which is wrong now and did not change meanwhile."""
    if before is None:
        return now
    return {
        uuid: {
            name: told
            for name, told in files.items()
            if name in before.get(uuid, {}) and before[uuid][name] == told
        }
        for uuid, files in now.items()
    }
