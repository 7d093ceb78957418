"""Types of answers from their declarations in Python, so that a shape is written once.

:mod:`ganeti.luxi.answers` declares the answers of the master as ``TypedDict``, which mypy checks
where they are made. :func:`of` makes types from them, from which the OpenAPI description follows
(:mod:`.schema`).
"""

from __future__ import annotations

import types
import typing
from typing import Any, Final

from ganeti import errors, ht

_PLAIN: Final[dict[Any, ht.Type]] = {
    Any: ht.Any,
    type(None): ht.NoneType,
    bool: ht.Bool,
    int: ht.Int,
    float: ht.Float,
    str: ht.Str,
}


def of(hint: Any) -> ht.Type:
    """Make the type of a hint: a basic type, a list, a dictionary, a choice or a ``TypedDict``.

    :raises errors.ProgrammerError: it is another hint.
    """
    if hint in _PLAIN:
        return _PLAIN[hint]
    form, parts = typing.get_origin(hint), typing.get_args(hint)
    if form is list:
        return ht.ListOf(of(parts[0]))
    if form is dict:
        return ht.DictOf(of(parts[0]), of(parts[1]))
    if form in (types.UnionType, typing.Union):
        others = [of(part) for part in parts if part is not type(None)]
        found = others[0] if len(others) == 1 else ht.Or(*others)
        return ht.Maybe(found) if len(others) < len(parts) else found
    if form in (typing.NotRequired, typing.Required):
        return of(parts[0])
    if typing.is_typeddict(hint):
        return _shape(hint)
    raise errors.ProgrammerError(f"no type for {hint}")


def _shape(hint: Any) -> ht.Type:
    required: dict[str, ht.Type] = {}
    optional: dict[str, ht.Type] = {}
    for name, one in typing.get_type_hints(hint, include_extras=True).items():
        place = optional if typing.get_origin(one) is typing.NotRequired else required
        place[name] = of(one)
    return ht.Shape(hint.__name__, required, optional)
