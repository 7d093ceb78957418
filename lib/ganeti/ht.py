"""Types of values which come from outside: parameters of opcodes, REST bodies, results.

A type is a predicate with a name: ``ListOf(NonEmptyString)(value)`` tells whether a value has the
type, ``str()`` returns its name in the published tables and in the documentation, and
:func:`describe` returns the text for messages to users. Opcodes, REST bodies and results are
declared with these types only.

Every command imports this module, so it imports nothing itself.

Two types hide values: a value of type ``Private`` or ``Secret`` is wrapped in a
:class:`PrivateDict`, whose text shows only the keys.
"""

# ruff: noqa: N802 - the functions return types and are named like types

from __future__ import annotations

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    import typing
    from collections.abc import Callable, Collection, Sequence

REDACTED = "<redacted>"

#: The highest number of a job. Larger numbers are not exact in the JSON of other programs.
MAX_JOB_ID = (1 << 53) - 1
# Bounds of all other numbers. A larger one has no use, and many calculations fail with it.
_LOWEST_INT = -(1 << 63)
_HIGHEST_INT = (1 << 63) - 1
_HIGHEST_FLOAT = 1e18
# The longest time that a user may give, in seconds: about 32 years.
_MAX_SECONDS = 10**9

_LISTS = (list, tuple)
_SETS = (list, tuple, set, frozenset)
_SCALARS = (str, int)


class Type:
    """A named predicate.

    :param hidden: "", "private" or "secret"; inherited from inner types.
    :param made_of: how the type was made, for programs which describe it in another language: a
        form ("list", "maybe", ...) and its parts; empty for a basic type.
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
    """Return a value in which every dictionary is a :class:`PrivateDict`."""
    if isinstance(value, dict):
        return PrivateDict((key, hide(inner)) for key, inner in value.items())
    if isinstance(value, _LISTS):
        return [hide(inner) for inner in value]
    return value


def redact(value: typing.Any) -> typing.Any:
    """Return a value in which everything except keys of dictionaries is :data:`REDACTED`."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: redact(inner) for key, inner in value.items()}
    return REDACTED


def _is_int(value: typing.Any) -> bool:
    # In Python, bool is a subclass of int.
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and _LOWEST_INT <= value <= _HIGHEST_INT
    )


Any = Type("any", lambda value: True)
NoneType = Type("none", lambda value: value is None)
Bool = Type("bool", lambda value: isinstance(value, bool))
Int = Type("int", _is_int)
# NaN is in no range.
Float = Type(
    "float",
    lambda value: isinstance(value, float) and -_HIGHEST_FLOAT <= value <= _HIGHEST_FLOAT,
)
Str = Type("str", lambda value: isinstance(value, str))
NonEmptyString = Type("nonempty-str", lambda value: isinstance(value, str) and value != "")
List = Type("list(any)", lambda value: isinstance(value, _LISTS))
Dict = Type("object(any)", lambda value: isinstance(value, dict))


def NonNeg(inner: Type) -> Type:
    """Return the type of numbers from zero upwards."""
    return Type(
        f"nonneg({inner})",
        lambda value: inner.check(value) and value >= 0,
        made_of=("nonneg", inner),
    )


def Pos(inner: Type) -> Type:
    """Return the type of numbers above zero."""
    return Type(
        f"pos({inner})", lambda value: inner.check(value) and value > 0, made_of=("pos", inner)
    )


def Neg(inner: Type) -> Type:
    """Return the type of numbers below zero."""
    return Type(
        f"neg({inner})", lambda value: inner.check(value) and value < 0, made_of=("neg", inner)
    )


def Within(inner: Type, low: float, high: float) -> Type:
    """Return the type of numbers from `low` to `high`; it has the name of the inner type."""
    return Type(
        inner.name,
        lambda value: inner.check(value) and low <= value <= high,
        made_of=("within", inner, low, high),
    )


def AtMost(inner: Type, count: int) -> Type:
    """Return the type of lists and texts of the inner type with at most ``count`` items."""
    return Type(
        inner.name,  # which is published
        lambda value: inner.check(value) and len(value) <= count,
        inner.hidden,
        ("at-most", inner, count),
    )


NonNegInt = NonNeg(Int)
PositiveInt = Pos(Int)
NegativeInt = Neg(Int)
Seconds = Within(Float, -_MAX_SECONDS, _MAX_SECONDS)


def Maybe(inner: Type) -> Type:
    """Return the type of null and the values of the inner type."""
    return Type(
        f"maybe({inner})",
        lambda value: value is None or inner.check(value),
        inner.hidden,
        ("maybe", inner),
    )


def Or(*inner: Type) -> Type:
    """Return the type of values which have one of the inner types."""
    return Type(
        f"or({','.join(map(str, inner))})",
        lambda value: any(each.check(value) for each in inner),
        _most_hidden(inner),
        ("or", *inner),
    )


def And(name: str, *inner: Type) -> Type:
    """Return the type of values which have all inner types."""
    return Type(
        name, lambda value: all(each.check(value) for each in inner), made_of=("and", *inner)
    )


