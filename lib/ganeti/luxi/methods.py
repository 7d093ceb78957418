"""The table of LUXI methods: what each of them takes, does and needs.

The service of the master (:mod:`ganeti.master.luxi_service`) marks its functions with
``@serves(METHOD)``, checks arguments and rights with this table, and knows from it what may wait.
The REST daemon knows from it which request may be sent again. The functions of
:class:`ganeti.luxi.client.Client` are proved equal to it by a test, because commands which only
read do not load :mod:`ganeti.ht`. ``doc/manual/reference-luxi.rst`` is made from it.

Source: Ganeti design 2.0, *The LUXI protocol*.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from ganeti import errors, ht
from ganeti.constants.events import KINDS as EVENT_KINDS
from ganeti.utils import text


class Right(enum.Enum):
    """Who may use a method, of the users who may open the socket.

    Answers for the administrator contain secrets, which only root and the user of the master daemon
    get; other users of the socket, such as the REST daemon, need none.
    """

    ANYONE = "anyone"
    ADMINISTRATOR = "administrator"


_REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument.

    :ivar default: what the server takes when a client leaves the argument out.
    """

    name: str
    type: ht.Type
    default: Any = _REQUIRED

    @property
    def required(self) -> bool:
        """Whether a client must give the argument."""
        return self.default is _REQUIRED


@dataclass(frozen=True, slots=True)
class Method:
    """One method.

    :ivar summary: what it does, as a sentence.
    :ivar args: the arguments in their order; those with a default are the last ones.
    :ivar changes: a request must not be sent twice, because the master may have carried it out.
    :ivar slow: may wait for nodes or for much of the disk.
    :ivar overlaps: may run together with its neighbours on one connection, so that a pipeline of
        submissions shares commits.
    :ivar published: whether other masters have it. The others are extensions of ours.
    """

    name: str
    summary: str
    args: tuple[Arg, ...] = ()
    changes: bool = False
    slow: bool = False
    overlaps: bool = False
    right: Right = Right.ANYONE
    published: bool = True

    @property
    def required(self) -> int:
        """Number of arguments which a client must give."""
        return sum(arg.required for arg in self.args)

    def check_args(self, given: list[Any]) -> list[Any]:
        """Return the values of all arguments.

        :raises errors.ParseError: their number or a type is wrong; says why.
        """
        # Clients may send arguments to a method without parameters.
        if not self.args:
            return []
        if not self.required <= len(given) <= len(self.args):
            wanted = ", ".join(arg.name for arg in self.args)
            raise errors.ParseError(
                f"{self.name} takes {len(self.args)} arguments ({wanted}), not {len(given)}"
            )
        for arg, value in zip(self.args, given, strict=False):
            if not arg.type.check(value):
                raise errors.ParseError(
                    f"{self.name}: argument '{arg.name}' must be {ht.describe(arg.type)}, "
                    f"not {text.brief(value, 200)}"
                )
        return [*given, *(arg.default for arg in self.args[len(given) :])]


_FIELDS = ht.AtMost(ht.ListOf(ht.Str), ht.MAX_FIELDS)
# The names of all objects of a very large cluster; a filter may have as many conditions.
_MOST_NAMES = 20_000
_NAMES = ht.Maybe(ht.AtMost(ht.ListOf(ht.Str), _MOST_NAMES))
_OPS = ht.ListOf(ht.Dict)
_NUMBER = ht.Or(ht.Int, ht.Float)
_COUNT = ht.Within(ht.Int, 0, 1 << 62)
_TIME = ht.Within(_NUMBER, 0, 1 << 40)
# A state of the configuration: a serial number, or a list with one time.
_STATE = ht.Or(_COUNT, ht.ListOf(_TIME))
_TAG_KIND = ht.OneOf("kind", ("cluster", "nodegroup", "node", "instance", "network"))

# Lines of an answer which is sent page by page.
_PAGE = ht.Within(ht.Int, 1, 1000)
_CHOSEN: dict[str, ht.Type] = {
    "object": ht.NonEmptyString,
    "person": ht.NonEmptyString,
    "job": ht.JobId,
    "since": _TIME,
    "until": _TIME,
}
#: What commits of the configuration are searched for. ``object`` is a name or a UUID, ``kind`` its
#: table in the configuration or ``cluster``; times are in seconds since the epoch.
CHOSEN_COMMITS = ht.Shape(
    "chosen", {}, {**_CHOSEN, "kind": ht.NonEmptyString, "opcode": ht.NonEmptyString}
)
#: What lines of the audit log are searched for.
CHOSEN_LINES = ht.Shape(
    "chosen", {}, {**_CHOSEN, "event": ht.NonEmptyString, "status": ht.NonEmptyString}
)

