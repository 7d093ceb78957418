"""The shapes of answers which only our masters give: about the queue, and about the past.

Other masters do not have these methods (:mod:`ganeti.luxi.methods`, *published*). The master builds
the answers, ``gnt-*`` commands write them as text, and the REST interface passes them on and
describes them (:mod:`ganeti.rapi.typed`).

All times are in seconds since the epoch.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

# -- the queue -------------------------------------------------------------------------------------


class LockOwner(TypedDict):
    """The holder of a lock: a job, or with ``job`` None a part of the daemon."""

    job: int | None
    name: str


class Reason(TypedDict):
    """Why a job does not go on: ``kind`` is one word, ``text`` says the same to people.

    :mod:`ganeti.jqueue.explain` says which kind has which further keys.
    """

    kind: str
    text: str
    jobs: list[int]
    lock: NotRequired[str]
    name: NotRequired[str]
    mode: NotRequired[str]
    since: NotRequired[float]
    holders: NotRequired[list[LockOwner]]
    before: NotRequired[list[LockOwner]]
    wanted: NotRequired[list[str]]
    states: NotRequired[list[str]]
    rule: NotRequired[str]
    action: NotRequired[str]
    position: NotRequired[int]
    limit: NotRequired[int]


class JobReport(TypedDict):
    """A job in an answer. Times in seconds since the epoch.

    ``opcode`` is the summary of the opcode at which the job is, None when it has ended;
    ``opcode_number`` is its place, from 1, of ``opcodes``. ``message`` is the last log entry.
    """

    id: int
    status: str
    summary: list[str]
    priority: int
    opcode: str | None
    opcode_number: int
    opcodes: int
    since: float | None
    message: str | None
    message_time: float | None


class BriefExplanation(TypedDict):
    """A job, and why it does not go on."""

    job: JobReport
    reasons: list[Reason]


class ChainEntry(BriefExplanation):
    """A job for which another one waits; ``depth`` 1 is a job for which the explained job waits."""

    depth: int


class HeldLock(TypedDict):
    """A lock which the job holds; ``name`` is the lock for people."""

    lock: str
    name: str
    mode: str


class Explanation(BriefExplanation):
    """The answer for one job.

    ``chain`` is sorted by distance; ``more`` says whether it was cut after 50 jobs.
    """

    holds: list[HeldLock]
    chain: list[ChainEntry]
    more: bool
    notes: list[str]


class QueueReport(TypedDict):
    """The answer for the queue as a whole.

    ``at_work``: jobs that have a worker, at most ``limit``. ``in_line``: jobs that wait only for a
    worker. ``unfinished``: all jobs that have not ended. ``ended_per_s``: over the last minute.
    """

    at_work: int  # glossary: allow
    limit: int
    in_line: int
    unfinished: int
    ended_per_s: float
    drained: bool
    ending: bool
    paused: str
    paused_since: float | None


class QueueEntry(BriefExplanation):
    """A job that has not ended, in the answer to ``QueryQueue``.

    ``position`` is its place, from 1, in the predicted order in which jobs go on: those which run,
    those which wait for locks, each after the jobs for which it waits, and those which wait for a
    worker. It is None for a job about which that is not known: a filter rule keeps it back, or it
    waits for such a job.
    """

    position: int | None
    holds: list[HeldLock]


class LockWaiter(TypedDict):
    """One which waits for a lock: a job, or with ``job`` None a part of the daemon."""

    job: int | None
    name: str
    mode: str


class LockReport(TypedDict):
    """A lock in use.

    ``mode`` is ``shared``, ``exclusive`` or None when nobody holds the lock; ``since`` is the time
    at which the first of its holders got it. ``waiting`` is in the order in which they are served.
    """

    lock: str
    name: str
    mode: str | None
    holders: list[LockOwner]
    waiting: list[LockWaiter]
    since: float | None


class QueueOverview(TypedDict):
    """The answer to ``QueryQueue``.

    ``jobs`` is in the predicted order; those without a position come last. ``more_jobs`` and
    ``more_locks`` are the numbers of jobs and locks which are not in the answer.
    """

    queue: QueueReport
    jobs: list[QueueEntry]
    more_jobs: int
    locks: list[LockReport]
    more_locks: int


# -- the history of the configuration --------------------------------------------------------------


class CommitReport(TypedDict):
    """A commit in the answers to ``QueryConfigHistory`` and ``FindCommits``.

    ``serial`` and ``before`` are the serial numbers of the new and the old state, ``time`` is in
    seconds since the epoch. ``count`` is the number of changes, None when the commit had too many
    to be kept; ``changes`` lists the first ones as ``[kind, name, what, attributes]``. ``person``
    is empty when it is not known.
    """

    serial: int
    time: float
    before: int
    job: int | None
    opcode: str | None
    source: str
    reason: str
    person: str
    count: int | None
    changes: list[list[Any]]


class ChangeReport(TypedDict):
    """A changed object in the answer to ``QueryConfigChanges``.

    ``what`` is ``added``, ``removed`` or ``changed``; ``old`` and ``new`` have the attributes which
    changed.
    """

    kind: str
    uuid: str
    name: str
    what: str
    old: dict[str, Any] | None
    new: dict[str, Any] | None


class Comparison(TypedDict):
    """The answer to ``QueryConfigChanges``, with the serial numbers of both states."""

    first: int
    last: int
    changes: list[ChangeReport]


class CommitPage(TypedDict):
    """The answer to ``FindCommits``, the newest commit first.

    ``next`` is the value of ``before`` with which the search goes on, None at the end of the
    history; a page may have fewer commits than wanted, and still a next one. ``newest`` is the
    present serial number.
    """

    commits: list[CommitReport]
    next: int | None
    newest: int


class PastObjects(TypedDict):
    """The answer to ``QueryObjectsAt``.

    ``serial`` and ``time`` are those of the state. ``rows`` has the values of the fields of each
    object, None where the configuration does not say it.
    """

    serial: int
    time: float
    rows: list[list[Any]]


# -- the audit log ---------------------------------------------------------------------------------


class AuditEntry(TypedDict):
    """A line of the audit log: ``event`` is ``accepted`` or ``ended``.

    ``reason`` has pairs of source and text; ``person`` and ``program`` are what they say about who
    submitted the job, empty when it is not known. ``lost`` is the number of lines before this one
    which could not be written; ``late`` is the time at which a later master wrote the line.
    """

    line: int
    time: float
    event: str
    job: int
    status: str
    ops: list[str]
    person: str
    program: str
    reason: list[list[str]]
    lost: int
    late: float | None


class AuditPage(TypedDict):
    """The answer to ``FindAuditLines``, the newest line first.

    ``next`` is the value of ``before`` with which the search goes on, None at the end of the log; a
    page may have fewer lines than wanted, and still a next one. ``unreadable`` is the number of
    lines on the way which cannot be read; ``gnt-cluster audit --verify`` names them.
    """

    entries: list[AuditEntry]
    next: int | None
    unreadable: int


# -- dry runs --------------------------------------------------------------------------------------


class PlannedLock(TypedDict):
    """A lock that an operation takes; ``name`` is None for all locks of its level.

    ``new`` is True for the lock of an object which does not exist yet.
    """

    level: str
    name: str | None
    shared: bool
    new: bool


class PlannedHook(TypedDict):
    """Hooks of an operation: those of the phase ``pre`` run in a dry run, too."""

    name: str
    phase: str
    nodes: list[str]


class OperationPlan(TypedDict):
    """The plan of one opcode: the result of its dry run if its parameter ``plan`` is True.

    ``asked`` has the parameters which differ from their defaults, without secrets. ``decided`` has
    values of the plan, such as the chosen nodes, as sentences, for an operation without steps of
    its own; ``checks`` are sentences about what was found in order, ``steps`` what would be done.
    """

    summary: str
    asked: dict[str, Any]
    locks: list[PlannedLock]
    checks: list[str]
    nodes: list[str]
    hooks: list[PlannedHook]
    decided: list[str]
    steps: list[str]


# -- the verification of the cluster ---------------------------------------------------------------


class VerifiedPart(TypedDict):
    """The last verification of a node group, or of the configuration (``group`` is None).

    ``time`` is the end of its job.
    """

    group: str | None
    job: int
    time: float
    errors: int
    warnings: int


class FindingReport(TypedDict):
    """A finding: ``severity`` is error or warning, ``object`` a kind such as node.

    ``since`` is the end of the first of the successive verifications which found it, as far as this
    master daemon knows.
    """

    severity: str
    code: str
    object: str
    name: str
    text: str
    group: str | None
    job: int
    since: float


class VerifyReport(TypedDict):
    """The answer to ``QueryFindings``.

    ``unchecked`` names the groups of which no verification is known; None is the configuration.
    """

    parts: list[VerifiedPart]
    unchecked: list[str | None]
    findings: list[FindingReport]


# -- the role of the master ------------------------------------------------------------------------


#: What a node says about the master. ``sight`` has the members of
#: :class:`ganeti.objects.transfer.MasterStatus`; it is None for a node which does not answer, for
#: the reason in ``failure``, or which is ``offline``. The name is that of the command's output.
FailoverNode = TypedDict(  # noqa: UP013 - the glossary has another word for new names
    "FailoverNode",
    {
        "name": str,
        "master_candidate": bool,
        "offline": bool,
        "failure": str | None,
        "sight": dict[str, Any] | None,
    },
)


class WitnessReport(TypedDict):
    """What the witness says; only ``url`` and ``failure`` if it does not answer."""

    url: str
    failure: str | None
    master: str | None
    epoch: int | None
    config_serial: int | None
    last_job: int | None
    written: float | None


class FailoverReport(TypedDict):
    """The answer to ``QueryFailoverStatus``.

    ``auto_failover`` is the number of seconds without a master after which its role moves, 0 for
    never. ``witness`` is None for a cluster without one.
    """

    auto_failover: int
    master: str
    witness: WitnessReport | None
    nodes: list[FailoverNode]


# -- disk images -----------------------------------------------------------------------------------


class ImageReport(TypedDict):
    """An image of the catalogue, with the members of :class:`ganeti.foreign.catalogue.Image`.

    Sizes are in bytes. ``verified`` says what proved the content, and is empty if nothing did.
    """

    fetched: int
    file_size: int
    format: str
    name: str
    sha256: str
    size: int
    source: str
    verified: str


class ImagesReport(TypedDict):
    """The answer to ``QueryImages``; ``problems`` are sentences about entries of no use."""

    images: list[ImageReport]
    problems: list[str]
