"""The classes with which resources are declared.

A :class:`Resource` is a path with an :class:`Operation` for each method. There are two kinds of
operations:

* a :class:`Job` names an opcode, and where each of its parameters comes from: the path, the query,
  a fixed value, and the rest from the body;
* a :class:`Read` names a function, which asks the master and returns the answer.

Declarations do not run requests; :mod:`ganeti.rapi.application` does. The documentation is made
from them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ganeti import ht
from ganeti.opcodes.base import CHANGE, COMMON_PARAMS, QUERY, OpCode
from ganeti.rapi.rights import READ as READ
from ganeti.rapi.rights import USER as USER
from ganeti.rapi.rights import WRITE as WRITE

if TYPE_CHECKING:
    from ganeti.http.websocket import Socket
    from ganeti.rapi.call import Call

GET, PUT, POST, DELETE = "GET", "PUT", "POST", "DELETE"

# One of the rights which an operation lists is sufficient; an empty list needs no right.
ANYBODY: Final = frozenset[str]()
USERS: Final = frozenset({USER, READ, WRITE})
WRITERS: Final = frozenset({WRITE})
READERS: Final = frozenset({READ, WRITE})

# Kinds of arguments in the query.
FLAG, TEXT, WORDS, MANY = "flag", "text", "words", "many"
NUMBER, VALUES = "number", "values"

# Members of the body of a job besides the parameters of its opcode.
BODY_COMMON: Final = ("depends", "priority", "comment", "debug_level")


class Query(NamedTuple):
    """An argument in the query.

    :ivar kind: FLAG is 0 or 1, WORDS a list separated by commas, MANY may be repeated, NUMBER is an
        integer, VALUES a JSON list.
    :ivar access: the rights of which a user needs one to give the argument; none for those of the
        operation.
    :ivar param: the parameter of the opcode which it becomes; empty when the operation reads it.
    """

    name: str
    doc: str
    kind: str = FLAG
    default: Any = None
    param: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()
    access: frozenset[str] = ANYBODY


class Field(NamedTuple):
    """A member of a body which is not a parameter of an opcode."""

    type: ht.Type
    doc: str
    default: Any = None
    required: bool = False


class Result(NamedTuple):
    """The result of an operation: its type, and its description."""

    type: ht.Type
    doc: str
    fields: tuple[str, ...] = ()


BULK: Final = Query("bulk", "1: whole objects instead of names", default=False)
LOCK: Final = Query("lock", "accepted and ignored: reading takes no locks", default=False)
DRY_RUN: Final = Query(
    "dry-run", "1: only check whether the operation is possible", default=False, param="dry_run"
)
PLAN: Final = Query(
    "plan",
    "1: change nothing, and answer what would be done: locks, checks, hooks and steps",
    default=False,
)
FORCE: Final = Query("force", "1: also when it is dangerous", default=False, param="force")
#: Name of the argument which says whether an operation that only reads submits a job.
JOB: Final = "job"
REASON: Final = Query("reason", "reason, for the reason trail of the job", TEXT)

JOB_ID: Final = Result(ht.NonNegInt, "number of the job")

#: Makes opcodes from a request; for operations which are not one opcode.
Build = Callable[["Call", Mapping[str, Any]], list[OpCode]]
Run = Callable[["Call"], Awaitable[Any]]
RunSocket = Callable[["Call", "Socket"], Awaitable[None]]


class Job(NamedTuple):
    """Submit an opcode.

    :ivar uri: name in the path -> parameter; other names in the path are names of parameters.
    :ivar fixed: parameters which this resource decides.
    :ivar rename: name in the body -> parameter; the name of the parameter is accepted, too.
    :ivar forbidden: parameters which clients may not set.
    :ivar body: whether requests have a body.
    :ivar adjust: converts the body into parameters of the opcode.
    :ivar build: makes the opcodes; replaces all of the above.
    :ivar fields: members of the body for `build`.
    :ivar extra: members of the body besides the parameters of the opcode, for the description.
    :ivar at_once: makes the answer from the result and the warnings of an opcode that only reads,
        when the argument :data:`JOB` says that no job is wanted; None for an opcode that always
        needs a job.
    """

    opcode: type[OpCode]
    doc: str
    query: tuple[Query, ...] = ()
    body: bool = False
    uri: Mapping[str, str] = {}
    fixed: Mapping[str, Any] = {}
    rename: Mapping[str, str] = {}
    forbidden: tuple[str, ...] = ()
    adjust: Callable[[dict[str, Any]], None] | None = None
    build: Build | None = None
    fields: Mapping[str, Field] | ht.Type | None = None
    extra: Mapping[str, Field] = {}
    access: frozenset[str] = WRITERS
    result: Result = JOB_ID
    at_once: Callable[[Any, list[str]], Any] | None = None

    def body_fields(self, path_names: Iterable[str]) -> dict[str, Field]:
        """Return the allowed members of the body, by name.

        :param path_names: names in the path of the resource.
        """
        if isinstance(self.fields, ht.Type) or not (self.body or self.fields):
            return {}
        found = dict(self.extra)
        if self.fields is not None:
            found.update(self.fields)
        else:
            taken = {*self.static_params(), *path_names, *COMMON_PARAMS, *self.forbidden}
            names = {param: name for name, param in self.rename.items()}
            for name, param in self.opcode.PARAMS.items():
                if name not in taken:
                    found[names.get(name, name)] = Field(
                        param.type, param.doc, param.default, param.required
                    )
        for name in BODY_COMMON:
            param = COMMON_PARAMS[name]
            found[name] = Field(param.type, param.doc, param.default)
        return found

    def static_params(self) -> set[str]:
        """Return the parameters which the body may not set, because path or resource set them."""
        return {
            *self.fixed,
            *self.uri.values(),
            *(query.param for query in self.query if query.param),
        }


class Read(NamedTuple):
    """Ask the master.

    :ivar produces: media type, when it is not JSON (or YAML).
    :ivar waits: the request only waits, and does not count as a request to the master.
    :ivar headers: name -> description of each header which the answer may have, besides those of
        every answer.
    :ivar socket: serves a client which wants a WebSocket (:mod:`ganeti.http.websocket`) instead of
        an answer; None for an operation without one. Rights and arguments are those of the request.
    :ivar secret: the answer has a secret, and is never compressed.
    :ivar statuses: status -> description of each answer besides 200 which is no error.
    :ivar identifies: the operation finds out itself who sends the request, such as a login; other
        credentials are ignored.
    """

    run: Run
    doc: str
    result: Result
    query: tuple[Query, ...] = ()
    fields: Mapping[str, Field] | None = None
    access: frozenset[str] = ANYBODY
    produces: str = ""
    waits: bool = False
    headers: Mapping[str, str] = {}
    socket: RunSocket | None = None
    secret: bool = False
    statuses: Mapping[int, str] = {}
    identifies: bool = False


class DirectChange(NamedTuple):
    """Ask the master to change something without a job; otherwise like :class:`Read`.

    :ivar fields: members of the body, or the type of the whole body.
    :ivar conditional: the request needs ``If-Match`` or ``If-None-Match``; `run` checks them.
    :ivar most_body_bytes: the largest body; 0 for the usual size.
    :ivar secret: the answer has a secret, and is never compressed.
    :ivar headers: name -> description, as in :class:`Read`.
    :ivar statuses: status -> description of each answer besides 200 which is no error.
    :ivar alone: the operation is about its own request, so no batch has it.
    :ivar identifies: as in :class:`Read`.
    """

    run: Run
    doc: str
    result: Result
    query: tuple[Query, ...] = ()
    fields: Mapping[str, Field] | ht.Type | None = None
    access: frozenset[str] = WRITERS
    produces: str = ""
    waits: bool = False
    conditional: bool = False
    most_body_bytes: int = 0
    secret: bool = False
    headers: Mapping[str, str] = {}
    statuses: Mapping[int, str] = {}
    alone: bool = False
    identifies: bool = False


Operation = Job | Read | DirectChange


def arguments(operation: Operation) -> tuple[Query, ...]:
    """Return all arguments which an operation takes in the query.

    Every job that changes something has a dry run, also where the published table has none: a
    client that asks for one must not have the change made. It has a plan, too.
    """
    found = operation.query
    if isinstance(operation, Job):
        names = {query.name for query in found}
        if operation.opcode.KIND == CHANGE and DRY_RUN.name not in names:
            found = (*found, DRY_RUN)
        if has_plan(operation):
            found = (*found, PLAN)
        found = (*found, REASON)
    return found


def has_plan(operation: Operation) -> bool:
    """Return whether an operation can say what it would do."""
    return isinstance(operation, Job) and operation.opcode.KIND == CHANGE


def changes(operation: Operation) -> bool:
    """Return False for an operation which only reads, also as a job."""
    if isinstance(operation, Job):
        return operation.opcode.KIND != QUERY
    return isinstance(operation, DirectChange)


class Resource(NamedTuple):
    """A path with its operations.

    :ivar path: with names in braces.
    :ivar handler: the published name, which is used in reason trails and in the rights of users.
    :ivar tagged: kind of the object whose tag is compared with ``If-Match``.
    """

    path: str
    handler: str
    operations: Mapping[str, Operation]
    tagged: str = ""

    def names(self) -> list[str]:
        """Return the names in the path."""
        return [word[1:-1] for word in self.path.split("/") if word.startswith("{")]

    def body_fields(self, method: str) -> dict[str, Field]:
        """Return the allowed members of the body of a method, by name."""
        operation = self.operations[method]
        if isinstance(operation, Job):
            return operation.body_fields(self.names())
        if isinstance(operation.fields, ht.Type):
            return {}
        return dict(operation.fields or {})
