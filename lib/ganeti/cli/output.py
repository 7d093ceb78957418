"""Output formats of commands: indented text for users; JSON, YAML and CSV for programs.

The indented text looks like YAML. Its keys, their order and the form ``default (...)`` are
published, but programs should use the other three formats (``doc/output.rst``). Only this module
and
:mod:`ganeti.rapi.represent` import PyYAML.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import terminal

if TYPE_CHECKING:
    from typing import Any

    #: Keys and values in their order of output; the keys of a mapping are sorted instead.
    Pairs = list[tuple[str, Any]]

_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in terminal.CONTROLS if code >= 0x7F}


def write_data(data: Any, output_format: str) -> None:
    """Write data as JSON, YAML or CSV to standard output.

    :raises OpPrereqError: the format is YAML and PyYAML is not installed.
    """
    if output_format == "csv":
        sys.stdout.write(to_csv(*_table_of(data)))
        sys.stdout.flush()
    else:
        terminal.out_data(to_json(data) if output_format == "json" else to_yaml(data))


def to_json(data: Any) -> str:
    """Return data as indented JSON without control characters; keys keep their order."""
    import json  # ganeti.wire.json writes a compact form with another order of keys

    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    # JSON escapes only the first 32 itself. The others can only stand inside of strings.
    return text.translate(_JSON_ESCAPES)


def to_yaml(data: Any) -> str:
    """Return data as YAML; keys keep their order.

    :raises OpPrereqError: PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as err:
        raise errors.OpPrereqError(
            "output format yaml needs PyYAML, which is not installed. Use --output json.",
            errors.ECODE_ENVIRON,
        ) from err
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text.rstrip("\n")


def to_csv(names: Sequence[str], rows: Iterable[Sequence[Any]], *, header: bool = True) -> str:
    """Return comma separated values (RFC 4180, but lines end with a newline alone).

    None is an empty cell; booleans are ``true`` and ``false``; lists and dictionaries are compact
    JSON.
    """
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header and names:
        writer.writerow(names)
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, dict)):
        import json

        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return value


def _table_of(data: Any) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows: a row for each object; a plain value is in the column ``value``."""
    items = list(data) if isinstance(data, (list, tuple)) else [data]
    objects = [item if isinstance(item, Mapping) else {"value": item} for item in items]
    names = list(dict.fromkeys(str(name) for item in objects for name in item))
    return names, [[item.get(name) for name in names] for item in objects]


def write_info(data: Any) -> None:
    """Write data as indented text to standard output."""
    terminal.out(format_info(data).removesuffix("\n"))


def format_info(data: Any) -> str:
    """Return data as indented text.

    :param data: a mapping (its keys are sorted), a list of pairs (which keep their order), another
        list, or a plain value.
    """
    parts: list[str] = []
    _format(parts, data, 0, after_key=False)
    return "".join(parts)


def _is_pairs(data: Any) -> bool:
    return (
        isinstance(data, list)
        and bool(data)
        and all(isinstance(item, tuple) and len(item) == 2 for item in data)
    )


def _format(parts: list[str], data: Any, level: int, *, after_key: bool) -> None:
    """Append the text of one value; the text so far ends after ``key:`` or at the indentation."""
    if isinstance(data, Mapping):
        data = [(str(key), data[key]) for key in sorted(data, key=str)]
    if _is_pairs(data):
        _start(parts, after_key)
        for index, (key, value) in enumerate(data):
            # The first key of a list item is on the line of the dash.
            if index or after_key:
                parts.append("  " * level)
            parts.append(f"{key}:")
            _format(parts, value, level + 1, after_key=True)
    elif isinstance(data, (list, tuple)):
        if not data:
            parts.append(" \n" if after_key else "\n")
            return
        _start(parts, after_key)
        for index, value in enumerate(data):
            if index or after_key:
                parts.append("  " * level)
            parts.append("- ")
            _format(parts, value, level + 1, after_key=False)
    else:
        parts.append(f" {data}\n" if after_key else f"{data}\n")


def _start(parts: list[str], after_key: bool) -> None:
    if after_key:
        parts.append(" \n")


def params_with_defaults(
    own: Mapping[str, Any], actual: Mapping[str, Any], number: Any = str
) -> dict[str, str]:
    """Return the parameters of an object: its own value, or ``default (value)`` if it is inherited.

    :param own: the values which the object itself has.
    :param actual: all values, with inherited ones.
    :param number: function which formats whole numbers.
    """
    return {
        name: value_text(own[name], number)
        if name in own
        else f"default ({value_text(value, number)})"
        for name, value in actual.items()
    }


def value_text(value: Any, number: Any = str) -> str:
    """Return one parameter as text.

    :param number: function which formats whole numbers, and floats like 4.0.
    """
    if type(value) is float and value.is_integer():
        value = int(value)
    return str(number(value)) if type(value) is int else str(value)


_ROMAN = (
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
)


def roman(value: Any) -> str:
    """Return a Roman numeral; other values than whole numbers from 1 to 3999 are not changed."""
    if type(value) is not int or not 0 < value < 4000:
        return str(value)
    parts = []
    for worth, letters in _ROMAN:
        count, value = divmod(value, worth)
        parts.append(letters * count)
    return "".join(parts)


def plain(value: Any) -> str:
    """Return a number in decimal notation."""
    return str(value)


def yes_no(value: bool) -> str:
    """Return ``Y`` or ``N``."""
    return "Y" if value else "N"
