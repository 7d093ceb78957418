"""Lists of instances for users without the right for the consoles.

The field ``console`` of an instance says how to reach its console. So it needs the right for the
consoles, wherever it is asked for: as a field, in a filter, whose errors name values, and in an
order. ``read`` includes that right, ``view`` does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.constants import query as query_const
from ganeti.http.messages import Refused
from ganeti.rapi.master import Master
from ganeti.rapi.rights import CONSOLES, READ, WRITE, Area
from ganeti.rapi.users import User

FIELD: Final = "console"
_QUERY: Final = "OP_QUERY"
# Longer expressions with the word are not read here: that would delay others.
_MOST_LENGTH: Final = 4096


def area(user: User) -> Area | None:
    """Return the instances whose consoles a user may open; None for all."""
    return user.rights.area(user.name, frozenset({READ, WRITE}), CONSOLES, "GET")


def require_none(fields: Iterable[str], qfilter: Any = None, order: str = "") -> None:
    """Refuse a question about the field.

    :param qfilter: a filter, or an expression.
    :param order: fields, separated by commas.
    :raises Refused: 403.
    """
    wanted = {*fields, *(name.strip().lstrip("-") for name in order.split(","))}
    if FIELD in wanted or _names_field(qfilter):
        raise Refused(403, f"field {FIELD} needs the right for the consoles of all instances")


def check_query(op: Mapping[str, Any]) -> None:
    """Refuse an opcode that asks about the field.

    :raises Refused: 403.
    """
    if op.get("OP_ID") == _QUERY and op.get("what") == query_const.INSTANCE:
        require_none(op.get("fields") or (), op.get("qfilter"))


def _names_field(qfilter: Any) -> bool:
    if isinstance(qfilter, str):
        if FIELD not in qfilter:
            return False
        if len(qfilter) > _MOST_LENGTH:
            return True
        # It loads pyparsing, which this daemon rarely needs.
        from ganeti.query import filter as query_filter

        try:
            qfilter = query_filter.parse(qfilter)
        except errors.GenericError:
            # The master says what is wrong with it.
            return False
    left = [qfilter]
    while left:
        one = left.pop()
        if isinstance(one, (list, tuple)):
            if len(one) > 1 and one[1] == FIELD:
                return True
            left.extend(one)
    return False


class WithoutConsoles(Master):
    """Asks the master for a user who may read everything but the consoles.

    :param inner: the master.
    """

    def __init__(self, inner: Master) -> None:
        super().__init__("")
        self._inner = inner

    async def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Send a request, as :meth:`Master.call`.

        :raises Refused: 403 for a question about the consoles.
        """
        _check(method, args)
        return await self._inner.call(method, *args, timeout_s=timeout_s)


def _check(method: str, args: Sequence[Any]) -> None:
    match method, args:
        case "Query", [query_const.INSTANCE, fields, qfilter, *_]:
            require_none(fields, qfilter)
        case "QueryPage", [query_const.INSTANCE, fields, qfilter, page]:
            require_none(fields, qfilter, page.get("order") or "")
        case "QueryInstances", [_, fields, *_]:
            require_none(fields)
        case "RunQuery", [op]:
            check_query(op)
