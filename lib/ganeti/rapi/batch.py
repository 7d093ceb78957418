"""Several operations in one request, some of which run after others.

Each operation goes the way of a request of its own: the same search for its resource, the same
rights, the same checks, the same opcodes (:class:`Carrier`). The order of the work decides what a
failure leaves:

1. everything is checked, and what only reads is carried out, in the order of the list;
2. all jobs are submitted in one request to the master, which writes them with one flush. An
   operation that runs *after* others gets their jobs as dependencies: it begins when they have
   succeeded, also when the client or this daemon has ended by then;
3. changes which are made without a job are made, in the order of the list.

With ``check`` *all* a refusal in the first step ends the batch, so nothing was changed. With *each*
it ends this operation, and those that would run after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ganeti import errors, ht
from ganeti.http.messages import Refused
from ganeti.opcodes.base import OpCode
from ganeti.rapi import checks, declare, failures, represent
from ganeti.rapi.declare import (
    DELETE,
    GET,
    POST,
    PUT,
    DirectChange,
    Field,
    Job,
    Operation,
    Read,
    Resource,
)  # fmt: skip
from ganeti.wire import json

if TYPE_CHECKING:
    from ganeti.http.event_server import Incoming
    from ganeti.rapi.call import Call
    from ganeti.rapi.job_limits import JobLimits
    from ganeti.rapi.users import User

MOST_OPERATIONS: Final = 200
MOST_BODY_BYTES: Final = 2 << 20
#: Sum of the answers to the operations that read.
MOST_ANSWER_BYTES: Final = 64 << 20
ALL, EACH = "all", "each"

_ID: Final = ht.AtMost(ht.NonEmptyString, 64)
_FIELDS: Final[dict[str, Field]] = {
    "method": Field(ht.OneOf("method", (GET, PUT, POST, DELETE)), "the method", required=True),
    "path": Field(ht.NonEmptyString, "the path, such as ``/2/instances/web1``", required=True),
    "query": Field(
        ht.Dict, "arguments of the query; a list for one that may be repeated", default={}
    ),
    "body": Field(ht.Any, "the body"),
    "id": Field(ht.Maybe(_ID), "a name of the operation in this batch; else its number, from 0"),
    "after": Field(
        ht.ListOf(_ID),
        "ids of earlier operations, whose jobs must have succeeded before this one begins",
        default=[],
    ),
    "if_match": Field(ht.Maybe(ht.Str), "the header If-Match"),
    "if_none_match": Field(ht.Maybe(ht.Str), "the header If-None-Match"),
}
_SHAPE: Final = ht.Shape(
    "operation",
    {name: field.type for name, field in _FIELDS.items() if field.required},
    {name: field.type for name, field in _FIELDS.items() if not field.required},
)
# Each operation is checked by its own sentence, so here an object is enough.
_OPERATION: Final = ht.Type("operation", ht.Dict.check, made_of=_SHAPE.made_of)
#: Members of the body of a batch.
FIELDS: Final[Mapping[str, Field]] = {
    "operations": Field(
        ht.AtMost(ht.ListOf(_OPERATION), MOST_OPERATIONS),
        "the operations, each with method, path, query, body, id and after",
        required=True,
    ),
    "check": Field(
        ht.OneOf("check", (ALL, EACH)),
        "all: one refused operation ends the batch, and nothing is changed; each: the other"
        " operations are carried out",
        default=ALL,
    ),
}
#: The answer to a batch.
ANSWERS: Final = ht.ListOf(
    ht.Shape(
        "answer",
        {"id": ht.NonEmptyString, "status": ht.Int, "body": ht.Any},
        {"etag": ht.Str, "headers": ht.DictOf(ht.Str, ht.Str)},
    )
)


class Wanted(NamedTuple):
    """What the head of a request says about the operation.

    :ivar path: with percent signs, without the query.
    :ivar query: the arguments as they were given.
    """

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]


class Asked(NamedTuple):
    """An operation which a user asks for and may use; its body has not come yet.

    :ivar uri: values of the names in the path.
    :ivar query: the arguments by their published names, not converted.
    :ivar user: None for a request without a user.
    :ivar incoming: the request itself; None within a batch.
    """

    resource: Resource
    operation: Operation
    uri: Mapping[str, str]
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    user: User | None
    incoming: Incoming | None = None


class Prepared(NamedTuple):
    """An operation that was checked as far as possible without carrying it out.

    :ivar ops: the opcodes of a job; empty for other operations.
    """

    resource: Resource
    operation: Operation
    call: Call
    ops: Sequence[OpCode]

    @property
    def submits(self) -> bool:
        """Return whether it submits a job, in place of an answer at once."""
        operation = self.operation
        return isinstance(operation, Job) and (
            operation.at_once is None or bool(self.call.query[declare.JOB])
        )

    @property
    def plans(self) -> bool:
        """Return whether the plan is wanted, and no change."""
        return bool(self.call.query.get(declare.PLAN.name))


class Carrier(Protocol):
    """What carries out operations: the application, for operations of a batch as for others."""

    def ask(self, user: User, wanted: Wanted) -> Asked:
        """Find the operation which a user asks for, within another request."""

    async def prepare(self, asked: Asked, body: Any) -> Prepared:
        """Do everything that can refuse an operation before something is changed."""

    async def carry_out(self, prepared: Prepared) -> Any:
        """Carry out an operation which was prepared; return the value of its answer."""

    @property
    def job_limits(self) -> JobLimits:
        """The limits for the jobs of each user."""


class _Given(NamedTuple):
    """One operation as the client wrote it, with its defaults."""

    id: str
    method: str
    path: str
    query: Mapping[str, Any]
    body: Any
    after: Sequence[str]
    headers: Mapping[str, str]

    def __str__(self) -> str:
        return f"operation '{self.id}' ({self.method} {self.path[:100]})"


class _Step:
    """One operation while the batch is carried out.

    :ivar prepared: None until it was checked, and when it was refused.
    :ivar refused: why it is not carried out; None when nothing speaks against it.
    :ivar value: the body of its answer.
    """

    def __init__(self, given: _Given) -> None:
        self.given = given
        self.prepared: Prepared | None = None
        self.refused: Refused | None = None
        self.value: Any = None

    @property
    def submits(self) -> bool:
        """Return whether it submits a job."""
        return self.prepared is not None and self.prepared.submits

    @property
    def changes(self) -> bool:
        """Return whether it changes something without a job."""
        return self.prepared is not None and isinstance(self.prepared.operation, DirectChange)

    def answer(self) -> dict[str, Any]:
        """Return the answer to this operation."""
        if self.refused is not None:
            status = self.refused.status
            body = represent.error_body(status, str(self.refused))
            return {"id": self.given.id, "status": status, "body": body}
        status = 200 if self.prepared is None else self.prepared.call.status
        found = {"id": self.given.id, "status": status, "body": self.value}
        if self.prepared is not None and self.prepared.call.etag:
            found["etag"] = self.prepared.call.etag
        if self.prepared is not None and self.prepared.call.answer_headers:
            found["headers"] = dict(self.prepared.call.answer_headers)
        return found


class Batch:
    """Carries out the operations of batches."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier

    async def run(self, call: Call) -> list[dict[str, Any]]:
        """Carry out a batch; return the answer to each operation.

        :raises Refused: the batch is wrong, an operation is refused (with ``check: all``), or the
            user may not submit so many jobs. Nothing was changed then.
        :raises errors.GenericError: the master did not take the jobs.
        """
        steps = {given.id: _Step(given) for given in _operations(call.body["operations"])}
        whole = call.body["check"] == ALL
        read_bytes = 0
        for step in steps.values():
            await self._check(call, step, steps)
            if step.refused is None and not step.submits and not step.changes:
                read_bytes = await self._read(step, read_bytes)
            # Others are served between two operations.
            await asyncio.sleep(0)
        refused = [step for step in steps.values() if step.refused is not None]
        if refused and whole:
            raise _nothing_done(refused)
        await self._submit(call, steps)
        for step in steps.values():
            if step.refused is None and step.changes:
                await self._carry_out(step)
        return [step.answer() for step in steps.values()]

    async def _check(self, call: Call, step: _Step, steps: Mapping[str, _Step]) -> None:
        """Do everything that can refuse an operation before something is changed."""
        given = step.given
        assert call.who is not None
        try:
            wanted = Wanted(given.method, _path(given), _query(call, given), given.headers)
            asked = self._carrier.ask(call.who, wanted)
            _check_kind(call, asked, given)
            prepared = await self._carrier.prepare(asked, given.body)
            step.prepared = prepared
            _check_order(step, steps)
        except errors.GenericError as err:
            step.refused = failures.refusal(err)

    async def _carry_out(self, step: _Step) -> None:
        assert step.prepared is not None
        try:
            step.value = await self._carrier.carry_out(step.prepared)
        except errors.GenericError as err:
            step.refused = failures.refusal(err)

    async def _read(self, step: _Step, before: int) -> int:
        """Carry out an operation which reads; return the size of all answers up to this one.

        :param before: size of the answers before it in bytes.
        """
        await self._carry_out(step)
        if step.refused is not None:
            return before
        assert not isinstance(step.value, AsyncIterator)
        size = before + len(json.dumps_spaced(step.value))
        if size > MOST_ANSWER_BYTES:
            step.value = None
            step.refused = Refused(
                413,
                f"the answers of a batch may have {MOST_ANSWER_BYTES} bytes. Send this operation as"
                " a request of its own.",
            )
            return before
        return size

    async def _submit(self, call: Call, steps: Mapping[str, _Step]) -> None:
        """Submit the jobs, each with the jobs after which it runs as dependencies."""
        wanted = [step for step in steps.values() if step.submits and step.refused is None]
        if not wanted:
            return
        places = {step.given.id: place for place, step in enumerate(wanted)}
        jobs = []
        for place, step in enumerate(wanted):
            assert step.prepared is not None
            ops = step.prepared.ops
            if step.given.after:
                earlier = step.given.after
                before = [[places[one] - place, []] for one in earlier]
                ops[0].depends = [*(ops[0].depends or []), *before]
            jobs.append(ops)
        results = await self._carrier.job_limits.submit_many(call.user, jobs)
        for step, result in zip(wanted, results, strict=True):
            if isinstance(result, int):
                step.value = result
            else:
                _note_not_submitted(step, steps, result)


