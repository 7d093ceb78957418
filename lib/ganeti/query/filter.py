"""The filter language of queries.

A filter has two equivalent forms. Programs send lists (the JSON form)::

    ["&", ["?", "admin_up"], [">", "be/maxmem", 64]]

and users write text, which :func:`parse` converts to the JSON form::

    admin_up and be/maxmem > 64 and not name =* "web*"

:func:`compile_filter` checks a JSON form against the fields of a resource and compiles it for use
on objects. Rules (Ganeti design 2.2, *Query*, *Filters*): an object matches if the field has no
value; fields which need live data are not evaluated while there is none; host names are compared
by components, so ``web1`` matches ``web1.example.com``, but a name which an object has matches this
object alone; to compare a number with text is an error.

Filters come from users of the REST interface, too. So their size is limited before they are
compiled (:func:`check_size`), regular expressions are those of :mod:`ganeti.utils.linear_re` and
share one budget, and the work of a filter with all objects is counted
(:mod:`ganeti.utils.effort`).

pyparsing is slow to import and only the text form needs it, so it is imported when the first text
is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants import query as query_c
from ganeti.query.field import HOSTNAME, JOB_ID, STRICT, TIMESTAMP, Field, Mark, Resource
from ganeti.query.view import prefixes
from ganeti.utils import linear_re, suggest
from ganeti.utils.digits import is_number
from ganeti.utils.effort import Effort
from ganeti.utils.text import brief, glob_to_regex

if TYPE_CHECKING:
    import pyparsing

OP_OR = "|"
OP_AND = "&"
OP_NOT = "!"
OP_TRUE = "?"
OP_EQUAL = "=="
OP_EQUAL_LEGACY = "="
OP_NOT_EQUAL = "!="
OP_LT = "<"
OP_LE = "<="
OP_GT = ">"
OP_GE = ">="
OP_REGEXP = "=~"
OP_CONTAINS = "=[]"


# Deeper nesting would exhaust the stack of the interpreter.
MAX_DEPTH = 100
#: The largest number of conditions and operators in a filter; a command with the names of all
#: objects of a very large cluster has half of it.
MAX_CONDITIONS = 20_000
#: The longest text form, in characters.
MAX_TEXT = 128 * 1024


# -- the JSON form -------------------------------------------------------------------------------


class Condition:
    """A compiled filter.

    :ivar field_names: every field which occurs in it.
    :ivar comparisons: how many are made for an object, at most. A choice of many names is one.
    """

    __slots__ = ("_judge", "comparisons", "field_names")

    def __init__(self, judge: _Judge, plan: _Plan) -> None:
        self._judge = judge
        self.field_names = frozenset(plan.names)
        self.comparisons = plan.comparisons

    def may_match(self, view: Any, item: Any) -> bool:
        """Return False if the object does not match with any live data."""
        return self._judge(view, item, False) is not False

    def matches(self, view: Any, item: Any) -> bool:
        """Tell whether the object matches; all live data must be present."""
        return self._judge(view, item, True) is True


# Judges return None if the result depends on live data which is not collected yet.
_Judge = Callable[[Any, Any, bool], "bool | None"]


class _Plan:
    """What is known of a filter while it is compiled."""

    __slots__ = ("budget", "comparisons", "names", "resource")

    def __init__(self, resource: Resource, budget: linear_re.Budget) -> None:
        self.resource = resource
        self.budget = budget
        self.names: set[str] = set()
        self.comparisons = 0


def check_size(qfilter: Any, most: int = MAX_CONDITIONS) -> int:
    """Return the number of conditions and operators of a filter, without compiling it.

    :param most: the largest number which is allowed.
    :raises errors.ParameterError: it has more.
    """
    count = 0
    left = [qfilter]
    while left:
        node = left.pop()
        if isinstance(node, (list, tuple)):
            count += 1
            if count + len(left) > most:
                raise errors.ParameterError(
                    f"the filter has more than {most} conditions and operators. Ask several times"
                    " with smaller filters."
                )
            left += [inner for inner in node if isinstance(inner, (list, tuple))]
    return count


def compile_filter(
    qfilter: Any, resource: Resource, effort: Effort | None = None
) -> Condition | None:
    """Check and compile a filter; without a filter (None), return None.

    :param effort: counts the work of its regular expressions.
    :raises errors.ParameterError: the filter is malformed or too large, or names an unknown field.
    """
    if qfilter is None:
        return None
    check_size(qfilter)
    return compile_with(qfilter, resource, linear_re.Budget(effort))


def compile_with(qfilter: Any, resource: Resource, budget: linear_re.Budget) -> Condition:
    """Compile a filter whose size was checked, and which is a part of something larger.

    :param budget: what its regular expressions share with the other parts.
    :raises errors.ParameterError: as for :func:`compile_filter`.
    """
    plan = _Plan(resource, budget)
    return Condition(_compile(qfilter, plan, 0), plan)


def _compile(node: Any, plan: _Plan, depth: int) -> _Judge:
    if depth > MAX_DEPTH:
        raise errors.ParameterError(f"filter is nested more than {MAX_DEPTH} deep")
    if not isinstance(node, (list, tuple)) or not node or not isinstance(node[0], str):
        raise errors.ParameterError(
            f"filter must be a list beginning with an operator, not {brief(node)}"
        )
    op, *args = node
    if op in (OP_AND, OP_OR):
        if op == OP_OR:
            quick = _compile_names(args, plan)
            if quick is not None:
                return quick
        parts = [_compile(arg, plan, depth + 1) for arg in args]
        return _all_of(parts) if op == OP_AND else _any_of(parts)
    if op == OP_NOT:
        _want_args(node, 1)
        return _not(_compile(args[0], plan, depth + 1))
    plan.comparisons += 1
    if op == OP_TRUE:
        _want_args(node, 1)
        return _leaf(_find(args[0], plan), _is_true)
    compare = _OPERATORS.get(op)
    if compare is None:
        raise errors.ParameterError(f"there is no filter operator {brief(op)}")
    _want_args(node, 2)
    field = _find(args[0], plan)
    value = _value(op, args[1], field)
    if field.compare == HOSTNAME and op in (OP_EQUAL, OP_EQUAL_LEGACY, OP_NOT_EQUAL):
        same = _same_host(field, frozenset((value,)))
        return _not(same) if op == OP_NOT_EQUAL else same
    if op == OP_REGEXP:
        return _leaf(field, _regexp(field, value, plan.budget))
    return _leaf(field, compare(field, value))


def _want_args(node: Any, count: int) -> None:
    if len(node) != count + 1:
        raise errors.ParameterError(
            f"filter operator {brief(node[0])} takes {count}"
            f" argument{'s' if count > 1 else ''}, not {len(node) - 1}"
        )


def _find(name: Any, plan: _Plan) -> Field:
    field = plan.resource.field(name) if isinstance(name, str) else None
    if field is None:
        hint = suggest.did_you_mean(name, plan.resource.fields) if isinstance(name, str) else ""
        raise errors.ParameterError(
            f"there is no field {brief(name)} to filter by{'.' if hint else ''}{hint}"
        )
    plan.names.add(field.name)
    return field


def _value(op: str, value: Any, field: Field) -> str | int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise errors.ParameterError(
            f"filter value for field {field.name} must be text or an integer, not {brief(value)}"
        )
    if field.compare == JOB_ID and isinstance(value, str):
        if not is_number(value):
            raise errors.ParameterError(f"{brief(value)} is not a job id")
        return int(value)
    return value


def _all_of(parts: list[_Judge]) -> _Judge:
    def judge(view: Any, item: Any, complete: bool) -> bool | None:
        result: bool | None = True
        for part in parts:
            verdict = part(view, item, complete)
            if verdict is False:
                return False
            if verdict is None:
                result = None
        return result

    return judge


def _any_of(parts: list[_Judge]) -> _Judge:
    def judge(view: Any, item: Any, complete: bool) -> bool | None:
        result: bool | None = False
        for part in parts:
            verdict = part(view, item, complete)
            if verdict is True:
                return True
            if verdict is None:
                result = None
        return result

    return judge


def _not(part: _Judge) -> _Judge:
    def judge(view: Any, item: Any, complete: bool) -> bool | None:
        verdict = part(view, item, complete)
        return None if verdict is None else not verdict

    return judge


def _leaf(field: Field, test: Callable[[Any], bool]) -> _Judge:
    get = field.get
    live = bool(field.live)

    def judge(view: Any, item: Any, complete: bool) -> bool | None:
        if live and not complete:
            return None
        value = get(view, item)
        # An object without a value matches, so that nothing is hidden because data is missing.
        return True if value.__class__ is Mark else test(value)

    return judge


def _compile_names(args: list[Any], plan: _Plan) -> _Judge | None:
    """Compile many names in one *or* (a command with many arguments) to one look-up."""
    if len(args) < 4:
        return None
    field_name = args[0][1] if isinstance(args[0], (list, tuple)) and len(args[0]) == 3 else None
    field = plan.resource.field(field_name) if isinstance(field_name, str) else None
    if field is None or not (field.kind == query_c.KIND_TEXT or field.compare == JOB_ID):
        return None
    kind = int if field.compare == JOB_ID else str
    wanted: set[str | int] = set()
    for arg in args:
        if not (
            isinstance(arg, (list, tuple))
            and len(arg) == 3
            and arg[0] in (OP_EQUAL, OP_EQUAL_LEGACY)
            and arg[1] == field_name
        ):
            return None
        value = arg[2]
        if kind is int and isinstance(value, str) and is_number(value):
            value = int(value)
        if value.__class__ is not kind:
            return None
        wanted.add(value)
    plan.names.add(field.name)
    plan.comparisons += 1
    if field.compare != HOSTNAME:
        return _leaf(field, wanted.__contains__)
    return _same_host(field, frozenset(wanted))


def _same_host(field: Field, wanted: frozenset[str | int]) -> _Judge:
    """Compile the comparison of a host name with names, or with the first parts of names.

    When an object is called ``web2``, this name does not stand for ``web2.example.com`` as well.
    """
    get = field.get
    live = bool(field.live)
    sample = next(iter(wanted))  # a filter has several names only if all of them are text

    def judge(view: Any, item: Any, complete: bool) -> bool | None:
        if live and not complete:
            return None
        value = get(view, item)
        if value.__class__ is Mark:
            return True
        if _comparable(field, value, sample) in wanted:
            return True
        return any(
            short in wanted and not (field.names and view.has_name(field.names, short))
            for short in prefixes(value)[:-1]
        )

    return judge


def _is_true(value: Any) -> bool:
    if not isinstance(value, bool):
        raise errors.ParameterError(
            f"filter operator '?' needs a field which is true or false, not {brief(value)}"
        )
    return value


def _comparable(field: Field, value: Any, wanted: str | int) -> Any:
    """Return the value of a field in the form for the comparison with ``wanted``."""
    if field.compare == TIMESTAMP and isinstance(value, (list, tuple)) and len(value) == 2:
        value = value[0] + value[1] / 1e6
    both_text = isinstance(value, str) and isinstance(wanted, str)
    both_numbers = (
        isinstance(value, (int, float)) and not isinstance(value, bool) and isinstance(wanted, int)
    )
    if not (both_text or both_numbers):
        hint = (
            f". Write {brief(wanted)} in {field.name} to search a list."
            if isinstance(value, (list, tuple))
            else ""
        )
        raise errors.ParameterError(
            f"field {field.name}: {brief(value)} cannot be compared with {brief(wanted)}{hint}"
        )
    return value


def _equal(field: Field, wanted: str | int) -> Callable[[Any], bool]:
    return lambda value: bool(_comparable(field, value, wanted) == wanted)


def _not_equal(field: Field, wanted: str | int) -> Callable[[Any], bool]:
    equal = _equal(field, wanted)
    return lambda value: not equal(value)


def _order(
    compare: Callable[[Any, Any], bool],
) -> Callable[[Field, str | int], Callable[[Any], bool]]:
    def make(field: Field, wanted: str | int) -> Callable[[Any], bool]:
        return lambda value: compare(_comparable(field, value, wanted), wanted)

    return make


def _regexp(
    field: Field, wanted: str | int, budget: linear_re.Budget | None = None
) -> Callable[[Any], bool]:
    if not isinstance(wanted, str):
        raise errors.ParameterError(f"field {field.name}: a regular expression must be text")
    try:
        search = linear_re.Pattern(wanted, budget).search
    except errors.ParameterError as err:
        raise errors.ParameterError(f"field {field.name}: {err}") from err

    def test(value: Any) -> bool:
        # In a list (summary of a job, tags), one item has to match. Version 3.1 refuses lists here.
        if (
            isinstance(value, (list, tuple))
            and field.compare != STRICT
            and all(isinstance(one, str) for one in value)
        ):
            return any(search(one) for one in value)
        if not isinstance(value, str):
            raise errors.ParameterError(
                f"field {field.name}: {brief(value)} is not text to search in"
            )
        return search(value)

    return test


def _contains(field: Field, wanted: str | int) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        if not isinstance(value, (list, tuple)):
            raise errors.ParameterError(f"field {field.name}: {brief(value)} is not a list")
        return any(member == wanted and not isinstance(member, bool) for member in value)

    return test


_OPERATORS: dict[str, Callable[[Field, Any], Callable[[Any], bool]]] = {
    OP_EQUAL: _equal,
    OP_EQUAL_LEGACY: _equal,
    OP_NOT_EQUAL: _not_equal,
    OP_LT: _order(lambda value, wanted: value < wanted),
    OP_LE: _order(lambda value, wanted: value <= wanted),
    OP_GT: _order(lambda value, wanted: value > wanted),
    OP_GE: _order(lambda value, wanted: value >= wanted),
    OP_REGEXP: _regexp,
    OP_CONTAINS: _contains,
}


def requested_names(qfilter: Any, name_field: str) -> list[str | int] | None:
    """Return the names if a filter only selects objects by name, else None.

    A query for a few jobs then reads only those jobs.
    """
    if not isinstance(qfilter, (list, tuple)) or not qfilter:
        return None
    if qfilter[0] in (OP_EQUAL, OP_EQUAL_LEGACY) and len(qfilter) == 3 and qfilter[1] == name_field:
        value = qfilter[2]
        return [value] if isinstance(value, (str, int)) else None
    if qfilter[0] != OP_OR or len(qfilter) < 2:
        return None
    names: list[str | int] = []
    for part in qfilter[1:]:
        # No recursion: commands send no nested selections.
        if not (
            isinstance(part, (list, tuple))
            and len(part) == 3
            and part[0] in (OP_EQUAL, OP_EQUAL_LEGACY)
            and part[1] == name_field
            and isinstance(part[2], (str, int))
        ):
            return None
        names.append(part[2])
    return names


def pinned(qfilter: Any, resource: Resource) -> tuple[str, frozenset[str]] | None:
    """Return the names or UUIDs to which a (valid) filter restricts the result.

    A query for a few objects then evaluates only those objects.

    :returns: the field (the name field of the resource, or ``uuid``) and its values; None if the
        filter has no such restriction.
    """
    if not isinstance(qfilter, (list, tuple)) or not qfilter:
        return None
    op, *args = qfilter
    if op == OP_AND:
        return next((found for arg in args if (found := pinned(arg, resource))), None)
    parts = args if op == OP_OR else [qfilter]
    values: dict[str, set[str]] = {}
    for part in parts:
        if not (
            isinstance(part, (list, tuple))
            and len(part) == 3
            and part[0] in (OP_EQUAL, OP_EQUAL_LEGACY)
            and part[1] in (resource.name_field, "uuid")
            and isinstance(part[2], str)
        ):
            return None
        values.setdefault(part[1], set()).add(part[2])
    if len(values) != 1:
        return None
    ((field, wanted),) = values.items()
    return field, frozenset(wanted)


def names_filter(names: Iterable[str | int], name_field: str) -> list[Any] | None:
    """Return the filter for objects with these names; None for no names, which selects all."""
    parts = [[OP_EQUAL, name_field, name] for name in names]
    return [OP_OR, *parts] if parts else None


# -- the text form -------------------------------------------------------------------------------


def parse(text: str) -> list[Any]:
    """Convert the text form of a filter to its JSON form.

    :raises errors.QueryFilterParseError: the text is not a filter, or is too long; the error has
        the column.
    """
    import pyparsing

    if len(text) > MAX_TEXT:
        raise errors.QueryFilterParseError(
            f"the filter has {len(text)} characters; {MAX_TEXT} are allowed", text[:MAX_TEXT]
        )
    try:
        result = _grammar().parse_string(text, parse_all=True)
    except pyparsing.ParseBaseException as err:
        column = err.loc + 1
        rest = text[err.loc :].strip()
        where = f"from {brief(rest)}" if rest else "since it ends too early"
        # After an operator only one kind of token can follow, which pyparsing names.
        wanted = (
            f": {err.msg[:1].lower()}{err.msg[1:]}"
            if isinstance(err, pyparsing.ParseSyntaxException)
            else ""
        )
        raise errors.QueryFilterParseError(
            f"cannot read the filter at column {column}, {where}{wanted}", text, column
        ) from err
    except RecursionError as err:
        raise errors.QueryFilterParseError("filter is nested too deeply", text) from err
    tree: list[Any] = result[0]
    return tree


@cache
def _grammar() -> pyparsing.ParserElement:
    """Return the parser of a whole filter.

    A minus in a rule stands where no other rule can match any more: a later error is reported at
    its own place, and not at the beginning of the expression.
    """
    import pyparsing as pp

    field = pp.Word(pp.alphas, pp.alphanums + "_/.").set_name("field name")
    # No value of an object has more digits; Python refuses to read thousands of them.
    integer = pp.Regex(r"[+-]?\d{1,40}(?![\d.\w])").set_name("integer")
    integer.set_parse_action(lambda tokens: int(tokens[0]))
    quoted = (pp.QuotedString('"', esc_char="\\") | pp.QuotedString("'", esc_char="\\")).set_name(
        "text in quotes"
    )
    value = (quoted | integer).set_name("text in quotes or integer")
    truth = ~pp.MatchFirst([pp.Keyword(word) for word in ("not", "and", "or")]) + field.copy()
    truth.set_parse_action(lambda tokens: [[OP_TRUE, tokens[0]]])
    return _combined(
        [
            _membership(field, value),
            *_matches(field, quoted),
            *_comparisons(field, value),
            truth,
        ]
    )


def _comparisons(
    field: pyparsing.ParserElement, value: pyparsing.ParserElement
) -> list[pyparsing.ParserElement]:
    """Return the rules ``field == value`` and so on."""
    import pyparsing as pp

    def binary(operator: str, result: str) -> pp.ParserElement:
        rule = field + pp.Suppress(pp.Literal(operator)) - value
        return rule.set_parse_action(lambda tokens: [[result, tokens[0], tokens[1]]])

    # Longer spellings first: "<=" must not be read as "<".
    return [
        binary("==", OP_EQUAL),
        binary("!=", OP_NOT_EQUAL),
        binary("<=", OP_LE),
        binary(">=", OP_GE),
        binary("=", OP_EQUAL),
        binary("<", OP_LT),
        binary(">", OP_GT),
    ]


def _membership(
    field: pyparsing.ParserElement, value: pyparsing.ParserElement
) -> pyparsing.ParserElement:
    """Return the rule ``value in field``, also with ``not in``."""
    import pyparsing as pp

    inside = (pp.Keyword("not") + pp.Keyword("in") | pp.Keyword("in")).set_name("'in' or 'not in'")

    def convert(tokens: pp.ParseResults) -> list[Any]:
        return _negated_if(tokens[1] == "not", [OP_CONTAINS, tokens[-1], tokens[0]])

    return (value - inside - field).set_parse_action(convert)


def _matches(
    field: pyparsing.ParserElement, quoted: pyparsing.ParserElement
) -> list[pyparsing.ParserElement]:
    """Return the rules ``field =~ m/expression/`` and ``field =* "glob"``, also negated."""
    import pyparsing as pp

    expression = pp.Optional(pp.Suppress("m")) + pp.MatchFirst(
        [
            pp.QuotedString(
                mark, esc_char="\\", unquote_results=False, convert_whitespace_escapes=False
            )
            for mark in "/#^|"
        ]
    ).set_name("a regular expression such as /web[0-9]/")
    flags = pp.Optional(pp.Word("is")("flags"))
    regexp = (expression("pattern") + flags.leave_whitespace()).set_name("regular expression")

    def rule(
        spelling: str, operand: pp.ParserElement, pattern_of: Callable[..., str], *, negate: bool
    ) -> pp.ParserElement:
        def convert(tokens: pp.ParseResults) -> list[Any]:
            name, *operands = tokens
            return _negated_if(negate, [OP_REGEXP, name, pattern_of(*operands)])

        return (field + pp.Suppress(spelling) - operand).set_parse_action(convert)

    return [
        rule("=~", regexp, _pattern_of_literal, negate=False),
        rule("!~", regexp, _pattern_of_literal, negate=True),
        rule("=*", quoted, glob_to_regex, negate=False),
        rule("!*", quoted, glob_to_regex, negate=True),
    ]


def _pattern_of_literal(literal: str, flags: str = "") -> str:
    """Return the regular expression in a literal such as ``/web[0-9]/`` with its flags."""
    mark = literal[0]
    # The mark does not need its backslash any more; all others belong to the expression.
    pattern = literal[1:-1].replace("\\" + mark, mark)
    return f"(?{''.join(sorted(set(flags)))}){pattern}" if flags else pattern


def _negated_if(negate: bool, condition: list[Any]) -> list[Any]:
    """Return the tokens of a condition, or of its negation."""
    return [[OP_NOT, condition]] if negate else [condition]


def _combined(conditions: list[pyparsing.ParserElement]) -> pyparsing.ParserElement:
    """Return the rule of conditions with brackets, ``not``, ``and`` and ``or``."""
    import pyparsing as pp

    whole = pp.Forward()
    in_brackets = pp.Suppress("(") - whole - pp.Suppress(pp.Literal(")").set_name("')'"))
    condition = pp.MatchFirst([*conditions, in_brackets]).set_name("condition")
    negated = pp.Forward()
    negated_rule = pp.Suppress(pp.Keyword("not").set_name("a condition")) - negated
    negated_rule.set_parse_action(lambda tokens: [[OP_NOT, tokens[0]]])
    negated <<= (negated_rule | condition).set_name("a condition")

    def chain(part: pp.ParserElement, word: str, op: str) -> pp.ParserElement:
        rule = part + pp.ZeroOrMore(pp.Suppress(pp.Keyword(word)) - part)
        return rule.set_parse_action(
            lambda tokens: tokens[0:1] if len(tokens) == 1 else [[op, *tokens]]
        )

    whole <<= chain(chain(negated, "and", OP_AND), "or", OP_OR)
    # Columns are those of the original text.
    return whole.parse_with_tabs()
