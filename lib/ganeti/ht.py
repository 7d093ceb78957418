"""Words for the shapes of values that come from outside.

A word is a predicate with a name: ``ListOf(NonEmptyString)(value)`` says whether a value fits,
``str()`` of it is what the published tables and the documentation call it, and :func:`in_words` is
what a user reads in a message. Opcodes, REST bodies and results are declared with these words;
nothing else in the program describes shapes.

The module is imported by every command, so it imports nothing at all.

Two words hide values: what is declared ``Private`` or ``Secret`` is wrapped in a
:class:`PrivateDict`, whose text shows the keys only.
"""

# ruff: noqa: N802 - the words read as names of types, which is what they stand for

from __future__ import annotations

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    import typing
    from collections.abc import Callable, Iterable, Sequence

REDACTED = "<redacted>"

_LISTS = (list, tuple)
_SETS = (list, tuple, set, frozenset)
_SCALARS = (str, int)


class Type:
    """A named predicate. `hidden` is "", "private" or "secret", inherited from inner words.

    `made_of` says how the word was made, for those who describe it in another language: a form
    ("list", "maybe", ...) and what it was made from; empty for a word that stands for itself.
    """

    __slots__ = ("check", "hidden", "made_of", "name")

    def __init__(
        self,
        name: str,
        check: Callable[[typing.Any], bool],
        hidden: str = "",
        made_of: tuple[typing.Any, ...] = (),
    ) -> None:
        self.name = name
        self.check = check
        self.hidden = hidden
        self.made_of = made_of

    def __call__(self, value: typing.Any) -> bool:
        return self.check(value)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<ht {self.name}>"


class PrivateDict(dict):  # type: ignore[type-arg]  # bare dict: subscripting it costs start-up
    """A dictionary whose text does not show its values."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{key!r}: {REDACTED}" for key in self) + "}"

    __str__ = __repr__


def hide(value: typing.Any) -> typing.Any:
    """`value` with every dictionary in it turned into a :class:`PrivateDict`."""
    if isinstance(value, dict):
        return PrivateDict((key, hide(inner)) for key, inner in value.items())
    if isinstance(value, _LISTS):
        return [hide(inner) for inner in value]
    return value


def redact(value: typing.Any) -> typing.Any:
    """`value` with everything but the keys of dictionaries replaced by a fixed text."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: redact(inner) for key, inner in value.items()}
    return REDACTED


def _is_int(value: typing.Any) -> bool:
    # bool is a kind of int to Python but never to a user.
    return isinstance(value, int) and not isinstance(value, bool)


Any = Type("any", lambda value: True)
NoneType = Type("none", lambda value: value is None)
Bool = Type("bool", lambda value: isinstance(value, bool))
Int = Type("int", _is_int)
Float = Type("float", lambda value: isinstance(value, float) and value - value == 0)
Str = Type("str", lambda value: isinstance(value, str))
NonEmptyString = Type("nonempty-str", lambda value: isinstance(value, str) and value != "")
List = Type("list(any)", lambda value: isinstance(value, _LISTS))
Dict = Type("object(any)", lambda value: isinstance(value, dict))


def NonNeg(inner: Type) -> Type:
    """A number from zero upwards."""
    return Type(
        f"nonneg({inner})",
        lambda value: inner.check(value) and value >= 0,
        made_of=("nonneg", inner),
    )


def Pos(inner: Type) -> Type:
    """A number above zero."""
    return Type(
        f"pos({inner})", lambda value: inner.check(value) and value > 0, made_of=("pos", inner)
    )


def Neg(inner: Type) -> Type:
    """A number below zero."""
    return Type(
        f"neg({inner})", lambda value: inner.check(value) and value < 0, made_of=("neg", inner)
    )


NonNegInt = NonNeg(Int)
PositiveInt = Pos(Int)
NegativeInt = Neg(Int)


def Maybe(inner: Type) -> Type:
    """The inner word, or null."""
    return Type(
        f"maybe({inner})",
        lambda value: value is None or inner.check(value),
        inner.hidden,
        ("maybe", inner),
    )


def Or(*inner: Type) -> Type:
    """Any of the inner words."""
    return Type(
        f"or({','.join(map(str, inner))})",
        lambda value: any(each.check(value) for each in inner),
        _most_hidden(inner),
        ("or", *inner),
    )


def And(name: str, *inner: Type) -> Type:
    """All of the inner words, under a name of its own."""
    return Type(
        name, lambda value: all(each.check(value) for each in inner), made_of=("and", *inner)
    )


def OneOf(name: str, values: Iterable[typing.Any]) -> Type:
    """One of `values`; the name stands in messages, so it says what kind of value is meant."""
    values = tuple(values)
    allowed = frozenset(values)

    def check(value: typing.Any) -> bool:
        # An unhashable value is certainly none of them; True must not pass for 1.
        return isinstance(value, _SCALARS) and not isinstance(value, bool) and value in allowed

    return Type(name, check, made_of=("one-of", *values))