_JOB = Arg("job", ht.JobId)
_VALUES = (Arg("names", _NAMES), Arg("fields", _FIELDS), Arg("use_locking", ht.Bool))

# -- jobs ------------------------------------------------------------------------------------------

SUBMIT_JOB = Method(
    "SubmitJob",
    "Adds a job with these opcodes to the queue, and returns its id when the job is on disk",
    (Arg("ops", _OPS),),
    changes=True,
    overlaps=True,
)
SUBMIT_JOB_TO_DRAINED_QUEUE = Method(
    "SubmitJobToDrainedQueue",
    "Does the same as ``SubmitJob``, even if the queue refuses new jobs",
    (Arg("ops", _OPS),),
    changes=True,
    overlaps=True,
)
SUBMIT_MANY_JOBS = Method(
    "SubmitManyJobs",
    "Adds several jobs to the queue, and returns for each true and its id, or false and a message",
    (Arg("jobs", ht.ListOf(_OPS)),),
    changes=True,
    overlaps=True,
)
PICKUP_JOB = Method(
    "PickupJob",
    "Fails, because it is for masters whose queue is another process",
    (Arg("job", ht.Any),),
)
WAIT_FOR_JOB_CHANGE = Method(
    "WaitForJobChange",
    "Waits until a job differs from what the client knows, and returns the values of the fields and"
    " the new log entries, or ``nochange`` after the time",
    (
        _JOB,
        Arg("fields", _FIELDS),
        Arg("prev_job_info", ht.Maybe(ht.List)),
        Arg("prev_log_serial", ht.Maybe(ht.Int)),
        Arg("timeout", _NUMBER),
    ),
)
CANCEL_JOB = Method(
    "CancelJob",
    "Cancels a job; ``kill`` also ends a running one whose process can be ended",
    (_JOB, Arg("kill", ht.Bool, default=False)),
    changes=True,
)
CHANGE_JOB_PRIORITY = Method(
    "ChangeJobPriority",
    "Changes the priority of the unfinished opcodes of a job",
    (_JOB, Arg("priority", ht.Int)),
    changes=True,
)
ARCHIVE_JOB = Method(
    "ArchiveJob",
    "Moves an ended job to the archive, and returns whether it did",
    (_JOB,),
    changes=True,
)
AUTO_ARCHIVE_JOBS = Method(
    "AutoArchiveJobs",
    "Archives jobs which ended more than ``age`` seconds ago (-1: all), and returns the number of"
    " archived jobs and of those for which there was no time",
    (Arg("age", _NUMBER), Arg("timeout", _NUMBER)),
    changes=True,
    slow=True,
)
EXPLAIN_JOB = Method(
    "ExplainJob",
    "Returns why a job waits, with its chain of jobs; for a list why each of them waits, without"
    " chains; for null the load of the queue",
    (Arg("job", ht.Maybe(ht.Or(ht.JobId, ht.AtMost(ht.ListOf(ht.JobId), _MOST_NAMES)))),),
    slow=True,
    published=False,
)
QUERY_QUEUE = Method(
    "QueryQueue",
    "Returns the queue: the first jobs that have not ended, in the predicted order, with the"
    " reasons why they wait, and the locks in use",
    (Arg("limit", _COUNT),),
    slow=True,
    published=False,
)
SET_DRAIN_FLAG = Method(
    "SetDrainFlag",
    "Lets the queue refuse new jobs, or accept them again",
    (Arg("flag", ht.Bool),),
    changes=True,
    slow=True,
)
QUERY_FILTERS = Method(
    "QueryFilters",
    "Returns the filter rules of the queue",
    (Arg("uuids", _NAMES), Arg("fields", _FIELDS)),
)
REPLACE_FILTER = Method(
    "ReplaceFilter",
    "Writes a filter rule, a new one for null, and returns its UUID",
    (
        Arg("uuid", ht.Maybe(ht.Str)),
        Arg("priority", _COUNT),
        Arg("predicates", ht.List),
        Arg("action", ht.Or(ht.Str, ht.List)),
        Arg("reason", ht.List),
    ),
    changes=True,
    slow=True,
)
DELETE_FILTER = Method(
    "DeleteFilter",
    "Removes a filter rule",
    (Arg("uuid", ht.Str),),
    changes=True,
    slow=True,
)

