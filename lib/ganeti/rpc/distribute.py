"""Send the configuration and the job queue to other nodes.

The packages which own these states do not make node calls themselves: the configuration store calls
a :class:`ConfigDistributor`, the replicator of the job queue uses a :class:`QueueTransport`. Both
are used in the master daemon only.
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.config.sending import CONFIG, SSCONF, Distribution, DistributionFailure
from ganeti.configfile.files import FILE_MODE
from ganeti.constants import job as job_const
from ganeti.jobstore.inventory import Inventory
from ganeti.platform import paths
from ganeti.replication import quorum
from ganeti.rpc.runner import OnResult, Question, RpcRunner
from ganeti.wire.calls import (
    CONFIG_REWRITE,
    JOBQUEUE_INVENTORY,
    JOBQUEUE_PURGE,
    JOBQUEUE_READ,
    JOBQUEUE_RENAME,
    JOBQUEUE_SET_DRAIN_FLAG,
    JOBQUEUE_UPDATE_MANY,
    UPLOAD_FILE,
    WRITE_SSCONF_FILES,
    Call,
    FileDetails,
)
from ganeti.wire.calls.cluster import OTHER_HISTORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from ganeti.objects import ConfigData
    from ganeti.rpc.results import Result


# If more bytes than this are new, the whole file is sent, compressed.
_MAX_REWRITE = 1 << 20


class ConfigDistributor:
    """Sends the configuration to the candidates and the ssconf values to all nodes."""

    def __init__(self, runner: RpcRunner) -> None:
        self._runner = runner

    def __call__(self, wanted: Distribution) -> list[DistributionFailure]:
        """Send a message; return the nodes which did not accept it."""
        changes = self._changes(wanted)
        if changes is None:
            return self._whole(wanted, wanted.candidates, wanted.nodes)
        # Candidates get both in one message, the others their ssconf values at the same time.
        both = wanted.ssconf is not None and set(wanted.candidates) <= set(wanted.nodes)
        rest = [uuid for uuid in wanted.nodes if not both or uuid not in wanted.candidates]
        answers, ssconf_answers = self._runner.call_together(
            [
                Question(
                    CONFIG_REWRITE,
                    wanted.candidates,
                    {
                        **changes,
                        "ssconf": wanted.ssconf if both else None,
                        "history": _history(wanted),
                    },
                ),
                self._ssconf(wanted, rest),
            ],
            _note_accepted(wanted, both=both),
        )
        failures = _failures(SSCONF, ssconf_answers)
        lacking = []
        too_long = wanted.history is not None and _history(wanted) is None
        for uuid, answer in answers.items():
            if answer.failure is None:
                if not answer.data:
                    lacking.append(uuid)
                if too_long or answer.data == OTHER_HISTORY:
                    wanted.incomplete.add(uuid)
            elif isinstance(answer.failure, (errors.NodeCallFailed, errors.NodeRefused)):
                # The node may still accept the whole file: another version has no such call.
                lacking.append(uuid)
            else:
                failures += _failures(CONFIG, {uuid: answer})
                failures += _failures(SSCONF, {uuid: answer}) if both else []
        if lacking:
            failures += self._whole(wanted, lacking, lacking if both else ())
        return failures

    def _whole(
        self, wanted: Distribution, candidates: Collection[str], nodes: Collection[str]
    ) -> list[DistributionFailure]:
        """Send the whole file, and the ssconf values beside it."""
        file = {"file": _config_file(wanted.text)} if candidates else {}
        answers, ssconf_answers = self._runner.call_together(
            [Question(UPLOAD_FILE, candidates, file), self._ssconf(wanted, nodes)],
            _note_accepted(wanted),
        )
        # Who gets the whole file may lack more than the records of this change.
        wanted.incomplete.update(uuid for uuid, answer in answers.items() if answer.failure is None)
        return _failures(CONFIG, answers) + _failures(SSCONF, ssconf_answers)

    @staticmethod
    def _ssconf(wanted: Distribution, nodes: Collection[str]) -> Question:
        return Question(
            WRITE_SSCONF_FILES,
            () if wanted.ssconf is None else nodes,
            {"values": wanted.ssconf or {}},
        )

    @staticmethod
    def _changes(wanted: Distribution) -> dict[str, Any] | None:
        """Return the difference as arguments of the call; None if the whole file is sent."""
        difference = wanted.difference() if wanted.candidates else None
        if difference is None or difference.fresh_bytes > _MAX_REWRITE:
            return None
        return {
            "base_bytes": difference.base_bytes,
            "base_end": difference.base_end.decode("utf-8"),
            "parts": [
                part.decode("utf-8") if isinstance(part, bytes) else list(part)
                for part in difference.parts
            ],
            "new_bytes": difference.new_bytes,
        }


def _history(wanted: Distribution) -> list[Any] | None:
    """Return the records of the change as an argument of the call.

    Without them, or when they are too long for a commit, they are sent later.
    """
    found = wanted.history
    if found is None or len(found.text) > _MAX_REWRITE:
        return None
    return [found.oldest, found.name, found.offset, list(found.was), found.text]


def _note_accepted(wanted: Distribution, *, both: bool = False) -> OnResult:
    """Return a function which reports what a node has accepted.

    :param both: the message with the difference has the ssconf values, too.
    """

    def note(call: Call, node_uuid: str, result: Result) -> None:
        if result.failure is not None:
            return
        if call is WRITE_SSCONF_FILES:
            wanted.accepted(node_uuid, SSCONF)
        elif call is UPLOAD_FILE or result.data:
            wanted.accepted(node_uuid, CONFIG)
        if call is CONFIG_REWRITE and both:
            wanted.accepted(node_uuid, SSCONF)

    return note


def _failures(what: str, answers: Mapping[str, Result]) -> list[DistributionFailure]:
    return [
        DistributionFailure(uuid, what, str(answer.failure))
        for uuid, answer in answers.items()
        if answer.failure is not None
    ]


def _config_file(text: bytes) -> FileDetails:
    here = paths.current()
    now = time.time()
    # The copies get the owner of the file on the master; all nodes have the same users.
    stat = os.stat(here.data_dir)
    return FileDetails(
        here.to_virtual(here.cluster_conf_file),
        text.decode("utf-8"),
        FILE_MODE,
        pwd.getpwuid(stat.st_uid).pw_name,
        grp.getgrgid(stat.st_gid).gr_name,
        now,
        now,
    )


class QueueTransport:
    """Changes the queue directories of the other candidates.

    :param snapshot: returns the present configuration.
    """

    def __init__(self, runner: RpcRunner, snapshot: Callable[[], ConfigData]) -> None:
        self._runner = runner
        self._snapshot = snapshot
        here = paths.current()
        self._directory = here.to_virtual(here.queue_dir)
        self._known: tuple[ConfigData | None, tuple[str, ...]] = (None, ())

    def candidates(self) -> tuple[str, ...]:
        """Return the UUIDs of the candidates which are online, without the master."""
        data = self._snapshot()
        if self._known[0] is not data:
            self._known = (data, tuple(quorum.other_candidates(data)))
        return self._known[1]

    def update(self, node_uuid: str, files: dict[str, str]) -> None:
        """Write files to the queue directory of a candidate.

        :raises errors.RpcError: the call failed, as for the methods below.
        """
        self._runner.call(
            JOBQUEUE_UPDATE_MANY,
            node_uuid,
            files=[(f"{self._directory}/{name}", text) for name, text in files.items()],
        ).payload()

    def inventory(self, node_uuid: str, parts: Sequence[int]) -> Inventory:
        """Return the content of the queue directory of a candidate.

        :param parts: numbers of the parts of the archive whose jobs are listed.
        """
        return Inventory.from_wire(
            self._runner.call(JOBQUEUE_INVENTORY, node_uuid, parts=list(parts)).payload()
        )

    def read(self, node_uuid: str, names: Sequence[str]) -> dict[str, str]:
        """Return the content of those files of the queue directory of a candidate which exist."""
        found: dict[str, str] = self._runner.call(
            JOBQUEUE_READ, node_uuid, names=list(names)
        ).payload()
        return found

    def archive(self, node_uuid: str, job_ids: Sequence[int]) -> None:
        """Move jobs to the archive of a candidate."""
        self._runner.call(
            JOBQUEUE_RENAME,
            node_uuid,
            rename=[
                [
                    f"{self._directory}/job-{job_id}",
                    f"{self._directory}/archive/{job_id // job_const.JOBS_PER_ARCHIVE_DIR}"
                    f"/job-{job_id}",
                ]
                for job_id in job_ids
            ],
        ).payload()

    def purge(self, node_uuid: str) -> None:
        """Remove all job files from the queue directory of a candidate."""
        self._runner.call(JOBQUEUE_PURGE, node_uuid).payload()

    def set_drained(self, node_uuids: Sequence[str], drained: bool) -> list[str]:
        """Set the drain flag of candidates; return the names of those which failed."""
        answers = self._runner.call_many(JOBQUEUE_SET_DRAIN_FLAG, node_uuids, flag=drained)
        return [answer.node_name for answer in answers.values() if answer.failure is not None]