def ListOf(inner: Type) -> Type:
    """A list, each of whose members fits."""
    return Type(
        f"list({inner})",
        lambda value: isinstance(value, _LISTS) and all(map(inner.check, value)),
        inner.hidden,
        ("list", inner),
    )


def SetOf(inner: Type) -> Type:
    """As :func:`ListOf`; order and repetition mean nothing (JSON has no sets)."""
    return Type(
        f"set({inner})",
        lambda value: isinstance(value, _SETS) and all(map(inner.check, value)),
        inner.hidden,
        ("list", inner),
    )


def DictOf(key: Type, inner: Type) -> Type:
    """A dictionary, each of whose keys and values fits."""
    return Type(
        f"dict({key},{inner})",
        lambda value: (
            isinstance(value, dict)
            and all(map(key.check, value))
            and all(map(inner.check, value.values()))
        ),
        inner.hidden,
        ("object", key, inner),
    )


def ObjectOf(inner: Type) -> Type:
    """A dictionary with any key (a string, in JSON), each of whose values fits."""
    return Type(
        f"object({inner})",
        lambda value: isinstance(value, dict) and all(map(inner.check, value.values())),
        inner.hidden,
        ("object", Str, inner),
    )


def Tuple(*inner: Type) -> Type:
    """A list of fixed length, each position with a word of its own."""
    return Type(
        f"tuple({','.join(map(str, inner))})",
        lambda value: (
            isinstance(value, _LISTS)
            and len(value) == len(inner)
            and all(each.check(item) for each, item in zip(inner, value, strict=True))
        ),
        _most_hidden(inner),
        ("tuple", *inner),
    )


def Shape(
    name: str,
    required: dict[str, Type],
    optional: dict[str, Type] | None = None,
) -> Type:
    """A dictionary with exactly these keys; optional ones may be missing."""
    every = {**required, **(optional or {})}

    def check(value: typing.Any) -> bool:
        return (
            isinstance(value, dict)
            and all(key in value for key in required)
            and all(key in every and every[key].check(item) for key, item in value.items())
        )

    return Type(name, check, made_of=("shape", every, tuple(required)))


def Named(name: str, inner: Type) -> Type:
    """The inner word under the name by which users know it."""
    return Type(name, inner.check, inner.hidden, ("named", inner))


def Private(inner: Type) -> Type:
    """The inner word; values are kept out of logs and answers."""
    return Type(f"private({inner})", inner.check, "private", ("named", inner))


def Secret(inner: Type) -> Type:
    """As :func:`Private`, and values are never written to the job queue."""
    return Type(f"secret({inner})", inner.check, "secret", ("named", inner))


def _most_hidden(inner: Sequence[Type]) -> str:
    kinds = {each.hidden for each in inner}
    return "secret" if "secret" in kinds else "private" if "private" in kinds else ""


_IN_WORDS = {
    "any": "anything",
    "none": "null",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "nonempty-str": "text that is not empty",
    "list(any)": "a list",
    "object(any)": "an object",
    "job-id": "the number of a job",
}
_RANGES = {"nonneg": "from 0 upwards", "pos": "above 0", "neg": "below 0"}
# More values than this are not listed in a message.
_MOST_LISTED = 12


def in_words(word: Type) -> str:
    """What fits, for people: ``text that is not empty, or null``."""
    if not word.made_of:
        return _IN_WORDS.get(word.name, word.name)
    form, *parts = word.made_of
    if form in _RANGES:
        return f"{in_words(parts[0])} {_RANGES[form]}"
    if form in ("maybe", "or"):
        return _choice(list(map(in_words, parts if form == "or" else (*parts, NoneType))))
    if form == "list":
        return f"a list, each item {in_words(parts[0])}"
    if form == "object":
        return f"an object, each value {in_words(parts[-1])}"
    if form == "tuple":
        return f"a list of {len(parts)}: {'; '.join(map(in_words, parts))}"
    if form == "one-of" and len(parts) <= _MOST_LISTED:
        return _choice(list(map(str, parts)))
    if form == "named" and word.hidden and word.name.startswith(word.hidden):
        return in_words(parts[0])
    return word.name


def _choice(words: Sequence[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``; with one more comma where a part has commas itself."""
    *most, last = words
    if not most:
        return last
    comma = "," if any("," in word or " or " in word for word in words) else ""
    return f"{', '.join(most)}{comma} or {last}"


JobId = Type(
    "job-id",
    lambda value: (
        (_is_int(value) and value >= 0)
        or (isinstance(value, str) and value.isascii() and value.isdigit())
    ),
)
