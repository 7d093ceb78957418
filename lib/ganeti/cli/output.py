"""Formats of what a command shows: the indented text for people; JSON, YAML and CSV for programs.

The indented text looks like YAML and is published as it is (keys, order, ``default (...)``); it is
not meant to be parsed, the other three are (``doc/output.rst``). This is the only user of PyYAML.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from ganeti import errors
from ganeti.cli import terminal

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

    #: Ordered keys and values; a Mapping is shown sorted by key.
    Pairs = list[tuple[str, Any]]


def write_data(data: Any, output_format: str) -> None:
    """Write data as JSON, YAML or CSV to standard output.

    :raises OpPrereqError: YAML was asked for and PyYAML is not installed.
    """
    if output_format == "csv":
        sys.stdout.write(to_csv(*_table_of(data)))
        sys.stdout.flush()
    else:
        terminal.out(to_json(data) if output_format == "json" else to_yaml(data))


def to_json(data: Any) -> str:
    """Indented JSON with the keys in their order."""
    import json  # the wire format is compact and sorted differently; this is for reading

    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)


def to_yaml(data: Any) -> str:
    """YAML with the keys in their order."""
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
    """Comma separated values (RFC 4180, lines end with a newline alone).

    What is not there is empty, true and false are words, lists and dictionaries are compact JSON.
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
    """Objects as columns and rows: one object is one row, a plain value a column ``value``."""
    items = list(data) if isinstance(data, (list, tuple)) else [data]
    objects = [item if isinstance(item, Mapping) else {"value": item} for item in items]
    names = list(dict.fromkeys(str(name) for item in objects for name in item))
    return names, [[item.get(name) for name in names] for item in objects]


def write_info(data: Any) -> None:
    """Write data as indented text to standard output."""
    sys.stdout.write(format_info(data))
    sys.stdout.flush()


def format_info(data: Any) -> str:
    """Indented text: mappings (sorted), lists of pairs (in order), lists, and plain values."""
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
    """Append the text of one value; the cursor stands behind ``key:`` or at the place to start."""
    if isinstance(data, Mapping):
        data = [(str(key), data[key]) for key in sorted(data, key=str)]
    if _is_pairs(data):
        _start(parts, after_key)
        for index, (key, value) in enumerate(data):
            # After a dash the first key stands on the dash's line.
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
    """Parameters of an object: its own value, or ``default (value)`` where it inherits.

    :param number: formats whole numbers.
    """
    return {
        name: value_text(own[name], number)
        if name in own
        else f"default ({value_text(value, number)})"
        for name, value in actual.items()
    }


def value_text(value: Any, number: Any = str) -> str:
    """One parameter as text.

    :param number: formats whole numbers; a float that is one counts (a ratio of 4.0 is 4).
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
    """A number as the Romans wrote it; what they could not write stays as it is."""
    if type(value) is not int or not 0 < value < 4000:
        return str(value)
    parts = []
    for worth, letters in _ROMAN:
        count, value = divmod(value, worth)
        parts.append(letters * count)
    return "".join(parts)


def plain(value: Any) -> str:
    """A number as everybody writes it."""
    return str(value)


def yes_no(value: bool) -> str:
    """``Y`` or ``N``."""
    return "Y" if value else "N"
