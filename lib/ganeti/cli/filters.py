"""Filters of queries, made from the arguments of a command."""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    from typing import Any

# A single argument with one of these characters can only be a filter expression. (The set is not
# imported from the package ``query``: the import costs 20 ms, and most lists have no filter.)
_FILTER_CHARACTERS = frozenset("\t\n\v\f\r !\"'()/<=>\\~")
_GLOB_CHARACTERS = frozenset("*?")


def make_filter(
    arguments: Sequence[str],
    *,
    force_filter: bool = False,
    name_field: str = "name",
    numeric: bool = False,
) -> Any:
    """Return the filter of a query from the arguments of a command.

    :param force_filter: whether the argument is a filter expression (``-F``).
    :param name_field: the field with which names are compared.
    :param numeric: whether names are numbers, as of jobs.
    :returns: the filter in list form (Ganeti design 2.2, *Query2*); None selects everything.
    :raises OpPrereqError: not exactly one expression, or a name that is not a number.
    :raises QueryFilterParseError: the expression is not valid.
    """
    looks_like_filter = len(arguments) == 1 and bool(_FILTER_CHARACTERS & set(arguments[0]))
    if force_filter or looks_like_filter:
        if len(arguments) != 1:
            raise errors.OpPrereqError(
                "a filter must be exactly one argument. Put it in quotes.", errors.ECODE_INVAL
            )
        from ganeti.query import filter as query_filter  # pyparsing: 40 ms, only for expressions

        return query_filter.parse(arguments[0])
    return simple_filter(
        name_field, [_name_filter(name, name_field, numeric) for name in arguments]
    )


def simple_filter(name_field: str, parts: Sequence[Any]) -> Any:
    """Join conditions with *or*; a plain value becomes *equals* on ``name_field``.

    :returns: None when there are no conditions.
    """
    if not parts:
        return None
    return ["|", *(part if isinstance(part, list) else ["==", name_field, part] for part in parts)]


def both_filters(first: Any, second: Any) -> Any:
    """Join two filters with *and*; each of them may be None."""
    if first is None or second is None:
        return first if second is None else second
    return ["&", first, second]


def _name_filter(name: str, field: str, numeric: bool) -> list[Any]:
    if numeric:
        return ["==", field, job_id(name)]
    if _GLOB_CHARACTERS & set(name):
        from ganeti.utils.text import glob_to_regex

        return ["=~", field, glob_to_regex(name)]
    return ["==", field, name]


def job_id(text: str) -> int:
    """Read the number of a job from the command line.

    :raises OpPrereqError: not a number.
    """
    if not is_number(text):
        raise errors.OpPrereqError(f"'{text}' is not a job id", errors.ECODE_INVAL)
    return int(text)
