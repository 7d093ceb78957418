"""Lists whose rows come from a job or a daemon, and not from a query.

They have the options of other lists: ``-o``, ``--sort-by`` and ``--watch``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, listing
from ganeti.cli import options as opt
from ganeti.cli.command import Values

if TYPE_CHECKING:
    from typing import Any

    Rows = Sequence[Sequence[Any]]

#: Seconds between two lists with ``--watch`` when each of them is a job.
JOB_INTERVAL_S = 10
_INTERVAL = opt.number(
    "--interval",
    metavar="SECONDS",
    help=f"seconds between two lists with --watch, each of which is a job; {JOB_INTERVAL_S} by"
    " default",
)
#: Options of a list which a job makes.
OPTIONS = (opt.NO_HEADERS, opt.SEPARATOR, opt.UNITS, opt.OUTPUT, opt.SORT_BY, opt.WATCH, _INTERVAL)


def run(
    default: Sequence[str],
    known: Sequence[str],
    values: Values,
    fetch: Callable[[list[str]], Rows],
    lines: Callable[[list[str], Rows], list[str]],
    write: Callable[[list[str], Rows], None],
    *,
    interval_s: int | None = JOB_INTERVAL_S,
) -> int:
    """Execute a list command.

    :param default: the columns without ``-o``.
    :param known: all fields.
    :param fetch: returns the rows, with the values of these fields; None for an unknown value.
    :param lines: makes the lines of the table from fields and rows.
    :param write: prints fields and rows in the chosen format.
    :param interval_s: seconds between two lists with ``--watch``; None when no job makes the list.
    :returns: the exit code.
    :raises OpPrereqError: there is no such field, or an option is wrong.
    """
    fields = listing.fields_of_job(values.output, default, known)
    require_known(fields, known)
    order = listing.sort_order(values.sort_by)
    for name, _ in order:
        if name not in known:
            raise listing.cannot_sort_by(name, known)
    listing.require_watch(values)
    asked = [*fields, *(name for name, _ in order if name not in fields)]

    def rows() -> Rows:
        found = fetch(asked)
        if not order:
            return found
        from ganeti.query import order as query_order  # a program needs it only for --sort-by

        columns = {name: asked.index(name) for name, _ in order}

        def value_of(row: Sequence[Any], name: str) -> Any:
            value = row[columns[name]]
            return query_order.MISSING if value is None else value

        return [row[: len(fields)] for row in query_order.ordered(found, order, value_of)]

    if values.watch:
        return listing.watch(lambda: lines(fields, rows()), values, interval_s)
    write(fields, rows())
    return failures.EXIT_SUCCESS


def require_known(fields: Sequence[str], known: Sequence[str]) -> None:
    """Refuse fields which a list does not have, with a similar name.

    :raises OpPrereqError: there is no such field.
    """
    unknown = [field for field in fields if field not in known]
    if unknown:
        from ganeti.utils import suggest

        raise errors.OpPrereqError(
            f"unknown fields: {', '.join(unknown)}.{suggest.hint(unknown[0], known)}",
            errors.ECODE_INVAL,
        )
