"""The requests of a job process to the master daemon: one table, from which both ends are made.

:class:`Services` is the table. Each of its fields is a *service*, and each public method of the
class of a service is a request, called ``<service>.<method>``. The master daemon has a real object
for each service, and :meth:`Method.call` calls it. A process has :func:`proxies`, whose methods
send requests. The signature of a method decides which arguments a request has, and the annotations
how they travel (:mod:`.forms`).

The operations of a transaction are services, too: its fields, such as ``instances``.

A new request is a new method of a service here, and the method of the object which serves it.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from ganeti import errors
from ganeti.cmdlib.base import JobFiles, OrphanedWork, Queries, WitnessCheck
from ganeti.config.history import Author
from ganeti.config.sending import DistributionFailure
from ganeti.config.transaction import Transaction
from ganeti.jobexec.forms import Form, form_of
from ganeti.locking import Level, LockId
from ganeti.opcodes.base import OpCode

#: The locks which a job holds, with their modes.
Held: TypeAlias = dict[LockId, str]
#: How they travel outside of a request.
HELD: Final = form_of(Held)
#: Something reserved: a name, an address, a number, or one of these with the object it belongs to.
Reserved: TypeAlias = str | int | tuple[str, str | int]
#: What changed in the configuration, for :func:`ganeti.jobexec.changes.apply`.
Changes: TypeAlias = dict[str, Any]


class JobRequests(Protocol):
    """The job queue, for the running opcode; see :class:`ganeti.cmdlib.base.OpCallbacks`."""

    def notify_start(self) -> None:
        """Report that the opcode holds its locks; the answer comes when "running" is on disk."""

    def check_cancel(self) -> None:
        """Fail if the job is to stop."""

    def priority(self) -> int:
        """Return the present priority of the job."""

    def submit_jobs(self, jobs: Sequence[Sequence[OpCode]]) -> list[list[Any]]:
        """Submit jobs; return ``[True, job id]`` or ``[False, message]`` for each."""

    def feedback(self, kind: str, message: Any) -> None:
        """Add an entry to the log of the opcode."""

    def complete_log(self, lines: Sequence[tuple[str, Any]]) -> None:
        """Add those of all log entries of the opcode which are not in its log."""


class Wanted(NamedTuple):
    """A request for locks of one level; see :meth:`ganeti.locking.LockManager.acquire`."""

    level: Level
    keys: Collection[str] | None
    shared: bool
    timeout_s: float | None = None
    opportunistic: bool = False


class Acquired(NamedTuple):
    """The answer to a request for locks.

    :ivar taken: keys of the locks which were taken; None after a timeout.
    :ivar held: all locks which the job holds then.
    """

    taken: frozenset[str] | None
    held: Held


class LockRequests(Protocol):
    """The locks of the cluster, for the job; see :class:`ganeti.cmdlib.base.JobLocks`."""

    def add(self, level: Level, keys: Collection[str]) -> None:
        """Create locks, all of them or none."""

    def remove(self, level: Level, keys: Collection[str]) -> None:
        """Remove locks which the job holds exclusively."""

    def keys(self, level: Level) -> frozenset[str]:
        """Return the keys of the level's present members."""

    def acquire(self, wanted: Wanted) -> Acquired:
        """Take locks of one level, waiting for them in order."""

    def owned(self, level: Level) -> dict[str, str]:
        """Return the members which the job holds, with their modes."""

    def release(self, level: Level | None, keys: Collection[str] | None) -> None:
        """Release the named locks, all locks of a level, or all locks."""

    def downgrade(self, level: Level, keys: Collection[str] | None) -> None:
        """Turn exclusive locks into shared ones."""


class ReservationRequests(Protocol):
    """The reserved values (:class:`ganeti.config.reservations.Reservations`)."""

    def release(self, ec_id: str) -> None:
        """Release all reservations of an execution."""

    def reserve(self, kind: str, value: Reserved, ec_id: str) -> None:
        """Reserve a value for an execution."""

    def first_free(self, kind: str, values: Sequence[Reserved], ec_id: str) -> Reserved | None:
        """Reserve the first value which is neither reserved nor in the configuration."""

    def next_free(self, kind: str, values: Sequence[Reserved], count: int) -> Sequence[Reserved]:
        """Return the first values, at most so many, which are free now; reserve none of them."""

    def taken(self, kind: str) -> frozenset[Reserved]:
        """Return all reserved values of a kind."""

    def new_uuid(self, ec_id: str) -> str:
        """Reserve a new UUID and return it."""

    def new_mac(self, prefix: str, ec_id: str) -> str:
        """Reserve a random free MAC address and return it."""


class ConfigRequests(Protocol):
    """The present state of the configuration."""

    def changes(self, serial_no: int | None) -> Changes:
        """Return what changed since a state; the whole configuration if that is None."""

    def has_commit(self, serial_no: int) -> bool:
        """Tell whether the job's change was committed whose acknowledgement was lost.

        :param serial_no: of the state which it made.
        """


class ConfigCopies(Protocol):
    """What the other nodes have of the configuration (:class:`ganeti.config.Config`)."""

    def lagging(self) -> dict[str, frozenset[str]]:
        """Return the lagging nodes by UUID, each with what it lacks."""

    def inform_others(self) -> None:
        """Send ssconf values to the nodes which did not get them with a commit."""

    def is_alone(self) -> bool:
        """Tell whether the witness knows that this node is the only candidate."""

    def require_committed(self) -> None:
        """Check that the present state is committed."""

    def redistribute(self) -> list[DistributionFailure]:
        """Send configuration and ssconf values to all nodes again; return the failures."""


class Begun(NamedTuple):
    """A transaction has begun.

    :ivar serial_no: of the state with which it begins.
    :ivar now: its time, in seconds since 1970.
    """

    serial_no: int
    now: float


