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
    separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False,
    namedtuple_as_object=False, use_decimal=False,
)
_DECODER = simplejson.JSONDecoder()
# Newlines after each item make a file readable with line tools; used for files people open.
_PRETTY = simplejson.JSONEncoder(
    indent="  ", ensure_ascii=True, allow_nan=False, sort_keys=True, namedtuple_as_object=False,
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


def loads(text: str | bytes) -> Any:
    """Read JSON text.

    :raises errors.ParseError: not JSON, not UTF-8, nested too deeply, or ``NaN``/``Infinity``.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return _DECODER.decode(text)
    except UnicodeDecodeError as err:
        raise errors.ParseError(f"not UTF-8: {err}") from err
    except RecursionError as err:
        raise errors.ParseError("invalid JSON: nested too deeply") from err
    except ValueError as err:
        raise errors.ParseError(f"invalid JSON: {err}") from err
