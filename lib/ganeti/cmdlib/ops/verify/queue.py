"""Verification of the copies of the job queue on the other master candidates.

The verification of a node group calls this module for the candidates in the group. The queue
changes during the comparison, because the verification is a job, too. So a file counts as wrong
only when several comparisons in a row found it unchanged in the copy and different from the
master's file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import why
from ganeti.jobstore.files import DRAIN, archive_file, job_file
from ganeti.jobstore.inventory import Inventory
from ganeti.wire.calls import JOBQUEUE_INVENTORY

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.config import Config
    from ganeti.objects import Node
    from ganeti.rpc import RpcRunner

# All rounds together take longer than the master needs until it sends a candidate which was offline
# the changes which the candidate missed.
_ROUNDS = 9
_PAUSE_S = 1.0
# The first pause is for changes which are being sent; a copy writes its files 0.25 s later.
_FIRST_PAUSE_S = 0.4
_MAX_NAMED = 5

_Differing = dict[str, dict[str, str | None]]


def compare_copies(
    config: Config,
    rpc: RpcRunner,
    findings: Findings,
    nodes: Sequence[Node],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Report each master candidate among these nodes whose queue differs from the master's."""
    master = config.master_node()
    names = {
        node.uuid: node.name for node in nodes if node.master_candidate and node.uuid != master.uuid
    }
    if not names:
        return
    asked = [master.uuid, *names]
    parts: list[int] = []
    first = _ask(rpc, asked, parts, findings)
    if master.uuid not in first:
        return
    # Archives are compared job by job only in those parts which differ.
    parts = sorted(
        {
            part
            for copy in first.values()
            for part in first[master.uuid].archive
            if copy.archive.get(part) != first[master.uuid].archive[part]
        }
    )
    wrong: _Differing | None = None
    own: dict[str, str | None] = {}
    for number in range(_ROUNDS):
        if number:
            sleep(_PAUSE_S if number > 1 else _FIRST_PAUSE_S)
        found = _ask(rpc, asked, parts) if number or parts else first
        here = found.pop(master.uuid, None)
        if here is None:
            return
        own = _files(here)
        wrong = _still(
            wrong, {uuid: _differences(own, _files(copy)) for uuid, copy in found.items()}
        )
        if not any(wrong.values()):
            break
    for uuid, files in sorted((wrong or {}).items(), key=lambda entry: names[entry[0]]):
        # The master has lost these, so that they must not be called wrong in the copy.
        surplus = {name for name in files if name.startswith("job-") and name not in own}
        findings.check(
            bool(files.keys() - surplus),
            "ENODEFILECHECK",
            names[uuid],
            f"its copy of the job queue differs in {_listed(files.keys() - surplus)}."
            " Use 'gnt-cluster redist-conf' to update it",
        )
        findings.check(
            bool(surplus),
            "ENODEFILECHECK",
            master.name,
            f"its job queue lacks {_listed(surplus)}, of which {names[uuid]} has copies."
            " Use 'gnt-cluster redist-conf' to fetch them",
        )


def _listed(files: Iterable[str]) -> str:
    listed = sorted(files)
    more = f" and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
    return f"{', '.join(listed[:_MAX_NAMED])}{more}"


def _ask(
    rpc: RpcRunner, uuids: Sequence[str], parts: Sequence[int], findings: Findings | None = None
) -> dict[str, Inventory]:
    found = {}
    for uuid, answer in rpc.call_many(JOBQUEUE_INVENTORY, uuids, parts=list(parts)).items():
        try:
            if answer.failure is not None:
                raise answer.failure
            found[uuid] = Inventory.from_wire(answer.data)
        except errors.GenericError as err:
            if findings is not None:
                findings.report(
                    "ENODEFILECHECK",
                    answer.node_name,
                    f"did not report the content of its job queue: {why(err)}",
                )
    return found


def _files(copy: Inventory) -> dict[str, str | None]:
    """Make a comparable form of a queue: name of a file -> its state."""
    files: dict[str, str | None] = {job_file(job_id): state for job_id, state in copy.live.items()}
    files.update(copy.plain)
    files[DRAIN] = "set" if copy.drained else None
    for sizes in copy.archived.values():
        files.update((archive_file(job_id), str(size)) for job_id, size in sizes.items())
    return files


def _differences(
    here: Mapping[str, str | None], there: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Find the files which differ: name -> state in the copy, None if the copy lacks the file.

    Archived jobs which only the copy has do not count as a difference: a node which has been a
    candidate for a long time may have more of them than a new master.
    """
    return {
        name: there.get(name)
        for name in {**there, **here}
        if here.get(name) != there.get(name) and (name in here or not name.startswith("archive/"))
    }


def _still(before: _Differing | None, now: _Differing) -> _Differing:
    """Keep the differences which were there before and whose files did not change meanwhile."""
    if before is None:
        return now
    return {
        uuid: {
            name: state
            for name, state in files.items()
            if name in before.get(uuid, {}) and before[uuid][name] == state
        }
        for uuid, files in now.items()
    }