class TransactionRequests(Protocol):
    """The transaction of the job; its operations are a service of their own."""

    def begin(self, author: Author) -> Begun:
        """Begin it. The store of the configuration is locked until it ends."""

    def data(self, serial_no: int) -> Changes:
        """Return what its state has changed since another one; everything for a negative number."""

    def commit(self, serial_no: int) -> Changes:
        """Commit it; return what changed since the state which the process has."""

    def abandon(self) -> None:
        """Discard it."""


class CallRequests(Protocol):
    """The node calls of the master daemon (:class:`ganeti.rpc.RpcRunner`)."""

    def trust_changed(self) -> None:
        """Use the new certificates of this node."""


@dataclass(slots=True)
class Services:
    """Everything that a job process may ask for outside of a transaction."""

    job: JobRequests
    locks: LockRequests
    reservations: ReservationRequests
    config: ConfigRequests
    copies: ConfigCopies
    transaction: TransactionRequests
    calls: CallRequests
    queries: Queries | None
    files: JobFiles | None
    orphaned_work: OrphanedWork | None
    witness: WitnessCheck | None


#: The services which a transaction has, and their classes.
OPERATIONS: Final[Mapping[str, type]] = typing.get_type_hints(Transaction)

#: The services which answer while the process has a transaction, which keeps the store locked.
IN_TRANSACTION: Final = frozenset({"job", "reservations", "config", "transaction", *OPERATIONS})


class _Forms(NamedTuple):
    """How the arguments of a request and its result travel.

    :ivar named: the parameters which are passed by name; they are the last ones.
    """

    arguments: list[Form]
    named: list[str]
    result: Form


class Method:
    """One request.

    :ivar service: the name of its service.
    :ivar name: the name of the method.
    :ivar function: the declaration.
    """

    def __init__(self, service: str, name: str, function: Callable[..., Any]) -> None:
        self.service = service
        self.name = name
        self.function = function

    def __str__(self) -> str:
        return f"{self.service}.{self.name}"

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The signature of the method of an object."""
        declared = inspect.signature(self.function)
        return declared.replace(parameters=list(declared.parameters.values())[1:])

    @functools.cached_property
    def _forms(self) -> _Forms:
        hints = typing.get_type_hints(self.function)
        parameters = self.signature.parameters.values()
        return _Forms(
            [form_of(hints[one.name]) for one in parameters],
            [one.name for one in parameters if one.kind is one.KEYWORD_ONLY],
            form_of(hints["return"]),
        )

    def prepare(self) -> None:
        """Find out how arguments and result travel; otherwise the first use does it."""
        assert self._forms

    def encode(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of a call as a message has them, those with a default, too.

        :raises TypeError: the method does not have these parameters.
        """
        forms, names, _result = self._forms
        if named or names or len(args) != len(forms):
            bound = self.signature.bind(*args, **named)
            bound.apply_defaults()
            args = list(bound.arguments.values())
        return [form.encode(value) for form, value in zip(forms, args, strict=True)]

    def call(self, target: object, args: Sequence[Any]) -> Any:
        """Call the method of the object which serves it; return the result for a message."""
        forms, names, result = self._forms
        values = [form.decode(value) for form, value in zip(forms, args, strict=True)]
        count = len(values) - len(names)
        named = dict(zip(names, values[count:], strict=True))
        return result.encode(getattr(target, self.name)(*values[:count], **named))

    def result(self, value: Any) -> Any:
        """Return the result which a message has."""
        return self._forms.result.decode(value)


def _class_of(annotation: Any) -> type:
    found: type = next(iter(typing.get_args(annotation)), annotation)
    return found


#: The classes of the services.
SERVICES: Final[Mapping[str, type]] = {
    name: _class_of(annotation)
    for name, annotation in (*typing.get_type_hints(Services).items(), *OPERATIONS.items())
}

#: All requests by service and name.
METHODS: Final[Mapping[str, Mapping[str, Method]]] = {
    service: {
        name: Method(service, name, function)
        for name, function in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }
    for service, cls in SERVICES.items()
}


def find(request: str) -> Method:
    """Return a request by its name.

    :raises ProgrammerError: there is no such request.
    """
    service, _, name = request.partition(".")
    method = METHODS.get(service, {}).get(name)
    if method is None:
        raise errors.ProgrammerError(f"a job cannot ask for {request}")
    return method


#: Sends a request, by its name and its arguments, and returns the answer.
Ask: TypeAlias = Callable[[str, list[Any]], Any]


class Proxy:
    """A service in a job process: its methods send requests.

    :param ask: sends them.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask


def _sends(method: Method) -> Callable[..., Any]:
    request = str(method)

    @functools.wraps(method.function)
    def send(self: Proxy, /, *args: Any, **named: Any) -> Any:
        return method.result(self._ask(request, method.encode(args, named)))

    return send


_PROXIES: Final[Mapping[str, type[Proxy]]] = {
    service: type(f"{SERVICES[service].__name__}Proxy", (Proxy,), {
        name: _sends(method) for name, method in methods.items()
    })
    for service, methods in METHODS.items()
}  # fmt: skip


def proxies(ask: Ask) -> Services:
    """Return all services for a job process, but the operations of its transaction."""
    names = METHODS.keys() - OPERATIONS.keys()
    return Services(**{name: _PROXIES[name](ask) for name in names})  # type: ignore[arg-type]


def operations(ask: Ask) -> dict[str, Proxy]:
    """Return the operations of a transaction for a job process, by service."""
    return {name: _PROXIES[name](ask) for name in OPERATIONS}


def prepare() -> None:
    """Make what is made at the first use of each request."""
    for methods in METHODS.values():
        for method in methods.values():
            method.prepare()