def OneOf(name: str, values: Collection[typing.Any]) -> Type:
    """Return the type of the given values, which may grow. Its name is used in messages."""

    def check(value: typing.Any) -> bool:
        # An unhashable value is none of them; True is not accepted as 1.
        return isinstance(value, _SCALARS) and not isinstance(value, bool) and value in values

    return Type(name, check, made_of=("one-of", values))


def ListOf(inner: Type) -> Type:
    """Return the type of lists whose items have the inner type."""
    return Type(
        f"list({inner})",
        lambda value: isinstance(value, _LISTS) and all(map(inner.check, value)),
        inner.hidden,
        ("list", inner),
    )


def SetOf(inner: Type) -> Type:
    """Return the type of sets, which are lists in JSON; order and repetition have no meaning."""
    return Type(
        f"set({inner})",
        lambda value: isinstance(value, _SETS) and all(map(inner.check, value)),
        inner.hidden,
        ("list", inner),
    )


def DictOf(key: Type, inner: Type) -> Type:
    """Return the type of dictionaries with keys and values of these types."""
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
    """Return the type of dictionaries with any keys whose values have the inner type."""
    return Type(
        f"object({inner})",
        lambda value: isinstance(value, dict) and all(map(inner.check, value.values())),
        inner.hidden,
        ("object", Str, inner),
    )


def Tuple(*inner: Type) -> Type:
    """Return the type of lists of fixed length with a type for each item."""
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
    """Return the type of dictionaries with exactly these keys; optional ones may be missing."""
    every = {**required, **(optional or {})}

    def check(value: typing.Any) -> bool:
        return (
            isinstance(value, dict)
            and all(key in value for key in required)
            and all(key in every and every[key].check(item) for key, item in value.items())
        )

    return Type(name, check, made_of=("shape", every, tuple(required)))


def Named(name: str, inner: Type) -> Type:
    """Return the inner type under another name."""
    return Type(name, inner.check, inner.hidden, ("named", inner))


def Private(inner: Type) -> Type:
    """Return the inner type; its values are not written to logs and answers."""
    return Type(f"private({inner})", inner.check, "private", ("named", inner))


def Secret(inner: Type) -> Type:
    """Return the inner type; its values are not written to logs, answers and the job queue."""
    return Type(f"secret({inner})", inner.check, "secret", ("named", inner))


def _most_hidden(inner: Sequence[Type]) -> str:
    kinds = {each.hidden for each in inner}
    return "secret" if "secret" in kinds else "private" if "private" in kinds else ""


_DESCRIPTIONS = {
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


def describe(type_: Type) -> str:
    """Return a description of a type for users: ``text that is not empty, or null``."""
    if not type_.made_of:
        return _DESCRIPTIONS.get(type_.name, type_.name)
    form, *parts = type_.made_of
    if form in _RANGES:
        return f"{describe(parts[0])} {_RANGES[form]}"
    if form == "within":
        return f"{describe(parts[0])} from {parts[1]} to {parts[2]}"
    if form == "at-most":
        items = "characters" if parts[0].name in ("str", "nonempty-str") else "items"
        return f"{describe(parts[0])}, with at most {parts[1]} {items}"
    if form in ("maybe", "or"):
        return _choice(list(map(describe, parts if form == "or" else (*parts, NoneType))))
    if form == "list":
        return f"a list, each item {describe(parts[0])}"
    if form == "object":
        return f"an object, each value {describe(parts[-1])}"
    if form == "tuple":
        return f"a list of {len(parts)}: {'; '.join(map(describe, parts))}"
    if form == "one-of" and len(parts[0]) <= _MOST_LISTED:
        return _choice(list(map(str, parts[0])))
    if form == "named" and type_.hidden and type_.name.startswith(type_.hidden):
        return describe(parts[0])
    return type_.name


def limit_of(value: typing.Any) -> str:
    """Return an addition to a message about a wrong value: ``; ...`` for a number out of range."""
    if isinstance(value, int) and not _LOWEST_INT <= value <= _HIGHEST_INT:
        return "; a whole number has at most 64 bits"
    if isinstance(value, float) and not -_HIGHEST_FLOAT <= value <= _HIGHEST_FLOAT:
        return f"; a number is at most {_HIGHEST_FLOAT:g}"
    return ""


def _choice(words: Sequence[str]) -> str:
    """Join texts: ``a``, ``a or b``, ``a, b or c``; a further comma if a text has commas itself."""
    *most, last = words
    if not most:
        return last
    comma = "," if any("," in word or " or " in word for word in words) else ""
    return f"{', '.join(most)}{comma} or {last}"


def _is_job_id(value: typing.Any) -> bool:
    if isinstance(value, str):
        # Old programs send it as text. A longer text is not converted: that may fail or take long.
        if not (value.isascii() and value.isdigit() and len(value) <= len(str(MAX_JOB_ID))):
            return False
        value = int(value)
    return _is_int(value) and 0 <= value <= MAX_JOB_ID


JobId = Type("job-id", _is_job_id)

#: Number of fields of a query. The longest table has a tenth of that.
MAX_FIELDS = 1000
#: Names of fields of a query.
FieldNames = AtMost(ListOf(NonEmptyString), MAX_FIELDS)
#: A text which a person writes.
Remark = AtMost(Str, 1 << 16)
