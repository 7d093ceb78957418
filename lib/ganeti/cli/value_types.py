"""The types of option values: functions which read a value from a text of the command line.

There is one function for each type. It takes the text after the option and returns the value, or
raises :class:`~ganeti.errors.ParameterError` with a text that names the wrong part; the parser adds
the name of the option. The grammar is published.

============================ ================================================================
``keyval``                   ``a=1,b=2``; ``a`` is true, ``no_a`` is false, ``-a`` is null
``keyvalfile``               a file of lines ``a=1``, or ``-`` for standard input
``identkeyval``              ``0:size=1g,mode=ro``; ``no_x`` is false, ``-x`` null, ``-1`` a number
``multilistidentkeyval``     ``min:a=1/max:a=2//min:a=3/max:a=4``
``list``                     ``a,b,c``
``unit``                     ``512``, ``1.5g``; MiB
============================ ================================================================

A backslash before a separator makes it an ordinary character.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ganeti import TYPE_CHECKING, errors
from ganeti.utils.digits import is_number

if TYPE_CHECKING:
    from typing import Any, TypeVar

    KeyVal = dict[str, Any]
    T = TypeVar("T")


def split_escaped(text: str, separator: str = ",") -> list[str]:
    r"""Split a text at a separator of one character, except after a backslash.

    ``a\,b,c`` gives ``["a,b", "c"]``; a doubled backslash stands for one.
    """
    parts: list[str] = []
    current: list[str] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            # Other escapes are not changed, for example in a Windows path or a regular expression.
            current.append(
                following if following in (separator, "\\") and following else character + following
            )
        elif character == separator:
            parts.append("".join(current))
            current = []
        else:
            current.append(character)
    parts.append("".join(current))
    return parts


def parse_keyval(text: str) -> KeyVal:
    """Read ``key=value,key=value``.

    :raises ParameterError: an empty key, or a key that is given twice.
    """
    values: KeyVal = {}
    if not text:
        return values
    for part in split_escaped(text):
        key, equals, value = part.partition("=")
        meaning: Any = value
        if not equals:
            key, meaning = _bare_key(part)
        if not key:
            raise errors.ParameterError(f"no key in '{part}' of '{text}'")
        if key in values:
            raise errors.ParameterError(f"key '{key}' is given twice in '{text}'")
        values[key] = meaning
    return values


def _bare_key(part: str) -> tuple[str, bool | None]:
    """Return the key and the value of a part without an equals sign."""
    if part.startswith("no_"):
        return part[3:], False
    if part.startswith("-"):
        return part[1:], None
    return part, True


def parse_keyval_file(path: str) -> KeyVal:
    """Read parameters from a file; ``-`` means standard input.

    Unlike the arguments of a command, which each user of the machine sees in the list of
    processes, a file can be private.

    :raises ParameterError: the file cannot be read, or :func:`parse_keyval_lines` refuses it.
    """
    import sys

    from ganeti.utils import fs

    try:
        content = sys.stdin.read() if path == "-" else fs.read_file(path)
    except (OSError, ValueError) as err:
        raise errors.ParameterError(f"cannot read '{path}': {err}") from err
    try:
        return parse_keyval_lines(content.removeprefix(fs.BYTE_ORDER_MARK))
    except errors.ParameterError as err:
        raise errors.ParameterError(f"'{path}', {err}") from err


def parse_keyval_lines(content: str) -> KeyVal:
    """Read lines of the form ``NAME=VALUE``.

    The value is everything after the first equals sign. Empty lines and lines which begin with
    ``#`` mean nothing.

    :raises ParameterError: a line has another form, a name twice or a zero character. The message
        does not show the line, which may be a secret.
    """
    found: KeyVal = {}
    for number, line in enumerate(content.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, sign, value = line.rstrip("\r").partition("=")
        name = name.strip()
        if not sign or not name or "\0" in line:
            raise errors.ParameterError(f"line {number}: this is not NAME=VALUE")
        if name in found:
            raise errors.ParameterError(f"line {number}: the name '{name:.100}' is there twice")
        found[name] = value
    return found


def parse_identkeyval(text: str) -> tuple[str, KeyVal | bool | None]:
    """Read ``ident:key=value,...``.

    :returns: the identifier and its keys; instead of keys False for ``no_ident`` and None for
        ``-ident``. A minus before a digit belongs to the identifier (``-1`` is an index).
    :raises ParameterError: a removal with keys, an empty identifier, or a key that is given twice.
    """
    ident, colon, rest = text.partition(":")
    removal: bool | None = True
    if ident.startswith("no_"):
        ident, removal = ident[3:], False
    elif ident.startswith("-") and not ident[1:2].isdigit():
        ident, removal = ident[1:], None
    if not ident:
        raise errors.ParameterError(f"no identifier before the colon in '{text}'")
    if removal is True:
        return ident, parse_keyval(rest)
    if colon and rest:
        raise errors.ParameterError(f"'{text}' removes {ident} and can take no parameters")
    return ident, removal


def parse_multi_list_ident_keyval(text: str) -> list[dict[str, KeyVal]]:
    """Read sections, separated by ``//``, of parts ``ident:key=value,...``, separated by ``/``.

    :raises ParameterError: a removal, or an identifier that is given twice in one section.
    """
    sections: list[dict[str, KeyVal]] = []
    if not text:
        return sections
    for section in text.split("//"):
        found: dict[str, KeyVal] = {}
        for part in split_escaped(section, "/"):
            ident, keys = parse_identkeyval(part)
            if not isinstance(keys, dict):
                raise errors.ParameterError(f"'{part}' is a removal, which is not possible here")
            if ident in found:
                raise errors.ParameterError(f"'{ident}' is given twice in '{section}'")
            found[ident] = keys
        sections.append(found)
    return sections


def parse_list(text: str) -> list[str]:
    """Read ``a,b,c``; an empty text is an empty list."""
    return split_escaped(text) if text else []


def parse_bool(text: str) -> bool:
    """Read yes, no, true or false, ignoring case.

    :raises ParameterError: the text is another word.
    """
    meaning = {"yes": True, "true": True, "no": False, "false": False}.get(text.lower())
    if meaning is None:
        raise errors.ParameterError(f"'{text}' is neither yes nor no")
    return meaning


def parse_int(text: str) -> int:
    """Read a whole number.

    :raises ParameterError: the text is not a whole number.
    """
    try:
        return int(text)
    except ValueError as err:
        raise errors.ParameterError(f"'{text}' is not a whole number") from err


def parse_float(text: str) -> float:
    """Read a number.

    :raises ParameterError: the text is not a finite number.
    """
    try:
        value = float(text)
    except ValueError as err:
        raise errors.ParameterError(f"'{text}' is not a number") from err
    if value != value or value in (float("inf"), float("-inf")):
        raise errors.ParameterError(f"'{text}' is not a finite number")
    return value


def parse_maybe_float(text: str) -> float | str:
    """Read a number or the word ``default``.

    :raises ParameterError: the text is neither of them.
    """
    if text == "default":
        return text
    try:
        return parse_float(text)
    except errors.ParameterError as err:
        raise errors.ParameterError(f"'{text}' is neither a number nor 'default'") from err


def parse_size(text: str) -> int:
    """Read a size such as ``512`` or ``1.5g``.

    :returns: MiB, rounded up to a multiple of 4.
    :raises ParameterError: the text is not a size.
    """
    from ganeti.utils import text as text_utils

    try:
        return text_utils.parse_unit(text)
    except errors.UnitParseError as err:
        raise errors.ParameterError(str(err)) from err


def parse_json(text: str) -> Any:
    """Read a JSON text.

    :raises ParameterError: the text is not valid JSON.
    """
    from ganeti.wire import json

    try:
        return json.loads(text)
    except errors.ParseError as err:
        raise errors.ParameterError(f"'{text}': {err}") from err


def parse_filter_action(text: str) -> str | list[Any]:
    """Read the action of a job filter: a word, or ``RATE_LIMIT n``.

    :raises ParameterError: ``RATE_LIMIT`` without a positive number.
    """
    words = text.split()
    if words[:1] != ["RATE_LIMIT"]:
        return text
    try:
        (number,) = map(int, words[1:])
    except ValueError:
        number = 0
    if number < 1:
        raise errors.ParameterError(f"'{text:.100}': RATE_LIMIT needs a number of jobs, at least 1")
    return ["RATE_LIMIT", number]


def parse_time(text: str) -> int:
    """Read a time span: seconds, or a number with s, m, h, d or w.

    :returns: seconds.
    :raises ParameterError: the text is not a time span.
    """
    factors = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    number, factor = (text[:-1], factors[text[-1]]) if text[-1:] in factors else (text, 1)
    if not is_number(number):
        raise errors.ParameterError(
            f"'{text:.100}' is not a time span. Examples: 90, 30m, 6h, 7d, 4w."
        )
    return int(number) * factor


PARSERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "int": parse_int,
    "float": parse_float,
    "bool": parse_bool,
    "unit": parse_size,
    "keyval": parse_keyval,
    "keyprivateval": parse_keyval,
    "keyvalfile": parse_keyval_file,
    "identkeyval": parse_identkeyval,
    "multilistidentkeyval": parse_multi_list_ident_keyval,
    "list": parse_list,
    "maybefloat": parse_maybe_float,
    "json": parse_json,
    "filteraction": parse_filter_action,
    "choice": str,
}


def for_argparse(read: Callable[[str], T]) -> Callable[[str], T]:
    """Let :mod:`argparse` show the message of one of these functions.

    :returns: the function for the argument ``type`` of an option.
    """

    def convert(text: str) -> T:
        import argparse

        try:
            return read(text)
        except errors.ParameterError as err:
            raise argparse.ArgumentTypeError(str(err)) from err

    return convert


def typed_params(
    params: KeyVal, types: Mapping[str, str], *, allowed: Collection[str] = ()
) -> KeyVal:
    """Convert the texts of a ``keyval`` to the types of the parameters.

    This reads sizes such as ``memory=1g``, and finds mistakes before a job is submitted. The master
    checks the values, too.

    :param types: parameter name -> ``bool``, ``int``, ``float``, ``size``, ``string``,
        ``maybe-string``.
    :param allowed: values that every parameter may have (such as ``default``); they stay texts.
    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    if not params:
        return {}
    unknown = next((name for name in params if name not in types), None)
    if unknown is not None:
        from ganeti.utils import suggest  # needed after a mistake only

        raise errors.TypeEnforcementError(
            f"unknown parameter '{unknown}'.{suggest.hint(unknown, types)}"
        )
    from ganeti.objects import hvparams  # its tables cost 10 ms; most commands set no parameter

    return hvparams.force_types(params, types, allowed)