# -- queries ---------------------------------------------------------------------------------------

QUERY = Method(
    "Query",
    "Returns fields of the objects of one kind which pass the filter",
    (Arg("what", ht.Str), Arg("fields", _FIELDS), Arg("qfilter", ht.Any)),
    slow=True,
)
QUERY_PAGE = Method(
    "QueryPage",
    "Returns a part of the objects of one kind in an order, and the number of all of them. The"
    " filter is a list, as for ``Query``, or a text; ``page`` may have the members ``order``,"
    " ``limit``, ``after``, ``offset``, ``known`` and ``within``",
    (
        Arg("what", ht.Str),
        Arg("fields", _FIELDS),
        Arg("qfilter", ht.Any),
        Arg("page", ht.Dict),
    ),
    slow=True,
    published=False,
)
RUN_QUERY = Method(
    "RunQuery",
    "Carries out an opcode that only reads and needs no locks, without a job, and returns its"
    " ``result`` and its ``warnings``",
    (Arg("op", ht.Dict),),
    slow=True,
    published=False,
)
QUERY_FIELDS = Method(
    "QueryFields",
    "Returns the definitions of these fields, or of all fields of a kind",
    (Arg("what", ht.Str), Arg("fields", ht.Maybe(_FIELDS))),
)
QUERY_JOBS = Method(
    "QueryJobs",
    "Returns fields of these jobs, null for an unknown one, or of all jobs",
    (Arg("ids", ht.Maybe(ht.ListOf(ht.JobId))), Arg("fields", _FIELDS)),
    slow=True,
)
QUERY_INSTANCES = Method(
    "QueryInstances", "Returns fields of these instances, or of all", _VALUES, slow=True
)
QUERY_NODES = Method("QueryNodes", "Returns fields of these nodes, or of all", _VALUES, slow=True)
QUERY_GROUPS = Method(
    "QueryGroups", "Returns fields of these node groups, or of all", _VALUES, slow=True
)
QUERY_NETWORKS = Method(
    "QueryNetworks", "Returns fields of these networks, or of all", _VALUES, slow=True
)
QUERY_EXPORTS = Method(
    "QueryExports",
    "Returns the backups on these nodes, or on all",
    (Arg("nodes", _NAMES), Arg("use_locking", ht.Bool)),
    slow=True,
)
QUERY_TAGS = Method(
    "QueryTags",
    "Returns the tags of an object, or of the cluster",
    (Arg("kind", _TAG_KIND), Arg("name", ht.Str)),
)

# -- the cluster -----------------------------------------------------------------------------------

