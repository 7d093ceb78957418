"""JSON, in one place: the only user of simplejson.

Everything the program writes for others (sockets, node calls, files) goes through here, so that one
rule holds everywhere: compact ASCII text (half a surrogate pair from a careless client is then
stored and sent like any other character), never
``NaN`` or ``Infinity`` (not JSON, and strict readers refuse them), errors of our own tree.
"""

from __future__ import annotations

from typing import Any

import simplejson

from ganeti import errors

# One encoder and one decoder for the life of the process: building them costs more than a small
# message. Tuples become lists; named tuples too (their names mean nothing outside).
_ENCODER = simplejson.JSONEncoder(
    separators=(",", ":"),
    ensure_ascii=True,
    allow_nan=False,
    check_circular=False,
    namedtuple_as_object=False,
    use_decimal=False,
)
_DECODER = simplejson.JSONDecoder()
# With blanks, as other programs of this kind write it and as people read it over HTTP.
_SPACED = simplejson.JSONEncoder(
    ensure_ascii=True,
    allow_nan=False,
    check_circular=False,
    namedtuple_as_object=False,
    use_decimal=False,
)
# Newlines after each item make a file readable with line tools; used for files people open.
_PRETTY = simplejson.JSONEncoder(
    indent="  ",
    ensure_ascii=True,
    allow_nan=False,
    sort_keys=True,
    namedtuple_as_object=False,
    use_decimal=False,
)


def dumps(value: Any) -> str:
    """Compact text of `value`.

    :raises errors.ProgrammerError: the value holds something JSON cannot say (an object, NaN).
    """
    try:
        return str(_ENCODER.encode(value))
    except (TypeError, ValueError, RecursionError) as err:
        raise errors.ProgrammerError(f"cannot be written as JSON: {err}") from err


def dumps_pretty(value: Any) -> str:
    """As :func:`dumps`, indented and with sorted keys, for files people read."""
    try:
        return str(_PRETTY.encode(value)) + "\n"
    except (TypeError, ValueError, RecursionError) as err:
        raise errors.ProgrammerError(f"cannot be written as JSON: {err}") from err


def dumps_spaced(value: Any) -> str:
    """As :func:`dumps`, with a blank after each colon and comma, for answers over HTTP."""
    try:
        return str(_SPACED.encode(value))
    except (TypeError, ValueError, RecursionError) as err:
        raise errors.ProgrammerError(f"cannot be written as JSON: {err}") from err


def loads(text: str | bytes) -> Any:
    """Read JSON text.

    :raises errors.ParseError: not JSON, not UTF-8, nested too deeply, or ``NaN``/``Infinity``.
    """
    return _loads(_DECODER, text)


def loads_strict(text: str | bytes) -> Any:
    """As :func:`loads`; an object which says the same key twice is refused.

    :raises errors.ParseError: as :func:`loads`, or a key came twice.
    """
    return _loads(_STRICT, text)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _value in pairs:
            if key in seen:
                raise ValueError(f"key {key[:100]!r} came twice in one object")
            seen.add(key)
    return found


_STRICT = simplejson.JSONDecoder(object_pairs_hook=_no_duplicates)


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
