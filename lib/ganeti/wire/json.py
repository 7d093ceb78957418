"""Read and write JSON. This is the only module which imports simplejson.

All JSON for sockets, node calls and files is written here, so that the same rules hold everywhere:
the text is ASCII, so that an incomplete surrogate pair from a client is stored and sent like any
other character; ``NaN`` and ``Infinity`` are refused, because they are not JSON; errors are classes
of :mod:`ganeti.errors`.
"""

from __future__ import annotations

import simplejson

from ganeti import TYPE_CHECKING, errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

#: Values in a message from another process, for :func:`check_items`: the largest have a million.
MAX_ITEMS = 4_000_000
#: Lists and objects inside each other which :func:`check_nesting` allows. Functions that call
#: themselves for each level, here and in other programs, have a limit of some hundreds.
MAX_NESTING = 100

# One encoder and one decoder for the life of the process: to build them costs more than a small
# message. Tuples and named tuples become lists.
_ENCODER = simplejson.JSONEncoder(
    separators=(",", ":"),
    ensure_ascii=True,
    allow_nan=False,
    check_circular=False,
    namedtuple_as_object=False,
    use_decimal=False,
)


def _finite(text: str) -> float:
    value = float(text)
    if value - value:  # it is infinite, so this is not a number
        raise ValueError(f"number {text:.40} is too large")
    return value


def _not_a_number(text: str) -> float:
    # Versions of simplejson before 3.19 accept these words.
    raise ValueError(f"{text} is not a number of JSON")


_DECODER = simplejson.JSONDecoder(parse_float=_finite, parse_constant=_not_a_number)
# With blanks after colons and commas, for people who read answers over HTTP.
_SPACED = simplejson.JSONEncoder(
    ensure_ascii=True,
    allow_nan=False,
    check_circular=False,
    namedtuple_as_object=False,
    use_decimal=False,
)
# With a new line for each item, for files which people read.
_PRETTY = simplejson.JSONEncoder(
    indent="  ",
    ensure_ascii=True,
    allow_nan=False,
    sort_keys=True,
    namedtuple_as_object=False,
    use_decimal=False,
)


def dumps(value: Any) -> str:
    """Return the compact JSON text of a value.

    :raises errors.ProgrammerError: the value contains something which JSON lacks (an object, NaN).
    """
    try:
        return str(_ENCODER.encode(value))
    except (TypeError, ValueError, RecursionError) as err:
        raise errors.ProgrammerError(f"cannot be written as JSON: {err}") from err


def dumps_pretty(value: Any) -> str:
    """Return JSON text with indentation and sorted keys, for files which people read.

    :raises errors.ProgrammerError: as for :func:`dumps`.
    """
    try:
        return str(_PRETTY.encode(value)) + "\n"
    except (TypeError, ValueError, RecursionError) as err:
        raise errors.ProgrammerError(f"cannot be written as JSON: {err}") from err


def dumps_spaced(value: Any) -> str:
    """Return JSON text with a blank after each colon and comma, for answers over HTTP.

    :raises errors.ProgrammerError: as for :func:`dumps`.
    """
    try:
        return str(_SPACED.encode(value))
    except (TypeError, ValueError, RecursionError) as err:
        raise errors.ProgrammerError(f"cannot be written as JSON: {err}") from err


def loads(text: str | bytes) -> Any:
    """Read JSON text.

    :raises errors.ParseError: the text is not JSON or not UTF-8, is nested too deeply, or contains
        ``NaN``, ``Infinity`` or a number which is too large for a float.
    """
    return _loads(_DECODER, text)


def loads_strict(text: str | bytes) -> Any:
    """Read JSON text in which no object has the same key twice.

    :raises errors.ParseError: as for :func:`loads`, or an object has a key twice.
    """
    return _loads(_STRICT, text)


def check_items(text: str | bytes, most: int) -> None:
    """Refuse JSON text with too many values, before it is read.

    A list takes 60 bytes of memory and three of the text, so the size of a text says little about
    what it becomes.

    :param most: number of commas and opening brackets, also inside of texts.
    :raises errors.ParseError: there are more.
    """
    count = (
        sum(text.count(mark) for mark in (b",", b"[", b"{"))
        if isinstance(text, bytes)
        else sum(text.count(mark) for mark in (",", "[", "{"))
    )
    if count > most:
        raise errors.ParseError(f"it has more than {most} values")


def share_texts(value: Any) -> None:
    """Let equal texts in the lists and objects of a value be one object of Python.

    For what stays in memory, and repeats texts such as UUIDs: two thirds of the 665,000 texts in a
    configuration of 1,000 nodes. Keys are shared by :func:`loads` itself.

    :param value: from :func:`loads`; it is changed.
    """
    known: dict[str, str] = {}
    left = [value]
    while left:
        one = left.pop()
        for key, item in one.items() if isinstance(one, dict) else enumerate(one):
            if item.__class__ is str:
                one[key] = known.setdefault(item, item)
            elif isinstance(item, (dict, list)):
                left.append(item)


def check_nesting(value: Any) -> None:
    """Refuse a value whose lists and objects are nested more than :data:`MAX_NESTING` deep.

    :raises errors.ParseError: it is.
    """
    level = [value]
    for _ in range(MAX_NESTING + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list, tuple))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise errors.ParseError(f"lists and objects are nested more than {MAX_NESTING} deep")


def check_texts(value: Any) -> None:
    """Refuse a value with a text that is not a sequence of characters, or has a zero character.

    JSON can name a single part of a surrogate pair, which cannot be written as UTF-8; names of
    files and arguments of programs cannot contain a zero character.

    :param value: nested no deeper than :func:`check_nesting` allows.
    :raises errors.ParseError: there is such a text.
    """
    for text in _texts(value):
        _check_no_zero(text)
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as err:
                raise errors.ParseError(f"a text is not valid Unicode: {text!r:.80}") from err


def check_no_zero(value: Any) -> None:
    """Refuse a value in which a text has a zero character.

    Unlike :func:`check_texts`, it allows the names of files which are not UTF-8.

    :param value: nested no deeper than :func:`check_nesting` allows.
    :raises errors.ParseError: there is such a text.
    """
    for text in _texts(value):
        _check_no_zero(text)


def _check_no_zero(text: str) -> None:
    if "\0" in text:
        raise errors.ParseError(f"a text has a zero character: {text!r:.80}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _value in pairs:
            if key in seen:
                raise ValueError(f"key {key[:100]!r} occurs twice in one object")
            seen.add(key)
    return found


_STRICT = simplejson.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_float=_finite, parse_constant=_not_a_number
)


def _loads(decoder: simplejson.JSONDecoder, text: str | bytes) -> Any:
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return decoder.decode(text)
    except UnicodeDecodeError as err:
        raise errors.ParseError(f"not UTF-8: {err}") from err
    except RecursionError as err:
        raise errors.ParseError("invalid JSON: nested too deeply") from err
    except ValueError as err:
        raise errors.ParseError(f"invalid JSON: {err}") from err
