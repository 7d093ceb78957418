"""Jobs: states, priorities, limits, types of log entries, sources of reasons."""

from __future__ import annotations

STATUS_QUEUED = "queued"
STATUS_WAITING = "waiting"
STATUS_CANCELING = "canceling"
STATUS_RUNNING = "running"
STATUS_CANCELED = "canceled"
STATUS_SUCCESS = "success"
STATUS_ERROR = "error"
STATUSES = (
    STATUS_CANCELED,
    STATUS_CANCELING,
    STATUS_ERROR,
    STATUS_QUEUED,
    STATUS_RUNNING,
    STATUS_SUCCESS,
    STATUS_WAITING,
)
FINALIZED = frozenset((STATUS_CANCELED, STATUS_SUCCESS, STATUS_ERROR))
PENDING = frozenset((STATUS_QUEUED, STATUS_WAITING, STATUS_CANCELING))

PRIO_LOWEST = 19
PRIO_LOW = 10
PRIO_NORMAL = 0
PRIO_HIGH = -10
PRIO_HIGHEST = -20

QUEUE_VERSION = 1
QUEUE_HARD_LIMIT = 5000
QUEUE_FILE_MODE = 0o640
JOBS_PER_ARCHIVE_DIR = 10000
# Job ids which a new master leaves out, because the one before may have given them to jobs that no
# other node has. A master gives out no more ids than this before a majority of the candidates knows
# the highest one.
JOB_ID_GAP = 10000
MAX_RUNNING_DEFAULT = 20
MAX_TRACKED_DEFAULT = 25

# Actions of a filter rule on the jobs which match; RATE_LIMIT has a number.
FILTER_ACCEPT = "ACCEPT"
FILTER_PAUSE = "PAUSE"
FILTER_REJECT = "REJECT"
FILTER_CONTINUE = "CONTINUE"
FILTER_RATE_LIMIT = "RATE_LIMIT"
FILTER_ACTIONS = (FILTER_ACCEPT, FILTER_PAUSE, FILTER_REJECT, FILTER_CONTINUE)

# Types of log entries.
LOG_MESSAGE = "message"
LOG_REMOTE_IMPORT = "remote-import"
LOG_JQUEUE_TEST = "jqueue-test"
LOG_DELAY_TEST = "delay-test"
#: Ours: the object was in the wanted state already. The message says so for users.
LOG_ALREADY = "already"
#: Ours: for what the job waits now. Commands show it on a terminal only.
LOG_WAITING = "waiting"

#: Where jobs are executed: values of the cluster parameter ``job_execution``.
EXECUTION_THREADS = "threads"
EXECUTION_PROCESSES = "processes"
EXECUTIONS = (EXECUTION_THREADS, EXECUTION_PROCESSES)

# The result of waiting for a change of a job, if there was none in time.
NO_CHANGE = "nochange"

#: Of this project; the others are published.
REASON_MASTERD_ORPHANED_WORK = "gnt:daemon:masterd:orphaned-work"
REASON_MASTERD_NODE_WATCH = "gnt:daemon:masterd:node-watch"
REASON_MASTERD_CERTIFICATES = "gnt:daemon:masterd:certificates"
REASON_OPCODE = "gnt:opcode"
REASON_USER = "gnt:user"
REASON_WATCHER = "gnt:watcher"
#: Of this project: the text is the name of the person who submitted the job.
REASON_PERSON = "gnt:person"
