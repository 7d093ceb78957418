"""INI files which give every value back as it was, for descriptions of exports (``config.ini``).

The form of Python's ``configparser``, which other programs read, loses a part of some values: the
indentation of lines, lines which look like comments, blank lines and spaces at the ends, and it has
no place for some keys. So what it would not give back is written twice: in its place, as other
programs expect it, and in the section :data:`EXACT`, each as a list ``[section, key, value]`` in
JSON. The exact value counts unless somebody has changed the other one afterwards.

Source: Python documentation, *configparser*, Supported INI File Structure.
"""

from __future__ import annotations

import configparser
import io
import re
from collections.abc import Mapping
from typing import NamedTuple

from ganeti import errors
from ganeti.wire import json

#: The section with the values which the plain form does not give back.
EXACT = "exact"
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_./-]+", re.ASCII)
#: Section -> texts which an import takes there for a value which was not set.
_NOT_SET = {"instance": ("None", "none"), "hypervisor": ("None",), "backend": ("None",)}


class Ini(NamedTuple):
    """What an INI file contains.

    :ivar sections: section -> key -> value.
    :ivar exact: section and key of the values which were written exactly, such as the text "None".
    """

    sections: dict[str, dict[str, str]]
    exact: frozenset[tuple[str, str]]


def _parser() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    return parser


def _written(sections: Mapping[str, Mapping[str, str]]) -> str:
    parser = _parser()
    for name, values in sections.items():
        parser[name] = dict(values)
    stream = io.StringIO()
    parser.write(stream)
    return stream.getvalue()


def _given_back(key: str, value: str) -> str | None:
    """Return what readers of the plain form get; None for what it has no place for."""
    if _PLAIN_KEY.fullmatch(key) and value.isprintable() and value.strip() == value:
        return value
    try:
        # What is not UTF-8 cannot be in the file, and other keys of this section must stay apart.
        text = _written({"one": {key: value, "end": "."}})
        text.encode()
        parser = _parser()
        parser.read_string(text)
    except (configparser.Error, UnicodeEncodeError, ValueError):
        return None
    if parser.sections() != ["one"] or dict(parser["one"]).keys() != {key, "end"}:
        return None
    return parser["one"][key]


def describe(sections: Mapping[str, Mapping[str, object]]) -> str:
    """Return the text of an INI file; values are written as ``str()`` gives them."""
    plain: dict[str, dict[str, str]] = {}
    exact: list[list[str]] = []
    for name, values in sections.items():
        own = plain.setdefault(name, {})
        # Readers which do not distinguish upper and lower case refuse a file with both.
        taken: set[str] = set()
        for key, value in values.items():
            text = str(value)
            shown = None if key.lower() in taken else _given_back(key, text)
            if shown is not None:
                taken.add(key.lower())
                own[key] = text
            if shown != text or (isinstance(value, str) and value in _NOT_SET.get(name, ())):
                exact.append([name, key, text])
    if exact:
        plain[EXACT] = {str(index): json.dumps(one) for index, one in enumerate(exact)}
    return _written(plain)


def parse(text: str) -> Ini:
    """Read an INI file, also one which another program has written.

    :raises ParseError: the text is not an INI file, or an exact value is none.
    """
    parser = _parser()
    try:
        parser.read_string(text)
    except configparser.Error as err:
        raise errors.ParseError(str(err)) from err
    found = {name: dict(parser[name]) for name in parser.sections()}
    exact = set()
    for number, line in found.pop(EXACT, {}).items():
        match json.loads(line):
            case [str(section), str(key), str(value)]:
                pass
            case _:
                raise errors.ParseError(f"{number} of section {EXACT} is not a value: {line:.80}")
        own = found.setdefault(section, {})
        alike = key not in own and key.lower() in map(str.lower, own)
        if alike or own.get(key) == _given_back(key, value):
            own[key] = value
            exact.add((section, key))
    return Ini(found, frozenset(exact))
