"""One request while it is served: its arguments, checked against the declaration.

Every function of a resource has a :class:`Call` as its argument. Query and body are checked here,
so these functions can rely on the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti import errors, ht
from ganeti.http.messages import Refused
from ganeti.opcodes.base import OpCode
from ganeti.rapi import declare
from ganeti.rapi.declare import DirectChange, Field, Job, Operation, Query, Read
from ganeti.rapi.events import Hub
from ganeti.rapi.master import Master
from ganeti.utils import clock, suggest
from ganeti.wire import json

_USER_SOURCE: Final = "gnt:user"
_LIBRARY_SOURCE: Final = "gnt:library:rlib2:"


class State(NamedTuple):
    """The parts of the server which resources about the server need.

    :ivar description: makes the OpenAPI description.
    :ivar page: makes the documentation in HTML.
    :ivar arguments: names of the query arguments of all operations.
    """

    hub: Hub
    description: Callable[[], dict[str, Any]]
    page: Callable[[], str]
    arguments: frozenset[str]


class Call:
    """A checked request for an operation.

    :ivar uri: values of the names in the path.
    :ivar query: every declared argument by its name, converted.
    :ivar body: the body, checked; an empty dictionary when there is none.
    :ivar given: names of the query arguments which the client sent.
    :ivar etag: the operation sets it to the tag of the state of the object.
    """

    def __init__(
        self,
        master: Master,
        handler: str,
        operation: Operation,
        uri: Mapping[str, str],
        query: Mapping[str, list[str]],
        body: Any,
        *,
        headers: Mapping[str, str],
        state: State,
    ) -> None:
        self.master = master
        self.handler = handler
        self.operation = operation
        self.uri = uri
        self.headers = headers
        self.state = state
        self.given = frozenset(query)
        declared = declare.arguments(operation)
        self._require_known([one.name for one in declared])
        self.query = {one.name: _value(one, query.get(one.name)) for one in declared}
        self.etag = ""
        self._reason = query.get(declare.REASON.name, [""])[0]
        fields = operation.fields
        self.body: Any = body
        if isinstance(operation, Read | DirectChange) and isinstance(fields, Mapping):
            self.body = check_fields(body, fields)
        elif isinstance(operation, DirectChange) and isinstance(fields, ht.Type):
            _require_type(body, fields)

    def _require_known(self, declared: Sequence[str]) -> None:
        """Refuse arguments which do not exist, and a dry run of an operation that has none.

        Known clients send arguments of other operations, which have no effect. A mistyped one must
        not be ignored: ``dryrun=1`` would make the change.

        :raises Refused: 400 with the name of the argument.
        """
        for name in sorted(self.given.difference(declared)):
            if name not in self.state.arguments:
                hint = suggest.did_you_mean(name, sorted(self.state.arguments))
                raise Refused(
                    400,
                    f"there is no query argument '{name[:100]}'{'.' if hint else ''}{hint}",
                )
            if name == declare.DRY_RUN.name and isinstance(self.operation, DirectChange):
                raise Refused(400, "this operation has no dry run; nothing was changed")

    def opcodes(self) -> list[OpCode]:
        """Return the checked opcodes of the request, with their reason.

        :raises Refused: 400 with what is wrong with the request.
        """
        job = self.operation
        assert isinstance(job, Job)
        try:
            built = self._built(job)
            for op in built:
                op.validate()
        except errors.OpPrereqError as err:
            raise Refused(400, f"invalid request: {err}") from err
        except errors.ParameterError as err:
            raise Refused(400, str(err)) from err
        for op in built:
            op.reason = [*(op.reason or ()), *self.reason()]
            if self.query.get(declare.DRY_RUN.name):
                op.dry_run = True
        return built

    def user_reason(self) -> list[list[Any]]:
        """Return the reason of the user, as a reason trail."""
        return [[_USER_SOURCE, self._reason, clock.now_ns()]] if self._reason else []

    def reason(self) -> list[list[Any]]:
        """Return the reason trail of the request."""
        return [*self.user_reason(), [_LIBRARY_SOURCE + self.handler, "", clock.now_ns()]]

    async def submit(self) -> int:
        """Submit the opcodes of the request as one job; return its number.

        :raises Refused: 400 with what is wrong with the request.
        :raises errors.GenericError: the master refused the job, or does not run.
        """
        return await self.master.submit(self.opcodes())

    def fixed_params(self, job: Job) -> dict[str, Any]:
        """Return the parameters which path, query and resource decide."""
        found = dict(job.fixed)
        for name, value in self.uri.items():
            param = job.uri.get(name, name)
            if param in job.opcode.PARAMS and param not in found:
                found[param] = value
        for one in job.query:
            if one.param and (one.name in self.given or one.default is not None):
                found[one.param] = self.query[one.name]
        return found

    def _built(self, job: Job) -> list[OpCode]:
        fields = job.fields
        if isinstance(fields, ht.Type):
            _require_type(self.body, fields)
            assert job.build is not None
            return job.build(self, {})
        takes_body = job.body or bool(fields)
        given = self.body
        if given is not None and not isinstance(given, dict):
            if takes_body:
                raise Refused(400, "the body must be a JSON object")
            # Known clients send the tags here as well as in the query.
            given = None
        body = dict(given or {})
        if not takes_body:
            for name in body:
                if name not in declare.BODY_COMMON:
                    raise Refused(400, f"this resource takes no parameter '{name}' in a body")
        if job.build is None:
            return [build_opcode(job, body, self.fixed_params(job))]
        if fields is None:
            return job.build(self, body)
        common = {name: body.pop(name) for name in declare.BODY_COMMON if name in body}
        built = job.build(self, check_fields(body, fields))
        for number, op in enumerate(built):
            for name, value in common.items():
                # Later opcodes of a job run after the first one in any case.
                if name != "depends" or number == 0:
                    setattr(op, name, value)
        return built


def build_opcode(job: Job, body: dict[str, Any], fixed: Mapping[str, Any]) -> OpCode:
    """Make an opcode from a body and from fixed parameters.

    :raises Refused: the body sets a parameter which it may not set.
    :raises errors.OpPrereqError: the opcode has no such parameter.
    """
    for name, param in job.rename.items():
        if name in body and name != param:
            if param in body:
                raise Refused(
                    400, f"'{name}' and '{param}' are the same parameter; give one of them"
                )
            body[param] = body.pop(name)
    for name in body:
        if name in job.forbidden:
            raise Refused(403, f"parameter '{name}' cannot be changed through this interface")
        if name in fixed or name in job.static_params():
            raise Refused(400, f"parameter '{name}' cannot be given in the body")
        known = name in job.opcode.PARAMS or name in job.opcode.OLD_FLAGS
        if not known or name == "reason" and "reason" not in job.rename:
            raise Refused(400, f"the body has an unknown parameter '{name}'")
    if job.adjust is not None:
        job.adjust(body)
    return job.opcode(**body, **fixed)


def check_fields(body: Any, fields: Mapping[str, Field]) -> dict[str, Any]:
    """Check a body, and fill in its defaults.

    :raises Refused: it is not an object, or a member is unknown, missing or of another type.
    """
    if body is None:
        body = {}
    if not isinstance(body, dict):
        raise Refused(400, "the body must be a JSON object")
    unknown = sorted(set(body) - set(fields))
    if unknown:
        raise Refused(400, f"the body has an unknown parameter '{unknown[0]}'")
    found = {}
    for name, field in fields.items():
        if name in body:
            if not field.type.check(body[name]):
                raise Refused(
                    400,
                    f"parameter '{name}' must be {ht.describe(field.type)},"
                    f" not {_short(body[name])}",
                )
            found[name] = body[name]
        elif field.required:
            raise Refused(400, f"required parameter '{name}' is missing")
        else:
            found[name] = field.default
    return found


def _require_type(body: Any, wanted: ht.Type) -> None:
    if not wanted.check(body):
        raise Refused(400, f"the body must be {ht.describe(wanted)}, not {_short(body)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


def _value(one: Query, given: Sequence[str] | None) -> Any:
    if one.kind == declare.MANY:
        return list(given or ())
    if not given:
        if one.required:
            raise Refused(400, f"query argument '{one.name}' is missing")
        return one.default
    text = given[0]
    if one.kind == declare.TEXT:
        if one.choices and text not in one.choices:
            raise Refused(
                400,
                f"query argument '{one.name}' must be one of "
                f"{', '.join(one.choices)}, not '{text[:100]}'",
            )
        return text
    if one.kind == declare.WORDS:
        return [word for word in text.split(",") if word]
    if one.kind == declare.VALUES:
        return _json_list(one, text)
    try:
        number = int(text) if len(text) < 20 else None
    except ValueError:
        number = None
    if number is None:
        raise Refused(400, f"query argument '{one.name}' must be a number, not '{text[:100]}'")
    return number if one.kind == declare.NUMBER else bool(number)


def _json_list(one: Query, text: str) -> list[Any]:
    try:
        found = json.loads_strict(text)
    except errors.ParseError as err:
        raise Refused(400, f"cannot parse query argument '{one.name}': {err}") from err
    if not isinstance(found, list):
        raise Refused(400, f"query argument '{one.name}' must be a JSON list, not {_short(found)}")
    return found
