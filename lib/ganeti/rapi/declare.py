"""The words in which resources are declared.

A :class:`Resource` is a path with an :class:`Operation` for each method. There are two kinds of
operations:

* a :class:`Job` names an opcode, and where each of its parameters comes from: the path, the query,
  a fixed value, and the rest from the body;
* a :class:`Read` names a function, which asks the master and returns what is shown.

Nothing here runs a request; :mod:`ganeti.rapi.application` does. Everything a reader of the
documentation wants to know stands in the declaration, and nothing is said twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ganeti import ht
from ganeti.opcodes.base import COMMON_PARAMS, OpCode

if TYPE_CHECKING:
    from ganeti.rapi.call import Call

GET, PUT, POST, DELETE = "GET", "PUT", "POST", "DELETE"
METHODS: Final = (GET, PUT, POST, DELETE)

# Rights. An operation lists those of which one is enough; an empty list lets everybody in.
READ, WRITE = "read", "write"
ANYBODY: Final = frozenset[str]()
WRITERS: Final = frozenset({WRITE})
READERS: Final = frozenset({READ, WRITE})

# Kinds of arguments in the query.
FLAG, TEXT, WORDS, MANY = "flag", "text", "words", "many"

# What the body of a job may say beside the parameters of its opcode.
BODY_COMMON: Final = ("depends", "priority", "comment", "debug_level")


class Query(NamedTuple):
    """An argument in the query.

    :ivar kind: FLAG is 0 or 1, WORDS a list separated by commas, MANY may be repeated.
    :ivar param: the opcode's parameter which it becomes; empty when the operation looks at it.
    """

    name: str
    doc: str
    kind: str = FLAG
    default: Any = None
    param: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()


class Field(NamedTuple):
    """A member of a body which belongs to no opcode."""

    type: ht.Type
    doc: str
    default: Any = None
    required: bool = False


class Result(NamedTuple):
    """What is returned: a word for its shape and one for people."""

    type: ht.Type
    doc: str
    fields: tuple[str, ...] = ()


BULK: Final = Query("bulk", "1: whole objects instead of names", default=False)
LOCK: Final = Query("lock", "accepted and ignored: reading takes no locks", default=False)
DRY_RUN: Final = Query(
    "dry-run", "1: only check whether it could be done", default=False, param="dry_run"
)
FORCE: Final = Query("force", "1: also where it is dangerous", default=False, param="force")
REASON: Final = Query("reason", "why, for the job's trail of reasons", TEXT)

JOB_ID: Final = Result(ht.NonNegInt, "number of the job")

#: Opcodes from what a request says; for operations which are not one opcode.
Build = Callable[["Call", Mapping[str, Any]], list[OpCode]]
Run = Callable[["Call"], Awaitable[Any]]


class Job(NamedTuple):
    """Submit an opcode.

    :ivar uri: name in the path -> parameter; a name that is missing here is the parameter's own.
    :ivar fixed: parameters which this resource decides.
    :ivar rename: name in the body -> parameter; the parameter's own name is understood as well.
    :ivar forbidden: parameters which may not be set from afar.
    :ivar body: whether there is one.
    :ivar adjust: changes what the body says into what the opcode wants.
    :ivar build: makes the opcodes, instead of all the above.
    :ivar fields: what the body holds when `build` reads it.
    :ivar extra: what the body holds beside the opcode's parameters, for the description.
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

    def body_fields(self, path_names: Iterable[str]) -> dict[str, Field]:
        """What may stand in the body, by name.

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
        """Parameters which the body may not set, because something else does."""
        return {
            *self.fixed,
            *self.uri.values(),
            *(query.param for query in self.query if query.param),
        }


class Read(NamedTuple):
    """Ask the master.

    :ivar produces: media type, when it is not JSON (or YAML).
    :ivar waits: may take long without costing anybody anything; does not count as at work.
    """

    run: Run
    doc: str
    result: Result
    query: tuple[Query, ...] = ()
    fields: Mapping[str, Field] | None = None
    access: frozenset[str] = ANYBODY
    produces: str = ""
    waits: bool = False


class Change(NamedTuple):
    """As :class:`Read`, but something is changed, without a job."""

    run: Run
    doc: str
    result: Result
    query: tuple[Query, ...] = ()
    fields: Mapping[str, Field] | None = None
    access: frozenset[str] = WRITERS
    produces: str = ""
    waits: bool = False


Operation = Job | Read | Change


class Resource(NamedTuple):
    """A path and what can be done there.

    :ivar path: with names in braces.
    :ivar handler: the published name, which stands in trails of reasons and in users' rights.
    :ivar tagged: what is compared with ``If-Match``: the kind of the object in the path.
    """

    path: str
    handler: str
    operations: Mapping[str, Operation]
    tagged: str = ""

    def names(self) -> list[str]:
        """The names in the path."""
        return [word[1:-1] for word in self.path.split("/") if word.startswith("{")]

    def body_fields(self, method: str) -> dict[str, Field]:
        """What the body of a method may hold, by name."""
        operation = self.operations[method]
        if isinstance(operation, Job):
            return operation.body_fields(self.names())
        return dict(operation.fields or {})