def _note_not_submitted(step: _Step, steps: Mapping[str, _Step], message: str) -> None:
    """Note that the master did not take a job, or one after which it runs."""
    before = _refused_before(step, steps)
    step.refused = before or Refused(503, message or "the job queue is full")


def _operations(given: Sequence[Mapping[str, Any]]) -> list[_Given]:
    """Read the operations.

    :raises Refused: 400 for a member which is wrong, and for an id which occurs twice.
    """
    found: dict[str, _Given] = {}
    for number, one in enumerate(given):
        try:
            values = checks.check_fields(one, _FIELDS)
        except Refused as err:
            raise Refused(400, f"operation {number}: {err}") from err
        headers = {
            name.replace("_", "-"): values[name]
            for name in ("if_match", "if_none_match")
            if values[name] is not None
        }
        name = values["id"] or str(number)
        if name in found:
            raise Refused(400, f"operation {number}: the id '{name}' occurs twice")
        for earlier in values["after"]:
            if earlier not in found:
                raise Refused(
                    400,
                    f"operation {number}: there is no earlier operation '{earlier}', after which it"
                    " could run",
                )
        found[name] = _Given(
            name,
            values["method"],
            values["path"],
            values["query"],
            values["body"],
            list(dict.fromkeys(values["after"])),
            headers,
        )
    if not found:
        raise Refused(400, "the batch has no operations")
    return list(found.values())


