"""How a value travels in a message, as the annotation of its parameter says.

In JSON there are no sets and tuples, and all keys are texts. :func:`form_of` finds out from an
annotation what the receiver makes of a list or of a dictionary.
"""

from __future__ import annotations

import enum
import functools
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti import opcodes
from ganeti.jobexec import messages
from ganeti.opcodes.base import OpCode


class Form(NamedTuple):
    """How values of one annotation travel.

    :ivar encode: turns such a value into a value for JSON.
    :ivar decode: turns it back.
    """

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


#: The form of values which are equal after a way through a message.
PLAIN: Final = Form(messages.pack, messages.unpack)
_OPCODE: Final = Form(OpCode.to_dict, opcodes.from_dict)

# What the receiver gets where the annotation allows several containers.
_CONTAINERS: Final[dict[Any, Callable[[Iterable[Any]], Any]]] = {
    frozenset: frozenset,
    list: list,
    tuple: tuple,
    Sequence: list,
    Collection: list,
    Iterable: list,
}


@functools.cache
def form_of(annotation: Any) -> Form:
    """Return the form of the values which an annotation allows."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return _union([one for one in args if one is not types.NoneType])
    if origin in (dict, Mapping):
        return _mapping(*map(form_of, args), by_text=args[0] is str, by_number=args[0] is int)
    if origin is tuple and args[-1] is not ...:
        return _record(tuple, [form_of(one) for one in args])
    if origin in _CONTAINERS:
        return _container(_CONTAINERS[origin], form_of(args[0]))
    if not isinstance(annotation, type):
        return PLAIN
    if issubclass(annotation, tuple):
        hints = typing.get_type_hints(annotation)
        return _record(lambda values: annotation(*values), [form_of(one) for one in hints.values()])
    if issubclass(annotation, enum.Enum):
        return Form(lambda value: value.value, annotation)
    if issubclass(annotation, OpCode):
        return _OPCODE
    return PLAIN


def _union(members: Sequence[Any]) -> Form:
    """Return the form of one of several; only one of them may be a container."""
    special = [form for form in map(form_of, members) if form is not PLAIN]
    if not special:
        return PLAIN
    (form,) = special
    if len(members) == 1:
        return Form(
            lambda value: None if value is None else form.encode(value),
            lambda value: None if value is None else form.decode(value),
        )
    return Form(
        messages.pack,
        lambda value: form.decode(value) if isinstance(value, list) else messages.unpack(value),
    )


def _mapping(key: Form, value: Form, *, by_text: bool, by_number: bool) -> Form:
    if by_text or by_number:
        name = int if by_number else str
        return Form(
            lambda given: {name: value.encode(one) for name, one in given.items()},
            lambda given: {name(text): value.decode(one) for text, one in given.items()},
        )
    return Form(
        lambda given: [[key.encode(name), value.encode(one)] for name, one in given.items()],
        lambda given: {key.decode(name): value.decode(one) for name, one in given},
    )


def _container(make: Callable[[Iterable[Any]], Any], member: Form) -> Form:
    return Form(
        lambda values: [member.encode(one) for one in values],
        lambda values: make(member.decode(one) for one in values),
    )


def _record(make: Callable[[Iterable[Any]], Any], members: Sequence[Form]) -> Form:
    """Return the form of a tuple whose members have different annotations."""
    return Form(
        lambda values: [form.encode(one) for form, one in zip(members, values, strict=True)],
        lambda values: make(form.decode(one) for form, one in zip(members, values, strict=True)),
    )
