"""Checks of a request against its declaration, and the opcodes which are made from it.

Query and body are checked before an operation is run, so it can rely on the declaration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ganeti import errors, ht
from ganeti.http.messages import Refused
from ganeti.opcodes.base import OpCode
from ganeti.rapi import declare
from ganeti.rapi.call import Call, State
from ganeti.rapi.declare import DirectChange, Field, Job, Operation, Query
from ganeti.utils import author, suggest
from ganeti.utils.text import brief
from ganeti.wire import json


def published_names(query: Mapping[str, list[str]], known: Iterable[str]) -> dict[str, list[str]]:
    """Return the arguments of a query by their published names.

    A hyphen and an underscore mean the same: the published table has both (``dry-run``,
    ``no_remember``), and known clients mix them up.

    :param known: the names of all arguments.
    :raises Refused: 400 when an argument is given in both spellings, with different values.
    """
    spelled = {_plain(name): name for name in known}
    found: dict[str, list[str]] = {}
    for given, values in query.items():
        name = spelled.get(_plain(given), given)
        if found.setdefault(name, values) != values:
            raise Refused(400, f"query argument '{name}' is given twice, with different values")
    return found


def _plain(name: str) -> str:
    return name.replace("-", "_")


def query_values(
    operation: Operation, query: Mapping[str, list[str]], state: State
) -> dict[str, Any]:
    """Return every declared argument by its name, converted.

    :param query: as :func:`published_names` returns it.
    :raises Refused: 400 with what is wrong with the arguments.
    """
    declared = declare.arguments(operation)
    names = {one.name for one in declared}
    for name in sorted(query.keys() - names):
        _refuse_argument(operation, name, state.arguments)
    return {one.name: _value(one, query.get(one.name)) for one in declared}


def _refuse_argument(operation: Operation, name: str, known: frozenset[str]) -> None:
    """Refuse an argument which does not exist, and a dry run or plan where there is none.

    Known clients send arguments of other operations, which have no effect. A mistyped one must not
    be ignored: ``dryrun=1`` would make the change. A request which only reads ignores an argument
    that resembles none, as the one with which browsers get past a cache.

    :param name: an argument which the operation does not declare.
    :raises Refused: 400 with the name of the argument.
    """
    if name not in known:
        hint = suggest.did_you_mean(name, sorted(known))
        if hint or declare.changes(operation):
            raise Refused(
                400, f"there is no query argument '{name[:100]}'{'.' if hint else ''}{hint}"
            )
    if name == declare.DRY_RUN.name and isinstance(operation, DirectChange):
        raise Refused(400, "this operation has no dry run; nothing was changed")
    if name == declare.PLAN.name and declare.changes(operation):
        raise Refused(
            400,
            "this operation has no plan, because it needs no job; nothing was changed. An opcode in"
            " a body takes the parameter 'plan'.",
        )


def checked_body(operation: Operation, body: Any) -> Any:
    """Return the body of an operation; that of a job is checked by :func:`opcodes`.

    :raises Refused: 400 with what is wrong with the body.
    """
    fields = operation.fields
    if isinstance(operation, Job) or fields is None:
        return body
    if isinstance(fields, Mapping):
        return check_fields(body, fields)
    _require_type(body, fields)
    return body


def opcodes(call: Call, job: Job) -> list[OpCode]:
    """Return the checked opcodes of a request, with their reason.

    :raises Refused: 400 with what is wrong with the request.
    """
    try:
        built = _built(call, job)
        for op in built:
            op.validate()
    except errors.OpPrereqError as err:
        raise Refused(400, f"invalid request: {err}") from err
    except errors.ParameterError as err:
        raise Refused(400, str(err)) from err
    for op in built:
        op.reason = [*author.without_persons(op.reason), *call.reason()]
        if call.query.get(declare.DRY_RUN.name):
            op.dry_run = True
        if call.query.get(declare.PLAN.name):
            op.dry_run = op.plan = True
    return built


def fixed_params(call: Call, job: Job) -> dict[str, Any]:
    """Return the parameters which path, query and resource decide."""
    found = dict(job.fixed)
    for name, value in call.uri.items():
        param = job.uri.get(name, name)
        if param in job.opcode.PARAMS and param not in found:
            found[param] = value
    for one in job.query:
        if one.param and (one.name in call.given or one.default is not None):
            found[one.param] = call.query[one.name]
    return found


def _built(call: Call, job: Job) -> list[OpCode]:
    fields = job.fields
    given = call.body
    if isinstance(fields, ht.Type):
        _require_type(given, fields)
        assert job.build is not None
        return job.build(call, {})
    takes_body = job.body or bool(fields)
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
        return [build_opcode(job, body, fixed_params(call, job))]
    if fields is None:
        return job.build(call, body)
    common = {name: body.pop(name) for name in declare.BODY_COMMON if name in body}
    built = job.build(call, check_fields(body, fields))
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
            raise _unknown(name, job.opcode.PARAMS)
    if job.adjust is not None:
        job.adjust(body)
    return job.opcode(**body, **fixed)


def _unknown(name: str, known: Iterable[str]) -> Refused:
    similar = suggest.did_you_mean(name, known)
    return Refused(
        400, f"the body has an unknown parameter '{name}'{'.' if similar else ''}{similar}"
    )


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
        raise _unknown(unknown[0], fields)
    found = {}
    for name, field in fields.items():
        if name in body:
            if not field.type.check(body[name]):
                raise Refused(
                    400,
                    f"parameter '{name}' must be {ht.describe(field.type)},"
                    f" not {brief(body[name], 100)}",
                )
            found[name] = body[name]
        elif field.required:
            raise Refused(400, f"required parameter '{name}' is missing")
        else:
            found[name] = field.default
    return found


def _require_type(body: Any, wanted: ht.Type) -> None:
    if not wanted.check(body):
        raise Refused(400, f"the body must be {ht.describe(wanted)}, not {brief(body, 100)}")


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
        raise Refused(
            400, f"query argument '{one.name}' must be a JSON list, not {brief(found, 100)}"
        )
    return found