def _path(given: _Given) -> str:
    """Return the path of an operation as the head of a request would have it.

    :raises Refused: 400 when it cannot be one.
    """
    if not given.path.startswith("/"):
        raise Refused(400, "the path must begin with '/'")
    if "?" in given.path or "#" in given.path:
        raise Refused(400, "the path has no '?' or '#'; arguments belong in the member 'query'")
    # The bytes of a head are decoded as Latin-1.
    return given.path.encode("utf-8", "surrogatepass").decode("latin-1")


def _query(call: Call, given: _Given) -> dict[str, list[str]]:
    """Return the arguments of the query of an operation, as a request would have them.

    :raises Refused: 400 for a value which an argument cannot have.
    """
    found = {}
    for name, value in given.query.items():
        values = value if isinstance(value, list) else [value]
        found[name] = [_text(name, one) for one in values]
    if call.why:
        found.setdefault(declare.REASON.name, [call.why])
    return found


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str | int | float):
        return str(value)
    raise Refused(
        400, f"query argument '{name[:100]}' must be a text, a number, true, false, or a list"
    )


def _check_kind(call: Call, asked: Asked, given: _Given) -> None:
    """Refuse an operation which cannot be part of a batch, or which its own request would refuse.

    :raises Refused: 400 for such an operation, 413 for a body where there is none.
    """
    operation = asked.operation
    if asked.resource.handler == call.handler:
        raise Refused(400, "a batch cannot be part of a batch")
    if isinstance(operation, Read | DirectChange):
        if operation.waits or operation.produces:
            raise Refused(400, "this operation waits or has no JSON answer, so no batch has it")
        if given.after:
            raise Refused(400, "this operation submits no job, so it cannot run after others")
    if isinstance(operation, Read):
        if operation.fields is None and given.body is not None:
            raise Refused(413, "this request takes no body")
        if given.headers:
            raise Refused(400, "if_match and if_none_match are for operations which change")
    if isinstance(operation, DirectChange) and (operation.alone or not operation.access):
        raise Refused(400, "this operation is about the request itself, so no batch has it")
    if isinstance(operation, DirectChange) and operation.conditional and not given.headers:
        raise Refused(428, "this operation needs a condition: if_match or if_none_match")
    declared = {one.name: one for one in declare.arguments(operation)}
    for name, values in asked.query.items():
        one = declared.get(name)
        if one is not None and one.kind != declare.MANY and len(values) != 1:
            raise Refused(400, f"query argument '{name}' cannot have a list of values")


