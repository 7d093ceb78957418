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

Each job is compared with all rules while the queue is locked. So all rules together have at most
:data:`MAX_CONDITIONS` conditions, and a job at most :data:`MAX_PARTS` parts which they look at.

The configuration checks rules with :func:`check_rule`; the job queue applies them to jobs
(:mod:`ganeti.jqueue.filters`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import job as const
from ganeti.constants.query import KIND_OTHER
from ganeti.query import filter as query_filter
from ganeti.query.field import JOB_ID, STRICT, UNAVAIL, Field, Resource
from ganeti.utils import linear_re
from ganeti.utils.text import brief

JOBID = "jobid"
OPCODE = "opcode"
REASON = "reason"

WATERMARK = "watermark"

#: The largest number of conditions and operators in all rules together.
MAX_CONDITIONS = 2_000
#: The largest number of opcodes and entries of reason trails in a job.
MAX_PARTS = 5_000

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
                f"{const.FILTER_RATE_LIMIT} takes a number of jobs, at least 1, not"
                f" {brief(action[1])}"
            )
        return
    raise errors.ParameterError(
        f"there is no filter action {brief(action)}. Known are"
        f" {', '.join(const.FILTER_ACTIONS)} and {const.FILTER_RATE_LIMIT} with a number."
    )


def check_rule(priority: Any, predicates: Any, action: Any, reason: Any) -> None:
    """Check all parts of a rule.

    :raises errors.ParameterError: a part is wrong; the message names it.
    """
    if isinstance(priority, bool) or not isinstance(priority, int) or priority < 0:
        raise errors.ParameterError(
            f"the priority of a filter rule must be a number from 0 upwards, not {brief(priority)}"
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
                "entry of a reason trail must be [source, reason, nanoseconds], not"
                f" {brief(entry, 200)}"
            )


def count_conditions(predicates: Any) -> int:
    """Return the number of conditions and operators in the predicates of a rule.

    :raises errors.ParameterError: they are more than all rules may have together.
    """
    return query_filter.check_size(predicates, MAX_CONDITIONS)


def check_rules(rules: Iterable[Any]) -> None:
    """Check the size of all rules together.

    :param rules: the predicates of each rule.
    :raises errors.ParameterError: it is above :data:`MAX_CONDITIONS`.
    """
    count = sum(map(count_conditions, rules))
    if count > MAX_CONDITIONS:
        raise errors.ParameterError(
            f"the filter rules together would have {count} conditions; {MAX_CONDITIONS} are"
            " allowed, because each job is compared with all of them"
        )


def check_parts(ops: Sequence[Mapping[str, Any]]) -> None:
    """Check the size of a job as the rules see it.

    :raises errors.ParameterError: it has too many opcodes and entries of reason trails.
    """
    trails = (op.get("reason") for op in ops)
    count = len(ops) + sum(len(one) for one in trails if isinstance(one, (list, tuple)))
    if count > MAX_PARTS:
        raise errors.ParameterError(
            f"the job has {count} opcodes and reasons; {MAX_PARTS} are allowed. Submit several jobs"
            " instead."
        )


def normalised(predicates: Sequence[Any]) -> list[Any]:
    """Return checked predicates as they are stored, with ``==`` for the older ``=``."""
    return [[kind, _normalised(node)] for kind, node in predicates]


def _normalised(node: Sequence[Any]) -> list[Any]:
    op, *args = node
    if op in (query_filter.OP_AND, query_filter.OP_OR, query_filter.OP_NOT):
        return [op, *map(_normalised, args)]
    return [query_filter.OP_EQUAL if op == query_filter.OP_EQUAL_LEGACY else op, *args]


def compile_predicates(
    predicates: Any, watermark: int, budget: linear_re.Budget | None = None
) -> Matches:
    """Check and compile predicates; an empty list matches every job.

    :param watermark: the highest job ID when the rule was made.
    :param budget: what the regular expressions of all rules share.
    :raises errors.ParameterError: a predicate is wrong or too large; the message names the part.
    """
    judges: list[Matches] = []
    budget = budget or linear_re.Budget()
    count_conditions(predicates)
    for predicate in _listed(predicates, "predicates"):
        if not isinstance(predicate, (list, tuple)) or len(predicate) != 2:
            raise errors.ParameterError(
                f"a predicate must be a pair of kind and filter, not {brief(predicate, 200)}"
            )
        kind, node = predicate
        make = _KINDS.get(kind) if isinstance(kind, str) else None
        if make is None:
            raise errors.ParameterError(
                f"there is no kind of predicate {brief(kind)}. Known are {', '.join(_KINDS)}."
            )
        judges.append(make(node, watermark, budget))
    return lambda job_id, ops: all(judge(job_id, ops) for judge in judges)


def _listed(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise errors.ParameterError(f"{what} must be a list, not {brief(value, 200)}")
    return value


def _about_id(node: Any, watermark: int, budget: linear_re.Budget) -> Matches:
    def field(name: str) -> Field | None:
        return (
            Field(name, name, KIND_OTHER, "", lambda view, job_id: job_id, compare=JOB_ID)
            if name == "id"
            else None
        )

    judge = _Compiler(
        field, lambda value: watermark if value == WATERMARK else value, budget
    ).compiled(node)
    return lambda job_id, ops: judge(job_id) is True


def _about_opcodes(node: Any, watermark: int, budget: linear_re.Budget) -> Matches:
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

    judge = _Compiler(field, _as_it_is, budget).compiled(node)
    return lambda job_id, ops: any(judge(op) is True for op in ops)


def _about_reasons(node: Any, watermark: int, budget: linear_re.Budget) -> Matches:
    def field(name: str) -> Field | None:
        if name not in _REASON_FIELDS:
            return None
        place = _REASON_FIELDS.index(name)
        return Field(name, name, KIND_OTHER, "", lambda view, entry: entry[place])

    judge = _Compiler(field, _as_it_is, budget).compiled(node)
    return lambda job_id, ops: any(judge(entry) is True for entry in reasons(ops))


_KINDS: dict[str, Callable[[Any, int, linear_re.Budget], Matches]] = {
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


class _Compiler(NamedTuple):
    """Compiles one filter; comparisons are those of queries.

    :ivar field: returns the field with a name.
    :ivar value_of: returns the value which stands for a value of the filter.
    """

    field: Callable[[str], Field | None]
    value_of: Callable[[Any], Any]
    budget: linear_re.Budget

    def compiled(self, node: Any, depth: int = 0) -> _Judge:
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
                parts = [self.compiled(arg, depth + 1) for arg in args]
                if op == query_filter.OP_NOT:
                    return _not(parts[0])
                return _join(parts, decisive=op == query_filter.OP_OR)
            if len(args) == 2:
                node = [op, args[0], self.value_of(args[1])]
            return self._comparison(node)
        raise errors.ParameterError(
            f"filter must be a list beginning with an operator, not {brief(node)}"
        )

    def _comparison(self, node: Sequence[Any]) -> _Judge:
        name = node[1] if len(node) > 1 else None
        found = self.field(name) if isinstance(name, str) and name else None
        condition = query_filter.compile_with(
            node,
            Resource("job", [] if found is None else [found], lambda view: []),
            self.budget,
        )
        # compile_with() has refused a field which does not exist.
        assert found is not None
        get = found.get

        def judge(item: Any) -> bool | None:
            if get(None, item) is UNAVAIL:
                return None
            try:
                return condition.matches(None, item)
            except errors.ParameterError:
                return None  # of another type, or too much work

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
