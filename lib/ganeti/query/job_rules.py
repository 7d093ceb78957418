"""What a filter rule of the job queue may say, and which jobs its predicates mean.

A rule has a list of predicates, each a pair of a kind and a filter of the query language in its
list form (:mod:`ganeti.query.filter`). A rule means a job for which *all* predicates hold:

=========== ======================================================================================
``jobid``   field ``id``; the value ``"watermark"`` stands for the highest job id when the rule was
            made
``opcode``  parameters of an opcode by name, ``OP_ID`` among them; ``a.b`` is ``b`` inside ``a``;
            holds when it holds for one opcode of the job
``reason``  ``source``, ``reason`` and ``timestamp`` (nanoseconds); holds when it holds for one
            entry of the reason trails
=========== ======================================================================================

A query lets objects through of which it knows too little, so that nothing is hidden. A rule must
not hold up jobs it does not mean: a comparison with a parameter which the opcode does not have, or
whose value is of another type, is neither true nor false, and what depends on it does not hold
(``["!=", "instance_name", "web1"]`` is not about jobs without an instance).

The configuration checks rules with :func:`check_rule`; the job queue tries them on jobs
(:mod:`ganeti.jqueue.filters`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import job as const
from ganeti.constants.query import KIND_OTHER
from ganeti.query import filter as filter_room
from ganeti.query.field import JOB_ID, STRICT, UNAVAIL, Field, Resource

JOBID = "jobid"
OPCODE = "opcode"
REASON = "reason"

WATERMARK = "watermark"

_REASON_FIELDS = ("source", "reason", "timestamp")

#: Whether a rule means the job with this id and these opcodes (their parameters with ``OP_ID``).
Meant = Callable[[int, Sequence[Mapping[str, Any]]], bool]

# What of a job one predicate looks at; None where the answer cannot be known.
_Judge = Callable[[Any], "bool | None"]


def check_action(action: Any) -> None:
    """Refuse what is no action.

    :raises errors.ParameterError: says what is wrong.
    """
    if isinstance(action, str) and action in const.FILTER_ACTIONS:
        return
    if (
        isinstance(action, (list, tuple))
        and len(action) == 2
        and action[0] == const.FILTER_RATE_LIMIT
    ):
        if isinstance(action[1], bool) or not isinstance(action[1], int) or action[1] < 1:
            raise errors.ParameterError(
                f"{const.FILTER_RATE_LIMIT} takes a number of jobs, at least 1, not {action[1]!r}"
            )
        return
    raise errors.ParameterError(
        f"there is no filter action {action!r}. Known are {', '.join(const.FILTER_ACTIONS)} and"
        f" {const.FILTER_RATE_LIMIT} with a number."
    )


def check_rule(priority: Any, predicates: Any, action: Any, reason: Any) -> None:
    """Refuse a rule which could not be applied.

    :raises errors.ParameterError: says what is wrong.
    """
    if isinstance(priority, bool) or not isinstance(priority, int) or priority < 0:
        raise errors.ParameterError(
            f"priority of a filter rule must be a number from 0 up, not {priority!r}"
        )
    check_action(action)
    compile_predicates(predicates, 0)
    for entry in _listed(reason, "reason trail"):
        if not (
            isinstance(entry, (list, tuple))
            and len(entry) == 3
            and isinstance(entry[0], str)
            and isinstance(entry[1], str)
            and isinstance(entry[2], int)
            and not isinstance(entry[2], bool)
        ):
            raise errors.ParameterError(
                f"entry of a reason trail must be [source, reason, nanoseconds], not {entry!r:.200}"
            )


def normalised(predicates: Sequence[Any]) -> list[Any]:
    """Checked predicates with ``==`` for the older ``=``, as they are stored and shown."""
    return [[kind, _normalised(node)] for kind, node in predicates]


def _normalised(node: Sequence[Any]) -> list[Any]:
    op, *args = node
    if op in (filter_room.OP_AND, filter_room.OP_OR, filter_room.OP_NOT):
        return [op, *map(_normalised, args)]
    return [filter_room.OP_EQUAL if op == filter_room.OP_EQUAL_LEGACY else op, *args]


def compile_predicates(predicates: Any, watermark: int) -> Meant:
    """Check predicates and make them ready; no predicates mean every job.

    :raises errors.ParameterError: names the offending part.
    """
    judges: list[Meant] = []
    for predicate in _listed(predicates, "predicates"):
        if not isinstance(predicate, (list, tuple)) or len(predicate) != 2:
            raise errors.ParameterError(
                f"a predicate must be a pair of kind and filter, not {predicate!r:.200}"
            )
        kind, node = predicate
        make = _KINDS.get(kind) if isinstance(kind, str) else None
        if make is None:
            raise errors.ParameterError(
                f"there is no kind of predicate {kind!r:.80}. Known are {', '.join(_KINDS)}."
            )
        judges.append(make(node, watermark))
    return lambda job_id, ops: all(judge(job_id, ops) for judge in judges)


def _listed(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise errors.ParameterError(f"{what} must be a list, not {value!r:.200}")
    return value


def _about_id(node: Any, watermark: int) -> Meant:
    def field(name: str) -> Field | None:
        return (
            Field(name, name, KIND_OTHER, "", lambda view, job_id: job_id, compare=JOB_ID)
            if name == "id"
            else None
        )

    judge = _compile(node, field, 0, lambda value: watermark if value == WATERMARK else value)
    return lambda job_id, ops: judge(job_id) is True


def _about_opcodes(node: Any, watermark: int) -> Meant:
    def field(name: str) -> Field:
        path = name.split(".")

        def get(view: Any, op: Any) -> Any:
            value = op
            for part in path:
                if not isinstance(value, Mapping) or part not in value:
                    return UNAVAIL
                value = value[part]
            return UNAVAIL if value is None else value

        return Field(name, name, KIND_OTHER, "", get, compare=STRICT)

    judge = _compile(node, field, 0, _as_it_is)
    return lambda job_id, ops: any(judge(op) is True for op in ops)


def _about_reasons(node: Any, watermark: int) -> Meant:
    def field(name: str) -> Field | None:
        if name not in _REASON_FIELDS:
            return None
        place = _REASON_FIELDS.index(name)
        return Field(name, name, KIND_OTHER, "", lambda view, entry: entry[place])

    judge = _compile(node, field, 0, _as_it_is)
    return lambda job_id, ops: any(judge(entry) is True for entry in _reasons(ops))


_KINDS: dict[str, Callable[[Any, int], Meant]] = {
    JOBID: _about_id,
    OPCODE: _about_opcodes,
    REASON: _about_reasons,
}


def _reasons(ops: Iterable[Mapping[str, Any]]) -> Iterable[Sequence[Any]]:
    """Entries of the reason trails; what another program wrote into a job file may be no trail."""
    for op in ops:
        trail = op.get("reason")
        if isinstance(trail, (list, tuple)):
            yield from (
                entry for entry in trail if isinstance(entry, (list, tuple)) and len(entry) == 3
            )


def _as_it_is(value: Any) -> Any:
    return value


def _compile(
    node: Any, field: Callable[[str], Field | None], depth: int, value_of: Callable[[Any], Any]
) -> _Judge:
    """One filter; single comparisons are those of queries."""
    if isinstance(node, (list, tuple)) and node and isinstance(node[0], str):
        op, *args = node
        if op in (filter_room.OP_AND, filter_room.OP_OR, filter_room.OP_NOT):
            if depth >= filter_room.MAX_DEPTH:
                raise errors.ParameterError(
                    f"filter is nested more than {filter_room.MAX_DEPTH} deep"
                )
            if op == filter_room.OP_NOT and len(args) != 1:
                raise errors.ParameterError(
                    f"filter operator '!' takes 1 argument, not {len(args)}"
                )
            parts = [_compile(arg, field, depth + 1, value_of) for arg in args]
            if op == filter_room.OP_NOT:
                return _not(parts[0])
            return _join(parts, decisive=op == filter_room.OP_OR)
        if len(args) == 2:
            node = [op, args[0], value_of(args[1])]
        return _comparison(node, field)
    raise errors.ParameterError(
        f"filter must be a list beginning with an operator, not {node!r:.80}"
    )


def _comparison(node: Sequence[Any], field: Callable[[str], Field | None]) -> _Judge:
    name = node[1] if len(node) > 1 else None
    found = field(name) if isinstance(name, str) and name else None
    condition = filter_room.compile_filter(
        node, Resource("job", [] if found is None else [found], lambda view: [])
    )
    # A field that does not exist was refused just now.
    assert found is not None and condition is not None
    get = found.get

    def judge(item: Any) -> bool | None:
        if get(None, item) is UNAVAIL:
            return None
        try:
            return condition.matches(None, item)
        except errors.ParameterError:
            return None  # of another type

    return judge


def _not(part: _Judge) -> _Judge:
    def judge(item: Any) -> bool | None:
        verdict = part(item)
        return None if verdict is None else not verdict

    return judge


def _join(parts: Sequence[_Judge], *, decisive: bool) -> _Judge:
    """*or* is decided by a true part, *and* by a false one; an unknown part leaves it open."""

    def judge(item: Any) -> bool | None:
        result: bool | None = not decisive
        for part in parts:
            verdict = part(item)
            if verdict is decisive:
                return decisive
            if verdict is None:
                result = None
        return result

    return judge
