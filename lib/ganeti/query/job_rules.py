"""Filter rules of the job queue: their syntax, and which jobs their predicates match.

A rule has a list of predicates, each a pair of a kind and a filter of the query language in its
list form (:mod:`ganeti.query.filter`). A rule applies to a job if *all* predicates match:

=========== ======================================================================================
``jobid``   field ``id``; the value ``"watermark"`` stands for the highest job ID when the rule was
            made
``opcode``  parameters of an opcode by name, including ``OP_ID``; ``a.b`` is ``b`` inside ``a``;
            matches if it matches one opcode of the job
``reason``  ``source``, ``reason`` and ``timestamp`` (nanoseconds); matches if it matches one
            entry of the reason trails
=========== ======================================================================================

In a query, an object whose value is missing matches, so that nothing is hidden. A rule must not
delay other jobs: a comparison with a parameter which the opcode does not have, or whose value has
another type, is neither true nor false, and a filter whose result depends on it does not match
(``["!=", "instance_name", "web1"]`` does not match jobs without an instance).

The configuration checks rules with :func:`check_rule`; the job queue applies them to jobs
(:mod:`ganeti.jqueue.filters`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import job as const
from ganeti.constants.query import KIND_OTHER
from ganeti.query import filter as query_filter
from ganeti.query.field import JOB_ID, STRICT, UNAVAIL, Field, Resource

JOBID = "jobid"
OPCODE = "opcode"
REASON = "reason"

WATERMARK = "watermark"

_REASON_FIELDS = ("source", "reason", "timestamp")

#: Tells whether a rule applies to the job with this ID and these opcodes (parameters and
#: ``OP_ID``).
Matches = Callable[[int, Sequence[Mapping[str, Any]]], bool]

# Tests the part of a job to which a predicate refers; None if the result is unknown.
_Judge = Callable[[Any], "bool | None"]


def check_action(action: Any) -> None:
    """Check the action of a rule.

    :raises errors.ParameterError: it is not an action.
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
    """Check all parts of a rule.

    :raises errors.ParameterError: a part is wrong; the message names it.
    """
    if isinstance(priority, bool) or not isinstance(priority, int) or priority < 0:
        raise errors.ParameterError(
            f"the priority of a filter rule must be a number from 0 upwards, not {priority!r}"
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
    """Return checked predicates as they are stored, with ``==`` for the older ``=``."""
    return [[kind, _normalised(node)] for kind, node in predicates]


def _normalised(node: Sequence[Any]) -> list[Any]:
    op, *args = node
    if op in (query_filter.OP_AND, query_filter.OP_OR, query_filter.OP_NOT):
        return [op, *map(_normalised, args)]
    return [query_filter.OP_EQUAL if op == query_filter.OP_EQUAL_LEGACY else op, *args]


def compile_predicates(predicates: Any, watermark: int) -> Matches:
    """Check and compile predicates; an empty list matches every job.

    :param watermark: the highest job ID when the rule was made.
    :raises errors.ParameterError: a predicate is wrong; the message names the part.
    """
    judges: list[Matches] = []
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


def _about_id(node: Any, watermark: int) -> Matches:
    def field(name: str) -> Field | None:
        return (
            Field(name, name, KIND_OTHER, "", lambda view, job_id: job_id, compare=JOB_ID)
            if name == "id"
            else None
        )

    judge = _compile(node, field, 0, lambda value: watermark if value == WATERMARK else value)
    return lambda job_id, ops: judge(job_id) is True


def _about_opcodes(node: Any, watermark: int) -> Matches:
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


def _about_reasons(node: Any, watermark: int) -> Matches:
    def field(name: str) -> Field | None:
        if name not in _REASON_FIELDS:
            return None
        place = _REASON_FIELDS.index(name)
        return Field(name, name, KIND_OTHER, "", lambda view, entry: entry[place])

    judge = _compile(node, field, 0, _as_it_is)
    return lambda job_id, ops: any(judge(entry) is True for entry in reasons(ops))


_KINDS: dict[str, Callable[[Any, int], Matches]] = {
    JOBID: _about_id,
    OPCODE: _about_opcodes,
    REASON: _about_reasons,
}


def reasons(ops: Iterable[Mapping[str, Any]]) -> Iterable[Sequence[Any]]:
    """Iterate over the entries of reason trails; other programs may have written other values."""
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
    """Compile one filter; comparisons are those of queries."""
    if isinstance(node, (list, tuple)) and node and isinstance(node[0], str):
        op, *args = node
        if op in (query_filter.OP_AND, query_filter.OP_OR, query_filter.OP_NOT):
            if depth >= query_filter.MAX_DEPTH:
                raise errors.ParameterError(
                    f"filter is nested more than {query_filter.MAX_DEPTH} deep"
                )
            if op == query_filter.OP_NOT and len(args) != 1:
                raise errors.ParameterError(
                    f"filter operator '!' takes 1 argument, not {len(args)}"
                )
            parts = [_compile(arg, field, depth + 1, value_of) for arg in args]
            if op == query_filter.OP_NOT:
                return _not(parts[0])
            return _join(parts, decisive=op == query_filter.OP_OR)
        if len(args) == 2:
            node = [op, args[0], value_of(args[1])]
        return _comparison(node, field)
    raise errors.ParameterError(
        f"filter must be a list beginning with an operator, not {node!r:.80}"
    )


def _comparison(node: Sequence[Any], field: Callable[[str], Field | None]) -> _Judge:
    name = node[1] if len(node) > 1 else None
    found = field(name) if isinstance(name, str) and name else None
    condition = query_filter.compile_filter(
        node, Resource("job", [] if found is None else [found], lambda view: [])
    )
    # compile_filter() has refused a field which does not exist.
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
    """Join parts: a true part decides *or*, a false one *and*; otherwise one may be unknown."""

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
