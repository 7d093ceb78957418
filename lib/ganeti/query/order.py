"""The order of lists: by one field or several, each of them also reversed.

The master orders pages (:mod:`ganeti.query.page`), and commands their tables (``--sort-by``), with
the same functions. Values are ordered naturally: ``node2`` comes before ``node10``. Objects without
a value are the last ones in both directions. Nothing is imported here before it is needed, because
commands load this module at their start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ganeti import TYPE_CHECKING, errors

if TYPE_CHECKING:
    from typing import Any

    #: Pairs of a field and whether its order is reversed.
    Order = Sequence[tuple[str, bool]]

#: The largest number of fields of an order.
MAX_FIELDS = 10
#: Stands for the value of an object which has none.
MISSING = object()


def parse_order(text: str, option: str) -> list[tuple[str, bool]]:
    """Read an order, such as ``pnode,-be/maxmem``; a minus reverses the order of a field.

    :param option: what has the text, for the error.
    :returns: pairs of a field and whether its order is reversed.
    :raises errors.ParameterError: a name is missing or given twice, or there are too many.
    """
    words = text.split(",")
    found = [(word.lstrip("-"), word.startswith("-")) for word in words]
    names = [name for name, _ in found]
    if not all(names) or len(set(names)) != len(names):
        raise errors.ParameterError(
            f"{option} needs different fields, separated by commas, not '{text[:200]}'"
        )
    if len(found) > MAX_FIELDS:
        raise errors.ParameterError(f"{option} takes at most {MAX_FIELDS} fields")
    return found


def sort_key(value: Any) -> tuple[Any, ...]:
    """Return a key for values of any type: numbers by size, ``node2`` before ``node10``."""
    if value is None:
        return (0,)
    if isinstance(value, (bool, int, float)):
        return (1, value)
    if isinstance(value, (list, tuple)):
        return (3, [sort_key(item) for item in value])
    from ganeti.utils import text

    return (2, text.natural_key(str(value)))


def ordered(items: Iterable[Any], order: Order, value_of: Callable[[Any, str], Any]) -> list[Any]:
    """Return objects in an order; equal ones stay in the order in which they are.

    :param value_of: returns the value of a field of an object, or :data:`MISSING`.
    """
    found = list(items)
    # Many objects have the same text, such as the name of a node or a state.
    keys: dict[str, tuple[Any, ...]] = {}
    for name, reverse in reversed(order):
        keyed, without = [], []
        for item in found:
            value = value_of(item, name)
            if value is MISSING:
                without.append(item)
            elif value.__class__ is str:
                key = keys.get(value)
                if key is None:
                    key = keys[value] = sort_key(value)
                keyed.append((key, item))
            else:
                keyed.append((sort_key(value), item))
        keyed.sort(key=_first, reverse=reverse)
        found = [item for _key, item in keyed] + without
    return found


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def cannot_sort_by(field: str, known: Iterable[str]) -> str:
    """Return the sentence about a field of an order which does not exist, with a similar name."""
    from ganeti.utils import suggest

    hint = suggest.did_you_mean(field, known)
    return f"cannot sort by '{field}': there is no such field.{hint}"