QUERY_CLUSTER_INFO = Method("QueryClusterInfo", "Returns everything about the cluster as a whole")
QUERY_CONFIG_VALUES = Method(
    "QueryConfigValues",
    "Returns single values of the configuration, null for an unknown name",
    (Arg("fields", _FIELDS),),
)
SET_WATCHER_PAUSE = Method(
    "SetWatcherPause",
    "Pauses the watcher until a time; null ends the pause",
    (Arg("until", ht.Maybe(_TIME)),),
    changes=True,
    slow=True,
)
QUERY_METRICS = Method(
    "QueryMetrics", "Returns what the master daemon has measured", slow=True, published=False
)
QUERY_IMAGES = Method(
    "QueryImages",
    "Returns the disk images of the catalogue, and what is wrong with it",
    slow=True,
    published=False,
)
QUERY_FAILOVER_STATUS = Method(
    "QueryFailoverStatus",
    "Asks all nodes what they know about the master, and returns whether its role would move by"
    " itself",
    slow=True,
    published=False,
)
QUERY_FINDINGS = Method(
    "QueryFindings",
    "Returns the findings of the last verification of the configuration and of each node group",
    published=False,
)
QUERY_CONFIG_HISTORY = Method(
    "QueryConfigHistory",
    "Returns the newest commits of the configuration, the newest first; null for all",
    (Arg("limit", ht.Maybe(_COUNT)),),
    slow=True,
    published=False,
)
FIND_COMMITS = Method(
    "FindCommits",
    "Returns the newest commits of the configuration which have what is chosen, page by page",
    (Arg("chosen", CHOSEN_COMMITS), Arg("limit", _PAGE), Arg("before", ht.Maybe(_COUNT))),
    slow=True,
    published=False,
)
QUERY_OBJECTS_AT = Method(
    "QueryObjectsAt",
    "Returns fields of these objects, or of all, as an earlier state of the configuration has them,"
    " without secrets",
    (Arg("serial", _COUNT), Arg("what", ht.Str), Arg("names", _NAMES), Arg("fields", _FIELDS)),
    slow=True,
    published=False,
)
FIND_AUDIT_LINES = Method(
    "FindAuditLines",
    "Returns the newest lines of the audit log which have what is chosen, page by page",
    (Arg("chosen", CHOSEN_LINES), Arg("limit", _PAGE), Arg("before", ht.Maybe(_COUNT))),
    slow=True,
    published=False,
)
QUERY_CONFIG_CHANGES = Method(
    "QueryConfigChanges",
    "Returns the differences between two states of the configuration, secrets included. A serial"
    " number, or a list with one time, identifies a state",
    (Arg("first", _STATE), Arg("last", _STATE)),
    slow=True,
    right=Right.ADMINISTRATOR,
    published=False,
)
QUERY_CONFIG_AT = Method(
    "QueryConfigAt",
    "Returns an earlier state of the whole configuration, secrets included",
    (Arg("point", _STATE),),
    slow=True,
    right=Right.ADMINISTRATOR,
    published=False,
)
QUERY_DOCUMENTS = Method(
    "QueryDocuments",
    "Returns documents which programs keep in the cluster; null for all",
    (Arg("names", _NAMES),),
    published=False,
)
REPLACE_DOCUMENT = Method(
    "ReplaceDocument",
    "Writes a document if it has one of these entity tags (null: if there is none), and returns its"
    " new one",
    (Arg("name", ht.Str), Arg("tags", _NAMES), Arg("text", ht.Str)),
    changes=True,
    slow=True,
    published=False,
)
DELETE_DOCUMENT = Method(
    "DeleteDocument",
    "Removes a document if it has one of these entity tags",
    (Arg("name", ht.Str), Arg("tags", ht.ListOf(ht.Str))),
    changes=True,
    slow=True,
    published=False,
)
QUERY_ACCESS_RECORDS = Method(
    "QueryAccessRecords",
    "Returns the sessions, tokens and other access records of the users of the REST interface, and"
    " a number; with this number in ``since``, the records are null when none has changed",
    (Arg("kind", ht.Maybe(ht.Str), None), Arg("since", ht.Maybe(_COUNT), None)),
    published=False,
)
CHANGE_ACCESS_RECORDS = Method(
    "ChangeAccessRecords",
    "Changes access records in one commit: ``put`` with a record, ``remove`` with kind and key,"
    " ``used`` with kind, key and time",
    (Arg("changes", ht.ListOf(ht.List)),),
    changes=True,
    slow=True,
    published=False,
)

# -- guests and events -----------------------------------------------------------------------------

CHECK_GUESTS = Method(
    "CheckGuests",
    "Asks all nodes for the state of their guests; changes become events",
    slow=True,
    published=False,
)
READ_CONSOLE_LOG = Method(
    "ReadConsoleLog",
    "Returns the last lines of what an instance wrote to its console, or what follows a position",
    (Arg("instance", ht.NonEmptyString), Arg("lines", _COUNT), Arg("position", ht.Str)),
    slow=True,
    published=False,
)
QUERY_GUESTS_USAGE = Method(
    "QueryGuestsUsage",
    "Returns processor time, memory and traffic of the guests",
    slow=True,
    published=False,
)
WAIT_FOR_EVENTS = Method(
    "WaitForEvents",
    "Returns the changes of jobs and instances after a place in the log of events, and waits for a"
    " change if there is none; for null all changes in the log. With kinds, the events of these"
    " kinds, each with what is known about it",
    (
        Arg("place", ht.Maybe(ht.Tuple(ht.Str, ht.Int))),
        Arg("timeout", _NUMBER),
        Arg("kinds", ht.Maybe(ht.ListOf(ht.OneOf("event-kind", EVENT_KINDS))), None),
    ),
    published=False,
)

# Every method, by its name.
TABLE: Final = {
    method.name: method for method in tuple(globals().values()) if isinstance(method, Method)
}