def _check_order(step: _Step, steps: Mapping[str, _Step]) -> None:
    """Refuse an order which no dependencies between jobs can express.

    :raises Refused: 400 for such an order; 424 after an operation that was refused.
    """
    prepared = step.prepared
    assert prepared is not None
    if isinstance(prepared.operation, Job) and not prepared.submits and step.given.after:
        raise Refused(400, "this operation submits no job, so it cannot run after others")
    if prepared.plans:
        raise Refused(
            400,
            "an operation of a batch has no plan; ask for it in a request of its own, or use"
            " 'dry-run'",
        )
    for op in prepared.ops:
        if any(int(job_id) < 0 for job_id, _statuses in op.depends or []):
            raise Refused(
                400,
                "'depends' in a batch has numbers of existing jobs; 'after' of the operation names"
                " others of the batch",
            )
    before = _refused_before(step, steps)
    if before is not None:
        raise before
    earlier = step.given.after
    for name in earlier:
        if not steps[name].submits:
            raise Refused(
                400, f"operation '{name}' submits no job, so no other one can run after it"
            )


def _refused_before(step: _Step, steps: Mapping[str, _Step]) -> Refused | None:
    """Return why an operation is not carried out, when one after which it runs was refused."""
    earlier = step.given.after
    for name in earlier:
        if steps[name].refused is not None:
            return Refused(424, f"operation '{name}', after which it would run, was refused")
    return None


def _nothing_done(refused: Sequence[_Step]) -> Refused:
    """Make the answer to a batch of which nothing is carried out."""
    first = refused[0]
    assert first.refused is not None
    others = len(refused) - 1
    more = "" if not others else f" So {'is one other' if others == 1 else f'are {others} others'}."
    return Refused(
        first.refused.status,
        f"{first.given} is refused: {first.refused}.{more} Nothing was changed.",
        headers=first.refused.headers,
    )
